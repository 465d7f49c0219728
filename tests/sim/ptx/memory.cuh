// Loads, stores and asynchronous copies.

DECLARED(sim_has_async)

DEVICE void cp_async_16(u32 shared, const void *global, int bytes) {
    USED(sim_has_async);
    sim::async_copy(shared, global, 16, static_cast<u32>(bytes));
}
DEVICE void cp_async_8(u32 shared, const void *global, int bytes) {
    USED(sim_has_async);
    sim::async_copy(shared, global, 8, static_cast<u32>(bytes));
}
DEVICE void cp_async_commit() { sim::async_commit(); }
template <int PENDING> DEVICE void cp_async_wait() { sim::async_wait(PENDING); }

DEVICE void store_shared(u32 address, u32 value) { sim::store_shared(address, &value, sizeof value); }
DEVICE void store_shared(u32 address, Vector4 v) { sim::store_shared(address, &v, sizeof v); }
DEVICE Vector4 load_shared(u32 address) {
    Vector4 v;
    sim::load_shared(address, &v, sizeof v);
    return v;
}

template <typename T> DEVICE T load(const T *address) { return *address; }
template <typename T> DEVICE void store(T *address, T value) { *address = value; }
DEVICE void store(Vector4 *address, Vector4 v) { *address = v; }
DEVICE Vector4 load_once(const Vector4 *address) { return *address; }

DEVICE void reduce_add(float *address, float value) { sim::reduce_add(address, &value, 1); }
//% if cc >= 90 then
DEVICE void reduce_add(float *address, const float (&v)[4]) { sim::reduce_add(address, v, 4); }
//% end -- cc
