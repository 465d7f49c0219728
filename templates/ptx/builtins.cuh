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
