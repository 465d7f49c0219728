// The warpgroup of the Hopper backward that sums dQ (bwd_sm90.cu, whose names it uses).

// ---- Roles: dQ --------------------------------------------------------------------------------------------------------

// A warpgroup: dQ of a query tile from both groups' dS, a panel of 64 columns at a time, added to memory from registers.
//% if budget.cluster == 2 then
// Of a piece that two blocks share, half of the columns from the dS of both.
//% end -- cluster
struct Accumulator {
    const BackwardSm90Args &args;
    const u32 shared;
    const Barriers barriers;
    //% if group_buffers then
    RingPlace<DS_STAGES> ds_places[KEY_RINGS];
    //% else
    Ring<DS_STAGES> ds_ring;
    Ring<K_STAGES> k_ring;
    //% end -- group_buffers
    RingPlace<TURN_STAGES> turn_ring, added_ring;
    static constexpr int BLOCK_FLOATS = GROUP_THREADS * 4;  // of eight columns of a tile

    DEVICE Accumulator(const BackwardSm90Args &a, u32 shared_base, const Barriers &b)
        : args(a), shared(shared_base), barriers(b) {}

    DEVICE void run() {
        Ring<PIECE_SLOTS> pieces;
        Steps steps;
        for (;;) {
            mbarrier_wait(barriers.piece_full(pieces.slot), pieces.parity);
            const Piece &piece = piece_slot(pieces.slot);
            if (piece.steps == 0) break;
            wait_for_k(piece);
#pragma unroll 1
            for (steps.begin(piece); steps.left > 0; steps.advance(args.group)) step(piece, steps);
            warp_sync();
            //% if not group_buffers then
            arrive(barriers.k_empty(k_ring.slot));
            k_ring.advance();
            //% end -- group_buffers
            arrive(barriers.piece_empty(pieces.slot));
            pieces.advance();
        }
    }

  private:
    //% if group_buffers then
    DEVICE void wait_for_k(const Piece &piece) const {
#pragma unroll
        for (int half = 0; half < KEY_RINGS; half++)
            if (piece.concerns(half))
                mbarrier_wait(barriers.k_full(slot_of(k_place(piece, half), half)), k_place(piece, half).parity());
    }
    // One lane: others may be late, and the piece is gone when all warps have handed it back.
    DEVICE void hand_back_k(const Piece &piece) const {
        if (lane_index() != 0) return;
#pragma unroll
        for (int half = 0; half < KEY_RINGS; half++)
            if (piece.concerns(half)) mbarrier_arrive(barriers.k_empty(slot_of(k_place(piece, half), half)));
    }
    //% else
    DEVICE void wait_for_k(const Piece &) const { mbarrier_wait(barriers.k_full(k_ring.slot), k_ring.parity); }
    //% end -- group_buffers
    DEVICE void step(const Piece &piece, const Steps &steps) {
        const int head = steps.head(piece, args.group), tile = steps.tile;
        const bool first = piece.first(tile), last = piece.last(tile);
        float *sum =
            accumulator_tile(args.accumulator, head, args.accumulator_rows, piece.sequence.accumulator_row, tile) +
            accumulator_element(thread_index() / WARP % 4, 0);
        if (last && !first) wait_turn();  // all others have added
        //% if budget.cluster == 2 then
        if (piece.joint) {
            const int rank = static_cast<int>(cluster_rank());
            joint_panel<0>(piece, head, tile, first, last, sum, rank);
            if constexpr (DQ_PANELS > 1) joint_panel<1>(piece, head, tile, first, last, sum, rank);
        } else {
            own_panels(piece, head, tile, first, last, sum);
        }
        //% elseif group_buffers then
        const int lead = piece.concerns(0) ? 0 : 1;
        const bool both = piece.shared();
        const bool ending = steps.left == 1;
        panel_of_halves<0>(piece, lead, both, ending, head, tile, first, last, sum);
        if constexpr (QTile::COUNT > 1) panel_of_halves<1>(piece, lead, both, ending, head, tile, first, last, sum);
        //% else
        own_panels(piece, head, tile, first, last, sum);
        //% end -- cluster
        //% if group_buffers then
#pragma unroll
        for (int half = 0; half < KEY_RINGS; half++)
            if (both || half == lead) ds_places[half].advance();
        //% else
        ds_ring.advance();
        //% end -- group_buffers
        if (!last) {
            mbarrier_wait(barriers.added(added_ring.slot()), added_ring.parity() ^ 1);
            warp_sync();
            arrive(barriers.added(added_ring.slot()));
            added_ring.advance();
        }
    }
    //% if group_buffers then
    // A panel over the keys of both halves, or of the owner's. ending: in the piece's last step, behind whose products K is handed back.
    template <int PANEL> DEVICE void panel_of_halves(const Piece &piece, int lead, bool both, bool ending, int head,
                                                     int tile, bool first, bool last, float *sum) {
        constexpr int LEFT = HEAD_DIM - PANEL * PANEL_COLUMNS, COLUMNS = LEFT < PANEL_COLUMNS ? LEFT : PANEL_COLUMNS;
        float dq[COLUMNS / 2];
        sum += PANEL * PANEL_COLUMNS / 8 * BLOCK_FLOATS;
        begin<COLUMNS>(dq, sum, first, last);
        issue_half<PANEL>(dq, piece, lead, lead == 0 ? ds_places[0] : ds_places[1]);
        if (both) issue_half<PANEL>(dq, piece, 1, ds_places[1]);
        if (PANEL == 0 && !last && !first) wait_turn();
        wgmma_wait<0>();
        pin(dq);
        if (PANEL == QTile::COUNT - 1) {
#pragma unroll
            for (int half = 0; half < KEY_RINGS; half++)
                if (both || half == lead) arrive(barriers.ds_empty(slot_of(ds_places[half], half)));
            if (ending) hand_back_k(piece);
        }
        end<COLUMNS>(dq, piece, head, tile, first, last, sum, PANEL * PANEL_COLUMNS);
    }
    template <int PANEL, int N>
    DEVICE void issue_half(float (&dq)[N], const Piece &piece, int half, RingPlace<DS_STAGES> ds_place) const {
        if (PANEL == 0) mbarrier_wait(barriers.ds_full(slot_of(ds_place, half)), ds_place.parity());
        // Positions are the same in all lanes, which the compiler does not see: it would keep descriptors where registers are short.
        const u32 slot = slot_of(RingPlace<DS_STAGES>{uniform(ds_place.at)}, half);
        const u32 k_slot = slot_of(RingPlace<K_STAGES>{uniform(k_place(piece, half).at)}, half);
        const u32 k_panel = shared + K_OFFSET + k_slot * KTile::BYTES + PANEL * KTile::PANEL_BYTES;
        const u64 ds = DsTile::columns_operand(shared + DS_OFFSET + slot * DsTile::BYTES);
        wgmma_fence();
        issue<2 * N>(dq, ds, KTile::columns_operand(k_panel));
        wgmma_commit();
    }
    static DEVICE RingPlace<K_STAGES> k_place(const Piece &piece, int half) { return {piece.turn[half]}; }
    // A half's buffer in the rings of K or dS.
    template <int N> static DEVICE u32 slot_of(RingPlace<N> place, int half) { return place.slot() * KEY_RINGS + half; }
    //% else
    DEVICE void own_panels(const Piece &piece, int head, int tile, bool first, bool last, float *sum) {
        panel<0>(piece, head, tile, first, last, sum);
        if constexpr (QTile::COUNT > 1) panel<1>(piece, head, tile, first, last, sum);
        if constexpr (QTile::COUNT > 2) panel<2>(piece, head, tile, first, last, sum);
        if constexpr (QTile::COUNT > 3) panel<3>(piece, head, tile, first, last, sum);
    }

    template <int PANEL> DEVICE void panel(const Piece &piece, int head, int tile, bool first, bool last, float *sum) {
        constexpr int LEFT = HEAD_DIM - PANEL * PANEL_COLUMNS, COLUMNS = LEFT < PANEL_COLUMNS ? LEFT : PANEL_COLUMNS;
        float dq[COLUMNS / 2];
        sum += PANEL * PANEL_COLUMNS / 8 * BLOCK_FLOATS;
        begin<COLUMNS>(dq, sum, first, last);
        if (PANEL == 0) {
            mbarrier_wait(barriers.ds_full(ds_ring.slot), ds_ring.parity);
            //% if budget.cluster == 2 then
            if (thread_index() % GROUP_THREADS == 0) mbarrier_arrive(barriers.peer_ds_full(ds_ring.slot));
            mbarrier_wait(barriers.peer_ds_full(ds_ring.slot),
                          ds_ring.parity);  // over at once: compute-sanitizer asks for it
            //% end -- cluster
        }
        const u64 ds = DsTile::columns_operand(shared + DS_OFFSET + ds_ring.slot * DsTile::BYTES);
        const u32 k_panel = shared + K_OFFSET + k_ring.slot * KTile::BYTES + PANEL * KTile::PANEL_BYTES;
        // The slot is the same in all lanes, which the compiler does not see: it would keep descriptors where registers are short.
        const u64 k = KTile::columns_operand(K_STAGES > 1 ? uniform(k_panel) : k_panel);
        wgmma_fence();
        issue<COLUMNS>(dq, ds, k);
        wgmma_commit();
        if (PANEL == 0 && !last && !first) wait_turn();
        wgmma_wait<0>();
        pin(dq);
        if (PANEL == QTile::COUNT - 1) arrive_everywhere(barriers.ds_empty(ds_ring.slot));
        end<COLUMNS>(dq, piece, head, tile, first, last, sum, PANEL * PANEL_COLUMNS);
    }
    //% end -- group_buffers
    //% if budget.cluster == 2 then
    // This block's columns of a panel over the keys of both blocks, its own first.
    template <int PANEL>
    DEVICE void joint_panel(const Piece &piece, int head, int tile, bool first, bool last, float *sum, int rank) {
        constexpr bool DIVIDED = PANEL == DQ_WHOLE;
        constexpr int COLUMNS = DIVIDED ? DQ_DIVIDED : PANEL_COLUMNS;
        constexpr int FIRST = DIVIDED ? DQ_WHOLE * 2 * PANEL_COLUMNS : PANEL * PANEL_COLUMNS;
        constexpr int STRIDE = DIVIDED ? DQ_DIVIDED : DQ_WHOLE * PANEL_COLUMNS;
        float dq[COLUMNS / 2];
        const int column = FIRST + rank * STRIDE;
        const int real = DQ_CLIPPED ? smaller(COLUMNS, HEAD_DIM - column) : COLUMNS;
        const u32 inside = column % PANEL_COLUMNS * 2;  // bytes, of the panel
        sum += static_cast<i64>(column / 8) * BLOCK_FLOATS;
        begin<COLUMNS>(dq, sum, first, last, real);
        if (PANEL == 0) {
            // Every step is a phase of the other block's dS, with bytes or, where pieces are not shared, without. It begins behind the wait for
            // this block's dS, before which no warp can still wait for the phase before.
            mbarrier_wait(barriers.ds_full(ds_ring.slot), ds_ring.parity);
            if (thread_index() % GROUP_THREADS == 0)
                mbarrier_arrive_expect(barriers.peer_ds_full(ds_ring.slot), DsTile::BYTES);
            mbarrier_wait(barriers.peer_ds_full(ds_ring.slot), ds_ring.parity);
        }
        const u32 own_k = shared + K_OFFSET + k_ring.slot * KTile::BYTES + column / PANEL_COLUMNS * KTile::PANEL_BYTES;
        const u32 peer_k = shared + PEER_K_OFFSET + k_ring.slot * PEER_K_BYTES + PANEL * KTile::PANEL_BYTES;
        const u32 ds = shared + ds_ring.slot * DsTile::BYTES;
        wgmma_fence();
        issue<COLUMNS>(dq, DsTile::columns_operand(ds + DS_OFFSET), KTile::columns_operand(uniform(own_k + inside)));
        issue<COLUMNS>(dq, DsTile::columns_operand(ds + PEER_DS_OFFSET),
                       KTile::columns_operand(uniform(peer_k + inside)));
        wgmma_commit();
        if (PANEL == 0 && !last && !first) wait_turn();
        wgmma_wait<0>();
        pin(dq);
        if (PANEL == DQ_PANELS - 1) arrive_everywhere(barriers.ds_empty(ds_ring.slot));
        end<COLUMNS>(dq, piece, head, tile, first, last, sum, column, real);
    }
    //% end -- cluster

    // What is added to: the sum in memory, if this block is the last that adds to it, or zeros. real: columns that dQ has, of COLUMNS.
    template <int COLUMNS>
    DEVICE void begin(float (&dq)[COLUMNS / 2], const float *sum, bool first, bool last, int real = COLUMNS) const {
        if (last && !first) {
#pragma unroll
            for (int c = 0; c < COLUMNS / 8; c++) {
                Float4 v = {0, 0, 0, 0};
                if (!DQ_CLIPPED || 8 * c < real)
                    v = load_relaxed(reinterpret_cast<const Float4 *>(sum + c * BLOCK_FLOATS));
                dq[4 * c] = v.x;
                dq[4 * c + 1] = v.y;
                dq[4 * c + 2] = v.z;
                dq[4 * c + 3] = v.w;
            }
        } else {
#pragma unroll
            for (int i = 0; i < COLUMNS / 2; i++) dq[i] = 0.0f;
        }
        pin(dq);
    }
    template <int COLUMNS> static DEVICE void issue(float (&dq)[COLUMNS / 2], u64 ds, u64 k) {
#pragma unroll
        for (int i = 0; i < SLOT_KEYS / 16; i++)
            wgmma_ss<COLUMNS, MN_MAJOR, MN_MAJOR>(dq, descriptor_plus(ds, DsTile::columns_step(i)),
                                                  descriptor_plus(k, KTile::columns_step(i)), 1);
    }
    template <int COLUMNS> DEVICE void end(const float (&dq)[COLUMNS / 2], const Piece &piece, int head, int tile,
                                           bool first, bool last, float *sum, int column, int real = COLUMNS) const {
        if (last) {
            const Sequence &s = piece.sequence;
            //% if group_buffers then
            const int warp = opaque(static_cast<u32>(thread_index())) / WARP % 4;
            store_through(shared + STAGING_OFFSET + (COMPUTE_WARPS + warp) * STAGING_BYTES,
                          rows_of(args.dq, s.q_batch, s.q_begin, head), column, tile * TILE_M + warp * 16, s.q_len, dq,
                          args.scale / WEIGHT_UNIT);
            //% else
            const int row = tile * TILE_M + thread_index() / WARP % 4 * 16 + lane_index() / 4;
            //% if budget.cluster == 2 then
            if (s.k_len == 0) return;  // nothing is this block's
            //% end -- cluster
            store_accumulator(rows_of(args.dq, s.q_batch, s.q_begin, head), column, row, s.q_len, dq,
                              args.scale / WEIGHT_UNIT, real);
            //% end -- group_buffers
            return;
        }
        if (first) {
#pragma unroll
            for (int c = 0; c < COLUMNS / 8; c++, sum += BLOCK_FLOATS)
                if (!DQ_CLIPPED || 8 * c < real)
                    store(reinterpret_cast<Float4 *>(sum),
                          Float4{dq[4 * c], dq[4 * c + 1], dq[4 * c + 2], dq[4 * c + 3]});
        } else {
#pragma unroll
            for (int c = 0; c < COLUMNS / 8; c++, sum += BLOCK_FLOATS)
                if (!DQ_CLIPPED || 8 * c < real)
                    reduce_add(sum, {dq[4 * c], dq[4 * c + 1], dq[4 * c + 2], dq[4 * c + 3]});
        }
    }

    // Until this block may add to the tile.
    DEVICE void wait_turn() {
        arrive(barriers.turn(turn_ring.slot()));
        mbarrier_wait(barriers.turn(turn_ring.slot()), turn_ring.parity());
        turn_ring.advance();
    }
};
