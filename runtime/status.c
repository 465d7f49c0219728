// status.c - the thread's sentence, and the names of the statuses.
#include "status.h"

#include <stdio.h>
#include <string.h>

#define STATUS(name, value, text) _Static_assert(name == (value), "status.def and varflash.h differ: " #name);
#include "status.def"
#undef STATUS

static _Thread_local char sentence[STATUS_SENTENCE_SIZE];
static _Thread_local int driver_code;

// The caller may pass vf_last_error() itself as a value, so the new sentence is made beside the old one. The scratch
// space is static, like the sentence: callers may stand on small stacks.
static void set_sentence(const char *format, va_list values) PRINTF_LIKE(1, 0);
static void set_sentence(const char *format, va_list values) {
    static _Thread_local char scratch[STATUS_SENTENCE_SIZE];
    int length = vsnprintf(scratch, sizeof scratch, format, values);
    if (length < 0) length = 0;
    size_t kept = (size_t)length < sizeof scratch ? (size_t)length : sizeof scratch - 1;
    memcpy(sentence, scratch, kept);
    sentence[kept] = 0;
}

vf_status status_fail(vf_status status, const char *format, ...) {
    va_list values;
    va_start(values, format);
    set_sentence(format, values);
    va_end(values);
    driver_code = 0;
    return status;
}

vf_status status_fail_code(vf_status status, int code, const char *format, ...) {
    va_list values;
    va_start(values, format);
    set_sentence(format, values);
    va_end(values);
    driver_code = code;
    return status;
}

void status_prefix(const char *format, ...) {
    char front[512];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(front, sizeof front, format, values);
    va_end(values);
    if (length <= 0) return;
    size_t added = (size_t)length < sizeof front ? (size_t)length : sizeof front - 1;
    size_t kept = strlen(sentence);
    if (kept > sizeof sentence - 1 - added) kept = sizeof sentence - 1 - added;
    memmove(sentence + added, sentence, kept);
    memcpy(sentence, front, added);
    sentence[added + kept] = 0;
}

void status_forget(void) {
    sentence[0] = 0;
    driver_code = 0;
}

const char *status_text(vf_status status) {
    switch (status) {
#define STATUS(name, value, text) \
    case name:                    \
        return text;
#include "status.def"
#undef STATUS
    }
    return "unknown status";
}

const char *vf_status_name(vf_status status) {
    switch (status) {
#define STATUS(name, value, text) \
    case name:                    \
        return #name;
#include "status.def"
#undef STATUS
    }
    return "VF_ERROR_UNKNOWN";
}

const char *vf_last_error(void) {
    return sentence;
}

int vf_last_driver_error(void) {
    return driver_code;
}
