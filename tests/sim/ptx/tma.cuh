// The copy engine.

DEVICE void prefetch_tensor_map(const TensorMap &) {}
DEVICE void tma_load_5d(u32 shared, const TensorMap &map, u32 barrier, int c0, int c1, int c2, int c3, int c4) {
    const int c[5] = {c0, c1, c2, c3, c4};
    sim::tensor_load(shared, &map, barrier, c, 5);
}
DEVICE void tma_store_5d(const TensorMap &map, u32 shared, int c0, int c1, int c2, int c3, int c4) {
    const int c[5] = {c0, c1, c2, c3, c4};
    sim::tensor_store(&map, shared, c, 5);
}
DEVICE void bulk_load(u32 shared, const void *global, u32 bytes, u32 barrier) {
    sim::bulk_load(shared, global, bytes, barrier);
}
DEVICE void bulk_commit() { sim::bulk_commit(); }
template <int PENDING> DEVICE void bulk_wait_read() { sim::bulk_wait(PENDING, true); }
template <int PENDING> DEVICE void bulk_wait() { sim::bulk_wait(PENDING, false); }
DEVICE void fence_async_proxy() { sim::fence_async_proxy(); }
