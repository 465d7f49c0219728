// cpu_vector.h - the vectors that the CPU kernels are written in, as wide as the file that includes this one may use.
//
// Included by the kernel source only, once for each level of vector code. Arithmetic is written with operators; here
// stands what operators cannot say. Comparisons with NaN are false everywhere, so that selections keep a NaN that they
// are asked about.
#ifndef VF_CPU_VECTOR_H
#define VF_CPU_VECTOR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base.h"

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_FMA) && defined(__aarch64__)
#include <arm_neon.h>
#endif

// LANES of a vector; BROADCASTS: rows of a register tile, three vectors wide, that fits the registers there are.
#if defined(__AVX512F__)
#define LANES 16
#define BROADCASTS 8
#elif defined(__AVX2__)
#define LANES 8
#define BROADCASTS 4
#elif defined(__aarch64__)
#define LANES 4
#define BROADCASTS 8
#else
#define LANES 4
#define BROADCASTS 4
#endif
#define WIDTH 3                // vectors of a panel
#define PANEL (WIDTH * LANES)  // columns of a panel

#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

typedef float vec __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t ivec __attribute__((vector_size(LANES * sizeof(int32_t))));
typedef uint32_t bvec __attribute__((vector_size(LANES * sizeof(uint32_t))));

INLINE vec vec_load(const float *from) {
    vec value;
    memcpy(&value, from, sizeof value);
    return value;
}

INLINE void vec_store(float *to, vec value) {
    memcpy(to, &value, sizeof value);
}

INLINE ivec ivec_load(const int32_t *from) {
    ivec value;
    memcpy(&value, from, sizeof value);
    return value;
}

INLINE vec vec_all(float value) {
    return value - (vec){0};
}

INLINE ivec ivec_all(int32_t value) {
    return value + (ivec){0};
}

INLINE bvec bits_of(vec value) {
    bvec result;
    memcpy(&result, &value, sizeof result);
    return result;
}

INLINE vec vec_of_bits(bvec value) {
    vec result;
    memcpy(&result, &value, sizeof result);
    return result;
}

// 0, 1, 2, ...
INLINE ivec ivec_count(void) {
    ivec value = {0};
    for (int i = 0; i < LANES; i++) value[i] = i;
    return value;
}

#if defined(__AVX512F__)
typedef __mmask16 vmask;

INLINE vmask vec_less(vec a, vec b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}

INLINE vmask ivec_less(ivec a, ivec b) {
    return _mm512_cmplt_epi32_mask((__m512i)a, (__m512i)b);
}

INLINE vmask mask_and(vmask a, vmask b) {
    return (vmask)(a & b);
}

// a where the mask is set, else b.
INLINE vec vec_select(vmask mask, vec a, vec b) {
    return _mm512_mask_blend_ps(mask, b, a);
}
#else
typedef ivec vmask;

INLINE vmask vec_less(vec a, vec b) {
    return a < b;
}

INLINE vmask ivec_less(ivec a, ivec b) {
    return a < b;
}

INLINE vmask mask_and(vmask a, vmask b) {
    return a & b;
}

INLINE vec vec_select(vmask mask, vec a, vec b) {
    return vec_of_bits(((bvec)mask & bits_of(a)) | (~(bvec)mask & bits_of(b)));
}
#endif

// a * b + c
INLINE vec vec_fma(vec a, vec b, vec c) {
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
    return _mm256_fmadd_ps(a, b, c);
#elif defined(__ARM_FEATURE_FMA) && defined(__aarch64__)
    return (vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

// a > b ? a : b
INLINE vec vec_max(vec a, vec b) {
#if defined(__AVX512F__)
    return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
    return _mm256_max_ps(a, b);
#else
    return vec_select(vec_less(b, a), a, b);
#endif
}

// x where low <= at < high, else otherwise.
INLINE vec vec_inside(vec x, ivec low, ivec high, ivec at, vec otherwise) {
    return vec_select(mask_and(ivec_less(low - 1, at), ivec_less(at, high)), x, otherwise);
}

// exp(x) for x <= 88, within 1.1 ulp; 0 below -87, where the result would hardly be a normal number; NaN of NaN.
//
// x = n ln 2 + r, |r| <= ln 2 / 2; exp(r) = 1 + r + r^2 Q(r) with Q minimax (relative error of the sum 3e-9); 2^n goes
// into the exponent. Adding ROUND leaves n in the low bits of the sum, and nothing of ROUND outlives the shift.
INLINE vec vec_exp(vec x) {
    const float ROUND = 12582912.0f;  // 1.5 * 2^23
    const vec shifted = vec_fma(x, vec_all(1.44269504f), vec_all(ROUND));
    const vec n = shifted - ROUND;
    vec r = vec_fma(n, vec_all(-0.693359375f), x);  // few bits: n times it is exact
    r = vec_fma(n, vec_all(2.12194440e-4f), r);
    vec q = vec_fma(vec_all(1.3814598645e-3f), r, vec_all(8.3687168797e-3f));
    q = vec_fma(q, r, vec_all(4.1668388045e-2f));
    q = vec_fma(q, r, vec_all(1.6666520632e-1f));
    q = vec_fma(q, r, vec_all(4.9999993448e-1f));
    q = vec_fma(q, r * r, r) + 1.0f;
    const vec result = vec_of_bits(bits_of(q) + (bits_of(shifted) << 23));
    return vec_select(vec_less(x, vec_all(-87.0f)), vec_all(0.0f), result);
}

// tanh(x) within 2 ulp: x + x^3 Q(x^2) near 0 (relative error 7e-9), else by exp.
INLINE vec vec_tanh(vec x) {
    const bvec sign = bits_of(x) & 0x80000000u;
    vec size = vec_of_bits(bits_of(x) & 0x7fffffffu);
    size = vec_select(vec_less(vec_all(9.25f), size), vec_all(9.25f), size);  // tanh is 1 from there on
    const vec z = x * x;
    vec q = vec_fma(vec_all(-5.5151649871e-3f), z, vec_all(2.0469421014e-2f));
    q = vec_fma(q, z, vec_all(-5.3688023502e-2f));
    q = vec_fma(q, z, vec_all(1.3330830351e-1f));
    q = vec_fma(q, z, vec_all(-3.3333259848e-1f));
    const vec near_zero = vec_fma(q * z, x, x);
    const vec far = 1.0f - 2.0f / (vec_exp(size + size) + 1.0f);
    return vec_select(vec_less(size, vec_all(0.625f)), near_zero, vec_of_bits(bits_of(far) | sign));
}

#endif
