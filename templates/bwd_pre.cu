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

$(args_structs())

//% include "attn/schedule.cuh"
//% include "attn/delta.cuh"
//% include "tile/global.cuh"
//% include "ptx/sync.cuh"

constexpr int PASS_ROWS = THREADS / ROW_LANES;

// ---- Roles ------------------------------------------------------------------------------------------------------------

DEVICE void row_statistics(const BackwardPreArgs &args, const Sequence &s, int head, int row) {
    const float product = row_product(args.o, args.dout, s, head, smaller(row, s.q_len - 1));
    const float delta = row_delta(product, args.dlse, s, head, row);
    if (row >= s.q_len || thread_index() % ROW_LANES != 0) return;
    const float lse = load(float_at(args.lse, s.q_batch, s.q_begin + row, head));
    store(pointer<Float2>(args.stats) + (head * args.stat_rows + s.stat_row + row),
          Float2{lse == -infinity() ? 0.0f : lse * LOG2_E, delta});
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
