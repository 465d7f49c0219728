// overlap.h - do two strided views, or two elements of one, share a byte? Exact for views that people make.
//
// Works on addresses alone and reads no memory. Invariant: OVERLAP_NO is only ever said of what is disjoint.
#ifndef VF_OVERLAP_H
#define VF_OVERLAP_H

#include "base.h"
#include "varflash/varflash.h"

#define OVERLAP_TERMS 5  // four dimensions and the bytes of an element

// The bytes that a view touches: low + sum of step[i] * x[i] over all 0 <= x[i] <= last[i]. Steps are positive, none
// repeats, the largest comes first.
struct footprint {
    bool empty;
    int64_t low, high;  // first byte, one past the last
    int terms;
    int64_t step[OVERLAP_TERMS], last[OVERLAP_TERMS];
};

enum overlap { OVERLAP_NO, OVERLAP_YES, OVERLAP_UNKNOWN };

// False if an address of the view does not fit: no memory is that large. `element` is the size of one in bytes.
bool footprint_tensor(const vf_tensor *tensor, size_t element, struct footprint *out);
void footprint_bytes(const void *data, size_t size, struct footprint *out);

// UNKNOWN where the search was cut off: strides that interleave in more ways than a packed buffer's do.
enum overlap overlap_pair(const struct footprint *a, const struct footprint *b);

// Whether two elements of one tensor do.
enum overlap overlap_self(const vf_tensor *tensor);

#endif
