// log.h - one logger: levels 1-4, one callback of the user's, silent without it.
//
// What fails a call is a status, not a log line; the log tells what the library worked around or did on its own.
#ifndef VF_LOG_H
#define VF_LOG_H

#include "base.h"
#include "varflash/varflash.h"

enum log_level {
    LOG_LEVEL_ERROR = 1,    // something is broken and a call will fail
    LOG_LEVEL_WARNING = 2,  // worked around, and the user may want to mend it
    LOG_LEVEL_INFO = 3,     // what was loaded, compiled, chosen
    LOG_LEVEL_DEBUG = 4     // every step
};

struct logger {
    vf_log_function function;  // null: silent
    void *user;
    int level;  // lines above it are dropped
};

// "2" or "warning" -> 2. 0 if `text` is null or names no level.
int log_level_parse(const char *text);

// One line, without a newline, cut at 1 KB. `logger` may be null.
void log_write(const struct logger *logger, enum log_level level, const char *format, ...) PRINTF_LIKE(3, 4);

#endif
