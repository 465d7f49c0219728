// cpu.h - the CPU backend: attention on host memory, forward and backward, on all cores.
//
// Takes calls that validation has found sound, and owes them the whole contract of varflash.h, broken lengths included.
// Keeps no state between calls but the choice of vector code. Invariant: the bits of a result depend on the sequence,
// the request and the vector code, never on the number of threads, the rest of the batch or where tensors lie.
#ifndef VF_CPU_H
#define VF_CPU_H

#include "base.h"
#include "varflash/varflash.h"

// The calls return when the result is there. threads 0: cpu_thread_count(). VF_ERROR_OUT_OF_MEMORY: nothing was
// written.
vf_status cpu_forward(const vf_forward_args *args, int threads);
vf_status cpu_backward(const vf_backward_args *args, int threads);

// Bytes that the caller must bring. Both 0: what a call needs besides its operands it takes from the heap for its
// duration.
size_t cpu_forward_workspace(const vf_forward_args *args);
size_t cpu_backward_workspace(const vf_backward_args *args);

// Vector code, from plain C upwards. The best that this processor runs is chosen when first needed.
enum cpu_level { CPU_GENERIC, CPU_AVX2, CPU_AVX512, CPU_LEVEL_COUNT };

// What is in use, and its name: "generic", "avx2", "avx512".
enum cpu_level cpu_level(void);
const char *cpu_level_name(enum cpu_level level);

// Uses `level` from now on; false, and no change, where this processor or this build does not have it. For tests: not
// while calls run.
bool cpu_select(enum cpu_level level);

// Cores that this process may use.
int cpu_thread_count(void);

#endif
