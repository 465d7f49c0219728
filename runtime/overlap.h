// overlap.h - do two strided views, or two elements of one, share a byte? Exact for views that people make.
//
// Works on addresses alone and reads no memory. Invariant: OVERLAP_NO is only ever said of what is disjoint.
#ifndef VF_OVERLAP_H
#define VF_OVERLAP_H

#include "base.h"
#include "varflash/varflash.h"

// Bytes that a view may span, more than any address space has: sums of two fit.
#define OVERLAP_EXTENT_LIMIT ((int64_t)1 << 60)

// The bytes between which a view lies, and what tells which of them it touches.
struct footprint {
    bool empty;
    int64_t low, high;        // first byte, one past the last
    const vf_tensor *tensor;  // null: every byte between
    size_t element;           // bytes
};

enum overlap { OVERLAP_NO, OVERLAP_YES, OVERLAP_UNKNOWN };

// False if an address of the view does not fit: no memory is that large. `element` is the size of one in bytes. The footprint points to
// the tensor.
bool footprint_tensor(const vf_tensor *tensor, size_t element, struct footprint *out);
void footprint_bytes(const void *data, size_t size, struct footprint *out);

// UNKNOWN where the search was cut off: strides that interleave in more ways than a packed buffer's do.
enum overlap overlap_pair(const struct footprint *a, const struct footprint *b);

// Whether two elements of one tensor do.
enum overlap overlap_self(const vf_tensor *tensor);

#endif
