// tune.h - what the parts of `varflash tune` share: the sweep (tune.c), the process that measures (tune_child.c), what is made of
// the records (tune_results.c).
#ifndef VF_TUNE_H
#define VF_TUNE_H

#include <cjson/cJSON.h>

#include "buf.h"
#include "options.h"
#include "problem.h"

// A process of the sweep: compiles a kernel (its spec), or is told what to measure:
//     problem INDEX DEVICE               of the command line's problems; device -1: the options' own
//     verify PASS all|some KNOBS         answers nothing, or what is wrong: with all of a small result, or with samples
//     time PASS SECONDS ROUNDS MS KNOBS|KNOBS...   answers a line for each: its times in milliseconds, interleaved with the others'; ROUNDS
//                                        at most, SECONDS if they fit, and one time alone for who takes longer than MS
int tune_worker(const struct options *options, const struct problem_list *list);

// A problem of the same request with lengths that the oracle has done in a moment: short, long, one, uneven.
vf_status tune_small_problem(const struct problem *problem, bool backward, struct problem *small);

// What became of a candidate. ORDER tune_states: tune_state_names, the words of the T4 format for what is not valid.
enum tune_state { TUNE_NEW, TUNE_CORRECT, TUNE_COMPILE, TUNE_RUNTIME, TUNE_TIMEOUT, TUNE_CORRECTNESS, TUNE_STATES };
extern const char *const tune_state_names[TUNE_STATES];

void tune_write_command(const struct options *options, struct buf *command);

// A record is a JSON object, a line of the journal: one candidate of a pass of a problem. A later record of the same candidate
// replaces an earlier one.
#define TUNE_JOURNAL ".journal"
int tune_read_journal(const char *path, cJSON *records);

// The records that no later one replaces, found by what they are about. It points into them.
struct tune_entry;
struct tune_index {
    struct tune_entry *list;
    size_t count;
};
struct tune_index tune_index_make(const cJSON *records);
const cJSON *tune_index_find(const struct tune_index *index, const char *problem, const char *pass, const char *knobs);
void tune_index_free(struct tune_index *index);

// Writes the rows that the records propose, and beside them FILE.t4.json. With a report: the page. 0 or an exit code.
int tune_write_results(const struct options *options, const cJSON *records);

#endif
