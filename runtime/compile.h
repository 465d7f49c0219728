// compile.h - CUDA text to a loadable image with NVRTC. Needs no GPU, knows neither the cache nor the driver.
//
// The image is a cubin for an architecture that NVRTC knows by name, else PTX of the newest one below it, which the
// driver finishes.
#ifndef VF_COMPILE_H
#define VF_COMPILE_H

#include "base.h"
#include "buf.h"
#include "cuda_api.h"
#include "varflash/varflash.h"

// What NVRTC is asked for.
struct compile_target {
    char architecture[24];  // "sm_90a", "compute_90"
    bool ptx;
};

// The rule, pure: `arch` is "sm_90", "sm_90a" or "sm_100f", `known` NVRTC's list of base architectures. An exact name
// whose base is known is compiled to a cubin; a newer card than any that is known gets PTX of the newest below it
// (never of an `a` or `f` target). VF_ERROR_INVALID_ARGUMENT if `arch` is none; VF_ERROR_UNSUPPORTED if nothing known
// is that old.
vf_status compile_target(const char *arch, const int *known, int count, struct compile_target *target);

// "sm_90a" -> 90, 'a' (0 without a suffix). False if it is none.
bool compile_parse_arch(const char *arch, int *number, char *suffix);

// What the assembler reported: field, meaning. -1: not known, as for PTX, which the driver assembles later.
#define COMPILE_REPORT(FIELD)                   \
    FIELD(registers, "a thread")                \
    FIELD(stack_bytes, "a thread")              \
    FIELD(spill_stores, "bytes a thread")       \
    FIELD(spill_loads, "bytes a thread")        \
    FIELD(shared_bytes, "static shared memory") \
    FIELD(advice, "notes C7500 ... C7599: matrix products that were serialised and the like")

struct compile_report {
#define FIELD(name, meaning) int name;
    COMPILE_REPORT(FIELD)
#undef FIELD
};

struct compiled {
    struct buf image;
    bool ptx;        // image is PTX text with its final zero, not a cubin
    struct buf log;  // NVRTC's, unaltered
    struct compile_report report;
    double milliseconds;
};

// One of the compiler's versions, opened once for a context: NVRTC's tables and its list of architectures.
struct compiler {
    const struct nvrtc_api *nvrtc;
    int known[64];  // base architectures, ascending
    int known_count;
};

vf_status compile_open(const struct nvrtc_api *nvrtc, struct compiler *compiler);

// NVRTC's version as one number: 13000 is 13.0.
int compile_version(const struct compiler *compiler);

// Everything but the text and that version that decides an image: architecture and options, as one line of text for the
// cache key. (The target follows from architecture and version.)
vf_status compile_identity(const char *arch, struct buf *text);

// Compiles `text` for `arch`. `name` stands in the log where no #line does. `want_ptx`: PTX even where a cubin is
// possible (to be read, not loaded). VF_ERROR_COMPILE carries NVRTC's log. The caller ends *compiled with
// compiled_free, whatever is returned.
vf_status compile_kernel(const struct compiler *compiler, const char *name, const char *text, const char *arch,
                         bool want_ptx, struct compiled *compiled);
void compiled_free(struct compiled *compiled);

// Report of NVRTC's log (--ptxas-options=-v). The largest numbers if there are several functions.
void compile_parse_log(const char *log, struct compile_report *report);

// What a stored image must be remembered with, as `key=value` lines, and back. False if the text is none of ours.
void compile_write_meta(const struct compiled *compiled, struct buf *text);
bool compile_read_meta(const char *text, struct compiled *compiled);

#endif
