// base.h - the few words that every file of the runtime uses. Not a place for anything with state.
#ifndef VF_BASE_H
#define VF_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARRAY_LENGTH(array) (sizeof(array) / sizeof((array)[0]))

// The compiler checks format strings of functions so marked: which argument is the text, which the first value.
#define PRINTF_LIKE(position, first) __attribute__((format(printf, position, first)))

#endif
