// vf_fwd_sm80_d128_bf16_causal: generated from templates/fwd_sm80.cu.
//
//   varflash show --spec 'kernel=fwd_sm80 arch=sm_90a dtype=bf16 head_dim=128 head_dim_v=128 mask=causal softcap=0 aligned=1 tile_m=64 tile_n=64 warps=4 stages=2 q_registers=1 blocks_per_sm=1'
//
// Budget: 128 threads, 82048 bytes of shared memory, 1 blocks per SM, 255 registers per thread.

// ---- Contract ---------------------------------------------------------------------------------------------------------
//
// Variable-length attention forward, portable family: cp.async and mma.sync, sm_80 and later.
//
//     o = softmax(mask(softmax_scale * q k^T)) v      lse = log of the softmax's denominator      (docs/design.md, contract)
//
// A block of threads draws work items (sequence, query head, TILE_M rows of q). Every warp owns WARP_ROWS of the rows and walks over the
// key tiles, last to first, with scores, weights and output in registers:
//
//                      K tile, V tile (TILE_N keys)      STAGES of them in shared memory, filled by all threads
//              +--------------+
//     warp 0   | scores  ->   | output                   score tile  = Q K^T      (registers)
//     warp 1   | weights      |                          weights     = softmax    (registers, packed as the next A operand)
//     ...      |              |                          output     += weights V  (registers)
//              +--------------+
//
// Host: the grid is at most what is co-resident; schedule.cu has run before; a head's rows are 16-byte aligned unless !aligned.

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
DEVICE void reduce_add(float *address, const float (&v)[4]) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(address), "f"(v[0]), "f"(v[1]),
                 "f"(v[2]), "f"(v[3])
                 : "memory");
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

constexpr int HEAD_DIM = 128;  // columns of q and k
constexpr int HEAD_DIM_V = 128;  // columns of v and o
constexpr bool SOFTCAP = false;  // logits are softcap * tanh(logit / softcap)
constexpr bool ALIGNED = true;  // operands start at 16 bytes and strides are multiples of 16 bytes
constexpr int TILE_M = 64;  // rows of q in a tile
constexpr int TILE_N = 64;  // rows of k in a tile
constexpr int WARPS = 4;  // warps of a block
constexpr int STAGES = 2;  // tiles in flight between global memory and the products
constexpr bool Q_REGISTERS = true;  // q stays in registers for a whole row of tiles
constexpr int BLOCKS_PER_SM = 1;  // blocks that share an SM: bounds the registers

constexpr int THREADS = WARPS * WARP;
constexpr int WARP_ROWS = TILE_M / WARPS;
constexpr int M_BLOCKS = WARP_ROWS / 16;
constexpr int KEY_BLOCKS = TILE_N / 8;
constexpr int OUT_BLOCKS = HEAD_DIM_V / 8;
constexpr int QK_STEPS = HEAD_DIM / 16;
static_assert(TILE_M == WARPS * M_BLOCKS * 16, "every warp owns whole blocks of 16 rows");
static_assert(TILE_N % 16 == 0, "weights are contracted 16 keys at a time");

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

// The order in which items are drawn from a list, and a queue of them for blocks of threads that work together.
//
// Inside a sequence, heads go in sections; a section runs block by block over its heads, query heads of one key head side by side. Where blocks
// differ in length (causal) or wait for each other (turns), a section is as many heads as fit the L2 cache together, so that long blocks of many
// heads come first; elsewhere it is one key head, which reads least. Blocks go last first, or first first: whichever is longest first with a
// causal mask, or in the backward's deterministic mode the order of turns.

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

constexpr float L2_SECTION_BYTES = 33 << 20;  // with room for what a reciprocal is off by
constexpr float APART_SECTION_BYTES = 4 * L2_SECTION_BYTES;

// Item `item`, in the order described above, of chunks of heads; row_bytes: what one row of the streamed operands occupies in a chunk. A section
// is whole chunks, and whole groups of query heads as long as a group fits. The last `apart` chunks have sections of their own,
// larger ones: they are for blocks that stay close together.
DEVICE Work decode_work(const ListReader &list, u64 item, int chunks, int group_chunks, float row_bytes,
                        int apart = 0) {
    Work work = {};
    if (item >= static_cast<u64>(list.blocks) * chunks) return work;
    const ListReader::Place place = list.find(static_cast<i64>(item / chunks));
    u64 local = item - static_cast<u64>(place.first) * chunks;
    int first = 0;  // chunk of those that have sections together
    const u64 others = static_cast<u64>(chunks - apart) * place.blocks;
    const bool is_apart = apart > 0 && local >= others;
    if (is_apart) {
        first = chunks - apart;
        local -= others;
    }
    chunks = is_apart ? apart : chunks - apart;
    const float section_bytes = is_apart ? APART_SECTION_BYTES : L2_SECTION_BYTES;
    const float streamed =
        static_cast<float>(larger(place.sequence.q_len, place.sequence.k_len)) * row_bytes * group_chunks;
    const int fitting =
        static_cast<int>(smaller(section_bytes * rcp(larger(streamed, 1.0f)), static_cast<float>(chunks)));
    const int section_chunks = smaller(larger(fitting, 1) * group_chunks, chunks);
    const u64 section_items = static_cast<u64>(section_chunks) * place.blocks;
    const int section = static_cast<int>(local / section_items);
    const int rest = static_cast<int>(local - section * section_items);
    const int width = smaller(section_chunks, chunks - section * section_chunks);
    work.sequence = place.sequence;
    work.head = first + section * section_chunks + rest % width;  // in chunks
    work.block = place.blocks - 1 - rest / width;
    work.more = 1;
    return work;
}

// Hands items to a whole block of threads. Two slots in shared memory: the next item is written while the current one is worked on; the
// block sync at the top of every item separates a slot's readers from its next writer. A block so holds two tickets; it works in their
// order, so the lowest unfinished ticket is always being worked on.
struct WorkQueue {
    const Schedule &schedule;
    Work *slots;  // Work[2]
    int heads, group;
    float row_bytes;  // of one head
    int chunk, turn;

    DEVICE WorkQueue(const Schedule &list, Work *slot_memory, int head_count, int group_size, float bytes)
        : schedule(list), slots(slot_memory), heads(head_count), group(group_size), row_bytes(bytes),
          chunk(chunk_of(ListReader(list).blocks, head_count)), turn(0) {
        prepare();
    }
    // The next item, in shared memory: reading it again later costs less than registers. All threads of the block; what the block did
    // before is complete when it returns.
    DEVICE const Work &next() {
        block_sync();
        const Work &work = slots[turn];
        turn ^= 1;
        return work;
    }
    // Warp 0 draws the item after the current one: once between two calls of next(), best while copies are under way. Who waits for turns draws
    // at the end: an item that is held back would hold back all that wait for it.
    DEVICE void prepare() const {
        if (thread_index() >= WARP) return;
        u64 ticket = 0;
        if (lane_index() == 0) ticket = atomic_add(&pointer<ScheduleHeader>(schedule.header)->ticket, 1);
        Work work = decode_work(ListReader(schedule), shuffle(ticket, 0), heads / chunk, larger(group / chunk, 1),
                                row_bytes * static_cast<float>(chunk));
        work.head *= chunk;
        if (lane_index() == 0) slots[turn] = work;
        warp_sync();
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
// Softcap: scores become softcap * tanh(score * scale / softcap).


template <class Args, int N> DEVICE void cap_scores(const Args &, float (&)[N]) {}
template <class Args> DEVICE float score_factor(const Args &args) { return args.scale * LOG2_E; }
// Online softmax over key tiles, in the base-2 domain: weights are 2^((score - reference) * factor), factor = softmax_scale * log2(e). The
// difference comes first: the score that set the reference then weighs exactly 1, however large it is (a fused score * factor - reference would
// leave a rounding error of the product, which at a logit of 1e30 is 1e23).
//
// Every row keeps a reference and the sum of its weights. FlashAttention-2 (arXiv:2307.08691) moves the reference to the running
// maximum at every tile, which costs two shuffles a row and a pass over the output. Here the reference only follows when a score
// exceeds it by more than HEADROOM, which after the first tile is rare: until then weights grow to at most 2^HEADROOM, which the
// 16-bit type and the float32 sums hold without loss. Each lane looks at its own scores; a vote decides whether the warp enters the
// branch that moves references, and there each row decides for itself by its own maximum: a row's bits do not depend on its
// neighbours.
//
// A row that has seen no key has reference -LARGEST: finite, so that a masked score (-inf) minus it is -inf and never NaN, and so low
// that any real score exceeds it. A tile in which a row sees nothing changes neither its reference nor its sum nor its output.


constexpr float HEADROOM = 8.0f;

// M blocks of 16 rows a warp; index 0 and 1 of a block are rows g and g + 8 (ptx/mma.cuh).
template <int M> struct Softmax {
    float reference[M][2], sum[M][2];

    DEVICE Softmax() {
#pragma unroll
        for (int m = 0; m < M; m++) {
            reference[m][0] = reference[m][1] = -LARGEST;
            sum[m][0] = sum[m][1] = 0.0f;
        }
    }

    // Turns a tile's scores into weights, raising references (and scaling `output`) where they are outgrown.
    template <int N, int D> DEVICE void weigh(float (&scores)[M][N][4], float (&output)[M][D][4], float factor) {
        float top[M][2];
        bool outgrown = false;
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                top[m][half] = -infinity();
#pragma unroll
                for (int n = 0; n < N; n++)
                    top[m][half] = max_f32(top[m][half], max_f32(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
                outgrown |= (top[m][half] - reference[m][half]) * factor > HEADROOM;
            }
        if (warp_any(outgrown)) raise(top, output, factor);
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    scores[m][n][i] = ex2((scores[m][n][i] - reference[m][i / 2]) * factor);
                    sum[m][i / 2] += scores[m][n][i];
                }
    }

    // Sums over the four lanes of each row; then 1 / sum (0 for a row without a key) and the natural logarithm of the sum of exps.
    DEVICE void finish(float (&scale)[M][2], float (&lse)[M][2], float factor) {
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float total = sum[m][half];
                total += shuffle_xor(total, 1);
                total += shuffle_xor(total, 2);
                const bool unseen = total == 0.0f;  // a seen row's sum holds the weight that set its reference
                scale[m][half] = unseen ? 0.0f : rcp(total);
                lse[m][half] = unseen ? -infinity() : (reference[m][half] * factor + lg2(total)) * LN_2;
            }
    }

  private:
    template <int D> DEVICE void raise(float (&top)[M][2], float (&output)[M][D][4], float factor) {
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float highest = max_f32(top[m][half], shuffle_xor(top[m][half], 1));
                highest = max_f32(highest, shuffle_xor(highest, 2));
                if (!((highest - reference[m][half]) * factor > HEADROOM)) continue;
                const float shrink = ex2((reference[m][half] - highest) * factor);
                reference[m][half] = highest;
                sum[m][half] *= shrink;
#pragma unroll
                for (int d = 0; d < D; d++) {
                    output[m][d][2 * half] *= shrink;
                    output[m][d][2 * half + 1] *= shrink;
                }
            }
    }
};
// Products of tiles: accumulators in registers, operands from shared memory or registers, by mma.sync.
//
// A warp's accumulators are float[M][N][4]: M blocks of 16 rows, N blocks of 8 columns (layout: ptx/mma.cuh). The contraction runs in
// steps of 16, in ascending order; a last step of 8 uses the half-size instruction, so nothing is padded. The order is part of the
// numerical contract: a step over zeros leaves every accumulator bit as it was.

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
// Tiles between global memory and shared memory. Every offset is 64-bit from its first multiplication.

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
    // Two blocks at once.
    constexpr int PAIRS = N / 2;
    const FragmentAddress<COLUMNS, DOWN> address(tile);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            stmatrix_x4(address.at(row + m * 16, block / 2 + i), low(m, 2 * i), high(m, 2 * i), low(m, 2 * i + 1),
                        high(m, 2 * i + 1));
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

// griddepcontrol.wait, sm_90, ISA 7.8: the kernels before this one in the chain are complete and their writes visible.
DEVICE void wait_for_predecessor() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// griddepcontrol.launch_dependents, sm_90, ISA 7.8: the next kernel of the chain may start to be placed.
DEVICE void allow_successor() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// ---- Shared memory ----------------------------------------------------------------------------------------------------

// q is private to its warp: its rows of q, and at the end its rows of o. k and v are rings of STAGES tiles.
constexpr int Q_WARP_BYTES = 4096;
constexpr int K_BYTES = TILE_N * HEAD_DIM * 2;
constexpr int V_BYTES = TILE_N * HEAD_DIM_V * 2;
constexpr int Q_OFFSET = 0;
constexpr int K_OFFSET = 16384;
constexpr int V_OFFSET = 49152;
constexpr int WORK_OFFSET = 81920;
static_assert(WORK_OFFSET + 2 * sizeof(Work) == 82048, "the kernel and its budget agree");

// ---- Barriers ---------------------------------------------------------------------------------------------------------
//
// Block syncs alone:
//     top of an item       all of the item before is done: its work slot and shared memory may be overwritten
//     top of a key tile    the tile's copies (every thread waited for its own) are visible; the stage that is filled next is free
//     STAGES == 1 only     after a key tile: its stage may be filled again

// ---- Roles ------------------------------------------------------------------------------------------------------------

using Scores = float[M_BLOCKS][KEY_BLOCKS][4];
using Output = float[M_BLOCKS][OUT_BLOCKS][4];

DEVICE void mask_scores(Scores &scores, const Mask &mask, int first_row, int first_key) {
#pragma unroll
    for (int m = 0; m < M_BLOCKS; m++) hide_scores(mask, first_row + m * 16, first_key, flat(scores[m]));
}

// One work item's operands, and the walk over its key tiles.
struct Forward {
    const ForwardArgs &args;
    const u32 shared, q_tile;  // this warp's part of q
    const int warp;

    DEVICE explicit Forward(const ForwardArgs &a)
        : args(a), shared(shared_address(shared_memory())),
          q_tile(shared + Q_OFFSET + uniform(thread_index() / WARP) * Q_WARP_BYTES),
          warp(uniform(thread_index() / WARP)) {}

    // Every warp brings its own rows; visible to the warp after cp_async_wait and any sync.
    DEVICE void load_q(const Sequence &s, int head, int first_row) const {
        load_tile<WARP_ROWS, HEAD_DIM, WARP>(q_tile, rows_of(args.q, s.q_batch, s.q_begin, head), first_row, s.q_len,
                                             lane_index());
    }
    DEVICE void load_kv(const Rows &k, const Rows &v, int tile, int k_len) const {
        const int stage = tile % STAGES, first = tile * TILE_N;
        load_tile<TILE_N, HEAD_DIM, THREADS>(shared + K_OFFSET + stage * K_BYTES, k, first, k_len, thread_index());
        load_tile<TILE_N, HEAD_DIM_V, THREADS>(shared + V_OFFSET + stage * V_BYTES, v, first, k_len, thread_index());
    }

    // One head of an item. The first draws the next item while its operands are on their way.
    DEVICE void run(const Work &work, int head, const WorkQueue &queue) const {
        const Sequence &s = work.sequence;
        const Mask mask(s, args.window_left, args.window_right);
        const int block = uniform(work.block);
        const Range seen = mask.key_tiles<TILE_M, TILE_N>(block);
        const Range tiles = {uniform(seen.begin), uniform(seen.end)};
        const Range whole = mask.whole_key_tiles<TILE_M, TILE_N>(block);
        const int first_row = block * TILE_M + warp * WARP_ROWS;
        const bool draw = head == work.head;

        Output output;
        Softmax<M_BLOCKS> softmax;
        clear(output);
        if (tiles.end > tiles.begin) {
            const Rows k = rows_of(args.k, s.k_batch, s.k_begin, head / args.group);
            const Rows v = rows_of(args.v, s.k_batch, s.k_begin, head / args.group);
            load_q(s, head, first_row);
#pragma unroll
            for (int i = 0; i < STAGES - 1; i++) {
                if (tiles.end - 1 - i >= tiles.begin) load_kv(k, v, tiles.end - 1 - i, s.k_len);
                cp_async_commit();
            }
            if (draw) queue.prepare();
            RegistersOfA<M_BLOCKS, (HEAD_DIM + 15) / 16> q;
            for (int tile = tiles.end - 1; tile >= tiles.begin; tile--) {
                cp_async_wait<STAGES - 2>();
                block_sync();
                if (tile - (STAGES - 1) >= tiles.begin) load_kv(k, v, tile - (STAGES - 1), s.k_len);
                cp_async_commit();
                if (tile == tiles.end - 1) load_q_registers(q);
                Scores scores;
                multiply_qk(scores, q, tile % STAGES);
#pragma unroll
                for (int m = 0; m < M_BLOCKS; m++) cap_scores(args, flat(scores[m]));
                if (tile >= whole.end || tile < whole.begin) mask_scores(scores, mask, first_row, tile * TILE_N);
                softmax.weigh(scores, output, score_factor(args));
                multiply_pv(output, scores, tile % STAGES);
            }
            cp_async_wait<0>();
        } else if (draw) {
            queue.prepare();
        }
        finish(s, head, first_row, output, softmax);
    }

  private:
    DEVICE void load_q_registers(RegistersOfA<M_BLOCKS, (HEAD_DIM + 15) / 16> &q) const {
        const RowsOfA<HEAD_DIM> rows = {FragmentAddress<HEAD_DIM, DOWN>(q_tile), 0};
#pragma unroll
        for (int m = 0; m < M_BLOCKS; m++) {
#pragma unroll
            for (int step = 0; step < QK_STEPS; step++) rows.load(q.fragment[m][step], m, step);
        }
    }

    template <typename Q> DEVICE void multiply_qk(Scores &scores, const Q &q, int stage) const {
        const RowsOfB<HEAD_DIM> k = {FragmentAddress<HEAD_DIM, ACROSS>(shared + K_OFFSET + stage * K_BYTES), 0};
        clear(scores);
        multiply<HEAD_DIM>(scores, q, k);
    }
    DEVICE void multiply_pv(Output &output, const Scores &weights, int stage) const {
        const ColumnsOfB<HEAD_DIM_V> v = {FragmentAddress<HEAD_DIM_V, DOWN>(shared + V_OFFSET + stage * V_BYTES), 0};
        multiply<TILE_N>(output, AccumulatorsAsA<M_BLOCKS, KEY_BLOCKS>{weights}, v);
    }

    // o leaves through this warp's part of q, whose rows only this warp has read.
    DEVICE void finish(const Sequence &s, int head, int first_row, const Output &output,
                       Softmax<M_BLOCKS> &softmax) const {
        float scale[M_BLOCKS][2], lse[M_BLOCKS][2];
        softmax.finish(scale, lse, score_factor(args));
        warp_sync();
        put_accumulators<HEAD_DIM_V>(q_tile, 0, 0, output, scale);
        warp_sync();
        store_tile<WARP_ROWS, HEAD_DIM_V, WARP>(rows_of(args.o, s.q_batch, s.q_begin, head), q_tile, first_row, s.q_len,
                                                lane_index());
        if (args.lse.data != 0 && lane_index() % 4 == 0) {
#pragma unroll
            for (int m = 0; m < M_BLOCKS; m++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int row = first_row + m * 16 + half * 8 + lane_index() / 4;
                    if (row < s.q_len) store(float_at(args.lse, s.q_batch, s.q_begin + row, head), lse[m][half]);
                }
        }
    }
};

// ---- Entry ------------------------------------------------------------------------------------------------------------

KERNEL(THREADS, BLOCKS_PER_SM) vf_fwd_sm80_d128_bf16_causal(PARAMETER ForwardArgs args) {
    allow_successor();
    wait_for_predecessor();
    const Forward forward(args);
    WorkQueue queue(args.schedule, shared_pointer<Work>(WORK_OFFSET), args.heads, args.group,
                    (HEAD_DIM + HEAD_DIM_V) * 2);
    for (;;) {
        const Work &work = queue.next();
        if (!work.more) break;
        const int head = uniform(work.head);
        for (int i = 0; i < queue.chunk; i++) {
            if (i > 0) block_sync();
            forward.run(work, head + i, queue);
        }
    }
}
