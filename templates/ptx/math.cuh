// Single-instruction arithmetic.

// ex2.approx.ftz.f32, sm_50, ISA 1.4: 2^x, 2 ulp; -inf gives 0.
DEVICE float ex2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// lg2.approx.f32, sm_50, ISA 1.4.
DEVICE float lg2(float x) {
    float y;
    asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// rcp.approx.ftz.f32, sm_50, ISA 1.4: 1 ulp; inf gives 0.
DEVICE float rcp(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// fma.rn.f32, sm_20, ISA 2.0.
DEVICE float fma_f32(float a, float b, float c) { return __fmaf_rn(a, b, c); }
// max.f32, sm_10, ISA 1.0: a NaN loses against a number.
DEVICE float max_f32(float a, float b) { return fmaxf(a, b); }
DEVICE float absolute(float x) { return fabsf(x); }
// max.s32 twice, which sm_90 has as one instruction.
DEVICE int max3(int a, int b, int c) { return max(max(a, b), c); }
DEVICE u32 max3(u32 a, u32 b, u32 c) { return max(max(a, b), c); }
// min.NaN.f32, sm_80, ISA 7.0: a NaN wins.
DEVICE float min_nan(float a, float b) {
    float y;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}

// cvt.rn.bf16x2.f32, sm_80, ISA 7.0: two floats rounded to nearest even; lo goes to the lower 16 bits.
DEVICE u32 pack_bf16(float lo, float hi) {
    u32 y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
    return y;
}
// cvt.rn.f16x2.f32, sm_80, ISA 7.0.
DEVICE u32 pack_fp16(float lo, float hi) {
    u32 y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
    return y;
}
// cvt.rn.satfinite.f16x2.f32, sm_80, ISA 8.1: what exceeds 65504 becomes that; a NaN stays one.
DEVICE u32 pack_fp16_finite(float lo, float hi) {
    u32 y;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
    return y;
}
// cvt.f32.f16, sm_53, ISA 4.0.
DEVICE float unpack_fp16(u16 bits) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(bits));
    return y;
}
DEVICE float unpack_bf16(u16 bits) { return bits_to_float(static_cast<u32>(bits) << 16); }

// min.u16x2 twice, sm_90, ISA 8.0, which is one instruction there: of each half, unsigned.
DEVICE u32 min3_u16x2(u32 a, u32 b, u32 c) {
    u32 y;
    asm("{ .reg .b32 t;\n"
        "min.u16x2 t, %1, %2;\n"
        "min.u16x2 %0, t, %3; }"
        : "=r"(y)
        : "r"(a), "r"(b), "r"(c));
    return y;
}
// min.NaN.f16x2, sm_80, ISA 7.0: of each half; a NaN wins.
DEVICE u32 min_fp16x2(u32 a, u32 b) {
    u32 y;
    asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}
