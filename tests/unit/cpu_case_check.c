// cpu_case_check.c - see cpu_case.h: the formulas in float64, and the comparison.
//
// A float32 computation may be off by a few roundings of the terms it adds up, so with every sum the oracle also adds
// up the sizes of its terms. Weights additionally carry the error of their logits. The result is then rounded to its
// type.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "cpu_case.h"

struct answer {
    double value, size;  // size of the terms, times 1 + size of the logits
};

struct check {
    const struct case_problem *problem;
    struct case_tensors *tensors;
    int64_t b, head;  // of the query
    int64_t sq, sk;
    double *q, *k, *v, *o, *dout;  // rows of the sequence and head
    struct answer *dq, *dk, *dv;
    bool wrong;
};

// The index of a token's element in a tensor.
static void index_of(const struct check *check, bool k, bool statistic, int64_t token, int64_t head, int64_t column,
                     int64_t index[4]) {
    const struct case_side *side = k ? &check->problem->k : &check->problem->q;
    int64_t slot, row, at = 0;
    case_place(side, check->b, token, &slot, &row);
    if (side->batched) index[at++] = slot;
    index[at++] = statistic ? head : row;
    index[at++] = statistic ? row : head;
    index[at] = column;
}

static double get(const struct check *check, enum case_tensor_name name, int64_t token, int64_t head, int64_t column) {
    int64_t index[4] = {0};
    const bool k = name == CASE_K || name == CASE_V;
    index_of(check, k, name == CASE_LSE || name == CASE_DLSE, token, head, column, index);
    return case_get(&check->tensors->view[name], index);
}

// The tokens of a tensor and head, one after the other; freed by the caller.
static double *load(const struct check *check, enum case_tensor_name name, int64_t tokens, int64_t head, int dim) {
    double *rows = calloc((size_t)(tokens * dim + 1), sizeof *rows);
    for (int64_t at = 0; at < tokens * dim; at++) rows[at] = get(check, name, at / dim, head, at % dim);
    return rows;
}

// Compares an element and marks its bytes as expected.
static void expect(struct check *check, enum case_tensor_name name, const int64_t index[4], struct answer want) {
    const vf_tensor *tensor = &check->tensors->view[name];
    void *at = case_at(tensor, index);
    const double got = case_get(tensor, index);
    const double unit = tensor->dtype == VF_FLOAT16 ? 0x1p-11 : tensor->dtype == VF_BFLOAT16 ? 0x1p-8 : 0x1p-24;
    const double smallest = tensor->dtype == VF_FLOAT16 ? 0x1p-24 : 1e-36;  // weights below e^-87 are 0
    const double allowed = 1.01 * unit * fabs(want.value) + 1.5e-6 * want.size + smallest;
    const bool good = isinf(want.value) ? got == want.value : fabs(got - want.value) <= allowed;
    if (!good && !check->wrong) {
        fprintf(stderr, "seed %llu: tensor %d [%lld, %lld, %lld, %lld]: %.9g instead of %.9g +- %.3g\n",
                (unsigned long long)check->problem->seed, (int)name, (long long)index[0], (long long)index[1],
                (long long)index[2], (long long)index[3], got, want.value, allowed);
    }
    check->wrong |= !good;
    const size_t offset = (size_t)((unsigned char *)at - check->tensors->memory[name]);
    memcpy(check->tensors->before[name] + offset, at, tensor->dtype == VF_FLOAT32 ? 4 : 2);
}

static void expect_token(struct check *check, enum case_tensor_name name, bool k, bool statistic, int64_t token,
                         int64_t head, int64_t column, struct answer want) {
    int64_t index[4] = {0};
    index_of(check, k, statistic, token, head, column, index);
    expect(check, name, index, want);
}

static bool visible(const struct check *check, int64_t i, int64_t j) {
    const struct case_problem *problem = check->problem;
    const int64_t diagonal = i + check->sk - check->sq;
    if (problem->mask == VF_MASK_CAUSAL) return j <= diagonal;
    if (problem->mask == VF_MASK_FULL) return true;
    return (problem->left == VF_NO_EDGE || j >= diagonal - problem->left) &&
           (problem->right == VF_NO_EDGE || j <= diagonal + problem->right);
}

struct score {
    double x, size, slope;
};

static struct score score_of(const struct check *check, int64_t i, int64_t j) {
    const struct case_problem *problem = check->problem;
    const double scale = problem->scale != 0 ? problem->scale : 1 / sqrt(problem->head_dim);
    const double *q = check->q + i * problem->head_dim, *k = check->k + j * problem->head_dim;
    struct score score = {0, 0, 1};
    for (int c = 0; c < problem->head_dim; c++) {
        const double term = scale * q[c] * k[c];
        score.x += term;
        score.size += fabs(term);
    }
    if (problem->softcap != 0) {
        const double bent = tanh(score.x / problem->softcap);
        score.x = problem->softcap * bent;
        score.slope = 1 - bent * bent;
    }
    return score;
}

static void add(struct answer *answer, double term, double size) {
    answer->value += term;
    answer->size += size;
}

static void check_forward_row(struct check *check, int64_t i, const struct score *scores) {
    const struct case_problem *problem = check->problem;
    double top = -INFINITY, sum = 0, worst = 0;
    for (int64_t j = 0; j < check->sk; j++) {
        if (visible(check, i, j)) top = fmax(top, scores[j].x), worst = fmax(worst, scores[j].size);
    }
    for (int64_t j = 0; j < check->sk; j++) {
        if (visible(check, i, j)) sum += exp(scores[j].x - top);
    }
    struct answer lse = {-INFINITY, 0};  // a row that sees nothing
    if (sum > 0) lse = (struct answer){top + log(sum), 1 + worst};
    if (!problem->no_lse) expect_token(check, CASE_LSE, false, true, i, check->head, 0, lse);
    for (int c = 0; c < problem->head_dim_v; c++) {
        struct answer o = {0, 0};
        for (int64_t j = 0; j < check->sk; j++) {
            if (!visible(check, i, j)) continue;
            const double term = exp(scores[j].x - lse.value) * check->v[j * problem->head_dim_v + c];
            add(&o, term, fabs(term) * (2 + worst));
        }
        expect_token(check, CASE_O, false, false, i, check->head, c, o);
    }
}

// What a row adds to the gradients, from the o and lse that the backward was given.
static void add_backward_row(struct check *check, int64_t i, const struct score *scores) {
    const struct case_problem *problem = check->problem;
    const int64_t head = check->head;
    const int dim = problem->head_dim, dim_v = problem->head_dim_v;
    const double scale = problem->scale != 0 ? problem->scale : 1 / sqrt(dim), lse = get(check, CASE_LSE, i, head, 0);
    const double *q = check->q + i * dim, *o = check->o + i * dim_v, *dout = check->dout + i * dim_v;
    struct answer delta = {0, 0};
    for (int c = 0; c < dim_v; c++) {
        const double term = dout[c] * o[c];
        add(&delta, term, fabs(term));
    }
    if (problem->dlse) {
        const double dlse = get(check, CASE_DLSE, i, head, 0);
        add(&delta, -dlse, fabs(dlse));
    }
    for (int64_t j = 0; j < check->sk; j++) {
        if (!visible(check, i, j)) continue;
        const double p = exp(scores[j].x - lse), p_error = 2 + scores[j].size + fabs(lse);
        const double *k = check->k + j * dim, *v = check->v + j * dim_v;
        struct answer dp = {0, 0};
        for (int c = 0; c < dim_v; c++) {
            const double term = dout[c] * v[c];
            add(&dp, term, fabs(term));
            add(&check->dv[j * dim_v + c], p * dout[c], fabs(p * dout[c]) * p_error);
        }
        // The slope 1 - tanh^2 is a difference of two numbers near 1.
        const double ds = scale * p * scores[j].slope * (dp.value - delta.value);
        const double ds_size =
            scale * p * (dp.size + delta.size) * (problem->softcap != 0 ? 1 : scores[j].slope) * p_error;
        for (int c = 0; c < dim; c++) {
            add(&check->dq[i * dim + c], ds * k[c], fabs(ds_size * k[c]));
            add(&check->dk[j * dim + c], ds * q[c], fabs(ds_size * q[c]));
        }
    }
}

static void check_rows(struct check *check, enum case_tensor_name name, bool k, int64_t head, int64_t tokens, int dim,
                       const struct answer *want) {
    for (int64_t at = 0; at < tokens * dim; at++)
        expect_token(check, name, k, false, at / dim, head, at % dim, want[at]);
}

static void check_sequence(struct check *check, int64_t head_k) {
    const struct case_problem *problem = check->problem;
    const int dim = problem->head_dim, dim_v = problem->head_dim_v;
    struct score *scores = calloc((size_t)(check->sk + 1), sizeof *scores);
    struct answer *dk = calloc((size_t)(check->sk * dim + 1), sizeof *dk);
    struct answer *dv = calloc((size_t)(check->sk * dim_v + 1), sizeof *dv);
    check->dk = dk;
    check->dv = dv;
    check->k = load(check, CASE_K, check->sk, head_k, dim);
    check->v = load(check, CASE_V, check->sk, head_k, dim_v);
    for (int64_t g = 0; g < problem->group; g++) {
        check->head = head_k * problem->group + g;
        struct answer *dq = calloc((size_t)(check->sq * dim + 1), sizeof *dq);
        check->dq = dq;
        check->q = load(check, CASE_Q, check->sq, check->head, dim);
        if (problem->backward) {
            check->o = load(check, CASE_O, check->sq, check->head, dim_v);
            check->dout = load(check, CASE_DOUT, check->sq, check->head, dim_v);
        }
        for (int64_t i = 0; i < check->sq; i++) {
            for (int64_t j = 0; j < check->sk; j++) {
                if (visible(check, i, j)) scores[j] = score_of(check, i, j);
            }
            check_forward_row(check, i, scores);
            if (problem->backward) add_backward_row(check, i, scores);
        }
        if (problem->backward) check_rows(check, CASE_DQ, false, check->head, check->sq, dim, dq);
        free(dq);
        free(check->q);
        if (problem->backward) free(check->o), free(check->dout);
    }
    free(check->k);
    free(check->v);
    if (problem->backward) {
        check_rows(check, CASE_DK, true, head_k, check->sk, dim, dk);
        check_rows(check, CASE_DV, true, head_k, check->sk, dim_v, dv);
    }
    free(dk);
    free(dv);
    free(scores);
}

// Rows of a side where no token lives: zeros, and -inf in lse.
static void check_gaps(struct check *check, enum case_tensor_name name, bool k) {
    const struct case_problem *problem = check->problem;
    const struct case_side *side = k ? &problem->k : &problem->q;
    const vf_tensor *tensor = &check->tensors->view[name];
    const int first = side->batched ? 1 : 0;
    const bool statistic = name == CASE_LSE;
    const int row_at = statistic ? first + 1 : first;
    const int64_t rows = tensor->shape[row_at], slots = side->batched ? problem->batch : 1;
    bool *live = calloc((size_t)(slots * rows + 1), sizeof *live);
    for (int64_t b = 0; b < problem->batch; b++) {
        for (int64_t i = 0; i < case_length(side, b); i++) {
            int64_t slot, row;
            case_place(side, b, i, &slot, &row);
            live[slot * rows + row] = true;
        }
    }
    const struct answer want = {statistic ? -INFINITY : 0, 0};
    int64_t index[4] = {0}, elements = 1;
    for (int d = 0; d < tensor->ndim; d++) elements *= tensor->shape[d];
    for (int64_t at = 0; at < elements; at++) {
        int64_t rest = at;
        for (int d = tensor->ndim - 1; d >= 0; d--) {
            index[d] = rest % tensor->shape[d];
            rest /= tensor->shape[d];
        }
        if (!live[(side->batched ? index[0] : 0) * rows + index[row_at]]) expect(check, name, index, want);
    }
    free(live);
}

bool case_check(const struct case_problem *problem, struct case_tensors *tensors) {
    struct check check = {.problem = problem, .tensors = tensors};
    for (check.b = 0; check.b < problem->batch; check.b++) {
        check.sq = case_length(&problem->q, check.b);
        check.sk = case_length(&problem->k, check.b);
        for (int64_t head = 0; head < problem->heads_k; head++) check_sequence(&check, head);
    }
    for (enum case_tensor_name name = 0; name < CASE_TENSORS; name++) {
        if (!tensors->before[name]) continue;
        if (problem->fill == VF_FILL_ZERO) check_gaps(&check, name, name == CASE_DK || name == CASE_DV);
        if (memcmp(tensors->before[name], tensors->memory[name], tensors->bytes[name]) != 0) {
            fprintf(stderr, "seed %llu: tensor %d: written outside its rows\n", (unsigned long long)problem->seed,
                    (int)name);
            check.wrong = true;
        }
    }
    return !check.wrong;
}

bool case_run(const struct case_problem *problem) {
    struct case_tensors tensors;
    case_make(problem, &tensors);
    bool good = cpu_forward(&tensors.forward, problem->threads) == VF_OK;
    if (problem->backward) good = good && cpu_backward(&tensors.backward, problem->threads) == VF_OK;
    good = good && case_check(problem, &tensors);
    case_free(&tensors);
    return good;
}
