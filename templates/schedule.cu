// ---- Contract ---------------------------------------------------------------------------------------------------------
//
// Turns lengths on the device into the work lists that the attention kernels draw from. One block of threads, O(batch), no host in
// between: a captured graph replays it with other lengths in the same buffers.
//
//     cu_seqlens, seqused  ->  by_q: entries in blocks of tile_m rows of q    by_k: entries in blocks of tile_n rows of k
//
// An entry is a sequence, or a gap: rows of the list's side where no token lives (past seqused, between sequences, before the first, after
// the last). A gap is an entry whose other side is empty: rows that see nothing are written as zeros anyway, and a batch
// without gaps pays nothing. Entries stand in decreasing order of the other side's length (what one block of an entry costs), to within an
// eighth of an octave: a counting sort. Their order among equals is arbitrary; no result depends on it.
//
// Whatever the lengths say, every range lies inside the tensors: all clamping is here, once.

//% include "attn/types.cuh"

// ---- Constants --------------------------------------------------------------------------------------------------------

$(constants())

constexpr int THREADS = $(budget.threads);
constexpr int BINS = 256;               // 8 an octave of lengths below 2^30; the last is for empty sides
constexpr int LONGEST = (1 << 30) - 1;  // tile arithmetic of the attention kernels is 32-bit

$(args_structs())

//% include "attn/lengths.cuh"
//% include "ptx/sync.cuh"

// ---- Shared memory ----------------------------------------------------------------------------------------------------

// A bin counts entries in its upper 28 bits and their blocks in its lower 36, so that one addition moves both. After the scan it holds the
// position and the first block of its next entry.
constexpr int COUNT_SHIFT = 36;
constexpr u64 ONE_ENTRY = static_cast<u64>(1) << COUNT_SHIFT;
constexpr u64 BLOCKS_MASK = ONE_ENTRY - 1;

struct Shared {
    u64 bins[2][BINS];  // by q, by k
    u64 totals[2];
    u64 accumulator_rows;
};
static_assert(sizeof(Shared) == $(budget.shared_bytes), "the kernel and its budget agree");

// ---- Barriers ---------------------------------------------------------------------------------------------------------
//
// Block syncs between the phases: clear, count, scan, place, close.

// ---- Roles ------------------------------------------------------------------------------------------------------------

// Longer sides get lower bins.
DEVICE int bin_of(int length) {
    if (length <= 0) return BINS - 1;
    const int octave = 31 - leading_zeros(length);
    const int eighth = octave >= 3 ? length >> (octave - 3) & 7 : length << (3 - octave) & 7;
    return BINS - 2 - (octave * 8 + eighth);
}

// Adds to a shared counter for every active lane of the warp, all lanes taking part; gives what stood there before. Equal bins, the common
// case of equal lengths, cost one atomic for the warp.
DEVICE u64 take(u64 *bins, int bin, u64 amount, bool active) {
    const u32 lanes = warp_ballot(active);
    if (lanes == 0) return 0;
    const int common = shuffle(bin, lowest_bit(lanes));
    if (warp_ballot(active && bin != common) != 0) return active ? atomic_add(&bins[bin], amount) : 0;
    const u64 own = active ? amount : 0;
    u64 sum = own;
#pragma unroll
    for (int distance = 1; distance < WARP; distance *= 2) {
        const u64 lower = shuffle_up(sum, distance);
        if (lane_index() >= distance) sum += lower;
    }
    u64 before = 0;
    if (lane_index() == WARP - 1) before = atomic_add(&bins[common], sum);
    return shuffle(before, WARP - 1) + sum - own;
}

// One side of one sequence.
struct Side {
    i64 begin, gap_begin, lead;  // lead: rows before the first sequence, in sequence 0 of a packed tensor
    i64 gap;
    int used;
};
struct RawSide {
    i64 begin, end, used;
};

DEVICE RawSide read_side(const Lengths &cu, const Lengths &used, i64 index, i64 batch, i64 rows) {
    RawSide raw = {0, cu.data ? 0 : rows, rows};
    if (cu.data && batch > 0) {
        raw.begin = read_length(cu, index);
        raw.end = read_length(cu, index + 1);
    }
    if (used.data && batch > 0) raw.used = read_length(used, index);
    return raw;
}
DEVICE Side clamp_side(const RawSide &raw, const Lengths &cu, i64 index, i64 batch, i64 rows) {
    const i64 begin = clamp(raw.begin, 0, rows), end = clamp(raw.end, begin, rows);
    const i64 used = smaller(clamp(raw.used, 0, end - begin), static_cast<i64>(LONGEST));
    const bool last = cu.data != 0 && index >= batch - 1;
    const i64 unused = (last ? rows : end) - begin - used;
    return {begin, begin + used, cu.data != 0 && index == 0 ? begin : 0, unused, static_cast<int>(used)};
}

DEVICE i64 blocks_of(i64 rows, int tile) { return (rows + tile - 1) / tile; }

// One work list: counts its entries, then places them.
struct List {
    const Schedule &schedule;
    u64 *bins;
    int tile;

    template <bool PLACE> DEVICE void add(const Sequence &sequence, i64 rows, int other, bool active) const {
        active = active && rows > 0;
        const u64 at = take(bins, bin_of(other), ONE_ENTRY + static_cast<u64>(blocks_of(rows, tile)), active);
        if (PLACE && active) {
            const i64 position = static_cast<i64>(at >> COUNT_SHIFT);
            store(pointer<i64>(schedule.first_block) + position, static_cast<i64>(at & BLOCKS_MASK));
            store(pointer<Sequence>(schedule.sequences) + position, sequence);
        }
    }
    DEVICE void close(u64 total, u64 accumulator_rows) const {
        const i64 entries = static_cast<i64>(total >> COUNT_SHIFT), blocks = static_cast<i64>(total & BLOCKS_MASK);
        store(pointer<i64>(schedule.first_block) + entries, blocks);
        store(pointer<ScheduleHeader>(schedule.header),
              ScheduleHeader{0, blocks, entries, static_cast<i64>(accumulator_rows)});
    }
};

struct Scheduler {
    const ScheduleArgs &args;
    Shared &shared;

    DEVICE List list(int k_side) const {
        return {k_side ? args.by_k : args.by_q, shared.bins[k_side], k_side ? args.tile_n : args.tile_m};
    }

    // Rows of dQ accumulators, if the keys take more than one tile: they are summed there. Fits unless lengths are broken; then the
    // sequence is dropped.
    DEVICE bool allocate(Sequence &sequence, bool active) const {
        const bool wanted = active && args.by_k.header != 0 && sequence.k_len > args.tile_n && sequence.q_len > 0;
        const u64 rows = static_cast<u64>(blocks_of(sequence.q_len, args.tile_m)) * args.tile_m;
        const u64 row = take(&shared.accumulator_rows, 0, rows, wanted);
        if (!wanted) return true;
        sequence.accumulator_row = static_cast<i64>(row);
        return static_cast<i64>(row + rows) <= args.accumulator_limit;
    }

    // A gap of one side.
    template <bool PLACE> DEVICE void add_gap(int k_side, i64 begin, i64 rows, i64 index, bool active) const {
        Sequence gap = {};
        (k_side ? gap.k_begin : gap.q_begin) = begin;
        (k_side ? gap.k_len : gap.q_len) = static_cast<int>(rows);
        gap.accumulator_row = -1;
        (k_side ? gap.k_batch : gap.q_batch) = slot(k_side ? args.cu_k : args.cu_q, index);
        list(k_side).add<PLACE>(gap, rows, 0, active && args.fill != 0);
    }
    static DEVICE int slot(const Lengths &cu, i64 index) { return cu.data ? 0 : static_cast<int>(index); }

    template <bool PLACE>
    DEVICE void sequence(const RawSide &raw_q, const RawSide &raw_k, i64 index, bool active) const {
        const Side q = clamp_side(raw_q, args.cu_q, index, args.batch, args.q_rows);
        const Side k = clamp_side(raw_k, args.cu_k, index, args.batch, args.k_rows);
        Sequence s;
        s.q_begin = q.begin;
        s.k_begin = k.begin;
        s.stat_row = args.cu_q.data ? q.begin : index * args.q_rows;
        s.accumulator_row = -1;
        s.q_len = q.used;
        s.k_len = k.used;
        s.q_batch = slot(args.cu_q, index);
        s.k_batch = slot(args.cu_k, index);
        if (PLACE && !allocate(s, active)) s.q_len = s.k_len = 0;
        if (args.by_q.header) {
            list(0).add<PLACE>(s, q.used, k.used, active);
            add_gap<PLACE>(0, q.gap_begin, q.gap, index, active);
            if (warp_any(active && q.lead > 0)) add_gap<PLACE>(0, 0, q.lead, index, active);
        }
        if (args.by_k.header) {
            list(1).add<PLACE>(s, k.used, q.used, active);
            add_gap<PLACE>(1, k.gap_begin, k.gap, index, active);
            if (warp_any(active && k.lead > 0)) add_gap<PLACE>(1, 0, k.lead, index, active);
        }
    }

    // A packed batch of no sequences is all gap: it is walked as one empty sequence.
    template <bool PLACE> DEVICE void sequences() const {
        const i64 count = larger(args.batch, static_cast<i64>(args.cu_q.data || args.cu_k.data ? 1 : 0));
        if (count == 0) return;
        // Whole warps stay in the loop together; the next sequence's lengths are on their way while one is worked on.
        const i64 first = thread_index();
        RawSide q = read_q(smaller(first, count - 1)), k = read_k(smaller(first, count - 1));
        for (i64 index = first; index - lane_index() < count; index += THREADS) {
            const i64 next = smaller(index + THREADS, count - 1);
            const RawSide next_q = read_q(next), next_k = read_k(next);
            sequence<PLACE>(q, k, index, index < count);
            q = next_q;
            k = next_k;
        }
    }
    DEVICE RawSide read_q(i64 index) const { return read_side(args.cu_q, args.used_q, index, args.batch, args.q_rows); }
    DEVICE RawSide read_k(i64 index) const { return read_side(args.cu_k, args.used_k, index, args.batch, args.k_rows); }

    // Exclusive prefix sum of a list's bins; one warp.
    DEVICE void scan(int k_side) const {
        constexpr int PER_LANE = BINS / WARP;
        u64 *bins = shared.bins[k_side] + lane_index() * PER_LANE;
        u64 own = 0;
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) own += bins[i];
        u64 sum = own;
#pragma unroll
        for (int distance = 1; distance < WARP; distance *= 2) {
            const u64 lower = shuffle_up(sum, distance);
            if (lane_index() >= distance) sum += lower;
        }
        if (lane_index() == WARP - 1) shared.totals[k_side] = sum;
        u64 next = sum - own;
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) {
            const u64 count = bins[i];
            bins[i] = next;
            next += count;
        }
    }

    DEVICE void run() const {
        const int thread = thread_index();
        for (int i = thread; i < 2 * BINS; i += THREADS) shared.bins[i / BINS][i % BINS] = 0;
        if (thread == 0) shared.accumulator_rows = 0;
        block_sync();
        sequences<false>();
        block_sync();
        if (thread < 2 * WARP) scan(thread / WARP);
        block_sync();
        sequences<true>();
        block_sync();
        if (thread == 0 && args.by_q.header) list(0).close(shared.totals[0], shared.accumulator_rows);
        if (thread == WARP && args.by_k.header) list(1).close(shared.totals[1], shared.accumulator_rows);
    }
};

// ---- Entry ------------------------------------------------------------------------------------------------------------

KERNEL(THREADS, 1) $(entry)(PARAMETER ScheduleArgs args) {
    allow_successor();
    Scheduler{args, *shared_pointer<Shared>(0)}.run();
}
