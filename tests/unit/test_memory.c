// test_memory.c - memory that ends at the n-th allocation, for every n: opening, planning, generating, caching each
// fail with VF_ERROR_OUT_OF_MEMORY or do without, and work again afterwards.
#include "cache.h"
#include "fs.h"
#include "source.h"
#include "starved.h"
#include "unit.h"

static struct source *source;
static struct cache *cache;
static struct cache_key key;
static char folder[UNIT_PATH_SIZE];
static struct environment environment;

static vf_status open_and_close(void) {
    struct source *opened;
    vf_status status = source_open(NULL, &opened);
    if (!status) source_close(opened);
    return status;
}

static vf_status plan(void) {
    struct source_plan made;
    return source_plan(source, "pass=check arch=sm_90a", &made);
}

static vf_status refused_plan(void) {
    struct source_plan made;
    vf_status status = source_plan(source, "pass=check", &made);
    return status == VF_ERROR_UNSUPPORTED ? VF_OK : status;
}

static vf_status text(void) {
    struct buf made = {0};
    vf_status status = source_text(source, "kernel=check_lengths arch=sm_90a", &made);
    buf_free(&made);
    return status;
}

static vf_status read_environment(void) {
    struct environment read;
    vf_status status = environment_read(&read);
    if (!status) environment_free(&read);
    return status;
}

static vf_status open_cache(void) {
    struct cache *opened;
    vf_status status = cache_open(folder, &environment, NULL, &opened);
    if (!status) cache_close(opened);
    return status;
}

static vf_status make_key(void) {
    struct cache_key made;
    vf_status status = cache_key_make("x", 1, "identity", &made);
    cache_key_free(&made);
    return status;
}

// A cache without memory stores and finds nothing; that is no failure.
static vf_status use_cache(void) {
    struct cache_entry entry;
    cache_put(cache, &key, &(struct cache_entry){.payload = {.data = folder, .size = 5}});
    bool right = !cache_get(cache, &key, &entry) || entry.payload.size == 5;
    cache_entry_free(&entry);
    return right ? VF_OK : VF_ERROR_INTERNAL;
}

// Runs `step` with memory that ends after 0, 1, 2 ... allocations, until there is enough.
static void starve(vf_status (*step)(void)) {
    for (long n = 1; n < 100000; n += 1 + n / 50) {
        starved_left = n;
        vf_status status = step();
        bool enough = starved_left > 0;
        starved_left = -1;
        ck_assert_msg(!status || status == VF_ERROR_OUT_OF_MEMORY, "%ld: %s", n, vf_last_error());
        if (enough) {
            ck_assert_int_eq(status, VF_OK);
            return;
        }
    }
    ck_abort_msg("needs more than 100000 allocations");
}

START_TEST(memory_ends_anywhere) {
    if (!STARVED) {
        unit_skip("memory that ends: not under a sanitizer");
        return;
    }
    setenv("VARFLASH_JIT", "off", 1);
    unit_make_folder(folder);
    unit_ok(source_open(NULL, &source));
    unit_ok(cache_open(folder, &environment, NULL, &cache));
    unit_ok(cache_key_make("x", 1, "identity", &key));
    key.maker = 13000;
    static vf_status (*const steps[])(void) = {open_and_close,   plan,       refused_plan, text,
                                               read_environment, open_cache, make_key,     use_cache};
    for (size_t i = 0; i < ARRAY_LENGTH(steps); i++) {
        starve(steps[i]);
        unit_ok(steps[i]());
    }
    cache_key_free(&key);
    cache_close(cache);
    source_close(source);
    unit_remove_folder(folder);
}
END_TEST

UNIT_MAIN("memory", memory_ends_anywhere)
