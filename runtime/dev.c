// dev.c - varflash_dev.h: requests, variants, sources, images and information. Memory, streams and graphs:
// dev_device.c.
#include "varflash/varflash_dev.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "context.h"
#include "dev_info.h"
#include "nvml.h"

#define REQUIRE_POINTER(pointer) VF_REQUIRE(pointer, VF_ERROR_INVALID_ARGUMENT, #pointer ": is null")

// ---- texts ---------------------------------------------------------------------------------------------------------

static vf_status copy_text(const char *text, char **copy) {
    *copy = strdup(text);
    VF_REQUIRE(*copy, VF_ERROR_OUT_OF_MEMORY, "no memory for a text");
    return VF_OK;
}

void vf_dev_text_free(char *text) {
    free(text);
}

void vf_dev_list_free(vf_dev_list *list) {
    if (!list) return;
    for (size_t i = 0; i < list->count; i++) free(list->items[i]);
    free(list->items);
    *list = (vf_dev_list){0, NULL};
}

static vf_status list_add(vf_dev_list *list, const char *text) {
    for (size_t i = 0; i < list->count; i++) {
        if (!strcmp(list->items[i], text)) return VF_OK;
    }
    char **items = realloc(list->items, (list->count + 1) * sizeof *items);
    VF_REQUIRE(items, VF_ERROR_OUT_OF_MEMORY, "no memory for a list");
    list->items = items;
    VF_TRY(copy_text(text, &items[list->count]));
    list->count++;
    return VF_OK;
}

// ---- requests ------------------------------------------------------------------------------------------------------

static vf_status write_request(vf_context *context, const void *args, bool backward, const char *arch, char **text) {
    REQUIRE_POINTER(context);
    REQUIRE_POINTER(text);
    *text = NULL;
    const struct validate_rules rules = {.pointers = VALIDATE_GIVEN,
                                         .host = !arch && context->backend == VF_BACKEND_CPU};
    struct call call;
    VF_TRY(backward ? validate_backward(args, &rules, &call) : validate_forward(args, &rules, &call));
    const struct device *device = NULL;
    if (!arch) {
        VF_REQUIRE(context->devices, VF_ERROR_NO_DEVICE,
                   "arch: is null, and there is no device whose own could be meant");
        VF_TRY(devices_guess(context->devices, call.problem->device, &device));
        arch = device->arch;
    }
    char request[REQUEST_TEXT];
    request_describe(&call.request, arch, request);
    return copy_text(request, text);
}

vf_status vf_dev_request_forward(vf_context *context, const vf_forward_args *args, const char *arch, char **request) {
    return write_request(context, args, false, arch, request);
}

vf_status vf_dev_request_backward(vf_context *context, const vf_backward_args *args, const char *arch, char **request) {
    return write_request(context, args, true, arch, request);
}

// ---- variants ------------------------------------------------------------------------------------------------------

// `knobs` with the values of `set` in their places; a knob that is not there yet is added.
static vf_status override(const char *knobs, const char *set, char out[CONFIG_KNOBS]) {
    snprintf(out, CONFIG_KNOBS, "%s", knobs);
    for (const char *word = set; *word; word += strspn(word, " ")) {
        const size_t length = strcspn(word, " ");
        const char *equals = memchr(word, '=', length);
        VF_REQUIRE(equals && equals > word, VF_ERROR_INVALID_ARGUMENT, "set: '%.*s' is not knob=value", (int)length,
                   word);
        const size_t name = (size_t)(equals - word) + 1;
        char *place = out;
        while (*place && strncmp(place, word, name) != 0) {
            place += strcspn(place, " ");
            place += strspn(place, " ");
        }
        char rest[CONFIG_KNOBS];
        snprintf(rest, sizeof rest, "%s", place + strcspn(place, " "));
        const size_t before = (size_t)(place - out);
        const bool separate = !*place && before > 0 && out[before - 1] != ' ';
        const size_t room = CONFIG_KNOBS - before;
        const int written = snprintf(place, room, "%s%.*s%s", separate ? " " : "", (int)length, word, rest);
        VF_REQUIRE((size_t)written < room, VF_ERROR_INVALID_ARGUMENT, "set: too many knobs");
        word += length;
    }
    return VF_OK;
}

// A public variant and everything it points to, in one block.
struct variant_copy {
    vf_dev_variant public;
    struct choice choice;
    vf_dev_kernel kernels[SOURCE_KERNELS_MAX];
};

static vf_dev_variant *publish(struct variant_copy *copy) {
    const struct source_plan *plan = &copy->choice.plan;
    for (int i = 0; i < plan->kernel_count; i++) {
        const struct source_kernel *kernel = &plan->kernels[i];
        copy->kernels[i] =
            (vf_dev_kernel){.name = kernel->name,
                            .spec = kernel->spec,
                            .entry = kernel->entry,
                            .threads = kernel->threads,
                            .blocks_per_sm = strcmp(kernel->name, "schedule") ? kernel->blocks_per_sm : 0,
                            .registers = kernel->registers,
                            .shared_bytes = (size_t)kernel->shared_bytes};
    }
    copy->public = (vf_dev_variant){.request = copy->choice.request,
                                    .knobs = copy->choice.knobs,
                                    .row = copy->choice.origin,
                                    .tile_m = plan->tile_m,
                                    .tile_n = plan->tile_n,
                                    .kernel_count = (size_t)plan->kernel_count,
                                    .kernels = copy->kernels};
    return &copy->public;
}

// The row that serves sequences of any length: the last that can be reached.
static vf_status choose(struct vf_context *context, const char *text, const char *set, struct choice *choice) {
    static const struct sizes long_sequences = {.average_q = 30, .average_k = 30, .group = 0};
    struct request request;
    char arch[ARCH_TEXT], knobs[CONFIG_KNOBS];
    VF_TRY(request_parse(text, &request, arch));
    const vf_status status = variants_choose(context->variants, &request, &long_sequences, arch, NULL, choice);
    // A row that the budget refuses may still be the start for knobs that it accepts.
    if (!set || !choice->knobs[0]) return status;
    char origin[CONFIG_ORIGIN];
    snprintf(origin, sizeof origin, "%s", choice->origin);
    VF_TRY(override(choice->knobs, set, knobs));
    return variants_choose_knobs(context->variants, &request, arch, origin, knobs, choice);
}

vf_status vf_dev_variant_create(vf_context *context, const char *request, const char *set, vf_dev_variant **variant) {
    REQUIRE_POINTER(context);
    REQUIRE_POINTER(request);
    REQUIRE_POINTER(variant);
    *variant = NULL;
    struct variant_copy *copy = calloc(1, sizeof *copy);
    VF_REQUIRE(copy, VF_ERROR_OUT_OF_MEMORY, "no memory for a variant");
    const vf_status status = choose(context, request, set, &copy->choice);
    if (status) {
        free(copy);
        return status;
    }
    *variant = publish(copy);
    return VF_OK;
}

void vf_dev_variant_free(vf_dev_variant *variant) {
    free(variant);
}

vf_status vf_dev_candidates(vf_context *context, const char *text, vf_dev_list *knobs) {
    REQUIRE_POINTER(context);
    REQUIRE_POINTER(text);
    REQUIRE_POINTER(knobs);
    *knobs = (vf_dev_list){0, NULL};
    const struct config_row *rows[CONFIG_ROWS_MAX];
    struct request request;
    char arch[ARCH_TEXT];
    size_t count = 0;
    VF_TRY(request_parse(text, &request, arch));
    VF_TRY(variants_rows(context->variants, &request, arch, NULL, true, rows, &count));
    for (size_t i = 0; i < count; i++) {
        struct choice choice;
        const vf_status refused =
            variants_choose_knobs(context->variants, &request, arch, rows[i]->origin, rows[i]->knobs, &choice);
        const vf_status status = refused == VF_ERROR_UNSUPPORTED ? VF_OK
                                 : refused                       ? refused
                                                                 : list_add(knobs, rows[i]->knobs);
        if (status) {
            vf_dev_list_free(knobs);
            return status;
        }
    }
    return VF_OK;
}

vf_status vf_dev_force(vf_context *context, const char *forward, const char *backward) {
    REQUIRE_POINTER(context);
    return variants_force(context->variants, forward, backward);
}

// ---- sources and images --------------------------------------------------------------------------------------------

vf_status vf_dev_source(vf_context *context, const char *kernel_spec, int lines, char **text) {
    REQUIRE_POINTER(context);
    REQUIRE_POINTER(kernel_spec);
    REQUIRE_POINTER(text);
    *text = NULL;
    struct buf source = {.data = NULL};
    vf_status status = (lines ? source_text_with_lines : source_text)(context->source, kernel_spec, &source);
    if (!status) status = buf_check(&source);
    if (!status) status = copy_text(buf_string(&source), text);
    buf_free(&source);
    return status;
}

vf_status vf_dev_compile(vf_context *context, const char *kernel_spec, int ptx, vf_dev_image *image) {
    REQUIRE_POINTER(image);
    *image = (vf_dev_image){.registers = -1, .stack_bytes = -1, .spill_store_bytes = -1, .spill_load_bytes = -1};
    REQUIRE_POINTER(context);
    REQUIRE_POINTER(kernel_spec);
    struct compiled compiled = {.ptx = false};
    vf_status status = kernels_compile(context->kernels, kernel_spec, ptx != 0, &compiled);
    char *log = strdup(buf_string(&compiled.log));
    if (!log && !status) status = status_fail(VF_ERROR_OUT_OF_MEMORY, "no memory for the compiler's log");
    image->log = log;
    image->seconds = compiled.milliseconds / 1000;
    if (!status) {
        image->data = compiled.image.data;
        image->size = compiled.image.size;
        image->is_ptx = compiled.ptx;
        compiled.image = (struct buf){.data = NULL};
        if (!image->is_ptx) {
            image->registers = compiled.report.registers;
            image->stack_bytes = compiled.report.stack_bytes;
            image->spill_store_bytes = compiled.report.spill_stores;
            image->spill_load_bytes = compiled.report.spill_loads;
        }
    }
    compiled_free(&compiled);
    return status;
}

void vf_dev_image_free(vf_dev_image *image) {
    if (!image) return;
    free(image->data);
    free(image->log);
    image->data = NULL;
    image->log = NULL;
}

vf_dev_counters vf_dev_count(const vf_context *context) {
    if (!context) return (vf_dev_counters){.compiled = 0};
    const struct kernels_counters counters = kernels_count(context->kernels);
    return (vf_dev_counters){.compiled = counters.compiled,
                             .from_cache = counters.from_cache,
                             .from_bundle = counters.from_bundle,
                             .launched = atomic_load(&context->launched)};
}

// ---- information ---------------------------------------------------------------------------------------------------

vf_status vf_dev_info_get(vf_context *context, const vf_dev_info **info) {
    REQUIRE_POINTER(context);
    REQUIRE_POINTER(info);
    pthread_mutex_lock(&context->info_lock);
    const vf_status status = context->info ? VF_OK : dev_info_make(context, &context->info);
    pthread_mutex_unlock(&context->info_lock);
    *info = context->info ? dev_info_get(context->info) : NULL;
    return status;
}

static vf_status read_attributes(const struct cuda_api *cuda, const struct device *device, vf_dev_device *out) {
    int l2 = 0, clock = 0, domain = 0, bus = 0, slot = 0;
    const struct {
        int attribute, *value;
    } attributes[] = {{CUDA_DEVICE_L2_BYTES, &l2},
                      {CUDA_DEVICE_CLOCK_KHZ, &clock},
                      {CUDA_DEVICE_PCI_DOMAIN, &domain},
                      {CUDA_DEVICE_PCI_BUS, &bus},
                      {CUDA_DEVICE_PCI_SLOT, &slot}};
    for (size_t i = 0; i < ARRAY_LENGTH(attributes); i++) {
        CUDA_TRY(cuda, cuDeviceGetAttribute, attributes[i].value, attributes[i].attribute, device->handle);
    }
    const struct nvml_reading now = nvml_read(domain, bus, slot);
    out->l2_bytes = (size_t)l2;
    out->clock_mhz = now.clock_mhz;
    out->clock_max_mhz = now.clock_max_mhz ? now.clock_max_mhz : clock / 1000;
    out->memory_clock_mhz = now.memory_clock_mhz;
    out->power_watts = now.power_watts;
    out->temperature = now.temperature;
    return VF_OK;
}

vf_status vf_dev_device_get(vf_context *context, int ordinal, vf_dev_device *out) {
    REQUIRE_POINTER(context);
    REQUIRE_POINTER(out);
    *out = (vf_dev_device){.multiprocessors = 0};
    VF_REQUIRE(context->devices, VF_ERROR_NO_DEVICE, "the CPU backend has no devices");
    const struct device *device = devices_get(context->devices, ordinal);
    VF_REQUIRE(device, VF_ERROR_INVALID_ARGUMENT, "device: there is no CUDA device %d, of %d", ordinal,
               devices_count(context->devices));
    memcpy(out->name, device->name, sizeof out->name);
    memcpy(out->arch, device->arch, sizeof out->arch);
    out->compute_major = device->compute_major;
    out->compute_minor = device->compute_minor;
    out->multiprocessors = device->multiprocessors;
    out->shared_bytes_per_block = device->shared_bytes_per_block;
    VF_TRY(read_attributes(context->cuda, device, out));
    struct scope scope;
    VF_TRY(scope_enter(context->devices, ordinal + 1, NULL, NULL, &scope));
    const vf_status status =
        cuda_check(context->cuda, context->cuda->cuMemGetInfo(&out->memory_free, &out->memory_total), "cuMemGetInfo");
    scope_leave(&scope);
    return status;
}
