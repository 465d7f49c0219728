// variant.c - see variant.h.
//
// Two levels. The list holds every variant that was made, by its text; the index leads from (key, context) to one of
// them. Many keys lead to one variant: a key has the call's sizes in it, as powers of two, because a row may ask for
// them.
#include "variant.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BITS 40           // of request_key; the generation of forced knobs stands above
#define CHECK_KEY UINT64_MAX  // checked mode's kernel has no request

struct slot {
    uint64_t key, context;
    const struct variant *variant;  // null: free
};

struct limits {
    char arch[ARCH_TEXT];  // "" = free
    int shared_kb;
};

struct variants {
    const struct config *config;
    struct kernels *kernels;
    bool maps;
    pthread_rwlock_t lock;  // guards index, list and limits
    struct slot *index;     // open addressing; never more than half full
    size_t used, size;
    struct variant *list;
    struct limits limits[16];  // of architectures asked for so far; when all are taken, the generator is asked again
    uint64_t generation;
    char forced[2][CONFIG_KNOBS];  // of forward and backward; empty: rows choose
};

vf_status variants_open(const struct config *config, struct kernels *kernels, bool maps, struct variants **out) {
    struct variants *variants = calloc(1, sizeof *variants);
    VF_REQUIRE(variants, VF_ERROR_OUT_OF_MEMORY, "no memory for the table of variants");
    variants->config = config;
    variants->kernels = kernels;
    variants->maps = maps;
    pthread_rwlock_init(&variants->lock, NULL);
    *out = variants;
    return VF_OK;
}

void variants_close(struct variants *variants) {
    if (!variants) return;
    while (variants->list) {
        struct variant *next = variants->list->next;
        free(variants->list);
        variants->list = next;
    }
    free(variants->index);
    pthread_rwlock_destroy(&variants->lock);
    free(variants);
}

vf_status variants_force(struct variants *variants, const char *forward, const char *backward) {
    const char *const knobs[2] = {forward ? forward : "", backward ? backward : ""};
    for (int pass = 0; pass < 2; pass++)
        VF_REQUIRE(strlen(knobs[pass]) < CONFIG_KNOBS, VF_ERROR_INVALID_ARGUMENT, "knobs: '%s' is too long",
                   knobs[pass]);
    for (int pass = 0; pass < 2; pass++) snprintf(variants->forced[pass], CONFIG_KNOBS, "%s", knobs[pass]);
    variants->generation++;
    return VF_OK;
}

const char *variants_forced(const struct variants *variants, const struct request *request) {
    const char *forced = variants->forced[request->backward];
    return forced[0] ? forced : NULL;
}

// ---- choosing ------------------------------------------------------------------------------------------------------
// The spec of a choice: request and knobs.
#define VARIANT_TEXT (REQUEST_TEXT + CONFIG_KNOBS)
static void variant_write(const struct choice *choice, char spec[VARIANT_TEXT]) {
    snprintf(spec, VARIANT_TEXT, "%s%s%s", choice->request, choice->knobs[0] ? " " : "", choice->knobs);
}

static bool has_maps(const struct variants *variants, const struct request *request) {
    return variants->maps && request->mapped;
}

static bool needs_maps(const struct source_plan *plan) {
    bool needs = false;
    for (int i = 0; i < plan->kernel_count; i++) needs |= plan->kernels[i].boxes[0] != 0;
    return needs;
}

vf_status variants_choose_knobs(struct variants *variants, const struct request *request, const char *arch,
                                const char *origin, const char *knobs, struct choice *choice) {
    char spec[VARIANT_TEXT];
    *choice = (struct choice){.plan = {.kernel_count = 0}};
    request_write(request, arch, choice->request);
    snprintf(choice->origin, sizeof choice->origin, "%s", origin);
    snprintf(choice->knobs, sizeof choice->knobs, "%s", knobs);
    variant_write(choice, spec);
    const vf_status status = kernels_plan(variants->kernels, spec, &choice->plan);
    if (status) status_prefix("%s: ", origin);
    VF_TRY(status);
    VF_REQUIRE(has_maps(variants, request) || !needs_maps(&choice->plan), VF_ERROR_UNSUPPORTED,
               "%s: family %s reads through tensor maps, which %s", origin, choice->plan.family,
               variants->maps ? "cannot address these operands (16-byte alignment, strides from 0 to 2^40 bytes)"
                              : "this driver does not make");
    return VF_OK;
}

static int find_shared_kb(struct variants *variants, const char *arch) {
    int found = 0;
    pthread_rwlock_rdlock(&variants->lock);
    for (size_t i = 0; i < ARRAY_LENGTH(variants->limits); i++) {
        if (!strcmp(variants->limits[i].arch, arch)) found = variants->limits[i].shared_kb;
    }
    pthread_rwlock_unlock(&variants->lock);
    return found;
}

// Shared memory that a block may have on `arch`, which the generator knows.
static vf_status get_shared_kb(struct variants *variants, const char *arch, int *shared_kb) {
    *shared_kb = find_shared_kb(variants, arch);
    if (*shared_kb) return VF_OK;
    char spec[64];
    struct source_plan plan;
    snprintf(spec, sizeof spec, "pass=check arch=%s", arch);
    VF_TRY(kernels_plan(variants->kernels, spec, &plan));
    *shared_kb = plan.shared_per_block / 1024;
    pthread_rwlock_wrlock(&variants->lock);
    for (size_t i = 0; i < ARRAY_LENGTH(variants->limits); i++) {
        struct limits *limits = &variants->limits[i];
        if (limits->arch[0] && strcmp(limits->arch, arch) != 0) continue;
        snprintf(limits->arch, sizeof limits->arch, "%s", arch);
        limits->shared_kb = *shared_kb;
        break;
    }
    pthread_rwlock_unlock(&variants->lock);
    return VF_OK;
}

static vf_status find_rows(struct variants *variants, const struct config_query *asked, bool all,
                           const struct config_row **rows, size_t *count) {
    struct config_query query = *asked;
    VF_TRY(get_shared_kb(variants, query.arch, &query.shared_kb));
    *count = (all ? config_candidates : config_reachable)(variants->config, &query, rows, CONFIG_ROWS_MAX);
    return VF_OK;
}

vf_status variants_rows(struct variants *variants, const struct request *request, const char *arch, const char *device,
                        bool all, const struct config_row **rows, size_t *count) {
    const struct config_query query = {.request = *request,
                                       .arch = arch,
                                       .device = device,
                                       .barred = has_maps(variants, request) ? NULL : VARIANT_MAPPED_FAMILY};
    return find_rows(variants, &query, all, rows, count);
}

static const struct config_row *first_that_fits(const struct config_row *const *rows, size_t count,
                                                const struct sizes *sizes) {
    for (size_t i = 0; i < count; i++) {
        if (config_row_fits(rows[i], sizes)) return rows[i];
    }
    return NULL;
}

vf_status variants_barred_row(struct variants *variants, const struct request *request, const struct sizes *sizes,
                              const char *arch, const char *device, const struct config_row **row, const char **why) {
    const struct config_query query = {.request = *request, .arch = arch, .device = device};
    const struct config_row *rows[CONFIG_ROWS_MAX];
    size_t count = 0;
    *row = NULL;
    *why = variants->maps ? "" : "this driver makes none (it has no cuTensorMapEncodeTiled)";
    if (has_maps(variants, request)) return VF_OK;
    VF_TRY(find_rows(variants, &query, false, rows, &count));
    const struct config_row *first = first_that_fits(rows, count, sizes);
    if (first && !strcmp(first->family, VARIANT_MAPPED_FAMILY)) *row = first;
    return VF_OK;
}

// A row's bits must not depend on the rest of its batch: rows that only sizes tell apart must give equal ones.
static vf_status check_numeric(struct variants *variants, const struct request *request, const char *arch,
                               const struct config_row *const *rows, size_t count) {
    if (request->backward && !request->deterministic) return VF_OK;
    int first = 0;
    for (size_t i = 0; i < count; i++) {
        struct choice choice;
        VF_TRY(variants_choose_knobs(variants, request, arch, rows[i]->origin, rows[i]->knobs, &choice));
        const int numeric = choice.plan.numeric;
        if (i == 0) first = numeric;
        VF_REQUIRE(
            numeric == first, VF_ERROR_CONFIG,
            "%s and %s: only sizes decide between these rows, so they must agree in every knob that changes results",
            rows[0]->origin, rows[i]->origin);
    }
    return VF_OK;
}

vf_status variants_choose(struct variants *variants, const struct request *request, const struct sizes *sizes,
                          const char *arch, const char *device, struct choice *choice) {
    const char *forced = variants_forced(variants, request);
    if (forced) return variants_choose_knobs(variants, request, arch, "forced", forced, choice);
    const struct config_row *rows[CONFIG_ROWS_MAX];
    size_t count = 0;
    VF_TRY(variants_rows(variants, request, arch, device, false, rows, &count));
    VF_TRY(check_numeric(variants, request, arch, rows, count));
    const struct config_row *row = first_that_fits(rows, count, sizes);
    if (row) return variants_choose_knobs(variants, request, arch, row->origin, row->knobs, choice);
    char text[REQUEST_TEXT];
    request_write(request, arch, text);
    VF_FAIL(VF_ERROR_UNSUPPORTED, "no configuration row serves '%s'", text);
}

// ---- the index -----------------------------------------------------------------------------------------------------

static struct slot *slot_of(struct slot *index, size_t size, uint64_t key, uint64_t context) {
    const uint64_t mixed = (key ^ context * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
    size_t at = (size_t)(mixed >> 32) & (size - 1);
    while (index[at].variant && (index[at].key != key || index[at].context != context)) at = (at + 1) & (size - 1);
    return &index[at];
}

// Null if it has not been asked for before.
static const struct variant *find(struct variants *variants, uint64_t key, uint64_t context) {
    const struct variant *found = NULL;
    pthread_rwlock_rdlock(&variants->lock);
    if (variants->size > 0) found = slot_of(variants->index, variants->size, key, context)->variant;
    pthread_rwlock_unlock(&variants->lock);
    return found;
}

static uint64_t key_of(const struct variants *variants, const struct request *request, const struct sizes *sizes) {
    return variants->generation << KEY_BITS | request_key(request, sizes);
}

static vf_status grow(struct variants *variants) {
    if (2 * (variants->used + 1) <= variants->size) return VF_OK;
    const size_t size = variants->size ? 2 * variants->size : 64;
    struct slot *index = calloc(size, sizeof *index);
    VF_REQUIRE(index, VF_ERROR_OUT_OF_MEMORY, "no memory for the index of variants");
    for (size_t i = 0; i < variants->size; i++) {
        const struct slot *slot = &variants->index[i];
        if (slot->variant) *slot_of(index, size, slot->key, slot->context) = *slot;
    }
    free(variants->index);
    variants->index = index;
    variants->size = size;
    return VF_OK;
}

static vf_status remember(struct variants *variants, uint64_t key, const struct variant *variant) {
    pthread_rwlock_wrlock(&variants->lock);
    const vf_status status = grow(variants);
    if (!status) {
        struct slot *slot = slot_of(variants->index, variants->size, key, variant->context);
        variants->used += !slot->variant;
        *slot = (struct slot){key, variant->context, variant};
    }
    pthread_rwlock_unlock(&variants->lock);
    return status;
}

// ---- the list ------------------------------------------------------------------------------------------------------

static const struct variant *find_in_list(struct variants *variants, const struct choice *choice, uint64_t context) {
    const struct variant *found = variants->list;
    while (found && (found->context != context || strcmp(found->choice.request, choice->request) != 0 ||
                     strcmp(found->choice.knobs, choice->knobs) != 0)) {
        found = found->next;
    }
    return found;
}

static vf_status role_of(const char *name, enum role *role) {
    static const struct {
        const char *prefix;
        enum role role;
    } roles[] = {{"schedule", ROLE_SCHEDULE},
                 {"fwd_sm90", ROLE_FORWARD_SM90},
                 {"fwd_", ROLE_FORWARD},
                 {"bwd_pre_sm90", ROLE_BACKWARD_PRE_SM90},
                 {"bwd_pre", ROLE_BACKWARD_PRE},
                 {"bwd_sm90", ROLE_BACKWARD_SM90},
                 {"bwd_post", ROLE_BACKWARD_POST},
                 {"bwd_", ROLE_BACKWARD},
                 {"check_", ROLE_CHECK}};
    for (size_t i = 0; i < ARRAY_LENGTH(roles); i++) {
        if (!strncmp(name, roles[i].prefix, strlen(roles[i].prefix))) {
            *role = roles[i].role;
            return VF_OK;
        }
    }
    VF_FAIL(VF_ERROR_INTERNAL, "kernel '%s' has no role that the launcher knows", name);
}

static vf_status fill(struct variants *variants, const struct scope *scope, struct variant *variant) {
    const struct source_plan *plan = &variant->choice.plan;
    char spec[VARIANT_TEXT];
    variant_write(&variant->choice, spec);
    for (int i = 0; i < plan->kernel_count; i++) {
        const struct source_kernel *facts = &plan->kernels[i];
        VF_TRY(role_of(facts->name, &variant->roles[i]));
        VF_REQUIRE(facts->cluster > 0, VF_ERROR_INTERNAL, "kernel '%s' has clusters of no blocks", facts->name);
        VF_TRY(tensor_map_read(facts->boxes, variant->maps[i].boxes, &variant->maps[i].count));
        const vf_status status = kernels_get(variants->kernels, spec, facts, &variant->kernels[i]);
        if (status == VF_ERROR_NO_COMPILER) status_prefix("%s: ", plan->name);
        VF_TRY(status);
        VF_TRY(module_function(scope->api, &variant->kernels[i]->module, facts->shared_bytes, &variant->functions[i]));
        const bool one_block = variant->roles[i] == ROLE_SCHEDULE || variant->roles[i] == ROLE_CHECK;
        variant->threads[i] = facts->threads;
        variant->shared_bytes[i] = facts->shared_bytes;
        variant->grid[i] = one_block ? 1 : scope->device->multiprocessors * facts->blocks_per_sm;
    }
    return VF_OK;
}

static vf_status make(struct variants *variants, const struct choice *choice, const struct scope *scope,
                      CUstream stream, const struct variant **out) {
    pthread_rwlock_rdlock(&variants->lock);
    *out = find_in_list(variants, choice, scope->context);
    pthread_rwlock_unlock(&variants->lock);
    if (*out) return VF_OK;

    bool capturing = false;
    VF_TRY(scope_capturing(scope, stream, &capturing));
    VF_REQUIRE(!capturing, VF_ERROR_CAPTURE,
               "stream: is being captured, and the kernels of '%s %s' are not loaded yet; call vf_prepare_%s before "
               "the capture",
               choice->request, choice->knobs, strstr(choice->request, "pass=bwd") ? "backward" : "forward");

    struct variant *variant = calloc(1, sizeof *variant);
    VF_REQUIRE(variant, VF_ERROR_OUT_OF_MEMORY, "no memory for a variant");
    variant->choice = *choice;
    variant->context = scope->context;
    const vf_status status = fill(variants, scope, variant);
    if (status) {
        free(variant);
        return status;
    }
    // Another thread may have made the same one meanwhile; both serve, and the kernels are shared anyway.
    pthread_rwlock_wrlock(&variants->lock);
    variant->next = variants->list;
    variants->list = variant;
    pthread_rwlock_unlock(&variants->lock);
    *out = variant;
    return VF_OK;
}

vf_status variants_get(struct variants *variants, const struct request *request, const struct sizes *sizes,
                       const struct scope *scope, CUstream stream, const struct variant **variant) {
    const uint64_t key = key_of(variants, request, sizes);
    *variant = find(variants, key, scope->context);
    if (*variant) return VF_OK;
    struct choice choice;
    VF_TRY(variants_choose(variants, request, sizes, scope->device->arch, scope->device->name, &choice));
    VF_TRY(make(variants, &choice, scope, stream, variant));
    return remember(variants, key, *variant);
}

vf_status variants_get_check(struct variants *variants, const struct scope *scope, CUstream stream,
                             const struct variant **variant) {
    *variant = find(variants, CHECK_KEY, scope->context);
    if (*variant) return VF_OK;
    struct choice choice = {.origin = "checked mode"};
    snprintf(choice.request, sizeof choice.request, "pass=check arch=%s", scope->device->arch);
    VF_TRY(kernels_plan(variants->kernels, choice.request, &choice.plan));
    VF_TRY(make(variants, &choice, scope, stream, variant));
    return remember(variants, CHECK_KEY, *variant);
}

vf_status variants_prepare(struct variants *variants, const struct request *request, const struct scope *scope,
                           CUstream stream, struct prepared *prepared) {
    *prepared = (struct prepared){.count = 1};
    const struct device *device = scope->device;
    const char *forced = variants_forced(variants, request);
    if (!forced) {
        VF_TRY(variants_rows(variants, request, device->arch, device->name, false, prepared->rows, &prepared->count));
        VF_TRY(check_numeric(variants, request, device->arch, prepared->rows, prepared->count));
    }
    for (size_t i = 0; i < prepared->count; i++) {
        const struct config_row *row = prepared->rows[i];
        struct choice choice;
        VF_TRY(variants_choose_knobs(variants, request, device->arch, row ? row->origin : "forced",
                                     row ? row->knobs : forced, &choice));
        VF_TRY(make(variants, &choice, scope, stream, &prepared->variants[i]));
    }
    char text[REQUEST_TEXT];
    request_write(request, device->arch, text);
    VF_REQUIRE(prepared->count > 0, VF_ERROR_UNSUPPORTED, "no configuration row serves '%s'", text);
    return VF_OK;
}
