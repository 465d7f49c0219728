// Lengths as the caller's tensors give them: int32 or int64, possibly absent. Only schedule.cu and check_lengths.cu read them.

//% include "attn/types.cuh"

DEVICE i64 read_length(const Lengths &lengths, i64 index) {
    return lengths.wide ? load(pointer<const i64>(lengths.data) + index)
                        : load(pointer<const i32>(lengths.data) + index);
}
DEVICE i64 clamp(i64 value, i64 low, i64 high) { return smaller(larger(value, low), high); }
