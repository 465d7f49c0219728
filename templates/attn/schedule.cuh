// The work list as the attention kernels see it; schedule.cu writes it. Items are (sequence, head, block of rows); a block of threads draws
// them by ticket, in order, and may wait only for work with lower tickets.
//
// Inside a sequence, heads go in sections whose keys and values fit the L2 cache together; a section runs block by block, last rows
// first (with a causal mask the longest first), over its heads, query heads of one key head side by side.

//% include "attn/types.cuh"

constexpr i64 L2_SECTION_BYTES = 32 << 20;

struct Work {
    Sequence sequence;
    int head, block;
    int more; // 0: no work is left
    int reserved;
};

// The entry that holds block `at` of one head: the last with first_block <= at. All lanes of a warp search 32 ways at once.
DEVICE i64 find_sequence(const i64 *first_block, i64 entries, i64 at) {
    i64 low = 0, count = entries;
    while (count > 1) {
        const i64 step = (count + WARP - 1) / WARP;
        const i64 probe = low + lane_index() * step;
        const bool before = lane_index() * step < count && load(first_block + probe) <= at;
        const int passed = population(warp_ballot(before)); // at least one: first_block[low] <= at
        low += (passed - 1) * step;
        count = smaller(step, count - (passed - 1) * step);
    }
    return low;
}

// A list, read by whole warps.
struct ListReader {
    const i64 *first_block;
    const Sequence *sequences;
    i64 blocks, entries; // blocks: of one head, all entries together

    struct Place {
        Sequence sequence;
        i64 first; // blocks of all earlier entries
        int block, blocks; // in the entry
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

// Item `item` of `heads` heads, in the order described above; row_bytes: what one row of the streamed operands occupies in one head.
DEVICE Work decode_work(const ListReader &list, u64 item, int heads, int group, int row_bytes) {
    Work work = {};
    if (item >= static_cast<u64>(list.blocks) * heads) return work;
    const ListReader::Place place = list.find(static_cast<i64>(item / heads));
    const i64 streamed = larger(place.sequence.q_len, place.sequence.k_len);
    const i64 fitting = L2_SECTION_BYTES / larger(streamed * row_bytes, static_cast<i64>(1)) / group;
    const int section_heads = static_cast<int>(smaller(larger(fitting, static_cast<i64>(1)) * group, static_cast<i64>(heads)));
    const u64 local = item - static_cast<u64>(place.first) * heads;
    const u64 section_items = static_cast<u64>(section_heads) * place.blocks;
    const int section = static_cast<int>(local / section_items);
    const int rest = static_cast<int>(local % section_items);
    const int width = smaller(section_heads, heads - section * section_heads);
    work.sequence = place.sequence;
    work.head = section * section_heads + rest % width;
    work.block = place.blocks - 1 - rest / width;
    work.more = 1;
    return work;
}

// Hands items to a whole block of threads. Two slots in shared memory: the next item is written while the current one may still be
// read; the block sync at the top of every item separates a slot's readers from its next writer.
struct WorkQueue {
    const Schedule &schedule;
    Work *slots; // Work[2]
    int heads, group, row_bytes;
    u64 ticket; // of the item after the current one; lane 0 of warp 0
    int turn;

    DEVICE WorkQueue(const Schedule &list, Work *slot_memory, int head_count, int group_size, int bytes)
        : schedule(list), slots(slot_memory), heads(head_count), group(group_size), row_bytes(bytes), ticket(0), turn(0) {
        if (thread_index() < WARP) {
            draw();
            publish();
        }
    }
    // The next item, in shared memory: reading it again later costs less than registers. All threads of the block; what the block did
    // before is complete when it returns.
    DEVICE const Work &next() {
        block_sync();
        const Work &work = slots[turn];
        if (work.more && thread_index() < WARP) draw();
        turn ^= 1;
        return work;
    }
    // Warp 0, after the work on the current item and before next().
    DEVICE void publish_next() {
        if (thread_index() < WARP) publish();
    }

  private:
    DEVICE void draw() {
        if (lane_index() == 0) ticket = atomic_add(&pointer<ScheduleHeader>(schedule.header)->ticket, 1);
    }
    DEVICE void publish() {
        const Work work = decode_work(ListReader(schedule), shuffle(ticket, 0), heads, group, row_bytes);
        if (lane_index() == 0) slots[turn] = work;
        warp_sync();
    }
};
