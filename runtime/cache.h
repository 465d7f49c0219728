// cache.h - compiled kernels on disk: one immutable file an entry, written by rename, verified on every read.
//
// Nothing in here is ever fatal: what cannot be read is a miss, what cannot be written is not written, each with one
// log line. It does not know what it stores. Protocol and format: the essay in cache.c.
#ifndef VF_CACHE_H
#define VF_CACHE_H

#include "base.h"
#include "buf.h"
#include "fs.h"
#include "hash.h"
#include "log.h"
#include "varflash/varflash.h"

struct cache;

// `folder` (from vf_options), else VARFLASH_CACHE_DIR, else $XDG_CACHE_HOME/varflash, else $HOME/.cache/varflash, else
// no folder: then every read is a miss and every write is nothing. Fails only with VF_ERROR_OUT_OF_MEMORY. `logger`
// must outlive the cache.
vf_status cache_open(const char *folder, const struct environment *environment, const struct logger *logger,
                     struct cache **cache);
void cache_close(struct cache *cache);  // null is ignored

// The folder in use, or null; then *reason (if `reason` is given) is one sentence why, else "". Both live as long as
// the cache.
const char *cache_folder(const struct cache *cache, const char **reason);

// What names an entry. `echo` is everything that decides its payload as text; the name is its digest. No path, user or
// host name.
struct cache_key {
    char name[HASH_TEXT_SIZE];
    struct buf echo;
};

// The key of source text compiled as `identity` (compile_identity) says. The caller ends it with cache_key_free.
vf_status cache_key_make(const char *source, size_t source_size, const char *identity, struct cache_key *key);
void cache_key_free(struct cache_key *key);

struct cache_entry {
    struct buf meta;     // text
    struct buf payload;  // bytes
};

// True on a hit. Whatever else: false, and `entry` is empty. The caller ends a hit with cache_entry_free.
bool cache_get(struct cache *cache, const struct cache_key *key, struct cache_entry *entry);
void cache_entry_free(struct cache_entry *entry);

void cache_put(struct cache *cache, const struct cache_key *key, const struct cache_entry *entry);

// Held while one process compiles what others want as well. Advisory: after `limit_ms`, or where locks do not work, the
// caller goes on without it. Look again with cache_get when it is taken. Returns a handle for cache_unlock, -1 without
// a lock.
int cache_lock(struct cache *cache, const struct cache_key *key, int limit_ms);
void cache_unlock(int lock);

#endif
