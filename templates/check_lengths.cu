// ---- Contract ---------------------------------------------------------------------------------------------------------
//
// Checked mode: validates cu_seqlens and seqused before anything else is launched. Reports the fault at the smallest index, and of several
// there the one listed first; `found` is the value that broke the rule. One block of threads, O(batch).

//% include "attn/types.cuh"

// ---- Constants --------------------------------------------------------------------------------------------------------

$(constants())

constexpr int THREADS = $(budget.threads);

$(fault_enum())
constexpr u64 NO_FAULT = ~static_cast<u64>(0);

$(args_structs())

//% include "attn/lengths.cuh"

// ---- Roles ------------------------------------------------------------------------------------------------------------

struct Finding {
    u64 fault;
    i64 found;
    DEVICE void note(bool broken, i64 index, int kind, i64 value) {
        const u64 candidate = static_cast<u64>(index) * 16 + static_cast<u64>(kind);
        if (broken && candidate < fault) {
            fault = candidate;
            found = value;
        }
    }
};

// Entry `index` of one side: 0 ... batch.
DEVICE void check_entry(Finding &finding, const Lengths &cu, const Lengths &used, i64 index, i64 batch, i64 rows,
                        i64 longest, int side) {
    i64 slot = rows;
    if (cu.data) {
        const i64 here = read_length(cu, index);
        if (index == 0) finding.note(here != 0, index, side + LENGTHS_START_NOT_ZERO, here);
        finding.note(here > rows, index, side + LENGTHS_BEYOND_ROWS, here);
        if (index < batch) {
            const i64 next = read_length(cu, index + 1);
            finding.note(next < here, index + 1, side + LENGTHS_DECREASING, next);
            // Wraps only from a negative entry, which is itself a fault, and reported first.
            slot = next < here ? -1 : static_cast<i64>(static_cast<u64>(next) - static_cast<u64>(here));
        }
    }
    if (index == batch) return;
    i64 length = slot;
    if (used.data) {
        length = read_length(used, index);
        finding.note(length < 0, index, side + LENGTHS_USED_NEGATIVE, length);
        finding.note(length > slot, index, side + LENGTHS_USED_BEYOND_SLOT, length);
    }
    finding.note(length > longest, index, side + LENGTHS_TOO_LONG, length);
}

// ---- Entry ------------------------------------------------------------------------------------------------------------

KERNEL(THREADS, 1) $(entry)(PARAMETER CheckArgs args) {
    CheckReport *report = pointer<CheckReport>(args.report);
    if (thread_index() == 0) store(report, CheckReport{NO_FAULT, 0});
    block_sync();
    Finding finding = {NO_FAULT, 0};
    for (i64 i = thread_index(); i <= args.batch; i += THREADS) {
        check_entry(finding, args.cu_q, args.used_q, i, args.batch, args.q_rows, args.max_q, 0);
        check_entry(finding, args.cu_k, args.used_k, i, args.batch, args.k_rows, args.max_k, LENGTHS_K_SIDE);
    }
    if (finding.fault != NO_FAULT) atomic_min(&report->fault, finding.fault);
    block_sync();
    if (finding.fault != NO_FAULT && load(&report->fault) == finding.fault) store(&report->found, finding.found);
}
