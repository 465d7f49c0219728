// gpu.c - see gpu.h.
#include "gpu.h"

#include <sys/wait.h>

#include "base.h"
#include "judge.h"
#include "suite.h"

#define SKIPPED 77

static vf_status open_context(vf_context **context) {
    const vf_options options = {.struct_size = sizeof options, .backend = VF_BACKEND_CUDA};
    return vf_open(&options, context);
}

// Asked in a child: a process that has used CUDA must not fork.
static int probe_device(void) {
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        vf_context *context;
        const vf_status status = open_context(&context);
        if (status) printf("%s\n", vf_last_error());
        fflush(NULL);
        _exit(status == VF_ERROR_NO_DEVICE ? SKIPPED : status ? EXIT_FAILURE : EXIT_SUCCESS);
    }
    int result = -1;
    if (child < 0 || waitpid(child, &result, 0) != child || !WIFEXITED(result)) return EXIT_FAILURE;
    return WEXITSTATUS(result);
}

int gpu_main(const char *name, const TTest *const tests[], size_t count, int seconds) {
    const int code = probe_device();
    return code ? code : unit_run(name, tests, count, seconds);
}

// ---- a problem -----------------------------------------------------------------------------------------------------

static void find_problem(const char *text, struct problem *problem) {
    if (text[0] == '-') {
        unit_ok(problem_from_line(text, problem));
        return;
    }
    struct problem_list list = {.items = NULL};
    unit_ok(suite_get("faults", &list));
    size_t found = 0;
    while (found < list.count && strcmp(list.items[found].name, text) != 0) found++;
    ck_assert_msg(found < list.count, "the suite 'faults' has no problem '%s'", text);
    unit_ok(problem_copy(&list.items[found], problem));
    problem_list_free(&list);
}

void gpu_open(struct gpu *gpu, const char *text) {
    *gpu = (struct gpu){.context = NULL};
    unit_ok(open_context(&gpu->context));
    find_problem(text, &gpu->problem);
    unit_ok(harness_create(gpu->context, &gpu->problem, GPU_DEVICE, 0, &gpu->harness));
    probe_open(gpu->context, &gpu->probe);
}

void gpu_close(struct gpu *gpu) {
    probe_close(&gpu->probe);
    harness_free(&gpu->harness);
    problem_free(&gpu->problem);
    vf_close(gpu->context);
}

void gpu_verify(struct gpu *gpu) {
    const struct verify_options options = {.knobs_forward = gpu->harness.knobs[0],
                                           .knobs_backward = gpu->harness.knobs[1]};
    struct verify_result result;
    unit_ok(verify_problem(gpu->context, &gpu->problem, &options, &result));
    ck_assert_msg(result.verdict == VERIFY_RIGHT, "%s: %s", gpu->problem.name, result.sentence);
}

// ---- families ------------------------------------------------------------------------------------------------------

static char *request_of(struct gpu *gpu, bool backward) {
    char *request = NULL;
    vf_forward_args forward;
    vf_backward_args arguments;
    if (backward) {
        tensors_backward_args(&gpu->problem, &gpu->harness.host, gpu->harness.bases, &arguments);
        unit_ok(vf_dev_request_backward(gpu->context, &arguments, NULL, &request));
    } else {
        tensors_forward_args(&gpu->problem, &gpu->harness.host, gpu->harness.bases, &forward);
        unit_ok(vf_dev_request_forward(gpu->context, &forward, NULL, &request));
    }
    return request;
}

static void family_of(const char *knobs, char family[24]) {
    const char *word = strstr(knobs, "family=");
    ck_assert_msg(word && sscanf(word, "family=%23s", family) == 1, "no family in '%s'", knobs);
}

static struct gpu_family *find_family(struct gpu_family *families, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (!strcmp(families[i].name, name)) return &families[i];
    return NULL;
}

int gpu_families(struct gpu *gpu, struct gpu_family families[GPU_FAMILIES]) {
    int count = 1;
    families[0] = (struct gpu_family){.name = "rows"};
    for (int backward = 0; backward <= (int)gpu->problem.backward; backward++) {
        char *request = request_of(gpu, backward);
        char served[24], name[24];
        vf_dev_variant *variant;
        vf_dev_list candidates = {.count = 0};
        unit_ok(vf_dev_variant_create(gpu->context, request, NULL, &variant));
        family_of(variant->knobs, served);
        vf_dev_variant_free(variant);
        unit_ok(vf_dev_candidates(gpu->context, request, &candidates));
        for (size_t i = 0; i < candidates.count; i++) {
            family_of(candidates.items[i], name);
            if (!strcmp(name, served)) continue;
            struct gpu_family *family = find_family(families, count, name);
            if (!family) {
                ck_assert_int_lt(count, GPU_FAMILIES);
                family = &families[count++];
                *family = (struct gpu_family){.knobs = {NULL}};
                memcpy(family->name, name, sizeof name);
            }
            if (!family->knobs[backward]) family->knobs[backward] = strdup(candidates.items[i]);
        }
        vf_dev_list_free(&candidates);
        vf_dev_text_free(request);
    }
    return count;
}

void gpu_families_free(struct gpu_family *families, int count) {
    for (int i = 0; i < count; i++) {
        free(families[i].knobs[0]);
        free(families[i].knobs[1]);
    }
}

void gpu_use(struct gpu *gpu, const struct gpu_family *family) {
    unit_ok(vf_dev_force(gpu->context, NULL, NULL));
    unit_ok(harness_force(&gpu->harness, family->knobs[0], family->knobs[1]));
}

// After gpu_verify, whose harness has ended, rows would serve again.
static void force(struct gpu *gpu) {
    unit_ok(vf_dev_force(gpu->context, gpu->harness.knobs[0], gpu->harness.knobs[1]));
}

// ---- runs ----------------------------------------------------------------------------------------------------------

void gpu_run_create(struct gpu *gpu, struct gpu_run *run) {
    *run = (struct gpu_run){.gpu = gpu};
    for (int i = 0; i < TENSOR_COUNT; i++) {
        const struct tensor_image *image = &gpu->harness.host.images[i];
        run->bases[i] = gpu->harness.bases[i];
        if (image->bytes && image->output) unit_ok(vf_dev_alloc(gpu->context, GPU_DEVICE, image->size, &run->bases[i]));
    }
    unit_ok(vf_dev_alloc(gpu->context, GPU_DEVICE, gpu->harness.workspace_size, &run->workspace));
    tensors_forward_args(&gpu->problem, &gpu->harness.host, run->bases, &run->forward);
    if (gpu->problem.backward) tensors_backward_args(&gpu->problem, &gpu->harness.host, run->bases, &run->backward);
    vf_problem_args *const both[] = {&run->forward.problem, &run->backward.problem};
    for (int i = 0; i < 2; i++) {
        both[i]->workspace = run->workspace;
        both[i]->workspace_size = gpu->harness.workspace_size;
        both[i]->device = GPU_DEVICE + 1;
    }
}

void gpu_run_free(struct gpu_run *run) {
    for (int i = 0; i < TENSOR_COUNT; i++)
        if (run->bases[i] != run->gpu->harness.bases[i]) unit_ok(vf_dev_free(run->gpu->context, run->bases[i]));
    unit_ok(vf_dev_free(run->gpu->context, run->workspace));
}

void gpu_run_stream(struct gpu_run *run, struct CUstream_st *stream) {
    run->forward.problem.stream = run->backward.problem.stream = stream;
}

// ORDER operands; null where the pass has none.
struct operands {
    vf_tensor *of[OPERAND_COUNT];
};

static struct operands forward_operands(vf_forward_args *args) {
    return (struct operands){{&args->q, &args->k, &args->v, &args->o, &args->lse}};
}

static struct operands backward_operands(vf_backward_args *args) {
    return (struct operands){{&args->q, &args->k, &args->v, &args->o, &args->lse, &args->dout, &args->dlse, &args->dq,
                              &args->dk, &args->dv}};
}

vf_tensor gpu_run_operand(const struct gpu_run *run, enum problem_operand operand) {
    return tensor_at(&run->gpu->harness.host.images[operand], run->bases[operand]);
}

void gpu_run_set_operand(struct gpu_run *run, enum problem_operand operand, vf_tensor tensor) {
    const struct operands both[] = {forward_operands(&run->forward), backward_operands(&run->backward)};
    for (int i = 0; i < 2; i++)
        if (both[i].of[operand]) *both[i].of[operand] = tensor;
}

void gpu_run_poison(struct gpu_run *run) {
    vf_context *context = run->gpu->context;
    struct CUstream_st *stream = run->forward.problem.stream;
    for (int i = 0; i < OPERAND_COUNT; i++) {
        const struct tensor_image *image = &run->gpu->harness.host.images[i];
        if (image->bytes && image->output)
            unit_ok(vf_dev_set(context, run->bases[i], TENSOR_CANARY, image->size, stream));
    }
    unit_ok(vf_dev_set(context, run->workspace, TENSOR_CANARY, run->gpu->harness.workspace_size, stream));
}

vf_status gpu_run_forward(struct gpu_run *run) {
    force(run->gpu);
    return vf_forward(run->gpu->context, &run->forward);
}

vf_status gpu_run_backward(struct gpu_run *run) {
    force(run->gpu);
    return vf_backward(run->gpu->context, &run->backward);
}

void gpu_run_both(struct gpu_run *run) {
    gpu_run_poison(run);
    unit_ok(gpu_run_forward(run));
    if (run->gpu->problem.backward) unit_ok(gpu_run_backward(run));
}

void gpu_run_wait(const struct gpu_run *run) {
    unit_ok(vf_dev_stream_synchronize(run->gpu->context, run->forward.problem.stream));
}

// ---- comparing -----------------------------------------------------------------------------------------------------

static size_t marks_size(int runs) {
    return (size_t)runs * VERIFY_TENSORS * sizeof(uint64_t);
}

uint64_t *gpu_marks_create(struct gpu *gpu, int runs) {
    void *marks;
    unit_ok(vf_dev_alloc(gpu->context, GPU_DEVICE, marks_size(runs), &marks));
    unit_ok(vf_dev_set(gpu->context, marks, 0xff, marks_size(runs), NULL));
    unit_ok(vf_dev_synchronize(gpu->context, GPU_DEVICE));
    return marks;
}

void gpu_compare(const struct gpu_run *a, const struct gpu_run *b, uint64_t *marks, int run) {
    for (int i = 0; i < VERIFY_TENSORS; i++) {
        const enum problem_operand operand = judge_operands[i];
        const struct tensor_image *image = &a->gpu->harness.host.images[operand];
        if (!image->bytes || !harness_reproducible(&a->gpu->harness, i >= VERIFY_DQ)) continue;
        probe_compare(&a->gpu->probe, (struct probe_rows){a->bases[operand], 0},
                      (struct probe_rows){b->bases[operand], 0}, (int64_t)image->size, 1,
                      &marks[run * VERIFY_TENSORS + i], b->forward.problem.stream);
    }
}

void gpu_marks_judge(struct gpu *gpu, uint64_t *marks, int runs, const char *what) {
    uint64_t *host = malloc(marks_size(runs));
    ck_assert_ptr_nonnull(host);
    unit_ok(vf_dev_download(gpu->context, host, marks, marks_size(runs)));
    for (int i = 0; i < runs * VERIFY_TENSORS; i++)
        ck_assert_msg(host[i] == PROBE_SAME, "%s: %s: run %d: other bits in %s, first at byte %llu", gpu->problem.name,
                      what, i / VERIFY_TENSORS, verify_tensor_names[i % VERIFY_TENSORS], (unsigned long long)host[i]);
    free(host);
    unit_ok(vf_dev_free(gpu->context, marks));
}
