// cpu_pool.h - runs numbered items of work on several threads, which live as long as the call.
//
// Items are drawn in rising order, each before it starts: an item may wait (cpu_wait) for one with a lower number, and
// for nothing else. Invariant: every item runs exactly once, on however many threads the system grants.
#ifndef VF_CPU_POOL_H
#define VF_CPU_POOL_H

#include <sched.h>
#include <stdatomic.h>

#include "base.h"
#include "varflash/varflash.h"

typedef void cpu_work(const void *context, size_t item, void *scratch);

// Every thread has `scratch` bytes of its own, 64-byte aligned. VF_ERROR_OUT_OF_MEMORY: no item has run.
vf_status cpu_run(int threads, size_t items, size_t scratch, cpu_work *work, const void *context);

// Waits until *turn is `value`: what was written before it was raised to that is then visible.
static inline void cpu_wait(atomic_uint *turn, unsigned value) {
    while (atomic_load_explicit(turn, memory_order_acquire) != value) sched_yield();
}

#endif
