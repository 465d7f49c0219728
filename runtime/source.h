// source.h - the generator as C sees it: specs in, launch facts and CUDA text out. The only file that knows of Lua.
//
// Specs are `key=value` words separated by single spaces. gen/ and templates/ are the copies built into the library, or
// a folder's. The answers are pure functions of spec and files. Every function may be called by any number of threads;
// they take turns.
#ifndef VF_SOURCE_H
#define VF_SOURCE_H

#include "base.h"
#include "buf.h"
#include "varflash/varflash.h"

#define SOURCE_KERNELS_MAX 6

struct source_kernel {
    char name[32];      // "fwd_sm80"
    char spec[512];     // what its text depends on: key of the in-process kernel table, argument of source_text
    char entry[128];    // symbol of the __global__ function
    int threads;        // a block
    int shared_bytes;   // dynamic shared memory of a block
    int blocks_per_sm;  // that fit, by the budget
    int registers;      // a thread, by the budget
};

// What a variant is: its kernels in launch order. Checked mode's plan (pass=check) has neither family nor tiles.
struct source_plan {
    char family[32];
    int tile_m, tile_n;
    int numeric;           // a fingerprint: plans of one request give equal bits if it is equal
    int shared_per_block;  // bytes that the architecture lets a block have
    int kernel_count;
    struct source_kernel kernels[SOURCE_KERNELS_MAX];
};

struct source;

// `folder` null: the built-in files. VF_ERROR_COMPILE (gen/init.lua is missing or broken), VF_ERROR_OUT_OF_MEMORY.
vf_status source_open(const char *folder, struct source **source);
void source_close(struct source *source);  // null is ignored

// VF_ERROR_UNSUPPORTED with the generator's sentence when it refuses the request; VF_ERROR_COMPILE when it breaks.
vf_status source_plan(struct source *source, const char *spec, struct source_plan *plan);

// Appends the CUDA text of one kernel of a plan. VF_ERROR_COMPILE with the generator's sentence when it cannot.
vf_status source_text(struct source *source, const char *kernel_spec, struct buf *text);

// The same with #line directives that name the templates: to be read, not compiled.
vf_status source_text_with_lines(struct source *source, const char *kernel_spec, struct buf *text);

// Short text over all knob names and values, which configuration files must match. Lives as long as `source`.
const char *source_signature(const struct source *source);

#endif
