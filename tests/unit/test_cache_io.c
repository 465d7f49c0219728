// test_cache_io.c - the cache on disks that fail: every call that it makes of the operating system fails in turn, in
// every way that disks and networks know.
//
// This program's own open, read, ... stand before those of the C library.
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "cache_case.h"

#define PAYLOAD 5000

static struct cache_case one;
static char payload[PAYLOAD];

// The next calls of this name, on files of the cache, fail: `skip` of them do not, then `times` do.
static struct {
    const char *call;
    int reason, skip, times;
    bool done_first;  // the call does its work and then says that it failed: an answer lost on the network
    int met;
} fault;
static bool same_process_id;

static bool fails(const char *call) {
    if (!fault.call || strcmp(fault.call, call) != 0) return false;
    fault.met++;
    if (fault.skip-- > 0) return false;
    if (fault.times-- <= 0) return false;
    errno = fault.reason;
    return true;
}

int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    const bool ours = one.folder[0] && !strncmp(path, one.folder, strlen(one.folder));
    if (ours && fails(flags & O_CREAT ? "create" : "open")) return -1;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
ssize_t read(int file, void *data, size_t size) {
    return fails("read") ? -1 : syscall(SYS_read, file, data, size);
}
ssize_t write(int file, const void *data, size_t size) {
    if (fails("write")) return -1;
    if (fault.call && !strcmp(fault.call, "short write") && size > 1) size /= 2;
    return syscall(SYS_write, file, data, size);
}
int fsync(int file) {
    return fails("fsync") ? -1 : (int)syscall(SYS_fsync, file);
}
int close(int file) {
    const bool failing = fails("close");
    const int reason = errno, result = (int)syscall(SYS_close, file);
    if (failing) errno = reason;
    return failing ? -1 : result;
}
int rename(const char *from, const char *to) {
    const bool failing = fails("rename");
    const int reason = errno;
    const int result = failing && !fault.done_first ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    if (failing) errno = reason;
    return failing ? -1 : result;
}
int flock(int file, int operation) {
    return fails("flock") ? -1 : (int)syscall(SYS_flock, file, operation);
}
int mkdir(const char *path, mode_t mode) {
    return fails("mkdir") ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}
pid_t getpid(void) {
    return same_process_id ? 4711 : (pid_t)syscall(SYS_getpid);
}

static void inject(const char *call, int reason, int skip, int times) {
    fault.call = call;
    fault.reason = reason;
    fault.skip = skip;
    fault.times = times;
    fault.met = 0;
    fault.done_first = false;
}

static void begin(void) {
    for (size_t i = 0; i < sizeof payload; i++) payload[i] = (char)(i * 7);
    inject(NULL, 0, 0, 0);
    cache_case_begin(&one);
}

static int count_temporaries(void) {
    char command[UNIT_PATH_SIZE + 64];
    snprintf(command, sizeof command, "exit $(find '%s' -name '.*' -type f | wc -l)", one.folder);
    const int result = system(command);
    return WEXITSTATUS(result);
}

static bool hits(const struct cache_key *key) {
    return cache_case_hits(one.cache, key, payload, sizeof payload);
}

// ---- writing ------------------------------------------------------------------------------------------------------

START_TEST(writes_that_fail) {
    static const char *const calls[] = {"create", "write", "fsync", "close", "rename"};
    static const int reasons[] = {EROFS, ENOSPC, EACCES, EDQUOT, EIO, ESTALE, ENOENT, EPERM, ENOMEM};
    for (size_t i = 0; i < ARRAY_LENGTH(calls) * ARRAY_LENGTH(reasons); i++) {
        begin();
        struct cache_key old = cache_case_key("old", CASE_MAKER), key = cache_case_key("new", CASE_MAKER);
        cache_case_put(one.cache, &old, payload, sizeof payload);
        inject(calls[i % ARRAY_LENGTH(calls)], reasons[i / ARRAY_LENGTH(calls)], 0, 1000);
        for (int n = 0; n < 3; n++) cache_case_put(one.cache, &key, payload, sizeof payload);
        ck_assert_int_gt(fault.met, 0);
        inject(NULL, 0, 0, 0);
        ck_assert(!hits(&key));
        ck_assert(hits(&old));
        ck_assert_int_eq(one.log.lines, 1);  // however many kernels
        ck_assert_ptr_nonnull(strstr(one.log.last, "kept in memory only"));
        ck_assert_int_eq(count_temporaries(), 0);
        cache_case_put(one.cache, &key, payload, sizeof payload);  // the disk is well again
        ck_assert(hits(&key));
        cache_key_free(&old);
        cache_key_free(&key);
        cache_case_end(&one);
    }
}
END_TEST

START_TEST(writes_that_are_interrupted_or_short) {
    begin();
    struct cache_key key = cache_case_key("new", CASE_MAKER);
    inject("write", EINTR, 0, 3);
    cache_case_put(one.cache, &key, payload, sizeof payload);
    ck_assert(hits(&key));
    struct cache_key second = cache_case_key("second", CASE_MAKER);
    inject("short write", 0, 0, 0);
    cache_case_put(one.cache, &second, payload, sizeof payload);
    inject(NULL, 0, 0, 0);
    ck_assert(hits(&second));
    ck_assert_int_eq(one.log.lines, 0);
    cache_key_free(&key);
    cache_key_free(&second);
    cache_case_end(&one);
}
END_TEST

START_TEST(a_rename_whose_answer_was_lost) {
    static const int reasons[] = {ENOENT, ESTALE, EIO};
    for (size_t i = 0; i < ARRAY_LENGTH(reasons); i++) {
        begin();
        struct cache_key key = cache_case_key("new", CASE_MAKER);
        inject("rename", reasons[i], 0, 1);
        fault.done_first = true;
        cache_case_put(one.cache, &key, payload, sizeof payload);
        inject(NULL, 0, 0, 0);
        ck_assert(hits(&key));
        ck_assert_int_eq(count_temporaries(), 0);
        cache_key_free(&key);
        cache_case_end(&one);
    }
}
END_TEST

START_TEST(a_folder_that_cannot_be_made) {
    static const int reasons[] = {EROFS, ENOSPC, EACCES, EIO};
    for (size_t i = 0; i < ARRAY_LENGTH(reasons); i++) {
        begin();
        struct cache_key key = cache_case_key("new", CASE_MAKER);
        unit_remove_folder(one.folder);
        inject("mkdir", reasons[i], 0, 1000);
        cache_case_put(one.cache, &key, payload, sizeof payload);
        ck_assert_int_eq(cache_lock(one.cache, &key, 0), -1);
        ck_assert(!hits(&key));
        ck_assert_int_eq(one.log.lines, 1);
        inject(NULL, 0, 0, 0);
        cache_key_free(&key);
        cache_case_end(&one);
    }
}
END_TEST

// ---- reading ------------------------------------------------------------------------------------------------------

START_TEST(reads_that_fail) {
    static const char *const calls[] = {"open", "read"};
    static const int reasons[] = {ESTALE, ENOENT, EIO, EACCES, ENOMEM, EMFILE};
    for (size_t i = 0; i < ARRAY_LENGTH(calls) * ARRAY_LENGTH(reasons); i++) {
        const int reason = reasons[i / ARRAY_LENGTH(calls)];
        begin();
        struct cache_key key = cache_case_key("new", CASE_MAKER);
        cache_case_put(one.cache, &key, payload, sizeof payload);
        inject(calls[i % ARRAY_LENGTH(calls)], reason, 0, 1000);
        ck_assert(!hits(&key));
        ck_assert(!hits(&key));
        ck_assert_int_gt(fault.met, 0);
        inject(NULL, 0, 0, 0);
        // What is gone, or is being replaced, is a plain miss.
        ck_assert_int_eq(one.log.lines, reason != ENOENT && reason != ESTALE);
        ck_assert(hits(&key));
        cache_key_free(&key);
        cache_case_end(&one);
    }
}
END_TEST

START_TEST(reads_that_work_the_second_time) {
    static const struct {
        const char *call;
        int reason;
    } rows[] = {{"open", ESTALE}, {"read", ESTALE}, {"read", EINTR}};
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        begin();
        struct cache_key key = cache_case_key("new", CASE_MAKER);
        cache_case_put(one.cache, &key, payload, sizeof payload);
        inject(rows[i].call, rows[i].reason, 0, 1);
        ck_assert(hits(&key));
        ck_assert_int_eq(one.log.lines, 0);
        cache_key_free(&key);
        inject(NULL, 0, 0, 0);
        cache_case_end(&one);
    }
}
END_TEST

// ---- locks --------------------------------------------------------------------------------------------------------

START_TEST(locks_that_do_not_work) {
    static const int reasons[] = {ENOLCK, ENOSYS, EIO, ESTALE};
    for (size_t i = 0; i < ARRAY_LENGTH(reasons); i++) {
        begin();
        struct cache_key key = cache_case_key("new", CASE_MAKER);
        inject("flock", reasons[i], 0, 1000);
        ck_assert_int_eq(cache_lock(one.cache, &key, 60000), -1);  // at once
        inject(NULL, 0, 0, 0);
        ck_assert_int_eq(one.log.lines, 0);
        cache_key_free(&key);
        cache_case_end(&one);
    }
}
END_TEST

// Two hosts on one directory: no lock reaches the other, and both have a process of the same number.
START_TEST(two_hosts) {
    enum { HOSTS = 2, KERNELS = 40 };
    begin();
    same_process_id = true;
    inject("flock", ENOLCK, 0, 1 << 30);
    pid_t hosts[HOSTS];
    for (int h = 0; h < HOSTS; h++) {
        hosts[h] = fork();
        if (hosts[h]) continue;
        for (int round = 0; round < 5; round++) {
            for (int k = 0; k < KERNELS; k++) {
                char source[32];
                snprintf(source, sizeof source, "kernel %d", k);
                struct cache_key key = cache_case_key(source, CASE_MAKER);
                const int lock = cache_lock(one.cache, &key, 60000);
                if (!hits(&key) || round % 2) cache_case_put(one.cache, &key, payload, sizeof payload);
                cache_unlock(lock);
                if (!hits(&key)) _exit(100);
                cache_key_free(&key);
            }
        }
        _exit(one.log.lines);
    }
    for (int h = 0; h < HOSTS; h++) {
        int result;
        ck_assert_int_eq(waitpid(hosts[h], &result, 0), hosts[h]);
        ck_assert_int_eq(result, 0);
    }
    same_process_id = false;
    inject(NULL, 0, 0, 0);
    ck_assert_int_eq(count_temporaries(), 0);
    cache_case_end(&one);
}
END_TEST

UNIT_MAIN("cache_io", writes_that_fail, writes_that_are_interrupted_or_short, a_rename_whose_answer_was_lost,
          a_folder_that_cannot_be_made, reads_that_fail, reads_that_work_the_second_time, locks_that_do_not_work,
          two_hosts)
