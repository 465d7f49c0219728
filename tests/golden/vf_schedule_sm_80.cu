// vf_schedule: generated from templates/schedule.cu.
//
//   varflash show --spec 'kernel=schedule arch=sm_80'
//
// Budget: 1024 threads, 4136 bytes of shared memory, 1 blocks per SM, 64 registers per thread.

// ---- Contract ---------------------------------------------------------------------------------------------------------
//
// Turns lengths on the device into the work lists that the attention kernels draw from. O(batch), no host in between: a captured graph
// replays it with other lengths in the same buffers.
//
//     cu_seqlens, seqused  ->  by_q: entries in blocks of tile_m rows of q    by_k: entries in blocks of tile_n rows of k
//
// An entry is a sequence, or a gap: rows of the list's side where no token lives (past seqused, between sequences, before the first, after
// the last). A gap is an entry whose other side is empty: rows that see nothing are written as zeros anyway, and a batch
// without gaps pays nothing. Entries stand in decreasing order of the other side's length (what one block of an entry costs), to within an
// eighth of an octave: a counting sort. Their order among equals is arbitrary; no result depends on it.
//
// A few sequences without gaps are placed by one warp. Another small batch is counted and placed by one block of threads in one launch. A large one
// is divided into shares, a block of threads each, and takes two: each block counts its share, then each places its own, knowing from the counts of
// all where it begins.
//
// Whatever the lengths say, every range lies inside the tensors, and no two share a row: all clamping is here, once. Where cu_seqlens fall, sequences
// would overlap, and could add up to more than there is room for: of such a batch the lists are empty.

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



constexpr int THREADS = 1024;
constexpr int BINS = 256;               // 8 an octave of lengths below 2^30; the last is for empty sides
constexpr i64 LONGEST = (1 << 30) - 1;  // rows of an entry: tile arithmetic of the attention kernels is 32-bit

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

// Lengths as the caller's tensors give them: int32 or int64, possibly absent. Only schedule.cu and check_lengths.cu read them.


// A length as it is loaded: two words, of an int32 the same one twice, so that nothing branches on the type and nothing waits for memory.
struct RawLength {
    u32 low, high;
};
DEVICE RawLength load_length(const Lengths &lengths, i64 index) {
    const u32 *words = pointer<const u32>(lengths.data) + index * (1 + lengths.wide);
    return {load(words), load(words + lengths.wide)};
}
DEVICE i64 length_of(const Lengths &lengths, const RawLength &raw) {
    const i64 wide = static_cast<i64>(static_cast<u64>(raw.high) << 32 | raw.low);
    return lengths.wide ? wide : static_cast<i64>(static_cast<int>(raw.low));
}
DEVICE i64 read_length(const Lengths &lengths, i64 index) { return length_of(lengths, load_length(lengths, index)); }

DEVICE i64 clamp(i64 value, i64 low, i64 high) { return smaller(larger(value, low), high); }
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

// ---- Shared memory ----------------------------------------------------------------------------------------------------

// A bin counts entries in its upper 28 bits and their blocks in its lower 36, so that one addition moves both: a batch has fewer than 2^27 sequences,
// and of its 2^39 rows, unless lengths fall, each is in one block only. After the scan it holds the position and the first block of its next entry.
constexpr int COUNT_SHIFT = 36;
constexpr u64 ONE_ENTRY = static_cast<u64>(1) << COUNT_SHIFT;
constexpr u64 BLOCKS_MASK = ONE_ENTRY - 1;

constexpr int LISTS = 2;                         // by q, by k
constexpr int ACCUMULATOR_BIN = LISTS * BINS;    // blocks of dQ accumulators
constexpr int BROKEN_BIN = ACCUMULATOR_BIN + 1;  // sequences that end before they begin
constexpr int ALL_BINS = BROKEN_BIN + 1;

struct Shared {
    u64 bins[ALL_BINS];
    u64 totals[LISTS + 1];
};
static_assert(sizeof(Shared) == 4136, "the kernel and its budget agree");
static_assert(sizeof(SchedulePart) == sizeof(Shared::bins), "a part is a share's bins");

// ---- Barriers ---------------------------------------------------------------------------------------------------------
//
// Block syncs between the steps: clear, count or gather, scan, place.

// ---- Lengths ----------------------------------------------------------------------------------------------------------

// One side of one sequence.
struct Side {
    i64 begin;
    int used;  // rows; negative: it ends before it begins
    i64 gap;   // rows behind them where no token lives
};
struct Sides {
    Side q, k;
};

// What is read of a side, not yet looked at, so that all of a sequence's loads are under way together.
struct RawSide {
    RawLength begin, end, used;
};
DEVICE RawSide load_side(const Lengths &cu, const Lengths &used, i64 index) {
    RawSide raw = {};
    if (cu.data) {
        raw.begin = load_length(cu, index);
        raw.end = load_length(cu, index + 1);
    }
    if (used.data) raw.used = load_length(used, index);
    return raw;
}
DEVICE Side clamp_side(const RawSide &raw, const Lengths &cu, const Lengths &used, bool last, i64 rows) {
    const i64 begin = cu.data ? clamp(length_of(cu, raw.begin), 0, rows) : 0;
    const i64 end = cu.data ? clamp(length_of(cu, raw.end), 0, rows) : rows;
    const i64 slot = end - begin;
    const i64 length = clamp(used.data ? clamp(length_of(used, raw.used), 0, slot) : slot, -1, LONGEST);
    return {begin, static_cast<int>(length), (cu.data && last ? rows : end) - begin - length};
}

// ---- Bins -------------------------------------------------------------------------------------------------------------

// Longer sides get lower bins.
DEVICE int bin_of(int length) {
    if (length <= 0) return BINS - 1;
    const int octave = 31 - leading_zeros(length);
    const int eighth = octave >= 3 ? length >> (octave - 3) & 7 : length << (3 - octave) & 7;
    return BINS - 2 - (octave * 8 + eighth);
}

DEVICE u32 blocks_of(int rows, int tile) {
    return (static_cast<u32>(rows) + static_cast<u32>(tile) - 1) / static_cast<u32>(tile);
}

// Of a number a lane, the sum up to this lane.
template <class Number> DEVICE Number sum_up_to(Number own) {
    Number sum = own;
#pragma unroll
    for (int distance = 1; distance < WARP; distance *= 2) {
        const Number lower = shuffle_up(sum, distance);
        if (lane_index() >= distance) sum += lower;
    }
    return sum;
}

// Adds an entry of `blocks` blocks to a bin for each of `lanes`, all lanes of the warp taking part; gives what stood there before. Equal bins,
// the common case of equal lengths, cost one atomic for the warp.
DEVICE u64 take(u64 *bins, int bin, u32 blocks, u32 lanes) {
    const bool active = lanes >> lane_index() & 1;
    const int common = shuffle(bin, lowest_bit(lanes));
    if (warp_any(active && bin != common)) return active ? atomic_add(&bins[bin], ONE_ENTRY + blocks) : 0;
    const u32 own = active ? blocks : 0;
    const u32 sum = sum_up_to(own);
    u64 before = 0;
    if (lane_index() == WARP - 1) before = atomic_add(&bins[common], population(lanes) * ONE_ENTRY + sum);
    const u32 lower_lanes = lanes & ((1u << lane_index()) - 1);
    return shuffle(before, WARP - 1) + population(lower_lanes) * ONE_ENTRY + (sum - own);
}

// ---- Roles ------------------------------------------------------------------------------------------------------------

struct Scheduler {
    const ScheduleArgs &args;
    Shared &shared;

    DEVICE SchedulePart *parts() const { return pointer<SchedulePart>(args.parts); }
    DEVICE const Schedule &list(int k_side) const { return k_side ? args.by_k : args.by_q; }
    DEVICE int tile(int k_side) const { return k_side ? args.tile_n : args.tile_m; }
    static DEVICE int slot(const Lengths &cu, i64 index) { return cu.data ? 0 : static_cast<int>(index); }

    // An entry of a list for every lane that has rows.
    DEVICE void add(bool placing, int k_side, const Sequence &sequence, int rows, int other, bool active) const {
        const u32 lanes = warp_ballot(active && rows > 0);
        if (lanes == 0) return;
        const u64 at = take(shared.bins + k_side * BINS, bin_of(other), blocks_of(rows, tile(k_side)), lanes);
        if (!placing || (lanes >> lane_index() & 1) == 0) return;
        const i64 position = static_cast<i64>(at >> COUNT_SHIFT);
        store(pointer<i64>(list(k_side).first_block) + position, static_cast<i64>(at & BLOCKS_MASK));
        store(pointer<Sequence>(list(k_side).sequences) + position, sequence);
    }
    // The gaps beside a sequence: the one behind it, and that before the first.
    DEVICE void add_gaps(bool placing, int k_side, const Side &side, i64 index, bool active) const {
        const Lengths &cu = k_side ? args.cu_k : args.cu_q;
#pragma unroll 1
        for (int lead = 0; lead < 2; lead++) {
            // A slot of a batched tensor begins at 0.
            i64 begin = lead ? 0 : side.begin + side.used, rows = !lead ? side.gap : index == 0 ? side.begin : 0;
#pragma unroll 1
            while (warp_any(active && rows > 0)) {
                const int count = static_cast<int>(smaller(rows, LONGEST));
                Sequence gap = {};
                (k_side ? gap.k_begin : gap.q_begin) = begin;
                (k_side ? gap.k_len : gap.q_len) = count;
                gap.accumulator_row = -1;
                (k_side ? gap.k_batch : gap.q_batch) = slot(cu, index);
                add(placing, k_side, gap, count, 0, active);
                begin += count;
                rows -= count;
            }
        }
    }

    // Whether dQ of a sequence is summed in memory: its keys take more than one tile.
    DEVICE bool accumulates(const Sequence &s) const { return s.k_len > args.tile_n && s.q_len > 0; }
    // Rows of dQ accumulators, if there is anything to sum.
    DEVICE void allocate(bool placing, Sequence &s, bool active) const {
        if (args.by_k.header == 0) return;
        const u32 lanes = warp_ballot(active && accumulates(s));
        if (lanes == 0) return;
        const u32 blocks = blocks_of(s.q_len, args.tile_m);
        const i64 at = static_cast<i64>(take(shared.bins + ACCUMULATOR_BIN, 0, blocks, lanes) & BLOCKS_MASK);
        if (placing && (lanes >> lane_index() & 1) != 0) s.accumulator_row = at * args.tile_m;
    }

    // Without rows of accumulators.
    DEVICE Sequence sequence_of(const Sides &sides, i64 index) const {
        Sequence s;
        s.q_begin = sides.q.begin;
        s.k_begin = sides.k.begin;
        s.stat_row = args.cu_q.data ? sides.q.begin : index * args.q_rows;
        s.accumulator_row = -1;
        s.q_len = sides.q.used;
        s.k_len = sides.k.used;
        s.q_batch = slot(args.cu_q, index);
        s.k_batch = slot(args.cu_k, index);
        return s;
    }

    DEVICE void add_sequence(bool placing, const Sides &sides, i64 index, bool active) const {
        Sequence s = sequence_of(sides, index);
        if (!placing && smaller(s.q_len, s.k_len) < 0) atomic_add(&shared.bins[BROKEN_BIN], 1);
        allocate(placing, s, active);
        // Not unrolled, here and in gaps: the code is fetched anew by every launch.
#pragma unroll 1
        for (int k_side = 0; k_side < LISTS; k_side++) {
            if (list(k_side).header == 0) continue;
            const Side side = k_side ? sides.k : sides.q;
            add(placing, k_side, s, side.used, k_side ? sides.q.used : sides.k.used, active);
            if (args.fill != 0) add_gaps(placing, k_side, side, index, active);
        }
    }

    // A packed batch of no sequences is all gap: it is walked as one empty sequence.
    DEVICE Sides sides_of(i64 index) const {
        const bool any = args.batch > 0, last = index >= args.batch - 1;
        RawSide q = {}, k = {};
        if (any && index < args.batch) {
            q = load_side(args.cu_q, args.used_q, index);
            k = load_side(args.cu_k, args.used_k, index);
        }
        return {clamp_side(q, args.cu_q, args.used_q, last, args.q_rows),
                clamp_side(k, args.cu_k, args.used_k, last, args.k_rows)};
    }

    // ---- few sequences ----

    // Whether anyone asks for rows of a side where no token lives.
    DEVICE bool has_gap(const Side &side, i64 index) const {
        return args.fill != 0 && (side.gap > 0 || (index == 0 && side.begin > 0));
    }
    // A list of sequences that are a lane each: one stands behind as many as come before it.
    DEVICE void place_few(int k_side, const Sequence &sequence, int rows, int other, u32 accumulator_blocks) const {
        const Schedule &to = list(k_side);
        const u32 blocks = blocks_of(rows, tile(k_side));
        u32 first = 0;
        int position = 0;
#pragma unroll 4
        for (int lane = 0; lane < WARP; lane++) {
            const u32 its_blocks = shuffle(blocks, lane);
            const int its_other = shuffle(other, lane);
            if (its_other > other || (its_other == other && lane < lane_index())) {
                first += its_blocks;
                position += its_blocks > 0;
            }
        }
        if (rows > 0) {
            store(pointer<i64>(to.first_block) + position, static_cast<i64>(first));
            store(pointer<Sequence>(to.sequences) + position, sequence);
        }
        // The last entry knows how many blocks there are.
        const int entries = population(warp_ballot(rows > 0));
        if (entries > 0 ? rows > 0 && position == entries - 1 : lane_index() == 0) {
            const i64 all = static_cast<i64>(first) + blocks;
            store(pointer<i64>(to.first_block) + entries, all);
            store(pointer<ScheduleHeader>(to.header),
                  ScheduleHeader{0, all, entries, static_cast<i64>(accumulator_blocks) * args.tile_m});
        }
    }
    // As many sequences as lanes at most, sound and without gaps: no bins, no block syncs, and a tenth of the code, which every launch fetches anew.
    // Every warp looks whether the batch is one of these, the first does the work. `sides`: of the sequence of this lane.
    DEVICE bool schedule_few(const Sides &sides, i64 count) const {
        const int lane = lane_index();
        const bool by_k = args.by_k.header != 0;
        if (warp_any(lane < count && (smaller(sides.q.used, sides.k.used) < 0 || has_gap(sides.q, lane) ||
                                      (by_k && has_gap(sides.k, lane)))))
            return false;
        if (thread_index() >= WARP) return true;
        Sequence s = sequence_of(sides, lane);
        if (lane >= count) s.q_len = s.k_len = 0;
        const u32 own = by_k && accumulates(s) ? blocks_of(s.q_len, args.tile_m) : 0, sum = sum_up_to(own);
        if (own > 0) s.accumulator_row = static_cast<i64>(sum - own) * args.tile_m;
        const u32 all = shuffle(sum, WARP - 1);
#pragma unroll 1
        for (int k_side = 0; k_side < LISTS; k_side++)
            if (list(k_side).header != 0)
                place_few(k_side, s, k_side ? s.k_len : s.q_len, k_side ? s.q_len : s.k_len, all);
        return true;
    }

    // ---- many sequences ----

    // The share's sequences, `own` being this thread's first. Whole warps stay in the loop together.
    DEVICE void walk(bool placing, const Sides &own, i64 begin, i64 end) const {
        Sides sides = own;
        for (i64 index = begin + thread_index();;) {
            add_sequence(placing, sides, index, index < end);
            index += THREADS;
            if (index - lane_index() >= end) break;
            sides = sides_of(index);
        }
    }

    // The counts of all shares, and in `before` of the earlier ones: a bin a thread.
    DEVICE u64 gather() const {
        const int bin = thread_index();
        u64 total = 0, before = 0;
        if (bin >= ALL_BINS) return before;
#pragma unroll 4
        for (int share = 0; share < grid_blocks(); share++) {
            const u64 count = load(&parts()[share].bins[bin]);
            total += count;
            before += share < block_index() ? count : 0;
        }
        shared.bins[bin] = total;
        return before;
    }

    // Exclusive prefix sum of a list's bins; one warp.
    DEVICE void scan(int k_side) const {
        constexpr int PER_LANE = BINS / WARP;
        u64 *bins = shared.bins + k_side * BINS + lane_index() * PER_LANE;
        u64 own = 0;
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) own += bins[i];
        const u64 sum = sum_up_to(own);
        if (lane_index() == WARP - 1) shared.totals[k_side] = sum;
        u64 next = sum - own;
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) {
            const u64 count = bins[i];
            bins[i] = next;
            next += count;
        }
    }

    DEVICE void close(int k_side, bool broken) const {
        if (list(k_side).header == 0) return;
        const u64 total = broken ? 0 : shared.totals[k_side], accumulators = broken ? 0 : shared.totals[LISTS];
        const i64 entries = static_cast<i64>(total >> COUNT_SHIFT);
        const i64 blocks = static_cast<i64>(total & BLOCKS_MASK);
        const i64 accumulator_blocks = static_cast<i64>(accumulators & BLOCKS_MASK);
        store(pointer<i64>(list(k_side).first_block) + entries, blocks);
        store(pointer<ScheduleHeader>(list(k_side).header),
              ScheduleHeader{0, blocks, entries, accumulator_blocks * args.tile_m});
    }

    // Turns counts into places; false if there is nothing to place. `before`: counts of earlier shares, a bin a thread.
    DEVICE bool turn_into_places(u64 before) const {
        const int thread = thread_index();
        const bool broken = shared.bins[BROKEN_BIN] != 0;
        if (thread < LISTS * WARP) scan(thread / WARP);
        if (thread == LISTS * WARP) {
            shared.totals[LISTS] = shared.bins[ACCUMULATOR_BIN];
            shared.bins[ACCUMULATOR_BIN] = 0;
        }
        block_sync();
        if (block_index() == 0 && thread < LISTS) close(thread, broken);
        if (broken) return false;
        if (args.counted != 0) {
            if (thread < ALL_BINS) shared.bins[thread] += before;
            block_sync();
        }
        return true;
    }

    DEVICE void run() const {
        const int thread = thread_index();
        const i64 packed = args.cu_q.data || args.cu_k.data ? 1 : 0, count = larger(args.batch, packed);
        const bool few = count <= WARP;
        const i64 begin = block_index() * args.share, end = smaller(begin + args.share, count);
        const Sides own = sides_of(few ? lane_index() : begin + thread);
        if (few && schedule_few(own, count)) return;
        const bool counted = args.counted != 0;
        for (int bin = thread; bin < ALL_BINS; bin += THREADS) shared.bins[bin] = 0;
        block_sync();
        u64 before = 0;
        if (counted) {
            wait_for_predecessor();
            before = gather();
            block_sync();
        }
        // Both walks are one piece of code: the second finds it fetched.
#pragma unroll 1
        for (int placing = counted; placing < 2; placing++) {
            if (placing != 0 && !turn_into_places(before)) return;
            walk(placing != 0, own, begin, end);
            block_sync();
            if (placing == 0 && args.parts != 0) {
                if (thread < ALL_BINS) store(&parts()[block_index()].bins[thread], shared.bins[thread]);
                return;
            }
        }
    }
};

// ---- Entry ------------------------------------------------------------------------------------------------------------

KERNEL(THREADS, 1) vf_schedule(PARAMETER ScheduleArgs args) {
    allow_successor();
    Scheduler{args, *shared_pointer<Shared>(0)}.run();
}
