// ---- Contract ---------------------------------------------------------------------------------------------------------
//
// Variable-length attention forward, portable family: cp.async and mma.sync, sm_80 and later.
//
//     o = softmax(mask(softmax_scale * q k^T)) v      lse = log of the softmax's denominator      (docs/design.md, contract)
//
// A block of threads draws work items (sequence, query head, TILE_M rows of q). Every warp owns WARP_ROWS of the rows and walks over the
// key tiles, last to first, with scores, weights and output in registers:
//
//                      K tile, V tile (TILE_N keys)      STAGES of them in shared memory, filled by all threads
//              +--------------+
//     warp 0   | scores  ->   | output                   score tile  = Q K^T      (registers)
//     warp 1   | weights      |                          weights     = softmax    (registers, packed as the next A operand)
//     ...      |              |                          output     += weights V  (registers)
//              +--------------+
//
// Host: the grid is at most what is co-resident; schedule.cu has run before; a head's rows are 16-byte aligned unless !aligned.

//% include "attn/types.cuh"

// ---- Constants --------------------------------------------------------------------------------------------------------

$(constants())

constexpr int THREADS = WARPS * WARP;
constexpr int WARP_ROWS = TILE_M / WARPS;
constexpr int M_BLOCKS = WARP_ROWS / 16;
constexpr int KEY_BLOCKS = TILE_N / 8;
constexpr int OUT_BLOCKS = HEAD_DIM_V / 8;
constexpr int QK_STEPS = HEAD_DIM / 16;
static_assert(TILE_M == WARPS * M_BLOCKS * 16, "every warp owns whole blocks of 16 rows");
static_assert(TILE_N % 16 == 0, "weights are contracted 16 keys at a time");

$(args_structs())

//% include "attn/item_order.cuh"
//% include "attn/mask.cuh"
//% include "attn/softcap.cuh"
//% include "attn/softmax.cuh"
//% include "tile/mma.cuh"
//% include "tile/global.cuh"
//% include "ptx/sync.cuh"

// ---- Shared memory ----------------------------------------------------------------------------------------------------

// q is private to its warp: its rows of q, and at the end its rows of o. k and v are rings of STAGES tiles.
constexpr int Q_WARP_BYTES = $(budget.q_warp_bytes);
constexpr int K_BYTES = TILE_N * HEAD_DIM * 2;
constexpr int V_BYTES = TILE_N * HEAD_DIM_V * 2;
constexpr int Q_OFFSET = $(budget.offsets.q);
constexpr int K_OFFSET = $(budget.offsets.k);
constexpr int V_OFFSET = $(budget.offsets.v);
constexpr int WORK_OFFSET = $(budget.offsets.work);
static_assert(WORK_OFFSET + 2 * sizeof(Work) == $(budget.shared_bytes), "the kernel and its budget agree");

// ---- Barriers ---------------------------------------------------------------------------------------------------------
//
// Block syncs alone:
//     top of an item       all of the item before is done: its work slot and shared memory may be overwritten
//     top of a key tile    the tile's copies (every thread waited for its own) are visible; the stage that is filled next is free
//     STAGES == 1 only     after a key tile: its stage may be filled again

// ---- Roles ------------------------------------------------------------------------------------------------------------

using Scores = float[M_BLOCKS][KEY_BLOCKS][4];
using Output = float[M_BLOCKS][OUT_BLOCKS][4];

DEVICE void mask_scores(Scores &scores, const Mask &mask, int first_row, int first_key) {
#pragma unroll
    for (int m = 0; m < M_BLOCKS; m++) hide_scores(mask, first_row + m * 16, first_key, flat(scores[m]));
}

// One work item's operands, and the walk over its key tiles.
struct Forward {
    const ForwardArgs &args;
    const u32 shared, q_tile;  // this warp's part of q
    const int warp;

    DEVICE explicit Forward(const ForwardArgs &a)
        : args(a), shared(shared_address(shared_memory())),
          q_tile(shared + Q_OFFSET + uniform(thread_index() / WARP) * Q_WARP_BYTES),
          warp(uniform(thread_index() / WARP)) {}

    // Every warp brings its own rows; visible to the warp after cp_async_wait and any sync.
    DEVICE void load_q(const Sequence &s, int head, int first_row) const {
        load_tile<WARP_ROWS, HEAD_DIM, WARP>(q_tile, rows_of(args.q, s.q_batch, s.q_begin, head), first_row, s.q_len,
                                             lane_index());
    }
    DEVICE void load_kv(const Rows &k, const Rows &v, int tile, int k_len) const {
        const int stage = tile % STAGES, first = tile * TILE_N;
        load_tile<TILE_N, HEAD_DIM, THREADS>(shared + K_OFFSET + stage * K_BYTES, k, first, k_len, thread_index());
        load_tile<TILE_N, HEAD_DIM_V, THREADS>(shared + V_OFFSET + stage * V_BYTES, v, first, k_len, thread_index());
    }

    // One head of an item. The first draws the next item while its operands are on their way.
    DEVICE void run(const Work &work, int head, const WorkQueue &queue) const {
        const Sequence &s = work.sequence;
        const Mask mask(s, args.window_left, args.window_right);
        const int block = uniform(work.block);
        const Range seen = mask.key_tiles<TILE_M, TILE_N>(block);
        const Range tiles = {uniform(seen.begin), uniform(seen.end)};
        const Range whole = mask.whole_key_tiles<TILE_M, TILE_N>(block);
        const int first_row = block * TILE_M + warp * WARP_ROWS;
        const bool draw = head == work.head;

        Output output;
        Softmax<M_BLOCKS> softmax;
        clear(output);
        if (tiles.end > tiles.begin) {
            const Rows k = rows_of(args.k, s.k_batch, s.k_begin, head / args.group);
            const Rows v = rows_of(args.v, s.k_batch, s.k_begin, head / args.group);
            load_q(s, head, first_row);
#pragma unroll
            for (int i = 0; i < STAGES - 1; i++) {
                if (tiles.end - 1 - i >= tiles.begin) load_kv(k, v, tiles.end - 1 - i, s.k_len);
                cp_async_commit();
            }
            if (draw) queue.prepare();
            //% if q_registers then
            RegistersOfA<M_BLOCKS, (HEAD_DIM + 15) / 16> q;
            //% else
            const RowsOfA<HEAD_DIM> q = {FragmentAddress<HEAD_DIM, DOWN>(q_tile), 0};
            //% end -- q_registers
            for (int tile = tiles.end - 1; tile >= tiles.begin; tile--) {
                //% if stages == 1 then
                load_kv(k, v, tile, s.k_len);
                cp_async_commit();
                cp_async_wait<0>();
                block_sync();
                //% else
                cp_async_wait<STAGES - 2>();
                block_sync();
                if (tile - (STAGES - 1) >= tiles.begin) load_kv(k, v, tile - (STAGES - 1), s.k_len);
                cp_async_commit();
                //% end -- stages
                //% if q_registers then
                if (tile == tiles.end - 1) load_q_registers(q);
                //% end -- q_registers
                Scores scores;
                multiply_qk(scores, q, tile % STAGES);
#pragma unroll
                for (int m = 0; m < M_BLOCKS; m++) cap_scores(args, flat(scores[m]));
                if (tile >= whole.end || tile < whole.begin) mask_scores(scores, mask, first_row, tile * TILE_N);
                softmax.weigh(scores, output, score_factor(args));
                multiply_pv(output, scores, tile % STAGES);
                //% if stages == 1 then
                block_sync();
                //% end -- stages
            }
            cp_async_wait<0>();
        } else if (draw) {
            queue.prepare();
        }
        finish(s, head, first_row, output, softmax);
    }

  private:
    //% if q_registers then
    DEVICE void load_q_registers(RegistersOfA<M_BLOCKS, (HEAD_DIM + 15) / 16> &q) const {
        const RowsOfA<HEAD_DIM> rows = {FragmentAddress<HEAD_DIM, DOWN>(q_tile), 0};
#pragma unroll
        for (int m = 0; m < M_BLOCKS; m++) {
#pragma unroll
            for (int step = 0; step < QK_STEPS; step++) rows.load(q.fragment[m][step], m, step);
            //% if head_dim % 16 ~= 0 then
            rows.load_half(q.fragment[m][QK_STEPS], m, QK_STEPS);
            //% end -- tail
        }
    }
    //% end -- q_registers

    template <typename Q> DEVICE void multiply_qk(Scores &scores, const Q &q, int stage) const {
        const RowsOfB<HEAD_DIM> k = {FragmentAddress<HEAD_DIM, ACROSS>(shared + K_OFFSET + stage * K_BYTES), 0};
        clear(scores);
        multiply<HEAD_DIM>(scores, q, k);
        //% if head_dim % 16 ~= 0 then
        multiply_tail<HEAD_DIM>(scores, q, k);
        //% end -- tail
    }
    DEVICE void multiply_pv(Output &output, const Scores &weights, int stage) const {
        const ColumnsOfB<HEAD_DIM_V> v = {FragmentAddress<HEAD_DIM_V, DOWN>(shared + V_OFFSET + stage * V_BYTES), 0};
        multiply<TILE_N>(output, AccumulatorsAsA<M_BLOCKS, KEY_BLOCKS>{weights}, v);
    }

    // o leaves through this warp's part of q, whose rows only this warp has read.
    DEVICE void finish(const Sequence &s, int head, int first_row, const Output &output,
                       Softmax<M_BLOCKS> &softmax) const {
        float scale[M_BLOCKS][2], lse[M_BLOCKS][2];
        softmax.finish(scale, lse, score_factor(args));
        warp_sync();
        put_accumulators<HEAD_DIM_V>(q_tile, 0, 0, output, scale);
        warp_sync();
        store_tile<WARP_ROWS, HEAD_DIM_V, WARP>(rows_of(args.o, s.q_batch, s.q_begin, head), q_tile, first_row, s.q_len,
                                                lane_index());
        if (args.lse.data != 0 && lane_index() % 4 == 0) {
#pragma unroll
            for (int m = 0; m < M_BLOCKS; m++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int row = first_row + m * 16 + half * 8 + lane_index() / 4;
                    if (row < s.q_len) store(float_at(args.lse, s.q_batch, s.q_begin + row, head), lse[m][half]);
                }
        }
    }
};

// ---- Entry ------------------------------------------------------------------------------------------------------------

KERNEL(THREADS, BLOCKS_PER_SM) $(entry)(PARAMETER ForwardArgs args) {
    allow_successor();
    wait_for_predecessor();
    const Forward forward(args);
    WorkQueue queue(args.schedule, shared_pointer<Work>(WORK_OFFSET), args.heads, args.group,
                    (HEAD_DIM + HEAD_DIM_V) * 2);
    for (;;) {
        const Work &work = queue.next();
        if (!work.more) break;
        const int head = uniform(work.head);
        for (int i = 0; i < queue.chunk; i++) {
            if (i > 0) block_sync();
            forward.run(work, head + i, queue);
        }
    }
}
