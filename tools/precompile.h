// precompile.h - compiles every kernel that a check will ask for into the disk cache, in parallel processes.
#ifndef VF_PRECOMPILE_H
#define VF_PRECOMPILE_H

#include "options.h"
#include "varflash/varflash.h"

// Says how long it took. A kernel that fails to compile is reported, and again by the check itself; then the check goes on.
int precompile(const struct options *options, vf_context *context, const struct problem_list *list);

#endif
