// bundle_write.c - see bundle_write.h.
#include "bundle_write.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "bundle_format.h"
#include "status.h"

#define LEVEL 19  // a second for a hundred kernels; beyond it nothing gets smaller

// ---- drafts --------------------------------------------------------------------------------------------------------

static vf_status add(struct bundle_draft_item **items, size_t *count, const char *spec, const char *text,
                     const void *image, size_t size) {
    for (size_t i = 0; i < *count; i++) {
        if (!strcmp((*items)[i].spec, spec)) return VF_OK;
    }
    struct bundle_draft_item *grown = realloc(*items, (*count + 1) * sizeof *grown);
    VF_REQUIRE(grown, VF_ERROR_OUT_OF_MEMORY, "no memory for a bundle");
    *items = grown;
    struct bundle_draft_item *item = &grown[(*count)++];
    *item = (struct bundle_draft_item){.spec = strdup(spec), .text = strdup(text)};
    if (size) buf_append(&item->image, image, size);
    VF_REQUIRE(item->spec && item->text && !item->image.failed, VF_ERROR_OUT_OF_MEMORY, "no memory for a bundle");
    return VF_OK;
}

vf_status bundle_draft_plan(struct bundle_draft *draft, const char *spec, const char *plan) {
    return add(&draft->plans, &draft->plan_count, spec, plan, NULL, 0);
}

vf_status bundle_draft_kernel(struct bundle_draft *draft, const char *spec, const char *facts, const void *image,
                              size_t size) {
    return add(&draft->kernels, &draft->kernel_count, spec, facts, image, size);
}

static void free_items(struct bundle_draft_item *items, size_t count) {
    for (size_t i = 0; i < count; i++) {
        free(items[i].spec);
        free(items[i].text);
        buf_free(&items[i].image);
    }
    free(items);
}

void bundle_draft_free(struct bundle_draft *draft) {
    free_items(draft->plans, draft->plan_count);
    free_items(draft->kernels, draft->kernel_count);
    *draft = (struct bundle_draft){.generator = NULL};
}

static int by_spec(const void *a, const void *b) {
    return strcmp(((const struct bundle_draft_item *)a)->spec, ((const struct bundle_draft_item *)b)->spec);
}

void bundle_draft_sort(struct bundle_draft *draft) {
    if (draft->plan_count) qsort(draft->plans, draft->plan_count, sizeof *draft->plans, by_spec);
    if (draft->kernel_count) qsort(draft->kernels, draft->kernel_count, sizeof *draft->kernels, by_spec);
}

// ---- the file ------------------------------------------------------------------------------------------------------

static void put(struct buf *file, size_t at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes && !file->failed; i++) file->data[at + (size_t)i] = (char)(value >> 8 * i);
}

static void put_text(struct buf *file, size_t record, int offset, int size, const char *text) {
    put(file, record + (size_t)offset, file->size, 8);
    put(file, record + (size_t)size, strlen(text), 4);
    buf_text(file, text);
}

static void put_pair(struct buf *file, size_t record, const struct bundle_draft_item *item) {
    put_text(file, record, BUNDLE_PAIR_SPEC, BUNDLE_PAIR_SPEC_SIZE, item->spec);
    put_text(file, record, BUNDLE_PAIR_TEXT, BUNDLE_PAIR_TEXT_SIZE, item->text);
}

static vf_status put_image(struct buf *file, size_t record, const struct bundle_draft_item *item) {
    const size_t room = ZSTD_compressBound(item->image.size);
    void *frame = malloc(room);
    VF_REQUIRE(frame, VF_ERROR_OUT_OF_MEMORY, "no memory for an image");
    const size_t size = ZSTD_compress(frame, room, buf_string(&item->image), item->image.size, LEVEL);
    const bool good = !ZSTD_isError(size);
    if (good) {
        unsigned char digest[HASH_SIZE];
        hash_bytes(buf_string(&item->image), item->image.size, digest);
        put(file, record + BUNDLE_KERNEL_FRAME, file->size, 8);
        put(file, record + BUNDLE_KERNEL_FRAME_SIZE, size, 8);
        put(file, record + BUNDLE_KERNEL_IMAGE_SIZE, item->image.size, 8);
        if (!file->failed) memcpy(file->data + record + BUNDLE_KERNEL_DIGEST, digest, HASH_SIZE);
        buf_append(file, frame, size);
    }
    free(frame);
    VF_REQUIRE(good, VF_ERROR_INTERNAL, "zstd cannot pack '%s': %s", item->spec, ZSTD_getErrorName(size));
    return VF_OK;
}

static void *extend_with_zeros(struct buf *file, size_t size) {
    void *zeros = buf_extend(file, size);
    if (zeros) memset(zeros, 0, size);
    return zeros;
}

vf_status bundle_write(struct bundle_draft *draft, const char *manifest, struct buf *file) {
    const size_t plans = BUNDLE_HEADER_SIZE, kernels = plans + draft->plan_count * BUNDLE_PAIR_SIZE;
    struct buf bundle = {.data = NULL};  // offsets count from its start
    bundle_draft_sort(draft);
    if (!extend_with_zeros(&bundle, kernels + draft->kernel_count * BUNDLE_KERNEL_SIZE)) return buf_check(&bundle);
    memcpy(bundle.data, BUNDLE_MAGIC, strlen(BUNDLE_MAGIC));
    memcpy(bundle.data + BUNDLE_AT_GENERATOR, draft->generator, strnlen(draft->generator, BUNDLE_GENERATOR_SIZE));
    put(&bundle, BUNDLE_AT_FORMAT, BUNDLE_FORMAT, 4);
    put(&bundle, BUNDLE_AT_PLANS, draft->plan_count, 4);
    put(&bundle, BUNDLE_AT_KERNELS, draft->kernel_count, 4);
    put(&bundle, BUNDLE_AT_COMPILER, (uint64_t)draft->compiler, 4);
    for (size_t i = 0; i < draft->plan_count; i++) put_pair(&bundle, plans + i * BUNDLE_PAIR_SIZE, &draft->plans[i]);
    for (size_t i = 0; i < draft->kernel_count; i++)
        put_pair(&bundle, kernels + i * BUNDLE_KERNEL_SIZE, &draft->kernels[i]);
    put(&bundle, BUNDLE_AT_MANIFEST, bundle.size, 8);
    put(&bundle, BUNDLE_AT_MANIFEST_SIZE, strlen(manifest), 8);
    buf_text(&bundle, manifest);
    const size_t head = bundle.size;
    vf_status status = VF_OK;
    for (size_t i = 0; !status && i < draft->kernel_count; i++)
        status = put_image(&bundle, kernels + i * BUNDLE_KERNEL_SIZE, &draft->kernels[i]);
    put(&bundle, BUNDLE_AT_HEAD_SIZE, head, 8);
    put(&bundle, BUNDLE_AT_SIZE, bundle.size, 8);
    if (!status) status = buf_check(&bundle);
    if (!status) {
        unsigned char digest[HASH_SIZE];
        hash_bytes(bundle.data, head, digest);  // zeros where it goes
        memcpy(bundle.data + BUNDLE_AT_DIGEST, digest, HASH_SIZE);
        buf_append(file, bundle.data, bundle.size);
        status = buf_check(file);
    }
    buf_free(&bundle);
    return status;
}
