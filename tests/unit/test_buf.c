// test_buf.c - the growing buffer.
#include "buf.h"

#include "unit.h"

START_TEST(grows_and_stays_a_string) {
    struct buf buf = {0};
    ck_assert_str_eq(buf_string(&buf), "");
    for (int i = 0; i < 1000; i++) {
        buf_printf(&buf, "%d,", i);
        ck_assert_uint_eq(strlen(buf.data), buf.size);
    }
    unit_ok(buf_check(&buf));
    ck_assert_uint_eq(buf.size, 10 * 2 + 90 * 3 + 900 * 4);
    buf_clear(&buf);
    ck_assert_str_eq(buf_string(&buf), "");
    buf_text(&buf, "again");
    ck_assert_str_eq(buf_string(&buf), "again");
    buf_free(&buf);
    buf_free(&buf);
    ck_assert_str_eq(buf_string(&buf), "");
}
END_TEST

START_TEST(bytes_with_zeros) {
    struct buf buf = {0};
    buf_append(&buf, "a\0b", 3);
    buf_append(&buf, NULL, 0);
    char *room = buf_extend(&buf, 2);
    ck_assert_ptr_nonnull(room);
    room[0] = 'c';
    room[1] = 'd';
    ck_assert_uint_eq(buf.size, 5);
    ck_assert_mem_eq(buf.data, "a\0bcd", 6);
    buf_free(&buf);
}
END_TEST

START_TEST(no_memory_is_remembered) {
    struct buf buf = {0};
    buf_text(&buf, "kept");
    ck_assert_ptr_null(buf_extend(&buf, SIZE_MAX / 2));
    buf_text(&buf, "dropped");
    buf_printf(&buf, "%d", 1);
    ck_assert_str_eq(buf_string(&buf), "kept");
    unit_fails(buf_check(&buf), VF_ERROR_OUT_OF_MEMORY, "out of memory");
    buf_clear(&buf);
    unit_ok(buf_check(&buf));
    buf_text(&buf, "usable");
    ck_assert_str_eq(buf_string(&buf), "usable");
    buf_free(&buf);
}
END_TEST

UNIT_MAIN("buf", grows_and_stays_a_string, bytes_with_zeros, no_memory_is_remembered)
