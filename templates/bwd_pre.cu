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
constexpr int BATCH = 4;  // rows whose loads a thread has under way together

// ---- Roles ------------------------------------------------------------------------------------------------------------

// Of a tile of rows.
DEVICE void write_statistics(const BackwardPreArgs &args, const Sequence &s, int head, int first) {
    const int lane = thread_index() % ROW_LANES;
    for (int base = thread_index() / ROW_LANES; base < TILE_M; base += BATCH * PASS_ROWS) {
        float product[BATCH], lse[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            const int row = smaller(first + base + i * PASS_ROWS, s.q_len - 1);  // past the last: that once more
            product[i] = row_product(args.o, args.dout, s, head, row);
            lse[i] = load(float_at(args.lse, s.q_batch, s.q_begin + row, head));
        }
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            const int place = base + i * PASS_ROWS, row = first + place;
            const float delta = row_delta(product[i], args.dlse, s, head, row);
            if (place < TILE_M && row < s.q_len && lane == 0)
                store(pointer<Float2>(args.stats) + (head * args.stat_rows + s.stat_row + row),
                      Float2{lse[i] == -infinity() ? 0.0f : lse[i] * LOG2_E, delta});
        }
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
        if (place.sequence.accumulator_row >= 0) clear_accumulators(args, place.sequence, head, place.block);
        write_statistics(args, place.sequence, head, place.block * TILE_M);
    }
}
