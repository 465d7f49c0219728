// bundle.h - kernels compiled ahead of time, in one file or in the program itself: plans by a variant's spec, images by
// a kernel's.
//
// Read only, mapped, never copied; knows neither what a plan says nor what an image is. A bundle belongs to the version
// of varflash whose generator made it: whoever opens one compares bundle_generator. Written by tools/lib/bundle_write.c.
#ifndef VF_BUNDLE_H
#define VF_BUNDLE_H

#include "base.h"
#include "buf.h"
#include "bundle_format.h"
#include "varflash/varflash.h"

struct bundle;

// A file. VF_ERROR_IO says what is wrong with it.
vf_status bundle_open(const char *path, struct bundle **bundle);

// Bytes that outlive the bundle; `name` stands for them in sentences.
vf_status bundle_open_memory(const char *name, const void *data, size_t size, struct bundle **bundle);
void bundle_close(struct bundle *bundle);  // null is ignored

const char *bundle_name(const struct bundle *bundle);
const char *bundle_generator(const struct bundle *bundle);
int bundle_compiler(const struct bundle *bundle);  // NVRTC's version: 13000

struct bundle_text {
    const char *data;  // no final zero
    size_t size;
};
struct bundle_text bundle_manifest(const struct bundle *bundle);

struct bundle_plan {
    struct bundle_text spec, plan;
};
size_t bundle_plan_count(const struct bundle *bundle);
struct bundle_plan bundle_plan_at(const struct bundle *bundle, size_t index);
bool bundle_find_plan(const struct bundle *bundle, const char *spec, struct bundle_plan *plan);

struct bundle_kernel {
    struct bundle_text spec, meta;
    struct bundle_text frame;  // the image, compressed
    uint64_t image_size;
    const unsigned char *digest;  // of the image, HASH_SIZE bytes
};
size_t bundle_kernel_count(const struct bundle *bundle);
struct bundle_kernel bundle_kernel_at(const struct bundle *bundle, size_t index);
bool bundle_find_kernel(const struct bundle *bundle, const char *spec, struct bundle_kernel *kernel);

// Appends a kernel's image. Null, or what is wrong with it.
const char *bundle_image(const struct bundle_kernel *kernel, struct buf *image);

#endif
