// wgmma: products that the machine lets happen between issue and wait. It watches the registers itself, so `pin` does nothing.

DECLARED(sim_has_wgmma)

DEVICE u64 matrix_descriptor(u32 shared, u32 leading) {
    sim::own_address(shared);
    constexpr u64 SWIZZLE_128 = 1ull << 62;
    constexpr u64 GROUP = static_cast<u64>(1024 >> 4) << 32;
    return static_cast<u64>((shared & 0x3FFFF) >> 4) | static_cast<u64>(leading >> 4) << 16 | GROUP | SWIZZLE_128;
}
DEVICE u64 descriptor_plus(u64 descriptor, u32 bytes) { return descriptor + (bytes >> 4); }

DEVICE void wgmma_fence() {
    USED(sim_has_wgmma);
    sim::wgmma_fence();
}
DEVICE void wgmma_commit() { sim::wgmma_commit(); }
template <int PENDING> DEVICE void wgmma_wait() { sim::wgmma_wait(PENDING); }

template <int N> DEVICE void pin(float (&)[N]) {}
template <int N> DEVICE void pin(u32 (&)[N]) {}

constexpr int K_MAJOR = 0;
constexpr int MN_MAJOR = 1;

template <int N, int A_MAJOR, int B_MAJOR> DEVICE void wgmma_ss(float (&d)[N / 2], u64 a, u64 b, int accumulate) {
    const sim::Product product = {
        d, N, $(dtype == "fp16"), A_MAJOR == MN_MAJOR, B_MAJOR == MN_MAJOR, accumulate != 0, false, a, b, {}};
    sim::wgmma(product);
}
template <int N, int B_MAJOR> DEVICE void wgmma_rs(float (&d)[N / 2], const u32 (&a)[4], u64 b, int accumulate) {
    const sim::Product product = {d, N, $(dtype == "fp16"),          false, B_MAJOR == MN_MAJOR, accumulate != 0, true,
                                  0, b, {&a[0], &a[1], &a[2], &a[3]}};
    sim::wgmma(product);
}
