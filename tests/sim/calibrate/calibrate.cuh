// What calibrate.cu and calibrate_pair.cu have in common: arguments, data, and how results get out.

//% include "attn/types.cuh"
//% include "ptx/math.cuh"
//% include "ptx/memory.cuh"
//% include "ptx/mbarrier.cuh"
//% include "ptx/tma.cuh"

struct CalibrateArgs {
    u64 input, output, test, variant;
    TensorMap load, store;
};

constexpr int THREADS = 128;
constexpr int SHARED = $(budget.shared_bytes);
constexpr int BOX_ROWS = 64, BOX_BYTES = BOX_ROWS * 128;
constexpr u32 BARRIER = SHARED - 1024;

// -4 ... 4, and without a period that a tile could hide.
DEVICE int whole(int i) {
    return (i * 7 + i / 5 + i / 64) % 9 - 4;
}
DEVICE u32 pair(int i) {
    return $(dtype == "bf16" and "pack_bf16" or "pack_fp16")(static_cast<float>(whole(2 * i)),
                                                             static_cast<float>(whole(2 * i + 1)));
}

struct Bench {
    const CalibrateArgs &args;
    const u32 shared;
    const int thread;

    DEVICE explicit Bench(const CalibrateArgs &a)
        : args(a), shared(shared_address(shared_memory())), thread(thread_index()) {}

    DEVICE void put(int word, u32 value) const { store(pointer<u32>(args.output) + word, value); }
    // Which of many NaNs comes out is not said.
    DEVICE void put(int word, float value) const { put(word, value == value ? float_to_bits(value) : 0x7fc00000u); }
    DEVICE const unsigned char *input() const { return pointer<const unsigned char>(args.input); }

    // Shared memory [0, bytes) holds pairs of whole numbers.
    DEVICE void fill(int bytes) const {
        for (int i = thread; i < bytes / 4; i += THREADS) store_shared(shared + i * 4, pair(i));
        block_sync();
    }
    DEVICE void clear(int bytes) const {
        for (int i = thread; i < bytes / 4; i += THREADS) store_shared(shared + i * 4, 0u);
        block_sync();
    }
    DEVICE void dump(int word, int bytes) const {
        for (int i = thread; i < bytes / 16; i += THREADS) {
            const Vector4 v = load_shared(shared + i * 16);
            put(word + i * 4, v.x);
            put(word + i * 4 + 1, v.y);
            put(word + i * 4 + 2, v.z);
            put(word + i * 4 + 3, v.w);
        }
        block_sync();
    }

    DEVICE void wait(u32 parity) const {
        if (thread % WARP == 0) mbarrier_wait(shared + BARRIER, parity);
        warp_sync();
    }
    DEVICE void start_barrier() const {
        if (thread == 0) {
            mbarrier_init(shared + BARRIER, 1);
            mbarrier_init_fence();
        }
        block_sync();
    }
};
