// cpu_generic.c - the CPU kernels in what the compiler makes of plain vectors for the target at hand.
#include "cpu_kernel.inc"

const struct cpu_kernels *const cpu_generic = &kernels;
