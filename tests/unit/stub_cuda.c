// stub_cuda.c - see stub_cuda.h.
#include "stub_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct stub stub;

#define CONTEXTS 16
#define STREAMS 32
#define ALLOCATIONS 256
#define FUNCTIONS 512
#define DEPTH 16

struct CUctx_st {
    int device;
    unsigned long long id;  // 0 = free
};
struct CUstream_st {
    CUcontext context;  // null = free
    enum cuda_capture_status capture;
};
struct CUlib_st {
    char *image;
};
struct CUkern_st {
    char entry[128];
    struct CUkern_st *next;  // all that were made, for stub_reset
};
struct CUfunc_st {
    char entry[128];
    CUcontext context;
};
struct CUevent_st {
    int recorded;
};
struct CUgraph_st {
    int unused;
};
struct CUgraphExec_st {
    int unused;
};

static struct {
    struct CUctx_st primary[STUB_DEVICES], contexts[CONTEXTS];
    struct CUstream_st streams[STREAMS], legacy;
    struct {
        void *data;
        size_t bytes;
        int device;
    } allocations[ALLOCATIONS];
    struct CUfunc_st functions[FUNCTIONS];
    int function_count;
    CUkernel kernels;
    CUcontext stack[DEPTH];
    unsigned long long ids;
} state;

bool stub_fails(const char *name) {
    stub.last_call = name;
    if (++stub.calls != stub.fail_at) return false;
    stub.failed = name;
    return true;
}
#define CALL() \
    if (stub_fails(__func__)) return STUB_FAILURE

// The head of calls that clean up: a driver that fails them has done them all the same.
#define CLEANUP() const int cleanup_result = stub_fails(__func__) ? STUB_FAILURE : 0

int stub_misuse(int result) {
    stub.misuses++;
    return result;
}

CUcontext stub_current(void) {
    return stub.depth ? state.stack[stub.depth - 1] : NULL;
}

// ---- captures ------------------------------------------------------------------------------------------------------

static bool is_handle(CUstream stream) {
    return (uintptr_t)stream > 2;
}

static struct CUstream_st *stream_of(CUstream stream) {
    return is_handle(stream) ? stream : &state.legacy;
}

int stub_unsafe(void) {
    int result = 0;
    for (int i = 0; i < STREAMS; i++) {
        if (state.streams[i].capture == CUDA_CAPTURE_NONE) continue;
        state.streams[i].capture = CUDA_CAPTURE_INVALIDATED;
        result = CUDA_RESULT_CAPTURE_UNSUPPORTED;
    }
    return result;
}
#define UNSAFE() \
    if (stub_unsafe()) return CUDA_RESULT_CAPTURE_UNSUPPORTED

void stub_capture(CUstream stream) {
    stream->capture = CUDA_CAPTURE_ACTIVE;
}
enum cuda_capture_status stub_capture_state(CUstream stream) {
    return stream->capture;
}
void stub_end_capture(CUstream stream) {
    stream->capture = CUDA_CAPTURE_NONE;
}

// ---- devices and contexts ------------------------------------------------------------------------------------------

static int cuInit(unsigned flags) {
    CALL();
    return flags ? CUDA_RESULT_INVALID_VALUE : 0;
}
static int cuDriverGetVersion(int *version) {
    CALL();
    *version = 13000;
    return 0;
}
static int cuGetErrorName(int result, const char **text) {
    *text = result == STUB_FAILURE ? "CUDA_ERROR_UNKNOWN" : "CUDA_ERROR_OTHER";
    return 0;
}
static int cuGetErrorString(int result, const char **text) {
    *text = result == STUB_FAILURE ? "injected failure" : "other failure";
    return 0;
}
static int cuDeviceGetCount(int *count) {
    CALL();
    *count = stub.device_count;
    return 0;
}
static int cuDeviceGet(CUdevice *device, int ordinal) {
    CALL();
    *device = ordinal + 100;  // a handle is no ordinal
    return 0;
}
static int cuDeviceGetName(char *name, int size, CUdevice device) {
    CALL();
    snprintf(name, (size_t)size, "Stub %d", device - 100);
    return 0;
}
static int cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    CALL();
    const int compute = stub.compute[device - 100];
    *value = attribute == CUDA_DEVICE_CC_MAJOR   ? compute / 10
             : attribute == CUDA_DEVICE_CC_MINOR ? compute % 10
             : attribute == CUDA_DEVICE_SM_COUNT ? stub.multiprocessors
                                                 : 65536;
    return 0;
}
static int cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    CALL();
    *context = &state.primary[device - 100];
    stub.retained++;
    return 0;
}
static int cuDevicePrimaryCtxRelease(CUdevice device) {
    CLEANUP();
    (void)device;
    stub.retained--;
    return cleanup_result;
}
static int cuCtxGetCurrent(CUcontext *context) {
    CALL();
    *context = stub_current();
    return 0;
}
static int cuCtxPushCurrent(CUcontext context) {
    CALL();
    if (!context || stub.depth == DEPTH) return stub_misuse(CUDA_RESULT_INVALID_CONTEXT);
    state.stack[stub.depth++] = context;
    return 0;
}
static int cuCtxPopCurrent(CUcontext *context) {
    CLEANUP();
    if (stub.depth == 0) return stub_misuse(CUDA_RESULT_INVALID_CONTEXT);
    *context = state.stack[--stub.depth];
    return cleanup_result;
}
static int cuCtxGetDevice(CUdevice *device) {
    CALL();
    if (!stub_current()) return stub_misuse(CUDA_RESULT_INVALID_CONTEXT);
    *device = stub_current()->device + 100;
    return 0;
}
static int cuCtxGetId(CUcontext context, unsigned long long *id) {
    CALL();
    *id = context->id;
    return 0;
}
static int cuCtxSynchronize(void) {
    CALL();
    UNSAFE();
    return stub_current() ? 0 : stub_misuse(CUDA_RESULT_INVALID_CONTEXT);
}

CUcontext stub_primary(int device) {
    return &state.primary[device];
}

CUcontext stub_context(int device) {
    for (int i = 0; i < CONTEXTS; i++) {
        if (state.contexts[i].id) continue;
        state.contexts[i] = (struct CUctx_st){device, ++state.ids};
        return &state.contexts[i];
    }
    abort();
}

CUstream stub_stream(CUcontext context) {
    for (int i = 0; i < STREAMS; i++) {
        if (state.streams[i].context) continue;
        state.streams[i] = (struct CUstream_st){context, CUDA_CAPTURE_NONE};
        return &state.streams[i];
    }
    abort();
}

CUcontext stub_stream_context(CUstream stream) {
    return is_handle(stream) ? stream->context : stub_current();
}

void stub_push(CUcontext context) {
    state.stack[stub.depth++] = context;
}
void stub_pop(void) {
    stub.depth--;
}

// ---- modules -------------------------------------------------------------------------------------------------------

static int cuLibraryLoadData(CUlibrary *library, const void *image, int *jit_options, void **jit_values,
                             unsigned jit_count, int *options, void **values, unsigned count) {
    CALL();
    UNSAFE();
    (void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    char *copied = strdup(image);
    *library = copied ? malloc(sizeof **library) : NULL;
    if (!*library) {
        free(copied);
        return STUB_FAILURE;
    }
    (*library)->image = copied;
    stub.libraries++;
    return 0;
}
static int cuLibraryUnload(CUlibrary library) {
    CLEANUP();
    free(library->image);
    free(library);
    stub.libraries--;
    return cleanup_result;
}
static int cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    CALL();
    if (!strstr(library->image, name)) return stub_misuse(CUDA_RESULT_NOT_FOUND);
    *kernel = calloc(1, sizeof **kernel);
    if (!*kernel) return STUB_FAILURE;
    snprintf((*kernel)->entry, sizeof(*kernel)->entry, "%s", name);
    (*kernel)->next = state.kernels;
    state.kernels = *kernel;
    return 0;
}
static int cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    CALL();
    UNSAFE();
    if (!stub_current() || state.function_count == FUNCTIONS) return stub_misuse(CUDA_RESULT_INVALID_CONTEXT);
    *function = &state.functions[state.function_count++];
    (*function)->context = stub_current();
    memcpy((*function)->entry, kernel->entry, sizeof kernel->entry);
    return 0;
}
static int cuKernelSetAttribute(int attribute, int value, CUkernel kernel, CUdevice device) {
    CALL();
    (void)attribute, (void)value, (void)kernel, (void)device;
    return 0;
}
static int cuFuncGetAttribute(int *value, int attribute, CUfunction function) {
    CALL();
    (void)attribute, (void)function;
    *value = 0;
    return 0;
}
static int cuFuncSetAttribute(CUfunction function, int attribute, int value) {
    CALL();
    (void)attribute, (void)value;
    return function->context == stub_current() ? 0 : stub_misuse(CUDA_RESULT_INVALID_CONTEXT);
}

static size_t argument_size(const char *entry) {
    const struct {
        const char *prefix;
        size_t size;
    } sizes[] = {{"vf_schedule", sizeof(struct kernel_schedule_args)},
                 {"vf_check_lengths", sizeof(struct kernel_check_args)},
                 {"vf_fwd_sm90", sizeof(struct kernel_forward_sm90_args)},
                 {"vf_fwd", sizeof(struct kernel_forward_args)},
                 {"vf_bwd_pre", sizeof(struct kernel_backward_pre_args)},
                 {"vf_bwd_post", sizeof(struct kernel_backward_post_args)},
                 {"vf_bwd_sm90", sizeof(struct kernel_backward_sm90_args)},
                 {"vf_bwd", sizeof(struct kernel_backward_args)}};
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        if (!strncmp(entry, sizes[i].prefix, strlen(sizes[i].prefix))) return sizes[i].size;
    }
    return 0;
}

static int cuLaunchKernelEx(const struct cuda_launch_config *config, CUfunction function, void **parameters,
                            void **extra) {
    CALL();
    const CUcontext context = stub_stream_context(config->stream);
    if (extra || !context || function->context != context || stub.launch_count == STUB_LAUNCHES) {
        return stub_misuse(CUDA_RESULT_INVALID_CONTEXT);
    }
    if (!config->grid_x || config->grid_y != 1 || config->grid_z != 1 || !config->block_x)
        return stub_misuse(CUDA_RESULT_INVALID_VALUE);
    struct stub_launch *launch = &stub.launches[stub.launch_count++];
    *launch = (struct stub_launch){.context = context,
                                   .stream = config->stream,
                                   .grid = config->grid_x,
                                   .block = config->block_x,
                                   .shared_bytes = config->shared_bytes,
                                   .chained = config->attribute_count > 0,
                                   .captured = stream_of(config->stream)->capture != CUDA_CAPTURE_NONE};
    memcpy(launch->entry, function->entry, sizeof launch->entry);
    memcpy(&launch->arguments, parameters[0], argument_size(launch->entry));
    if (!strcmp(launch->entry, "vf_check_lengths")) {
        memcpy((void *)(uintptr_t)launch->arguments.check.report, &stub.check_report, sizeof stub.check_report);
    }
    return 0;
}

// ---- streams, events, graphs ---------------------------------------------------------------------------------------

static int cuStreamCreate(CUstream *stream, unsigned flags) {
    CALL();
    (void)flags;
    if (!stub_current()) return stub_misuse(CUDA_RESULT_INVALID_CONTEXT);
    *stream = stub_stream(stub_current());
    stub.streams++;
    return 0;
}
static int cuStreamDestroy(CUstream stream) {
    CLEANUP();
    stream->context = NULL;
    stub.streams--;
    return cleanup_result;
}
static int cuStreamGetCtx(CUstream stream, CUcontext *context) {
    CALL();
    *context = stub_stream_context(stream);
    return *context ? 0 : stub_misuse(CUDA_RESULT_INVALID_CONTEXT);
}
static int cuStreamSynchronize(CUstream stream) {
    CALL();
    (void)stream;
    UNSAFE();
    return 0;
}
static int cuStreamIsCapturing(CUstream stream, int *status) {
    CALL();
    for (int i = 0; !is_handle(stream) && i < STREAMS; i++) {
        if (state.streams[i].capture != CUDA_CAPTURE_NONE) return CUDA_RESULT_CAPTURE_IMPLICIT;
    }
    *status = (int)stream_of(stream)->capture;
    return 0;
}
static int cuStreamBeginCapture(CUstream stream, int mode) {
    CALL();
    (void)mode;
    stub_capture(stream);
    return 0;
}
static int cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    CALL();
    const bool valid = stream->capture == CUDA_CAPTURE_ACTIVE;
    stub_end_capture(stream);
    *graph = NULL;
    if (!valid) return CUDA_RESULT_CAPTURE_UNSUPPORTED;
    *graph = malloc(sizeof **graph);
    stub.graphs++;
    return 0;
}
static int cuGraphInstantiate(CUgraphExec *executable, CUgraph graph, unsigned long long flags) {
    CALL();
    (void)graph, (void)flags;
    *executable = malloc(sizeof **executable);
    stub.graphs++;
    return 0;
}
static int cuGraphLaunch(CUgraphExec executable, CUstream stream) {
    CALL();
    (void)executable, (void)stream;
    return 0;
}
static int cuGraphExecDestroy(CUgraphExec executable) {
    CLEANUP();
    free(executable);
    stub.graphs--;
    return cleanup_result;
}
static int cuGraphDestroy(CUgraph graph) {
    CLEANUP();
    free(graph);
    stub.graphs--;
    return cleanup_result;
}
static int cuEventCreate(CUevent *event, unsigned flags) {
    CALL();
    (void)flags;
    *event = calloc(1, sizeof **event);
    stub.events++;
    return 0;
}
static int cuEventDestroy(CUevent event) {
    CLEANUP();
    free(event);
    stub.events--;
    return cleanup_result;
}
static int cuEventRecord(CUevent event, CUstream stream) {
    CALL();
    (void)stream;
    event->recorded = stub.calls;
    return 0;
}
static int cuEventSynchronize(CUevent event) {
    CALL();
    return event->recorded ? 0 : stub_misuse(CUDA_RESULT_INVALID_VALUE);
}
static int cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    CALL();
    *milliseconds = (float)(end->recorded - start->recorded);
    return 0;
}

// ---- memory --------------------------------------------------------------------------------------------------------

void *stub_memory(int device, size_t bytes) {
    for (int i = 0; i < ALLOCATIONS; i++) {
        if (state.allocations[i].data) continue;
        const size_t rounded = (bytes + 256) / 256 * 256;
        state.allocations[i].data = aligned_alloc(256, rounded);
        state.allocations[i].bytes = rounded;
        state.allocations[i].device = device;
        memset(state.allocations[i].data, 0x7f, rounded);
        return state.allocations[i].data;
    }
    abort();
}

static int find_allocation(CUdeviceptr pointer) {
    for (int i = 0; i < ALLOCATIONS; i++) {
        const CUdeviceptr start = (CUdeviceptr)(uintptr_t)state.allocations[i].data;
        if (start && pointer >= start && pointer < start + state.allocations[i].bytes) return i;
    }
    return -1;
}

static int cuMemAlloc(CUdeviceptr *pointer, size_t bytes) {
    CALL();
    UNSAFE();
    if (!stub_current() || bytes == 0) return stub_misuse(CUDA_RESULT_INVALID_VALUE);
    *pointer = (CUdeviceptr)(uintptr_t)stub_memory(stub_current()->device, bytes);
    stub.allocations++;
    return 0;
}
static int cuMemFree(CUdeviceptr pointer) {
    CLEANUP();
    const int at = find_allocation(pointer);
    if (at < 0) return stub_misuse(CUDA_RESULT_INVALID_VALUE);
    free(state.allocations[at].data);
    state.allocations[at].data = NULL;
    stub.allocations--;
    return cleanup_result;
}
static int cuMemGetInfo(size_t *available, size_t *total) {
    CALL();
    *available = *total = (size_t)1 << 30;
    return 0;
}
static int copy(void *to, const void *from, size_t bytes) {
    memcpy(to, from, bytes);
    return 0;
}
static int cuMemcpyHtoDAsync(CUdeviceptr target, const void *source, size_t bytes, CUstream stream) {
    CALL();
    (void)stream;
    return copy((void *)(uintptr_t)target, source, bytes);
}
static int cuMemcpyDtoHAsync(void *target, CUdeviceptr source, size_t bytes, CUstream stream) {
    CALL();
    (void)stream;
    return copy(target, (const void *)(uintptr_t)source, bytes);
}
static int cuMemcpyDtoDAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
    CALL();
    (void)stream;
    return copy((void *)(uintptr_t)target, (const void *)(uintptr_t)source, bytes);
}
static int cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t count, CUstream stream) {
    CALL();
    (void)stream;
    memset((void *)(uintptr_t)target, value, count);
    return 0;
}
static int cuMemsetD32Async(CUdeviceptr target, unsigned value, size_t count, CUstream stream) {
    CALL();
    (void)stream;
    for (size_t i = 0; i < count; i++) ((unsigned *)(uintptr_t)target)[i] = value;
    return 0;
}
static int cuPointerGetAttribute(void *value, int attribute, CUdeviceptr pointer) {
    CALL();
    const int at = find_allocation(pointer);
    if (at < 0 || attribute != CUDA_POINTER_DEVICE_ORDINAL) return CUDA_RESULT_INVALID_VALUE;
    *(int *)value = state.allocations[at].device;
    return 0;
}
static int cuPointerGetAttributes(unsigned count, int *attributes, void **values, CUdeviceptr pointer) {
    CALL();
    (void)count, (void)attributes, (void)values, (void)pointer;
    return stub_misuse(CUDA_RESULT_INVALID_VALUE);
}

static int cuTensorMapEncodeTiled(struct cuda_tensor_map *map, int type, uint32_t rank, void *address,
                                  const uint64_t *dimensions, const uint64_t *strides, const uint32_t *box,
                                  const uint32_t *element_strides, int interleave, int swizzle, int promotion,
                                  int fill) {
    CALL();
    struct stub_map made = {.address = (uintptr_t)address, .type = (uint8_t)type, .rank = (uint8_t)rank};
    bool right = rank == 5 && made.address && made.address % 16 == 0;
    for (uint32_t i = 0; right && i < rank; i++) {
        right = dimensions[i] > 0 && dimensions[i] <= (uint64_t)1 << 32 && box[i] > 0 && box[i] <= 256 &&
                element_strides[i] > 0 && element_strides[i] <= 8 &&
                (i == 0 || (strides[i - 1] % 16 == 0 && strides[i - 1] < (uint64_t)1 << 40));
        made.dimensions[i] = dimensions[i];
        if (i > 0) made.strides[i - 1] = strides[i - 1];
        made.box[i] = (uint16_t)box[i];
        made.steps[i] = (uint16_t)element_strides[i];
    }
    if (!right) return stub_misuse(CUDA_RESULT_INVALID_VALUE);
    made.interleave = (uint8_t)interleave;
    made.swizzle = (uint8_t)swizzle;
    made.promotion = (uint8_t)promotion;
    made.fill = (uint8_t)fill;
    memset(map, 0, sizeof *map);
    memcpy(map, &made, sizeof made);
    return 0;
}

const struct cuda_api *stub_cuda(void) {
    static const struct cuda_api api = {.version = 13000,
#define FUNCTION(name, symbol, parameters) .name = name,
                                        CUDA_FUNCTIONS(FUNCTION, FUNCTION)
#undef FUNCTION
    };
    return &api;
}

void stub_reset(void) {
    for (int i = 0; i < ALLOCATIONS; i++) free(state.allocations[i].data);
    while (state.kernels) {
        CUkernel next = state.kernels->next;
        free(state.kernels);
        state.kernels = next;
    }
    memset(&state, 0, sizeof state);
    memset(&stub, 0, sizeof stub);
    stub.device_count = 1;
    stub.multiprocessors = 132;
    stub.check_report.fault = UINT64_MAX;
    for (int i = 0; i < STUB_DEVICES; i++) {
        stub.compute[i] = 90;
        state.primary[i] = (struct CUctx_st){i, ++state.ids};
    }
}
