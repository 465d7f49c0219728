// Tiles as the copy engine writes them and wgmma reads them: panels of 64 columns, rows of 128 bytes under the 128-byte swizzle. A last panel
// that is not full holds zeros beyond the tile's columns.
//
// A map's rows are two dimensions of equal stride (the host encodes them): the first as long as the box, the second the tensor's rows, both
// counted from one box before the tensor. A box at (ROWS - n, row + n) keeps n rows from `row` on; the others lie outside the first dimension:
// they read as zeros and are never written. So one map serves any number of sequences, and no neighbour's row enters. A box keeps at least one
// row: of one that lies outside altogether the engine touches the map's first address, where there may be no memory (seen on an H200).

//% include "attn/types.cuh"
//% include "ptx/mbarrier.cuh"
//% include "ptx/tma.cuh"
//% include "ptx/wgmma.cuh"
//% if budget.cluster == 2 then
//% include "ptx/cluster.cuh"
//% end -- cluster

constexpr int PANEL_COLUMNS = 64;
constexpr int PANEL_PITCH = 128;

template <int ROWS, int COLUMNS> struct Panels {
    static constexpr int COUNT = (COLUMNS + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
    static constexpr int PANEL_BYTES = ROWS * PANEL_PITCH;
    static constexpr int BYTES = COUNT * PANEL_BYTES;
    static_assert(PANEL_BYTES % 1024 == 0, "a panel begins with the swizzle's pattern");

    // Starts loading rows first ... of one head; rows from `limit` (> 0) on are zeros, unless all are: then the last row comes instead. One
    // thread; the barrier expects BYTES.
    static DEVICE void load(u32 shared, const TensorMap &map, u32 barrier, i64 begin, int first, int limit, int head,
                            int batch) {
        load_panels<COUNT>(shared, map, barrier, 0, begin, first, limit, head, batch);
    }
    // Some panels of it, from `panel` on.
    template <int PANELS> static DEVICE void load_panels(u32 shared, const TensorMap &map, u32 barrier, int panel,
                                                         i64 begin, int first, int limit, int head, int batch) {
        const Box box(begin, first, limit);
#pragma unroll
        for (int i = 0; i < PANELS; i++)
            tma_load_5d(shared + i * PANEL_BYTES, map, barrier, (panel + i) * PANEL_COLUMNS, box.skipped, box.row, head,
                        batch);
    }
    //% if budget.cluster == 2 then
    // All of it, into both blocks of a pair; each one's barrier expects BYTES.
    static DEVICE void load_pair(u32 shared, const TensorMap &map, u32 barrier, i64 begin, int first, int limit,
                                 int head, int batch) {
        const Box box(begin, first, limit);
#pragma unroll
        for (int panel = 0; panel < COUNT; panel++)
            tma_load_5d_multicast(shared + panel * PANEL_BYTES, map, barrier, panel * PANEL_COLUMNS, box.skipped,
                                  box.row, head, batch, 3);
    }
    //% end -- cluster

    // Where this lane's row of fragment k, 16 rows from `first` on and 16 columns, is stored and loaded as matrices.
    static DEVICE u32 fragment(u32 shared, int first, int k) {
        const u32 row = first + lane_index() % 16, half = lane_index() / 16;
        return shared + k / 4 * PANEL_BYTES + row * PANEL_PITCH + ((k % 4 * 2 + half) ^ (row & 7)) * 16;
    }

    // As an operand whose rows are its M or N index, contracted over columns: the descriptor of columns 16 * step ...
    static DEVICE u64 rows_operand(u32 shared) { return matrix_descriptor(shared, 16); }
    static constexpr u32 rows_step(int step) { return step / 4 * PANEL_BYTES + step % 4 * 32; }
    // As an operand whose columns are its N index, contracted over rows: the descriptor of rows 16 * step ...
    static DEVICE u64 columns_operand(u32 shared) { return matrix_descriptor(shared, PANEL_BYTES); }
    static constexpr u32 columns_step(int step) { return step * 16 * PANEL_PITCH; }

  private:
    // Where the rows stand in the map's two dimensions.
    struct Box {
        int skipped, row;

        DEVICE Box(i64 begin, int first, int limit) {
            first = smaller(first, limit - 1);
            const int count = smaller(limit - first, ROWS);
            skipped = ROWS - count;
            row = static_cast<int>(begin) + first + count;
        }
    };
};
