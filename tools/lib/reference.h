// reference.h - the oracle: attention and its gradients in float64, straight from the formulas of varflash.h.
//
// One (sequence, query head) is taken out of the tensors into plain double arrays; then each row of o, lse and dq and
// each key of dk and dv is a sum over the visible pairs, nothing more. Independent of runtime/ and of every kernel;
// checked by finite differences in tests/unit/test_reference.c. plain.h computes the same the way 16-bit code would.
#ifndef VF_REFERENCE_H
#define VF_REFERENCE_H

#include "tensors.h"

// Where the backward takes o and lse from: computed here in float64, or the tensors o and lse of the call.
enum reference_source { REFERENCE_OWN, REFERENCE_GIVEN };

// What a sequence and query head need. Belongs to one thread.
struct reference_head {
    const struct problem *problem;
    int64_t sq, sk, d, dv;
    double scale;
    double *q, *k, *v;        // [sq][d], [sk][d], [sk][dv]
    double *dout, *o, *dlse;  // [sq][dv], [sq][dv], [sq] (zeros without a dlse); null without a backward
    double *lse, *delta;      // [sq]: of the forward; dout . o - dlse. Null without a backward
    double *q_norm, *k_norm, *v_norm, *dout_norm,
        *o_norm;     // Euclidean, of each row; the last two null without a backward
    double *scores;  // scratch [sk]
    double *memory;  // what all of these point into
};

// Rows and keys are judged in units: the root of the sum of the squares of all terms of an element before any cancel,
// averaged over the elements of the row. A rounding error of the terms moves the result by about epsilon * unit,
// whatever the length.
struct reference_units {
    double o, lse, dq;            // of a row; lse: what float32 scores may move it by is proportional to this
    double dk_square, dv_square;  // of a key, to be added up over the heads of a group
};

vf_status reference_load(const struct problem *problem, const struct tensors *tensors,
                         const struct problem_span *span_q, const struct problem_span *span_k, int64_t head_q,
                         bool backward, enum reference_source source, struct reference_head *head);
void reference_free(struct reference_head *head);

// Row i: o [dv] and *lse; dq [d]. Key j: this head's part is added to dk [d] and dv [dv].
void reference_row(const struct reference_head *head, int64_t i, double *o, double *lse, struct reference_units *units);
void reference_dq(const struct reference_head *head, int64_t i, double *dq, struct reference_units *units);
void reference_dkv(const struct reference_head *head, int64_t j, double *dk, double *dv, struct reference_units *units);

#endif
