// unit.h - what every unit test starts from: running a suite, temporary folders, captured log lines, skips that can be
// seen.
#ifndef VF_UNIT_H
#define VF_UNIT_H

#include <check.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "varflash/varflash.h"

#define UNIT_SECONDS 60

// The body of main: one suite with one case of these tests, each of which may take `seconds`.
static inline int unit_run(const char *name, const TTest *const tests[], size_t count, double seconds) {
    Suite *suite = suite_create(name);
    TCase *group = tcase_create(name);
    tcase_set_timeout(group, seconds);
    for (size_t i = 0; i < count; i++) tcase_add_test(group, tests[i]);
    suite_add_tcase(suite, group);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#define UNIT_MAIN(name, ...)                                                        \
    int main(void) {                                                                \
        const TTest *const tests[] = {__VA_ARGS__};                                 \
        return unit_run(name, tests, sizeof tests / sizeof tests[0], UNIT_SECONDS); \
    }

// Says on the terminal what this machine cannot test.
static inline void unit_skip(const char *what) {
    fprintf(stderr, "skipped: %s\n", what);
}

// The call fails with `status`, and the thread's sentence contains `fragment`.
#define unit_fails(call, status, fragment)                                                                           \
    do {                                                                                                             \
        vf_status unit_got_ = (call);                                                                                \
        ck_assert_msg(unit_got_ == (status), "%s: %s instead of %s (%s)", #call, vf_status_name(unit_got_), #status, \
                      vf_last_error());                                                                              \
        ck_assert_msg(strstr(vf_last_error(), fragment) != NULL, "'%s' does not contain '%s'", vf_last_error(),      \
                      fragment);                                                                                     \
    } while (0)

#define unit_ok(call)                                                                                       \
    do {                                                                                                    \
        vf_status unit_got_ = (call);                                                                       \
        ck_assert_msg(unit_got_ == VF_OK, "%s: %s: %s", #call, vf_status_name(unit_got_), vf_last_error()); \
    } while (0)

// ---- temporary folders --------------------------------------------------------------------------------------------

#define UNIT_PATH_SIZE 512

static inline void unit_make_folder(char path[UNIT_PATH_SIZE]) {
    const char *parent = getenv("TMPDIR");
    snprintf(path, UNIT_PATH_SIZE, "%s/varflash-unit-XXXXXX", parent ? parent : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(path));
}

static inline int unit_remove_one(const char *path, const struct stat *facts, int type, struct FTW *place) {
    (void)facts, (void)type, (void)place;
    return remove(path);
}

static inline void unit_remove_folder(const char *path) {
    nftw(path, unit_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void unit_write_file(const char *path, const void *data, size_t size) {
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(data, 1, size, file), size);
    ck_assert_int_eq(fclose(file), 0);
}

static inline void unit_write_text(const char *path, const char *text) {
    unit_write_file(path, text, strlen(text));
}

// ---- log lines ----------------------------------------------------------------------------------------------------

struct unit_log {
    int lines;
    char last[1024];
};

static inline void unit_take_line(int level, const char *message, void *user) {
    struct unit_log *log = user;
    (void)level;
    log->lines++;
    snprintf(log->last, sizeof log->last, "%s", message);
}

// A logger at warning level that writes to `log`.
static inline struct logger unit_logger(struct unit_log *log) {
    *log = (struct unit_log){0};
    return (struct logger){.function = unit_take_line, .user = log, .level = LOG_LEVEL_WARNING};
}

#endif
