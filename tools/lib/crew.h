// crew.h - a loop spread over threads, for the work that tools and tests do on the host.
#ifndef VF_CREW_H
#define VF_CREW_H

#include <stdint.h>

// Calls work(user, i) once for each i in [0, count), in any order, on up to `threads` threads (0: all cores), and
// returns when all are done. Results must not depend on the order. Without threads to be had it runs in the caller's.
void crew_run(int threads, int64_t count, void (*work)(void *user, int64_t i), void *user);

// How many rows of `elements` elements make a piece that is worth a thread's while.
int64_t crew_rows(int64_t elements);

#endif
