// tune_side.c - talking to the process that measures, and showing how far it is.
#include <stdio.h>
#include <stdlib.h>

#include "command.h"
#include "output.h"
#include "tune_side.h"
#include "workers.h"

#define START_LIMIT 60  // seconds

// The process outlives its items: a new one would have to make a context and load the kernels again.
static bool prepare(struct tune_side *side) {
    char text[64];
    int code;
    struct buf answer = {0};
    if (side->worker.process > 0 && side->told == side->item) return true;
    if (!side->worker.process && workers_start(side->sweep->options, &side->worker)) return false;
    snprintf(text, sizeof(text), "problem %zu %d", side->item->index, side->device);
    worker_tell(&side->worker, text);
    const bool good = worker_hear(&side->worker, START_LIMIT, &code, &answer) == WORKER_ANSWERED && !code;
    if (!good && !command_interrupted()) output_error("tune: the measuring process: %s", buf_string(&answer));
    if (!good) worker_stop(&side->worker);
    side->told = good ? side->item : NULL;
    buf_free(&answer);
    return good;
}

enum worker_answer tune_ask(struct tune_side *side, const char *text, double seconds, int *code, struct buf *answer) {
    *code = CODE_FAILURE;
    if (!prepare(side)) return WORKER_DIED;
    worker_tell(&side->worker, text);
    const enum worker_answer how = worker_hear(&side->worker, side->sweep->options->timeout + seconds, code, answer);
    // A kernel that failed may have spoilt the context for all that follow.
    if (how == WORKER_ANSWERED && *code == CODE_FAILURE) worker_stop(&side->worker);
    return how;
}

void tune_fail(struct candidate *candidate, enum tune_state state, const char *reason) {
    candidate->state = state;
    free(candidate->reason);
    candidate->reason = output_copy(reason);
}

void tune_show(struct sweep *sweep, const struct item *item, const struct candidate *best) {
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
