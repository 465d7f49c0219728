// tune_items.h - a tuner's records, by the pass of a problem that they are about.
#ifndef VF_TUNE_ITEMS_H
#define VF_TUNE_ITEMS_H

#include <stdbool.h>
#include <stddef.h>

#include <cjson/cJSON.h>

#include "options.h"

// Members of a record: "" and 0 where there is none.
const char *tune_text(const cJSON *json, const char *name);
double tune_number(const cJSON *json, const char *name);
const cJSON *tune_where(const cJSON *record);
bool tune_is_correct(const cJSON *record);
const char *tune_label(const cJSON *record);  // its problem's name, else its flags

// "head_dim=128" of a request or of knobs as a member, numbers as numbers: all words, or `count` of them.
void tune_add_words(cJSON *json, const char *text, const char *const *only, size_t count);

// The member "command": that of the sweep which made the record.
void tune_add_command(cJSON *json, const cJSON *record);

// A pass of a problem, and its records.
struct tune_item {
    const cJSON **records;
    size_t count;
    const cJSON *best, *second, *served;
    unsigned size_q, size_k;  // averages as rows ask for them: logarithms, rounded up
};

struct tune_items {
    struct tune_item *list;
    size_t count;
};

// They point into `records`.
struct tune_items tune_items_make(const cJSON *records);
void tune_items_free(struct tune_items *items);
const cJSON *tune_first(const struct tune_item *item);

// --held-out: how much slower than its own best a shape is with the row that it gets.
struct tune_loss {
    const struct tune_item *item;
    const char *knobs;  // the row's
    bool fresh;         // a row of this sweep; else the one there was, for lack of other shapes of the request
    double ms, loss;    // loss 0.03: 3 % slower
};
struct tune_losses {
    struct tune_loss *list;
    size_t count;
};
// Whether an item is measured for that alone, and makes no row.
bool tune_is_held_out(const struct options *options, const struct tune_item *item);
// Prints a table and fills `losses`. 0 or an exit code.
int tune_held_out(const struct options *options, const struct tune_items *items, struct tune_losses *losses);

// --rows: writes that file of rows with what was measured of each, prints how they did. 0 or an exit code.
int tune_annotate(const struct options *options, const struct tune_items *items);

// How much faster shapes are with their new row than with the one that served before: geometric mean and range.
struct tune_gains {
    size_t count;
    double sum, least, most;  // sum of logarithms
};
void tune_gain(struct tune_gains *gains, double before, double after);
double tune_mean_gain(const struct tune_gains *gains);

// FILE.t4.json. 0 or an exit code.
int tune_write_t4(const struct options *options, const cJSON *records);

// tune --report: the page of plots. 0 or an exit code.
int tune_report(const struct options *options, const struct tune_items *items, const struct tune_losses *losses,
                const struct tune_gains *gains);

#endif
