// options_table.h - what the tables of options.h's promise look like, for who reads them: options.c (parsing, --help) and pages.c
// (manual pages, completions).
#ifndef VF_OPTIONS_TABLE_H
#define VF_OPTIONS_TABLE_H

#include "options.h"

enum group { GROUP_PROBLEM, GROUP_VERB, GROUP_WHERE, GROUP_COMMON, GROUPS };
extern const char *const group_titles[GROUPS];

enum kind {
    SWITCH,   // bool
    TEXT,     // const char *
    COUNT,    // int64_t, not negative
    SECONDS,  // double, positive
    BACKEND,  // vf_backend
    LIST,     // struct text_list, may be repeated
    PROBLEM   // a row of problem_options: goes on to problem_set, with its value if it has one
};

struct option {
    const char *name;
    const char *value;  // null: takes none
    enum kind kind;
    enum group group;
    unsigned verbs;
    char letter;  // 0: none
    size_t field;
    const char *help;  // null: not for users
};

// Every option: a problem's, then the command's own.
size_t option_count(void);
struct option option_at(size_t index);

extern const struct verb verbs[];
extern const size_t verb_count;
bool option_belongs(const struct option *option, const struct verb *verb);

struct exit_meaning {
    enum exit_code code;
    const char *meaning;
};
extern const struct exit_meaning exit_codes[];
extern const size_t exit_code_count;

#endif
