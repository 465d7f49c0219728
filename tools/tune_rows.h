// tune_rows.h - which candidates become rows: one for each size of a request, chosen from records.
#ifndef VF_TUNE_ROWS_H
#define VF_TUNE_ROWS_H

#include "tune_items.h"

// The problems of one request whose averages are the same powers of two get one row.
struct tune_bucket {
    const struct tune_item **items;
    size_t count;
    const cJSON *winner;          // null: none of its candidates is correct
    const struct tune_item *won;  // the item that the winner's record is of
    double score;                 // logarithm of its time over the best's, mean over the items
    bool last;                    // of its request: admits every size
};

struct tune_rows {
    struct tune_bucket *list;  // in the order of rows: by request and size
    size_t count;
};

struct tune_rows tune_rows_choose(const struct tune_item *const *items, size_t count);
void tune_rows_free(struct tune_rows *rows);

// The row that a call of this shape would get; null if there is none for its request.
const struct tune_bucket *tune_rows_serve(const struct tune_rows *rows, const struct tune_item *item);

// How much slower than the best these knobs are in the problems of a bucket: the mean of logarithms.
double tune_score(const struct tune_bucket *bucket, const char *knobs);

const char *tune_request(const struct tune_bucket *bucket);
const cJSON *tune_find_knobs(const struct tune_item *item, const char *knobs);

#endif
