// cache_case.h - what the tests of the cache start from: a cache on a fresh folder, keys, entries.
#ifndef VF_CACHE_CASE_H
#define VF_CACHE_CASE_H

#include "cache.h"
#include "unit.h"

#define CASE_MAKER 13000

struct cache_case {
    char folder[UNIT_PATH_SIZE];
    struct unit_log log;
    struct logger logger;
    struct cache *cache;
};

static inline struct cache *cache_case_open(struct cache_case *cache_case, const char *folder, const char *system) {
    struct cache *cache;
    struct environment environment = {.system_cache = (char *)(uintptr_t)system};
    cache_case->logger = unit_logger(&cache_case->log);
    unit_ok(cache_open(folder, &environment, &cache_case->logger, &cache));
    return cache;
}

static inline void cache_case_begin(struct cache_case *cache_case) {
    unit_make_folder(cache_case->folder);
    cache_case->cache = cache_case_open(cache_case, cache_case->folder, "/nonexistent");
}

static inline void cache_case_end(struct cache_case *cache_case) {
    cache_close(cache_case->cache);
    unit_remove_folder(cache_case->folder);
}

static inline struct cache_key cache_case_key(const char *source, int maker) {
    struct cache_key key;
    unit_ok(cache_key_make(source, strlen(source), "arch=sm_90a options=-x", &key));
    key.maker = maker;
    return key;
}

static inline void cache_case_put(struct cache *cache, const struct cache_key *key, const char *payload, size_t size) {
    struct cache_entry entry = {{0}, {0}};
    buf_text(&entry.meta, "spec=test\n");
    buf_append(&entry.payload, payload, size);
    cache_put(cache, key, &entry);
    cache_entry_free(&entry);
}

// A hit with these bytes; anything else but a miss fails.
static inline bool cache_case_hits(struct cache *cache, const struct cache_key *key, const char *payload, size_t size) {
    struct cache_entry entry;
    if (!cache_get(cache, key, &entry)) return false;
    ck_assert_uint_eq(entry.payload.size, size);
    ck_assert_mem_eq(entry.payload.data, payload, size);
    cache_entry_free(&entry);
    return true;
}

#endif
