// cpu_convert.h - rows of any operand type to float32 and back, for the CPU kernels.
//
// Included by the kernel source only. Rows are a multiple of 8 long and may lie at any address that is a multiple of
// their element. Rounding is to nearest even; a NaN stays one.
#ifndef VF_CPU_CONVERT_H
#define VF_CPU_CONVERT_H

#include "cpu_vector.h"
#include "varflash/varflash.h"

// Offsets in a task's own buffers fit an int. NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result)

// Elements that are converted at once, and columns of a slice (cpu_product.h).
#define SLICE 8

#ifndef __F16C__
INLINE float float_from_half(uint16_t half) {
    // The exponent is rebased by a multiplication, which makes subnormal numbers come out right too.
    const uint32_t magnitude = (uint32_t)(half & 0x7fff) << 13, sign = (uint32_t)(half & 0x8000) << 16;
    float value;
    memcpy(&value, &magnitude, sizeof value);
    value *= 0x1p112f;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (magnitude >= 0x0f800000u) bits |= 0x7f800000u;  // infinity or NaN
    bits |= sign;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE uint16_t half_from_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);  // rounds to 2^16 or more
    if (magnitude < 0x38800000u) {                                    // subnormal: adding 0.5 rounds at the right place
        float size;
        memcpy(&size, &magnitude, sizeof size);
        size += 0.5f;
        memcpy(&bits, &size, sizeof bits);
        return (uint16_t)(sign | (bits - 0x3f000000u));
    }
    return (uint16_t)(sign | ((magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13));
}
#endif

INLINE uint16_t bfloat_from_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// One slice of a row. `dtype` is a constant where these are inlined.
INLINE void read_slice(float *to, const char *from, vf_dtype dtype) {
    if (dtype == VF_FLOAT32) {
        memcpy(to, from, SLICE * sizeof(float));
        return;
    }
    uint16_t raw[SLICE];
    memcpy(raw, from, sizeof raw);
    if (dtype == VF_BFLOAT16) {
        uint32_t bits[SLICE];
        for (int i = 0; i < SLICE; i++) bits[i] = (uint32_t)raw[i] << 16;
        memcpy(to, bits, sizeof bits);
    } else {
#ifdef __F16C__
        __m128i halves;
        memcpy(&halves, raw, sizeof halves);
        _mm256_storeu_ps(to, _mm256_cvtph_ps(halves));
#else
        for (int i = 0; i < SLICE; i++) to[i] = float_from_half(raw[i]);
#endif
    }
}

INLINE void write_slice(char *to, const float *from, vf_dtype dtype) {
    if (dtype == VF_FLOAT32) {
        memcpy(to, from, SLICE * sizeof(float));
    } else if (dtype == VF_BFLOAT16) {
        uint16_t raw[SLICE];
        for (int i = 0; i < SLICE; i++) raw[i] = bfloat_from_float(from[i]);
        memcpy(to, raw, sizeof raw);
    } else {
#ifdef __F16C__
        const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        memcpy(to, &halves, sizeof halves);
#else
        uint16_t raw[SLICE];
        for (int i = 0; i < SLICE; i++) raw[i] = half_from_float(from[i]);
        memcpy(to, raw, sizeof raw);
#endif
    }
}

// A row of `columns` elements; slice s of it goes to to + s * stride.
static void read_row(float *to, int stride, const char *from, int columns, vf_dtype dtype) {
    const int slices = columns / SLICE;
    if (dtype == VF_FLOAT32) {
        for (int s = 0; s < slices; s++) read_slice(to + s * stride, from + s * SLICE * 4, VF_FLOAT32);
    } else if (dtype == VF_BFLOAT16) {
        for (int s = 0; s < slices; s++) read_slice(to + s * stride, from + s * SLICE * 2, VF_BFLOAT16);
    } else {
        for (int s = 0; s < slices; s++) read_slice(to + s * stride, from + s * SLICE * 2, VF_FLOAT16);
    }
}

static void write_row(char *to, const float *from, int columns, vf_dtype dtype) {
    if (dtype == VF_FLOAT32) {
        for (int c = 0; c < columns; c += SLICE) write_slice(to + c * 4, from + c, VF_FLOAT32);
    } else if (dtype == VF_BFLOAT16) {
        for (int c = 0; c < columns; c += SLICE) write_slice(to + c * 2, from + c, VF_BFLOAT16);
    } else {
        for (int c = 0; c < columns; c += SLICE) write_slice(to + c * 2, from + c, VF_FLOAT16);
    }
}

// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)

#endif
