// fuzz_bundle.c - bundles: whatever the bytes, nothing is read outside them. The input's head gets the digest that it would need, so
// that what comes behind the digest is reached.
#include "bundle.h"

#include <stdlib.h>
#include <string.h>

#include "source_plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void seal(unsigned char *bytes, size_t size) {
    uint64_t head = 0;
    if (size < BUNDLE_HEADER_SIZE) return;
    for (int i = 0; i < 8; i++) bytes[BUNDLE_AT_SIZE + i] = (unsigned char)((uint64_t)size >> 8 * i);
    for (int i = 7; i >= 0; i--) head = head << 8 | bytes[BUNDLE_AT_HEAD_SIZE + i];
    if (head < BUNDLE_HEADER_SIZE || head > size) return;
    memset(bytes + BUNDLE_AT_DIGEST, 0, HASH_SIZE);
    unsigned char digest[HASH_SIZE];
    hash_bytes(bytes, (size_t)head, digest);
    memcpy(bytes + BUNDLE_AT_DIGEST, digest, HASH_SIZE);
}

// Every byte of a text, so that a sanitizer sees it.
static unsigned read_all(struct bundle_text text) {
    unsigned sum = 0;
    for (size_t i = 0; i < text.size; i++) sum += (unsigned char)text.data[i];
    return sum;
}

static void use(const struct bundle *bundle) {
    volatile unsigned sink = 0;
    sink += read_all(bundle_manifest(bundle));
    for (size_t i = 0; i < bundle_plan_count(bundle); i++) {
        const struct bundle_plan plan = bundle_plan_at(bundle, i);
        struct source_plan read;
        sink += read_all(plan.spec) + (unsigned)source_plan_read(plan.plan.data, plan.plan.size, &read);
    }
    for (size_t i = 0; i < bundle_kernel_count(bundle); i++) {
        const struct bundle_kernel kernel = bundle_kernel_at(bundle, i);
        struct buf image = {.data = NULL};
        sink += read_all(kernel.spec) + read_all(kernel.meta) + (bundle_image(&kernel, &image) == NULL);
        buf_free(&image);
    }
    (void)sink;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct bundle *bundle;
    unsigned char *bytes = malloc(size + 1);
    if (!bytes) return 0;
    memcpy(bytes, data, size);
    seal(bytes, size);
    const vf_status status = bundle_open_memory("input", bytes, size, &bundle);
    if (status && (status != VF_ERROR_IO || !*vf_last_error())) abort();
    if (!status) {
        use(bundle);
        bundle_close(bundle);
    }
    free(bytes);
    return 0;
}
