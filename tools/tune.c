// tune.c - `varflash tune`: reads the options, runs the sweep, writes what comes of it.
#include "tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "output.h"
#include "tune_items.h"
#include "tune_sweep.h"
#include "varflash/varflash_dev.h"

static int read_budget(const char *text, double *seconds) {
    char *end = NULL;
    *seconds = text ? strtod(text, &end) : 0;
    const char *unit = text ? end : "";
    *seconds *= !strcmp(unit, "h") ? 3600 : !strcmp(unit, "m") ? 60 : 1;
    if (!text || (end != text && *seconds > 0 && strlen(unit) <= 1 && strspn(unit, "hms") == strlen(unit)))
        return CODE_OK;
    output_error("tune: --budget is '%s', not a time such as 90s, 10m, 1h", text);
    return CODE_USAGE;
}

static void print_json(const struct item *item, const struct candidate *candidate) {
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "request", item->request);
    cJSON_AddStringToObject(json, "knobs", candidate->knobs);
    cJSON_AddBoolToObject(json, "row", candidate->row);
    cJSON_AddBoolToObject(json, "served", candidate->served);
    output_json(json, true);
}

static void print_plan(const struct sweep *sweep) {
    for (size_t i = 0; i < sweep->item_count; i++) {
        const struct item *item = &sweep->items[i];
        for (size_t k = 0; k < item->count; k++) {
            const struct candidate *candidate = &item->candidates[k];
            if (sweep->options->json)
                print_json(item, candidate);
            else
                printf("%s %s%s\n", item->request, candidate->knobs,
                       candidate->served ? "  (served now)"
                       : candidate->row  ? "  (a row)"
                                         : "");
        }
    }
    output_note("%zu candidates for %zu passes of problems, %zu kernels", sweep->total, sweep->item_count,
                sweep->kernels.count);
}

static void free_sweep(struct sweep *sweep) {
    for (size_t i = 0; i < sweep->item_count; i++) {
        struct item *item = &sweep->items[i];
        for (size_t k = 0; k < item->count; k++) {
            free(item->candidates[k].knobs);
            free(item->candidates[k].reason);
            free(item->candidates[k].times);
        }
        free(item->candidates);
        free(item->check);
        free(item->row);
        vf_dev_text_free(item->request);
    }
    for (size_t i = 0; i < sweep->kernels.count && sweep->sentences; i++) free(sweep->sentences[i]);
    free(sweep->sentences);
    free(sweep->codes);
    free(sweep->items);
    texts_free(&sweep->kernels);
    cJSON_Delete(sweep->records);
    if (sweep->journal) fclose(sweep->journal);
    pthread_cond_destroy(&sweep->compiled);
    pthread_mutex_destroy(&sweep->lock);
}

// As a shell reads it.
static void write_word(const char *word, struct buf *command) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
    if (*word && !word[strspn(word, plain)]) {
        buf_text(command, word);
        return;
    }
    buf_text(command, "'");
    for (; *word; word++) buf_printf(command, *word == '\'' ? "'\\%c'" : "%c", *word);
    buf_text(command, "'");
}

void tune_write_command(const struct options *options, struct buf *command) {
    buf_text(command, "varflash");
    for (int i = 1; i < options->argc; i++) {
        buf_text(command, " ");
        write_word(options->argv[i], command);
    }
}

static void print_resume(const struct options *options, const char *why) {
    struct buf command = {0};
    tune_write_command(options, &command);
    output_error("%s; this goes on: %s%s", why, buf_string(&command), options->go_on ? "" : " --resume");
    buf_free(&command);
}

static int tune(struct sweep *sweep) {
    const struct options *options = sweep->options;
    sweep->start = output_seconds();
    int code = read_budget(options->time_budget, &sweep->budget);
    if (!code) code = tune_make_items(sweep);
    if (code || options->dry_run) {
        if (!code) print_plan(sweep);
        return code;
    }
    code = tune_read_devices(sweep);
    if (!code) code = command_can_write(options->output);
    if (!code) code = command_can_write(options->report);
    if (code) return code;
    sweep->codes = output_realloc(NULL, (sweep->kernels.count + 1) * sizeof(*sweep->codes));
    sweep->sentences = calloc(sweep->kernels.count + 1, sizeof(*sweep->sentences));
    for (size_t i = 0; i < sweep->kernels.count; i++) sweep->codes[i] = -1;
    code = tune_open_journal(sweep);
    if (code) return code;
    tune_recall(sweep);
    tune_measure(sweep);
    output_note("devices waited %.1f s for compilers", sweep->waited);
    code = tune_write_results(options, sweep->records);
    if (command_interrupted()) {
        print_resume(options, "interrupted");
        return CODE_INTERRUPTED;
    }
    if (sweep->left) print_resume(options, "the budget is used up");
    return sweep->code ? sweep->code : code;
}

// Rows are for one device: times of two are not compared.
static int check_one_device(const cJSON *records) {
    const char *first = NULL;
    for (const cJSON *record = output_first(records); record; record = record->next) {
        const char *name = tune_text(tune_where(record), "device");
        if (!first) first = name;
        if (!strcmp(first, name)) continue;
        output_error("tune: --merge: there are records of '%s' and of '%s'; rows are for one device", first, name);
        return CODE_USAGE;
    }
    return CODE_OK;
}

// --pass says it for all problems, in this process and in those that measure.
static void choose_passes(const struct options *options, struct problem *problem) {
    if (options->pass.count) problem->backward = tune_wants_pass(options, true);
}

int verb_tune(const struct options *options) {
    static const char *const strategies[] = {"halving", "exhaustive", "random"};
    bool known = !options->strategy;
    struct problem_list list = {0};
    if (options->suite && !strcmp(options->suite, "list")) return command_list_suites(options);
    for (size_t i = 0; i < 3 && options->strategy; i++) known |= !strcmp(options->strategy, strategies[i]);
    if (options->arch && !options->dry_run) {
        output_error("tune: --arch is for --dry-run: what is measured is measured on a device");
        return CODE_USAGE;
    }
    if (!known || (!options->output && !options->dry_run && !options->worker)) {
        output_error(
            known ? "tune: --output FILE is needed" : "tune: --strategy is '%s', not halving, exhaustive or random",
            options->strategy);
        return CODE_USAGE;
    }
    struct sweep sweep = {.options = options, .list = &list, .records = cJSON_CreateArray()};
    pthread_mutex_init(&sweep.lock, NULL);
    pthread_cond_init(&sweep.compiled, NULL);
    int code = CODE_OK;
    if (options->merge) {
        code = tune_read_journal(options->merge, sweep.records);
        for (size_t i = 0; i < options->arguments.count && !code; i++)
            code = tune_read_journal(options->arguments.items[i], sweep.records);
        if (!code) code = check_one_device(sweep.records);
        if (!code) code = tune_write_results(options, sweep.records);
        free_sweep(&sweep);
        return code;
    }
    code = command_known_words(options, "pass", &options->pass, "fwd,bwd");
    if (!code) code = command_problems(options, &list);
    for (size_t i = 0; i < list.count && !code; i++) choose_passes(options, &list.items[i]);
    if (code) {
        free_sweep(&sweep);
        return code;
    }
    if (options->worker) {
        code = tune_worker(options, &list);
    } else {
        code = command_open(options, &sweep.context);
        const bool asked = options->dry_run && options->arch;
        if (!code && vf_context_backend(sweep.context) == VF_BACKEND_CPU && !asked) {
            output_error("tune: needs a CUDA device: the CPU backend has no variants");
            code = CODE_NO_DEVICE;
        }
        if (!code) code = tune(&sweep);
        vf_close(sweep.context);
    }
    free_sweep(&sweep);
    problem_list_free(&list);
    return code;
}
