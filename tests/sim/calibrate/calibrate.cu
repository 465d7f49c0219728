// ---- Contract ---------------------------------------------------------------------------------------------------------
//
// What each wrapper of ptx/ does, on known data: run on a GPU and in the simulator, the words that it leaves in `output` must be the same. One
// block of a warpgroup; `test` says which. Data are small whole numbers, so that every product and sum is exact, and bit patterns.

//% include "calibrate.cuh"
//% include "ptx/mma.cuh"
//% include "ptx/wgmma.cuh"
//% include "ptx/wgmma_bf16.cuh"
//% include "ptx/warpgroup.cuh"

// Any bits: of a float near 1, large, small, special.
DEVICE float number(int i) {
    const u32 special[] = {0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0x00000001, 0x7f7fffff, 0x3f800000};
    if (i < 8) return bits_to_float(special[i]);
    return bits_to_float((static_cast<u32>(i) * 2654435761u & 0x87ffffff) | 0x38000000);
}

struct Calibrate : Bench {
    using Bench::Bench;

    // ---- registers

    DEVICE void warp() const {
        const u32 x = static_cast<u32>(thread) * 2654435761u;
        const int at = thread * 13;
        put(at, shuffle(x, 5));
        put(at + 1, shuffle_xor(x, 3));
        put(at + 2, shuffle_up(x, 2));
        put(at + 3, static_cast<u32>(uniform(thread / WARP)));
        put(at + 4, warp_ballot((x & 4) != 0));
        put(at + 5, static_cast<u32>(warp_any(thread == 40)));
        put(at + 6, static_cast<u32>(population(x)));
        put(at + 7, static_cast<u32>(lowest_bit(x)));
        put(at + 8, static_cast<u32>(leading_zeros(x)));
        put(at + 9, static_cast<u32>(max3(whole(thread), whole(thread + 1), whole(thread + 2))));
        put(at + 10, opaque(x));
        put(at + 11, static_cast<u32>(float_to_signed(number(thread))));
        put(at + 12, min3_u16x2(x, x * 5, x * 11));
    }
    DEVICE void exact() const {
        const float a = number(thread), b = number((thread * 5 + 3) % THREADS);
        const float x = number(thread + 8), y = number((thread * 5 + 3) % THREADS + 8);
        const int at = thread * 10;
        put(at, fma_f32(a, b, 1.0f));
        put(at + 1, max_f32(a, b));
        put(at + 2, absolute(a));
        put(at + 3, min_nan(a, b));
        put(at + 4, pack_bf16(x, y));
        put(at + 5, pack_fp16(x, y));
        put(at + 6, unpack_fp16(static_cast<u16>(float_to_bits(b) >> 9)));
        put(at + 7, unpack_bf16(static_cast<u16>(float_to_bits(b) >> 16)));
        put(at + 8, min_fp16x2(pack_fp16(x, y), pack_fp16(y, x)));
        put(at + 9, pack_fp16_finite(x * 1e5f, y * 1e5f));
    }
    DEVICE void approximate() const {
        const float x = number(thread + 8);
        if (args.variant == 0)
            put(thread, ex2(static_cast<float>(whole(thread)) * 7.3f + static_cast<float>(thread) / 128.0f));
        if (args.variant == 1) put(thread, lg2(absolute(x)));
        if (args.variant == 2) put(thread, rcp(x));
    }

    // ---- memory

    DEVICE void copies() const {
        clear(4096);
        cp_async_16(shared + thread * 16, input() + thread * 16, thread % 17);
        cp_async_8(shared + 2048 + thread * 8, input() + thread * 8, thread % 9);
        cp_async_commit();
        cp_async_wait<0>();
        block_sync();
        dump(0, 4096);
        const Vector4 v = load_once(reinterpret_cast<const Vector4 *>(input()) + thread);
        put(1024 + thread, v.x + 3 * v.y + 5 * v.z + 7 * v.w);
    }
    DEVICE void reductions() const {
        float *sums = pointer<float>(args.output);
        if (thread < 64) store(sums + thread, 0.0f);
        block_sync();
        const float v[4] = {static_cast<float>(whole(thread)), 1.0f, static_cast<float>(thread), -2.0f};
        reduce_add(sums + thread % 7, static_cast<float>(whole(thread)));
        reduce_add(sums + 16 + thread % 5 * 4, v);
        u64 *counts = pointer<u64>(args.output) + 64;
        if (thread == 0) {
            store(counts, static_cast<u64>(5));
            store(counts + 1, static_cast<u64>(1000));
        }
        block_sync();
        atomic_add(counts, static_cast<u64>(thread));
        atomic_min(counts + 1, static_cast<u64>(900 - thread));
    }

    // ---- matrices

    DEVICE u32 row_address(int lane) const { return shared + lane * 144; }
    DEVICE void load_matrices() const {
        fill(8192);
        u32 r[4];
        const int lane = lane_index(), at = thread * 13;
        ldmatrix_x4(r, row_address(lane));
        for (int i = 0; i < 4; i++) put(at + i, r[i]);
        ldmatrix_x4_trans(r, row_address(lane) + 16);
        for (int i = 0; i < 4; i++) put(at + 4 + i, r[i]);
        ldmatrix_x2(r[0], r[1], row_address(lane % 16) + 32);
        ldmatrix_x2_trans(r[2], r[3], row_address(lane % 16) + 48);
        for (int i = 0; i < 4; i++) put(at + 8 + i, r[i]);
        ldmatrix_x1(r[0], row_address(lane % 8));
        put(at + 12, r[0]);
    }
    DEVICE void store_matrices() const {
        clear(8192);
        if (thread < WARP) {
            const int lane = lane_index();
            stmatrix_x4(row_address(lane), pair(lane), pair(lane + 32), pair(lane + 64), pair(lane + 96));
            stmatrix_x4_trans(row_address(lane) + 16, pair(lane + 1), pair(lane + 33), pair(lane + 65),
                              pair(lane + 97));
        }
        block_sync();
        dump(0, 8192);
    }
    DEVICE void mma() const {
        const u32 a[4] = {pair(thread), pair(thread + 50), pair(thread + 91), pair(thread + 130)};
        float c[4] = {1.0f, 2.0f, 3.0f, 4.0f}, d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        mma_m16n8k16_$(dtype)(c, a, pair(thread + 7), pair(thread + 77));
        mma_m16n8k8_$(dtype)(d, a[0], a[1], pair(thread + 13));
        for (int i = 0; i < 4; i++) {
            put(thread * 8 + i, c[i]);
            put(thread * 8 + 4 + i, d[i]);
        }
    }

    // ---- the copy engine

    // Rows of a row map that are real, for each box; columns from `column`.
    DEVICE void load_boxes() const {
        const int counts[] = {64, 37, 1, 8};
        start_barrier();
        for (int i = 0; i < 8; i++) {
            const int count = counts[i % 4], column = i / 4 * 64;
            if (thread == 0) {
                mbarrier_arrive_expect(shared + BARRIER, BOX_BYTES);
                tma_load_5d(shared, args.load, shared + BARRIER, column, BOX_ROWS - count, 3 * i + count, i % 2,
                            i / 3 % 2);
            }
            wait(i % 2);
            dump(i * BOX_BYTES / 4, BOX_BYTES);
        }
    }
    // The host reads what has become of the map's memory.
    DEVICE void store_boxes() const {
        const int counts[] = {64, 37, 1, 8};
        fill(BOX_BYTES);
        fence_async_proxy();
        block_sync();
        for (int i = 0; i < 8; i++)
            if (thread == 0) {
                const int count = counts[i % 4], column = i / 4 * 64;
                tma_store_5d(args.store, shared, column, BOX_ROWS - count, 3 + count, i % 2, i / 2 % 2);
                bulk_commit();
                bulk_wait<0>();
            }
    }
    DEVICE void bulk() const {
        clear(4096);
        fence_async_proxy();
        start_barrier();
        if (thread == 0) {
            mbarrier_arrive_expect(shared + BARRIER, 48 + 2048);
            bulk_load(shared + 16, input() + 32, 48, shared + BARRIER);
            bulk_load(shared + 2048, input() + 4096, 2048, shared + BARRIER);
        }
        wait(0);
        dump(0, 4096);
    }

    // ---- wgmma: whatever lies in shared memory, as descriptors see it

    template <int N> DEVICE void keep(int &word, const float (&d)[N]) const {
        for (int i = 0; i < N; i++) put(word + thread * N + i, d[i]);
        word += THREADS * N;
    }
    template <int N, int A_MAJOR, int B_MAJOR> DEVICE void product(int &word) const {
        float d[N / 2];
        for (int i = 0; i < N / 2; i++) d[i] = static_cast<float>(i % 3);
        wgmma_fence();
        wgmma_ss<N, A_MAJOR, B_MAJOR>(d, matrix_descriptor(shared, 8192), matrix_descriptor(shared + 16384, 8192), 1);
        wgmma_ss<N, A_MAJOR, B_MAJOR>(
            d, descriptor_plus(matrix_descriptor(shared, 8192), A_MAJOR == K_MAJOR ? 32 : 2048),
            descriptor_plus(matrix_descriptor(shared + 16384, 8192), B_MAJOR == K_MAJOR ? 32 : 2048), 1);
        wgmma_commit();
        wgmma_wait<0>();
        pin(d);
        keep(word, d);
    }
    template <int N, int B_MAJOR> DEVICE void product_of_registers(int &word) const {
        float d[N / 2];
        u32 a[4] = {pair(thread), pair(thread + 50), pair(thread + 91), pair(thread + 130)};
        for (int i = 0; i < N / 2; i++) d[i] = 0.0f;
        wgmma_fence();
        wgmma_rs<N, B_MAJOR>(d, a, matrix_descriptor(shared + 16384, 8192), 0);
        wgmma_commit();
        wgmma_wait<0>();
        pin(d);
        pin(a);
        keep(word, d);
    }
    DEVICE void products() const {
        fill(SHARED);
        fence_async_proxy();
        block_sync();
        int word = 0;
        //% for _, n in ipairs(budget.wgmma_columns) do
        if (args.variant == $(n)) {
            product<$(n), K_MAJOR, K_MAJOR>(word);
            product<$(n), MN_MAJOR, K_MAJOR>(word);
            product_of_registers<$(n), K_MAJOR>(word);
            //% if n % 64 == 0 then
            product<$(n), K_MAJOR, MN_MAJOR>(word);
            product<$(n), MN_MAJOR, MN_MAJOR>(word);
            product_of_registers<$(n), MN_MAJOR>(word);
            //% end -- n
        }
        //% end -- n
    }
    //% if dtype == "bf16" then
    DEVICE void plain_products() const {
        fill(SHARED);
        fence_async_proxy();
        block_sync();
        float d[32];
        u32 a[4] = {pair(thread), pair(thread + 50), pair(thread + 91), pair(thread + 130)};
        for (int i = 0; i < 32; i++) d[i] = 1.0f;
        wgmma_fence();
        wgmma_rs_bf16<64>(d, a, plain_descriptor(shared, 1024, 128), 1);
        wgmma_commit();
        wgmma_wait<0>();
        pin(d);
        pin(a);
        int word = 0;
        keep(word, d);
    }
    //% end -- dtype

    // ORDER calibrate_tests (calibrate.c)
    DEVICE void run() const {
        if (args.test == 0) warp();
        if (args.test == 1) exact();
        if (args.test == 2) approximate();
        if (args.test == 3) copies();
        if (args.test == 4) reductions();
        if (args.test == 5) load_matrices();
        if (args.test == 6) store_matrices();
        if (args.test == 7) mma();
        if (args.test == 8) load_boxes();
        if (args.test == 9) store_boxes();
        if (args.test == 10) bulk();
        if (args.test == 11) products();
        //% if dtype == "bf16" then
        if (args.test == 12) plain_products();
        //% end -- dtype
    }
};

// ---- Entry ------------------------------------------------------------------------------------------------------------

KERNEL(THREADS, 1) $(entry)(PARAMETER CalibrateArgs args) {
    Calibrate(args).run();
}
