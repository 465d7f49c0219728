// buf.h - a growing buffer of bytes or text.
//
// Appending never fails where it is called: when memory ends the buffer remembers it, drops what follows, and buf_check
// says so once at the end. Invariant: `data` is null or has a zero at data[size], so that text can be used as a C
// string.
#ifndef VF_BUF_H
#define VF_BUF_H

#include "base.h"
#include "varflash/varflash.h"

struct buf {
    char *data;
    size_t size, capacity;
    bool failed;
};

void buf_append(struct buf *buf, const void *data, size_t size);
void buf_text(struct buf *buf, const char *text);
void buf_printf(struct buf *buf, const char *format, ...) PRINTF_LIKE(2, 3);

// Room for `size` more bytes, uninitialised and counted in; null when memory ends.
void *buf_extend(struct buf *buf, size_t size);

// VF_ERROR_OUT_OF_MEMORY if an append was dropped.
vf_status buf_check(const struct buf *buf);

// The text; "" for an empty buffer, never null.
const char *buf_string(const struct buf *buf);

void buf_clear(struct buf *buf);  // keeps the memory
void buf_free(struct buf *buf);   // gives it back; the buffer is empty and usable

#endif
