// command.c - what the verbs share. Invariant: a function that returns an exit code other than 0 has printed one sentence.
#include "command.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "fs.h"
#include "number.h"
#include "output.h"
#include "suite.h"
#include "tensors.h"
#include "varflash/varflash_dev.h"

// ---- interruption ----------------------------------------------------------------------------------------------------

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    interrupted = 1;
}

void command_begin(void) {
    const struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
}

bool command_interrupted(void) {
    return interrupted;
}

// ---- contexts --------------------------------------------------------------------------------------------------------

int command_failed(vf_status status) {
    output_error("%s", vf_last_error());
    return options_code(status);
}

const char *command_version(char text[COMMAND_VERSION]) {
    const int version = vf_version();
    snprintf(text, COMMAND_VERSION, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return text;
}

const char *command_cuda_version(char text[COMMAND_VERSION], int version) {
    *text = 0;
    if (version) snprintf(text, COMMAND_VERSION, "%d.%d", version / 1000, version % 1000 / 10);
    return text;
}

static void on_log(int level, const char *message, void *user) {
    (void)user;
    if (level <= 2)
        output_note("%s", message);
    else
        output_detail("%s", message);
}

vf_options command_library_options(const struct options *options) {
    return (vf_options){
        .struct_size = sizeof(vf_options),
        .backend = options->backend,
        .log = on_log,
        .log_level = options->verbose ? 4 : 0,
        .cpu_threads = (int)options->threads,
        .cache_dir = options->cache_dir,
        .config = options->config,
    };
}

int command_open(const struct options *options, vf_context **context) {
    const vf_options library = command_library_options(options);
    const char *settings = options->driver ? strchrnul(options->driver, ':') : NULL;
    const vf_status status =
        settings ? options_driver->open(settings + (*settings == ':'), &library, context) : vf_open(&library, context);
    return status ? command_failed(status) : CODE_OK;
}

int command_no_arguments(const struct options *options) {
    if (!options->arguments.count) return CODE_OK;
    output_error("%s: takes no argument, but got '%s'", options->verb->name, options->arguments.items[0]);
    return CODE_USAGE;
}

// ---- problems --------------------------------------------------------------------------------------------------------

// Sets the command line's problem options. `listed`: the problem comes from a file or a suite, and they change it.
static vf_status set_options(const struct options *options, bool listed, struct problem *problem) {
    if (listed) problem->given = 0;
    for (size_t i = 0; i < options->problem.count; i += 2) {
        const vf_status status = problem_set(problem, options->problem.items[i], options->problem.items[i + 1]);
        if (status) return status;
    }
    return problem_finish(problem);
}

static int read_files(const struct options *options, struct problem_list *list) {
    for (size_t i = 0; i < options->arguments.count; i++) {
        const char *path = options->arguments.items[i];
        struct buf text = {0};
        vf_status status = fs_read(path, &text);
        int code = status ? command_failed(status) : CODE_OK;
        if (!code && problem_from_json((const char *)text.data, text.size, list)) {
            output_error("%s: %s", path, vf_last_error());
            code = CODE_FILE;
        }
        buf_free(&text);
        if (code) return code;
    }
    return CODE_OK;
}

static bool starts(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

// The command line's options change every problem of the list but for its lengths.
static int change_all(const struct options *options, struct problem_list *list) {
    if (!options->problem.count) return CODE_OK;
    for (size_t i = 0; i < options->problem.count; i += 2) {
        const char *name = options->problem.items[i];
        if (!starts(name, "seqlens") && !starts(name, "seqused") && !starts(name, "rows")) continue;
        output_error("%s: --%s cannot be given together with a file or a suite, which have lengths of their own",
                     options->verb->name, name);
        return CODE_USAGE;
    }
    for (size_t i = 0; i < list->count; i++) {
        const vf_status status = set_options(options, true, &list->items[i]);
        if (status) return command_failed(status);
    }
    return CODE_OK;
}

static void filter(const char *text, struct problem_list *list) {
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        if (strstr(list->items[i].name, text))
            list->items[kept++] = list->items[i];
        else
            problem_free(&list->items[i]);
    }
    list->count = kept;
}

static int from_options(const struct options *options, const char *lengths, struct problem *problem) {
    problem_begin(problem);
    bool given = false;
    for (size_t i = 0; i < options->problem.count; i += 2) given |= !strcmp(options->problem.items[i], "seqlens-q");
    vf_status status = given || !lengths ? VF_OK : problem_set(problem, "seqlens-q", lengths);
    if (!status) status = set_options(options, false, problem);
    if (!status) return CODE_OK;
    problem_free(problem);
    return command_failed(status);
}

int command_problems(const struct options *options, struct problem_list *list) {
    int code = CODE_OK;
    *list = (struct problem_list){0};
    if (options->suite && options->arguments.count) {
        output_error("%s: --suite and problem files exclude each other", options->verb->name);
        return CODE_USAGE;
    }
    if (options->suite) {
        const vf_status status = suite_get(options->suite, list);
        code = status ? command_failed(status) : change_all(options, list);
    } else if (options->arguments.count) {
        code = read_files(options, list);
        if (!code) code = change_all(options, list);
    } else {
        struct problem problem;
        code = from_options(options, NULL, &problem);
        if (!code && problem_list_add(list, &problem)) code = command_failed(VF_ERROR_OUT_OF_MEMORY);
    }
    if (!code && options->filter) filter(options->filter, list);
    if (!code && !list->count) {
        output_error("%s: there is no problem%s%s", options->verb->name, options->filter ? " whose name contains " : "",
                     options->filter ? options->filter : "");
        code = CODE_USAGE;
    }
    if (code) problem_list_free(list);
    return code;
}

int command_one_problem(const struct options *options, const char *lengths, struct problem *problem) {
    if (!options->arguments.count) return from_options(options, lengths, problem);
    struct problem_list list;
    int code = command_problems(options, &list);
    if (code) return code;
    if (list.count == 1) {
        *problem = list.items[0];
        list.count = 0;
    } else {
        output_error("%s: takes one problem, but got %zu", options->verb->name, list.count);
        code = CODE_USAGE;
    }
    problem_list_free(&list);
    return code;
}

int command_list_suites(const struct options *options) {
    cJSON *json = cJSON_CreateArray();
    struct table table;
    table_open(&table, "ll");
    for (size_t i = 0; i < suite_info_count; i++) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "suite", suite_infos[i].name);
        cJSON_AddStringToObject(item, "meaning", suite_infos[i].meaning);
        cJSON_AddItemToArray(json, item);
        table_cell(&table, "%s", suite_infos[i].name);
        table_cell(&table, "%s", suite_infos[i].meaning);
    }
    if (options->json) {
        output_json(json, false);
    } else {
        table_print(&table);
        cJSON_Delete(json);
    }
    table_close(&table);
    return CODE_OK;
}

const char *command_label(const struct problem *problem, char text[COMMAND_LABEL]) {
    static const char *const masks[] = {"", " causal", " window"};
    if (*problem->name) return problem->name;
    snprintf(text, COMMAND_LABEL, "b%lld h%lld/%lld d%lld %s%s", (long long)problem->batch, (long long)problem->heads_q,
             (long long)problem->heads_k, (long long)problem->head_dim, number_name(problem->dtype),
             masks[problem->mask]);
    return text;
}

// ---- requests and knobs ----------------------------------------------------------------------------------------------

vf_status command_describe(vf_context *context, const struct options *options, const struct problem *problem,
                           bool backward, struct command_call *call) {
    const vf_status status = backward ? tensors_describe_backward(problem, &call->backward)
                                      : tensors_describe_forward(problem, &call->forward);
    vf_problem_args *args = backward ? &call->backward.problem : &call->forward.problem;
    // Data that leads nowhere cannot tell the device.
    if (!status && vf_context_backend(context) == VF_BACKEND_CUDA) args->device = (int)options->device + 1;
    return status;
}

vf_status command_request(vf_context *context, const struct options *options, const struct problem *problem,
                          bool backward, const char *arch, char **request) {
    struct command_call call;
    const vf_status status = command_describe(context, options, problem, backward, &call);
    if (status) return status;
    return backward ? vf_dev_request_backward(context, &call.backward, arch, request)
                    : vf_dev_request_forward(context, &call.forward, arch, request);
}

char *command_set(const struct options *options) {
    char *text = NULL;
    size_t length = 0;
    for (size_t i = 0; i < options->set.count; i++) {
        const char *item = options->set.items[i];
        text = output_realloc(text, length + strlen(item) + 2);
        length += (size_t)sprintf(text + length, "%s%s", i ? " " : "", item);
    }
    return text;
}

// Whether a list "x,y,z" has the word that `word` begins with.
static bool lists(const char *known, const char *word, size_t length) {
    for (; *known; known += strcspn(known, ","), known += *known == ',') {
        if (strcspn(known, ",") == length && !memcmp(known, word, length)) return true;
    }
    return false;
}

int command_known_words(const struct options *options, const char *name, const struct text_list *list,
                        const char *known) {
    for (size_t i = 0; i < list->count; i++) {
        const char *word = list->items[i];
        for (size_t length; *word; word += length + (word[length] == ',')) {
            length = strcspn(word, ",");
            if (!length || lists(known, word, length)) continue;
            output_error("%s: --%s: '%.*s' is none of %s", options->verb->name, name, (int)length, word, known);
            return CODE_USAGE;
        }
    }
    return CODE_OK;
}

int command_can_write(const char *path) {
    if (!path || !access(path, W_OK)) return CODE_OK;
    const char *name = strrchr(path, '/');
    char *folder = name ? strndup(path, name == path ? 1 : (size_t)(name - path)) : strdup(".");
    const bool good = errno == ENOENT && folder && !access(folder, W_OK | X_OK);
    if (!good) output_error("%s: %s", path, strerror(errno));
    free(folder);
    return good ? CODE_OK : CODE_FILE;
}

static bool write_all(const char *path, const void *data, size_t size) {
    FILE *file = fopen(path, "wb");
    bool good = file && fwrite(data, 1, size, file) == size;
    if (file && fclose(file)) good = false;
    return good;
}

int command_write_file(const char *path, const void *data, size_t size) {
    struct stat old;
    char *target = realpath(path, NULL), *temporary = NULL;          // behind a link
    const bool device = !stat(path, &old) && !S_ISREG(old.st_mode);  // a pipe, /dev/stdout
    bool good = asprintf(&temporary, "%s.%ld.tmp", target ? target : path, (long)getpid()) >= 0;
    if (good && device) good = write_all(path, data, size);
    if (good && !device) good = write_all(temporary, data, size) && !rename(temporary, target ? target : path);
    if (!good) {
        output_error("%s: %s", path, strerror(errno));
        if (temporary && !device) unlink(temporary);
    }
    free(temporary);
    free(target);
    return good ? CODE_OK : CODE_FILE;
}
