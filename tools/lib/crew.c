// crew.c - see crew.h. Threads draw the next index from one counter until none is left.
#include "crew.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define CREW_LIMIT 256
#define CREW_ELEMENTS 65536

struct crew {
    atomic_llong next;
    int64_t count;
    void (*work)(void *user, int64_t i);
    void *user;
};

static void *draw(void *data) {
    struct crew *crew = data;
    for (;;) {
        const int64_t i = atomic_fetch_add(&crew->next, 1);
        if (i >= crew->count) return NULL;
        crew->work(crew->user, i);
    }
}

static int cores(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

void crew_run(int threads, int64_t count, void (*work)(void *user, int64_t i), void *user) {
    struct crew crew = {.count = count, .work = work, .user = user};
    pthread_t members[CREW_LIMIT];
    int started = 0;
    int64_t wanted = threads > 0 ? threads : cores();
    if (wanted > count) wanted = count;
    if (wanted > CREW_LIMIT) wanted = CREW_LIMIT;
    while (started < wanted - 1 && !pthread_create(&members[started], NULL, draw, &crew)) started++;
    draw(&crew);
    for (int i = 0; i < started; i++) pthread_join(members[i], NULL);
}

int64_t crew_rows(int64_t elements) {
    return elements < CREW_ELEMENTS ? CREW_ELEMENTS / (elements > 0 ? elements : 1) : 1;
}
