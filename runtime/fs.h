// fs.h - files, folders and the environment: everything the runtime asks the operating system by name.
#ifndef VF_FS_H
#define VF_FS_H

#include "base.h"
#include "buf.h"
#include "varflash/varflash.h"

// ---- environment --------------------------------------------------------------------------------------------------
// Every variable that varflash reads: member, name, meaning. Read once in vf_open; a process with raised privileges
// (setuid) reads none of them. `varflash info` and docs/api.md list this table.
#define ENVIRONMENT_VARIABLES(VARIABLE)                                                                               \
    VARIABLE(cache_dir, "VARFLASH_CACHE_DIR", "folder of compiled kernels")                                           \
    VARIABLE(cache_size, "VARFLASH_CACHE_SIZE", "megabytes that it may take (1024; 0: any)")                          \
    VARIABLE(system_cache, "VARFLASH_SYSTEM_CACHE", "folder that is read before it (/var/cache/varflash)")            \
    VARIABLE(bundles, "VARFLASH_BUNDLES", "files of kernels built ahead of time, with colons between them")           \
    VARIABLE(config, "VARFLASH_CONFIG", "JSON file of configuration rows that come before all others")                \
    VARIABLE(dump, "VARFLASH_DUMP", "folder that receives source, image and compiler log of every kernel used")       \
    VARIABLE(jit, "VARFLASH_JIT", "off: never compile; a kernel that neither bundles nor the cache have is an error") \
    VARIABLE(log, "VARFLASH_LOG", "log level: 1 error, 2 warning, 3 info, 4 debug, or the word")                      \
    VARIABLE(nvrtc, "VARFLASH_NVRTC", "path of the NVRTC library to use")                                             \
    VARIABLE(source, "VARFLASH_SOURCE", "checkout whose gen/ and templates/ replace the built-in ones")               \
    VARIABLE(trace, "VARFLASH_TRACE", "file that receives each call as a problem, one JSON a line")                   \
    VARIABLE(xdg_cache_home, "XDG_CACHE_HOME", "parent of the cache folder without VARFLASH_CACHE_DIR")               \
    VARIABLE(xdg_config_home, "XDG_CONFIG_HOME", "parent of the configuration folder varflash/")                      \
    VARIABLE(home, "HOME", "stands in for both: $HOME/.cache, $HOME/.config")                                         \
    VARIABLE(cuda_home, "CUDA_HOME", "CUDA toolkit to look for NVRTC in")                                             \
    VARIABLE(cuda_path, "CUDA_PATH", "the same")                                                                      \
    VARIABLE(virtual_env, "VIRTUAL_ENV", "Python environment to look for NVRTC in")                                   \
    VARIABLE(conda_prefix, "CONDA_PREFIX", "the same")                                                                \
    VARIABLE(path, "PATH", "python3 found on it says which site-packages to look for NVRTC in")

struct environment {
#define VARIABLE(member, name, meaning) char *member;  // null when unset or empty
    ENVIRONMENT_VARIABLES(VARIABLE)
#undef VARIABLE
};

// The table for listings, in the order above; `environment_value` is the value of row `index` or null.
struct environment_variable {
    const char *name, *meaning;
};
extern const struct environment_variable environment_variables[];
extern const size_t environment_variable_count;
const char *environment_value(const struct environment *environment, size_t index);

// Copies every variable. environment_free ends what it filled; a zeroed struct is an empty environment.
vf_status environment_read(struct environment *environment);
void environment_free(struct environment *environment);

// ---- files --------------------------------------------------------------------------------------------------------
// Appends a whole file to `out`. VF_ERROR_IO with path and reason.
vf_status fs_read(const char *path, struct buf *out);

// The rest serves caches and the like, whose failure fails nobody's call: they return 0 or an errno and leave the
// thread's sentence alone.

// Appends what is left of an open file.
int fs_read_open(int file, struct buf *out);

// Creates a folder and its missing parents, mode 0700 before the umask.
int fs_make_folder(const char *path);

// Writes folder/name so that a reader finds the old file, the new file or none, never a part: unique temporary in the
// same folder (O_EXCL, 0600), fsync, rename. On failure nothing is left behind.
int fs_publish(const char *folder, const char *name, const void *data, size_t size);

#endif
