// wgmma.mma_async, sm_90a, ISA 8.0: asynchronous products of a warpgroup, 128 threads, with float32 accumulation.
//
//     d[64 x N] (+)= a[64 x 16] * b[16 x N]      16-bit operands; b, and a in the ss form, in shared memory through descriptors
//
// Fragments of d, with w = warp of the group, g = lane / 4, t = lane % 4: d[4 n + 2 h + i] is row 16 w + g + 8 h, column 8 n + 2 t + i.
// Those of a in registers are mma.m16n8k16's, on the warp's 16 rows: columns 16 k ... of an accumulator, packed, are fragment k.
//
// Registers of a product in flight must not be touched before the matching wait. Operands are arrays passed by reference and never copied
// between issue and wait; `pin` keeps the compiler from moving their uses across a fence or a wait.
// WHY no `if` around a product: ptxas serialises all products of a function when control flow round one looks divergent (C7510 ... C7519).

// Shared-memory matrix descriptor (PTX ISA, "Matrix Descriptor Format") for tiles of 128-byte rows under the 128-byte swizzle, groups of
// 8 rows 1024 bytes apart. leading: bytes between panels of 64 columns, for an operand with its M or N index contiguous that is wider than one.
DEVICE u64 matrix_descriptor(u32 shared, u32 leading) {
    constexpr u64 SWIZZLE_128 = 1ull << 62;
    constexpr u64 GROUP = static_cast<u64>(1024 >> 4) << 32;
    return static_cast<u64>((shared & 0x3FFFF) >> 4) | static_cast<u64>(leading >> 4) << 16 | GROUP | SWIZZLE_128;
}
// The descriptor `bytes` further on. Within a swizzled row of 128 bytes, columns are that many bytes on as without swizzle.
DEVICE u64 descriptor_plus(u64 descriptor, u32 bytes) { return descriptor + (bytes >> 4); }

// wgmma.fence: what was written to registers of d and a before is seen by products that follow.
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most PENDING of this warpgroup's groups are incomplete.
template <int PENDING> DEVICE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

template <int N> DEVICE void pin(float (&r)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(r[i])::"memory");
}
template <int N> DEVICE void pin(u32 (&r)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(r[i])::"memory");
}

// Whether an operand's rows (the index that is not contracted) are contiguous: K_MAJOR, the contracted index is.
constexpr int K_MAJOR = 0;
constexpr int MN_MAJOR = 1;

// a from shared memory. `accumulate` 0: d is overwritten.
template <int N, int A_MAJOR, int B_MAJOR> DEVICE void wgmma_ss(float (&d)[N / 2], u64 a, u64 b, int accumulate);
// a from registers.
template <int N, int B_MAJOR> DEVICE void wgmma_rs(float (&d)[N / 2], const u32 (&a)[4], u64 b, int accumulate);

//% for _, n in ipairs(budget.wgmma_columns) do
//% local ss, rs = ptx.wgmma(n, dtype, 1), ptx.wgmma(n, dtype, 4)
//% for _, major in ipairs({ { 0, 0 }, { 0, 1 }, { 1, 0 }, { 1, 1 } }) do
template <> DEVICE void wgmma_ss<$(n), $(major[1]), $(major[2])>(float (&d)[$(ss.kept)], u64 a, u64 b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, $(ss.flag), 0;\n"
        "$(ss.head) $(ss.accumulators), $(ss.a), $(ss.b), p, 1, 1, $(major[1]), $(major[2]); }"
        : $(ss.outputs)
        : "l"(a), "l"(b), "r"(accumulate));
}
//% end -- major
//% for b_major = 0, 1 do
template <> DEVICE void wgmma_rs<$(n), $(b_major)>(float (&d)[$(rs.kept)], const u32 (&a)[4], u64 b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, $(rs.flag), 0;\n"
        "$(rs.head) $(rs.accumulators), $(rs.a), $(rs.b), p, 1, 1, $(b_major); }"
        : $(rs.outputs)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}
//% end -- b_major
//% end -- n
