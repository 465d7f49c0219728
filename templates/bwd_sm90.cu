// ---- Contract ---------------------------------------------------------------------------------------------------------
//
// Variable-length attention backward for Hopper: copy engine and wgmma, sm_90a. Always deterministic: there is no other mode.
//
// One block per SM, persistent. A piece of work is TILE_N keys of one key head; the block walks over the query heads of that key head and over
// their query tiles:
//
//     S^T  = K Q^T    dP^T = V dO^T        64 keys a group; what the exponent is shifted by and delta come as products too
//     P^T  = 2^(S^T * factor)              dS^T = P^T dP^T
//     dV  += P^T dO   dK  += dS^T Q        P^T and dS^T are born in the layout of A
//     dQ   = dS K                          dS^T passes through shared memory once, for dK and dQ
//
//     scheduler ---> piece slots ------------------+----------------------+------------------------+
//                         |                        v                      v                        v
//                       loader --> K V Q dO --> compute warpgroups -dS-> dQ warpgroup <-turns-> turn taker, turn passer
//
//% if budget.cluster == 2 then
// Two blocks are a pair, a cluster, and share a piece: each has half of its keys. They load q and dO once for both, hand each other their dS, and
// each sums half of the columns of dQ over the keys of both. Of a piece whose keys are one block's, each has its own query heads.
//
//% end -- cluster
// dQ of a query tile is summed in one order: the first key tile stores, the others add, the last adds to its own sum and writes dq. A counter per
// query tile says how many have. Tickets fall in the same order, so whoever is waited for has started. docs/kernels-hopper.md tells the whole story.
//
// Host: one block per SM; schedule.cu and bwd_pre_sm90.cu have run before; maps of q, dout (TILE_M rows), k, v (SLOT_KEYS rows) as
// tile/panels.cuh says; dq, dk, dv 16-byte aligned.

//% include "attn/types.cuh"

// ---- Constants --------------------------------------------------------------------------------------------------------

$(constants())

constexpr int GROUP_THREADS = 128;
constexpr int GROUP_ROWS = 64;
constexpr int CLUSTER = $(budget.cluster);  // blocks that share a piece
constexpr int OWN_KEYS = TILE_N / CLUSTER;
constexpr int SLOT_KEYS = $(budget.slot_keys);   // of a buffer of K, V or dS
constexpr int KEY_RINGS = OWN_KEYS / SLOT_KEYS;  // 2: each compute warpgroup has such buffers of its own
constexpr int GROUPS = 2;                        // compute warpgroups; two more are the dQ warpgroup and the helpers
constexpr int THREADS = GROUP_THREADS * (GROUPS + 2);
constexpr int COMPUTE_WARPS = 4 * GROUPS;
constexpr int COMPUTE_REGISTERS = $(budget.compute_registers);
constexpr int DQ_REGISTERS = $(budget.dq_registers);
constexpr int HELPER_REGISTERS = $(budget.helper_registers);
static_assert(OWN_KEYS == GROUP_ROWS * $(budget.wide and 1 or 2),
              "both compute warpgroups have the same keys, or 64 each");
static_assert(TILE_M == 64, "the m of wgmma for dQ, and what a thread's registers hold of S and dP");
static_assert((COMPUTE_REGISTERS * GROUPS + DQ_REGISTERS + HELPER_REGISTERS) * GROUP_THREADS <= 65536 &&
                  COMPUTE_REGISTERS * GROUPS + DQ_REGISTERS + HELPER_REGISTERS <= $(budget.registers) * (GROUPS + 2),
              "an increase that the others' decreases do not cover waits for ever");

$(args_structs())

//% include "attn/item_order.cuh"
//% include "attn/mask.cuh"
//% include "attn/weights_sm90.cuh"
//% include "tile/panels.cuh"
//% include "tile/ring.cuh"
//% include "tile/rows.cuh"
//% include "tile/store.cuh"
//% include "tile/accumulator.cuh"
//% include "ptx/mma.cuh"
//% include "ptx/sync.cuh"
//% include "ptx/warpgroup.cuh"
//% include "ptx/wgmma_bf16.cuh"
//% if budget.cluster == 2 then
//% include "ptx/cluster.cuh"
//% end -- cluster

// ---- Shared memory ----------------------------------------------------------------------------------------------------

using KTile = Panels<SLOT_KEYS, HEAD_DIM>;
using VTile = Panels<SLOT_KEYS, HEAD_DIM_V>;
using QTile = Panels<TILE_M, HEAD_DIM>;
using DoutTile = Panels<TILE_M, HEAD_DIM_V>;
using DsTile = Panels<SLOT_KEYS, TILE_M>;  // [key][query]
//% if budget.cluster == 2 then
// Of a shared piece each block sums half of the panels of dQ, the first block the first ones. Of an odd number the last is divided.
constexpr int DQ_WHOLE = QTile::COUNT / 2;                                           // panels that are one block's
constexpr int DQ_PANELS = (QTile::COUNT + 1) / 2;                                    // panels of which it has columns
constexpr int DQ_DIVIDED = (HEAD_DIM - DQ_WHOLE * 2 * PANEL_COLUMNS + 15) / 16 * 8;  // its columns of the last
constexpr int PEER_K_BYTES = DQ_PANELS * KTile::PANEL_BYTES;                         // of the other block's keys
// Whether the second block's columns go on beyond HEAD_DIM: zeros that nobody stores.
constexpr bool DQ_CLIPPED = HEAD_DIM % (QTile::COUNT % 2 == 0 ? PANEL_COLUMNS : 16) != 0;
//% else
constexpr bool DQ_CLIPPED = false;
//% end -- cluster
constexpr int STATISTICS_BYTES = TILE_M * 16;

constexpr int Q_STAGES = STAGES;
constexpr int K_STAGES = $(budget.k_stages), V_STAGES = $(budget.v_stages);  // 2: the next piece's are loaded ahead
constexpr int DS_STAGES = $(budget.ds_stages);  // how far dQ may lag behind, waiting for its turn
constexpr int TURN_STAGES = 2, PIECE_SLOTS = $(budget.piece_slots);
constexpr bool KV_REGISTERS = $(budget.kv_registers);  // a group's rows of K and V stay in registers, as operands of A
constexpr bool SCORES_ACCUMULATE = $(not softcap);     // S begins with the shift

// The order in which key tiles add to dQ. Descending, all walk over query tiles upwards: with a causal mask each begins where only those before it
// have been, and no one waits; at any time they are spread over all of a head's tiles. Of many query heads that share keys those would be more
// than the L2 cache holds: ascending, all walk downwards from the same end, close behind each other, and wait once for as many steps as there are
// key tiles before them, which is little beside the steps of many heads.
//% if mask == "causal" then
// Descending, the longest key tiles are a head's last, and where they are everybody's last, blocks end far apart. So the last quarter of the heads
// ascends.
//% end -- mask
//
// How many heads descend; even, or all: pairs of heads go the same way.
DEVICE int descending_heads(int key_heads, int group) {
    if (group >= 4) return 0;
    //% if mask == "causal" then
    return smaller(key_heads, (key_heads - key_heads / 4 + 1) / 2 * 2);
    //% else
    return key_heads;
    //% end -- mask
}

// A piece of work, as every role needs it.
struct Piece {
    Sequence sequence;
    int key_head, block;
    int begin, end;                // query tiles, of every head
    int whole_begin, whole_count;  // of them, those that see all keys of the piece
    int lower, upper;              // Band's, of query tile 0
    int unseen_after;              // query tiles below this one see nothing of the next key tile
    int unseen_before;             // query tiles from this one on see nothing of the key tile before
    int steps;                     // over all heads of the group; 0: no work is left
    int request;                   // 1: the loader asks for more work when it is through with this
    int ascending;                 // 1: key tiles add to dQ in ascending order
    //% if budget.cluster == 2 then
    int own_row;  // this block's first key in the piece
    int joint;    // 1: the other block has the other keys; 0: the same keys for other heads. Without a head, k_len is 0
    //% end -- cluster
    //% if alternate then
    int owner;  // the group that computes all of it, because its keys are only 64; -1: both, 64 each
    //% end -- alternate
    //% if group_buffers then
    u32 turn[GROUPS];  // pieces that have concerned each group before: places in the rings of K and V
    //% end -- group_buffers

    // This block's first key.
    DEVICE int first_key() const {
        //% if budget.cluster == 2 then
        return block * TILE_N + own_row;
        //% else
        return block * TILE_N;
        //% end -- cluster
    }
    //% if group_buffers then
    // Whether a compute warpgroup has keys of it; the first of them, in the piece.
    DEVICE bool concerns(int group) const { return owner != 1 - group; }
    DEVICE bool shared() const { return concerns(0) && concerns(1); }
    DEVICE int first_row(int group) const { return owner < 0 ? group * GROUP_ROWS : 0; }
    //% end -- group_buffers
    // Whether this key tile is the first, the last that adds to dQ of a query tile.
    DEVICE bool first(int of_tile) const { return ascending ? of_tile >= unseen_before : of_tile < unseen_after; }
    DEVICE bool last(int of_tile) const { return ascending ? of_tile < unseen_after : of_tile >= unseen_before; }
};

// Where somebody is in a piece: all query heads of a tile, then those of the next.
struct Steps {
    int left;    // with this one
    int tile;    // of queries
    int member;  // which query head of the key head
    int onward;  // to the next tile

    DEVICE void begin(const Piece &piece) {
        left = piece.steps;
        tile = piece.ascending ? piece.end - 1 : piece.begin;
        member = 0;
        onward = piece.ascending ? -1 : 1;
    }
    DEVICE void advance(int group) {
        left--;
        if (++member < group) return;
        member = 0;
        tile += onward;
    }
    DEVICE int head(const Piece &piece, int group) const { return piece.key_head * group + member; }
};

constexpr int K_OFFSET = $(budget.offsets.k);
constexpr int V_OFFSET = $(budget.offsets.v);
constexpr int Q_OFFSET = $(budget.offsets.q);
constexpr int DOUT_OFFSET = $(budget.offsets.dout);
constexpr int STATISTICS_OFFSET = $(budget.offsets.statistics);  // of the query tiles in the ring of q
//% if not budget.wide then
constexpr int ZEROS_OFFSET = $(budget.offsets.zeros);  // columns 8 ... 15 of every tile of statistics
//% end -- not wide
constexpr int DS_OFFSET = $(budget.offsets.ds);
//% if group_buffers then
constexpr int STAGING_OFFSET = $(budget.offsets.staging);  // of compute and dQ warps, for rows on their way out
//% end -- group_buffers
//% if budget.cluster == 2 then
constexpr int PEER_K_OFFSET = $(budget.offsets.peer_k);    // beside each stage of k
constexpr int PEER_DS_OFFSET = $(budget.offsets.peer_ds);  // the other block's dS, beside each stage of this one's
constexpr int TICKET_OFFSET = $(budget.offsets.ticket);
//% end -- cluster
//% if budget.wide then
constexpr int P_OFFSET = $(budget.offsets.p);
//% if budget.fine_weights then
constexpr int FINE_WEIGHTS_OFFSET = $(budget.offsets.weights);
//% end -- fine_weights
//% end -- wide
constexpr int PIECES_OFFSET = $(budget.offsets.pieces);
constexpr int WORK_OFFSET = $(budget.offsets.work);
constexpr int BARRIERS_OFFSET = $(budget.offsets.barriers);
constexpr int K_SLOTS = KEY_RINGS * K_STAGES, V_SLOTS = KEY_RINGS * V_STAGES, DS_SLOTS = KEY_RINGS * DS_STAGES;
constexpr int RINGS = Q_STAGES + DOUT_STAGES + K_SLOTS + V_SLOTS + DS_SLOTS + PIECE_SLOTS + TURN_STAGES;
constexpr int BARRIERS = 2 * RINGS + $(budget.wide and 3 or 1) + (CLUSTER == 2 ? DS_STAGES + 2 : 0);
//% if budget.cluster == 2 then
static_assert(PEER_DS_OFFSET - PEER_K_OFFSET >= K_STAGES * PEER_K_BYTES &&
                  STATISTICS_OFFSET - PEER_DS_OFFSET >= DS_STAGES * DsTile::BYTES &&
                  BARRIERS_OFFSET - TICKET_OFFSET >= static_cast<int>(sizeof(Vector4)) &&
                  TICKET_OFFSET - WORK_OFFSET >= sizeof(Work),
              "the kernel and its budget agree");
//% end -- cluster
static_assert(V_OFFSET - K_OFFSET >= K_SLOTS * KTile::BYTES && Q_OFFSET - V_OFFSET >= V_SLOTS * VTile::BYTES &&
                  DOUT_OFFSET - Q_OFFSET >= Q_STAGES * QTile::BYTES &&
                  STATISTICS_OFFSET - DOUT_OFFSET >= DOUT_STAGES * DoutTile::BYTES &&
                  //% if budget.wide then
                  DS_OFFSET - STATISTICS_OFFSET >= Q_STAGES * STATISTICS_BYTES &&
                  P_OFFSET - DS_OFFSET >= DS_STAGES * DsTile::BYTES && PIECES_OFFSET - P_OFFSET >= DsTile::BYTES &&
                  //% else
                  ZEROS_OFFSET == STATISTICS_OFFSET + Q_STAGES * STATISTICS_BYTES &&
                  DS_OFFSET - ZEROS_OFFSET >= STATISTICS_BYTES &&
                  //% if group_buffers then
                  STAGING_OFFSET - DS_OFFSET >= DS_SLOTS * DsTile::BYTES &&
                  PIECES_OFFSET - STAGING_OFFSET >= (COMPUTE_WARPS + 4) * STAGING_BYTES &&
                  //% else
                  PIECES_OFFSET - DS_OFFSET >= DS_SLOTS * DsTile::BYTES &&
                  //% end -- group_buffers
                  //% end -- wide
                  WORK_OFFSET - PIECES_OFFSET >= PIECE_SLOTS * sizeof(Piece) &&
                  BARRIERS_OFFSET - WORK_OFFSET >= sizeof(Work) &&
                  BARRIERS_OFFSET + 8 * BARRIERS == $(budget.shared_bytes),
              "the kernel and its budget agree");

// A position in a compute warpgroup's ring of N buffers of K, V or dS.
//% if group_buffers then
// Those of the groups take turns in memory.
template <int N> struct KeyRing {
    u32 slot, parity = 0;

    DEVICE explicit KeyRing(int group) : slot(group) {}
    DEVICE void advance() {
        slot = slot + KEY_RINGS < KEY_RINGS * N ? slot + KEY_RINGS : slot + KEY_RINGS - KEY_RINGS * N;
        parity ^= slot < KEY_RINGS ? 1 : 0;
    }
};
//% else
template <int N> struct KeyRing : Ring<N> {
    DEVICE explicit KeyRing(int) {}
};
//% end -- group_buffers

DEVICE Band band_of(const Piece &piece, int tile) {
    const int first = tile * TILE_M;
    return {piece.sequence.k_len - piece.first_key(), piece.sequence.q_len - first, piece.lower + first,
            piece.upper + first};
}
DEVICE Piece &piece_slot(u32 slot) { return shared_pointer<Piece>(PIECES_OFFSET)[slot]; }

// Where a compute warpgroup is in its walk. Whether anything is hidden is looked up when the tile is turned to, which is best while products run.
struct Walk {
    const int group;  // query heads of a key head
    Steps steps;
    bool partial = false;  // something of the tile is hidden from some of 64 keys

    DEVICE explicit Walk(int query_heads) : group(query_heads), steps{} {}
    // row: the first of the 64 keys.
    DEVICE void begin(const Piece &piece, int row) {
        steps.begin(piece);
        look(piece, row);
    }
    DEVICE void advance(const Piece &piece, int row) {
        steps.advance(group);
        look(piece, row);
    }
    // Selects `value` where a key does not see a query. row: that of element 0.
    DEVICE void hide(const Piece &piece, Scores &x, int row, float value) const {
        if (partial) band_of(piece, steps.tile).hide(x, row, value);
    }

  private:
    DEVICE void look(const Piece &piece, int row) {
        partial = static_cast<u32>(steps.tile - piece.whole_begin) >= static_cast<u32>(piece.whole_count);
        if (partial) partial = band_of(piece, steps.tile).hides(row);
    }
};

// ---- Barriers ---------------------------------------------------------------------------------------------------------
//
//     full        1 arrival: the loader's, with the bytes of the copy; of dS (and P) one per warp that makes it; of pieces the scheduler's
//     empty       one arrival per warp that reads: compute warps for q, dout and v (with rings of its own, a group's), dQ warps for k and dS
//                 (compute warps are done with k when dS is there; with their own rows of dS when they make the next), for pieces all of them, the
//                 loader, the turn taker and the turn passer. Wide heads: the second group's for v, all for dS and P. Alternating groups:
//                 all for dS, whose rows the other group may be next to write
//     turn, added the dQ warps and the thread on the other side, so that neither can be two phases ahead: it is this block's turn; the
//                 additions of this block have been issued
//     request     the loader's: the scheduler may draw
//     group       named barrier 1 + g: rows of dS of group g are in place

struct Barriers {
    u32 base;

    DEVICE u32 q_full(u32 slot) const { return base + 8 * slot; }
    DEVICE u32 q_empty(u32 slot) const { return q_full(Q_STAGES) + 8 * slot; }
    DEVICE u32 dout_full(u32 slot) const { return q_empty(Q_STAGES) + 8 * slot; }
    DEVICE u32 dout_empty(u32 slot) const { return dout_full(DOUT_STAGES) + 8 * slot; }
    DEVICE u32 k_full(u32 slot) const { return dout_empty(DOUT_STAGES) + 8 * slot; }
    DEVICE u32 k_empty(u32 slot) const { return k_full(K_SLOTS) + 8 * slot; }
    DEVICE u32 v_full(u32 slot) const { return k_empty(K_SLOTS) + 8 * slot; }
    DEVICE u32 v_empty(u32 slot) const { return v_full(V_SLOTS) + 8 * slot; }
    DEVICE u32 ds_full(u32 slot) const { return v_empty(V_SLOTS) + 8 * slot; }
    DEVICE u32 ds_empty(u32 slot) const { return ds_full(DS_SLOTS) + 8 * slot; }
    DEVICE u32 piece_full(u32 slot) const { return ds_empty(DS_SLOTS) + 8 * slot; }
    DEVICE u32 piece_empty(u32 slot) const { return piece_full(PIECE_SLOTS) + 8 * slot; }
    DEVICE u32 turn(u32 slot) const { return piece_empty(PIECE_SLOTS) + 8 * slot; }
    DEVICE u32 added(u32 slot) const { return turn(TURN_STAGES) + 8 * slot; }
    DEVICE u32 request() const { return added(TURN_STAGES); }
    //% if budget.wide then
    DEVICE u32 p_full() const { return request() + 8; }
    DEVICE u32 p_empty() const { return request() + 16; }
    //% end -- wide
    //% if budget.cluster == 2 then
    DEVICE u32 peer_ds_full(u32 slot) const { return request() + 24 + 8 * slot; }
    DEVICE u32 ticket_full() const { return peer_ds_full(DS_STAGES); }
    DEVICE u32 ticket_empty() const { return ticket_full() + 8; }
    //% end -- cluster

    DEVICE void initialise() const {
        init_ring(q_full(0), q_empty(0), Q_STAGES, 1, CLUSTER * COMPUTE_WARPS);
        init_ring(dout_full(0), dout_empty(0), DOUT_STAGES, 1, CLUSTER * COMPUTE_WARPS);
        init_ring(k_full(0), k_empty(0), K_SLOTS, 1, 4);
        //% if budget.wide then
        init_ring(v_full(0), v_empty(0), V_STAGES, 1, 4);
        init_ring(ds_full(0), ds_empty(0), DS_STAGES, 4, COMPUTE_WARPS + CLUSTER * 4);
        init_ring(p_full(), p_empty(), 1, 4, COMPUTE_WARPS);
        //% elseif group_buffers then
        init_ring(v_full(0), v_empty(0), V_SLOTS, 1, 4);
        init_ring(ds_full(0), ds_empty(0), DS_SLOTS, 4, 4);
        //% else
        init_ring(v_full(0), v_empty(0), V_STAGES, 1, COMPUTE_WARPS);
        init_ring(ds_full(0), ds_empty(0), DS_STAGES, COMPUTE_WARPS, 4 + (ALTERNATE ? COMPUTE_WARPS : 0));
        //% end -- wide
        init_ring(piece_full(0), piece_empty(0), PIECE_SLOTS, 1, COMPUTE_WARPS + 4 + 3);
        init_ring(turn(0), added(0), TURN_STAGES, 5, 5);
        mbarrier_init(request(), 1);
        //% if budget.cluster == 2 then
        for (int i = 0; i < DS_STAGES; i++) mbarrier_init(peer_ds_full(i), 1);
        init_ring(ticket_full(), ticket_empty(), 1, 1, 1);
        //% end -- cluster
        mbarrier_init_fence();
    }
};

// An arrival of a warp on this barrier of all blocks that share the piece: a buffer is handed back to each that fills it.
DEVICE void arrive_everywhere(u32 barrier) {
    arrive(barrier);
    //% if budget.cluster == 2 then
    if (lane_index() == 0) mbarrier_arrive_peer(peer_address(barrier, cluster_rank() ^ 1));
    //% end -- cluster
}

//% if budget.cluster == 2 then
// Rows of dS, `bytes` of it from `offset` on, for the other block's dQ. One thread, when they are in place for the copy engine.
DEVICE void copy_ds_to_peer(u32 shared, const Barriers &barriers, u32 slot, u32 offset, u32 bytes) {
    const u32 peer = cluster_rank() ^ 1, tile = slot * DsTile::BYTES + offset;
    bulk_copy_peer(peer_address(shared + PEER_DS_OFFSET + tile, peer), shared + DS_OFFSET + tile, bytes,
                   peer_address(barriers.peer_ds_full(slot), peer));
}
//% end -- cluster

//% include "attn/backward_helpers.cuh"
//% if budget.cluster == 2 then
//% include "attn/backward_pair.cuh"
//% end -- cluster
//% include "attn/backward_dq.cuh"
//% if budget.wide then
//% include "attn/backward_wide.cuh"
//% else
//% include "attn/backward_compute.cuh"
//% end -- wide

// ---- Entry ------------------------------------------------------------------------------------------------------------

//% local kernel = budget.cluster == 2 and "CLUSTER_KERNEL(THREADS, CLUSTER)" or "KERNEL(THREADS, 1)"
$(kernel) $(entry)(PARAMETER BackwardSm90Args args) {
    const int warp = uniform(thread_index() / WARP), group = warp / 4;
    const u32 shared = shared_address(shared_memory());
    const Barriers barriers = {shared + BARRIERS_OFFSET};
    allow_successor();
    if (thread_index() == 0) {
        barriers.initialise();
        //% if group_buffers then
        // As if a piece that concerned both groups had brought them to their turn 0.
        Piece &before = piece_slot(PIECE_SLOTS - 1);
        for (int i = 0; i < GROUPS; i++) before.turn[i] = ~0u;
        before.owner = -1;
        //% end -- group_buffers
        prefetch_tensor_map(args.q);
        prefetch_tensor_map(args.k);
        prefetch_tensor_map(args.v);
        prefetch_tensor_map(args.dout);
    }
    // Rows of statistics that no copy writes (past a sequence's end) are multiplied too.
    for (int i = thread_index(); i < (Q_STAGES + $(budget.wide and 0 or 1)) * STATISTICS_BYTES / 16; i += THREADS)
        store_shared(shared + STATISTICS_OFFSET + i * 16, Vector4{0, 0, 0, 0});
    fence_async_proxy();
    //% if budget.cluster == 2 then
    cluster_sync();
    //% else
    block_sync();
    //% end -- cluster
    if (group < GROUPS) {
        increase_registers<COMPUTE_REGISTERS>();
        //% if budget.wide then
        if (group == 0)
            WideCompute<SCORES>(args, shared, barriers, warp).run();
        else
            WideCompute<GRADIENTS>(args, shared, barriers, warp - 4).run();
        //% else
        Compute(args, shared, barriers, group, warp % 4).run();
        //% end -- wide
    } else if (group == GROUPS) {
        decrease_registers<DQ_REGISTERS>();
        wait_for_predecessor();
        Accumulator(args, shared, barriers).run();
    } else {
        decrease_registers<HELPER_REGISTERS>();
        wait_for_predecessor();
        if (warp % 4 == 0) Scheduler(args, barriers).run();
        if (warp % 4 == 1 && lane_index() == 0) Loader(args, shared, barriers).run();
        if (warp % 4 == 2 && lane_index() == 0) Turns{args, barriers}.take();
        if (warp % 4 == 3 && lane_index() == 0) Turns{args, barriers}.pass();
        //% if budget.cluster == 2 then
        warp_sync();
        //% end -- cluster
    }
    //% if budget.cluster == 2 then
    cluster_sync();  // until then the other block's copies and arrivals may come
    //% end -- cluster
}
