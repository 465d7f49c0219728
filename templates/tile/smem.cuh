// Tiles of 16-bit elements in shared memory, and the addresses at which ldmatrix reads their fragments.
//
// A row of COLUMNS elements is COLUMNS / 8 chunks of 16 bytes, without padding. ldmatrix reads one chunk column of eight rows at a
// time; those eight chunks must lie in eight different groups of four banks. They do if the number of chunks is odd. If it is even,
// the chunk index is XORed with the row bits that would otherwise collide:
//
//     chunks % 8 == 0    chunk ^ (row & 7)            every row starts at the same bank
//     chunks % 4 == 0    chunk ^ (row >> 1 & 3)       every second row does
//     chunks % 2 == 0    chunk ^ (row >> 2 & 1)       every fourth row does
//
// so every head size, 72 as well as 64, is stored exactly and read without conflicts.

//% include "attn/element.cuh"
//% include "ptx/mma.cuh"

template <int COLUMNS> struct SharedTile {
    static_assert(COLUMNS % 8 == 0, "a row is whole chunks of 16 bytes");
    static constexpr int CHUNKS = COLUMNS / 8;
    static constexpr int PITCH = COLUMNS * 2;
    static constexpr int SWIZZLE_BITS = CHUNKS % 8 == 0 ? 3 : CHUNKS % 4 == 0 ? 2 : CHUNKS % 2 == 0 ? 1 : 0;

    static DEVICE u32 swizzle(u32 row) { return (row >> (3 - SWIZZLE_BITS)) & ((1u << SWIZZLE_BITS) - 1); }
    // Byte offset of a chunk.
    static DEVICE u32 offset(u32 row, u32 chunk) { return row * PITCH + ((chunk ^ swizzle(row)) << 4); }
};

// Where this lane's row of an ldmatrix.x4 lies. Two arrangements serve all operands (rows and chunk columns of the four matrices):
//     DOWN    rows 0-7, 8-15 of chunk 0, then of chunk 1      A as [m][k], and B as [k][n] (trans)
//     ACROSS  rows 0-7 of chunks 0, 1, then rows 8-15         B as [n][k], and A as [k][m] (trans)
enum Arrangement { DOWN, ACROSS };

template <int COLUMNS, Arrangement ARRANGEMENT> struct FragmentAddress {
    using Tile = SharedTile<COLUMNS>;
    // Pairs of chunks that the swizzle permutes among themselves; its lowest bit only swaps the chunks of a pair.
    static constexpr u32 PAIRS = Tile::SWIZZLE_BITS > 1 ? 1u << (Tile::SWIZZLE_BITS - 1) : 1;
    u32 tile;  // shared address of row 0
    u32 lane;  // this lane's row and swizzled chunk, in bytes: the only part that differs between lanes

    // Rows given to at() are multiples of 8, so the lane's swizzle is fixed.
    DEVICE explicit FragmentAddress(u32 tile_address) : tile(tile_address) {
        const u32 index = static_cast<u32>(lane_index());
        const u32 row = ARRANGEMENT == DOWN ? index & 15 : (index & 7) + (index >> 4 << 3);
        lane = opaque(Tile::offset(row, ARRANGEMENT == DOWN ? index >> 4 : index >> 3 & 1));
    }
    // Address for the 16 rows from `row` and the 16 columns from 16 * pair.
    DEVICE u32 at(int row, int pair) const {
        const u32 p = static_cast<u32>(pair);
        return (lane ^ (p % PAIRS * 32)) + (tile + static_cast<u32>(row) * Tile::PITCH + p / PAIRS * PAIRS * 32);
    }
};
