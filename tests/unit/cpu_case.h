// cpu_case.h - small attention problems for the CPU backend's tests: tensors in hostile memory, and float64 answers.
//
// A case is plain data that a test sets or draws from a seed; case_run makes its tensors (every operand with its own
// strides, everything that no token owns poisoned), runs forward and backward, and compares every element with formulas
// in float64, and every other byte with what it was. Independent of the library: lengths, masks and addresses are
// worked out here again.
#ifndef VF_CPU_CASE_H
#define VF_CPU_CASE_H

#include <stdbool.h>
#include <stdint.h>

#include "varflash/varflash.h"

#define CASE_BATCH 12

struct case_side {
    int64_t slots[CASE_BATCH];  // tokens of each slot; batched: all the same
    int64_t used[CASE_BATCH];   // read with has_used
    bool has_used, batched, wide;
    int64_t tail;  // packed: rows after the last slot
};

enum case_tensor_name {
    CASE_Q,
    CASE_K,
    CASE_V,
    CASE_O,
    CASE_LSE,
    CASE_DOUT,
    CASE_DLSE,
    CASE_DQ,
    CASE_DK,
    CASE_DV,
    CASE_TENSORS
};

enum case_layout {
    CASE_DENSE,      // as small as can be
    CASE_SCATTERED,  // dimensions in any order, gaps between them, either sign, at any offset
    CASE_EXPANDED,   // scattered, and some dimensions with stride 0: inputs only
};

struct case_problem {
    uint64_t seed;
    int64_t batch;
    struct case_side q, k;
    int64_t heads_k, group;
    int head_dim, head_dim_v;
    vf_dtype dtype;
    vf_mask mask;
    int64_t left, right;
    double scale, softcap, deviation;  // deviation of the inputs; 0: 1
    vf_fill fill;
    bool backward, dlse, no_lse;
    double poison;  // in memory of inputs that no token owns
    enum case_layout layout[CASE_TENSORS];
    int threads;
};

// The tensors of a case: views into memory of their own.
struct case_tensors {
    vf_tensor view[CASE_TENSORS];
    unsigned char *memory[CASE_TENSORS];
    unsigned char *before[CASE_TENSORS];  // outputs: their bytes before the call
    size_t bytes[CASE_TENSORS];
    vf_forward_args forward;
    vf_backward_args backward;
    int64_t lengths[4][CASE_BATCH + 1];
};

// A problem with every feature drawn from `seed`; most lengths below `longest`.
struct case_problem case_random(uint64_t seed, int64_t longest);

void case_make(const struct case_problem *problem, struct case_tensors *tensors);
// The arguments of both passes for such tensors, which case_make has made of all.
void case_call(struct case_tensors *tensors, const vf_tensor view[CASE_TENSORS], vf_problem_args args);
void case_free(struct case_tensors *tensors);

// Whether everything holds; on the terminal what does not.
bool case_run(const struct case_problem *problem);
bool case_check(const struct case_problem *problem, struct case_tensors *tensors);

// An element of a tensor, and its address. The indices are those of the shape.
double case_get(const vf_tensor *tensor, const int64_t index[4]);
void *case_at(const vf_tensor *tensor, const int64_t index[4]);

// Where token i of sequence b lies: the slot and the row.
void case_place(const struct case_side *side, int64_t b, int64_t i, int64_t *slot, int64_t *row);
int64_t case_length(const struct case_side *side, int64_t b);

#endif
