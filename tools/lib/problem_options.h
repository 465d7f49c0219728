// problem_options.h - what problem_options.c and problem_json.c share: the rule behind each option. For nobody else.
#ifndef VF_PROBLEM_OPTIONS_H
#define VF_PROBLEM_OPTIONS_H

#include "problem.h"

enum problem_rule_kind {
    RULE_NAME,
    RULE_LENGTHS,
    RULE_INTEGER,
    RULE_ROWS,
    RULE_REAL,
    RULE_SEED,
    RULE_WORD,
    RULE_WINDOW,
    RULE_STRIDES,
    RULE_SWITCH,
    RULE_BATCHED,
    RULE_CAUSAL,
    RULE_DETERMINISTIC
};

struct problem_word {
    const char *text;
    int value;
};

struct problem_rule {
    enum problem_rule_kind kind;
    size_t field;
    size_t derived;  // the field whose value it has when not given; 0: none
    int64_t low, high;
    const struct problem_word *words;  // ends with a null text
};
extern const struct problem_rule problem_rules[];  // ORDER problem_options

// Index of the option of that name, -1 for none.
int problem_option_find(const char *name, size_t length);

// Appends the value of an option as problem_set takes it; false (and whatever was appended is void) where the option is
// at its default. `turn` counts the operands of a repeatable option.
bool problem_option_write(const struct problem *problem, size_t index, int turn, struct buf *out);

#endif
