// stub_stream.c - streams, captures, events and graphs of the stub driver.
#include <stdlib.h>
#include <string.h>

#include "stub_driver.h"

struct CUevent_st {
    int recorded;
};
struct CUgraph_st {
    int unused;
};
struct CUgraphExec_st {
    int unused;
};

#define STREAMS 32

static struct CUstream_st streams[STREAMS], legacy;

CUstream stub_stream(CUcontext context) {
    for (int i = 0; i < STREAMS; i++) {
        if (streams[i].context) continue;
        streams[i] = (struct CUstream_st){context, CUDA_CAPTURE_NONE};
        return &streams[i];
    }
    abort();
}

CUcontext stub_stream_context(CUstream stream) {
    return stub_is_handle(stream) ? stream->context : stub_current();
}

// ---- captures ------------------------------------------------------------------------------------------------------

bool stub_is_handle(CUstream stream) {
    return (uintptr_t)stream > 2;
}

struct CUstream_st *stub_stream_of(CUstream stream) {
    return stub_is_handle(stream) ? stream : &legacy;
}

int stub_unsafe(void) {
    int result = 0;
    for (int i = 0; i < STREAMS; i++) {
        if (streams[i].capture == CUDA_CAPTURE_NONE) continue;
        streams[i].capture = CUDA_CAPTURE_INVALIDATED;
        result = CUDA_RESULT_CAPTURE_UNSUPPORTED;
    }
    return result;
}

void stub_capture(CUstream stream) {
    stream->capture = CUDA_CAPTURE_ACTIVE;
}
enum cuda_capture_status stub_capture_state(CUstream stream) {
    return stream->capture;
}
void stub_end_capture(CUstream stream) {
    stream->capture = CUDA_CAPTURE_NONE;
}

// ---- streams, events, graphs ---------------------------------------------------------------------------------------

int cuStreamCreate(CUstream *stream, unsigned flags) {
    CALL();
    (void)flags;
    if (!stub_current()) return stub_misuse(CUDA_RESULT_INVALID_CONTEXT);
    *stream = stub_stream(stub_current());
    stub.streams++;
    return 0;
}
int cuStreamDestroy(CUstream stream) {
    CLEANUP();
    stream->context = NULL;
    stub.streams--;
    return cleanup_result;
}
int cuStreamGetCtx(CUstream stream, CUcontext *context) {
    CALL();
    *context = stub_stream_context(stream);
    return *context ? 0 : stub_misuse(CUDA_RESULT_INVALID_CONTEXT);
}
int cuStreamSynchronize(CUstream stream) {
    CALL();
    (void)stream;
    UNSAFE();
    return 0;
}
int cuStreamIsCapturing(CUstream stream, int *status) {
    CALL();
    for (int i = 0; !stub_is_handle(stream) && i < STREAMS; i++) {
        if (streams[i].capture != CUDA_CAPTURE_NONE) return CUDA_RESULT_CAPTURE_IMPLICIT;
    }
    *status = (int)stub_stream_of(stream)->capture;
    return 0;
}
int cuStreamBeginCapture(CUstream stream, int mode) {
    CALL();
    (void)mode;
    stub_capture(stream);
    return 0;
}
int cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    CALL();
    const bool valid = stream->capture == CUDA_CAPTURE_ACTIVE;
    stub_end_capture(stream);
    *graph = NULL;
    if (!valid) return CUDA_RESULT_CAPTURE_UNSUPPORTED;
    *graph = malloc(sizeof **graph);
    stub.graphs++;
    return 0;
}
int cuGraphInstantiate(CUgraphExec *executable, CUgraph graph, unsigned long long flags) {
    CALL();
    (void)graph, (void)flags;
    *executable = malloc(sizeof **executable);
    stub.graphs++;
    return 0;
}
int cuGraphLaunch(CUgraphExec executable, CUstream stream) {
    CALL();
    (void)executable, (void)stream;
    return 0;
}
int cuGraphExecDestroy(CUgraphExec executable) {
    CLEANUP();
    free(executable);
    stub.graphs--;
    return cleanup_result;
}
int cuGraphDestroy(CUgraph graph) {
    CLEANUP();
    free(graph);
    stub.graphs--;
    return cleanup_result;
}
int cuEventCreate(CUevent *event, unsigned flags) {
    CALL();
    (void)flags;
    *event = calloc(1, sizeof **event);
    stub.events++;
    return 0;
}
int cuEventDestroy(CUevent event) {
    CLEANUP();
    free(event);
    stub.events--;
    return cleanup_result;
}
int cuEventRecord(CUevent event, CUstream stream) {
    CALL();
    (void)stream;
    event->recorded = stub.calls;
    return 0;
}
int cuEventSynchronize(CUevent event) {
    CALL();
    return event->recorded ? 0 : stub_misuse(CUDA_RESULT_INVALID_VALUE);
}
int cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    CALL();
    *milliseconds = (float)(end->recorded - start->recorded);
    return 0;
}

void stub_reset_streams(void) {
    memset(streams, 0, sizeof streams);
    legacy = (struct CUstream_st){.context = NULL};
}
