// build_specs.h - which variants and kernels a `varflash build` is about.
#ifndef VF_BUILD_SPECS_H
#define VF_BUILD_SPECS_H

#include "options.h"
#include "texts.h"

// Specs, sorted, each once. A plan of `plans` belongs to the variant at the same place.
struct build_specs {
    struct texts variants, plans, kernels;
};

// What --spec, --specs, problems, a suite, or the axes (--pass, --head-dim ...) ask for, on every architecture of
// --arch. A request that cannot be served is reported, and the rest goes on: *refused counts them. 0 or an exit code.
int build_specs_get(const struct options *options, vf_context *context, struct build_specs *specs, size_t *refused);
void build_specs_free(struct build_specs *specs);

#endif
