// harness.c - see harness.h.
#include "harness.h"

#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "status.h"
#include "varflash/varflash_dev.h"

// ---- memory --------------------------------------------------------------------------------------------------------

static bool forced(const struct harness *harness) {
    return harness->knobs[0] || harness->knobs[1];
}

// Before each call: other harnesses may share the context.
static vf_status force(struct harness *harness) {
    return forced(harness) ? vf_dev_force(harness->context, harness->knobs[0], harness->knobs[1]) : VF_OK;
}

// Room for a pass; a problem that must be refused may be refused here already.
static vf_status make_room(struct harness *harness, vf_status status, const size_t *size) {
    if (status) return harness->problem->expect == VF_OK ? status : VF_OK;
    if (*size > harness->workspace_size) harness->workspace_size = *size;
    return VF_OK;
}

static vf_status make_workspace(struct harness *harness) {
    vf_forward_args forward;
    vf_backward_args backward;
    size_t size = 0;
    void *workspace;
    tensors_forward_args(harness->problem, &harness->host, harness->bases, &forward);
    VF_TRY(force(harness));
    harness->workspace_size = 0;
    VF_TRY(make_room(harness, vf_forward_workspace_size(harness->context, &forward, &size), &size));
    if (harness->problem->backward) {
        tensors_backward_args(harness->problem, &harness->host, harness->bases, &backward);
        VF_TRY(make_room(harness, vf_backward_workspace_size(harness->context, &backward, &size), &size));
    }
    size = harness->workspace_size + 2 * TENSOR_GUARD;
    VF_TRY(vf_dev_free(harness->context, harness->workspace));
    harness->workspace = NULL;
    VF_TRY(vf_dev_alloc(harness->context, harness->device, size, &workspace));
    harness->workspace = workspace;
    return vf_dev_set(harness->context, workspace, TENSOR_CANARY, size, NULL);
}

vf_status harness_force(struct harness *harness, const char *knobs_forward, const char *knobs_backward) {
    harness->knobs[0] = knobs_forward;
    harness->knobs[1] = knobs_backward;
    return forced(harness) ? make_workspace(harness) : VF_OK;
}

static vf_status upload(struct harness *harness) {
    for (int i = 0; i < TENSOR_COUNT; i++) {
        const struct tensor_image *image = &harness->host.images[i];
        if (!image->bytes) continue;
        VF_TRY(vf_dev_alloc(harness->context, harness->device, image->size, &harness->bases[i]));
        if (image->output)
            VF_TRY(vf_dev_set(harness->context, harness->bases[i], TENSOR_CANARY, image->size, NULL));
        else
            VF_TRY(vf_dev_upload(harness->context, harness->bases[i], image->bytes, image->size));
    }
    return vf_dev_synchronize(harness->context, harness->device);
}

vf_status harness_create(vf_context *context, const struct problem *problem, int device, int threads,
                         struct harness *harness) {
    *harness = (struct harness){.context = context, .problem = problem, .device = device};
    vf_status status = tensors_create(problem, threads, &harness->host);
    if (!status) status = upload(harness);
    if (!status) status = make_workspace(harness);
    if (status) harness_free(harness);
    return status;
}

#define DRAWN ((int64_t)1 << 20)  // elements of an operand that are drawn; the others repeat them

// Doubling what there is: the host sends little, the device does the rest.
static vf_status repeat(struct harness *harness, void *base, size_t known, size_t size) {
    for (size_t count; known < size; known += count) {
        count = size - known < known ? size - known : known;
        VF_TRY(vf_dev_copy(harness->context, (unsigned char *)base + known, base, count, NULL));
    }
    return VF_OK;
}

static vf_status upload_drawn(struct harness *harness, unsigned char *drawn) {
    for (int i = 0; i < TENSOR_COUNT; i++) {
        const struct tensor_image *image = &harness->host.images[i];
        const size_t known = image->bytes ? image->size : (size_t)DRAWN * image->element;
        const size_t count = known < image->size ? known : image->size;
        if (!image->size) continue;
        VF_TRY(vf_dev_alloc(harness->context, harness->device, image->size, &harness->bases[i]));
        if (image->output) continue;
        if (!image->bytes)
            tensors_draw(image->view.dtype, i == OPERAND_DLSE ? 1 : harness->problem->input_scale, (uint64_t)i + 1,
                         DRAWN, drawn);
        VF_TRY(vf_dev_upload(harness->context, harness->bases[i], image->bytes ? image->bytes : drawn, count));
        VF_TRY(repeat(harness, harness->bases[i], count, image->size));
    }
    return vf_dev_synchronize(harness->context, harness->device);
}

vf_status harness_create_to_time(vf_context *context, const struct problem *problem, int device,
                                 struct harness *harness) {
    *harness = (struct harness){.context = context, .problem = problem, .device = device};
    unsigned char *drawn = malloc((size_t)DRAWN * sizeof(float));
    VF_REQUIRE(drawn, VF_ERROR_OUT_OF_MEMORY, "harness: no memory for random numbers");
    vf_status status = tensors_lay(problem, &harness->host);
    if (!status) status = upload_drawn(harness, drawn);
    if (!status) status = make_workspace(harness);
    if (status) harness_free(harness);
    free(drawn);
    return status;
}

void harness_free(struct harness *harness) {
    if (harness->context) {
        if (forced(harness)) vf_dev_force(harness->context, NULL, NULL);
        for (int i = 0; i < TENSOR_COUNT; i++) vf_dev_free(harness->context, harness->bases[i]);
        vf_dev_free(harness->context, harness->workspace);
    }
    tensors_free(&harness->host);
    *harness = (struct harness){0};
}

// ---- calls ---------------------------------------------------------------------------------------------------------

vf_status harness_reset(struct harness *harness, bool backward) {
    for (int i = 0; i < OPERAND_COUNT; i++) {
        const struct tensor_image *image = &harness->host.images[i];
        const bool gradient = i == OPERAND_DQ || i == OPERAND_DK || i == OPERAND_DV;
        if (image->bytes && image->output && gradient == backward)
            VF_TRY(vf_dev_set(harness->context, harness->bases[i], TENSOR_CANARY, image->size, NULL));
    }
    return vf_dev_synchronize(harness->context, harness->device);
}

// Fills in what a call gets from the harness, the workspace poisoned.
static vf_status equip(struct harness *harness, vf_problem_args *problem) {
    problem->device = vf_context_backend(harness->context) == VF_BACKEND_CUDA ? harness->device + 1 : 0;
    problem->check = harness->checked ? VF_CHECK_DEVICE : 0;
    if (!harness->workspace) return VF_OK;
    problem->workspace = harness->workspace + TENSOR_GUARD;
    problem->workspace_size = harness->workspace_size;
    return vf_dev_set(harness->context, problem->workspace, TENSOR_CANARY, harness->workspace_size, NULL);
}

vf_status harness_run_forward(struct harness *harness, vf_forward_args *args) {
    vf_forward_args own;
    if (!args) tensors_forward_args(harness->problem, &harness->host, harness->bases, args = &own);
    VF_TRY(force(harness));
    VF_TRY(equip(harness, &args->problem));
    VF_TRY(vf_forward(harness->context, args));
    return vf_dev_synchronize(harness->context, harness->device);
}

vf_status harness_run_backward(struct harness *harness, vf_backward_args *args) {
    vf_backward_args own;
    if (!args) tensors_backward_args(harness->problem, &harness->host, harness->bases, args = &own);
    VF_TRY(force(harness));
    VF_TRY(equip(harness, &args->problem));
    VF_TRY(vf_backward(harness->context, args));
    return vf_dev_synchronize(harness->context, harness->device);
}

vf_status harness_forward(struct harness *harness) {
    VF_TRY(harness_reset(harness, false));
    return harness_run_forward(harness, NULL);
}

vf_status harness_backward(struct harness *harness) {
    VF_TRY(harness_reset(harness, true));
    return harness_run_backward(harness, NULL);
}

// ---- looking -------------------------------------------------------------------------------------------------------

vf_status harness_fetch(struct harness *harness, bool backward) {
    for (int i = 0; i < OPERAND_COUNT; i++) {
        const struct tensor_image *image = &harness->host.images[i];
        const bool gradient = i == OPERAND_DQ || i == OPERAND_DK || i == OPERAND_DV;
        if (image->bytes && image->output && gradient == backward)
            VF_TRY(vf_dev_download(harness->context, image->bytes, harness->bases[i], image->size));
    }
    return VF_OK;
}

static vf_status guards_intact(struct harness *harness, bool *intact) {
    unsigned char guard[TENSOR_GUARD], canaries[TENSOR_GUARD];
    memset(canaries, TENSOR_CANARY, sizeof canaries);
    for (int end = 0; end < 2 && *intact; end++) {
        const unsigned char *at = harness->workspace + (end ? TENSOR_GUARD + harness->workspace_size : 0);
        VF_TRY(vf_dev_download(harness->context, guard, at, sizeof guard));
        *intact = !memcmp(guard, canaries, sizeof guard);
    }
    return VF_OK;
}

#define COMPARE_BYTES ((size_t)1 << 24)

vf_status harness_intact(struct harness *harness, bool outputs, const char **changed) {
    vf_status status = VF_OK;
    bool intact = true;
    size_t largest = 0;
    *changed = NULL;
    for (int i = 0; i < TENSOR_COUNT; i++)
        if (harness->host.images[i].size > largest) largest = harness->host.images[i].size;
    const size_t chunk = largest < COMPARE_BYTES ? largest : COMPARE_BYTES;
    unsigned char *bytes = malloc(chunk + 1);
    VF_REQUIRE(bytes, VF_ERROR_OUT_OF_MEMORY, "verify: no memory for %zu bytes", chunk);
    for (int i = 0; i < TENSOR_COUNT && !*changed; i++) {
        const struct tensor_image *image = &harness->host.images[i];
        if (!image->bytes || (image->output && !(outputs && (i == OPERAND_O || i == OPERAND_LSE)))) continue;
        for (size_t at = 0; at < image->size && !*changed; at += chunk) {
            const size_t count = image->size - at < chunk ? image->size - at : chunk;
            status = vf_dev_download(harness->context, bytes, (unsigned char *)harness->bases[i] + at, count);
            if (status) goto out;
            if (memcmp(bytes, image->bytes + at, count) != 0) *changed = tensor_names[i];
        }
    }
    if (!*changed && harness->workspace) status = guards_intact(harness, &intact);
    if (!intact) *changed = "workspace";
out:
    free(bytes);
    return status;
}

bool harness_reproducible(const struct harness *harness, bool backward) {
    return !backward || harness->problem->deterministic == VF_ON ||
           vf_context_backend(harness->context) == VF_BACKEND_CPU;
}
