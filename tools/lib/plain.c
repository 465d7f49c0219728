// plain.c - see plain.h.
#include "plain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "number.h"
#include "status.h"

static float dot(const float *a, const float *b, int64_t n) {
    float sum[8] = {0}, rest = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int lane = 0; lane < 8; lane++) sum[lane] += a[i + lane] * b[i + lane];
    for (; i < n; i++) rest += a[i] * b[i];
    for (int lane = 0; lane < 8; lane++) rest += sum[lane];
    return rest;
}

static void add_scaled(float *to, float factor, const float *from, int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int lane = 0; lane < 8; lane++) to[i + lane] += factor * from[i + lane];
    for (; i < n; i++) to[i] += factor * from[i];
}

static float rounded(const struct plain_head *head, float value) {
    return (float)number_round(head->exact->problem->dtype, (double)value);
}

void plain_round(const struct plain_head *head, float *values, int64_t count) {
    for (int64_t c = 0; c < count; c++) values[c] = rounded(head, values[c]);
}

// ---- the maths -----------------------------------------------------------------------------------------------------

static float score(const struct plain_head *head, int64_t i, int64_t j, float *slope) {
    const struct reference_head *exact = head->exact;
    const float cap = (float)exact->problem->softcap;
    const float x = rounded(head, (float)exact->scale * dot(head->q + i * exact->d, head->k + j * exact->d, exact->d));
    *slope = 1;
    if (cap == 0) return x;
    const float bent = rounded(head, tanhf(rounded(head, x / cap)));
    *slope = 1 - bent * bent;
    return rounded(head, cap * bent);
}

// P of a pair, from its score and the row's softmax.
static float probability(const struct plain_head *head, float x, float largest, float sum) {
    return rounded(head, expf(x - largest) / sum);
}

// Scores of row i into the scratch, and its softmax; false if it sees nothing.
static bool softmax(const struct plain_head *head, int64_t i, int64_t *first, int64_t *last, float *largest,
                    float *sum) {
    const struct reference_head *exact = head->exact;
    float slope;
    *largest = -INFINITY;
    *sum = 0;
    if (!problem_visible(exact->problem, exact->sq, exact->sk, i, first, last)) return false;
    for (int64_t j = *first; j < *last; j++) {
        head->scores[j] = score(head, i, j, &slope);
        *largest = fmaxf(*largest, head->scores[j]);
    }
    for (int64_t j = *first; j < *last; j++) *sum += expf(head->scores[j] - *largest);
    return true;
}

void plain_row(const struct plain_head *head, int64_t i, float *o) {
    const int64_t dv = head->exact->dv;
    int64_t first, last;
    float largest, sum;
    memset(o, 0, (size_t)dv * sizeof *o);
    if (!softmax(head, i, &first, &last, &largest, &sum)) return;
    for (int64_t j = first; j < last; j++)
        add_scaled(o, probability(head, head->scores[j], largest, sum), head->v + j * dv, dv);
    plain_round(head, o, dv);
}

static float gradient(const struct plain_head *head, int64_t i, int64_t j) {
    const int64_t dv = head->exact->dv;
    return rounded(head, dot(head->dout + i * dv, head->v + j * dv, dv));
}

// dS and P of a pair.
static float pair(const struct plain_head *head, int64_t i, int64_t j, float *p) {
    float slope;
    *p = probability(head, score(head, i, j, &slope), head->largest[i], head->sum[i]);
    return rounded(head, *p * (gradient(head, i, j) - head->delta[i]) * slope);
}

void plain_dq(const struct plain_head *head, int64_t i, float *dq) {
    const struct reference_head *exact = head->exact;
    int64_t first, last;
    float p;
    memset(dq, 0, (size_t)exact->d * sizeof *dq);
    if (!problem_visible(exact->problem, exact->sq, exact->sk, i, &first, &last)) return;
    for (int64_t j = first; j < last; j++)
        add_scaled(dq, (float)exact->scale * pair(head, i, j, &p), head->k + j * exact->d, exact->d);
    plain_round(head, dq, exact->d);
}

void plain_dkv(const struct plain_head *head, int64_t j, float *dk, float *dv) {
    const struct reference_head *exact = head->exact;
    int64_t first, last;
    float p;
    for (int64_t i = 0; i < exact->sq; i++) {
        if (!problem_visible(exact->problem, exact->sq, exact->sk, i, &first, &last) || j < first || j >= last)
            continue;
        const float ds = pair(head, i, j, &p);
        add_scaled(dk, (float)exact->scale * ds, head->q + i * exact->d, exact->d);
        add_scaled(dv, p, head->dout + i * exact->dv, exact->dv);
    }
}

// ---- loading -------------------------------------------------------------------------------------------------------

static float *take(float **memory, const double *from, int64_t count) {
    float *taken = *memory;
    for (int64_t i = 0; from && i < count; i++) taken[i] = (float)from[i];
    *memory += count;
    return taken;
}

vf_status plain_load(const struct reference_head *exact, bool backward, enum reference_source source,
                     struct plain_head *head) {
    const int64_t sq = exact->sq, sk = exact->sk, d = exact->d, dv = exact->dv;
    const int64_t count = sq * (d + 3) + sk * (d + dv + 1) + (backward ? sq * dv : 0);
    *head = (struct plain_head){.exact = exact};
    float *memory = head->memory = malloc((size_t)count * sizeof *memory + 1);
    VF_REQUIRE(memory, VF_ERROR_OUT_OF_MEMORY, "oracle: no memory for a sequence of %lld and %lld tokens",
               (long long)sq, (long long)sk);
    head->q = take(&memory, exact->q, sq * d);
    head->k = take(&memory, exact->k, sk * d);
    head->v = take(&memory, exact->v, sk * dv);
    head->scores = take(&memory, NULL, sk);
    head->largest = take(&memory, NULL, sq);
    head->sum = take(&memory, NULL, sq);
    head->delta = take(&memory, NULL, sq);
    if (!backward) return VF_OK;
    head->dout = take(&memory, exact->dout, sq * dv);
    for (int64_t i = 0; i < sq; i++) {
        int64_t first, last;
        if (source == REFERENCE_GIVEN) {
            head->largest[i] = (float)exact->lse[i];
            head->sum[i] = 1;
            head->delta[i] = (float)exact->delta[i];
            continue;
        }
        if (!softmax(head, i, &first, &last, &head->largest[i], &head->sum[i])) continue;
        float sum = 0;
        for (int64_t j = first; j < last; j++)
            sum += probability(head, head->scores[j], head->largest[i], head->sum[i]) * gradient(head, i, j);
        head->delta[i] = sum - (float)exact->dlse[i];
    }
    return VF_OK;
}

void plain_free(struct plain_head *head) {
    free(head->memory);
    *head = (struct plain_head){0};
}
