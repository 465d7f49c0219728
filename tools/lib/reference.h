// reference.h - the oracle: attention and its gradients in float64, straight from the formulas of varflash.h.
//
// One (sequence, query head) is taken out of the tensors into plain double arrays; then each row of o, lse and dq and
// each key of dk and dv is a sum over the visible pairs, nothing more. Independent of runtime/ and of every kernel;
// checked by finite differences in tests/unit/test_reference.c. plain.h computes the same the way 16-bit code would.
#ifndef VF_REFERENCE_H
#define VF_REFERENCE_H

#include "tensors.h"

// A (sequence, query head): what its rows and keys need. q [sq][d], k [sk][d], v [sk][dv], dout [sq][dv], dlse [sq].
struct reference_head {
    const struct problem *problem;
    int64_t sq, sk, d, dv;
    double scale;
    double *q, *k, *v, *dout, *dlse;  // dout, dlse null without a backward
    double *lse, *delta;              // [sq]: of the forward and dout . o - dlse
};

// Where the backward takes o and lse from.
enum reference_source { REFERENCE_OWN, REFERENCE_GIVEN };  // computed in float64; the tensors o and lse

// Loads sequence b (spans of both sides), query head h. Without `backward` only q, k and v. VF_ERROR_OUT_OF_MEMORY.
vf_status reference_head_load(const struct problem *problem, const struct tensors *tensors,
                              const struct problem_span *span_q, const struct problem_span *span_k, int64_t head,
                              bool backward, enum reference_source source, struct reference_head *out);
void reference_head_free(struct reference_head *head);

// What a result is made of: its size before terms cancel (root of the sum of their squares, per element). Errors of a
// row are judged in this unit.
struct reference_unit {
    double o, dq, dk, dv;
    double lse;  // how far float32 scores may move lse
};

// Row i: o [dv], lse. Row i: dq [d]. Key j: adds this head's part to dk [d] and dv [dv]. `unit` is added to, as squares
// for dk and dv; null: not wanted.
void reference_row(const struct reference_head *head, int64_t i, double *o, double *lse, struct reference_unit *unit);
void reference_dq(const struct reference_head *head, int64_t i, double *dq, struct reference_unit *unit);
void reference_dkv(const struct reference_head *head, int64_t j, double *dk, double *dv, struct reference_unit *unit);

// The whole problem into doubles: o [slots][rows_q][heads_q][dv], lse [slots][rows_q][heads_q], dq like q, dk like k,
// dv like v. Rows without a token: 0, lse -inf. The gradients may be null. `threads` 0: all cores.
struct reference_result {
    double *o, *lse, *dq, *dk, *dv;
};
vf_status reference_compute(const struct problem *problem, const struct tensors *tensors, int threads,
                            struct reference_result *result);
void reference_free(struct reference_result *result);

#endif
