// Arithmetic on the host: where the GPU approximates, the C library's function, with the same special values.

DEVICE float flush(float x) { return __builtin_fabsf(x) < 1.17549435e-38f ? __builtin_copysignf(0.0f, x) : x; }

DEVICE float ex2(float x) { return flush(__builtin_exp2f(flush(x))); }
DEVICE float lg2(float x) { return __builtin_log2f(x); }
DEVICE float rcp(float x) { return flush(1.0f / flush(x)); }
DEVICE float fma_f32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE float max_f32(float a, float b) { return __builtin_fmaxf(a, b); }
DEVICE float absolute(float x) { return __builtin_fabsf(x); }
DEVICE int max3(int a, int b, int c) {
    const int ab = a > b ? a : b;
    return ab > c ? ab : c;
}
DEVICE u32 max3(u32 a, u32 b, u32 c) {
    const u32 ab = a > b ? a : b;
    return ab > c ? ab : c;
}
DEVICE float min_nan(float a, float b) { return a != a ? a : b != b ? b : a < b ? a : b; }

DEVICE u32 round_bf16(float x) {
    const u32 bits = float_to_bits(x);
    return x != x ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}
DEVICE u32 pack_bf16(float lo, float hi) { return round_bf16(lo) | round_bf16(hi) << 16; }
DEVICE u32 pack_fp16(float lo, float hi) {
    return sim_bits<u16>(static_cast<_Float16>(lo)) | static_cast<u32>(sim_bits<u16>(static_cast<_Float16>(hi))) << 16;
}
DEVICE u32 pack_fp16_finite(float lo, float hi) {
    const auto cut = [](float x) { return x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x; };
    return pack_fp16(cut(lo), cut(hi));
}
DEVICE float unpack_fp16(u16 bits) { return static_cast<float>(sim_bits<_Float16>(bits)); }
DEVICE float unpack_bf16(u16 bits) { return bits_to_float(static_cast<u32>(bits) << 16); }

DEVICE u32 min3_u16x2(u32 a, u32 b, u32 c) {
    u32 y = 0;
    for (int shift = 0; shift < 32; shift += 16) {
        const u32 x[3] = {a >> shift & 0xFFFF, b >> shift & 0xFFFF, c >> shift & 0xFFFF};
        u32 least = x[0];
        for (int i = 1; i < 3; i++) least = x[i] < least ? x[i] : least;
        y |= least << shift;
    }
    return y;
}
DEVICE u32 min_fp16x2(u32 a, u32 b) {
    return pack_fp16(min_nan(unpack_fp16(static_cast<u16>(a)), unpack_fp16(static_cast<u16>(b))),
                     min_nan(unpack_fp16(static_cast<u16>(a >> 16)), unpack_fp16(static_cast<u16>(b >> 16))));
}
