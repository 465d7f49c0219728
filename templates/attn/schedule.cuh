// The work list as the attention kernels see it; schedule.cu writes it. Items are (sequence, head, block of rows); a block of threads draws
// them by ticket, in order, and may wait only for work with lower tickets.
//
// Inside a sequence, heads go in sections; a section runs block by block over its heads, query heads of one key head side by side. Where blocks
// differ in length (causal) or wait for each other (turns), a section is as many heads as fit the L2 cache together, so that long blocks of many
// heads come first; elsewhere it is one key head, which reads least. Blocks go last first, or first first: whichever is longest first with a
// causal mask, or in the backward's deterministic mode the order of turns.

//% include "attn/types.cuh"

constexpr float L2_SECTION_BYTES = 33 << 20;  // 32 MiB, and room for what a reciprocal is off by

struct Work {
    Sequence sequence;
    int head;  // the first of WorkQueue's chunk
    int block;
    int more;  // 0: no work is left
    int reserved;
};

// How many neighbouring heads travel as one item: finding a sequence costs as much as a short sequence's attention, so where items are
// plenty (that many for every block of threads) up to 8 heads share it. A divisor of `heads`.
DEVICE int chunk_of(i64 blocks, int heads, int plenty = 16) {
    int chunk = static_cast<int>(
        smaller(larger(blocks * heads / (static_cast<i64>(grid_blocks()) * plenty), static_cast<i64>(1)),
                static_cast<i64>(smaller(heads, 8))));
    while (heads % chunk != 0) chunk--;
    return chunk;
}

// The entry that holds block `at` of one head: the last with first_block <= at. All lanes of a warp search 32 ways at once.
DEVICE i64 find_sequence(const i64 *first_block, i64 entries, i64 at) {
    i64 low = 0, count = entries;
    while (count > 1) {
        const i64 step = (count + WARP - 1) / WARP;
        const i64 probe = low + lane_index() * step;
        const bool before = lane_index() * step < count && load(first_block + probe) <= at;
        const int passed = population(warp_ballot(before));  // at least one: first_block[low] <= at
        low += (passed - 1) * step;
        count = smaller(step, count - (passed - 1) * step);
    }
    return low;
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

// Item `item`, in the order described above, of chunks of heads; row_bytes: what one row of the streamed operands occupies in a chunk. A section
// is whole chunks, and whole groups of query heads as long as a group fits.
DEVICE Work decode_work(const ListReader &list, u64 item, int chunks, int group_chunks, float row_bytes) {
    Work work = {};
    if (item >= static_cast<u64>(list.blocks) * chunks) return work;
    const ListReader::Place place = list.find(static_cast<i64>(item / chunks));
    //% if budget.l2_sections then
    const float streamed =
        static_cast<float>(larger(place.sequence.q_len, place.sequence.k_len)) * row_bytes * group_chunks;
    const int fitting =
        static_cast<int>(smaller(L2_SECTION_BYTES * rcp(larger(streamed, 1.0f)), static_cast<float>(chunks)));
    const int section_chunks = smaller(larger(fitting, 1) * group_chunks, chunks);
    //% else
    const int section_chunks = group_chunks;
    //% end -- l2_sections
    const u64 local = item - static_cast<u64>(place.first) * chunks;
    const u64 section_items = static_cast<u64>(section_chunks) * place.blocks;
    const int section = static_cast<int>(local / section_items);
    const int rest = static_cast<int>(local - section * section_items);
    const int width = smaller(section_chunks, chunks - section * section_chunks);
    work.sequence = place.sequence;
    work.head = section * section_chunks + rest % width;  // in chunks
    //% if budget.last_block_first then
    work.block = place.blocks - 1 - rest / width;
    //% else
    work.block = rest / width;
    //% end -- last_block_first
    work.more = 1;
    return work;
}

// Hands items to a whole block of threads. Two slots in shared memory: the next item is written while the current one is worked on; the
// block sync at the top of every item separates a slot's readers from its next writer. A block so holds two tickets; it works in their
// order, so the lowest unfinished ticket is always being worked on.
struct WorkQueue {
    const Schedule &schedule;
    Work *slots;  // Work[2]
    int heads, group;
    float row_bytes;  // of one head
    int chunk, turn;

    DEVICE WorkQueue(const Schedule &list, Work *slot_memory, int head_count, int group_size, int bytes)
        : schedule(list), slots(slot_memory), heads(head_count), group(group_size),
          row_bytes(static_cast<float>(bytes)), chunk(chunk_of(ListReader(list).blocks, head_count)), turn(0) {
        prepare();
    }
    // The next item, in shared memory: reading it again later costs less than registers. All threads of the block; what the block did
    // before is complete when it returns.
    DEVICE const Work &next() {
        block_sync();
        const Work &work = slots[turn];
        turn ^= 1;
        return work;
    }
    // Warp 0 draws the item after the current one: once between two calls of next(), best while copies are under way. Who waits for turns draws
    // at the end: an item that is held back would hold back all that wait for it.
    DEVICE void prepare() const {
        if (thread_index() >= WARP) return;
        u64 ticket = 0;
        if (lane_index() == 0) ticket = atomic_add(&pointer<ScheduleHeader>(schedule.header)->ticket, 1);
        Work work = decode_work(ListReader(schedule), shuffle(ticket, 0), heads / chunk, larger(group / chunk, 1),
                                row_bytes * static_cast<float>(chunk));
        work.head *= chunk;
        if (lane_index() == 0) slots[turn] = work;
        warp_sync();
    }
};
