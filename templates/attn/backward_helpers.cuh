// The helper warps of the Hopper backward (bwd_sm90.cu, whose names they use): who draws work, who loads, who takes turns and who passes them.
// None issues a product, so that none is late because of one.

// ---- Roles: scheduler -------------------------------------------------------------------------------------------------

constexpr int LOADS_AHEAD = 2;   // loads that are left when the next piece is drawn: drawing takes about as long
constexpr int PIECES_AHEAD = 3;  // short pieces that are left when more heads are drawn

// What the schedulers of single blocks and of pairs (backward_pair.cuh) have in common.
struct Publisher {
    const BackwardSm90Args &args;
    const Barriers barriers;

    const int key_heads, descending;  // heads from `descending` on ascend

    DEVICE Publisher(const BackwardSm90Args &a, const Barriers &b)
        : args(a), barriers(b), key_heads(a.heads / a.group), descending(descending_heads(key_heads, a.group)) {}

    // Key heads that travel as one item: several only where no one waits for turns.
    DEVICE int heads_together(const ListReader &list) const {
        const bool turns = load(&pointer<const ScheduleHeader>(args.schedule.header)->accumulator_rows) > 0;
        return turns ? 1 : chunk_of(list.blocks, args.heads / args.group);
    }
    // The item of a ticket. A row of queries brings q and dO and takes dQ, for every query head of the group that is under way.
    DEVICE Work decode(const ListReader &list, u64 ticket, int chunk) const {
        const int together = descending == 0 ? 1 : args.group;
        const float bytes = static_cast<float>(HEAD_DIM * 6 + HEAD_DIM_V * 2) * static_cast<float>(together * chunk);
        const int apart = chunk == 1 && descending > 0 ? key_heads - descending : 0;
        return decode_work(list, ticket, key_heads / chunk, 1, bytes, apart);
    }
    DEVICE bool ascends(int key_head) const { return key_head >= descending; }
    // Into shared memory: reading it again costs less than registers.
    DEVICE void keep(const Work &drawn, int chunk, Work &work) const {
        if (lane_index() == 0) {
            work = drawn;
            if (ascends(drawn.head * chunk)) work.block = (drawn.sequence.k_len - 1) / TILE_N - drawn.block;
        }
        warp_sync();
    }
    // An edge of the mask as row - column of a block's keys and the first query tile, if it is near enough for any tile to tell. own_row: of
    // its first key in the piece.
    static DEVICE int edge(const Work &work, i64 offset, int own_row = 0) {
        constexpr i64 FAR = 1 << 10, LONGEST = 1 << 30;
        const Sequence &s = work.sequence;
        //% if mask == "causal" then
        offset = 0;
        //% end -- mask
        const i64 at = static_cast<i64>(s.k_len) - s.q_len - static_cast<i64>(work.block) * TILE_N + offset - own_row;
        return static_cast<int>(larger(-LONGEST - FAR, smaller(at, FAR)));
    }
    DEVICE void publish(Ring<PIECE_SLOTS> &ring, const Piece &piece) const {
        if (lane_index() == 0) {
            mbarrier_wait(barriers.piece_empty(ring.slot), ring.parity ^ 1);
            piece_slot(ring.slot) = piece;
            //% if alternate then
            const bool alone = piece.sequence.k_len - piece.first_key() <= GROUP_ROWS;
            piece_slot(ring.slot).owner = alone ? static_cast<int>(ring.slot % GROUPS) : -1;  // slots alternate
            //% end -- alternate
            //% if group_buffers then
            const Piece &before = piece_slot((ring.slot + PIECE_SLOTS - 1) % PIECE_SLOTS);
            for (int group = 0; group < GROUPS; group++)
                piece_slot(ring.slot).turn[group] = before.turn[group] + (before.concerns(group) ? 1 : 0);
            //% end -- group_buffers
            mbarrier_arrive(barriers.piece_full(ring.slot));
        }
        warp_sync();
        ring.advance();
    }
    // Of keys that no query sees.
    static DEVICE void clear_keys(const Operand &out, int columns, const Work &work, int head, int heads) {
        const Sequence &s = work.sequence;
        const int first = work.block * TILE_N, count = smaller(TILE_N, s.k_len - first);
        for (int h = head; h < head + heads; h++)
            clear_rows(rows_of(out, s.k_batch, s.k_begin, h), first, count, columns);
    }
};

//% if budget.cluster == 1 then
// One warp, all lanes together. It draws a piece when the loader is about to be through with the one before, no sooner: a piece that is held back
// would hold back all that wait for their turn after it. (Several heads travel together only where no one waits.) Keys that no query sees it writes
// itself, so that no one else ever meets a piece without steps.
struct Scheduler : Publisher {
    using Publisher::Publisher;

    DEVICE void run() const {
        const ListReader list(args.schedule);
        const int chunk = heads_together(list);
        Work &work = *shared_pointer<Work>(WORK_OFFSET);
        Ring<PIECE_SLOTS> ring;
        u32 request_parity = 0;
        for (;;) {
            u64 ticket = 0;
            if (lane_index() == 0) ticket = atomic_add(&pointer<ScheduleHeader>(args.schedule.header)->ticket, 1);
            const Work drawn = decode(list, shuffle(ticket, 0), chunk);
            if (!drawn.more) break;
            keep(drawn, chunk, work);
            const Mask mask(work.sequence, args.window_left, args.window_right);
            const Range tiles = mask.query_tiles<TILE_M, TILE_N>(work.block);
            const int head = work.head * chunk;
            if (tiles.end <= tiles.begin) {
                clear_keys(args.dk, HEAD_DIM, work, head, chunk);
                clear_keys(args.dv, HEAD_DIM_V, work, head, chunk);
                warp_sync();
                continue;
            }
            const Range before = mask.query_tiles<TILE_M, TILE_N>(work.block - 1);
            const Range after = mask.query_tiles<TILE_M, TILE_N>(work.block + 1);
            const Range whole = mask.whole_query_tiles<TILE_M, TILE_N>(work.block);
            const int request = larger(chunk - PIECES_AHEAD, 0);
            for (int i = 0; i < chunk; i++)
                publish(ring, {work.sequence, head + i, work.block, tiles.begin, tiles.end, whole.begin,
                               larger(whole.end - whole.begin, 0), edge(work, -static_cast<i64>(args.window_left)),
                               edge(work, args.window_right), after.end > after.begin ? after.begin : tiles.end,
                               work.block > 0 ? before.end : 0, (tiles.end - tiles.begin) * args.group, i == request,
                               ascends(head + i)});
            if (lane_index() == 0) mbarrier_wait(barriers.request(), request_parity);
            warp_sync();
            request_parity ^= 1;
        }
        publish(ring, {});
    }
};
//% end -- cluster

// Goes through all pieces and steps in the order in which everyone does. Visit: (piece, head, tile).
template <class Visit> DEVICE void visit_steps(const Barriers &barriers, int group, Visit visit) {
    Ring<PIECE_SLOTS> pieces;
    Steps steps;
    for (;;) {
        mbarrier_wait(barriers.piece_full(pieces.slot), pieces.parity);
        const Piece &piece = piece_slot(pieces.slot);
        if (piece.steps == 0) break;
        for (steps.begin(piece); steps.left > 0; steps.advance(group))
            visit(piece, steps.head(piece, group), steps.tile, steps.left);
        mbarrier_arrive(barriers.piece_empty(pieces.slot));
        pieces.advance();
    }
}

// ---- Roles: loader ----------------------------------------------------------------------------------------------------

// One thread: keeps the rings of q and dO full, and k and v of the piece.
struct Loader {
    const BackwardSm90Args &args;
    const u32 shared;
    const Barriers barriers;
    Ring<Q_STAGES> q_ring;
    Ring<DOUT_STAGES> dout_ring;
    //% if not group_buffers then
    Ring<K_STAGES> k_ring;
    Ring<V_STAGES> v_ring;
    //% end -- group_buffers

    DEVICE Loader(const BackwardSm90Args &a, u32 shared_base, const Barriers &b)
        : args(a), shared(shared_base), barriers(b) {}

    DEVICE void run() {
        visit_steps(barriers, args.group, [this](const Piece &piece, int head, int tile, int left) {
            const bool fresh = left == piece.steps;
            load_q(piece, head, tile);
            if (fresh) load_k(piece);
            load_dout(piece, head, tile);
            if (fresh) load_v(piece);
            if (left == smaller(LOADS_AHEAD, piece.steps) && piece.request) mbarrier_arrive(barriers.request());
        });
    }

  private:
    DEVICE void load_q(const Piece &piece, int head, int tile) {
        const Sequence &s = piece.sequence;
        const u32 full = barriers.q_full(q_ring.slot);
        const int first = tile * TILE_M;
        const u32 statistics = smaller(TILE_M, s.q_len - first) * 16;  // bytes: rows past the end are no one's to read
        mbarrier_wait(barriers.q_empty(q_ring.slot), q_ring.parity ^ 1);
        mbarrier_arrive_expect(full, QTile::BYTES + statistics);
        load_rows<QTile, 0>(piece, shared + Q_OFFSET + q_ring.slot * QTile::BYTES, args.q, full, first, head);
        bulk_load(shared + STATISTICS_OFFSET + q_ring.slot * STATISTICS_BYTES,
                  pointer<const Vector4>(args.stats) + (head * args.stat_rows + s.stat_row + first), statistics, full);
        q_ring.advance();
    }
    DEVICE void load_dout(const Piece &piece, int head, int tile) {
        const u32 full = barriers.dout_full(dout_ring.slot);
        mbarrier_wait(barriers.dout_empty(dout_ring.slot), dout_ring.parity ^ 1);
        mbarrier_arrive_expect(full, DoutTile::BYTES);
        load_rows<DoutTile, 1>(piece, shared + DOUT_OFFSET + dout_ring.slot * DoutTile::BYTES, args.dout, full,
                               tile * TILE_M, head);
        dout_ring.advance();
    }
    // Of a piece that two blocks share, that of RANK loads for both.
    template <class Tile, u32 RANK>
    DEVICE void load_rows(const Piece &piece, u32 to, const TensorMap &map, u32 full, int first, int head) const {
        const Sequence &s = piece.sequence;
        //% if budget.cluster == 2 then
        if (piece.joint) {
            if (cluster_rank() == RANK) Tile::load_pair(to, map, full, s.q_begin, first, s.q_len, head, s.q_batch);
            return;
        }
        //% end -- cluster
        Tile::load(to, map, full, s.q_begin, first, s.q_len, head, s.q_batch);
    }
    //% if group_buffers then
    DEVICE void load_k(const Piece &piece) {
        load_halves<KTile, K_STAGES>(piece, args.k, K_OFFSET, barriers.k_full(0), barriers.k_empty(0));
    }
    DEVICE void load_v(const Piece &piece) {
        load_halves<VTile, V_STAGES>(piece, args.v, V_OFFSET, barriers.v_full(0), barriers.v_empty(0));
    }
    // 64 keys for each group that the piece concerns. full, empty: barriers of the first slot.
    template <class Tile, int N>
    DEVICE void load_halves(const Piece &piece, const TensorMap &map, int offset, u32 full, u32 empty) const {
        const Sequence &s = piece.sequence;
#pragma unroll
        for (int group = 0; group < KEY_RINGS; group++) {
            if (!piece.concerns(group)) continue;
            const RingPlace<N> place = {piece.turn[group]};
            const u32 slot = place.slot() * KEY_RINGS + group;
            mbarrier_wait(empty + 8 * slot, place.parity() ^ 1);
            mbarrier_arrive_expect(full + 8 * slot, Tile::BYTES);
            Tile::load(shared + offset + slot * Tile::BYTES, map, full + 8 * slot, s.k_begin,
                       piece.first_key() + piece.first_row(group), s.k_len, piece.key_head, s.k_batch);
        }
    }
    //% else
    DEVICE void load_k(const Piece &piece) {
        const Sequence &s = piece.sequence;
        const u32 full = barriers.k_full(k_ring.slot);
        mbarrier_wait(barriers.k_empty(k_ring.slot), k_ring.parity ^ 1);
        //% if budget.cluster == 2 then
        mbarrier_arrive_expect(full, KTile::BYTES + (piece.joint ? PEER_K_BYTES : 0));
        if (piece.joint) {
            const int first = piece.block * TILE_N + OWN_KEYS - piece.own_row;
            const u32 to = shared + PEER_K_OFFSET + k_ring.slot * PEER_K_BYTES;
            if constexpr (DQ_WHOLE > 0)
                KTile::template load_panels<DQ_WHOLE>(to, args.k, full, static_cast<int>(cluster_rank()) * DQ_WHOLE,
                                                      s.k_begin, first, s.k_len, piece.key_head, s.k_batch);
            if constexpr (DQ_PANELS > DQ_WHOLE)
                KTile::template load_panels<1>(to + DQ_WHOLE * KTile::PANEL_BYTES, args.k, full, QTile::COUNT - 1,
                                               s.k_begin, first, s.k_len, piece.key_head, s.k_batch);
        }
        //% else
        mbarrier_arrive_expect(full, KTile::BYTES);
        //% end -- cluster
        KTile::load(shared + K_OFFSET + k_ring.slot * KTile::BYTES, args.k, full, s.k_begin, piece.first_key(),
                    key_limit(s), piece.key_head, s.k_batch);
        k_ring.advance();
    }
    DEVICE void load_v(const Piece &piece) {
        const Sequence &s = piece.sequence;
        const u32 full = barriers.v_full(v_ring.slot);
        mbarrier_wait(barriers.v_empty(v_ring.slot), v_ring.parity ^ 1);
        mbarrier_arrive_expect(full, VTile::BYTES);
        VTile::load(shared + V_OFFSET + v_ring.slot * VTile::BYTES, args.v, full, s.k_begin, piece.first_key(),
                    key_limit(s), piece.key_head, s.k_batch);
        v_ring.advance();
    }
    // A block without keys of its own (k_len 0) loads one that is never looked at.
    static DEVICE int key_limit(const Sequence &s) {
        //% if budget.cluster == 2 then
        return larger(s.k_len, 1);
        //% else
        return s.k_len;
        //% end -- cluster
    }
    //% end -- group_buffers
};

// ---- Roles: turns -----------------------------------------------------------------------------------------------------

// One thread each, so that the dQ warpgroup neither polls memory nor fences.
struct Turns {
    const BackwardSm90Args &args;
    const Barriers barriers;

    // Waits, ahead of the dQ warpgroup, until the key tiles before this one have added.
    DEVICE void take() const {
        Ring<TURN_STAGES> ring;
        visit_steps(barriers, args.group, [&](const Piece &piece, int head, int tile, int) {
            if (piece.first(tile)) return;
            const Mask mask(piece.sequence, args.window_left, args.window_right);
            const Range adding = mask.key_tiles<TILE_M, TILE_N>(tile);
            const int before = piece.ascending ? piece.block - adding.begin : adding.end - 1 - piece.block;
            global_wait_at_least(turn(piece, head, tile), CLUSTER * static_cast<u32>(before));
            mbarrier_wait(barriers.turn(ring.slot), ring.parity ^ 1);
            mbarrier_arrive(barriers.turn(ring.slot));
            ring.advance();
        });
    }
    // Says, after the dQ warpgroup's additions, that this key tile has added.
    DEVICE void pass() const {
        Ring<TURN_STAGES> ring;
        visit_steps(barriers, args.group, [&](const Piece &piece, int head, int tile, int) {
            if (piece.last(tile)) return;
            mbarrier_arrive(barriers.added(ring.slot));
            mbarrier_wait(barriers.added(ring.slot), ring.parity);
            //% if budget.cluster == 2 then
            global_release_add(turn(piece, head, tile), piece.joint ? 1 : CLUSTER);  // half of the columns, or all
            //% else
            global_release_add(turn(piece, head, tile), 1);
            //% end -- cluster
            ring.advance();
        });
    }

  private:
    DEVICE u32 *turn(const Piece &piece, int head, int tile) const {
        return turn_of(args.turns, head, args.accumulator_rows, piece.sequence.accumulator_row, tile);
    }
};
