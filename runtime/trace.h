// trace.h - VARFLASH_TRACE: each call as a problem, one JSON object a line, that `varflash check` replays.
//
// Reads lengths back from the device and waits for it; a call that is being captured is skipped with a log line. Never
// fails a call.
#ifndef VF_TRACE_H
#define VF_TRACE_H

#include "device.h"
#include "log.h"
#include "request.h"

struct trace;

// Null path: *trace is null. VF_ERROR_IO if the file cannot be opened.
vf_status trace_open(const char *path, const struct logger *logger, struct trace **trace);
void trace_close(struct trace *trace);  // null is ignored

// `scope` null: the tensors are in host memory.
void trace_call(struct trace *trace, const struct call *call, const struct scope *scope);

#endif
