// cache.c - compiled kernels on disk.
//
// An entry is one file, FOLDER/NAME.vfk, written once and never changed:
//
//     8 bytes   "varflash"
//     4         format version, 1          (all numbers little-endian)
//     4         bytes of the key echo
//     8         bytes of the meta text
//     8         bytes of the payload
//     ...       key echo, meta text, payload
//     32        BLAKE2b-256 of all of the above
//
// Trust: NAME is the digest of the key echo, and the echo is compared on reading, so an entry under a wrong name is not
// taken. The digest finds damage of any kind. It is no signature: that nobody else can put kernels here rests on the
// owner and mode of the file, which are checked on the open file, and on refusing a folder that everyone can write to.
//
// Races: writers publish by rename, so a reader sees a whole entry or none, whoever dies when. Two writers of one entry
// write the same kernel, and the later rename wins. The lock only saves the second from compiling at all. It is flock
// on one of LOCK_SLOTS files that stay in the folder: they are never removed, so there is no race about which file is
// the lock, and a dead process holds none. A process waits for a limited time only, so a stopped holder or a file
// system with broken locks costs time, never a kernel.
#include "cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "status.h"

#define MAGIC "varflash"
#define FORMAT 1
#define HEADER_SIZE 32
#define LARGEST_ENTRY ((size_t)1 << 28)
#define LOCK_SLOTS 64
#define LOCK_POLL_MS 5

struct cache {
    char *folder;      // null: none
    char reason[512];  // why there is none, else ""
    const struct logger *logger;
    atomic_flag write_failed;   // the one warning about it was given
    atomic_uint_fast64_t told;  // start of the name of the last entry that a line was written about
};

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
    atomic_flag_clear(&cache->write_failed);
    const char *refused = refuse_folder(buf_string(&path));
    if (refused) {
        const char *separator = path.size ? ": " : "";
        snprintf(cache->reason, sizeof cache->reason, "%s%s%s", buf_string(&path), separator, refused);
        log_write(logger, LOG_LEVEL_WARNING, "cache: %s; kernels are kept in memory only", cache->reason);
        buf_free(&path);
    }
    cache->folder = path.data;
    *out = cache;
    return VF_OK;
}

void cache_close(struct cache *cache) {
    if (!cache) return;
    free(cache->folder);
    free(cache);
}

const char *cache_folder(const struct cache *cache, const char **reason) {
    if (reason) *reason = cache->reason;
    return cache->folder;
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
    put_number(file, key->echo.size, 4);
    put_number(file, entry->meta.size, 8);
    put_number(file, entry->payload.size, 8);
    buf_append(file, key->echo.data, key->echo.size);
    buf_append(file, buf_string(&entry->meta), entry->meta.size);
    buf_append(file, buf_string(&entry->payload), entry->payload.size);
    hash_bytes(buf_string(file), file->size, digest);
    buf_append(file, digest, sizeof digest);
}

// Fills `entry` and returns null, or says what is wrong with the file.
static const char *decode(const struct buf *file, const struct cache_key *key, struct cache_entry *entry) {
    if (file->size < HEADER_SIZE + HASH_SIZE) return "is truncated";
    const char *data = file->data;
    if (memcmp(data, MAGIC, strlen(MAGIC)) != 0) return "is no cache entry";
    if (get_number(data + 8, 4) != FORMAT) return "has another format";
    // Every part is smaller than the file, so that the sum cannot wrap.
    uint64_t echo = get_number(data + 12, 4), meta = get_number(data + 16, 8), payload = get_number(data + 24, 8);
    uint64_t content = file->size - HEADER_SIZE - HASH_SIZE;
    if (echo > content || meta > content || payload > content || echo + meta + payload != content)
        return "is truncated";
    unsigned char digest[HASH_SIZE];
    hash_bytes(data, file->size - HASH_SIZE, digest);
    if (memcmp(digest, data + file->size - HASH_SIZE, HASH_SIZE) != 0) return "is damaged";
    data += HEADER_SIZE;
    if (echo != key->echo.size || memcmp(data, key->echo.data, key->echo.size) != 0) return "belongs to another kernel";
    buf_append(&entry->meta, data + echo, (size_t)meta);
    buf_append(&entry->payload, data + echo + meta, (size_t)payload);
    if (entry->meta.failed || entry->payload.failed) return "does not fit into memory";
    return NULL;
}

// ---- entries ------------------------------------------------------------------------------------------------------
// Reads the open file of an entry, if it can be trusted. Null, or what is wrong.
static const char *read_entry(int file, const struct cache_key *key, struct cache_entry *entry) {
    struct stat facts;
    if (fstat(file, &facts)) return strerror(errno);
    if (!S_ISREG(facts.st_mode)) return "is not a file";
    if (facts.st_uid != geteuid()) return "belongs to another user";
    if (facts.st_mode & (S_IWGRP | S_IWOTH)) return "can be written by others";
    if (facts.st_size > (off_t)LARGEST_ENTRY) return "is too large";
    struct buf bytes = {0};
    int reason = fs_read_open(file, &bytes);
    const char *fault = reason ? strerror(reason) : decode(&bytes, key, entry);
    buf_free(&bytes);
    return fault;
}

// One line for an entry that is looked at twice, before and behind the lock.
static void tell(struct cache *cache, const struct cache_key *key, const char *path, const char *fault) {
    char start[17];
    snprintf(start, sizeof start, "%.16s", key->name);
    uint64_t number = strtoull(start, NULL, 16);
    if (atomic_exchange(&cache->told, number) == number) return;
    log_write(cache->logger, LOG_LEVEL_WARNING, "cache: %s: %s; not used", path, fault);
}

bool cache_get(struct cache *cache, const struct cache_key *key, struct cache_entry *entry) {
    *entry = (struct cache_entry){0};
    if (!cache->folder) return false;
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s.vfk", cache->folder, key->name) >= (int)sizeof path) return false;
    // O_NONBLOCK: an open of a pipe must not wait.
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0 && (errno == ENOENT || errno == ESTALE)) return false;  // ESTALE: replaced on a network disk just now
    const char *fault = file < 0 ? strerror(errno) : read_entry(file, key, entry);
    if (file >= 0) close(file);
    if (!fault) return true;
    tell(cache, key, path, fault);
    cache_entry_free(entry);
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
    if (!cache->folder) return;
    char name[HASH_TEXT_SIZE + 4];
    snprintf(name, sizeof name, "%s.vfk", key->name);
    struct buf file = {0};
    encode(key, entry, &file);
    int reason = file.failed ? ENOMEM : file.size > LARGEST_ENTRY ? EFBIG : fs_make_folder(cache->folder);
    if (!reason) reason = fs_publish(cache->folder, name, file.data, file.size);
    if (reason) warn_write(cache, reason);
    if (!reason) atomic_store(&cache->told, 0);  // whatever is wrong with an entry from now on is news
    buf_free(&file);
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
