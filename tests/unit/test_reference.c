// test_reference.c - the oracle itself: its gradients against finite differences of its forward, its forward against values
// known without it.
#include <math.h>

#include "loop_main.h"
#include "plain.h"
#include "reference.h"
#include "unit.h"

static const char *const lines[] = {
    "--seqlens-q 5 --seqlens-k 7 --head-dim 8",
    "--seqlens-q 6,0,3 --seqlens-k 4,3,5 --heads-q 4 --heads-k 2 --head-dim 8 --head-dim-v 16 --causal --dlse",
    "--seqlens-q 9,2 --seqlens-k 6,8 --heads-q 2 --head-dim 16 --window 2,1 --softcap 1.5 --dlse",
    "--seqlens-q 7 --seqlens-k 7 --head-dim 8 --softcap 0.75 --causal --scale 0.9",
    "--seqlens-q 6,5 --seqlens-k 8,4 --seqused-q 4,5 --seqused-k 7,1 --heads-q 2 --window -1,3 --head-dim 8",
    "--seqlens-q 5x2 --seqlens-k 6x2 --batched --seqused-k 6,2 --heads-q 2 --head-dim 8 --strides q=40,11,203 --dlse",
};
#define LINES (sizeof lines / sizeof *lines)

struct setup {
    struct problem problem;
    struct tensors tensors;
    struct problem_span *spans_q, *spans_k;
};

static void set_up(const char *line, struct setup *setup) {
    char text[512];
    snprintf(text, sizeof text, "%s --dtype fp32 --backward", line);
    unit_ok(problem_from_line(text, &setup->problem));
    unit_ok(tensors_create(&setup->problem, 1, &setup->tensors));
    unit_ok(problem_spans(&setup->problem, &setup->spans_q, &setup->spans_k));
}

static void tear_down(struct setup *setup) {
    free(setup->spans_q);
    free(setup->spans_k);
    tensors_free(&setup->tensors);
    problem_free(&setup->problem);
}

static void load(struct setup *setup, int64_t b, int64_t h, bool backward, struct reference_head *head) {
    unit_ok(reference_load(&setup->problem, &setup->tensors, &setup->spans_q[b], &setup->spans_k[b], h, backward,
                           REFERENCE_OWN, head));
}

// sum of dout . o + dlse * lse of sequence b: what the gradients are gradients of.
static double loss(struct setup *setup, int64_t b) {
    double total = 0, o[64], dout[64], lse, dlse;
    struct reference_units units;
    for (int64_t h = 0; h < setup->problem.heads_q; h++) {
        struct reference_head head;
        load(setup, b, h, false, &head);
        for (int64_t i = 0; i < head.sq; i++) {
            const struct problem_span *span = &setup->spans_q[b];
            reference_row(&head, i, o, &lse, &units);
            tensor_load(&setup->tensors.images[OPERAND_DOUT], span->batch, span->row + i, h, head.dv, dout);
            for (int64_t c = 0; c < head.dv; c++) total += dout[c] * o[c];
            if (!setup->problem.dlse || isinf(lse)) continue;
            tensor_load(&setup->tensors.images[OPERAND_DLSE], span->batch, span->row + i, h, 1, &dlse);
            total += dlse * lse;
        }
        reference_free(&head);
    }
    return total;
}

#define STEP 0x1p-9

// d loss / d element, by a central difference between numbers that float32 holds.
static double slope(struct setup *setup, enum problem_operand operand, int64_t b, int64_t row, int64_t h,
                    int64_t column) {
    const bool key_side = operand != OPERAND_Q;
    const struct problem_span *span = key_side ? &setup->spans_k[b] : &setup->spans_q[b];
    struct tensor_image *image = &setup->tensors.images[operand];
    double values[64], kept, ends[2], at[2];
    tensor_load(image, span->batch, span->row + row, h, image->dim, values);
    kept = values[column];
    for (int side = 0; side < 2; side++) {
        values[column] = at[side] = (double)(float)(kept + (side ? STEP : -STEP));
        tensor_store(image, span->batch, span->row + row, h, image->dim, values);
        ends[side] = loss(setup, b);
    }
    values[column] = kept;
    tensor_store(image, span->batch, span->row + row, h, image->dim, values);
    return (ends[1] - ends[0]) / (at[1] - at[0]);
}

static void check_close(double got, double want, const char *name) {
    ck_assert_msg(fabs(got - want) <= 2e-5 * (1 + fabs(want)), "%s: %.9g, finite differences say %.9g", name, got,
                  want);
}

START_TEST(gradients_are_those_of_finite_differences) {
    struct setup setup;
    set_up(lines[_i], &setup);
    const struct problem *problem = &setup.problem;
    const int64_t group = problem->heads_q / problem->heads_k;
    for (int64_t b = 0; b < problem->batch; b++) {
        for (int64_t h = 0; h < problem->heads_q; h++) {
            struct reference_head head;
            struct reference_units units;
            double dq[64];
            load(&setup, b, h, true, &head);
            for (int64_t i = 0; i < head.sq; i++) {
                reference_dq(&head, i, dq, &units);
                for (int64_t c = 0; c < head.d; c++) check_close(dq[c], slope(&setup, OPERAND_Q, b, i, h, c), "dq");
            }
            reference_free(&head);
        }
        for (int64_t g = 0; g < problem->heads_k; g++)
            for (int64_t j = 0; j < setup.spans_k[b].used; j++) {
                double dk[64] = {0}, dv[64] = {0};
                for (int64_t h = g * group; h < (g + 1) * group; h++) {
                    struct reference_head head;
                    struct reference_units units = {0};
                    load(&setup, b, h, true, &head);
                    reference_dkv(&head, j, dk, dv, &units);
                    reference_free(&head);
                }
                for (int64_t c = 0; c < problem->head_dim; c++)
                    check_close(dk[c], slope(&setup, OPERAND_K, b, j, g, c), "dk");
                for (int64_t c = 0; c < problem->head_dim_v; c++)
                    check_close(dv[c], slope(&setup, OPERAND_V, b, j, g, c), "dv");
            }
    }
    tear_down(&setup);
}
END_TEST

// ---- the forward ----

// o and lse of every row from the definition in one breath: weights exp(x) over all keys that the mask admits.
START_TEST(forward_is_the_definition) {
    struct setup setup;
    set_up(lines[_i], &setup);
    const struct problem *problem = &setup.problem;
    const int64_t group = problem->heads_q / problem->heads_k;
    double q[64], k[64], v[64], o[64], lse, want[64];
    for (int64_t b = 0; b < problem->batch; b++)
        for (int64_t h = 0; h < problem->heads_q; h++) {
            const struct problem_span *sq = &setup.spans_q[b], *sk = &setup.spans_k[b];
            struct reference_head head;
            struct reference_units units;
            load(&setup, b, h, false, &head);
            for (int64_t i = 0; i < sq->used; i++) {
                double sum = 0;
                memset(want, 0, sizeof want);
                tensor_load(&setup.tensors.images[OPERAND_Q], sq->batch, sq->row + i, h, problem->head_dim, q);
                for (int64_t j = 0; j < sk->used; j++) {
                    const int64_t d = sk->used - sq->used;
                    if (problem->mask == VF_MASK_CAUSAL && j > i + d) continue;
                    if (problem->mask == VF_MASK_WINDOW &&
                        (j < i + d - problem->window_left || j > i + d + problem->window_right))
                        continue;
                    tensor_load(&setup.tensors.images[OPERAND_K], sk->batch, sk->row + j, h / group, problem->head_dim,
                                k);
                    tensor_load(&setup.tensors.images[OPERAND_V], sk->batch, sk->row + j, h / group,
                                problem->head_dim_v, v);
                    double x = 0;
                    for (int64_t c = 0; c < problem->head_dim; c++) x += q[c] * k[c];
                    x *= problem->softmax_scale > 0 ? problem->softmax_scale : 1 / sqrt((double)problem->head_dim);
                    if (problem->softcap > 0) x = problem->softcap * tanh(x / problem->softcap);
                    sum += exp(x);
                    for (int64_t c = 0; c < problem->head_dim_v; c++) want[c] += exp(x) * v[c];
                }
                reference_row(&head, i, o, &lse, &units);
                ck_assert(sum > 0 ? fabs(lse - log(sum)) < 1e-12 : lse == -INFINITY);
                for (int64_t c = 0; c < problem->head_dim_v; c++)
                    ck_assert(sum > 0 ? fabs(o[c] - want[c] / sum) < 1e-12 : o[c] == 0);
            }
            reference_free(&head);
        }
    tear_down(&setup);
}
END_TEST

// One visible key, whatever its score: o is its v and lse the score.
START_TEST(one_key_of_any_size_gives_its_value) {
    static const char *const scales[] = {"1", "1e5", "1e30"};
    for (int s = 0; s < 3; s++) {
        char line[128];
        struct setup setup;
        struct reference_head head;
        struct reference_units units;
        double o[8], lse;
        snprintf(line, sizeof line, "--seqlens-q 6 --head-dim 8 --window 0,0 --scale %s", scales[s]);
        set_up(line, &setup);
        load(&setup, 0, 0, false, &head);
        for (int64_t i = 0; i < 6; i++) {
            double x = 0;
            for (int c = 0; c < 8; c++) x += head.q[i * 8 + c] * head.k[i * 8 + c];
            reference_row(&head, i, o, &lse, &units);
            ck_assert(fabs(lse - x * head.scale) <= 1e-12 * fabs(lse));
            for (int c = 0; c < 8; c++) ck_assert_double_eq(o[c], head.v[i * 8 + c]);
        }
        reference_free(&head);
        tear_down(&setup);
    }
}
END_TEST

// ---- the yardstick ----

// Plain arithmetic is near, and not exact, in 16 bits; a thousand times nearer in float32.
START_TEST(plain_arithmetic_is_as_far_off_as_its_type) {
    static const struct {
        const char *dtype;
        double least, most;
    } cases[] = {{"bf16", 1e-4, 0.05}, {"fp16", 1e-5, 0.008}, {"fp32", 1e-9, 1e-5}};
    for (int n = 0; n < 3; n++) {
        char line[160];
        struct setup setup;
        struct reference_head head;
        struct plain_head plain;
        struct reference_units units = {0};
        double o[32], lse, exact[32], worst[3] = {0}, dk[32], dv[32];
        float values[32], sum_dk[32], sum_dv[32];
        snprintf(line, sizeof line, "--seqlens-q 40 --seqlens-k 60 --head-dim 32 --causal --backward --dtype %s",
                 cases[n].dtype);
        unit_ok(problem_from_line(line, &setup.problem));
        unit_ok(tensors_create(&setup.problem, 1, &setup.tensors));
        unit_ok(problem_spans(&setup.problem, &setup.spans_q, &setup.spans_k));
        load(&setup, 0, 0, true, &head);
        unit_ok(plain_load(&head, true, REFERENCE_OWN, &plain));
        for (int64_t i = 0; i < 40; i++) {
            reference_row(&head, i, o, &lse, &units);
            plain_row(&plain, i, values);
            for (int c = 0; c < 32; c++) worst[0] = fmax(worst[0], fabs(o[c] - (double)values[c]));
            reference_dq(&head, i, exact, &units);
            plain_dq(&plain, i, values);
            for (int c = 0; c < 32; c++) worst[1] = fmax(worst[1], fabs(exact[c] - (double)values[c]));
        }
        for (int64_t j = 0; j < 60; j++) {
            memset(dk, 0, sizeof dk);
            memset(dv, 0, sizeof dv);
            memset(sum_dk, 0, sizeof sum_dk);
            memset(sum_dv, 0, sizeof sum_dv);
            reference_dkv(&head, j, dk, dv, &units);
            plain_dkv(&plain, j, sum_dk, sum_dv);
            for (int c = 0; c < 32; c++) worst[2] = fmax(worst[2], fabs(dk[c] - (double)sum_dk[c]));
        }
        for (int i = 0; i < 3; i++)
            ck_assert_msg(worst[i] > cases[n].least && worst[i] < cases[n].most, "%s: %d: %g", cases[n].dtype, i,
                          worst[i]);
        plain_free(&plain);
        reference_free(&head);
        tear_down(&setup);
    }
}
END_TEST

LOOP_MAIN("reference", 120, {gradients_are_those_of_finite_differences, LINES}, {forward_is_the_definition, LINES},
          {one_key_of_any_size_gives_its_value, 0}, {plain_arithmetic_is_as_far_off_as_its_type, 0})
