// precompile.h - compiles every kernel that a check will ask for into the disk cache, in parallel processes.
#ifndef VF_PRECOMPILE_H
#define VF_PRECOMPILE_H

#include "options.h"
#include "problem.h"
#include "varflash/varflash.h"

// Starts the worker processes, waits for them and says how long it took. A kernel that fails to compile is reported, and again
// by the check that needs it. 0 or an exit code, after a message.
int precompile(const struct options *options, vf_context *context);

// What such a process does: its share of the kernels of `list`.
int precompile_worker(const struct options *options, const struct problem_list *list);

#endif
