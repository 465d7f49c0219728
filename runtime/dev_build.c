// dev_build.c - varflash_dev.h: what building ahead of time asks for. Which file the images end up in is the caller's.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "context.h"
#include "varflash/varflash_dev.h"

#define REQUIRE_POINTER(pointer) VF_REQUIRE(pointer, VF_ERROR_INVALID_ARGUMENT, #pointer ": is null")

static vf_status take_text(struct buf *buf, char **text) {
    VF_TRY(buf_check(buf));
    *text = buf->data ? buf->data : strdup("");
    VF_REQUIRE(*text, VF_ERROR_OUT_OF_MEMORY, "no memory for a text");
    buf->data = NULL;
    return VF_OK;
}

// Appends the specs of the variants that a call on `device` (null: one that no file names) can get, a line each.
static vf_status add_variants(vf_context *context, const struct request *request, const char *arch, const char *device,
                              struct buf *lines) {
    const struct config_row *rows[CONFIG_ROWS_MAX];
    size_t count = 0;
    VF_TRY(variants_rows(context->variants, request, arch, device, false, rows, &count));
    char text[REQUEST_TEXT];
    request_write(request, arch, text);
    VF_REQUIRE(count > 0, VF_ERROR_UNSUPPORTED, "no configuration row serves '%s'", text);
    for (size_t i = 0; i < count; i++) {
        struct choice choice;
        VF_TRY(variants_choose_knobs(context->variants, request, arch, rows[i]->origin, rows[i]->knobs, &choice));
        buf_printf(lines, "%s %s\n", text, rows[i]->knobs);
    }
    return buf_check(lines);
}

vf_status vf_dev_variants(vf_context *context, const char *request, int mapped, char **variants) {
    REQUIRE_POINTER(context);
    REQUIRE_POINTER(request);
    REQUIRE_POINTER(variants);
    *variants = NULL;
    struct request parsed;
    char arch[ARCH_TEXT];
    struct buf lines = {.data = NULL};
    VF_TRY(request_parse(request, &parsed, arch));
    parsed.mapped = parsed.mapped && mapped;
    vf_status status = add_variants(context, &parsed, arch, NULL, &lines);
    for (size_t i = 0; !status && config_file(context->config, i)[0]; i++) {
        const char *device = config_device(context->config, i);
        if (device[0]) status = add_variants(context, &parsed, arch, device, &lines);
    }
    if (!status) status = take_text(&lines, variants);
    buf_free(&lines);
    return status;
}

vf_status vf_dev_space(vf_context *context, const char *request, char **knobs) {
    REQUIRE_POINTER(context);
    REQUIRE_POINTER(request);
    REQUIRE_POINTER(knobs);
    *knobs = NULL;
    struct buf lines = {.data = NULL};
    vf_status status = source_space(context->source, request, &lines);
    if (!status) status = take_text(&lines, knobs);
    buf_free(&lines);
    return status;
}

vf_status vf_dev_plan(vf_context *context, const char *variant, char **plan) {
    REQUIRE_POINTER(context);
    REQUIRE_POINTER(variant);
    REQUIRE_POINTER(plan);
    *plan = NULL;
    struct source_plan made;
    struct buf text = {.data = NULL};
    VF_TRY(kernels_plan(context->kernels, variant, &made));
    source_plan_write(&made, &text);
    const vf_status status = take_text(&text, plan);
    buf_free(&text);
    return status;
}

vf_status vf_dev_build(vf_context *context, const char *kernel_spec, vf_dev_built *built) {
    REQUIRE_POINTER(built);
    *built = (vf_dev_built){.data = NULL};
    REQUIRE_POINTER(context);
    REQUIRE_POINTER(kernel_spec);
    struct compiled compiled = {.ptx = false};
    struct buf facts = {.data = NULL};
    vf_status status = kernels_image(context->kernels, kernel_spec, &compiled);
    if (!status) compile_write_meta(&compiled, &facts);
    if (!status) status = take_text(&facts, &built->facts);
    if (!status) {
        built->data = compiled.image.data;
        built->size = compiled.image.size;
        built->seconds = compiled.milliseconds / 1000;
        compiled.image = (struct buf){.data = NULL};
    }
    buf_free(&facts);
    compiled_free(&compiled);
    return status;
}

void vf_dev_built_free(vf_dev_built *built) {
    if (!built) return;
    free(built->data);
    free(built->facts);
    *built = (vf_dev_built){.data = NULL};
}
