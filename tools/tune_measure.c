// tune_measure.c - a sweep at work. One thread hands kernels to the processes that compile; for each device another takes passes of
// problems from the list and asks the device's measuring process (tune_child.c). Invariant: what was measured is in the journal before
// anything else happens.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "command.h"
#include "output.h"
#include "tune_sweep.h"
#include "workers.h"

#define GROUP 8           // candidates timed side by side
#define VERIFY_LIMIT 120  // seconds without an answer: a kernel that hangs
#define TIME_LIMIT 60
#define DEVICES_MAX 16

// ---- compiling -------------------------------------------------------------------------------------------------------

static void on_compiled(size_t index, int code, const char *sentence, void *user) {
    struct sweep *sweep = user;
    pthread_mutex_lock(&sweep->lock);
    sweep->codes[index] = code;
    if (code) sweep->sentences[index] = output_copy(sentence);
    pthread_cond_broadcast(&sweep->compiled);
    pthread_mutex_unlock(&sweep->lock);
}

static void *compile_all(void *user) {
    struct sweep *sweep = user;
    const int code = workers_run(sweep->options, sweep->kernels.items, sweep->kernels.count, on_compiled, sweep);
    pthread_mutex_lock(&sweep->lock);
    sweep->compiling = false;
    if (code && !sweep->code) sweep->code = code;
    pthread_cond_broadcast(&sweep->compiled);
    pthread_mutex_unlock(&sweep->lock);
    return NULL;
}

// 1: all its kernels are there; -1: one failed, *reason says how; 0: not yet.
static int is_compiled(const struct sweep *sweep, const struct candidate *candidate, const char **reason) {
    int ready = 1;
    for (size_t i = 0; i < candidate->kernel_count; i++) {
        const size_t kernel = candidate->kernels[i];
        if (sweep->codes[kernel] > 0) {
            *reason = sweep->sentences[kernel];
            return -1;
        }
        if (sweep->codes[kernel] < 0) ready = 0;
    }
    return ready;
}

// A new candidate that can be looked at, waiting for one if need be. Null when there is no more.
static struct candidate *next_candidate(struct sweep *sweep, struct item *item, const char **reason) {
    struct candidate *found = NULL;
    pthread_mutex_lock(&sweep->lock);
    for (;;) {
        bool waiting = false;
        for (size_t i = 0; i < item->count && !found; i++) {
            struct candidate *candidate = &item->candidates[i];
            if (candidate->state != TUNE_NEW) continue;
            waiting = true;
            if (is_compiled(sweep, candidate, reason)) found = candidate;
        }
        if (found || !waiting || !sweep->compiling || command_interrupted()) break;
        struct timespec soon;
        clock_gettime(CLOCK_REALTIME, &soon);
        soon.tv_sec++;  // an interrupt wakes nobody
        pthread_cond_timedwait(&sweep->compiled, &sweep->lock, &soon);
    }
    pthread_mutex_unlock(&sweep->lock);
    return found;
}

// ---- measuring -------------------------------------------------------------------------------------------------------

struct bench_side {
    struct sweep *sweep;
    int device;
    struct worker worker;
    struct item *item;
};

static bool start_child(struct bench_side *side) {
    char text[64];
    int code;
    struct buf answer = {0};
    if (side->worker.process > 0) return true;
    if (workers_start(side->sweep->options, &side->worker)) return false;
    snprintf(text, sizeof(text), "problem %zu %d", side->item->index, side->device);
    worker_tell(&side->worker, text);
    const bool good = worker_hear(&side->worker, TIME_LIMIT, &code, &answer) == WORKER_ANSWERED && !code;
    if (!good && !command_interrupted()) output_error("tune: the measuring process: %s", buf_string(&answer));
    if (!good) worker_stop(&side->worker);
    buf_free(&answer);
    return good;
}

static enum worker_answer ask(struct bench_side *side, const char *text, double limit, int *code, struct buf *answer) {
    *code = CODE_FAILURE;
    if (!start_child(side)) return WORKER_DIED;
    worker_tell(&side->worker, text);
    return worker_hear(&side->worker, limit, code, answer);
}

static void fail(struct candidate *candidate, enum tune_state state, const char *reason) {
    candidate->state = state;
    free(candidate->reason);
    candidate->reason = output_copy(reason);
}

// Shapes of one request are checked by the same small problem: the verdict on the candidate there.
static bool has_verdict(struct sweep *sweep, const struct item *item, struct candidate *candidate) {
    pthread_mutex_lock(&sweep->lock);
    for (size_t i = 0; i < sweep->item_count && candidate->state == TUNE_NEW; i++) {
        const struct item *other = &sweep->items[i];
        if (!other->checked || strcmp(other->request, item->request) != 0 || strcmp(other->check, item->check) != 0)
            continue;
        for (size_t k = 0; k < other->count; k++) {
            const struct candidate *twin = &other->candidates[k];
            if (strcmp(twin->knobs, candidate->knobs) != 0) continue;
            candidate->state = twin->verdict;
            if (twin->verdict > TUNE_CORRECT) candidate->reason = output_copy(twin->reason);
        }
    }
    pthread_mutex_unlock(&sweep->lock);
    return candidate->state != TUNE_NEW;
}

static void verify(struct bench_side *side, struct candidate *candidate, const char *compile_fault) {
    char *text = NULL;
    int code = 0;
    struct buf answer = {0};
    if (compile_fault) {
        fail(candidate, TUNE_COMPILE, compile_fault);
    } else if (!has_verdict(side->sweep, side->item, candidate) &&
               asprintf(&text, "verify %s %s", side->item->backward ? "bwd" : "fwd", candidate->knobs) >= 0) {
        const enum worker_answer how = ask(side, text, VERIFY_LIMIT, &code, &answer);
        if (command_interrupted()) goto out;
        candidate->state = TUNE_CORRECT;
        if (how == WORKER_SILENT) fail(candidate, TUNE_TIMEOUT, buf_string(&answer));
        if (how == WORKER_DIED) fail(candidate, TUNE_RUNTIME, buf_string(&answer));
        if (how == WORKER_ANSWERED && code)
            fail(candidate,
                 code == CODE_CHECK_FAILED ? TUNE_CORRECTNESS
                 : code == CODE_COMPILE    ? TUNE_COMPILE
                                           : TUNE_RUNTIME,
                 buf_string(&answer));
    }
    candidate->verdict = candidate->state;
    if (candidate->state != TUNE_CORRECT) tune_record(side->sweep, side->item, candidate, side->device);
out:
    free(text);
    buf_free(&answer);
}

// A line of times for each candidate of a group.
static void take_times(struct candidate *const *group, size_t count, const char *text) {
    for (size_t i = 0; i < count; i++) {
        struct candidate *candidate = group[i];
        while (*text && *text != '\n') {
            char *end;
            const double ms = strtod(text, &end);
            if (end == text) break;
            candidate->times = output_realloc(candidate->times, (candidate->count + 1) * sizeof(double));
            candidate->times[candidate->count++] = ms;
            text = end;
        }
        text += *text == '\n';
        candidate->estimate = tune_estimate(candidate->times, candidate->count);
    }
}

// Times a group; if the process does not survive that, each of it alone, so that the one at fault pays.
static void time_group(struct bench_side *side, struct candidate *const *group, size_t count, double seconds) {
    int code = 0;
    struct buf text = {0}, answer = {0};
    buf_printf(&text, "time %s %.3f ", side->item->backward ? "bwd" : "fwd", seconds * (double)count);
    for (size_t i = 0; i < count; i++) buf_printf(&text, "%s%s", i ? "|" : "", group[i]->knobs);
    const enum worker_answer how =
        ask(side, buf_string(&text), TIME_LIMIT + 20 * seconds * (double)count, &code, &answer);
    if (command_interrupted() && how != WORKER_ANSWERED) goto out;
    if (how == WORKER_ANSWERED && !code) {
        take_times(group, count, buf_string(&answer));
        for (size_t i = 0; i < count; i++) tune_record(side->sweep, side->item, group[i], side->device);
    } else if (count > 1) {
        for (size_t i = 0; i < count; i++) time_group(side, &group[i], 1, seconds);
    } else {
        fail(group[0], how == WORKER_SILENT ? TUNE_TIMEOUT : TUNE_RUNTIME, buf_string(&answer));
        tune_record(side->sweep, side->item, group[0], side->device);
    }
out:
    buf_free(&text);
    buf_free(&answer);
}

static int by_median(const void *a, const void *b) {
    const struct candidate *x = *(struct candidate *const *)a, *y = *(struct candidate *const *)b;
    const double first = x->estimate.median, second = y->estimate.median;
    return first != second ? (first > second) - (first < second) : strcmp(x->knobs, y->knobs);
}

// Those that are still correct, fastest first.
static size_t rank(struct candidate **active, size_t count) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (active[i]->state == TUNE_CORRECT) active[kept++] = active[i];
    }
    qsort(active, kept, sizeof(struct candidate *), by_median);
    return kept;
}

static size_t keep(struct candidate *const *active, size_t count) {
    struct tune_estimate *sorted = output_realloc(NULL, (count + 1) * sizeof(*sorted));
    for (size_t i = 0; i < count; i++) sorted[i] = active[i]->estimate;
    const size_t kept = tune_keep(sorted, count);
    free(sorted);
    return kept;
}

static void show(struct sweep *sweep, const struct item *item, const struct candidate *best) {
    char label[COMMAND_LABEL], what[COMMAND_LABEL + 64];
    const char *name = command_label(&sweep->list->items[item->index], label);
    const double tflops = problem_flops(&sweep->list->items[item->index], item->backward) / 1e9;
    if (best && best->count)
        snprintf(what, sizeof(what), "tune %s %s, best %.4f ms, %.0f TFLOP/s", name, item->backward ? "bwd" : "fwd",
                 best->estimate.median, tflops / best->estimate.median);
    else
        snprintf(what, sizeof(what), "tune %s %s", name, item->backward ? "bwd" : "fwd");
    pthread_mutex_lock(&sweep->lock);
    output_progress(what, sweep->done, sweep->total);
    pthread_mutex_unlock(&sweep->lock);
}

static void race(struct bench_side *side) {
    struct sweep *sweep = side->sweep;
    struct item *item = side->item;
    struct candidate **active = output_realloc(NULL, (item->count + 1) * sizeof(struct candidate *));
    size_t count = 0;
    for (size_t i = 0; i < item->count; i++) active[count++] = &item->candidates[i];
    count = rank(active, count);
    const bool halving = !sweep->options->strategy || !strcmp(sweep->options->strategy, "halving");
    const size_t rounds = halving ? tune_rounds(count) : 2;
    for (size_t round = 0; count && !command_interrupted(); round++) {
        const double seconds = sweep->seconds / (double)rounds / (double)count;
        for (size_t i = 0; i < count && !command_interrupted(); i += GROUP) {
            time_group(side, active + i, count - i < GROUP ? count - i : GROUP, seconds);
            show(sweep, item, active[0]);
        }
        count = rank(active, count);
        if (count <= TUNE_FINAL && round + 1 >= rounds) break;
        count = halving ? keep(active, count) : count < TUNE_FINAL ? count : TUNE_FINAL;
        if (!halving && round) break;
    }
    free(active);
}

static void *measure_on_device(void *user) {
    struct bench_side *side = user;
    struct sweep *sweep = side->sweep;
    while (!command_interrupted()) {
        pthread_mutex_lock(&sweep->lock);
        side->item = sweep->next < sweep->item_count ? &sweep->items[sweep->next++] : NULL;
        pthread_mutex_unlock(&sweep->lock);
        if (!side->item) break;
        struct candidate *candidate;
        const char *fault = NULL;
        show(sweep, side->item, NULL);
        while (!command_interrupted() && (candidate = next_candidate(sweep, side->item, &fault))) {
            verify(side, candidate, fault);
            fault = NULL;
            if (candidate->state == TUNE_NEW) break;  // interrupted
            show(sweep, side->item, NULL);
        }
        pthread_mutex_lock(&sweep->lock);
        side->item->checked = !command_interrupted();
        pthread_mutex_unlock(&sweep->lock);
        race(side);
        worker_stop(&side->worker);  // the next problem gets all of the device's memory
    }
    worker_stop(&side->worker);
    return NULL;
}

// ---- the devices -----------------------------------------------------------------------------------------------------

static size_t read_devices(const struct options *options, int *devices) {
    size_t count = 0;
    const char *text = options->devices;
    while (text && *text && count < DEVICES_MAX) {
        devices[count++] = (int)strtol(text, NULL, 10);
        text += strcspn(text, ",");
        text += *text == ',';
    }
    if (!count) devices[count++] = (int)options->device;
    return count;
}

void tune_measure(struct sweep *sweep) {
    int devices[DEVICES_MAX];
    struct bench_side sides[DEVICES_MAX];
    pthread_t compiler, threads[DEVICES_MAX];
    const size_t count = read_devices(sweep->options, devices);
    sweep->compiling = true;
    const bool started = !pthread_create(&compiler, NULL, compile_all, sweep);
    size_t running = 0;
    for (; started && running < count; running++) {
        sides[running] = (struct bench_side){.sweep = sweep, .device = devices[running]};
        if (pthread_create(&threads[running], NULL, measure_on_device, &sides[running])) break;
    }
    if (!running) {
        output_error("tune: cannot start a thread");
        sweep->code = CODE_FAILURE;
    }
    for (size_t i = 0; i < running; i++) pthread_join(threads[i], NULL);
    if (started) pthread_join(compiler, NULL);
    output_clear();
}
