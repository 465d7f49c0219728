// ---- Contract ---------------------------------------------------------------------------------------------------------
//
// Finishes dQ after the backward's main kernel: rows that see no key (gaps among them) become zeros, sums that stand in float32 accumulators are
// multiplied by softmax_scale and rounded. Tiles that the main kernel has written itself are left alone.

//% include "attn/types.cuh"

// ---- Constants --------------------------------------------------------------------------------------------------------

$(constants())

constexpr int THREADS = $(budget.threads);

$(args_structs())

//% include "attn/schedule.cuh"
//% include "attn/mask.cuh"
//% include "tile/global.cuh"
//% include "tile/accumulator.cuh"
//% include "tile/mma.cuh"
//% include "tile/store.cuh"
//% include "ptx/sync.cuh"

// ---- Roles ------------------------------------------------------------------------------------------------------------

// A warp takes 16 rows of 32 columns at a time.
DEVICE void convert_rows(const Rows &dq, const float *tile, int first, int limit, float scale) {
    constexpr int SPAN = 4, SPANS = (DQ_COLUMN_BLOCKS + SPAN - 1) / SPAN;
    for (int part = thread_index() / WARP; part < DQ_ROW_BLOCKS * DQ_ROW_WARPS * SPANS; part += THREADS / WARP) {
        const int row_warp = part % DQ_ROW_WARPS, row_block = part / DQ_ROW_WARPS % DQ_ROW_BLOCKS;
        const int block = part / (DQ_ROW_WARPS * DQ_ROW_BLOCKS) * SPAN;
        float v[SPAN][4];
#pragma unroll
        for (int i = 0; i < SPAN; i++)
            load_group(tile, accumulator_group(row_block, smaller(block + i, DQ_COLUMN_BLOCKS - 1), row_warp), v[i]);
        const int row = first + row_warp * (TILE_M / DQ_ROW_WARPS) + row_block * 16 + lane_index() / 4;
        store_accumulator(dq, block * 8, row, limit, flat(v), scale, HEAD_DIM - block * 8);
    }
}

// ---- Entry ------------------------------------------------------------------------------------------------------------

KERNEL(THREADS, $(budget.blocks_per_sm)) $(entry)(PARAMETER BackwardPostArgs args) {
    wait_for_predecessor();
    const ListReader list(args.schedule);
    for (i64 item = block_index(); item < list.blocks * args.heads; item += grid_blocks()) {
        const ListReader::Place place = list.find(item / args.heads);
        const Sequence &s = place.sequence;
        const int head = static_cast<int>(item % args.heads), first = place.block * TILE_M;
        const Range seen = Mask(s, args.window_left, args.window_right).key_tiles<TILE_M, TILE_N>(place.block);
        const Rows dq = rows_of(args.dq, s.q_batch, s.q_begin, head);
        if (seen.end <= seen.begin)
            clear_rows<TILE_M, HEAD_DIM, THREADS>(dq, first, s.q_len, thread_index());
        else if (s.accumulator_row >= 0)
            convert_rows(
                dq, accumulator_tile(args.accumulator, head, args.accumulator_rows, s.accumulator_row, place.block),
                first, s.q_len, args.scale);
    }
}
