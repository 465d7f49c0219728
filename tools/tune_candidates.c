// tune_candidates.c - what a sweep measures: for each pass of a problem the rows there are and a sample of what the generator can make.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "output.h"
#include "tune_sweep.h"
#include "varflash/varflash_dev.h"

#define FAMILIES_MAX 8
#define ROWS_NEAR 3  // rows whose neighbours are tried

static int by_word(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

// The words of a text in order: knobs are the same whatever their order.
static char *in_order(const char *text) {
    char *copy = output_copy(text), *out = output_copy(text), *words[64] = {NULL}, *rest = NULL;
    size_t count = 0, at = 0;
    for (char *word = strtok_r(copy, " ", &rest); word && count < 64; word = strtok_r(NULL, " ", &rest))
        words[count++] = word;
    qsort(words, count, sizeof(*words), by_word);
    for (size_t i = 0; i < count; i++) at += (size_t)sprintf(out + at, "%s%s", i ? " " : "", words[i]);
    free(copy);
    return out;
}

static size_t kernel_index(struct sweep *sweep, const char *spec) {
    for (size_t i = 0; i < sweep->kernels.count; i++) {
        if (!strcmp(sweep->kernels.items[i], spec)) return i;
    }
    texts_add(&sweep->kernels, spec);
    return sweep->kernels.count - 1;
}

// Knobs that a row leaves out and those of the space that say the same make equal kernels.
static bool is_known(const struct item *item, const struct candidate *candidate) {
    for (size_t i = 0; i < item->count; i++) {
        const struct candidate *other = &item->candidates[i];
        if (other->kernel_count == candidate->kernel_count &&
            !memcmp(other->kernels, candidate->kernels, candidate->kernel_count * sizeof(*candidate->kernels)))
            return true;
    }
    return false;
}

// A candidate whose plan the generator refuses is none.
static void add_candidate(struct sweep *sweep, struct item *item, const char *knobs, bool row) {
    struct candidate candidate = {.knobs = in_order(knobs), .row = row};
    struct source_plan plan;
    char *spec = NULL, *text = NULL;
    const bool good = asprintf(&spec, "%s %s", item->request, knobs) >= 0 &&
                      !vf_dev_plan(sweep->context, spec, &text) && source_plan_read(text, strlen(text), &plan);
    free(spec);
    vf_dev_text_free(text);
    if (!good) {
        free(candidate.knobs);
        return;
    }
    candidate.numeric = plan.numeric;
    for (int i = 0; i < plan.kernel_count; i++)
        candidate.kernels[candidate.kernel_count++] = kernel_index(sweep, plan.kernels[i].spec);
    if (is_known(item, &candidate)) {
        free(candidate.knobs);
        return;
    }
    item->candidates = output_realloc(item->candidates, (item->count + 1) * sizeof(candidate));
    item->candidates[item->count++] = candidate;
}

// Marks the candidate that a call gets now: explain names its knobs, and the row.
static void mark_served(struct sweep *sweep, struct item *item) {
    static char text[1 << 16];
    struct command_call call;
    const struct problem *problem = &sweep->list->items[item->index];
    const char *arch = sweep->options->arch;
    size_t length = 0;
    if (command_describe(sweep->context, sweep->options, problem, item->backward, &call)) return;
    const vf_status status =
        item->backward ? vf_explain_backward(sweep->context, &call.backward, arch, text, sizeof(text), &length)
                       : vf_explain_forward(sweep->context, &call.forward, arch, text, sizeof(text), &length);
    cJSON *json = status ? NULL : cJSON_Parse(text);
    const cJSON *knobs = cJSON_GetObjectItemCaseSensitive(json, "knobs");
    const cJSON *row = cJSON_GetObjectItemCaseSensitive(json, "row");
    char *wanted = cJSON_IsString(knobs) ? in_order(knobs->valuestring) : NULL;
    if (cJSON_IsString(row)) item->row = output_copy(row->valuestring);
    for (size_t i = 0; wanted && i < item->count; i++)
        item->candidates[i].served = !strcmp(item->candidates[i].knobs, wanted);
    free(wanted);
    cJSON_Delete(json);
}

// Whether a line of knobs has those that --set asks for.
static bool is_wanted(const struct options *options, const char *line) {
    for (size_t i = 0; i < options->set.count; i++) {
        const size_t length = strlen(options->set.items[i]);
        const char *at = line;
        while ((at = strstr(at, options->set.items[i])) &&
               ((at != line && at[-1] != ' ') || (at[length] && at[length] != ' ')))
            at++;
        if (!at) return false;
    }
    return true;
}

// Marks `wanted` lines, equally many of each family; a family's lines are together and begin with its name.
static void sample(const struct texts *lines, size_t wanted, bool *marked) {
    size_t from[FAMILIES_MAX], sizes[FAMILIES_MAX] = {0}, shares[FAMILIES_MAX], families = 0;
    for (size_t i = 0; i < lines->count; i++) {
        const char *line = lines->items[i], *before = i ? lines->items[i - 1] : "";
        const bool same = !strncmp(line, before, strcspn(line, " ") + 1);
        if (!same && families < FAMILIES_MAX) from[families++] = i;
        sizes[families - 1]++;
    }
    tune_share(sizes, families, wanted, shares);
    for (size_t f = 0; f < families; f++) tune_sample(marked + from[f], sizes[f], shares[f], 1);
}

// Whether a line differs from a row in one knob at most, among those that the row names.
static bool is_near(const char *line, const char *row) {
    size_t others = 0;
    for (const char *word = row; *word; word += strspn(word, " ")) {
        const size_t length = strcspn(word, " ");
        const char *at = line;
        while (at && (strncmp(at, word, length) != 0 || (at[length] && at[length] != ' '))) {
            at = strchr(at, ' ');
            at += at != NULL;
        }
        others += !at;
        if (!at && !strncmp(word, "family=", 7)) return false;
        word += length;
    }
    return others <= 1;
}

// Marks up to `wanted` lines that are near the first rows, which are those that serve the request in one size or another.
static void mark_near(const struct item *item, const struct texts *lines, size_t wanted, bool *marked) {
    size_t *near = output_realloc(NULL, (lines->count + 1) * sizeof(*near)), count = 0;
    bool *chosen = calloc(lines->count + 1, sizeof(*chosen));
    for (size_t i = 0; i < lines->count; i++) {
        bool found = false;
        for (size_t k = 0; k < item->count && k < ROWS_NEAR; k++)
            found |= is_near(lines->items[i], item->candidates[k].knobs);
        if (found) near[count++] = i;
    }
    if (chosen) tune_sample(chosen, count, wanted, 1);
    for (size_t i = 0; i < count && chosen; i++) marked[near[i]] = chosen[i];
    free(chosen);
    free(near);
}

static vf_status add_space(struct sweep *sweep, struct item *item) {
    char *text, *rest = NULL;
    struct texts lines = {0};
    vf_status status = vf_dev_space(sweep->context, item->request, &text);
    if (status) return status;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (is_wanted(sweep->options, line)) texts_add(&lines, line);
    }
    sweep->in_space += lines.count;
    bool *marked = calloc(lines.count + 1, sizeof(*marked));
    const char *strategy = sweep->options->strategy ? sweep->options->strategy : "";
    const bool all = !strcmp(strategy, "exhaustive"), random = !strcmp(strategy, "random");
    const size_t limit = all ? lines.count : (size_t)sweep->options->limit;
    if (marked && !random) mark_near(item, &lines, limit / 2, marked);
    if (marked) sample(&lines, limit, marked);
    for (size_t i = 0; i < lines.count && marked; i++) {
        if (marked[i]) add_candidate(sweep, item, lines.items[i], false);
    }
    free(marked);
    texts_free(&lines);
    vf_dev_text_free(text);
    return VF_OK;
}

// What is measured depends on the request alone.
static void copy_candidates(struct item *item, const struct item *from) {
    item->count = from->count;
    item->candidates = output_realloc(NULL, (from->count + 1) * sizeof(*from->candidates));
    for (size_t i = 0; i < from->count; i++) {
        item->candidates[i] = from->candidates[i];
        item->candidates[i].knobs = output_copy(from->candidates[i].knobs);
    }
}

static vf_status find_candidates(struct sweep *sweep, struct item *item) {
    vf_dev_list rows = {0};
    for (item->category = 0; item->category < sweep->item_count; item->category++) {
        const struct item *other = &sweep->items[item->category];
        if (strcmp(other->request, item->request) != 0) continue;
        copy_candidates(item, other);
        return VF_OK;
    }
    if (!vf_dev_candidates(sweep->context, item->request, &rows)) {
        for (size_t i = 0; i < rows.count; i++) add_candidate(sweep, item, rows.items[i], true);
    }
    vf_dev_list_free(&rows);
    return add_space(sweep, item);
}

// The problem by which its candidates are checked, as flags.
static vf_status describe_check(const struct problem *problem, struct item *item) {
    struct problem small;
    struct buf flags = {0};
    const vf_status status = tune_small_problem(problem, item->backward, &small);
    if (!status) problem_write_flags(&small, &flags);
    item->check = output_copy(buf_string(&flags));
    problem_free(&small);
    buf_free(&flags);
    return status;
}

double tune_average(const struct problem *problem, bool keys) {
    const double rows = (double)(keys ? problem->rows_k : problem->rows_q), batch = (double)problem->batch;
    if (!problem->batch) return 0;
    return (keys ? problem->batched_k : problem->batched_q) ? rows : rows / batch;
}

static vf_status add_item(struct sweep *sweep, size_t index, bool backward) {
    const struct options *options = sweep->options;
    const struct problem *problem = &sweep->list->items[index];
    struct item item = {.index = index, .backward = backward};
    vf_status status = command_request(sweep->context, options, problem, backward, options->arch, &item.request);
    if (status) return status;
    item.size = log2(fmax(tune_average(problem, false), 1)) + log2(fmax(tune_average(problem, true), 1));
    item.held_out =
        options->held_out && strcmp(options->held_out, "each") != 0 && strstr(problem->name, options->held_out);
    status = describe_check(problem, &item);
    if (!status) status = find_candidates(sweep, &item);
    if (!status) mark_served(sweep, &item);
    sweep->items = output_realloc(sweep->items, (sweep->item_count + 1) * sizeof(item));
    sweep->items[sweep->item_count++] = item;
    sweep->total += item.count;
    return status;
}

bool tune_wants_pass(const struct options *options, bool backward) {
    bool wanted = !options->pass.count;
    for (size_t i = 0; i < options->pass.count; i++)
        wanted |= strstr(options->pass.items[i], backward ? "bwd" : "fwd") != NULL;
    return wanted;
}

int tune_make_items(struct sweep *sweep) {
    char label[COMMAND_LABEL];
    for (size_t i = 0; i < sweep->list->count; i++) {
        const struct problem *problem = &sweep->list->items[i];
        for (int backward = 0; backward <= 1; backward++) {
            if (!tune_wants_pass(sweep->options, backward) || (backward && !problem->backward)) continue;
            const vf_status status = add_item(sweep, i, backward);
            if (!status) continue;
            output_error("%s: %s", command_label(problem, label), vf_last_error());
            if (!sweep->code) sweep->code = options_code(status);
        }
    }
    if (sweep->item_count && sweep->options->set.count && !sweep->in_space) {
        char *set = command_set(sweep->options);
        output_error("tune: no candidate has %s (--set); --dry-run without it prints what they have", set);
        free(set);
        return CODE_USAGE;
    }
    tune_order(sweep);
    if (sweep->item_count) return CODE_OK;
    if (!sweep->code) output_error("tune: there is nothing to tune");
    return sweep->code ? sweep->code : CODE_USAGE;
}
