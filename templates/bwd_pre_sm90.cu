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
constexpr int BATCH = 4;   // rows whose loads a thread has under way together
constexpr int PLENTY = 4;  // items for every block, so that several heads may travel as one

// ---- Roles ------------------------------------------------------------------------------------------------------------

// Statistics of a tile's rows of some heads, all of them one list: a short sequence's rows of one head are too few to hide what loading them takes.
DEVICE void write_statistics(const BackwardPreSm90Args &args, const Sequence &s, int first_head, int heads, int first,
                             float factor) {
    const int rows = smaller(TILE_M, s.q_len - first), count = heads * rows;
    for (int base = thread_index() / ROW_LANES; base - thread_index() / ROW_LANES < count; base += BATCH * PASS_ROWS) {
        float product[BATCH], lse[BATCH];
        int head[BATCH], row[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            const u32 at = smaller(base + i * PASS_ROWS, count - 1), of = at / static_cast<u32>(rows);
            head[i] = first_head + static_cast<int>(of);
            row[i] = first + static_cast<int>(at) - static_cast<int>(of) * rows;
            product[i] = row_product(args.o, args.dout, s, head[i], row[i]);
            lse[i] = load(float_at(args.lse, s.q_batch, s.q_begin + row[i], head[i]));
        }
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            const float delta = row_delta(product[i], args.dlse, s, head[i], row[i]);
            if (base + i * PASS_ROWS >= count || thread_index() % ROW_LANES != 0) continue;
            store(pointer<Vector4>(args.stats) + (head[i] * args.stat_rows + s.stat_row + row[i]),
                  statistics_row(exponent_shift(lse[i], factor), delta));
        }
    }
}

// ---- Entry ------------------------------------------------------------------------------------------------------------

KERNEL(THREADS, $(budget.blocks_per_sm)) $(entry)(PARAMETER BackwardPreSm90Args args) {
    allow_successor();
    wait_for_predecessor();
    const ListReader list(args.schedule);
    const float factor = exponent_factor(args.scale);
    const int heads = chunk_of(list.blocks, args.heads, PLENTY), chunks = args.heads / heads;
    for (i64 item = block_index(); item < list.blocks * chunks; item += grid_blocks()) {
        const ListReader::Place place = list.find(item / chunks);
        const Sequence &s = place.sequence;
        const int first_head = static_cast<int>(item % chunks) * heads, first = place.block * TILE_M;
        const Range seen = Mask(s, args.window_left, args.window_right).key_tiles<TILE_M, TILE_N>(place.block);
        if (seen.end <= seen.begin) {
            for (int head = first_head; head < first_head + heads; head++)
                clear_rows<TILE_M, HEAD_DIM, THREADS>(rows_of(args.dq, s.q_batch, s.q_begin, head), first, s.q_len,
                                                      thread_index());
            continue;
        }
        write_statistics(args, s, first_head, heads, first, factor);
        if (s.accumulator_row >= 0 && thread_index() < heads)
            store(
                turn_of(args.turns, first_head + thread_index(), args.accumulator_rows, s.accumulator_row, place.block),
                0u);
    }
}
