// sample.h - the calls that runtime tests start from: valid arguments, in host or stub memory, to be bent one field at
// a time.
#ifndef VF_SAMPLE_H
#define VF_SAMPLE_H

#include <stdlib.h>
#include <string.h>

#include "varflash/varflash.h"

// Small and with room: two sequences of at most 8 rows, 4 query heads, 2 key heads, head_dim 64, head_dim_v 32.
enum {
    SAMPLE_BATCH = 2,
    SAMPLE_ROWS_Q = 10,
    SAMPLE_ROWS_K = 12,
    SAMPLE_HEADS_Q = 4,
    SAMPLE_HEADS_K = 2,
    SAMPLE_DIM = 64,
    SAMPLE_DIM_V = 32
};

typedef void *(*sample_memory)(size_t bytes);

static inline vf_tensor sample_tensor_of(sample_memory memory, vf_dtype dtype, size_t element, int ndim,
                                         const int64_t *shape) {
    vf_tensor tensor = {.dtype = dtype, .ndim = ndim};
    int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        tensor.shape[i] = shape[i];
        tensor.stride[i] = stride;
        stride *= shape[i];
    }
    if (stride > 0) tensor.data = memory((size_t)stride * element);
    return tensor;
}

static inline vf_tensor sample_operand(sample_memory memory, int64_t rows, int64_t heads, int64_t dim) {
    return sample_tensor_of(memory, VF_BFLOAT16, 2, 3, (int64_t[]){rows, heads, dim});
}

static inline vf_tensor sample_rows(sample_memory memory, int64_t heads, int64_t rows) {
    return sample_tensor_of(memory, VF_FLOAT32, 4, 2, (int64_t[]){heads, rows});
}

static inline vf_tensor sample_lengths_of(sample_memory memory, const int32_t *values, int64_t count) {
    vf_tensor tensor = sample_tensor_of(memory, VF_INT32, 4, 1, &count);
    memcpy(tensor.data, values, (size_t)count * sizeof *values);
    return tensor;
}

static inline vf_problem_args sample_problem(sample_memory memory) {
    return (vf_problem_args){
        .cu_seqlens_q = sample_lengths_of(memory, (int32_t[]){0, 4, SAMPLE_ROWS_Q}, SAMPLE_BATCH + 1),
        .cu_seqlens_k = sample_lengths_of(memory, (int32_t[]){0, 4, SAMPLE_ROWS_K}, SAMPLE_BATCH + 1),
        .workspace = memory(1 << 20),
        .workspace_size = 1 << 20};
}

static inline vf_forward_args sample_forward(sample_memory memory) {
    return (vf_forward_args){.q = sample_operand(memory, SAMPLE_ROWS_Q, SAMPLE_HEADS_Q, SAMPLE_DIM),
                             .k = sample_operand(memory, SAMPLE_ROWS_K, SAMPLE_HEADS_K, SAMPLE_DIM),
                             .v = sample_operand(memory, SAMPLE_ROWS_K, SAMPLE_HEADS_K, SAMPLE_DIM_V),
                             .o = sample_operand(memory, SAMPLE_ROWS_Q, SAMPLE_HEADS_Q, SAMPLE_DIM_V),
                             .lse = sample_rows(memory, SAMPLE_HEADS_Q, SAMPLE_ROWS_Q),
                             .problem = sample_problem(memory)};
}

static inline vf_backward_args sample_backward(sample_memory memory) {
    const vf_forward_args forward = sample_forward(memory);
    return (vf_backward_args){.q = forward.q,
                              .k = forward.k,
                              .v = forward.v,
                              .o = forward.o,
                              .lse = forward.lse,
                              .dout = sample_operand(memory, SAMPLE_ROWS_Q, SAMPLE_HEADS_Q, SAMPLE_DIM_V),
                              .dq = sample_operand(memory, SAMPLE_ROWS_Q, SAMPLE_HEADS_Q, SAMPLE_DIM),
                              .dk = sample_operand(memory, SAMPLE_ROWS_K, SAMPLE_HEADS_K, SAMPLE_DIM),
                              .dv = sample_operand(memory, SAMPLE_ROWS_K, SAMPLE_HEADS_K, SAMPLE_DIM_V),
                              .problem = forward.problem};
}

// Batched [batch, seqlen, heads, dim] forms of the same.
static inline vf_tensor sample_batched(sample_memory memory, int64_t rows, int64_t heads, int64_t dim) {
    return sample_tensor_of(memory, VF_BFLOAT16, 2, 4, (int64_t[]){SAMPLE_BATCH, rows, heads, dim});
}

static inline vf_forward_args sample_batched_forward(sample_memory memory) {
    return (vf_forward_args){
        .q = sample_batched(memory, 5, SAMPLE_HEADS_Q, SAMPLE_DIM),
        .k = sample_batched(memory, 7, SAMPLE_HEADS_K, SAMPLE_DIM),
        .v = sample_batched(memory, 7, SAMPLE_HEADS_K, SAMPLE_DIM_V),
        .o = sample_batched(memory, 5, SAMPLE_HEADS_Q, SAMPLE_DIM_V),
        .lse = sample_tensor_of(memory, VF_FLOAT32, 4, 3, (int64_t[]){SAMPLE_BATCH, SAMPLE_HEADS_Q, 5}),
        .problem = {.workspace = memory(1 << 20), .workspace_size = 1 << 20}};
}

// Host memory from one block that a test ends with sample_host_free; poisoned, so that a stray write or read shows.
static struct {
    void *blocks[128];
    int count;
} sample_blocks;

static inline void *sample_host(size_t bytes) {
    void *block = aligned_alloc(256, (bytes + 255) / 256 * 256 + 256);
    memset(block, 0x7f, (bytes + 255) / 256 * 256 + 256);
    sample_blocks.blocks[sample_blocks.count++] = block;
    return block;
}

static inline void sample_host_free(void) {
    while (sample_blocks.count > 0) free(sample_blocks.blocks[--sample_blocks.count]);
}

// What a forward like sample_forward's needs: the schedule, and the two kernels between which sizes decide.
enum { SAMPLE_FORWARD_KERNELS = 3 };

#endif
