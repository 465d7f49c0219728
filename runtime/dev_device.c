// dev_device.c - varflash_dev.h: device memory, streams, events and graphs; on the CPU backend the host's memory and
// clock.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "context.h"
#include "varflash/varflash_dev.h"

#define ALIGNMENT 256

#define REQUIRE_CONTEXT() VF_REQUIRE(context, VF_ERROR_INVALID_ARGUMENT, "context: is null")

static bool on_cpu(const struct vf_context *context) {
    return context->backend == VF_BACKEND_CPU;
}

static CUdeviceptr address(const void *data) {
    return (CUdeviceptr)(uintptr_t)data;
}

// Enters a device's scope, runs one statement that sets `status`, leaves.
#define IN_SCOPE(device, data, stream, statement)                                  \
    do {                                                                           \
        struct scope scope;                                                        \
        VF_TRY(scope_enter(context->devices, (device), (data), (stream), &scope)); \
        const struct cuda_api *api = scope.api;                                    \
        vf_status status = VF_OK;                                                  \
        statement;                                                                 \
        scope_leave(&scope);                                                       \
        return status;                                                             \
    } while (0)

// Enters the scope of a stream: its own context; for the null streams the current one, else that of the first device.
static vf_status enter_stream(const struct vf_context *context, CUstream stream, struct scope *scope) {
    const struct cuda_api *api = context->cuda;
    if ((uintptr_t)stream <= 2) {
        const struct device *device;
        VF_TRY(devices_guess(context->devices, 0, &device));
        return scope_enter(context->devices, device->ordinal + 1, NULL, stream, scope);
    }
    CUcontext owner = NULL;
    *scope = (struct scope){.api = api};
    CUDA_TRY(api, cuStreamGetCtx, stream, &owner);
    CUDA_TRY(api, cuCtxPushCurrent, owner);
    scope->pushed = true;
    return VF_OK;
}

#define IN_STREAM(stream, statement)                     \
    do {                                                 \
        struct scope scope;                              \
        VF_TRY(enter_stream(context, (stream), &scope)); \
        const struct cuda_api *api = scope.api;          \
        vf_status status = VF_OK;                        \
        statement;                                       \
        scope_leave(&scope);                             \
        return status;                                   \
    } while (0)

#define CHECKED(name, ...) cuda_check(api, api->name(__VA_ARGS__), #name)

// ---- memory --------------------------------------------------------------------------------------------------------

vf_status vf_dev_alloc(vf_context *context, int device, size_t bytes, void **data) {
    REQUIRE_CONTEXT();
    VF_REQUIRE(data, VF_ERROR_INVALID_ARGUMENT, "data: is null");
    *data = NULL;
    const size_t wanted = bytes ? bytes : 1;
    if (on_cpu(context)) {
        VF_REQUIRE(wanted <= SIZE_MAX - ALIGNMENT, VF_ERROR_OUT_OF_MEMORY, "no memory of %zu bytes", bytes);
        *data = aligned_alloc(ALIGNMENT, (wanted + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
        VF_REQUIRE(*data, VF_ERROR_OUT_OF_MEMORY, "no memory of %zu bytes", bytes);
        return VF_OK;
    }
    CUdeviceptr pointer = 0;
    IN_SCOPE(device + 1, NULL, NULL, {
        status = CHECKED(cuMemAlloc, &pointer, wanted);
        *data = (void *)(uintptr_t)pointer;
    });
}

vf_status vf_dev_free(vf_context *context, void *data) {
    REQUIRE_CONTEXT();
    if (!data) return VF_OK;
    if (on_cpu(context)) {
        free(data);
        return VF_OK;
    }
    IN_SCOPE(0, data, NULL, status = CHECKED(cuMemFree, address(data)));
}

vf_status vf_dev_upload(vf_context *context, void *to, const void *from, size_t bytes) {
    REQUIRE_CONTEXT();
    if (bytes == 0) return VF_OK;
    if (on_cpu(context)) {
        memcpy(to, from, bytes);
        return VF_OK;
    }
    IN_SCOPE(0, to, NULL, {
        status = CHECKED(cuCtxSynchronize);
        if (!status) status = CHECKED(cuMemcpyHtoDAsync, address(to), from, bytes, NULL);
        if (!status) status = CHECKED(cuStreamSynchronize, NULL);
    });
}

vf_status vf_dev_download(vf_context *context, void *to, const void *from, size_t bytes) {
    REQUIRE_CONTEXT();
    if (bytes == 0) return VF_OK;
    if (on_cpu(context)) {
        memcpy(to, from, bytes);
        return VF_OK;
    }
    IN_SCOPE(0, from, NULL, {
        status = CHECKED(cuCtxSynchronize);
        if (!status) status = CHECKED(cuMemcpyDtoHAsync, to, address(from), bytes, NULL);
        if (!status) status = CHECKED(cuStreamSynchronize, NULL);
    });
}

vf_status vf_dev_synchronize(vf_context *context, int device) {
    REQUIRE_CONTEXT();
    if (on_cpu(context)) return VF_OK;
    IN_SCOPE(device + 1, NULL, NULL, status = CHECKED(cuCtxSynchronize));
}

vf_status vf_dev_set(vf_context *context, void *data, int byte, size_t bytes, struct CUstream_st *stream) {
    REQUIRE_CONTEXT();
    if (bytes == 0) return VF_OK;
    if (on_cpu(context)) {
        memset(data, byte, bytes);
        return VF_OK;
    }
    IN_SCOPE(0, data, stream, status = CHECKED(cuMemsetD8Async, address(data), (unsigned char)byte, bytes, stream));
}

vf_status vf_dev_copy(vf_context *context, void *to, const void *from, size_t bytes, struct CUstream_st *stream) {
    REQUIRE_CONTEXT();
    if (bytes == 0) return VF_OK;
    if (on_cpu(context)) {
        memmove(to, from, bytes);
        return VF_OK;
    }
    IN_SCOPE(0, to, stream, status = CHECKED(cuMemcpyDtoDAsync, address(to), address(from), bytes, stream));
}

// ---- streams -------------------------------------------------------------------------------------------------------

vf_status vf_dev_stream_create(vf_context *context, int device, struct CUstream_st **stream) {
    REQUIRE_CONTEXT();
    VF_REQUIRE(stream, VF_ERROR_INVALID_ARGUMENT, "stream: is null");
    *stream = NULL;
    if (on_cpu(context)) return VF_OK;
    IN_SCOPE(device + 1, NULL, NULL, status = CHECKED(cuStreamCreate, stream, CUDA_STREAM_NON_BLOCKING_FLAG));
}

vf_status vf_dev_stream_destroy(vf_context *context, struct CUstream_st *stream) {
    REQUIRE_CONTEXT();
    if (on_cpu(context) || !stream) return VF_OK;
    IN_STREAM(stream, status = CHECKED(cuStreamDestroy, stream));
}

vf_status vf_dev_stream_synchronize(vf_context *context, struct CUstream_st *stream) {
    REQUIRE_CONTEXT();
    if (on_cpu(context)) return VF_OK;
    IN_STREAM(stream, status = CHECKED(cuStreamSynchronize, stream));
}

// ---- events --------------------------------------------------------------------------------------------------------

struct vf_dev_event {
    struct vf_context *context;
    int device;
    CUevent event;        // null on the CPU backend
    double milliseconds;  // there: when it was recorded
};

vf_status vf_dev_event_create(vf_context *context, int device, vf_dev_event **out) {
    REQUIRE_CONTEXT();
    VF_REQUIRE(out, VF_ERROR_INVALID_ARGUMENT, "event: is null");
    *out = NULL;
    vf_dev_event *event = calloc(1, sizeof *event);
    VF_REQUIRE(event, VF_ERROR_OUT_OF_MEMORY, "no memory for an event");
    event->context = context;
    event->device = device;
    *out = event;
    if (on_cpu(context)) return VF_OK;
    IN_SCOPE(device + 1, NULL, NULL, {
        status = CHECKED(cuEventCreate, &event->event, 0);
        if (status) {
            free(event);
            *out = NULL;
        }
    });
}

vf_status vf_dev_event_record(vf_dev_event *event, struct CUstream_st *stream) {
    VF_REQUIRE(event, VF_ERROR_INVALID_ARGUMENT, "event: is null");
    struct vf_context *context = event->context;
    if (on_cpu(context)) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        event->milliseconds = (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
        return VF_OK;
    }
    IN_SCOPE(event->device + 1, NULL, stream, status = CHECKED(cuEventRecord, event->event, stream));
}

vf_status vf_dev_event_elapsed(const vf_dev_event *start, vf_dev_event *stop, double *milliseconds) {
    VF_REQUIRE(start && stop && milliseconds, VF_ERROR_INVALID_ARGUMENT, "start, stop or milliseconds: is null");
    struct vf_context *context = stop->context;
    if (on_cpu(context)) {
        *milliseconds = stop->milliseconds - start->milliseconds;
        return VF_OK;
    }
    float elapsed = 0;
    CUDA_TRY(context->cuda, cuEventSynchronize, stop->event);
    CUDA_TRY(context->cuda, cuEventElapsedTime, &elapsed, start->event, stop->event);
    *milliseconds = (double)elapsed;
    return VF_OK;
}

void vf_dev_event_destroy(vf_dev_event *event) {
    if (!event) return;
    if (event->event) event->context->cuda->cuEventDestroy(event->event);
    free(event);
}

// ---- graphs --------------------------------------------------------------------------------------------------------

struct vf_dev_graph {
    struct vf_context *context;
    CUgraphExec executable;
};

vf_status vf_dev_capture_begin(vf_context *context, struct CUstream_st *stream) {
    REQUIRE_CONTEXT();
    VF_REQUIRE(!on_cpu(context), VF_ERROR_UNSUPPORTED, "the CPU backend has no graphs");
    IN_STREAM(stream, status = CHECKED(cuStreamBeginCapture, stream, CUDA_CAPTURE_THREAD_LOCAL));
}

static vf_status end_capture(const struct cuda_api *api, CUstream stream, CUgraphExec *executable) {
    CUgraph graph = NULL;
    CUDA_TRY(api, cuStreamEndCapture, stream, &graph);
    const vf_status status = CHECKED(cuGraphInstantiate, executable, graph, 0);
    api->cuGraphDestroy(graph);
    return status;
}

static vf_status make_graph(struct vf_context *context, CUgraphExec executable, vf_dev_graph **out) {
    *out = malloc(sizeof **out);
    if (*out) {
        **out = (vf_dev_graph){context, executable};
        return VF_OK;
    }
    context->cuda->cuGraphExecDestroy(executable);
    VF_FAIL(VF_ERROR_OUT_OF_MEMORY, "no memory for a graph");
}

vf_status vf_dev_capture_end(vf_context *context, struct CUstream_st *stream, vf_dev_graph **out) {
    REQUIRE_CONTEXT();
    VF_REQUIRE(out, VF_ERROR_INVALID_ARGUMENT, "graph: is null");
    *out = NULL;
    VF_REQUIRE(!on_cpu(context), VF_ERROR_UNSUPPORTED, "the CPU backend has no graphs");
    CUgraphExec executable = NULL;
    IN_STREAM(stream, {
        status = end_capture(api, stream, &executable);
        if (!status) status = make_graph(context, executable, out);
    });
}

vf_status vf_dev_graph_launch(vf_dev_graph *graph, struct CUstream_st *stream) {
    VF_REQUIRE(graph, VF_ERROR_INVALID_ARGUMENT, "graph: is null");
    const struct vf_context *context = graph->context;
    IN_STREAM(stream, status = CHECKED(cuGraphLaunch, graph->executable, stream));
}

void vf_dev_graph_destroy(vf_dev_graph *graph) {
    if (!graph) return;
    graph->context->cuda->cuGraphExecDestroy(graph->executable);
    free(graph);
}
