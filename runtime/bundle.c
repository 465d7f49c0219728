// bundle.c - see bundle.h. Everything that the head says is checked once, in `check_head`; what comes later trusts it.
#include "bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "status.h"

struct bundle {
    char *name;
    const unsigned char *data;
    size_t size;
    bool mapped;
    char generator[BUNDLE_GENERATOR_SIZE + 1];
    size_t plan_count, kernel_count;
    const unsigned char *plans, *kernels;  // records
};

static uint64_t number(const unsigned char *data, size_t at, int bytes) {
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | data[at + (size_t)i];
    return value;
}

// ---- checking -----------------------------------------------------------------------------------------------------

static bool inside(uint64_t offset, uint64_t size, uint64_t first, uint64_t end) {
    return offset >= first && offset <= end && size <= end - offset;
}

static int compare(struct bundle_text a, struct bundle_text b) {
    const int order = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

static struct bundle_text text_at(const struct bundle *bundle, const unsigned char *record, int offset, int size) {
    return (struct bundle_text){(const char *)bundle->data + number(record, (size_t)offset, 8),
                                (size_t)number(record, (size_t)size, 4)};
}

static struct bundle_text spec_of(const struct bundle *bundle, const unsigned char *record) {
    return text_at(bundle, record, BUNDLE_PAIR_SPEC, BUNDLE_PAIR_SPEC_SIZE);
}

// Texts inside the head, specs in order, each once.
static const char *check_pairs(const struct bundle *bundle, const unsigned char *records, size_t count, size_t stride,
                               uint64_t head_size) {
    for (size_t i = 0; i < count; i++) {
        const unsigned char *record = records + i * stride;
        if (!inside(number(record, BUNDLE_PAIR_SPEC, 8), number(record, BUNDLE_PAIR_SPEC_SIZE, 4), 0, head_size) ||
            !inside(number(record, BUNDLE_PAIR_TEXT, 8), number(record, BUNDLE_PAIR_TEXT_SIZE, 4), 0, head_size))
            return "is damaged: a text lies outside";
        if (i && compare(spec_of(bundle, record - stride), spec_of(bundle, record)) >= 0)
            return "is damaged: its specs are not in order";
    }
    return NULL;
}

static const char *check_kernels(const struct bundle *bundle, uint64_t head_size) {
    for (size_t i = 0; i < bundle->kernel_count; i++) {
        const unsigned char *record = bundle->kernels + i * BUNDLE_KERNEL_SIZE;
        if (!inside(number(record, BUNDLE_KERNEL_FRAME, 8), number(record, BUNDLE_KERNEL_FRAME_SIZE, 8), head_size,
                    bundle->size))
            return "is damaged: an image lies outside";
        if (number(record, BUNDLE_KERNEL_IMAGE_SIZE, 8) > BUNDLE_LARGEST_IMAGE) return "has an image that is too large";
    }
    return NULL;
}

static bool head_is_sound(const unsigned char *data, size_t head_size) {
    static const unsigned char zeros[HASH_SIZE];
    unsigned char digest[HASH_SIZE];
    struct hash hash;
    hash_begin(&hash);
    hash_add(&hash, data, BUNDLE_AT_DIGEST);
    hash_add(&hash, zeros, HASH_SIZE);
    hash_add(&hash, data + BUNDLE_HEADER_SIZE, head_size - BUNDLE_HEADER_SIZE);
    hash_end(&hash, digest);
    return !memcmp(digest, data + BUNDLE_AT_DIGEST, HASH_SIZE);
}

// Null, or what is wrong with the file.
static const char *check_head(struct bundle *bundle) {
    const unsigned char *data = bundle->data;
    if (bundle->size < BUNDLE_HEADER_SIZE || memcmp(data, BUNDLE_MAGIC, strlen(BUNDLE_MAGIC)) != 0)
        return "is no bundle of kernels";
    if (number(data, BUNDLE_AT_FORMAT, 4) != BUNDLE_FORMAT) return "has a format of another version of varflash";
    if (number(data, BUNDLE_AT_SIZE, 8) != bundle->size) return "is truncated";
    const uint64_t head_size = number(data, BUNDLE_AT_HEAD_SIZE, 8);
    const uint64_t plans = number(data, BUNDLE_AT_PLANS, 4), kernels = number(data, BUNDLE_AT_KERNELS, 4);
    if (!inside(BUNDLE_HEADER_SIZE, plans * BUNDLE_PAIR_SIZE + kernels * BUNDLE_KERNEL_SIZE, 0, head_size) ||
        head_size > bundle->size || !head_is_sound(data, (size_t)head_size))
        return "is damaged";
    bundle->plan_count = (size_t)plans;
    bundle->kernel_count = (size_t)kernels;
    bundle->plans = data + BUNDLE_HEADER_SIZE;
    bundle->kernels = bundle->plans + plans * BUNDLE_PAIR_SIZE;
    memcpy(bundle->generator, data + BUNDLE_AT_GENERATOR, BUNDLE_GENERATOR_SIZE);
    if (!inside(number(data, BUNDLE_AT_MANIFEST, 8), number(data, BUNDLE_AT_MANIFEST_SIZE, 8), 0, head_size))
        return "is damaged: its manifest lies outside";
    const char *fault = check_pairs(bundle, bundle->plans, bundle->plan_count, BUNDLE_PAIR_SIZE, head_size);
    if (!fault) fault = check_pairs(bundle, bundle->kernels, bundle->kernel_count, BUNDLE_KERNEL_SIZE, head_size);
    return fault ? fault : check_kernels(bundle, head_size);
}

// ---- opening ------------------------------------------------------------------------------------------------------

vf_status bundle_open_memory(const char *name, const void *data, size_t size, struct bundle **out) {
    struct bundle *bundle = calloc(1, sizeof *bundle);
    char *copy = strdup(name);
    if (!bundle || !copy) {
        free(bundle);
        free(copy);
        VF_FAIL(VF_ERROR_OUT_OF_MEMORY, "%s: no memory to open it", name);
    }
    bundle->name = copy;
    bundle->data = data;
    bundle->size = size;
    const char *fault = check_head(bundle);
    if (fault) {
        bundle_close(bundle);
        VF_FAIL(VF_ERROR_IO, "%s: %s", name, fault);
    }
    *out = bundle;
    return VF_OK;
}

static vf_status map(const char *path, void **data, size_t *size) {
    struct stat facts;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    VF_REQUIRE(file >= 0, VF_ERROR_IO, "%s: cannot be read: %s", path, strerror(errno));
    int reason = fstat(file, &facts) ? errno : S_ISREG(facts.st_mode) ? 0 : EINVAL;
    *size = reason ? 0 : (size_t)facts.st_size;
    *data = reason || !*size ? NULL : mmap(NULL, *size, PROT_READ, MAP_PRIVATE, file, 0);
    if (*data == MAP_FAILED) reason = errno;
    close(file);
    VF_REQUIRE(!reason, VF_ERROR_IO, "%s: cannot be mapped: %s", path, strerror(reason));
    return VF_OK;
}

vf_status bundle_open(const char *path, struct bundle **bundle) {
    void *data = NULL;
    size_t size = 0;
    VF_TRY(map(path, &data, &size));
    const vf_status status = bundle_open_memory(path, data, size, bundle);
    if (!status) (*bundle)->mapped = true;
    if (status && data) munmap(data, size);
    return status;
}

void bundle_close(struct bundle *bundle) {
    if (!bundle) return;
    if (bundle->mapped && bundle->data) munmap((void *)(uintptr_t)bundle->data, bundle->size);
    free(bundle->name);
    free(bundle);
}

const char *bundle_name(const struct bundle *bundle) {
    return bundle->name;
}

const char *bundle_generator(const struct bundle *bundle) {
    return bundle->generator;
}

int bundle_compiler(const struct bundle *bundle) {
    return (int)number(bundle->data, BUNDLE_AT_COMPILER, 4);
}

struct bundle_text bundle_manifest(const struct bundle *bundle) {
    return (struct bundle_text){(const char *)bundle->data + number(bundle->data, BUNDLE_AT_MANIFEST, 8),
                                (size_t)number(bundle->data, BUNDLE_AT_MANIFEST_SIZE, 8)};
}

// ---- looking up ---------------------------------------------------------------------------------------------------
// The record of `spec` among `count`, or null.
static const unsigned char *find(const struct bundle *bundle, const unsigned char *records, size_t count, size_t stride,
                                 const char *spec) {
    const struct bundle_text wanted = {spec, strlen(spec)};
    for (size_t low = 0, high = count; low < high;) {
        const size_t middle = low + (high - low) / 2;
        const unsigned char *record = records + middle * stride;
        const int order = compare(wanted, spec_of(bundle, record));
        if (!order) return record;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static struct bundle_plan plan_of(const struct bundle *bundle, const unsigned char *record) {
    return (struct bundle_plan){spec_of(bundle, record),
                                text_at(bundle, record, BUNDLE_PAIR_TEXT, BUNDLE_PAIR_TEXT_SIZE)};
}

static struct bundle_kernel kernel_of(const struct bundle *bundle, const unsigned char *record) {
    return (struct bundle_kernel){
        .spec = spec_of(bundle, record),
        .meta = text_at(bundle, record, BUNDLE_PAIR_TEXT, BUNDLE_PAIR_TEXT_SIZE),
        .frame = {(const char *)bundle->data + number(record, BUNDLE_KERNEL_FRAME, 8),
                  (size_t)number(record, BUNDLE_KERNEL_FRAME_SIZE, 8)},
        .image_size = number(record, BUNDLE_KERNEL_IMAGE_SIZE, 8),
        .digest = record + BUNDLE_KERNEL_DIGEST,
    };
}

size_t bundle_plan_count(const struct bundle *bundle) {
    return bundle->plan_count;
}

struct bundle_plan bundle_plan_at(const struct bundle *bundle, size_t index) {
    return plan_of(bundle, bundle->plans + index * BUNDLE_PAIR_SIZE);
}

bool bundle_find_plan(const struct bundle *bundle, const char *spec, struct bundle_plan *plan) {
    const unsigned char *record = find(bundle, bundle->plans, bundle->plan_count, BUNDLE_PAIR_SIZE, spec);
    if (record) *plan = plan_of(bundle, record);
    return record != NULL;
}

size_t bundle_kernel_count(const struct bundle *bundle) {
    return bundle->kernel_count;
}

struct bundle_kernel bundle_kernel_at(const struct bundle *bundle, size_t index) {
    return kernel_of(bundle, bundle->kernels + index * BUNDLE_KERNEL_SIZE);
}

bool bundle_find_kernel(const struct bundle *bundle, const char *spec, struct bundle_kernel *kernel) {
    const unsigned char *record = find(bundle, bundle->kernels, bundle->kernel_count, BUNDLE_KERNEL_SIZE, spec);
    if (record) *kernel = kernel_of(bundle, record);
    return record != NULL;
}

const char *bundle_image(const struct bundle_kernel *kernel, struct buf *image) {
    unsigned char digest[HASH_SIZE];
    const size_t size = (size_t)kernel->image_size;
    // Before memory is asked for: the frame knows its size too.
    if (ZSTD_getFrameContentSize(kernel->frame.data, kernel->frame.size) != kernel->image_size) return "is damaged";
    char *bytes = buf_extend(image, size);
    if (!bytes) return "does not fit into memory";
    const size_t got = ZSTD_decompress(bytes, size, kernel->frame.data, kernel->frame.size);
    if (got != size) return "is damaged: it cannot be unpacked";
    hash_bytes(bytes, size, digest);
    return memcmp(digest, kernel->digest, HASH_SIZE) != 0 ? "is damaged" : NULL;
}
