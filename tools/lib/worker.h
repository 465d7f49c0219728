// worker.h - one process that works for this one: it is told texts and answers each.
//
// Its death or silence is an answer too, so that a kernel that crashes or hangs costs what was asked of it and no more.
#ifndef VF_WORKER_H
#define VF_WORKER_H

#include <stdio.h>
#include <sys/types.h>

#include "buf.h"

struct worker {
    pid_t process;  // 0: none
    FILE *to, *from;
};

// `path` and `argv` as execv takes them. 0 or an errno.
int worker_start(const char *path, char *const *argv, struct worker *worker);

void worker_tell(struct worker *worker, const char *text);

// Waits for an answer, `seconds` at most (0: without end), and appends it. WORKER_DIED and WORKER_SILENT end the process
// (*worker becomes none), put a sentence in its place, and the code is WORKER_FAILED.
#define WORKER_FAILED (-1)
enum worker_answer { WORKER_ANSWERED, WORKER_DIED, WORKER_SILENT };
enum worker_answer worker_hear(struct worker *worker, double seconds, int *code, struct buf *answer);

// Closes its pipes, which ends it, and waits. The status of waitpid. A worker that is none is ignored.
int worker_stop(struct worker *worker);

// The other side: reads texts until there are no more. `work` returns a code and appends its answer; without one, a code
// other than 0 is answered with vf_last_error.
void worker_serve(int (*work)(const char *text, struct buf *answer, void *user), void *user);

#endif
