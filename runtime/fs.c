// fs.c - files, folders and the environment.
#include "fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "status.h"

// ---- environment --------------------------------------------------------------------------------------------------

const struct environment_variable environment_variables[] = {
#define VARIABLE(member, name, meaning) {name, meaning},
    ENVIRONMENT_VARIABLES(VARIABLE)
#undef VARIABLE
};
const size_t environment_variable_count = ARRAY_LENGTH(environment_variables);

static const size_t member_offsets[] = {
#define VARIABLE(member, name, meaning) offsetof(struct environment, member),
    ENVIRONMENT_VARIABLES(VARIABLE)
#undef VARIABLE
};

static char **member_of(struct environment *environment, size_t index) {
    return (char **)((char *)environment + member_offsets[index]);
}

const char *environment_value(const struct environment *environment, size_t index) {
    return *(char *const *)((const char *)environment + member_offsets[index]);
}

vf_status environment_read(struct environment *environment) {
    *environment = (struct environment){0};
    for (size_t i = 0; i < environment_variable_count; i++) {
        const char *value = secure_getenv(environment_variables[i].name);
        if (!value || !*value) continue;
        char *copy = strdup(value);
        if (!copy) {
            environment_free(environment);
            VF_FAIL(VF_ERROR_OUT_OF_MEMORY, "out of memory while reading the environment");
        }
        *member_of(environment, i) = copy;
    }
    return VF_OK;
}

void environment_free(struct environment *environment) {
    for (size_t i = 0; i < environment_variable_count; i++) free(*member_of(environment, i));
    *environment = (struct environment){0};
}

// ---- files --------------------------------------------------------------------------------------------------------

int fs_read_open(int file, struct buf *out) {
    struct stat facts;
    if (fstat(file, &facts)) return errno;
    // The size is a hint only: files grow, and some (/proc) say 0.
    size_t expected = facts.st_size > 0 ? (size_t)facts.st_size + 1 : 4096;
    for (;;) {
        size_t before = out->size;
        char *target = buf_extend(out, expected);
        if (!target) return ENOMEM;
        ssize_t got = read(file, target, expected);
        int reason = errno;
        out->size = before + (got > 0 ? (size_t)got : 0);
        out->data[out->size] = 0;
        if (got < 0 && reason != EINTR) return reason;
        if (!got) return 0;
        expected = 4096;
    }
}

vf_status fs_read(const char *path, struct buf *out) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    int reason = file < 0 ? errno : fs_read_open(file, out);
    if (file >= 0) close(file);
    VF_REQUIRE(reason != ENOMEM, VF_ERROR_OUT_OF_MEMORY, "%s: out of memory while reading it", path);
    VF_REQUIRE(!reason, VF_ERROR_IO, "%s: cannot be read: %s", path, strerror(reason));
    return VF_OK;
}

static bool is_folder(const char *path) {
    struct stat facts;
    return !stat(path, &facts) && S_ISDIR(facts.st_mode);
}

int fs_make_folder(const char *path) {
    char partial[4096];
    size_t length = strlen(path);
    if (length >= sizeof partial) return ENAMETOOLONG;
    for (size_t i = 1; i <= length; i++) {
        if (path[i] && path[i] != '/') continue;
        memcpy(partial, path, i);
        partial[i] = 0;
        if (!mkdir(partial, 0700)) continue;
        // A parent on a read-only disk may be there all the same.
        int reason = errno;
        if (!is_folder(partial)) return reason == EEXIST ? ENOTDIR : reason;
    }
    return 0;
}

static bool write_all(int file, const char *data, size_t size) {
    while (size) {
        ssize_t done = write(file, data, size);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return false;
        data += done;
        size -= (size_t)done;
    }
    return true;
}

// Creates a new file beside folder/name and writes its path to `temporary`. The descriptor, or -1 with errno.
static int create_temporary(const char *folder, const char *name, char temporary[4096]) {
    // Unique among the threads of this process by the counter, among processes by O_EXCL and a new name after each
    // collision: a process of another host or container may have the same id.
    static atomic_uint counter;
    for (int attempt = 0; attempt < 16; attempt++) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        int length = snprintf(temporary, 4096, "%s/.%s.%ld-%u-%lx.tmp", folder, name, (long)getpid(),
                              atomic_fetch_add(&counter, 1), (unsigned long)now.tv_nsec);
        if (length >= 4096) {
            errno = ENAMETOOLONG;
            return -1;
        }
        int file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (file >= 0 || errno != EEXIST) return file;
    }
    return -1;
}

int fs_publish(const char *folder, const char *name, const void *data, size_t size) {
    char path[4096], temporary[4096];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return ENAMETOOLONG;
    int file = create_temporary(folder, name, temporary);
    if (file < 0) return errno;
    int reason = write_all(file, data, size) && !fsync(file) ? 0 : errno;
    if (close(file) && !reason) reason = errno;  // where NFS reports a full disk
    if (!reason && rename(temporary, path)) reason = errno;
    if (reason) unlink(temporary);
    return reason;
}
