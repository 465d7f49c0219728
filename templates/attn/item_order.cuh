// The order in which items are drawn from a list, and a queue of them for blocks of threads that work together.
//
// Inside a sequence, heads go in sections; a section runs block by block over its heads, query heads of one key head side by side. Where blocks
// differ in length (causal) or wait for each other (turns), a section is as many heads as fit the L2 cache together, so that long blocks of many
// heads come first; elsewhere it is one key head, which reads least. Blocks go last first, or first first: whichever is longest first with a
// causal mask, or in the backward's deterministic mode the order of turns.

//% include "attn/schedule.cuh"

//% if budget.l2_section_mib then
constexpr float L2_SECTION_BYTES = $(budget.l2_section_mib) << 20;  // with room for what a reciprocal is off by
constexpr float APART_SECTION_BYTES = 4 * L2_SECTION_BYTES;
//% end -- l2_section_mib

// Item `item`, in the order described above, of chunks of heads; row_bytes: what one row of the streamed operands occupies in a chunk. A section
// is whole chunks, and whole groups of query heads as long as a group fits. The last `apart` chunks have sections of their own,
// larger ones: they are for blocks that stay close together.
DEVICE Work decode_work(const ListReader &list, u64 item, int chunks, int group_chunks, float row_bytes,
                        int apart = 0) {
    Work work = {};
    if (item >= static_cast<u64>(list.blocks) * chunks) return work;
    const ListReader::Place place = list.find(static_cast<i64>(item / chunks));
    u64 local = item - static_cast<u64>(place.first) * chunks;
    int first = 0;  // chunk of those that have sections together
    const u64 others = static_cast<u64>(chunks - apart) * place.blocks;
    const bool is_apart = apart > 0 && local >= others;
    if (is_apart) {
        first = chunks - apart;
        local -= others;
    }
    chunks = is_apart ? apart : chunks - apart;
    //% if budget.l2_section_mib then
    const float section_bytes = is_apart ? APART_SECTION_BYTES : L2_SECTION_BYTES;
    const float streamed =
        static_cast<float>(larger(place.sequence.q_len, place.sequence.k_len)) * row_bytes * group_chunks;
    const int fitting =
        static_cast<int>(smaller(section_bytes * rcp(larger(streamed, 1.0f)), static_cast<float>(chunks)));
    const int section_chunks = smaller(larger(fitting, 1) * group_chunks, chunks);
    //% else
    const int section_chunks = group_chunks;
    //% end -- l2_section_mib
    const u64 section_items = static_cast<u64>(section_chunks) * place.blocks;
    const int section = static_cast<int>(local / section_items);
    const int rest = static_cast<int>(local - section * section_items);
    const int width = smaller(section_chunks, chunks - section * section_chunks);
    work.sequence = place.sequence;
    work.head = first + section * section_chunks + rest % width;  // in chunks
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

    DEVICE WorkQueue(const Schedule &list, Work *slot_memory, int head_count, int group_size, float bytes)
        : schedule(list), slots(slot_memory), heads(head_count), group(group_size), row_bytes(bytes),
          chunk(chunk_of(ListReader(list).blocks, head_count)), turn(0) {
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
