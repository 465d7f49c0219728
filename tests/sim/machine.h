// machine.h - the simulated machine, as kernels and the CPU versions of ptx/ see it.
//
// Everything here is an opaque call: to the compiler each may read and write any memory whose address has escaped, as an asm with a
// memory clobber would. Addresses u32 are in the shared window. Warp-wide functions are for all 32 lanes together.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sim {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = unsigned long long;
using i64 = long long;

// ---- identity: constant within a thread, so the compiler may keep it ------------------------------------------------
__attribute__((const)) u32 thread_x();
__attribute__((const)) u32 block_x();
__attribute__((const)) u32 grid_x();
__attribute__((const)) u32 cluster_rank();
__attribute__((const)) unsigned char *shared_memory();

// ---- shared memory ----------------------------------------------------------------------------------------------------
u32 shared_address(const void *pointer);
void load_shared(u32 address, void *to, u32 bytes);
void store_shared(u32 address, const void *from, u32 bytes);

// ---- warps ------------------------------------------------------------------------------------------------------------
enum class Shuffle { INDEX, UP, XOR, UNIFORM };  // UNIFORM: lane 0's, and all must have the same
u64 shuffle(u64 value, u32 argument, Shuffle kind);
u32 ballot(bool predicate);
void sync_warp();
// Matrices of 8 rows of 16 bytes; lanes 8 i ... 8 i + 7 give the rows of matrix i.
void load_matrices(u32 address, u32 *registers, u32 count, bool transposed);
void store_matrices(u32 address, const u32 *registers, u32 count, bool transposed);
// mma.m16n8k16 (b of two registers, a of four) or m16n8k8 (one, two).
void multiply(float *c, const u32 *a, const u32 *b, u32 k, bool half);

// ---- barriers ---------------------------------------------------------------------------------------------------------
void barrier_sync(u32 id, u32 threads);  // threads 0: all that have not exited
void barrier_arrive(u32 id, u32 threads);
void mbarrier_init(u32 barrier, u32 arrivals);
void mbarrier_init_fence();
void mbarrier_arrive(u32 barrier, u32 bytes);
bool mbarrier_passed(u32 barrier, u32 parity);
void mbarrier_wait(u32 barrier, u32 parity);
void set_registers(u32 registers, bool increase);

// ---- global memory ----------------------------------------------------------------------------------------------------
enum class Atomic { ADD, MINIMUM };
u64 atomic(u64 *address, u64 value, Atomic operation);
u32 atomic(u32 *address, u32 value, Atomic operation);
void reduce_add(float *address, const float *values, u32 count);
void global_wait_at_least(const u32 *address, u32 expected);
void global_release_add(u32 *address, u32 value);
void wait_for_predecessor();
void allow_successor();

// ---- asynchronous copies ----------------------------------------------------------------------------------------------
void async_copy(u32 shared, const void *global, u32 size, u32 bytes);  // cp.async: the last size - bytes are zeros
void async_commit();
void async_wait(u32 pending);
void tensor_load(u32 shared, const void *map, u32 barrier, const int *coordinates, u32 rank);
void tensor_store(const void *map, u32 shared, const int *coordinates, u32 rank);
void bulk_load(u32 shared, const void *global, u32 bytes, u32 barrier);
void bulk_commit();
void bulk_wait(u32 pending, bool read_only);
void fence_async_proxy();

// ---- clusters: peer addresses are those of another block's shared memory, a kind of their own ------------------------
u32 peer_address(u32 shared, u32 rank);
void own_address(u32 shared);  // a finding, if it is none
void cluster_sync();
void mbarrier_arrive_peer(u32 peer_barrier);
void bulk_copy_peer(u32 peer_shared, u32 shared, u32 bytes, u32 peer_barrier);
void tensor_load_multicast(u32 shared, const void *map, u32 barrier, const int *coordinates, u32 rank, u32 blocks);

// ---- wgmma ------------------------------------------------------------------------------------------------------------
// d, and a in registers, are read and written when the product happens, not when it is issued.
struct Product {
    float *d;
    u32 columns;
    bool half, a_rows_contiguous, b_rows_contiguous, accumulate;  // rows: the index that is not contracted
    bool a_in_registers;
    u64 a, b;                  // descriptors
    const u32 *a_register[4];  // of this lane
};
void wgmma(const Product &product);
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(u32 pending);

// ---- what hooks.cpp, linked into every kernel, needs ------------------------------------------------------------------
constexpr size_t STACK_BYTES = 64 << 10;
// A fiber's stack, and for each word of it when it was last accessed, counted in wgmma.fences: the count goes on from fiber to fiber. What
// products in flight have of it lies between two addresses, null if there is none.
struct Stack {
    char *low;
    u32 *touched;
    u32 fences;
    char *flights_low, *flights_high;
};
struct RunningStack {
    Stack *of;
    bool watched;  // the kernel has wgmma: its registers are looked at too
    u64 accesses;
    u64 limit;  // of accesses in one turn: more are an endless loop
};
extern RunningStack stack;
void in_flight(const char *p, size_t bytes, bool write, const void *pc);  // an access between these addresses
void access(void *pointer, size_t bytes, bool write, const void *pc);
void endless(const void *pc);
void undefined(const char *what, const void *pc);

}  // namespace sim
