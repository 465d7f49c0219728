// The compute warpgroups of the Hopper backward (bwd_sm90.cu, whose names it uses), where dK and dV of 64 keys fit the registers of one.

// ---- Roles: compute ---------------------------------------------------------------------------------------------------

// A warpgroup: 64 keys of a piece. Order of asynchronous work, each name a group of products, i a step:
//
//     dP(i)                     issued when P(i) is in registers, dV(i) behind it with WHOLE_WEIGHTS
//       dS(i) = P(i) dP(i)      tensor cores: the other warpgroups
//     S(i + 1)  dK(i)           issued when dS(i) is in shared memory, dV(i) before them without: a warp stalls at issue, so nothing that is
//                               not needed soon comes early. Under the first of these the group's warps wait for each other
//       P(i + 1)                tensor cores: dK(i), and the other warpgroups
struct Compute {
    const BackwardSm90Args &args;
    const u32 shared;
    const Barriers barriers;
    const int group, warp;  // warp: within the group
    //% if alternate then
    int first_part;  // part of the piece's keys that is this group's: its own, or the only one
    //% end -- alternate
    const Weigher weigher;
    Ring<Q_STAGES> q_ring;  // of the newest S
    Ring<DOUT_STAGES> dout_ring;
    KeyRing<K_STAGES> k_ring;
    KeyRing<V_STAGES> v_ring;
    KeyRing<DS_STAGES> ds_ring;
    Ring<PIECE_SLOTS> piece_ring;
    Walk walk;                // of the newest S
    bool dout_there = false;  // of the step to come

    float dk[HEAD_DIM / 2], dv[HEAD_DIM_V / 2];
    Scores s, dp;  // alive together only with WHOLE_WEIGHTS
    Weights p;
    //% if softcap and not budget.whole_weights then
    Weights waiting;
    //% end -- softcap
    u32 k_rows[(HEAD_DIM + 15) / 16][4], v_rows[(HEAD_DIM_V + 15) / 16][4];  // with KV_REGISTERS
    //% if not softcap then
    bool coarse = false;
    u32 with_shift[4];
    //% end -- not softcap
    u32 with_delta[4];

    DEVICE Compute(const BackwardSm90Args &a, u32 shared_base, const Barriers &b, int group_index, int warp_index)
        : args(a), shared(shared_base), barriers(b), group(group_index), warp(warp_index), weigher(a.scale, a.softcap),
          k_ring(group_index), v_ring(group_index), ds_ring(group_index), walk{a.group} {}

    DEVICE void run() {
        //% if not softcap then
        with_shift[0] = with_shift[1] = shift_ones();
        with_shift[2] = with_shift[3] = 0;
        //% end -- not softcap
        with_delta[0] = with_delta[1] = delta_ones();
        with_delta[2] = with_delta[3] = 0;
        for (;;) {
            mbarrier_wait(barriers.piece_full(piece_ring.slot), piece_ring.parity);
            const int steps = piece().steps;
            if (steps == 0) break;
            //% if alternate then
            if (piece().owner == 1 - group) {
                pass_by(steps);
                continue;
            }
            first_part = piece().owner < 0 ? group : 0;
            //% end -- alternate
            first_scores();
            weigh();
            if constexpr (!KV_REGISTERS) mbarrier_wait(barriers.v_full(v_ring.slot), v_ring.parity);
            // No more than dK is in flight where the loop closes, and the last step is a copy of its own: ptxas serialises all products if registers
            // that ordinary code touches are in flight across a back edge, or a branch surrounds a product.
            int old_q = -1;
#pragma unroll 1
            while (walk.steps.left > 1) step<false>(old_q);
            step<true>(old_q);
            pin(dk);
            pin(dv);
            release_dk(old_q, true);
            store_keys();
            k_ring.advance();
            v_ring.advance();
            warp_sync();
            arrive(barriers.piece_empty(piece_ring.slot));
            piece_ring.advance();
        }
    }

  private:
    //% if alternate then
    // A piece that is the other group's: what both groups read is handed on as if it had been read. Each buffer is waited for first, so that no
    // arrival falls into the phase before.
    DEVICE void pass_by(int steps) {
        //% if group_buffers then
#pragma unroll 1
        for (int i = 0; i < steps; i++) {
            mbarrier_wait(barriers.q_full(q_ring.slot), q_ring.parity);
            mbarrier_wait(barriers.dout_full(dout_ring.slot), dout_ring.parity);
            warp_sync();
            arrive(barriers.q_empty(q_ring.slot));
            arrive(barriers.dout_empty(dout_ring.slot));
            q_ring.advance();
            dout_ring.advance();
        }
        //% else
        // This group's keys have no gradients of scores.
        for (int i = 0; i < steps; i++) {
            mbarrier_wait(barriers.q_full(q_ring.slot), q_ring.parity);
            mbarrier_wait(barriers.dout_full(dout_ring.slot), dout_ring.parity);
            mbarrier_wait(barriers.ds_empty(ds_ring.slot), ds_ring.parity ^ 1);
            if (i == 0) {
                mbarrier_wait(barriers.k_full(k_ring.slot), k_ring.parity);
                mbarrier_wait(barriers.v_full(v_ring.slot), v_ring.parity);
            }
            const u32 rows = shared + DS_OFFSET + ds_ring.slot * DsTile::BYTES + (GROUP_ROWS + warp * 16) * PANEL_PITCH;
#pragma unroll
            for (int part = 0; part < 16 * PANEL_PITCH; part += WARP * 16)
                store_shared(rows + part + lane_index() * 16, Vector4{0, 0, 0, 0});
            fence_async_proxy();
            warp_sync();
            arrive(barriers.q_empty(q_ring.slot));
            arrive(barriers.dout_empty(dout_ring.slot));
            arrive(barriers.ds_full(ds_ring.slot));
            arrive(barriers.ds_empty(ds_ring.slot));
            q_ring.advance();
            dout_ring.advance();
            ds_ring.advance();
        }
        arrive(barriers.v_empty(v_ring.slot));
        k_ring.advance();
        v_ring.advance();
        //% end -- group_buffers
        arrive(barriers.piece_empty(piece_ring.slot));
        piece_ring.advance();
    }
    //% end -- alternate
    // The newest dK, if there is one, is complete.
    DEVICE void release_dk(int q, bool any) const {
        arrive(barriers.q_empty(q), any);
        //% if alternate and not group_buffers then
        arrive(barriers.ds_empty((ds_ring.slot + DS_STAGES - 1) % DS_STAGES), any);
        //% end -- alternate
    }
    DEVICE const Piece &piece() const { return piece_slot(piece_ring.slot); }
    DEVICE int part() const {
        //% if alternate then
        return first_part;
        //% else
        return group;
        //% end -- alternate
    }
    DEVICE u32 q_tile(u32 slot) const { return shared + Q_OFFSET + slot * QTile::BYTES; }
    DEVICE u32 dout_tile() const { return shared + DOUT_OFFSET + dout_ring.slot * DoutTile::BYTES; }
    // This group's first row in buffers of K, V and dS.
    DEVICE int tile_row() const { return KEY_RINGS == 1 ? part() * GROUP_ROWS : 0; }
    DEVICE u32 k_tile() const { return shared + K_OFFSET + k_ring.slot * KTile::BYTES + tile_row() * PANEL_PITCH; }
    DEVICE u32 v_tile() const { return shared + V_OFFSET + v_ring.slot * VTile::BYTES + tile_row() * PANEL_PITCH; }
    DEVICE u32 statistics() const { return shared + STATISTICS_OFFSET + q_ring.slot * STATISTICS_BYTES; }
    // This lane's first row in the tile of keys.
    DEVICE int first_row() const { return part() * GROUP_ROWS + warp * 16 + lane_index() / 4; }
    template <int N> static DEVICE void pin_fragments(u32 (&f)[N][4]) {
#pragma unroll
        for (int i = 0; i < N; i++) pin(f[i]);
    }

    // Sums are cleared, S of the first query tile is complete.
    DEVICE void first_scores() {
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 2; i++) dk[i] = 0.0f;
#pragma unroll
        for (int i = 0; i < HEAD_DIM_V / 2; i++) dv[i] = 0.0f;
        pin(dk);  // the zeros are in place before the first product
        pin(dv);
        mbarrier_wait(barriers.q_full(q_ring.slot), q_ring.parity);
        mbarrier_wait(barriers.k_full(k_ring.slot), k_ring.parity);
        if constexpr (KV_REGISTERS) load_rows<KTile>(k_rows, k_tile());
        issue_scores();
        walk.begin(piece(), part() * GROUP_ROWS);
        if constexpr (KV_REGISTERS) {
            mbarrier_wait(barriers.v_full(v_ring.slot), v_ring.parity);
            load_rows<VTile>(v_rows, v_tile());
            warp_sync();
            arrive(barriers.v_empty(v_ring.slot));
        }
        wgmma_wait<0>();
        pin(s);
    }
    template <class Tile, int N> DEVICE void load_rows(u32 (&f)[N][4], u32 tile) const {
#pragma unroll
        for (int k = 0; k < N; k++) ldmatrix_x4(f[k], Tile::fragment(tile, warp * 16, k));
    }

    // From P of a tile to P of the next, with dK of the tile in flight; LAST: to the end of all products.
    template <bool LAST> DEVICE void step(int &old_q) {
        const u32 ds = shared + DS_OFFSET + ds_ring.slot * DsTile::BYTES;
        if (!dout_there) mbarrier_wait(barriers.dout_full(dout_ring.slot), dout_ring.parity);
        dout_there = false;
        issue_weight_gradients();
        if constexpr (WHOLE_WEIGHTS) issue_dv();
        const bool ds_room = mbarrier_passed(barriers.ds_empty(ds_ring.slot), ds_ring.parity ^ 1);
        wgmma_wait<WHOLE_WEIGHTS ? 1 : 0>();  // dK of the tile before and dP are complete
        pin(dp);
        release_dk(old_q, old_q >= 0);
        if constexpr (LAST && !KV_REGISTERS) arrive(barriers.v_empty(v_ring.slot));
        store_ds(ds, ds_room);
        const u32 q = q_ring.slot;
        old_q = static_cast<int>(q);
        q_ring.advance();
        if constexpr (!LAST) mbarrier_wait(barriers.q_full(q_ring.slot), q_ring.parity);
        fence_async_proxy();
        // Under the products that are issued first the group's warps come together.
        if constexpr (!WHOLE_WEIGHTS) issue_dv();
        if constexpr (WHOLE_WEIGHTS && !LAST) issue_scores();
        share_ds();
        if constexpr (!WHOLE_WEIGHTS && !LAST) issue_scores();
        issue_dk(ds, q);
        if constexpr (!LAST) walk.advance(piece(), part() * GROUP_ROWS);
        wgmma_wait<LAST ? 0 : 1>();  // dV and the next S are complete
        pin_fragments(p);
        arrive(barriers.dout_empty(dout_ring.slot));
        dout_ring.advance();
        if constexpr (!LAST) {
            pin(s);
            dout_there = mbarrier_passed(barriers.dout_full(dout_ring.slot), dout_ring.parity);
            weigh();
        }
    }

    DEVICE void weigh() {
        const auto hide = [this](Scores &x, float value) { walk.hide(piece(), x, first_row(), value); };
        //% if not softcap then
        coarse = weigher.weigh(s, p, walk.partial, hide);
        //% elseif budget.whole_weights then
        weigher.weigh(s, p, p, statistics(), hide);
        //% else
        weigher.weigh(s, p, waiting, statistics(), hide);
        //% end -- softcap
    }

    // dS of a tile into shared memory, for dK here and for the dQ warpgroup. Hidden gradients, which may be anything, become 0.
    DEVICE void store_ds(u32 ds, bool room) {
        walk.hide(piece(), dp, first_row(), 0.0f);
        if (!room) mbarrier_wait(barriers.ds_empty(ds_ring.slot), ds_ring.parity ^ 1);
        //% if softcap then
        write_ds<true>(ds);
        //% else
        if (!WHOLE_WEIGHTS && MAY_BE_COARSE && coarse)
            write_ds<true>(ds);
        else
            write_ds<false>(ds);
        //% end -- softcap
    }
    // Rows of all warps of the group are in place.
    DEVICE void share_ds() {
        named_barrier_sync(1 + group, GROUP_THREADS);
        arrive(barriers.ds_full(ds_ring.slot));
        ds_ring.advance();
    }
    template <bool COARSE> DEVICE void write_ds(u32 ds) {
        const int first = tile_row() + warp * 16;
#pragma unroll
        for (int k = 0; k < TILE_M / 16; k++) {
            u32 word[4];
            //% if softcap and not budget.whole_weights then
            score_gradients<COARSE>(word, s, waiting, dp, k);
            //% else
            score_gradients<COARSE>(word, s, p, dp, k);
            //% end -- softcap
            stmatrix_x4(DsTile::fragment(ds, first, k), word[0], word[1], word[2], word[3]);
        }
    }

    // acc = statistics of the columns times ones.
    DEVICE void issue_statistics(Scores &acc, const u32 (&ones)[4]) const {
        const u32 at = statistics();
        wgmma_rs_bf16<TILE_M>(acc, ones, plain_descriptor(at, shared + ZEROS_OFFSET - at, 128), 0);
    }
    // S^T of the newest query tile, with its shift.
    DEVICE void issue_scores() {
        const u64 a = KTile::rows_operand(k_tile()), b = QTile::rows_operand(q_tile(q_ring.slot));
        wgmma_fence();
        //% if not softcap then
        issue_statistics(s, with_shift);
        //% end -- not softcap
#pragma unroll
        for (int k = 0; k < (HEAD_DIM + 15) / 16; k++) {
            const u64 columns = descriptor_plus(b, QTile::rows_step(k));
            if constexpr (KV_REGISTERS)
                wgmma_rs<TILE_M, K_MAJOR>(s, k_rows[k], columns, SCORES_ACCUMULATE || k > 0);
            else
                wgmma_ss<TILE_M, K_MAJOR, K_MAJOR>(s, descriptor_plus(a, KTile::rows_step(k)), columns,
                                                   SCORES_ACCUMULATE || k > 0);
        }
        wgmma_commit();
    }
    // dP^T - delta.
    DEVICE void issue_weight_gradients() {
        const u64 a = VTile::rows_operand(v_tile()), b = DoutTile::rows_operand(dout_tile());
        wgmma_fence();
        issue_statistics(dp, with_delta);
#pragma unroll
        for (int k = 0; k < (HEAD_DIM_V + 15) / 16; k++) {
            const u64 columns = descriptor_plus(b, DoutTile::rows_step(k));
            if constexpr (KV_REGISTERS)
                wgmma_rs<TILE_M, K_MAJOR>(dp, v_rows[k], columns, 1);
            else
                wgmma_ss<TILE_M, K_MAJOR, K_MAJOR>(dp, descriptor_plus(a, VTile::rows_step(k)), columns, 1);
        }
        wgmma_commit();
    }
    // dV += P^T dO.
    DEVICE void issue_dv() {
        const u64 b = DoutTile::columns_operand(dout_tile());
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < TILE_M / 16; k++)
            wgmma_rs<HEAD_DIM_V, MN_MAJOR>(dv, p[k], descriptor_plus(b, DoutTile::columns_step(k)), 1);
        wgmma_commit();
    }
    // dK += dS^T Q.
    DEVICE void issue_dk(u32 ds, u32 q) {
        const u64 a = DsTile::rows_operand(ds + tile_row() * PANEL_PITCH);
        const u64 b = QTile::columns_operand(q_tile(q));
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < TILE_M / 16; k++)
            wgmma_ss<HEAD_DIM, K_MAJOR, MN_MAJOR>(dk, descriptor_plus(a, DsTile::rows_step(k)),
                                                  descriptor_plus(b, QTile::columns_step(k)), 1);
        wgmma_commit();
    }

    DEVICE void store_keys() const {
        const Sequence &q = piece().sequence;
        const int head = piece().key_head;
        const Rows to_dv = rows_of(args.dv, q.k_batch, q.k_begin, head);
        const Rows to_dk = rows_of(args.dk, q.k_batch, q.k_begin, head);
        const float dv_factor = 1.0f / WEIGHT_UNIT, dk_factor = args.scale / WEIGHT_UNIT;
        //% if group_buffers then
        const int row = piece().first_key() + part() * GROUP_ROWS + warp * 16;
        const u32 staging = shared + STAGING_OFFSET + (group * 4 + warp) * STAGING_BYTES;
        store_through(staging, to_dv, 0, row, q.k_len, dv, dv_factor);
        store_through(staging, to_dk, 0, row, q.k_len, dk, dk_factor);
        //% else
        const int row = piece().first_key() + first_row();
        store_accumulator(to_dv, 0, row, q.k_len, dv, dv_factor);
        store_accumulator(to_dk, 0, row, q.k_len, dk, dk_factor);
        //% end -- group_buffers
    }
};
