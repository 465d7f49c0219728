// test_faults.c - inputs that broke other libraries, and the smoke list, on the CPU backend; judged by everything that
// verify.h knows. GPU tests run the same lists at full size.
#include "loop_main.h"
#include "suite.h"
#include "unit.h"
#include "verify.h"

static void check_suite(const char *name, size_t from, size_t step) {
    const vf_options options = {.struct_size = sizeof options, .backend = VF_BACKEND_CPU, .cpu_threads = 2};
    const struct verify_options verify = {.threads = 1, .repeat = 2, .invariance = true, .spoil = true};
    vf_context *context;
    struct problem_list list = {0};
    struct buf flags = {0};
    unit_ok(vf_open(&options, &context));
    unit_ok(suite_get(name, &list));
    for (size_t i = from; i < list.count; i += step) {
        struct verify_result result;
        unit_ok(verify_problem(context, &list.items[i], &verify, &result));
        problem_write_flags(&list.items[i], &flags);
        ck_assert_msg(result.verdict == VERIFY_RIGHT, "%s\n  replay: varflash check --backend cpu %s", result.sentence,
                      buf_string(&flags));
        buf_clear(&flags);
    }
    buf_free(&flags);
    problem_list_free(&list);
    vf_close(context);
}

#define TURNS 8

START_TEST(faults_of_others_are_none_here) {
    check_suite("faults-small", (size_t)_i, TURNS);
}
END_TEST

START_TEST(every_feature_works) {
    check_suite("smoke", 0, 1);
}
END_TEST

// The gradient of a softcapped score belongs to the cap of the call, not to that of an earlier one (K4).
START_TEST(one_cap_after_the_other) {
    const vf_options options = {.struct_size = sizeof options, .backend = VF_BACKEND_CPU, .cpu_threads = 1};
    vf_context *context;
    unit_ok(vf_open(&options, &context));
    for (int turn = 0; turn < 6; turn++) {
        static const char *const caps[] = {"10", "15", "0.5"};
        char line[128];
        struct problem problem;
        struct verify_result result;
        snprintf(line, sizeof line, "--seqlens-q 50,7 --heads-q 2 --softcap %s --causal --backward", caps[turn % 3]);
        unit_ok(problem_from_line(line, &problem));
        unit_ok(verify_problem(context, &problem, NULL, &result));
        ck_assert_msg(result.verdict == VERIFY_RIGHT, "%s: %s", line, result.sentence);
        problem_free(&problem);
    }
    vf_close(context);
}
END_TEST

LOOP_MAIN("faults", 120, {faults_of_others_are_none_here, TURNS}, {every_feature_works, 0},
          {one_cap_after_the_other, 0})
