// One small kernel a case, each with one planted fault, or with none where the nearest right form might be mistaken for one.

//% include "ptx/builtins.cuh"
//% include "ptx/math.cuh"
//% include "ptx/memory.cuh"
//% include "ptx/mma.cuh"
//% include "ptx/sync.cuh"
//% include "ptx/mbarrier.cuh"
//% include "ptx/tma.cuh"
//% include "ptx/cluster.cuh"
//% include "ptx/warpgroup.cuh"
//% include "ptx/wgmma.cuh"

// data: 4 KB of zeros, then 4 KB that nobody has written.
struct Arguments {
    u64 data;
    u64 reserved;
    TensorMap map;  // of data as [16 rows][64 columns] of 16 bits, boxes of 8 rows, 128-byte swizzle
};

constexpr int ALL = $(threads);

// Of shared memory: tiles from 0 on, barriers at the end.
constexpr u32 BARRIER = 8160, OTHER_BARRIER = 8168;

struct Fault {
    const Arguments &args;
    u32 *words, shared;
    float *global;
    int thread;

    DEVICE explicit Fault(const Arguments &a)
        : args(a), words(shared_pointer<u32>(0)), shared(shared_address(shared_memory())),
          global(pointer<float>(a.data)), thread(thread_index()) {}

    DEVICE void fill() const {
        for (int i = thread; i < 2032; i += ALL) words[i] = 0;
        block_sync();
    }
    DEVICE void fill_for_copies() const {
        fill();
        fence_async_proxy();
        block_sync();
    }
    DEVICE void multiply(float (&d)[4], const u32 (&a)[4], u64 more = 0) const {
        wgmma_rs<8, K_MAJOR>(d, a, matrix_descriptor(shared, 16) | more, 1);
        wgmma_commit();
    }
    DEVICE void start(float (&d)[4], u32 (&a)[4]) const {
        for (int i = 0; i < 4; i++) {
            d[i] = 1.0f;
            a[i] = 0;
        }
        wgmma_fence();
        multiply(d, a);
    }
    DEVICE void load_waited() const {
        mbarrier_arrive_expect(shared + BARRIER, 1024);
        bulk_load(shared, global, 1024, shared + BARRIER);
        mbarrier_wait(shared + BARRIER, 0);
    }
    DEVICE void start_barriers(u32 arrivals) const {
        if (thread == 0) {
            mbarrier_init(shared + BARRIER, arrivals);
            mbarrier_init(shared + OTHER_BARRIER, 1);
            mbarrier_init_fence();
        }
        block_sync();
    }
    //% if cluster > 1 then
    DEVICE void start_pair(u32 arrivals) const {
        start_barriers(arrivals);
        cluster_sync();
    }
    // What is at `offset` in the other block.
    DEVICE u32 peer(u32 offset) const { return peer_address(shared + offset, cluster_rank() ^ 1); }
    // A word of each block's own, for what it has read.
    DEVICE void keep(u32 value) const { store(global + 512 + block_index() * ALL + thread, static_cast<float>(value)); }
    DEVICE const float *other_word() const { return global + 512 + (block_index() ^ 1) * ALL + thread; }
    // Shared memory from 0 on to the other block's from 4096 on.
    DEVICE void copy_all() const {
        if (thread != 0) return;
        mbarrier_arrive_expect(shared + BARRIER, 1024);
        bulk_copy_peer(peer(4096), shared, 1024, peer(BARRIER));
    }
    //% end -- cluster

    DEVICE void run() const {
        //% include "cases/memory.cuh"
        //% include "cases/copies.cuh"
        //% include "cases/barriers.cuh"
        //% include "cases/products.cuh"
        //% include "cases/threads.cuh"
        //% include "cases/clusters.cuh"
    }
};

//% if cluster > 1 then
CLUSTER_KERNEL($(threads), $(cluster)) $(entry)(PARAMETER Arguments args) { Fault(args).run(); }
//% else
KERNEL($(threads), 1) $(entry)(PARAMETER Arguments args) { Fault(args).run(); }
//% end -- cluster
