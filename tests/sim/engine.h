// engine.h - the simulated GPU, as a driver or a test sees it: device memory, kernels, launches, findings.
//
// Not a driver: streams, events, capture and error injection stand in front of it. C and C++.
//
// A kernel is the generator's source for a spec, compiled for the host with templates/ptx/ replaced by tests/sim/ptx/. Every
// thread is a fiber of the one host thread that calls sim_launch, and each choice of timing comes from the seed: equal
// options, sources, contents of memory and order of calls give the same run. The functions are for one thread at a time.
#ifndef SIM_ENGINE_H
#define SIM_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- options ------------------------------------------------------------------------------------------------------

// Zero is every field's default.
struct sim_options {
    uint64_t seed;  // every launch takes its own schedule out of it
    int resident;  // clusters (blocks, where there are none) that run interleaved, 1 to 3; 0: the seed chooses, launch by launch
    bool any_order;     // they start in an order of the seed's choice, not by index
    bool strict_lanes;  // the lanes of a warp may drift apart between collectives, as the programming model allows
    bool no_hazards;    // no race detection: values, hangs, bounds and unwritten memory alone
    bool unoptimised;   // kernels are compiled in a third of the time, and run at two thirds of the speed
    bool banks;         // count bank conflicts (sim_report_banks)
    bool
        coverage;  // kernels count their lines for gcov instead of announcing accesses; nothing is a finding but a hang
    int trace;     // the last so many events are printed to stderr before the first finding of a launch
    int finding_limit;     // a launch stops at this many; 0: 20
    int turn_limit;        // a launch with more steps of a warp never ends; 0: 400 million
    const char *root;      // tree whose gen/ and templates/ the sources come from; null: "."
    const char *sim_root;  // tree whose tests/sim/ is used; null: root. Differs when root is a copy with a fault in it
    const char *cache;     // folder of compiled kernels; null: "build/sim-cache"
};

// Copied, texts included. To be called before anything else; then whenever something is to change.
void sim_configure(const struct sim_options *options);

// ---- device memory ------------------------------------------------------------------------------------------------
//
// Addresses are host addresses: a driver copies with memcpy and tells the shadow. What lies outside an allocation is out of
// bounds, with pages between allocations; addresses come back only after everything has been freed.

void *sim_alloc(size_t bytes);  // 256-byte aligned, unwritten; null: no room
bool sim_free(void *address);   // false: not the start of an allocation
size_t sim_allocated(void);     // bytes
// Whether [address, address + bytes) lies inside one allocation.
bool sim_holds(const void *address, size_t bytes);

// The shadow of what the host does. A kernel that reads bytes which are not written is a finding.
void sim_mark_written(const void *address, size_t bytes);
void sim_mark_unwritten(const void *address, size_t bytes);  // contents that must not matter

// ---- tensor maps --------------------------------------------------------------------------------------------------

// cuTensorMapEncodeTiled, with the restrictions that the driver documents: writes 128 bytes. strides: bytes of dimensions
// 1 ... rank - 1. swizzle: 0 none, 1 32 bytes, 2 64, 3 128, as in the driver's enum. Returns null, or what is not allowed.
const char *sim_tensor_map(void *map, const void *base, int rank, const uint64_t *dimensions, const uint64_t *strides,
                           const uint32_t *box, const uint32_t *element_strides, int element_bytes, int swizzle);

// ---- kernels ------------------------------------------------------------------------------------------------------

struct sim_module;
struct sim_kernel;

// Compiles the text that the generator gave for a kernel (the spec stands in its head); generated anew from `root`, it must
// be the same. Null: `message` says why (compiler's words included).
struct sim_module *sim_load(const char *source, size_t bytes, char *message, size_t room);
void sim_unload(struct sim_module *module);
// Null: no such entry.
struct sim_kernel *sim_find(struct sim_module *module, const char *entry);

struct sim_facts {
    const char *entry;
    const char *spec;
    int threads;       // of its launch bounds
    int shared_bytes;  // of its budget
    int registers;     // a thread's, at launch
    int cluster;       // blocks of one, of which a grid is a multiple; 1: they are alone
    size_t parameter_bytes;
    bool deterministic;  // of its spec
};
// Valid until the module is unloaded.
const struct sim_facts *sim_kernel_facts(const struct sim_kernel *kernel);

struct sim_grid {
    uint32_t blocks, threads, shared_bytes;
    bool programmatic;  // programmatic stream serialization: may start before its predecessor has ended
};

// Runs a kernel to its end. `parameter`: its one parameter, parameter_bytes long. False: it hung, crashed or was stopped at the
// limit of findings; memory then holds whatever had been written.
bool sim_launch(const struct sim_kernel *kernel, const struct sim_grid *grid, const void *parameter);

// The work before this call has ended, as a host sees it after a synchronisation: a programmatic launch that follows has no
// predecessor to wait for.
void sim_fence(void);

// ---- findings -----------------------------------------------------------------------------------------------------

struct sim_finding {
    const char *kind;     // "race: write after read", "hang", "shared memory out of bounds", ...
    const char *text;     // "vf_fwd_sm80_... block 0 thread 37: write at shared 0x1400 against thread 4"
    const char *place;    // "load_tile templates/tile/global.cuh:93 < run templates/fwd_sm80.cu:135 < ..."
    const char *earlier;  // place of the other access; null if there is none
    const char *allowed;  // the reason that the allow-list gives; null: it counts
};

size_t sim_finding_count(void);  // since sim_clear_findings, allowed ones too
const struct sim_finding *sim_get_finding(size_t index);
size_t sim_fault_count(void);  // those that are not allowed
void sim_clear_findings(void);

// Lines KIND @ PLACE: REASON, where PLACE is a part of a finding's place; # begins a comment. Null, or what is wrong with
// the file. A second call replaces the first.
const char *sim_read_allowed(const char *path);

// ---- reports ------------------------------------------------------------------------------------------------------

struct sim_statistics {
    uint64_t launches, switches, accesses, products, copies;  // products: of a warp; copies: asynchronous ones
};
struct sim_statistics sim_get_statistics(void);

// Shared-memory bank conflicts of all launches since sim_configure, a line per access site: how often, cycles beyond the fewest
// possible.
void sim_report_banks(FILE *file);

#ifdef __cplusplus
}
#endif

#endif
