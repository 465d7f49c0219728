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

// ---- environment
// -----------------------------------------------------------------------------------------------------

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

// ---- files
// -----------------------------------------------------------------------------------------------------------

// Fails with errno's reason and leaves errno as it was.
static vf_status fail_io(const char *action, const char *path) {
    int reason = errno;
    vf_status status = status_fail(VF_ERROR_IO, "%s: cannot %s: %s", path, action, strerror(reason));
    errno = reason;
    return status;
}

vf_status fs_read_open(int file, const char *path, struct buf *out) {
    struct stat facts;
    if (fstat(file, &facts)) return fail_io("read", path);
    // The size is a hint only: files grow, and some (/proc) say 0.
    size_t expected = facts.st_size > 0 ? (size_t)facts.st_size + 1 : 4096;
    for (;;) {
        size_t before = out->size;
        char *target = buf_extend(out, expected);
        if (!target) return buf_check(out);
        ssize_t got = read(file, target, expected);
        out->size = before + (got > 0 ? (size_t)got : 0);
        out->data[out->size] = 0;
        if (got < 0 && errno != EINTR) return fail_io("read", path);
        if (!got) return VF_OK;
        expected = 4096;
    }
}

vf_status fs_read(const char *path, struct buf *out) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return fail_io("open", path);
    vf_status status = fs_read_open(file, path, out);
    int reason = errno;
    close(file);
    errno = reason;
    return status;
}

vf_status fs_make_folder(const char *path) {
    char partial[4096];
    size_t length = strlen(path);
    if (length >= sizeof partial) {
        errno = ENAMETOOLONG;
        return fail_io("create", path);
    }
    for (size_t i = 1; i <= length; i++) {
        if (path[i] && path[i] != '/') continue;
        memcpy(partial, path, i);
        partial[i] = 0;
        if (mkdir(partial, 0700) && errno != EEXIST) {
            // A parent on a read-only disk may be there all the same.
            struct stat facts;
            int reason = errno;
            if (stat(partial, &facts) || !S_ISDIR(facts.st_mode)) {
                errno = reason;
                return fail_io("create", partial);
            }
        }
    }
    struct stat facts;
    if (stat(path, &facts)) return fail_io("create", path);
    if (!S_ISDIR(facts.st_mode)) {
        errno = ENOTDIR;
        return fail_io("create", path);
    }
    return VF_OK;
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

vf_status fs_publish(const char *folder, const char *name, const void *data, size_t size) {
    // Unique among the threads of this process by the counter, among processes by O_EXCL and a new name after each
    // collision (a process of another host or container may have the same id).
    static atomic_uint counter;
    char path[4096], temporary[4096];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return fail_io("write", folder);
    }
    int file = -1;
    for (int attempt = 0; file < 0 && attempt < 16; attempt++) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        int length = snprintf(temporary, sizeof temporary, "%s/.%s.%ld-%u-%lx.tmp", folder, name, (long)getpid(),
                              atomic_fetch_add(&counter, 1), (unsigned long)now.tv_nsec);
        if (length >= (int)sizeof temporary) {
            errno = ENAMETOOLONG;
            return fail_io("write", path);
        }
        file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (file < 0 && errno != EEXIST) return fail_io("create a file beside", path);
    }
    if (file < 0) return fail_io("create a file beside", path);

    bool written = write_all(file, data, size) && !fsync(file);
    int reason = errno;
    if (close(file) && written) {  // NFS reports a full disk here
        written = false;
        reason = errno;
    }
    if (written && rename(temporary, path)) {
        written = false;
        reason = errno;
    }
    if (written) return VF_OK;
    unlink(temporary);
    errno = reason;
    return fail_io("write", path);
}
