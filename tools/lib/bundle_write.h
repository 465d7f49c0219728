// bundle_write.h - writes bundles of kernels (runtime/bundle_format.h). What goes into one is the caller's business.
//
// Equal drafts give equal bytes: items are sorted, nothing of time, place or machine is added.
#ifndef VF_BUNDLE_WRITE_H
#define VF_BUNDLE_WRITE_H

#include "buf.h"
#include "varflash/varflash.h"

struct bundle_draft_item {
    char *spec;
    char *text;        // a variant's plan, a kernel's facts
    struct buf image;  // of a kernel
};

struct bundle_draft {
    const char *generator;  // embedded_digest
    int compiler;           // 13000
    size_t plan_count, kernel_count;
    struct bundle_draft_item *plans, *kernels;
};

// Copies; an item whose spec is there already is dropped. VF_ERROR_OUT_OF_MEMORY.
vf_status bundle_draft_plan(struct bundle_draft *draft, const char *spec, const char *plan);
vf_status bundle_draft_kernel(struct bundle_draft *draft, const char *spec, const char *facts, const void *image,
                              size_t size);

// Appends the file. Sorts the draft. `manifest` is stored as it is.
vf_status bundle_write(struct bundle_draft *draft, const char *manifest, struct buf *file);
void bundle_draft_sort(struct bundle_draft *draft);
void bundle_draft_free(struct bundle_draft *draft);

#endif
