// probe.h - comparing and copying in device memory, by kernels of the tests' own: what a test looks at a thousand times
// need not cross the bus.
//
// Works in words of 4 bytes; every operand of the problems here consists of whole ones. Failures are failed assertions.
#ifndef VF_GPU_PROBE_H
#define VF_GPU_PROBE_H

#include "module.h"
#include "varflash/varflash.h"

struct probe {
    vf_context *context;
    struct module compare, copy;
};

void probe_open(vf_context *context, struct probe *probe);
void probe_close(struct probe *probe);

// A rectangle in device memory: rows that lie `pitch` bytes apart; with a pitch of 0 the same row again and again.
struct probe_rows {
    const void *data;
    int64_t pitch;
};

// What *first (device memory) holds where nothing differed: vf_dev_set(..., 0xff, ...).
#define PROBE_SAME UINT64_MAX

// Asynchronous, on `stream`: *first becomes row * width + byte of the first difference, unless it holds a lesser number.
void probe_compare(const struct probe *probe, struct probe_rows a, struct probe_rows b, int64_t width, int64_t rows,
                   uint64_t *first, struct CUstream_st *stream);
void probe_copy(const struct probe *probe, void *to, int64_t to_pitch, struct probe_rows from, int64_t width,
                int64_t rows, struct CUstream_st *stream);

#endif
