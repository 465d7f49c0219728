// bundle_manifest.c - see bundle_manifest.h.
#include "bundle_manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "command.h"
#include "hash.h"
#include "source_plan.h"

// "form=cubin\nregisters=168\n" as members: numbers where they are numbers.
static void add_facts(cJSON *json, const char *facts) {
    while (*facts) {
        char name[64], value[64], *end;
        const size_t length = strcspn(facts, "\n");
        if (sscanf(facts, "%63[^=\n]=%63[^\n]", name, value) == 2) {
            const double number = strtod(value, &end);
            if (*end)
                cJSON_AddStringToObject(json, name, value);
            else
                cJSON_AddNumberToObject(json, name, number);
        }
        facts += length + (facts[length] == '\n');
    }
}

static cJSON *kernel_json(const struct bundle_draft_item *kernel) {
    unsigned char digest[HASH_SIZE];
    char text[HASH_TEXT_SIZE];
    cJSON *json = cJSON_CreateObject();
    hash_bytes(buf_string(&kernel->image), kernel->image.size, digest);
    hash_text(digest, text);
    cJSON_AddStringToObject(json, "spec", kernel->spec);
    cJSON_AddStringToObject(json, "digest", text);
    cJSON_AddNumberToObject(json, "bytes", (double)kernel->image.size);
    add_facts(json, kernel->text);
    return json;
}

// A plan that cannot be read gives a variant without kernels; `bundle verify` says so.
static cJSON *variant_json(const struct bundle_draft_item *variant) {
    struct source_plan plan;
    cJSON *json = cJSON_CreateObject(), *kernels = cJSON_CreateArray();
    if (!source_plan_read(variant->text, strlen(variant->text), &plan)) plan.kernel_count = 0;
    cJSON_AddStringToObject(json, "name", plan.name);
    cJSON_AddStringToObject(json, "spec", variant->spec);
    for (int i = 0; i < plan.kernel_count; i++) {
        cJSON *kernel = cJSON_CreateObject();
        cJSON_AddStringToObject(kernel, "spec", plan.kernels[i].spec);
        cJSON_AddStringToObject(kernel, "entry", plan.kernels[i].entry);
        cJSON_AddNumberToObject(kernel, "threads", plan.kernels[i].threads);
        cJSON_AddNumberToObject(kernel, "blocks_per_sm", plan.kernels[i].blocks_per_sm);
        cJSON_AddNumberToObject(kernel, "dynamic_shared_bytes", plan.kernels[i].shared_bytes);
        cJSON_AddItemToArray(kernels, kernel);
    }
    cJSON_AddItemToObject(json, "kernels", kernels);
    return json;
}

char *bundle_manifest_make(const struct bundle_draft *draft) {
    char version[COMMAND_VERSION];
    cJSON *json = cJSON_CreateObject(), *variants = cJSON_CreateArray(), *kernels = cJSON_CreateArray();
    cJSON_AddStringToObject(json, "generator", draft->generator);
    cJSON_AddStringToObject(json, "nvrtc", command_cuda_version(version, draft->compiler));
    for (size_t i = 0; i < draft->plan_count; i++) cJSON_AddItemToArray(variants, variant_json(&draft->plans[i]));
    for (size_t i = 0; i < draft->kernel_count; i++) cJSON_AddItemToArray(kernels, kernel_json(&draft->kernels[i]));
    cJSON_AddItemToObject(json, "variants", variants);
    cJSON_AddItemToObject(json, "kernels", kernels);
    char *text = cJSON_Print(json);
    cJSON_Delete(json);
    return text;
}
