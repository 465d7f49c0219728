// The compute warpgroups of the Hopper backward (bwd_sm90.cu, whose names it uses) for heads so wide that the registers of both must share dK and
// dV of 64 keys: each sums panels of their columns. The products before that are shared too: the first group makes S and P, the second dP
// and dS, and both hand their result to the other, and dS to dQ, through shared memory.
//
// Weights cross as the operand of dV. What makes dS of dP crosses a second time, in the order in which threads hold it, where that operand does not
// serve: with softcap it is weight times slope, and dS deserves better than bf16. It is at most 1, so that a float32 has its first two bits to spare:
// 16 bits without a sign, 7 of exponent and 9 of fraction.

// ---- Roles: compute ---------------------------------------------------------------------------------------------------

enum Half { SCORES, GRADIENTS };

//% if dtype == "bf16" then
DEVICE u32 pack_weights(float low, float high) {
    constexpr u32 ROUND = 1 << 15;
    return (float_to_bits(low) * 4 + ROUND) >> 16 | ((float_to_bits(high) * 4 + ROUND) & 0xFFFF0000u);
}
DEVICE float low_weight(u32 pair) { return bits_to_float((pair & 0xFFFF) << 14); }
DEVICE float high_weight(u32 pair) { return bits_to_float((pair & 0xFFFF0000u) >> 2); }
//% else
DEVICE u32 pack_weights(float low, float high) { return pack(low, high); }
DEVICE float low_weight(u32 pair) { return unpack(static_cast<u16>(pair)); }
DEVICE float high_weight(u32 pair) { return unpack(static_cast<u16>(pair >> 16)); }
//% end -- dtype

template <Half HALF> struct WideCompute {
    // Of dK the second group has the larger part, of dV the first; of a single panel the other has nothing.
    static constexpr int DK_SPLIT = QTile::COUNT / 2 * PANEL_COLUMNS;
    static constexpr int DV_SPLIT = DoutTile::COUNT == 1 ? HEAD_DIM_V : (DoutTile::COUNT + 1) / 2 * PANEL_COLUMNS;
    static constexpr int DK_PANEL = HALF == SCORES ? 0 : DK_SPLIT / PANEL_COLUMNS;  // the first
    static constexpr int DV_PANEL = HALF == SCORES ? 0 : (DoutTile::COUNT + 1) / 2;
    static constexpr int DK_COLUMNS = HALF == SCORES ? DK_SPLIT : HEAD_DIM - DK_SPLIT;
    static constexpr int DV_COLUMNS = HALF == SCORES ? DV_SPLIT : HEAD_DIM_V - DV_SPLIT;

    const BackwardSm90Args &args;
    const u32 shared;
    const Barriers barriers;
    const int warp;  // within the group
    const Weigher weigher;
    Ring<Q_STAGES> q_ring, old_q_ring;  // of the newest S or dP; of the newest dK
    Ring<DOUT_STAGES> dout_ring;
    Ring<K_STAGES> k_ring;
    Ring<V_STAGES> v_ring;
    Ring<DS_STAGES> ds_ring, made_ring;  // of the newest dK; of the newest dS
    Ring<1> p_ring, made_p_ring;
    Ring<PIECE_SLOTS> piece_ring;
    Walk walk;

    static constexpr int DK_COUNT = DK_COLUMNS > 0 ? DK_COLUMNS / 2 : 1, DV_COUNT = DV_COLUMNS > 0 ? DV_COLUMNS / 2 : 1;
    float dk[DK_COUNT], dv[DV_COUNT];
    Scores x;  // S, then weights; dP
    Weights p;
    u32 ones[4];

    DEVICE WideCompute(const BackwardSm90Args &a, u32 shared_base, const Barriers &b, int warp_index)
        : args(a), shared(shared_base), barriers(b), warp(warp_index), weigher(a.scale, a.softcap), walk{a.group} {}

    DEVICE void run() {
        ones[0] = ones[1] = HALF == SCORES ? shift_ones() : delta_ones();
        ones[2] = ones[3] = 0;
        for (;;) {
            mbarrier_wait(barriers.piece_full(piece_ring.slot), piece_ring.parity);
            const int steps = piece().steps;
            if (steps == 0) break;
#pragma unroll
            for (int i = 0; i < DK_COUNT; i++) dk[i] = 0.0f;
#pragma unroll
            for (int i = 0; i < DV_COUNT; i++) dv[i] = 0.0f;
            pin(dk);
            pin(dv);
            if constexpr (HALF == SCORES)
                walk_scores(steps);
            else
                walk_gradients(steps);
            wgmma_wait<0>();
            pin(dk);
            pin(dv);
            release_dk();
            store_keys();
            k_ring.advance();
            v_ring.advance();
            warp_sync();
            arrive(barriers.piece_empty(piece_ring.slot));
            piece_ring.advance();
        }
    }

  private:
    DEVICE const Piece &piece() const { return piece_slot(piece_ring.slot); }
    DEVICE u32 dout_tile() const { return shared + DOUT_OFFSET + dout_ring.slot * DoutTile::BYTES; }
    DEVICE u32 ds_tile(u32 slot) const { return shared + DS_OFFSET + slot * DsTile::BYTES; }
    // This lane's first row in the tile of keys.
    DEVICE int first_row() const { return warp * 16 + lane_index() / 4; }
    // Of a tile of P or dS.
    DEVICE u32 fragment(u32 tile, int k) const { return DsTile::fragment(tile, warp * 16, k); }

    // No more than dK is in flight where a loop closes, for ptxas's sake (ptx/wgmma.cuh). S of the next step is not issued ahead of it: with a ring
    // of two, the tile of queries that S reads takes the place of one that dK has read.
    DEVICE void walk_scores(int steps) {
        walk.begin(piece(), 0);
        mbarrier_wait(barriers.k_full(k_ring.slot), k_ring.parity);
#pragma unroll 1
        for (int i = 0; i < steps; i++) {
            issue_scores();
            wgmma_wait<0>();  // the dK before and S are complete
            pin(x);
            if (i > 0) release_dk();
            weigh();
            put_weights();
            issue_dv();
            issue_dk();
            walk.advance(piece(), 0);
            wgmma_wait<1>();
            release_dv();
        }
    }
    DEVICE void walk_gradients(int steps) {
        walk.begin(piece(), 0);
        mbarrier_wait(barriers.v_full(v_ring.slot), v_ring.parity);
#pragma unroll 1
        for (int i = 0; i < steps; i++) {
            issue_weight_gradients();
            wgmma_wait<0>();  // the dK before and dP are complete
            pin(x);
            if (i > 0) release_dk();
            if (i + 1 == steps) arrive(barriers.v_empty(v_ring.slot));
            mbarrier_wait(barriers.p_full(), made_p_ring.parity);
            made_p_ring.advance();
            get_weights();
            issue_dv();
            put_gradients();
            issue_dk();
            walk.advance(piece(), 0);
            wgmma_wait<1>();
            release_dv();
        }
    }

    // x = statistics of the columns times ones.
    DEVICE void issue_statistics() {
        const u32 at = shared + STATISTICS_OFFSET + q_ring.slot * STATISTICS_BYTES;
        wgmma_rs_bf16<TILE_M>(x, ones, plain_descriptor(at, 0, 128), 0);
    }
    // x = S^T with its shift, of the next query tile.
    DEVICE void issue_scores() {
        mbarrier_wait(barriers.q_full(q_ring.slot), q_ring.parity);
        const u64 a = KTile::rows_operand(shared + K_OFFSET + k_ring.slot * KTile::BYTES);
        const u64 b = QTile::rows_operand(shared + Q_OFFSET + q_ring.slot * QTile::BYTES);
        wgmma_fence();
        //% if not softcap then
        issue_statistics();
        //% end -- not softcap
#pragma unroll
        for (int k = 0; k < (HEAD_DIM + 15) / 16; k++)
            wgmma_ss<TILE_M, K_MAJOR, K_MAJOR>(x, descriptor_plus(a, KTile::rows_step(k)),
                                               descriptor_plus(b, QTile::rows_step(k)), SCORES_ACCUMULATE || k > 0);
        wgmma_commit();
        q_ring.advance();
    }
    // x = dP^T - delta, of the next query tile.
    DEVICE void issue_weight_gradients() {
        mbarrier_wait(barriers.q_full(q_ring.slot), q_ring.parity);
        mbarrier_wait(barriers.dout_full(dout_ring.slot), dout_ring.parity);
        const u64 a = VTile::rows_operand(shared + V_OFFSET + v_ring.slot * VTile::BYTES);
        const u64 b = DoutTile::rows_operand(dout_tile());
        wgmma_fence();
        issue_statistics();
#pragma unroll
        for (int k = 0; k < (HEAD_DIM_V + 15) / 16; k++)
            wgmma_ss<TILE_M, K_MAJOR, K_MAJOR>(x, descriptor_plus(a, VTile::rows_step(k)),
                                               descriptor_plus(b, DoutTile::rows_step(k)), 1);
        wgmma_commit();
        q_ring.advance();
    }

    DEVICE void weigh() {
        const auto hide = [this](Scores &scores, float value) { walk.hide(piece(), scores, first_row(), value); };
        //% if softcap then
        const u32 newest = (q_ring.slot + Q_STAGES - 1) % Q_STAGES;
        weigher.weigh(x, p, p, shared + STATISTICS_OFFSET + newest * STATISTICS_BYTES, hide);
        //% else
        weigher.weigh(x, p, walk.partial, hide);
        //% end -- softcap
    }
    DEVICE void put_weights() {
        mbarrier_wait(barriers.p_empty(), made_p_ring.parity ^ 1);
#pragma unroll
        for (int k = 0; k < TILE_M / 16; k++)
            stmatrix_x4(fragment(shared + P_OFFSET, k), p[k][0], p[k][1], p[k][2], p[k][3]);
            //% if budget.fine_weights then
#pragma unroll
        for (int k = 0; k < TILE_M / 16; k++) {
            u32 word[4];
#pragma unroll
            for (int i = 0; i < 4; i++) word[i] = pack_weights(x[8 * k + 2 * i], x[8 * k + 2 * i + 1]);
            store_shared(own_weights(k), Vector4{word[0], word[1], word[2], word[3]});
        }
        //% end -- fine_weights
        fence_async_proxy();
        warp_sync();
        arrive(barriers.p_full());
        made_p_ring.advance();
    }
    // The weights that belong to this thread's gradients.
    DEVICE void get_weights() {
#pragma unroll
        for (int k = 0; k < TILE_M / 16; k++) {
            //% if budget.fine_weights then
            const Vector4 word = load_shared(own_weights(k));
            p[k][0] = word.x;
            p[k][1] = word.y;
            p[k][2] = word.z;
            p[k][3] = word.w;
            //% else
            ldmatrix_x4(p[k], fragment(shared + P_OFFSET, k));
            //% end -- fine_weights
        }
    }
    //% if budget.fine_weights then
    DEVICE u32 own_weights(int k) const {
        return shared + FINE_WEIGHTS_OFFSET + (k * GROUP_THREADS + thread_index() % GROUP_THREADS) * 16;
    }
    //% end -- fine_weights
    // dS = P dP. Hidden gradients, which may be anything, become 0.
    DEVICE void put_gradients() {
        walk.hide(piece(), x, first_row(), 0.0f);
        mbarrier_wait(barriers.ds_empty(made_ring.slot), made_ring.parity ^ 1);
#pragma unroll
        for (int k = 0; k < TILE_M / 16; k++) {
            u32 word[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                word[i] = pack(low_weight(p[k][i]) * x[8 * k + 2 * i], high_weight(p[k][i]) * x[8 * k + 2 * i + 1]);
            }
            stmatrix_x4(fragment(ds_tile(made_ring.slot), k), word[0], word[1], word[2], word[3]);
        }
        fence_async_proxy();
        warp_sync();
        arrive(barriers.ds_full(made_ring.slot));
        //% if budget.cluster == 2 then
        if (lane_index() == 0 && piece().joint)
            copy_ds_to_peer(shared, barriers, made_ring.slot, warp * 16 * PANEL_PITCH, 16 * PANEL_PITCH);
        //% end -- cluster
        made_ring.advance();
    }

    // dV += P^T dO.
    DEVICE void issue_dv() {
        mbarrier_wait(barriers.p_full(), p_ring.parity);
        if constexpr (HALF == SCORES) mbarrier_wait(barriers.dout_full(dout_ring.slot), dout_ring.parity);
        const u64 a = DsTile::rows_operand(shared + P_OFFSET);
        const u64 b = DoutTile::columns_operand(dout_tile() + DV_PANEL * DoutTile::PANEL_BYTES);
        wgmma_fence();
        if constexpr (DV_COLUMNS > 0) {
#pragma unroll
            for (int k = 0; k < TILE_M / 16; k++)
                wgmma_ss<DV_COLUMNS, K_MAJOR, MN_MAJOR>(dv, descriptor_plus(a, DsTile::rows_step(k)),
                                                        descriptor_plus(b, DoutTile::columns_step(k)), 1);
        }
        wgmma_commit();
    }
    DEVICE void release_dv() {
        if constexpr (HALF == GRADIENTS) warp_sync();  // all lanes have read their weights
        arrive(barriers.p_empty());
        arrive_everywhere(barriers.dout_empty(dout_ring.slot));
        p_ring.advance();
        dout_ring.advance();
    }
    // dK += dS^T Q.
    DEVICE void issue_dk() {
        mbarrier_wait(barriers.ds_full(ds_ring.slot), ds_ring.parity);
        const u32 q = shared + Q_OFFSET + old_q_ring.slot * QTile::BYTES;
        const u64 a = DsTile::rows_operand(ds_tile(ds_ring.slot));
        const u64 b = QTile::columns_operand(q + DK_PANEL * QTile::PANEL_BYTES);
        wgmma_fence();
        if constexpr (DK_COLUMNS > 0) {
#pragma unroll
            for (int k = 0; k < TILE_M / 16; k++)
                wgmma_ss<DK_COLUMNS, K_MAJOR, MN_MAJOR>(dk, descriptor_plus(a, DsTile::rows_step(k)),
                                                        descriptor_plus(b, QTile::columns_step(k)), 1);
        }
        wgmma_commit();
    }
    DEVICE void release_dk() {
        arrive(barriers.ds_empty(ds_ring.slot));
        arrive_everywhere(barriers.q_empty(old_q_ring.slot));
        ds_ring.advance();
        old_q_ring.advance();
    }

    DEVICE void store_keys() const {
        const Sequence &q = piece().sequence;
        const int head = piece().key_head, row = piece().first_key() + first_row();
        if constexpr (DV_COLUMNS > 0)
            store_accumulator(rows_of(args.dv, q.k_batch, q.k_begin, head), DV_PANEL * PANEL_COLUMNS, row, q.k_len, dv,
                              1.0f / WEIGHT_UNIT);
        if constexpr (DK_COLUMNS > 0)
            store_accumulator(rows_of(args.dk, q.k_batch, q.k_begin, head), DK_PANEL * PANEL_COLUMNS, row, q.k_len, dk,
                              args.scale / WEIGHT_UNIT);
    }
};
