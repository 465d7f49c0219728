// plain.h - the same maths as plain 16-bit code does it: the yardstick of tolerances, never of right and wrong.
//
// Scores, P, dP and dS are rounded to the element type where a framework would store them; softmax and every sum are
// float32; results are rounded once. Works on what reference.h has loaded.
#ifndef VF_PLAIN_H
#define VF_PLAIN_H

#include "reference.h"

struct plain_head {
    const struct reference_head *exact;
    float *q, *k, *v, *dout;       // exact copies in float32
    float *largest, *sum, *delta;  // [sq]: of the rounded scores of each row; sum over j of P dP, less dlse
    float *scores;                 // scratch [sk]
    float *memory;
};

// `source` as in reference_load: with REFERENCE_GIVEN, lse and delta are those of the given o and lse.
vf_status plain_load(const struct reference_head *exact, bool backward, enum reference_source source,
                     struct plain_head *head);
void plain_free(struct plain_head *head);

// Like the functions of reference.h. dk and dv are added to unrounded: plain_round ends them.
void plain_row(const struct plain_head *head, int64_t i, float *o);
void plain_dq(const struct plain_head *head, int64_t i, float *dq);
void plain_dkv(const struct plain_head *head, int64_t j, float *dk, float *dv);
void plain_round(const struct plain_head *head, float *values, int64_t count);

#endif
