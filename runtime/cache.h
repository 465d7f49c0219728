// cache.h - compiled kernels on disk: one immutable file an entry, written by rename, verified on every read.
//
// Two folders: the system's, which is only read, and the user's. Nothing in here is ever fatal: what cannot be read is
// a miss, what cannot be written is not written, each with one log line. It does not know what it stores. Protocol and
// format: the essay in cache.c. Looking after a folder (list, verify, prune): cache_folder.c.
#ifndef VF_CACHE_H
#define VF_CACHE_H

#include "base.h"
#include "buf.h"
#include "fs.h"
#include "hash.h"
#include "log.h"
#include "varflash/varflash.h"

struct cache;

// The user's folder: `folder` (from vf_options), else VARFLASH_CACHE_DIR, else $XDG_CACHE_HOME/varflash, else
// $HOME/.cache/varflash, else none: then every write is nothing. The system's: VARFLASH_SYSTEM_CACHE, else
// /var/cache/varflash; none where that is not there or not trusted. Fails only with VF_ERROR_OUT_OF_MEMORY. `logger`
// must outlive the cache.
vf_status cache_open(const char *folder, const struct environment *environment, const struct logger *logger,
                     struct cache **cache);
void cache_close(struct cache *cache);  // null is ignored

// The folder in use, or null; then *reason (if `reason` is given) is one sentence why, else "". Both live as long as
// the cache.
const char *cache_folder(const struct cache *cache, const char **reason);
const char *cache_system_folder(const struct cache *cache);  // null: none

// What names an entry. `echo` is everything that decides its payload but for the maker's version, as text; the name is
// its digest. No path, user or host name.
struct cache_key {
    char name[HASH_TEXT_SIZE];
    struct buf echo;
    int maker;   // version of what makes the payload: 13000. 0: not known; then nothing can be put, and a read takes
    int newest;  // the newest that is there, up to this one
};

// The key of source text compiled as `identity` (compile_identity) says. The caller sets maker or newest, and ends it
// with cache_key_free.
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

// ---- looking after a folder ----------------------------------------------------------------------------------------

// An entry as it lies there. `fault` null: sound. Texts live until the callback returns.
struct cache_item {
    const char *folder, *file;
    bool system;
    uint64_t bytes;
    int64_t used;  // seconds since 1970: written, or read last (to a day)
    int maker;
    const char *meta, *fault;  // meta "" where there is a fault
};
typedef void (*cache_visitor)(const struct cache_item *item, void *user);

// Every entry of both folders, read and verified, by name.
vf_status cache_visit(struct cache *cache, cache_visitor visit, void *user);

struct cache_limits {
    uint64_t bytes;   // that all entries may take; the longest unused go first. UINT64_MAX: any
    int64_t seconds;  // that an entry may be unused. INT64_MAX: any
};
struct cache_removed {
    size_t entries, temporaries;  // temporaries: left behind by killed processes
    uint64_t bytes, kept_bytes;
    size_t kept;
};

// Removes entries of the user's folder that exceed the limits, and temporaries that nobody can be writing any more.
// Limits of 0 remove every entry. VF_ERROR_IO if the folder cannot be read.
vf_status cache_prune(struct cache *cache, const struct cache_limits *limits, struct cache_removed *removed);

// What cache_put does by itself, at most once a day: limits of VARFLASH_CACHE_SIZE megabytes (1024; 0: any) and 90 days.
void cache_prune_daily(struct cache *cache);

#endif
