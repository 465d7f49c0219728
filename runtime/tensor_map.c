// tensor_map.c - see tensor_map.h.
#include "tensor_map.h"

#include <stdlib.h>
#include <string.h>

enum { RANK = 5, ELEMENT = 2, PANEL_COLUMNS = 64 };

static bool find_tensor(const char *name, size_t length, enum call_tensor *tensor) {
    for (int i = 0; i < CALL_TENSORS; i++) {
        if (strlen(call_tensor_names[i]) != length || memcmp(call_tensor_names[i], name, length) != 0) continue;
        *tensor = (enum call_tensor)i;
        return true;
    }
    return false;
}

vf_status tensor_map_read(const char *text, struct tensor_map_box *boxes, int *count) {
    *count = 0;
    for (const char *at = text; *at;) {
        const size_t length = strcspn(at, ":");
        char *end = NULL;
        struct tensor_map_box box = {.rows = 0};
        if (at[length]) box.rows = (int)strtol(at + length + 1, &end, 10);
        VF_REQUIRE(*count < TENSOR_MAPS_MAX && box.rows > 0 && box.rows <= 256 && (*end == ',' || !*end) &&
                       find_tensor(at, length, &box.tensor),
                   VF_ERROR_INTERNAL, "plan: boxes '%s' are not operand:rows with at most 256 rows, %d of them", text,
                   TENSOR_MAPS_MAX);
        boxes[(*count)++] = box;
        at = end + (*end == ',');
    }
    return VF_OK;
}

// Of a dimension that is only ever 0 the stride does not matter, but it must be one.
static uint64_t stride_bytes(int64_t extent, int64_t stride) {
    return extent > 1 ? (uint64_t)stride * ELEMENT : 16;
}

// An extent must not be 0.
static uint64_t extent_of(int64_t extent) {
    return extent > 1 ? (uint64_t)extent : 1;
}

vf_status tensor_map_encode(const struct call *call, const struct tensor_map_box *box, const void *elsewhere,
                            const struct cuda_api *api, struct cuda_tensor_map *map) {
    const vf_tensor *tensor = call->tensors[box->tensor];
    const int batched = tensor->ndim - 3;  // a batched operand has slots before its rows
    const int64_t *shape = tensor->shape + batched, *stride = tensor->stride + batched;
    const int64_t slots = batched ? tensor->shape[0] : 1;
    const uint64_t row = stride_bytes(shape[0], stride[0]), rows = (uint64_t)box->rows;
    const uint64_t dimensions[RANK] = {(uint64_t)shape[2], rows, (uint64_t)shape[0] + 1, extent_of(shape[1]),
                                       extent_of(slots)};
    const uint64_t strides[RANK - 1] = {row, row, stride_bytes(shape[1], stride[1]),
                                        stride_bytes(slots, tensor->stride[0])};
    const uint32_t boxes[RANK] = {PANEL_COLUMNS, (uint32_t)rows, 1, 1, 1}, steps[RANK] = {1, 1, 1, 1, 1};
    const bool empty = tensor_empty(tensor);
    void *base = (void *)((uintptr_t)(empty ? elsewhere : tensor->data) - (empty ? 0 : rows * row));
    const vf_status status =
        cuda_check(api,
                   api->cuTensorMapEncodeTiled(
                       map, tensor->dtype == VF_FLOAT16 ? CUDA_TENSOR_MAP_FLOAT16 : CUDA_TENSOR_MAP_BFLOAT16, RANK,
                       base, dimensions, strides, boxes, steps, CUDA_TENSOR_MAP_INTERLEAVE_NONE,
                       CUDA_TENSOR_MAP_SWIZZLE_128B, CUDA_TENSOR_MAP_PROMOTE_256B, CUDA_TENSOR_MAP_FILL_ZEROS),
                   "cuTensorMapEncodeTiled");
    if (status) status_prefix("%s: ", call_tensor_names[box->tensor]);
    return status;
}
