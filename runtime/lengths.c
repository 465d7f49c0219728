// lengths.c - see lengths.h.
#include "lengths.h"

int64_t lengths_entry(const vf_tensor *tensor, int64_t index) {
    return tensor->dtype == VF_INT64 ? ((const int64_t *)tensor->data)[index] : ((const int32_t *)tensor->data)[index];
}

int64_t lengths_longest(const struct call *call, bool k_side) {
    const int64_t bound = k_side ? call->problem->max_seqlen_k : call->problem->max_seqlen_q;
    return bound > 0 && bound < CALL_LENGTH_LIMIT ? bound : CALL_LENGTH_LIMIT;
}

struct finding {
    uint64_t fault;
    int64_t found;
};

static void note(struct finding *finding, bool broken, int64_t index, int kind, int64_t value) {
    const uint64_t fault = (uint64_t)index * 16 + (uint64_t)kind;
    if (broken && fault < finding->fault) *finding = (struct finding){fault, value};
}

// Entry `index` of one side: 0 ... batch.
static void check_entry(struct finding *finding, const vf_tensor *cu, const vf_tensor *used, int64_t index,
                        int64_t batch, int64_t rows, int64_t longest, int side) {
    int64_t slot = rows;
    if (cu) {
        const int64_t here = lengths_entry(cu, index);
        if (index == 0) note(finding, here != 0, index, side + LENGTHS_START_NOT_ZERO, here);
        note(finding, here > rows, index, side + LENGTHS_BEYOND_ROWS, here);
        if (index < batch) {
            const int64_t next = lengths_entry(cu, index + 1);
            if (__builtin_sub_overflow(next, here, &slot)) slot = next < here ? INT64_MIN : INT64_MAX;
            note(finding, slot < 0, index + 1, side + LENGTHS_DECREASING, next);
        }
    }
    if (index == batch) return;
    int64_t length = slot;
    if (used) {
        length = lengths_entry(used, index);
        note(finding, length < 0, index, side + LENGTHS_USED_NEGATIVE, length);
        note(finding, length > slot, index, side + LENGTHS_USED_BEYOND_SLOT, length);
    }
    note(finding, length > longest, index, side + LENGTHS_TOO_LONG, length);
}

uint64_t lengths_check(const struct call *call, int64_t *found) {
    struct finding finding = {LENGTHS_NO_FAULT, 0};
    for (int64_t i = 0; i <= call->batch; i++) {
        check_entry(&finding, call->lengths[CALL_CU_Q], call->lengths[CALL_USED_Q], i, call->batch, call->rows_q,
                    lengths_longest(call, false), 0);
        check_entry(&finding, call->lengths[CALL_CU_K], call->lengths[CALL_USED_K], i, call->batch, call->rows_k,
                    lengths_longest(call, true), LENGTHS_K_SIDE);
    }
    *found = finding.found;
    return finding.fault;
}

vf_status lengths_status(const struct call *call, uint64_t fault, int64_t found) {
    if (fault == LENGTHS_NO_FAULT) return VF_OK;
    const bool k_side = fault & LENGTHS_K_SIDE;
    const char side = k_side ? 'k' : 'q';
    const long long index = (long long)(fault / 16), value = (long long)found;
    const long long rows = (long long)(k_side ? call->rows_k : call->rows_q);
    const long long longest = (long long)lengths_longest(call, k_side);
    switch ((enum lengths_fault)(fault % LENGTHS_K_SIDE)) {
        case LENGTHS_START_NOT_ZERO:
            VF_FAIL(VF_ERROR_LENGTHS, "cu_seqlens_%c[%lld] is %lld; the first entry must be 0", side, index, value);
        case LENGTHS_DECREASING:
            VF_FAIL(VF_ERROR_LENGTHS, "cu_seqlens_%c[%lld] is %lld, less than the entry before it", side, index, value);
        case LENGTHS_BEYOND_ROWS:
            VF_FAIL(VF_ERROR_LENGTHS, "cu_seqlens_%c[%lld] is %lld, but %c has %lld rows", side, index, value, side,
                    rows);
        case LENGTHS_TOO_LONG:
            VF_REQUIRE(longest < CALL_LENGTH_LIMIT, VF_ERROR_LENGTHS,
                       "sequence %lld has %lld rows of %c; at most %lld are possible", index, value, side, longest);
            VF_FAIL(VF_ERROR_LENGTHS, "sequence %lld has %lld rows of %c, but max_seqlen_%c is %lld", index, value,
                    side, side, longest);
        case LENGTHS_USED_NEGATIVE:
            VF_FAIL(VF_ERROR_LENGTHS, "seqused_%c[%lld] is %lld; must not be negative", side, index, value);
        case LENGTHS_USED_BEYOND_SLOT:
            VF_FAIL(VF_ERROR_LENGTHS, "seqused_%c[%lld] is %lld, more than the sequence has rows", side, index, value);
        case LENGTHS_K_SIDE:
            break;
    }
    VF_FAIL(VF_ERROR_INTERNAL, "check_lengths: fault %llx is none", (unsigned long long)fault);
}
