// tune_sweep.h - a sweep of `varflash tune` as its files share it: candidates (tune_candidates.c), measuring (tune_measure.c), the
// journal (tune_journal.c), the verb (tune.c).
#ifndef VF_TUNE_SWEEP_H
#define VF_TUNE_SWEEP_H

#include <pthread.h>
#include <stdio.h>

#include "source_plan.h"
#include "texts.h"
#include "tune.h"
#include "tune_search.h"

struct candidate {
    char *knobs;  // words in order
    bool row;     // a row's
    bool served;  // the one that a call gets now
    bool timed;   // its record is in the journal
    int numeric;
    size_t kernels[SOURCE_KERNELS_MAX], kernel_count;  // in sweep.kernels
    enum tune_state verdict, state;                    // of the check; in all
    char *reason;
    double *times;
    size_t count;
    struct tune_estimate estimate;
};

struct item {
    size_t index;  // of the problem
    bool backward;
    char *request;
    char *check;  // flags of the problem by which its candidates are checked
    struct candidate *candidates;
    size_t count;
    bool checked;  // all have a verdict; under the sweep's lock
};

struct sweep {
    const struct options *options;
    const struct problem_list *list;
    vf_context *context;
    struct item *items;
    size_t item_count;
    double seconds;  // of measuring, for an item
    cJSON *records;  // of the journal that is gone on from
    FILE *journal;
    // Under `lock`:
    pthread_mutex_t lock;
    pthread_cond_t compiled;
    struct texts kernels;
    int *codes;  // of each kernel; -1: not compiled yet
    char **sentences;
    bool compiling;
    size_t next, done, total;
    double best;
    int code;
};

// Whether --pass asks for a pass, or for nothing in particular.
bool tune_wants_pass(const struct options *options, bool backward);

// Fills sweep->items from the problems. 0 or an exit code, after a message.
int tune_make_items(struct sweep *sweep);

// Compiles in processes and measures on the devices until all is done or interrupted.
void tune_measure(struct sweep *sweep);

// Opens the journal beside the output, and reads it first if the sweep goes on; tune_recall then fills in what it knows.
int tune_open_journal(struct sweep *sweep);
void tune_recall(struct sweep *sweep);

// Writes what is known of a candidate. Any thread may.
void tune_record(struct sweep *sweep, const struct item *item, struct candidate *candidate, int device);

#endif
