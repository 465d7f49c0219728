// log.c - the logger.
#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const level_names[] = {"error", "warning", "info", "debug"};  // level 1 ... 4

int log_level_parse(const char *text) {
    if (!text) return 0;
    for (int i = 0; i < (int)ARRAY_LENGTH(level_names); i++) {
        if (!strcmp(text, level_names[i]) || (text[0] == '1' + i && !text[1])) return i + 1;
    }
    return 0;
}

void log_write(const struct logger *logger, enum log_level level, const char *format, ...) {
    if (!logger || !logger->function || (int)level > logger->level) return;
    char line[1024];
    va_list values;
    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    logger->function((int)level, line, logger->user);
}
