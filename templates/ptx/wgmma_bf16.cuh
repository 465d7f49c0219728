// wgmma with bf16 operands whatever the kernel's own type, for what wants float32's range. Accumulators as in ptx/wgmma.cuh: products of both kinds
// may follow each other on the same ones.

//% include "ptx/wgmma.cuh"

// Matrix descriptor of an operand without swizzle, its contracted index contiguous: groups of 8 rows of 16 bytes, `group` bytes apart; `leading`:
// bytes to the next 8 of the contracted index.
DEVICE u64 plain_descriptor(u32 shared, u32 leading, u32 group) {
    return static_cast<u64>((shared & 0x3FFFF) >> 4) | static_cast<u64>(leading >> 4) << 16 |
           static_cast<u64>(group >> 4) << 32;
}

// a from registers, b with its contracted index contiguous.
template <int N> DEVICE void wgmma_rs_bf16(float (&d)[N / 2], const u32 (&a)[4], u64 b, int accumulate);

//% for _, n in ipairs(budget.wgmma_bf16_columns) do
//% local rs = ptx.wgmma(n, "bf16", 4)
template <> DEVICE void wgmma_rs_bf16<$(n)>(float (&d)[$(rs.kept)], const u32 (&a)[4], u64 b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, $(rs.flag), 0;\n"
        "$(rs.head) $(rs.accumulators), $(rs.a), $(rs.b), p, 1, 1, 0; }"
        : $(rs.outputs)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}
//% end -- n
