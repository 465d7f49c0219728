// cache_folder.c - looking after the folders of a cache: what is there, whether it is sound, what has to go.
//
// Not part of reading or writing an entry. Removing is safe at any time: a reader that has a file open keeps it, one
// that comes later has a miss. Lock files stay, because a lock that is removed while it is held excludes nobody.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cache.h"
#include "cache_file.h"
#include "status.h"

#define DAY 86400
#define UNUSED_DAYS 90
#define TEMPORARY_SECONDS 3600  // longer than anyone takes to write an entry
#define STAMP "pruned"          // its time of change: when the folder was pruned last

// ---- reading a folder ---------------------------------------------------------------------------------------------

struct found {
    char file[CACHE_FILE_NAME];
    uint64_t bytes;
    int64_t used;
};

struct listing {
    struct found *items;
    size_t count, temporaries;
    uint64_t bytes;
};

static bool is_temporary(const char *name) {
    const size_t length = strlen(name);
    return name[0] == '.' && length > 4 && !strcmp(name + length - 4, ".tmp") && strstr(name, CACHE_SUFFIX ".");
}

static vf_status add(struct listing *listing, const char *name, int maker, const struct stat *facts) {
    if ((listing->count & (listing->count - 1)) == 0) {  // full at every power of two
        const size_t room = listing->count ? 2 * listing->count : 1;
        struct found *items = realloc(listing->items, room * sizeof *items);
        VF_REQUIRE(items, VF_ERROR_OUT_OF_MEMORY, "out of memory while reading the kernel cache");
        listing->items = items;
    }
    struct found *item = &listing->items[listing->count++];
    cache_file_name(name, maker, item->file);
    item->bytes = (uint64_t)facts->st_size;
    item->used = facts->st_mtime;
    listing->bytes += item->bytes;
    return VF_OK;
}

// Entries of a folder; with `sweep`, old temporaries are removed on the way.
static vf_status read_folder(const char *folder, bool sweep, struct listing *listing) {
    char name[HASH_TEXT_SIZE];
    int maker;
    DIR *list = opendir(folder);
    if (!list && errno == ENOENT) return VF_OK;
    VF_REQUIRE(list, VF_ERROR_IO, "%s: cannot be read: %s", folder, strerror(errno));
    vf_status status = VF_OK;
    for (const struct dirent *entry; !status && (entry = readdir(list));) {
        struct stat facts;
        const bool temporary = sweep && is_temporary(entry->d_name);
        if (!temporary && !cache_file_parse(entry->d_name, name, &maker)) continue;
        if (fstatat(dirfd(list), entry->d_name, &facts, AT_SYMLINK_NOFOLLOW)) continue;  // gone meanwhile
        if (!temporary) {
            status = add(listing, name, maker, &facts);
        } else if (time(NULL) - facts.st_mtime > TEMPORARY_SECONDS) {
            listing->temporaries += !unlinkat(dirfd(list), entry->d_name, 0);
        }
    }
    closedir(list);
    return status;
}

// ---- looking ------------------------------------------------------------------------------------------------------

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct found *)a)->file, ((const struct found *)b)->file);
}

static vf_status visit_folder(const char *folder, bool system, cache_visitor visit, void *user) {
    struct listing listing = {.items = NULL};
    vf_status status = read_folder(folder, false, &listing);
    if (listing.count) qsort(listing.items, listing.count, sizeof *listing.items, by_name);
    for (size_t i = 0; !status && i < listing.count; i++) {
        const struct found *found = &listing.items[i];
        char name[HASH_TEXT_SIZE];
        struct cache_entry entry;
        struct cache_item item = {.folder = folder,
                                  .file = found->file,
                                  .system = system,
                                  .bytes = found->bytes,
                                  .used = found->used,
                                  .meta = ""};
        cache_file_parse(found->file, name, &item.maker);
        item.fault = cache_file_read(folder, system, found->file, NULL, &entry);
        if (!item.fault) item.meta = buf_string(&entry.meta);
        if (!item.fault || *item.fault) visit(&item, user);
        cache_entry_free(&entry);
    }
    free(listing.items);
    return status;
}

vf_status cache_visit(struct cache *cache, cache_visitor visit, void *user) {
    if (cache->system) VF_TRY(visit_folder(cache->system, true, visit, user));
    return cache->folder ? visit_folder(cache->folder, false, visit, user) : VF_OK;
}

// ---- removing -----------------------------------------------------------------------------------------------------

static int oldest_first(const void *a, const void *b) {
    const int64_t x = ((const struct found *)a)->used, y = ((const struct found *)b)->used;
    return x != y ? (x > y) - (x < y) : by_name(a, b);
}

static bool remove_file(const char *folder, const char *file) {
    char path[4096];
    return snprintf(path, sizeof path, "%s/%s", folder, file) < (int)sizeof path && !unlink(path);
}

vf_status cache_prune(struct cache *cache, const struct cache_limits *limits, struct cache_removed *removed) {
    *removed = (struct cache_removed){0};
    if (!cache->folder) return VF_OK;
    struct listing listing = {.items = NULL};
    const vf_status status = read_folder(cache->folder, true, &listing);
    const int64_t now = time(NULL);
    uint64_t left = listing.bytes;
    if (listing.count) qsort(listing.items, listing.count, sizeof *listing.items, oldest_first);
    for (size_t i = 0; !status && i < listing.count; i++) {
        const struct found *found = &listing.items[i];
        const bool old = limits->seconds != INT64_MAX && now - found->used >= limits->seconds;
        if ((left > limits->bytes || old) && remove_file(cache->folder, found->file)) {
            removed->entries++;
            removed->bytes += found->bytes;
            left -= found->bytes;
        }
    }
    removed->temporaries = listing.temporaries;
    removed->kept = listing.count - removed->entries;
    removed->kept_bytes = left;
    free(listing.items);
    return status;
}

// True if the stamp is older than a day or not there; it is new then, so that one process prunes.
static bool take_stamp(const char *folder) {
    char path[4096];
    struct stat facts;
    if (snprintf(path, sizeof path, "%s/" STAMP, folder) >= (int)sizeof path) return false;
    if (!lstat(path, &facts) && time(NULL) - facts.st_mtime < DAY) return false;
    const int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (file < 0) return false;
    const bool taken = !futimens(file, NULL);
    close(file);
    return taken;
}

void cache_prune_daily(struct cache *cache) {
    struct cache_removed removed;
    const struct cache_limits limits = {.bytes = cache->limit, .seconds = (int64_t)UNUSED_DAYS * DAY};
    if (!cache->folder || !take_stamp(cache->folder)) return;
    // Its failure is nobody's: the next day tries again.
    if (!cache_prune(cache, &limits, &removed) && removed.entries + removed.temporaries) {
        log_write(cache->logger, LOG_LEVEL_INFO, "cache: %zu entries and %zu temporaries removed, %" PRIu64 " bytes",
                  removed.entries, removed.temporaries, removed.bytes);
    }
}
