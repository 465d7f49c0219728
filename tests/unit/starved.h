// starved.h - host memory that ends after so many allocations. It replaces the allocator of the program whose one file
// includes it, where that is possible: STARVED.
#ifndef UNIT_STARVED_H
#define UNIT_STARVED_H

#include <stdbool.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#define STARVED 0  // the sanitizer has one already
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define STARVED 0
#endif
#endif
#if !defined(STARVED) && defined(__GLIBC__)
#define STARVED 1
#endif

static long starved_left = -1;  // allocations until memory ends; -1: never

#if STARVED
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);

static bool starved(void) {
    if (starved_left > 0) starved_left--;
    return starved_left == 0;
}

void *malloc(size_t size) {
    return starved() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    return starved() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) {
    return starved() ? NULL : __libc_realloc(old, size);
}
#endif

#endif
