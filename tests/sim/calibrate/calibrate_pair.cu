// ---- Contract ---------------------------------------------------------------------------------------------------------
//
// What the wrappers of ptx/cluster.cuh do, as calibrate.cu has it: two blocks of a warpgroup, a cluster. Each leaves its words in a half of its own.

//% include "calibrate.cuh"
//% include "ptx/cluster.cuh"

constexpr u32 EMPTY = BARRIER + 8;

struct Pair : Bench {
    const int rank;

    DEVICE explicit Pair(const CalibrateArgs &a) : Bench(a), rank(static_cast<int>(cluster_rank())) {}

    DEVICE u32 peer(u32 offset) const { return peer_address(shared + offset, rank ^ 1); }
    DEVICE void start_pair() const {
        if (thread == 0) mbarrier_init(shared + EMPTY, 2);
        start_barrier();
        fence_async_proxy();
        cluster_sync();
    }
    // Each block loads a box for both: its own at its rank's place.
    DEVICE void multicast() const {
        clear(2 * BOX_BYTES);
        start_pair();
        if (thread == 0) {
            mbarrier_arrive_expect(shared + BARRIER, 2 * BOX_BYTES);
            // Of the second block's box 27 rows are none.
            const int count = BOX_ROWS - 27 * rank;
            tma_load_5d_multicast(shared + rank * BOX_BYTES, args.load, shared + BARRIER, 0, BOX_ROWS - count,
                                  5 + 40 * rank + count, rank, 0, 3);
        }
        wait(0);
        dump(rank * 2 * BOX_BYTES / 4, 2 * BOX_BYTES);
    }
    // Runs from here to there, another one each round; who has read it hands the place back, to the block that fills it and to itself.
    DEVICE void copy() const {
        constexpr int ROUNDS = 3, BYTES = 4096;
        clear(2 * BYTES);
        for (int i = thread; i < BYTES / 4; i += THREADS) store_shared(shared + i * 4, pair(i + 1000 * rank));
        start_pair();
        for (int round = 0; round < ROUNDS; round++) {
            if (thread == 0) {
                mbarrier_arrive_expect(shared + BARRIER, 1024 + 16);
                bulk_copy_peer(peer(BYTES + round * 256), shared + round * 1024, 1024, peer(BARRIER));
                bulk_copy_peer(peer(BYTES + 3072), shared + round * 48 + 16, 16, peer(BARRIER));
            }
            wait(round % 2);
            block_sync();
            dump((rank * ROUNDS + round) * 2 * BYTES / 4, 2 * BYTES);
            if (thread == 0) {
                mbarrier_arrive_peer(peer(EMPTY));
                mbarrier_arrive_peer(peer_address(shared + EMPTY, rank));
                mbarrier_wait(shared + EMPTY, round % 2);
            }
        }
    }

    // ORDER calibrate_tests (calibrate.c)
    DEVICE void run() const {
        if (args.test == 0) multicast();
        if (args.test == 1) copy();
        cluster_sync();
    }
};

// ---- Entry ------------------------------------------------------------------------------------------------------------

CLUSTER_KERNEL(THREADS, 2) $(entry)(PARAMETER CalibrateArgs args) {
    Pair(args).run();
}
