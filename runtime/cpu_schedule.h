// cpu_schedule.h - the work list of a CPU call, from its lengths: the only reader of cu_seqlens and seqused on this
// side.
//
// Lengths may be broken; the list is not: starts are clamped into the tensor and made to rise, used lengths clamped to
// their slots. Invariant: with gaps wanted, the entries of a side cover every row of its tensor exactly once.
#ifndef VF_CPU_SCHEDULE_H
#define VF_CPU_SCHEDULE_H

#include "cpu_task.h"
#include "request.h"

// Rows of a gap that are filled by one item.
#define CPU_GAP_ROWS 256

// Fills task->schedule; the caller frees it with cpu_schedule_free, also after a failure. Everything else in task is
// set.
vf_status cpu_schedule_make(struct cpu_task *task, const struct call *call);
void cpu_schedule_free(struct cpu_schedule *schedule);

// The entry that an item belongs to.
const struct cpu_entry *cpu_schedule_entry(const struct cpu_schedule *schedule, size_t item);

#endif
