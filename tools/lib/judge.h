// judge.h - whether outputs in host memory are what the contract promises. Knows nothing of contexts and devices.
#ifndef VF_JUDGE_H
#define VF_JUDGE_H

#include "tensors.h"
#include "verify.h"

// ORDER verify_tensors
extern const enum problem_operand judge_operands[VERIFY_TENSORS];

// The verdict becomes wrong, with a sentence, unless it already is.
void judge_wrong(struct verify_result *result, const char *format, ...) PRINTF_LIKE(2, 3);

// What needs no oracle: rows without a token are zero or untouched, rows that see nothing and keys that nobody sees are
// zero, everything else is finite, and no byte outside the elements was written.
vf_status judge_exact(const struct problem *problem, const struct tensors *tensors, bool backward, int threads,
                      struct verify_result *result);

// Of an image, if the tensor is there: no byte but its elements (none at all with `elements` false) differs from the canary.
vf_status judge_guards(const struct tensor_image *image, bool elements, const char *name, int threads,
                       struct verify_result *result);

// Against the oracle, all of it up to full_flops, samples above.
vf_status judge_accuracy(const struct problem *problem, const struct tensors *tensors, bool backward, int threads,
                         double full_flops, struct verify_result *result);

#endif
