// output.c - messages, progress, JSON and tables of the command. Not a logger of the library: that one calls back into
// output_detail. Invariant: a message is one write, so that lines of parallel processes do not mix.
#include "output.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    enum output_verbosity verbosity;
    bool color, terminal;
    bool progress;  // a progress line stands on the terminal
} state = {.verbosity = OUTPUT_NORMAL};

void output_open(enum output_verbosity verbosity) {
    const char *no_color = getenv("NO_COLOR");
    state.verbosity = verbosity;
    state.color = isatty(STDOUT_FILENO) && !(no_color && *no_color);
    state.terminal = isatty(STDERR_FILENO);
    output_seconds();
}

void output_clear(void) {
    if (state.progress) fputs("\r\033[K", stderr);
    state.progress = false;
}

static void say(const char *format, va_list args) {
    char *text = NULL, *line = NULL;
    output_clear();
    if (vasprintf(&text, format, args) >= 0 && asprintf(&line, "varflash: %s\n", text) >= 0) fputs(line, stderr);
    free(line);
    free(text);
}

#define SAY_FROM(level)               \
    if (state.verbosity >= (level)) { \
        va_list args;                 \
        va_start(args, format);       \
        say(format, args);            \
        va_end(args);                 \
    }

void output_error(const char *format, ...) {
    SAY_FROM(OUTPUT_QUIET)
}

void output_note(const char *format, ...) {
    SAY_FROM(OUTPUT_NORMAL)
}

void output_detail(const char *format, ...) {
    SAY_FROM(OUTPUT_VERBOSE)
}

double output_seconds(void) {
    static struct timespec start;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!start.tv_sec) start = now;
    return (double)(now.tv_sec - start.tv_sec) + 1e-9 * (double)(now.tv_nsec - start.tv_nsec);
}

void output_progress(const char *what, size_t done, size_t total) {
    static double begin, shown;
    double now = output_seconds();
    if (!state.terminal || state.verbosity == OUTPUT_QUIET) return;
    if (done == 0) begin = now;
    if (done >= total) {
        output_clear();
        return;
    }
    if (done && now - shown < 0.1) return;
    shown = now;
    double rate = now > begin ? (double)done / (now - begin) : 0;
    static const char full[] = "####################";  // twenty
    const int part = (int)(20 * done / total);
    fprintf(stderr, "\r\033[K%s [%.*s%*s] %zu/%zu", what, part, full, 20 - part, "", done, total);
    if (rate > 0) fprintf(stderr, "  %.1f/s, %.0f s left", rate, (double)(total - done) / rate);
    fflush(stderr);
    state.progress = true;
}

void output_json(cJSON *json, bool compact) {
    char *text = compact ? cJSON_PrintUnformatted(json) : cJSON_Print(json);
    output_clear();
    if (text) puts(text);
    cJSON_free(text);
    cJSON_Delete(json);
    fflush(stdout);
}

const cJSON *output_first(const cJSON *list) {
    return list ? list->child : NULL;
}

const char *output_color(enum output_color color) {
    static const char *const codes[] = {
        [OUTPUT_PLAIN] = "\033[0m", [OUTPUT_GREEN] = "\033[32m", [OUTPUT_RED] = "\033[31m", [OUTPUT_BOLD] = "\033[1m"};
    return state.color ? codes[color] : "";
}

// ---- tables ---------------------------------------------------------------------------------------------------------

void *output_realloc(void *memory, size_t size) {
    void *grown = realloc(memory, size ? size : 1);
    if (!grown) {
        output_error("out of memory (%zu bytes)", size);
        exit(7);
    }
    return grown;
}

char *output_copy(const char *text) {
    size_t size = strlen(text) + 1;
    return memcpy(output_realloc(NULL, size), text, size);
}

void table_open(struct table *table, const char *align) {
    *table = (struct table){.columns = strlen(align), .align = align};
}

void table_cell(struct table *table, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    size_t size = (size_t)vsnprintf(NULL, 0, format, args) + 1;
    va_end(args);
    if (table->cells == table->room) {
        table->room = table->room ? 2 * table->room : 64;
        table->cell = output_realloc(table->cell, table->room * sizeof(*table->cell));
    }
    table->cell[table->cells] = output_realloc(NULL, size);
    vsnprintf(table->cell[table->cells++], size, format, again);
    va_end(again);
}

void table_print(const struct table *table) {
    int widths[TABLE_COLUMNS] = {0};
    output_clear();
    for (size_t i = 0; i < table->cells; i++) {
        int length = (int)strlen(table->cell[i]);
        if (length > widths[i % table->columns]) widths[i % table->columns] = length;
    }
    for (size_t i = 0; i < table->cells; i++) {
        size_t column = i % table->columns;
        bool last = column + 1 == table->columns;
        int width = table->align[column] == 'r' ? widths[column] : last ? 0 : -widths[column];
        printf("%*s%s", width, table->cell[i], last ? "\n" : "  ");
    }
    fflush(stdout);
}

void table_close(struct table *table) {
    for (size_t i = 0; i < table->cells; i++) free(table->cell[i]);
    free(table->cell);
    *table = (struct table){0};
}
