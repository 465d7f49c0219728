// bundle_manifest.h - what a bundle holds, as JSON for people and other programs.
#ifndef VF_BUNDLE_MANIFEST_H
#define VF_BUNDLE_MANIFEST_H

#include "bundle_write.h"

// Of a sorted draft: variants with their kernels, kernels with digest, size, registers and the rest of the compiler's
// report. The caller frees it with cJSON_free. Equal drafts give equal texts.
char *bundle_manifest_make(const struct bundle_draft *draft);

#endif
