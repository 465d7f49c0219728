// test_harness.c - tensors for measuring alone: made in a moment, of the right shapes, full of ordinary numbers.
#include "harness.h"

#include <math.h>
#include <stdlib.h>

#include "number.h"
#include "unit.h"
#include "varflash/varflash_dev.h"

static vf_context *open_cpu(void) {
    const vf_options options = {.backend = VF_BACKEND_CPU};
    vf_context *context;
    unit_ok(vf_open(&options, &context));
    return context;
}

static void fetch(struct harness *harness, int operand, double *values, int64_t count) {
    const struct tensor_image *image = &harness->host.images[operand];
    unsigned char *bytes = malloc(image->size);
    unit_ok(vf_dev_download(harness->context, bytes, harness->bases[operand], image->size));
    number_load(image->view.dtype, bytes + image->offset, count, values);
    free(bytes);
}

// Every element of every output comes from a call; inputs are normal, each operand's its own.
START_TEST(calls_run_on_what_is_drawn) {
    enum { COUNT = (40 + 33) * 2 * 64 };
    static double q[COUNT], k[COUNT], out[COUNT];
    vf_context *context = open_cpu();
    struct problem problem;
    struct harness harness;
    unit_ok(
        problem_from_line("--seqlens-q 40,33 --seqused-q 40,20 --heads-q 2 --dtype bf16 --dlse --backward", &problem));
    unit_ok(harness_create_to_time(context, &problem, 0, &harness));
    unit_ok(harness_forward(&harness));
    unit_ok(harness_backward(&harness));
    fetch(&harness, OPERAND_Q, q, COUNT);
    fetch(&harness, OPERAND_K, k, COUNT);
    double squares = 0, products = 0;
    for (int i = 0; i < COUNT; i++) squares += q[i] * q[i], products += q[i] * k[i];
    ck_assert_double_eq_tol(squares / COUNT, 1, 0.1);
    ck_assert_double_eq_tol(products / COUNT, 0, 0.1);
    static const int outputs[] = {OPERAND_O, OPERAND_DQ, OPERAND_DK, OPERAND_DV};
    for (size_t o = 0; o < ARRAY_LENGTH(outputs); o++) {
        double sum = 0;
        fetch(&harness, outputs[o], out, COUNT);
        for (int i = 0; i < COUNT; i++) sum += fabs(out[i]);
        ck_assert(isfinite(sum) && sum > 0);
    }
    harness_free(&harness);
    problem_free(&problem);
    vf_close(context);
}
END_TEST

// Beyond what is drawn the numbers repeat, to the last element.
START_TEST(large_operands_repeat) {
    enum { DRAWN = 1 << 20, COUNT = DRAWN + DRAWN / 2 };
    double *values = malloc(COUNT * sizeof(*values));
    vf_context *context = open_cpu();
    struct problem problem;
    struct harness harness;
    unit_ok(problem_from_line("--seqlens-q 24576 --heads-q 1 --head-dim 64 --dtype fp16 --input-scale 2", &problem));
    unit_ok(harness_create_to_time(context, &problem, 0, &harness));
    fetch(&harness, OPERAND_V, values, COUNT);
    double squares = 0;
    for (int i = 0; i < COUNT; i++) squares += values[i] * values[i];
    ck_assert_double_eq_tol(squares / COUNT, 4, 0.1);
    for (int i = DRAWN; i < COUNT; i++) ck_assert(values[i] == values[i - DRAWN]);
    harness_free(&harness);
    problem_free(&problem);
    vf_close(context);
    free(values);
}
END_TEST

UNIT_MAIN("harness", calls_run_on_what_is_drawn, large_operands_repeat)
