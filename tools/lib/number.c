// number.c - see number.h. One routine narrows to any binary format with an implicit bit; both 16-bit types use it.
#include "number.h"

#include <math.h>
#include <string.h>

static uint64_t bits_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double double_of(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// ---- 16-bit types --------------------------------------------------------------------------------------------------

double number_from_bfloat(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return (double)value;
}

double number_from_half(uint16_t bits) {
    const uint64_t sign = (uint64_t)(bits >> 15) << 63;
    const unsigned exponent = bits >> 10 & 31, mantissa = bits & 1023;
    if (exponent == 31) return double_of(sign | (uint64_t)0x7ff << 52 | (uint64_t)mantissa << 42);
    if (exponent) return double_of(sign | (uint64_t)(exponent + 1008) << 52 | (uint64_t)mantissa << 42);
    const double value = mantissa * 0x1p-24;
    return sign ? -value : value;
}

// A double narrowed to one sign bit, an exponent of bias `bias` and `mantissa` bits.
static uint16_t narrow(double value, int mantissa, int bias) {
    const uint64_t bits = bits_of(value);
    const unsigned sign = (unsigned)(bits >> 63) << 15;
    const unsigned infinity = (unsigned)(2 * bias + 1) << mantissa;
    const int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
    if (exponent == 1024) return (uint16_t)(sign | infinity | (bits << 12 ? 1u << (mantissa - 1) : 0));
    // Bits to drop; a subnormal result keeps fewer.
    int drop = 52 - mantissa;
    if (exponent < 1 - bias) drop += 1 - bias - exponent;
    if (drop > 54 || exponent == -1023) return (uint16_t)sign;
    const uint64_t whole = (bits & (((uint64_t)1 << 52) - 1)) | (uint64_t)1 << 52;
    const uint64_t half = (uint64_t)1 << (drop - 1), rest = whole & (2 * half - 1);
    uint64_t kept = whole >> drop;
    if (rest > half || (rest == half && kept & 1)) kept++;
    // A carry out of the mantissa moves on into the exponent, as it must.
    if (exponent >= 1 - bias) kept += (uint64_t)(exponent + bias - 1) << mantissa;
    return (uint16_t)(sign | (kept < infinity ? (unsigned)kept : infinity));
}

uint16_t number_to_half(double value) {
    return narrow(value, 10, 15);
}
uint16_t number_to_bfloat(double value) {
    return narrow(value, 7, 127);
}

// ---- types ---------------------------------------------------------------------------------------------------------

double number_round(vf_dtype dtype, double value) {
    switch (dtype) {
        case VF_FLOAT16:
            return number_from_half(number_to_half(value));
        case VF_BFLOAT16:
            return number_from_bfloat(number_to_bfloat(value));
        default:
            return (double)(float)value;
    }
}

double number_epsilon(vf_dtype dtype) {
    return dtype == VF_FLOAT16 ? 0x1p-10 : dtype == VF_BFLOAT16 ? 0x1p-7 : 0x1p-23;
}

size_t number_size(vf_dtype dtype) {
    switch (dtype) {
        case VF_FLOAT16:
        case VF_BFLOAT16:
            return 2;
        case VF_FLOAT32:
        case VF_INT32:
            return 4;
        case VF_INT64:
            return 8;
        default:
            return 0;
    }
}

const char *number_name(vf_dtype dtype) {
    static const char *const names[] = {"none", "fp16", "bf16", "fp32", "int32", "int64"};
    return (unsigned)dtype < ARRAY_LENGTH(names) ? names[dtype] : "none";
}

void number_load(vf_dtype dtype, const void *from, int64_t count, double *values) {
    const uint16_t *narrow_from = from;
    const float *wide_from = from;
    switch (dtype) {
        case VF_FLOAT16:
            for (int64_t i = 0; i < count; i++) values[i] = number_from_half(narrow_from[i]);
            break;
        case VF_BFLOAT16:
            for (int64_t i = 0; i < count; i++) values[i] = number_from_bfloat(narrow_from[i]);
            break;
        default:
            for (int64_t i = 0; i < count; i++) values[i] = (double)wide_from[i];
    }
}

void number_store(vf_dtype dtype, const double *values, int64_t count, void *to) {
    uint16_t *narrow_to = to;
    float *wide_to = to;
    switch (dtype) {
        case VF_FLOAT16:
            for (int64_t i = 0; i < count; i++) narrow_to[i] = number_to_half(values[i]);
            break;
        case VF_BFLOAT16:
            for (int64_t i = 0; i < count; i++) narrow_to[i] = number_to_bfloat(values[i]);
            break;
        default:
            for (int64_t i = 0; i < count; i++) wide_to[i] = (float)values[i];
    }
}
