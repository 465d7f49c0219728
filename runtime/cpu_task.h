// cpu_task.h - one call on the CPU as its kernels see it: operands, options, and the list of work.
//
// Made by cpu.c and cpu_schedule.c, read by the kernels, which write nothing here but accumulators and turns.
// Invariant: the rows of all entries are disjoint and inside the tensors, whatever the lengths of the call said.
#ifndef VF_CPU_TASK_H
#define VF_CPU_TASK_H

#include <stdatomic.h>

#include "base.h"
#include "varflash/varflash.h"

// A query row of the kernels is a (token, head) pair: the heads that share a key head lie side by side, so that a row
// of a sequence is token * group + head within the group. Sums run over keys in blocks of fixed size from the first key
// on: CPU_KEYS and the backward's blocks are part of what decides the bits.
#define CPU_ROWS 192           // query rows of a forward item, at most
#define CPU_KEYS 128           // keys that the forward takes in at a time
#define CPU_BACKWARD_ROWS 64   // query rows that the backward takes in at a time
#define CPU_BACKWARD_KEYS 192  // keys of a backward item, at most

// Element (slot, row, head, column) lies at data + slot * slot_stride + ... in bytes, modulo 2^64: strides are of
// either sign, and one that is only ever multiplied by 0 may be as large as it likes.
struct cpu_operand {
    uint64_t data;  // 0: absent
    uint64_t slot_stride, row_stride, head_stride;
};

static inline char *cpu_address(const struct cpu_operand *operand, int64_t slot, int64_t row, int64_t head) {
    return (char *)(uintptr_t)(operand->data + (uint64_t)slot * operand->slot_stride +
                               (uint64_t)row * operand->row_stride + (uint64_t)head * operand->head_stride);
}

// One side of a sequence, or of a range of rows where no token lives.
struct cpu_range {
    int64_t slot;   // 0 in packed tensors
    int64_t begin;  // first row
    int64_t length;
};

enum cpu_kind { CPU_SEQUENCE, CPU_GAP_Q, CPU_GAP_K };

struct cpu_entry {
    enum cpu_kind kind;
    struct cpu_range q, k;  // a gap has only its own side
    size_t first_item;      // items of all entries before this one
    size_t turns;           // backward: its first turn, of heads_k * row blocks
    size_t accumulators;    // backward: its first accumulator row, of heads_k * rows; used if it has several key blocks
};

struct cpu_schedule {
    size_t count, items;
    struct cpu_entry *entries;  // most work first
    size_t turns, accumulators;
    double products;  // multiplications that full attention would take, over head_dim
};

struct cpu_kernels;

struct cpu_task {
    const struct cpu_kernels *kernels;
    bool backward;
    vf_dtype dtype;
    size_t element;  // bytes
    int head_dim, head_dim_v;
    int64_t heads_k, group;
    int64_t left, right;  // visible: i + k_len - q_len - left ... + right; large enough to be no edge without one
    float scale, softcap;
    struct cpu_operand q, k, v, o, lse, dout, dlse, dq, dk, dv;
    struct cpu_schedule schedule;
    float *accumulators;  // [row][head_dim]: dq of rows whose keys are several items
    atomic_uint *turns;   // key blocks that have added their part to a block of rows
};

// The kernels of a level of vector code. Scratch: bytes that every thread needs, 64-byte aligned.
struct cpu_kernels {
    size_t (*forward_scratch)(const struct cpu_task *task);
    size_t (*backward_scratch)(const struct cpu_task *task);
    // Rows [block * CPU_ROWS, ...) of the query heads of key head `head`.
    void (*forward)(const struct cpu_task *task, const struct cpu_entry *sequence, int64_t head, int64_t block,
                    float *scratch);
    // Keys [block * CPU_BACKWARD_KEYS, ...) of key head `head`, and their part of dq; block 0 also the rows that see no
    // key.
    void (*backward)(const struct cpu_task *task, const struct cpu_entry *sequence, int64_t head, int64_t block,
                     float *scratch);
};

// Null where the build has no such level.
extern const struct cpu_kernels *const cpu_generic, *const cpu_avx2, *const cpu_avx512;

static inline int64_t cpu_blocks(int64_t length, int64_t block) {
    return length / block + (length % block != 0);
}

static inline int64_t cpu_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t cpu_max(int64_t a, int64_t b) {
    return a > b ? a : b;
}

// Keys that token i of a sequence sees: [first, end), empty if first >= end. Both rise with i.
static inline int64_t cpu_first_key(const struct cpu_task *task, const struct cpu_entry *sequence, int64_t i) {
    return cpu_max(0, i + sequence->k.length - sequence->q.length - task->left);
}

static inline int64_t cpu_end_key(const struct cpu_task *task, const struct cpu_entry *sequence, int64_t i) {
    return cpu_min(sequence->k.length, i + sequence->k.length - sequence->q.length + task->right + 1);
}

#endif
