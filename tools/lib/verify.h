// verify.h - runs one problem on a context and judges everything that the contract promises about the result.
//
// Used by `varflash check`, the unit tests, the GPU tests and the sweeps. What is judged: every element against the
// oracle (sampled above a size), rows without a token or without a visible key, every element written, nothing else
// written, inputs left alone, workspace contents irrelevant, and on request the same bits in every run, alone and in a
// batch. For a problem whose lengths are broken: checked mode names the fault before anything is written, unchecked
// mode ends and writes nothing outside. For one with `expect`: that refusal, and nothing written.
#ifndef VF_VERIFY_H
#define VF_VERIFY_H

#include "problem.h"
#include "varflash/varflash.h"

struct verify_options {
    int device;         // CUDA ordinal
    int threads;        // of the oracle; 0: all cores
    int repeat;         // runs in all, compared bit by bit where that is promised; 0: 1
    bool checked;       // calls run in checked mode
    bool invariance;    // each sequence alone gives the bits it gives in the batch
    bool contiguous;    // the same values without strides of their own give the same bits
    bool spoil;         // a NaN in one live token changes nothing outside its sequence and kv head
    double full_flops;  // forward products up to which everything is compared; 0: 10e9. Above: samples
    const char *knobs_forward, *knobs_backward;  // null: the row's; else for vf_dev_force
};

// VERIFY_REFUSED: the library does not support the problem, and the problem does not say that it must not.
enum verify_verdict { VERIFY_RIGHT, VERIFY_WRONG, VERIFY_REFUSED };

// ORDER verify_tensors: verify_tensor_names, judge_operands.
enum { VERIFY_O, VERIFY_LSE, VERIFY_DQ, VERIFY_DK, VERIFY_DV, VERIFY_TENSORS };
extern const char *const verify_tensor_names[VERIFY_TENSORS];

// One output compared with the oracle. Scaled errors are measured row by row in the units of reference.h.
struct verify_tensor {
    int64_t compared;                        // elements; 0: not compared
    double max_error, rms_error, max_value;  // max_value: of the oracle's
    double plain_error;                      // max error of plain 16-bit arithmetic
    double tolerance;                        // of max_error: 2 * plain_error + one rounding step
    double scaled_error, scaled_tolerance;
};

#define VERIFY_SENTENCE_SIZE 512

struct verify_result {
    enum verify_verdict verdict;
    vf_status status;  // what the library returned, if it refused or failed
    struct verify_tensor tensors[VERIFY_TENSORS];
    double share;  // the largest error / tolerance of all tensors
    bool sampled;
    char sentence[VERIFY_SENTENCE_SIZE];  // not right: what and where: tensor, sequence, head, row, column, got, want
};

// Returns VF_OK when a verdict was reached; else the failure of the machinery (memory, device). `options` null:
// defaults. VERIFY_REFUSED: the library says that the problem is not supported, and that was not expected to fail or to
// work.
vf_status verify_problem(vf_context *context, const struct problem *problem, const struct verify_options *options,
                         struct verify_result *result);

// Once for each candidate (vf_dev_candidates) of forward and backward; one for the CPU backend. `add` gets each result
// with the knobs in force ("" on the CPU).
typedef void verify_add(void *user, const char *knobs, const struct verify_result *result);
vf_status verify_variants(vf_context *context, const struct problem *problem, const struct verify_options *options,
                          verify_add *add, void *user);

#endif
