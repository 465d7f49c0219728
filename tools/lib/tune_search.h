// tune_search.h - the arithmetic of tuning: times to estimates, estimates to who stays. Measures nothing, knows no kernel.
#ifndef VF_TUNE_SEARCH_H
#define VF_TUNE_SEARCH_H

#include <stdbool.h>
#include <stddef.h>

// Of one candidate's times: the median without outliers, and a 95 % interval for it.
struct tune_estimate {
    double median, low, high;
    size_t used;  // times that are no outliers
};
// Sorts the times. Outliers: farther from the median than five median deviations, which an interrupt or a change of clocks is.
struct tune_estimate tune_estimate(double *times, size_t count);

// How many of `count` candidates, sorted by median, go on to the next round of successive halving: half of them, and those whose
// interval still meets the best's, but at most three quarters, and nobody who is certainly TUNE_HOPELESS times as slow. All of at most
// TUNE_FINAL: these are the final.
#define TUNE_FINAL 4
#define TUNE_HOPELESS 1.15
size_t tune_keep(const struct tune_estimate *sorted, size_t count);

// Rounds that halving `count` candidates takes if each halves them, the final included.
size_t tune_rounds(size_t count);

// Marks `wanted` of `count` candidates, spread over the whole list, the same for the same seed; those marked already stay and count.
void tune_sample(bool *marked, size_t count, size_t wanted, unsigned seed);

// Shares `wanted` among groups as equally as their sizes allow: a small family of kernels is not drowned by a large one.
void tune_share(const size_t *sizes, size_t groups, size_t wanted, size_t *shares);

// How much of the variance of values a grouping explains (eta squared, 0 to 1): group[i] is the group of value i, below `groups`.
double tune_explained(const double *values, const size_t *group, size_t count, size_t groups);

#endif
