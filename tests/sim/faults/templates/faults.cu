// One small kernel a case, each with one planted fault, or with none where the nearest right form might be mistaken for one.

//% include "ptx/builtins.cuh"
//% include "ptx/math.cuh"
//% include "ptx/memory.cuh"
//% include "ptx/mma.cuh"
//% include "ptx/sync.cuh"
//% include "ptx/mbarrier.cuh"
//% include "ptx/tma.cuh"
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

    DEVICE void run() const {
        //% if case == "shared_write_write" then -- finds race: write after write
        fill();
        words[0] = thread;
        //% end -- case
        //% if case == "shared_read_write" then -- finds race:
        fill();
        if (thread == 0)
            words[0] = 1;
        else if (thread == 40)
            store(global, static_cast<float>(words[0]));
        //% end -- case
        //% if case == "shared_sync" then -- finds nothing
        fill();
        words[thread] = 1;
        block_sync();
        store(global + thread, static_cast<float>(words[thread ^ 33]));
        //% end -- case
        //% if case == "shared_bytes" then -- finds nothing
        fill();
        shared_pointer<unsigned char>(0)[thread] = 1;
        //% end -- case
        //% if case == "shuffle_is_no_order" then -- threads=32 finds race:
        fill();
        if (thread == 0) words[0] = 1;
        if (shuffle(thread, 0) == 0 && thread == 1) store(global, static_cast<float>(words[0]));
        //% end -- case
        //% if case == "warp_sync_is_order" then -- threads=32 finds nothing
        fill();
        if (thread == 0) words[0] = 1;
        warp_sync();
        if (thread == 1) store(global, static_cast<float>(words[0]));
        //% end -- case
        //% if case == "many_readers" then -- threads=256 finds race: write after read
        fill();
        store(global + thread, static_cast<float>(words[0]));
        if (thread == 255) words[0] = 1;
        //% end -- case
        //% if case == "shared_unwritten" then -- finds read of unwritten shared memory
        store(global + thread, static_cast<float>(words[thread]));
        //% end -- case
        //% if case == "shared_outside" then -- finds shared memory out of bounds
        words[2048] = 1;
        //% end -- case
        //% if case == "shared_misaligned" then -- finds misaligned shared access
        fill();
        if (thread == 0) store_shared(shared + 8, Vector4{0, 0, 0, 0});
        //% end -- case
        //% if case == "global_outside" then -- finds global memory out of bounds
        store(global + 2048, 1.0f);
        //% end -- case
        //% if case == "global_before" then -- finds global memory out of bounds
        store(global - 1, 1.0f);
        //% end -- case
        //% if case == "global_misaligned" then -- finds misaligned global access
        if (thread == 0) store(reinterpret_cast<u64 *>(global + 1), u64{1});
        //% end -- case
        //% if case == "global_unwritten" then -- finds read of unwritten global memory
        store(global + thread, load(global + 1024 + thread));
        //% end -- case
        //% if case == "global_inside_block" then -- finds global race inside a block
        store(global, static_cast<float>(thread));
        //% end -- case
        //% if case == "global_between_blocks" then -- blocks=2 finds global race between blocks
        store(global + thread, static_cast<float>(block_index()));
        //% end -- case
        //% if case == "global_halves" then -- finds nothing
        store(reinterpret_cast<u16 *>(global) + thread, u16{1});
        //% end -- case
        //% if case == "release_and_acquire" then -- blocks=2 finds nothing
        u32 *flag = reinterpret_cast<u32 *>(global);
        if (block_index() == 0) {
            store(global + 64 + thread, 1.0f);
            block_sync();
            if (thread == 0) global_release_add(flag, 1);
        } else {
            if (thread == 0) global_wait_equal(flag, 1);
            block_sync();
            store(global + 128 + thread, load(global + 64 + (thread ^ 33)));
        }
        //% end -- case
        //% if case == "acquire_of_one_warp" then -- blocks=2 finds global race between blocks
        u32 *flag = reinterpret_cast<u32 *>(global);
        if (block_index() == 0) {
            store(global + 64 + thread, 1.0f);
            block_sync();
            if (thread == 0) global_release_add(flag, 1);
        } else {
            if (thread == 0) global_wait_equal(flag, 1);
            warp_sync();
            store(global + 128 + thread, load(global + 64 + thread));
        }
        //% end -- case
        //% if case == "unordered_sum" then -- blocks=2 finds nothing
        reduce_add(global, 1.0f);
        //% end -- case
        //% if case == "unordered_sum_deterministic" then -- blocks=2 deterministic finds unordered reduction
        reduce_add(global, 1.0f);
        //% end -- case
        //% if case == "nobody_releases" then -- blocks=2 finds hang
        if (thread == 0 && block_index() == 1) global_wait_equal(reinterpret_cast<u32 *>(global), 1);
        //% end -- case
        //% if case == "copy_read_early" then -- finds race:
        fill();
        cp_async_16(shared + thread * 16, global + thread * 4, 16);
        cp_async_commit();
        store(global + 512 + thread, static_cast<float>(words[thread * 4]));
        //% end -- case
        //% if case == "copy_waited" then -- finds nothing
        cp_async_16(shared + thread * 16, global + thread * 4, 16);
        cp_async_commit();
        cp_async_wait<0>();
        store(global + 512 + thread, static_cast<float>(words[thread * 4]));
        //% end -- case
        //% if case == "copy_of_another_thread" then -- finds race:
        fill();
        cp_async_16(shared + thread * 16, global + thread * 4, 16);
        cp_async_commit();
        cp_async_wait<0>();
        store(global + 512 + thread, static_cast<float>(words[(thread ^ 1) * 4]));
        //% end -- case
        //% if case == "copy_of_a_later_group" then -- finds race:
        fill();
        cp_async_commit();
        cp_async_16(shared + thread * 16, global + thread * 4, 16);
        cp_async_commit();
        cp_async_wait<1>();
        store(global + 512 + thread, static_cast<float>(words[thread * 4]));
        //% end -- case
        //% if case == "copy_over_what_is_read" then -- finds race:
        fill();
        store(global + 512 + thread, static_cast<float>(words[(thread ^ 1) * 4]));
        cp_async_16(shared + thread * 16, global + thread * 4, 16);
        cp_async_commit();
        cp_async_wait<0>();
        //% end -- case
        //% if case == "copy_left" then -- finds exit with cp.async in flight
        fill();
        cp_async_16(shared + thread * 16, global + thread * 4, 16);
        //% end -- case
        //% if case == "copy_misaligned" then -- finds misaligned global access
        fill();
        cp_async_16(shared + thread * 16, global + thread * 4 + 1, 16);
        cp_async_wait<0>();
        //% end -- case
        //% if case == "named_unbalanced" then -- finds named barrier unbalanced at exit
        if (thread < 32) named_barrier_arrive(1, 64);
        //% end -- case
        //% if case == "named_count" then -- finds named barrier count
        if (thread < 32)
            named_barrier_arrive(1, 64);
        else
            named_barrier_sync(1, 96);
        //% end -- case
        //% if case == "named_hang" then -- finds hang
        if (thread < 32) named_barrier_sync(1, 64);
        //% end -- case
        //% if case == "barrier_unknown" then -- finds mbarrier not initialised
        mbarrier_arrive(shared + BARRIER);
        //% end -- case
        //% if case == "barrier_early" then -- finds mbarrier
        if (thread == 0) mbarrier_init(shared + BARRIER, 1);
        warp_sync();
        if (thread == 32) mbarrier_wait(shared + BARRIER, 1);
        block_sync();
        //% end -- case
        //% if case == "barrier_one_short" then -- finds hang
        start_barriers(2);
        if (thread == 0) mbarrier_arrive(shared + BARRIER);
        if (thread == 40) mbarrier_wait(shared + BARRIER, 0);
        //% end -- case
        //% if case == "barrier_wrong_parity" then -- finds hang
        start_barriers(1);
        if (thread == 40) mbarrier_wait(shared + BARRIER, 0);
        if (thread == 0) {
            mbarrier_arrive(shared + BARRIER);
            mbarrier_wait(shared + BARRIER, 1);
        }
        //% end -- case
        //% if case == "barrier_too_late" then -- finds hang
        start_barriers(1);
        if (thread == 0) {
            mbarrier_arrive(shared + BARRIER);
            mbarrier_arrive(shared + BARRIER);
        }
        block_sync();
        if (thread == 40) mbarrier_wait(shared + BARRIER, 0);
        //% end -- case
        //% if case == "barrier_of_data" then -- finds nothing
        fill();
        start_barriers(1);
        if (thread == 0) {
            words[0] = 1;
            mbarrier_arrive(shared + BARRIER);
        }
        if (thread == 40) {
            mbarrier_wait(shared + BARRIER, 0);
            words[0] = 2;
        }
        //% end -- case
        //% if case == "barrier_touched" then -- finds access to an mbarrier
        start_barriers(1);
        words[BARRIER / 4] = 0;
        //% end -- case
        //% if case == "barrier_left" then -- finds mbarrier unbalanced at exit
        start_barriers(2);
        if (thread == 0) mbarrier_arrive(shared + BARRIER);
        //% end -- case
        //% if case == "bulk_too_few_bytes" then -- finds hang
        start_barriers(1);
        if (thread == 0) {
            mbarrier_arrive_expect(shared + BARRIER, 2048);
            bulk_load(shared, global, 1024, shared + BARRIER);
            mbarrier_wait(shared + BARRIER, 0);
        }
        //% end -- case
        //% if case == "bulk_read_early" then -- finds race:
        fill();
        fence_async_proxy();
        start_barriers(1);
        if (thread == 0) {
            mbarrier_arrive_expect(shared + BARRIER, 1024);
            bulk_load(shared, global, 1024, shared + BARRIER);
            words[0] = 1;
            mbarrier_wait(shared + BARRIER, 0);
        }
        //% end -- case
        //% if case == "bulk_waited" then -- finds nothing
        start_barriers(1);
        if (thread == 0) {
            mbarrier_arrive_expect(shared + BARRIER, 1024);
            bulk_load(shared, global, 1024, shared + BARRIER);
        }
        mbarrier_wait(shared + BARRIER, 0);
        store(global + 512 + thread, static_cast<float>(words[thread]));
        //% end -- case
        //% if case == "bulk_without_proxy_fence" then -- finds missing fence.proxy.async
        fill();
        start_barriers(1);
        if (thread == 0) load_waited();
        //% end -- case
        //% if case == "bulk_without_init_fence" then -- finds missing fence.mbarrier_init
        if (thread == 0) mbarrier_init(shared + BARRIER, 1);
        block_sync();
        if (thread == 0) load_waited();
        //% end -- case
        //% if case == "tensor_rows" then -- finds nothing
        start_barriers(1);
        if (thread == 0) {
            mbarrier_arrive_expect(shared + BARRIER, 1024);
            tma_load_5d(shared, args.map, shared + BARRIER, 0, 12, 0, 0, 0);
        }
        mbarrier_wait(shared + BARRIER, 0);
        store(global + 512 + thread, static_cast<float>(words[thread]));
        //% end -- case
        //% if case == "tensor_misaligned" then -- finds misaligned bulk copy
        start_barriers(1);
        if (thread == 0) {
            mbarrier_arrive_expect(shared + BARRIER, 1024);
            tma_load_5d(shared + 128, args.map, shared + BARRIER, 0, 0, 0, 0, 0);
            mbarrier_wait(shared + BARRIER, 0);
        }
        //% end -- case
        //% if case == "tensor_store_without_fence" then -- finds missing fence.proxy.async
        fill();
        if (thread == 0) {
            words[0] = 1;
            tma_store_5d(args.map, shared, 0, 0, 0, 0, 0);
            bulk_commit();
            bulk_wait<0>();
        }
        //% end -- case
        //% if case == "tensor_store_left" then -- finds exit with an unread bulk store
        fill_for_copies();
        if (thread == 0) {
            tma_store_5d(args.map, shared, 0, 0, 0, 0, 0);
            bulk_commit();
        }
        //% end -- case
        //% if case == "tensor_store_overwritten" then -- finds race:
        fill_for_copies();
        if (thread == 0) {
            tma_store_5d(args.map, shared, 0, 0, 0, 0, 0);
            bulk_commit();
            words[0] = 1;
            bulk_wait<0>();
        }
        //% end -- case
        //% if case == "registers_short" then -- threads=256 finds hang
        increase_registers<104>();
        //% end -- case
        //% if case == "registers_traded" then -- threads=256 finds nothing
        if (thread < 128)
            decrease_registers<64>();
        else
            increase_registers<128>();
        //% end -- case
        //% if case == "product" then -- threads=128 finds nothing
        fill_for_copies();
        float d[4] = {1, 2, 3, 4};
        u32 a[4] = {};
        wgmma_fence();
        multiply(d, a);
        wgmma_wait<0>();
        store(global + thread, d[0]);
        //% end -- case
        //% if case == "product_without_fence" then -- threads=128 finds missing wgmma.fence
        fill_for_copies();
        float d[4];
        u32 a[4];
        wgmma_fence();
        for (int i = 0; i < 4; i++) {
            d[i] = global[i];
            a[i] = 0;
        }
        multiply(d, a);
        wgmma_wait<0>();
        store(global + 64 + thread, d[0]);
        //% end -- case
        //% if case == "product_read_early" then -- threads=128 finds accumulator read before its wgmma has completed
        fill_for_copies();
        float d[4] = {};
        u32 a[4] = {};
        wgmma_fence();
        multiply(d, a);
        store(global + thread, d[0]);
        wgmma_wait<0>();
        //% end -- case
        //% if case == "product_operand_reused" then -- threads=128 finds register written while a wgmma uses it
        fill_for_copies();
        float d[4] = {};
        u32 a[4] = {};
        wgmma_fence();
        multiply(d, a);
        a[0] = thread;
        wgmma_wait<0>();
        store(global + thread, d[0]);
        //% end -- case
        //% if case == "product_left" then -- threads=128 finds exit with a wgmma in flight
        fill_for_copies();
        float d[4] = {};
        u32 a[4] = {};
        wgmma_fence();
        multiply(d, a);
        //% end -- case
        //% if case == "product_without_proxy_fence" then -- threads=128 finds missing fence.proxy.async
        fill();
        float d[4] = {};
        u32 a[4] = {};
        wgmma_fence();
        multiply(d, a);
        wgmma_wait<0>();
        //% end -- case
        //% if case == "product_tile_overwritten" then -- threads=128 finds race: write after read
        fill_for_copies();
        float d[4] = {};
        u32 a[4] = {};
        wgmma_fence();
        multiply(d, a);
        words[thread] = 1;
        wgmma_wait<0>();
        //% end -- case
        //% if case == "product_of_unwritten" then -- threads=128 finds read of unwritten shared memory
        float d[4] = {};
        u32 a[4] = {};
        wgmma_fence();
        multiply(d, a);
        wgmma_wait<0>();
        //% end -- case
        //% if case == "product_descriptor" then -- threads=128 finds wgmma descriptor
        fill_for_copies();
        float d[4] = {};
        u32 a[4] = {};
        wgmma_fence();
        multiply(d, a, 1ull << 14);
        wgmma_wait<0>();
        //% end -- case
        //% if case == "divergent" then -- threads=32 finds divergent warp
        if (thread < 16)
            warp_sync();
        else
            store(global, static_cast<float>(warp_any(true)));
        //% end -- case
        //% if case == "part_of_a_warp" then -- threads=32 finds hang
        if (thread < 16) warp_sync();
        //% end -- case
        //% if case == "not_uniform" then -- threads=32 finds value that is not uniform
        store(global + thread, static_cast<float>(uniform(thread)));
        //% end -- case
        //% if case == "array_index" then -- finds array index out of range
        int r[4] = {};
        for (int i = 0; i <= static_cast<int>(load(global)) + 4; i++) r[i % 5] += i;
        store(global + 64 + thread, static_cast<float>(r[thread & 3]));
        //% end -- case
        //% if case == "overflow" then -- finds integer overflow
        const int large = 1 << 30;
        store(global + 64 + thread, static_cast<float>(large * (static_cast<int>(load(global)) + 2)));
        //% end -- case
        //% if case == "shift" then -- finds shift out of range
        store(global + 64 + thread, static_cast<float>(1 << (static_cast<int>(load(global)) + 32)));
        //% end -- case
        //% if case == "divide" then -- finds crash
        store(global + 64 + thread, static_cast<float>(100 / static_cast<int>(load(global))));
        //% end -- case
        //% if case == "endless" then -- threads=32 finds endless loop
        while (load(global) == 0) store(global + 64 + thread, 1.0f);
        //% end -- case
        //% if case == "predecessor" then -- programmatic finds no griddepcontrol.wait
        store(global + 64 + thread, load(global + thread));
        wait_for_predecessor();
        //% end -- case
        //% if case == "predecessor_waited" then -- programmatic finds nothing
        wait_for_predecessor();
        store(global + 64 + thread, load(global + thread));
        //% end -- case
        //% if case == "never_waits" then -- programmatic finds exit without griddepcontrol.wait
        fill();
        //% end -- case
    }
};

KERNEL($(threads), 1) $(entry)(PARAMETER Arguments args) { Fault(args).run(); }
