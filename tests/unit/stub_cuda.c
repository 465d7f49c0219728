// stub_cuda.c - see stub_cuda.h.
#include "stub_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stub_driver.h"

struct stub stub;

#define CONTEXTS 16
#define FUNCTIONS 1024
#define DEPTH 16

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

static struct {
    struct CUctx_st primary[STUB_DEVICES], contexts[CONTEXTS];
    struct CUfunc_st functions[FUNCTIONS];
    atomic_int function_count;
    _Atomic(CUkernel) kernels;
    CUcontext stack[DEPTH];
    unsigned long long ids;
} state;

bool stub_fails(const char *name) {
    if (++stub.calls != stub.fail_at) return false;
    stub.failed = name;
    return true;
}

int stub_misuse(int result) {
    stub.misuses++;
    return result;
}

CUcontext stub_current(void) {
    return stub.depth ? state.stack[stub.depth - 1] : NULL;
}

// ---- devices and contexts ------------------------------------------------------------------------------------------

int cuInit(unsigned flags) {
    CALL();
    return flags ? CUDA_RESULT_INVALID_VALUE : 0;
}
int cuDriverGetVersion(int *version) {
    CALL();
    *version = 13000;
    return 0;
}
int cuGetErrorName(int result, const char **text) {
    *text = result == STUB_FAILURE ? "CUDA_ERROR_UNKNOWN" : "CUDA_ERROR_OTHER";
    return 0;
}
int cuGetErrorString(int result, const char **text) {
    *text = result == STUB_FAILURE ? "injected failure" : "other failure";
    return 0;
}
int cuDeviceGetCount(int *count) {
    CALL();
    *count = stub.device_count;
    return 0;
}
int cuDeviceGet(CUdevice *device, int ordinal) {
    CALL();
    *device = ordinal + 100;  // a handle is no ordinal
    return 0;
}
int cuDeviceGetName(char *name, int size, CUdevice device) {
    CALL();
    snprintf(name, (size_t)size, "Stub %d", device - 100);
    return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    CALL();
    const int compute = stub.compute[device - 100];
    *value = attribute == CUDA_DEVICE_CC_MAJOR   ? compute / 10
             : attribute == CUDA_DEVICE_CC_MINOR ? compute % 10
             : attribute == CUDA_DEVICE_SM_COUNT ? stub.multiprocessors
                                                 : 65536;
    return 0;
}
int cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    CALL();
    *context = &state.primary[device - 100];
    stub.retained++;
    return 0;
}
int cuDevicePrimaryCtxRelease(CUdevice device) {
    CLEANUP();
    (void)device;
    stub.retained--;
    return cleanup_result;
}
int cuCtxGetCurrent(CUcontext *context) {
    CALL();
    *context = stub_current();
    return 0;
}
int cuCtxPushCurrent(CUcontext context) {
    CALL();
    if (!context || stub.depth == DEPTH) return stub_misuse(CUDA_RESULT_INVALID_CONTEXT);
    state.stack[stub.depth++] = context;
    return 0;
}
int cuCtxPopCurrent(CUcontext *context) {
    CLEANUP();
    if (stub.depth == 0) return stub_misuse(CUDA_RESULT_INVALID_CONTEXT);
    *context = state.stack[--stub.depth];
    return cleanup_result;
}
int cuCtxGetDevice(CUdevice *device) {
    CALL();
    if (!stub_current()) return stub_misuse(CUDA_RESULT_INVALID_CONTEXT);
    *device = stub_current()->device + 100;
    return 0;
}
int cuCtxGetId(CUcontext context, unsigned long long *id) {
    CALL();
    *id = context->id;
    return 0;
}
int cuCtxSynchronize(void) {
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

void stub_push(CUcontext context) {
    state.stack[stub.depth++] = context;
}
void stub_pop(void) {
    stub.depth--;
}

// ---- modules -------------------------------------------------------------------------------------------------------

int cuLibraryLoadData(CUlibrary *library, const void *image, int *jit_options, void **jit_values, unsigned jit_count,
                      int *options, void **values, unsigned count) {
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
int cuLibraryUnload(CUlibrary library) {
    CLEANUP();
    free(library->image);
    free(library);
    stub.libraries--;
    return cleanup_result;
}
int cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    CALL();
    if (!strstr(library->image, name)) return stub_misuse(CUDA_RESULT_NOT_FOUND);
    *kernel = calloc(1, sizeof **kernel);
    if (!*kernel) return STUB_FAILURE;
    snprintf((*kernel)->entry, sizeof(*kernel)->entry, "%s", name);
    (*kernel)->next = atomic_exchange(&state.kernels, *kernel);
    return 0;
}
int cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    CALL();
    UNSAFE();
    const int index = atomic_fetch_add(&state.function_count, 1);
    if (!stub_current() || index >= FUNCTIONS) return stub_misuse(CUDA_RESULT_INVALID_CONTEXT);
    *function = &state.functions[index];
    (*function)->context = stub_current();
    memcpy((*function)->entry, kernel->entry, sizeof kernel->entry);
    return 0;
}
int cuKernelSetAttribute(int attribute, int value, CUkernel kernel, CUdevice device) {
    CALL();
    (void)attribute, (void)value, (void)kernel, (void)device;
    return 0;
}
int cuFuncGetAttribute(int *value, int attribute, CUfunction function) {
    CALL();
    (void)attribute, (void)function;
    *value = 0;
    return 0;
}
int cuFuncSetAttribute(CUfunction function, int attribute, int value) {
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
                 {"vf_bwd_pre_sm90", sizeof(struct kernel_backward_pre_sm90_args)},
                 {"vf_bwd_pre", sizeof(struct kernel_backward_pre_args)},
                 {"vf_bwd_post", sizeof(struct kernel_backward_post_args)},
                 {"vf_bwd_sm90", sizeof(struct kernel_backward_sm90_args)},
                 {"vf_bwd", sizeof(struct kernel_backward_args)}};
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        if (!strncmp(entry, sizes[i].prefix, strlen(sizes[i].prefix))) return sizes[i].size;
    }
    return 0;
}

int cuLaunchKernelEx(const struct cuda_launch_config *config, CUfunction function, void **parameters, void **extra) {
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
                                   .captured = stub_stream_of(config->stream)->capture != CUDA_CAPTURE_NONE};
    memcpy(launch->entry, function->entry, sizeof launch->entry);
    memcpy(&launch->arguments, parameters[0], argument_size(launch->entry));
    if (!strcmp(launch->entry, "vf_check_lengths")) {
        memcpy((void *)(uintptr_t)launch->arguments.check.report, &stub.check_report, sizeof stub.check_report);
    }
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
    stub_reset_streams();
    stub_reset_memory();
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
        stub.compute[i] = 100;
        state.primary[i] = (struct CUctx_st){i, ++state.ids};
    }
}
