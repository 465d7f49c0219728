// lengths.h - what can be wrong with cu_seqlens and seqused, found by checked mode on the device or on the host.
//
// The kernel check_lengths and lengths_check apply the same rules and report the same way: the fault at the smallest
// index, and of several there the one listed first. Invariant: lengths that pass describe ranges inside the tensors.
#ifndef VF_LENGTHS_H
#define VF_LENGTHS_H

#include "kernel_args.h"
#include "request.h"

#define LENGTHS_NO_FAULT UINT64_MAX

// A fault is index * 16 + enum lengths_fault of kernel_args.h; for the k side LENGTHS_K_SIDE more.

// The longest sequence that may be: max_seqlen if it is given, and never more than CALL_LENGTH_LIMIT.
int64_t lengths_longest(const struct call *call, bool k_side);

// Reads the lengths, which must be in host memory. *found is the value that broke the rule.
uint64_t lengths_check(const struct call *call, int64_t *found);

// Entry `index` of a tensor of lengths in host memory.
int64_t lengths_entry(const vf_tensor *tensor, int64_t index);

// VF_ERROR_LENGTHS with the sentence, or VF_OK for LENGTHS_NO_FAULT.
vf_status lengths_status(const struct call *call, uint64_t fault, int64_t found);

#endif
