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
constexpr int BATCH = 4;  // rows whose loads a thread has under way together
constexpr int LANE_ROWS = BATCH > ROW_LANES ? BATCH / ROW_LANES : 1;  // of them, those that a lane finishes
constexpr int PLENTY = 4, MOST_HEADS = 16;  // items for every block, so that several heads may travel as one

// ---- Roles ------------------------------------------------------------------------------------------------------------

// Sums over the lanes of a row, of BATCH rows at once: as long as a lane has two rows it keeps one and hands the other on, so that it ends with
// rows lane, lane + ROW_LANES ..., and lanes beyond BATCH with what others have too.
DEVICE void add_lanes(float (&x)[BATCH]) {
    int count = BATCH;
#pragma unroll
    for (int distance = 1; distance < ROW_LANES; distance *= 2) {
        const bool odd = thread_index() & distance;
        if (count == 1) x[0] += shuffle_xor(x[0], distance);
        if (count == 1) continue;
        count /= 2;
#pragma unroll
        for (int i = 0; i < count; i++) {
            const float first = x[i + i], second = x[i + i + 1];
            x[i] = (odd ? second : first) + shuffle_xor(odd ? first : second, distance);
        }
    }
}

// Statistics of a tile's rows of some heads, all of them one list: a short sequence's rows of one head are too few to hide what loading them takes.
DEVICE void write_statistics(const BackwardPreSm90Args &args, const Sequence &s, int first_head, int heads, int first,
                             float factor) {
    const int rows = smaller(TILE_M, s.q_len - first), count = heads * rows;
    const int group = thread_index() / ROW_LANES, lane = thread_index() % ROW_LANES;
    const int column = smaller(lane, CHUNKS - 1) * 8;
    const i64 begin = s.q_begin + first;
    const u16 *o = rows_of(args.o, s.q_batch, begin, first_head).data + column;
    const u16 *dout = rows_of(args.dout, s.q_batch, begin, first_head).data + column;
    const float *lse = float_at(args.lse, s.q_batch, begin, first_head);
    Vector4 *stats = pointer<Vector4>(args.stats) + (first_head * args.stat_rows + s.stat_row + first);
    const int step_heads = PASS_ROWS / rows, step_rows = PASS_ROWS - step_heads * rows;
    int head = group / rows, row = group - head * rows;
    for (int base = group; base - group < count; base += BATCH * PASS_ROWS) {
        Vector4 o_chunk[BATCH], dout_chunk[BATCH];
        u32 own_head[LANE_ROWS], own_row[LANE_ROWS];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            const bool real = base + i * PASS_ROWS < count;  // else the last row once more
            const u32 of = real ? head : heads - 1, at = real ? row : rows - 1;
            o_chunk[i] = read_chunk(o + of * args.o.head_stride + at * args.o.row_stride);
            dout_chunk[i] = read_chunk(dout + of * args.dout.head_stride + at * args.dout.row_stride);
            if (i % ROW_LANES <= lane) {
                own_head[i / ROW_LANES] = of;
                own_row[i / ROW_LANES] = at;
            }
            head += step_heads;
            row += step_rows;
            if (row >= rows) {
                row -= rows;
                head++;
            }
        }
        float own_lse[LANE_ROWS];
#pragma unroll
        for (int i = 0; i < LANE_ROWS; i++) {
            const float value = load(lse + own_head[i] * args.lse.head_stride + own_row[i] * args.lse.row_stride);
            own_lse[i] = shuffle_xor(value, 0);  // a use in front of the branch, behind which it would be loaded else
        }
        float product[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) product[i] = lane < CHUNKS ? dot_chunk(o_chunk[i], dout_chunk[i]) : 0.0f;
        add_lanes(product);
#pragma unroll
        for (int i = 0; i < LANE_ROWS; i++) {
            if (lane >= BATCH || base + (i * ROW_LANES + lane) * PASS_ROWS >= count) continue;
            float delta = product[i];
            if (args.dlse.data)
                delta -= load(float_at(args.dlse, s.q_batch, begin, first_head) + own_head[i] * args.dlse.head_stride +
                              own_row[i] * args.dlse.row_stride);
            store(stats + own_head[i] * args.stat_rows + own_row[i],
                  statistics_row(exponent_shift(own_lse[i], factor), delta));
        }
    }
}

// ---- Entry ------------------------------------------------------------------------------------------------------------

KERNEL(THREADS, $(budget.blocks_per_sm)) $(entry)(PARAMETER BackwardPreSm90Args args) {
    allow_successor();
    wait_for_predecessor();
    const ListReader list(args.schedule);
    const float factor = exponent_factor(args.scale);
    const int heads = chunk_of(list.blocks, args.heads, PLENTY, MOST_HEADS), chunks = args.heads / heads;
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
