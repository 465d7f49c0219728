// test_cache_race.c - the kernel cache between processes: the lock, racing for the same kernels, writers that are
// killed.
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "cache.h"
#include "unit.h"

static char folder[UNIT_PATH_SIZE];
static struct unit_log log_lines;
static struct logger logger;
static struct cache *cache;
static struct cache_key key;

static struct cache_key make_key(const char *source) {
    struct cache_key made;
    unit_ok(cache_key_make(source, strlen(source), "arch=sm_90a options=-x", &made));
    made.maker = 13000;
    return made;
}

static void put(const struct cache_key *name, const char *payload, size_t size) {
    struct cache_entry entry = {{0}, {0}};
    buf_append(&entry.payload, payload, size);
    cache_put(cache, name, &entry);
    cache_entry_free(&entry);
}

static void set_up(void) {
    static const struct environment nothing;
    unit_make_folder(folder);
    logger = unit_logger(&log_lines);
    unit_ok(cache_open(folder, &nothing, &logger, &cache));
    key = make_key("source");
}

static void tear_down(void) {
    cache_close(cache);
    cache_key_free(&key);
    unit_remove_folder(folder);
}

static long milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void rest(long ms) {
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

START_TEST(lock_excludes_waits_and_gives_up) {
    set_up();
    int lock = cache_lock(cache, &key, 0);
    ck_assert_int_ge(lock, 0);
    long start = milliseconds();
    ck_assert_int_eq(cache_lock(cache, &key, 50), -1);
    ck_assert_int_ge(milliseconds() - start, 45);
    cache_unlock(lock);
    lock = cache_lock(cache, &key, 0);
    ck_assert_int_ge(lock, 0);
    cache_unlock(lock);
    cache_unlock(-1);
    tear_down();
}
END_TEST

START_TEST(lock_of_a_killed_process_is_free) {
    set_up();
    int ready[2];
    ck_assert_int_eq(pipe(ready), 0);
    pid_t child = fork();
    if (!child) {
        if (cache_lock(cache, &key, 0) < 0 || write(ready[1], "x", 1) != 1) _exit(1);
        pause();
        _exit(0);
    }
    char byte;
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    ck_assert_int_eq(cache_lock(cache, &key, 0), -1);
    ck_assert_int_eq(kill(child, SIGKILL), 0);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    int lock = cache_lock(cache, &key, 1000);
    ck_assert_int_ge(lock, 0);
    cache_unlock(lock);
    close(ready[0]);
    close(ready[1]);
    tear_down();
}
END_TEST

#define RACERS 32
#define RACE_KERNELS 3
#define RACE_BYTES 20000

// What kernel.c does: look, lock, look again, compile, put. Adds a byte to `compiles` for each compile.
static void race_for(int kernel, int compiles) {
    char source[16], payload[RACE_BYTES];
    snprintf(source, sizeof source, "kernel %d", kernel);
    memset(payload, 'a' + kernel, sizeof payload);
    struct cache_key name = make_key(source);
    struct cache_entry entry;
    if (!cache_get(cache, &name, &entry)) {
        int lock = cache_lock(cache, &name, 20000);
        if (!cache_get(cache, &name, &entry)) {
            rest(20);  // compiling
            ck_assert_int_eq(write(compiles, "c", 1), 1);
            put(&name, payload, sizeof payload);
            ck_assert(cache_get(cache, &name, &entry));
        }
        cache_unlock(lock);
    }
    ck_assert_uint_eq(entry.payload.size, sizeof payload);
    ck_assert_mem_eq(entry.payload.data, payload, sizeof payload);
    cache_entry_free(&entry);
    cache_key_free(&name);
}

START_TEST(racing_processes) {
    set_up();
    int compiles[2];
    ck_assert_int_eq(pipe(compiles), 0);
    pid_t racers[RACERS];
    for (int i = 0; i < RACERS; i++) {
        racers[i] = fork();
        if (racers[i]) continue;
        for (int k = 0; k < RACE_KERNELS; k++) race_for((i + k) % RACE_KERNELS, compiles[1]);
        _exit(log_lines.lines);
    }
    for (int i = 0; i < RACERS; i++) {
        int result;
        ck_assert_int_eq(waitpid(racers[i], &result, 0), racers[i]);
        ck_assert_int_eq(result, 0);
    }
    char bytes[RACERS * RACE_KERNELS + 1];
    ck_assert_int_eq(read(compiles[0], bytes, sizeof bytes), RACE_KERNELS);
    close(compiles[0]);
    close(compiles[1]);
    tear_down();
}
END_TEST

// Writers are killed at random moments while readers look: nothing but whole entries is ever seen.
START_TEST(killed_writers) {
    set_up();
    char payload[RACE_BYTES];
    memset(payload, 'k', sizeof payload);
    struct cache_key name = make_key("killed");
    for (int round = 0; round < 60; round++) {
        pid_t writer = fork();
        if (!writer) {
            for (;;) put(&name, payload, sizeof payload);
        }
        rest(1 + round % 7);
        ck_assert_int_eq(kill(writer, SIGKILL), 0);
        struct cache_entry entry;
        if (cache_get(cache, &name, &entry)) {
            ck_assert_uint_eq(entry.payload.size, sizeof payload);
            ck_assert_mem_eq(entry.payload.data, payload, sizeof payload);
            cache_entry_free(&entry);
        }
        ck_assert_int_eq(waitpid(writer, NULL, 0), writer);
    }
    ck_assert_int_eq(log_lines.lines, 0);
    cache_key_free(&name);
    tear_down();
}
END_TEST

UNIT_MAIN("cache_race", lock_excludes_waits_and_gives_up, lock_of_a_killed_process_is_free, racing_processes,
          killed_writers)
