// status.h - how a function fails: it returns a vf_status and leaves one sentence for the calling thread.
//
// The sentence says what failed, what was found, what is allowed and what to do. It is set where the fault is found and
// never changed on the way up. Success leaves it alone; a failure that is no failure of the call is forgotten. Invariant: a function that returns something other than VF_OK
// has set it.
#ifndef VF_STATUS_H
#define VF_STATUS_H

#include <stdarg.h>

#include "base.h"
#include "varflash/varflash.h"

// Longest sentence kept, with its final zero; a compiler's log may be longer and is cut at its end.
#define STATUS_SENTENCE_SIZE 16384

// Set the thread's sentence, return `status`. The driver code becomes 0.
vf_status status_fail(vf_status status, const char *format, ...) PRINTF_LIKE(2, 3);

// The same with the CUresult or nvrtcResult that vf_last_driver_error will return.
vf_status status_fail_code(vf_status status, int code, const char *format, ...) PRINTF_LIKE(3, 4);

// Puts text in front of the thread's sentence: for callers that know the place ("configs/a.json: ") when the callee
// knew the fault.
void status_prefix(const char *format, ...) PRINTF_LIKE(1, 2);

// The sentence and the code become those of a thread in which nothing has failed: for who could do without what failed.
void status_forget(void);

// The table's few words about a status; "unknown status" for a value that is none.
const char *status_text(vf_status status);

// Return the failure of `call`, if it is one.
#define VF_TRY(call)                                 \
    do {                                             \
        vf_status status_of_call_ = (call);          \
        if (status_of_call_) return status_of_call_; \
    } while (0)

// Return `status` with a sentence. (The status is named again, not taken from status_fail, so that static analysis sees
// that it is a failure.)
#define VF_FAIL(status, ...)                \
    do {                                    \
        status_fail((status), __VA_ARGS__); \
        return (status);                    \
    } while (0)

// Return `status` with a sentence unless `condition` holds.
#define VF_REQUIRE(condition, status, ...)              \
    do {                                                \
        if (!(condition)) VF_FAIL(status, __VA_ARGS__); \
    } while (0)

#endif
