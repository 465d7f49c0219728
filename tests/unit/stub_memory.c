// stub_memory.c - memory, pointers and tensor maps of the stub driver.
#include <stdlib.h>
#include <string.h>

#include "stub_driver.h"

#define ALLOCATIONS 256

static struct {
    void *data;
    size_t bytes;
    int device;
} allocations[ALLOCATIONS];

void *stub_memory(int device, size_t bytes) {
    for (int i = 0; i < ALLOCATIONS; i++) {
        if (allocations[i].data) continue;
        const size_t rounded = (bytes + 256) / 256 * 256;
        allocations[i].data = aligned_alloc(256, rounded);
        allocations[i].bytes = rounded;
        allocations[i].device = device;
        memset(allocations[i].data, 0x7f, rounded);
        return allocations[i].data;
    }
    abort();
}

static int find_allocation(CUdeviceptr pointer) {
    for (int i = 0; i < ALLOCATIONS; i++) {
        const CUdeviceptr start = (CUdeviceptr)(uintptr_t)allocations[i].data;
        if (start && pointer >= start && pointer < start + allocations[i].bytes) return i;
    }
    return -1;
}

int cuMemAlloc(CUdeviceptr *pointer, size_t bytes) {
    CALL();
    UNSAFE();
    if (!stub_current() || bytes == 0) return stub_misuse(CUDA_RESULT_INVALID_VALUE);
    *pointer = (CUdeviceptr)(uintptr_t)stub_memory(stub_current()->device, bytes);
    stub.allocations++;
    return 0;
}
int cuMemFree(CUdeviceptr pointer) {
    CLEANUP();
    const int at = find_allocation(pointer);
    if (at < 0) return stub_misuse(CUDA_RESULT_INVALID_VALUE);
    free(allocations[at].data);
    allocations[at].data = NULL;
    stub.allocations--;
    return cleanup_result;
}
int cuMemGetInfo(size_t *available, size_t *total) {
    CALL();
    *available = *total = (size_t)1 << 30;
    return 0;
}
static int copy(void *to, const void *from, size_t bytes) {
    memcpy(to, from, bytes);
    return 0;
}
int cuMemcpyHtoDAsync(CUdeviceptr target, const void *source, size_t bytes, CUstream stream) {
    CALL();
    (void)stream;
    return copy((void *)(uintptr_t)target, source, bytes);
}
int cuMemcpyDtoHAsync(void *target, CUdeviceptr source, size_t bytes, CUstream stream) {
    CALL();
    (void)stream;
    return copy(target, (const void *)(uintptr_t)source, bytes);
}
int cuMemcpyDtoDAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
    CALL();
    (void)stream;
    return copy((void *)(uintptr_t)target, (const void *)(uintptr_t)source, bytes);
}
int cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t count, CUstream stream) {
    CALL();
    (void)stream;
    memset((void *)(uintptr_t)target, value, count);
    return 0;
}
int cuMemsetD32Async(CUdeviceptr target, unsigned value, size_t count, CUstream stream) {
    CALL();
    (void)stream;
    for (size_t i = 0; i < count; i++) ((unsigned *)(uintptr_t)target)[i] = value;
    return 0;
}
int cuPointerGetAttribute(void *value, int attribute, CUdeviceptr pointer) {
    CALL();
    const int at = find_allocation(pointer);
    if (at < 0 || attribute != CUDA_POINTER_DEVICE_ORDINAL) return CUDA_RESULT_INVALID_VALUE;
    *(int *)value = allocations[at].device;
    return 0;
}
int cuPointerGetAttributes(unsigned count, int *attributes, void **values, CUdeviceptr pointer) {
    CALL();
    (void)count, (void)attributes, (void)values, (void)pointer;
    return stub_misuse(CUDA_RESULT_INVALID_VALUE);
}

int cuTensorMapEncodeTiled(struct cuda_tensor_map *map, int type, uint32_t rank, void *address,
                           const uint64_t *dimensions, const uint64_t *strides, const uint32_t *box,
                           const uint32_t *element_strides, int interleave, int swizzle, int promotion, int fill) {
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

void stub_reset_memory(void) {
    for (int i = 0; i < ALLOCATIONS; i++) free(allocations[i].data);
    memset(allocations, 0, sizeof allocations);
}
