// stub_driver.h - what the files of the stub driver (stub_cuda.h) share with each other and with nobody else.
#ifndef VF_STUB_DRIVER_H
#define VF_STUB_DRIVER_H

#include "stub_cuda.h"

struct CUctx_st {
    int device;
    unsigned long long id;  // 0 = free
};
struct CUstream_st {
    CUcontext context;  // null = free
    enum cuda_capture_status capture;
};

// Every function of the driver, under the name that the table has for it.
#define FUNCTION(name, symbol, parameters) int name parameters;
CUDA_FUNCTIONS(FUNCTION, FUNCTION)
#undef FUNCTION

#define CALL() \
    if (stub_fails(__func__)) return STUB_FAILURE

// The head of calls that clean up: a driver that fails them has done them all the same.
#define CLEANUP() const int cleanup_result = stub_fails(__func__) ? STUB_FAILURE : 0

#define UNSAFE() \
    if (stub_unsafe()) return CUDA_RESULT_CAPTURE_UNSUPPORTED

// False for the null streams.
bool stub_is_handle(CUstream stream);
// Of a null stream: what stands for all of them.
struct CUstream_st *stub_stream_of(CUstream stream);

// Parts of stub_reset.
void stub_reset_streams(void);
void stub_reset_memory(void);

#endif
