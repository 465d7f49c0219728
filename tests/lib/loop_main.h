// loop_main.h - the main of a test program some of whose tests run once for each row of a table.
#ifndef VF_LOOP_MAIN_H
#define VF_LOOP_MAIN_H

#include <check.h>
#include <stdlib.h>

struct loop_test {
    const TTest *test;
    size_t loops;  // 0: it is no loop
};

// One suite with one case; each test, and each turn of a loop, may take `seconds`.
static inline int loop_main(const char *name, double seconds, const struct loop_test *tests, size_t count) {
    Suite *suite = suite_create(name);
    TCase *group = tcase_create(name);
    tcase_set_timeout(group, seconds);
    for (size_t i = 0; i < count; i++) {
        if (tests[i].loops)
            tcase_add_loop_test(group, tests[i].test, 0, (int)tests[i].loops);
        else
            tcase_add_test(group, tests[i].test);
    }
    suite_add_tcase(suite, group);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#define LOOP_MAIN(name, seconds, ...)                                           \
    int main(void) {                                                            \
        const struct loop_test tests[] = {__VA_ARGS__};                         \
        return loop_main(name, seconds, tests, sizeof tests / sizeof tests[0]); \
    }

#endif
