// test_fs.c - environment, reading, folders, publishing.
#include "fs.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "unit.h"

static char folder[UNIT_PATH_SIZE], path[2 * UNIT_PATH_SIZE];

static const char *inside(const char *name) {
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int count_files(void) {
    DIR *list = opendir(folder);
    ck_assert_ptr_nonnull(list);
    int count = 0;
    while (readdir(list)) count++;
    closedir(list);
    return count - 2;  // . and ..
}

START_TEST(environment_is_copied) {
    setenv("VARFLASH_JIT", "off", 1);
    setenv("VARFLASH_LOG", "", 1);
    struct environment environment;
    unit_ok(environment_read(&environment));
    setenv("VARFLASH_JIT", "on", 1);
    ck_assert_str_eq(environment.jit, "off");
    ck_assert_ptr_null(environment.log);
    bool seen = false;
    for (size_t i = 0; i < environment_variable_count; i++) {
        ck_assert_uint_gt(strlen(environment_variables[i].meaning), 5);
        if (strcmp(environment_variables[i].name, "VARFLASH_JIT") != 0) continue;
        ck_assert_str_eq(environment_value(&environment, i), "off");
        seen = true;
    }
    ck_assert(seen);
    environment_free(&environment);
    ck_assert_ptr_null(environment.jit);
    unsetenv("VARFLASH_JIT");
}
END_TEST

START_TEST(reads_files) {
    unit_make_folder(folder);
    struct buf text = {0};
    unit_write_text(inside("a"), "some text");
    unit_ok(fs_read(path, &text));
    ck_assert_str_eq(buf_string(&text), "some text");
    unit_ok(fs_read(path, &text));
    ck_assert_str_eq(buf_string(&text), "some textsome text");
    buf_clear(&text);
    unit_ok(fs_read("/proc/self/status", &text));  // says its size is 0
    ck_assert_ptr_nonnull(strstr(text.data, "Pid:"));
    unit_fails(fs_read(inside("missing"), &text), VF_ERROR_IO, "missing: cannot be read: No such file");
    unit_fails(fs_read(folder, &text), VF_ERROR_IO, "Is a directory");
    buf_free(&text);
    unit_remove_folder(folder);
}
END_TEST

START_TEST(makes_folders) {
    unit_make_folder(folder);
    struct stat facts;
    ck_assert_int_eq(fs_make_folder(inside("a/b//c")), 0);
    ck_assert_int_eq(fs_make_folder(path), 0);
    ck_assert_int_eq(stat(path, &facts), 0);
    ck_assert_uint_eq(facts.st_mode & 077, 0);
    unit_write_text(inside("file"), "");
    ck_assert_int_eq(fs_make_folder(path), ENOTDIR);
    ck_assert_int_eq(fs_make_folder(inside("file/below")), ENOTDIR);
    char *long_path = malloc(5000);
    memset(long_path, 'x', 4999);
    long_path[4999] = 0;
    ck_assert_int_eq(fs_make_folder(long_path), ENAMETOOLONG);
    ck_assert_int_eq(fs_publish(long_path, "a", "", 0), ENAMETOOLONG);
    free(long_path);
    ck_assert_int_ne(fs_make_folder("/proc/varflash"), 0);
    unit_remove_folder(folder);
}
END_TEST

START_TEST(publishes_whole_files) {
    unit_make_folder(folder);
    struct buf text = {0};
    struct stat facts;
    ck_assert_int_eq(fs_publish(folder, "a", "one", 3), 0);
    ck_assert_int_eq(fs_publish(folder, "a", "two", 3), 0);
    unit_ok(fs_read(inside("a"), &text));
    ck_assert_str_eq(buf_string(&text), "two");
    ck_assert_int_eq(stat(path, &facts), 0);
    ck_assert_uint_eq(facts.st_mode & 0777, 0600);
    ck_assert_int_eq(count_files(), 1);
    ck_assert_int_eq(fs_publish(inside("missing"), "a", "one", 3), ENOENT);
    ck_assert_int_eq(mkdir(inside("taken"), 0700), 0);
    ck_assert_int_ne(fs_publish(folder, "taken", "one", 3), 0);  // rename fails: the temporary goes
    ck_assert_int_eq(count_files(), 2);
    buf_free(&text);
    unit_remove_folder(folder);
}
END_TEST

START_TEST(a_full_disk_leaves_nothing) {
    unit_make_folder(folder);
    ck_assert_int_eq(fs_publish(folder, "a", "old", 3), 0);
    struct rlimit old, small = {1000, RLIM_INFINITY};
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    char *data = calloc(1, 5000);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    int reason = fs_publish(folder, "a", data, 5000);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
    free(data);
    ck_assert_int_eq(reason, EFBIG);
    ck_assert_int_eq(count_files(), 1);
    struct buf text = {0};
    unit_ok(fs_read(inside("a"), &text));
    ck_assert_str_eq(buf_string(&text), "old");
    buf_free(&text);
    unit_remove_folder(folder);
}
END_TEST

static void *publish_many(void *text) {
    for (int i = 0; i < 20; i++) {
        if (fs_publish(folder, "a", text, strlen(text))) return NULL;
    }
    return text;
}

START_TEST(threads_publish_one_name) {
    unit_make_folder(folder);
    static char texts[4][9] = {"aaaaaaaa", "bbbbbbbb", "cccccccc", "dddddddd"};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) ck_assert_int_eq(pthread_create(&threads[i], NULL, publish_many, texts[i]), 0);
    for (int i = 0; i < 4; i++) {
        void *result;
        ck_assert_int_eq(pthread_join(threads[i], &result), 0);
        ck_assert_ptr_eq(result, texts[i]);
    }
    ck_assert_int_eq(count_files(), 1);
    unit_remove_folder(folder);
}
END_TEST

UNIT_MAIN("fs", environment_is_copied, reads_files, makes_folders, publishes_whole_files, a_full_disk_leaves_nothing,
          threads_publish_one_name)
