// tune_race.c - candidates of an item against each other: rungs of successive halving, each twice as long as the one before. Invariant: who
// leaves the race is in the journal before the next rung.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "output.h"
#include "tune_side.h"

#define GROUP 16         // candidates timed side by side
#define ROUNDS 5         // of the first rung
#define ROUNDS_MOST 160  // of one question
#define ENOUGH 0.005     // of a time: how wide its interval may be in the end
#define HOPELESS 1.5     // times the fastest: worth one time, no more

// ---- one question ----------------------------------------------------------------------------------------------------

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
static void time_group(struct tune_side *side, struct candidate *const *group, size_t count, double seconds, int rounds,
                       double bar) {
    int code = 0;
    struct buf text = {0}, answer = {0};
    buf_printf(&text, "time %s %.3f %d %.6g ", side->item->backward ? "bwd" : "fwd", seconds * (double)count, rounds,
               fmin(bar, 1e9));
    for (size_t i = 0; i < count; i++) buf_printf(&text, "%s%s", i ? "|" : "", group[i]->knobs);
    const enum worker_answer how = tune_ask(side, buf_string(&text), 20 * seconds * (double)count, &code, &answer);
    const bool answered = how == WORKER_ANSWERED && !code;
    const bool failed = !answered && !command_interrupted();  // an interrupted process is no candidate's fault
    if (answered) take_times(group, count, buf_string(&answer));
    if (failed && count > 1) {
        for (size_t i = 0; i < count; i++) time_group(side, &group[i], 1, seconds, rounds, bar);
    } else if (failed) {
        tune_fail(group[0], how == WORKER_SILENT ? TUNE_TIMEOUT : TUNE_RUNTIME, buf_string(&answer));
        tune_record(side->sweep, side->item, group[0], side->device);
    }
    buf_free(&text);
    buf_free(&answer);
}

// ---- the field -------------------------------------------------------------------------------------------------------

static int by_median(const void *a, const void *b) {
    const struct candidate *x = *(struct candidate *const *)a, *y = *(struct candidate *const *)b;
    const double first = x->estimate.median, second = y->estimate.median;
    if (first != second) return (first > second) - (first < second);
    // Untimed: the one that is served now is a bar for the others.
    return x->served != y->served ? y->served - x->served : strcmp(x->knobs, y->knobs);
}

// Those that are still correct, fastest first.
static size_t rank(struct candidate **active, size_t count) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (active[i]->state == TUNE_CORRECT && !active[i]->skipped) active[kept++] = active[i];
    }
    qsort(active, kept, sizeof(struct candidate *), by_median);
    return kept;
}

// Of finalists: those that may still be the fastest, and the runner-up.
static size_t contenders(struct candidate *const *active, size_t count) {
    while (count > 2 && active[count - 1]->estimate.low > active[0]->estimate.high) count--;
    return count;
}

static size_t keep(struct candidate *const *active, size_t count) {
    struct tune_estimate *sorted = output_realloc(NULL, (count + 1) * sizeof(*sorted));
    for (size_t i = 0; i < count; i++) sorted[i] = active[i]->estimate;
    const size_t kept = tune_keep(sorted, count);
    free(sorted);
    return kept;
}

// Whether more times would change nothing: the fastest is that beyond doubt, or known as well as anybody asks.
static bool is_decided(struct candidate *const *active, size_t count) {
    const struct tune_estimate *best = &active[0]->estimate;
    if (best->used < 3 * ROUNDS) return false;
    if (count == 1 || active[1]->estimate.low > best->high) return true;
    return best->high - best->low < ENOUGH * best->median &&
           active[1]->estimate.high - active[1]->estimate.low < ENOUGH * best->median;
}

// The best time so far of whoever has one: what a first time is held against.
static double bar_of(struct candidate *const *active, size_t count) {
    double best = INFINITY;
    for (size_t i = 0; i < count; i++) best = fmin(best, active[i]->estimate.median);
    return HOPELESS * best;
}

static void time_all(struct tune_side *side, struct candidate *const *active, size_t count, double seconds,
                     int rounds) {
    for (size_t i = 0; i < count && !command_interrupted(); i += GROUP) {
        time_group(side, active + i, count - i < GROUP ? count - i : GROUP, seconds, rounds, bar_of(active, count));
        tune_show(side->sweep, side->item, active[0]);
    }
}

static void leave(struct tune_side *side, struct candidate *const *active, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) {
        if (active[i]->count) tune_record(side->sweep, side->item, active[i], side->device);
    }
}

void tune_race(struct tune_side *side, double deadline) {
    struct sweep *sweep = side->sweep;
    struct item *item = side->item;
    struct candidate **active = output_realloc(NULL, (item->count + 1) * sizeof(struct candidate *));
    const bool halving = !sweep->options->strategy || !strcmp(sweep->options->strategy, "halving");
    size_t count = 0;
    for (size_t i = 0; i < item->count; i++) {
        item->candidates[i].estimate = tune_estimate(item->candidates[i].times, item->candidates[i].count);
        active[count++] = &item->candidates[i];
    }
    count = rank(active, count);
    const size_t rungs = halving ? tune_rounds(count) : 2;
    for (size_t rung = 0; count && !command_interrupted(); rung++) {
        const double left = fmax(deadline - output_seconds(), 0);
        const double seconds = left / (double)(rung < rungs ? rungs - rung : 1) / (double)count;
        const int rounds = rung < 5 ? ROUNDS << rung : ROUNDS_MOST;
        time_all(side, active, count, seconds, rounds);
        const size_t before = rank(active, count);
        const bool end = halving ? before <= TUNE_FINAL : rung + 1 >= rungs;
        if (!before || (end && (is_decided(active, before) || output_seconds() >= deadline))) {
            count = before;
            break;
        }
        count = end                   ? contenders(active, before)
                : halving             ? keep(active, before)
                : before < TUNE_FINAL ? before
                                      : TUNE_FINAL;
        leave(side, active, count, before);
    }
    item->finished = count && !command_interrupted();
    leave(side, active, 0, count);
    free(active);
}
