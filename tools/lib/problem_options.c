// problem_options.c - THE table of a problem's options, and its reading from flags.
//
// Each row says where a value lives and what it may be; setting, printing, JSON (problem_json.c) and the command's help
// are loops over the rows.
#include "problem_options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "status.h"

#define FIELD(member) offsetof(struct problem, member)
#define HEADS_LIMIT (((int64_t)1 << 20) - 1)

static const struct problem_word dtypes[] = {{"bf16", VF_BFLOAT16}, {"fp16", VF_FLOAT16}, {"fp32", VF_FLOAT32}, {0}};
static const struct problem_word fills[] = {{"zero", VF_FILL_ZERO}, {"keep", VF_FILL_KEEP}, {0}};
static const struct problem_word poisons[] = {{"nan", POISON_NAN},
                                              {"inf", POISON_INF},
                                              {"-inf", POISON_NEGATIVE_INF},
                                              {"zero", POISON_ZERO},
                                              {0}};  // ORDER poisons
static const struct problem_word refusals[] = {
    {"ok", VF_OK}, {"invalid", VF_ERROR_INVALID_ARGUMENT}, {"unsupported", VF_ERROR_UNSUPPORTED}, {0}};

const struct problem_option problem_options[] = {
    {"name", "TEXT", false, "a label"},
    {"seqlens-q", "N,N,...", false, "lengths of the sequences of q; 34x8192 repeats, 'none' is an empty batch"},
    {"seqlens-k", "N,N,...", false, "lengths of k and v (those of q)"},
    {"seqused-q", "N,N,...", false, "tokens in use of each sequence of q (all)"},
    {"seqused-k", "N,N,...", false, "the same for k and v"},
    {"start-q", "N", false, "first entry of cu_seqlens_q (0); anything else is a broken batch"},
    {"start-k", "N", false, "the same for k and v"},
    {"rows-q", "N", false, "rows of the packed q (the sum of its lengths)"},
    {"rows-k", "N", false, "the same for k and v"},
    {"batched", NULL, false, "[batch, seqlen, heads, dim] without cu_seqlens"},
    {"batched-q", NULL, false, "the same for q alone"},
    {"batched-k", NULL, false, "the same for k and v alone"},
    {"int64-lengths", NULL, false, "int64 lengths in place of int32"},
    {"max-seqlen-q", "N", false, "hint: no sequence of q is longer (unknown)"},
    {"max-seqlen-k", "N", false, "the same for k and v"},
    {"heads-q", "N", false, "query heads (1)"},
    {"heads-k", "N", false, "key heads, a divisor of the query heads (as many)"},
    {"head-dim", "N", false, "of q and k: a multiple of 8, at most 256 (64)"},
    {"head-dim-v", "N", false, "of v and o (head-dim)"},
    {"dtype", "T", false, "bf16, fp16; fp32 on the CPU backend (bf16)"},
    {"causal", NULL, false, "bottom-right aligned causal mask"},
    {"window", "L,R", false, "keys from i+d-L to i+d+R, d = seqlen_k - seqlen_q; 'inf': no edge"},
    {"scale", "X", false, "softmax scale (1/sqrt(head-dim))"},
    {"softcap", "X", false, "cap * tanh(x / cap) (none)"},
    {"deterministic", NULL, false, "the same bits in every run of the backward"},
    {"backward", NULL, false, "the backward pass too"},
    {"dlse", NULL, false, "the backward with a gradient of lse"},
    {"no-lse", NULL, false, "the forward without lse"},
    {"fill", "F", false, "zero or keep: output rows without a token (zero)"},
    {"strides", "T=R,H[,B][+O]", true, "row, head, batch stride and storage offset of a tensor, in elements; or T=+O"},
    {"input-scale", "X", false, "deviation of the inputs (1)"},
    {"seed", "N", false, "of the inputs (0)"},
    {"poison", "P", false, "what unused rows hold: nan, inf, -inf, zero (nan)"},
    {"expect", "S", false, "how the library must refuse it: invalid, unsupported"},
};
const size_t problem_option_count = ARRAY_LENGTH(problem_options);

// ORDER problem_options
const struct problem_rule problem_rules[] = {
    {.kind = RULE_NAME},
    {.kind = RULE_LENGTHS, .field = FIELD(seqlens_q)},
    {.kind = RULE_LENGTHS, .field = FIELD(seqlens_k), .derived = FIELD(seqlens_q)},
    {.kind = RULE_LENGTHS, .field = FIELD(seqused_q)},
    {.kind = RULE_LENGTHS, .field = FIELD(seqused_k)},
    {.kind = RULE_INTEGER, .field = FIELD(start_q), .low = -PROBLEM_LENGTH_LIMIT, .high = PROBLEM_LENGTH_LIMIT},
    {.kind = RULE_INTEGER, .field = FIELD(start_k), .low = -PROBLEM_LENGTH_LIMIT, .high = PROBLEM_LENGTH_LIMIT},
    {.kind = RULE_ROWS, .field = FIELD(rows_q), .high = PROBLEM_LENGTH_LIMIT},
    {.kind = RULE_ROWS, .field = FIELD(rows_k), .high = PROBLEM_LENGTH_LIMIT},
    {.kind = RULE_BATCHED},
    {.kind = RULE_SWITCH, .field = FIELD(batched_q)},
    {.kind = RULE_SWITCH, .field = FIELD(batched_k)},
    {.kind = RULE_SWITCH, .field = FIELD(int64_lengths)},
    {.kind = RULE_INTEGER, .field = FIELD(max_seqlen_q), .low = 0, .high = PROBLEM_LENGTH_LIMIT},
    {.kind = RULE_INTEGER, .field = FIELD(max_seqlen_k), .low = 0, .high = PROBLEM_LENGTH_LIMIT},
    {.kind = RULE_INTEGER, .field = FIELD(heads_q), .low = 1, .high = HEADS_LIMIT},
    {.kind = RULE_INTEGER, .field = FIELD(heads_k), .derived = FIELD(heads_q), .low = 1, .high = HEADS_LIMIT},
    {.kind = RULE_INTEGER, .field = FIELD(head_dim), .low = 1, .high = HEADS_LIMIT},
    {.kind = RULE_INTEGER, .field = FIELD(head_dim_v), .derived = FIELD(head_dim), .low = 1, .high = HEADS_LIMIT},
    {.kind = RULE_WORD, .field = FIELD(dtype), .words = dtypes},
    {.kind = RULE_CAUSAL},
    {.kind = RULE_WINDOW},
    {.kind = RULE_REAL, .field = FIELD(softmax_scale)},
    {.kind = RULE_REAL, .field = FIELD(softcap)},
    {.kind = RULE_DETERMINISTIC},
    {.kind = RULE_SWITCH, .field = FIELD(backward)},
    {.kind = RULE_SWITCH, .field = FIELD(dlse)},
    {.kind = RULE_SWITCH, .field = FIELD(no_lse)},
    {.kind = RULE_WORD, .field = FIELD(fill), .words = fills},
    {.kind = RULE_STRIDES},
    {.kind = RULE_REAL, .field = FIELD(input_scale)},
    {.kind = RULE_SEED, .field = FIELD(seed)},
    {.kind = RULE_WORD, .field = FIELD(poison), .words = poisons},
    {.kind = RULE_WORD, .field = FIELD(expect), .words = refusals},
};
_Static_assert(ARRAY_LENGTH(problem_rules) == ARRAY_LENGTH(problem_options), "ORDER problem_options");
_Static_assert(ARRAY_LENGTH(problem_options) <= 64, "struct problem.given has a bit for each");

#define AT(type, problem, rule) ((type *)(void *)((char *)(problem) + (rule)->field))
#define INVALID VF_ERROR_INVALID_ARGUMENT

// ---- reading -------------------------------------------------------------------------------------------------------

// The whole integer at *text, which moves behind it.
static bool read_integer(const char **text, int64_t *value) {
    char *end;
    const bool sign = **text == '-' || **text == '+';
    const char c = (*text)[sign];
    if (c < '0' || c > '9') return false;
    errno = 0;
    *value = strtoll(*text, &end, 10);
    if (errno) return false;
    *text = end;
    return true;
}

static bool within(int64_t value, int64_t limit) {
    return value >= -limit && value <= limit;
}

// Reads the list twice: to count, then to store.
static bool read_lengths(const char *text, int64_t *values, int64_t *count) {
    *count = 0;
    if (!*text || !strcmp(text, "none")) return true;
    for (;; text++) {
        int64_t length, times = 1;
        if (!read_integer(&text, &length) || !within(length, PROBLEM_LENGTH_LIMIT)) return false;
        if (*text == 'x' && (text++, !read_integer(&text, &times) || times < 0)) return false;
        if (times > PROBLEM_BATCH_LIMIT - *count) return false;
        for (int64_t i = 0; values && i < times; i++) values[*count + i] = length;
        *count += times;
        if (!*text) return true;
        if (*text != ',') return false;
    }
}

static vf_status set_lengths(struct problem *problem, const char *name, int64_t **list, const char *value) {
    int64_t count;
    VF_REQUIRE(read_lengths(value, NULL, &count), INVALID,
               "--%s: '%.40s' is no list of lengths such as 0,17,34x8192 with at most %lld entries of at most 2^40",
               name, value, (long long)PROBLEM_BATCH_LIMIT);
    VF_REQUIRE(problem->batch < 0 || problem->batch == count, INVALID,
               "--%s: has %lld lengths, an earlier list has %lld; all must have one for each sequence", name,
               (long long)count, (long long)problem->batch);
    *list = malloc((size_t)count * sizeof **list + 1);
    VF_REQUIRE(*list, VF_ERROR_OUT_OF_MEMORY, "--%s: no memory for %lld lengths", name, (long long)count);
    read_lengths(value, *list, &count);
    problem->batch = count;
    return VF_OK;
}

static bool read_edge(const char **text, int64_t *edge) {
    if (!strncmp(*text, "inf", 3)) {
        *text += 3;
        *edge = VF_NO_EDGE;
        return true;
    }
    return read_integer(text, edge);
}

static vf_status set_window(struct problem *problem, const char *value) {
    const char *text = value;
    int64_t left, right;
    VF_REQUIRE(read_edge(&text, &left) && *text++ == ',' && read_edge(&text, &right) && !*text, INVALID,
               "--window: '%.40s' is not LEFT,RIGHT: two whole numbers or inf, as in 128,0 or inf,-3", value);
    const bool causal = problem->mask == VF_MASK_CAUSAL;
    problem->mask = VF_MASK_WINDOW;
    problem->window_left = left;
    problem->window_right = causal && right > 0 ? 0 : right;
    return VF_OK;
}

static void set_causal(struct problem *problem) {
    if (problem->mask == VF_MASK_FULL)
        problem->mask = VF_MASK_CAUSAL;
    else if (problem->window_right > 0)
        problem->window_right = 0;
}

static vf_status set_strides(struct problem *problem, const char *value) {
    const char *text = strchr(value, '=');
    int operand = 0;
    while (text && operand < OPERAND_COUNT &&
           (strlen(problem_operand_names[operand]) != (size_t)(text - value) ||
            strncmp(value, problem_operand_names[operand], (size_t)(text - value)) != 0))
        operand++;
    VF_REQUIRE(
        text && operand < OPERAND_COUNT, INVALID,
        "--strides: '%.40s' names no tensor; it is TENSOR=ROW,HEAD[,BATCH][+OFFSET] with q, k, v, o, lse, dout, dlse, "
        "dq, dk or dv",
        value);
    struct problem_strides strides = {0};
    bool good = true;
    text++;
    if (*text != '+') {
        strides.set = true;
        good = read_integer(&text, &strides.row) && *text++ == ',' && read_integer(&text, &strides.head);
        if (good && *text == ',') {
            text++;
            strides.has_batch = true;
            good = read_integer(&text, &strides.batch);
        }
    }
    if (good && *text == '+') {
        text++;
        good = read_integer(&text, &strides.storage_offset);
    }
    const int64_t limit = PROBLEM_LENGTH_LIMIT;
    VF_REQUIRE(good && !*text && within(strides.row, limit) && within(strides.head, limit) &&
                   within(strides.batch, limit) && strides.storage_offset >= 0 && strides.storage_offset <= limit,
               INVALID, "--strides: '%.60s' is not TENSOR=ROW,HEAD[,BATCH][+OFFSET], whole numbers up to 2^40", value);
    const struct problem_strides *old = &problem->strides[operand];
    VF_REQUIRE(!old->set && !old->storage_offset, INVALID, "--strides: %s is given twice",
               problem_operand_names[operand]);
    problem->strides[operand] = strides;
    return VF_OK;
}

static vf_status set_name(struct problem *problem, const char *value) {
    const char *allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:/+=,";
    const size_t length = strlen(value);
    VF_REQUIRE(length && length < sizeof problem->name && strspn(value, allowed) == length, INVALID,
               "--name: '%.70s' is not 1 to %zu letters, digits or any of -_.:/+=,", value, sizeof problem->name - 1);
    memcpy(problem->name, value, length + 1);
    return VF_OK;
}

static vf_status set_word(const char *name, const struct problem_word *words, const char *value, int *field) {
    char choice[96] = "";
    for (const struct problem_word *word = words; word->text; word++) {
        if (!strcmp(word->text, value)) {
            *field = word->value;
            return VF_OK;
        }
        snprintf(choice + strlen(choice), sizeof choice - strlen(choice), "%s%s", word == words ? "" : ", ",
                 word->text);
    }
    VF_FAIL(INVALID, "--%s: '%.40s' is none of %s", name, value, choice);
}

static vf_status set_value(struct problem *problem, const char *name, const struct problem_rule *rule,
                           const char *value) {
    const char *text = value;
    char *end;
    switch (rule->kind) {
        case RULE_NAME:
            return set_name(problem, value);
        case RULE_LENGTHS:
            return set_lengths(problem, name, AT(int64_t *, problem, rule), value);
        case RULE_INTEGER:
        case RULE_ROWS: {
            int64_t number;
            VF_REQUIRE(read_integer(&text, &number) && !*text && number >= rule->low && number <= rule->high, INVALID,
                       "--%s: '%.40s' is not a whole number from %lld to %lld", name, value, (long long)rule->low,
                       (long long)rule->high);
            *AT(int64_t, problem, rule) = number;
            return VF_OK;
        }
        case RULE_REAL: {
            const double number = strtod(value, &end);
            VF_REQUIRE(end != value && !*end && isfinite(number) && number >= 0 && value[0] != ' ', INVALID,
                       "--%s: '%.40s' is not a number that is positive or 0", name, value);
            *AT(double, problem, rule) = number + 0.0;  // no negative zero
            return VF_OK;
        }
        case RULE_SEED:
            errno = 0;
            *AT(uint64_t, problem, rule) = strtoull(value, &end, 10);
            VF_REQUIRE(value[0] >= '0' && value[0] <= '9' && !*end && !errno, INVALID,
                       "--%s: '%.40s' is not a whole number below 2^64", name, value);
            return VF_OK;
        case RULE_WORD: {
            int word = 0;
            VF_TRY(set_word(name, rule->words, value, &word));
            *AT(int, problem, rule) = word;
            return VF_OK;
        }
        case RULE_WINDOW:
            return set_window(problem, value);
        case RULE_STRIDES:
            return set_strides(problem, value);
        default:
            return VF_OK;
    }
}

static void set_switch(struct problem *problem, const struct problem_rule *rule) {
    switch (rule->kind) {
        case RULE_SWITCH:
            *AT(bool, problem, rule) = true;
            break;
        case RULE_BATCHED:
            problem->batched_q = problem->batched_k = true;
            break;
        case RULE_CAUSAL:
            set_causal(problem);
            break;
        case RULE_DETERMINISTIC:
            problem->deterministic = VF_ON;
            break;
        default:
            break;
    }
}

int problem_option_find(const char *name, size_t length) {
    for (size_t i = 0; i < problem_option_count; i++)
        if (strlen(problem_options[i].name) == length && !strncmp(problem_options[i].name, name, length)) return (int)i;
    return -1;
}

vf_status problem_set(struct problem *problem, const char *name, const char *value) {
    const int index = problem_option_find(name, strlen(name));
    VF_REQUIRE(index >= 0, INVALID, "--%.40s: a problem has no such option", name);
    const struct problem_option *option = &problem_options[index];
    VF_REQUIRE(!option->argument || value, INVALID, "--%s: needs a value: --%s %s", option->name, option->name,
               option->argument);
    VF_REQUIRE(option->argument || !value, INVALID, "--%s: takes no value", option->name);
    VF_REQUIRE(option->repeatable || !(problem->given >> index & 1), INVALID, "--%s: is given twice", option->name);
    if (value)
        VF_TRY(set_value(problem, option->name, &problem_rules[index], value));
    else
        set_switch(problem, &problem_rules[index]);
    problem->given |= (uint64_t)1 << index;
    return VF_OK;
}

// ---- words and lines -----------------------------------------------------------------------------------------------

static vf_status set_words(int count, const char *const *words, struct problem *problem) {
    for (int i = 0; i < count; i++) {
        VF_REQUIRE(!strncmp(words[i], "--", 2), INVALID, "'%.40s': a problem's options begin with --", words[i]);
        const char *name = words[i] + 2, *equals = strchr(name, '=');
        const size_t length = equals ? (size_t)(equals - name) : strlen(name);
        const int index = problem_option_find(name, length);
        VF_REQUIRE(index >= 0, INVALID, "--%.*s: a problem has no such option", (int)(length < 40 ? length : 40), name);
        const char *value = equals ? equals + 1 : NULL;
        if (!value && problem_options[index].argument && i + 1 < count) value = words[++i];
        VF_TRY(problem_set(problem, problem_options[index].name, value));
    }
    return problem_finish(problem);
}

#define LINE_WORDS 256

vf_status problem_from_line(const char *line, struct problem *problem) {
    const char *words[LINE_WORDS];
    int count = 0;
    *problem = (struct problem){0};
    char *copy = strdup(line), *rest = NULL;
    VF_REQUIRE(copy, VF_ERROR_OUT_OF_MEMORY, "problem: no memory for a line");
    for (char *word = strtok_r(copy, " \t\r\n", &rest); word; word = strtok_r(NULL, " \t\r\n", &rest)) {
        if (count == LINE_WORDS) {
            free(copy);
            VF_FAIL(INVALID, "problem: more than %d words", LINE_WORDS);
        }
        words[count++] = word;
    }
    problem_begin(problem);
    const vf_status status = set_words(count, words, problem);
    if (status) problem_free(problem);
    free(copy);
    return status;
}
