// cache.c - compiled kernels on disk.
//
// An entry is one file, FOLDER/NAME-MAKER.vfk, written once and never changed:
//
//     8 bytes   "varflash"
//     4         format version, 2          (all numbers little-endian)
//     4         maker's version: 13000 is NVRTC 13.0
//     4         bytes of the key echo
//     4         bytes of the meta text
//     8         bytes of the payload
//     ...       key echo, meta text, payload
//     32        BLAKE2b-256 of all of the above
//
// Trust: NAME is the digest of the key echo, and the echo is compared on reading, so an entry under a wrong name is not
// taken. The digest finds damage of any kind. It is no signature: that nobody else can put kernels here rests on the
// owner and mode of the file, which are checked on the open file, and on refusing a folder that everyone can write to.
// In the system's folder root may own them too.
//
// The maker stands outside NAME, so that a process without a compiler finds what any compiler has left.
//
// Races: writers publish by rename, so a reader sees a whole entry or none, whoever dies when. Two writers of one entry
// write the same kernel, and the later rename wins. The lock only saves the second from compiling at all. It is flock
// on one of LOCK_SLOTS files that stay in the folder: they are never removed, so there is no race about which file is
// the lock, and a dead process holds none. A process waits for a limited time only, so a stopped holder or a file
// system with broken locks costs time, never a kernel.
#include "cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cache_file.h"
#include "status.h"

#define MAGIC "varflash"
#define FORMAT 2
#define HEADER_SIZE 32
#define LARGEST_ENTRY ((size_t)1 << 28)
#define LOCK_SLOTS 64
#define LOCK_POLL_MS 5
#define READ_ATTEMPTS 2  // an entry may be replaced on a network disk just now
#define SYSTEM_FOLDER "/var/cache/varflash"
#define DEFAULT_MEGABYTES 1024
#define DAY 86400

// ---- folder -------------------------------------------------------------------------------------------------------
// Appends the folder that the rules name, before anyone has looked at it. Nothing if they name none.
static void choose_folder(const char *folder, const struct environment *environment, struct buf *path) {
    const char *xdg = environment->xdg_cache_home, *home = environment->home;
    if (folder || environment->cache_dir) {
        buf_text(path, folder ? folder : environment->cache_dir);
    } else if (xdg && xdg[0] == '/') {  // XDG: a relative path is to be ignored
        buf_printf(path, "%s/varflash", xdg);
    } else if (home && home[0] == '/') {
        buf_printf(path, "%s/.cache/varflash", home);
    }
}

// Why `folder` cannot be used, or null. A folder that is not there yet is made by the first write.
static const char *refuse_folder(const char *folder) {
    struct stat facts;
    if (!*folder) return "neither VARFLASH_CACHE_DIR nor XDG_CACHE_HOME nor HOME is set";
    if (stat(folder, &facts)) return errno == ENOENT ? NULL : strerror(errno);
    if (!S_ISDIR(facts.st_mode)) return "it is not a folder";
    if (facts.st_mode & S_IWOTH) return "everyone may write to it, and so could plant kernels (chmod o-w)";
    return NULL;
}

// The system's folder, if it is there and nobody but root and this user can have written it.
static vf_status open_system(struct cache *cache, const char *folder) {
    struct stat facts;
    if (stat(folder, &facts) || (cache->folder && !strcmp(folder, cache->folder))) return VF_OK;
    const bool ours = facts.st_uid == 0 || facts.st_uid == geteuid();
    const char *refused = refuse_folder(folder);
    if (refused || !ours) {
        log_write(cache->logger, LOG_LEVEL_WARNING, "system cache: %s: %s; not used", folder,
                  refused ? refused : "it belongs to another user");
        return VF_OK;
    }
    cache->system = strdup(folder);
    VF_REQUIRE(cache->system, VF_ERROR_OUT_OF_MEMORY, "out of memory while opening the kernel cache");
    return VF_OK;
}

static uint64_t size_limit(const char *megabytes) {
    char *end = NULL;
    const unsigned long value = megabytes ? strtoul(megabytes, &end, 10) : DEFAULT_MEGABYTES;
    if (megabytes && (*end || end == megabytes || value > UINT32_MAX)) return (uint64_t)DEFAULT_MEGABYTES << 20;
    return value ? (uint64_t)value << 20 : UINT64_MAX;
}

vf_status cache_open(const char *folder, const struct environment *environment, const struct logger *logger,
                     struct cache **out) {
    struct cache *cache = calloc(1, sizeof *cache);
    struct buf path = {0};
    choose_folder(folder, environment, &path);
    if (!cache || path.failed) {
        free(cache);
        buf_free(&path);
        VF_FAIL(VF_ERROR_OUT_OF_MEMORY, "out of memory while opening the kernel cache");
    }
    cache->logger = logger;
    cache->limit = size_limit(environment->cache_size);
    atomic_flag_clear(&cache->write_failed);
    const char *refused = refuse_folder(buf_string(&path));
    if (refused) {
        const char *separator = path.size ? ": " : "";
        snprintf(cache->reason, sizeof cache->reason, "%s%s%s", buf_string(&path), separator, refused);
        log_write(logger, LOG_LEVEL_WARNING, "cache: %s; kernels are kept in memory only", cache->reason);
        buf_free(&path);
    }
    cache->folder = path.data;
    const vf_status status = open_system(cache, environment->system_cache ? environment->system_cache : SYSTEM_FOLDER);
    if (status) {
        cache_close(cache);
        return status;
    }
    *out = cache;
    return VF_OK;
}

void cache_close(struct cache *cache) {
    if (!cache) return;
    free(cache->folder);
    free(cache->system);
    free(cache);
}

const char *cache_folder(const struct cache *cache, const char **reason) {
    if (reason) *reason = cache->reason;
    return cache->folder;
}

const char *cache_system_folder(const struct cache *cache) {
    return cache->system;
}

// ---- keys ---------------------------------------------------------------------------------------------------------

vf_status cache_key_make(const char *source, size_t source_size, const char *identity, struct cache_key *key) {
    unsigned char digest[HASH_SIZE];
    *key = (struct cache_key){0};
    hash_bytes(source, source_size, digest);
    hash_text(digest, key->name);
    buf_printf(&key->echo, "varflash kernel, format %d\nsource=%s\n%s\n", FORMAT, key->name, identity);
    VF_TRY(buf_check(&key->echo));
    hash_bytes(key->echo.data, key->echo.size, digest);
    hash_text(digest, key->name);
    return VF_OK;
}

void cache_key_free(struct cache_key *key) {
    buf_free(&key->echo);
}

// ---- format -------------------------------------------------------------------------------------------------------

static void put_number(struct buf *buf, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) buf_append(buf, &(unsigned char){(unsigned char)(value >> 8 * i)}, 1);
}

static uint64_t get_number(const char *data, int bytes) {
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | (unsigned char)data[i];
    return value;
}

static void encode(const struct cache_key *key, const struct cache_entry *entry, struct buf *file) {
    unsigned char digest[HASH_SIZE];
    buf_text(file, MAGIC);
    put_number(file, FORMAT, 4);
    put_number(file, (uint64_t)key->maker, 4);
    put_number(file, key->echo.size, 4);
    put_number(file, entry->meta.size, 4);
    put_number(file, entry->payload.size, 8);
    buf_append(file, key->echo.data, key->echo.size);
    buf_append(file, buf_string(&entry->meta), entry->meta.size);
    buf_append(file, buf_string(&entry->payload), entry->payload.size);
    hash_bytes(buf_string(file), file->size, digest);
    buf_append(file, digest, sizeof digest);
}

// Fills `entry` and returns null, or says what is wrong with the file, which is called NAME-MAKER.vfk.
static const char *decode(const struct buf *file, const char *name, int maker, struct cache_entry *entry,
                          struct buf *echo) {
    if (file->size < HEADER_SIZE + HASH_SIZE) return "is truncated";
    const char *data = file->data;
    if (memcmp(data, MAGIC, strlen(MAGIC)) != 0) return "is no cache entry";
    if (get_number(data + 8, 4) != FORMAT) return "has another format";
    // Every part is smaller than the file, so that the sum cannot wrap.
    const uint64_t sizes[3] = {get_number(data + 16, 4), get_number(data + 20, 4), get_number(data + 24, 8)};
    const uint64_t content = file->size - HEADER_SIZE - HASH_SIZE;
    if (sizes[0] > content || sizes[1] > content || sizes[2] > content || sizes[0] + sizes[1] + sizes[2] != content)
        return "is truncated";
    unsigned char digest[HASH_SIZE];
    char text[HASH_TEXT_SIZE];
    hash_bytes(data, file->size - HASH_SIZE, digest);
    if (memcmp(digest, data + file->size - HASH_SIZE, HASH_SIZE) != 0) return "is damaged";
    if (get_number(data + 12, 4) != (uint64_t)maker) return "was made by another compiler";
    data += HEADER_SIZE;
    hash_bytes(data, sizes[0], digest);
    hash_text(digest, text);
    if (strcmp(text, name) != 0) return "belongs to another kernel";
    buf_append(echo, data, sizes[0]);
    buf_append(&entry->meta, data + sizes[0], sizes[1]);
    buf_append(&entry->payload, data + sizes[0] + sizes[1], sizes[2]);
    return echo->failed || entry->meta.failed || entry->payload.failed ? "does not fit into memory" : NULL;
}

// ---- files --------------------------------------------------------------------------------------------------------

void cache_file_name(const char *name, int maker, char file[CACHE_FILE_NAME]) {
    snprintf(file, CACHE_FILE_NAME, "%.64s-%d" CACHE_SUFFIX, name, maker);
}

bool cache_file_parse(const char *file, char name[HASH_TEXT_SIZE], int *maker) {
    const size_t length = strspn(file, "0123456789abcdef");
    char again[CACHE_FILE_NAME];
    if (length != HASH_TEXT_SIZE - 1 || file[length] != '-') return false;
    memcpy(name, file, length);
    name[length] = 0;
    *maker = (int)strtoul(file + length + 1, NULL, 10);
    cache_file_name(name, *maker, again);
    return *maker > 0 && !strcmp(again, file);
}

// A file that is used stays: its time of change is that of its last use, to a day. The user's own folder only.
static void mark_used(int file, const struct stat *facts) {
    if (time(NULL) - facts->st_mtime > DAY) futimens(file, NULL);
}

// Reads the open file of an entry, if it can be trusted. Null, or what is wrong; an errno that a second attempt may
// mend goes to *again.
static const char *read_open(int file, bool system, const char *name, int maker, struct cache_entry *entry,
                             struct buf *echo, int *again) {
    struct stat facts;
    if (fstat(file, &facts)) return *again = errno, strerror(errno);
    if (!S_ISREG(facts.st_mode)) return "is not a file";
    if (facts.st_uid != geteuid() && !(system && facts.st_uid == 0)) return "belongs to another user";
    if (facts.st_mode & (S_IWGRP | S_IWOTH)) return "can be written by others";
    if (facts.st_size > (off_t)LARGEST_ENTRY) return "is too large";
    struct buf bytes = {0};
    *again = fs_read_open(file, &bytes);
    const char *fault = *again ? strerror(*again) : decode(&bytes, name, maker, entry, echo);
    buf_free(&bytes);
    if (!fault && !system) mark_used(file, &facts);
    return fault;
}

const char *cache_file_read(const char *folder, bool system, const char *file, const struct cache_key *key,
                            struct cache_entry *entry) {
    char path[4096], name[HASH_TEXT_SIZE];
    int maker, again = 0;
    const char *fault = NULL;
    struct buf echo = {0};
    *entry = (struct cache_entry){0};
    if (!cache_file_parse(file, name, &maker)) return "is no cache entry";
    if (snprintf(path, sizeof path, "%s/%s", folder, file) >= (int)sizeof path) return "";
    for (int attempt = 0; attempt < READ_ATTEMPTS; attempt++) {
        // O_NONBLOCK: an open of a pipe must not wait.
        const int open_file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        again = open_file < 0 ? errno : 0;
        fault = open_file < 0 ? strerror(errno) : read_open(open_file, system, name, maker, entry, &echo, &again);
        if (open_file >= 0) close(open_file);
        if (again != ESTALE) break;
    }
    if (!fault && key &&
        (echo.size != key->echo.size || (echo.size && memcmp(echo.data, key->echo.data, echo.size) != 0)))
        fault = "belongs to another kernel";
    buf_free(&echo);
    if (fault) cache_entry_free(entry);
    return again == ENOENT || again == ESTALE ? "" : fault;
}

// ---- entries ------------------------------------------------------------------------------------------------------

// One line for an entry that is looked at twice, before and behind the lock.
static void tell(struct cache *cache, const struct cache_key *key, const char *path, const char *fault) {
    char start[17];
    snprintf(start, sizeof start, "%.16s", key->name);
    uint64_t number = strtoull(start, NULL, 16);
    if (atomic_exchange(&cache->told, number) == number) return;
    log_write(cache->logger, LOG_LEVEL_WARNING, "cache: %s: %s; not used", path, fault);
}

static bool get_from(struct cache *cache, const char *folder, bool system, const struct cache_key *key, int maker,
                     struct cache_entry *entry) {
    char file[CACHE_FILE_NAME], path[4096];
    cache_file_name(key->name, maker, file);
    const char *fault = cache_file_read(folder, system, file, key, entry);
    if (!fault) return true;
    if (*fault && snprintf(path, sizeof path, "%s/%s", folder, file) < (int)sizeof path) tell(cache, key, path, fault);
    return false;
}

// The newest maker below `below` that has left an entry for the key; 0: none.
static int find_maker(const char *folder, const struct cache_key *key, int below) {
    DIR *list = opendir(folder);
    int found = 0, maker;
    char name[HASH_TEXT_SIZE];
    for (const struct dirent *entry; list && (entry = readdir(list));) {
        if (!cache_file_parse(entry->d_name, name, &maker) || strcmp(name, key->name) != 0) continue;
        if (maker > found && maker < below && maker <= key->newest) found = maker;
    }
    if (list) closedir(list);
    return found;
}

bool cache_get(struct cache *cache, const struct cache_key *key, struct cache_entry *entry) {
    const char *const folders[] = {cache->system, cache->folder};
    *entry = (struct cache_entry){0};
    for (size_t i = 0; i < ARRAY_LENGTH(folders); i++) {
        const bool system = i == 0;
        if (!folders[i]) continue;
        if (key->maker) {
            if (get_from(cache, folders[i], system, key, key->maker, entry)) return true;
            continue;
        }
        for (int maker = INT_MAX; (maker = find_maker(folders[i], key, maker)) > 0;) {
            if (get_from(cache, folders[i], system, key, maker, entry)) return true;
        }
    }
    return false;
}

void cache_entry_free(struct cache_entry *entry) {
    buf_free(&entry->meta);
    buf_free(&entry->payload);
}

// One warning for the life of the cache: a full disk stays full for every kernel.
static void warn_write(struct cache *cache, int reason) {
    if (atomic_flag_test_and_set(&cache->write_failed)) return;
    log_write(cache->logger, LOG_LEVEL_WARNING, "cache: cannot write to %s: %s; new kernels are kept in memory only",
              cache->folder, strerror(reason));
}

void cache_put(struct cache *cache, const struct cache_key *key, const struct cache_entry *entry) {
    if (!cache->folder || !key->maker) return;
    char name[CACHE_FILE_NAME];
    cache_file_name(key->name, key->maker, name);
    struct buf file = {0};
    encode(key, entry, &file);
    int reason = file.failed ? ENOMEM : file.size > LARGEST_ENTRY ? EFBIG : fs_make_folder(cache->folder);
    if (!reason) reason = fs_publish(cache->folder, name, file.data, file.size);
    if (reason) warn_write(cache, reason);
    if (!reason) atomic_store(&cache->told, 0);  // whatever is wrong with an entry from now on is news
    buf_free(&file);
    if (!reason) cache_prune_daily(cache);
}

// ---- lock ---------------------------------------------------------------------------------------------------------

int cache_lock(struct cache *cache, const struct cache_key *key, int limit_ms) {
    if (!cache->folder || fs_make_folder(cache->folder)) return -1;
    char path[4096], digits[3] = {key->name[0], key->name[1], 0};
    unsigned long slot = strtoul(digits, NULL, 16) % LOCK_SLOTS;
    if (snprintf(path, sizeof path, "%s/lock.%02lu", cache->folder, slot) >= (int)sizeof path) return -1;
    int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (lock < 0) return -1;
    for (int waited = 0; flock(lock, LOCK_EX | LOCK_NB); waited += LOCK_POLL_MS) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || waited >= limit_ms) {
            close(lock);
            return -1;
        }
        nanosleep(&(struct timespec){.tv_nsec = LOCK_POLL_MS * 1000000L}, NULL);
    }
    return lock;
}

void cache_unlock(int lock) {
    if (lock >= 0) close(lock);
}
