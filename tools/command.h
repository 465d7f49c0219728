// command.h - what the verbs share: a context as the options want it, problems as the command line names them, interruption.
#ifndef VF_COMMAND_H
#define VF_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

#include "options.h"
#include "problem.h"
#include "varflash/varflash.h"

// Call first: makes an interrupt a flag instead of an end.
void command_begin(void);

// True once the user has pressed Ctrl-C. Sweeps stop at the next problem; a second Ctrl-C ends the process.
bool command_interrupted(void);

// Prints vf_last_error and returns the exit code of `status`, which is that of the call that failed last.
int command_failed(vf_status status);

// What the options say to vf_open; command_open calls it. 0 or an exit code, after a message.
vf_options command_library_options(const struct options *options);
int command_open(const struct options *options, vf_context **context);

// "0.1.0" of the library; "13.0" of 13000, "" of 0. Return `text`.
#define COMMAND_VERSION 32
const char *command_version(char text[COMMAND_VERSION]);
const char *command_cuda_version(char text[COMMAND_VERSION], int version);

// The problems that the command line names: JSON files or a suite, which further options may change, or options alone.
// 0 or an exit code, after a message. The caller frees with problem_list_free what a success returned.
int command_problems(const struct options *options, struct problem_list *list);

// The same where exactly one is wanted; `lengths` (null: none) stand in for --seqlens-q that is not given.
int command_one_problem(const struct options *options, const char *lengths, struct problem *problem);

// The name of a problem, or in few words what it is: "b3 h8/2 d64 bf16 causal".
#define COMMAND_LABEL 96
const char *command_label(const struct problem *problem, char text[COMMAND_LABEL]);

// Prints the names of suites: --suite list.
int command_list_suites(const struct options *options);

// Refuses arguments for verbs that take none.
int command_no_arguments(const struct options *options);

// A pass of a problem as a call whose data leads nowhere, on the options' device: for questions. One member is filled.
struct command_call {
    vf_forward_args forward;
    vf_backward_args backward;
};
vf_status command_describe(vf_context *context, const struct options *options, const struct problem *problem,
                           bool backward, struct command_call *call);

// Its request, for `arch` (null: of the device); freed with vf_dev_text_free.
vf_status command_request(vf_context *context, const struct options *options, const struct problem *problem,
                          bool backward, const char *arch, char **request);

// Refuses a word of a list option ("a,b", given several times) that is none of `known` ("x,y,z"). 0 or an exit code, after a message.
int command_known_words(const struct options *options, const char *name, const struct text_list *list,
                        const char *known);

// The --set options as one text, or null; the caller frees it.
char *command_set(const struct options *options);

// Whether command_write_file can work (null: there is nothing to write): asked before long work. 0 or an exit code, after a message.
int command_can_write(const char *path);
// Whoever has the old file open or mapped keeps it: the new one takes its place as a whole.
int command_write_file(const char *path, const void *data, size_t size);

#endif
