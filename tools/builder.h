// builder.h - many kernels compiled at once: into the disk cache, by processes of their own (workers.h).
#ifndef VF_BUILDER_H
#define VF_BUILDER_H

#include "options.h"
#include "texts.h"

// Compiles what the cache does not have, shows progress, and says at the end what failed. 0 or the first failure's exit
// code; 130 if interrupted, after what is done is kept.
int builder_run(const struct options *options, const char *what, const struct texts *kernels);

// A process of builder_run.
int builder_worker(const struct options *options);

#endif
