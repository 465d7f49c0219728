// vf_bwd_sm90_d96_bf16_causal: generated from templates/bwd_sm90.cu.
//
//   varflash show --spec 'kernel=bwd_sm90 arch=sm_90a dtype=bf16 head_dim=96 head_dim_v=96 mask=causal softcap=0 tile_m=64 tile_n=128 stages=3 dout_stages=2'
//
// Budget: 512 threads, 217992 bytes of shared memory, 1 blocks per SM, 128 registers per thread.

// ---- Contract ---------------------------------------------------------------------------------------------------------
//
// Variable-length attention backward for Hopper: copy engine and wgmma, sm_90a. Always deterministic: there is no other mode.
//
// One block per SM, persistent. A piece of work is TILE_N keys of one key head; the block walks over the query heads of that key head and over
// their query tiles:
//
//     S^T  = K Q^T    dP^T = V dO^T        64 keys a group; what the exponent is shifted by and delta come as products too
//     P^T  = 2^(S^T * factor)              dS^T = P^T dP^T
//     dV  += P^T dO   dK  += dS^T Q        P^T and dS^T are born in the layout of A
//     dQ   = dS K                          dS^T passes through shared memory once, for dK and dQ
//
//     scheduler ---> piece slots ------------------+----------------------+------------------------+
//                         |                        v                      v                        v
//                       loader --> K V Q dO --> compute warpgroups -dS-> dQ warpgroup <-turns-> turn taker, turn passer
//
// dQ of a query tile is summed in one order: the first key tile stores, the others add, the last adds to its own sum and writes dq. A counter per
// query tile says how many have. Tickets fall in the same order, so whoever is waited for has started. docs/kernels-hopper.md tells the whole story.
//
// Host: one block per SM; schedule.cu and bwd_pre_sm90.cu have run before; maps of q, dout (TILE_M rows), k, v (SLOT_KEYS rows) as
// tile/panels.cuh says; dq, dk, dv 16-byte aligned.

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

constexpr int HEAD_DIM = 96;  // columns of q and k
constexpr int HEAD_DIM_V = 96;  // columns of v and o
constexpr bool SOFTCAP = false;  // logits are softcap * tanh(logit / softcap)
constexpr int TILE_M = 64;  // rows of q in a tile
constexpr int TILE_N = 128;  // rows of k in a tile
constexpr int STAGES = 3;  // tiles in flight between global memory and the products
constexpr int DOUT_STAGES = 2;  // tiles of the output's gradient in flight
constexpr bool ALTERNATE = false;  // the backward's warpgroups take pieces of up to 64 keys in turns, one each, instead of both one
constexpr bool GROUP_BUFFERS = false;  // the backward's warpgroups have buffers of their own for k, v and dS, 64 keys each: faster for short sequences

constexpr int GROUP_THREADS = 128;
constexpr int GROUP_ROWS = 64;
constexpr int CLUSTER = 1;  // blocks that share a piece
constexpr int OWN_KEYS = TILE_N / CLUSTER;
constexpr int SLOT_KEYS = 128;   // of a buffer of K, V or dS
constexpr int KEY_RINGS = OWN_KEYS / SLOT_KEYS;  // 2: each compute warpgroup has such buffers of its own
constexpr int GROUPS = 2;                        // compute warpgroups; two more are the dQ warpgroup and the helpers
constexpr int THREADS = GROUP_THREADS * (GROUPS + 2);
constexpr int COMPUTE_WARPS = 4 * GROUPS;
constexpr int COMPUTE_REGISTERS = 208;
constexpr int DQ_REGISTERS = 64;
constexpr int HELPER_REGISTERS = 32;
static_assert(OWN_KEYS == GROUP_ROWS * 2,
              "both compute warpgroups have the same keys, or 64 each");
static_assert(TILE_M == 64, "the m of wgmma for dQ, and what a thread's registers hold of S and dP");
static_assert((COMPUTE_REGISTERS * GROUPS + DQ_REGISTERS + HELPER_REGISTERS) * GROUP_THREADS <= 65536 &&
                  COMPUTE_REGISTERS * GROUPS + DQ_REGISTERS + HELPER_REGISTERS <= 128 * (GROUPS + 2),
              "an increase that the others' decreases do not cover waits for ever");

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

constexpr float L2_SECTION_BYTES = 17 << 20;  // with room for what a reciprocal is off by
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
// What stands between the products of the Hopper backward: scores become weights, gradients of weights become gradients of scores.
//
// Products are transposed: rows of an accumulator are keys, columns queries. Element d[4 n + 2 h + i] of a thread (ptx/wgmma.cuh) is key
// 16 * warp + lane / 4 + 8 h of the group's 64, query 8 n + 2 * (lane % 4) + i of the tile's 64.
//
// Weights wait for their gradient as float32 (`WHOLE_WEIGHTS`, where registers allow it) or in 16 bits: as fp16, whose rounding hardly adds to that
// of the result, or, where some of a warp's are so small that fp16 would lose them, as bf16 (`coarse`). As the operand of dV they are of the
// kernel's type. No weight exceeds 1, but an exponent exceeds 0 by the rounding errors of score and shift: it is cut, so that
// whatever the logits are, weights are finite; a NaN stays one.

// What the Hopper backward needs of every query row, in the form in which wgmma takes it: two numbers, each a sum of three bf16 (24 bits, as many
// as a float32 has), as a row of a matrix with 8 columns.
//
//     columns 0 1 2   shift of the exponent:  weights are 2^((score + shift) * factor)      with softcap 2^(capped score * ... + shift)
//     columns 3 4 5   -delta:                 gradients of scores are weight * (gradient of weight - delta)
//     columns 6 7     zeros
//
// A product contracts 16 columns. The other 8 are a block of zeros that all tiles share, or, in wide heads, which have no room for it, these again
// times zeros, by a descriptor without a step.
//
// A product that begins with this matrix times ones arrives with the statistic added: no thread loads one, no thread subtracts one.


// Weights are WEIGHT_UNIT times what they should be, and so is all that comes of them, up to the outputs' last multiplication: as fp16, in which
// they wait for their gradient, none that matters is then subnormal. The unit is 1 where results are fp16, which could overflow, and where weights
// wait otherwise.
constexpr float WEIGHT_SHIFT = 15.0f;
constexpr float WEIGHT_UNIT = 32768.0f;

// softmax_scale * log2(e), kept so far from 0 that the shift, which is divided by it, stays finite; a score up to 2^100 has no weight in it either.
DEVICE float exponent_factor(float scale) {
    constexpr float LEAST = 7.5231639e-37f;  // 2^-120
    const float factor = scale * LOG2_E;
    return factor < 0.0f ? smaller(factor, -LEAST) : larger(factor, LEAST);
}

// The shift of a row; one that sees no key has none: all its scores are masked.
DEVICE float exponent_shift(float lse, float factor) {
    if (lse == -infinity()) return 0.0f;
    return (WEIGHT_SHIFT - lse * LOG2_E) / factor;
}

struct ThreeParts {
    u32 first, second, third;  // bf16
};
DEVICE ThreeParts three_parts(float x) {
    ThreeParts p;
    p.first = pack_bf16(x, 0.0f);
    x -= unpack_bf16(static_cast<u16>(p.first));
    p.second = pack_bf16(x, 0.0f);
    x -= unpack_bf16(static_cast<u16>(p.second));
    p.third = pack_bf16(x, 0.0f);
    return p;
}
DEVICE Vector4 statistics_row(float shift, float delta) {
    const ThreeParts s = three_parts(shift), d = three_parts(-delta);
    return {s.first | s.second << 16, s.third | d.first << 16, d.second | d.third << 16, 0};
}

// Ones in the columns of a statistic, as fragments of A (ptx/mma.cuh) that are the same in every row.
DEVICE u32 shift_ones() {
    const int pair = lane_index() % 4;
    return pair == 0 ? 0x3F803F80u : pair == 1 ? 0x00003F80u : 0u;
}
DEVICE u32 delta_ones() {
    const int pair = lane_index() % 4;
    return pair == 1 ? 0x3F800000u : pair == 2 ? 0x3F803F80u : 0u;
}
// The shift again, from the first 8 bytes of its row.
DEVICE float shift_of(u32 first_word, u32 second_word) {
    return unpack_bf16(static_cast<u16>(first_word)) +
           (unpack_bf16(static_cast<u16>(first_word >> 16)) + unpack_bf16(static_cast<u16>(second_word)));
}
// The 16-bit operand type of this kernel.


// Two floats as a pair of operand elements, and one element as a float.
DEVICE u32 pack(float lo, float hi) { return pack_bf16(lo, hi); }
DEVICE float unpack(u16 bits) { return unpack_bf16(bits); }
// Softcap: scores become softcap * tanh(score * scale / softcap).


template <class Args, int N> DEVICE void cap_scores(const Args &, float (&)[N]) {}
template <class Args> DEVICE float score_factor(const Args &args) { return args.scale * LOG2_E; }

constexpr bool WHOLE_WEIGHTS = false;
constexpr bool MAY_BE_COARSE = true;
constexpr float LEAST_FINE = -14.0f;      // exponents below are subnormal in fp16
constexpr u32 UNIT_PAIR = 0x3C003C00u;    // 1 twice, as fp16
constexpr u32 NORMAL_PAIR = 0x04000400u;  // the least normal number, 2^-14, twice

using Scores = float[TILE_M / 2];
using Weights = u32[TILE_M / 16][4];  // operands of A: columns 16 k ... of an accumulator, packed, are fragment k

DEVICE constexpr int query_of(int i) { return i / 4 * 8 + i % 2; }

// Which elements of a pair of tiles are visible. Rows and columns are relative to the tiles.
struct Band {
    int key_end, query_end;  // that exist
    int lower, upper;        // lower <= row - column <= upper, as far as the mask asks for them

    // Whether any of 64 rows from `row` on hides one of the tile's columns.
    DEVICE bool hides(int row) const {
        bool some = key_end < row + 64 || query_end < TILE_M;
        some = some || upper < row + 63;
        return some;
    }
    // Selects `value` where a row does not see a column; row: that of element 0.
    DEVICE void hide(Scores &x, int row, float value) const {
        const int column = lane_index() % 4 * 2;
#pragma unroll
        for (int half = 0; half < 2; half++, row += 8) {
            int begin = 0, end = query_end;  // columns that the row sees
            begin = row - upper;
            if (row >= key_end) end = 0;
            begin -= column;
            end -= column;
#pragma unroll
            for (int i = 2 * half; i < TILE_M / 2; i += i % 2 ? 3 : 1)
                if (query_of(i) < begin || query_of(i) >= end) x[i] = value;
        }
    }
};

struct Weigher {
    float factor;

    DEVICE explicit Weigher(float scale, float softcap) : factor(exponent_factor(scale)) {
        static_cast<void>(softcap);
    }

    // Scores with their shift become weights: float32 in s and operands in p, or 16 bits in p alone. Tells whether those are coarse. partial: some
    // may be invisible; hide puts a value in place of those.
    template <class Hide> DEVICE bool weigh(Scores &s, Weights &p, bool partial, Hide hide) const {
        bool coarse = false;
        if (!WHOLE_WEIGHTS && MAY_BE_COARSE && partial) {
            // What is hidden has no say: in columns past the sequence's end stands what other sequences left.
            hide(s, 0.0f);
            coarse = warp_any(lowest(s) < LEAST_FINE);
        }
        hide(s, factor > 0.0f ? -infinity() : infinity());
        // One loop, and nothing between: multiplications fill the slots that exponentials leave.
#pragma unroll
        for (int i = 0; i < TILE_M / 2; i++) s[i] = ex2(s[i] * factor);
        if constexpr (WHOLE_WEIGHTS) {
            pack_whole(s, p);
            if (unlikely(warp_any(doubled(p)))) {
#pragma unroll
                for (int i = 0; i < TILE_M / 2; i++) s[i] = min_nan(s[i], WEIGHT_UNIT);
                pack_whole(s, p);
            }
        } else {
#pragma unroll
            for (int i = 0; i < TILE_M / 2; i += 2) p[i / 8][i / 2 % 4] = pack_cut(s[i], s[i + 1]);
            if constexpr (MAY_BE_COARSE) {
                if (!partial) coarse = warp_any(subnormal(p));
                if (unlikely(coarse)) {
#pragma unroll
                    for (int i = 0; i < TILE_M / 2; i += 2)
                        p[i / 8][i / 2 % 4] = pack(min_nan(s[i], WEIGHT_UNIT), min_nan(s[i + 1], WEIGHT_UNIT));
                }
            }
        }
        return coarse;
    }

  private:
    static DEVICE u32 pack_cut(float a, float b) { return pack_fp16_finite(a, b); }  // twice the unit at most
    static DEVICE void pack_whole(const Scores &s, Weights &p) {
#pragma unroll
        for (int i = 0; i < TILE_M / 2; i += 2) p[i / 8][i / 2 % 4] = pack(s[i], s[i + 1]);
    }
    // Whether a weight is 2 or more, or a NaN: bit 14 then, in both 16-bit types. A third of what cutting every weight costs.
    static DEVICE bool doubled(const Weights &p) {
        static_assert(!WHOLE_WEIGHTS || WEIGHT_UNIT == 1.0f, "the bit tells multiples of 1");
        u32 bits = 0;
#pragma unroll
        for (int k = 0; k < TILE_M / 16; k++) bits |= p[k][0] | p[k][1] | p[k][2] | p[k][3];
        return (bits & 0x40004000u) != 0;
    }
    // Whether a weight is too small for fp16. Bits of what is not negative compare as the numbers do; a NaN is above them.
    static DEVICE bool subnormal(const Weights &p) {
        u32 least = NORMAL_PAIR;
#pragma unroll
        for (int k = 0; k < TILE_M / 16; k++)
#pragma unroll
            for (int i = 0; i < 4; i += 2) least = min3_u16x2(least, p[k][i], p[k][i + 1]);
        return least != NORMAL_PAIR;
    }
    // The lowest of a thread's exponents, if it is negative: as bits, negative numbers are above others and in reverse.
    DEVICE float lowest(const Scores &s) const {
        u32 bits = 0;
#pragma unroll
        for (int i = 0; i < TILE_M / 2; i += 2)
            bits = max3(bits, float_to_bits(s[i] * factor), float_to_bits(s[i + 1] * factor));
        return bits_to_float(bits);
    }
};

// Gradients of scores, packed, of fragment k; s or `waiting` as weigh left them. Without softcap `waiting` is p, which becomes the operand of dV
// here. WHY also where that changes nothing: for an operand that something else has read, ptxas finds too few registers (C7512).
template <bool COARSE>
DEVICE void score_gradients(u32 (&ds)[4], const Scores &s, Weights &waiting, const Scores &dp, int k) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int at = 8 * k + 2 * i;
        float w0 = s[at], w1 = s[at + 1];
        if constexpr (!WHOLE_WEIGHTS) {
            const u16 low = static_cast<u16>(waiting[k][i]), high = static_cast<u16>(waiting[k][i] >> 16);
            w0 = COARSE ? unpack(low) : unpack_fp16(low);
            w1 = COARSE ? unpack(high) : unpack_fp16(high);
            waiting[k][i] = pack(w0, w1);
        }
        ds[i] = pack(w0 * dp[at], w1 * dp[at + 1]);
    }
}
// Tiles as the copy engine writes them and wgmma reads them: panels of 64 columns, rows of 128 bytes under the 128-byte swizzle. A last panel
// that is not full holds zeros beyond the tile's columns.
//
// A map's rows are two dimensions of equal stride (the host encodes them): the first as long as the box, the second the tensor's rows, both
// counted from one box before the tensor. A box at (ROWS - n, row + n) keeps n rows from `row` on; the others lie outside the first dimension:
// they read as zeros and are never written. So one map serves any number of sequences, and no neighbour's row enters. A box keeps at least one
// row: of one that lies outside altogether the engine touches the map's first address, where there may be no memory (seen on an H200).

// mbarrier: transaction barriers in shared memory, which bulk copies complete on. Addresses are in the shared window (shared_address).
//
// A barrier counts arrivals and bytes; its phase ends when both are due, and the parity of phases alternates, beginning with 0. A wait
// for parity p ends when the phase of parity p has ended; on a fresh barrier a wait for parity 1 ends at once.

// mbarrier.init.shared::cta.b64, sm_80, ISA 7.0. Visible to other threads after a block sync, to the copy engine after the fence below.
DEVICE void mbarrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// fence.mbarrier_init.release.cluster, sm_90, ISA 8.0: by the thread that has initialised.
DEVICE void mbarrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// mbarrier.arrive.shared::cta.b64, sm_80, ISA 7.0: release, block scope.
DEVICE void mbarrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// mbarrier.arrive.expect_tx.shared::cta.b64, sm_90, ISA 8.0: arrives, and the phase also waits for `bytes`.
DEVICE void mbarrier_arrive_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// mbarrier.test_wait.parity.shared::cta.b64, sm_90, ISA 7.8: whether the phase has ended; if so, acquire, block scope. Asked ahead of where it matters
// the answer, some 50 cycles, comes while something else is done.
DEVICE bool mbarrier_passed(u32 barrier, u32 parity) {
    u32 passed;
    asm volatile(
        "{ .reg .pred p;\n"
        "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(passed)
        : "r"(barrier), "r"(parity)
        : "memory");
    return passed != 0;
}
// mbarrier.try_wait.parity.shared::cta.b64, sm_90, ISA 7.8, until the phase has ended: acquire, block scope. The thread may sleep for up to
// MOST_NANOSECONDS in between: polling takes issue slots and power from those who compute. A wait that a whole warp needs is
// one lane's, then a warp sync: a lane that polls late may find the next phase over as well, unless that needs an arrival of this warp behind
// something that all its lanes do together, as consumers' phases do.
constexpr u32 MOST_NANOSECONDS = 10000000;
DEVICE void mbarrier_wait(u32 barrier, u32 parity) {
    u32 done;
    do {
        asm volatile(
            "{ .reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2, %3;\n"
            "selp.u32 %0, 1, 0, p; }"
            : "=r"(done)
            : "r"(barrier), "r"(parity), "r"(MOST_NANOSECONDS)
            : "memory");
    } while (done == 0);
}
// The copy engine (TMA, async proxy): boxes of tensor maps and runs of bytes between global and shared memory.
//
// A TensorMap (ptx/builtins.cuh) is what the host has encoded. Coordinates are signed, innermost first; elements outside the map read as zero and
// are never written. The bytes of a load are those of the whole box.

// prefetch.tensormap, sm_90, ISA 8.0.
DEVICE void prefetch_tensor_map(const TensorMap &map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes, sm_90, ISA 8.0. `shared`: 128-byte aligned (1024 with the
// 128-byte swizzle, so that the pattern begins at the tile).
DEVICE void tma_load_5d(u32 shared, const TensorMap &map, u32 barrier, int c0, int c1, int c2, int c3, int c4) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(shared),
        "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
        : "memory");
}
// cp.async.bulk.tensor.5d.global.shared::cta.bulk_group, sm_90, ISA 8.0. Whoever wrote the tile has fenced (fence_async_proxy) before.
DEVICE void tma_store_5d(const TensorMap &map, u32 shared, int c0, int c1, int c2, int c3, int c4) {
    asm volatile(
        "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group"
        " [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(&map),
        "r"(shared), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
        : "memory");
}
// cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes, sm_90, ISA 8.0: a run of bytes, 16-byte aligned and a multiple of 16.
DEVICE void bulk_load(u32 shared, const void *global, u32 bytes, u32 barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
        "l"(global), "r"(bytes), "r"(barrier)
        : "memory");
}
// cp.async.bulk.commit_group / wait_group(.read), sm_90, ISA 8.0: this thread's stores; `read`: their shared memory may be written again.
DEVICE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int PENDING> DEVICE void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}
template <int PENDING> DEVICE void bulk_wait() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(PENDING) : "memory");
}
// fence.proxy.async.shared::cta, sm_90, ISA 8.0: this thread's ordinary accesses to shared memory come before later ones of the async proxy
// (copies, wgmma).
DEVICE void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// wgmma.mma_async, sm_90a, ISA 8.0: asynchronous products of a warpgroup, 128 threads, with float32 accumulation.
//
//     d[64 x N] (+)= a[64 x 16] * b[16 x N]      16-bit operands; b, and a in the ss form, in shared memory through descriptors
//
// Fragments of d, with w = warp of the group, g = lane / 4, t = lane % 4: d[4 n + 2 h + i] is row 16 w + g + 8 h, column 8 n + 2 t + i.
// Those of a in registers are mma.m16n8k16's, on the warp's 16 rows: columns 16 k ... of an accumulator, packed, are fragment k.
//
// Registers of a product in flight must not be touched before the matching wait. Operands are arrays passed by reference and never copied
// between issue and wait; `pin` keeps the compiler from moving their uses across a fence or a wait.
// WHY no `if` around a product: ptxas serialises all products of a function when control flow round one looks divergent (C7510 ... C7519).

// Shared-memory matrix descriptor (PTX ISA, "Matrix Descriptor Format") for tiles of 128-byte rows under the 128-byte swizzle, groups of
// 8 rows 1024 bytes apart. leading: bytes between panels of 64 columns, for an operand with its M or N index contiguous that is wider than one.
DEVICE u64 matrix_descriptor(u32 shared, u32 leading) {
    constexpr u64 SWIZZLE_128 = 1ull << 62;
    constexpr u64 GROUP = static_cast<u64>(1024 >> 4) << 32;
    return static_cast<u64>((shared & 0x3FFFF) >> 4) | static_cast<u64>(leading >> 4) << 16 | GROUP | SWIZZLE_128;
}
// The descriptor `bytes` further on. Within a swizzled row of 128 bytes, columns are that many bytes on as without swizzle.
DEVICE u64 descriptor_plus(u64 descriptor, u32 bytes) { return descriptor + (bytes >> 4); }

// wgmma.fence: what was written to registers of d and a before is seen by products that follow.
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most PENDING of this warpgroup's groups are incomplete.
template <int PENDING> DEVICE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

template <int N> DEVICE void pin(float (&r)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(r[i])::"memory");
}
template <int N> DEVICE void pin(u32 (&r)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(r[i])::"memory");
}

// Whether an operand's rows (the index that is not contracted) are contiguous: K_MAJOR, the contracted index is.
constexpr int K_MAJOR = 0;
constexpr int MN_MAJOR = 1;

// a from shared memory. `accumulate` 0: d is overwritten.
template <int N, int A_MAJOR, int B_MAJOR> DEVICE void wgmma_ss(float (&d)[N / 2], u64 a, u64 b, int accumulate);
// a from registers.
template <int N, int B_MAJOR> DEVICE void wgmma_rs(float (&d)[N / 2], const u32 (&a)[4], u64 b, int accumulate);

template <> DEVICE void wgmma_ss<64, 0, 0>(float (&d)[32], u64 a, u64 b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 0, 0; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b), "r"(accumulate));
}
template <> DEVICE void wgmma_ss<64, 0, 1>(float (&d)[32], u64 a, u64 b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 0, 1; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b), "r"(accumulate));
}
template <> DEVICE void wgmma_ss<64, 1, 0>(float (&d)[32], u64 a, u64 b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 1, 0; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b), "r"(accumulate));
}
template <> DEVICE void wgmma_ss<64, 1, 1>(float (&d)[32], u64 a, u64 b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 1, 1; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b), "r"(accumulate));
}
template <> DEVICE void wgmma_rs<64, 0>(float (&d)[32], const u32 (&a)[4], u64 b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1, 0; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}
template <> DEVICE void wgmma_rs<64, 1>(float (&d)[32], const u32 (&a)[4], u64 b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1, 1; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}
template <> DEVICE void wgmma_ss<96, 0, 0>(float (&d)[48], u64 a, u64 b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %50, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, %48, %49, p, 1, 1, 0, 0; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
        : "l"(a), "l"(b), "r"(accumulate));
}
template <> DEVICE void wgmma_ss<96, 0, 1>(float (&d)[48], u64 a, u64 b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %50, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, %48, %49, p, 1, 1, 0, 1; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
        : "l"(a), "l"(b), "r"(accumulate));
}
template <> DEVICE void wgmma_ss<96, 1, 0>(float (&d)[48], u64 a, u64 b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %50, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, %48, %49, p, 1, 1, 1, 0; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
        : "l"(a), "l"(b), "r"(accumulate));
}
template <> DEVICE void wgmma_ss<96, 1, 1>(float (&d)[48], u64 a, u64 b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %50, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, %48, %49, p, 1, 1, 1, 1; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
        : "l"(a), "l"(b), "r"(accumulate));
}
template <> DEVICE void wgmma_rs<96, 0>(float (&d)[48], const u32 (&a)[4], u64 b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %53, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, {%48, %49, %50, %51}, %52, p, 1, 1, 0; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}
template <> DEVICE void wgmma_rs<96, 1>(float (&d)[48], const u32 (&a)[4], u64 b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %53, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, {%48, %49, %50, %51}, %52, p, 1, 1, 1; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}
template <> DEVICE void wgmma_ss<32, 0, 0>(float (&d)[16], u64 a, u64 b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, p, 1, 1, 0, 0; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
        : "l"(a), "l"(b), "r"(accumulate));
}
template <> DEVICE void wgmma_ss<32, 0, 1>(float (&d)[16], u64 a, u64 b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, p, 1, 1, 0, 1; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
        : "l"(a), "l"(b), "r"(accumulate));
}
template <> DEVICE void wgmma_ss<32, 1, 0>(float (&d)[16], u64 a, u64 b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, p, 1, 1, 1, 0; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
        : "l"(a), "l"(b), "r"(accumulate));
}
template <> DEVICE void wgmma_ss<32, 1, 1>(float (&d)[16], u64 a, u64 b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, p, 1, 1, 1, 1; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
        : "l"(a), "l"(b), "r"(accumulate));
}
template <> DEVICE void wgmma_rs<32, 0>(float (&d)[16], const u32 (&a)[4], u64 b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %21, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, p, 1, 1, 0; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}
template <> DEVICE void wgmma_rs<32, 1>(float (&d)[16], const u32 (&a)[4], u64 b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %21, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, p, 1, 1, 1; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

constexpr int PANEL_COLUMNS = 64;
constexpr int PANEL_PITCH = 128;

template <int ROWS, int COLUMNS> struct Panels {
    static constexpr int COUNT = (COLUMNS + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
    static constexpr int PANEL_BYTES = ROWS * PANEL_PITCH;
    static constexpr int BYTES = COUNT * PANEL_BYTES;
    static_assert(PANEL_BYTES % 1024 == 0, "a panel begins with the swizzle's pattern");

    // Starts loading rows first ... of one head; rows from `limit` (> 0) on are zeros, unless all are: then the last row comes instead. One
    // thread; the barrier expects BYTES.
    static DEVICE void load(u32 shared, const TensorMap &map, u32 barrier, i64 begin, int first, int limit, int head,
                            int batch) {
        load_panels<COUNT>(shared, map, barrier, 0, begin, first, limit, head, batch);
    }
    // Some panels of it, from `panel` on.
    template <int PANELS> static DEVICE void load_panels(u32 shared, const TensorMap &map, u32 barrier, int panel,
                                                         i64 begin, int first, int limit, int head, int batch) {
        const Box box(begin, first, limit);
#pragma unroll
        for (int i = 0; i < PANELS; i++)
            tma_load_5d(shared + i * PANEL_BYTES, map, barrier, (panel + i) * PANEL_COLUMNS, box.skipped, box.row, head,
                        batch);
    }

    // Where this lane's row of fragment k, 16 rows from `first` on and 16 columns, is stored and loaded as matrices.
    static DEVICE u32 fragment(u32 shared, int first, int k) {
        const u32 row = first + lane_index() % 16, half = lane_index() / 16;
        return shared + k / 4 * PANEL_BYTES + row * PANEL_PITCH + ((k % 4 * 2 + half) ^ (row & 7)) * 16;
    }

    // As an operand whose rows are its M or N index, contracted over columns: the descriptor of columns 16 * step ...
    static DEVICE u64 rows_operand(u32 shared) { return matrix_descriptor(shared, 16); }
    static constexpr u32 rows_step(int step) { return step / 4 * PANEL_BYTES + step % 4 * 32; }
    // As an operand whose columns are its N index, contracted over rows: the descriptor of rows 16 * step ...
    static DEVICE u64 columns_operand(u32 shared) { return matrix_descriptor(shared, PANEL_BYTES); }
    static constexpr u32 columns_step(int step) { return step * 16 * PANEL_PITCH; }

  private:
    // Where the rows stand in the map's two dimensions.
    struct Box {
        int skipped, row;

        DEVICE Box(i64 begin, int first, int limit) {
            first = smaller(first, limit - 1);
            const int count = smaller(limit - first, ROWS);
            skipped = ROWS - count;
            row = static_cast<int>(begin) + first + count;
        }
    };
};
// Rings of buffers in shared memory between warps that fill and warps that read: each slot has a full and an empty barrier.


// A position in a ring of N slots: the phase to wait for alternates with every round.
template <int N> struct Ring {
    u32 slot = 0, parity = 0;

    DEVICE void advance() {
        slot = slot + 1 == N ? 0 : slot + 1;
        parity ^= slot == 0 ? 1 : 0;
    }
};

// The same in one register, for who has few.
template <int N> struct RingPlace {
    u32 at = 0;  // in the two rounds that parities tell apart

    DEVICE u32 slot() const {
        if constexpr (POWER_OF_TWO) return at % N;
        return at < N ? at : at - N;
    }
    DEVICE u32 parity() const {
        if constexpr (POWER_OF_TWO) return at / N % 2;
        return at < N ? 0 : 1;
    }
    DEVICE void advance() { at = POWER_OF_TWO || at + 1 < 2 * N ? at + 1 : 0; }

  private:
    static constexpr bool POWER_OF_TWO = (N & (N - 1)) == 0;
};

// The barriers of a ring, those of all slots side by side: the arrivals that fill a slot, and those that hand it back.
DEVICE void init_ring(u32 full, u32 empty, int slots, u32 fill, u32 hand_back) {
    for (int i = 0; i < slots; i++) {
        mbarrier_init(full + 8 * i, fill);
        mbarrier_init(empty + 8 * i, hand_back);
    }
}

// One arrival of a warp that has come together; or none.
DEVICE void arrive(u32 barrier, bool really = true) {
    if (lane_index() == 0 && really) mbarrier_arrive(barrier);
}
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
// The float32 accumulators of dQ in global memory. A tile of TILE_M rows and HEAD_DIM columns is stored in the order in which the main
// kernel's warps hold it, so that every addition is contiguous across a warp; the finishing kernel reads it by the same mapping.
//
// DQ_ROW_WARPS warps stand one below the other; each has blocks of 16 rows and 8 columns, of which a lane has four elements
// (layout C of ptx/mma.cuh).


constexpr int DQ_ROW_WARPS = 4;
constexpr int DQ_ROW_BLOCKS = TILE_M / DQ_ROW_WARPS / 16;
constexpr int DQ_COLUMN_BLOCKS = HEAD_DIM / 8;

// Index of the four elements' group, counted over the tile: 128 floats a group and warp.
DEVICE int accumulator_group(int row_block, int column_block, int row_warp) {
    return (row_block * DQ_COLUMN_BLOCKS + column_block) * DQ_ROW_WARPS + row_warp;
}
// Index of element i of this lane in a group.
DEVICE int accumulator_element(int group, int i) {
    return (group * WARP + lane_index()) * 4 + i;  // one vector of four
}
// A lane's four elements of a group.
DEVICE void add_to_group(float *tile, int group, const float (&v)[4]) {
    reduce_add(tile + accumulator_element(group, 0), v);
}
DEVICE void load_group(const float *tile, int group, float (&v)[4]) {
    const Float4 whole = load(reinterpret_cast<const Float4 *>(tile + accumulator_element(group, 0)));
    v[0] = whole.x, v[1] = whole.y, v[2] = whole.z, v[3] = whole.w;
}
// The tile of (head, row block).
DEVICE float *accumulator_tile(u64 base, int head, i64 rows, i64 first_row, int block) {
    return pointer<float>(base) + (head * rows + first_row + static_cast<i64>(block) * TILE_M) * HEAD_DIM;
}
// How often that tile has been added to.
DEVICE u32 *turn_of(u64 base, int head, i64 rows, i64 first_row, int block) {
    return pointer<u32>(base) + (head * (rows / TILE_M) + first_row / TILE_M + block);
}
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
// wgmma with bf16 operands whatever the kernel's own type, for what wants float32's range. Accumulators as in ptx/wgmma.cuh: products of both kinds
// may follow each other on the same ones.


// Matrix descriptor of an operand without swizzle, its contracted index contiguous: groups of 8 rows of 16 bytes, `group` bytes apart; `leading`:
// bytes to the next 8 of the contracted index.
DEVICE u64 plain_descriptor(u32 shared, u32 leading, u32 group) {
    return static_cast<u64>((shared & 0x3FFFF) >> 4) | static_cast<u64>(leading >> 4) << 16 |
           static_cast<u64>(group >> 4) << 32;
}

// a from registers, b with its contracted index contiguous.
template <int N> DEVICE void wgmma_rs_bf16(float (&d)[N / 2], const u32 (&a)[4], u64 b, int accumulate);

template <> DEVICE void wgmma_rs_bf16<64>(float (&d)[32], const u32 (&a)[4], u64 b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1, 0; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

// ---- Shared memory ----------------------------------------------------------------------------------------------------

using KTile = Panels<SLOT_KEYS, HEAD_DIM>;
using VTile = Panels<SLOT_KEYS, HEAD_DIM_V>;
using QTile = Panels<TILE_M, HEAD_DIM>;
using DoutTile = Panels<TILE_M, HEAD_DIM_V>;
using DsTile = Panels<SLOT_KEYS, TILE_M>;  // [key][query]
constexpr bool DQ_CLIPPED = false;
constexpr int STATISTICS_BYTES = TILE_M * 16;

constexpr int Q_STAGES = STAGES;
constexpr int K_STAGES = 2, V_STAGES = 1;  // 2: the next piece's are loaded ahead
constexpr int DS_STAGES = 2;  // how far dQ may lag behind, waiting for its turn
constexpr int TURN_STAGES = 2, PIECE_SLOTS = 4;
constexpr bool KV_REGISTERS = false;  // a group's rows of K and V stay in registers, as operands of A
constexpr bool SCORES_ACCUMULATE = true;     // S begins with the shift

// The order in which key tiles add to dQ. Descending, all walk over query tiles upwards: with a causal mask each begins where only those before it
// have been, and no one waits; at any time they are spread over all of a head's tiles. Of many query heads that share keys those would be more
// than the L2 cache holds: ascending, all walk downwards from the same end, close behind each other, and wait once for as many steps as there are
// key tiles before them, which is little beside the steps of many heads.
// Descending, the longest key tiles are a head's last, and where they are everybody's last, blocks end far apart. So the last quarter of the heads
// ascends.
//
// How many heads descend; even, or all: pairs of heads go the same way.
DEVICE int descending_heads(int key_heads, int group) {
    if (group >= 4) return 0;
    return smaller(key_heads, (key_heads - key_heads / 4 + 1) / 2 * 2);
}

// A piece of work, as every role needs it.
struct Piece {
    Sequence sequence;
    int key_head, block;
    int begin, end;                // query tiles, of every head
    int whole_begin, whole_count;  // of them, those that see all keys of the piece
    int lower, upper;              // Band's, of query tile 0
    int unseen_after;              // query tiles below this one see nothing of the next key tile
    int unseen_before;             // query tiles from this one on see nothing of the key tile before
    int steps;                     // over all heads of the group; 0: no work is left
    int request;                   // 1: the loader asks for more work when it is through with this
    int ascending;                 // 1: key tiles add to dQ in ascending order

    // This block's first key.
    DEVICE int first_key() const {
        return block * TILE_N;
    }
    // Whether this key tile is the first, the last that adds to dQ of a query tile.
    DEVICE bool first(int of_tile) const { return ascending ? of_tile >= unseen_before : of_tile < unseen_after; }
    DEVICE bool last(int of_tile) const { return ascending ? of_tile < unseen_after : of_tile >= unseen_before; }
};

// Where somebody is in a piece: all query heads of a tile, then those of the next.
struct Steps {
    int left;    // with this one
    int tile;    // of queries
    int member;  // which query head of the key head
    int onward;  // to the next tile

    DEVICE void begin(const Piece &piece) {
        left = piece.steps;
        tile = piece.ascending ? piece.end - 1 : piece.begin;
        member = 0;
        onward = piece.ascending ? -1 : 1;
    }
    DEVICE void advance(int group) {
        left--;
        if (++member < group) return;
        member = 0;
        tile += onward;
    }
    DEVICE int head(const Piece &piece, int group) const { return piece.key_head * group + member; }
};

constexpr int K_OFFSET = 0;
constexpr int V_OFFSET = 65536;
constexpr int Q_OFFSET = 98304;
constexpr int DOUT_OFFSET = 147456;
constexpr int STATISTICS_OFFSET = 180224;  // of the query tiles in the ring of q
constexpr int ZEROS_OFFSET = 183296;  // columns 8 ... 15 of every tile of statistics
constexpr int DS_OFFSET = 184320;
constexpr int PIECES_OFFSET = 217088;
constexpr int WORK_OFFSET = 217600;
constexpr int BARRIERS_OFFSET = 217728;
constexpr int K_SLOTS = KEY_RINGS * K_STAGES, V_SLOTS = KEY_RINGS * V_STAGES, DS_SLOTS = KEY_RINGS * DS_STAGES;
constexpr int RINGS = Q_STAGES + DOUT_STAGES + K_SLOTS + V_SLOTS + DS_SLOTS + PIECE_SLOTS + TURN_STAGES;
constexpr int BARRIERS = 2 * RINGS + 1 + (CLUSTER == 2 ? DS_STAGES + 2 : 0);
static_assert(V_OFFSET - K_OFFSET >= K_SLOTS * KTile::BYTES && Q_OFFSET - V_OFFSET >= V_SLOTS * VTile::BYTES &&
                  DOUT_OFFSET - Q_OFFSET >= Q_STAGES * QTile::BYTES &&
                  STATISTICS_OFFSET - DOUT_OFFSET >= DOUT_STAGES * DoutTile::BYTES &&
                  ZEROS_OFFSET == STATISTICS_OFFSET + Q_STAGES * STATISTICS_BYTES &&
                  DS_OFFSET - ZEROS_OFFSET >= STATISTICS_BYTES &&
                  PIECES_OFFSET - DS_OFFSET >= DS_SLOTS * DsTile::BYTES &&
                  WORK_OFFSET - PIECES_OFFSET >= PIECE_SLOTS * sizeof(Piece) &&
                  BARRIERS_OFFSET - WORK_OFFSET >= sizeof(Work) &&
                  BARRIERS_OFFSET + 8 * BARRIERS == 217992,
              "the kernel and its budget agree");

// A position in a compute warpgroup's ring of N buffers of K, V or dS.
template <int N> struct KeyRing : Ring<N> {
    DEVICE explicit KeyRing(int) {}
};

DEVICE Band band_of(const Piece &piece, int tile) {
    const int first = tile * TILE_M;
    return {piece.sequence.k_len - piece.first_key(), piece.sequence.q_len - first, piece.lower + first,
            piece.upper + first};
}
DEVICE Piece &piece_slot(u32 slot) { return shared_pointer<Piece>(PIECES_OFFSET)[slot]; }

// Where a compute warpgroup is in its walk. Whether anything is hidden is looked up when the tile is turned to, which is best while products run.
struct Walk {
    const int group;  // query heads of a key head
    Steps steps;
    bool partial = false;  // something of the tile is hidden from some of 64 keys

    DEVICE explicit Walk(int query_heads) : group(query_heads), steps{} {}
    // row: the first of the 64 keys.
    DEVICE void begin(const Piece &piece, int row) {
        steps.begin(piece);
        look(piece, row);
    }
    DEVICE void advance(const Piece &piece, int row) {
        steps.advance(group);
        look(piece, row);
    }
    // Selects `value` where a key does not see a query. row: that of element 0.
    DEVICE void hide(const Piece &piece, Scores &x, int row, float value) const {
        if (partial) band_of(piece, steps.tile).hide(x, row, value);
    }

  private:
    DEVICE void look(const Piece &piece, int row) {
        partial = static_cast<u32>(steps.tile - piece.whole_begin) >= static_cast<u32>(piece.whole_count);
        if (partial) partial = band_of(piece, steps.tile).hides(row);
    }
};

// ---- Barriers ---------------------------------------------------------------------------------------------------------
//
//     full        1 arrival: the loader's, with the bytes of the copy; of dS (and P) one per warp that makes it; of pieces the scheduler's
//     empty       one arrival per warp that reads: compute warps for q, dout and v (with rings of its own, a group's), dQ warps for k and dS
//                 (compute warps are done with k when dS is there; with their own rows of dS when they make the next), for pieces all of them, the
//                 loader, the turn taker and the turn passer. Wide heads: the second group's for v, all for dS and P. Alternating groups:
//                 all for dS, whose rows the other group may be next to write
//     turn, added the dQ warps and the thread on the other side, so that neither can be two phases ahead: it is this block's turn; the
//                 additions of this block have been issued
//     request     the loader's: the scheduler may draw
//     group       named barrier 1 + g: rows of dS of group g are in place

struct Barriers {
    u32 base;

    DEVICE u32 q_full(u32 slot) const { return base + 8 * slot; }
    DEVICE u32 q_empty(u32 slot) const { return q_full(Q_STAGES) + 8 * slot; }
    DEVICE u32 dout_full(u32 slot) const { return q_empty(Q_STAGES) + 8 * slot; }
    DEVICE u32 dout_empty(u32 slot) const { return dout_full(DOUT_STAGES) + 8 * slot; }
    DEVICE u32 k_full(u32 slot) const { return dout_empty(DOUT_STAGES) + 8 * slot; }
    DEVICE u32 k_empty(u32 slot) const { return k_full(K_SLOTS) + 8 * slot; }
    DEVICE u32 v_full(u32 slot) const { return k_empty(K_SLOTS) + 8 * slot; }
    DEVICE u32 v_empty(u32 slot) const { return v_full(V_SLOTS) + 8 * slot; }
    DEVICE u32 ds_full(u32 slot) const { return v_empty(V_SLOTS) + 8 * slot; }
    DEVICE u32 ds_empty(u32 slot) const { return ds_full(DS_SLOTS) + 8 * slot; }
    DEVICE u32 piece_full(u32 slot) const { return ds_empty(DS_SLOTS) + 8 * slot; }
    DEVICE u32 piece_empty(u32 slot) const { return piece_full(PIECE_SLOTS) + 8 * slot; }
    DEVICE u32 turn(u32 slot) const { return piece_empty(PIECE_SLOTS) + 8 * slot; }
    DEVICE u32 added(u32 slot) const { return turn(TURN_STAGES) + 8 * slot; }
    DEVICE u32 request() const { return added(TURN_STAGES); }

    DEVICE void initialise() const {
        init_ring(q_full(0), q_empty(0), Q_STAGES, 1, CLUSTER * COMPUTE_WARPS);
        init_ring(dout_full(0), dout_empty(0), DOUT_STAGES, 1, CLUSTER * COMPUTE_WARPS);
        init_ring(k_full(0), k_empty(0), K_SLOTS, 1, 4);
        init_ring(v_full(0), v_empty(0), V_STAGES, 1, COMPUTE_WARPS);
        init_ring(ds_full(0), ds_empty(0), DS_STAGES, COMPUTE_WARPS, 4 + (ALTERNATE ? COMPUTE_WARPS : 0));
        init_ring(piece_full(0), piece_empty(0), PIECE_SLOTS, 1, COMPUTE_WARPS + 4 + 3);
        init_ring(turn(0), added(0), TURN_STAGES, 5, 5);
        mbarrier_init(request(), 1);
        mbarrier_init_fence();
    }
};

// An arrival of a warp on this barrier of all blocks that share the piece: a buffer is handed back to each that fills it.
DEVICE void arrive_everywhere(u32 barrier) {
    arrive(barrier);
}


// The helper warps of the Hopper backward (bwd_sm90.cu, whose names they use): who draws work, who loads, who takes turns and who passes them.
// None issues a product, so that none is late because of one.

// ---- Roles: scheduler -------------------------------------------------------------------------------------------------

constexpr int LOADS_AHEAD = 2;   // loads that are left when the next piece is drawn: drawing takes about as long
constexpr int PIECES_AHEAD = 3;  // short pieces that are left when more heads are drawn

// What the schedulers of single blocks and of pairs (backward_pair.cuh) have in common.
struct Publisher {
    const BackwardSm90Args &args;
    const Barriers barriers;

    const int key_heads, descending;  // heads from `descending` on ascend

    DEVICE Publisher(const BackwardSm90Args &a, const Barriers &b)
        : args(a), barriers(b), key_heads(a.heads / a.group), descending(descending_heads(key_heads, a.group)) {}

    // Key heads that travel as one item: several only where no one waits for turns.
    DEVICE int heads_together(const ListReader &list) const {
        const bool turns = load(&pointer<const ScheduleHeader>(args.schedule.header)->accumulator_rows) > 0;
        return turns ? 1 : chunk_of(list.blocks, args.heads / args.group);
    }
    // The item of a ticket. A row of queries brings q and dO and takes dQ, for every query head of the group that is under way.
    DEVICE Work decode(const ListReader &list, u64 ticket, int chunk) const {
        const int together = descending == 0 ? 1 : args.group;
        const float bytes = static_cast<float>(HEAD_DIM * 6 + HEAD_DIM_V * 2) * static_cast<float>(together * chunk);
        const int apart = chunk == 1 && descending > 0 ? key_heads - descending : 0;
        return decode_work(list, ticket, key_heads / chunk, 1, bytes, apart);
    }
    DEVICE bool ascends(int key_head) const { return key_head >= descending; }
    // Into shared memory: reading it again costs less than registers.
    DEVICE void keep(const Work &drawn, int chunk, Work &work) const {
        if (lane_index() == 0) {
            work = drawn;
            if (ascends(drawn.head * chunk)) work.block = (drawn.sequence.k_len - 1) / TILE_N - drawn.block;
        }
        warp_sync();
    }
    // An edge of the mask as row - column of a block's keys and the first query tile, if it is near enough for any tile to tell. own_row: of
    // its first key in the piece.
    static DEVICE int edge(const Work &work, i64 offset, int own_row = 0) {
        constexpr i64 FAR = 1 << 10, LONGEST = 1 << 30;
        const Sequence &s = work.sequence;
        offset = 0;
        const i64 at = static_cast<i64>(s.k_len) - s.q_len - static_cast<i64>(work.block) * TILE_N + offset - own_row;
        return static_cast<int>(larger(-LONGEST - FAR, smaller(at, FAR)));
    }
    DEVICE void publish(Ring<PIECE_SLOTS> &ring, const Piece &piece) const {
        if (lane_index() == 0) {
            mbarrier_wait(barriers.piece_empty(ring.slot), ring.parity ^ 1);
            piece_slot(ring.slot) = piece;
            mbarrier_arrive(barriers.piece_full(ring.slot));
        }
        warp_sync();
        ring.advance();
    }
    // Of keys that no query sees.
    static DEVICE void clear_keys(const Operand &out, int columns, const Work &work, int head, int heads) {
        const Sequence &s = work.sequence;
        const int first = work.block * TILE_N, count = smaller(TILE_N, s.k_len - first);
        for (int h = head; h < head + heads; h++)
            clear_rows(rows_of(out, s.k_batch, s.k_begin, h), first, count, columns);
    }
};

// One warp, all lanes together. It draws a piece when the loader is about to be through with the one before, no sooner: a piece that is held back
// would hold back all that wait for their turn after it. (Several heads travel together only where no one waits.) Keys that no query sees it writes
// itself, so that no one else ever meets a piece without steps.
struct Scheduler : Publisher {
    using Publisher::Publisher;

    DEVICE void run() const {
        const ListReader list(args.schedule);
        const int chunk = heads_together(list);
        Work &work = *shared_pointer<Work>(WORK_OFFSET);
        Ring<PIECE_SLOTS> ring;
        u32 request_parity = 0;
        for (;;) {
            u64 ticket = 0;
            if (lane_index() == 0) ticket = atomic_add(&pointer<ScheduleHeader>(args.schedule.header)->ticket, 1);
            const Work drawn = decode(list, shuffle(ticket, 0), chunk);
            if (!drawn.more) break;
            keep(drawn, chunk, work);
            const Mask mask(work.sequence, args.window_left, args.window_right);
            const Range tiles = mask.query_tiles<TILE_M, TILE_N>(work.block);
            const int head = work.head * chunk;
            if (tiles.end <= tiles.begin) {
                clear_keys(args.dk, HEAD_DIM, work, head, chunk);
                clear_keys(args.dv, HEAD_DIM_V, work, head, chunk);
                warp_sync();
                continue;
            }
            const Range before = mask.query_tiles<TILE_M, TILE_N>(work.block - 1);
            const Range after = mask.query_tiles<TILE_M, TILE_N>(work.block + 1);
            const Range whole = mask.whole_query_tiles<TILE_M, TILE_N>(work.block);
            const int request = larger(chunk - PIECES_AHEAD, 0);
            for (int i = 0; i < chunk; i++)
                publish(ring, {work.sequence, head + i, work.block, tiles.begin, tiles.end, whole.begin,
                               larger(whole.end - whole.begin, 0), edge(work, -static_cast<i64>(args.window_left)),
                               edge(work, args.window_right), after.end > after.begin ? after.begin : tiles.end,
                               work.block > 0 ? before.end : 0, (tiles.end - tiles.begin) * args.group, i == request,
                               ascends(head + i)});
            if (lane_index() == 0) mbarrier_wait(barriers.request(), request_parity);
            warp_sync();
            request_parity ^= 1;
        }
        publish(ring, {});
    }
};

// Goes through all pieces and steps in the order in which everyone does. Visit: (piece, head, tile).
template <class Visit> DEVICE void visit_steps(const Barriers &barriers, int group, Visit visit) {
    Ring<PIECE_SLOTS> pieces;
    Steps steps;
    for (;;) {
        mbarrier_wait(barriers.piece_full(pieces.slot), pieces.parity);
        const Piece &piece = piece_slot(pieces.slot);
        if (piece.steps == 0) break;
        for (steps.begin(piece); steps.left > 0; steps.advance(group))
            visit(piece, steps.head(piece, group), steps.tile, steps.left);
        mbarrier_arrive(barriers.piece_empty(pieces.slot));
        pieces.advance();
    }
}

// ---- Roles: loader ----------------------------------------------------------------------------------------------------

// One thread: keeps the rings of q and dO full, and k and v of the piece.
struct Loader {
    const BackwardSm90Args &args;
    const u32 shared;
    const Barriers barriers;
    Ring<Q_STAGES> q_ring;
    Ring<DOUT_STAGES> dout_ring;
    Ring<K_STAGES> k_ring;
    Ring<V_STAGES> v_ring;

    DEVICE Loader(const BackwardSm90Args &a, u32 shared_base, const Barriers &b)
        : args(a), shared(shared_base), barriers(b) {}

    DEVICE void run() {
        visit_steps(barriers, args.group, [this](const Piece &piece, int head, int tile, int left) {
            const bool fresh = left == piece.steps;
            load_q(piece, head, tile);
            if (fresh) load_k(piece);
            load_dout(piece, head, tile);
            if (fresh) load_v(piece);
            if (left == smaller(LOADS_AHEAD, piece.steps) && piece.request) mbarrier_arrive(barriers.request());
        });
    }

  private:
    DEVICE void load_q(const Piece &piece, int head, int tile) {
        const Sequence &s = piece.sequence;
        const u32 full = barriers.q_full(q_ring.slot);
        const int first = tile * TILE_M;
        const u32 statistics = smaller(TILE_M, s.q_len - first) * 16;  // bytes: rows past the end are no one's to read
        mbarrier_wait(barriers.q_empty(q_ring.slot), q_ring.parity ^ 1);
        mbarrier_arrive_expect(full, QTile::BYTES + statistics);
        load_rows<QTile, 0>(piece, shared + Q_OFFSET + q_ring.slot * QTile::BYTES, args.q, full, first, head);
        bulk_load(shared + STATISTICS_OFFSET + q_ring.slot * STATISTICS_BYTES,
                  pointer<const Vector4>(args.stats) + (head * args.stat_rows + s.stat_row + first), statistics, full);
        q_ring.advance();
    }
    DEVICE void load_dout(const Piece &piece, int head, int tile) {
        const u32 full = barriers.dout_full(dout_ring.slot);
        mbarrier_wait(barriers.dout_empty(dout_ring.slot), dout_ring.parity ^ 1);
        mbarrier_arrive_expect(full, DoutTile::BYTES);
        load_rows<DoutTile, 1>(piece, shared + DOUT_OFFSET + dout_ring.slot * DoutTile::BYTES, args.dout, full,
                               tile * TILE_M, head);
        dout_ring.advance();
    }
    // Of a piece that two blocks share, that of RANK loads for both.
    template <class Tile, u32 RANK>
    DEVICE void load_rows(const Piece &piece, u32 to, const TensorMap &map, u32 full, int first, int head) const {
        const Sequence &s = piece.sequence;
        Tile::load(to, map, full, s.q_begin, first, s.q_len, head, s.q_batch);
    }
    DEVICE void load_k(const Piece &piece) {
        const Sequence &s = piece.sequence;
        const u32 full = barriers.k_full(k_ring.slot);
        mbarrier_wait(barriers.k_empty(k_ring.slot), k_ring.parity ^ 1);
        mbarrier_arrive_expect(full, KTile::BYTES);
        KTile::load(shared + K_OFFSET + k_ring.slot * KTile::BYTES, args.k, full, s.k_begin, piece.first_key(),
                    key_limit(s), piece.key_head, s.k_batch);
        k_ring.advance();
    }
    DEVICE void load_v(const Piece &piece) {
        const Sequence &s = piece.sequence;
        const u32 full = barriers.v_full(v_ring.slot);
        mbarrier_wait(barriers.v_empty(v_ring.slot), v_ring.parity ^ 1);
        mbarrier_arrive_expect(full, VTile::BYTES);
        VTile::load(shared + V_OFFSET + v_ring.slot * VTile::BYTES, args.v, full, s.k_begin, piece.first_key(),
                    key_limit(s), piece.key_head, s.k_batch);
        v_ring.advance();
    }
    // A block without keys of its own (k_len 0) loads one that is never looked at.
    static DEVICE int key_limit(const Sequence &s) {
        return s.k_len;
    }
};

// ---- Roles: turns -----------------------------------------------------------------------------------------------------

// One thread each, so that the dQ warpgroup neither polls memory nor fences.
struct Turns {
    const BackwardSm90Args &args;
    const Barriers barriers;

    // Waits, ahead of the dQ warpgroup, until the key tiles before this one have added.
    DEVICE void take() const {
        Ring<TURN_STAGES> ring;
        visit_steps(barriers, args.group, [&](const Piece &piece, int head, int tile, int) {
            if (piece.first(tile)) return;
            const Mask mask(piece.sequence, args.window_left, args.window_right);
            const Range adding = mask.key_tiles<TILE_M, TILE_N>(tile);
            const int before = piece.ascending ? piece.block - adding.begin : adding.end - 1 - piece.block;
            global_wait_at_least(turn(piece, head, tile), CLUSTER * static_cast<u32>(before));
            mbarrier_wait(barriers.turn(ring.slot), ring.parity ^ 1);
            mbarrier_arrive(barriers.turn(ring.slot));
            ring.advance();
        });
    }
    // Says, after the dQ warpgroup's additions, that this key tile has added.
    DEVICE void pass() const {
        Ring<TURN_STAGES> ring;
        visit_steps(barriers, args.group, [&](const Piece &piece, int head, int tile, int) {
            if (piece.last(tile)) return;
            mbarrier_arrive(barriers.added(ring.slot));
            mbarrier_wait(barriers.added(ring.slot), ring.parity);
            global_release_add(turn(piece, head, tile), 1);
            ring.advance();
        });
    }

  private:
    DEVICE u32 *turn(const Piece &piece, int head, int tile) const {
        return turn_of(args.turns, head, args.accumulator_rows, piece.sequence.accumulator_row, tile);
    }
};
// The warpgroup of the Hopper backward that sums dQ (bwd_sm90.cu, whose names it uses).

// ---- Roles: dQ --------------------------------------------------------------------------------------------------------

// A warpgroup: dQ of a query tile from both groups' dS, a panel of 64 columns at a time, added to memory from registers.
struct Accumulator {
    const BackwardSm90Args &args;
    const u32 shared;
    const Barriers barriers;
    Ring<DS_STAGES> ds_ring;
    Ring<K_STAGES> k_ring;
    RingPlace<TURN_STAGES> turn_ring, added_ring;
    static constexpr int BLOCK_FLOATS = GROUP_THREADS * 4;  // of eight columns of a tile

    DEVICE Accumulator(const BackwardSm90Args &a, u32 shared_base, const Barriers &b)
        : args(a), shared(shared_base), barriers(b) {}

    DEVICE void run() {
        Ring<PIECE_SLOTS> pieces;
        Steps steps;
        for (;;) {
            mbarrier_wait(barriers.piece_full(pieces.slot), pieces.parity);
            const Piece &piece = piece_slot(pieces.slot);
            if (piece.steps == 0) break;
            wait_for_k(piece);
#pragma unroll 1
            for (steps.begin(piece); steps.left > 0; steps.advance(args.group)) step(piece, steps);
            warp_sync();
            arrive(barriers.k_empty(k_ring.slot));
            k_ring.advance();
            arrive(barriers.piece_empty(pieces.slot));
            pieces.advance();
        }
    }

  private:
    DEVICE void wait_for_k(const Piece &) const { mbarrier_wait(barriers.k_full(k_ring.slot), k_ring.parity); }
    DEVICE void step(const Piece &piece, const Steps &steps) {
        const int head = steps.head(piece, args.group), tile = steps.tile;
        const bool first = piece.first(tile), last = piece.last(tile);
        float *sum =
            accumulator_tile(args.accumulator, head, args.accumulator_rows, piece.sequence.accumulator_row, tile) +
            accumulator_element(thread_index() / WARP % 4, 0);
        if (last && !first) wait_turn();  // all others have added
        own_panels(piece, head, tile, first, last, sum);
        ds_ring.advance();
        if (!last) {
            mbarrier_wait(barriers.added(added_ring.slot()), added_ring.parity() ^ 1);
            warp_sync();
            arrive(barriers.added(added_ring.slot()));
            added_ring.advance();
        }
    }
    DEVICE void own_panels(const Piece &piece, int head, int tile, bool first, bool last, float *sum) {
        panel<0>(piece, head, tile, first, last, sum);
        if constexpr (QTile::COUNT > 1) panel<1>(piece, head, tile, first, last, sum);
        if constexpr (QTile::COUNT > 2) panel<2>(piece, head, tile, first, last, sum);
        if constexpr (QTile::COUNT > 3) panel<3>(piece, head, tile, first, last, sum);
    }

    template <int PANEL> DEVICE void panel(const Piece &piece, int head, int tile, bool first, bool last, float *sum) {
        constexpr int LEFT = HEAD_DIM - PANEL * PANEL_COLUMNS, COLUMNS = LEFT < PANEL_COLUMNS ? LEFT : PANEL_COLUMNS;
        float dq[COLUMNS / 2];
        sum += PANEL * PANEL_COLUMNS / 8 * BLOCK_FLOATS;
        begin<COLUMNS>(dq, sum, first, last);
        if (PANEL == 0) {
            mbarrier_wait(barriers.ds_full(ds_ring.slot), ds_ring.parity);
        }
        const u64 ds = DsTile::columns_operand(shared + DS_OFFSET + ds_ring.slot * DsTile::BYTES);
        const u32 k_panel = shared + K_OFFSET + k_ring.slot * KTile::BYTES + PANEL * KTile::PANEL_BYTES;
        // The slot is the same in all lanes, which the compiler does not see: it would keep descriptors where registers are short.
        const u64 k = KTile::columns_operand(K_STAGES > 1 ? uniform(k_panel) : k_panel);
        wgmma_fence();
        issue<COLUMNS>(dq, ds, k);
        wgmma_commit();
        if (PANEL == 0 && !last && !first) wait_turn();
        wgmma_wait<0>();
        pin(dq);
        if (PANEL == QTile::COUNT - 1) arrive_everywhere(barriers.ds_empty(ds_ring.slot));
        end<COLUMNS>(dq, piece, head, tile, first, last, sum, PANEL * PANEL_COLUMNS);
    }

    // What is added to: the sum in memory, if this block is the last that adds to it, or zeros. real: columns that dQ has, of COLUMNS.
    template <int COLUMNS>
    DEVICE void begin(float (&dq)[COLUMNS / 2], const float *sum, bool first, bool last, int real = COLUMNS) const {
        if (last && !first) {
#pragma unroll
            for (int c = 0; c < COLUMNS / 8; c++) {
                Float4 v = {0, 0, 0, 0};
                if (!DQ_CLIPPED || 8 * c < real)
                    v = load_relaxed(reinterpret_cast<const Float4 *>(sum + c * BLOCK_FLOATS));
                dq[4 * c] = v.x;
                dq[4 * c + 1] = v.y;
                dq[4 * c + 2] = v.z;
                dq[4 * c + 3] = v.w;
            }
        } else {
#pragma unroll
            for (int i = 0; i < COLUMNS / 2; i++) dq[i] = 0.0f;
        }
        pin(dq);
    }
    template <int COLUMNS> static DEVICE void issue(float (&dq)[COLUMNS / 2], u64 ds, u64 k) {
#pragma unroll
        for (int i = 0; i < SLOT_KEYS / 16; i++)
            wgmma_ss<COLUMNS, MN_MAJOR, MN_MAJOR>(dq, descriptor_plus(ds, DsTile::columns_step(i)),
                                                  descriptor_plus(k, KTile::columns_step(i)), 1);
    }
    template <int COLUMNS> DEVICE void end(const float (&dq)[COLUMNS / 2], const Piece &piece, int head, int tile,
                                           bool first, bool last, float *sum, int column, int real = COLUMNS) const {
        if (last) {
            const Sequence &s = piece.sequence;
            const int row = tile * TILE_M + thread_index() / WARP % 4 * 16 + lane_index() / 4;
            store_accumulator(rows_of(args.dq, s.q_batch, s.q_begin, head), column, row, s.q_len, dq,
                              args.scale / WEIGHT_UNIT, real);
            return;
        }
        if (first) {
#pragma unroll
            for (int c = 0; c < COLUMNS / 8; c++, sum += BLOCK_FLOATS)
                if (!DQ_CLIPPED || 8 * c < real)
                    store(reinterpret_cast<Float4 *>(sum),
                          Float4{dq[4 * c], dq[4 * c + 1], dq[4 * c + 2], dq[4 * c + 3]});
        } else {
#pragma unroll
            for (int c = 0; c < COLUMNS / 8; c++, sum += BLOCK_FLOATS)
                if (!DQ_CLIPPED || 8 * c < real)
                    reduce_add(sum, {dq[4 * c], dq[4 * c + 1], dq[4 * c + 2], dq[4 * c + 3]});
        }
    }

    // Until this block may add to the tile.
    DEVICE void wait_turn() {
        arrive(barriers.turn(turn_ring.slot()));
        mbarrier_wait(barriers.turn(turn_ring.slot()), turn_ring.parity());
        turn_ring.advance();
    }
};
// The compute warpgroups of the Hopper backward (bwd_sm90.cu, whose names it uses), where dK and dV of 64 keys fit the registers of one.

// ---- Roles: compute ---------------------------------------------------------------------------------------------------

// A warpgroup: 64 keys of a piece. Order of asynchronous work, each name a group of products, i a step:
//
//     dP(i)                     issued when P(i) is in registers, dV(i) behind it with WHOLE_WEIGHTS
//       dS(i) = P(i) dP(i)      tensor cores: the other warpgroups
//     S(i + 1)  dK(i)           issued when dS(i) is in shared memory, dV(i) before them without: a warp stalls at issue, so nothing that is
//                               not needed soon comes early. Under the first of these the group's warps wait for each other
//       P(i + 1)                tensor cores: dK(i), and the other warpgroups
struct Compute {
    const BackwardSm90Args &args;
    const u32 shared;
    const Barriers barriers;
    const int group, warp;  // warp: within the group
    const Weigher weigher;
    Ring<Q_STAGES> q_ring;  // of the newest S
    Ring<DOUT_STAGES> dout_ring;
    KeyRing<K_STAGES> k_ring;
    KeyRing<V_STAGES> v_ring;
    KeyRing<DS_STAGES> ds_ring;
    Ring<PIECE_SLOTS> piece_ring;
    Walk walk;                // of the newest S
    bool dout_there = false;  // of the step to come

    float dk[HEAD_DIM / 2], dv[HEAD_DIM_V / 2];
    Scores s, dp;  // alive together only with WHOLE_WEIGHTS
    Weights p;
    u32 k_rows[(HEAD_DIM + 15) / 16][4], v_rows[(HEAD_DIM_V + 15) / 16][4];  // with KV_REGISTERS
    bool coarse = false;
    u32 with_shift[4];
    u32 with_delta[4];

    DEVICE Compute(const BackwardSm90Args &a, u32 shared_base, const Barriers &b, int group_index, int warp_index)
        : args(a), shared(shared_base), barriers(b), group(group_index), warp(warp_index), weigher(a.scale, a.softcap),
          k_ring(group_index), v_ring(group_index), ds_ring(group_index), walk{a.group} {}

    DEVICE void run() {
        with_shift[0] = with_shift[1] = shift_ones();
        with_shift[2] = with_shift[3] = 0;
        with_delta[0] = with_delta[1] = delta_ones();
        with_delta[2] = with_delta[3] = 0;
        for (;;) {
            mbarrier_wait(barriers.piece_full(piece_ring.slot), piece_ring.parity);
            const int steps = piece().steps;
            if (steps == 0) break;
            first_scores();
            weigh();
            if constexpr (!KV_REGISTERS) mbarrier_wait(barriers.v_full(v_ring.slot), v_ring.parity);
            // No more than dK is in flight where the loop closes, and the last step is a copy of its own: ptxas serialises all products if registers
            // that ordinary code touches are in flight across a back edge, or a branch surrounds a product.
            int old_q = -1;
#pragma unroll 1
            while (walk.steps.left > 1) step<false>(old_q);
            step<true>(old_q);
            pin(dk);
            pin(dv);
            release_dk(old_q, true);
            store_keys();
            k_ring.advance();
            v_ring.advance();
            warp_sync();
            arrive(barriers.piece_empty(piece_ring.slot));
            piece_ring.advance();
        }
    }

  private:
    // The newest dK, if there is one, is complete.
    DEVICE void release_dk(int q, bool any) const {
        arrive(barriers.q_empty(q), any);
    }
    DEVICE const Piece &piece() const { return piece_slot(piece_ring.slot); }
    DEVICE int part() const {
        return group;
    }
    DEVICE u32 q_tile(u32 slot) const { return shared + Q_OFFSET + slot * QTile::BYTES; }
    DEVICE u32 dout_tile() const { return shared + DOUT_OFFSET + dout_ring.slot * DoutTile::BYTES; }
    // This group's first row in buffers of K, V and dS.
    DEVICE int tile_row() const { return KEY_RINGS == 1 ? part() * GROUP_ROWS : 0; }
    DEVICE u32 k_tile() const { return shared + K_OFFSET + k_ring.slot * KTile::BYTES + tile_row() * PANEL_PITCH; }
    DEVICE u32 v_tile() const { return shared + V_OFFSET + v_ring.slot * VTile::BYTES + tile_row() * PANEL_PITCH; }
    DEVICE u32 statistics() const { return shared + STATISTICS_OFFSET + q_ring.slot * STATISTICS_BYTES; }
    // This lane's first row in the tile of keys.
    DEVICE int first_row() const { return part() * GROUP_ROWS + warp * 16 + lane_index() / 4; }
    template <int N> static DEVICE void pin_fragments(u32 (&f)[N][4]) {
#pragma unroll
        for (int i = 0; i < N; i++) pin(f[i]);
    }

    // Sums are cleared, S of the first query tile is complete.
    DEVICE void first_scores() {
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 2; i++) dk[i] = 0.0f;
#pragma unroll
        for (int i = 0; i < HEAD_DIM_V / 2; i++) dv[i] = 0.0f;
        pin(dk);  // the zeros are in place before the first product
        pin(dv);
        mbarrier_wait(barriers.q_full(q_ring.slot), q_ring.parity);
        mbarrier_wait(barriers.k_full(k_ring.slot), k_ring.parity);
        if constexpr (KV_REGISTERS) load_rows<KTile>(k_rows, k_tile());
        issue_scores();
        walk.begin(piece(), part() * GROUP_ROWS);
        if constexpr (KV_REGISTERS) {
            mbarrier_wait(barriers.v_full(v_ring.slot), v_ring.parity);
            load_rows<VTile>(v_rows, v_tile());
            warp_sync();
            arrive(barriers.v_empty(v_ring.slot));
        }
        wgmma_wait<0>();
        pin(s);
    }
    template <class Tile, int N> DEVICE void load_rows(u32 (&f)[N][4], u32 tile) const {
#pragma unroll
        for (int k = 0; k < N; k++) ldmatrix_x4(f[k], Tile::fragment(tile, warp * 16, k));
    }

    // From P of a tile to P of the next, with dK of the tile in flight; LAST: to the end of all products.
    template <bool LAST> DEVICE void step(int &old_q) {
        const u32 ds = shared + DS_OFFSET + ds_ring.slot * DsTile::BYTES;
        if (!dout_there) mbarrier_wait(barriers.dout_full(dout_ring.slot), dout_ring.parity);
        dout_there = false;
        issue_weight_gradients();
        if constexpr (WHOLE_WEIGHTS) issue_dv();
        const bool ds_room = mbarrier_passed(barriers.ds_empty(ds_ring.slot), ds_ring.parity ^ 1);
        wgmma_wait<WHOLE_WEIGHTS ? 1 : 0>();  // dK of the tile before and dP are complete
        pin(dp);
        release_dk(old_q, old_q >= 0);
        if constexpr (LAST && !KV_REGISTERS) arrive(barriers.v_empty(v_ring.slot));
        store_ds(ds, ds_room);
        const u32 q = q_ring.slot;
        old_q = static_cast<int>(q);
        q_ring.advance();
        if constexpr (!LAST) mbarrier_wait(barriers.q_full(q_ring.slot), q_ring.parity);
        fence_async_proxy();
        // Under the products that are issued first the group's warps come together.
        if constexpr (!WHOLE_WEIGHTS) issue_dv();
        if constexpr (WHOLE_WEIGHTS && !LAST) issue_scores();
        share_ds();
        if constexpr (!WHOLE_WEIGHTS && !LAST) issue_scores();
        issue_dk(ds, q);
        if constexpr (!LAST) walk.advance(piece(), part() * GROUP_ROWS);
        wgmma_wait<LAST ? 0 : 1>();  // dV and the next S are complete
        pin_fragments(p);
        arrive(barriers.dout_empty(dout_ring.slot));
        dout_ring.advance();
        if constexpr (!LAST) {
            pin(s);
            dout_there = mbarrier_passed(barriers.dout_full(dout_ring.slot), dout_ring.parity);
            weigh();
        }
    }

    DEVICE void weigh() {
        const auto hide = [this](Scores &x, float value) { walk.hide(piece(), x, first_row(), value); };
        coarse = weigher.weigh(s, p, walk.partial, hide);
    }

    // dS of a tile into shared memory, for dK here and for the dQ warpgroup. Hidden gradients, which may be anything, become 0.
    DEVICE void store_ds(u32 ds, bool room) {
        walk.hide(piece(), dp, first_row(), 0.0f);
        if (!room) mbarrier_wait(barriers.ds_empty(ds_ring.slot), ds_ring.parity ^ 1);
        if (!WHOLE_WEIGHTS && MAY_BE_COARSE && coarse)
            write_ds<true>(ds);
        else
            write_ds<false>(ds);
    }
    // Rows of all warps of the group are in place.
    DEVICE void share_ds() {
        named_barrier_sync(1 + group, GROUP_THREADS);
        arrive(barriers.ds_full(ds_ring.slot));
        ds_ring.advance();
    }
    template <bool COARSE> DEVICE void write_ds(u32 ds) {
        const int first = tile_row() + warp * 16;
#pragma unroll
        for (int k = 0; k < TILE_M / 16; k++) {
            u32 word[4];
            score_gradients<COARSE>(word, s, p, dp, k);
            stmatrix_x4(DsTile::fragment(ds, first, k), word[0], word[1], word[2], word[3]);
        }
    }

    // acc = statistics of the columns times ones.
    DEVICE void issue_statistics(Scores &acc, const u32 (&ones)[4]) const {
        const u32 at = statistics();
        wgmma_rs_bf16<TILE_M>(acc, ones, plain_descriptor(at, shared + ZEROS_OFFSET - at, 128), 0);
    }
    // S^T of the newest query tile, with its shift.
    DEVICE void issue_scores() {
        const u64 a = KTile::rows_operand(k_tile()), b = QTile::rows_operand(q_tile(q_ring.slot));
        wgmma_fence();
        issue_statistics(s, with_shift);
#pragma unroll
        for (int k = 0; k < (HEAD_DIM + 15) / 16; k++) {
            const u64 columns = descriptor_plus(b, QTile::rows_step(k));
            if constexpr (KV_REGISTERS)
                wgmma_rs<TILE_M, K_MAJOR>(s, k_rows[k], columns, SCORES_ACCUMULATE || k > 0);
            else
                wgmma_ss<TILE_M, K_MAJOR, K_MAJOR>(s, descriptor_plus(a, KTile::rows_step(k)), columns,
                                                   SCORES_ACCUMULATE || k > 0);
        }
        wgmma_commit();
    }
    // dP^T - delta.
    DEVICE void issue_weight_gradients() {
        const u64 a = VTile::rows_operand(v_tile()), b = DoutTile::rows_operand(dout_tile());
        wgmma_fence();
        issue_statistics(dp, with_delta);
#pragma unroll
        for (int k = 0; k < (HEAD_DIM_V + 15) / 16; k++) {
            const u64 columns = descriptor_plus(b, DoutTile::rows_step(k));
            if constexpr (KV_REGISTERS)
                wgmma_rs<TILE_M, K_MAJOR>(dp, v_rows[k], columns, 1);
            else
                wgmma_ss<TILE_M, K_MAJOR, K_MAJOR>(dp, descriptor_plus(a, VTile::rows_step(k)), columns, 1);
        }
        wgmma_commit();
    }
    // dV += P^T dO.
    DEVICE void issue_dv() {
        const u64 b = DoutTile::columns_operand(dout_tile());
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < TILE_M / 16; k++)
            wgmma_rs<HEAD_DIM_V, MN_MAJOR>(dv, p[k], descriptor_plus(b, DoutTile::columns_step(k)), 1);
        wgmma_commit();
    }
    // dK += dS^T Q.
    DEVICE void issue_dk(u32 ds, u32 q) {
        const u64 a = DsTile::rows_operand(ds + tile_row() * PANEL_PITCH);
        const u64 b = QTile::columns_operand(q_tile(q));
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < TILE_M / 16; k++)
            wgmma_ss<HEAD_DIM, K_MAJOR, MN_MAJOR>(dk, descriptor_plus(a, DsTile::rows_step(k)),
                                                  descriptor_plus(b, QTile::columns_step(k)), 1);
        wgmma_commit();
    }

    DEVICE void store_keys() const {
        const Sequence &q = piece().sequence;
        const int head = piece().key_head;
        const Rows to_dv = rows_of(args.dv, q.k_batch, q.k_begin, head);
        const Rows to_dk = rows_of(args.dk, q.k_batch, q.k_begin, head);
        const float dv_factor = 1.0f / WEIGHT_UNIT, dk_factor = args.scale / WEIGHT_UNIT;
        const int row = piece().first_key() + first_row();
        store_accumulator(to_dv, 0, row, q.k_len, dv, dv_factor);
        store_accumulator(to_dk, 0, row, q.k_len, dk, dk_factor);
    }
};

// ---- Entry ------------------------------------------------------------------------------------------------------------

KERNEL(THREADS, 1) vf_bwd_sm90_d96_bf16_causal(PARAMETER BackwardSm90Args args) {
    const int warp = uniform(thread_index() / WARP), group = warp / 4;
    const u32 shared = shared_address(shared_memory());
    const Barriers barriers = {shared + BARRIERS_OFFSET};
    allow_successor();
    if (thread_index() == 0) {
        barriers.initialise();
        prefetch_tensor_map(args.q);
        prefetch_tensor_map(args.k);
        prefetch_tensor_map(args.v);
        prefetch_tensor_map(args.dout);
    }
    // Rows of statistics that no copy writes (past a sequence's end) are multiplied too.
    for (int i = thread_index(); i < (Q_STAGES + 1) * STATISTICS_BYTES / 16; i += THREADS)
        store_shared(shared + STATISTICS_OFFSET + i * 16, Vector4{0, 0, 0, 0});
    fence_async_proxy();
    block_sync();
    if (group < GROUPS) {
        increase_registers<COMPUTE_REGISTERS>();
        Compute(args, shared, barriers, group, warp % 4).run();
    } else if (group == GROUPS) {
        decrease_registers<DQ_REGISTERS>();
        wait_for_predecessor();
        Accumulator(args, shared, barriers).run();
    } else {
        decrease_registers<HELPER_REGISTERS>();
        wait_for_predecessor();
        if (warp % 4 == 0) Scheduler(args, barriers).run();
        if (warp % 4 == 1 && lane_index() == 0) Loader(args, shared, barriers).run();
        if (warp % 4 == 2 && lane_index() == 0) Turns{args, barriers}.take();
        if (warp % 4 == 3 && lane_index() == 0) Turns{args, barriers}.pass();
    }
}
