// stub_cuda.h - a CUDA driver and an NVRTC made of plain C, for tests without a GPU.
//
// Device memory is host memory that the stub knows; a launch is recorded, not run, but for checked mode's kernel, which
// reports what the test sets. It counts what is alive, refuses what a driver refuses (work of another context, anything
// unsafe during a capture), and can make the n-th call fail. Loading and compiling may be done by several threads at
// once.
#ifndef VF_STUB_CUDA_H
#define VF_STUB_CUDA_H

#include <stdatomic.h>

#include "cuda_api.h"
#include "kernel_args.h"

#define STUB_FAILURE 999  // CUDA_ERROR_UNKNOWN: what an injected failure returns
#define STUB_LAUNCHES 256
#define STUB_DEVICES 4

// What the stub makes of a tensor map: the values it was asked for.
struct stub_map {
    uint64_t address, dimensions[5], strides[4];
    uint16_t box[5], steps[5];
    uint8_t type, rank, interleave, swizzle, promotion, fill;
};
_Static_assert(sizeof(struct stub_map) <= sizeof(struct cuda_tensor_map), "a map holds it");

struct stub_launch {
    char entry[128];
    CUcontext context;  // of the function
    CUstream stream;
    unsigned grid, block, shared_bytes;
    bool chained, captured;
    union {
        struct kernel_schedule_args schedule;
        struct kernel_forward_args forward;
        struct kernel_forward_sm90_args forward_sm90;
        struct kernel_backward_pre_args pre;
        struct kernel_backward_pre_sm90_args pre_sm90;
        struct kernel_backward_args backward;
        struct kernel_backward_sm90_args backward_sm90;
        struct kernel_backward_post_args post;
        struct kernel_check_args check;
    } arguments;
};

struct stub {
    // Set by the test.
    int device_count;
    int compute[STUB_DEVICES];  // 90 = 9.0
    int multiprocessors;
    int fail_at;                              // the call of this number, from 1, fails; 0: none
    struct kernel_check_report check_report;  // what check_lengths finds
    const char *compile_error;                // log of a failing compilation; null: compilations succeed
    // Kept by the stub.
    atomic_int calls;    // of the driver and the compiler
    const char *failed;  // the call that was made to fail
    int launch_count;
    struct stub_launch launches[STUB_LAUNCHES];
    atomic_int libraries, programs;                      // alive
    int allocations, streams, events, graphs, retained;  // alive
    int depth;                                           // of the context stack
    atomic_int compilations;
    int misuses;  // calls that a driver would have refused for reasons other than a capture
};
extern struct stub stub;

// One device of compute capability 10.0, which the portable family serves, with 132 multiprocessors, nothing alive, nothing current.
void stub_reset(void);

const struct cuda_api *stub_cuda(void);
const struct nvrtc_api *stub_nvrtc(void);

// The head of every call: counts it, and is true if it is the one to fail.
bool stub_fails(const char *name);
// Counts a call that a driver would have refused and returns `result`.
int stub_misuse(int result);
// What must not happen while a stream is captured: breaks the captures there are and refuses (else 0).
int stub_unsafe(void);

// Memory of a device; freed by stub_reset at the latest.
void *stub_memory(int device, size_t bytes);

// A context of the test's own on a device, and a stream in a context (null: the device's primary one). Current: pushes
// and pops.
CUcontext stub_context(int device);
CUcontext stub_primary(int device);
CUstream stub_stream(CUcontext context);
CUcontext stub_stream_context(CUstream stream);  // of the null stream: the current one
CUcontext stub_current(void);
void stub_push(CUcontext context);
void stub_pop(void);

// Captures of a stream: begin; state as cuStreamIsCapturing tells it; end.
void stub_capture(CUstream stream);
enum cuda_capture_status stub_capture_state(CUstream stream);
void stub_end_capture(CUstream stream);

#endif
