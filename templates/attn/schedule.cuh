// The work list as the attention kernels see it; schedule.cu writes it. Items are (sequence, head, block of rows); a block of threads draws
// them by ticket, in order (item_order.cuh), and may wait only for work with lower tickets.

//% include "attn/types.cuh"

struct Work {
    Sequence sequence;
    int head;  // the first of a chunk
    int block;
    int more;  // 0: no work is left
    int reserved;
};

// How many neighbouring heads travel as one item: finding a sequence costs as much as a short sequence's attention, so where items are
// plenty (that many for every block of threads) up to `most` heads share it. A divisor of `heads`.
DEVICE int chunk_of(i64 blocks, int heads, int plenty = 16, int most = 8) {
    int chunk = static_cast<int>(
        smaller(larger(blocks * heads / (static_cast<i64>(grid_blocks()) * plenty), static_cast<i64>(1)),
                static_cast<i64>(smaller(heads, most))));
    while (heads % chunk != 0) chunk--;
    return chunk;
}

// The last of 0 ... count - 1 whose key is not above `at`; keys ascend, and the first is not above it. All lanes of a warp search 32 ways at once.
template <class Key> DEVICE i64 last_not_above(i64 count, i64 at, Key key) {
    i64 low = 0;
    while (count > 1) {
        const i64 step = (count + WARP - 1) / WARP, offset = lane_index() * step;
        const bool above = key(low + smaller(offset, count - 1)) > at;
        const int passed = population(warp_ballot(!above && offset < count));
        low += (passed - 1) * step;
        count = smaller(step, count - (passed - 1) * step);
    }
    return low;
}

// The entry that holds block `at` of one head: the last with first_block <= at.
DEVICE i64 find_sequence(const i64 *first_block, i64 entries, i64 at) {
    return last_not_above(entries, at, [first_block](i64 entry) { return load(first_block + entry); });
}

// A list, read by whole warps.
struct ListReader {
    const i64 *first_block;
    const Sequence *sequences;
    i64 blocks, entries;  // blocks: of one head, all entries together

    struct Place {
        Sequence sequence;
        i64 first;          // blocks of all earlier entries
        int block, blocks;  // in the entry
    };

    DEVICE explicit ListReader(const Schedule &schedule)
        : first_block(pointer<const i64>(schedule.first_block)), sequences(pointer<const Sequence>(schedule.sequences)),
          blocks(load(&pointer<const ScheduleHeader>(schedule.header)->blocks)),
          entries(load(&pointer<const ScheduleHeader>(schedule.header)->entries)) {}

    DEVICE Place find(i64 block) const {
        const i64 entry = find_sequence(first_block, entries, block);
        const i64 first = load(first_block + entry);
        return {load(sequences + entry), first, static_cast<int>(block - first),
                static_cast<int>(load(first_block + entry + 1) - first)};
    }
};
