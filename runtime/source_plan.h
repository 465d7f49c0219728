// source_plan.h - what a variant is made of: the generator's launch facts, as C keeps them and as text.
//
// Not who makes them: source.c reads them from Lua, a bundle holds them as text. Invariant: every field stands in a
// table below, from which reading and writing follow, so that a plan out of a bundle equals the generator's.
#ifndef VF_SOURCE_PLAN_H
#define VF_SOURCE_PLAN_H

#include "base.h"
#include "buf.h"
#include "varflash/varflash.h"

#define SOURCE_KERNELS_MAX 6

// Texts: field, bytes with the final zero. Numbers: field.
#define SOURCE_KERNEL_TEXTS(TEXT)                            \
    TEXT(name, 32)   /* "fwd_sm80" */                        \
    TEXT(entry, 128) /* symbol of the __global__ function */ \
    TEXT(boxes, 96)  /* "q:64,k:80,v:80": tensor_map.h */    \
    TEXT(spec, 512)  /* what its text depends on: key of the in-process table and of a bundle's kernels. \
                        Last: it has spaces */
#define SOURCE_KERNEL_NUMBERS(NUMBER)                            \
    NUMBER(threads)       /* a block */                          \
    NUMBER(shared_bytes)  /* dynamic shared memory of a block */ \
    NUMBER(blocks_per_sm) /* that fit, by the budget */          \
    NUMBER(cluster)       /* blocks that start together */       \
    NUMBER(registers)     /* a thread, by the budget */

// Checked mode's plan (pass=check) has neither family nor tiles.
#define SOURCE_PLAN_TEXTS(TEXT)                                   \
    TEXT(name, 160) /* "fwd_sm80_d128_bf16-sm_90a-m128n64w4s2" */ \
    TEXT(family, 32)
#define SOURCE_PLAN_NUMBERS(NUMBER)                                                                   \
    NUMBER(tile_m)                                                                                    \
    NUMBER(tile_n)                                                                                    \
    NUMBER(numeric)          /* a fingerprint: plans of one request give equal bits if it is equal */ \
    NUMBER(shared_per_block) /* bytes that the architecture lets a block have */

#define SOURCE_TEXT_MEMBER(name, size) char name[size];
#define SOURCE_NUMBER_MEMBER(name) int name;

struct source_kernel {
    SOURCE_KERNEL_TEXTS(SOURCE_TEXT_MEMBER)
    SOURCE_KERNEL_NUMBERS(SOURCE_NUMBER_MEMBER)
};

struct source_plan {
    SOURCE_PLAN_TEXTS(SOURCE_TEXT_MEMBER)
    SOURCE_PLAN_NUMBERS(SOURCE_NUMBER_MEMBER)
    int kernel_count;
    struct source_kernel kernels[SOURCE_KERNELS_MAX];  // in launch order
};

// A line for the plan, one for each kernel: words `key=value`, numbers first.
void source_plan_write(const struct source_plan *plan, struct buf *text);

// The other way round, from `size` bytes of anything. False if they are no plan.
bool source_plan_read(const char *text, size_t size, struct source_plan *plan);

#endif
