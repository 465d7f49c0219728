// cpu_schedule.c - see cpu_schedule.h.
#include "cpu_schedule.h"

#include <stdlib.h>

#include "lengths.h"
#include "status.h"

// One side of a call while its sequences are read in order.
struct side {
    const vf_tensor *cu, *used;  // null: absent
    bool batched;
    int64_t rows;  // of the packed tensor, or of one slot
    int64_t next;  // packed: first row that belongs to no earlier sequence
};

static struct side side_open(const vf_tensor *cu, const vf_tensor *used, bool batched, int64_t rows) {
    struct side side = {.cu = cu, .used = used, .batched = batched, .rows = rows};
    if (!batched) side.next = cpu_max(0, cpu_min(rows, lengths_entry(cu, 0)));
    return side;
}

// The next sequence, number `index`, and the unused rows behind it in its slot.
static struct cpu_range side_next(struct side *side, int64_t index, struct cpu_range *gap) {
    struct cpu_range range = {.slot = side->batched ? index : 0};
    int64_t slot_end = side->rows;
    if (!side->batched) {
        range.begin = side->next;
        slot_end = side->next = cpu_max(side->next, cpu_min(side->rows, lengths_entry(side->cu, index + 1)));
    }
    range.length = slot_end - range.begin;
    if (side->used) range.length = cpu_max(0, cpu_min(range.length, lengths_entry(side->used, index)));
    *gap = (struct cpu_range){range.slot, range.begin + range.length, slot_end - range.begin - range.length};
    return range;
}

static void add_gap(struct cpu_schedule *schedule, enum cpu_kind kind, struct cpu_range range) {
    if (range.length == 0) return;
    struct cpu_entry *entry = &schedule->entries[schedule->count++];
    *entry = (struct cpu_entry){.kind = kind};
    *(kind == CPU_GAP_Q ? &entry->q : &entry->k) = range;
}

// Sequences before gaps, those with most work first.
static int by_work(const void *a, const void *b) {
    const struct cpu_entry *left = a, *right = b;
    if (left->kind != right->kind) return left->kind < right->kind ? -1 : 1;
    const int64_t left_work = left->q.length * left->k.length, right_work = right->q.length * right->k.length;
    return (left_work < right_work) - (left_work > right_work);
}

static int64_t entry_items(const struct cpu_task *task, const struct cpu_entry *entry) {
    if (entry->kind == CPU_GAP_Q) return cpu_blocks(entry->q.length, CPU_GAP_ROWS);
    if (entry->kind == CPU_GAP_K) return cpu_blocks(entry->k.length, CPU_GAP_ROWS);
    if (!task->backward) return cpu_blocks(entry->q.length * task->group, CPU_ROWS) * task->heads_k;
    if (entry->q.length == 0 && entry->k.length == 0) return 0;
    // Rows of a sequence without keys need an item too.
    return cpu_max(1, cpu_blocks(entry->k.length, CPU_BACKWARD_KEYS)) * task->heads_k;
}

// Numbers items, turns and accumulators.
static void number(struct cpu_schedule *schedule, const struct cpu_task *task) {
    for (size_t i = 0; i < schedule->count; i++) {
        struct cpu_entry *entry = &schedule->entries[i];
        entry->first_item = schedule->items;
        schedule->items += (size_t)entry_items(task, entry);
        if (entry->kind != CPU_SEQUENCE) continue;
        const int64_t rows = entry->q.length * task->group;
        schedule->products += (double)rows * (double)entry->k.length * (double)task->heads_k;
        entry->turns = schedule->turns;
        entry->accumulators = schedule->accumulators;
        if (!task->backward || entry->k.length <= CPU_BACKWARD_KEYS) continue;
        schedule->turns += (size_t)(cpu_blocks(rows, CPU_BACKWARD_ROWS) * task->heads_k);
        schedule->accumulators += (size_t)(rows * task->heads_k);
    }
}

vf_status cpu_schedule_make(struct cpu_task *task, const struct call *call) {
    struct cpu_schedule *schedule = &task->schedule;
    const size_t most = 3 * (size_t)call->batch + 2;
    schedule->entries = malloc(most * sizeof *schedule->entries);
    VF_REQUIRE(schedule->entries, VF_ERROR_OUT_OF_MEMORY, "cpu: no memory for the work list of %lld sequences",
               (long long)call->batch);
    const bool fill = call->problem->fill == VF_FILL_ZERO, fill_k = fill && task->backward;
    struct side q = side_open(call->lengths[CALL_CU_Q], call->lengths[CALL_USED_Q], call->q_batched, call->rows_q);
    struct side k = side_open(call->lengths[CALL_CU_K], call->lengths[CALL_USED_K], call->k_batched, call->rows_k);
    if (fill && !q.batched) add_gap(schedule, CPU_GAP_Q, (struct cpu_range){0, 0, q.next});
    if (fill_k && !k.batched) add_gap(schedule, CPU_GAP_K, (struct cpu_range){0, 0, k.next});
    for (int64_t i = 0; i < call->batch; i++) {
        struct cpu_range gap_q, gap_k;
        struct cpu_entry *entry = &schedule->entries[schedule->count++];
        *entry = (struct cpu_entry){.kind = CPU_SEQUENCE, .q = side_next(&q, i, &gap_q), .k = side_next(&k, i, &gap_k)};
        if (fill) add_gap(schedule, CPU_GAP_Q, gap_q);
        if (fill_k) add_gap(schedule, CPU_GAP_K, gap_k);
    }
    if (fill && !q.batched) add_gap(schedule, CPU_GAP_Q, (struct cpu_range){0, q.next, q.rows - q.next});
    if (fill_k && !k.batched) add_gap(schedule, CPU_GAP_K, (struct cpu_range){0, k.next, k.rows - k.next});
    qsort(schedule->entries, schedule->count, sizeof *schedule->entries, by_work);
    number(schedule, task);
    return VF_OK;
}

void cpu_schedule_free(struct cpu_schedule *schedule) {
    free(schedule->entries);
}

// The last entry that starts at or before the item: entries without items share their start with the one after them.
const struct cpu_entry *cpu_schedule_entry(const struct cpu_schedule *schedule, size_t item) {
    size_t low = 0, high = schedule->count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (schedule->entries[middle].first_item <= item) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &schedule->entries[low];
}
