// reference.c - see reference.h. Written to be read next to the formulas; speed comes from threads around it.
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "status.h"

// ---- vectors -------------------------------------------------------------------------------------------------------

// Eight sums side by side, so that a compiler may use vector code without reordering anything.
static double dot(const double *a, const double *b, int64_t n) {
    double sum[8] = {0}, rest = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int lane = 0; lane < 8; lane++) sum[lane] += a[i + lane] * b[i + lane];
    for (; i < n; i++) rest += a[i] * b[i];
    for (int lane = 0; lane < 8; lane++) rest += sum[lane];
    return rest;
}

static void add_scaled(double *to, double factor, const double *from, int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int lane = 0; lane < 8; lane++) to[i + lane] += factor * from[i + lane];
    for (; i < n; i++) to[i] += factor * from[i];
}

static double square(double x) {
    return x * x;
}

// ---- the formulas --------------------------------------------------------------------------------------------------

// x[i][j], and by what a gradient with respect to it is multiplied to be one with respect to scale * q . k.
static double score(const struct reference_head *head, int64_t i, int64_t j, double *slope) {
    const double x = head->scale * dot(head->q + i * head->d, head->k + j * head->d, head->d);
    const double cap = head->problem->softcap;
    *slope = 1;
    if (cap == 0) return x;
    const double bent = tanh(x / cap);
    *slope = 1 - bent * bent;
    return cap * bent;
}

void reference_row(const struct reference_head *head, int64_t i, double *o, double *lse,
                   struct reference_units *units) {
    int64_t first, last;
    memset(o, 0, (size_t)head->dv * sizeof *o);
    *lse = -INFINITY;
    units->o = units->lse = 0;
    if (!problem_visible(head->problem, head->sq, head->sk, i, &first, &last)) return;

    double largest = -INFINITY, slope, key_norm = 0, terms = 0;
    for (int64_t j = first; j < last; j++) {
        head->scores[j] = score(head, i, j, &slope);
        largest = fmax(largest, head->scores[j]);
        key_norm = fmax(key_norm, head->k_norm[j]);
    }
    double sum = exp(head->scores[first] - largest);
    for (int64_t j = first + 1; j < last; j++) sum += exp(head->scores[j] - largest);
    *lse = largest + log(sum);
    for (int64_t j = first; j < last; j++) {
        // exp(x - lse), written so that scores of any size lose nothing
        const double p = exp(head->scores[j] - largest) / sum;
        add_scaled(o, p, head->v + j * head->dv, head->dv);
        terms += square(p * head->v_norm[j]);
    }
    units->o = sqrt(terms / (double)head->dv);
    units->lse = 1 + fabs(*lse) + head->scale * head->q_norm[i] * key_norm;
}

// What pair (i, j) contributes with: P, and the gradient with respect to scale * q . k. `size`: that gradient before
// dP - delta cancels.
static double pair(const struct reference_head *head, int64_t i, int64_t j, double *p, double *size) {
    double slope;
    const double x = score(head, i, j, &slope);
    const double dp = dot(head->dout + i * head->dv, head->v + j * head->dv, head->dv);
    *p = exp(x - head->lse[i]);
    *size = *p * slope *
            (head->dout_norm[i] * (head->v_norm[j] + head->o_norm[i]) / sqrt((double)head->dv) + fabs(head->dlse[i]));
    return *p * (dp - head->delta[i]) * slope;
}

void reference_dq(const struct reference_head *head, int64_t i, double *dq, struct reference_units *units) {
    int64_t first, last;
    double terms = 0, p, size;
    memset(dq, 0, (size_t)head->d * sizeof *dq);
    units->dq = 0;
    if (!problem_visible(head->problem, head->sq, head->sk, i, &first, &last)) return;
    for (int64_t j = first; j < last; j++) {
        const double ds = pair(head, i, j, &p, &size);
        add_scaled(dq, head->scale * ds, head->k + j * head->d, head->d);
        terms += square(head->scale * size * head->k_norm[j]);
    }
    units->dq = sqrt(terms / (double)head->d);
}

void reference_dkv(const struct reference_head *head, int64_t j, double *dk, double *dv,
                   struct reference_units *units) {
    int64_t first, last;
    double p, size;
    for (int64_t i = 0; i < head->sq; i++) {
        if (!problem_visible(head->problem, head->sq, head->sk, i, &first, &last) || j < first || j >= last) continue;
        const double ds = pair(head, i, j, &p, &size);
        add_scaled(dk, head->scale * ds, head->q + i * head->d, head->d);
        add_scaled(dv, p, head->dout + i * head->dv, head->dv);
        units->dk_square += square(head->scale * size * head->q_norm[i]) / (double)head->d;
        units->dv_square += square(p * head->dout_norm[i]) / (double)head->dv;
    }
}

// ---- loading -------------------------------------------------------------------------------------------------------

static void load_rows(const struct tensor_image *image, const struct problem_span *span, int64_t head, double *to,
                      double *norms) {
    for (int64_t i = 0; i < span->used; i++, to += image->dim) {
        tensor_load(image, span->batch, span->row + i, head, image->dim, to);
        if (norms) norms[i] = sqrt(dot(to, to, image->dim));
    }
}

static double *take(double **memory, int64_t count) {
    double *taken = *memory;
    *memory += count;
    return taken;
}

static vf_status allocate(struct reference_head *head, bool backward) {
    const int64_t sq = head->sq, sk = head->sk, d = head->d, dv = head->dv;
    const int64_t count = sq * (d + 1) + sk * (d + dv + 3) + (backward ? sq * (2 * dv + 5) : 0);
    double *memory = head->memory = malloc((size_t)count * sizeof *memory + 1);
    VF_REQUIRE(memory, VF_ERROR_OUT_OF_MEMORY, "oracle: no memory for a sequence of %lld and %lld tokens",
               (long long)sq, (long long)sk);
    head->q = take(&memory, sq * d);
    head->k = take(&memory, sk * d);
    head->v = take(&memory, sk * dv);
    head->q_norm = take(&memory, sq);
    head->k_norm = take(&memory, sk);
    head->v_norm = take(&memory, sk);
    head->scores = take(&memory, sk);
    if (!backward) return VF_OK;
    head->dout = take(&memory, sq * dv);
    head->o = take(&memory, sq * dv);
    head->dlse = take(&memory, sq);
    head->lse = take(&memory, sq);
    head->delta = take(&memory, sq);
    head->dout_norm = take(&memory, sq);
    head->o_norm = take(&memory, sq);
    return VF_OK;
}

vf_status reference_load(const struct problem *problem, const struct tensors *tensors,
                         const struct problem_span *span_q, const struct problem_span *span_k, int64_t head_q,
                         bool backward, enum reference_source source, struct reference_head *head) {
    const struct tensor_image *images = tensors->images;
    const int64_t head_k = head_q / (problem->heads_q / problem->heads_k);
    *head = (struct reference_head){.problem = problem,
                                    .sq = span_q->used,
                                    .sk = span_k->used,
                                    .d = problem->head_dim,
                                    .dv = problem->head_dim_v,
                                    .scale = problem_scale(problem)};
    VF_TRY(allocate(head, backward));
    load_rows(&images[OPERAND_Q], span_q, head_q, head->q, head->q_norm);
    load_rows(&images[OPERAND_K], span_k, head_k, head->k, head->k_norm);
    load_rows(&images[OPERAND_V], span_k, head_k, head->v, head->v_norm);
    if (!backward) return VF_OK;
    load_rows(&images[OPERAND_DOUT], span_q, head_q, head->dout, head->dout_norm);
    memset(head->dlse, 0, (size_t)head->sq * sizeof *head->dlse);
    if (problem->dlse) load_rows(&images[OPERAND_DLSE], span_q, head_q, head->dlse, NULL);
    if (source == REFERENCE_GIVEN) {
        load_rows(&images[OPERAND_O], span_q, head_q, head->o, NULL);
        load_rows(&images[OPERAND_LSE], span_q, head_q, head->lse, NULL);
    }
    for (int64_t i = 0; i < head->sq; i++) {
        struct reference_units units;
        double *o = head->o + i * head->dv;
        if (source == REFERENCE_OWN) reference_row(head, i, o, &head->lse[i], &units);
        head->delta[i] = dot(head->dout + i * head->dv, o, head->dv) - head->dlse[i];
        head->o_norm[i] = sqrt(dot(o, o, head->dv));
    }
    return VF_OK;
}

void reference_free(struct reference_head *head) {
    free(head->memory);
    *head = (struct reference_head){0};
}
