// source_plan.c - see source_plan.h.
#include "source_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- writing ------------------------------------------------------------------------------------------------------

void source_plan_write(const struct source_plan *plan, struct buf *text) {
    buf_text(text, "plan");
#define NUMBER(name) buf_printf(text, " " #name "=%d", plan->name);
#define TEXT(name, size) buf_printf(text, " " #name "=%s", plan->name);
    SOURCE_PLAN_NUMBERS(NUMBER)
    SOURCE_PLAN_TEXTS(TEXT)
#undef NUMBER
#undef TEXT
    buf_text(text, "\n");
    for (int i = 0; i < plan->kernel_count; i++) {
        const struct source_kernel *kernel = &plan->kernels[i];
        buf_text(text, "kernel");
#define NUMBER(name) buf_printf(text, " " #name "=%d", kernel->name);
#define TEXT(name, size) buf_printf(text, " " #name "=%s", kernel->name);
        SOURCE_KERNEL_NUMBERS(NUMBER)
        SOURCE_KERNEL_TEXTS(TEXT)
#undef NUMBER
#undef TEXT
        buf_text(text, "\n");
    }
}

// ---- reading ------------------------------------------------------------------------------------------------------
// What is left of a line. `good` turns false at the first word that is not the one expected.
struct line {
    const char *at, *end;
    bool good;
};

static bool take(struct line *line, const char *word) {
    const size_t length = strlen(word);
    line->good = line->good && (size_t)(line->end - line->at) >= length && !memcmp(line->at, word, length);
    if (line->good) line->at += length;
    return line->good;
}

static int read_number(struct line *line, const char *key) {
    char digits[12] = "";
    if (!take(line, key)) return 0;
    for (size_t i = 0; line->at < line->end && *line->at >= '0' && *line->at <= '9' && i < 10; i++)
        digits[i] = *line->at++;
    const long value = strtol(digits, NULL, 10);
    line->good = digits[0] && value <= INT32_MAX && (line->at == line->end || *line->at == ' ');
    return line->good ? (int)value : 0;
}

// Up to the next word; `last`: the rest of the line.
static void read_text(struct line *line, const char *key, char *out, size_t size, bool last) {
    if (!take(line, key)) return;
    const size_t left = (size_t)(line->end - line->at);
    const char *space = last ? NULL : memchr(line->at, ' ', left);
    const size_t length = space ? (size_t)(space - line->at) : left;
    line->good = length < size && !memchr(line->at, 0, length);
    if (!line->good) return;
    memcpy(out, line->at, length);
    out[length] = 0;
    line->at += length;
}

// The next line; false at the end of the text or where a line has none.
static bool next_line(const char **text, const char *end, struct line *line) {
    const char *newline = *text < end ? memchr(*text, '\n', (size_t)(end - *text)) : NULL;
    if (!newline) return false;
    *line = (struct line){*text, newline, true};
    *text = newline + 1;
    return true;
}

static bool read_kernel(struct line *line, struct source_kernel *kernel) {
    take(line, "kernel");
#define NUMBER(name) kernel->name = read_number(line, " " #name "=");
#define TEXT(name, size) read_text(line, " " #name "=", kernel->name, size, !strcmp(#name, "spec"));
    SOURCE_KERNEL_NUMBERS(NUMBER)
    SOURCE_KERNEL_TEXTS(TEXT)
#undef NUMBER
#undef TEXT
    return line->good && line->at == line->end;
}

bool source_plan_read(const char *text, size_t size, struct source_plan *plan) {
    const char *end = text + size;
    struct line line;
    *plan = (struct source_plan){.kernel_count = 0};
    if (!next_line(&text, end, &line)) return false;
    take(&line, "plan");
#define NUMBER(name) plan->name = read_number(&line, " " #name "=");
#define TEXT(name, size) read_text(&line, " " #name "=", plan->name, size, false);
    SOURCE_PLAN_NUMBERS(NUMBER)
    SOURCE_PLAN_TEXTS(TEXT)
#undef NUMBER
#undef TEXT
    if (!line.good || line.at != line.end) return false;
    while (next_line(&text, end, &line)) {
        if (plan->kernel_count == SOURCE_KERNELS_MAX || !read_kernel(&line, &plan->kernels[plan->kernel_count]))
            return false;
        plan->kernel_count++;
    }
    return text == end && plan->kernel_count > 0;
}
