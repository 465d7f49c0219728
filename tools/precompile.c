// precompile.c - kernels for a check, compiled ahead: those of every variant that it will run, by builder.h.
#include "precompile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "builder.h"
#include "command.h"
#include "output.h"
#include "varflash/varflash_dev.h"

// A request that nothing serves adds no kernel: the check says so.
static void add_variant(vf_context *context, const char *request, const char *knobs, struct texts *kernels) {
    vf_dev_variant *variant;
    if (vf_dev_variant_create(context, request, knobs, &variant)) return;
    for (size_t i = 0; i < variant->kernel_count; i++) texts_add(kernels, variant->kernels[i].spec);
    vf_dev_variant_free(variant);
}

static void add_kernels(vf_context *context, const struct options *options, const char *request,
                        struct texts *kernels) {
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

static void list_kernels(const struct options *options, vf_context *context, const struct problem_list *list,
                         const char *arch, struct texts *kernels) {
    struct texts requests = {0};
    for (size_t i = 0; i < list->count; i++) {
        for (int backward = 0; backward <= (int)list->items[i].backward; backward++) {
            char *request;
            if (command_request(context, options, &list->items[i], backward, arch, &request)) continue;
            texts_add(&requests, request);
            vf_dev_text_free(request);
        }
    }
    texts_sort(&requests);
    if (options->checked) {
        char spec[64];
        snprintf(spec, sizeof(spec), "kernel=check_lengths arch=%s", arch);
        texts_add(kernels, spec);
    }
    for (size_t i = 0; i < requests.count; i++) add_kernels(context, options, requests.items[i], kernels);
    texts_sort(kernels);
    output_note("%zu kernels for %zu requests", kernels->count, requests.count);
    texts_free(&requests);
}

int precompile(const struct options *options, vf_context *context, const struct problem_list *list) {
    vf_dev_device device;
    const vf_dev_info *info;
    struct texts kernels = {0};
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
    list_kernels(options, context, list, device.arch, &kernels);
    const int code = builder_run(options, "precompile", &kernels);
    output_note("precompiled for %s in %.1f s%s", device.arch, output_seconds() - start, code ? ", with failures" : "");
    texts_free(&kernels);
    return code == CODE_INTERRUPTED ? code : CODE_OK;
}
