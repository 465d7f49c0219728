// Tiles between global memory and shared memory. Every offset is 64-bit from its first multiplication.

//% include "tile/smem.cuh"
//% include "tile/rows.cuh"
//% if cc >= 90 then
//% include "ptx/warpgroup.cuh"
//% end -- cc

//% if not aligned then
// Operands whose rows may start at any 2-byte address: elements travel one by one.
DEVICE Vector4 gather_chunk(const u16 *source) {
    u32 word[4];
#pragma unroll
    for (int i = 0; i < 4; i++) word[i] = load(source + 2 * i) | static_cast<u32>(load(source + 2 * i + 1)) << 16;
    return {word[0], word[1], word[2], word[3]};
}
//% end -- not aligned

// Starts copying one chunk to shared memory, or zeros in its place, whatever memory holds there (NaN times zero is NaN): then nothing is
// read. Complete after cp_async_wait.
DEVICE void load_chunk(u32 to, const u16 *from, bool inside) {
    //% if aligned then
    cp_async_16(to, from, inside ? 16 : 0);
    //% else
    store_shared(to, inside ? gather_chunk(from) : Vector4{0, 0, 0, 0});
    //% end -- aligned
}

// Starts copying rows first ... first + ROWS - 1 into a tile, by THREADS threads of which this is number `thread`. Rows from `limit` on
// become zeros.
template <int ROWS, int COLUMNS, int THREADS>
DEVICE void load_tile(u32 tile, const Rows &source, int first, int limit, int thread) {
    using Tile = SharedTile<COLUMNS>;
    constexpr int CHUNKS = Tile::CHUNKS;
    constexpr int PASSES = (ROWS * CHUNKS + THREADS - 1) / THREADS;
    constexpr int STEP = THREADS / CHUNKS;
    if constexpr (THREADS % (8 * CHUNKS) == 0) {
        // A thread keeps its chunk column, and its rows are 8 * k apart: one address, then additions.
        const int row = thread / CHUNKS, chunk = thread % CHUNKS;
        const u32 to = tile + Tile::offset(row, chunk);
        const u16 *from = source.row(first + row) + chunk * 8;
        const i64 advance = STEP * source.row_stride;
#pragma unroll
        for (int i = 0; i < PASSES; i++) {
            if (ROWS % STEP == 0 || row + i * STEP < ROWS)
                load_chunk(to + i * STEP * Tile::PITCH, from, first + row + i * STEP < limit);
            from += advance;
        }
    } else {
#pragma unroll
        for (int i = 0; i < PASSES; i++) {
            const int at = thread + i * THREADS;
            const int row = at / CHUNKS, chunk = at % CHUNKS;
            if (ROWS * CHUNKS % THREADS == 0 || at < ROWS * CHUNKS)
                load_chunk(tile + Tile::offset(row, chunk), source.row(first + row) + chunk * 8, first + row < limit);
        }
    }
}

// Writes one chunk of a row.
DEVICE void store_chunk(u16 *to, Vector4 value) {
    //% if aligned then
    store(reinterpret_cast<Vector4 *>(to), value);
    //% else
    const u32 word[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        store(to + 2 * i, static_cast<u16>(word[i]));
        store(to + 2 * i + 1, static_cast<u16>(word[i] >> 16));
    }
    //% end -- aligned
}

// Copies a tile out to rows first ... first + ROWS - 1 that are below `limit`, by THREADS threads of which this is number `thread`.
template <int ROWS, int COLUMNS, int THREADS>
DEVICE void store_tile(const Rows &target, u32 tile, int first, int limit, int thread) {
    using Tile = SharedTile<COLUMNS>;
    constexpr int CHUNKS = Tile::CHUNKS;
#pragma unroll
    for (int i = 0; i < (ROWS * CHUNKS + THREADS - 1) / THREADS; i++) {
        const int at = thread + i * THREADS;
        const int row = at / CHUNKS, chunk = at % CHUNKS;
        if ((ROWS * CHUNKS % THREADS == 0 || at < ROWS * CHUNKS) && first + row < limit)
            store_chunk(target.row(first + row) + chunk * 8, load_shared(tile + Tile::offset(row, chunk)));
    }
}

// Zeros in rows first ... first + ROWS - 1 that are below `limit`, by THREADS threads of which this is number `thread`.
template <int ROWS, int COLUMNS, int THREADS>
DEVICE void clear_rows(const Rows &target, int first, int limit, int thread) {
    constexpr int CHUNKS = COLUMNS / 8;
    for (int i = thread; i < ROWS * CHUNKS; i += THREADS)
        if (first + i / CHUNKS < limit)
            store_chunk(target.row(first + i / CHUNKS) + i % CHUNKS * 8, Vector4{0, 0, 0, 0});
}

// Puts a warp's accumulators, rounded, into a tile at (row, 8 * block), after multiplying row g + 8 h of block m by factor[m][h].
template <int COLUMNS, int M, int N>
DEVICE void put_accumulators(u32 tile, u32 row, u32 block, const float (&c)[M][N][4], const float (&factor)[M][2]) {
    const auto low = [&](int m, int n) { return pack(c[m][n][0] * factor[m][0], c[m][n][1] * factor[m][0]); };
    const auto high = [&](int m, int n) { return pack(c[m][n][2] * factor[m][1], c[m][n][3] * factor[m][1]); };
    //% if cc >= 90 then
    // Two blocks at once.
    constexpr int PAIRS = N / 2;
    const FragmentAddress<COLUMNS, DOWN> address(tile);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            stmatrix_x4(address.at(row + m * 16, block / 2 + i), low(m, 2 * i), high(m, 2 * i), low(m, 2 * i + 1),
                        high(m, 2 * i + 1));
    //% else
    constexpr int PAIRS = 0;
    //% end -- cc
    using Tile = SharedTile<COLUMNS>;
    const u32 g = static_cast<u32>(lane_index()) / 4, t = static_cast<u32>(lane_index()) % 4;
#pragma unroll
    for (int m = 0; m < M; m++) {
        const u32 r = row + m * 16 + g;
#pragma unroll
        for (int n = 2 * PAIRS; n < N; n++) {
            store_shared(tile + Tile::offset(r, block + n) + 4 * t, low(m, n));
            store_shared(tile + Tile::offset(r + 8, block + n) + 4 * t, high(m, n));
        }
    }
}
// The same with one factor for all.
template <int COLUMNS, int M, int N>
DEVICE void put_accumulators(u32 tile, u32 row, u32 block, const float (&c)[M][N][4], float factor) {
    float factors[M][2];
#pragma unroll
    for (int m = 0; m < M; m++) factors[m][0] = factors[m][1] = factor;
    put_accumulators<COLUMNS>(tile, row, block, c, factors);
}

// Two neighbouring elements.
DEVICE void store_pair(u16 *to, u32 pair) {
    //% if aligned then
    store(reinterpret_cast<u32 *>(to), pair);
    //% else
    store(to, static_cast<u16>(pair));
    store(to + 1, static_cast<u16>(pair >> 16));
    //% end -- aligned
}
