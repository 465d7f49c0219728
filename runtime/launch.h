// launch.h - a valid call and its variant to kernels on the caller's stream.
//
// Packs arguments and launches: no allocation, no text, no lookup, no waiting (checked mode excepted). What the
// workspace holds is laid out by one function, for the size query and for the launch.
#ifndef VF_LAUNCH_H
#define VF_LAUNCH_H

#include "device.h"
#include "request.h"
#include "variant.h"

#define LAUNCH_ALIGNMENT 256  // of the workspace and of each part

// Offsets in bytes. Every part grows with batch, totals, heads and head_dim, so that a workspace for more serves less.
struct layout {
    size_t report;      // checked mode's
    size_t by_q, by_k;  // schedules
    size_t parts;       // counts of the shares of a large batch
    size_t stats, accumulator, turns;
    size_t total;     // bytes in all
    int64_t entries;  // of a schedule, at most
    int64_t shares;   // of the sequences: blocks of threads of the schedule kernel
    int64_t stat_rows, accumulator_rows;
};

// VF_ERROR_UNSUPPORTED if the sizes do not fit the address space.
vf_status launch_layout(const struct call *call, int tile_m, int tile_n, struct layout *layout);

// Whether the call has outputs with elements to write.
bool launch_writes(const struct call *call);

// Blocks of a persistent kernel, in whole clusters: no more than the device holds at once, but one cluster always, and no more than there is
// work for, of which a cluster draws one of tiles * heads items at a time.
unsigned launch_grid(int64_t device_blocks, int64_t cluster, int64_t tiles, int64_t heads);

// VF_ERROR_WORKSPACE.
vf_status launch_check_workspace(const struct call *call, size_t needed);

// Checked mode: runs `check` on the lengths and waits for its report. VF_ERROR_LENGTHS, VF_ERROR_CAPTURE.
vf_status launch_check(const struct call *call, const struct variant *check, const struct scope *scope);

// Launches every kernel of the variant in a workspace of that layout. *launched counts kernels.
vf_status launch_call(const struct call *call, const struct variant *variant, const struct layout *layout,
                      const struct scope *scope, uint64_t *launched);

#endif
