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
