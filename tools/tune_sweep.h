// tune_sweep.h - a sweep of `varflash tune` as its files share it: candidates (tune_candidates.c), who comes when and what is not worth
// measuring (tune_order.c), measuring (tune_measure.c, tune_side.c, tune_race.c), the journal (tune_journal.c), the verb (tune.c).
#ifndef VF_TUNE_SWEEP_H
#define VF_TUNE_SWEEP_H

#include <pthread.h>
#include <stdio.h>

#include "source_plan.h"
#include "texts.h"
#include "tune.h"
#include "tune_search.h"

struct candidate {
    char *knobs;   // words in order
    bool row;      // a row's
    bool served;   // the one that a call gets now
    bool timed;    // its record is in the journal
    bool skipped;  // too slow for smaller and for larger sizes to be tried
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
    char *row;        // the one that serves it now, by its place in a file; null: none
    double size;      // of its sequences: the logarithm of how many pairs an average one has
    size_t category;  // items of one request have one category
    bool held_out;    // makes no row: comes last in its category
    char *check;      // flags of the problem by which its candidates are checked
    struct candidate *candidates;
    size_t count;
    // Under the sweep's lock:
    bool taken, checked, raced;  // by a device; all have a verdict; all have their times
    bool finished;               // raced to the end, now or in the sweep that is gone on from
};

#define DEVICES_MAX 16

struct sweep {
    const struct options *options;
    const struct problem_list *list;
    vf_context *context;
    struct item *items;
    size_t item_count;
    int devices[DEVICES_MAX];
    size_t device_count;
    size_t in_space;       // candidates that the generator can make and --set lets through
    double start, budget;  // seconds; budget 0: none, and each item may take ITEM_SECONDS
    cJSON *records;        // of the journal that is gone on from
    FILE *journal;
    // Under `lock`:
    pthread_mutex_t lock;
    pthread_cond_t compiled;
    struct texts kernels;
    int *codes;  // of each kernel; -1: not compiled yet
    char **sentences;
    bool compiling;
    double waited;             // seconds that devices had nothing to do but wait for a compiler
    size_t done, total, left;  // candidates; items that no device has taken
    int code;
};

#define ITEM_SECONDS 20

// Whether --pass asks for a pass, or for nothing in particular.
bool tune_wants_pass(const struct options *options, bool backward);

// Fills sweep->items from the problems, in the order of measuring. 0 or an exit code, after a message.
int tune_make_items(struct sweep *sweep);

// Rows divided by sequences, as a row's conditions have it.
double tune_average(const struct problem *problem, bool keys);

// Puts the items in the order of measuring, and the kernels in that of the items.
void tune_order(struct sweep *sweep);

// The next item for a device whose last one was of `category`: of the same if there is one, else of one that no other device is at. Null
// when all are taken or the budget is used up. Under the lock.
struct item *tune_take(struct sweep *sweep, size_t category);

// When an item that is begun now should be done, by output_seconds: the time that is left, shared out among the items that are.
double tune_deadline(const struct sweep *sweep, size_t devices);

// Marks the candidates that other sizes of the request have shown to be too slow for this one. Under the lock.
void tune_skip(struct sweep *sweep, struct item *item);

// The devices of --devices, which must be there. 0 or an exit code, after a message.
int tune_read_devices(struct sweep *sweep);

// Compiles in processes and measures on the devices until all is done or interrupted.
void tune_measure(struct sweep *sweep);

// Opens the journal beside the output, and reads it first if the sweep goes on; tune_recall then fills in what it knows.
int tune_open_journal(struct sweep *sweep);
void tune_recall(struct sweep *sweep);

// Writes what is known of a candidate. Any thread may.
void tune_record(struct sweep *sweep, const struct item *item, struct candidate *candidate, int device);

#endif
