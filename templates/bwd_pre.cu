// ---- Contract ---------------------------------------------------------------------------------------------------------
//
// What the backward needs of every query row before its main kernel:
//
//     stats = (lse * log2(e), delta)     delta = sum over d of dO * O, minus the gradient of lse
//
// and zeros in the dQ accumulators and turn counters of the sequences that use them. A row that sees no key gets 0 for its lse: the main kernel
// masks it, and a finite number keeps it harmless. Rows outside the sequences are not read.

//% include "attn/types.cuh"

// ---- Constants --------------------------------------------------------------------------------------------------------

$(constants())

constexpr int THREADS = $(budget.threads);
constexpr int CHUNKS = HEAD_DIM_V / 8;  // of a row of O
constexpr int row_lanes(int chunks) {
    return chunks > 16 ? 32 : chunks > 8 ? 16 : chunks > 4 ? 8 : chunks > 2 ? 4 : chunks;
}
constexpr int ROW_LANES = row_lanes(CHUNKS);  // lanes that share a row, a chunk each
constexpr int PASS_ROWS = THREADS / ROW_LANES;

$(args_structs())

//% include "attn/schedule.cuh"
//% include "tile/global.cuh"
//% include "ptx/sync.cuh"

// ---- Roles ------------------------------------------------------------------------------------------------------------

DEVICE float dot_pair(u32 a, u32 b) {
    const float low = unpack(static_cast<u16>(a)) * unpack(static_cast<u16>(b));
    return fma_f32(unpack(static_cast<u16>(a >> 16)), unpack(static_cast<u16>(b >> 16)), low);
}
DEVICE float dot_chunk(const Vector4 &a, const Vector4 &b) {
    return (dot_pair(a.x, b.x) + dot_pair(a.y, b.y)) + (dot_pair(a.z, b.z) + dot_pair(a.w, b.w));
}
DEVICE Vector4 read_chunk(const u16 *from) {
    //% if aligned then
    return load_once(reinterpret_cast<const Vector4 *>(from));
    //% else
    return gather_chunk(from);
    //% end -- aligned
}

DEVICE void row_statistics(const BackwardPreArgs &args, const Sequence &s, int head, int row) {
    const int lane = thread_index() % ROW_LANES;
    float delta = 0.0f;
    if (row < s.q_len && lane < CHUNKS) {
        const Rows o = rows_of(args.o, s.q_batch, s.q_begin, head),
                   dout = rows_of(args.dout, s.q_batch, s.q_begin, head);
        delta = dot_chunk(read_chunk(o.row(row) + lane * 8), read_chunk(dout.row(row) + lane * 8));
    }
#pragma unroll
    for (int distance = 1; distance < ROW_LANES; distance *= 2) delta += shuffle_xor(delta, distance);
    if (row < s.q_len && lane == 0) {
        const float lse = load(float_at(args.lse, s.q_batch, s.q_begin + row, head));
        if (args.dlse.data) delta -= load(float_at(args.dlse, s.q_batch, s.q_begin + row, head));
        store(pointer<Float2>(args.stats) + (head * args.stat_rows + s.stat_row + row),
              Float2{lse == -infinity() ? 0.0f : lse * LOG2_E, delta});
    }
}

DEVICE void clear_accumulators(const BackwardPreArgs &args, const Sequence &s, int head, int block) {
    const i64 first = head * args.accumulator_rows + s.accumulator_row + static_cast<i64>(block) * TILE_M;
    Vector4 *accumulator = pointer<Vector4>(args.accumulator) + first * (HEAD_DIM / 4);
    for (int i = thread_index(); i < TILE_M * HEAD_DIM / 4; i += THREADS) store(accumulator + i, Vector4{0, 0, 0, 0});
    if (args.turns && thread_index() == 0) store(pointer<u32>(args.turns) + first / TILE_M, 0u);
}

// ---- Entry ------------------------------------------------------------------------------------------------------------

KERNEL(THREADS, $(budget.blocks_per_sm)) $(entry)(PARAMETER BackwardPreArgs args) {
    allow_successor();
    wait_for_predecessor();
    const ListReader list(args.schedule);
    for (i64 item = block_index(); item < list.blocks * args.heads; item += grid_blocks()) {
        const ListReader::Place place = list.find(item / args.heads);
        const int head = static_cast<int>(item % args.heads);
        if (place.sequence.k_len == 0) continue;
        for (int row = thread_index() / ROW_LANES; row < TILE_M; row += PASS_ROWS)
            row_statistics(args, place.sequence, head, place.block * TILE_M + row);
        if (place.sequence.accumulator_row >= 0) clear_accumulators(args, place.sequence, head, place.block);
    }
}
