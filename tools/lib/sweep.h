// sweep.h - random problems that are the same on every machine: number `index` of a sweep depends on seed and size
// alone.
//
// Drawn from SWEEP_CLASSES classes of what is static in a kernel (dims, dtype, mask, softcap, alignment, determinism), so
// that a sweep on a GPU reuses compiled kernels: at most as many forward variants, and as many backward ones. Everything
// else is drawn freely.
#ifndef VF_SWEEP_H
#define VF_SWEEP_H

#include "problem.h"

#define SWEEP_CLASSES 60

enum sweep_size { SWEEP_NORMAL, SWEEP_SMALL };  // lengths to 700; to 140 and float32 too, for the CPU backend

vf_status sweep_problem(enum sweep_size size, uint64_t seed, uint64_t index, struct problem *problem);

#endif
