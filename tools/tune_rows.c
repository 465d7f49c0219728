// tune_rows.c - see tune_rows.h.
//
// Rows that only sizes tell apart must give equal bits (runtime/variant.c), so the candidates of a request are chosen together:
// those of the numeric class whose best add up to the least time.
#include "tune_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"

#define NOT_MEASURED 1.5  // what a candidate counts for where a problem of its bucket has no time of it, over the best

const cJSON *tune_find_knobs(const struct tune_item *item, const char *knobs) {
    for (size_t i = 0; i < item->count; i++) {
        if (!strcmp(tune_text(item->records[i], "knobs"), knobs)) return item->records[i];
    }
    return NULL;
}

const char *tune_request(const struct tune_bucket *bucket) {
    return tune_text(tune_first(bucket->items[0]), "request");
}

double tune_score(const struct tune_bucket *bucket, const char *knobs) {
    double sum = 0;
    for (size_t i = 0; i < bucket->count; i++) {
        const cJSON *record = tune_find_knobs(bucket->items[i], knobs), *best = bucket->items[i]->best;
        sum += record && tune_is_correct(record) ? log(tune_number(record, "ms") / tune_number(best, "ms"))
                                                 : log(NOT_MEASURED);
    }
    return sum / (double)bucket->count;
}

// The best candidate of a bucket, of one numeric class or (any) of all.
static void choose(struct tune_bucket *bucket, bool any, double numeric) {
    bucket->winner = NULL;
    bucket->score = 2 * log(NOT_MEASURED);
    for (size_t i = 0; i < bucket->count; i++) {
        const struct tune_item *item = bucket->items[i];
        for (size_t k = 0; k < item->count; k++) {
            const cJSON *record = item->records[k];
            if (!tune_is_correct(record) || (!any && tune_number(record, "numeric") != numeric)) continue;
            const double score = tune_score(bucket, tune_text(record, "knobs"));
            if (bucket->winner && score >= bucket->score) continue;
            bucket->winner = record;
            bucket->won = item;
            bucket->score = score;
        }
    }
}

// Forward and deterministic backward promise the same bits in every batch.
static bool promises_bits(const char *request) {
    return strstr(request, "pass=fwd") || strstr(request, "deterministic=1");
}

static double total_score(struct tune_bucket *buckets, size_t count, double numeric) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        choose(&buckets[i], false, numeric);
        sum += buckets[i].score;
    }
    return sum;
}

// For the buckets of one request.
static void choose_together(struct tune_bucket *buckets, size_t count) {
    const bool any = !promises_bits(tune_request(&buckets[0]));
    double best = INFINITY, numeric = 0, tried[64];
    size_t tried_count = 0;
    for (size_t i = 0; i < count && !any; i++) {
        const struct tune_item *item = buckets[i].items[0];
        for (size_t k = 0; k < item->count && tried_count < 64; k++) {
            const double value = tune_number(item->records[k], "numeric");
            bool known = !tune_is_correct(item->records[k]);
            for (size_t t = 0; t < tried_count; t++) known |= tried[t] == value;
            if (known) continue;
            tried[tried_count++] = value;
            const double sum = total_score(buckets, count, value);
            if (sum >= best) continue;
            best = sum;
            numeric = value;
        }
    }
    for (size_t i = 0; i < count; i++) choose(&buckets[i], any, numeric);
}

static int by_request_and_size(const void *a, const void *b) {
    const struct tune_bucket *x = a, *y = b;
    const int order = strcmp(tune_request(x), tune_request(y));
    if (order) return order;
    const struct tune_item *p = x->items[0], *q = y->items[0];
    if (p->size_q != q->size_q) return p->size_q < q->size_q ? -1 : 1;
    return (p->size_k > q->size_k) - (p->size_k < q->size_k);
}

static struct tune_bucket *make_buckets(const struct tune_item *const *items, size_t item_count, size_t *count) {
    struct tune_bucket *buckets = NULL;
    *count = 0;
    for (size_t i = 0; i < item_count; i++) {
        const struct tune_item *item = items[i];
        struct tune_bucket *found = NULL;
        if (!item->best) continue;
        for (size_t k = 0; k < *count && !found; k++) {
            const struct tune_item *other = buckets[k].items[0];
            if (other->size_q == item->size_q && other->size_k == item->size_k &&
                !strcmp(tune_request(&buckets[k]), tune_text(tune_first(item), "request")))
                found = &buckets[k];
        }
        if (!found) {
            buckets = output_realloc(buckets, (*count + 1) * sizeof(*buckets));
            found = &buckets[(*count)++];
            *found = (struct tune_bucket){.count = 0};
        }
        found->items = output_realloc(found->items, (found->count + 1) * sizeof(const struct tune_item *));
        found->items[found->count++] = item;
    }
    if (*count) qsort(buckets, *count, sizeof(*buckets), by_request_and_size);
    return buckets;
}

struct tune_rows tune_rows_choose(const struct tune_item *const *items, size_t count) {
    struct tune_rows rows = {NULL, 0};
    rows.list = make_buckets(items, count, &rows.count);
    for (size_t from = 0, to; from < rows.count; from = to) {
        for (to = from + 1; to < rows.count && !strcmp(tune_request(&rows.list[to]), tune_request(&rows.list[from]));)
            to++;
        choose_together(rows.list + from, to - from);
        rows.list[to - 1].last = true;
    }
    return rows;
}

const struct tune_bucket *tune_rows_serve(const struct tune_rows *rows, const struct tune_item *item) {
    for (size_t i = 0; i < rows->count; i++) {
        const struct tune_bucket *bucket = &rows->list[i];
        const struct tune_item *like = bucket->items[0];
        if (strcmp(tune_request(bucket), tune_text(tune_first(item), "request")) != 0) continue;
        if (bucket->last || (item->size_q <= like->size_q && item->size_k <= like->size_k)) return bucket;
    }
    return NULL;
}

void tune_rows_free(struct tune_rows *rows) {
    for (size_t i = 0; i < rows->count; i++) free(rows->list[i].items);
    free(rows->list);
}
