// test_number.c - conversions between element types and double: exact, and rounded to nearest even, for every 16-bit
// number.
#include <math.h>

#include "loop_main.h"
#include "number.h"
#include "unit.h"

struct kind {
    double (*from)(uint16_t);
    uint16_t (*to)(double);
    uint16_t infinity;
};
static const struct kind kinds[] = {{number_from_half, number_to_half, 0x7c00},
                                    {number_from_bfloat, number_to_bfloat, 0x7f80}};

START_TEST(every_number_comes_back) {
    const struct kind *kind = &kinds[_i];
    for (unsigned bits = 0; bits < 0x10000; bits++) {
        const double value = kind->from((uint16_t)bits);
        if (isnan(value))
            ck_assert_uint_gt(bits & 0x7fff, kind->infinity);
        else
            ck_assert_uint_eq(kind->to(value), bits);
    }
    ck_assert(isnan(kind->from(kind->to((double)NAN))));
}
END_TEST

// Between two neighbours: the nearer one, and in the middle the one whose last bit is 0.
START_TEST(rounds_to_nearest_even) {
    const struct kind *kind = &kinds[_i];
    for (unsigned bits = 0; bits + 1 < kind->infinity; bits++) {
        const double low = kind->from((uint16_t)bits), high = kind->from((uint16_t)(bits + 1));
        const double middle = (low + high) / 2;
        ck_assert_uint_eq(kind->to(nextafter(middle, low)), bits);
        ck_assert_uint_eq(kind->to(nextafter(middle, high)), bits + 1);
        ck_assert_uint_eq(kind->to(middle), bits & 1 ? bits + 1 : bits);
        ck_assert_uint_eq(kind->to(-middle), 0x8000 | (bits & 1 ? bits + 1 : bits));
    }
    const double largest = kind->from((uint16_t)(kind->infinity - 1));
    ck_assert_uint_eq(kind->to(largest * 1.0001), kind->infinity - 1);
    ck_assert_uint_eq(kind->to(largest * 1.01), kind->infinity);
    ck_assert_uint_eq(kind->to((double)INFINITY), kind->infinity);
    ck_assert_uint_eq(kind->to(1e-300), 0);
    ck_assert_uint_eq(kind->to(-1e-300), 0x8000);
}
END_TEST

START_TEST(known_values) {
    ck_assert_double_eq(number_from_half(0x3c00), 1);
    ck_assert_double_eq(number_from_half(0x0001), 0x1p-24);
    ck_assert_double_eq(number_from_half(0x7bff), 65504);
    ck_assert_double_eq(number_from_bfloat(0x3f80), 1);
    ck_assert_double_eq(number_from_bfloat(0xc049), -3.140625);
    ck_assert_double_eq(number_round(VF_FLOAT32, 0.1), (double)0.1f);
    ck_assert_double_eq(number_round(VF_BFLOAT16, 1 + 0x1p-9), 1);
    ck_assert_uint_eq(number_size(VF_INT64), 8);
    ck_assert_uint_eq(number_size(VF_NONE), 0);
    ck_assert_str_eq(number_name(VF_BFLOAT16), "bf16");
}
END_TEST

LOOP_MAIN("number", 10, {every_number_comes_back, 2}, {rounds_to_nearest_even, 2}, {known_values, 0})
