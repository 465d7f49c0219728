// wgmma with bf16 operands whatever the kernel's own type.

//% include "ptx/wgmma.cuh"

DEVICE u64 plain_descriptor(u32 shared, u32 leading, u32 group) {
    return static_cast<u64>((shared & 0x3FFFF) >> 4) | static_cast<u64>(leading >> 4) << 16 |
           static_cast<u64>(group >> 4) << 32;
}

template <int N> DEVICE void wgmma_rs_bf16(float (&d)[N / 2], const u32 (&a)[4], u64 b, int accumulate) {
    const sim::Product product = {d, N, false, false, false, accumulate != 0, true, 0, b, {&a[0], &a[1], &a[2], &a[3]}};
    sim::wgmma(product);
}
