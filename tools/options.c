// options.c - reading the command line by the tables of options_table.c, --help, suggestions.
#include "options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "options_table.h"
#include "output.h"

const struct options_driver *options_driver;

// ---- looking up ------------------------------------------------------------------------------------------------------

// Edits (insert, delete, replace) that turn one word into the other, or 99 where a word is too long for this.
static size_t distance(const char *a, const char *b) {
    size_t row[32], length = strlen(b);
    if (length >= 32) return 99;
    for (size_t j = 0; j <= length; j++) row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= length; j++) {
            size_t replace = diagonal + (a[i - 1] != b[j - 1]), best = replace;
            diagonal = row[j];
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[length];
}

// Keeps the nearer of `best` and `word`; a word further off than a third of it is no suggestion.
static void suggest(const char *wanted, const char *word, const char **best, size_t *nearest) {
    size_t edits = distance(wanted, word);
    if (strncmp(wanted, word, strlen(wanted)) == 0) edits = 0;
    if (edits < *nearest && 3 * edits <= strlen(word) + 2) *best = word, *nearest = edits;
}

// Of two options with one name, the verb's: build has lists where a problem has one value.
static bool find_option(const struct verb *verb, const char *name, size_t length, struct option *option) {
    bool found = false;
    for (size_t i = 0; i < option_count() && !(found && option_belongs(option, verb)); i++) {
        const struct option row = option_at(i);
        if (strlen(row.name) != length || memcmp(row.name, name, length) != 0) continue;
        *option = row;
        found = true;
    }
    return found;
}

static bool find_letter(char letter, struct option *option) {
    for (size_t i = 0; i < option_count(); i++) {
        *option = option_at(i);
        if (option->letter == letter) return true;
    }
    return false;
}

static const struct verb *find_verb(const char *name) {
    const char *best = NULL;
    size_t nearest = 99;
    for (size_t i = 0; i < verb_count; i++) {
        if (!strcmp(verbs[i].name, name)) return &verbs[i];
        suggest(name, verbs[i].name, &best, &nearest);
    }
    if (best)
        output_error("'%s' is not a verb; did you mean '%s'?", name, best);
    else
        output_error("'%s' is not a verb; 'varflash --help' lists them", name);
    return NULL;
}

static int unknown_option(const struct verb *verb, const char *word) {
    const char *name = word + strspn(word, "-");
    const char *best = NULL;
    size_t nearest = 99;
    for (size_t i = 0; i < option_count(); i++) {
        const struct option option = option_at(i);
        if (option.help && option_belongs(&option, verb)) suggest(name, option.name, &best, &nearest);
    }
    if (best)
        output_error("%s: %s is not an option; did you mean --%s?", verb->name, word, best);
    else
        output_error("%s: %s is not an option; 'varflash %s --help' lists them", verb->name, word, verb->name);
    return CODE_USAGE;
}

// ---- reading ---------------------------------------------------------------------------------------------------------

static void append(struct text_list *list, const char *item) {
    list->items = output_realloc(list->items, (list->count + 1) * sizeof(*list->items));
    list->items[list->count++] = item;
}

static const char *store_number(const char *text, int64_t *field) {
    char *end;
    errno = 0;
    *field = strtoimax(text, &end, 10);
    return errno || end == text || *end || *field < 0 || *field > INT32_MAX ? "must be a number from 0 to 2^31 - 1"
                                                                            : NULL;
}

static const char *store_seconds(const char *text, double *field) {
    char *end;
    *field = strtod(text, &end);
    return end == text || *end || !(*field > 0 && *field < 1e6) ? "must be a positive number of seconds" : NULL;
}

static const char *store_backend(const char *text, struct options *options) {
    static const char *const backends[] = {
        [VF_BACKEND_AUTO] = "auto", [VF_BACKEND_CUDA] = "cuda", [VF_BACKEND_CPU] = "cpu"};
    const size_t name = strcspn(text, ":");
    options->driver = NULL;
    if (options_driver && strlen(options_driver->name) == name && !memcmp(options_driver->name, text, name)) {
        options->backend = VF_BACKEND_CUDA;
        options->driver = text;
        return NULL;
    }
    for (options->backend = VF_BACKEND_AUTO; options->backend <= VF_BACKEND_CPU; ++options->backend)
        if (strcmp(backends[options->backend], text) == 0) return NULL;
    return "must be auto, cuda or cpu";
}

static void store_switch(const struct option *option, struct options *options) {
    if (option->kind == PROBLEM) {
        append(&options->problem, option->name);
        append(&options->problem, NULL);
    } else {
        *(bool *)((char *)options + option->field) = true;
    }
}

static int store(const struct verb *verb, const struct option *option, const char *text, struct options *options) {
    void *field = (char *)options + option->field;
    const char *allowed = NULL;
    switch (option->kind) {
        case SWITCH:
            break;
        case TEXT:
            *(const char **)field = text;
            if (!*text) allowed = "must not be empty";
            break;
        case COUNT:
            allowed = store_number(text, field);
            break;
        case SECONDS:
            allowed = store_seconds(text, field);
            break;
        case BACKEND:
            allowed = store_backend(text, options);
            break;
        case LIST:
            append(field, text);
            break;
        case PROBLEM:
            append(&options->problem, option->name);
            append(&options->problem, text);
            break;
    }
    if (!allowed) return CODE_OK;
    output_error("%s: --%s is '%s', but %s", verb->name, option->name, text, allowed);
    return CODE_USAGE;
}

// argv[*at] is an option; *at moves to the last argument it takes.
static int read_option(int argc, char **argv, int *at, struct options *options) {
    const struct verb *verb = options->verb;
    const char *word = argv[*at], *value = NULL;
    struct option option = {.name = NULL};
    bool found = false;
    if (word[1] == '-') {
        const char *name = word + 2;
        value = strchr(name, '=');
        found = find_option(verb, name, value ? (size_t)(value++ - name) : strlen(name), &option);
    } else if (!word[2]) {
        found = find_letter(word[1], &option);
    }
    if (!found) return unknown_option(verb, word);
    if (!option_belongs(&option, verb)) {
        output_error("%s: --%s is an option of other verbs only; 'varflash %s --help' lists what %s has", verb->name,
                     option.name, verb->name, verb->name);
        return CODE_USAGE;
    }
    if (!option.value && value) {
        output_error("%s: --%s takes no value", verb->name, option.name);
        return CODE_USAGE;
    }
    if (!option.value) {
        store_switch(&option, options);
        return CODE_OK;
    }
    if (!value) {
        if (*at + 1 >= argc) {
            output_error("%s: --%s needs a value: --%s %s", verb->name, option.name, option.name, option.value);
            return CODE_USAGE;
        }
        value = argv[++*at];  // whatever it begins with: --window -3,1
    }
    return store(verb, &option, value, options);
}

int options_parse(int argc, char **argv, struct options *options) {
    *options = (struct options){.duration = 0.25,
                                .repeat = 1,
                                .resume = 1,
                                .limit = 64,
                                .timeout = 60,
                                .max_size = -1,
                                .max_age = -1,
                                .argc = argc,
                                .argv = argv};
    if (argc < 2) {
        options_help(stderr, NULL);
        return CODE_USAGE;
    }
    // Before a verb there are only the two options that need none.
    options->help = !strcmp(argv[1], "-h") || !strcmp(argv[1], "--help");
    options->version = !strcmp(argv[1], "--version");
    if (options->help || options->version) {
        options->json = argc > 2 && !strcmp(argv[2], "--json");
        return CODE_OK;
    }
    options->verb = find_verb(argv[1]);
    if (!options->verb) return CODE_USAGE;

    bool end = false;
    for (int i = 2; i < argc; i++) {
        if (!end && !strcmp(argv[i], "--")) {
            end = true;
        } else if (!end && argv[i][0] == '-' && argv[i][1]) {
            int code = read_option(argc, argv, &i, options);
            if (code) return code;
        } else {
            append(&options->arguments, argv[i]);
        }
    }
    return CODE_OK;
}

void options_free(struct options *options) {
    free(options->arguments.items);
    free(options->problem.items);
    free(options->set.items);
    free(options->pass.items);
    free(options->head_dim.items);
    free(options->dtype.items);
    free(options->mask.items);
    free(options->features.items);
    *options = (struct options){0};
}

// ---- telling ---------------------------------------------------------------------------------------------------------

int options_code(vf_status status) {
    switch (status) {
        case VF_OK:
            return CODE_OK;
        case VF_ERROR_INVALID_ARGUMENT:
        case VF_ERROR_LENGTHS:
            return CODE_USAGE;
        case VF_ERROR_UNSUPPORTED:
            return CODE_UNSUPPORTED;
        case VF_ERROR_NO_DEVICE:
            return CODE_NO_DEVICE;
        case VF_ERROR_NO_COMPILER:
        case VF_ERROR_COMPILE:
            return CODE_COMPILE;
        case VF_ERROR_CONFIG:
        case VF_ERROR_IO:
            return CODE_FILE;
        default:
            return CODE_FAILURE;
    }
}

static void help_option(FILE *file, const struct option *option) {
    char left[64];
    int column =
        option->letter ? snprintf(left, sizeof(left), "-%c, ", option->letter) : snprintf(left, sizeof(left), "    ");
    snprintf(left + column, sizeof(left) - (size_t)column, "--%s%s%s", option->name, option->value ? " " : "",
             option->value ? option->value : "");
    fprintf(file, "  %-28s%s %s\n", left, strlen(left) > 27 ? "\n                              " : "", option->help);
}

void options_help(FILE *file, const struct verb *verb) {
    if (!verb) {
        fputs(
            "Usage: varflash VERB [options]\n\n"
            "Attention over batches of sequences of different lengths: generates, compiles, checks and times its "
            "kernels.\n\n",
            file);
        for (size_t i = 0; i < verb_count; i++) fprintf(file, "  %-9s %s\n", verbs[i].name, verbs[i].summary);
        fputs("\n'varflash VERB --help' tells the rest; 'varflash --version' the versions.\n\nExit codes:\n", file);
        for (size_t i = 0; i < exit_code_count; i++)
            fprintf(file, "  %3d  %s\n", exit_codes[i].code, exit_codes[i].meaning);
        return;
    }
    fprintf(file, "Usage: varflash %s %s%s[options]\n\nvarflash %s: %s.\n\n%s\n", verb->name, verb->arguments,
            *verb->arguments ? " " : "", verb->name, verb->summary, verb->text);
    for (enum group group = GROUP_PROBLEM; group <= GROUP_COMMON; group++) {
        bool titled = false;
        for (size_t i = 0; i < option_count(); i++) {
            const struct option option = option_at(i);
            if (!option.help || option.group != group || !option_belongs(&option, verb)) continue;
            if (!titled) fprintf(file, "\n%s\n", group_titles[group]);
            titled = true;
            help_option(file, &option);
        }
    }
}
