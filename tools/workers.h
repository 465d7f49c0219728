// workers.h - work spread over processes (worker.h).
//
// NVRTC takes one compile at a time in a process, and a process that crashes costs one piece of work. Which piece goes
// to which process depends on who is free, so what comes out must not.
#ifndef VF_WORKERS_H
#define VF_WORKERS_H

#include "options.h"
#include "worker.h"

// This program with its own command line and --worker. 0 or an exit code, after a message.
int workers_start(const struct options *options, struct worker *worker);

// What became of a text: an exit code and a sentence (empty if there is nothing to say).
typedef void (*workers_report)(size_t index, int code, const char *sentence, void *user);

// Gives every text to a process, at most options->jobs (0: all cores) at a time, in order, and reports each once, in any
// order. Stops handing out when interrupted. 0 or an exit code, after a message.
int workers_run(const struct options *options, char *const *texts, size_t count, workers_report report, void *user);

#endif
