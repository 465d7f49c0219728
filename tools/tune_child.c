// tune_child.c - the process that measures for `varflash tune`. It may crash or hang: the sweep outlives it.
//
// Candidates are compared in one run: a round launches each of them once, with cold caches, so that a change of clocks meets all.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "bench.h"
#include "command.h"
#include "harness.h"
#include "output.h"
#include "tensors.h"
#include "tune.h"
#include "varflash/varflash_dev.h"
#include "verify.h"
#include "worker.h"

#define GROUP 16  // candidates of one question, at most
#define ROUNDS_MIN 5
#define ROUNDS_MAX 400
#define SAMPLE_MS 0.1  // a shorter call is launched several times for one time
#define LAUNCHES_MAX 64

struct child {
    const struct options *options;
    const struct problem_list *list;
    vf_context *context;
    int device;
    const struct problem *problem;
    bool uploaded, has_forward;  // the harness is there; o and lse are
    bool yields;                 // this process lets others go first
    struct harness harness;
    void *flush;  // more than the second-level cache
    size_t flush_size;
};

// ---- the problem -----------------------------------------------------------------------------------------------------

static void forget(struct child *child) {
    if (child->uploaded) harness_free(&child->harness);
    child->uploaded = child->has_forward = false;
}

static vf_status set_problem(struct child *child, const char *text) {
    size_t index;
    int device;
    // The text was written by this program. NOLINTNEXTLINE(cert-err34-c)
    if (sscanf(text, "%zu %d", &index, &device) != 2 || index >= child->list->count) return VF_ERROR_INVALID_ARGUMENT;
    if (child->problem == &child->list->items[index]) return VF_OK;  // its other pass
    forget(child);
    child->problem = &child->list->items[index];
    child->device = device < 0 ? (int)child->options->device : device;
    return VF_OK;
}

static vf_status upload(struct child *child, bool backward) {
    vf_status status = VF_OK;
    if (!child->uploaded) {
        status = harness_create_to_time(child->context, child->problem, child->device, &child->harness);
        child->uploaded = !status;
    }
    if (!status && backward && !child->has_forward) {
        status = harness_forward(&child->harness);
        child->has_forward = !status;
    }
    return status;
}

// ---- verify ----------------------------------------------------------------------------------------------------------

// "all KNOBS" or "some KNOBS"
static int verify(struct child *child, bool backward, const char *text, struct buf *answer) {
    struct problem small;
    struct verify_result result;
    const bool all = !strncmp(text, "all ", 4);
    const char *knobs = text + strcspn(text, " ") + 1;
    const struct verify_options how = {.device = child->device,
                                       .full_flops = all ? 0 : 1,
                                       .threads = (int)child->options->threads,
                                       .knobs_forward = backward ? NULL : knobs,
                                       .knobs_backward = backward ? knobs : NULL};
    vf_status status = tune_small_problem(child->problem, backward, &small);
    if (!status) status = verify_problem(child->context, &small, &how, &result);
    problem_free(&small);
    if (status) return options_code(status);
    if (result.verdict == VERIFY_RIGHT) return CODE_OK;
    buf_text(answer, result.sentence);
    return result.status ? options_code(result.status) : CODE_CHECK_FAILED;
}

// ---- time ------------------------------------------------------------------------------------------------------------

struct contestant {
    const char *knobs;
    vf_plan *plan;
    vf_dev_event *start, *stop;
    int64_t launches;  // for one time
    double estimate;   // of one launch, milliseconds
    bool hopeless;     // the estimate is all the time that it is given
};

static vf_status get_workspace_size(const struct bench_pass *pass, size_t *bytes) {
    return pass->backward ? vf_backward_workspace_size(pass->harness->context, &pass->back, bytes)
                          : vf_forward_workspace_size(pass->harness->context, &pass->forward, bytes);
}

static vf_status launch(struct bench_pass *pass, const struct contestant *contestant, int64_t times) {
    vf_status status = VF_OK;
    pass->plan = contestant->plan;
    for (int64_t i = 0; i < times && !status; i++) status = bench_launch(pass);
    return status;
}

// Adds its plan, and what it needs to the workspace.
static vf_status open_contestant(struct child *child, struct bench_pass *pass, struct contestant *contestant,
                                 size_t *workspace) {
    size_t bytes = 0;
    vf_status status = vf_dev_force(child->context, pass->backward ? NULL : contestant->knobs,
                                    pass->backward ? contestant->knobs : NULL);
    if (!status) status = get_workspace_size(pass, &bytes);
    if (bytes > *workspace) *workspace = bytes;
    if (!status)
        status = pass->backward ? vf_plan_create_backward(child->context, &pass->back, &contestant->plan)
                                : vf_plan_create_forward(child->context, &pass->forward, &contestant->plan);
    if (!status) status = vf_dev_event_create(child->context, child->device, &contestant->start);
    if (!status) status = vf_dev_event_create(child->context, child->device, &contestant->stop);
    return status;
}

static vf_status time_once(struct child *child, struct bench_pass *pass, const struct contestant *contestant, bool cold,
                           double *ms) {
    vf_status status = cold ? vf_dev_set(child->context, child->flush, 0, child->flush_size, NULL) : VF_OK;
    if (!status) status = vf_dev_event_record(contestant->start, NULL);
    if (!status) status = launch(pass, contestant, contestant->launches);
    if (!status) status = vf_dev_event_record(contestant->stop, NULL);
    if (!status) status = vf_dev_event_elapsed(contestant->start, contestant->stop, ms);
    *ms /= (double)contestant->launches;
    return status;
}

// After a warm-up: to know how many times there will be.
static vf_status estimate(struct child *child, struct bench_pass *pass, struct contestant *contestant) {
    contestant->launches = 1;
    vf_status status = launch(pass, contestant, 1);
    if (!status) status = time_once(child, pass, contestant, true, &contestant->estimate);
    const double wanted = SAMPLE_MS / fmax(contestant->estimate, 1e-4);
    contestant->launches = (int64_t)fmin(fmax(ceil(wanted), 1), LAUNCHES_MAX);
    return status;
}

static vf_status make_flush(struct child *child) {
    vf_dev_device device;
    if (child->flush) return VF_OK;
    vf_status status = vf_dev_device_get(child->context, child->device, &device);
    child->flush_size = 2 * device.l2_bytes + 4096;
    if (!status) status = vf_dev_alloc(child->context, child->device, child->flush_size, &child->flush);
    return status;
}

struct question {
    double seconds, bar;
    int rounds;
};

static vf_status time_rounds(struct child *child, struct bench_pass *pass, struct contestant *contestants, size_t count,
                             const struct question *question, struct buf *answer) {
    double round_ms = 0;
    vf_status status = make_flush(child);
    for (size_t i = 0; i < count && !status; i++) status = estimate(child, pass, &contestants[i]);
    for (size_t i = 0; i < count; i++) {
        contestants[i].hopeless = contestants[i].estimate > question->bar;
        if (!contestants[i].hopeless) round_ms += contestants[i].estimate * (double)contestants[i].launches + 0.1;
    }
    const int wanted = question->rounds > ROUNDS_MIN ? question->rounds : ROUNDS_MIN;
    const int rounds = (int)fmin(fmax(1e3 * question->seconds / fmax(round_ms, 1e-3), ROUNDS_MIN), wanted);
    double *times = output_realloc(NULL, (size_t)rounds * count * sizeof(*times));
    for (int r = 0; r < rounds && !status; r++) {
        for (size_t i = 0; i < count && !status; i++) {
            if (contestants[i].hopeless) continue;
            status = time_once(child, pass, &contestants[i], true, &times[i * (size_t)rounds + (size_t)r]);
        }
    }
    for (size_t i = 0; i < count && !status; i++) {
        if (contestants[i].hopeless) buf_printf(answer, "%.6g", contestants[i].estimate);
        for (int r = 0; r < rounds && !contestants[i].hopeless; r++)
            buf_printf(answer, "%s%.6g", r ? " " : "", times[i * (size_t)rounds + (size_t)r]);
        buf_text(answer, "\n");
    }
    free(times);
    return status;
}

static int time_group(struct child *child, bool backward, char *text, struct buf *answer) {
    struct contestant contestants[GROUP] = {{.knobs = NULL}};
    struct bench_pass pass = {.harness = &child->harness, .backward = backward};
    size_t count = 0, workspace = 0;
    char *knobs = text;
    struct question question = {.seconds = strtod(knobs, &knobs)};
    question.rounds = (int)strtol(knobs, &knobs, 10);
    question.bar = strtod(knobs, &knobs);
    void *memory = NULL;
    vf_status status = upload(child, backward);
    if (!status && backward)
        tensors_backward_args(child->problem, &child->harness.host, child->harness.bases, &pass.back);
    if (!status && !backward)
        tensors_forward_args(child->problem, &child->harness.host, child->harness.bases, &pass.forward);
    vf_problem_args *args = backward ? &pass.back.problem : &pass.forward.problem;
    args->device = child->device + 1;
    for (char *rest = NULL, *one = strtok_r(knobs, "|", &rest); one && count < GROUP && !status;
         one = strtok_r(NULL, "|", &rest)) {
        contestants[count].knobs = one + strspn(one, " ");
        status = open_contestant(child, &pass, &contestants[count++], &workspace);
    }
    if (!status) status = vf_dev_alloc(child->context, child->device, workspace + 256, &memory);
    args->workspace = memory;
    args->workspace_size = workspace;
    if (!status) status = time_rounds(child, &pass, contestants, count, &question, answer);
    for (size_t i = 0; i < count; i++) {
        vf_plan_destroy(contestants[i].plan);
        vf_dev_event_destroy(contestants[i].start);
        vf_dev_event_destroy(contestants[i].stop);
    }
    vf_dev_free(child->context, memory);
    vf_dev_force(child->context, NULL, NULL);
    if (status) buf_clear(answer);
    return options_code(status);
}

// ---- serving ---------------------------------------------------------------------------------------------------------

// Compiling gives way to measuring, which wants the device's queue full.
static int build(struct child *child, const char *spec) {
    vf_dev_built built;
    if (!child->yields) child->yields = !setpriority(PRIO_PROCESS, 0, 10);
    const vf_status status = vf_dev_build(child->context, spec, &built);
    vf_dev_built_free(&built);
    return options_code(status);
}

static int work(const char *text, struct buf *answer, void *user) {
    struct child *child = user;
    if (!strncmp(text, "kernel=", 7)) return build(child, text);
    if (!strncmp(text, "problem ", 8)) return options_code(set_problem(child, text + 8));
    const char *rest = strchr(text, ' ');
    const bool backward = rest && !strncmp(rest + 1, "bwd ", 4);
    if (!rest || !child->problem) return CODE_USAGE;
    if (!strncmp(text, "verify ", 7)) return verify(child, backward, rest + 5, answer);
    char *copy = output_copy(rest + 5);
    const int code = time_group(child, backward, copy, answer);
    free(copy);
    return code;
}

int tune_worker(const struct options *options, const struct problem_list *list) {
    struct child child = {.options = options, .list = list, .device = (int)options->device};
    int code = command_open(options, &child.context);
    if (code) return code;
    worker_serve(work, &child);
    forget(&child);
    vf_dev_free(child.context, child.flush);
    vf_close(child.context);
    return CODE_OK;
}
