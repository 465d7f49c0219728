// tune_measure.c - a sweep at work. One thread hands kernels to the processes that compile; for each device another takes passes of
// problems from the list, has their candidates checked as they are compiled, and lets them race (tune_race.c).
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "command.h"
#include "output.h"
#include "tune_side.h"
#include "varflash/varflash_dev.h"
#include "workers.h"

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
    const double start = output_seconds();
    pthread_mutex_lock(&sweep->lock);
    for (;;) {
        bool waiting = false;
        for (size_t i = 0; i < item->count && !found; i++) {
            struct candidate *candidate = &item->candidates[i];
            if (candidate->state != TUNE_NEW || candidate->skipped) continue;
            waiting = true;
            if (is_compiled(sweep, candidate, reason)) found = candidate;
        }
        if (found || !waiting || !sweep->compiling || command_interrupted()) break;
        struct timespec soon;
        clock_gettime(CLOCK_REALTIME, &soon);
        soon.tv_sec++;  // an interrupt wakes nobody
        pthread_cond_timedwait(&sweep->compiled, &sweep->lock, &soon);
    }
    sweep->waited += output_seconds() - start;
    pthread_mutex_unlock(&sweep->lock);
    return found;
}

// ---- checking --------------------------------------------------------------------------------------------------------

// What was found of a candidate by other items of the request: its verdict if they were checked by the same small problem, which is
// then this item's too; else whether one was right, so that samples do for this item's own form.
static bool ask_others(struct sweep *sweep, const struct item *item, struct candidate *candidate) {
    bool right = false;
    pthread_mutex_lock(&sweep->lock);
    for (size_t i = 0; i < sweep->item_count && candidate->state == TUNE_NEW; i++) {
        const struct item *other = &sweep->items[i];
        if (!other->checked || other->category != item->category) continue;
        for (size_t k = 0; k < other->count; k++) {
            const struct candidate *twin = &other->candidates[k];
            if (strcmp(twin->knobs, candidate->knobs) != 0) continue;
            right |= twin->verdict == TUNE_CORRECT;
            if (strcmp(other->check, item->check) != 0) continue;
            candidate->state = twin->verdict;
            if (twin->verdict > TUNE_CORRECT) candidate->reason = output_copy(twin->reason);
        }
    }
    pthread_mutex_unlock(&sweep->lock);
    return right;
}

static void verify(struct tune_side *side, struct candidate *candidate, const char *compile_fault) {
    char *text = NULL;
    int code = 0;
    struct buf answer = {0};
    if (compile_fault) {
        tune_fail(candidate, TUNE_COMPILE, compile_fault);
    } else {
        const bool right = ask_others(side->sweep, side->item, candidate);
        if (candidate->state == TUNE_NEW && asprintf(&text, "verify %s %s %s", side->item->backward ? "bwd" : "fwd",
                                                     right ? "some" : "all", candidate->knobs) >= 0) {
            const enum worker_answer how = tune_ask(side, text, 0, &code, &answer);
            if (command_interrupted()) goto out;
            candidate->state = TUNE_CORRECT;
            if (how == WORKER_SILENT) tune_fail(candidate, TUNE_TIMEOUT, buf_string(&answer));
            if (how == WORKER_DIED) tune_fail(candidate, TUNE_RUNTIME, buf_string(&answer));
            if (how == WORKER_ANSWERED && code)
                tune_fail(candidate,
                          code == CODE_CHECK_FAILED ? TUNE_CORRECTNESS
                          : code == CODE_COMPILE    ? TUNE_COMPILE
                                                    : TUNE_RUNTIME,
                          buf_string(&answer));
        }
    }
    candidate->verdict = candidate->state;
    if (candidate->state != TUNE_CORRECT) tune_record(side->sweep, side->item, candidate, side->device);
out:
    free(text);
    buf_free(&answer);
}

static void check_all(struct tune_side *side) {
    struct sweep *sweep = side->sweep;
    struct candidate *candidate;
    const char *fault = NULL;
    tune_show(sweep, side->item, NULL);
    while (!command_interrupted() && (candidate = next_candidate(sweep, side->item, &fault))) {
        verify(side, candidate, fault);
        fault = NULL;
        if (candidate->state == TUNE_NEW) break;  // interrupted
        tune_show(sweep, side->item, NULL);
    }
    pthread_mutex_lock(&sweep->lock);
    side->item->checked = !command_interrupted();
    pthread_mutex_unlock(&sweep->lock);
}

static void *measure_on_device(void *user) {
    struct tune_side *side = user;
    struct sweep *sweep = side->sweep;
    size_t category = SIZE_MAX;
    while (!command_interrupted()) {
        pthread_mutex_lock(&sweep->lock);
        side->item = tune_take(sweep, category);
        if (side->item) tune_skip(sweep, side->item);
        const double deadline = tune_deadline(sweep, side->devices);
        pthread_mutex_unlock(&sweep->lock);
        if (!side->item) break;
        category = side->item->category;
        check_all(side);
        tune_race(side, deadline);
        pthread_mutex_lock(&sweep->lock);
        side->item->raced = true;
        pthread_mutex_unlock(&sweep->lock);
    }
    worker_stop(&side->worker);
    return NULL;
}

// ---- the devices -----------------------------------------------------------------------------------------------------

static int add_device(struct sweep *sweep, int device) {
    vf_dev_device facts;
    const vf_status status = vf_dev_device_get(sweep->context, device, &facts);
    if (status) return command_failed(status);
    for (size_t i = 0; i < sweep->device_count; i++) {
        if (sweep->devices[i] != device) continue;
        output_error("tune: --devices has device %d twice", device);
        return CODE_USAGE;
    }
    sweep->devices[sweep->device_count++] = device;
    return CODE_OK;
}

int tune_read_devices(struct sweep *sweep) {
    const char *text = sweep->options->devices;
    int code = text ? CODE_OK : add_device(sweep, (int)sweep->options->device);
    while (text && !code) {
        char *end;
        const long device = strtol(text, &end, 10);
        if (end == text || (*end && *end != ',') || device < 0 || device > INT_MAX ||
            sweep->device_count == DEVICES_MAX) {
            output_error("tune: --devices is '%s', not up to %d numbers of devices such as 0,1",
                         sweep->options->devices, DEVICES_MAX);
            return CODE_USAGE;
        }
        code = add_device(sweep, (int)device);
        text = *end ? end + 1 : NULL;
    }
    return code;
}

void tune_measure(struct sweep *sweep) {
    struct tune_side sides[DEVICES_MAX];
    pthread_t compiler, threads[DEVICES_MAX];
    const size_t count = sweep->device_count;
    sweep->compiling = true;
    const bool started = !pthread_create(&compiler, NULL, compile_all, sweep);
    size_t running = 0;
    for (; started && running < count; running++) {
        sides[running] = (struct tune_side){.sweep = sweep, .device = sweep->devices[running], .devices = count};
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
