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
//% if cc >= 90 then
DEVICE void reduce_add(float *address, const float (&v)[4]) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(address), "f"(v[0]), "f"(v[1]),
                 "f"(v[2]), "f"(v[3])
                 : "memory");
}
//% end -- cc
