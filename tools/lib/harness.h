// harness.h - one problem on one context: tensors uploaded, calls run on poisoned outputs and workspaces, results
// fetched. Judges nothing.
#ifndef VF_HARNESS_H
#define VF_HARNESS_H

#include "tensors.h"
#include "varflash/varflash.h"

struct harness {
    vf_context *context;
    const struct problem *problem;
    int device;
    bool checked;               // calls run in checked mode
    const char *knobs[2];       // of forward and backward, for vf_dev_force; null: the row's
    struct tensors host;        // inputs as uploaded, outputs as last fetched
    void *bases[TENSOR_COUNT];  // device memory of the images
    unsigned char *workspace;   // with guards, as an image has
    size_t workspace_size;      // without them
};

vf_status harness_create(vf_context *context, const struct problem *problem, int device, int threads,
                         struct harness *harness);
void harness_free(struct harness *harness);

// For measuring alone, in a moment whatever the size: inputs are a few random megabytes over and over, nothing is poisoned, and the
// host has no copy, so that nothing can be fetched or judged.
vf_status harness_create_to_time(vf_context *context, const struct problem *problem, int device,
                                 struct harness *harness);

// From now on calls use these knobs (null: the row's), in a workspace of the size that they need. The texts must outlive
// the harness; harness_free lets rows decide again.
vf_status harness_force(struct harness *harness, const char *knobs_forward, const char *knobs_backward);

// Outputs of the pass become canaries.
vf_status harness_reset(struct harness *harness, bool backward);

// harness_reset, then the call runs with a workspace of canaries and is waited for; its status is returned.
vf_status harness_forward(struct harness *harness);
vf_status harness_backward(struct harness *harness);
// The call alone, with other arguments (null: those of the harness): a single sequence, say.
vf_status harness_run_forward(struct harness *harness, vf_forward_args *args);
vf_status harness_run_backward(struct harness *harness, vf_backward_args *args);

// Outputs of the pass into host.
vf_status harness_fetch(struct harness *harness, bool backward);

// Compares device memory with host byte by byte: every input; with `outputs` o and lse too. *changed is the name of the
// first tensor (or "workspace": its guards) that differs, or null.
vf_status harness_intact(struct harness *harness, bool outputs, const char **changed);

// Whether two runs of the pass must give the same bits.
bool harness_reproducible(const struct harness *harness, bool backward);

#endif
