// options.h - verbs, options, exit codes: THE tables. Parsing, --help, suggestions, man pages and completions come from them.
//
// An option means the same in every verb that has it. Invariant: after options_parse every field holds a value that its
// option allows, so that verbs check relations between options and nothing else.
#ifndef VF_OPTIONS_H
#define VF_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "problem.h"
#include "varflash/varflash.h"

// Stable. ORDER exit_codes: exit_codes of options_table.c has their meanings.
enum exit_code {
    CODE_OK = 0,
    CODE_CHECK_FAILED = 1,
    CODE_USAGE = 2,
    CODE_UNSUPPORTED = 3,
    CODE_NO_DEVICE = 4,
    CODE_COMPILE = 5,
    CODE_FILE = 6,
    CODE_FAILURE = 7,
    CODE_INTERRUPTED = 130
};

struct text_list {
    size_t count;
    const char **items;  // point into argv
};

struct options {
    int argc;
    char **argv;
    const struct verb *verb;  // null: help, version or a usage fault
    bool help, version, json, quiet, verbose;
    struct text_list arguments;  // what is neither an option nor its value
    struct text_list problem;    // options that describe a problem: name and value (null for a switch) in turn
    // kernels
    const char *arch, *spec, *cubin;
    struct text_list set;
    // build
    struct text_list pass, head_dim, dtype, mask, features;
    const char *specs, *output, *emit;
    bool dry_run, worker;
    // tune
    const char *strategy, *time_budget, *devices, *merge, *held_out, *rows;
    int64_t limit;
    double timeout;
    bool go_on;
    // cache
    int64_t max_size, max_age;  // -1: not given
    bool budget, ptx, log, lines;
    // where it runs
    vf_backend backend;
    const char *driver;  // --backend of options_driver, settings included; null: the machine's own
    int64_t device, threads;
    const char *cache_dir, *config;
    // run
    const char *in, *out;
    // check and bench
    const char *suite, *filter;
    int64_t repeat, jobs, resume;
    double duration;
    const char *report, *compare;  // bench
    bool first, invariance, contiguous, spoil, checked, served, precompile, host;
};

// A driver that a program brings along by linking it: the simulator. --backend NAME or NAME:SETTINGS opens it.
struct options_driver {
    const char *name;
    vf_status (*open)(const char *settings, const vf_options *options, vf_context **context);  // settings: "" if none
};
extern const struct options_driver *options_driver;  // null in the command

struct verb {
    const char *name, *arguments;  // "check", "PROBLEM... | --suite NAME"
    const char *summary;           // one line
    const char *text;              // the rest of --help
    int (*run)(const struct options *options);
};

// Reads the command line. 0, or CODE_USAGE after one sentence on stderr.
int options_parse(int argc, char **argv, struct options *options);
void options_free(struct options *options);

void options_help(FILE *file, const struct verb *verb);  // null: of the command
// The exit code that tells of a status.
int options_code(vf_status status);

int verb_show(const struct options *options);
int verb_run(const struct options *options);
int verb_check(const struct options *options);
int verb_bench(const struct options *options);
int verb_explain(const struct options *options);
int verb_info(const struct options *options);
int verb_build(const struct options *options);
int verb_bundle(const struct options *options);
int verb_cache(const struct options *options);
int verb_tune(const struct options *options);
int verb_pages(const struct options *options);

#endif
