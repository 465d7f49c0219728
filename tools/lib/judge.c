// judge.c - accuracy: outputs against the oracle, by the rule of docs/design.md, section 4, point 8.
//
// A task is a (sequence, kv head) with its group of query heads. Tasks are measured in parallel; the tolerance is known
// when all are done, because it comes from the largest error that plain arithmetic makes anywhere; then the first task
// beyond it is gone through once more to name the element. Besides the absolute rule each row is judged in its own
// unit, so that a fault in small numbers does not hide behind large ones elsewhere.
#include "judge.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base.h"
#include "crew.h"
#include "number.h"
#include "plain.h"
#include "status.h"

// ORDER verify_tensors
const char *const verify_tensor_names[VERIFY_TENSORS] = {"o", "lse", "dq", "dk", "dv"};
const enum problem_operand judge_operands[VERIFY_TENSORS] = {OPERAND_O, OPERAND_LSE, OPERAND_DQ, OPERAND_DK,
                                                             OPERAND_DV};

#define FULL_FLOPS 10e9
#define SAMPLE_TASKS 12
#define SAMPLE_ROWS 24
#define SAMPLE_KEYS 8
#define LSE_EPSILON 0x1p-20  // of the lse unit: float32 scores, summed in any order
#define TANH_ERROR 0x1p-11   // of a tanh in hardware, absolute
#define GRADIENT_LOGITS 2e4  // beyond these exp(x - lse) in float32 is noise, and gradients need only be finite

void judge_wrong(struct verify_result *result, const char *format, ...) {
    if (result->verdict == VERIFY_WRONG) return;
    va_list values;
    va_start(values, format);
    vsnprintf(result->sentence, sizeof result->sentence, format, values);
    va_end(values);
    result->verdict = VERIFY_WRONG;
}

struct tally {
    int64_t count;
    double max_error, plain_error, scaled_error, plain_scaled;
    double max_value, max_unit, squares;
};

struct task {
    int64_t sequence, head_k;
    double logits;  // how large scores are: the largest unit of lse
    struct tally tallies[VERIFY_TENSORS];
};

struct judge {
    const struct problem *problem;
    const struct tensors *tensors;
    bool backward, sampled;
    struct problem_span *spans_q, *spans_k;
    struct task *tasks;
    int64_t task_count;
    pthread_mutex_t lock;
    vf_status status;              // the first failure of a task
    struct verify_result *result;  // while locating: tolerances are known, the first element beyond them is wanted
    bool locating;
};

// ---- measuring -----------------------------------------------------------------------------------------------------

// One row of one output.
struct row {
    int tensor;
    int64_t head, index;  // row or key in its sequence
    const double *got, *want;
    const float *plain;  // null: none (lse)
    int64_t count;
    double unit;
};

static double error_of(double got, double want) {
    const double error = fabs(got - want);
    return isnan(error) ? INFINITY : error;
}

static void locate(struct judge *judge, const struct task *task, const struct row *row) {
    const struct verify_tensor *limits = &judge->result->tensors[row->tensor];
    for (int64_t c = 0; c < row->count; c++) {
        const double error = error_of(row->got[c], row->want[c]);
        if (error <= limits->tolerance && error <= limits->scaled_tolerance * row->unit) continue;
        judge_wrong(judge->result,
                    "%s: sequence %lld, head %lld, %s %lld, column %lld: got %.9g, want %.9g; error %.3g, allowed %.3g",
                    verify_tensor_names[row->tensor], (long long)task->sequence, (long long)row->head,
                    row->tensor >= VERIFY_DK ? "key" : "row", (long long)row->index, (long long)c, row->got[c],
                    row->want[c], error, fmin(limits->tolerance, limits->scaled_tolerance * row->unit));
        return;
    }
}

// Results far below 1 lose digits: in fp16 below its smallest normal number, elsewhere where P comes near float32's.
static double floor_unit(const struct judge *judge, double unit) {
    return fmax(unit, judge->problem->dtype == VF_FLOAT16 ? 0x1p-14 : 0x1p-100);
}

static void add_row(struct judge *judge, struct task *task, struct row *row) {
    row->unit = floor_unit(judge, row->unit);
    if (judge->locating) {
        locate(judge, task, row);
        return;
    }
    struct tally *tally = &task->tallies[row->tensor];
    for (int64_t c = 0; c < row->count; c++) {
        const double error = error_of(row->got[c], row->want[c]);
        const double plain = row->plain ? fabs((double)row->plain[c] - row->want[c]) : 0;
        tally->max_error = fmax(tally->max_error, error);
        tally->scaled_error = fmax(tally->scaled_error, error / row->unit);
        tally->squares += error * error;
        tally->max_value = fmax(tally->max_value, fabs(row->want[c]));
        if (!isfinite(plain)) continue;  // plain arithmetic overflowed: no yardstick
        tally->plain_error = fmax(tally->plain_error, plain);
        tally->plain_scaled = fmax(tally->plain_scaled, plain / row->unit);
    }
    tally->max_unit = fmax(tally->max_unit, row->unit);
    tally->count += row->count;
}

// ---- samples -------------------------------------------------------------------------------------------------------

static uint64_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

// Whether index `at` of `count` is judged: all, or both ends and about `wanted` others.
static bool chosen(const struct judge *judge, int64_t at, int64_t count, int64_t wanted) {
    if (!judge->sampled || count <= wanted || at == 0 || at == count - 1) return true;
    uint64_t state = judge->problem->seed * 0x9e3779b97f4a7c15u + (uint64_t)at;
    next_random(&state);
    return (int64_t)(next_random(&state) % (uint64_t)count) < wanted;
}

static void choose_tasks(struct judge *judge) {
    const struct problem *problem = judge->problem;
    const int64_t all = problem->batch * problem->heads_k;
    if (!judge->sampled) {
        for (int64_t t = 0; t < all; t++)
            judge->tasks[t] = (struct task){.sequence = t / problem->heads_k, .head_k = t % problem->heads_k};
        judge->task_count = all;
        return;
    }
    // The longest sequence, the first and the last, then any; the last kv head first, where offsets are largest.
    int64_t longest = 0;
    uint64_t state = problem->seed + 1;
    for (int64_t b = 0; b < problem->batch; b++)
        if (judge->spans_q[b].used + judge->spans_k[b].used >
            judge->spans_q[longest].used + judge->spans_k[longest].used)
            longest = b;
    for (int64_t t = 0; t < SAMPLE_TASKS && t < all; t++) {
        const int64_t any = (int64_t)(next_random(&state) % (uint64_t)problem->batch);
        const int64_t sequence = t == 0 ? longest : t == 1 ? problem->batch - 1 : t == 2 ? 0 : any;
        const int64_t any_head = (int64_t)(next_random(&state) % (uint64_t)problem->heads_k);
        judge->tasks[t] = (struct task){.sequence = sequence, .head_k = t < 3 ? problem->heads_k - 1 : any_head};
        judge->task_count++;
    }
}

// ---- one task ------------------------------------------------------------------------------------------------------

// Gradients of the keys, summed over the heads of the group.
struct keys {
    int64_t count;
    int64_t *index;
    double *dk, *dv;
    float *plain_dk, *plain_dv;
    struct reference_units *units;
};

static vf_status keys_create(const struct judge *judge, int64_t sk, struct keys *keys) {
    const struct problem *problem = judge->problem;
    *keys = (struct keys){.index = malloc((size_t)sk * sizeof(int64_t) + 1)};
    VF_REQUIRE(keys->index, VF_ERROR_OUT_OF_MEMORY, "oracle: no memory for %lld keys", (long long)sk);
    for (int64_t j = 0; j < sk; j++)
        if (chosen(judge, j, sk, SAMPLE_KEYS)) keys->index[keys->count++] = j;
    const size_t count = (size_t)keys->count + 1, d = (size_t)problem->head_dim, dv = (size_t)problem->head_dim_v;
    keys->dk = calloc(count * d, sizeof(double));
    keys->dv = calloc(count * dv, sizeof(double));
    keys->plain_dk = calloc(count * d, sizeof(float));
    keys->plain_dv = calloc(count * dv, sizeof(float));
    keys->units = calloc(count, sizeof *keys->units);
    VF_REQUIRE(keys->dk && keys->dv && keys->plain_dk && keys->plain_dv && keys->units, VF_ERROR_OUT_OF_MEMORY,
               "oracle: no memory for %lld keys", (long long)sk);
    return VF_OK;
}

static void keys_free(struct keys *keys) {
    free(keys->index);
    free(keys->dk);
    free(keys->dv);
    free(keys->plain_dk);
    free(keys->plain_dv);
    free(keys->units);
}

struct scratch {
    double *got, *want;
    float *plain;
};

static bool gradients_judged(const struct reference_head *head) {
    double q = 0, k = 0;
    for (int64_t i = 0; i < head->sq; i++) q = fmax(q, head->q_norm[i]);
    for (int64_t j = 0; j < head->sk; j++) k = fmax(k, head->k_norm[j]);
    return head->problem->softcap > 0 || head->scale * q * k <= GRADIENT_LOGITS;
}

static void judge_rows(struct judge *judge, struct task *task, const struct reference_head *head,
                       const struct plain_head *plain, int64_t head_q, bool gradients, struct scratch *scratch) {
    const struct problem *problem = judge->problem;
    const struct tensor_image *images = judge->tensors->images;
    const struct problem_span *span = &judge->spans_q[task->sequence];
    for (int64_t i = 0; i < head->sq; i++) {
        if (!chosen(judge, i, head->sq, SAMPLE_ROWS)) continue;
        struct reference_units units;
        double lse, lse_got;
        struct row row = {
            .head = head_q, .index = i, .got = scratch->got, .want = scratch->want, .plain = scratch->plain};
        reference_row(head, i, scratch->want, &lse, &units);
        plain_row(plain, i, scratch->plain);
        tensor_load(&images[OPERAND_O], span->batch, span->row + i, head_q, head->dv, scratch->got);
        row.tensor = VERIFY_O;
        row.count = head->dv;
        row.unit = units.o;
        add_row(judge, task, &row);
        task->logits = fmax(task->logits, units.lse);
        if (isinf(lse)) continue;  // judge_exact has seen to rows that see nothing
        if (gradients) {
            reference_dq(head, i, scratch->want, &units);
            plain_dq(plain, i, scratch->plain);
            tensor_load(&images[OPERAND_DQ], span->batch, span->row + i, head_q, head->d, scratch->got);
            row.tensor = VERIFY_DQ;
            row.count = head->d;
            row.unit = units.dq;
            add_row(judge, task, &row);
        }
        if (problem->no_lse) continue;
        tensor_load(&images[OPERAND_LSE], span->batch, span->row + i, head_q, 1, &lse_got);
        const double bent = problem->softcap * TANH_ERROR / LSE_EPSILON;
        row = (struct row){VERIFY_LSE, head_q, i, &lse_got, &lse, NULL, 1, units.lse + bent};
        add_row(judge, task, &row);
    }
}

static void judge_keys(struct judge *judge, struct task *task, const struct plain_head *plain, const struct keys *keys,
                       struct scratch *scratch) {
    const struct problem *problem = judge->problem;
    const struct problem_span *span = &judge->spans_k[task->sequence];
    for (int64_t n = 0; n < keys->count; n++)
        for (int tensor = VERIFY_DK; tensor <= VERIFY_DV; tensor++) {
            const bool dk = tensor == VERIFY_DK;
            const int64_t count = dk ? problem->head_dim : problem->head_dim_v;
            float *sums = dk ? keys->plain_dk + n * count : keys->plain_dv + n * count;
            plain_round(plain, sums, count);
            tensor_load(&judge->tensors->images[judge_operands[tensor]], span->batch, span->row + keys->index[n],
                        task->head_k, count, scratch->got);
            struct row row = {.tensor = tensor,
                              .head = task->head_k,
                              .index = keys->index[n],
                              .got = scratch->got,
                              .want = dk ? keys->dk + n * count : keys->dv + n * count,
                              .plain = sums,
                              .count = count,
                              .unit = sqrt(dk ? keys->units[n].dk_square : keys->units[n].dv_square)};
            add_row(judge, task, &row);
        }
}

static vf_status judge_heads(struct judge *judge, struct task *task, struct keys *keys, struct scratch *scratch) {
    const struct problem *problem = judge->problem;
    const int64_t group = problem->heads_q / problem->heads_k;
    const enum reference_source source = judge->sampled ? REFERENCE_GIVEN : REFERENCE_OWN;
    bool gradients = judge->backward;
    for (int64_t member = 0; member < group; member++) {
        const int64_t head_q = task->head_k * group + member;
        struct reference_head head = {0};
        struct plain_head plain = {0};
        vf_status status = reference_load(problem, judge->tensors, &judge->spans_q[task->sequence],
                                          &judge->spans_k[task->sequence], head_q, judge->backward, source, &head);
        if (!status) status = plain_load(&head, judge->backward, source, &plain);
        if (!status) {
            gradients = gradients && gradients_judged(&head);
            judge_rows(judge, task, &head, &plain, head_q, gradients, scratch);
            for (int64_t n = 0; gradients && n < keys->count; n++) {
                const int64_t j = keys->index[n];
                reference_dkv(&head, j, keys->dk + n * head.d, keys->dv + n * head.dv, &keys->units[n]);
                plain_dkv(&plain, j, keys->plain_dk + n * head.d, keys->plain_dv + n * head.dv);
            }
            if (gradients && member == group - 1) judge_keys(judge, task, &plain, keys, scratch);
        }
        plain_free(&plain);
        reference_free(&head);
        VF_TRY(status);
    }
    return VF_OK;
}

static void judge_task(void *user, int64_t index) {
    struct judge *judge = user;
    struct task *task = &judge->tasks[index];
    const struct problem *problem = judge->problem;
    const size_t widest = (size_t)(problem->head_dim > problem->head_dim_v ? problem->head_dim : problem->head_dim_v);
    struct scratch scratch = {malloc(widest * sizeof(double)), malloc(widest * sizeof(double)),
                              malloc(widest * sizeof(float))};
    struct keys keys = {0};
    vf_status status = VF_OK;
    if (!scratch.got || !scratch.want || !scratch.plain) status = VF_ERROR_OUT_OF_MEMORY;
    if (!status && judge->backward) status = keys_create(judge, judge->spans_k[task->sequence].used, &keys);
    if (!status) status = judge_heads(judge, task, &keys, &scratch);
    keys_free(&keys);
    free(scratch.got);
    free(scratch.want);
    free(scratch.plain);
    pthread_mutex_lock(&judge->lock);
    if (status && !judge->status) judge->status = status;
    pthread_mutex_unlock(&judge->lock);
}

// ---- the verdict ---------------------------------------------------------------------------------------------------

static void sum_up(struct judge *judge, int tensor) {
    struct verify_tensor *out = &judge->result->tensors[tensor];
    const vf_dtype dtype = judge->problem->dtype;
    const double epsilon = number_epsilon(dtype);
    double squares = 0, max_unit = 0, plain_scaled = 0, logits = 0;
    for (int64_t t = 0; t < judge->task_count; t++) {
        const struct tally *tally = &judge->tasks[t].tallies[tensor];
        out->compared += tally->count;
        out->max_error = fmax(out->max_error, tally->max_error);
        out->plain_error = fmax(out->plain_error, tally->plain_error);
        out->max_value = fmax(out->max_value, tally->max_value);
        out->scaled_error = fmax(out->scaled_error, tally->scaled_error);
        plain_scaled = fmax(plain_scaled, tally->plain_scaled);
        max_unit = fmax(max_unit, tally->max_unit);
        squares += tally->squares;
        logits = fmax(logits, judge->tasks[t].logits);
    }
    if (!out->compared) return;
    out->rms_error = sqrt(squares / (double)out->compared);
    if (tensor == VERIFY_LSE) {
        out->tolerance = LSE_EPSILON * max_unit;
        out->scaled_tolerance = LSE_EPSILON;
    } else {
        // One rounding step at the largest value, or at the largest unit where terms cancel (a gradient may be the small
        // difference of two numbers that 16 bits hold). And float32's own noise, which plain.c has only in one order of
        // its sums: terms are off by a few of its steps, P by as many as the scores are large.
        const double step = ldexp(epsilon, ilogb(fmax(out->max_value, max_unit)));
        const double noise = number_epsilon(VF_FLOAT32) * (8 + 4 * logits);
        out->tolerance = 2 * out->plain_error + step + noise * max_unit;
        out->scaled_tolerance = 2 * plain_scaled + epsilon + noise;
    }
    judge->result->share =
        fmax(judge->result->share, fmax(out->max_error / out->tolerance, out->scaled_error / out->scaled_tolerance));
}

static bool beyond(const struct judge *judge, const struct task *task) {
    for (int tensor = 0; tensor < VERIFY_TENSORS; tensor++) {
        const struct verify_tensor *limits = &judge->result->tensors[tensor];
        const struct tally *tally = &task->tallies[tensor];
        if (tally->count && (tally->max_error > limits->tolerance || tally->scaled_error > limits->scaled_tolerance))
            return true;
    }
    return false;
}

vf_status judge_accuracy(const struct problem *problem, const struct tensors *tensors, bool backward, int threads,
                         double full_flops, struct verify_result *result) {
    struct judge judge = {.problem = problem,
                          .tensors = tensors,
                          .backward = backward,
                          .sampled = problem_flops(problem, false) > (full_flops > 0 ? full_flops : FULL_FLOPS),
                          .lock = PTHREAD_MUTEX_INITIALIZER,
                          .result = result};
    VF_TRY(problem_spans(problem, &judge.spans_q, &judge.spans_k));
    judge.tasks =
        calloc((size_t)(judge.sampled ? SAMPLE_TASKS : problem->batch * problem->heads_k) + 1, sizeof *judge.tasks);
    if (!judge.tasks) {
        judge.status = VF_ERROR_OUT_OF_MEMORY;
        goto out;
    }
    result->sampled = judge.sampled;
    choose_tasks(&judge);
    crew_run(threads, judge.task_count, judge_task, &judge);
    if (judge.status) goto out;
    for (int tensor = 0; tensor < VERIFY_TENSORS; tensor++) sum_up(&judge, tensor);
    judge.locating = true;
    for (int64_t t = 0; t < judge.task_count && result->verdict == VERIFY_RIGHT; t++)
        if (beyond(&judge, &judge.tasks[t])) judge_task(&judge, t);
out:
    free(judge.tasks);
    free(judge.spans_q);
    free(judge.spans_k);
    if (judge.status) VF_FAIL(judge.status, "oracle: no memory for problem '%s'", problem->name);
    return VF_OK;
}
