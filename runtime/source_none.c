// source_none.c - source.h for a library without a generator (make runtime-only): plans and images come from bundles.
#include "embedded.h"
#include "source.h"
#include "status.h"

static vf_status refuse(const char *spec) {
    VF_FAIL(VF_ERROR_NO_COMPILER, "this build of varflash has no generator, which '%s' would need", spec);
}

vf_status source_open(const char *folder, struct source **source) {
    VF_REQUIRE(!folder, VF_ERROR_UNSUPPORTED, "VARFLASH_SOURCE=%s: this build of varflash has no generator", folder);
    *source = NULL;
    return VF_OK;
}

void source_close(struct source *source) {
    (void)source;
}

vf_status source_plan(struct source *source, const char *spec, struct source_plan *plan) {
    (void)source;
    *plan = (struct source_plan){.kernel_count = 0};
    return refuse(spec);
}

vf_status source_text(struct source *source, const char *kernel_spec, struct buf *text) {
    (void)source, (void)text;
    return refuse(kernel_spec);
}

vf_status source_space(struct source *source, const char *request, struct buf *lines) {
    return source_text(source, request, lines);
}

vf_status source_text_with_lines(struct source *source, const char *kernel_spec, struct buf *text) {
    return source_text(source, kernel_spec, text);
}

const char *source_signature(const struct source *source) {
    (void)source;
    return embedded_signature;
}
