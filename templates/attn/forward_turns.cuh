// The Hopper forward when sequences are long (fwd_sm90.cu, whose names it uses): all consumers work on one tile of rows and share its keys.
//
//     scheduler ---> tile slots: what to compute, where to store ----------+
//                         |                                                v
//                         v       K K ... V V ... (TILE_N keys each)    consumer warpgroup 0 ... CONSUMERS - 1
//                      loaders -> q, 64 rows a group -----------------> S = Q K^T | softmax | O += P V --> o, lse

constexpr int CONSUMER_WARPS = 4 * CONSUMERS;
constexpr int PLENTY = 64;  // items for every block, so that several heads may travel as one
static_assert(TILE_M == GROUP_ROWS * CONSUMERS && CONSUMERS > 1, "a consumer warpgroup owns 64 rows");

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

// Two: one tile is computed while the other, which is drawn no earlier, so that work stays evenly spread, is loaded; the slot of a tile that
// is being stored becomes free in between. More: for tiles of few keys, which are over before the next is drawn and loaded.
static_assert(TILE_SLOTS >= 2, "drawn while another is computed");
//% if not budget.drawn_ahead then
// Loads of a tile's keys that are left when the next tile is drawn: they take longer than the ticket, its decoding and the first loads.
constexpr int LOADS_LEFT = 4;
//% end -- drawn_ahead

constexpr int Q_OFFSET = $(budget.offsets.q);
constexpr int K_OFFSET = $(budget.offsets.k);
constexpr int V_OFFSET = $(budget.offsets.v);
constexpr int TILES_OFFSET = $(budget.offsets.tiles);
constexpr int WORK_OFFSET = $(budget.offsets.work);
constexpr int BARRIERS_OFFSET = $(budget.offsets.barriers);
constexpr int Q_SLOTS = CONSUMERS * Q_STAGES;  // a group's are side by side
constexpr int BARRIERS = 2 * Q_SLOTS + 4 * STAGES + 2 * TILE_SLOTS + $(budget.drawn_ahead and 2 or 1);
static_assert(K_OFFSET - Q_OFFSET >= Q_SLOTS * QTile::BYTES && V_OFFSET - K_OFFSET >= STAGES * KTile::BYTES &&
                  TILES_OFFSET - V_OFFSET >= STAGES * VTile::BYTES &&
                  BARRIERS_OFFSET - TILES_OFFSET >= TILE_SLOTS * sizeof(Tile) &&
                  BARRIERS_OFFSET + 8 * BARRIERS == $(budget.shared_bytes),
              "the kernel and its budget agree");

// ---- Barriers ---------------------------------------------------------------------------------------------------------
//
//     full     1 arrival: a loader's, with the bytes of the copy; for tiles the scheduler's, for a ticket (where it is drawn ahead) the drawer's
//     near_end an arrival of k's loader, when few of a tile's loads are left
//     empty    one arrival per warp that reads: 4 of the group for q, all consumer warps for k and v, these and the loaders for tiles, 1 for a ticket
//     turns    named barrier 1 + g: group g may issue its products; the group before it in rotation arrives, group g waits

struct Barriers {
    u32 base;

    DEVICE u32 q_full(u32 slot) const { return base + 8 * slot; }
    DEVICE u32 q_empty(u32 slot) const { return q_full(Q_SLOTS) + 8 * slot; }
    DEVICE u32 k_full(u32 slot) const { return q_empty(Q_SLOTS) + 8 * slot; }
    DEVICE u32 k_empty(u32 slot) const { return k_full(STAGES) + 8 * slot; }
    DEVICE u32 v_full(u32 slot) const { return k_empty(STAGES) + 8 * slot; }
    DEVICE u32 v_empty(u32 slot) const { return v_full(STAGES) + 8 * slot; }
    DEVICE u32 tile_full(u32 slot) const { return v_empty(STAGES) + 8 * slot; }
    DEVICE u32 tile_empty(u32 slot) const { return tile_full(TILE_SLOTS) + 8 * slot; }
    //% if budget.drawn_ahead then
    DEVICE u32 ticket_full() const { return tile_empty(TILE_SLOTS); }
    DEVICE u32 ticket_empty() const { return ticket_full() + 8; }
    //% else
    DEVICE u32 near_end() const { return tile_empty(TILE_SLOTS); }
    //% end -- drawn_ahead

    DEVICE void initialise() const {
        init_ring(q_full(0), q_empty(0), Q_SLOTS, 1, 4);
        init_ring(k_full(0), k_empty(0), STAGES, 1, CONSUMER_WARPS);
        init_ring(v_full(0), v_empty(0), STAGES, 1, CONSUMER_WARPS);
        init_ring(tile_full(0), tile_empty(0), TILE_SLOTS, 1, CONSUMER_WARPS + 2);
        //% if budget.drawn_ahead then
        init_ring(ticket_full(), ticket_empty(), 1, 1, 1);
        //% else
        mbarrier_init(near_end(), 1);
        //% end -- drawn_ahead
        mbarrier_init_fence();
    }
};

DEVICE Tile &tile_slot(u32 slot) { return shared_pointer<Tile>(TILES_OFFSET)[slot]; }
//% if budget.drawn_ahead then
DEVICE u64 &ticket_slot() { return *shared_pointer<u64>($(budget.offsets.ticket)); }
//% end -- drawn_ahead

//% include "attn/forward_helpers.cuh"

// ---- Roles: consumers -------------------------------------------------------------------------------------------------

using Scores = float[TILE_N / 2];
using Weights = u32[TILE_N / 16][4];

// One thread of a warpgroup that owns rows group * 64 ... of every tile.
struct Consumer {
    const ForwardSm90Args &args;
    const u32 shared;
    const Barriers barriers;
    const int group, warp;  // warp: within the group
    Ring<STAGES> k_ring, v_ring;
    Ring<TILE_SLOTS> tile_ring;
    Ring<Q_STAGES> q_ring;    // at the next tile
    u32 slot = 0;             // of the current tile
    Range unmasked = {0, 0};  // key tiles that every row of this warp sees whole

    DEVICE Consumer(const ForwardSm90Args &a, u32 shared_base, const Barriers &b, int group_index, int warp_index)
        : args(a), shared(shared_base), barriers(b), group(group_index), warp(warp_index) {}

    DEVICE void run() {
        Scores s;
        Output o;
        Weights p;
        RowSoftmax softmax(score_factor(args));

        if (!next_tile()) return;
        if (group == CONSUMERS - 1) turn_pass();  // the first turn is group 0's
        turn_wait();
        wait_first_qk();
        issue_qk(s, k_ring.slot);
        turn_pass();

        for (bool more = true; more;) {
            // The first key tile; its Q K^T is under way.
            const int begin = tile_slot(slot).begin, end = own_end();
            wgmma_wait<0>();
            pin(s);
            release_k(end - begin == 1);
            //% if budget.idle_groups then
            if (has_rows(tile_slot(slot))) first_weights(s, softmax, begin);
            //% else
            first_weights(s, softmax, begin);
            //% end -- idle_groups
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
                cap_scores(args, s);
                float shrink[2];
                const bool outgrown = softmax.advance(s, shrink, [&](Scores &exponents) { hide(exponents, tile); });
                // WHY before the exponentials: P V is nearly done, and packing then goes on between them.
                wgmma_wait<0>();
                pin(o);
                if (unlikely(outgrown)) softmax.scale_rows(o, shrink);  // warps of a group wait in one place
                pin_weights(p);
                release_v();
                softmax.weigh(s);
                pack_weights(p, s);
            }
            const u32 done = slot;
            //% if consumers > 2 then
            // Key tiles that only other groups see: turns pass, nothing is multiplied, the store runs meanwhile. WHY not with two groups: the other,
            // left alone, has no one whose products hide its softmax, and nothing is gained.
            const int unseen = tile_slot(slot).end - end;
            if (unseen > 0) {
                turn_wait();
                issue_pv(o, p);
                turn_pass();
                wgmma_wait<0>();
                pin(o);
                release_v();
                pass_k();
#pragma unroll 1
                for (int i = 1; i < unseen; i++) {
                    turn_wait();
                    turn_pass();
                    pass_k();
                    pass_v();
                }
                store_output(o, softmax, done);
                more = next_tile();
                turn_wait();
                pass_v();
                if (more) wait_first_qk();
                issue_qk(s, more ? k_ring.slot : last_k());
                if (more || group != CONSUMERS - 1) turn_pass();
                continue;
            }
            //% end -- consumers

            // The last P V overlaps the first Q K^T of the next tile, which in turn overlaps the store.
            more = next_tile();
            turn_wait();
            issue_pv(o, p);
            if (more) wait_first_qk();
            // WHY not `if (more)`: see ptx/wgmma.cuh. After the last tile it multiplies the last keys again, to no effect.
            issue_qk(s, more ? k_ring.slot : last_k());
            if (more || group != CONSUMERS - 1) turn_pass();
            wgmma_wait<1>();
            pin(o);
            release_v();
            store_output(o, softmax, done);
        }
        wgmma_wait<0>();
    }

  private:
    // Groups issue their products in rotation, each all of one step's before the next may.
    DEVICE void turn_wait() const { named_barrier_sync(1 + group, 2 * GROUP_THREADS); }
    DEVICE void turn_pass() const {
        const int self = static_cast<int>(opaque(group));  // not worth a register that lives through the loop
        named_barrier_arrive(self == CONSUMERS - 1 ? 1 : self + 2, 2 * GROUP_THREADS);
    }

    // This warp's first row in the sequence.
    DEVICE int first_row(const Tile &tile) const { return tile.block * TILE_M + group * GROUP_ROWS + warp * 16; }

    //% if budget.idle_groups then
    // In this group, which visits only a tile's first keys otherwise.
    DEVICE bool has_rows(const Tile &tile) const {
        return tile.block * TILE_M + group * GROUP_ROWS < tile.sequence.q_len;
    }
    //% end -- idle_groups

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
    //% if consumers > 2 then
    // The end of the key tiles of which a row of this group sees any; the first is visited in any case.
    DEVICE int own_end() const {
        const Tile &tile = tile_slot(slot);
        const Mask mask(tile.sequence, args.window_left, args.window_right);
        const int first = tile.block * TILE_M + group * GROUP_ROWS;
        const int last = smaller(first + GROUP_ROWS, tile.sequence.q_len) - 1;
        const int keys = last < first ? 0 : mask.key_end(last);
        return larger(smaller((keys + TILE_N - 1) / TILE_N, tile.end), tile.begin + 1);
    }
    // Gives a key tile back unread. WHY the sync: a lane that polled after another's arrival could find the next phase over as well.
    DEVICE void pass_k() {
        mbarrier_wait(barriers.k_full(k_ring.slot), k_ring.parity);
        warp_sync();
        arrive(barriers.k_empty(k_ring.slot));
        k_ring.advance();
    }
    DEVICE void pass_v() {
        mbarrier_wait(barriers.v_full(v_ring.slot), v_ring.parity);
        warp_sync();
        release_v();
    }
    //% else
    DEVICE int own_end() const { return tile_slot(slot).end; }
    //% end -- consumers
    DEVICE void wait_first_qk() {
        mbarrier_wait(barriers.q_full(group * Q_STAGES + q_ring.slot), q_ring.parity);
        q_ring.advance();
        mbarrier_wait(barriers.k_full(k_ring.slot), k_ring.parity);
    }
    DEVICE u32 q_slot() const { return group * Q_STAGES + (q_ring.slot + Q_STAGES - 1) % Q_STAGES; }  // of this tile
    DEVICE u32 last_k() const { return (k_ring.slot + STAGES - 1) % STAGES; }
    DEVICE void release_k(bool last) {
        arrive(barriers.k_empty(k_ring.slot));
        k_ring.advance();
        if (last) arrive(barriers.q_empty(q_slot()));
    }
    DEVICE void release_v() {
        arrive(barriers.v_empty(v_ring.slot));
        v_ring.advance();
    }

    // S = Q K^T.
    DEVICE void issue_qk(Scores &s, u32 stage) const {
        const u64 q = QTile::rows_operand(shared + Q_OFFSET + q_slot() * QTile::BYTES);
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

    // What no row may see of a tile becomes -inf.
    DEVICE void hide(Scores &s, int tile) const {
        if (tile < unmasked.end && tile >= unmasked.begin) return;
        const Tile &work = tile_slot(slot);
        hide_scores(Mask(work.sequence, args.window_left, args.window_right), first_row(work), tile * TILE_N, s);
    }
    // Scores of a row of tiles' first become weights.
    DEVICE void first_weights(Scores &s, RowSoftmax &softmax, int tile) const {
        cap_scores(args, s);
        hide(s, tile);
        softmax.start(s);
        softmax.weigh(s);
    }
    DEVICE void store_output(const Output &o, const RowSoftmax &softmax, u32 done) const {
        const Tile &tile = tile_slot(done);
        const Destination rows(args, tile.sequence, first_row(tile), tile.head);
        //% if budget.idle_groups then
        const bool rowless = !has_rows(tile);
        //% end -- idle_groups
        warp_sync();
        arrive(barriers.tile_empty(done));
        //% if budget.idle_groups then
        if (rowless) return;
        //% end -- idle_groups
        rows.store_rows(o, softmax);
    }
};

// ---- For fwd_sm90.cu --------------------------------------------------------------------------------------------------

DEVICE void initialise_barriers(u32 shared) {
    if (thread_index() == 0) Barriers{shared + BARRIERS_OFFSET}.initialise();
}
DEVICE void help(const ForwardSm90Args &args, u32 shared, int warp) {
    const Barriers barriers = {shared + BARRIERS_OFFSET};
    if (warp == 0) Scheduler{args, barriers}.run();
    if (warp == 1 && lane_index() == 0) Loader{args, shared, barriers}.load_qk();
    if (warp == 2 && lane_index() == 0) Loader{args, shared, barriers}.load_v();
    //% if budget.drawn_ahead then
    if (warp == 3 && lane_index() == 0) Scheduler{args, barriers}.draw_ahead();
    //% end -- drawn_ahead
}
DEVICE void consume(const ForwardSm90Args &args, u32 shared, int group, int warp) {
    Consumer(args, shared, {shared + BARRIERS_OFFSET}, group, warp).run();
}
