// test_status.c - statuses, the thread's sentence, the logger.
#include "status.h"

#include <pthread.h>

#include "unit.h"

static vf_status fails_below(int depth) {
    VF_REQUIRE(depth > 0, VF_ERROR_UNSUPPORTED, "depth %d", depth);
    VF_TRY(fails_below(depth - 1));
    return VF_OK;
}

static vf_status fails_plainly(void) {
    VF_FAIL(VF_ERROR_IO, "%s", "no such thing");
}

START_TEST(names_and_texts) {
    ck_assert_str_eq(vf_status_name(VF_OK), "VF_OK");
    ck_assert_str_eq(vf_status_name(VF_ERROR_UNSUPPORTED), "VF_ERROR_UNSUPPORTED");
    ck_assert_str_eq(vf_status_name((vf_status)99), "VF_ERROR_UNKNOWN");
    ck_assert_str_eq(vf_status_name((vf_status)-1), "VF_ERROR_UNKNOWN");
    ck_assert_str_eq(status_text((vf_status)99), "unknown status");
    for (int i = 0; i <= VF_ERROR_INTERNAL; i++) {
        ck_assert_str_ne(vf_status_name((vf_status)i), "VF_ERROR_UNKNOWN");
        ck_assert_str_ne(status_text((vf_status)i), "unknown status");
    }
}
END_TEST

START_TEST(sentence_travels_up) {
    ck_assert_int_eq(fails_below(3), VF_ERROR_UNSUPPORTED);
    ck_assert_str_eq(vf_last_error(), "depth 0");
    ck_assert_int_eq(fails_plainly(), VF_ERROR_IO);
    ck_assert_str_eq(vf_last_error(), "no such thing");
}
END_TEST

START_TEST(driver_code_belongs_to_the_last_failure) {
    ck_assert_int_eq(status_fail_code(VF_ERROR_DRIVER, 719, "launch failed"), VF_ERROR_DRIVER);
    ck_assert_int_eq(vf_last_driver_error(), 719);
    fails_plainly();
    ck_assert_int_eq(vf_last_driver_error(), 0);
}
END_TEST

START_TEST(sentence_can_quote_itself) {
    fails_plainly();
    status_fail(VF_ERROR_COMPILE, "kernel x: %s", vf_last_error());
    ck_assert_str_eq(vf_last_error(), "kernel x: no such thing");
    status_prefix("file %d: ", 7);
    ck_assert_str_eq(vf_last_error(), "file 7: kernel x: no such thing");
}
END_TEST

START_TEST(long_sentences_are_cut) {
    static char text[2 * STATUS_SENTENCE_SIZE];
    memset(text, 'x', sizeof text - 1);
    status_fail(VF_ERROR_COMPILE, "%s", text);
    ck_assert_uint_eq(strlen(vf_last_error()), STATUS_SENTENCE_SIZE - 1);
    status_prefix("%s", "front ");
    ck_assert_uint_eq(strlen(vf_last_error()), STATUS_SENTENCE_SIZE - 1);
    ck_assert_int_eq(strncmp(vf_last_error(), "front xxx", 9), 0);
    status_prefix("%s", text);
    ck_assert_uint_eq(strlen(vf_last_error()), STATUS_SENTENCE_SIZE - 1);
}
END_TEST

static void *other_thread(void *unused) {
    ck_assert_str_eq(vf_last_error(), "");
    status_fail_code(VF_ERROR_DRIVER, 1, "mine");
    return unused;
}

START_TEST(every_thread_has_its_own) {
    fails_plainly();
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, other_thread, NULL), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_str_eq(vf_last_error(), "no such thing");
    ck_assert_int_eq(vf_last_driver_error(), 0);
}
END_TEST

START_TEST(log_levels) {
    struct unit_log log;
    struct logger logger = unit_logger(&log);
    log_write(&logger, LOG_LEVEL_INFO, "dropped");
    ck_assert_int_eq(log.lines, 0);
    log_write(&logger, LOG_LEVEL_WARNING, "kept %d", 1);
    ck_assert_int_eq(log.lines, 1);
    ck_assert_str_eq(log.last, "kept 1");
    log_write(NULL, LOG_LEVEL_ERROR, "nobody listens");
    log_write(&(struct logger){.level = 4}, LOG_LEVEL_ERROR, "nobody listens");
    ck_assert_int_eq(log_level_parse("1"), 1);
    ck_assert_int_eq(log_level_parse("debug"), 4);
    ck_assert_int_eq(log_level_parse("5"), 0);
    ck_assert_int_eq(log_level_parse("12"), 0);
    ck_assert_int_eq(log_level_parse(""), 0);
    ck_assert_int_eq(log_level_parse(NULL), 0);
}
END_TEST

UNIT_MAIN("status", names_and_texts, sentence_travels_up, driver_code_belongs_to_the_last_failure,
          sentence_can_quote_itself, long_sentences_are_cut, every_thread_has_its_own, log_levels)
