// test_verify.c - the judge is judged: a right result passes, and each single thing made wrong in it is found and named.
#include "judge.h"

#include <math.h>

#include "harness.h"
#include "loop_main.h"
#include "unit.h"
#include "varflash/varflash_dev.h"

// Gaps, unused tokens, a row that sees nothing, keys that nobody sees, strides and offsets of their own.
static const char line[] =
    "--seqlens-q 20,0,9 --seqlens-k 30,4,6 --seqused-q 18,0,9 --seqused-k 30,4,5 --rows-q 33 --rows-k 44 --heads-q 4 "
    "--heads-k 2 --head-dim 16 --causal --dlse --backward --strides o=80,16+3 --strides dq=16,600 --strides lse=5,1 "
    "--strides dk=48,24 --seed 5";

struct setup {
    vf_context *context;
    struct problem problem;
    struct harness harness;
    struct verify_result result;
};

static void set_up(const char *flags, struct setup *setup) {
    const vf_options options = {.struct_size = sizeof options, .backend = VF_BACKEND_CPU, .cpu_threads = 1};
    *setup = (struct setup){.result.verdict = VERIFY_RIGHT};
    unit_ok(vf_open(&options, &setup->context));
    unit_ok(problem_from_line(flags, &setup->problem));
    unit_ok(harness_create(setup->context, &setup->problem, 0, 1, &setup->harness));
    for (int backward = 0; backward <= (int)setup->problem.backward; backward++) {
        unit_ok(backward ? harness_backward(&setup->harness) : harness_forward(&setup->harness));
        unit_ok(harness_fetch(&setup->harness, backward));
    }
}

static void judge(struct setup *setup) {
    const bool backward = setup->problem.backward;
    unit_ok(judge_exact(&setup->problem, &setup->harness.host, backward, 1, &setup->result));
    unit_ok(judge_accuracy(&setup->problem, &setup->harness.host, backward, 1, 0, &setup->result));
}

static void tear_down(struct setup *setup) {
    harness_free(&setup->harness);
    problem_free(&setup->problem);
    vf_close(setup->context);
}

static struct tensor_image *image_of(struct setup *setup, enum problem_operand operand) {
    return &setup->harness.host.images[operand];
}

static void expect(struct setup *setup, const char *fragment) {
    judge(setup);
    ck_assert_int_eq(setup->result.verdict, VERIFY_WRONG);
    ck_assert_msg(strstr(setup->result.sentence, fragment) != NULL, "'%s' does not contain '%s'",
                  setup->result.sentence, fragment);
    tear_down(setup);
}

START_TEST(a_right_result_is_right) {
    struct setup setup;
    set_up(line, &setup);
    judge(&setup);
    ck_assert_msg(setup.result.verdict == VERIFY_RIGHT, "%s", setup.result.sentence);
    for (int i = 0; i < VERIFY_TENSORS; i++) {
        const struct verify_tensor *tensor = &setup.result.tensors[i];
        ck_assert_int_gt(tensor->compared, 0);
        ck_assert(tensor->max_error <= tensor->tolerance && tensor->rms_error <= tensor->max_error);
        ck_assert(i == VERIFY_LSE || tensor->plain_error > 0);
    }
    ck_assert(setup.result.share > 0 && setup.result.share < 1);
    tear_down(&setup);
}
END_TEST

// ---- single elements ----

static const struct {
    enum problem_operand operand;
    int64_t row, head;
    double value;  // added; infinite or NaN: put there
    const char *fragment;
} mutations[] = {
    {OPERAND_O, 17, 3, 0.5, "o: sequence 0, head 3, row 17, column 0: got"},
    {OPERAND_O, 20, 0, -0.1, "o: sequence 2, head 0, row 0, column 0: sees nothing"},
    {OPERAND_O, 28, 1, (double)NAN, "o: sequence 2, head 1, row 8, column 0: was not written, or is not finite"},
    {OPERAND_O, 3, 1, (double)INFINITY, "o: sequence 0, head 1, row 3, column 0: was not written, or is not finite"},
    {OPERAND_O, 18, 2, 1e-3, "o: tensor row 18, head 2, column 0: holds no token, must be 0"},
    {OPERAND_O, 32, 0, (double)NAN, "o: tensor row 32, head 0, column 0: holds no token, must be 0"},
    {OPERAND_LSE, 5, 0, 1e-3, "lse: sequence 0, head 0, row 5, column 0: got"},
    {OPERAND_LSE, 21, 0, 0, "lse: sequence 2, head 0, row 1, column 0: sees nothing, must be -inf"},
    {OPERAND_LSE, 19, 3, 0, "lse: tensor row 19, head 3, column 0: holds no token, must be -inf"},
    {OPERAND_LSE, 5, 2, (double)-INFINITY, "lse: sequence 0, head 2, row 5, column 0: was not written"},
    {OPERAND_DQ, 0, 0, 0.25, "dq: sequence 0, head 0, row 0, column 0: got"},
    {OPERAND_DQ, 23, 2, 1e-4, "dq: sequence 2, head 2, row 3, column 0: sees nothing"},
    {OPERAND_DQ, 30, 2, 1e-4, "dq: tensor row 30, head 2, column 0: holds no token, must be 0"},
    {OPERAND_DK, 29, 1, 0.25, "dk: sequence 0, head 1, key 29, column 0: got"},
    {OPERAND_DK, 31, 0, 1e-6, "dk: sequence 1, head 0, row 1, column 0: sees nothing or is seen by nobody"},
    {OPERAND_DV, 38, 1, 0.5, "dv: sequence 2, head 1, key 4, column 0: got"},
    {OPERAND_DV, 39, 1, 0.5, "dv: tensor row 39, head 1, column 0: holds no token"},
};

START_TEST(one_wrong_element_is_found) {
    struct setup setup;
    double values[16];
    set_up(line, &setup);
    struct tensor_image *image = image_of(&setup, mutations[_i].operand);
    tensor_load(image, 0, mutations[_i].row, mutations[_i].head, image->dim, values);
    if (!isfinite(mutations[_i].value) || !isfinite(values[0]))
        values[0] = mutations[_i].value;
    else
        values[0] += mutations[_i].value;
    tensor_store(image, 0, mutations[_i].row, mutations[_i].head, image->dim, values);
    expect(&setup, mutations[_i].fragment);
}
END_TEST

// In a long sequence values are small; an error that would pass beside the values of a short one must not.
START_TEST(small_values_do_not_hide_behind_large_ones) {
    struct setup setup;
    double values[16];
    set_up("--seqlens-q 4,2 --seqlens-k 4000,1 --head-dim 16 --dtype fp16", &setup);
    struct tensor_image *image = image_of(&setup, OPERAND_O);
    tensor_load(image, 0, 1, 0, 16, values);
    values[3] += 0.004;
    tensor_store(image, 0, 1, 0, 16, values);
    judge(&setup);
    ck_assert_int_eq(setup.result.verdict, VERIFY_WRONG);
    ck_assert(setup.result.tensors[VERIFY_O].max_error < 0.005);
    ck_assert_ptr_nonnull(strstr(setup.result.sentence, "sequence 0, head 0, row 1, column 3"));
    tear_down(&setup);
}
END_TEST

START_TEST(rows_that_were_to_be_kept_are_found) {
    struct setup setup;
    const double zeros[64] = {0};
    set_up("--seqlens-q 6,5 --seqused-q 4,5 --rows-q 12 --fill keep --backward", &setup);
    judge(&setup);
    ck_assert_msg(setup.result.verdict == VERIFY_RIGHT, "%s", setup.result.sentence);
    tensor_store(image_of(&setup, OPERAND_DQ), 0, 5, 0, 64, zeros);
    expect(&setup, "dq: tensor row 5, head 0, column 0: holds no token and was to be kept");
}
END_TEST

// ---- bytes outside ----

START_TEST(bytes_outside_the_elements_are_found) {
    // Before the image's storage, at its end, between rows of o, between heads of dk. Bytes from the first element.
    static const struct {
        enum problem_operand operand;
        int64_t byte;
        const char *name;
    } cases[] = {{OPERAND_O, -1, "o: "},     {OPERAND_O, -4000, "o: "}, {OPERAND_O, 128, "o: "},
                 {OPERAND_O, 159, "o: "},    {OPERAND_DK, 39, "dk: "},  {OPERAND_LSE, 16, "lse: "},
                 {OPERAND_DV, 2816, "dv: "}, {OPERAND_DQ, 4798, "dq: "}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct setup setup;
        char fragment[96];
        set_up(line, &setup);
        struct tensor_image *image = image_of(&setup, cases[i].operand);
        image->bytes[(int64_t)image->offset + cases[i].byte] = 0x3c;
        snprintf(fragment, sizeof fragment, "%smemory that is no element of it: byte %lld", cases[i].name,
                 (long long)cases[i].byte);
        expect(&setup, fragment);
    }
}
END_TEST

START_TEST(inputs_and_workspaces_that_changed_are_found) {
    static const int inputs[] = {OPERAND_Q,   OPERAND_K,     OPERAND_V,     OPERAND_DOUT, OPERAND_DLSE, TENSOR_CU_Q,
                                 TENSOR_CU_K, TENSOR_USED_Q, TENSOR_USED_K, OPERAND_O,    OPERAND_LSE};
    struct setup setup;
    const char *changed;
    set_up(line, &setup);
    unit_ok(harness_intact(&setup.harness, true, &changed));
    ck_assert_ptr_null(changed);
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        unsigned char *byte =
            (unsigned char *)setup.harness.bases[inputs[i]] + setup.harness.host.images[inputs[i]].offset;
        *byte ^= 1;
        unit_ok(harness_intact(&setup.harness, true, &changed));
        ck_assert_str_eq(changed, tensor_names[inputs[i]]);
        *byte ^= 1;
    }
    setup.harness.workspace[TENSOR_GUARD - 1] = 0;
    unit_ok(harness_intact(&setup.harness, true, &changed));
    ck_assert_str_eq(changed, "workspace");
    setup.harness.workspace[TENSOR_GUARD - 1] = TENSOR_CANARY;
    setup.harness.workspace[TENSOR_GUARD + setup.harness.workspace_size] = 0;
    unit_ok(harness_intact(&setup.harness, true, &changed));
    ck_assert_str_eq(changed, "workspace");
    tear_down(&setup);
}
END_TEST

// ---- samples ----

// Above the limit rows and keys are sampled: right passes, and a fault of a whole sequence is still found.
START_TEST(samples_find_what_is_wrong_everywhere) {
    static const char large[] =
        "--seqlens-q 300,0,200 --seqlens-k 250,7,260 --heads-q 4 --heads-k 2 --head-dim 32 --backward";
    for (int tensor = 0; tensor < VERIFY_TENSORS; tensor++) {
        struct setup setup;
        set_up(large, &setup);
        unit_ok(judge_accuracy(&setup.problem, &setup.harness.host, true, 1, 1, &setup.result));
        ck_assert_msg(setup.result.verdict == VERIFY_RIGHT, "%s", setup.result.sentence);
        ck_assert(setup.result.sampled);
        ck_assert_int_gt(setup.result.tensors[tensor].compared, 0);
        struct tensor_image *image = image_of(&setup, judge_operands[tensor]);
        ck_assert_int_lt(setup.result.tensors[tensor].compared, image->rows * image->heads * image->dim);
        double values[32];
        for (int64_t row = 0; row < image->rows; row++)
            for (int64_t head = 0; head < image->heads; head++) {
                tensor_load(image, 0, row, head, image->dim, values);
                for (int64_t c = 0; c < image->dim; c++) values[c] = values[c] * 1.25 + 0.01;
                tensor_store(image, 0, row, head, image->dim, values);
            }
        setup.result = (struct verify_result){.verdict = VERIFY_RIGHT};
        unit_ok(judge_accuracy(&setup.problem, &setup.harness.host, true, 1, 1, &setup.result));
        ck_assert_int_eq(setup.result.verdict, VERIFY_WRONG);
        tear_down(&setup);
    }
}
END_TEST

// ---- whole problems ----

static void verify(const char *flags, enum verify_verdict verdict, const char *fragment) {
    const vf_options options = {.struct_size = sizeof options, .backend = VF_BACKEND_CPU, .cpu_threads = 1};
    const struct verify_options all = {
        .threads = 1, .repeat = 2, .invariance = true, .contiguous = true, .spoil = true};
    struct verify_result result;
    struct problem problem;
    vf_context *context;
    unit_ok(vf_open(&options, &context));
    unit_ok(problem_from_line(flags, &problem));
    unit_ok(verify_problem(context, &problem, &all, &result));
    ck_assert_msg(result.verdict == verdict, "%s: verdict %d: %s", flags, result.verdict, result.sentence);
    ck_assert_msg(strstr(result.sentence, fragment) != NULL, "'%s' does not contain '%s'", result.sentence, fragment);
    problem_free(&problem);
    vf_close(context);
}

START_TEST(problems_come_to_their_verdicts) {
    verify("--seqlens-q 30,0,9 --heads-q 2 --causal --strides q=256,64 --strides dk=128,64 --backward", VERIFY_RIGHT,
           "");
    verify("--seqlens-q 30 --heads-q 3 --heads-k 2 --expect invalid", VERIFY_RIGHT, "");
    verify("--seqlens-q 30 --heads-q 3 --heads-k 2", VERIFY_WRONG, "VF_ERROR_INVALID_ARGUMENT");
    verify("--seqlens-q 30 --expect invalid", VERIFY_WRONG, "accepted, but VF_ERROR_INVALID_ARGUMENT was expected");
    verify("--seqlens-q 30 --heads-q 3 --heads-k 2 --expect unsupported", VERIFY_WRONG, "but VF_ERROR_UNSUPPORTED");
    verify("--seqlens-q 30,-2,5 --backward", VERIFY_RIGHT, "");
}
END_TEST

LOOP_MAIN("verify", 60, {a_right_result_is_right, 0},
          {one_wrong_element_is_found, sizeof mutations / sizeof *mutations},
          {small_values_do_not_hide_behind_large_ones, 0}, {rows_that_were_to_be_kept_are_found, 0},
          {bytes_outside_the_elements_are_found, 0}, {inputs_and_workspaces_that_changed_are_found, 0},
          {samples_find_what_is_wrong_everywhere, 0}, {problems_come_to_their_verdicts, 0})
