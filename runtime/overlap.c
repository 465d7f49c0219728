// overlap.c - see overlap.h.
//
// Both questions are one: has  sum of step[i] * x[i] = target  a solution in integers 0 <= x[i] <= last[i]?  With the
// steps in falling order, the part that the smaller steps can still reach bounds x[0] from both sides, and their
// greatest common divisor must divide what is left. For nested strides, which are nearly all there are, one or two
// values of each x survive; the search is cut off after a fixed number of steps, because in general the question is as
// hard as packing a knapsack.
#include "overlap.h"

#define SEARCH_LIMIT 20000

#define TERMS 10  // two views of four dimensions and the bytes of an element each

// step[i] * x[i] over 0 <= x[i] <= last[i], summed. Steps are positive, none repeats, the largest comes first.
struct sum {
    int terms;
    int64_t step[TERMS], last[TERMS];
    int64_t reach[TERMS + 1];    // most that terms i... can add up to
    int64_t divisor[TERMS + 1];  // greatest common divisor of the steps i..., 0 for none
};

// Equal steps become one term with both ranges.
static void add_term(struct sum *sum, int64_t step, int64_t last) {
    int at = 0;
    while (at < sum->terms && sum->step[at] > step) at++;
    if (at < sum->terms && sum->step[at] == step) {
        sum->last[at] += last;
        return;
    }
    for (int i = sum->terms++; i > at; i--) {
        sum->step[i] = sum->step[i - 1];
        sum->last[i] = sum->last[i - 1];
    }
    sum->step[at] = step;
    sum->last[at] = last;
}

static int64_t common_divisor(int64_t a, int64_t b) {
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static enum overlap search(const struct sum *sum, int at, int64_t target, int *budget) {
    if (target == 0) return OVERLAP_YES;
    if (target < 0 || target > sum->reach[at]) return OVERLAP_NO;
    if (target % sum->divisor[at] != 0) return OVERLAP_NO;
    const int64_t step = sum->step[at], rest = sum->reach[at + 1];
    const int64_t most = target / step < sum->last[at] ? target / step : sum->last[at];
    const int64_t least = target > rest ? (target - rest + step - 1) / step : 0;
    for (int64_t x = most; x >= least; x--) {
        if (--*budget < 0) return OVERLAP_UNKNOWN;
        const enum overlap found = search(sum, at + 1, target - x * step, budget);
        if (found != OVERLAP_NO) return found;
    }
    return OVERLAP_NO;
}

static enum overlap solve(struct sum *sum, int64_t target) {
    sum->reach[sum->terms] = sum->divisor[sum->terms] = 0;
    for (int i = sum->terms - 1; i >= 0; i--) {
        sum->reach[i] = sum->reach[i + 1] + sum->step[i] * sum->last[i];
        sum->divisor[i] = common_divisor(sum->step[i], sum->divisor[i + 1]);
    }
    int budget = SEARCH_LIMIT;
    return search(sum, 0, target, &budget);
}

bool footprint_tensor(const vf_tensor *tensor, size_t element, struct footprint *out) {
    *out = (struct footprint){.low = (int64_t)(uintptr_t)tensor->data, .tensor = tensor, .element = element};
    for (int i = 0; i < tensor->ndim; i++) out->empty |= tensor->shape[i] == 0;
    if (out->empty) return true;
    int64_t below = 0, above = (int64_t)element;
    for (int i = 0; i < tensor->ndim; i++) {
        const int64_t last = tensor->shape[i] - 1;
        int64_t step, span;
        if (last == 0) continue;  // its stride is never used
        if (__builtin_mul_overflow(tensor->stride[i], (int64_t)element, &step)) return false;
        if (__builtin_mul_overflow(step, last, &span)) return false;
        if (__builtin_add_overflow(span < 0 ? below : above, span, span < 0 ? &below : &above)) return false;
        if (above > OVERLAP_EXTENT_LIMIT || below < -OVERLAP_EXTENT_LIMIT) return false;
    }
    if (__builtin_add_overflow(out->low, above, &out->high)) return false;
    return !__builtin_add_overflow(out->low, below, &out->low) && out->low >= 0;
}

void footprint_bytes(const void *data, size_t size, struct footprint *out) {
    const int64_t low = (int64_t)(uintptr_t)data;
    const int64_t span = size < OVERLAP_EXTENT_LIMIT ? (int64_t)size : OVERLAP_EXTENT_LIMIT;
    *out = (struct footprint){.empty = size == 0, .low = low, .element = 1};
    if (__builtin_add_overflow(low, span, &out->high)) out->high = INT64_MAX;
}

// The bytes of a view, as distances from its lowest.
static void add_view(struct sum *sum, const struct footprint *view) {
    if (!view->tensor) {
        add_term(sum, 1, view->high - view->low - 1);
        return;
    }
    for (int i = 0; i < view->tensor->ndim; i++) {
        const int64_t last = view->tensor->shape[i] - 1;
        if (last == 0) continue;
        const int64_t step = view->tensor->stride[i] * (int64_t)view->element;
        if (step != 0) add_term(sum, step < 0 ? -step : step, last);
    }
    add_term(sum, 1, (int64_t)view->element - 1);
}

enum overlap overlap_pair(const struct footprint *a, const struct footprint *b) {
    if (a->empty || b->empty || a->high <= b->low || b->high <= a->low) return OVERLAP_NO;
    // a.low + A = b.low + B  is  A + (b's highest sum - B) = b.high - 1 - a.low, and what stands in brackets runs over b's sums too.
    struct sum sum = {.terms = 0};
    add_view(&sum, a);
    add_view(&sum, b);
    return solve(&sum, b->high - 1 - a->low);
}

enum overlap overlap_self(const vf_tensor *tensor) {
    int dims = 0;
    int64_t step[4], last[4];
    for (int i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] == 0) return OVERLAP_NO;
    }
    for (int i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] == 1) continue;
        const int64_t size = tensor->stride[i] < 0 ? -tensor->stride[i] : tensor->stride[i];
        if (size == 0) return OVERLAP_YES;
        int at = dims++;
        for (; at > 0 && step[at - 1] < size; at--) {
            step[at] = step[at - 1];
            last[at] = last[at - 1];
        }
        step[at] = size;
        last[at] = tensor->shape[i] - 1;
    }
    // Two elements coincide iff a difference of indices d, not all zero, gives sum of step * d = 0. Say d[lead] > 0 is
    // its first part that is not zero: with d[lead] = 1 + x, and d[i] = x[i] - last[i] for the smaller steps.
    for (int lead = 0; lead < dims; lead++) {
        int64_t target = -step[lead];
        for (int i = lead + 1; i < dims; i++) target += step[i] * last[i];
        if (target < 0) continue;  // nested: the smaller steps together reach less than this one
        struct sum sum = {.terms = 0};
        add_term(&sum, step[lead], last[lead] - 1);
        for (int i = lead + 1; i < dims; i++) add_term(&sum, step[i], 2 * last[i]);
        const enum overlap found = solve(&sum, target);
        if (found != OVERLAP_NO) return found;
    }
    return OVERLAP_NO;
}
