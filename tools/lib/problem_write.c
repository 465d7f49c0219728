// problem_write.c - a problem as the flags that replay it: options at their defaults are left out.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "problem_options.h"

#define FIELD(member) offsetof(struct problem, member)
#define CONST_AT(type, problem, offset) ((const type *)(const void *)((const char *)(problem) + (offset)))

static void write_lengths(const int64_t *values, int64_t count, struct buf *out) {
    if (!count) buf_text(out, "none");
    for (int64_t i = 0, next; i < count; i = next) {
        for (next = i + 1; next < count && values[next] == values[i];) next++;
        buf_printf(out, "%s%" PRId64, i ? "," : "", values[i]);
        if (next - i > 1) buf_printf(out, "x%" PRId64, next - i);
    }
}

// The fewest digits that read back as the same double.
static void write_real(double value, struct buf *out) {
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    buf_text(out, text);
}

static void write_edge(int64_t edge, struct buf *out) {
    if (edge == VF_NO_EDGE)
        buf_text(out, "inf");
    else
        buf_printf(out, "%" PRId64, edge);
}

static bool write_strides(const struct problem_strides *strides, int operand, struct buf *out) {
    if (!strides->set && !strides->storage_offset) return false;
    buf_printf(out, "%s=", problem_operand_names[operand]);
    if (strides->set) buf_printf(out, "%" PRId64 ",%" PRId64, strides->row, strides->head);
    if (strides->has_batch) buf_printf(out, ",%" PRId64, strides->batch);
    if (strides->storage_offset) buf_printf(out, "+%" PRId64, strides->storage_offset);
    return true;
}

static int64_t default_rows(const struct problem *problem, const struct problem_rule *rule) {
    const bool q_side = rule->field == FIELD(rows_q);
    const int64_t *lengths = q_side ? problem->seqlens_q : problem->seqlens_k;
    if (problem->batch && (q_side ? problem->batched_q : problem->batched_k))
        return q_side ? problem->rows_q : problem->rows_k;
    int64_t rows = q_side ? problem->start_q : problem->start_k;
    for (int64_t b = 0; b < problem->batch; b++) rows += lengths[b];
    return rows < 0 ? 0 : rows;
}

bool problem_option_write(const struct problem *problem, size_t index, int turn, struct buf *out) {
    const struct problem_rule *rule = &problem_rules[index];
    struct problem standard;
    problem_begin(&standard);
    if (turn && rule->kind != RULE_STRIDES) return false;
    switch (rule->kind) {
        case RULE_NAME:
            buf_text(out, problem->name);
            return *problem->name;
        case RULE_LENGTHS: {
            const int64_t *list = *CONST_AT(int64_t *, problem, rule->field);
            if (!list) return false;
            if (rule->derived &&
                !memcmp(list, *CONST_AT(int64_t *, problem, rule->derived), (size_t)problem->batch * sizeof *list))
                return false;
            write_lengths(list, problem->batch, out);
            return true;
        }
        case RULE_INTEGER:
        case RULE_ROWS: {
            const int64_t value = *CONST_AT(int64_t, problem, rule->field);
            if (value == (rule->kind == RULE_ROWS ? default_rows(problem, rule)
                          : rule->derived         ? *CONST_AT(int64_t, problem, rule->derived)
                                                  : *CONST_AT(int64_t, &standard, rule->field)))
                return false;
            buf_printf(out, "%" PRId64, value);
            return true;
        }
        case RULE_REAL: {
            const double value = *CONST_AT(double, problem, rule->field);
            if (value == *CONST_AT(double, &standard, rule->field)) return false;
            write_real(value, out);
            return true;
        }
        case RULE_SEED:
            buf_printf(out, "%" PRIu64, problem->seed);
            return problem->seed != 0;
        case RULE_WORD: {
            const int value = *CONST_AT(int, problem, rule->field);
            const struct problem_word *word = rule->words;
            while (word->text && word->value != value) word++;
            buf_text(out, word->text ? word->text : "?");
            return value != *CONST_AT(int, &standard, rule->field);
        }
        case RULE_WINDOW:
            write_edge(problem->window_left, out);
            buf_text(out, ",");
            write_edge(problem->window_right, out);
            return problem->mask == VF_MASK_WINDOW;
        case RULE_STRIDES:
            return write_strides(&problem->strides[turn], turn, out);
        case RULE_SWITCH: {
            const bool both = problem->batched_q && problem->batched_k;
            const bool side = rule->field == FIELD(batched_q) || rule->field == FIELD(batched_k);
            return *CONST_AT(bool, problem, rule->field) && !(side && both);
        }
        case RULE_BATCHED:
            return problem->batched_q && problem->batched_k;
        case RULE_CAUSAL:
            return problem->mask == VF_MASK_CAUSAL;
        case RULE_DETERMINISTIC:
            return problem->deterministic == VF_ON;
    }
    return false;
}

void problem_write_flags(const struct problem *problem, struct buf *out) {
    struct buf value = {0};
    const char *blank = "";
    for (size_t i = 0; i < problem_option_count; i++) {
        const int turns = problem_options[i].repeatable ? OPERAND_COUNT : 1;
        for (int turn = 0; turn < turns; turn++) {
            buf_clear(&value);
            if (!problem_option_write(problem, i, turn, &value)) continue;
            buf_printf(out, "%s--%s", blank, problem_options[i].name);
            blank = " ";
            if (problem_options[i].argument) buf_printf(out, " %s", buf_string(&value));
        }
    }
    if (value.failed) out->failed = true;
    buf_free(&value);
}
