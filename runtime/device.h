// device.h - the devices of this host, and the context in which a call's kernels run.
//
// The tensors decide the device, the stream decides the context. Invariant: a scope that was entered is left on every
// path, after which the thread's context stack is what it was.
#ifndef VF_DEVICE_H
#define VF_DEVICE_H

#include "base.h"
#include "cuda_api.h"

struct device {
    int ordinal;
    CUdevice handle;
    int compute_major, compute_minor, multiprocessors;
    size_t shared_bytes_per_block;  // with opting in
    char name[128];
    char arch[16];      // what kernels are compiled for: "sm_90a"
    CUcontext primary;  // once somebody needed it: retained until devices_close
};

struct devices;

// VF_ERROR_NO_DEVICE if there is none. `api` must outlive *devices.
vf_status devices_open(const struct cuda_api *api, struct devices **devices);
void devices_close(struct devices *devices);  // null is ignored

int devices_count(const struct devices *devices);
const struct device *devices_get(const struct devices *devices, int ordinal);

struct scope {
    const struct cuda_api *api;
    const struct device *device;
    uint64_t context;  // unique in the life of the process, unlike a CUcontext, whose address may be used again
    bool pushed;
};

// The scope of a call on `stream`. `device` is vf_problem_args.device; with 0 the device is where `data` lies. Null
// streams (the legacy one and the thread's own) run in the current context if it is on that device, else in the
// device's primary one. VF_ERROR_INVALID_ARGUMENT if stream, device and data do not agree.
vf_status scope_enter(struct devices *devices, int device, const void *data, CUstream stream, struct scope *scope);
void scope_leave(struct scope *scope);

// The device that a call without usable pointers means: `device` - 1, else that of the current context, else the first.
vf_status devices_guess(const struct devices *devices, int device, const struct device **found);

// Whether work given to `stream` is recorded instead of run. Harmless to the capture. To be asked inside a scope.
vf_status scope_capturing(const struct scope *scope, CUstream stream, bool *capturing);

#endif
