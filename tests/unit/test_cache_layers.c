// test_cache_layers.c - the cache's two folders, entries of several compilers, pruning.
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include "cache_case.h"

#define DAY 86400
#define NOBODY 65534

static struct cache_case one;

static bool hits(const struct cache_key *key, const char *payload) {
    return cache_case_hits(one.cache, key, payload, strlen(payload));
}

static void put(const struct cache_key *key, const char *payload) {
    cache_case_put(one.cache, key, payload, strlen(payload));
}

static void path_of(const struct cache_key *key, char path[2 * UNIT_PATH_SIZE]) {
    snprintf(path, 2 * UNIT_PATH_SIZE, "%s/%s-%d.vfk", one.folder, key->name, key->maker);
}

// ---- compilers ----------------------------------------------------------------------------------------------------

START_TEST(each_compiler_has_entries_of_its_own) {
    cache_case_begin(&one);
    struct cache_key older = cache_case_key("source", 12080), newer = cache_case_key("source", 13000);
    put(&older, "older");
    ck_assert(!hits(&newer, ""));
    put(&newer, "newer");
    ck_assert(hits(&older, "older"));
    ck_assert(hits(&newer, "newer"));
    ck_assert_int_eq(one.log.lines, 0);
    // An entry under another compiler's name is not taken.
    char from[2 * UNIT_PATH_SIZE], to[2 * UNIT_PATH_SIZE];
    path_of(&older, from);
    path_of(&newer, to);
    ck_assert_int_eq(rename(from, to), 0);
    ck_assert(!hits(&newer, ""));
    ck_assert_ptr_nonnull(strstr(one.log.last, "another compiler"));
    cache_key_free(&older);
    cache_key_free(&newer);
    cache_case_end(&one);
}
END_TEST

START_TEST(without_a_compiler_the_newest_that_fits) {
    cache_case_begin(&one);
    static const int makers[] = {12040, 13000, 12080, 14010};
    static const char *const payloads[] = {"12.4", "13.0", "12.8", "14.1"};
    for (size_t i = 0; i < ARRAY_LENGTH(makers); i++) {
        struct cache_key key = cache_case_key("source", makers[i]);
        put(&key, payloads[i]);
        cache_key_free(&key);
    }
    struct cache_key any = cache_case_key("source", 0), other = cache_case_key("other", 0);
    any.newest = other.newest = INT32_MAX;
    ck_assert(hits(&any, "14.1"));
    ck_assert(!hits(&other, ""));
    any.newest = 13999;
    ck_assert(hits(&any, "13.0"));
    any.newest = 12999;
    ck_assert(hits(&any, "12.8"));
    any.newest = 11999;
    ck_assert(!hits(&any, ""));
    put(&any, "by whom?");  // cannot be put
    any.newest = 13999;
    // A damaged one is passed over for the next.
    struct cache_key newest = cache_case_key("source", 13000);
    char path[2 * UNIT_PATH_SIZE];
    path_of(&newest, path);
    unit_write_text(path, "varflash");
    ck_assert(hits(&any, "12.8"));
    ck_assert_int_eq(one.log.lines, 1);
    cache_key_free(&newest);
    cache_key_free(&any);
    cache_key_free(&other);
    cache_case_end(&one);
}
END_TEST

// ---- the system's folder ------------------------------------------------------------------------------------------

START_TEST(the_systems_folder_is_read_and_never_written) {
    static struct cache_case system;
    cache_case_begin(&system);
    cache_case_begin(&one);
    struct cache_key shared = cache_case_key("shared", CASE_MAKER), own = cache_case_key("own", CASE_MAKER);
    cache_case_put(system.cache, &shared, "from the system", 15);
    cache_close(one.cache);
    one.cache = cache_case_open(&one, one.folder, system.folder);
    ck_assert_str_eq(cache_system_folder(one.cache), system.folder);
    ck_assert(hits(&shared, "from the system"));
    put(&own, "own");
    ck_assert(!cache_case_hits(system.cache, &own, "", 0));
    ck_assert(hits(&own, "own"));
    // Pruning is the user's folder's alone.
    struct cache_removed removed;
    unit_ok(cache_prune(one.cache, &(struct cache_limits){0, 0}, &removed));
    ck_assert_uint_eq(removed.entries, 1);
    ck_assert(hits(&shared, "from the system"));
    ck_assert(!hits(&own, ""));
    // Damage there is worked around in the user's folder.
    char path[2 * UNIT_PATH_SIZE];
    snprintf(path, sizeof path, "%s/%s-%d.vfk", system.folder, shared.name, CASE_MAKER);
    unit_write_text(path, "varflash");
    ck_assert(!hits(&shared, ""));
    put(&shared, "mended");
    ck_assert(hits(&shared, "mended"));
    cache_key_free(&shared);
    cache_key_free(&own);
    cache_case_end(&one);
    cache_case_end(&system);
}
END_TEST

START_TEST(a_system_folder_that_anyone_could_have_written) {
    static struct cache_case system;
    cache_case_begin(&system);
    cache_case_begin(&one);
    ck_assert_int_eq(chmod(system.folder, 0777), 0);
    struct cache *opened = cache_case_open(&one, one.folder, system.folder);
    ck_assert_ptr_null(cache_system_folder(opened));
    ck_assert_ptr_nonnull(strstr(one.log.last, "everyone may write"));
    cache_close(opened);
    ck_assert_int_eq(chmod(system.folder, 0755), 0);
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(system.folder, NOBODY, NOBODY), 0);
        opened = cache_case_open(&one, one.folder, system.folder);
        ck_assert_ptr_null(cache_system_folder(opened));
        ck_assert_ptr_nonnull(strstr(one.log.last, "another user"));
        cache_close(opened);
    } else {
        unit_skip("system cache of another user: needs root");
    }
    cache_case_end(&one);
    cache_case_end(&system);
}
END_TEST

// ---- pruning ------------------------------------------------------------------------------------------------------
// Five entries of about 1 KB, the first unused for 40 days, the next for 30, ...
static void fill(struct cache_key keys[5]) {
    static char payload[1000];
    for (int i = 0; i < 5; i++) {
        char source[2] = {(char)('a' + i), 0}, path[2 * UNIT_PATH_SIZE];
        keys[i] = cache_case_key(source, CASE_MAKER);
        cache_case_put(one.cache, &keys[i], payload, sizeof payload);
        path_of(&keys[i], path);
        const struct timespec used = {.tv_sec = time(NULL) - (40 - 10 * i) * DAY - 5};
        ck_assert_int_eq(utimensat(AT_FDCWD, path, (struct timespec[]){used, used}, 0), 0);
    }
}

static int count_hits(struct cache_key keys[5]) {
    static char payload[1000];
    int hits_of_all = 0;
    for (int i = 0; i < 5; i++) hits_of_all += cache_case_hits(one.cache, &keys[i], payload, sizeof payload);
    return hits_of_all;
}

START_TEST(prunes_by_age_and_size) {
    struct cache_key keys[5];
    struct cache_removed removed;
    cache_case_begin(&one);
    fill(keys);
    unit_ok(cache_prune(one.cache, &(struct cache_limits){UINT64_MAX, INT64_MAX}, &removed));
    ck_assert_uint_eq(removed.kept, 5);
    unit_ok(cache_prune(one.cache, &(struct cache_limits){UINT64_MAX, 25 * DAY}, &removed));
    ck_assert_uint_eq(removed.entries, 2);
    unit_ok(cache_prune(one.cache, &(struct cache_limits){removed.kept_bytes - 1, INT64_MAX}, &removed));
    ck_assert_uint_eq(removed.entries, 1);
    ck_assert_uint_eq(removed.kept, 2);
    ck_assert(!cache_case_hits(one.cache, &keys[2], "", 0));  // the longest unused went first
    ck_assert_int_eq(count_hits(keys), 2);
    unit_ok(cache_prune(one.cache, &(struct cache_limits){0, 0}, &removed));
    ck_assert_int_eq(count_hits(keys), 0);
    ck_assert_int_eq(one.log.lines, 0);
    for (int i = 0; i < 5; i++) cache_key_free(&keys[i]);
    cache_case_end(&one);
}
END_TEST

START_TEST(use_keeps_an_entry) {
    struct cache_key keys[5];
    struct cache_removed removed;
    cache_case_begin(&one);
    fill(keys);
    ck_assert_int_eq(count_hits(keys), 5);  // all used now
    unit_ok(cache_prune(one.cache, &(struct cache_limits){UINT64_MAX, 5 * DAY}, &removed));
    ck_assert_uint_eq(removed.entries, 0);
    for (int i = 0; i < 5; i++) cache_key_free(&keys[i]);
    cache_case_end(&one);
}
END_TEST

static void make_old(const char *name, int days) {
    char path[2 * UNIT_PATH_SIZE];
    snprintf(path, sizeof path, "%s/%s", one.folder, name);
    unit_write_text(path, "");
    const struct timespec old = {.tv_sec = time(NULL) - (time_t)days * DAY};
    ck_assert_int_eq(utimensat(AT_FDCWD, path, (struct timespec[]){old, old}, 0), 0);
}

static bool exists(const char *name) {
    char path[2 * UNIT_PATH_SIZE];
    snprintf(path, sizeof path, "%s/%s", one.folder, name);
    return !access(path, F_OK);
}

START_TEST(once_a_day_by_itself) {
    struct cache_key keys[5], late = cache_case_key("late", CASE_MAKER), later = cache_case_key("later", CASE_MAKER);
    cache_case_begin(&one);
    fill(keys);  // its first put took today's turn
    make_old(".abc.vfk.1-2-3.tmp", 1);
    make_old("lock.07", 400);
    make_old("notes.txt", 400);
    char path[2 * UNIT_PATH_SIZE];
    path_of(&keys[0], path);
    const struct timespec old = {.tv_sec = time(NULL) - 100 * DAY};
    ck_assert_int_eq(utimensat(AT_FDCWD, path, (struct timespec[]){old, old}, 0), 0);
    put(&late, "late");
    ck_assert(exists(".abc.vfk.1-2-3.tmp"));
    make_old("pruned", 2);  // the stamp
    put(&later, "later");
    ck_assert(!exists(".abc.vfk.1-2-3.tmp"));
    ck_assert(exists("lock.07") && exists("notes.txt"));  // never removed; not ours
    ck_assert_int_eq(access(path, F_OK), -1);
    ck_assert_int_eq(count_hits(keys), 4);
    for (int i = 0; i < 5; i++) cache_key_free(&keys[i]);
    cache_key_free(&late);
    cache_key_free(&later);
    cache_case_end(&one);
}
END_TEST

// ---- looking ------------------------------------------------------------------------------------------------------

static void count_items(const struct cache_item *item, void *user) {
    int *counts = user;
    counts[item->fault != NULL]++;
    if (!item->fault) ck_assert_str_eq(item->meta, "spec=test\n");
    ck_assert_int_eq(item->maker, CASE_MAKER);
}

START_TEST(visits_every_entry) {
    struct cache_key keys[5];
    int counts[2] = {0, 0};
    char path[2 * UNIT_PATH_SIZE];
    cache_case_begin(&one);
    fill(keys);
    path_of(&keys[3], path);
    unit_write_text(path, "varflash");
    make_old("notes.vfk", 0);
    unit_ok(cache_visit(one.cache, count_items, counts));
    ck_assert_int_eq(counts[0], 4);
    ck_assert_int_eq(counts[1], 1);
    for (int i = 0; i < 5; i++) cache_key_free(&keys[i]);
    cache_case_end(&one);
}
END_TEST

UNIT_MAIN("cache_layers", each_compiler_has_entries_of_its_own, without_a_compiler_the_newest_that_fits,
          the_systems_folder_is_read_and_never_written, a_system_folder_that_anyone_could_have_written,
          prunes_by_age_and_size, use_keeps_an_entry, once_a_day_by_itself, visits_every_entry)
