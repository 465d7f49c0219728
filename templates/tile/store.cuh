// Straight to rows in global memory. From a warpgroup's accumulators (ptx/wgmma.cuh): the four lanes that share a row trade their pieces of it, so
// that each stores whole 16 bytes and they 64 bytes side by side.

//% include "attn/element.cuh"
//% include "tile/rows.cuh"
//% if budget.scattered then
//% include "tile/global.cuh"
//% end -- scattered
//% include "ptx/warpgroup.cuh"

// Transposes 4 words across the 4 lanes of a quad: lane t ends with word t of lanes 0 ... 3.
DEVICE Vector4 quad_transpose(u32 w0, u32 w1, u32 w2, u32 w3) {
    const bool high = lane_index() & 2, odd = lane_index() & 1;
    const u32 a = shuffle_xor(high ? w0 : w2, 2), b = shuffle_xor(high ? w1 : w3, 2);
    const u32 x0 = high ? a : w0, x1 = high ? b : w1;  // from the lower pair's lane
    const u32 y0 = high ? w2 : a, y1 = high ? w3 : b;  // from the upper pair's lane
    const u32 c = shuffle_xor(odd ? x0 : x1, 1), d = shuffle_xor(odd ? y0 : y1, 1);
    return odd ? Vector4{c, x1, d, y1} : Vector4{x0, c, y0, d};
}

// The accumulator times `factor`, rounded, to columns column ... of the rows `row` and row + 8 (this lane's), those below `limit`. real: columns
// that the rows have there, a multiple of 8.
template <int COUNT> DEVICE void store_accumulator(const Rows &out, int column, int row, int limit,
                                                   const float (&d)[COUNT], float factor, int real = COUNT * 2) {
    constexpr int COLUMNS = COUNT * 2;
    const int own = lane_index() % 4 * 8;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        u16 *at = out.row(row + 8 * half) + column + own;
#pragma unroll
        for (int c = 0; c < COLUMNS; c += 32) {
            u32 word[4] = {0, 0, 0, 0};
#pragma unroll
            for (int g = 0; g < 4; g++) {
                const int i = (c / 8 + g) * 4 + 2 * half;
                if (c + 8 * g < COLUMNS) word[g] = pack(d[i] * factor, d[i + 1] * factor);
            }
            const Vector4 line = quad_transpose(word[0], word[1], word[2], word[3]);
            //% if budget.scattered then
            if (row + 8 * half < limit && c + own < real) store_chunk(at + c, line);
            //% else
            if (row + 8 * half < limit && c + own < real) store(reinterpret_cast<Vector4 *>(at + c), line);
            //% end -- scattered
        }
    }
}

// The same for the rows row ... row + 15 of a warp, through STAGING_BYTES of shared memory that are its own: eight rows of 64 columns at a time, with
// an eighth of the instructions that trading takes.
constexpr int STAGING_BYTES = 8 * 128;
template <int COUNT> DEVICE void store_through(u32 staging, const Rows &out, int column, int row, int limit,
                                               const float (&d)[COUNT], float factor) {
    constexpr int COLUMNS = COUNT * 2;
    const int lane = opaque(static_cast<u32>(lane_index()));  // addresses are not worth registers from before a loop
    const int own_row = lane / 8, chunk = lane % 8;  // as this lane loads and stores; chunks of a row are swizzled
    const int own_column = column + chunk * 8;
    u16 *to[4];  // or each would be computed at every store again
#pragma unroll
    for (int i = 0; i < 4; i++) to[i] = opaque(out.row(row + own_row + 4 * i) + own_column);
#pragma unroll
    for (int part = 0; part < COLUMNS; part += 64) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int c = 0; c < 8; c += 4) {
                u32 word[4] = {0, 0, 0, 0};
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int at = (part / 8 + c + i) * 4 + 2 * half;
                    if (at < COUNT) word[i] = pack(d[at] * factor, d[at + 1] * factor);
                }
                stmatrix_x4(staging + chunk * 128 + ((c + own_row) ^ chunk) * 16, word[0], word[1], word[2], word[3]);
            }
            warp_sync();
            Vector4 line[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int at = 4 * i + own_row;
                line[i] = load_shared(staging + at * 128 + (chunk ^ at) * 16);
            }
            warp_sync();
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (row + own_row + 8 * half + 4 * i < limit && part + chunk * 8 < COLUMNS)
                    store(reinterpret_cast<Vector4 *>(to[2 * half + i] + part), line[i]);
        }
    }
}

// Zeros in rows first ... first + count - 1; a whole warp.
DEVICE void clear_rows(const Rows &out, int first, int count, int columns) {
    const int chunks = columns / 8;
    for (int i = lane_index(); i < count * chunks; i += WARP)
        store(reinterpret_cast<Vector4 *>(out.row(first + i / chunks) + i % chunks * 8), Vector4{0, 0, 0, 0});
}
