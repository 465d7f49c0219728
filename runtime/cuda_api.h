// cuda_api.h - the CUDA driver and NVRTC as two tables of function pointers, filled when a context is opened.
//
// Neither is linked and no CUDA header is needed: the library builds, loads and runs its CPU part anywhere. All other
// files call the driver through a `const struct cuda_api *`, so that a test double can stand in for it. Types and
// constants are declared here as the driver's ABI has them; test_cuda_api.c compares them with cuda.h where there is
// one.
#ifndef VF_CUDA_API_H
#define VF_CUDA_API_H

#include "base.h"
#include "fs.h"
#include "log.h"
#include "status.h"

// ---- the driver's types -------------------------------------------------------------------------------------------

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUfunc_st *CUfunction;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

// Of the driver's constants, those that are used.
enum cuda_result {
    CUDA_RESULT_SUCCESS = 0,
    CUDA_RESULT_INVALID_VALUE = 1,
    CUDA_RESULT_NO_DEVICE = 100,
    CUDA_RESULT_INVALID_CONTEXT = 201,
    CUDA_RESULT_NOT_FOUND = 500,
    CUDA_RESULT_CAPTURE_UNSUPPORTED = 900,
    CUDA_RESULT_CAPTURE_IMPLICIT = 906
};

enum cuda_device_attribute {
    CUDA_DEVICE_CLOCK_KHZ = 13,
    CUDA_DEVICE_SM_COUNT = 16,
    CUDA_DEVICE_PCI_BUS = 33,
    CUDA_DEVICE_PCI_SLOT = 34,
    CUDA_DEVICE_L2_BYTES = 38,
    CUDA_DEVICE_PCI_DOMAIN = 50,
    CUDA_DEVICE_CC_MAJOR = 75,
    CUDA_DEVICE_CC_MINOR = 76,
    CUDA_DEVICE_SHARED_BYTES_PER_BLOCK = 97  // after opting in
};

// Dynamic shared memory of a block: to be raised before a launch with more than 48 KB.
enum cuda_function_attribute { CUDA_FUNCTION_DYNAMIC_SHARED_BYTES = 8 };

enum cuda_pointer_attribute { CUDA_POINTER_DEVICE_ORDINAL = 9 };

enum cuda_capture_status { CUDA_CAPTURE_NONE = 0, CUDA_CAPTURE_ACTIVE = 1, CUDA_CAPTURE_INVALIDATED = 2 };
enum cuda_capture_mode { CUDA_CAPTURE_GLOBAL = 0, CUDA_CAPTURE_THREAD_LOCAL = 1, CUDA_CAPTURE_RELAXED = 2 };

enum { CUDA_STREAM_NON_BLOCKING_FLAG = 1 };

// cuLaunchKernelEx. Of the attributes only programmatic stream serialization is used: a kernel may start before its
// predecessor in the stream has ended, and waits for it on the device where it needs it.
enum cuda_launch_attribute_id { CUDA_LAUNCH_PROGRAMMATIC_SERIALIZATION = 6 };

struct cuda_launch_attribute {
    uint32_t id;  // enum cuda_launch_attribute_id
    uint32_t padding;
    union {
        char size[64];
        int programmatic_serialization;  // 1: allowed
    } value;
};

struct cuda_launch_config {
    unsigned int grid_x, grid_y, grid_z;
    unsigned int block_x, block_y, block_z;
    unsigned int shared_bytes;  // dynamic
    CUstream stream;
    struct cuda_launch_attribute *attributes;
    unsigned int attribute_count;
};

struct cuda_tensor_map {
    _Alignas(64) uint64_t opaque[16];
};

enum cuda_tensor_map_type { CUDA_TENSOR_MAP_FLOAT16 = 6, CUDA_TENSOR_MAP_BFLOAT16 = 9 };
enum cuda_tensor_map_interleave { CUDA_TENSOR_MAP_INTERLEAVE_NONE = 0 };
enum cuda_tensor_map_swizzle { CUDA_TENSOR_MAP_SWIZZLE_128B = 3 };
enum cuda_tensor_map_promotion { CUDA_TENSOR_MAP_PROMOTE_256B = 3 };  // what L2 fetches at a time
enum cuda_tensor_map_fill { CUDA_TENSOR_MAP_FILL_ZEROS = 0 };

// ---- the driver's functions ---------------------------------------------------------------------------------------
// One row a function: needed or optional, name, symbol, parameters. All return a CUresult (an int here). The symbol
// differs from the name where the driver keeps an older form under the plain name. An optional function may be null:
// check before use.
#define CUDA_FUNCTIONS(NEEDED, OPTIONAL)                                                                               \
    NEEDED(cuInit, "cuInit", (unsigned int flags))                                                                     \
    NEEDED(cuDriverGetVersion, "cuDriverGetVersion", (int *version))                                                   \
    NEEDED(cuGetErrorName, "cuGetErrorName", (int result, const char **text))                                          \
    NEEDED(cuGetErrorString, "cuGetErrorString", (int result, const char **text))                                      \
    NEEDED(cuDeviceGetCount, "cuDeviceGetCount", (int *count))                                                         \
    NEEDED(cuDeviceGet, "cuDeviceGet", (CUdevice * device, int ordinal))                                               \
    NEEDED(cuDeviceGetName, "cuDeviceGetName", (char *name, int size, CUdevice device))                                \
    NEEDED(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int *value, int attribute, CUdevice device))                 \
    NEEDED(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext * context, CUdevice device))               \
    NEEDED(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice device))                               \
    NEEDED(cuCtxGetCurrent, "cuCtxGetCurrent", (CUcontext * context))                                                  \
    NEEDED(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (CUcontext context))                                               \
    NEEDED(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (CUcontext * context))                                               \
    NEEDED(cuCtxGetDevice, "cuCtxGetDevice", (CUdevice * device))                                                      \
    OPTIONAL(cuCtxGetId, "cuCtxGetId", (CUcontext context, unsigned long long *id))                                    \
    NEEDED(cuCtxSynchronize, "cuCtxSynchronize", (void))                                                               \
    NEEDED(cuLibraryLoadData, "cuLibraryLoadData",                                                                     \
           (CUlibrary * library, const void *image, int *jit_options, void **jit_values, unsigned int jit_count,       \
            int *options, void **values, unsigned int count))                                                          \
    NEEDED(cuLibraryUnload, "cuLibraryUnload", (CUlibrary library))                                                    \
    NEEDED(cuLibraryGetKernel, "cuLibraryGetKernel", (CUkernel * kernel, CUlibrary library, const char *name))         \
    NEEDED(cuKernelGetFunction, "cuKernelGetFunction", (CUfunction * function, CUkernel kernel))                       \
    NEEDED(cuKernelSetAttribute, "cuKernelSetAttribute", (int attribute, int value, CUkernel kernel, CUdevice device)) \
    NEEDED(cuFuncGetAttribute, "cuFuncGetAttribute", (int *value, int attribute, CUfunction function))                 \
    NEEDED(cuFuncSetAttribute, "cuFuncSetAttribute", (CUfunction function, int attribute, int value))                  \
    NEEDED(cuLaunchKernelEx, "cuLaunchKernelEx",                                                                       \
           (const struct cuda_launch_config *config, CUfunction function, void **parameters, void **extra))            \
    NEEDED(cuStreamCreate, "cuStreamCreate", (CUstream * stream, unsigned int flags))                                  \
    NEEDED(cuStreamDestroy, "cuStreamDestroy_v2", (CUstream stream))                                                   \
    NEEDED(cuStreamGetCtx, "cuStreamGetCtx", (CUstream stream, CUcontext * context))                                   \
    NEEDED(cuStreamSynchronize, "cuStreamSynchronize", (CUstream stream))                                              \
    NEEDED(cuStreamIsCapturing, "cuStreamIsCapturing", (CUstream stream, int *status))                                 \
    NEEDED(cuStreamBeginCapture, "cuStreamBeginCapture_v2", (CUstream stream, int mode))                               \
    NEEDED(cuStreamEndCapture, "cuStreamEndCapture", (CUstream stream, CUgraph * graph))                               \
    NEEDED(cuGraphInstantiate, "cuGraphInstantiateWithFlags",                                                          \
           (CUgraphExec * executable, CUgraph graph, unsigned long long flags))                                        \
    NEEDED(cuGraphLaunch, "cuGraphLaunch", (CUgraphExec executable, CUstream stream))                                  \
    NEEDED(cuGraphExecDestroy, "cuGraphExecDestroy", (CUgraphExec executable))                                         \
    NEEDED(cuGraphDestroy, "cuGraphDestroy", (CUgraph graph))                                                          \
    NEEDED(cuMemAlloc, "cuMemAlloc_v2", (CUdeviceptr * pointer, size_t bytes))                                         \
    NEEDED(cuMemFree, "cuMemFree_v2", (CUdeviceptr pointer))                                                           \
    NEEDED(cuMemGetInfo, "cuMemGetInfo_v2", (size_t * available, size_t * total))                                      \
    NEEDED(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2",                                                                  \
           (CUdeviceptr target, const void *source, size_t bytes, CUstream stream))                                    \
    NEEDED(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2",                                                                  \
           (void *target, CUdeviceptr source, size_t bytes, CUstream stream))                                          \
    NEEDED(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2",                                                                  \
           (CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream))                                    \
    NEEDED(cuMemsetD8Async, "cuMemsetD8Async",                                                                         \
           (CUdeviceptr target, unsigned char value, size_t count, CUstream stream))                                   \
    NEEDED(cuMemsetD32Async, "cuMemsetD32Async",                                                                       \
           (CUdeviceptr target, unsigned int value, size_t count, CUstream stream))                                    \
    NEEDED(cuPointerGetAttribute, "cuPointerGetAttribute", (void *value, int attribute, CUdeviceptr pointer))          \
    NEEDED(cuPointerGetAttributes, "cuPointerGetAttributes",                                                           \
           (unsigned int count, int *attributes, void **values, CUdeviceptr pointer))                                  \
    NEEDED(cuEventCreate, "cuEventCreate", (CUevent * event, unsigned int flags))                                      \
    NEEDED(cuEventDestroy, "cuEventDestroy_v2", (CUevent event))                                                       \
    NEEDED(cuEventRecord, "cuEventRecord", (CUevent event, CUstream stream))                                           \
    NEEDED(cuEventSynchronize, "cuEventSynchronize", (CUevent event))                                                  \
    NEEDED(cuEventElapsedTime, "cuEventElapsedTime", (float *milliseconds, CUevent start, CUevent end))                \
    OPTIONAL(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled",                                                         \
             (struct cuda_tensor_map * map, int type, uint32_t rank, void *address, const uint64_t *dimensions,        \
              const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides, int interleave,           \
              int swizzle, int promotion, int fill))

struct cuda_api {
    void *library;  // handle of libcuda.so.1; null in a test double
    int version;    // of the driver: 12080 is 12.8
#define FUNCTION(name, symbol, parameters) int(*name) parameters;
    CUDA_FUNCTIONS(FUNCTION, FUNCTION)
#undef FUNCTION
};

// Opens libcuda.so.1, fills the table, calls cuInit. VF_ERROR_NO_DEVICE with a sentence that says what is missing and
// what to do; then the table is zeroed and needs no closing.
vf_status cuda_open(struct cuda_api *api);
void cuda_close(struct cuda_api *api);

// Fills the functions of a table from `find` (dlsym, or a test's own): VF_ERROR_NO_DEVICE names a needed symbol that is
// missing.
vf_status cuda_fill(struct cuda_api *api, void *(*find)(void *user, const char *symbol), void *user);

// Turns a CUresult into a status. The sentence names the call and the driver's words; vf_last_driver_error is the code.
vf_status cuda_check(const struct cuda_api *api, int result, const char *call);

// CUDA_TRY(api, cuMemAlloc, &pointer, bytes): calls, and returns the failure if it is one.
#define CUDA_TRY(api, name, ...) VF_TRY(cuda_check((api), (api)->name(__VA_ARGS__), #name))

// ---- NVRTC --------------------------------------------------------------------------------------------------------

typedef struct _nvrtcProgram *nvrtcProgram;

#define NVRTC_FUNCTIONS(FUNCTION)                                                                                 \
    FUNCTION(nvrtcVersion, (int *major, int *minor))                                                              \
    FUNCTION(nvrtcGetNumSupportedArchs, (int *count))                                                             \
    FUNCTION(nvrtcGetSupportedArchs, (int *archs))                                                                \
    FUNCTION(nvrtcCreateProgram, (nvrtcProgram * program, const char *source, const char *name, int header_count, \
                                  const char *const *headers, const char *const *header_names))                   \
    FUNCTION(nvrtcDestroyProgram, (nvrtcProgram * program))                                                       \
    FUNCTION(nvrtcCompileProgram, (nvrtcProgram program, int count, const char *const *options))                  \
    FUNCTION(nvrtcGetCUBINSize, (nvrtcProgram program, size_t * size))                                            \
    FUNCTION(nvrtcGetCUBIN, (nvrtcProgram program, char *image))                                                  \
    FUNCTION(nvrtcGetPTXSize, (nvrtcProgram program, size_t * size))                                              \
    FUNCTION(nvrtcGetPTX, (nvrtcProgram program, char *text))                                                     \
    FUNCTION(nvrtcGetProgramLogSize, (nvrtcProgram program, size_t * size))                                       \
    FUNCTION(nvrtcGetProgramLog, (nvrtcProgram program, char *text))

struct nvrtc_api {
    void *library;
    int major, minor;
    char path[512];  // the file that was opened
    const char *(*nvrtcGetErrorString)(int result);
#define FUNCTION(name, parameters) int(*name) parameters;
    NVRTC_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

// Finds NVRTC: VARFLASH_NVRTC (then nothing else is tried), one that the process has loaded, libnvrtc.so.13 or .12 on
// the loader's path, the files of nvrtc_candidates. `driver_version` (12080; 0: no driver, anything will do) skips an
// NVRTC whose images that driver cannot load. VF_ERROR_NO_COMPILER with one sentence: where it looked and how to get
// it, or both versions when only newer ones were found. On failure the table is zeroed and needs no closing.
vf_status nvrtc_open(const struct environment *environment, int driver_version, const struct logger *logger,
                     struct nvrtc_api *api);
void nvrtc_close(struct nvrtc_api *api);

// Appends the files to try, one a line, whether or not they are there: of $CUDA_HOME, $CUDA_PATH and /usr/local/cuda,
// then what the nvidia folders of Python environments hold.
void nvrtc_candidates(const struct environment *environment, struct buf *lines);

// Whether images of NVRTC `major` load in a driver: it must be of the same or a later major version. 0: no driver,
// true.
bool nvrtc_fits_driver(int major, int driver_version);

#endif
