// The float32 accumulators of dQ in global memory. A tile of TILE_M rows and HEAD_DIM columns is stored in the order in which the main
// kernel's warps hold it, so that every addition is contiguous across a warp; the finishing kernel reads it by the same mapping.
//
// DQ_ROW_WARPS warps stand one below the other; each has blocks of 16 rows and 8 columns, of which a lane has four elements
// (layout C of ptx/mma.cuh).

//% include "attn/types.cuh"
//% include "ptx/memory.cuh"

constexpr int DQ_ROW_WARPS = $(budget.dq_row_warps);
constexpr int DQ_ROW_BLOCKS = TILE_M / DQ_ROW_WARPS / 16;
constexpr int DQ_COLUMN_BLOCKS = HEAD_DIM / 8;

// Index of the four elements' group, counted over the tile: 128 floats a group and warp.
DEVICE int accumulator_group(int row_block, int column_block, int row_warp) {
    return (row_block * DQ_COLUMN_BLOCKS + column_block) * DQ_ROW_WARPS + row_warp;
}
// Index of element i of this lane in a group.
DEVICE int accumulator_element(int group, int i) {
    //% if cc >= 90 then
    return (group * WARP + lane_index()) * 4 + i;  // one vector of four
    //% else
    return (group * 4 + i) * WARP + lane_index();  // four scalars, each contiguous across the warp
    //% end -- cc
}
// A lane's four elements of a group.
DEVICE void add_to_group(float *tile, int group, const float (&v)[4]) {
    //% if cc >= 90 then
    reduce_add(tile + accumulator_element(group, 0), v);
    //% else
#pragma unroll
    for (int i = 0; i < 4; i++) reduce_add(tile + accumulator_element(group, i), v[i]);
    //% end -- cc
}
DEVICE void load_group(const float *tile, int group, float (&v)[4]) {
    //% if cc >= 90 then
    const Float4 whole = load(reinterpret_cast<const Float4 *>(tile + accumulator_element(group, 0)));
    v[0] = whole.x, v[1] = whole.y, v[2] = whole.z, v[3] = whole.w;
    //% else
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = load(tile + accumulator_element(group, i));
    //% end -- cc
}
// The tile of (head, row block).
DEVICE float *accumulator_tile(u64 base, int head, i64 rows, i64 first_row, int block) {
    return pointer<float>(base) + (head * rows + first_row + static_cast<i64>(block) * TILE_M) * HEAD_DIM;
}
// How often that tile has been added to.
DEVICE u32 *turn_of(u64 base, int head, i64 rows, i64 first_row, int block) {
    return pointer<u32>(base) + (head * (rows / TILE_M) + first_row / TILE_M + block);
}
