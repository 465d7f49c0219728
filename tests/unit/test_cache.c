// test_cache.c - the kernel cache of one process: damage of every kind is a miss, folders that cannot serve are worked
// around.
#include "cache.h"

#include <dirent.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "status.h"
#include "unit.h"

#define IDENTITY "arch=sm_90a options=-x"
#define MAKER 13000
#define NOBODY 65534

static char folder[UNIT_PATH_SIZE], entry_path[2 * UNIT_PATH_SIZE];
static const struct environment nothing;
static struct unit_log log_lines;
static struct logger logger;
static struct cache *cache;
static struct cache_key key;

static struct cache_key make_key(const char *source) {
    struct cache_key made;
    unit_ok(cache_key_make(source, strlen(source), IDENTITY, &made));
    made.maker = MAKER;
    return made;
}

static void put(struct cache *target, const struct cache_key *name, const char *meta, const char *payload,
                size_t size) {
    struct cache_entry entry = {{0}, {0}};
    buf_text(&entry.meta, meta);
    buf_append(&entry.payload, payload, size);
    cache_put(target, name, &entry);
    cache_entry_free(&entry);
}

// Opens a cache on `path` with log lines counted from 0.
static struct cache *open_on(const char *path) {
    struct cache *opened;
    logger = unit_logger(&log_lines);
    unit_ok(cache_open(path, &nothing, &logger, &opened));
    return opened;
}

// A cache on a fresh folder with one entry of 700 bytes, at entry_path.
static void set_up(void) {
    char payload[700];
    for (size_t i = 0; i < sizeof payload; i++) payload[i] = (char)(i * 11);
    unit_make_folder(folder);
    cache = open_on(folder);
    key = make_key("source");
    put(cache, &key, "form=cubin\n", payload, sizeof payload);
    snprintf(entry_path, sizeof entry_path, "%s/%s-%d.vfk", folder, key.name, MAKER);
    ck_assert_int_eq(log_lines.lines, 0);
}

static void tear_down(void) {
    cache_close(cache);
    cache_key_free(&key);
    unit_remove_folder(folder);
}

static bool hits(const struct cache_key *name) {
    struct cache_entry entry;
    bool hit = cache_get(cache, name, &entry);
    if (hit) {
        ck_assert_str_eq(buf_string(&entry.meta), "form=cubin\n");
        ck_assert_uint_eq(entry.payload.size, 700);
        for (size_t i = 0; i < 700; i++) ck_assert_int_eq(entry.payload.data[i], (char)(i * 11));
    }
    cache_entry_free(&entry);
    return hit;
}

// The entry is a miss with one line, however often it is looked at, that contains `words`.
static void expect_miss(const char *words) {
    cache_close(cache);
    cache = open_on(folder);
    ck_assert(!hits(&key));
    ck_assert(!hits(&key));
    ck_assert_int_eq(log_lines.lines, 1);
    ck_assert_msg(strstr(log_lines.last, words) != NULL, "'%s' does not contain '%s'", log_lines.last, words);
    ck_assert_ptr_nonnull(strstr(log_lines.last, key.name));
}

// Entries and temporaries; the stamp of the last pruning is none.
static int count_files(void) {
    DIR *list = opendir(folder);
    ck_assert_ptr_nonnull(list);
    int count = 0;
    for (const struct dirent *entry; (entry = readdir(list));) count += strstr(entry->d_name, ".vfk") != NULL;
    closedir(list);
    return count;
}

// ---- hits and keys ------------------------------------------------------------------------------------------------

START_TEST(stores_and_finds) {
    set_up();
    ck_assert(hits(&key));
    ck_assert_int_eq(count_files(), 1);
    struct stat facts;
    ck_assert_int_eq(stat(entry_path, &facts), 0);
    ck_assert_uint_eq(facts.st_mode & 0777, 0600);
    struct cache_key other = make_key("other source");
    ck_assert(!hits(&other));
    ck_assert_int_eq(log_lines.lines, 0);  // a plain miss is no news
    ck_assert_str_eq(cache_folder(cache, NULL), folder);
    cache_key_free(&other);
    tear_down();
}
END_TEST

START_TEST(empty_parts) {
    set_up();
    struct cache_key empty = make_key("");
    struct cache_entry entry;
    put(cache, &empty, "", "", 0);
    ck_assert(cache_get(cache, &empty, &entry));
    ck_assert_uint_eq(entry.payload.size + entry.meta.size, 0);
    cache_entry_free(&entry);
    cache_key_free(&empty);
    tear_down();
}
END_TEST

START_TEST(keys_depend_on_everything) {
    struct cache_key a = make_key("source"), b = make_key("source"), c = make_key("sourcf"), d;
    unit_ok(cache_key_make("source", 6, "arch=sm_90 options=-x", &d));
    ck_assert_str_eq(a.name, b.name);
    ck_assert_str_ne(a.name, c.name);
    ck_assert_str_ne(a.name, d.name);
    ck_assert_uint_eq(strlen(a.name), 64);
    ck_assert_ptr_nonnull(strstr(a.echo.data, IDENTITY));
    cache_key_free(&a);
    cache_key_free(&b);
    cache_key_free(&c);
    cache_key_free(&d);
}
END_TEST

// ---- damage -------------------------------------------------------------------------------------------------------

static struct buf read_entry_file(void) {
    struct buf bytes = {0};
    unit_ok(fs_read(entry_path, &bytes));
    return bytes;
}

START_TEST(truncated_anywhere) {
    set_up();
    struct buf whole = read_entry_file();
    for (size_t size = 0; size < whole.size; size += 64) {
        unit_write_file(entry_path, whole.data, size);
        expect_miss("truncated");
    }
    unit_write_file(entry_path, whole.data, whole.size - 1);
    expect_miss("truncated");
    buf_text(&whole, "x");
    unit_write_file(entry_path, whole.data, whole.size);
    expect_miss("truncated");
    unit_write_file(entry_path, whole.data, whole.size - 1);
    ck_assert(hits(&key));
    buf_free(&whole);
    tear_down();
}
END_TEST

START_TEST(one_bit_flipped) {
    set_up();
    struct buf whole = read_entry_file();
    for (size_t bit = 0; bit < 8 * whole.size; bit += bit < 256 ? 1 : 37) {  // every bit of the header
        const char flipped = (char)(1 << bit % 8);
        whole.data[bit / 8] = (char)(whole.data[bit / 8] ^ flipped);
        unit_write_file(entry_path, whole.data, whole.size);
        expect_miss("; not used");
        whole.data[bit / 8] = (char)(whole.data[bit / 8] ^ flipped);
    }
    unit_write_file(entry_path, whole.data, whole.size);
    ck_assert(hits(&key));
    buf_free(&whole);
    tear_down();
}
END_TEST

START_TEST(damage_is_mended_by_the_next_write) {
    set_up();
    unit_write_text(entry_path, "varflash");
    expect_miss("truncated");
    char payload[700];
    for (size_t i = 0; i < sizeof payload; i++) payload[i] = (char)(i * 11);
    put(cache, &key, "form=cubin\n", payload, sizeof payload);
    ck_assert(hits(&key));
    unit_write_text(entry_path, "varflash");
    ck_assert(!hits(&key));
    ck_assert_int_eq(log_lines.lines, 2);  // damaged anew: a line of its own
    tear_down();
}
END_TEST

// Of another text, of another architecture, with other options.
START_TEST(another_kernels_entry) {
    static const char *const others[][2] = {
        {"other", IDENTITY}, {"source", "arch=sm_80 options=-x"}, {"source", "arch=sm_90a options=-y"}};
    for (size_t i = 0; i < ARRAY_LENGTH(others); i++) {
        set_up();
        char other_path[2 * UNIT_PATH_SIZE];
        struct cache_key other;
        unit_ok(cache_key_make(others[i][0], strlen(others[i][0]), others[i][1], &other));
        other.maker = MAKER;
        snprintf(other_path, sizeof other_path, "%s/%s-%d.vfk", folder, other.name, MAKER);
        put(cache, &other, "form=cubin\n", "x", 1);
        ck_assert_int_eq(rename(other_path, entry_path), 0);
        expect_miss("belongs to another kernel");
        cache_key_free(&other);
        tear_down();
    }
}
END_TEST

START_TEST(what_is_no_entry) {
    set_up();
    char noise[400];
    memset(noise, 'x', sizeof noise);
    unit_write_file(entry_path, noise, sizeof noise);
    expect_miss("is no cache entry");
    ck_assert_int_eq(unlink(entry_path), 0);
    ck_assert_int_eq(mkdir(entry_path, 0700), 0);
    expect_miss("is not a file");
    ck_assert_int_eq(rmdir(entry_path), 0);
    ck_assert_int_eq(mkfifo(entry_path, 0600), 0);
    expect_miss("is not a file");
    ck_assert_int_eq(unlink(entry_path), 0);
    ck_assert_int_eq(symlink("/etc/passwd", entry_path), 0);
    expect_miss("symbolic links");
    tear_down();
}
END_TEST

START_TEST(foreign_files) {
    set_up();
    ck_assert_int_eq(chmod(entry_path, 0620), 0);
    expect_miss("can be written by others");
    ck_assert_int_eq(chmod(entry_path, 0602), 0);
    expect_miss("can be written by others");
    ck_assert_int_eq(chmod(entry_path, 0600), 0);
    ck_assert(hits(&key));
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(entry_path, NOBODY, NOBODY), 0);
        expect_miss("belongs to another user");
    } else {
        unit_skip("entry of another user: needs root");
    }
    tear_down();
}
END_TEST

// ---- folders ------------------------------------------------------------------------------------------------------

static void expect_folder(const char *given, struct environment environment, const char *expected) {
    struct cache *opened;
    logger = unit_logger(&log_lines);
    unit_ok(cache_open(given, &environment, &logger, &opened));
    const char *reason = NULL, *found = cache_folder(opened, &reason);
    if (expected) {
        ck_assert_str_eq(found, expected);
        ck_assert_str_eq(reason, "");
        ck_assert_int_eq(log_lines.lines, 0);
    } else {
        ck_assert_ptr_null(found);
        ck_assert_ptr_nonnull(strstr(reason, "HOME is set"));
        ck_assert_int_eq(log_lines.lines, 1);
    }
    cache_close(opened);
}

#define TEXT(value) ((char[]){value})

START_TEST(order_of_folders) {
    struct environment all = {
        .cache_dir = TEXT("/nowhere/dir"), .xdg_cache_home = TEXT("/nowhere/xdg"), .home = TEXT("/nowhere/home")};
    expect_folder("/nowhere/given", all, "/nowhere/given");
    expect_folder(NULL, all, "/nowhere/dir");
    all.cache_dir = NULL;
    expect_folder(NULL, all, "/nowhere/xdg/varflash");
    all.xdg_cache_home = TEXT("relative");
    expect_folder(NULL, all, "/nowhere/home/.cache/varflash");
    all.home = TEXT("relative");
    expect_folder(NULL, all, NULL);
    all.home = NULL;
    expect_folder(NULL, all, NULL);
}
END_TEST

// A cache on `path` never has a folder, says why once, and does nothing.
static void expect_refused(const char *path, const char *words) {
    struct cache *refused = open_on(path);
    const char *reason;
    ck_assert_ptr_null(cache_folder(refused, &reason));
    ck_assert_msg(strstr(reason, words) != NULL, "'%s' does not contain '%s'", reason, words);
    struct cache_key name = make_key("x");
    struct cache_entry entry;
    put(refused, &name, "", "x", 1);
    ck_assert(!cache_get(refused, &name, &entry));
    ck_assert_int_eq(cache_lock(refused, &name, 0), -1);
    ck_assert_int_eq(log_lines.lines, 1);
    cache_key_free(&name);
    cache_close(refused);
}

START_TEST(folders_that_are_refused) {
    char path[2 * UNIT_PATH_SIZE];
    unit_make_folder(folder);
    ck_assert_int_eq(chmod(folder, 0777), 0);
    expect_refused(folder, "everyone may write");
    ck_assert_int_eq(chmod(folder, 0700), 0);
    snprintf(path, sizeof path, "%s/file", folder);
    unit_write_text(path, "");
    expect_refused(path, "not a folder");
    snprintf(path, sizeof path, "%s/file/below", folder);
    expect_refused(path, "Not a directory");
    unit_remove_folder(folder);
}
END_TEST

// A folder that reads as empty but takes no entry: one line, however many kernels; the sentence of the thread stays.
static void expect_unwritable(const char *path, const char *words) {
    struct cache *opened = open_on(path);
    struct cache_key name = make_key("x");
    struct cache_entry entry;
    static char payload[4096];
    status_fail(VF_ERROR_IO, "an earlier failure");
    for (int i = 0; i < 3; i++) {
        put(opened, &name, "", payload, sizeof payload);
        ck_assert(!cache_get(opened, &name, &entry));
    }
    ck_assert_int_eq(log_lines.lines, 1);
    ck_assert_msg(strstr(log_lines.last, words) != NULL, "'%s' does not contain '%s'", log_lines.last, words);
    ck_assert_str_eq(vf_last_error(), "an earlier failure");
    cache_key_free(&name);
    cache_close(opened);
}

START_TEST(folder_cannot_be_made) {
    expect_unwritable("/proc/varflash", "cannot write to /proc/varflash");
}
END_TEST

START_TEST(folder_is_read_only) {
    unit_make_folder(folder);
    ck_assert_int_eq(chmod(folder, 0555), 0);
    pid_t child = fork();  // root may write anywhere, so as somebody else
    if (!child) {
        if (geteuid() == 0 && setuid(NOBODY)) _exit(2);
        expect_unwritable(folder, "Permission denied");
        _exit(0);
    }
    int result;
    ck_assert_int_eq(waitpid(child, &result, 0), child);
    ck_assert_int_eq(result, 0);
    ck_assert_int_eq(chmod(folder, 0700), 0);
    unit_remove_folder(folder);
}
END_TEST

START_TEST(disk_is_full) {
    unit_make_folder(folder);
    if (mount("none", folder, "tmpfs", 0, "size=4k,mode=0700")) {
        // A limit on the size of files stands in for it.
        unit_skip("full disk: cannot mount a tmpfs here; with a limit on file size instead");
        struct rlimit old, small;
        ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
        small = (struct rlimit){1024, old.rlim_max};
        signal(SIGXFSZ, SIG_IGN);
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
        expect_unwritable(folder, "File too large");
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
    } else {
        expect_unwritable(folder, "No space left");
        ck_assert_int_eq(umount(folder), 0);
    }
    ck_assert_int_eq(count_files(), 0);  // no temporary is left behind
    unit_remove_folder(folder);
}
END_TEST

START_TEST(folder_vanishes) {
    set_up();
    unit_remove_folder(folder);
    ck_assert(!hits(&key));
    ck_assert_int_eq(log_lines.lines, 0);
    put(cache, &key, "", "x", 1);  // makes it again
    ck_assert_int_eq(count_files(), 1);
    tear_down();
}
END_TEST

UNIT_MAIN("cache", stores_and_finds, empty_parts, keys_depend_on_everything, truncated_anywhere, one_bit_flipped,
          damage_is_mended_by_the_next_write, another_kernels_entry, what_is_no_entry, foreign_files, order_of_folders,
          folders_that_are_refused, folder_cannot_be_made, folder_is_read_only, disk_is_full, folder_vanishes)
