// dev_info.c - see dev_info.h.
#include "dev_info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "cpu.h"
#include "embedded.h"

struct dev_info {
    vf_dev_info public;
    char driver_state[512], nvrtc_state[1024];
    const char **configs;
    vf_dev_variable *variables;
};

// What a context of the CPU backend does not know: whether there is a driver, and devices.
static void look_for_driver(struct vf_context *context, struct dev_info *info) {
    info->public.driver_state = info->driver_state;
    if (context->devices) {
        info->public.driver_version = context->cuda->version;
        info->public.device_count = devices_count(context->devices);
        return;
    }
    struct cuda_api cuda;
    struct devices *devices = NULL;
    vf_status status = cuda_open(&cuda);
    if (!status) {
        info->public.driver_version = cuda.version;
        status = devices_open(&cuda, &devices);
        if (!status) info->public.device_count = devices_count(devices);
        devices_close(devices);
        cuda_close(&cuda);
    }
    if (!status) return;
    snprintf(info->driver_state, sizeof info->driver_state, "%s", vf_last_error());
    status_forget();
}

static void look_for_nvrtc(struct vf_context *context, struct dev_info *info) {
    const struct compiler *compiler = NULL;
    info->public.nvrtc_path = "";
    info->public.nvrtc_state = info->nvrtc_state;
    if (kernels_compiler(context->kernels, &compiler)) {
        snprintf(info->nvrtc_state, sizeof info->nvrtc_state, "%s", vf_last_error());
        status_forget();
        return;
    }
    info->public.nvrtc_path = compiler->nvrtc->path;
    info->public.nvrtc_version = compile_version(compiler);
}

static vf_status list_configs(struct vf_context *context, struct dev_info *info) {
    size_t count = 0;
    while (config_file(context->config, count)[0]) count++;
    info->configs = calloc(count + 1, sizeof *info->configs);
    VF_REQUIRE(info->configs, VF_ERROR_OUT_OF_MEMORY, "no memory for the list of configurations");
    for (size_t i = 0; i < count; i++) info->configs[i] = config_file(context->config, i);
    info->public.configs = info->configs;
    info->public.config_count = count;
    return VF_OK;
}

static vf_status list_variables(struct vf_context *context, struct dev_info *info) {
    info->variables = calloc(environment_variable_count, sizeof *info->variables);
    VF_REQUIRE(info->variables, VF_ERROR_OUT_OF_MEMORY, "no memory for the list of variables");
    for (size_t i = 0; i < environment_variable_count; i++) {
        info->variables[i] =
            (vf_dev_variable){environment_variables[i].name, environment_value(&context->environment, i),
                              environment_variables[i].meaning};
    }
    info->public.variables = info->variables;
    info->public.variable_count = environment_variable_count;
    return VF_OK;
}

vf_status dev_info_make(struct vf_context *context, struct dev_info **out) {
    struct dev_info *info = calloc(1, sizeof *info);
    VF_REQUIRE(info, VF_ERROR_OUT_OF_MEMORY, "no memory for the information");
    look_for_driver(context, info);
    look_for_nvrtc(context, info);
    const char *reason = "", *folder = cache_folder(context->cache, &reason);
    info->public.cache_dir = folder ? folder : "";
    info->public.cache_state = folder ? "" : reason;
    info->public.generator = context->environment.source ? context->environment.source : embedded_digest;
    info->public.signature = source_signature(context->source);
    info->public.cpu = cpu_level_name(cpu_level());
    info->public.cpu_threads = context->cpu_threads ? context->cpu_threads : cpu_thread_count();
    vf_status status = list_configs(context, info);
    if (!status) status = list_variables(context, info);
    if (status) {
        dev_info_free(info);
        return status;
    }
    *out = info;
    return VF_OK;
}

const vf_dev_info *dev_info_get(const struct dev_info *info) {
    return &info->public;
}

void dev_info_free(struct dev_info *info) {
    if (!info) return;
    free(info->configs);
    free(info->variables);
    free(info);
}
