// precompile.c - kernels for a check, compiled ahead. NVRTC takes one compile at a time in a process, so the work goes to
// processes: this program again, with --worker INDEX/COUNT/ARCH added to the same command line. Each of them lists all kernels,
// in the same order, and takes every COUNTth; the disk cache carries the images over. A worker opens the driver, which decides
// what NVRTC fits, but no device.
#include "precompile.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.h"
#include "output.h"
#include "varflash/varflash_dev.h"

extern char **environ;

// ---- a set of texts --------------------------------------------------------------------------------------------------

struct set {
    size_t count;
    char **items;
};

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void set_add(struct set *set, const char *text) {
    set->items = output_realloc(set->items, (set->count + 1) * sizeof(*set->items));
    set->items[set->count++] = output_copy(text);
}

static void set_sort(struct set *set) {
    size_t kept = 0;
    if (set->count) qsort(set->items, set->count, sizeof(*set->items), by_text);
    for (size_t i = 0; i < set->count; i++) {
        if (kept && !strcmp(set->items[kept - 1], set->items[i]))
            free(set->items[i]);
        else
            set->items[kept++] = set->items[i];
    }
    set->count = kept;
}

static void set_free(struct set *set) {
    for (size_t i = 0; i < set->count; i++) free(set->items[i]);
    free(set->items);
    *set = (struct set){0};
}

// ---- a worker --------------------------------------------------------------------------------------------------------

// A request that nothing serves adds no kernel: the check says so.
static void add_variant(vf_context *context, const char *request, const char *knobs, struct set *kernels) {
    vf_dev_variant *variant;
    if (vf_dev_variant_create(context, request, knobs, &variant)) return;
    for (size_t i = 0; i < variant->kernel_count; i++) set_add(kernels, variant->kernels[i].spec);
    vf_dev_variant_free(variant);
}

static void add_kernels(vf_context *context, const struct options *options, const char *request, struct set *kernels) {
    vf_dev_list candidates = {0};
    if (options->set.count || options->served) {
        char *knobs = command_set(options);
        add_variant(context, request, knobs, kernels);
        free(knobs);
    } else if (!vf_dev_candidates(context, request, &candidates)) {
        for (size_t i = 0; i < candidates.count; i++) add_variant(context, request, candidates.items[i], kernels);
    }
    vf_dev_list_free(&candidates);
}

int precompile_worker(const struct options *options, const struct problem_list *list) {
    struct set requests = {0}, kernels = {0};
    vf_context *context;
    char *rest = NULL;
    const unsigned long index = strtoul(options->worker, &rest, 10);
    const unsigned long count = *rest == '/' ? strtoul(rest + 1, &rest, 10) : 0;
    const char *arch = rest + 1;
    if (!count || *rest != '/') {
        output_error("check: --worker is '%s', not INDEX/COUNT/ARCH", options->worker);
        return CODE_USAGE;
    }
    int code = command_open(options, &context);
    if (code) return code;
    for (size_t i = 0; i < list->count; i++) {
        for (int backward = 0; backward <= (int)list->items[i].backward; backward++) {
            char *request;
            if (command_request(context, options, &list->items[i], backward, arch, &request)) continue;
            set_add(&requests, request);
            vf_dev_text_free(request);
        }
    }
    set_sort(&requests);
    if (options->checked) {
        char spec[64];
        snprintf(spec, sizeof(spec), "kernel=check_lengths arch=%s", arch);
        set_add(&kernels, spec);
    }
    for (size_t i = 0; i < requests.count; i++) add_kernels(context, options, requests.items[i], &kernels);
    set_sort(&kernels);
    for (size_t i = index; i < kernels.count && !command_interrupted(); i += count) {
        vf_dev_image image = {0};
        const vf_status status = vf_dev_compile(context, kernels.items[i], 0, &image);
        if (status) code = command_failed(status);
        vf_dev_image_free(&image);
    }
    if (!index) output_note("%zu kernels for %zu requests", kernels.count, requests.count);
    set_free(&requests);
    set_free(&kernels);
    vf_close(context);
    return code;
}

// ---- the parent ------------------------------------------------------------------------------------------------------

static pid_t start_worker(const struct options *options, long index, long count, const char *arch) {
    char worker[64];
    char **argv = output_realloc(NULL, ((size_t)options->argc + 3) * sizeof(*argv));
    pid_t process = -1;
    memcpy(argv, options->argv, (size_t)options->argc * sizeof(*argv));
    snprintf(worker, sizeof(worker), "%ld/%ld/%s", index, count, arch);
    argv[options->argc] = (char[]){"--worker"};
    argv[options->argc + 1] = worker;
    argv[options->argc + 2] = NULL;
    const int fault = posix_spawn(&process, "/proc/self/exe", NULL, NULL, argv, environ);
    if (fault) output_error("check: cannot start a process: %s", strerror(fault));
    free(argv);
    return fault ? -1 : process;
}

int precompile(const struct options *options, vf_context *context) {
    vf_dev_device device;
    const vf_dev_info *info;
    if (vf_context_backend(context) != VF_BACKEND_CUDA) {
        output_note("--precompile: the CPU backend has no kernels to compile");
        return CODE_OK;
    }
    vf_status status = vf_dev_info_get(context, &info);
    if (!status) status = vf_dev_device_get(context, (int)options->device, &device);
    if (status) return command_failed(status);
    if (!*info->cache_dir) {
        output_note("--precompile: nothing is compiled ahead without a cache folder: %s", info->cache_state);
        return CODE_OK;
    }
    const double start = output_seconds();
    long jobs = options->jobs ? (long)options->jobs : sysconf(_SC_NPROCESSORS_ONLN), started = 0, failed = 0;
    if (jobs < 1) jobs = 1;
    for (long i = 0; i < jobs; i++) started += start_worker(options, i, jobs, device.arch) > 0;
    for (long i = 0; i < started; i++) {
        int result;
        while (wait(&result) < 0 && errno == EINTR) {
        }
        failed += !WIFEXITED(result) || WEXITSTATUS(result);
    }
    output_note("precompiled for %s with %ld processes in %.1f s%s", device.arch, started, output_seconds() - start,
                failed ? ", with failures" : "");
    return started == jobs ? CODE_OK : CODE_FAILURE;
}
