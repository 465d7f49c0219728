// driver.c - see driver.h.
#include "driver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHARED_WITHOUT_ASKING 49152  // bytes that a launch may have without cuFuncSetAttribute
#define FINDINGS_PRINTED 8

struct CUlib_st {
    struct sim_module *module;
    struct CUkern_st *kernels;
    struct CUfunc_st *functions;
};
struct CUkern_st {
    struct sim_kernel *kernel;
    CUlibrary library;
    struct CUkern_st *next;
};
struct CUfunc_st {
    struct sim_kernel *kernel;
    CUcontext context;
    int shared_bytes;  // allowed
    struct CUfunc_st *next;
};

static struct sim_device device;
static struct cuda_api table;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // the engine serves one thread at a time
static const void *last_stream = &device;                 // of the last launch; &device: none
static char message[1024];                                // of the last failed call

#define CALL() \
    if (stub_fails(__func__)) return STUB_FAILURE
#define CLEANUP() const int cleanup_result = stub_fails(__func__) ? STUB_FAILURE : 0
#define UNSAFE() \
    if (stub_unsafe()) return CUDA_RESULT_CAPTURE_UNSUPPORTED

static void *host(CUdeviceptr pointer) {
    return (void *)(uintptr_t)pointer;
}

// ---- starting ------------------------------------------------------------------------------------------------------

static void restart(void) {
    sim_configure(&device.options);
    last_stream = &device;
}

// ---- the device ----------------------------------------------------------------------------------------------------

static int cuGetErrorName(int result, const char **text) {
    const int stubs = stub_cuda()->cuGetErrorName(result, text);
    if (result == SIM_LAUNCH_FAILED) *text = "CUDA_ERROR_LAUNCH_FAILED";
    if (result == SIM_INVALID_IMAGE) *text = "CUDA_ERROR_INVALID_IMAGE";
    if (result == SIM_INVALID_CLUSTER_SIZE) *text = "CUDA_ERROR_INVALID_CLUSTER_SIZE";
    return stubs;
}
static int cuGetErrorString(int result, const char **text) {
    const int stubs = stub_cuda()->cuGetErrorString(result, text);
    if (result == SIM_LAUNCH_FAILED || result == SIM_INVALID_IMAGE) *text = message;
    return stubs;
}
static int cuDeviceGetName(char *name, int size, CUdevice handle) {
    CALL();
    (void)handle;
    snprintf(name, (size_t)size, "Simulator");
    return 0;
}
static int shared_bytes(void) {
    return device.compute == 90 ? 232448 : device.compute == 80 ? 166912 : 101376;
}
static int cuDeviceGetAttribute(int *value, int attribute, CUdevice handle) {
    if (attribute != CUDA_DEVICE_SHARED_BYTES_PER_BLOCK)
        return stub_cuda()->cuDeviceGetAttribute(value, attribute, handle);
    CALL();
    *value = shared_bytes();
    return 0;
}

// ---- code ----------------------------------------------------------------------------------------------------------

static int cuLibraryLoadData(CUlibrary *library, const void *image, int *jit_options, void **jit_values,
                             unsigned jit_count, int *options, void **values, unsigned count) {
    CALL();
    UNSAFE();
    (void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    pthread_mutex_lock(&lock);
    struct sim_module *module = sim_load(image, strlen(image), message, sizeof message);
    pthread_mutex_unlock(&lock);
    if (!module) {
        if (!device.quiet) fprintf(stderr, "simulator: %s\n", message);
        return SIM_INVALID_IMAGE;
    }
    *library = calloc(1, sizeof **library);
    (*library)->module = module;
    stub.libraries++;
    return 0;
}
static int cuLibraryUnload(CUlibrary library) {
    CLEANUP();
    pthread_mutex_lock(&lock);
    sim_unload(library->module);
    pthread_mutex_unlock(&lock);
    for (struct CUkern_st *next, *kernel = library->kernels; kernel; kernel = next) {
        next = kernel->next;
        free(kernel);
    }
    for (struct CUfunc_st *next, *function = library->functions; function; function = next) {
        next = function->next;
        free(function);
    }
    free(library);
    stub.libraries--;
    return cleanup_result;
}
static int cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    CALL();
    struct sim_kernel *found = sim_find(library->module, name);
    if (!found) return stub_misuse(CUDA_RESULT_NOT_FOUND);
    *kernel = malloc(sizeof **kernel);
    **kernel = (struct CUkern_st){found, library, library->kernels};
    library->kernels = *kernel;
    return 0;
}
static int cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    CALL();
    UNSAFE();
    if (!stub_current()) return stub_misuse(CUDA_RESULT_INVALID_CONTEXT);
    CUlibrary library = kernel->library;
    *function = malloc(sizeof **function);
    **function = (struct CUfunc_st){kernel->kernel, stub_current(), SHARED_WITHOUT_ASKING, library->functions};
    library->functions = *function;
    return 0;
}
static int cuFuncSetAttribute(CUfunction function, int attribute, int value) {
    CALL();
    if (attribute != CUDA_FUNCTION_DYNAMIC_SHARED_BYTES || value > shared_bytes())
        return stub_misuse(CUDA_RESULT_INVALID_VALUE);
    function->shared_bytes = value;
    return function->context == stub_current() ? 0 : stub_misuse(CUDA_RESULT_INVALID_CONTEXT);
}

// ---- work: done at once, or kept by a capture ----------------------------------------------------------------------

enum work_kind { WORK_LAUNCH, WORK_COPY_IN, WORK_COPY_OUT, WORK_COPY, WORK_SET };

struct work {
    enum work_kind kind;
    const struct sim_kernel *kernel;
    struct sim_grid grid;
    void *parameter;  // own copy once it is kept
    void *target;
    const void *source;
    size_t bytes;
    unsigned char value;
};

// What a stream's capture has kept so far, and what graphs are made of, by the handle that the stub gave.
struct recording {
    const void *handle;  // stream, graph or executable
    size_t count;
    struct work *items;
    struct recording *next;
};
static struct recording *recordings;

static struct recording *recording_of(const void *handle) {
    struct recording *recording = recordings;
    while (recording && recording->handle != handle) recording = recording->next;
    return recording;
}

static struct recording *add_recording(const void *handle) {
    struct recording *recording = calloc(1, sizeof *recording);
    recording->handle = handle;
    recording->next = recordings;
    recordings = recording;
    return recording;
}

static void drop_recording(const void *handle) {
    struct recording **link = &recordings;
    while (*link && (*link)->handle != handle) link = &(*link)->next;
    struct recording *recording = *link;
    if (!recording) return;
    *link = recording->next;
    for (size_t i = 0; i < recording->count; i++) free(recording->items[i].parameter);
    free(recording->items);
    free(recording);
}

static void keep(struct recording *recording, const struct work *work) {
    recording->items = realloc(recording->items, (recording->count + 1) * sizeof *work);
    struct work *kept = &recording->items[recording->count++];
    *kept = *work;
    if (work->kind != WORK_LAUNCH) return;
    const size_t bytes = sim_kernel_facts(work->kernel)->parameter_bytes;
    kept->parameter = malloc(bytes);
    memcpy(kept->parameter, work->parameter, bytes);
}

// The findings of a launch, printed, the first of them kept as the message.
static void report(const struct work *work) {
    int printed = 0;
    message[0] = 0;
    for (size_t i = 0; i < sim_finding_count(); i++) {
        const struct sim_finding *finding = sim_get_finding(i);
        if (finding->allowed) continue;
        if (!message[0])
            snprintf(message, sizeof message, "%s: %s; at %s", finding->kind, finding->text, finding->place);
        if (device.quiet || ++printed > FINDINGS_PRINTED) continue;
        fprintf(stderr, "%s: %s\n    at %s\n", finding->kind, finding->text, finding->place);
        if (finding->earlier) fprintf(stderr, "    earlier %s\n", finding->earlier);
    }
    if (!message[0]) snprintf(message, sizeof message, "%s did not end", sim_kernel_facts(work->kernel)->entry);
    if (printed > FINDINGS_PRINTED) fprintf(stderr, "... and %d findings more\n", printed - FINDINGS_PRINTED);
}

static int launch(const struct work *work) {
    const bool ended = sim_launch(work->kernel, &work->grid, work->parameter);
    const bool good = ended && !sim_fault_count();
    if (!good) report(work);
    sim_clear_findings();
    return good ? 0 : SIM_LAUNCH_FAILED;
}

static int out_of_bounds(const void *address, size_t bytes) {
    if (sim_holds(address, bytes)) return 0;
    snprintf(message, sizeof message, "the %zu bytes at %p are not in one allocation", bytes, address);
    return stub_misuse(CUDA_RESULT_INVALID_VALUE);
}

static int execute(const struct work *work) {
    if (work->kind == WORK_LAUNCH) return launch(work);
    sim_fence();
    if (work->kind != WORK_COPY_OUT && out_of_bounds(work->target, work->bytes)) return CUDA_RESULT_INVALID_VALUE;
    if ((work->kind == WORK_COPY_OUT || work->kind == WORK_COPY) && out_of_bounds(work->source, work->bytes))
        return CUDA_RESULT_INVALID_VALUE;
    if (work->kind == WORK_SET) {
        memset(work->target, work->value, work->bytes);
        // Tests fill with ones what must not matter.
        if (work->value == 0xff)
            sim_mark_unwritten(work->target, work->bytes);
        else
            sim_mark_written(work->target, work->bytes);
        return 0;
    }
    memmove(work->target, work->source, work->bytes);
    if (work->kind != WORK_COPY_OUT) sim_mark_written(work->target, work->bytes);
    return 0;
}

static int submit(CUstream stream, const struct work *work) {
    pthread_mutex_lock(&lock);
    struct recording *capture = recording_of(stream);
    int result = 0;
    if (capture) {
        keep(capture, work);
    } else {
        // Only what stands before a kernel in its own stream can be its programmatic predecessor.
        if (stream != last_stream) sim_fence();
        last_stream = stream;
        result = execute(work);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static int cuLaunchKernelEx(const struct cuda_launch_config *config, CUfunction function, void **parameters,
                            void **extra) {
    CALL();
    const CUcontext context = stub_stream_context(config->stream);
    const struct sim_facts *facts = sim_kernel_facts(function->kernel);
    if (extra || !context || function->context != context) return stub_misuse(CUDA_RESULT_INVALID_CONTEXT);
    if (!config->grid_x || config->grid_y != 1 || config->grid_z != 1 || config->block_y != 1 || config->block_z != 1 ||
        !config->block_x || (int)config->block_x > facts->threads || (int)config->shared_bytes > function->shared_bytes)
        return stub_misuse(CUDA_RESULT_INVALID_VALUE);
    if (config->grid_x % (unsigned)facts->cluster) return stub_misuse(SIM_INVALID_CLUSTER_SIZE);
    bool programmatic = false;
    for (unsigned i = 0; i < config->attribute_count; i++) {
        if (config->attributes[i].id == CUDA_LAUNCH_PROGRAMMATIC_SERIALIZATION)
            programmatic = config->attributes[i].value.programmatic_serialization;
    }
    const struct work work = {.kind = WORK_LAUNCH,
                              .kernel = function->kernel,
                              .grid = {config->grid_x, config->block_x, config->shared_bytes, programmatic},
                              .parameter = parameters[0]};
    return submit(config->stream, &work);
}

// ---- captures and graphs -------------------------------------------------------------------------------------------

static int cuStreamBeginCapture(CUstream stream, int mode) {
    const int result = stub_cuda()->cuStreamBeginCapture(stream, mode);
    if (!result) add_recording(stream);
    return result;
}
// What was kept for `from` goes on under the handle `to`.
static void pass_on(const void *from, const void *to) {
    struct recording *recording = recording_of(from);
    if (recording) recording->handle = to;
}
static int cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    const int result = stub_cuda()->cuStreamEndCapture(stream, graph);
    if (result)
        drop_recording(stream);
    else
        pass_on(stream, *graph);
    return result;
}
static int cuGraphInstantiate(CUgraphExec *executable, CUgraph graph, unsigned long long flags) {
    const int result = stub_cuda()->cuGraphInstantiate(executable, graph, flags);
    const struct recording *recording = recording_of(graph);
    if (result || !recording) return result;
    struct recording *own = add_recording(*executable);
    for (size_t i = 0; i < recording->count; i++) keep(own, &recording->items[i]);
    return 0;
}
static int cuGraphLaunch(CUgraphExec executable, CUstream stream) {
    const struct recording *recording = recording_of(executable);
    int result = stub_cuda()->cuGraphLaunch(executable, stream);
    last_stream = &device;  // its first kernel has no programmatic predecessor
    for (size_t i = 0; recording && i < recording->count && !result; i++) result = submit(stream, &recording->items[i]);
    return result;
}
static int cuGraphExecDestroy(CUgraphExec executable) {
    drop_recording(executable);
    return stub_cuda()->cuGraphExecDestroy(executable);
}
static int cuGraphDestroy(CUgraph graph) {
    drop_recording(graph);
    return stub_cuda()->cuGraphDestroy(graph);
}

// ---- memory --------------------------------------------------------------------------------------------------------

static int cuMemAlloc(CUdeviceptr *pointer, size_t bytes) {
    CALL();
    UNSAFE();
    if (!stub_current() || bytes == 0) return stub_misuse(CUDA_RESULT_INVALID_VALUE);
    pthread_mutex_lock(&lock);
    if (!sim_allocated()) restart();
    void *memory = sim_alloc(bytes);
    pthread_mutex_unlock(&lock);
    *pointer = (CUdeviceptr)(uintptr_t)memory;
    stub.allocations += memory != NULL;
    return memory ? 0 : 2;  // CUDA_ERROR_OUT_OF_MEMORY
}
static int cuMemFree(CUdeviceptr pointer) {
    CLEANUP();
    pthread_mutex_lock(&lock);
    const bool known = sim_free(host(pointer));
    pthread_mutex_unlock(&lock);
    if (!known) return stub_misuse(CUDA_RESULT_INVALID_VALUE);
    stub.allocations--;
    return cleanup_result;
}
static int cuMemcpyHtoDAsync(CUdeviceptr target, const void *source, size_t bytes, CUstream stream) {
    CALL();
    return submit(stream,
                  &(struct work){.kind = WORK_COPY_IN, .target = host(target), .source = source, .bytes = bytes});
}
static int cuMemcpyDtoHAsync(void *target, CUdeviceptr source, size_t bytes, CUstream stream) {
    CALL();
    return submit(stream,
                  &(struct work){.kind = WORK_COPY_OUT, .target = target, .source = host(source), .bytes = bytes});
}
static int cuMemcpyDtoDAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
    CALL();
    return submit(stream,
                  &(struct work){.kind = WORK_COPY, .target = host(target), .source = host(source), .bytes = bytes});
}
static int cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t count, CUstream stream) {
    CALL();
    return submit(stream, &(struct work){.kind = WORK_SET, .target = host(target), .bytes = count, .value = value});
}
static int cuMemsetD32Async(CUdeviceptr target, unsigned value, size_t count, CUstream stream) {
    CALL();
    if (value != (value & 0xff) * 0x01010101u) return stub_misuse(CUDA_RESULT_INVALID_VALUE);
    return submit(
        stream,
        &(struct work){.kind = WORK_SET, .target = host(target), .bytes = 4 * count, .value = (unsigned char)value});
}
static int cuPointerGetAttribute(void *value, int attribute, CUdeviceptr pointer) {
    CALL();
    if (attribute != CUDA_POINTER_DEVICE_ORDINAL || !sim_holds(host(pointer), 1)) return CUDA_RESULT_INVALID_VALUE;
    *(int *)value = 0;
    return 0;
}
static int cuTensorMapEncodeTiled(struct cuda_tensor_map *map, int type, uint32_t rank, void *address,
                                  const uint64_t *dimensions, const uint64_t *strides, const uint32_t *box,
                                  const uint32_t *element_strides, int interleave, int swizzle, int promotion,
                                  int fill) {
    static const int element_bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};  // ORDER CUtensorMapDataType
    CALL();
    (void)promotion;
    const bool known = type >= 0 && type < (int)ARRAY_LENGTH(element_bytes) && !interleave && !fill;
    const char *fault = known ? sim_tensor_map(map, address, (int)rank, dimensions, strides, box, element_strides,
                                               element_bytes[type], swizzle)
                              : "a type, interleave or fill that the simulator does not have";
    if (!fault) return 0;
    if (!device.quiet) fprintf(stderr, "cuTensorMapEncodeTiled: %s\n", fault);
    return CUDA_RESULT_INVALID_VALUE;
}

// ---- the tables ----------------------------------------------------------------------------------------------------

#define REPLACED(REPLACE)          \
    REPLACE(cuGetErrorName)        \
    REPLACE(cuGetErrorString)      \
    REPLACE(cuDeviceGetName)       \
    REPLACE(cuDeviceGetAttribute)  \
    REPLACE(cuLibraryLoadData)     \
    REPLACE(cuLibraryUnload)       \
    REPLACE(cuLibraryGetKernel)    \
    REPLACE(cuKernelGetFunction)   \
    REPLACE(cuFuncSetAttribute)    \
    REPLACE(cuLaunchKernelEx)      \
    REPLACE(cuStreamBeginCapture)  \
    REPLACE(cuStreamEndCapture)    \
    REPLACE(cuGraphInstantiate)    \
    REPLACE(cuGraphLaunch)         \
    REPLACE(cuGraphExecDestroy)    \
    REPLACE(cuGraphDestroy)        \
    REPLACE(cuMemAlloc)            \
    REPLACE(cuMemFree)             \
    REPLACE(cuMemcpyHtoDAsync)     \
    REPLACE(cuMemcpyDtoHAsync)     \
    REPLACE(cuMemcpyDtoDAsync)     \
    REPLACE(cuMemsetD8Async)       \
    REPLACE(cuMemsetD32Async)      \
    REPLACE(cuPointerGetAttribute) \
    REPLACE(cuTensorMapEncodeTiled)

void sim_driver_reset(const struct sim_device *wanted) {
    device = *wanted;
    stub_reset();
    stub.device_count = device.count > 0 ? device.count : 1;
    for (int i = 0; i < stub.device_count; i++) stub.compute[i] = device.compute;
    stub.fail_at = device.fail_at;
    stub.multiprocessors = device.multiprocessors;
    while (recordings) drop_recording(recordings->handle);
    restart();
}

const struct cuda_api *sim_cuda(void) {
    table = *stub_cuda();
#define REPLACE(name) table.name = name;
    REPLACED(REPLACE)
#undef REPLACE
    return &table;
}

// Its images are none of NVRTC's: a version that NVRTC never had keeps them apart in caches.
const struct nvrtc_api *sim_nvrtc(void) {
    static struct nvrtc_api nvrtc;
    nvrtc = *stub_nvrtc();
    nvrtc.major = nvrtc.minor = 0;
    return &nvrtc;
}
