// The Hopper forward for short sequences (fwd_sm90.cu, whose names it uses): every consumer warpgroup works for itself, on tiles of 64 rows,
// and has a producer warp, rings and tickets of its own. Nobody takes turns: while one waits for memory, others compute.
//
// A tile of TILE_N keys travels in two parts, PART and REST keys. Where all of a tile's rows see keys of the first part of one key tile
// only, the second is neither loaded nor multiplied: its weights would be exact zeros, so the bits are the same.

// ---- Shared memory ----------------------------------------------------------------------------------------------------

constexpr int PLENTY = 16;  // items for every consumer, so that several heads may travel as one
constexpr int PART = $(budget.parts[1]);
constexpr int REST = $(budget.parts[2]);
constexpr int Q_SLOTS = $(budget.q_slots);
constexpr int ITEM_SLOTS = $(budget.item_slots);
static_assert(PART + REST == TILE_N && PART % 16 == 0 && REST % 16 == 0 && PART >= REST && STAGES >= 2,
              "a tile's two parts are in flight together");

using QTile = Panels<GROUP_ROWS, HEAD_DIM>;
using KPart = Panels<PART, HEAD_DIM>;
using VPart = Panels<PART, HEAD_DIM_V>;

// Neighbouring heads of a tile of 64 rows, which travel as one.
struct Item {
    Sequence sequence;
    int head, heads;
    int block;
    int begin, end;  // key tiles to visit, never none
    int narrow;      // one key tile, and of it only the first part
    int more;        // 0: no work is left
    int reserved;
};

// What a pair owns, one pair behind the other: q, k, v; then what is small.
constexpr int K_OFFSET = Q_SLOTS * QTile::BYTES;
constexpr int V_OFFSET = K_OFFSET + STAGES * KPart::BYTES;
constexpr int PAIR_BYTES = V_OFFSET + STAGES * VPart::BYTES;
constexpr int ITEMS_OFFSET = $(budget.offsets.items);
constexpr int BARRIERS_OFFSET = $(budget.offsets.barriers);
constexpr int PAIR_BARRIERS = 2 * Q_SLOTS + 4 * STAGES + 2 * ITEM_SLOTS;
static_assert(ITEMS_OFFSET >= CONSUMERS * PAIR_BYTES &&
                  BARRIERS_OFFSET - ITEMS_OFFSET >= CONSUMERS * ITEM_SLOTS * sizeof(Item) &&
                  BARRIERS_OFFSET + 8 * CONSUMERS * PAIR_BARRIERS == $(budget.shared_bytes),
              "the kernel and its budget agree");

// ---- Barriers ---------------------------------------------------------------------------------------------------------
//
//     full     1 arrival: the producer's, with the bytes of the copy
//     empty    one arrival per warp of the consumer

// A producer and its consumer, and what is theirs.
struct Pair {
    u32 tiles, barriers;  // shared addresses
    int items;            // offset

    DEVICE Pair(u32 shared, int index)
        : tiles(shared + index * PAIR_BYTES), barriers(shared + BARRIERS_OFFSET + 8 * index * PAIR_BARRIERS),
          items(ITEMS_OFFSET + index * ITEM_SLOTS * static_cast<int>(sizeof(Item))) {}

    DEVICE u32 barrier(u32 i) const { return barriers + 8 * i; }
    DEVICE u32 q_full(u32 slot) const { return barrier(slot); }
    DEVICE u32 q_empty(u32 slot) const { return barrier(Q_SLOTS + slot); }
    DEVICE u32 k_full(u32 slot) const { return barrier(2 * Q_SLOTS + slot); }
    DEVICE u32 k_empty(u32 slot) const { return barrier(2 * Q_SLOTS + STAGES + slot); }
    DEVICE u32 v_full(u32 slot) const { return barrier(2 * Q_SLOTS + 2 * STAGES + slot); }
    DEVICE u32 v_empty(u32 slot) const { return barrier(2 * Q_SLOTS + 3 * STAGES + slot); }
    DEVICE u32 item_full(u32 slot) const { return barrier(2 * Q_SLOTS + 4 * STAGES + slot); }
    DEVICE u32 item_empty(u32 slot) const { return barrier(2 * Q_SLOTS + 4 * STAGES + ITEM_SLOTS + slot); }

    DEVICE u32 q(u32 slot) const { return tiles + slot * QTile::BYTES; }
    DEVICE u32 k(u32 slot) const { return tiles + K_OFFSET + slot * KPart::BYTES; }
    DEVICE u32 v(u32 slot) const { return tiles + V_OFFSET + slot * VPart::BYTES; }
    DEVICE Item &item(u32 slot) const { return shared_pointer<Item>(items)[slot]; }

    DEVICE void initialise() const {
        init_ring(q_full(0), q_empty(0), Q_SLOTS, 1, 4);
        init_ring(k_full(0), k_empty(0), STAGES, 1, 4);
        init_ring(v_full(0), v_empty(0), STAGES, 1, 4);
        init_ring(item_full(0), item_empty(0), ITEM_SLOTS, 1, 4);
        mbarrier_init_fence();
    }
};

// ---- Roles: producers -------------------------------------------------------------------------------------------------

// One warp: draws work and loads it; writes the rows that see no key.
struct Producer {
    const ForwardSm90Args &args;
    const Pair pair;
    Ring<ITEM_SLOTS> items;
    Ring<Q_SLOTS> q_ring;
    Ring<STAGES> ring;  // of parts of keys and values

    DEVICE Producer(const ForwardSm90Args &a, const Pair &p) : args(a), pair(p) {}

    // first: which of the block's first items is this pair's.
    DEVICE void run(int first) {
        const ListReader list(args.schedule);
        const int chunk = chunk_of(list.blocks, args.heads, PLENTY * CONSUMERS);  // heads that travel as one item
        u64 ticket = static_cast<u64>(block_index()) * CONSUMERS + first;
        for (;;) {
            const Work work = decode_work(list, ticket, args.heads / chunk, larger(args.group / chunk, 1),
                                          static_cast<float>((HEAD_DIM + HEAD_DIM_V) * 2 * chunk));
            if (!work.more) break;
            // WHY now: the answer comes while this item's loads are issued.
            u64 drawn = 0;
            if (lane_index() == 0) drawn = atomic_add(&pointer<ScheduleHeader>(args.schedule.header)->ticket, 1);
            const Mask mask(work.sequence, args.window_left, args.window_right);
            const Range tiles = mask.key_tiles<TILE_M, TILE_N>(work.block);
            if (tiles.end == tiles.begin) {
                for (int head = work.head * chunk; head < (work.head + 1) * chunk; head++)
                    store_keyless(args, work.sequence, work.block, head);
            } else if (lane_index() == 0) {
                const int last = smaller(work.block * TILE_M + TILE_M, work.sequence.q_len) - 1;
                const int narrow = tiles.end - tiles.begin == 1 && mask.key_end(last) <= tiles.begin * TILE_N + PART;
                feed(publish(
                    {work.sequence, work.head * chunk, chunk, work.block, tiles.begin, tiles.end, narrow, 1, 0}));
            }
            warp_sync();
            ticket = shuffle(drawn, 0) + static_cast<u64>(grid_blocks()) * CONSUMERS;
        }
        if (lane_index() == 0) publish({});
    }

  private:
    // Hands an item to the consumer, who will not give it back before its loads have come.
    DEVICE const Item &publish(const Item &next) {
        mbarrier_wait(pair.item_empty(items.slot), items.parity ^ 1);
        Item &item = pair.item(items.slot);
        item = next;
        mbarrier_arrive(pair.item_full(items.slot));
        items.advance();
        return item;
    }
    DEVICE void feed(const Item &item) {
        const int parts = item.narrow ? 1 : 2;
        const int begin = item.begin, end = item.end;
#pragma unroll 1
        for (int head = item.head, heads = item.heads; heads > 0; head++, heads--) {
            const Sequence &s = item.sequence;
            mbarrier_wait(pair.q_empty(q_ring.slot), q_ring.parity ^ 1);
            mbarrier_arrive_expect(pair.q_full(q_ring.slot), QTile::BYTES);
            QTile::load(pair.q(q_ring.slot), args.q, pair.q_full(q_ring.slot), s.q_begin, item.block * TILE_M, s.q_len,
                        head, s.q_batch);
            q_ring.advance();
            const int kv_head = head / args.group;
#pragma unroll 1
            for (int at = begin; at < end; at++) {
#pragma unroll 1
                for (int part = 0; part < parts; part++) {
                    const int first = at * TILE_N + part * PART, limit = smaller(s.k_len, at * TILE_N + TILE_N);
                    mbarrier_wait(pair.k_empty(ring.slot), ring.parity ^ 1);
                    mbarrier_arrive_expect(pair.k_full(ring.slot), KPart::BYTES);
                    KPart::load(pair.k(ring.slot), args.k, pair.k_full(ring.slot), s.k_begin, first, limit, kv_head,
                                s.k_batch);
                    mbarrier_wait(pair.v_empty(ring.slot), ring.parity ^ 1);
                    mbarrier_arrive_expect(pair.v_full(ring.slot), VPart::BYTES);
                    VPart::load(pair.v(ring.slot), args.v, pair.v_full(ring.slot), s.k_begin, first, limit, kv_head,
                                s.k_batch);
                    ring.advance();
                }
            }
        }
    }
};

// ---- Roles: consumers -------------------------------------------------------------------------------------------------

struct Consumer {
    const ForwardSm90Args &args;
    const Pair pair;
    const int warp;  // within the group
    Ring<ITEM_SLOTS> items;
    Ring<Q_SLOTS> q_ring;
    Ring<STAGES> ring;  // of parts of keys and values

    DEVICE Consumer(const ForwardSm90Args &a, const Pair &p, int w) : args(a), pair(p), warp(w) {}

    DEVICE void run() {
        RowSoftmax softmax(score_factor(args));
        Output o;
        for (;; items.advance()) {
            mbarrier_wait(pair.item_full(items.slot), items.parity);
            const Item &item = pair.item(items.slot);
            if (!item.more) break;
#pragma unroll 1
            for (int head = item.head, heads = item.heads; heads > 0; head++, heads--) {
                mbarrier_wait(pair.q_full(q_ring.slot), q_ring.parity);
                if (item.narrow)
                    narrow(item, softmax, o);
                else
                    wide(item, softmax, o);
                if (any_row(item)) Destination(args, item.sequence, first_row(item), head).store_rows(o, softmax);
            }
            warp_sync();
            arrive(pair.item_empty(items.slot));
        }
    }

  private:
    DEVICE int first_row(const Item &item) const { return item.block * TILE_M + warp * 16; }
    DEVICE bool any_row(const Item &item) const { return first_row(item) < item.sequence.q_len; }  // in this warp
    template <int N> DEVICE void settle(float (&s)[N], const Item &item, int first_key) const {
        cap_scores(args, s);
        hide_scores(Mask(item.sequence, args.window_left, args.window_right), first_row(item), first_key, s);
    }
    DEVICE void release_q() {
        arrive(pair.q_empty(q_ring.slot));
        q_ring.advance();
    }

    // A tile whose keys are all in one part.
    DEVICE void narrow(const Item &item, RowSoftmax &softmax, Output &o) {
        float s[PART / 2];
        u32 p[PART / 16][4];
        mbarrier_wait(pair.k_full(ring.slot), ring.parity);
        pin(s);
        wgmma_fence();
        issue_qk<PART>(s, ring.slot);
        wgmma_commit();
        wgmma_wait<0>();
        pin(s);
        arrive(pair.k_empty(ring.slot));
        release_q();
        if (any_row(item)) {
            settle(s, item, item.begin * TILE_N);
            softmax.start(s);
            softmax.weigh(s);
        }
        pack_weights(p, s);
        mbarrier_wait(pair.v_full(ring.slot), ring.parity);
        pin(o);
        pin_weights(p);
        wgmma_fence();
        issue_pv<0, PART>(o, p, ring.slot, 0);
        wgmma_commit();
        wgmma_wait<0>();
        pin(o);
        arrive(pair.v_empty(ring.slot));
        ring.advance();
    }

    // Any other.
    DEVICE void wide(const Item &item, RowSoftmax &softmax, Output &o) {
        float s[TILE_N / 2];
        u32 p[TILE_N / 16][4];
        int at = item.begin;
        const int end = item.end;
#pragma unroll
        for (int i = 0; i < HEAD_DIM_V / 2; i++) o[i] = 0.0f;
        scores(s, item, at, at + 1 == end);
        softmax.start(s);
        for (;;) {
            softmax.weigh(s);
            pack_weights(p, s);
            values(o, p);
            if (++at == end) break;
            scores(s, item, at, at + 1 == end);
            float shrink[2];
            if (unlikely(softmax.advance(s, shrink))) softmax.scale_rows(o, shrink);
        }
    }
    // S = Q K^T of a whole key tile, settled.
    DEVICE void scores(float (&s)[TILE_N / 2], const Item &item, int at, bool last) {
        Ring<STAGES> next = ring;
        next.advance();
        mbarrier_wait(pair.k_full(ring.slot), ring.parity);
        mbarrier_wait(pair.k_full(next.slot), next.parity);
        pin(s);
        wgmma_fence();
        issue_qk<PART>(*reinterpret_cast<float(*)[PART / 2]>(&s[0]), ring.slot);
        issue_qk<REST>(*reinterpret_cast<float(*)[REST / 2]>(&s[PART / 2]), next.slot);
        wgmma_commit();
        wgmma_wait<0>();
        pin(s);
        arrive(pair.k_empty(ring.slot));
        arrive(pair.k_empty(next.slot));
        if (last) release_q();
        settle(s, item, at * TILE_N);
    }
    // O += P V of a whole key tile.
    DEVICE void values(Output &o, u32 (&p)[TILE_N / 16][4]) {
        Ring<STAGES> next = ring;
        next.advance();
        mbarrier_wait(pair.v_full(ring.slot), ring.parity);
        mbarrier_wait(pair.v_full(next.slot), next.parity);
        pin(o);
        pin_weights(p);
        wgmma_fence();
        issue_pv<0, PART>(o, p, ring.slot, 1);
        issue_pv<PART, REST>(o, p, next.slot, 1);
        wgmma_commit();
        wgmma_wait<0>();
        pin(o);
        arrive(pair.v_empty(ring.slot));
        arrive(pair.v_empty(next.slot));
        next.advance();
        ring = next;
    }

    // S = Q K^T of one part.
    template <int N> DEVICE void issue_qk(float (&s)[N / 2], u32 slot) const {
        const u64 q = QTile::rows_operand(pair.q(q_ring.slot)), k = KPart::rows_operand(pair.k(slot));
#pragma unroll
        for (int step = 0; step < (HEAD_DIM + 15) / 16; step++)
            wgmma_ss<N, K_MAJOR, K_MAJOR>(s, descriptor_plus(q, QTile::rows_step(step)),
                                          descriptor_plus(k, KPart::rows_step(step)), step > 0);
    }
    // O += P V of the N keys of one part, whose weights begin at key FIRST of the tile.
    template <int FIRST, int N, int STEPS>
    DEVICE void issue_pv(Output &o, const u32 (&p)[STEPS][4], u32 slot, int accumulate) const {
        const u64 v = VPart::columns_operand(pair.v(slot));
#pragma unroll
        for (int step = 0; step < N / 16; step++)
            wgmma_rs<HEAD_DIM_V, MN_MAJOR>(o, p[FIRST / 16 + step], descriptor_plus(v, VPart::columns_step(step)),
                                           step > 0 || accumulate);
    }
};

// ---- For fwd_sm90.cu --------------------------------------------------------------------------------------------------

DEVICE void initialise_barriers(u32 shared) {
    if (thread_index() < CONSUMERS) Pair(shared, thread_index()).initialise();
}
DEVICE void help(const ForwardSm90Args &args, u32 shared, int warp) {
    if (warp < CONSUMERS) Producer(args, {shared, warp}).run(warp);
}
DEVICE void consume(const ForwardSm90Args &args, u32 shared, int group, int warp) {
    Consumer(args, {shared, group}, warp).run();
}
