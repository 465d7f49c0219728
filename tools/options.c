// options.c - the tables of verbs, options and exit codes, and what is derived from them. A problem's own options are rows of
// problem_options (tools/lib), which join the table here; what their values mean is not known in this file.
#include "options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"

const struct options_driver *options_driver;

enum verb_bit {
    SHOW = 1,
    RUN = 2,
    CHECK = 4,
    BENCH = 8,
    EXPLAIN = 16,
    BUILD = 32,
    BUNDLE = 64,
    CACHE = 128,
    INFO = 256,
    ALL = 511,
    LIBRARY = ALL & ~(BUNDLE | CACHE)  // what opens a context
};

// ORDER verbs: verb_bit.
static const struct verb verbs[] = {
    {"show", "KERNEL [PROBLEM]|--spec SPEC",
     "print a generated kernel: its CUDA text, PTX, budget or the compiler's report",
     "KERNEL is fwd, bwd, or one kernel of a variant by name: schedule, bwd_pre, bwd_post, ... Without --arch: sm_80.\n"
     "Lengths need not be given: they decide the row, and with it the knobs, where rows differ by length.",
     verb_show},
    {"run", "--in FILE --out FILE", "compute attention on the tensors of a .safetensors file",
     "Reads q k v, cu_seqlens_q and cu_seqlens_k (without them: batched tensors), and, where present, seqused_q,\n"
     "seqused_k and, with --backward, dout; writes o and lse, with --backward dq, dk and dv as well.",
     verb_run},
    {"check", "PROBLEM...|--suite NAME", "compare every kernel that can serve a problem with a float64 oracle",
     "One line for each problem and variant: the largest error as a share of what is allowed, and the verdict. A "
     "failure\n"
     "names the first wrong element and prints the command that replays it.",
     verb_check},
    {"bench", "PROBLEM...|--suite NAME|--compare FILE FILE", "time problems: median, spread, TFLOP/s, GB/s",
     "Sustained: an equally long warm-up runs back to back with the measured calls. TFLOP/s count visible pairs only\n"
     "(4 * pairs * heads * dim forward, 2.5 times that backward); GB/s count every tensor once.",
     verb_bench},
    {"explain", "PROBLEM", "say which row and which variant serve a problem, or every constraint it fails",
     "Needs no device when --arch is given.", verb_explain},
    {"build", "[PROBLEM...|--suite NAME|--spec SPEC|--specs FILE]",
     "compile kernels ahead of time, into the cache or into a bundle",
     "Without a problem or a spec, the kernels of every combination of --pass, --head-dim, --dtype and --mask. A "
     "bundle\n"
     "serves a process that has neither NVRTC nor a cache (VARFLASH_BUNDLES, vf_options.bundles); the same versions "
     "build\n"
     "it byte for byte again. Needs no device when --arch is given. A request in a file of specs may leave out arch=.",
     verb_build},
    {"bundle", "list|verify|diff|extract FILE...", "look into bundles of kernels",
     "list prints its kernels, --json its manifest; verify reads everything and exits with 1 if something is wrong; "
     "diff\n"
     "exits with 1 if two bundles differ; extract writes images into --output FOLDER.",
     verb_bundle},
    {"cache", "list|verify|prune|clear|path", "look after the folder of compiled kernels",
     "verify names damaged entries and exits with 1 if there are any: they are rebuilt when they are needed. prune "
     "removes\n"
     "what exceeds --max-size or was not used for --max-age; clear removes every entry. Processes may go on meanwhile.",
     verb_cache},
    {"info", "", "print versions, devices, NVRTC, cache and environment, and what is missing",
     "Nothing is an error here: what is missing is described, with what to do about it.", verb_info},
};
enum { VERBS = sizeof(verbs) / sizeof(*verbs) };

// ORDER exit_codes
static const struct {
    enum exit_code code;
    const char *meaning;
} exit_codes[] = {
    {CODE_OK, "done"},
    {CODE_CHECK_FAILED, "check: a result was wrong"},
    {CODE_USAGE, "the command line, or the problem it describes, is wrong"},
    {CODE_UNSUPPORTED, "valid, but no kernel can do it (explain says why)"},
    {CODE_NO_DEVICE, "no CUDA driver or device"},
    {CODE_COMPILE, "a kernel could not be generated or compiled, or NVRTC is missing"},
    {CODE_FILE, "a file could not be read or written, or is malformed"},
    {CODE_FAILURE, "the driver failed, memory ran out, or a fault of varflash"},
    {CODE_INTERRUPTED, "interrupted"},
};

enum group { GROUP_PROBLEM, GROUP_VERB, GROUP_WHERE, GROUP_COMMON };
static const char *const group_titles[] = {"The problem", "This verb", "Where it runs", "Always"};

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

#define FIELD(name) offsetof(struct options, name)

static const struct option own_options[] = {
    {"pass", "P,...", LIST, GROUP_VERB, BUILD, 0, FIELD(pass), "fwd, bwd (both)"},
    {"head-dim", "D[/DV],...", LIST, GROUP_VERB, BUILD, 0, FIELD(head_dim),
     "of q and k, and of v where it differs (64,96,128,192/128,256)"},
    {"dtype", "T,...", LIST, GROUP_VERB, BUILD, 0, FIELD(dtype), "fp16, bf16 (both)"},
    {"mask", "M,...", LIST, GROUP_VERB, BUILD, 0, FIELD(mask), "full, causal, window (full,causal)"},
    {"features", "F,...", LIST, GROUP_VERB, BUILD, 0, FIELD(features),
     "softcap, unaligned, deterministic: each with and without"},
    {"specs", "FILE", TEXT, GROUP_VERB, BUILD, 0, FIELD(specs), "requests, variants or kernels, one spec a line"},
    {"output", "FILE", TEXT, GROUP_VERB, BUILD | BUNDLE, 'o', FIELD(output), "what is written: a bundle, a folder"},
    {"emit", "FORM", TEXT, GROUP_VERB, BUILD, 0, FIELD(emit),
     "bundle, or object: an object file and a header to link into a program (bundle)"},
    {"dry-run", NULL, SWITCH, GROUP_VERB, BUILD, 0, FIELD(dry_run), "print what would be compiled"},
    {"max-size", "MB", COUNT, GROUP_VERB, CACHE, 0, FIELD(max_size), "prune: megabytes that entries may take"},
    {"max-age", "DAYS", COUNT, GROUP_VERB, CACHE, 0, FIELD(max_age), "prune: days that an entry may be unused"},
    {"spec", "SPEC", TEXT, GROUP_VERB, SHOW | BUILD, 0, FIELD(spec),
     "the kernel by its spec, as generated files name it"},
    {"budget", NULL, SWITCH, GROUP_VERB, SHOW, 0, FIELD(budget), "print threads, shared memory, registers"},
    {"ptx", NULL, SWITCH, GROUP_VERB, SHOW, 0, FIELD(ptx), "print PTX (needs NVRTC)"},
    {"log", NULL, SWITCH, GROUP_VERB, SHOW, 0, FIELD(log), "print the compiler's report with its spills (needs NVRTC)"},
    {"cubin", "FILE", TEXT, GROUP_VERB, SHOW, 0, FIELD(cubin), "write the compiled kernel to FILE (needs NVRTC)"},
    {"lines", NULL, SWITCH, GROUP_VERB, SHOW, 0, FIELD(lines), "keep #line directives that name the templates"},
    {"set", "KNOB=N", LIST, GROUP_VERB, SHOW | CHECK | BENCH, 0, FIELD(set),
     "override a knob of the row; may be repeated"},
    {"in", "FILE", TEXT, GROUP_VERB, RUN, 0, FIELD(in), "the .safetensors file to read"},
    {"out", "FILE", TEXT, GROUP_VERB, RUN, 0, FIELD(out), "the .safetensors file to write"},
    {"suite", "NAME", TEXT, GROUP_VERB, CHECK | BENCH | BUILD, 0, FIELD(suite),
     "a named list of problems; 'list' prints the names"},
    {"filter", "TEXT", TEXT, GROUP_VERB, CHECK | BENCH | BUILD | BUNDLE | CACHE, 0, FIELD(filter),
     "only what has TEXT in its name or spec"},
    {"repeat", "N", COUNT, GROUP_VERB, CHECK, 0, FIELD(repeat),
     "run each variant N times and compare bits; the backward unless it is deterministic excepted"},
    {"contiguous", NULL, SWITCH, GROUP_VERB, CHECK, 0, FIELD(contiguous),
     "the same values without strides of their own must give the same bits"},
    {"spoil", NULL, SWITCH, GROUP_VERB, CHECK, 0, FIELD(spoil),
     "a NaN in one live token must change nothing outside its sequence and head"},
    {"served", NULL, SWITCH, GROUP_VERB, CHECK, 0, FIELD(served), "only the variant that a call would get"},
    {"checked", NULL, SWITCH, GROUP_VERB, CHECK, 0, FIELD(checked), "calls run in checked mode"},
    {"invariance", NULL, SWITCH, GROUP_VERB, CHECK, 0, FIELD(invariance),
     "run each sequence alone as well: its rows must have the same bits"},
    {"precompile", NULL, SWITCH, GROUP_VERB, CHECK, 0, FIELD(precompile),
     "first compile all kernels in parallel processes, timed apart"},
    {"jobs", "N", COUNT, GROUP_VERB, CHECK | BUILD, 'j', FIELD(jobs), "processes that compile (all cores)"},
    {"worker", NULL, SWITCH, GROUP_VERB, CHECK | BUILD, 0, FIELD(worker), NULL},  // one of these
    {"first", NULL, SWITCH, GROUP_VERB, CHECK, 0, FIELD(first), "stop at the first problem that is not right"},
    {"resume", "N", COUNT, GROUP_VERB, CHECK, 0, FIELD(resume), "start with problem N of the list, counted from 1"},
    {"duration", "S", SECONDS, GROUP_VERB, BENCH, 0, FIELD(duration), "seconds of measuring for each pass (0.25)"},
    {"report", "FILE", TEXT, GROUP_VERB, BENCH, 0, FIELD(report), "write a page of plots: one HTML file"},
    {"compare", "FILE", TEXT, GROUP_VERB, BENCH, 0, FIELD(compare),
     "compare FILE with a newer one, both of --json: ratios of times, exit code 1 if one is above 1.03"},
    {"host", NULL, SWITCH, GROUP_VERB, BENCH, 0, FIELD(host),
     "measure what a call costs the host: vf_forward, a plan, and bare launches of the same kernels"},
    {"arch", "ARCH", TEXT, GROUP_WHERE, SHOW | EXPLAIN | BUILD, 0, FIELD(arch),
     "sm_80, sm_90a, ... (build: with commas between them): needs no device"},
    {"backend", "B", BACKEND, GROUP_WHERE, RUN | CHECK | BENCH | EXPLAIN, 0, FIELD(backend),
     "auto, cuda or cpu (auto)"},
    {"device", "N", COUNT, GROUP_WHERE, RUN | CHECK | BENCH | EXPLAIN | BUILD, 0, FIELD(device),
     "CUDA device, counted from 0 (0)"},
    {"threads", "N", COUNT, GROUP_WHERE, RUN | CHECK | BENCH, 0, FIELD(threads), "of the CPU backend (all cores)"},
    {"config", "FILE", TEXT, GROUP_WHERE, LIBRARY, 0, FIELD(config),
     "rows that come before all others (VARFLASH_CONFIG)"},
    {"cache-dir", "DIR", TEXT, GROUP_WHERE, ALL & ~BUNDLE, 0, FIELD(cache_dir),
     "of compiled kernels (VARFLASH_CACHE_DIR)"},
    {"json", NULL, SWITCH, GROUP_COMMON, ALL, 0, FIELD(json), "JSON on stdout"},
    {"quiet", NULL, SWITCH, GROUP_COMMON, ALL, 'q', FIELD(quiet), "only errors on stderr"},
    {"verbose", NULL, SWITCH, GROUP_COMMON, ALL, 'v', FIELD(verbose), "the library's log on stderr"},
    {"help", NULL, SWITCH, GROUP_COMMON, ALL, 'h', FIELD(help), "this page"},
    {"version", NULL, SWITCH, GROUP_COMMON, ALL, 0, FIELD(version), "version of varflash, NVRTC and driver"},
};
enum { OWN_OPTIONS = sizeof(own_options) / sizeof(*own_options) };

// Of a problem's options, those that `run` has: the tensors say the rest.
static const char *const run_options[] = {"causal", "window", "scale", "softcap", "deterministic", "backward", "fill"};

static size_t option_count(void) {
    return OWN_OPTIONS + problem_option_count;
}

// The table as one: the problem's options, then the command's own.
static struct option option_at(size_t index) {
    if (index >= problem_option_count) return own_options[index - problem_option_count];
    const struct problem_option *row = &problem_options[index];
    unsigned at = SHOW | CHECK | BENCH | EXPLAIN;
    for (size_t i = 0; i < sizeof(run_options) / sizeof(*run_options); i++)
        if (!strcmp(run_options[i], row->name)) at |= RUN;
    return (struct option){row->name, row->argument, PROBLEM, GROUP_PROBLEM, at, 0, 0, row->help};
}

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
    if (strncmp(wanted, word, strlen(wanted)) == 0) edits = 1;
    if (edits < *nearest && 3 * edits <= strlen(word) + 2) *best = word, *nearest = edits;
}

static unsigned verb_bits(const struct verb *verb) {
    return 1u << (verb - verbs);
}

// Of two options with one name, the verb's: build has lists where a problem has one value.
static bool find_option(const struct verb *verb, const char *name, size_t length, struct option *option) {
    bool found = false;
    for (size_t i = 0; i < option_count() && !(found && (option->verbs & verb_bits(verb))); i++) {
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
    for (size_t i = 0; i < VERBS; i++) {
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
        if (option.help && (option.verbs & verb_bits(verb))) suggest(name, option.name, &best, &nearest);
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
    struct option option;
    bool found = false;
    if (word[1] == '-') {
        const char *name = word + 2;
        value = strchr(name, '=');
        found = find_option(verb, name, value ? (size_t)(value++ - name) : strlen(name), &option);
    } else if (!word[2]) {
        found = find_letter(word[1], &option);
    }
    if (!found) return unknown_option(verb, word);
    if (!(option.verbs & verb_bits(verb))) {
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
    *options = (struct options){
        .duration = 0.25, .repeat = 1, .resume = 1, .max_size = -1, .max_age = -1, .argc = argc, .argv = argv};
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
        for (size_t i = 0; i < VERBS; i++) fprintf(file, "  %-9s %s\n", verbs[i].name, verbs[i].summary);
        fputs("\n'varflash VERB --help' tells the rest; 'varflash --version' the versions.\n\nExit codes:\n", file);
        for (size_t i = 0; i < sizeof(exit_codes) / sizeof(*exit_codes); i++)
            fprintf(file, "  %3d  %s\n", exit_codes[i].code, exit_codes[i].meaning);
        return;
    }
    fprintf(file, "Usage: varflash %s %s%s[options]\n\nvarflash %s: %s.\n\n%s\n", verb->name, verb->arguments,
            *verb->arguments ? " " : "", verb->name, verb->summary, verb->text);
    for (enum group group = GROUP_PROBLEM; group <= GROUP_COMMON; group++) {
        bool titled = false;
        for (size_t i = 0; i < option_count(); i++) {
            const struct option option = option_at(i);
            if (!option.help || option.group != group || !(option.verbs & verb_bits(verb))) continue;
            if (!titled) fprintf(file, "\n%s\n", group_titles[group]);
            titled = true;
            help_option(file, &option);
        }
    }
}
