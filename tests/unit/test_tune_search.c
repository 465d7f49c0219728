// test_tune_search.c - estimates of times, successive halving, samples, explained variance.
#include "tune_search.h"

#include <math.h>

#include "unit.h"

static unsigned state = 1;
static double uniform(void) {
    state = state * 1103515245 + 12345;
    return (double)(state >> 8 & 0xffff) / 65536;
}

START_TEST(outliers_do_not_count) {
    double times[21];
    for (int i = 0; i < 20; i++) times[i] = 1 + 0.01 * (uniform() - 0.5);
    times[20] = 50;
    struct tune_estimate estimate = tune_estimate(times, 21);
    ck_assert_double_eq_tol(estimate.median, 1, 0.01);
    ck_assert_uint_eq(estimate.used, 20);
    ck_assert(estimate.low < estimate.median && estimate.median < estimate.high);
    ck_assert_double_lt(estimate.high - estimate.low, 0.02);
    double equal[5] = {2, 2, 2, 2, 2};
    estimate = tune_estimate(equal, 5);
    ck_assert_double_eq(estimate.median, 2);
    ck_assert_uint_eq(estimate.used, 5);
    double one[1] = {3};
    ck_assert_double_eq(tune_estimate(one, 1).median, 3);
    ck_assert(isinf(tune_estimate(one, 0).median));
}
END_TEST

// The interval of 95 % holds the true median about that often.
START_TEST(intervals_hold) {
    int held = 0;
    for (int round = 0; round < 1000; round++) {
        double times[25];
        for (int i = 0; i < 25; i++) {
            double sum = 0;  // nearly normal
            for (int k = 0; k < 12; k++) sum += uniform();
            times[i] = 10 + 0.2 * (sum - 6);
        }
        const struct tune_estimate estimate = tune_estimate(times, 25);
        held += estimate.low <= 10 && 10 <= estimate.high;
    }
    ck_assert_int_ge(held, 880);
}
END_TEST

// Noisy candidates: halving ends with the best or one that is as good.
START_TEST(halving_finds_the_best) {
    enum { COUNT = 64 };
    int right = 0;
    for (int trial = 0; trial < 50; trial++) {
        double truth[COUNT];
        struct tune_estimate sorted[COUNT];
        size_t order[COUNT], active = COUNT, rounds = 0;
        for (size_t i = 0; i < COUNT; i++) truth[i] = 1 + uniform(), order[i] = i;
        double best = 3;
        for (size_t i = 0; i < COUNT; i++) best = fmin(best, truth[i]);
        while (true) {
            for (size_t i = 0; i < active; i++) {
                double times[9];
                for (int k = 0; k < 9; k++) times[k] = truth[order[i]] * (1 + 0.03 * (uniform() - 0.5));
                sorted[i] = tune_estimate(times, 9);
            }
            for (size_t i = 1; i < active; i++) {
                for (size_t j = i; j && sorted[j].median < sorted[j - 1].median; j--) {
                    const struct tune_estimate estimate = sorted[j];
                    const size_t index = order[j];
                    sorted[j] = sorted[j - 1], order[j] = order[j - 1];
                    sorted[j - 1] = estimate, order[j - 1] = index;
                }
            }
            rounds++;
            if (active <= TUNE_FINAL) break;
            const size_t kept = tune_keep(sorted, active);
            ck_assert_uint_lt(kept, active);
            active = kept;
        }
        ck_assert(rounds > 1 && rounds <= 2 * tune_rounds(COUNT));
        right += truth[order[0]] <= 1.02 * best;
    }
    ck_assert_int_ge(right, 48);
    // Nobody stays who is certainly much slower, however few are left.
    struct tune_estimate field[8];
    for (size_t i = 0; i < 8; i++)
        field[i] = (struct tune_estimate){i < 2 ? 1 : 2, i < 2 ? 0.9 : 1.9, i < 2 ? 1.1 : 2.1, 5};
    ck_assert_uint_eq(tune_keep(field, 8), TUNE_FINAL);
    for (size_t i = 2; i < 8; i++) field[i] = (struct tune_estimate){1.2, 1.05, 1.3, 5};
    ck_assert_uint_eq(tune_keep(field, 8), 6);
    ck_assert_uint_eq(tune_rounds(4), 1);
    ck_assert_uint_eq(tune_rounds(64), 5);
}
END_TEST

START_TEST(samples_are_spread_and_repeat) {
    static bool first[1000], second[1000];
    first[7] = second[7] = true;
    tune_sample(first, 1000, 64, 5);
    tune_sample(second, 1000, 64, 5);
    size_t marked = 0, quarter = 0;
    for (int i = 0; i < 1000; i++) {
        ck_assert_int_eq(first[i], second[i]);
        marked += first[i];
        quarter += i < 250 && first[i];
    }
    ck_assert_uint_eq(marked, 64);
    ck_assert(first[7] && quarter >= 12 && quarter <= 20);
    bool all[10] = {false};
    tune_sample(all, 10, 64, 1);
    for (int i = 0; i < 10; i++) ck_assert(all[i]);
}
END_TEST

START_TEST(shares_are_as_equal_as_sizes_allow) {
    const size_t sizes[4] = {582, 18, 0, 79};
    size_t shares[4];
    tune_share(sizes, 4, 64, shares);
    ck_assert(shares[0] == 23 && shares[1] == 18 && shares[2] == 0 && shares[3] == 23);
    tune_share(sizes, 4, 1000, shares);
    ck_assert(shares[0] == 582 && shares[1] == 18 && shares[2] == 0 && shares[3] == 79);
    tune_share(sizes, 0, 10, shares);
}
END_TEST

START_TEST(variance_that_a_knob_explains) {
    const double values[6] = {1, 1, 2, 2, 3, 3};
    const size_t exact[6] = {0, 0, 1, 1, 2, 2}, none[6] = {0, 1, 0, 1, 0, 1}, one[6] = {0};
    ck_assert_double_eq_tol(tune_explained(values, exact, 6, 3), 1, 1e-12);
    ck_assert_double_eq_tol(tune_explained(values, none, 6, 2), 0, 1e-12);
    ck_assert_double_eq_tol(tune_explained(values, one, 6, 1), 0, 1e-12);
    ck_assert_double_eq_tol(tune_explained(values, one, 0, 1), 0, 1e-12);
}
END_TEST

UNIT_MAIN("tune_search", outliers_do_not_count, intervals_hold, halving_finds_the_best, samples_are_spread_and_repeat,
          shares_are_as_equal_as_sizes_allow, variance_that_a_knob_explains)
