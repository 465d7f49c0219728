// vf_bwd_post_d64_bf16_causal: generated from templates/bwd_post.cu.
//
//   varflash show --spec 'kernel=bwd_post arch=sm_80 dtype=bf16 head_dim=64 mask=causal aligned=1 tile_m=64 tile_n=64 warps=4'
//
// Budget: 256 threads, 0 bytes of shared memory, 5 blocks per SM, 48 registers per thread.

// ---- Contract ---------------------------------------------------------------------------------------------------------
//
// Finishes dQ after the backward's main kernel: rows that see no key (gaps among them) become zeros, sums that stand in float32 accumulators are
// multiplied by softmax_scale and rounded. Tiles that the main kernel has written itself are left alone.

// Plain arithmetic that every layer may use.

// CUDA built-ins, the only place that names them: types, indices, shared memory, barriers, shuffles, votes, atomics, bit casts.
// A simulator replaces this folder with CPU versions; therefore built-in variables are functions here.

using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using f32 = float;
using u64 = unsigned long long;

#define DEVICE __device__ __forceinline__
#define KERNEL(threads, blocks_per_sm) extern "C" __global__ void __launch_bounds__(threads, blocks_per_sm)
// Blocks come in clusters (ptx/cluster.cuh) of `cluster`, of which a grid is a multiple.
#define CLUSTER_KERNEL(threads, cluster) \
    extern "C" __global__ void __cluster_dims__(cluster, 1, 1) __launch_bounds__(threads, 1)
#define PARAMETER const __grid_constant__

struct alignas(16) Vector4 {
    u32 x, y, z, w;
};
struct alignas(8) Float2 {
    float x, y;
};
struct alignas(16) Float4 {
    float x, y, z, w;
};

// 128 bytes that the driver encodes for the copy engine (ptx/tma.cuh).
struct alignas(64) TensorMap {
    u64 opaque[16];
};

constexpr int WARP = 32;
constexpr u32 FULL_WARP = 0xFFFFFFFFu;

DEVICE int thread_index() { return static_cast<int>(threadIdx.x); }
DEVICE int lane_index() { return static_cast<int>(threadIdx.x % WARP); }
DEVICE int block_index() { return static_cast<int>(blockIdx.x); }
DEVICE int grid_blocks() { return static_cast<int>(gridDim.x); }

// The block's dynamic shared memory; its layout is the budget's.
DEVICE unsigned char *shared_memory() {
    extern __shared__ __align__(1024) unsigned char memory[];
    return memory;
}
template <typename T> DEVICE T *shared_pointer(int byte_offset) {
    return reinterpret_cast<T *>(shared_memory() + byte_offset);
}
// Address in the shared window, as ldmatrix and cp.async take it.
DEVICE u32 shared_address(const void *pointer) { return static_cast<u32>(__cvta_generic_to_shared(pointer)); }

// A device address from a kernel argument.
template <typename T> DEVICE T *pointer(u64 address) { return reinterpret_cast<T *>(address); }

DEVICE void block_sync() { __syncthreads(); }
DEVICE void warp_sync() { __syncwarp(); }

template <typename T> DEVICE T shuffle(T value, int lane) { return __shfl_sync(FULL_WARP, value, lane); }
template <typename T> DEVICE T shuffle_xor(T value, int mask) { return __shfl_xor_sync(FULL_WARP, value, mask); }
template <typename T> DEVICE T shuffle_up(T value, int distance) { return __shfl_up_sync(FULL_WARP, value, distance); }
// The value, of which the compiler then knows nothing: what is computed from it is computed here, not kept in registers from before a loop.
template <typename T> DEVICE T opaque(T value) {
    if constexpr (sizeof(T) == 8)
        asm volatile("" : "+l"(value));
    else
        asm volatile("" : "+r"(value));
    return value;
}
// A condition that hardly ever holds: what depends on it goes out of the way of loops.
DEVICE bool unlikely(bool condition) { return __builtin_expect(condition, false); }
// A value that is the same in all lanes, in a form in which the compiler knows it.
template <typename T> DEVICE T uniform(T value) { return __shfl_sync(FULL_WARP, value, 0); }
DEVICE u32 warp_ballot(bool predicate) { return __ballot_sync(FULL_WARP, predicate); }
DEVICE bool warp_any(bool predicate) { return __any_sync(FULL_WARP, predicate) != 0; }

DEVICE int population(u32 bits) { return __popc(bits); }
DEVICE int lowest_bit(u32 bits) { return __ffs(static_cast<int>(bits)) - 1; }
DEVICE int leading_zeros(u32 bits) { return __clz(static_cast<int>(bits)); }

DEVICE float bits_to_float(u32 bits) { return __uint_as_float(bits); }
DEVICE u32 float_to_bits(float value) { return __float_as_uint(value); }
DEVICE int float_to_signed(float value) { return __float_as_int(value); }

DEVICE u64 atomic_add(u64 *address, u64 value) { return atomicAdd(address, value); }
DEVICE u64 atomic_min(u64 *address, u64 value) { return atomicMin(address, value); }
// Single-instruction arithmetic.

// ex2.approx.ftz.f32, sm_50, ISA 1.4: 2^x, 2 ulp; -inf gives 0.
DEVICE float ex2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// lg2.approx.f32, sm_50, ISA 1.4.
DEVICE float lg2(float x) {
    float y;
    asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// rcp.approx.ftz.f32, sm_50, ISA 1.4: 1 ulp; inf gives 0.
DEVICE float rcp(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// fma.rn.f32, sm_20, ISA 2.0.
DEVICE float fma_f32(float a, float b, float c) { return __fmaf_rn(a, b, c); }
// max.f32, sm_10, ISA 1.0: a NaN loses against a number.
DEVICE float max_f32(float a, float b) { return fmaxf(a, b); }
DEVICE float absolute(float x) { return fabsf(x); }
// max.s32 twice, which sm_90 has as one instruction.
DEVICE int max3(int a, int b, int c) { return max(max(a, b), c); }
DEVICE u32 max3(u32 a, u32 b, u32 c) { return max(max(a, b), c); }
// min.NaN.f32, sm_80, ISA 7.0: a NaN wins.
DEVICE float min_nan(float a, float b) {
    float y;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}

// cvt.rn.bf16x2.f32, sm_80, ISA 7.0: two floats rounded to nearest even; lo goes to the lower 16 bits.
DEVICE u32 pack_bf16(float lo, float hi) {
    u32 y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
    return y;
}
// cvt.rn.f16x2.f32, sm_80, ISA 7.0.
DEVICE u32 pack_fp16(float lo, float hi) {
    u32 y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
    return y;
}
// cvt.rn.satfinite.f16x2.f32, sm_80, ISA 8.1: what exceeds 65504 becomes that; a NaN stays one.
DEVICE u32 pack_fp16_finite(float lo, float hi) {
    u32 y;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
    return y;
}
// cvt.f32.f16, sm_53, ISA 4.0.
DEVICE float unpack_fp16(u16 bits) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(bits));
    return y;
}
DEVICE float unpack_bf16(u16 bits) { return bits_to_float(static_cast<u32>(bits) << 16); }

// min.u16x2 twice, sm_90, ISA 8.0, which is one instruction there: of each half, unsigned.
DEVICE u32 min3_u16x2(u32 a, u32 b, u32 c) {
    u32 y;
    asm("{ .reg .b32 t;\n"
        "min.u16x2 t, %1, %2;\n"
        "min.u16x2 %0, t, %3; }"
        : "=r"(y)
        : "r"(a), "r"(b), "r"(c));
    return y;
}
// min.NaN.f16x2, sm_80, ISA 7.0: of each half; a NaN wins.
DEVICE u32 min_fp16x2(u32 a, u32 b) {
    u32 y;
    asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}
// Loads, stores and asynchronous copies.

// cp.async.cg.shared.global, sm_80, ISA 7.0: 16 bytes, of which the last 16 - bytes are zeros. Nothing is
// read when bytes is 0. Completes at a cp_async_wait.
DEVICE void cp_async_16(u32 shared, const void *global, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes) : "memory");
}
// cp.async.ca.shared.global, sm_80, ISA 7.0: 8 bytes, of which the last 8 - bytes are zeros.
DEVICE void cp_async_8(u32 shared, const void *global, int bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared), "l"(global), "r"(bytes) : "memory");
}
DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most PENDING of this thread's groups are incomplete.
template <int PENDING> DEVICE void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

DEVICE void store_shared(u32 address, u32 value) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
DEVICE void store_shared(u32 address, Vector4 v) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}
DEVICE Vector4 load_shared(u32 address) {
    Vector4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(address)
                 : "memory");
    return v;
}

template <typename T> DEVICE T load(const T *address) { return *address; }
template <typename T> DEVICE void store(T *address, T value) { *address = value; }

// st.global.v4.u32, sm_20, ISA 2.0: 16 bytes at once, whatever the compiler would rather do.
DEVICE void store(Vector4 *address, Vector4 v) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

// ld.global.L1::no_allocate, sm_70, ISA 7.4: 16 bytes read once.
DEVICE Vector4 load_once(const Vector4 *address) {
    Vector4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address));
    return v;
}

// red.global.add.f32, sm_20, ISA 2.0; the vector form sm_90, ISA 8.1. Relaxed, device scope, no order among threads.
DEVICE void reduce_add(float *address, float value) {
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(address), "f"(value) : "memory");
}

constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LN_2 = 0.6931471805599453f;
constexpr float LARGEST = 3.402823466e38f;
DEVICE float infinity() { return bits_to_float(0x7F800000u); }

template <typename T> DEVICE T smaller(T a, T b) { return a < b ? a : b; }
template <typename T> DEVICE T larger(T a, T b) { return a > b ? a : b; }

// Of element i of an accumulator (ptx/mma.cuh, ptx/wgmma.cuh): which of the thread's two rows it is in.
DEVICE constexpr int row_half(int i) { return i / 2 % 2; }

// ---- Constants --------------------------------------------------------------------------------------------------------

constexpr int HEAD_DIM = 64;  // columns of q and k
constexpr bool ALIGNED = true;  // operands start at 16 bytes and strides are multiples of 16 bytes
constexpr int TILE_M = 64;  // rows of q in a tile
constexpr int TILE_N = 64;  // rows of k in a tile
constexpr int WARPS = 4;  // warps of a block

constexpr int THREADS = 256;

struct Operand {
    u64 data;  // first element
    i64 batch_stride;  // elements; 0 in a packed tensor
    i64 row_stride;  // elements
    i64 head_stride;  // elements
};
static_assert(sizeof(Operand) == 32, "ORDER args");
struct Lengths {
    u64 data;  // null: absent
    i64 wide;  // 1: int64, 0: int32
};
static_assert(sizeof(Lengths) == 16, "ORDER args");
struct Sequence {
    i64 q_begin;  // first row of q (packed), 0 or the first unused row (batched)
    i64 k_begin;  // the same for k
    i64 stat_row;  // row of q counted over the whole tensor: index into the backward's row statistics
    i64 accumulator_row;  // first row in the dQ accumulators; -1: keys fit one tile and dQ is written directly
    i32 q_len;  // used rows of q
    i32 k_len;  // used rows of k
    i32 q_batch;  // index of the slot in a batched q, 0 in a packed one
    i32 k_batch;  // the same for k
};
static_assert(sizeof(Sequence) == 48, "ORDER args");
struct ScheduleHeader {
    u64 ticket;  // next work item to draw
    i64 blocks;  // row blocks of one head, all entries together
    i64 entries;  // entries in use
    i64 accumulator_rows;  // rows of dQ accumulators in use
};
static_assert(sizeof(ScheduleHeader) == 32, "ORDER args");
struct Schedule {
    u64 header;  // ScheduleHeader
    u64 first_block;  // i64[entries + 1]: blocks of all earlier entries
    u64 sequences;  // Sequence[entries]
};
static_assert(sizeof(Schedule) == 24, "ORDER args");
struct SchedulePart {
    u64 bins[514];  // entries << 36 | blocks
};
static_assert(sizeof(SchedulePart) == 4112, "ORDER args");
struct ScheduleArgs {
    Lengths cu_q;  // [batch + 1]; absent: batched, every slot is q_rows long
    Lengths cu_k;  // [batch + 1]; absent: batched
    Lengths used_q;  // [batch]
    Lengths used_k;  // [batch]
    Schedule by_q;  // work list in blocks of tile_m rows of q; header null: not wanted
    Schedule by_k;  // work list in blocks of tile_n rows of k; header null: not wanted
    i64 batch;
    i64 q_rows;  // rows of q: of the packed tensor, or of one slot
    i64 k_rows;  // rows of k
    i64 share;  // sequences of one block of threads
    u64 parts;  // SchedulePart of each block; null: there is one block, which counts and places
    i32 tile_m;
    i32 tile_n;
    i32 fill;  // 1: rows where no token lives become entries
    i32 counted;  // 1: parts are there, 0: they are to be counted
};
static_assert(sizeof(ScheduleArgs) == 168, "ORDER args");
struct ForwardArgs {
    Operand q;
    Operand k;
    Operand v;
    Operand o;
    Operand lse;  // float32; data null: not wanted
    Schedule schedule;  // by q
    i32 heads;  // query heads
    i32 group;  // query heads per key head
    i32 window_left;  // INT_MAX: no edge; edges are clamped to +-2^30 by the host
    i32 window_right;
    f32 scale;  // softmax_scale
    f32 softcap;
};
static_assert(sizeof(ForwardArgs) == 208, "ORDER args");
struct ForwardSm90Args {
    TensorMap q;  // maps: boxes of rows as the kernel's plan lists them, 64 columns, 128-byte swizzle
    TensorMap k;
    TensorMap v;
    TensorMap output;  // of o, where the plan lists it
    Operand o;
    Operand lse;  // float32; data null: not wanted
    Schedule schedule;  // by q
    i32 heads;  // query heads
    i32 group;  // query heads per key head
    i32 window_left;  // INT_MAX: no edge; edges are clamped to +-2^30 by the host
    i32 window_right;
    f32 scale;  // softmax_scale
    f32 softcap;
};
static_assert(sizeof(ForwardSm90Args) == 640, "ORDER args");
struct BackwardPreArgs {
    Operand o;
    Operand dout;
    Operand lse;  // float32
    Operand dlse;  // float32; data null: absent
    Schedule schedule;  // by q
    u64 stats;  // float2[heads][stat_rows]: lse * log2(e), delta
    u64 accumulator;  // float[heads][accumulator_rows][head_dim], in the main kernel's order
    u64 turns;  // u32[heads][accumulator_rows / tile_m]: key blocks that have added their part
    i64 stat_rows;
    i64 accumulator_rows;
    i32 heads;  // query heads
    i32 reserved;
};
static_assert(sizeof(BackwardPreArgs) == 200, "ORDER args");
struct BackwardPreSm90Args {
    Operand o;
    Operand dout;
    Operand dq;
    Operand lse;  // float32
    Operand dlse;  // float32; data null: absent
    Schedule schedule;  // by q
    u64 stats;  // 16 bytes [heads][stat_rows]: templates/attn/row_statistics.cuh
    u64 turns;  // u32[heads][accumulator_rows / tile_m]: key blocks that have added their part
    i64 stat_rows;
    i64 accumulator_rows;
    i32 heads;  // query heads
    i32 window_left;
    i32 window_right;
    f32 scale;
};
static_assert(sizeof(BackwardPreSm90Args) == 232, "ORDER args");
struct BackwardArgs {
    Operand q;
    Operand k;
    Operand v;
    Operand dout;
    Operand dq;
    Operand dk;
    Operand dv;
    Schedule schedule;  // by k
    u64 stats;
    u64 accumulator;
    u64 turns;
    i64 stat_rows;
    i64 accumulator_rows;
    i32 heads;  // query heads
    i32 group;  // query heads per key head
    i32 window_left;
    i32 window_right;
    f32 scale;
    f32 softcap;
};
static_assert(sizeof(BackwardArgs) == 312, "ORDER args");
struct BackwardSm90Args {
    TensorMap q;
    TensorMap k;
    TensorMap v;
    TensorMap dout;
    Operand dq;
    Operand dk;
    Operand dv;
    Schedule schedule;  // by k
    u64 stats;
    u64 accumulator;
    u64 turns;
    i64 stat_rows;
    i64 accumulator_rows;
    i32 heads;  // query heads
    i32 group;  // query heads per key head
    i32 window_left;
    i32 window_right;
    f32 scale;
    f32 softcap;
};
static_assert(sizeof(BackwardSm90Args) == 704, "ORDER args");
struct BackwardPostArgs {
    Operand dq;
    Schedule schedule;  // by q
    u64 accumulator;
    i64 accumulator_rows;
    i32 heads;  // query heads
    i32 window_left;
    i32 window_right;
    f32 scale;
};
static_assert(sizeof(BackwardPostArgs) == 88, "ORDER args");
struct CheckArgs {
    Lengths cu_q;
    Lengths cu_k;
    Lengths used_q;
    Lengths used_k;
    i64 batch;
    i64 q_rows;
    i64 k_rows;
    i64 max_q;  // 0: no bound
    i64 max_k;  // 0: no bound
    u64 report;  // CheckReport
};
static_assert(sizeof(CheckArgs) == 112, "ORDER args");
struct CheckReport {
    u64 fault;  // smallest of index * 16 + kind over all faults; all ones: none
    i64 found;  // the value found there
};
static_assert(sizeof(CheckReport) == 16, "ORDER args");

// The work list as the attention kernels see it; schedule.cu writes it. Items are (sequence, head, block of rows); a block of threads draws
// them by ticket, in order (item_order.cuh), and may wait only for work with lower tickets.


struct Work {
    Sequence sequence;
    int head;  // the first of a chunk
    int block;
    int more;  // 0: no work is left
    int reserved;
};

// How many neighbouring heads travel as one item: finding a sequence costs as much as a short sequence's attention, so where items are
// plenty (that many for every block of threads) up to `most` heads share it. A divisor of `heads`.
DEVICE int chunk_of(i64 blocks, int heads, int plenty = 16, int most = 8) {
    int chunk = static_cast<int>(
        smaller(larger(blocks * heads / (static_cast<i64>(grid_blocks()) * plenty), static_cast<i64>(1)),
                static_cast<i64>(smaller(heads, most))));
    while (heads % chunk != 0) chunk--;
    return chunk;
}

// The last of 0 ... count - 1 whose key is not above `at`; keys ascend, and the first is not above it. All lanes of a warp search 32 ways at once.
template <class Key> DEVICE i64 last_not_above(i64 count, i64 at, Key key) {
    i64 low = 0;
    while (count > 1) {
        const i64 step = (count + WARP - 1) / WARP, offset = lane_index() * step;
        const bool above = key(low + smaller(offset, count - 1)) > at;
        const int passed = population(warp_ballot(!above && offset < count));
        low += (passed - 1) * step;
        count = smaller(step, count - (passed - 1) * step);
    }
    return low;
}

// The entry that holds block `at` of one head: the last with first_block <= at.
DEVICE i64 find_sequence(const i64 *first_block, i64 entries, i64 at) {
    return last_not_above(entries, at, [first_block](i64 entry) { return load(first_block + entry); });
}

// A list, read by whole warps.
struct ListReader {
    const i64 *first_block;
    const Sequence *sequences;
    i64 blocks, entries;  // blocks: of one head, all entries together

    struct Place {
        Sequence sequence;
        i64 first;          // blocks of all earlier entries
        int block, blocks;  // in the entry
    };

    DEVICE explicit ListReader(const Schedule &schedule)
        : first_block(pointer<const i64>(schedule.first_block)), sequences(pointer<const Sequence>(schedule.sequences)),
          blocks(load(&pointer<const ScheduleHeader>(schedule.header)->blocks)),
          entries(load(&pointer<const ScheduleHeader>(schedule.header)->entries)) {}

    DEVICE Place find(i64 block) const {
        const i64 entry = find_sequence(first_block, entries, block);
        const i64 first = load(first_block + entry);
        return {load(sequences + entry), first, static_cast<int>(block - first),
                static_cast<int>(load(first_block + entry + 1) - first)};
    }
};
// Which keys a query sees: bottom-right aligned, by used lengths. With shift = k_len - q_len, query r sees key c iff
//     c < k_len   and   c <= r + shift + right (causal: right = 0)   and   c >= r + shift - left.
// Ranges of tiles come first; only tiles that a limit crosses are masked element by element, by selection, never by arithmetic.
//
// key_tiles and query_tiles describe the same set of (query tile, key tile) pairs exactly: a pair is in it iff some used query sees
// some used key. The order of dQ's summands depends on that.


// Half-open.
struct Range {
    int begin, end;
};

struct Mask {
    int q_len, k_len, shift;
    int left, right;  // |edge| <= 2^30, set by the host; lengths are below 2^30, set by the schedule kernel

    DEVICE Mask(const Sequence &s, int window_left, int window_right)
        : q_len(s.q_len), k_len(s.k_len), shift(s.k_len - s.q_len), left(window_left), right(window_right) {}

    // Last key that query r sees, plus one; first key.
    DEVICE int key_end(int r) const {
        return smaller(k_len, r + shift + 1);
    }
    DEVICE int key_begin(int r) const {
        return 0;
    }

    // Key tiles that the queries of tile m see.
    template <int M, int N> DEVICE Range key_tiles(int m) const {
        const int first = m * M, last = smaller(first + M, q_len) - 1;
        const int end = key_end(last), begin = key_begin(first);
        if (end <= begin || last < first) return {0, 0};
        return {begin / N, (end + N - 1) / N};
    }
    // Those of them that every query of the tile sees whole.
    template <int M, int N> DEVICE Range whole_key_tiles(int m) const {
        const int first = m * M, last = smaller(first + M, q_len) - 1;
        return {(key_begin(last) + N - 1) / N, larger(key_end(first), 0) / N};
    }
    // Query tiles that see a key of tile n.
    template <int M, int N> DEVICE Range query_tiles(int n) const {
        const int first = n * N, last = smaller(first + N, k_len) - 1;
        if (last < first) return {0, 0};
        // The first query that sees `first`, and the last that sees `last`, plus one.
        const i64 begin = larger(static_cast<i64>(0), static_cast<i64>(first) - shift), end = q_len;
        if (end <= begin) return {0, 0};
        return {static_cast<int>(begin) / M, (static_cast<int>(end) + M - 1) / M};
    }
    // Those of them all of whose rows exist and see all N keys of tile n.
    template <int M, int N> DEVICE Range whole_query_tiles(int n) const {
        const int first = n * N, last = first + N - 1;
        if (last >= k_len) return {0, 0};
        return {(larger(last - shift, 0) + M - 1) / M, q_len / M};
    }
};

// -inf in place of invisible keys, a selection, so that whatever they hold is gone. first_row: of the 16 that the warp's accumulator s has;
// first_key: of its columns.
template <int N> DEVICE void hide_scores(const Mask &mask, int first_row, int first_key, float (&s)[N]) {
    const int row = first_row + lane_index() / 4, column = first_key + 2 * (lane_index() % 4);
    const int end[2] = {mask.key_end(row) - column, mask.key_end(row + 8) - column};
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int key = 8 * (i / 4) + i % 2;
        bool visible = key < end[row_half(i)];
        if (!visible) s[i] = -infinity();
    }
}
// Tiles between global memory and shared memory. Every offset is 64-bit from its first multiplication.

// Tiles of 16-bit elements in shared memory, and the addresses at which ldmatrix reads their fragments.
//
// A row of COLUMNS elements is COLUMNS / 8 chunks of 16 bytes, without padding. ldmatrix reads one chunk column of eight rows at a
// time; those eight chunks must lie in eight different groups of four banks. They do if the number of chunks is odd. If it is even,
// the chunk index is XORed with the row bits that would otherwise collide:
//
//     chunks % 8 == 0    chunk ^ (row & 7)            every row starts at the same bank
//     chunks % 4 == 0    chunk ^ (row >> 1 & 3)       every second row does
//     chunks % 2 == 0    chunk ^ (row >> 2 & 1)       every fourth row does
//
// so every head size, 72 as well as 64, is stored exactly and read without conflicts.

// The 16-bit operand type of this kernel.


// Two floats as a pair of operand elements, and one element as a float.
DEVICE u32 pack(float lo, float hi) { return pack_bf16(lo, hi); }
DEVICE float unpack(u16 bits) { return unpack_bf16(bits); }
// Matrix instructions of sm_80 and later: ldmatrix and mma.sync with float32 accumulation. All lanes of a warp take part.
//
// Fragments, with g = lane / 4 and t = lane % 4 (PTX ISA, "Matrix Fragments for mma.m16n8k16"):
//     A  a0 (row g, k 2t..)  a1 (g + 8, 2t..)  a2 (g, 2t + 8..)  a3 (g + 8, 2t + 8..)      pairs of 16-bit values
//     B  b0 (k 2t.., column g)  b1 (k 2t + 8.., column g)
//     C  c0, c1 (row g, columns 2t, 2t + 1)  c2, c3 (row g + 8)
// m16n8k8 has a0, a1 and b0 alone.

// ldmatrix.sync.aligned.m8n8.x4.shared.b16, sm_75, ISA 6.5: lanes 8i ... 8i + 7 give the rows of matrix i.
DEVICE void ldmatrix_x4(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
DEVICE void ldmatrix_x4_trans(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
// x2: lanes 0 ... 15 give the rows; the addresses of the others are ignored.
DEVICE void ldmatrix_x2(u32 &r0, u32 &r1, u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r0), "=r"(r1)
                 : "r"(address)
                 : "memory");
}
DEVICE void ldmatrix_x2_trans(u32 &r0, u32 &r1, u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r0), "=r"(r1)
                 : "r"(address)
                 : "memory");
}
DEVICE void ldmatrix_x1(u32 &r0, u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r0) : "r"(address) : "memory");
}

// mma.sync.aligned.m16n8k16.row.col.f32.bf16, sm_80, ISA 7.0: c += a * b.
DEVICE void mma_m16n8k16_bf16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// mma.sync.aligned.m16n8k8.row.col.f32.bf16, sm_80, ISA 7.0.
DEVICE void mma_m16n8k8_bf16(float (&c)[4], u32 a0, u32 a1, u32 b0) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, "
        "%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(b0));
}
// mma.sync.aligned.m16n8k16.row.col.f32.f16, sm_80, ISA 7.0: c += a * b.
DEVICE void mma_m16n8k16_fp16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// mma.sync.aligned.m16n8k8.row.col.f32.f16, sm_80, ISA 7.0.
DEVICE void mma_m16n8k8_fp16(float (&c)[4], u32 a0, u32 a1, u32 b0) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, "
        "%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(b0));
}

template <int COLUMNS> struct SharedTile {
    static_assert(COLUMNS % 8 == 0, "a row is whole chunks of 16 bytes");
    static constexpr int CHUNKS = COLUMNS / 8;
    static constexpr int PITCH = COLUMNS * 2;
    static constexpr int SWIZZLE_BITS = CHUNKS % 8 == 0 ? 3 : CHUNKS % 4 == 0 ? 2 : CHUNKS % 2 == 0 ? 1 : 0;

    static DEVICE u32 swizzle(u32 row) { return (row >> (3 - SWIZZLE_BITS)) & ((1u << SWIZZLE_BITS) - 1); }
    // Byte offset of a chunk.
    static DEVICE u32 offset(u32 row, u32 chunk) { return row * PITCH + ((chunk ^ swizzle(row)) << 4); }
};

// Where this lane's row of an ldmatrix.x4 lies. Two arrangements serve all operands (rows and chunk columns of the four matrices):
//     DOWN    rows 0-7, 8-15 of chunk 0, then of chunk 1      A as [m][k], and B as [k][n] (trans)
//     ACROSS  rows 0-7 of chunks 0, 1, then rows 8-15         B as [n][k], and A as [k][m] (trans)
enum Arrangement { DOWN, ACROSS };

template <int COLUMNS, Arrangement ARRANGEMENT> struct FragmentAddress {
    using Tile = SharedTile<COLUMNS>;
    // Pairs of chunks that the swizzle permutes among themselves; its lowest bit only swaps the chunks of a pair.
    static constexpr u32 PAIRS = Tile::SWIZZLE_BITS > 1 ? 1u << (Tile::SWIZZLE_BITS - 1) : 1;
    u32 tile;  // shared address of row 0
    u32 lane;  // this lane's row and swizzled chunk, in bytes: the only part that differs between lanes

    // Rows given to at() are multiples of 8, so the lane's swizzle is fixed.
    DEVICE explicit FragmentAddress(u32 tile_address) : tile(tile_address) {
        const u32 index = static_cast<u32>(lane_index());
        const u32 row = ARRANGEMENT == DOWN ? index & 15 : (index & 7) + (index >> 4 << 3);
        lane = opaque(Tile::offset(row, ARRANGEMENT == DOWN ? index >> 4 : index >> 3 & 1));
    }
    // Address for the 16 rows from `row` and the 16 columns from 16 * pair.
    DEVICE u32 at(int row, int pair) const {
        const u32 p = static_cast<u32>(pair);
        return (lane ^ (p % PAIRS * 32)) + (tile + static_cast<u32>(row) * Tile::PITCH + p / PAIRS * PAIRS * 32);
    }
};
// Rows of operands in global memory. Every offset is 64-bit from its first multiplication.


// One head's rows of an operand, from some row on.
struct Rows {
    u16 *data;       // row 0
    i64 row_stride;  // elements

    DEVICE u16 *row(int i) const { return data + static_cast<i64>(i) * row_stride; }
};
DEVICE Rows rows_of(const Operand &operand, int batch, i64 row, int head) {
    const i64 offset = batch * operand.batch_stride + row * operand.row_stride + head * operand.head_stride;
    return {pointer<u16>(operand.data) + offset, operand.row_stride};
}
DEVICE float *float_at(const Operand &operand, int batch, i64 row, int head) {
    return pointer<float>(operand.data) +
           (batch * operand.batch_stride + row * operand.row_stride + head * operand.head_stride);
}


// Starts copying one chunk to shared memory, or zeros in its place, whatever memory holds there (NaN times zero is NaN): then nothing is
// read. Complete after cp_async_wait.
DEVICE void load_chunk(u32 to, const u16 *from, bool inside) {
    cp_async_16(to, from, inside ? 16 : 0);
}

// Starts copying rows first ... first + ROWS - 1 into a tile, by THREADS threads of which this is number `thread`. Rows from `limit` on
// become zeros.
template <int ROWS, int COLUMNS, int THREADS>
DEVICE void load_tile(u32 tile, const Rows &source, int first, int limit, int thread) {
    using Tile = SharedTile<COLUMNS>;
    constexpr int CHUNKS = Tile::CHUNKS;
    constexpr int PASSES = (ROWS * CHUNKS + THREADS - 1) / THREADS;
    constexpr int STEP = THREADS / CHUNKS;
    if constexpr (THREADS % (8 * CHUNKS) == 0) {
        // A thread keeps its chunk column, and its rows are 8 * k apart: one address, then additions.
        const int row = thread / CHUNKS, chunk = thread % CHUNKS;
        const u32 to = tile + Tile::offset(row, chunk);
        const u16 *from = source.row(first + row) + chunk * 8;
        const i64 advance = STEP * source.row_stride;
#pragma unroll
        for (int i = 0; i < PASSES; i++) {
            if (ROWS % STEP == 0 || row + i * STEP < ROWS)
                load_chunk(to + i * STEP * Tile::PITCH, from, first + row + i * STEP < limit);
            from += advance;
        }
    } else {
#pragma unroll
        for (int i = 0; i < PASSES; i++) {
            const int at = thread + i * THREADS;
            const int row = at / CHUNKS, chunk = at % CHUNKS;
            if (ROWS * CHUNKS % THREADS == 0 || at < ROWS * CHUNKS)
                load_chunk(tile + Tile::offset(row, chunk), source.row(first + row) + chunk * 8, first + row < limit);
        }
    }
}

// Writes one chunk of a row.
DEVICE void store_chunk(u16 *to, Vector4 value) {
    store(reinterpret_cast<Vector4 *>(to), value);
}

// Copies a tile out to rows first ... first + ROWS - 1 that are below `limit`, by THREADS threads of which this is number `thread`.
template <int ROWS, int COLUMNS, int THREADS>
DEVICE void store_tile(const Rows &target, u32 tile, int first, int limit, int thread) {
    using Tile = SharedTile<COLUMNS>;
    constexpr int CHUNKS = Tile::CHUNKS;
#pragma unroll
    for (int i = 0; i < (ROWS * CHUNKS + THREADS - 1) / THREADS; i++) {
        const int at = thread + i * THREADS;
        const int row = at / CHUNKS, chunk = at % CHUNKS;
        if ((ROWS * CHUNKS % THREADS == 0 || at < ROWS * CHUNKS) && first + row < limit)
            store_chunk(target.row(first + row) + chunk * 8, load_shared(tile + Tile::offset(row, chunk)));
    }
}

// Zeros in rows first ... first + ROWS - 1 that are below `limit`, by THREADS threads of which this is number `thread`.
template <int ROWS, int COLUMNS, int THREADS>
DEVICE void clear_rows(const Rows &target, int first, int limit, int thread) {
    constexpr int CHUNKS = COLUMNS / 8;
    for (int i = thread; i < ROWS * CHUNKS; i += THREADS)
        if (first + i / CHUNKS < limit)
            store_chunk(target.row(first + i / CHUNKS) + i % CHUNKS * 8, Vector4{0, 0, 0, 0});
}

// Puts a warp's accumulators, rounded, into a tile at (row, 8 * block), after multiplying row g + 8 h of block m by factor[m][h].
template <int COLUMNS, int M, int N>
DEVICE void put_accumulators(u32 tile, u32 row, u32 block, const float (&c)[M][N][4], const float (&factor)[M][2]) {
    const auto low = [&](int m, int n) { return pack(c[m][n][0] * factor[m][0], c[m][n][1] * factor[m][0]); };
    const auto high = [&](int m, int n) { return pack(c[m][n][2] * factor[m][1], c[m][n][3] * factor[m][1]); };
    constexpr int PAIRS = 0;
    using Tile = SharedTile<COLUMNS>;
    const u32 g = static_cast<u32>(lane_index()) / 4, t = static_cast<u32>(lane_index()) % 4;
#pragma unroll
    for (int m = 0; m < M; m++) {
        const u32 r = row + m * 16 + g;
#pragma unroll
        for (int n = 2 * PAIRS; n < N; n++) {
            store_shared(tile + Tile::offset(r, block + n) + 4 * t, low(m, n));
            store_shared(tile + Tile::offset(r + 8, block + n) + 4 * t, high(m, n));
        }
    }
}
// The same with one factor for all.
template <int COLUMNS, int M, int N>
DEVICE void put_accumulators(u32 tile, u32 row, u32 block, const float (&c)[M][N][4], float factor) {
    float factors[M][2];
#pragma unroll
    for (int m = 0; m < M; m++) factors[m][0] = factors[m][1] = factor;
    put_accumulators<COLUMNS>(tile, row, block, c, factors);
}

// Two neighbouring elements.
DEVICE void store_pair(u16 *to, u32 pair) {
    store(reinterpret_cast<u32 *>(to), pair);
}
// The float32 accumulators of dQ in global memory. A tile of TILE_M rows and HEAD_DIM columns is stored in the order in which the main
// kernel's warps hold it, so that every addition is contiguous across a warp; the finishing kernel reads it by the same mapping.
//
// DQ_ROW_WARPS warps stand one below the other; each has blocks of 16 rows and 8 columns, of which a lane has four elements
// (layout C of ptx/mma.cuh).


constexpr int DQ_ROW_WARPS = 2;
constexpr int DQ_ROW_BLOCKS = TILE_M / DQ_ROW_WARPS / 16;
constexpr int DQ_COLUMN_BLOCKS = HEAD_DIM / 8;

// Index of the four elements' group, counted over the tile: 128 floats a group and warp.
DEVICE int accumulator_group(int row_block, int column_block, int row_warp) {
    return (row_block * DQ_COLUMN_BLOCKS + column_block) * DQ_ROW_WARPS + row_warp;
}
// Index of element i of this lane in a group.
DEVICE int accumulator_element(int group, int i) {
    return (group * 4 + i) * WARP + lane_index();  // four scalars, each contiguous across the warp
}
// A lane's four elements of a group.
DEVICE void add_to_group(float *tile, int group, const float (&v)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) reduce_add(tile + accumulator_element(group, i), v[i]);
}
DEVICE void load_group(const float *tile, int group, float (&v)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = load(tile + accumulator_element(group, i));
}
// The tile of (head, row block).
DEVICE float *accumulator_tile(u64 base, int head, i64 rows, i64 first_row, int block) {
    return pointer<float>(base) + (head * rows + first_row + static_cast<i64>(block) * TILE_M) * HEAD_DIM;
}
// How often that tile has been added to.
DEVICE u32 *turn_of(u64 base, int head, i64 rows, i64 first_row, int block) {
    return pointer<u32>(base) + (head * (rows / TILE_M) + first_row / TILE_M + block);
}
// Products of tiles: accumulators in registers, operands from shared memory or registers, by mma.sync.
//
// A warp's accumulators are float[M][N][4]: M blocks of 16 rows, N blocks of 8 columns (layout: ptx/mma.cuh). The contraction runs in
// steps of 16, in ascending order; a last step of 8 uses the half-size instruction, so nothing is padded. The order is part of the
// numerical contract: a step over zeros leaves every accumulator bit as it was.


template <int M, int N> DEVICE void clear(float (&c)[M][N][4]) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) c[m][n][i] = 0.0f;
}

// A block of rows as one row of elements, in the order of a warpgroup's accumulators (ptx/wgmma.cuh).
template <int N> DEVICE float (&flat(float (&c)[N][4]))[4 * N] { return reinterpret_cast<float(&)[4 * N]>(c); }

DEVICE void mma_step(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) { mma_m16n8k16_bf16(c, a, b0, b1); }
DEVICE void mma_half_step(float (&c)[4], const u32 (&a)[4], u32 b0) { mma_m16n8k8_bf16(c, a[0], a[1], b0); }

// A operand stored as [m][k].
template <int COLUMNS> struct RowsOfA {
    FragmentAddress<COLUMNS, DOWN> address;
    int row;
    DEVICE void load(u32 (&a)[4], int m, int step) const { ldmatrix_x4(a, address.at(row + m * 16, step)); }
    DEVICE void load_half(u32 (&a)[4], int m, int step) const {
        ldmatrix_x2(a[0], a[1], address.at(row + m * 16, step));
    }
};
// A operand stored as [k][m]; `pair` is the first 16 columns of this warp.
template <int COLUMNS> struct ColumnsOfA {
    FragmentAddress<COLUMNS, ACROSS> address;
    int pair;
    DEVICE void load(u32 (&a)[4], int m, int step) const { ldmatrix_x4_trans(a, address.at(step * 16, pair + m)); }
};
// A operand in registers, loaded before.
template <int M, int STEPS> struct RegistersOfA {
    u32 fragment[M][STEPS][4];
    DEVICE void load(u32 (&a)[4], int m, int step) const {
#pragma unroll
        for (int i = 0; i < 4; i++) a[i] = fragment[m][step][i];
    }
    DEVICE void load_half(u32 (&a)[4], int m, int step) const {
        a[0] = fragment[m][step][0];
        a[1] = fragment[m][step][1];
    }
};
// A operand made of accumulators of an earlier product: the layouts agree, so a pair of blocks is rounded and packed in place.
template <int M, int N> struct AccumulatorsAsA {
    const float (&c)[M][N][4];
    DEVICE void load(u32 (&a)[4], int m, int step) const {
        a[0] = pack(c[m][2 * step][0], c[m][2 * step][1]);
        a[1] = pack(c[m][2 * step][2], c[m][2 * step][3]);
        a[2] = pack(c[m][2 * step + 1][0], c[m][2 * step + 1][1]);
        a[3] = pack(c[m][2 * step + 1][2], c[m][2 * step + 1][3]);
    }
};

// B operand stored as [n][k]. pair: two blocks of 8 columns of C, of which there are `blocks`. flip: that bit of the row is turned over, so that
// halves of rows change places.
template <int COLUMNS> struct RowsOfB {
    FragmentAddress<COLUMNS, ACROSS> address;
    int row, flip = 0;
    DEVICE int blocks(int wanted) const { return wanted; }
    DEVICE int at(int offset) const { return (row + offset) ^ flip; }
    DEVICE void load(u32 (&b)[4], int pair, int step) const { ldmatrix_x4(b, address.at(at(pair * 16), step)); }
    DEVICE void load_single(u32 (&b)[4], int pair, int step) const {
        ldmatrix_x2(b[0], b[1], address.at(at(pair * 16), step));
    }
    // The first 8 of 16 contraction columns, for block n.
    DEVICE void load_half(u32 &b, int n, int step) const { ldmatrix_x1(b, address.at(at(n * 8), step)); }
};
// B operand stored as [k][n], from column 16 * first_pair on. EXACT: all of the blocks asked for are there; else columns may end earlier,
// as they do for the last warp when warps share a row whose pairs don't divide evenly.
template <int COLUMNS, bool EXACT = true> struct ColumnsOfB {
    FragmentAddress<COLUMNS, DOWN> address;
    int first_pair;
    DEVICE int blocks(int wanted) const { return EXACT ? wanted : COLUMNS / 8 - 2 * first_pair; }
    DEVICE void load(u32 (&b)[4], int pair, int step) const {
        ldmatrix_x4_trans(b, address.at(step * 16, first_pair + pair));
    }
    DEVICE void load_single(u32 (&b)[4], int pair, int step) const {
        ldmatrix_x2_trans(b[0], b[1], address.at(step * 16, first_pair + pair));
    }
};

// c += A B over K columns of the contraction, a multiple of 16.
template <int K, int M, int N, typename A, typename B>
DEVICE void multiply(float (&c)[M][N][4], const A &a, const B &b) {
#pragma unroll
    for (int step = 0; step < K / 16; step++) {
        u32 fa[M][4];
#pragma unroll
        for (int m = 0; m < M; m++) a.load(fa[m], m, step);
#pragma unroll
        for (int pair = 0; pair < (N + 1) / 2; pair++) {
            const int blocks = b.blocks(N) - 2 * pair;
            u32 fb[4];
            if (2 * pair + 1 < N && blocks > 1) {
                b.load(fb, pair, step);
#pragma unroll
                for (int m = 0; m < M; m++) {
                    mma_step(c[m][2 * pair], fa[m], fb[0], fb[1]);
                    mma_step(c[m][2 * pair + 1], fa[m], fb[2], fb[3]);
                }
            } else if (blocks > 0) {
                b.load_single(fb, pair, step);
#pragma unroll
                for (int m = 0; m < M; m++) mma_step(c[m][2 * pair], fa[m], fb[0], fb[1]);
            }
        }
    }
}

// The last 8 columns of a contraction over K = 8 * odd: A stored as [m][k] or in registers, B stored as [n][k].
template <int K, int M, int N, typename A, typename B>
DEVICE void multiply_tail(float (&c)[M][N][4], const A &a, const B &b) {
    constexpr int STEP = K / 16;
    u32 fa[M][4];
#pragma unroll
    for (int m = 0; m < M; m++) a.load_half(fa[m], m, STEP);
#pragma unroll
    for (int n = 0; n < N; n++) {
        u32 fb;
        b.load_half(fb, n, STEP);
#pragma unroll
        for (int m = 0; m < M; m++) mma_half_step(c[m][n], fa[m], fb);
    }
}
// Straight to rows in global memory. From a warpgroup's accumulators (ptx/wgmma.cuh): the four lanes that share a row trade their pieces of it, so
// that each stores whole 16 bytes and they 64 bytes side by side.

// Groups of warps: register reallocation, named barriers, transposing stores.

// setmaxnreg.{inc,dec}.sync.aligned.u32, sm_90a, ISA 8.0: by all warps of a warpgroup. Moves registers within what the block was launched
// with; an increase that the others' decreases do not cover waits for ever, so kernels assert the sum.
template <int REGISTERS> DEVICE void increase_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS> DEVICE void decrease_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// bar.sync / bar.arrive, sm_20, ISA 2.0: named barriers 1 ... 15 (0 is block_sync), by whole warps; `threads` counts those of both kinds.
DEVICE void named_barrier_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
DEVICE void named_barrier_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// stmatrix.sync.aligned.m8n8.x4(.trans).shared.b16, sm_90, ISA 7.8: lanes 8i ... 8i + 7 give the rows of matrix i.
DEVICE void stmatrix_x4(u32 address, u32 r0, u32 r1, u32 r2, u32 r3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r0), "r"(r1),
                 "r"(r2), "r"(r3)
                 : "memory");
}
DEVICE void stmatrix_x4_trans(u32 address, u32 r0, u32 r1, u32 r2, u32 r3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r0),
                 "r"(r1), "r"(r2), "r"(r3)
                 : "memory");
}

// Transposes 4 words across the 4 lanes of a quad: lane t ends with word t of lanes 0 ... 3.
DEVICE Vector4 quad_transpose(u32 w0, u32 w1, u32 w2, u32 w3) {
    const bool high = lane_index() & 2, odd = lane_index() & 1;
    const u32 a = shuffle_xor(high ? w0 : w2, 2), b = shuffle_xor(high ? w1 : w3, 2);
    const u32 x0 = high ? a : w0, x1 = high ? b : w1;  // from the lower pair's lane
    const u32 y0 = high ? w2 : a, y1 = high ? w3 : b;  // from the upper pair's lane
    const u32 c = shuffle_xor(odd ? x0 : x1, 1), d = shuffle_xor(odd ? y0 : y1, 1);
    return odd ? Vector4{c, x1, d, y1} : Vector4{x0, c, y0, d};
}

// The accumulator times `factor`, rounded, to columns column ... of the rows `row` and row + 8 (this lane's), those below `limit`. real: columns
// that the rows have there, a multiple of 8.
template <int COUNT> DEVICE void store_accumulator(const Rows &out, int column, int row, int limit,
                                                   const float (&d)[COUNT], float factor, int real = COUNT * 2) {
    constexpr int COLUMNS = COUNT * 2;
    const int own = lane_index() % 4 * 8;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        u16 *at = out.row(row + 8 * half) + column + own;
#pragma unroll
        for (int c = 0; c < COLUMNS; c += 32) {
            u32 word[4] = {0, 0, 0, 0};
#pragma unroll
            for (int g = 0; g < 4; g++) {
                const int i = (c / 8 + g) * 4 + 2 * half;
                if (c + 8 * g < COLUMNS) word[g] = pack(d[i] * factor, d[i + 1] * factor);
            }
            const Vector4 line = quad_transpose(word[0], word[1], word[2], word[3]);
            if (row + 8 * half < limit && c + own < real) store(reinterpret_cast<Vector4 *>(at + c), line);
        }
    }
}

// The same for the rows row ... row + 15 of a warp, through STAGING_BYTES of shared memory that are its own: eight rows of 64 columns at a time, with
// an eighth of the instructions that trading takes.
constexpr int STAGING_BYTES = 8 * 128;
template <int COUNT> DEVICE void store_through(u32 staging, const Rows &out, int column, int row, int limit,
                                               const float (&d)[COUNT], float factor) {
    constexpr int COLUMNS = COUNT * 2;
    const int lane = opaque(static_cast<u32>(lane_index()));  // addresses are not worth registers from before a loop
    const int own_row = lane / 8, chunk = lane % 8;  // as this lane loads and stores; chunks of a row are swizzled
    const int own_column = column + chunk * 8;
    u16 *to[4];  // or each would be computed at every store again
#pragma unroll
    for (int i = 0; i < 4; i++) to[i] = opaque(out.row(row + own_row + 4 * i) + own_column);
#pragma unroll
    for (int part = 0; part < COLUMNS; part += 64) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int c = 0; c < 8; c += 4) {
                u32 word[4] = {0, 0, 0, 0};
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int at = (part / 8 + c + i) * 4 + 2 * half;
                    if (at < COUNT) word[i] = pack(d[at] * factor, d[at + 1] * factor);
                }
                stmatrix_x4(staging + chunk * 128 + ((c + own_row) ^ chunk) * 16, word[0], word[1], word[2], word[3]);
            }
            warp_sync();
            Vector4 line[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int at = 4 * i + own_row;
                line[i] = load_shared(staging + at * 128 + (chunk ^ at) * 16);
            }
            warp_sync();
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (row + own_row + 8 * half + 4 * i < limit && part + chunk * 8 < COLUMNS)
                    store(reinterpret_cast<Vector4 *>(to[2 * half + i] + part), line[i]);
        }
    }
}

// Zeros in rows first ... first + count - 1; a whole warp.
DEVICE void clear_rows(const Rows &out, int first, int count, int columns) {
    const int chunks = columns / 8;
    for (int i = lane_index(); i < count * chunks; i += WARP)
        store(reinterpret_cast<Vector4 *>(out.row(first + i / chunks) + i % chunks * 8), Vector4{0, 0, 0, 0});
}
// Order between blocks and between kernels.

// ld.acquire.gpu.global.u32, sm_70, ISA 6.0, until the value, which only grows, is no less than `expected`. One lane waits, then a warp sync.
DEVICE void global_wait_at_least(const u32 *address, u32 expected) {
    u32 value;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    } while (value < expected);
}
// red.release.gpu.global.add.u32, sm_70, ISA 6.0. Release is cumulative: what other threads of the block did before a barrier between them
// and this one is covered too.
DEVICE void global_release_add(u32 *address, u32 value) {
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

// ld.relaxed.gpu.global.v4.f32, sm_70, ISA 6.0: what other blocks have written, past the first-level cache.
DEVICE Float4 load_relaxed(const Float4 *address) {
    Float4 v;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(address)
                 : "memory");
    return v;
}

// Before sm_90 a kernel starts after its predecessor has ended.
DEVICE void wait_for_predecessor() {}
DEVICE void allow_successor() {}

// ---- Roles ------------------------------------------------------------------------------------------------------------

// A warp takes 16 rows of 32 columns at a time.
DEVICE void convert_rows(const Rows &dq, const float *tile, int first, int limit, float scale) {
    constexpr int SPAN = 4, SPANS = (DQ_COLUMN_BLOCKS + SPAN - 1) / SPAN;
    for (int part = thread_index() / WARP; part < DQ_ROW_BLOCKS * DQ_ROW_WARPS * SPANS; part += THREADS / WARP) {
        const int row_warp = part % DQ_ROW_WARPS, row_block = part / DQ_ROW_WARPS % DQ_ROW_BLOCKS;
        const int block = part / (DQ_ROW_WARPS * DQ_ROW_BLOCKS) * SPAN;
        float v[SPAN][4];
#pragma unroll
        for (int i = 0; i < SPAN; i++)
            load_group(tile, accumulator_group(row_block, smaller(block + i, DQ_COLUMN_BLOCKS - 1), row_warp), v[i]);
        const int row = first + row_warp * (TILE_M / DQ_ROW_WARPS) + row_block * 16 + lane_index() / 4;
        store_accumulator(dq, block * 8, row, limit, flat(v), scale, HEAD_DIM - block * 8);
    }
}

// ---- Entry ------------------------------------------------------------------------------------------------------------

KERNEL(THREADS, 5) vf_bwd_post_d64_bf16_causal(PARAMETER BackwardPostArgs args) {
    wait_for_predecessor();
    const ListReader list(args.schedule);
    for (i64 item = block_index(); item < list.blocks * args.heads; item += grid_blocks()) {
        const ListReader::Place place = list.find(item / args.heads);
        const Sequence &s = place.sequence;
        const int head = static_cast<int>(item % args.heads), first = place.block * TILE_M;
        const Range seen = Mask(s, args.window_left, args.window_right).key_tiles<TILE_M, TILE_N>(place.block);
        const Rows dq = rows_of(args.dq, s.q_batch, s.q_begin, head);
        if (seen.end <= seen.begin)
            clear_rows<TILE_M, HEAD_DIM, THREADS>(dq, first, s.q_len, thread_index());
        else if (s.accumulator_row >= 0)
            convert_rows(
                dq, accumulator_tile(args.accumulator, head, args.accumulator_rows, s.accumulator_row, place.block),
                first, s.q_len, args.scale);
    }
}
