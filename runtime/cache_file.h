// cache_file.h - what cache.c and cache_folder.c share: the folders of a cache, and an entry's file.
#ifndef VF_CACHE_FILE_H
#define VF_CACHE_FILE_H

#include <stdatomic.h>

#include "cache.h"

#define CACHE_SUFFIX ".vfk"

struct cache {
    char *folder;  // null: none
    char *system;
    uint64_t limit;    // bytes, for cache_prune_daily
    char reason[512];  // why there is no folder, else ""
    const struct logger *logger;
    atomic_flag write_failed;   // the one warning about it was given
    atomic_uint_fast64_t told;  // start of the name of the last entry that a line was written about
};

// "NAME-13000.vfk" of an entry; the name and maker back, false for what is no entry's name.
#define CACHE_FILE_NAME (HASH_TEXT_SIZE + 16)
void cache_file_name(const char *name, int maker, char file[CACHE_FILE_NAME]);
bool cache_file_parse(const char *file, char name[HASH_TEXT_SIZE], int *maker);

// Reads folder/file if it can be trusted. Null, or what is wrong with it: "" if it is not there. `key` null: any entry
// of that name. Ends what it filled in `entry` itself if there is a fault.
const char *cache_file_read(const char *folder, bool system, const char *file, const struct cache_key *key,
                            struct cache_entry *entry);

#endif
