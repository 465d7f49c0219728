// buf.c - the growing buffer.
#include "buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

// Room for `more` bytes and the final zero; false if there is none.
static bool reserve(struct buf *buf, size_t more) {
    if (buf->failed) return false;
    if (more < SIZE_MAX / 4 - buf->size) {
        size_t needed = buf->size + more + 1;
        if (needed <= buf->capacity) return true;
        size_t capacity = buf->capacity * 2 > needed ? buf->capacity * 2 : needed + 64;
        char *data = realloc(buf->data, capacity);
        if (data) {
            buf->data = data;
            buf->capacity = capacity;
            return true;
        }
    }
    buf->failed = true;
    return false;
}

void *buf_extend(struct buf *buf, size_t size) {
    if (!reserve(buf, size)) return NULL;
    char *start = buf->data + buf->size;
    buf->size += size;
    buf->data[buf->size] = 0;
    return start;
}

void buf_append(struct buf *buf, const void *data, size_t size) {
    void *target = buf_extend(buf, size);
    if (target && size) memcpy(target, data, size);
}

void buf_text(struct buf *buf, const char *text) {
    buf_append(buf, text, strlen(text));
}

void buf_printf(struct buf *buf, const char *format, ...) {
    va_list values, again;
    va_start(values, format);
    va_copy(again, values);
    int length = vsnprintf(NULL, 0, format, values);
    va_end(values);
    if (length < 0) buf->failed = true;
    char *target = length < 0 ? NULL : buf_extend(buf, (size_t)length);
    if (target) vsnprintf(target, (size_t)length + 1, format, again);
    va_end(again);
}

vf_status buf_check(const struct buf *buf) {
    VF_REQUIRE(!buf->failed, VF_ERROR_OUT_OF_MEMORY, "out of memory after %zu bytes of text", buf->size);
    return VF_OK;
}

const char *buf_string(const struct buf *buf) {
    return buf->data ? buf->data : "";
}

void buf_clear(struct buf *buf) {
    buf->size = 0;
    buf->failed = false;
    if (buf->data) buf->data[0] = 0;
}

void buf_free(struct buf *buf) {
    free(buf->data);
    *buf = (struct buf){0};
}
