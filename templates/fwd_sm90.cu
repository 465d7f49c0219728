// ---- Contract ---------------------------------------------------------------------------------------------------------
//
// Variable-length attention forward for Hopper: copy engine and wgmma, sm_90a.
//
//     o = softmax(mask(softmax_scale * q k^T)) v      lse = log of the softmax's denominator      (docs/design.md, contract)
//
// Persistent, BLOCKS_PER_SM blocks each. A scheduler warp draws work (TILE_M rows of q of one head of one sequence), two loaders feed q, k and v through
// shared memory, CONSUMERS warpgroups own 64 rows each and keep scores, weights and output in registers. They take turns at the tensor cores:
// one group's softmax runs under the others' products. docs/kernels-hopper.md tells the whole story.
//
//     scheduler ---> tile slots: what to compute, where to store ----------+
//                         |                                                v
//                         v       K K ... V V ... (TILE_N keys each)    consumer warpgroup 0 ... CONSUMERS - 1
//                      loaders -> q, 64 rows a group -----------------> S = Q K^T | softmax | O += P V --> o, lse
//
// Host: BLOCKS_PER_SM blocks per SM; schedule.cu has run before; maps of q (64 rows), k and v (TILE_N rows) as tile/panels.cuh says; o 16-byte aligned.

//% include "attn/types.cuh"

// ---- Constants --------------------------------------------------------------------------------------------------------

$(constants())

constexpr int GROUP_THREADS = 128;
constexpr int GROUP_ROWS = 64;
constexpr int THREADS = GROUP_THREADS * (CONSUMERS + 1);
constexpr int CONSUMER_WARPS = 4 * CONSUMERS;
constexpr int PLENTY = 64;  // items for every block, so that several heads may travel as one
static_assert(TILE_M == GROUP_ROWS * CONSUMERS, "a consumer warpgroup owns 64 rows");
static_assert(TILE_N % 16 == 0, "weights are contracted 16 keys at a time");

$(args_structs())

//% include "attn/item_order.cuh"
//% include "attn/mask.cuh"
//% include "attn/softcap.cuh"
//% include "attn/softmax_sm90.cuh"
//% include "attn/element.cuh"
//% include "tile/panels.cuh"
//% include "tile/rows.cuh"
//% include "tile/store.cuh"
//% include "ptx/sync.cuh"
//% include "ptx/warpgroup.cuh"

// ---- Shared memory ----------------------------------------------------------------------------------------------------

using QTile = Panels<GROUP_ROWS, HEAD_DIM>;
using KTile = Panels<TILE_N, HEAD_DIM>;
using VTile = Panels<TILE_N, HEAD_DIM_V>;

// What consumers need to know of a tile of work.
struct Tile {
    Sequence sequence;
    int head, block;
    int begin, end;  // key tiles to visit, never none
    int more;        // 0: no work is left
    int reserved[3];
};

// With two, one tile is computed while the other, which is drawn no earlier, so that work stays evenly spread, is loaded; the slot of a tile that is
// being stored becomes free in between. Where tiles are short they are many and loads are what takes time: q has more than one stage too.
constexpr int TILE_SLOTS = $(budget.tile_slots);
constexpr int Q_STAGES = $(budget.q_stages);

constexpr int Q_OFFSET = $(budget.offsets.q);
constexpr int K_OFFSET = $(budget.offsets.k);
constexpr int V_OFFSET = $(budget.offsets.v);
constexpr int TILES_OFFSET = $(budget.offsets.tiles);
constexpr int WORK_OFFSET = $(budget.offsets.work);
constexpr int BARRIERS_OFFSET = $(budget.offsets.barriers);
constexpr int BARRIERS = 2 * CONSUMERS * Q_STAGES + 4 * STAGES + 2 * TILE_SLOTS;
static_assert(K_OFFSET - Q_OFFSET >= Q_STAGES * CONSUMERS * QTile::BYTES &&
                  V_OFFSET - K_OFFSET >= STAGES * KTile::BYTES && TILES_OFFSET - V_OFFSET >= STAGES * VTile::BYTES &&
                  BARRIERS_OFFSET - TILES_OFFSET >= TILE_SLOTS * sizeof(Tile) &&
                  BARRIERS_OFFSET + 8 * BARRIERS == $(budget.shared_bytes),
              "the kernel and its budget agree");

// ---- Barriers ---------------------------------------------------------------------------------------------------------
//
//     full     1 arrival: a loader's, with the bytes of the copy; for tiles the scheduler's
//     empty    one arrival per warp that reads: 4 of the group for q, all consumer warps for k and v, these and the loaders for tiles
//     turns    named barrier 1 + g: group g may issue its products; the group before it in rotation arrives, group g waits

struct Barriers {
    static constexpr u32 Q_SLOTS = Q_STAGES * CONSUMERS;
    u32 base;

    DEVICE u32 q_full(u32 slot) const { return base + 8 * slot; }  // slot: stage * CONSUMERS + group
    DEVICE u32 q_empty(u32 slot) const { return q_full(Q_SLOTS) + 8 * slot; }
    DEVICE u32 k_full(u32 slot) const { return q_empty(Q_SLOTS) + 8 * slot; }
    DEVICE u32 k_empty(u32 slot) const { return k_full(STAGES) + 8 * slot; }
    DEVICE u32 v_full(u32 slot) const { return k_empty(STAGES) + 8 * slot; }
    DEVICE u32 v_empty(u32 slot) const { return v_full(STAGES) + 8 * slot; }
    DEVICE u32 tile_full(u32 slot) const { return v_empty(STAGES) + 8 * slot; }
    DEVICE u32 tile_empty(u32 slot) const { return tile_full(TILE_SLOTS) + 8 * slot; }

    DEVICE void initialise() const {
        for (int i = 0; i < Q_SLOTS; i++) {
            mbarrier_init(q_full(i), 1);
            mbarrier_init(q_empty(i), 4);
        }
        for (int i = 0; i < STAGES; i++) {
            mbarrier_init(k_full(i), 1);
            mbarrier_init(k_empty(i), CONSUMER_WARPS);
            mbarrier_init(v_full(i), 1);
            mbarrier_init(v_empty(i), CONSUMER_WARPS);
        }
        for (int i = 0; i < TILE_SLOTS; i++) {
            mbarrier_init(tile_full(i), 1);
            mbarrier_init(tile_empty(i), CONSUMER_WARPS + 2);
        }
        mbarrier_init_fence();
    }
};

DEVICE Tile &tile_slot(u32 slot) { return shared_pointer<Tile>(TILES_OFFSET)[slot]; }

//% include "attn/forward_helpers.cuh"

// ---- Roles: consumers -------------------------------------------------------------------------------------------------

using Scores = float[TILE_N / 2];
using Weights = u32[TILE_N / 16][4];
using Output = float[HEAD_DIM_V / 2];

// One thread of a warpgroup that owns rows group * 64 ... of every tile.
struct Consumer {
    const ForwardSm90Args &args;
    const u32 shared;
    const Barriers barriers;
    const int group, warp;  // warp: within the group
    Ring<STAGES> k_ring, v_ring;
    Ring<TILE_SLOTS> tile_ring;
    Ring<Q_STAGES> q_ring;    // of the next tile
    u32 q_slot = 0;           // of the tile whose Q K^T was issued last
    u32 slot = 0;             // of the current tile
    Range unmasked = {0, 0};  // key tiles that every row of this warp sees whole

    DEVICE Consumer(const ForwardSm90Args &a, u32 shared_base, const Barriers &b, int group_index, int warp_index)
        : args(a), shared(shared_base), barriers(b), group(group_index), warp(warp_index) {}

    DEVICE void run() {
        Scores s;
        Output o;
        Weights p;
        RowSoftmax softmax(score_factor());

        if (!next_tile()) return;
        //% if consumers > 1 then
        if (group == CONSUMERS - 1) turn_pass();  // the first turn is group 0's
        //% end -- consumers
        turn_wait();
        wait_first_qk();
        issue_qk(s, k_ring.slot);
        turn_pass();

        for (bool more = true; more;) {
            // The first key tile; its Q K^T is under way.
            const int begin = tile_slot(slot).begin, end = tile_slot(slot).end;
            wgmma_wait<0>();
            pin(s);
            release_k(end - begin == 1);
            settle(s, begin);
            softmax.start(s);
            softmax.weigh(s);
            pack_weights(p, s);
#pragma unroll
            for (int i = 0; i < HEAD_DIM_V / 2; i++) o[i] = 0.0f;

                // Each step runs Q K^T of this key tile together with P V of the one before.
#pragma unroll 1
            for (int tile = begin + 1; tile < end; tile++) {
                turn_wait();
                mbarrier_wait(barriers.k_full(k_ring.slot), k_ring.parity);
                issue_qk(s, k_ring.slot);
                issue_pv(o, p);
                turn_pass();
                wgmma_wait<1>();
                pin(s);
                release_k(tile + 1 == end);
                settle(s, tile);
                if (unlikely(softmax.careful)) {
                    wgmma_wait<0>();
                    pin(o);
                    softmax.exponents_carefully(s, o);
                } else if (unlikely(softmax.exponents(s))) {
                    wgmma_wait<0>();
                    pin(o);
                    softmax.raise(s, o);
                }
                softmax.weigh(s);
                wgmma_wait<0>();
                pin(o);
                pin_weights(p);
                release_v();
                pack_weights(p, s);
            }

            // The last P V overlaps the first Q K^T of the next tile, which in turn overlaps the store.
            const u32 done = slot, last_k = (k_ring.slot + STAGES - 1) % STAGES;
            more = next_tile();
            turn_wait();
            issue_pv(o, p);
            if (more) wait_first_qk();
            // WHY not `if (more)`: see ptx/wgmma.cuh. After the last tile it multiplies the last keys again, to no effect.
            issue_qk(s, more ? k_ring.slot : last_k);
            if (more || group != CONSUMERS - 1) turn_pass();
            wgmma_wait<1>();
            pin(o);
            release_v();
            store_output(o, softmax, done);
        }
        wgmma_wait<0>();
    }

  private:
    //% if softcap then
    DEVICE float score_factor() const { return args.softcap * LOG2_E; }
    //% else
    DEVICE float score_factor() const { return args.scale * LOG2_E; }
    //% end -- softcap

    DEVICE void arrive(u32 barrier) const {
        if (lane_index() == 0) mbarrier_arrive(barrier);
    }
    //% if consumers > 1 then
    // Groups issue their products in rotation, each all of one step's before the next may.
    DEVICE void turn_wait() const { named_barrier_sync(1 + group, 2 * GROUP_THREADS); }
    DEVICE void turn_pass() const {
        const int self = static_cast<int>(opaque(group));  // not worth a register that lives through the loop
        named_barrier_arrive(self == CONSUMERS - 1 ? 1 : self + 2, 2 * GROUP_THREADS);
    }
    //% else
    DEVICE void turn_wait() const {}
    DEVICE void turn_pass() const {}
    //% end -- consumers

    // This warp's first row in the sequence.
    DEVICE int first_row(const Tile &tile) const { return tile.block * TILE_M + group * GROUP_ROWS + warp * 16; }

    // Moves to the next tile; false: there is none.
    DEVICE bool next_tile() {
        slot = tile_ring.slot;
        mbarrier_wait(barriers.tile_full(slot), tile_ring.parity);
        tile_ring.advance();
        const Tile &tile = tile_slot(slot);
        if (!tile.more) return false;
        const Mask mask(tile.sequence, args.window_left, args.window_right);
        unmasked = mask.whole_key_tiles<16, TILE_N>(first_row(tile) / 16);
        return true;
    }
    DEVICE void wait_first_qk() {
        q_slot = q_ring.slot * CONSUMERS + group;
        mbarrier_wait(barriers.q_full(q_slot), q_ring.parity);
        q_ring.advance();
        mbarrier_wait(barriers.k_full(k_ring.slot), k_ring.parity);
    }
    DEVICE void release_k(bool last) {
        arrive(barriers.k_empty(k_ring.slot));
        k_ring.advance();
        if (last) arrive(barriers.q_empty(q_slot));
    }
    DEVICE void release_v() {
        arrive(barriers.v_empty(v_ring.slot));
        v_ring.advance();
    }

    // S = Q K^T.
    DEVICE void issue_qk(Scores &s, u32 stage) const {
        const u64 q = QTile::rows_operand(shared + Q_OFFSET + q_slot * QTile::BYTES);
        const u64 k = KTile::rows_operand(shared + K_OFFSET + stage * KTile::BYTES);
        pin(s);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < (HEAD_DIM + 15) / 16; step++)
            wgmma_ss<TILE_N, K_MAJOR, K_MAJOR>(s, descriptor_plus(q, QTile::rows_step(step)),
                                               descriptor_plus(k, KTile::rows_step(step)), step > 0);
        wgmma_commit();
    }
    // O += P V.
    DEVICE void issue_pv(Output &o, Weights &p) const {
        mbarrier_wait(barriers.v_full(v_ring.slot), v_ring.parity);
        const u64 v = VTile::columns_operand(shared + V_OFFSET + v_ring.slot * VTile::BYTES);
        pin(o);
        pin_weights(p);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < TILE_N / 16; step++)
            wgmma_rs<HEAD_DIM_V, MN_MAJOR>(o, p[step], descriptor_plus(v, VTile::columns_step(step)), 1);
        wgmma_commit();
    }
    static DEVICE void pin_weights(Weights &p) {
#pragma unroll
        for (int step = 0; step < TILE_N / 16; step++) pin(p[step]);
    }
    // A score accumulator as the a operand of P V: the fragments agree.
    static DEVICE void pack_weights(Weights &p, const Scores &s) {
#pragma unroll
        for (int i = 0; i < TILE_N / 4; i++) p[i / 4][i % 4] = pack(s[2 * i], s[2 * i + 1]);
    }

    // What stands between a product and its softmax: softcap, and -inf in place of invisible keys, a selection, so that whatever they hold is
    // gone.
    DEVICE void settle(Scores &s, int tile) const {
        //% if softcap then
        const float inverse = args.scale / args.softcap;
#pragma unroll
        for (int i = 0; i < TILE_N / 2; i++) s[i] = cap_score(s[i], inverse);
        //% end -- softcap
        if (tile < unmasked.end && tile >= unmasked.begin) return;
        const Tile &work = tile_slot(slot);
        const Mask mask(work.sequence, args.window_left, args.window_right);
        const int row = first_row(work) + lane_index() / 4, column = tile * TILE_N + 2 * (lane_index() % 4);
        const int end[2] = {mask.key_end(row) - column, mask.key_end(row + 8) - column};
        //% if mask == "window" then
        const int begin[2] = {mask.key_begin(row) - column, mask.key_begin(row + 8) - column};
        //% end -- mask
#pragma unroll
        for (int i = 0; i < TILE_N / 2; i++) {
            const int key = 8 * (i / 4) + i % 2;
            bool visible = key < end[row_half(i)];
            //% if mask == "window" then
            visible = visible && key >= begin[row_half(i)];
            //% end -- mask
            if (!visible) s[i] = -infinity();
        }
    }

    DEVICE void store_output(const Output &o, const RowSoftmax &softmax, u32 done) const {
        const Tile &tile = tile_slot(done);
        const Sequence &s = tile.sequence;
        const int first = first_row(tile) + lane_index() / 4, q_len = s.q_len;
        const Rows out = rows_of(args.o, s.q_batch, s.q_begin, tile.head);
        float *lse = float_at(args.lse, s.q_batch, s.q_begin + first, tile.head);
        warp_sync();
        arrive(barriers.tile_empty(done));
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = first + 8 * half, column = lane_index() % 4 * 8;
            float scale, row_lse;
            softmax.finish(half, scale, row_lse);
            u16 *at = out.row(row) + column;
#pragma unroll
            for (int c = 0; c < HEAD_DIM_V; c += 32) {
                u32 word[4] = {0, 0, 0, 0};
#pragma unroll
                for (int g = 0; g < 4; g++) {
                    const int i = (c / 8 + g) * 4 + 2 * half;
                    if (c + 8 * g < HEAD_DIM_V) word[g] = pack(o[i] * scale, o[i + 1] * scale);
                }
                const Vector4 line = quad_transpose(word[0], word[1], word[2], word[3]);
                if (row < q_len && c + column < HEAD_DIM_V) store(reinterpret_cast<Vector4 *>(at + c), line);
            }
            if (row < q_len && lane_index() % 4 == 0 && args.lse.data != 0)
                store(lse + 8 * half * args.lse.row_stride, row_lse);
        }
    }
};

// ---- Entry ------------------------------------------------------------------------------------------------------------

KERNEL(THREADS, BLOCKS_PER_SM) $(entry)(PARAMETER ForwardSm90Args args) {
    const int warp = uniform(thread_index() / WARP);
    const u32 shared = shared_address(shared_memory());
    const Barriers barriers = {shared + BARRIERS_OFFSET};
    allow_successor();
    if (thread_index() == 0) {
        barriers.initialise();
        prefetch_tensor_map(args.q);
        prefetch_tensor_map(args.k);
        prefetch_tensor_map(args.v);
    }
    block_sync();
    if (warp < 4) {
        //% if budget.trade then
        decrease_registers<$(budget.helper_registers)>();
        //% end -- trade
        wait_for_predecessor();
        if (warp == 0) Scheduler{args, barriers}.run();
        if (warp == 1 && lane_index() == 0) Loader{args, shared, barriers}.load_qk();
        if (warp == 2 && lane_index() == 0) Loader{args, shared, barriers}.load_v();
    } else {
        //% if budget.trade then
        increase_registers<$(budget.consumer_registers)>();
        //% end -- trade
        Consumer(args, shared, barriers, warp / 4 - 1, warp % 4).run();
    }
}
