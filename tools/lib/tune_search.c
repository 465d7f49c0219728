// tune_search.c - see tune_search.h.
#include "tune_search.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double middle(const double *sorted, size_t count) {
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

struct tune_estimate tune_estimate(double *times, size_t count) {
    if (!count) return (struct tune_estimate){.median = INFINITY, .low = INFINITY, .high = INFINITY};
    qsort(times, count, sizeof *times, by_value);
    const double median = middle(times, count);
    double *far = malloc(count * sizeof *far);
    if (!far) return (struct tune_estimate){median, times[0], times[count - 1], count};
    for (size_t i = 0; i < count; i++) far[i] = fabs(times[i] - median);
    qsort(far, count, sizeof *far, by_value);
    const double deviation = middle(far, count);
    free(far);
    // Clocks have a resolution: equal times do not make every other one an outlier.
    const double limit = 5 * fmax(deviation, 1e-3 * median);
    size_t first = 0, last = count;
    while (median - times[first] > limit) first++;
    while (times[last - 1] - median > limit) last--;
    const size_t used = last - first;
    // Of the median of normal values: 1.2533 standard errors; 1.4826 deviations are one standard deviation.
    const double half = 1.96 * 1.2533 * 1.4826 * fmax(deviation, 1e-3 * median) / sqrt((double)used);
    const double kept = middle(times + first, used);
    return (struct tune_estimate){kept, kept - half, kept + half, used};
}

size_t tune_keep(const struct tune_estimate *sorted, size_t count) {
    if (count <= TUNE_FINAL) return count;
    const size_t half = (count + 1) / 2, most = (3 * count + 3) / 4;
    size_t keep = half;
    while (keep < most && sorted[keep].low <= sorted[0].high) keep++;
    while (keep > TUNE_FINAL && sorted[keep - 1].low > TUNE_HOPELESS * sorted[0].high) keep--;
    return keep > TUNE_FINAL ? keep : TUNE_FINAL;
}

size_t tune_rounds(size_t count) {
    size_t rounds = 1;
    for (; count > TUNE_FINAL; count = (count + 1) / 2) rounds++;
    return rounds;
}

void tune_sample(bool *marked, size_t count, size_t wanted, unsigned seed) {
    uint64_t state = seed * 2862933555777941757u + 3037000493u;
    size_t have = 0;
    for (size_t i = 0; i < count; i++) have += marked[i];
    const size_t missing = wanted > have ? wanted - have : 0;
    if (wanted >= count) {
        memset(marked, true, count);
        return;
    }
    // One out of each of `missing` equal stretches of the list, or its next free neighbour.
    for (size_t i = 0; i < missing; i++) {
        const size_t from = i * count / missing, to = (i + 1) * count / missing;
        state = state * 6364136223846793005u + 1442695040888963407u;
        size_t at = from + (size_t)(state >> 33) % (to > from ? to - from : 1);
        while (marked[at]) at = (at + 1) % count;
        marked[at] = true;
    }
}

void tune_share(const size_t *sizes, size_t groups, size_t wanted, size_t *shares) {
    memset(shares, 0, groups * sizeof *shares);
    // One at a time, to whoever has least and is not full.
    for (; wanted; wanted--) {
        size_t least = groups;
        for (size_t g = 0; g < groups; g++) {
            if (shares[g] < sizes[g] && (least == groups || shares[g] < shares[least])) least = g;
        }
        if (least == groups) return;
        shares[least]++;
    }
}

double tune_explained(const double *values, const size_t *group, size_t count, size_t groups) {
    double *sums = calloc(groups + 1, sizeof *sums), *counts = calloc(groups + 1, sizeof *counts);
    double total = 0, squares = 0, between = 0;
    for (size_t i = 0; i < count && sums && counts; i++) {
        sums[group[i]] += values[i];
        counts[group[i]]++;
        total += values[i];
    }
    const double mean = count ? total / (double)count : 0;
    for (size_t i = 0; i < count; i++) squares += (values[i] - mean) * (values[i] - mean);
    for (size_t g = 0; g < groups && sums && counts; g++) {
        if (counts[g] > 0) between += counts[g] * pow(sums[g] / counts[g] - mean, 2);
    }
    free(sums);
    free(counts);
    return squares > 0 ? between / squares : 0;
}
