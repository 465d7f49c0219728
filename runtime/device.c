// device.c - see device.h.
#include "device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct devices {
    const struct cuda_api *api;
    pthread_mutex_t lock;  // guards `primary` of all
    int count;
    struct device list[];
};

// Kernels for a card of compute capability 9.0 may use what only that card has; all others get their plain
// architecture.
static void write_arch(struct device *device) {
    const bool exact = device->compute_major == 9 && device->compute_minor == 0;
    snprintf(device->arch, sizeof device->arch, "sm_%d%d%s", device->compute_major, device->compute_minor,
             exact ? "a" : "");
}

static vf_status read_device(const struct cuda_api *api, int ordinal, struct device *device) {
    int shared = 0;
    const struct {
        int attribute, *value;
    } attributes[] = {{CUDA_DEVICE_CC_MAJOR, &device->compute_major},
                      {CUDA_DEVICE_CC_MINOR, &device->compute_minor},
                      {CUDA_DEVICE_SM_COUNT, &device->multiprocessors},
                      {CUDA_DEVICE_SHARED_BYTES_PER_BLOCK, &shared}};
    device->ordinal = ordinal;
    CUDA_TRY(api, cuDeviceGet, &device->handle, ordinal);
    CUDA_TRY(api, cuDeviceGetName, device->name, (int)sizeof device->name, device->handle);
    for (size_t i = 0; i < ARRAY_LENGTH(attributes); i++) {
        CUDA_TRY(api, cuDeviceGetAttribute, attributes[i].value, attributes[i].attribute, device->handle);
    }
    device->shared_bytes_per_block = (size_t)shared;
    write_arch(device);
    return VF_OK;
}

vf_status devices_open(const struct cuda_api *api, struct devices **out) {
    int count = 0;
    CUDA_TRY(api, cuDeviceGetCount, &count);
    VF_REQUIRE(count > 0, VF_ERROR_NO_DEVICE,
               "the CUDA driver sees no device: is one plugged in, and does CUDA_VISIBLE_DEVICES name it?");
    struct devices *devices = calloc(1, sizeof *devices + (size_t)count * sizeof devices->list[0]);
    VF_REQUIRE(devices, VF_ERROR_OUT_OF_MEMORY, "no memory for the list of devices");
    devices->api = api;
    devices->count = count;
    pthread_mutex_init(&devices->lock, NULL);
    for (int i = 0; i < count; i++) {
        const vf_status status = read_device(api, i, &devices->list[i]);
        if (status) {
            devices_close(devices);
            return status;
        }
    }
    *out = devices;
    return VF_OK;
}

void devices_close(struct devices *devices) {
    if (!devices) return;
    for (int i = 0; i < devices->count; i++) {
        if (devices->list[i].primary) devices->api->cuDevicePrimaryCtxRelease(devices->list[i].handle);
    }
    pthread_mutex_destroy(&devices->lock);
    free(devices);
}

int devices_count(const struct devices *devices) {
    return devices->count;
}

const struct device *devices_get(const struct devices *devices, int ordinal) {
    return ordinal >= 0 && ordinal < devices->count ? &devices->list[ordinal] : NULL;
}

// ---- scopes --------------------------------------------------------------------------------------------------------

static bool is_null_stream(CUstream stream) {
    return (uintptr_t)stream <= 2;
}  // default, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD

static vf_status retain_primary(struct devices *devices, struct device *device, CUcontext *context) {
    vf_status status = VF_OK;
    pthread_mutex_lock(&devices->lock);
    if (!device->primary) {
        CUcontext primary = NULL;
        status = cuda_check(devices->api, devices->api->cuDevicePrimaryCtxRetain(&primary, device->handle),
                            "cuDevicePrimaryCtxRetain");
        if (!status) device->primary = primary;
    }
    *context = device->primary;
    pthread_mutex_unlock(&devices->lock);
    return status;
}

static vf_status find_ordinal(struct devices *devices, int device, const void *data, int *ordinal) {
    if (device > 0) {
        *ordinal = device - 1;
    } else {
        VF_REQUIRE(data, VF_ERROR_INVALID_ARGUMENT, "device: is 0 and no tensor has data to tell the device by");
        const int result =
            devices->api->cuPointerGetAttribute(ordinal, CUDA_POINTER_DEVICE_ORDINAL, (CUdeviceptr)(uintptr_t)data);
        VF_REQUIRE(result != CUDA_RESULT_INVALID_VALUE, VF_ERROR_INVALID_ARGUMENT,
                   "data: %p is not memory that CUDA knows; device memory is needed", data);
        VF_TRY(cuda_check(devices->api, result, "cuPointerGetAttribute"));
    }
    VF_REQUIRE(*ordinal >= 0 && *ordinal < devices->count, VF_ERROR_INVALID_ARGUMENT,
               "device: there is no CUDA device %d, of %d", *ordinal, devices->count);
    return VF_OK;
}

static vf_status enter(const struct cuda_api *api, CUcontext context, struct scope *scope) {
    CUDA_TRY(api, cuCtxPushCurrent, context);
    scope->pushed = true;
    return VF_OK;
}

static vf_status enter_context(struct devices *devices, int ordinal, CUstream stream, struct scope *scope) {
    const struct cuda_api *api = devices->api;
    CUcontext current = NULL, context = NULL;
    CUdevice handle = -1;
    CUDA_TRY(api, cuCtxGetCurrent, &current);
    if (!is_null_stream(stream)) {
        CUDA_TRY(api, cuStreamGetCtx, stream, &context);
        if (context != current) VF_TRY(enter(api, context, scope));
        CUDA_TRY(api, cuCtxGetDevice, &handle);
        VF_REQUIRE(handle == devices->list[ordinal].handle, VF_ERROR_INVALID_ARGUMENT,
                   "stream: belongs to another device than the tensors, which lie on CUDA device %d", ordinal);
    } else {
        if (current) CUDA_TRY(api, cuCtxGetDevice, &handle);
        context = current;
        if (handle != devices->list[ordinal].handle) {
            VF_TRY(retain_primary(devices, &devices->list[ordinal], &context));
            VF_TRY(enter(api, context, scope));
        }
    }
    scope->context = (uint64_t)(uintptr_t)context;
    if (api->cuCtxGetId) {
        unsigned long long id = 0;
        CUDA_TRY(api, cuCtxGetId, context, &id);
        scope->context = id;
    }
    return VF_OK;
}

vf_status scope_enter(struct devices *devices, int device, const void *data, CUstream stream, struct scope *scope) {
    int ordinal = 0;
    *scope = (struct scope){.api = devices->api};
    VF_TRY(find_ordinal(devices, device, data, &ordinal));
    scope->device = &devices->list[ordinal];
    const vf_status status = enter_context(devices, ordinal, stream, scope);
    if (status) scope_leave(scope);
    return status;
}

void scope_leave(struct scope *scope) {
    CUcontext left;
    if (scope->pushed) scope->api->cuCtxPopCurrent(&left);
    scope->pushed = false;
}

vf_status devices_guess(const struct devices *devices, int device, const struct device **found) {
    int ordinal = device - 1;
    if (device == 0) {
        CUcontext current = NULL;
        CUdevice handle = devices->list[0].handle;
        CUDA_TRY(devices->api, cuCtxGetCurrent, &current);
        if (current) CUDA_TRY(devices->api, cuCtxGetDevice, &handle);
        for (ordinal = devices->count - 1; ordinal > 0 && devices->list[ordinal].handle != handle;) ordinal--;
    }
    *found = devices_get(devices, ordinal);
    VF_REQUIRE(*found, VF_ERROR_INVALID_ARGUMENT, "device: there is no CUDA device %d, of %d", ordinal, devices->count);
    return VF_OK;
}

vf_status scope_capturing(const struct scope *scope, CUstream stream, bool *capturing) {
    int status = CUDA_CAPTURE_NONE;
    const int result = scope->api->cuStreamIsCapturing(stream, &status);
    // The legacy stream asked while another stream captures: whatever synchronises would break that capture.
    *capturing = result == CUDA_RESULT_CAPTURE_IMPLICIT || status != CUDA_CAPTURE_NONE;
    return result == CUDA_RESULT_CAPTURE_IMPLICIT ? VF_OK : cuda_check(scope->api, result, "cuStreamIsCapturing");
}
