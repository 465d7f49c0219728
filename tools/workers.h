// workers.h - work spread over processes: this program again, fed one text at a time.
//
// NVRTC takes one compile at a time in a process, and a process that crashes costs one piece of work. Which piece goes
// to which process depends on who is free, so what comes out must not.
#ifndef VF_WORKERS_H
#define VF_WORKERS_H

#include "options.h"

// What became of a text: an exit code and a sentence (empty if there is nothing to say).
typedef void (*workers_report)(size_t index, int code, const char *sentence, void *user);

// Gives every text to a process of `options`' command line with --worker added, at most options->jobs (0: all cores) at a
// time, and reports each once, in any order. Stops handing out when interrupted. 0 or an exit code, after a message.
int workers_run(const struct options *options, char *const *texts, size_t count, workers_report report, void *user);

// The other side: reads texts until there are no more. `work` returns an exit code; its sentence is vf_last_error.
int workers_serve(int (*work)(const char *text, void *user), void *user);

#endif
