/* varflash_dlpack.h - a DLPack tensor as a vf_tensor. Includes no DLPack header: include dlpack.h before this one.
 *
 *     vf_tensor q;
 *     if (vf_tensor_from_dlpack(&managed->dl_tensor, &q) != VF_OK) puts("a type or a shape that vf_tensor does not
 * have");
 *
 * Works with any version of DLPack that has DLTensor with data, device, ndim, dtype { code, bits, lanes }, shape,
 * strides and byte_offset. The tensor is viewed, not kept: it must live as long as the vf_tensor is used. Nothing is
 * linked for this. */
#ifndef VARFLASH_DLPACK_H
#define VARFLASH_DLPACK_H

#include "varflash/varflash.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The vf_dtype of DLPack's { code, bits, lanes }; VF_NONE where there is none. Codes: 0 signed integer, 2 float, 4
 * bfloat. */
static inline vf_dtype vf_dtype_from_dlpack(int code, int bits, int lanes) {
    if (lanes != 1) return VF_NONE;
    if (code == 0 && bits == 32) return VF_INT32;
    if (code == 0 && bits == 64) return VF_INT64;
    if (code == 2 && bits == 16) return VF_FLOAT16;
    if (code == 2 && bits == 32) return VF_FLOAT32;
    if (code == 4 && bits == 16) return VF_BFLOAT16;
    return VF_NONE;
}

/* The fields of a DLTensor one by one. `strides` null: compact, row by row. VF_ERROR_INVALID_ARGUMENT leaves *tensor
 * absent. */
static inline vf_status vf_tensor_from_fields(void *data, uint64_t byte_offset, int ndim, vf_dtype dtype,
                                              const int64_t *shape, const int64_t *strides, vf_tensor *tensor) {
    static const vf_tensor absent = {0, VF_NONE, 0, {0, 0, 0, 0}, {0, 0, 0, 0}};
    uint64_t compact = 1; /* may wrap: of shapes so large strides are given, or validation refuses what comes out */
    int i;
    *tensor = absent;
    if (dtype == VF_NONE || ndim < 1 || ndim > 4) return VF_ERROR_INVALID_ARGUMENT;
    for (i = ndim - 1; i >= 0; i--) {
        tensor->shape[i] = shape[i];
        tensor->stride[i] = strides ? strides[i] : (int64_t)compact;
        compact *= (uint64_t)shape[i];
    }
    tensor->data = data ? (char *)data + byte_offset : 0;
    tensor->dtype = dtype;
    tensor->ndim = ndim;
    return VF_OK;
}

/* A macro, so that DLTensor need not be declared here. `dl` is a DLTensor *, evaluated more than once. */
#define vf_tensor_from_dlpack(dl, tensor)                                                                           \
    vf_tensor_from_fields((dl)->data, (dl)->byte_offset, (int)(dl)->ndim,                                           \
                          vf_dtype_from_dlpack((dl)->dtype.code, (dl)->dtype.bits, (dl)->dtype.lanes), (dl)->shape, \
                          (dl)->strides, (tensor))

#ifdef __cplusplus
}
#endif
#endif
