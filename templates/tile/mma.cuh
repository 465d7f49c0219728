// Products of tiles: accumulators in registers, operands from shared memory or registers, by mma.sync.
//
// A warp's accumulators are float[M][N][4]: M blocks of 16 rows, N blocks of 8 columns (layout: ptx/mma.cuh). The contraction runs in
// steps of 16, in ascending order; a last step of 8 uses the half-size instruction, so nothing is padded. The order is part of the
// numerical contract: a step over zeros leaves every accumulator bit as it was.

//% include "tile/smem.cuh"

template <int M, int N> DEVICE void clear(float (&c)[M][N][4]) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) c[m][n][i] = 0.0f;
}

// A block of rows as one row of elements, in the order of a warpgroup's accumulators (ptx/wgmma.cuh).
template <int N> DEVICE float (&flat(float (&c)[N][4]))[4 * N] { return reinterpret_cast<float(&)[4 * N]>(c); }

DEVICE void mma_step(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) { mma_m16n8k16_$(dtype)(c, a, b0, b1); }
DEVICE void mma_half_step(float (&c)[4], const u32 (&a)[4], u32 b0) { mma_m16n8k8_$(dtype)(c, a[0], a[1], b0); }

// A operand stored as [m][k].
template <int COLUMNS> struct RowsOfA {
    FragmentAddress<COLUMNS, DOWN> address;
    int row;
    DEVICE void load(u32 (&a)[4], int m, int step) const { ldmatrix_x4(a, address.at(row + m * 16, step)); }
    DEVICE void load_half(u32 (&a)[4], int m, int step) const {
        ldmatrix_x2(a[0], a[1], address.at(row + m * 16, step));
    }
};
// A operand stored as [k][m]; `pair` is the first 16 columns of this warp.
template <int COLUMNS> struct ColumnsOfA {
    FragmentAddress<COLUMNS, ACROSS> address;
    int pair;
    DEVICE void load(u32 (&a)[4], int m, int step) const { ldmatrix_x4_trans(a, address.at(step * 16, pair + m)); }
};
// A operand in registers, loaded before.
template <int M, int STEPS> struct RegistersOfA {
    u32 fragment[M][STEPS][4];
    DEVICE void load(u32 (&a)[4], int m, int step) const {
#pragma unroll
        for (int i = 0; i < 4; i++) a[i] = fragment[m][step][i];
    }
    DEVICE void load_half(u32 (&a)[4], int m, int step) const {
        a[0] = fragment[m][step][0];
        a[1] = fragment[m][step][1];
    }
};
// A operand made of accumulators of an earlier product: the layouts agree, so a pair of blocks is rounded and packed in place.
template <int M, int N> struct AccumulatorsAsA {
    const float (&c)[M][N][4];
    DEVICE void load(u32 (&a)[4], int m, int step) const {
        a[0] = pack(c[m][2 * step][0], c[m][2 * step][1]);
        a[1] = pack(c[m][2 * step][2], c[m][2 * step][3]);
        a[2] = pack(c[m][2 * step + 1][0], c[m][2 * step + 1][1]);
        a[3] = pack(c[m][2 * step + 1][2], c[m][2 * step + 1][3]);
    }
};

// B operand stored as [n][k]. pair: two blocks of 8 columns of C, of which there are `blocks`. flip: that bit of the row is turned over, so that
// halves of rows change places.
template <int COLUMNS> struct RowsOfB {
    FragmentAddress<COLUMNS, ACROSS> address;
    int row, flip = 0;
    DEVICE int blocks(int wanted) const { return wanted; }
    DEVICE int at(int offset) const { return (row + offset) ^ flip; }
    DEVICE void load(u32 (&b)[4], int pair, int step) const { ldmatrix_x4(b, address.at(at(pair * 16), step)); }
    DEVICE void load_single(u32 (&b)[4], int pair, int step) const {
        ldmatrix_x2(b[0], b[1], address.at(at(pair * 16), step));
    }
    // The first 8 of 16 contraction columns, for block n.
    DEVICE void load_half(u32 &b, int n, int step) const { ldmatrix_x1(b, address.at(at(n * 8), step)); }
};
// B operand stored as [k][n], from column 16 * first_pair on. EXACT: all of the blocks asked for are there; else columns may end earlier,
// as they do for the last warp when warps share a row whose pairs don't divide evenly.
template <int COLUMNS, bool EXACT = true> struct ColumnsOfB {
    FragmentAddress<COLUMNS, DOWN> address;
    int first_pair;
    DEVICE int blocks(int wanted) const { return EXACT ? wanted : COLUMNS / 8 - 2 * first_pair; }
    DEVICE void load(u32 (&b)[4], int pair, int step) const {
        ldmatrix_x4_trans(b, address.at(step * 16, first_pair + pair));
    }
    DEVICE void load_single(u32 (&b)[4], int pair, int step) const {
        ldmatrix_x2_trans(b[0], b[1], address.at(step * 16, first_pair + pair));
    }
};

// c += A B over K columns of the contraction, a multiple of 16.
template <int K, int M, int N, typename A, typename B>
DEVICE void multiply(float (&c)[M][N][4], const A &a, const B &b) {
#pragma unroll
    for (int step = 0; step < K / 16; step++) {
        u32 fa[M][4];
#pragma unroll
        for (int m = 0; m < M; m++) a.load(fa[m], m, step);
#pragma unroll
        for (int pair = 0; pair < (N + 1) / 2; pair++) {
            const int blocks = b.blocks(N) - 2 * pair;
            u32 fb[4];
            if (2 * pair + 1 < N && blocks > 1) {
                b.load(fb, pair, step);
#pragma unroll
                for (int m = 0; m < M; m++) {
                    mma_step(c[m][2 * pair], fa[m], fb[0], fb[1]);
                    mma_step(c[m][2 * pair + 1], fa[m], fb[2], fb[3]);
                }
            } else if (blocks > 0) {
                b.load_single(fb, pair, step);
#pragma unroll
                for (int m = 0; m < M; m++) mma_step(c[m][2 * pair], fa[m], fb[0], fb[1]);
            }
        }
    }
}

// The last 8 columns of a contraction over K = 8 * odd: A stored as [m][k] or in registers, B stored as [n][k].
template <int K, int M, int N, typename A, typename B>
DEVICE void multiply_tail(float (&c)[M][N][4], const A &a, const B &b) {
    constexpr int STEP = K / 16;
    u32 fa[M][4];
#pragma unroll
    for (int m = 0; m < M; m++) a.load_half(fa[m], m, STEP);
#pragma unroll
    for (int n = 0; n < N; n++) {
        u32 fb;
        b.load_half(fb, n, STEP);
#pragma unroll
        for (int m = 0; m < M; m++) mma_half_step(c[m][n], fa[m], fb);
    }
}
