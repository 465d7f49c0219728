// ---- Contract ---------------------------------------------------------------------------------------------------------
//
// Turns lengths on the device into the work lists that the attention kernels draw from. O(batch), no host in between: a captured graph
// replays it with other lengths in the same buffers.
//
//     cu_seqlens, seqused  ->  by_q: entries in blocks of tile_m rows of q    by_k: entries in blocks of tile_n rows of k
//
// An entry is a sequence, or a gap: rows of the list's side where no token lives (past seqused, between sequences, before the first, after
// the last). A gap is an entry whose other side is empty: rows that see nothing are written as zeros anyway, and a batch
// without gaps pays nothing. Entries stand in decreasing order of the other side's length (what one block of an entry costs), to within an
// eighth of an octave: a counting sort. Their order among equals is arbitrary; no result depends on it.
//
// A few sequences without gaps are placed by one warp. Another small batch is counted and placed by one block of threads in one launch. A large one
// is divided into shares, a block of threads each, and takes two: each block counts its share, then each places its own, knowing from the counts of
// all where it begins.
//
// Whatever the lengths say, every range lies inside the tensors, and no two share a row: all clamping is here, once. Where cu_seqlens fall, sequences
// would overlap, and could add up to more than there is room for: of such a batch the lists are empty.

//% include "attn/types.cuh"

// ---- Constants --------------------------------------------------------------------------------------------------------

$(constants())

constexpr int THREADS = $(budget.threads);
constexpr int BINS = 256;               // 8 an octave of lengths below 2^30; the last is for empty sides
constexpr i64 LONGEST = (1 << 30) - 1;  // rows of an entry: tile arithmetic of the attention kernels is 32-bit

$(args_structs())

//% include "attn/lengths.cuh"
//% include "ptx/sync.cuh"

// ---- Shared memory ----------------------------------------------------------------------------------------------------

// A bin counts entries in its upper 28 bits and their blocks in its lower 36, so that one addition moves both: a batch has fewer than 2^27 sequences,
// and of its 2^39 rows, unless lengths fall, each is in one block only. After the scan it holds the position and the first block of its next entry.
constexpr int COUNT_SHIFT = 36;
constexpr u64 ONE_ENTRY = static_cast<u64>(1) << COUNT_SHIFT;
constexpr u64 BLOCKS_MASK = ONE_ENTRY - 1;

constexpr int LISTS = 2;                         // by q, by k
constexpr int ACCUMULATOR_BIN = LISTS * BINS;    // blocks of dQ accumulators
constexpr int BROKEN_BIN = ACCUMULATOR_BIN + 1;  // sequences that end before they begin
constexpr int ALL_BINS = BROKEN_BIN + 1;

struct Shared {
    u64 bins[ALL_BINS];
    u64 totals[LISTS + 1];
};
static_assert(sizeof(Shared) == $(budget.shared_bytes), "the kernel and its budget agree");
static_assert(sizeof(SchedulePart) == sizeof(Shared::bins), "a part is a share's bins");

// ---- Barriers ---------------------------------------------------------------------------------------------------------
//
// Block syncs between the steps: clear, count or gather, scan, place.

// ---- Lengths ----------------------------------------------------------------------------------------------------------

// One side of one sequence.
struct Side {
    i64 begin;
    int used;  // rows; negative: it ends before it begins
    i64 gap;   // rows behind them where no token lives
};
struct Sides {
    Side q, k;
};

// What is read of a side, not yet looked at, so that all of a sequence's loads are under way together.
struct RawSide {
    RawLength begin, end, used;
};
DEVICE RawSide load_side(const Lengths &cu, const Lengths &used, i64 index) {
    RawSide raw = {};
    if (cu.data) {
        raw.begin = load_length(cu, index);
        raw.end = load_length(cu, index + 1);
    }
    if (used.data) raw.used = load_length(used, index);
    return raw;
}
DEVICE Side clamp_side(const RawSide &raw, const Lengths &cu, const Lengths &used, bool last, i64 rows) {
    const i64 begin = cu.data ? clamp(length_of(cu, raw.begin), 0, rows) : 0;
    const i64 end = cu.data ? clamp(length_of(cu, raw.end), 0, rows) : rows;
    const i64 slot = end - begin;
    const i64 length = clamp(used.data ? clamp(length_of(used, raw.used), 0, slot) : slot, -1, LONGEST);
    return {begin, static_cast<int>(length), (cu.data && last ? rows : end) - begin - length};
}

// ---- Bins -------------------------------------------------------------------------------------------------------------

// Longer sides get lower bins.
DEVICE int bin_of(int length) {
    if (length <= 0) return BINS - 1;
    const int octave = 31 - leading_zeros(length);
    const int eighth = octave >= 3 ? length >> (octave - 3) & 7 : length << (3 - octave) & 7;
    return BINS - 2 - (octave * 8 + eighth);
}

DEVICE u32 blocks_of(int rows, int tile) {
    return (static_cast<u32>(rows) + static_cast<u32>(tile) - 1) / static_cast<u32>(tile);
}

// Of a number a lane, the sum up to this lane.
template <class Number> DEVICE Number sum_up_to(Number own) {
    Number sum = own;
#pragma unroll
    for (int distance = 1; distance < WARP; distance *= 2) {
        const Number lower = shuffle_up(sum, distance);
        if (lane_index() >= distance) sum += lower;
    }
    return sum;
}

// Adds an entry of `blocks` blocks to a bin for each of `lanes`, all lanes of the warp taking part; gives what stood there before. Equal bins,
// the common case of equal lengths, cost one atomic for the warp.
DEVICE u64 take(u64 *bins, int bin, u32 blocks, u32 lanes) {
    const bool active = lanes >> lane_index() & 1;
    const int common = shuffle(bin, lowest_bit(lanes));
    if (warp_any(active && bin != common)) return active ? atomic_add(&bins[bin], ONE_ENTRY + blocks) : 0;
    const u32 own = active ? blocks : 0;
    const u32 sum = sum_up_to(own);
    u64 before = 0;
    if (lane_index() == WARP - 1) before = atomic_add(&bins[common], population(lanes) * ONE_ENTRY + sum);
    const u32 lower_lanes = lanes & ((1u << lane_index()) - 1);
    return shuffle(before, WARP - 1) + population(lower_lanes) * ONE_ENTRY + (sum - own);
}

// ---- Roles ------------------------------------------------------------------------------------------------------------

struct Scheduler {
    const ScheduleArgs &args;
    Shared &shared;

    DEVICE SchedulePart *parts() const { return pointer<SchedulePart>(args.parts); }
    DEVICE const Schedule &list(int k_side) const { return k_side ? args.by_k : args.by_q; }
    DEVICE int tile(int k_side) const { return k_side ? args.tile_n : args.tile_m; }
    static DEVICE int slot(const Lengths &cu, i64 index) { return cu.data ? 0 : static_cast<int>(index); }

    // An entry of a list for every lane that has rows.
    DEVICE void add(bool placing, int k_side, const Sequence &sequence, int rows, int other, bool active) const {
        const u32 lanes = warp_ballot(active && rows > 0);
        if (lanes == 0) return;
        const u64 at = take(shared.bins + k_side * BINS, bin_of(other), blocks_of(rows, tile(k_side)), lanes);
        if (!placing || (lanes >> lane_index() & 1) == 0) return;
        const i64 position = static_cast<i64>(at >> COUNT_SHIFT);
        store(pointer<i64>(list(k_side).first_block) + position, static_cast<i64>(at & BLOCKS_MASK));
        store(pointer<Sequence>(list(k_side).sequences) + position, sequence);
    }
    // The gaps beside a sequence: the one behind it, and that before the first.
    DEVICE void add_gaps(bool placing, int k_side, const Side &side, i64 index, bool active) const {
        const Lengths &cu = k_side ? args.cu_k : args.cu_q;
#pragma unroll 1
        for (int lead = 0; lead < 2; lead++) {
            // A slot of a batched tensor begins at 0.
            i64 begin = lead ? 0 : side.begin + side.used, rows = !lead ? side.gap : index == 0 ? side.begin : 0;
#pragma unroll 1
            while (warp_any(active && rows > 0)) {
                const int count = static_cast<int>(smaller(rows, LONGEST));
                Sequence gap = {};
                (k_side ? gap.k_begin : gap.q_begin) = begin;
                (k_side ? gap.k_len : gap.q_len) = count;
                gap.accumulator_row = -1;
                (k_side ? gap.k_batch : gap.q_batch) = slot(cu, index);
                add(placing, k_side, gap, count, 0, active);
                begin += count;
                rows -= count;
            }
        }
    }

    // Whether dQ of a sequence is summed in memory: its keys take more than one tile.
    DEVICE bool accumulates(const Sequence &s) const { return s.k_len > args.tile_n && s.q_len > 0; }
    // Rows of dQ accumulators, if there is anything to sum.
    DEVICE void allocate(bool placing, Sequence &s, bool active) const {
        if (args.by_k.header == 0) return;
        const u32 lanes = warp_ballot(active && accumulates(s));
        if (lanes == 0) return;
        const u32 blocks = blocks_of(s.q_len, args.tile_m);
        const i64 at = static_cast<i64>(take(shared.bins + ACCUMULATOR_BIN, 0, blocks, lanes) & BLOCKS_MASK);
        if (placing && (lanes >> lane_index() & 1) != 0) s.accumulator_row = at * args.tile_m;
    }

    // Without rows of accumulators.
    DEVICE Sequence sequence_of(const Sides &sides, i64 index) const {
        Sequence s;
        s.q_begin = sides.q.begin;
        s.k_begin = sides.k.begin;
        s.stat_row = args.cu_q.data ? sides.q.begin : index * args.q_rows;
        s.accumulator_row = -1;
        s.q_len = sides.q.used;
        s.k_len = sides.k.used;
        s.q_batch = slot(args.cu_q, index);
        s.k_batch = slot(args.cu_k, index);
        return s;
    }

    DEVICE void add_sequence(bool placing, const Sides &sides, i64 index, bool active) const {
        Sequence s = sequence_of(sides, index);
        if (!placing && smaller(s.q_len, s.k_len) < 0) atomic_add(&shared.bins[BROKEN_BIN], 1);
        allocate(placing, s, active);
        // Not unrolled, here and in gaps: the code is fetched anew by every launch.
#pragma unroll 1
        for (int k_side = 0; k_side < LISTS; k_side++) {
            if (list(k_side).header == 0) continue;
            const Side side = k_side ? sides.k : sides.q;
            add(placing, k_side, s, side.used, k_side ? sides.q.used : sides.k.used, active);
            if (args.fill != 0) add_gaps(placing, k_side, side, index, active);
        }
    }

    // A packed batch of no sequences is all gap: it is walked as one empty sequence.
    DEVICE Sides sides_of(i64 index) const {
        const bool any = args.batch > 0, last = index >= args.batch - 1;
        RawSide q = {}, k = {};
        if (any && index < args.batch) {
            q = load_side(args.cu_q, args.used_q, index);
            k = load_side(args.cu_k, args.used_k, index);
        }
        return {clamp_side(q, args.cu_q, args.used_q, last, args.q_rows),
                clamp_side(k, args.cu_k, args.used_k, last, args.k_rows)};
    }

    // ---- few sequences ----

    // Whether anyone asks for rows of a side where no token lives.
    DEVICE bool has_gap(const Side &side, i64 index) const {
        return args.fill != 0 && (side.gap > 0 || (index == 0 && side.begin > 0));
    }
    // A list of sequences that are a lane each: one stands behind as many as come before it.
    DEVICE void place_few(int k_side, const Sequence &sequence, int rows, int other, u32 accumulator_blocks) const {
        const Schedule &to = list(k_side);
        const u32 blocks = blocks_of(rows, tile(k_side));
        u32 first = 0;
        int position = 0;
#pragma unroll 4
        for (int lane = 0; lane < WARP; lane++) {
            const u32 its_blocks = shuffle(blocks, lane);
            const int its_other = shuffle(other, lane);
            if (its_other > other || (its_other == other && lane < lane_index())) {
                first += its_blocks;
                position += its_blocks > 0;
            }
        }
        if (rows > 0) {
            store(pointer<i64>(to.first_block) + position, static_cast<i64>(first));
            store(pointer<Sequence>(to.sequences) + position, sequence);
        }
        // The last entry knows how many blocks there are.
        const int entries = population(warp_ballot(rows > 0));
        if (entries > 0 ? rows > 0 && position == entries - 1 : lane_index() == 0) {
            const i64 all = static_cast<i64>(first) + blocks;
            store(pointer<i64>(to.first_block) + entries, all);
            store(pointer<ScheduleHeader>(to.header),
                  ScheduleHeader{0, all, entries, static_cast<i64>(accumulator_blocks) * args.tile_m});
        }
    }
    // As many sequences as lanes at most, sound and without gaps: no bins, no block syncs, and a tenth of the code, which every launch fetches anew.
    // Every warp looks whether the batch is one of these, the first does the work. `sides`: of the sequence of this lane.
    DEVICE bool schedule_few(const Sides &sides, i64 count) const {
        const int lane = lane_index();
        const bool by_k = args.by_k.header != 0;
        if (warp_any(lane < count && (smaller(sides.q.used, sides.k.used) < 0 || has_gap(sides.q, lane) ||
                                      (by_k && has_gap(sides.k, lane)))))
            return false;
        if (thread_index() >= WARP) return true;
        Sequence s = sequence_of(sides, lane);
        if (lane >= count) s.q_len = s.k_len = 0;
        const u32 own = by_k && accumulates(s) ? blocks_of(s.q_len, args.tile_m) : 0, sum = sum_up_to(own);
        if (own > 0) s.accumulator_row = static_cast<i64>(sum - own) * args.tile_m;
        const u32 all = shuffle(sum, WARP - 1);
#pragma unroll 1
        for (int k_side = 0; k_side < LISTS; k_side++)
            if (list(k_side).header != 0)
                place_few(k_side, s, k_side ? s.k_len : s.q_len, k_side ? s.q_len : s.k_len, all);
        return true;
    }

    // ---- many sequences ----

    // The share's sequences, `own` being this thread's first. Whole warps stay in the loop together.
    DEVICE void walk(bool placing, const Sides &own, i64 begin, i64 end) const {
        Sides sides = own;
        for (i64 index = begin + thread_index();;) {
            add_sequence(placing, sides, index, index < end);
            index += THREADS;
            if (index - lane_index() >= end) break;
            sides = sides_of(index);
        }
    }

    // The counts of all shares, and in `before` of the earlier ones: a bin a thread.
    DEVICE u64 gather() const {
        const int bin = thread_index();
        u64 total = 0, before = 0;
        if (bin >= ALL_BINS) return before;
#pragma unroll 4
        for (int share = 0; share < grid_blocks(); share++) {
            const u64 count = load(&parts()[share].bins[bin]);
            total += count;
            before += share < block_index() ? count : 0;
        }
        shared.bins[bin] = total;
        return before;
    }

    // Exclusive prefix sum of a list's bins; one warp.
    DEVICE void scan(int k_side) const {
        constexpr int PER_LANE = BINS / WARP;
        u64 *bins = shared.bins + k_side * BINS + lane_index() * PER_LANE;
        u64 own = 0;
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) own += bins[i];
        const u64 sum = sum_up_to(own);
        if (lane_index() == WARP - 1) shared.totals[k_side] = sum;
        u64 next = sum - own;
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) {
            const u64 count = bins[i];
            bins[i] = next;
            next += count;
        }
    }

    DEVICE void close(int k_side, bool broken) const {
        if (list(k_side).header == 0) return;
        const u64 total = broken ? 0 : shared.totals[k_side], accumulators = broken ? 0 : shared.totals[LISTS];
        const i64 entries = static_cast<i64>(total >> COUNT_SHIFT);
        const i64 blocks = static_cast<i64>(total & BLOCKS_MASK);
        const i64 accumulator_blocks = static_cast<i64>(accumulators & BLOCKS_MASK);
        store(pointer<i64>(list(k_side).first_block) + entries, blocks);
        store(pointer<ScheduleHeader>(list(k_side).header),
              ScheduleHeader{0, blocks, entries, accumulator_blocks * args.tile_m});
    }

    // Turns counts into places; false if there is nothing to place. `before`: counts of earlier shares, a bin a thread.
    DEVICE bool turn_into_places(u64 before) const {
        const int thread = thread_index();
        const bool broken = shared.bins[BROKEN_BIN] != 0;
        if (thread < LISTS * WARP) scan(thread / WARP);
        if (thread == LISTS * WARP) {
            shared.totals[LISTS] = shared.bins[ACCUMULATOR_BIN];
            shared.bins[ACCUMULATOR_BIN] = 0;
        }
        block_sync();
        if (block_index() == 0 && thread < LISTS) close(thread, broken);
        if (broken) return false;
        if (args.counted != 0) {
            if (thread < ALL_BINS) shared.bins[thread] += before;
            block_sync();
        }
        return true;
    }

    DEVICE void run() const {
        const int thread = thread_index();
        const i64 packed = args.cu_q.data || args.cu_k.data ? 1 : 0, count = larger(args.batch, packed);
        const bool few = count <= WARP;
        const i64 begin = block_index() * args.share, end = smaller(begin + args.share, count);
        const Sides own = sides_of(few ? lane_index() : begin + thread);
        if (few && schedule_few(own, count)) return;
        const bool counted = args.counted != 0;
        for (int bin = thread; bin < ALL_BINS; bin += THREADS) shared.bins[bin] = 0;
        block_sync();
        u64 before = 0;
        if (counted) {
            wait_for_predecessor();
            before = gather();
            block_sync();
        }
        // Both walks are one piece of code: the second finds it fetched.
#pragma unroll 1
        for (int placing = counted; placing < 2; placing++) {
            if (placing != 0 && !turn_into_places(before)) return;
            walk(placing != 0, own, begin, end);
            block_sync();
            if (placing == 0 && args.parts != 0) {
                if (thread < ALL_BINS) store(&parts()[block_index()].bins[thread], shared.bins[thread]);
                return;
            }
        }
    }
};

// ---- Entry ------------------------------------------------------------------------------------------------------------

KERNEL(THREADS, 1) $(entry)(PARAMETER ScheduleArgs args) {
    allow_successor();
    Scheduler{args, *shared_pointer<Shared>(0)}.run();
}
