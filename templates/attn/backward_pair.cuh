// The scheduler of the Hopper backward where two blocks, a cluster, share pieces (bwd_sm90.cu, whose names it uses).
//
// Both blocks' schedulers make the same decisions from the same tickets, which the first draws for both. A piece is TILE_N keys of one head; where its
// second half has no keys, both blocks take the first half, each for a head of its own, so that neither is idle: their steps are the same. The choice
// follows from the sequence's own length and the number of heads, so a sequence has the same bits in every batch.

struct Scheduler : Publisher {
    using Publisher::Publisher;

    DEVICE void run() const {
        const int rank = static_cast<int>(cluster_rank());
        const ListReader list(args.schedule);
        const int chunk = heads_together(list);
        Work &work = *shared_pointer<Work>(WORK_OFFSET);
        Ring<PIECE_SLOTS> ring;
        u32 request_parity = 0, ticket_parity = 0;
        for (;;) {
            u64 ticket = 0;
            if (lane_index() == 0) ticket = draw(rank, ticket_parity);
            ticket_parity ^= 1;
            const Work drawn = decode(list, shuffle(ticket, 0), chunk);
            if (!drawn.more) break;
            keep(drawn, chunk, work);
            const Mask mask(work.sequence, args.window_left, args.window_right);
            const Range tiles = mask.query_tiles<TILE_M, TILE_N>(work.block);
            const int head = work.head * chunk;
            if (tiles.end <= tiles.begin) {
                if (rank == 0) {
                    clear_keys(args.dk, HEAD_DIM, work, head, chunk);
                    clear_keys(args.dv, HEAD_DIM_V, work, head, chunk);
                }
                warp_sync();
                continue;
            }
            const bool joint = work.sequence.k_len - work.block * TILE_N > OWN_KEYS;
            // Two heads at a time, but not ahead of turns that the second would have to wait for.
            const bool paired = !joint && (!ascends(head) || work.block == 0);
            if (paired && chunk == 1 && head % 2 == 1) {  // came with the head before
                warp_sync();
                continue;
            }
            const int end = paired && chunk == 1 ? smaller(head + 2, key_heads) : head + chunk;
            publish_heads(ring, mask, tiles, head, end, joint, paired, rank);
            if (rank == 1) continue;
            if (lane_index() == 0) mbarrier_wait(barriers.request(), request_parity);
            warp_sync();
            request_parity ^= 1;
        }
        publish(ring, {});
    }

  private:
    // The next ticket. One lane.
    DEVICE u64 draw(int rank, u32 parity) const {
        const u32 mailbox = shared_address(shared_memory()) + TICKET_OFFSET;
        if (rank == 1) {
            mbarrier_arrive_expect(barriers.ticket_full(), sizeof(Vector4));
            mbarrier_wait(barriers.ticket_full(), parity);
            const Vector4 words = load_shared(mailbox);
            mbarrier_arrive_peer(peer_address(barriers.ticket_empty(), 0));
            return static_cast<u64>(words.y) << 32 | words.x;
        }
        const u64 ticket = atomic_add(&pointer<ScheduleHeader>(args.schedule.header)->ticket, 1);
        mbarrier_wait(barriers.ticket_empty(), parity ^ 1);
        store_shared(mailbox, Vector4{static_cast<u32>(ticket), static_cast<u32>(ticket >> 32), 0, 0});
        fence_async_proxy();
        bulk_copy_peer(peer_address(mailbox, 1), mailbox, sizeof(Vector4), peer_address(barriers.ticket_full(), 1));
        return ticket;
    }
    DEVICE void publish_heads(Ring<PIECE_SLOTS> &ring, const Mask &mask, const Range &tiles, int head, int end,
                              bool joint, bool paired, int rank) const {
        const Work &work = *shared_pointer<Work>(WORK_OFFSET);
        const Range before = mask.query_tiles<TILE_M, TILE_N>(work.block - 1);
        const Range after = mask.query_tiles<TILE_M, TILE_N>(work.block + 1);
        const int own_row = joint ? rank * OWN_KEYS : 0, stride = paired ? 2 : 1;
        const int first_key = work.block * TILE_N + own_row;
        const Range whole = mask.whole_query_tiles<TILE_M, OWN_KEYS>(first_key / OWN_KEYS);
        Piece piece = {work.sequence,
                       head,
                       work.block,
                       tiles.begin,
                       tiles.end,
                       whole.begin,
                       larger(whole.end - whole.begin, 0),
                       edge(work, -static_cast<i64>(args.window_left), own_row),
                       edge(work, args.window_right, own_row),
                       after.end > after.begin ? after.begin : tiles.end,
                       work.block > 0 ? before.end : 0,
                       (tiles.end - tiles.begin) * args.group,
                       0,
                       0,
                       own_row,
                       joint};
        for (int i = head; i < end; i += stride) {
            piece.key_head = i;
            piece.ascending = ascends(i);
            piece.request = rank == 0 && i + stride >= end;
            if (rank == 1 && !joint) {
                if (paired && i + 1 < end)
                    piece.key_head = i + 1;
                else
                    idle(piece);
            }
            publish(ring, piece);
        }
    }
    // Nothing of the piece is this block's: it keeps step with the other, and neither stores nor takes turns.
    static DEVICE void idle(Piece &piece) {
        piece.sequence.k_len = 0;
        piece.whole_count = 0;
        piece.unseen_after = piece.end;
        piece.unseen_before = 0;
    }
};
