// driver.h - the simulated GPU as a CUDA driver: a cuda_api table in front of engine.h, so that the library and the command run on it unchanged.
//
// The table is that of tests/unit/stub_cuda.h, which has devices, contexts, streams, events and the rules of captures, counts what is alive and
// makes any call fail; what touches memory, code or launches is replaced. Work is done when it is given, so that streams are in order. A launch
// with findings fails, and its error string is the first of them. Compiler: the stub's, whose "cubin" is the source.
//
// Equal problems give equal runs: whenever nothing is allocated, the engine starts anew from its seed.
#ifndef SIM_DRIVER_H
#define SIM_DRIVER_H

#include "cuda_api.h"
#include "engine.h"
#include "stub_cuda.h"

#define SIM_LAUNCH_FAILED 719         // CUDA_ERROR_LAUNCH_FAILED
#define SIM_INVALID_IMAGE 200         // CUDA_ERROR_INVALID_IMAGE
#define SIM_INVALID_CLUSTER_SIZE 912  // CUDA_ERROR_INVALID_CLUSTER_SIZE

struct sim_device {
    int compute;  // 90 = 9.0
    int multiprocessors;
    int count;    // of equal devices
    int fail_at;  // the driver call of this number, from 1, fails; 0: none
    bool quiet;   // findings are counted and returned, not printed
    struct sim_options options;
};

// Starts anew: nothing alive, nothing allocated. The texts of the options must stay.
void sim_driver_reset(const struct sim_device *device);

const struct cuda_api *sim_cuda(void);
const struct nvrtc_api *sim_nvrtc(void);

#endif
