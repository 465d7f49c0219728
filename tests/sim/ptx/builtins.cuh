// CUDA built-ins on the simulated machine: the same names as templates/ptx/builtins.cuh.

#include "kernel.h"

using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using f32 = float;
using u64 = unsigned long long;

#define DEVICE inline __attribute__((always_inline))
#define KERNEL(threads, blocks_per_sm) SIM_CLUSTER(1) extern "C" void
#define CLUSTER_KERNEL(threads, cluster) SIM_CLUSTER(cluster) extern "C" void
#define PARAMETER const

struct alignas(16) Vector4 {
    u32 x, y, z, w;
};
struct alignas(8) Float2 {
    float x, y;
};
struct alignas(16) Float4 {
    float x, y, z, w;
};
struct alignas(64) TensorMap {
    u64 opaque[16];
};

constexpr int WARP = 32;
constexpr u32 FULL_WARP = 0xFFFFFFFFu;

DEVICE int thread_index() { return static_cast<int>(sim::thread_x()); }
DEVICE int lane_index() { return static_cast<int>(sim::thread_x() % WARP); }
DEVICE int block_index() { return static_cast<int>(sim::block_x()); }
DEVICE int grid_blocks() { return static_cast<int>(sim::grid_x()); }

DEVICE unsigned char *shared_memory() { return sim::shared_memory(); }
template <typename T> DEVICE T *shared_pointer(int byte_offset) {
    return reinterpret_cast<T *>(shared_memory() + byte_offset);
}
DEVICE u32 shared_address(const void *pointer) { return sim::shared_address(pointer); }

template <typename T> DEVICE T *pointer(u64 address) { return reinterpret_cast<T *>(address); }

DEVICE void block_sync() { sim::barrier_sync(0, 0); }
DEVICE void warp_sync() { sim::sync_warp(); }

template <typename T> DEVICE T shuffle(T value, int lane) {
    return sim_narrow<T>(sim::shuffle(sim_widen(value), static_cast<u32>(lane), sim::Shuffle::INDEX));
}
template <typename T> DEVICE T shuffle_xor(T value, int mask) {
    return sim_narrow<T>(sim::shuffle(sim_widen(value), static_cast<u32>(mask), sim::Shuffle::XOR));
}
template <typename T> DEVICE T shuffle_up(T value, int distance) {
    return sim_narrow<T>(sim::shuffle(sim_widen(value), static_cast<u32>(distance), sim::Shuffle::UP));
}
template <typename T> DEVICE T opaque(T value) { return value; }
DEVICE bool unlikely(bool condition) { return condition; }
template <typename T> DEVICE T uniform(T value) {
    return sim_narrow<T>(sim::shuffle(sim_widen(value), 0, sim::Shuffle::UNIFORM));
}
DEVICE u32 warp_ballot(bool predicate) { return sim::ballot(predicate); }
DEVICE bool warp_any(bool predicate) { return sim::ballot(predicate) != 0; }

DEVICE int population(u32 bits) { return __builtin_popcount(bits); }
DEVICE int lowest_bit(u32 bits) { return __builtin_ffs(static_cast<int>(bits)) - 1; }
DEVICE int leading_zeros(u32 bits) { return bits ? __builtin_clz(bits) : 32; }

DEVICE float bits_to_float(u32 bits) { return sim_bits<float>(bits); }
DEVICE u32 float_to_bits(float value) { return sim_bits<u32>(value); }
DEVICE int float_to_signed(float value) { return sim_bits<int>(value); }

DEVICE u64 atomic_add(u64 *address, u64 value) { return sim::atomic(address, value, sim::Atomic::ADD); }
DEVICE u64 atomic_min(u64 *address, u64 value) { return sim::atomic(address, value, sim::Atomic::MINIMUM); }
