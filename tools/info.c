// info.c - `varflash info`: what is here, and for what is missing why and what to do. Never an error.
#include <stdio.h>
#include <stdlib.h>

#include "command.h"
#include "options.h"
#include "output.h"
#include "varflash/varflash_dev.h"

static cJSON *text_or_null(const char *text) {
    return text && *text ? cJSON_CreateString(text) : cJSON_CreateNull();
}

static cJSON *version_json(int version) {
    char text[COMMAND_VERSION];
    return text_or_null(command_cuda_version(text, version));
}

static cJSON *part(const char *name, cJSON *value, const char *state) {
    cJSON *json = cJSON_CreateObject();
    cJSON_AddItemToObject(json, name, value);
    cJSON_AddItemToObject(json, "missing", text_or_null(state));
    return json;
}

static cJSON *device_json(int ordinal, const vf_dev_device *device) {
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "device", ordinal);
    cJSON_AddStringToObject(json, "name", device->name);
    cJSON_AddStringToObject(json, "arch", device->arch);
    cJSON_AddNumberToObject(json, "multiprocessors", device->multiprocessors);
    cJSON_AddNumberToObject(json, "shared_bytes_per_block", (double)device->shared_bytes_per_block);
    cJSON_AddNumberToObject(json, "l2_bytes", (double)device->l2_bytes);
    cJSON_AddNumberToObject(json, "memory_total", (double)device->memory_total);
    cJSON_AddNumberToObject(json, "memory_free", (double)device->memory_free);
    cJSON_AddNumberToObject(json, "clock_max_mhz", device->clock_max_mhz);
    cJSON_AddNumberToObject(json, "memory_clock_mhz", device->memory_clock_mhz);
    return json;
}

static void print_json(vf_context *context, const vf_dev_info *info) {
    char version[COMMAND_VERSION];
    cJSON *json = cJSON_CreateObject(), *list;
    cJSON_AddStringToObject(json, "varflash", command_version(version));
    cJSON_AddStringToObject(json, "generator", info->generator);
    cJSON_AddStringToObject(json, "backend", vf_context_backend(context) == VF_BACKEND_CUDA ? "cuda" : "cpu");
    cJSON_AddItemToObject(json, "driver", part("version", version_json(info->driver_version), info->driver_state));
    cJSON *nvrtc = part("version", version_json(info->nvrtc_version), info->nvrtc_state);
    cJSON_AddItemToObject(nvrtc, "path", text_or_null(info->nvrtc_path));
    cJSON_AddItemToObject(json, "nvrtc", nvrtc);
    cJSON_AddItemToObject(json, "cache", part("folder", text_or_null(info->cache_dir), info->cache_state));
    cJSON *cpu = part("vector_code", cJSON_CreateString(info->cpu), "");
    cJSON_AddNumberToObject(cpu, "threads", info->cpu_threads);
    cJSON_AddItemToObject(json, "cpu", cpu);
    list = cJSON_AddArrayToObject(json, "devices");
    for (int i = 0; i < info->device_count; i++) {
        vf_dev_device device;
        if (!vf_dev_device_get(context, i, &device)) cJSON_AddItemToArray(list, device_json(i, &device));
    }
    list = cJSON_AddArrayToObject(json, "configs");
    for (size_t i = 0; i < info->config_count; i++) cJSON_AddItemToArray(list, cJSON_CreateString(info->configs[i]));
    list = cJSON_AddArrayToObject(json, "environment");
    for (size_t i = 0; i < info->variable_count; i++) {
        cJSON *variable = cJSON_CreateObject();
        cJSON_AddStringToObject(variable, "name", info->variables[i].name);
        cJSON_AddItemToObject(
            variable, "value",
            info->variables[i].value ? cJSON_CreateString(info->variables[i].value) : cJSON_CreateNull());
        cJSON_AddStringToObject(variable, "meaning", info->variables[i].meaning);
        cJSON_AddItemToArray(list, variable);
    }
    output_json(json, false);
}

// "what      value", or why there is none.
static void line(const char *what, const char *value, const char *state) {
    printf("%-10s %s%s%s\n", what, value, *value && *state ? "; " : "", state);
}

static void print_text(vf_context *context, const vf_dev_info *info) {
    char version[COMMAND_VERSION];
    printf("%-10s %s, generator %s, backend %s\n", "varflash", command_version(version), info->generator,
           vf_context_backend(context) == VF_BACKEND_CUDA ? "cuda" : "cpu");
    line("driver", command_cuda_version(version, info->driver_version), info->driver_state);
    for (int i = 0; i < info->device_count; i++) {
        vf_dev_device device;
        if (vf_dev_device_get(context, i, &device)) {
            printf("device %-3d %s\n", i, vf_last_error());
            continue;
        }
        printf("device %-3d %s, %s, %d multiprocessors, %zu KB of shared memory a block, %.1f of %.1f GiB free\n", i,
               device.name, device.arch, device.multiprocessors, device.shared_bytes_per_block / 1024,
               (double)device.memory_free / (1u << 30), (double)device.memory_total / (1u << 30));
    }
    command_cuda_version(version, info->nvrtc_version);
    printf("%-10s %s%s%s%s%s\n", "NVRTC", version, *info->nvrtc_path ? ", " : "", info->nvrtc_path,
           *version && *info->nvrtc_state ? "; " : "", info->nvrtc_state);
    line("cache", info->cache_dir, info->cache_state);
    printf("%-10s %s, %d threads\n", "CPU", info->cpu, info->cpu_threads);
    for (size_t i = 0; i < info->config_count; i++) printf("%-10s %s\n", i ? "" : "configs", info->configs[i]);

    puts("\nEnvironment");
    struct table table;
    table_open(&table, "lll");
    for (size_t i = 0; i < info->variable_count; i++) {
        table_cell(&table, "  %s", info->variables[i].name);
        table_cell(&table, "%s", info->variables[i].meaning);
        table_cell(&table, "%s", info->variables[i].value ? info->variables[i].value : "-");
    }
    table_print(&table);
    table_close(&table);
}

int verb_info(const struct options *options) {
    vf_context *context;
    const vf_dev_info *info;
    int code = command_no_arguments(options);
    if (!code) code = command_open(options, &context);
    if (code) return code;
    vf_status status = vf_dev_info_get(context, &info);
    if (status)
        code = command_failed(status);
    else if (options->json)
        print_json(context, info);
    else
        print_text(context, info);
    vf_close(context);
    return code;
}
