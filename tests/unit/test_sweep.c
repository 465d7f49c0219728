// test_sweep.c - random problems on the CPU backend, each judged by everything that verify.h knows. A failure prints the
// line that replays it.
#include "loop_main.h"
#include "suite.h"
#include "unit.h"
#include "verify.h"

#define TURNS 20
#define PROBLEMS 110  // a turn; 2200 in all

static void report(const struct problem *problem, const char *sentence) {
    struct buf flags = {0};
    problem_write_flags(problem, &flags);
    ck_abort_msg("%s\n  replay: varflash check --backend cpu %s", sentence, buf_string(&flags));
}

START_TEST(random_problems_are_right) {
    const vf_options options = {.struct_size = sizeof options, .backend = VF_BACKEND_CPU, .cpu_threads = 2};
    vf_context *context;
    char name[64];
    struct problem_list list = {0};
    unit_ok(vf_open(&options, &context));
    snprintf(name, sizeof name, "sweep-small:%d:%d", _i + 1, PROBLEMS);
    unit_ok(suite_get(name, &list));
    for (size_t i = 0; i < list.count; i++) {
        // What costs a second run has its turn with every third problem.
        const struct verify_options verify = {.threads = 1,
                                              .repeat = i % 3 == 0 ? 2 : 1,
                                              .checked = i % 2,
                                              .invariance = i % 3 == 1,
                                              .spoil = i % 3 == 2};
        struct verify_result result;
        unit_ok(verify_problem(context, &list.items[i], &verify, &result));
        if (result.verdict != VERIFY_RIGHT) report(&list.items[i], result.sentence);
    }
    problem_list_free(&list);
    vf_close(context);
}
END_TEST

LOOP_MAIN("sweep", 120, {random_problems_are_right, TURNS})
