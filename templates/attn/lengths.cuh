// Lengths as the caller's tensors give them: int32 or int64, possibly absent. Only schedule.cu and check_lengths.cu read them.

//% include "attn/types.cuh"

// A length as it is loaded: two words, of an int32 the same one twice, so that nothing branches on the type and nothing waits for memory.
struct RawLength {
    u32 low, high;
};
DEVICE RawLength load_length(const Lengths &lengths, i64 index) {
    const u32 *words = pointer<const u32>(lengths.data) + index * (1 + lengths.wide);
    return {load(words), load(words + lengths.wide)};
}
DEVICE i64 length_of(const Lengths &lengths, const RawLength &raw) {
    const i64 wide = static_cast<i64>(static_cast<u64>(raw.high) << 32 | raw.low);
    return lengths.wide ? wide : static_cast<i64>(static_cast<int>(raw.low));
}
DEVICE i64 read_length(const Lengths &lengths, i64 index) { return length_of(lengths, load_length(lengths, index)); }

DEVICE i64 clamp(i64 value, i64 low, i64 high) { return smaller(larger(value, low), high); }
