// output.h - how the command speaks: data on stdout (tables, JSON), messages and progress on stderr.
//
// Nothing else in tools/ writes to stderr, and a verb writes to stdout only what it was asked for.
#ifndef VF_OUTPUT_H
#define VF_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include <cjson/cJSON.h>

enum output_verbosity { OUTPUT_QUIET, OUTPUT_NORMAL, OUTPUT_VERBOSE };

// Reads NO_COLOR and whether stdout and stderr are terminals. Call once.
void output_open(enum output_verbosity verbosity);

// "varflash: ..." and a newline, on stderr. Errors always, notes unless --quiet, details with --verbose only.
void output_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void output_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void output_detail(const char *format, ...) __attribute__((format(printf, 1, 2)));

// One line with a bar, a count, the rate and the time left; only where stderr is a terminal. done == total clears it.
void output_progress(const char *what, size_t done, size_t total);
// Takes that line away; before anything is printed on stdout.
void output_clear(void);

// Prints `json` and a newline and deletes it. compact: one line, for records of a sweep.
void output_json(cJSON *json, bool compact);

// The first member of a list or object, null if there is none; `next` leads on.
const cJSON *output_first(const cJSON *list);

// The escape sequence that starts or ends a colour on stdout; "" where there is none.
enum output_color { OUTPUT_PLAIN, OUTPUT_GREEN, OUTPUT_RED, OUTPUT_BOLD };
const char *output_color(enum output_color color);

// Seconds since the first call, from a clock that only goes forward.
double output_seconds(void);

// A table is gathered as text, then printed with columns as wide as their widest cell. Cells are copied.
struct table {
    size_t columns, cells, room;
    char **cell;
    const char *align;  // a letter a column, at most TABLE_COLUMNS: 'l' left, 'r' right
};
#define TABLE_COLUMNS 16

void table_open(struct table *table, const char *align);
void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void table_print(const struct table *table);
void table_close(struct table *table);

// realloc and strdup that end the program with a sentence when there is no memory: a command can do no better.
void *output_realloc(void *memory, size_t size);
char *output_copy(const char *text);

#endif
