// cpu_pool.c - see cpu_pool.h. No thread outlives its call, so there is nothing for fork() or unloading to break.
#include "cpu_pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "status.h"

#define ALIGNMENT 64

struct pool {
    cpu_work *work;
    const void *context;
    size_t items;
    atomic_size_t next;
};

struct worker {
    pthread_t thread;
    struct pool *pool;
    char *scratch;
};

static void *run_items(void *argument) {
    const struct worker *worker = argument;
    struct pool *pool = worker->pool;
    for (;;) {
        const size_t item = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (item >= pool->items) return NULL;
        pool->work(pool->context, item, worker->scratch);
    }
}

// Starts workers 1 ... count - 1 and returns how many there are with the caller. They take no signals: those are the
// program's.
static size_t start(struct worker *workers, size_t count) {
    if (count == 1) return 1;
    sigset_t all, old;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &old)) return 1;
    size_t started = 1;
    while (started < count && !pthread_create(&workers[started].thread, NULL, run_items, &workers[started])) started++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return started;
}

vf_status cpu_run(int threads, size_t items, size_t scratch, cpu_work *work, const void *context) {
    if (items == 0) return VF_OK;
    const size_t wanted = threads > 1 ? (size_t)threads : 1, count = wanted < items ? wanted : items;
    const size_t each = (scratch + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t bytes = 0;
    struct worker *workers = calloc(count, sizeof *workers);
    char *memory =
        __builtin_mul_overflow(each, count, &bytes) ? NULL : aligned_alloc(ALIGNMENT, bytes ? bytes : ALIGNMENT);
    vf_status status = VF_OK;
    if (!workers || !memory) {
        status = status_fail(VF_ERROR_OUT_OF_MEMORY,
                             "cpu: no memory for %zu threads with %zu bytes each; use fewer threads", count, each);
        goto out;
    }
    struct pool pool = {.work = work, .context = context, .items = items};
    for (size_t i = 0; i < count; i++) workers[i] = (struct worker){.pool = &pool, .scratch = memory + i * each};
    const size_t running = start(workers, count);
    run_items(&workers[0]);
    for (size_t i = 1; i < running; i++) pthread_join(workers[i].thread, NULL);
out:
    free(memory);
    free(workers);
    return status;
}
