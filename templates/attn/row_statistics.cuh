// What the Hopper backward needs of every query row, in the form in which wgmma takes it: two numbers, each a sum of three bf16 (24 bits, as many
// as a float32 has), as a row of a matrix with 8 columns.
//
//     columns 0 1 2   shift of the exponent:  weights are 2^((score + shift) * factor)      with softcap 2^(capped score * ... + shift)
//     columns 3 4 5   -delta:                 gradients of scores are weight * (gradient of weight - delta)
//     columns 6 7     zeros
//
// A product contracts 16 columns. The other 8 are a block of zeros that all tiles share, or, in wide heads, which have no room for it, these again
// times zeros, by a descriptor without a step.
//
// A product that begins with this matrix times ones arrives with the statistic added: no thread loads one, no thread subtracts one.

//% include "attn/types.cuh"

// Weights are WEIGHT_UNIT times what they should be, and so is all that comes of them, up to the outputs' last multiplication: as fp16, in which
// they wait for their gradient, none that matters is then subnormal. The unit is 1 where results are fp16, which could overflow, and where weights
// wait otherwise.
//% local large = dtype == "bf16" and not budget.whole_weights
constexpr float WEIGHT_SHIFT = $(f32(large and 15 or 0));
constexpr float WEIGHT_UNIT = $(f32(large and 32768 or 1));

// softmax_scale * log2(e), kept so far from 0 that the shift, which is divided by it, stays finite; a score up to 2^100 has no weight in it either.
DEVICE float exponent_factor(float scale) {
    constexpr float LEAST = 7.5231639e-37f;  // 2^-120
    const float factor = scale * LOG2_E;
    return factor < 0.0f ? smaller(factor, -LEAST) : larger(factor, LEAST);
}

// The shift of a row; one that sees no key has none: all its scores are masked.
DEVICE float exponent_shift(float lse, float factor) {
    if (lse == -infinity()) return 0.0f;
    //% if softcap then
    return WEIGHT_SHIFT - lse * LOG2_E;
    //% else
    return (WEIGHT_SHIFT - lse * LOG2_E) / factor;
    //% end -- softcap
}

struct ThreeParts {
    u32 first, second, third;  // bf16
};
DEVICE ThreeParts three_parts(float x) {
    ThreeParts p;
    p.first = pack_bf16(x, 0.0f);
    x -= unpack_bf16(static_cast<u16>(p.first));
    p.second = pack_bf16(x, 0.0f);
    x -= unpack_bf16(static_cast<u16>(p.second));
    p.third = pack_bf16(x, 0.0f);
    return p;
}
DEVICE Vector4 statistics_row(float shift, float delta) {
    const ThreeParts s = three_parts(shift), d = three_parts(-delta);
    return {s.first | s.second << 16, s.third | d.first << 16, d.second | d.third << 16, 0};
}

// Ones in the columns of a statistic, as fragments of A (ptx/mma.cuh) that are the same in every row.
DEVICE u32 shift_ones() {
    const int pair = lane_index() % 4;
    return pair == 0 ? 0x3F803F80u : pair == 1 ? 0x00003F80u : 0u;
}
DEVICE u32 delta_ones() {
    const int pair = lane_index() % 4;
    return pair == 1 ? 0x3F800000u : pair == 2 ? 0x3F803F80u : 0u;
}
// The shift again, from the first 8 bytes of its row.
DEVICE float shift_of(u32 first_word, u32 second_word) {
    return unpack_bf16(static_cast<u16>(first_word)) +
           (unpack_bf16(static_cast<u16>(first_word >> 16)) + unpack_bf16(static_cast<u16>(second_word)));
}
