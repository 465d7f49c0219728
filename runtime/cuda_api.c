// cuda_api.c - opens libcuda and libnvrtc and fills their tables.
#include "cuda_api.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- tables -------------------------------------------------------------------------------------------------------
// Where in a table a symbol's address belongs.
struct symbol {
    const char *symbol;
    size_t offset;
    bool needed;
};

static const struct symbol cuda_symbols[] = {
#define NEEDED(name, symbol, parameters) {symbol, offsetof(struct cuda_api, name), true},
#define OPTIONAL(name, symbol, parameters) {symbol, offsetof(struct cuda_api, name), false},
    CUDA_FUNCTIONS(NEEDED, OPTIONAL)
#undef NEEDED
#undef OPTIONAL
};

static const struct symbol nvrtc_symbols[] = {
    {"nvrtcGetErrorString", offsetof(struct nvrtc_api, nvrtcGetErrorString), true},
#define FUNCTION(name, parameters) {#name, offsetof(struct nvrtc_api, name), true},
    NVRTC_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

// Fills `table`. Returns the first needed symbol that is missing, or null.
static const char *fill(void *table, const struct symbol *symbols, size_t count,
                        void *(*find)(void *user, const char *symbol), void *user) {
    for (size_t i = 0; i < count; i++) {
        void *address = find(user, symbols[i].symbol);
        if (!address && symbols[i].needed) return symbols[i].symbol;
        memcpy((char *)table + symbols[i].offset, &address, sizeof address);
    }
    return NULL;
}

// NODELETE: neither library survives being unloaded well (threads, memory of its own that it never gives back), so the
// last close leaves it where it is.
static void *open_library(const char *name, int more_flags) {
    return dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | more_flags);
}

static void *find_in_library(void *library, const char *symbol) {
    return dlsym(library, symbol);
}

// ---- driver -------------------------------------------------------------------------------------------------------

vf_status cuda_fill(struct cuda_api *api, void *(*find)(void *user, const char *symbol), void *user) {
    const char *missing = fill(api, cuda_symbols, ARRAY_LENGTH(cuda_symbols), find, user);
    VF_REQUIRE(!missing, VF_ERROR_NO_DEVICE,
               "the CUDA driver does not have %s: varflash needs one for CUDA 12.0 or later; update the NVIDIA driver",
               missing);
    return VF_OK;
}

vf_status cuda_check(const struct cuda_api *api, int result, const char *call) {
    if (result == CUDA_RESULT_SUCCESS) return VF_OK;
    const char *name = NULL, *text = NULL;
    if (api->cuGetErrorName) api->cuGetErrorName(result, &name);
    if (api->cuGetErrorString) api->cuGetErrorString(result, &text);
    return status_fail_code(result == CUDA_RESULT_NO_DEVICE ? VF_ERROR_NO_DEVICE : VF_ERROR_DRIVER, result,
                            "%s failed: %s (CUresult %d)%s%s", call, name ? name : "unknown error", result,
                            text ? ": " : "", text ? text : "");
}

// The driver's own part of opening, from a library that is there.
static vf_status start_driver(struct cuda_api *api) {
    VF_TRY(cuda_fill(api, find_in_library, api->library));
    CUDA_TRY(api, cuInit, 0);
    CUDA_TRY(api, cuDriverGetVersion, &api->version);
    return VF_OK;
}

vf_status cuda_open(struct cuda_api *api) {
    *api = (struct cuda_api){.library = open_library("libcuda.so.1", 0)};
    if (!api->library) {
        VF_FAIL(VF_ERROR_NO_DEVICE,
                "no CUDA driver: %s; install the NVIDIA driver, or start the container with access to the GPUs",
                dlerror());
    }
    vf_status status = start_driver(api);
    if (!status) return VF_OK;
    cuda_close(api);
    // Whatever cuInit complains about, the caller asked for a device and there is none to be had.
    return vf_last_driver_error() ? status_fail_code(VF_ERROR_NO_DEVICE, vf_last_driver_error(),
                                                     "the CUDA driver does not start: %s", vf_last_error())
                                  : status;
}

void cuda_close(struct cuda_api *api) {
    if (api->library) dlclose(api->library);
    *api = (struct cuda_api){0};
}

// ---- NVRTC --------------------------------------------------------------------------------------------------------
// Newest first.
static const char *const sonames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};

#define DEFAULT_TOOLKIT "/usr/local/cuda"

bool nvrtc_fits_driver(int major, int driver_version) {
    return !driver_version || major <= driver_version / 1000;
}

static void add_toolkit(struct buf *lines, const char *root) {
    if (!root) return;
    for (size_t i = 0; i < ARRAY_LENGTH(sonames); i++) {
        buf_printf(lines, "%s/lib64/%s\n%s/lib/%s\n", root, sonames[i], root, sonames[i]);
    }
}

// The files that `pip install nvidia-cuda-nvrtc` (or a framework) has put under a Python's prefix, newest first.
static void add_python(struct buf *lines, const char *prefix) {
    char pattern[4096];
    for (size_t i = 0; i < ARRAY_LENGTH(sonames); i++) {
        int length =
            snprintf(pattern, sizeof pattern, "%s/lib/python3*/*-packages/nvidia/*/lib/%s", prefix, sonames[i]);
        glob_t found;
        if (length >= (int)sizeof pattern || glob(pattern, 0, NULL, &found)) continue;
        for (size_t k = 0; k < found.gl_pathc; k++) buf_printf(lines, "%s\n", found.gl_pathv[k]);
        globfree(&found);
    }
}

// The prefix of the first python3 on PATH: /opt/env for /opt/env/bin/python3. `resolved`: what it is a link to. Python
// is not run.
static bool python_prefix(const char *path, bool resolved, char prefix[4096]) {
    while (path && *path) {
        size_t length = strcspn(path, ":");
        char program[4096];
        if (length && snprintf(program, sizeof program, "%.*s/python3", (int)length, path) < (int)sizeof program &&
            !access(program, X_OK)) {
            char real[PATH_MAX];
            if (resolved && !realpath(program, real)) return false;
            const char *chosen = resolved ? real : program;
            const char *end = strrchr(chosen, '/');
            while (end > chosen && end[-1] != '/') end--;  // bin/
            if (end == chosen) return false;
            snprintf(prefix, 4096, "%.*s", (int)(end - 1 - chosen), chosen);
            return true;
        }
        path += length + (path[length] == ':');
    }
    return false;
}

void nvrtc_candidates(const struct environment *environment, struct buf *lines) {
    add_toolkit(lines, environment->cuda_home);
    add_toolkit(lines, environment->cuda_path);
    add_toolkit(lines, DEFAULT_TOOLKIT);

    char prefix[4096];
    if (environment->virtual_env) add_python(lines, environment->virtual_env);
    if (environment->conda_prefix) add_python(lines, environment->conda_prefix);
    if (python_prefix(environment->path, false, prefix)) add_python(lines, prefix);
    if (python_prefix(environment->path, true, prefix)) add_python(lines, prefix);
    if (environment->home && snprintf(prefix, sizeof prefix, "%s/.local", environment->home) < (int)sizeof prefix) {
        add_python(lines, prefix);
    }
    add_python(lines, "/usr/local");
    add_python(lines, "/usr");
}

// What a search has met, for the sentence when it fails.
struct search {
    int driver_version;
    const struct logger *logger;
    int newer_major, newer_minor;  // the first NVRTC that the driver is too old for
    char newer_path[512];
};

// Opens `name` if it is an NVRTC that the driver fits.
static bool try_library(struct search *search, const char *name, int more_flags, struct nvrtc_api *api) {
    *api = (struct nvrtc_api){.library = open_library(name, more_flags)};
    if (!api->library) return false;
    struct link_map *map = NULL;
    bool named = !dlinfo(api->library, RTLD_DI_LINKMAP, &map) && map->l_name[0];
    snprintf(api->path, sizeof api->path, "%s", named ? map->l_name : name);
    const char *missing = fill(api, nvrtc_symbols, ARRAY_LENGTH(nvrtc_symbols), find_in_library, api->library);
    if (missing) {
        log_write(search->logger, LOG_LEVEL_WARNING, "%s: is no NVRTC: it does not have %s", api->path, missing);
    } else if (!api->nvrtcVersion(&api->major, &api->minor)) {
        if (nvrtc_fits_driver(api->major, search->driver_version)) return true;
        if (!search->newer_major) {
            search->newer_major = api->major;
            search->newer_minor = api->minor;
            memcpy(search->newer_path, api->path, sizeof search->newer_path);
        }
    }
    nvrtc_close(api);
    return false;
}

// What the loader finds by name: loaded already with RTLD_NOLOAD, on its path without.
static bool try_sonames(struct search *search, int more_flags, struct nvrtc_api *api) {
    for (size_t i = 0; i < ARRAY_LENGTH(sonames); i++) {
        if (try_library(search, sonames[i], more_flags, api)) return true;
    }
    return false;
}

static bool try_files(struct search *search, const struct environment *environment, struct nvrtc_api *api) {
    struct buf lines = {0};
    char name[4096];
    bool found = false;
    nvrtc_candidates(environment, &lines);
    for (const char *line = buf_string(&lines); *line && !found;) {
        size_t length = strcspn(line, "\n");
        found = snprintf(name, sizeof name, "%.*s", (int)length, line) < (int)sizeof name &&
                try_library(search, name, 0, api);
        line += length + (line[length] == '\n');
    }
    buf_free(&lines);
    return found;
}

vf_status nvrtc_open(const struct environment *environment, int driver_version, const struct logger *logger,
                     struct nvrtc_api *api) {
    struct search search = {.driver_version = driver_version, .logger = logger};
    bool found = environment->nvrtc ? try_library(&search, environment->nvrtc, 0, api)
                                    : try_sonames(&search, RTLD_NOLOAD, api) || try_sonames(&search, 0, api) ||
                                          try_files(&search, environment, api);
    if (found) {
        log_write(logger, LOG_LEVEL_INFO, "NVRTC %d.%d: %s", api->major, api->minor, api->path);
        return VF_OK;
    }
    if (search.newer_major) {
        VF_FAIL(VF_ERROR_NO_COMPILER,
                "%s is NVRTC %d.%d, but the driver is for CUDA %d.%d and cannot load what it compiles; update the "
                "NVIDIA driver, "
                "or install an older NVRTC (pip install nvidia-cuda-nvrtc-cu12)",
                search.newer_path, search.newer_major, search.newer_minor, driver_version / 1000,
                driver_version % 1000 / 10);
    }
    if (environment->nvrtc) {
        const char *reason = dlerror();
        VF_FAIL(VF_ERROR_NO_COMPILER, "VARFLASH_NVRTC=%s cannot be used: %s", environment->nvrtc,
                reason ? reason : "it is not an NVRTC library");
    }
    VF_FAIL(VF_ERROR_NO_COMPILER,
            "NVRTC, the CUDA run-time compiler, is not here: no %s or %s among the loaded libraries, on the loader's "
            "path, in CUDA_HOME "
            "(%s), CUDA_PATH (%s), " DEFAULT_TOOLKIT
            " or the nvidia folders of the Python environments; install the CUDA toolkit, or "
            "pip install nvidia-cuda-nvrtc, or set VARFLASH_NVRTC to the library's path",
            sonames[0], sonames[1], environment->cuda_home ? environment->cuda_home : "not set",
            environment->cuda_path ? environment->cuda_path : "not set");
}

void nvrtc_close(struct nvrtc_api *api) {
    if (api->library) dlclose(api->library);
    *api = (struct nvrtc_api){0};
}
