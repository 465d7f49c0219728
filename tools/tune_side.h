// tune_side.h - a device of a sweep: its thread and the process that measures there (tune_child.c).
#ifndef VF_TUNE_SIDE_H
#define VF_TUNE_SIDE_H

#include "tune_sweep.h"
#include "worker.h"

struct tune_side {
    struct sweep *sweep;
    int device;
    size_t devices;  // of the sweep
    struct worker worker;
    struct item *item;        // in work
    const struct item *told;  // that the process knows of
};

// Asks the process, which is started if there is none, for something that takes about so many seconds; it may take --timeout more.
// WORKER_DIED, with CODE_FAILURE, if it cannot be started.
enum worker_answer tune_ask(struct tune_side *side, const char *text, double seconds, int *code, struct buf *answer);

// Times the candidates of its item that are correct until one is the fastest, or `deadline` (output_seconds) has come.
void tune_race(struct tune_side *side, double deadline);

void tune_fail(struct candidate *candidate, enum tune_state state, const char *reason);
void tune_show(struct sweep *sweep, const struct item *item, const struct candidate *best);

#endif
