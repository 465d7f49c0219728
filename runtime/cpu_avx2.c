// cpu_avx2.c - the CPU kernels for AVX2, FMA and F16C. Nothing else may be compiled with these flags.
#include "cpu_task.h"

#ifdef __AVX2__
#include "cpu_kernel.inc"

const struct cpu_kernels *const cpu_avx2 = &kernels;
#else
const struct cpu_kernels *const cpu_avx2 = NULL;
#endif
