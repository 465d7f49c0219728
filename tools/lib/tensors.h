// tensors.h - the tensors of a problem in host memory: filled, poisoned and guarded.
//
// Every tensor is one image: guard, storage with whatever strides the problem asks for, guard. The image can be copied
// as a whole to device memory, where the tensor lies `offset` bytes from its start. Pages that are never touched cost
// nothing. Values depend on (seed, operand, batch index, row, head, column) alone, not on strides, machine or thread
// count. Invariant: in an output every byte that is not an element of the tensor holds the canary until somebody writes
// there who must not.
#ifndef VF_TENSORS_H
#define VF_TENSORS_H

#include "problem.h"

// The byte that outputs and their guards consist of before a run. Two or four of them are a NaN of every type.
#define TENSOR_CANARY 0xff
#define TENSOR_GUARD ((size_t)4096)  // bytes before and after the storage

struct tensor_image {
    vf_tensor view;        // data: the first element in the image; ndim 0 if the tensor is absent
    unsigned char *bytes;  // null if absent, or not in host memory
    size_t size;           // of the image; a multiple of 256; 0 if absent
    size_t offset;         // of view.data from bytes; a multiple of 256 plus the problem's storage offset
    size_t element;        // bytes of an element
    bool output;
    int64_t slots, rows, heads, dim;               // of lse and dlse dim is 1
    int64_t slot_stride, row_stride, head_stride;  // elements
};

// ORDER operands, then the lengths.
enum { TENSOR_CU_Q = OPERAND_COUNT, TENSOR_CU_K, TENSOR_USED_Q, TENSOR_USED_K, TENSOR_COUNT };
extern const char *const tensor_names[TENSOR_COUNT];

struct tensors {
    struct tensor_image images[TENSOR_COUNT];
};

// Makes what the problem has: q k v o lse and the lengths; with backward dout dq dk dv, with dlse that too. Inputs and
// lengths are filled, outputs hold canaries. `threads` 0: all cores. On failure nothing is left to free.
// VF_ERROR_INVALID_ARGUMENT for strides whose span does not fit int64, VF_ERROR_OUT_OF_MEMORY.
vf_status tensors_create(const struct problem *problem, int threads, struct tensors *tensors);
void tensors_free(struct tensors *tensors);

// The layout alone: images have no bytes, but lengths, which are filled. What calls on data that is made elsewhere need.
vf_status tensors_lay(const struct problem *problem, struct tensors *tensors);

// `count` normal values of a deviation, of an operand's type, at `to`.
void tensors_draw(vf_dtype dtype, double deviation, uint64_t seed, int64_t count, unsigned char *to);

// An image of the same layout whose bytes are zero.
vf_status tensor_clone(const struct tensor_image *image, struct tensor_image *clone);
void tensor_free(struct tensor_image *image);

// The view of an image whose bytes lie at `base`: device memory, or image->bytes itself.
vf_tensor tensor_at(const struct tensor_image *image, void *base);

// Element offset of (slot, row, head, 0) from the first element. For lse and dlse too.
int64_t tensor_offset(const struct tensor_image *image, int64_t slot, int64_t row, int64_t head);

// `count` elements from (slot, row, head, column 0) as doubles, exactly; the reverse rounds to nearest even.
void tensor_load(const struct tensor_image *image, int64_t slot, int64_t row, int64_t head, int64_t count,
                 double *values);
void tensor_store(struct tensor_image *image, int64_t slot, int64_t row, int64_t head, int64_t count,
                  const double *values);

// Fills the arguments of a call from images at `bases` (null: the images' own bytes). Workspace, stream and device stay
// 0.
void tensors_forward_args(const struct problem *problem, const struct tensors *tensors, void *const bases[TENSOR_COUNT],
                          vf_forward_args *args);
void tensors_backward_args(const struct problem *problem, const struct tensors *tensors,
                           void *const bases[TENSOR_COUNT], vf_backward_args *args);

// The same without any memory, for explain and workspace sizes: every data pointer is aligned as the real one would be
// and leads nowhere.
vf_status tensors_describe_forward(const struct problem *problem, vf_forward_args *args);
vf_status tensors_describe_backward(const struct problem *problem, vf_backward_args *args);

#endif
