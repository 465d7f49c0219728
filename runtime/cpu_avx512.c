// cpu_avx512.c - the CPU kernels for AVX-512 (F, BW, VL, DQ), FMA and F16C. Nothing else may be compiled with these
// flags.
#include "cpu_task.h"

#ifdef __AVX512F__
#include "cpu_kernel.inc"

const struct cpu_kernels *const cpu_avx512 = &kernels;
#else
const struct cpu_kernels *const cpu_avx512 = NULL;
#endif
