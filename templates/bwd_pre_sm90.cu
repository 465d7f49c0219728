// ---- Contract ---------------------------------------------------------------------------------------------------------
//
// What the Hopper backward needs before its main kernel, per tile of TILE_M query rows and head:
//
//     row statistics (attn/row_statistics.cuh), and a turn counter of 0 where the tile's dQ is summed in memory
//
// and, because no key tile will come by to do it, zeros in dQ where no query of the tile sees a key (gaps among them). Rows outside the
// sequences are not read. The dQ accumulators need no preparation: the first key tile stores, the others add.

//% include "attn/types.cuh"

// ---- Constants --------------------------------------------------------------------------------------------------------

$(constants())

constexpr int THREADS = $(budget.threads);

$(args_structs())

//% include "attn/schedule.cuh"
//% include "attn/mask.cuh"
//% include "attn/delta.cuh"
//% include "attn/row_statistics.cuh"
//% include "tile/accumulator.cuh"
//% include "ptx/sync.cuh"

constexpr int PASS_ROWS = THREADS / ROW_LANES;

// ---- Roles ------------------------------------------------------------------------------------------------------------

DEVICE void clear_rows(const Rows &dq, int first, int limit) {
    constexpr int PARTS = HEAD_DIM / 8;
    for (int i = thread_index(); i < TILE_M * PARTS; i += THREADS)
        if (first + i / PARTS < limit) store_chunk(dq.row(first + i / PARTS) + i % PARTS * 8, Vector4{0, 0, 0, 0});
}

DEVICE void row_statistics(const BackwardPreSm90Args &args, const Sequence &s, int head, int row, float factor) {
    const float delta = row_delta(args.o, args.dout, args.dlse, s, head, row);
    if (row >= s.q_len || thread_index() % ROW_LANES != 0) return;
    const float lse = load(float_at(args.lse, s.q_batch, s.q_begin + row, head));
    store(pointer<Vector4>(args.stats) + (head * args.stat_rows + s.stat_row + row),
          statistics_row(exponent_shift(lse, factor), delta));
}

// ---- Entry ------------------------------------------------------------------------------------------------------------

KERNEL(THREADS, $(budget.blocks_per_sm)) $(entry)(PARAMETER BackwardPreSm90Args args) {
    allow_successor();
    wait_for_predecessor();
    const ListReader list(args.schedule);
    const float factor = exponent_factor(args.scale);
    for (i64 item = block_index(); item < list.blocks * args.heads; item += grid_blocks()) {
        const ListReader::Place place = list.find(item / args.heads);
        const Sequence &s = place.sequence;
        const int head = static_cast<int>(item % args.heads), first = place.block * TILE_M;
        const Range seen = Mask(s, args.window_left, args.window_right).key_tiles<TILE_M, TILE_N>(place.block);
        if (seen.end <= seen.begin) {
            clear_rows(rows_of(args.dq, s.q_batch, s.q_begin, head), first, s.q_len);
            continue;
        }
        for (int row = thread_index() / ROW_LANES; row < TILE_M; row += PASS_ROWS)
            row_statistics(args, s, head, first + row, factor);
        if (s.accumulator_row >= 0 && thread_index() == 0)
            store(turn_of(args.turns, head, args.accumulator_rows, s.accumulator_row, place.block), 0u);
    }
}
