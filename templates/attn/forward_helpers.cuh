// The helper warps of the Hopper forward when consumers take turns (forward_turns.cuh, whose names they use): who draws work and who loads.

// ---- Roles: scheduler -------------------------------------------------------------------------------------------------

// One warp, all lanes together: draws work and hands it on, tile by tile. It also writes the rows that see no key, so that no one else ever
// meets a tile without products.
struct Scheduler {
    const ForwardSm90Args &args;
    const Barriers barriers;
    //% if budget.drawn_ahead then
    u32 ticket_parity = 0;
    //% else
    u32 end_parity = 0;
    //% end -- drawn_ahead

    DEVICE void run() {
        const ListReader list(args.schedule);
        const int chunk = chunk_of(list.blocks, args.heads, PLENTY);  // heads that travel as one item
        Work &work = *shared_pointer<Work>(WORK_OFFSET);
        Ring<TILE_SLOTS> ring;
        // WHY the first is not drawn: blocks then begin in step, and those that read the same keys go on doing so at the same time. WHY the others
        // are drawn when the tile before is nearly over: the later, the more evenly work is spread at the end. Where items are so short that drawing one
        // takes as long, another warp does that, and this one decodes while items wait for a slot.
        for (u64 ticket = block_index();; ticket = draw()) {
            const Work drawn = decode_work(list, ticket, args.heads / chunk, larger(args.group / chunk, 1),
                                           static_cast<float>((HEAD_DIM + HEAD_DIM_V) * 2 * chunk));
            if (!drawn.more) break;
            if (lane_index() == 0) work = drawn;  // reading it again costs less than registers
            warp_sync();
            const Mask mask(work.sequence, args.window_left, args.window_right);
            const Range tiles = mask.key_tiles<TILE_M, TILE_N>(work.block);
            for (int head = work.head * chunk; head < (work.head + 1) * chunk; head++) {
                if (tiles.end == tiles.begin) {
                    store_keyless(args, work.sequence, work.block, head);
                    continue;
                }
                publish(ring, {work.sequence, head, work.block, tiles.begin, tiles.end, 1, {}});
                //% if not budget.drawn_ahead then
                wait_for_end();
                //% end -- drawn_ahead
            }
        }
        publish(ring, {});
    }

    //% if budget.drawn_ahead then
    // One thread of another warp: draws, a ticket behind the one that waits to be taken. It stops where the scheduler does: with the first that stands
    // for nothing.
    DEVICE void draw_ahead() const {
        const ListReader list(args.schedule);
        const u64 items = static_cast<u64>(list.blocks) * (args.heads / chunk_of(list.blocks, args.heads, PLENTY));
        u64 ticket;
        u32 parity = 1;
        do {
            ticket = take_ticket() + grid_blocks();
            mbarrier_wait(barriers.ticket_empty(), parity);
            ticket_slot() = ticket;
            mbarrier_arrive(barriers.ticket_full());
            parity ^= 1;
        } while (ticket < items);
    }
    //% end -- drawn_ahead

  private:
    DEVICE u64 take_ticket() const { return atomic_add(&pointer<ScheduleHeader>(args.schedule.header)->ticket, 1); }
    //% if budget.drawn_ahead then
    DEVICE u64 draw() {
        if (lane_index() == 0) mbarrier_wait(barriers.ticket_full(), ticket_parity);
        warp_sync();
        const u64 ticket = ticket_slot();
        warp_sync();
        if (lane_index() == 0) mbarrier_arrive(barriers.ticket_empty());
        ticket_parity ^= 1;
        return ticket;
    }
    //% else
    DEVICE u64 draw() {
        u64 ticket = 0;
        warp_sync();  // the item before has been read by all
        if (lane_index() == 0) ticket = take_ticket();
        return shuffle(ticket, 0) + grid_blocks();
    }
    // Of the tile just handed on.
    DEVICE void wait_for_end() {
        if (lane_index() == 0) mbarrier_wait(barriers.near_end(), end_parity);
        warp_sync();
        end_parity ^= 1;
    }
    //% end -- drawn_ahead
    DEVICE void publish(Ring<TILE_SLOTS> &ring, const Tile &tile) const {
        if (lane_index() == 0) {
            mbarrier_wait(barriers.tile_empty(ring.slot), ring.parity ^ 1);
            tile_slot(ring.slot) = tile;
            mbarrier_arrive(barriers.tile_full(ring.slot));
        }
        warp_sync();
        ring.advance();
    }
};

// ---- Roles: loaders ---------------------------------------------------------------------------------------------------

// Two threads, one for q and k, one for v, so that neither ring waits for the other: with two stages a load has little more than its own latency.
// What a tile's loads have in common is worked out before the first.
struct Loader {
    const ForwardSm90Args &args;
    const u32 shared;
    const Barriers barriers;

    DEVICE void load_qk() const {
        Ring<Q_STAGES> q_ring;
        Ring<STAGES> ring;
        visit_tiles([&](const Tile &tile, int begin, int end, const Keys &keys) {
            load<KTile>(keys, args.k, begin, K_OFFSET, barriers.k_full(ring.slot), barriers.k_empty(ring.slot), ring);
            //% if not budget.drawn_ahead then
            const int near_end = end - LOADS_LEFT;
            if (near_end <= begin) mbarrier_arrive(barriers.near_end());
                //% end -- drawn_ahead
#pragma unroll 1
            for (int group = 0; group < CONSUMERS; group++) {
                const u32 slot = group * Q_STAGES + q_ring.slot;
                mbarrier_wait(barriers.q_empty(slot), q_ring.parity ^ 1);
                mbarrier_arrive_expect(barriers.q_full(slot), QTile::BYTES);
                QTile::load(shared + Q_OFFSET + slot * QTile::BYTES, args.q, barriers.q_full(slot),
                            tile.sequence.q_begin, tile.block * TILE_M + group * GROUP_ROWS, tile.sequence.q_len,
                            tile.head, tile.sequence.q_batch);
            }
            q_ring.advance();
#pragma unroll 1
            for (int i = begin + 1; i < end; i++) {
                //% if not budget.drawn_ahead then
                if (i == near_end) mbarrier_arrive(barriers.near_end());
                //% end -- drawn_ahead
                load<KTile>(keys, args.k, i, K_OFFSET, barriers.k_full(ring.slot), barriers.k_empty(ring.slot), ring);
            }
        });
    }
    DEVICE void load_v() const {
        Ring<STAGES> ring;
        visit_tiles([&](const Tile &, int begin, int end, const Keys &keys) {
#pragma unroll 1
            for (int i = begin; i < end; i++)
                load<VTile>(keys, args.v, i, V_OFFSET, barriers.v_full(ring.slot), barriers.v_empty(ring.slot), ring);
        });
    }

  private:
    struct Keys {
        i64 begin;
        int count, head, batch;
    };
    // Visit: (tile, its key tiles' begin and end, keys).
    template <class Visit> DEVICE void visit_tiles(Visit visit) const {
        for (Ring<TILE_SLOTS> tiles;; tiles.advance()) {
            mbarrier_wait(barriers.tile_full(tiles.slot), tiles.parity);
            const Tile &tile = tile_slot(tiles.slot);
            if (!tile.more) break;
            const Sequence &s = tile.sequence;
            visit(tile, tile.begin, tile.end, Keys{s.k_begin, s.k_len, tile.head / args.group, s.k_batch});
            mbarrier_arrive(barriers.tile_empty(tiles.slot));
        }
    }
    // Key tile i into the next slot of its ring.
    template <typename T> DEVICE void load(const Keys &keys, const TensorMap &map, int i, int offset, u32 full,
                                           u32 empty, Ring<STAGES> &ring) const {
        mbarrier_wait(empty, ring.parity ^ 1);
        mbarrier_arrive_expect(full, T::BYTES);
        T::load(shared + offset + ring.slot * T::BYTES, map, full, keys.begin, i * TILE_N, keys.count, keys.head,
                keys.batch);
        ring.advance();
    }
};
