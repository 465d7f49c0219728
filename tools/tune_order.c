// tune_order.c - who is measured when, for how long, and what not at all. Measures nothing.
//
// Requests with few candidates come first, so that the device has work while the many are compiled. Of a request the smallest size comes
// first, then the largest: what loses clearly at both has nothing to hope for between them, and is not tried there.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"
#include "tune_sweep.h"

// ---- order -----------------------------------------------------------------------------------------------------------

// Where an item stands in its category.
enum place { SMALLEST, LARGEST, BETWEEN, HELD_OUT };

struct entry {
    struct item item;
    size_t cost, place, index;
};

static bool is_end(const struct sweep *sweep, const struct item *item, bool largest) {
    for (size_t i = 0; i < sweep->item_count; i++) {
        const struct item *other = &sweep->items[i];
        if (other == item || other->category != item->category || other->held_out) continue;
        const bool farther = largest ? other->size > item->size : other->size < item->size;
        if (farther || (other->size == item->size && other < item)) return false;
    }
    return true;
}

static size_t place_of(const struct sweep *sweep, const struct item *item) {
    return item->held_out               ? HELD_OUT
           : is_end(sweep, item, false) ? SMALLEST
           : is_end(sweep, item, true)  ? LARGEST
                                        : BETWEEN;
}

static int by_place(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    if (x->cost != y->cost) return x->cost < y->cost ? -1 : 1;
    if (x->item.category != y->item.category) return x->item.category < y->item.category ? -1 : 1;
    if (x->place != y->place) return x->place < y->place ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

// Kernels as the items need them: the compiler goes through the list from its front.
static void order_kernels(struct sweep *sweep) {
    struct texts kernels = {0};
    size_t *places = calloc(sweep->kernels.count + 1, sizeof(*places));  // new index + 1
    for (size_t i = 0; i < sweep->item_count && places; i++) {
        struct item *item = &sweep->items[i];
        for (size_t c = 0; c < item->count; c++) {
            struct candidate *candidate = &item->candidates[c];
            for (size_t k = 0; k < candidate->kernel_count; k++) {
                size_t *place = &places[candidate->kernels[k]];
                if (!*place) {
                    texts_add(&kernels, sweep->kernels.items[candidate->kernels[k]]);
                    *place = kernels.count;
                }
                candidate->kernels[k] = *place - 1;
            }
        }
    }
    if (places) {
        texts_free(&sweep->kernels);
        sweep->kernels = kernels;
    }
    free(places);
}

void tune_order(struct sweep *sweep) {
    struct entry *entries = output_realloc(NULL, (sweep->item_count + 1) * sizeof(*entries));
    for (size_t i = 0; i < sweep->item_count; i++)
        entries[i] = (struct entry){sweep->items[i], sweep->items[i].count, place_of(sweep, &sweep->items[i]), i};
    qsort(entries, sweep->item_count, sizeof(*entries), by_place);
    for (size_t i = 0; i < sweep->item_count; i++) sweep->items[i] = entries[i].item;
    free(entries);
    order_kernels(sweep);
    sweep->left = sweep->item_count;
}

// ---- time ------------------------------------------------------------------------------------------------------------

static double left(const struct sweep *sweep) {
    return sweep->start + sweep->budget - output_seconds();
}

double tune_deadline(const struct sweep *sweep, size_t devices) {
    const double now = output_seconds();
    if (sweep->budget <= 0) return now + ITEM_SECONDS;
    // What other devices are at counts as half done.
    const double items = (double)sweep->left + 1 + (double)(devices - 1) / 2;
    return now + left(sweep) * (double)devices / items;
}

static bool is_busy(const struct sweep *sweep, size_t category) {
    for (size_t i = 0; i < sweep->item_count; i++) {
        const struct item *item = &sweep->items[i];
        if (item->category == category && item->taken && !item->raced) return true;
    }
    return false;
}

struct item *tune_take(struct sweep *sweep, size_t category) {
    struct item *same = NULL, *fresh = NULL, *any = NULL;
    // The first is measured whatever the budget: a sweep that has nothing is of no use.
    if (sweep->budget > 0 && left(sweep) <= 0 && sweep->left < sweep->item_count) return NULL;
    for (size_t i = sweep->item_count; i-- > 0;) {
        struct item *item = &sweep->items[i];
        if (item->taken) continue;
        any = item;
        if (item->category == category) same = item;
        if (!is_busy(sweep, item->category)) fresh = item;
    }
    struct item *item = same ? same : fresh ? fresh : any;
    if (item) item->taken = true;
    if (item) sweep->left--;
    return item;
}

// ---- hope ------------------------------------------------------------------------------------------------------------

static double best_of(const struct item *item) {
    double best = INFINITY;
    for (size_t i = 0; i < item->count; i++) {
        const struct candidate *candidate = &item->candidates[i];
        if (candidate->state == TUNE_CORRECT && candidate->count) best = fmin(best, candidate->estimate.median);
    }
    return best;
}

static const struct candidate *find(const struct item *item, const char *knobs) {
    for (size_t i = 0; i < item->count; i++) {
        if (!strcmp(item->candidates[i].knobs, knobs)) return &item->candidates[i];
    }
    return NULL;
}

void tune_skip(struct sweep *sweep, struct item *item) {
    for (size_t i = 0; i < item->count; i++) {
        struct candidate *candidate = &item->candidates[i];
        bool smaller = false, larger = false, good = false;
        if (candidate->served || candidate->state != TUNE_NEW) continue;
        for (size_t k = 0; k < sweep->item_count; k++) {
            const struct item *other = &sweep->items[k];
            if (!other->raced || other->category != item->category) continue;
            const struct candidate *twin = find(other, candidate->knobs);
            if (!twin || twin->state != TUNE_CORRECT || !twin->count) continue;
            const bool lost = twin->estimate.low > TUNE_HOPELESS * best_of(other);
            smaller |= lost && other->size <= item->size;
            larger |= lost && other->size >= item->size;
            good |= !lost;
        }
        candidate->skipped = smaller && larger && !good;
        if (candidate->skipped) sweep->done++;
    }
}
