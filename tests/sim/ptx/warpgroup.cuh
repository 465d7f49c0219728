// Groups of warps: register reallocation, named barriers, transposing stores.

template <int REGISTERS> DEVICE void increase_registers() { sim::set_registers(REGISTERS, true); }
template <int REGISTERS> DEVICE void decrease_registers() { sim::set_registers(REGISTERS, false); }

DEVICE void named_barrier_sync(int id, int threads) {
    sim::barrier_sync(static_cast<u32>(id), static_cast<u32>(threads));
}
DEVICE void named_barrier_arrive(int id, int threads) {
    sim::barrier_arrive(static_cast<u32>(id), static_cast<u32>(threads));
}

DEVICE void stmatrix_x4(u32 address, u32 r0, u32 r1, u32 r2, u32 r3) {
    const u32 r[4] = {r0, r1, r2, r3};
    sim::store_matrices(address, r, 4, false);
}
DEVICE void stmatrix_x4_trans(u32 address, u32 r0, u32 r1, u32 r2, u32 r3) {
    const u32 r[4] = {r0, r1, r2, r3};
    sim::store_matrices(address, r, 4, true);
}
