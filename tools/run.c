// run.c - `varflash run`: attention on the tensors of a .safetensors file. Lengths are checked, since a file may hold anything;
// what the tensors must be is the library's to judge. Invariant: the output file appears whole or not at all.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "number.h"
#include "options.h"
#include "output.h"
#include "safetensors.h"
#include "status.h"
#include "varflash/varflash_dev.h"

// Every tensor of both passes. ORDER names
enum name { Q, K, V, CU_Q, CU_K, USED_Q, USED_K, DOUT, DLSE, O, LSE, DQ, DK, DV, NAMES, FIRST_OUTPUT = O };
static const char *const names[NAMES] = {"q",    "k",    "v", "cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k",
                                         "dout", "dlse", "o", "lse",          "dq",           "dk",        "dv"};

struct run {
    vf_context *context;
    bool backward;
    vf_tensor host[NAMES], device[NAMES];  // ndim 0: absent
    size_t size[NAMES];                    // bytes
    void *workspace;
    double milliseconds[2];  // forward, backward
};

#define TOO_LARGE "tensors of these shapes have more bytes than there are addresses"

static vf_status bytes_of(const vf_tensor *tensor, size_t *bytes) {
    *bytes = number_size(tensor->dtype);
    for (int d = 0; d < tensor->ndim; d++)
        VF_REQUIRE(!__builtin_mul_overflow(*bytes, (size_t)tensor->shape[d], bytes), VF_ERROR_OUT_OF_MEMORY, TOO_LARGE);
    return VF_OK;
}

// A contiguous output; its data is allocated here.
static vf_status make_output(struct run *run, enum name name, vf_dtype dtype, int ndim, const int64_t *shape) {
    vf_tensor *tensor = &run->host[name];
    *tensor = (vf_tensor){.dtype = dtype, .ndim = ndim};
    memcpy(tensor->shape, shape, (size_t)ndim * sizeof *shape);
    VF_TRY(bytes_of(tensor, &run->size[name]));
    int64_t stride = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        tensor->stride[d] = stride;
        VF_REQUIRE(!__builtin_mul_overflow(stride, shape[d], &stride), VF_ERROR_OUT_OF_MEMORY, TOO_LARGE);
    }
    tensor->data = output_realloc(NULL, run->size[name]);
    return VF_OK;
}

static vf_status make_outputs(struct run *run) {
    const vf_tensor *q = &run->host[Q], *v = &run->host[V];
    const int n = q->ndim;
    int64_t o[4], lse[4] = {0};
    memcpy(o, q->shape, sizeof(o));
    o[n - 1] = v->shape[v->ndim - 1];
    lse[0] = q->shape[n == 3 ? 1 : 0];  // [heads, tokens], or [batch, heads, seqlen]
    lse[1] = q->shape[n == 3 ? 0 : 2];
    lse[2] = q->shape[1];
    vf_status status = make_output(run, O, q->dtype, n, o);
    if (!status) status = make_output(run, LSE, VF_FLOAT32, n - 1, lse);
    for (int i = 0; !status && run->backward && i < 3; i++) {
        const vf_tensor *like = &run->host[Q + i];
        status = make_output(run, (enum name)(DQ + i), like->dtype, like->ndim, like->shape);
    }
    return status;
}

static vf_status to_device(struct run *run, int device) {
    vf_status status = VF_OK;
    for (int i = 0; !status && i < NAMES; i++) {
        if (!run->host[i].ndim) continue;
        run->device[i] = run->host[i];
        run->device[i].data = NULL;
        status = vf_dev_alloc(run->context, device, run->size[i], &run->device[i].data);
        if (!status && i < FIRST_OUTPUT && run->size[i])
            status = vf_dev_upload(run->context, run->device[i].data, run->host[i].data, run->size[i]);
    }
    return status;
}

static vf_status from_device(struct run *run) {
    vf_status status = VF_OK;
    for (int i = FIRST_OUTPUT; !status && i < NAMES; i++)
        if (run->size[i] && run->host[i].ndim)
            status = vf_dev_download(run->context, run->host[i].data, run->device[i].data, run->size[i]);
    return status;
}

static vf_status new_workspace(struct run *run, int device, size_t bytes) {
    vf_dev_free(run->context, run->workspace);
    run->workspace = NULL;
    return bytes ? vf_dev_alloc(run->context, device, bytes, &run->workspace) : VF_OK;
}

static vf_status compute(struct run *run, int device, vf_problem_args *problem) {
    const vf_tensor *t = run->device;
    problem->cu_seqlens_q = t[CU_Q];
    problem->cu_seqlens_k = t[CU_K];
    problem->seqused_q = t[USED_Q];
    problem->seqused_k = t[USED_K];
    vf_forward_args forward = {sizeof(forward), t[Q], t[K], t[V], t[O], t[LSE], *problem};
    vf_backward_args backward = {sizeof(backward), t[Q],    t[K],  t[V],  t[O],  t[LSE],
                                 t[DOUT],          t[DLSE], t[DQ], t[DK], t[DV], *problem};
    size_t bytes;
    vf_status status = vf_forward_workspace_size(run->context, &forward, &bytes);
    if (!status) status = new_workspace(run, device, bytes);
    forward.problem.workspace = run->workspace;
    forward.problem.workspace_size = bytes;
    if (!status) status = vf_prepare_forward(run->context, &forward);
    double start = output_seconds();
    if (!status) status = vf_forward(run->context, &forward);
    if (!status) status = vf_dev_synchronize(run->context, device);
    run->milliseconds[0] = 1e3 * (output_seconds() - start);
    if (status || !run->backward) return status;

    status = vf_backward_workspace_size(run->context, &backward, &bytes);
    if (!status) status = new_workspace(run, device, bytes);
    backward.problem.workspace = run->workspace;
    backward.problem.workspace_size = bytes;
    if (!status) status = vf_prepare_backward(run->context, &backward);
    start = output_seconds();
    if (!status) status = vf_backward(run->context, &backward);
    if (!status) status = vf_dev_synchronize(run->context, device);
    run->milliseconds[1] = 1e3 * (output_seconds() - start);
    return status;
}

static int write_outputs(const struct run *run, const char *path) {
    struct safetensors_item items[NAMES];
    size_t count = 0;
    for (int i = FIRST_OUTPUT; i < NAMES; i++)
        if (run->host[i].ndim) items[count++] = (struct safetensors_item){names[i], run->host[i]};
    const vf_status status = safetensors_write(path, items, count);
    return status ? command_failed(status) : CODE_OK;
}

// Finds the input tensors. What is there but not of this pass is left alone.
static int find_inputs(const struct options *options, const struct safetensors *file, struct run *run) {
    for (int i = 0; i < FIRST_OUTPUT; i++) {
        const bool needed = i <= V || (i == DOUT && run->backward);
        const vf_tensor *tensor = !run->backward && (i == DOUT || i == DLSE) ? NULL : safetensors_find(file, names[i]);
        if (tensor) {
            run->host[i] = *tensor;
            if (bytes_of(tensor, &run->size[i])) return command_failed(VF_ERROR_OUT_OF_MEMORY);
        } else if (needed) {
            output_error("%s: has no tensor '%s'; run needs q, k and v, with --backward dout too", options->in,
                         names[i]);
            return CODE_FILE;
        }
    }
    for (int i = Q; i <= V; i++) {
        if (run->host[i].ndim == 3 || run->host[i].ndim == 4) continue;
        output_error(
            "%s: tensor '%s' has %d dimensions; it must be [tokens, heads, dim] or [batch, seqlen, heads, dim]",
            options->in, names[i], run->host[i].ndim);
        return CODE_FILE;
    }
    return CODE_OK;
}

static void report(const struct options *options, const struct run *run) {
    const bool cuda = vf_context_backend(run->context) == VF_BACKEND_CUDA;
    if (!options->json) {
        output_note("%s: forward %.3f ms", cuda ? "cuda" : "cpu", run->milliseconds[0]);
        if (run->backward) output_note("%s: backward %.3f ms", cuda ? "cuda" : "cpu", run->milliseconds[1]);
        output_note("wrote %s", options->out);
        return;
    }
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "backend", cuda ? "cuda" : "cpu");
    cJSON_AddNumberToObject(json, "forward_ms", run->milliseconds[0]);
    if (run->backward) cJSON_AddNumberToObject(json, "backward_ms", run->milliseconds[1]);
    cJSON_AddStringToObject(json, "out", options->out);
    cJSON *tensors = cJSON_AddObjectToObject(json, "tensors");
    for (int i = FIRST_OUTPUT; i < NAMES; i++) {
        if (!run->host[i].ndim) continue;
        cJSON *item = cJSON_AddObjectToObject(tensors, names[i]);
        cJSON_AddStringToObject(item, "dtype", number_name(run->host[i].dtype));
        cJSON *shape = cJSON_AddArrayToObject(item, "shape");
        for (int d = 0; d < run->host[i].ndim; d++)
            cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)run->host[i].shape[d]));
    }
    output_json(json, false);
}

int verb_run(const struct options *options) {
    struct safetensors file = {0};
    struct run run = {0};
    struct problem problem;
    int code = command_no_arguments(options);
    if (code) return code;
    if (!options->in || !options->out) {
        output_error("run: --in FILE and --out FILE are needed");
        return CODE_USAGE;
    }
    problem_begin(&problem);
    vf_status status = VF_OK;
    for (size_t i = 0; !status && i < options->problem.count; i += 2)
        status = problem_set(&problem, options->problem.items[i], options->problem.items[i + 1]);
    if (status) return command_failed(status);
    run.backward = problem.backward;
    status = safetensors_read(options->in, &file);
    if (status) {
        code = command_failed(status);
        return status == VF_ERROR_INVALID_ARGUMENT ? CODE_FILE : code;  // malformed
    }
    code = find_inputs(options, &file, &run);
    if (!code) code = command_open(options, &run.context);
    if (code) goto out;

    vf_problem_args args = {.mask = problem.mask,
                            .window_left = problem.window_left,
                            .window_right = problem.window_right,
                            .softmax_scale = problem.softmax_scale,
                            .softcap = problem.softcap,
                            .deterministic = problem.deterministic,
                            .fill = problem.fill,
                            .check = VF_CHECK_DEVICE};
    const int device = (int)options->device;
    status = make_outputs(&run);
    if (!status) status = to_device(&run, device);
    if (!status) status = compute(&run, device, &args);
    if (!status) status = from_device(&run);
    code = status ? command_failed(status) : write_outputs(&run, options->out);
    if (!code) report(options, &run);
out:
    vf_dev_free(run.context, run.workspace);
    for (int i = 0; i < NAMES; i++) {
        vf_dev_free(run.context, run.device[i].data);
        if (i >= FIRST_OUTPUT) free(run.host[i].data);
    }
    vf_close(run.context);
    safetensors_free(&file);
    problem_free(&problem);
    return code;
}
