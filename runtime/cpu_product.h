// cpu_product.h - the matrix products of the CPU kernels, and the layouts they want.
//
// Included by the kernel source only. One of the two factors lies in vectors, the other is broadcast element by
// element:
//
//     panel    [depth][PANEL]           element (k, column) at k * PANEL + column: the vectors
//     slices   [depth / 8][rows][8]     element (row, k) at (k / 8) * stride + row * 8 + k % 8: broadcast, along rows
//     or along k
//
// A register tile is BROADCASTS x WIDTH vectors. Invariant: an element of a product is one chain of multiply-adds in
// the order of k, whatever tile it falls into, so its bits do not depend on where in a block it lies.
#ifndef VF_CPU_PRODUCT_H
#define VF_CPU_PRODUCT_H

#include "cpu_convert.h"

// Offsets in a task's own buffers fit an int. NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result)

// Floats from one slice to the next where a slice has up to `rows` rows: a cache line more than they take, since at a
// power of two all slices of a row would fall into the same cache sets.
#define SLICE_STRIDE(rows) ((rows)*SLICE + 16)

struct tile {
    vec at[BROADCASTS][WIDTH];
};

// tile[p][..] += broadcast[p * step] * vectors[..]
INLINE void tile_add(struct tile *tile, const float *broadcast, int step, const float *vectors, int width) {
    vec column[WIDTH];
    UNROLL for (int v = 0; v < width; v++) column[v] = vec_load(vectors + v * LANES);
    UNROLL for (int p = 0; p < BROADCASTS; p++) {
        const vec factor = vec_all(broadcast[p * step]);
        UNROLL for (int v = 0; v < width; v++) tile->at[p][v] = vec_fma(factor, column[v], tile->at[p][v]);
    }
}

INLINE void tile_zero(struct tile *tile, int width) {
    UNROLL for (int p = 0; p < BROADCASTS; p++) {
        UNROLL for (int v = 0; v < width; v++) tile->at[p][v] = vec_all(0.0f);
    }
}

INLINE void tile_load(struct tile *tile, const float *from, int stride, int width) {
    UNROLL for (int p = 0; p < BROADCASTS; p++) {
        UNROLL for (int v = 0; v < width; v++) tile->at[p][v] = vec_load(from + p * stride + v * LANES);
    }
}

INLINE void tile_store(const struct tile *tile, float *to, int stride, int width) {
    UNROLL for (int p = 0; p < BROADCASTS; p++) {
        UNROLL for (int v = 0; v < width; v++) vec_store(to + p * stride + v * LANES, tile->at[p][v]);
    }
}

INLINE void inner_of_width(float *to, const float *slices, int stride, const float *panel, int rows, int depth,
                           int width) {
    for (int row = 0; row < rows; row += BROADCASTS) {
        struct tile tile;
        tile_zero(&tile, width);
        const float *broadcast = slices + row * SLICE, *vectors = panel;
        for (int k = 0; k < depth; k += SLICE) {
            for (int i = 0; i < SLICE; i++, vectors += PANEL) tile_add(&tile, broadcast + i, SLICE, vectors, width);
            broadcast += stride;
        }
        tile_store(&tile, to + row * PANEL, PANEL, width);
    }
}

// to[row][column] = sum over k of slices(row, k) * panel[k][column]. `rows` is rounded up to BROADCASTS: slices and
// `to` have these rows.
static void inner_product(float *to, const float *slices, int stride, const float *panel, int rows, int depth,
                          int width) {
    if (width == 3) {
        inner_of_width(to, slices, stride, panel, rows, depth, 3);
    } else if (width == 2) {
        inner_of_width(to, slices, stride, panel, rows, depth, 2);
    } else {
        inner_of_width(to, slices, stride, panel, rows, depth, 1);
    }
}

INLINE void outer_of_width(float *to, const float *slices, int stride, const float *panel, int rows, int columns,
                           const float *factor, int width) {
    for (int c = 0; c < columns; c += BROADCASTS) {
        struct tile tile;
        tile_load(&tile, to + c * PANEL, PANEL, width);
        if (factor) {
            UNROLL for (int v = 0; v < width; v++) {
                const vec by = vec_load(factor + v * LANES);
                UNROLL for (int p = 0; p < BROADCASTS; p++) tile.at[p][v] *= by;
            }
        }
        const float *broadcast = slices + c / SLICE * stride + c % SLICE, *vectors = panel;
        for (int row = 0; row < rows; row++, broadcast += SLICE, vectors += PANEL) {
            tile_add(&tile, broadcast, 1, vectors, width);
        }
        tile_store(&tile, to + c * PANEL, PANEL, width);
    }
}

// to[c][column] = to[c][column] * factor[column] + sum over rows of slices(row, c) * panel[row][column]. No factor: 1.
static void outer_product(float *to, const float *slices, int stride, const float *panel, int rows, int columns,
                          const float *factor, int width) {
    if (width == 3) {
        outer_of_width(to, slices, stride, panel, rows, columns, factor, 3);
    } else if (width == 2) {
        outer_of_width(to, slices, stride, panel, rows, columns, factor, 2);
    } else {
        outer_of_width(to, slices, stride, panel, rows, columns, factor, 1);
    }
}

INLINE void plain_of_width(float *to, const float *panel, const float *matrix, int rows, int depth, int stride,
                           int width) {
    for (int row = 0; row < rows; row += BROADCASTS) {
        struct tile tile;
        tile_load(&tile, to + row * stride, stride, width);
        const float *broadcast = panel + row * PANEL, *vectors = matrix;
        for (int k = 0; k < depth; k++, vectors += stride) tile_add(&tile, broadcast + k, PANEL, vectors, width);
        tile_store(&tile, to + row * stride, stride, width);
    }
}

// to[row][column] += sum over k of panel[row][k] * matrix[k][column], where `to` and `matrix` have rows of `stride`
// columns, a multiple of LANES. `rows` is rounded up to BROADCASTS.
static void plain_product(float *to, const float *panel, const float *matrix, int rows, int depth, int stride) {
    for (int column = 0; column < stride;) {
        const int left = (stride - column) / LANES;
        const int width = left >= 5 || left == 3 ? 3 : left == 1 ? 1 : 2;  // 4 is 2 + 2
        if (width == 3) {
            plain_of_width(to + column, panel, matrix + column, rows, depth, stride, 3);
        } else if (width == 2) {
            plain_of_width(to + column, panel, matrix + column, rows, depth, stride, 2);
        } else {
            plain_of_width(to + column, panel, matrix + column, rows, depth, stride, 1);
        }
        column += width * LANES;
    }
}

// Puts a row of float32 into column `column` of a panel, or takes it out, times `factor`.
static void panel_put(float *panel, int column, const float *row, int depth) {
    for (int k = 0; k < depth; k++) panel[k * PANEL + column] = row[k];
}

static void panel_take(float *row, const float *panel, int column, int depth, float factor) {
    for (int k = 0; k < depth; k++) row[k] = panel[k * PANEL + column] * factor;
}

static int round_up(int value, int unit) {
    return (value + unit - 1) / unit * unit;
}

// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)

#endif
