// bench.h - what `varflash bench` and its part for host costs share.
#ifndef VF_BENCH_H
#define VF_BENCH_H

#include <cjson/cJSON.h>

#include "harness.h"
#include "options.h"
#include "varflash/varflash.h"

// A pass of a problem, ready to be launched again and again.
struct bench_pass {
    struct harness *harness;
    bool backward;
    vf_plan *plan;
    vf_forward_args forward;  // one of the two is filled
    vf_backward_args back;
};

// Prepares the plan and launches it once. For the backward, o and lse must be there. The caller closes.
vf_status bench_open(struct harness *harness, bool backward, struct bench_pass *pass);
vf_status bench_launch(const struct bench_pass *pass);
void bench_close(struct bench_pass *pass);

// Bytes of the used rows of every tensor that the pass reads or writes, each counted once.
vf_status bench_bytes(const struct problem *problem, bool backward, double *bytes);

double bench_median(double *values, size_t count);  // sorts them

// bench --host
int bench_host(const struct options *options);

// bench --compare A B: 1 if a pass became slower.
int bench_compare(const struct options *options);

// bench --report: a page about a list of records.
int bench_report(const char *path, const cJSON *records);

#endif
