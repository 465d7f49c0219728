// kernel.h - from a kernel's spec to a kernel in the driver: memory, bundles, disk cache, compiler, whichever has it
// first. Also a variant's plan, which a bundle may hold as well.
//
// A kernel is found, compiled and loaded once in a context, whatever number of threads ask at the same time. Knows
// nothing of variants, calls or streams.
#ifndef VF_KERNEL_H
#define VF_KERNEL_H

#include <stdatomic.h>

#include "base.h"
#include "bundle.h"
#include "cache.h"
#include "compile.h"
#include "cuda_api.h"
#include "module.h"
#include "source.h"

struct kernels;

// What a table of kernels works with. Everything pointed to must outlive it.
struct kernels_parts {
    const struct cuda_api *cuda;    // null: no driver; images can be made, not loaded
    const struct nvrtc_api *nvrtc;  // null: found when first needed
    const struct environment *environment;
    const struct logger *logger;
    struct source *source;  // null: no generator; then bundles have what there is
    struct cache *cache;
    struct bundle *const *bundles;  // of this generator
    size_t bundle_count;
};

struct kernel {
    struct source_kernel facts;
    struct module module;
};

vf_status kernels_open(const struct kernels_parts *parts, struct kernels **kernels);
void kernels_close(struct kernels *kernels);  // unloads all; null is ignored

// The plan of a variant (a request's spec and knobs), from a bundle or the generator. VF_ERROR_UNSUPPORTED with the
// generator's sentence when it refuses; VF_ERROR_NO_COMPILER where there is no generator and no bundle has it.
vf_status kernels_plan(struct kernels *kernels, const char *variant, struct source_plan *plan);

// The loaded kernel, which lives as long as the table. VF_ERROR_NO_COMPILER where it would have to be compiled and there
// is no NVRTC or VARFLASH_JIT=off; the sentence says how to build `variant`, whose kernel it is.
vf_status kernels_get(struct kernels *kernels, const char *variant, const struct source_kernel *facts,
                      const struct kernel **kernel);

// The image from the cache or the compiler, for who builds ahead of time: bundles and VARFLASH_JIT are no matter. The
// caller ends *compiled with compiled_free, whatever is returned.
vf_status kernels_image(struct kernels *kernels, const char *spec, struct compiled *compiled);

// Compiles without looking anything up, but leaves a cubin in the disk cache for others. The caller ends *compiled with
// compiled_free, whatever is returned.
vf_status kernels_compile(struct kernels *kernels, const char *spec, bool ptx, struct compiled *compiled);

// NVRTC, found now if it has not been. The pointer lives as long as the table.
vf_status kernels_compiler(struct kernels *kernels, const struct compiler **compiler);

struct kernels_counters {
    uint64_t compiled, from_cache, from_bundle;
};
struct kernels_counters kernels_count(const struct kernels *kernels);

#endif
