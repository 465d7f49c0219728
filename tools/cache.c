// cache.c - `varflash cache`: the folders of compiled kernels, looked at and kept small.
#include "cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cjson/cJSON.h>

#include "command.h"
#include "fs.h"
#include "output.h"

#define DAY 86400

// ---- list and verify -------------------------------------------------------------------------------------------------

struct report {
    const struct options *options;
    struct table table;
    cJSON *json;
    bool all;  // else faults alone
    size_t count, faults;
    uint64_t bytes;
};

// The value of "spec=..." in `meta`, until the end of its line.
static void spec_of(const char *meta, char *spec, size_t size) {
    const bool known = !strncmp(meta, "spec=", 5);
    snprintf(spec, size, "%.*s", known ? (int)strcspn(meta + 5, "\n") : 0, known ? meta + 5 : "");
}

static void add_json(struct report *report, const struct cache_item *item, const char *spec) {
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "file", item->file);
    cJSON_AddStringToObject(json, "folder", item->folder);
    cJSON_AddNumberToObject(json, "bytes", (double)item->bytes);
    cJSON_AddNumberToObject(json, "used", (double)item->used);
    cJSON_AddNumberToObject(json, "nvrtc", item->maker);
    cJSON_AddStringToObject(json, "kernel", spec);
    cJSON_AddItemToObject(json, "fault", item->fault ? cJSON_CreateString(item->fault) : cJSON_CreateNull());
    cJSON_AddItemToArray(report->json, json);
}

static void visit(const struct cache_item *item, void *user) {
    struct report *report = user;
    char spec[600], version[COMMAND_VERSION];
    spec_of(item->meta, spec, sizeof(spec));
    if (report->options->filter && !strstr(spec, report->options->filter)) return;
    report->count++;
    report->bytes += item->bytes;
    report->faults += item->fault != NULL;
    if (!report->all && !item->fault) return;
    add_json(report, item, spec);
    table_cell(&report->table, "%.16s", item->file);
    table_cell(&report->table, "%" PRIu64, item->bytes);
    table_cell(&report->table, "%" PRId64 "d", (int64_t)(time(NULL) - item->used) / DAY);
    table_cell(&report->table, "%s", command_cuda_version(version, item->maker));
    table_cell(&report->table, "%s%s",
               item->fault    ? "FAULT: "
               : item->system ? "(system) "
                              : "",
               item->fault ? item->fault : spec);
}

static int list(const struct options *options, struct cache *cache, bool all) {
    struct report report = {.options = options, .all = all, .json = cJSON_CreateArray()};
    table_open(&report.table, "lrrll");
    const vf_status status = cache_visit(cache, visit, &report);
    int code = status ? command_failed(status) : CODE_OK;
    if (!code && options->json) {
        output_json(report.json, false);
    } else {
        if (!code) table_print(&report.table);
        if (!code)
            printf("%zu entries, %.1f MB, %zu with a fault\n", report.count, 1e-6 * (double)report.bytes,
                   report.faults);
        cJSON_Delete(report.json);
    }
    table_close(&report.table);
    return !code && !all && report.faults ? CODE_CHECK_FAILED : code;
}

// ---- the rest --------------------------------------------------------------------------------------------------------

static int prune(const struct options *options, struct cache *cache, const struct cache_limits *limits) {
    struct cache_removed removed;
    const vf_status status = cache_prune(cache, limits, &removed);
    if (status) return command_failed(status);
    if (options->json) {
        cJSON *json = cJSON_CreateObject();
        cJSON_AddNumberToObject(json, "removed", (double)removed.entries);
        cJSON_AddNumberToObject(json, "removed_bytes", (double)removed.bytes);
        cJSON_AddNumberToObject(json, "temporaries", (double)removed.temporaries);
        cJSON_AddNumberToObject(json, "kept", (double)removed.kept);
        cJSON_AddNumberToObject(json, "kept_bytes", (double)removed.kept_bytes);
        output_json(json, true);
    } else {
        printf("%zu entries removed, %.1f MB; %zu kept, %.1f MB\n", removed.entries, 1e-6 * (double)removed.bytes,
               removed.kept, 1e-6 * (double)removed.kept_bytes);
    }
    return CODE_OK;
}

static int print_path(const struct options *options, const struct cache *cache) {
    const char *reason, *folder = cache_folder(cache, &reason), *system = cache_system_folder(cache);
    if (options->json) {
        cJSON *json = cJSON_CreateObject();
        cJSON_AddItemToObject(json, "folder", folder ? cJSON_CreateString(folder) : cJSON_CreateNull());
        cJSON_AddItemToObject(json, "system", system ? cJSON_CreateString(system) : cJSON_CreateNull());
        cJSON_AddStringToObject(json, "reason", reason);
        output_json(json, false);
    } else if (folder) {
        puts(folder);
    }
    if (folder) return CODE_OK;
    output_error("there is no cache folder: %s", reason);
    return CODE_FILE;
}

static int act(const struct options *options, struct cache *cache, const char *action) {
    struct cache_limits limits = {.bytes = UINT64_MAX, .seconds = INT64_MAX};
    if (!strcmp(action, "list")) return list(options, cache, true);
    if (!strcmp(action, "verify")) return list(options, cache, false);
    if (!strcmp(action, "path")) return print_path(options, cache);
    if (!strcmp(action, "clear")) {
        limits = (struct cache_limits){.bytes = 0, .seconds = 0};
    } else {
        if (options->max_size >= 0) limits.bytes = (uint64_t)options->max_size << 20;
        if (options->max_age >= 0) limits.seconds = options->max_age * DAY;
    }
    return prune(options, cache, &limits);
}

int verb_cache(const struct options *options) {
    static const char *const actions[] = {"list", "verify", "prune", "clear", "path"};
    const struct text_list *words = &options->arguments;
    struct environment environment;
    struct cache *cache = NULL;
    const char *action = NULL;
    for (size_t i = 0; i < sizeof(actions) / sizeof(*actions) && words->count == 1; i++) {
        if (!strcmp(words->items[0], actions[i])) action = actions[i];
    }
    if (!action) {
        output_error("cache: takes one of list, verify, prune, clear, path");
        return CODE_USAGE;
    }
    vf_status status = environment_read(&environment);
    if (!status) status = cache_open(options->cache_dir, &environment, NULL, &cache);
    const int code = status ? command_failed(status) : act(options, cache, action);
    cache_close(cache);
    environment_free(&environment);
    return code;
}
