// ---- Contract ---------------------------------------------------------------------------------------------------------
//
// Variable-length attention backward, portable family: cp.async and mma.sync, sm_80 and later. (FlashAttention-2, arXiv:2307.08691.)
//
// A block of threads draws work items (sequence, key head, TILE_N keys), keeps K and V in shared memory and dK, dV in registers, and walks over
// the query heads of that key head and their query tiles:
//
//     S^T  = K Q^T                P^T  = 2^(S^T * factor - lse)                  K Q^T: keys down, queries across
//     dP^T = V dO^T               dS^T = P^T (dP^T - delta)
//     dV  += P^T dO               dK  += dS^T Q               dQ = dS K
//
// P^T and dS^T pass through shared memory, because their products want other shapes of warps. dK and dV leave from registers, while what the next
// item begins with is on its way. dQ is complete if all keys of the sequence fit one
// tile, and is then written; else it is added to float32 accumulators that bwd_pre.cu has zeroed and bwd_post.cu converts.
//
// Deterministic mode: additions to a query tile take turns, last key tile first. A block waits for its turn only on key tiles that come
// after its own, which have lower tickets; so whoever is waited for is running or done.
//
// Host: the grid is at most what is co-resident; schedule.cu and bwd_pre.cu have run before.

//% include "attn/types.cuh"

// ---- Constants --------------------------------------------------------------------------------------------------------

$(constants())

constexpr int THREADS = WARPS * WARP;

// How warps divide the three kinds of product: (rows of warps) x (columns of warps). Two products of one shape are computed by all warps, one
// after the other, or apart: one by half of the warps, the other by the rest. A warp's piece is then twice as large, and less is read for it.
constexpr bool SCORES_APART = $(budget.scores_apart);  // S^T and dP^T; two warps then trade halves
constexpr bool DKV_APART = $(budget.dkv_apart);        // dV and dK
constexpr int SCORE_WARPS = SCORES_APART ? WARPS / 2 : WARPS, DKV_WARPS = DKV_APART ? WARPS / 2 : WARPS;
constexpr int SCORE_KEY_WARPS = $(budget.score_key_warps), SCORE_QUERY_WARPS = SCORE_WARPS / SCORE_KEY_WARPS;
constexpr int DKV_KEY_WARPS = $(budget.dkv_key_warps), DKV_COLUMN_WARPS = DKV_WARPS / DKV_KEY_WARPS;

constexpr int SCORE_KEYS = TILE_N / SCORE_KEY_WARPS;  // of a warp
constexpr int PRODUCT_QUERIES = TILE_M / SCORE_QUERY_WARPS;
constexpr int SCORE_QUERIES = SCORES_APART ? PRODUCT_QUERIES / 2 : PRODUCT_QUERIES;  // after trading
constexpr int DKV_KEYS = TILE_N / DKV_KEY_WARPS;

// Pairs of 8 columns that each of `warps` warps takes.
constexpr int pairs_each(int columns, int warps) { return ((columns + 15) / 16 + warps - 1) / warps; }
constexpr int DK_PAIRS = pairs_each(HEAD_DIM, DKV_COLUMN_WARPS);
constexpr int DV_PAIRS = pairs_each(HEAD_DIM_V, DKV_COLUMN_WARPS);

$(args_structs())

//% include "attn/item_order.cuh"
//% include "attn/mask.cuh"
//% include "attn/softcap.cuh"
//% include "tile/mma.cuh"
//% include "tile/global.cuh"
//% include "tile/accumulator.cuh"
//% include "tile/store.cuh"
//% include "ptx/sync.cuh"
//% if budget.scores_apart then
//% include "ptx/warpgroup.cuh"
//% end -- scores_apart

constexpr int DQ_COLUMN_WARPS = WARPS / DQ_ROW_WARPS;
constexpr int DQ_ROWS = TILE_M / DQ_ROW_WARPS;
constexpr int DQ_PAIRS = pairs_each(HEAD_DIM, DQ_COLUMN_WARPS);

static_assert(SCORE_KEYS % 16 == 0 && SCORE_QUERIES % 16 == 0 && DKV_KEYS % 16 == 0 && DQ_ROWS % 16 == 0,
              "whole blocks");
static_assert(HEAD_DIM == HEAD_DIM_V || !(SCORES_APART || DKV_APART), "halves of the warps have the same to do");

// One column of blocks may end early only if the pairs don't divide evenly.
constexpr bool DK_EXACT = DK_PAIRS * DKV_COLUMN_WARPS * 16 == HEAD_DIM;
constexpr bool DV_EXACT = DV_PAIRS * DKV_COLUMN_WARPS * 16 == HEAD_DIM_V;
constexpr bool DQ_EXACT = DQ_PAIRS * DQ_COLUMN_WARPS * 16 == HEAD_DIM;

// ---- Shared memory ----------------------------------------------------------------------------------------------------

// k, v: the item's tile. q, dout, stats: rings of STAGES query tiles. p, ds: [key][query]. trade: what two warps give each other.
constexpr int K_OFFSET = $(budget.offsets.k);
constexpr int V_OFFSET = $(budget.offsets.v);
constexpr int Q_OFFSET = $(budget.offsets.q);
constexpr int DOUT_OFFSET = $(budget.offsets.dout);
constexpr int STATS_OFFSET = $(budget.offsets.stats);
constexpr int P_OFFSET = $(budget.offsets.p);
constexpr int DS_OFFSET = $(budget.offsets.ds);
//% if budget.scores_apart then
constexpr int TRADE_OFFSET = $(budget.offsets.trade);
//% end -- scores_apart
constexpr int WORK_OFFSET = $(budget.offsets.work);
constexpr int Q_BYTES = TILE_M * HEAD_DIM * 2;
constexpr int DOUT_BYTES = TILE_M * HEAD_DIM_V * 2;
constexpr int STATS_BYTES = TILE_M * 8;
static_assert(WORK_OFFSET + 2 * sizeof(Work) == $(budget.shared_bytes), "the kernel and its budget agree");

// ---- Barriers ---------------------------------------------------------------------------------------------------------
//
// Block syncs, but for two warps that trade scores and have a named barrier of their own:
//     top of an item     the item is visible; the one before is done but for what leaves from registers
//     top of a step      the query tile's copies are visible; every warp is done with the step before: the stage that is filled
//                        next, p and ds are free
//     after scores       p and ds are visible; the trade's memory is free
//     STAGES == 1 only   after dV and dK: the stage may be filled again, while dQ is computed
//     after a walk       all tiles have been read for the last time

// ---- Roles ------------------------------------------------------------------------------------------------------------

using Scores = float[SCORE_KEYS / 16][SCORE_QUERIES / 8][4];
using DK = float[DKV_KEYS / 16][DK_PAIRS * 2][4];
using DV = float[DKV_KEYS / 16][DV_PAIRS * 2][4];
using DQ = float[DQ_ROWS / 16][DQ_PAIRS * 2][4];

// Where the walk over query heads and, inside, over query tiles stands.
struct Step {
    int index, head, tile;
    DEVICE int stage() const { return index % STAGES; }
    DEVICE Step next(const Range &tiles) const {
        return tile + 1 < tiles.end ? Step{index + 1, head, tile + 1} : Step{index + 1, head + 1, tiles.begin};
    }
    DEVICE Step previous(const Range &tiles) const {
        return tile > tiles.begin ? Step{index - 1, head, tile - 1} : Step{index - 1, head - 1, tiles.end - 1};
    }
};

// Apart, the first half of the warps has dV, the second dK.
DEVICE bool has_dv() { return !DKV_APART || thread_index() / WARP < DKV_WARPS; }
DEVICE bool has_dk() { return !DKV_APART || thread_index() / WARP >= DKV_WARPS; }

// Where a warp's part of dK and dV goes. It holds nothing in shared memory, where the next item is by then.
struct Gradients {
    Rows dk, dv;
    int key, limit;
    DEVICE void store(DK &sum_k, DV &sum_v, float scale) const {
        const int column_warp = uniform(thread_index() / WARP) % DKV_COLUMN_WARPS;
        if (has_dk()) store_part<DK_EXACT>(dk, sum_k, column_warp * DK_PAIRS * 16, HEAD_DIM, scale);
        if (has_dv()) store_part<DV_EXACT>(dv, sum_v, column_warp * DV_PAIRS * 16, HEAD_DIM_V, 1.0f);
    }
    template <bool EXACT, int M, int N>
    DEVICE void store_part(const Rows &rows, float (&sum)[M][N][4], int column, int columns, float factor) const {
        const int real = EXACT ? N * 8 : smaller(N * 8, columns - column);
#pragma unroll
        for (int m = 0; m < M; m++)
            store_accumulator(rows, column, key + m * 16 + lane_index() / 4, limit, flat(sum[m]), factor, real);
    }
};

// One key head of an item.
struct Backward {
    const BackwardArgs &args;
    const Sequence &s;  // in shared memory
    const Mask mask;
    const u32 shared;
    const int warp, key_head, block;
    const Range tiles;  // query tiles that see one of the item's keys
    const int first_key;

    DEVICE Backward(const BackwardArgs &a, const Work &work, int head)
        : args(a), s(work.sequence), mask(s, a.window_left, a.window_right), shared(shared_address(shared_memory())),
          warp(uniform(thread_index() / WARP)), key_head(head), block(uniform(work.block)),
          tiles(uniform_range(mask.query_tiles<TILE_M, TILE_N>(block))), first_key(block * TILE_N) {}

    static DEVICE Range uniform_range(const Range &r) { return {uniform(r.begin), uniform(r.end)}; }

    DEVICE void load_keys() const {
        load_tile<TILE_N, HEAD_DIM, THREADS>(shared + K_OFFSET, rows_of(args.k, s.k_batch, s.k_begin, key_head),
                                             first_key, s.k_len, thread_index());
        load_tile<TILE_N, HEAD_DIM_V, THREADS>(shared + V_OFFSET, rows_of(args.v, s.k_batch, s.k_begin, key_head),
                                               first_key, s.k_len, thread_index());
    }
    // Rows past the last query become zeros, statistics included: weight 1, gradient 0.
    DEVICE void load_queries(const Step &step) const {
        const int stage = step.stage(), first = step.tile * TILE_M;
        load_tile<TILE_M, HEAD_DIM, THREADS>(shared + Q_OFFSET + stage * Q_BYTES,
                                             rows_of(args.q, s.q_batch, s.q_begin, step.head), first, s.q_len,
                                             thread_index());
        load_tile<TILE_M, HEAD_DIM_V, THREADS>(shared + DOUT_OFFSET + stage * DOUT_BYTES,
                                               rows_of(args.dout, s.q_batch, s.q_begin, step.head), first, s.q_len,
                                               thread_index());
        const Float2 *stats = pointer<const Float2>(args.stats) + (step.head * args.stat_rows + s.stat_row + first);
        for (int row = thread_index(); row < TILE_M; row += THREADS)
            cp_async_8(shared + STATS_OFFSET + stage * STATS_BYTES + row * 8, stats + row,
                       first + row < s.q_len ? 8 : 0);
    }

    // Starts the copies of the steps from `from` to `to` - 1 after one, each a group of its own.
    template <int FROM, int TO> DEVICE void load_ahead(Step step, int count) const {
#pragma unroll
        for (int i = 0; i < TO; i++) {
            if (i >= FROM) {
                if (step.index < count) load_queries(step);
                cp_async_commit();
            }
            step = step.next(tiles);
        }
    }

    DEVICE int steps() const { return (tiles.end - tiles.begin) * args.group; }
    DEVICE Step first_step() const { return {0, key_head * args.group, tiles.begin}; }

    // Starts the copies of what the first steps need.
    DEVICE void load_first() const {
        if (steps() <= 0) return;
        load_keys();
        load_ahead<0, STAGES == 1 ? 1 : STAGES - 1>(first_step(), steps());
    }

    // All steps. A sync later all tiles are free again.
    DEVICE void walk(DK &dk, DV &dv) const {
        const int count = steps();
        for (Step step = first_step(); step.index < count; step = step.next(tiles)) {
            cp_async_wait<STAGES == 1 ? 0 : STAGES - 2>();
            block_sync();
            //% if deterministic then
            if (step.index > 0) pass_turn(step.previous(tiles));
            //% end -- deterministic
            //% if stages > 1 then
            load_ahead<STAGES - 1, STAGES>(step, count);
            //% end -- stages
            scores(step);
            block_sync();
            add_dk_dv(step, dk, dv);
            //% if stages == 1 then
            block_sync();
            load_ahead<1, 2>(step, count);
            //% end -- stages
            add_dq(step);
        }
    }
    //% if deterministic then
    // After the sync that follows a walk.
    DEVICE void pass_last_turn() const {
        if (steps() > 0) pass_turn({steps() - 1, (key_head + 1) * args.group - 1, tiles.end - 1});
    }
    //% end -- deterministic

    DEVICE Gradients gradients() const {
        const int key = first_key + warp % DKV_WARPS / DKV_COLUMN_WARPS * DKV_KEYS;
        return {rows_of(args.dk, s.k_batch, s.k_begin, key_head), rows_of(args.dv, s.k_batch, s.k_begin, key_head), key,
                s.k_len};
    }

  private:
    // S^T, of K and Q, or dP^T, of V and dO, from this warp's first key and query.
    template <int COLUMNS, int M, int N>
    DEVICE void product(float (&c)[M][N][4], u32 keys_tile, u32 queries_tile, int key, int query, int flip = 0) const {
        clear(c);
        const RowsOfA<COLUMNS> a = {FragmentAddress<COLUMNS, DOWN>(keys_tile), key};
        const RowsOfB<COLUMNS> b = {FragmentAddress<COLUMNS, ACROSS>(queries_tile), query, flip};
        multiply<COLUMNS>(c, a, b);
        if constexpr (COLUMNS % 16 != 0) multiply_tail<COLUMNS>(c, a, b);
    }

    // P^T and dS^T of one query tile into shared memory.
    DEVICE void scores(const Step &step) const {
        const u32 q = shared + Q_OFFSET + step.stage() * Q_BYTES,
                  dout = shared + DOUT_OFFSET + step.stage() * DOUT_BYTES;
        const int place = warp % SCORE_WARPS;
        const int key = place / SCORE_QUERY_WARPS * SCORE_KEYS;
        int query = place % SCORE_QUERY_WARPS * PRODUCT_QUERIES;
        Scores p, ds;
        //% if budget.scores_apart then
        // One warp has S^T, another the same place of dP^T. Each keeps half of the queries, which comes first, and gives the other half away.
        const int side = warp / SCORE_WARPS, flip = side * SCORE_QUERIES;
        float whole[SCORE_KEYS / 16][PRODUCT_QUERIES / 8][4];
        product<HEAD_DIM>(whole, shared + (side ? V_OFFSET : K_OFFSET), side ? dout : q, key, query, flip);
        trade(p, ds, whole, place, side);
        query += flip;
        //% else
        product<HEAD_DIM>(p, shared + K_OFFSET, q, key, query);
        product<HEAD_DIM_V>(ds, shared + V_OFFSET, dout, key, query);
        //% end -- scores_apart
        const int first_query = step.tile * TILE_M;
        weigh(p, ds, shared + STATS_OFFSET + step.stage() * STATS_BYTES + query * 8);
        if (!sees_whole(first_query)) clear_invisible(p, ds, first_query + query, first_key + key);
        put_accumulators<TILE_M>(shared + P_OFFSET, key, query / 8, p, 1.0f);
        put_accumulators<TILE_M>(shared + DS_OFFSET, key, query / 8, ds, 1.0f);
    }
    //% if budget.scores_apart then

    // Gives the second half of a product to the warp that has the other of the same place, and takes its.
    template <int M, int N>
    DEVICE void trade(Scores &p, Scores &ds, const float (&whole)[M][N][4], int place, int side) const {
        constexpr int OWN = N / 2, BYTES = M * OWN * WARP * 16;  // blocks in a row; what a warp gives
        const u32 lane = shared + TRADE_OFFSET + static_cast<u32>(place * 2 * BYTES + lane_index() * 16);
        const u32 given = lane + side * BYTES, taken = lane + (side ^ 1) * BYTES;
#pragma unroll
        for (int i = 0; i < M * OWN; i++) {
            const float(&c)[4] = whole[i / OWN][OWN + i % OWN];
            store_shared(given + i * WARP * 16,
                         Vector4{float_to_bits(c[0]), float_to_bits(c[1]), float_to_bits(c[2]), float_to_bits(c[3])});
        }
        named_barrier_sync(1 + place, 2 * WARP);
#pragma unroll
        for (int i = 0; i < M * OWN; i++) {
            const int m = i / OWN, n = i % OWN;
            const Vector4 v = load_shared(taken + i * WARP * 16);
            const float other[4] = {bits_to_float(v.x), bits_to_float(v.y), bits_to_float(v.z), bits_to_float(v.w)};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                p[m][n][j] = side ? other[j] : whole[m][n][j];
                ds[m][n][j] = side ? whole[m][n][j] : other[j];
            }
        }
    }
    //% end -- scores_apart

    // Whether every query of a tile sees every key of the item.
    DEVICE bool sees_whole(int first_query) const {
        return mask.key_end(first_query) >= first_key + TILE_N && mask.key_begin(first_query + TILE_M - 1) <= first_key;
    }

    // No weight exceeds 1, but an exponent does by the rounding errors of score and lse, which grow with them: finite, whatever the logits are.
    static DEVICE float weight(float exponent) { return ex2(min_nan(exponent, 0.0f)); }

    // Scores become weights, gradients of weights become gradients of scores. stats: of this warp's first query.
    DEVICE void weigh(Scores &p, Scores &ds, u32 stats) const {
        const float factor = score_factor(args);
        //% if softcap then
        const float inverse = args.scale / args.softcap;
        //% end -- softcap
#pragma unroll
        for (int n = 0; n < SCORE_QUERIES / 8; n++) {
            const Vector4 raw = load_shared(stats + n * 64 + lane_index() % 4 * 16);
            const float lse[2] = {bits_to_float(raw.x), bits_to_float(raw.z)};
            const float delta[2] = {bits_to_float(raw.y), bits_to_float(raw.w)};
#pragma unroll
            for (int m = 0; m < SCORE_KEYS / 16; m++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    //% if softcap then
                    const float capped = cap_score(p[m][n][i], inverse);
                    p[m][n][i] = weight(fma_f32(capped, factor, -lse[i % 2]));
                    ds[m][n][i] = p[m][n][i] * (ds[m][n][i] - delta[i % 2]) * fma_f32(-capped, capped, 1.0f);
                    //% else
                    p[m][n][i] = weight(fma_f32(p[m][n][i], factor, -lse[i % 2]));
                    ds[m][n][i] = p[m][n][i] * (ds[m][n][i] - delta[i % 2]);
                    //% end -- softcap
                }
        }
    }

    // Zeros, by selection, where a query does not see a key. Query and key: this warp's first.
    DEVICE void clear_invisible(Scores &p, Scores &ds, int query, int key) const {
        const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
        for (int n = 0; n < SCORE_QUERIES / 8; n++)
#pragma unroll
            for (int odd = 0; odd < 2; odd++) {
                const int row = query + n * 8 + 2 * t + odd;
                const int begin = mask.key_begin(row) - key - g, end = mask.key_end(row) - key - g;
#pragma unroll
                for (int m = 0; m < SCORE_KEYS / 16; m++)
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        const int at = m * 16 + half * 8;
                        if (at < begin || at >= end) p[m][n][2 * half + odd] = ds[m][n][2 * half + odd] = 0.0f;
                    }
            }
    }

    // What one query tile adds to dV and dK.
    DEVICE void add_dk_dv(const Step &step, DK &dk, DV &dv) const {
        const u32 q_tile = shared + Q_OFFSET + step.stage() * Q_BYTES,
                  dout_tile = shared + DOUT_OFFSET + step.stage() * DOUT_BYTES;
        const int key = warp % DKV_WARPS / DKV_COLUMN_WARPS * DKV_KEYS, column_warp = warp % DKV_COLUMN_WARPS;
        if (has_dv())
            multiply<TILE_M>(
                dv, RowsOfA<TILE_M>{FragmentAddress<TILE_M, DOWN>(shared + P_OFFSET), key},
                ColumnsOfB<HEAD_DIM_V, DV_EXACT>{FragmentAddress<HEAD_DIM_V, DOWN>(dout_tile), column_warp * DV_PAIRS});
        if (has_dk())
            multiply<TILE_M>(
                dk, RowsOfA<TILE_M>{FragmentAddress<TILE_M, DOWN>(shared + DS_OFFSET), key},
                ColumnsOfB<HEAD_DIM, DK_EXACT>{FragmentAddress<HEAD_DIM, DOWN>(q_tile), column_warp * DK_PAIRS});
    }

    // The item's part of dQ of one query tile.
    DEVICE void add_dq(const Step &step) const {
        const int row_warp = warp / DQ_COLUMN_WARPS, pair = warp % DQ_COLUMN_WARPS * DQ_PAIRS;
        DQ dq;
        clear(dq);
        multiply<TILE_N>(
            dq, ColumnsOfA<TILE_M>{FragmentAddress<TILE_M, ACROSS>(shared + DS_OFFSET), row_warp * DQ_ROWS / 16},
            ColumnsOfB<HEAD_DIM, DQ_EXACT>{FragmentAddress<HEAD_DIM, DOWN>(shared + K_OFFSET), pair});
        if (s.accumulator_row < 0)
            write_dq(step, dq, row_warp * DQ_ROWS, pair * 2);
        else
            accumulate_dq(step, dq, row_warp, pair * 2);
    }

    // The only key tile: dQ is complete.
    DEVICE void write_dq(const Step &step, const DQ &dq, int row, int block) const {
        const Rows rows = rows_of(args.dq, s.q_batch, s.q_begin, step.head);
        const int g = lane_index() / 4, t = lane_index() % 4, first = step.tile * TILE_M + row;
#pragma unroll
        for (int m = 0; m < DQ_ROWS / 16; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int r = first + m * 16 + half * 8 + g;
                if (r >= s.q_len) continue;
                u16 *to = rows.row(r) + block * 8 + 2 * t;
#pragma unroll
                for (int n = 0; n < DQ_PAIRS * 2; n++)
                    if (DQ_EXACT || block + n < DQ_COLUMN_BLOCKS)
                        store_pair(to + n * 8,
                                   pack(dq[m][n][2 * half] * args.scale, dq[m][n][2 * half + 1] * args.scale));
            }
    }

    DEVICE void accumulate_dq(const Step &step, const DQ &dq, int row_warp, int block) const {
        float *tile =
            accumulator_tile(args.accumulator, step.head, args.accumulator_rows, s.accumulator_row, step.tile);
        //% if deterministic then
        if (lane_index() == 0) global_wait_at_least(turn(step), turn_number(step));
        warp_sync();
        //% end -- deterministic
#pragma unroll
        for (int m = 0; m < DQ_ROW_BLOCKS; m++)
#pragma unroll
            for (int n = 0; n < DQ_PAIRS * 2; n++)
                if (DQ_EXACT || block + n < DQ_COLUMN_BLOCKS)
                    add_to_group(tile, accumulator_group(m, block + n, row_warp), dq[m][n]);
    }
    //% if deterministic then

    DEVICE u32 *turn(const Step &step) const {
        return turn_of(args.turns, step.head, args.accumulator_rows, s.accumulator_row, step.tile);
    }
    // Key tiles that add to a query tile before this one: those after it.
    DEVICE u32 turn_number(const Step &step) const {
        return static_cast<u32>(mask.key_tiles<TILE_M, TILE_N>(step.tile).end - 1 - block);
    }
    // After a block sync: all warps have added their parts of a step.
    DEVICE void pass_turn(const Step &step) const {
        if (thread_index() == 0 && s.accumulator_row >= 0) global_release_add(turn(step), 1);
    }
    //% end -- deterministic
};

// ---- Entry ------------------------------------------------------------------------------------------------------------

KERNEL(THREADS, BLOCKS_PER_SM) $(entry)(PARAMETER BackwardArgs args) {
    allow_successor();
    wait_for_predecessor();
    // A row of queries brings q and dO and takes dQ, for every query head of the group.
    const float row_bytes = static_cast<float>(HEAD_DIM * 6 + HEAD_DIM_V * 2) * static_cast<float>(args.group);
    WorkQueue queue(args.schedule, shared_pointer<Work>(WORK_OFFSET), args.heads / args.group, 1, row_bytes);
    const Work *work = &queue.next();
    int head = 0;  // in the item's chunk
    if (work->more) Backward(args, *work, uniform(work->head)).load_first();
    //% if not deterministic then
    if (work->more) queue.prepare();
    //% end -- not deterministic
    while (work->more) {
        const Backward part(args, *work, uniform(work->head) + head);
        DK dk;
        clear(dk);
        //% if budget.dkv_apart then
        DV &dv = dk;  // a warp has one of them
        //% else
        DV dv;
        clear(dv);
        //% end -- dkv_apart
        part.walk(dk, dv);
        const Gradients gradients = part.gradients();
        block_sync();
        //% if deterministic then
        part.pass_last_turn();
        //% end -- deterministic
        if (++head == queue.chunk) {
            //% if deterministic then
            queue.prepare();
            //% end -- deterministic
            work = &queue.next();
            head = 0;
        }
        // Copies are under way while the item after the next is drawn and gradients leave.
        if (work->more) Backward(args, *work, uniform(work->head) + head).load_first();
        //% if not deterministic then
        if (work->more && head == 0) queue.prepare();
        //% end -- not deterministic
        gradients.store(dk, dv, args.scale);
    }
}
