// judge.c - checks files of real tensors: what `varflash run` wrote against the float64 oracle.
//
//   demo-judge IN OUT [PROBLEM FLAGS]        flags as run got them: --causal, --window, ...
//
// Not part of the command: check and bench make their own tensors from a problem. Here the problem is read off the
// tensors, and both files take the place of what a run would have left behind. Packed tensors only. Exit status 0
// right, 1 wrong, 2 not to be judged.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge.h"
#include "safetensors.h"
#include "status.h"

static const vf_tensor *need(const struct safetensors *file, const char *name) {
    const vf_tensor *tensor = safetensors_find(file, name);
    if (!tensor) status_fail(VF_ERROR_INVALID_ARGUMENT, "there is no tensor '%s'", name);
    return tensor;
}

static vf_status set_number(struct problem *problem, const char *option, int64_t number) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, number);
    return problem_set(problem, option, text);
}

// cu_seqlens as the list of lengths that a problem has.
static vf_status set_lengths(struct problem *problem, const char *option, const vf_tensor *cu) {
    struct buf text = {0};
    for (int64_t b = 0; b + 1 < cu->shape[0]; b++) {
        const int64_t length = cu->dtype == VF_INT64 ? ((int64_t *)cu->data)[b + 1] - ((int64_t *)cu->data)[b]
                                                     : ((int32_t *)cu->data)[b + 1] - ((int32_t *)cu->data)[b];
        buf_printf(&text, "%s%" PRId64, b ? "," : "", length);
    }
    vf_status status = buf_check(&text);
    if (!status) status = problem_set(problem, option, cu->shape[0] > 1 ? buf_string(&text) : "none");
    buf_free(&text);
    return status;
}

static vf_status describe(const struct safetensors *in, char **flags, int count, struct problem *problem) {
    const vf_tensor *q = need(in, "q"), *v = need(in, "v"), *k = need(in, "k");
    const vf_tensor *cu_q = need(in, "cu_seqlens_q"), *cu_k = need(in, "cu_seqlens_k");
    if (!q || !k || !v || !cu_q || !cu_k) return VF_ERROR_INVALID_ARGUMENT;
    VF_TRY(set_lengths(problem, "seqlens-q", cu_q));
    VF_TRY(set_lengths(problem, "seqlens-k", cu_k));
    VF_TRY(set_number(problem, "rows-q", q->shape[0]));
    VF_TRY(set_number(problem, "rows-k", k->shape[0]));
    VF_TRY(set_number(problem, "heads-q", q->shape[1]));
    VF_TRY(set_number(problem, "heads-k", k->shape[1]));
    VF_TRY(set_number(problem, "head-dim", q->shape[2]));
    VF_TRY(set_number(problem, "head-dim-v", v->shape[2]));
    VF_TRY(problem_set(problem, "dtype", q->dtype == VF_FLOAT16 ? "fp16" : q->dtype == VF_BFLOAT16 ? "bf16" : "fp32"));
    if (cu_q->dtype == VF_INT64) VF_TRY(problem_set(problem, "int64-lengths", NULL));
    if (safetensors_find(in, "dout")) VF_TRY(problem_set(problem, "backward", NULL));
    for (int i = 0; i < count; i++) {
        const char *value = i + 1 < count && strncmp(flags[i + 1], "--", 2) != 0 ? flags[i + 1] : NULL;
        VF_TRY(problem_set(problem, flags[i] + strspn(flags[i], "-"), value));
        i += value != NULL;
    }
    return problem_finish(problem);
}

// Puts a file's tensor where the problem's tensor of that name lies. Neither has strides of its own.
static vf_status place(const struct safetensors *file, const char *name, const struct tensor_image *image) {
    const vf_tensor *tensor = need(file, name);
    if (!tensor) return VF_ERROR_INVALID_ARGUMENT;
    size_t size = image->element;
    VF_REQUIRE(tensor->ndim == image->view.ndim && tensor->dtype == image->view.dtype, VF_ERROR_INVALID_ARGUMENT,
               "%s: not of the dimensions and type that q asks for", name);
    for (int i = 0; i < tensor->ndim; i++) {
        VF_REQUIRE(tensor->shape[i] == image->view.shape[i], VF_ERROR_INVALID_ARGUMENT,
                   "%s: dimension %d is %" PRId64 ", not %" PRId64, name, i, tensor->shape[i], image->view.shape[i]);
        size *= (size_t)tensor->shape[i];
    }
    if (size) memcpy(image->view.data, tensor->data, size);
    return VF_OK;
}

static void print_table(const struct verify_result *result) {
    printf("%-6s %10s %12s %12s %12s\n", "tensor", "elements", "max error", "allowed", "RMS error");
    for (int i = 0; i < VERIFY_TENSORS; i++) {
        const struct verify_tensor *tensor = &result->tensors[i];
        if (tensor->compared)
            printf("%-6s %10" PRId64 " %12.3g %12.3g %12.3g\n", verify_tensor_names[i], tensor->compared,
                   tensor->max_error, tensor->tolerance, tensor->rms_error);
    }
}

int main(int argc, char **argv) {
    if (argc < 3) return fputs("usage: demo-judge IN OUT [PROBLEM FLAGS]\n", stderr), 2;
    struct safetensors in = {0}, out = {0};
    struct problem problem;
    struct tensors tensors = {0};
    struct verify_result result = {.verdict = VERIFY_RIGHT};
    problem_begin(&problem);

    vf_status status = safetensors_read(argv[1], &in);
    if (!status) status = safetensors_read(argv[2], &out);
    if (!status) status = describe(&in, argv + 3, argc - 3, &problem);
    if (!status) status = tensors_create(&problem, 0, &tensors);
    for (int i = 0; i < OPERAND_COUNT && !status; i++)
        if (tensors.images[i].bytes)
            status = place(tensors.images[i].output ? &out : &in, problem_operand_names[i], &tensors.images[i]);
    if (!status) status = judge_exact(&problem, &tensors, problem.backward, 0, &result);
    if (!status) status = judge_accuracy(&problem, &tensors, problem.backward, 0, 0, &result);
    if (status)
        fprintf(stderr, "demo-judge: %s\n", vf_last_error());
    else
        print_table(&result);
    if (!status && result.verdict != VERIFY_RIGHT) printf("wrong: %s\n", result.sentence);

    tensors_free(&tensors);
    problem_free(&problem);
    safetensors_free(&out);
    safetensors_free(&in);
    return status ? 2 : result.verdict != VERIFY_RIGHT;
}
