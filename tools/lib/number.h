// number.h - exact conversion between the element types and double, by bits: the same on every machine.
//
// Rounding is to nearest, ties to even; overflow gives infinity; every NaN stays one. Subnormals are kept.
#ifndef VF_NUMBER_H
#define VF_NUMBER_H

#include "base.h"
#include "varflash/varflash.h"

double number_from_half(uint16_t bits);
double number_from_bfloat(uint16_t bits);
uint16_t number_to_half(double value);
uint16_t number_to_bfloat(double value);

// `value` rounded to the type and back. VF_FLOAT16, VF_BFLOAT16 or VF_FLOAT32.
double number_round(vf_dtype dtype, double value);

// Distance of 1 to the next larger number: 2^-10, 2^-7, 2^-23.
double number_epsilon(vf_dtype dtype);

size_t number_size(vf_dtype dtype);       // bytes, also of the integer types; 0 for what is none
const char *number_name(vf_dtype dtype);  // "bf16", "fp16", "fp32", "int32", "int64"

// `count` consecutive elements.
void number_load(vf_dtype dtype, const void *from, int64_t count, double *values);
void number_store(vf_dtype dtype, const double *values, int64_t count, void *to);

#endif
