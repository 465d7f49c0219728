// test_worker.c - processes that work for others: one that answers, one that dies, one that is silent.
#include "worker.h"

#include <signal.h>
#include <time.h>

#include "unit.h"

static struct worker start(const char *script) {
    struct worker worker;
    char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, strdup(script), NULL};
    ck_assert_int_eq(worker_start("/bin/sh", argv, &worker), 0);
    free(argv[2]);
    return worker;
}

START_TEST(answers) {
    struct worker worker = start("while read -r line; do printf '3 %d\\n%s' ${#line} \"$line\"; done");
    static const char *const texts[] = {"one", "", "a longer text\tof words"};
    for (size_t i = 0; i < 3; i++) {
        int code;
        struct buf answer = {.data = NULL};
        worker_tell(&worker, texts[i]);
        ck_assert_int_eq(worker_hear(&worker, i ? 10 : 0, &code, &answer), WORKER_ANSWERED);
        ck_assert_int_eq(code, 3);
        ck_assert_str_eq(buf_string(&answer), texts[i]);
        buf_free(&answer);
    }
    ck_assert_int_eq(worker_stop(&worker), 0);
    ck_assert_int_eq(worker_stop(&worker), 0);
}
END_TEST

static void expect(const char *script, double seconds, enum worker_answer expected, const char *words) {
    struct worker worker = start(script);
    struct buf answer = {.data = NULL};
    int code;
    worker_tell(&worker, "text");
    ck_assert_int_eq(worker_hear(&worker, seconds, &code, &answer), expected);
    ck_assert_int_eq(code, WORKER_FAILED);
    ck_assert_int_eq(worker.process, 0);
    ck_assert_msg(strstr(buf_string(&answer), words) != NULL, "'%s' does not contain '%s'", buf_string(&answer), words);
    buf_free(&answer);
}

START_TEST(dies_or_is_silent) {
    expect("read -r line; kill -SEGV $$", 10, WORKER_DIED, "signal 11");
    expect("exit 5", 10, WORKER_DIED, "exit code 5");
    expect("read -r line; printf '0 5\\nab'", 10, WORKER_DIED, "exit code 0");
    expect("read -r line; echo garbage", 10, WORKER_DIED, "exit code");
    expect("read -r line; echo 0 99999999999", 10, WORKER_DIED, "exit code");
    expect("sleep 100", 0.2, WORKER_SILENT, "no answer");
}
END_TEST

UNIT_MAIN("worker", answers, dies_or_is_silent)
