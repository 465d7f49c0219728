// What the Hopper forward (fwd_sm90.cu, whose names it uses) does with rows outside of the products: packing, storing.

using Output = float[HEAD_DIM_V / 2];

// A score accumulator as the left operand of P V: the fragments agree.
template <int STEPS> DEVICE void pack_weights(u32 (&p)[STEPS][4], const float (&s)[8 * STEPS]) {
#pragma unroll
    for (int i = 0; i < 4 * STEPS; i++) p[i / 4][i % 4] = pack(s[2 * i], s[2 * i + 1]);
}
template <int STEPS> DEVICE void pin_weights(u32 (&p)[STEPS][4]) {
#pragma unroll
    for (int step = 0; step < STEPS; step++) pin(p[step]);
}

//% if output_stages > 0 then
// Where a warp's 16 rows go: into shared memory, as panels, from where the copy engine takes those that exist. Once made, it needs nothing of the
// sequence any more.
struct Destination {
    const ForwardSm90Args &args;
    float *lse;      // of the warp's first row; null: not wanted
    int row, count;  // coordinate of the box in the map; rows, none if not above 0
    int head, batch;

    DEVICE Destination(const ForwardSm90Args &a, const Sequence &s, int first_row, int query_head)
        : args(a), lse(a.lse.data ? float_at(a.lse, s.q_batch, s.q_begin + first_row, query_head) : nullptr), row(0),
          count(smaller(s.q_len - first_row, STAGED_ROWS)), head(query_head), batch(s.q_batch) {
        row = static_cast<int>(s.q_begin) + first_row + count;
    }

    DEVICE void store_rows(const Output &o, const RowSoftmax &softmax) const {
        const u32 thread = opaque(thread_index());  // addresses are not worth registers between tiles
        const int lane = thread % WARP, own = lane / 4;
        const int staging = STAGING_OFFSET + (thread / WARP - 4) * Staged::BYTES;
        const int words =
            staging + own * PANEL_PITCH + (own * 16 | lane % 4 * 4);  // this lane's first of a row, swizzled
        float scale[2], row_lse[2];
#pragma unroll
        for (int half = 0; half < 2; half++) softmax.finish(half, scale[half], row_lse[half]);
        if (lane == 0) bulk_wait_read<0>();  // for the tile before
        warp_sync();
#pragma unroll
        for (int chunk = 0; chunk < 8 * Staged::COUNT; chunk++) {
            u32 *const at = shared_pointer<u32>(words ^ chunk % 8 * 16) + chunk / 8 * Staged::PANEL_BYTES / 4;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int i = 4 * chunk + 2 * half;
                at[half * 8 * PANEL_PITCH / 4] =
                    chunk < HEAD_DIM_V / 8 ? pack(o[i] * scale[half], o[i + 1] * scale[half]) : 0;
            }
        }
        fence_async_proxy();
        warp_sync();
        if (lane == 0 && count > 0) {
#pragma unroll
            for (int panel = 0; panel < Staged::COUNT; panel++)
                tma_store_5d(args.output, shared_address(shared_memory()) + staging + panel * Staged::PANEL_BYTES,
                             panel * PANEL_COLUMNS, STAGED_ROWS - count, row, head, batch);
            bulk_commit();
        }
        if (lane % 4 != 0 || !lse) return;
#pragma unroll
        for (int half = 0; half < 2; half++)
            if (own + 8 * half < count) store(lse + (own + 8 * half) * args.lse.row_stride, row_lse[half]);
    }
};
//% else
// Where a warp's 16 rows go. Once made, it needs nothing of the sequence any more.
struct Destination {
    Rows out;
    float *lse;  // null: not wanted
    i64 lse_stride;
    int first, end;  // this lane's first row, the other is 8 further on; used rows

    DEVICE Destination(const ForwardSm90Args &args, const Sequence &s, int first_row, int head)
        : out(rows_of(args.o, s.q_batch, s.q_begin, head)),
          lse(args.lse.data ? float_at(args.lse, s.q_batch, s.q_begin, head) : nullptr),
          lse_stride(args.lse.row_stride), first(first_row + lane_index() / 4), end(s.q_len) {}

    DEVICE void store_rows(const Output &o, const RowSoftmax &softmax) const {
        // WHY all lines before any store: in between, a branch would keep the transpositions from overlapping.
        Vector4 line[2][(HEAD_DIM_V + 31) / 32];
        float row_lse[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float scale;
            softmax.finish(half, scale, row_lse[half]);
#pragma unroll
            for (int c = 0; c < HEAD_DIM_V; c += 32) {
                u32 word[4] = {0, 0, 0, 0};
#pragma unroll
                for (int g = 0; g < 4; g++) {
                    const int i = (c / 8 + g) * 4 + 2 * half;
                    if (c + 8 * g < HEAD_DIM_V) word[g] = pack(o[i] * scale, o[i + 1] * scale);
                }
                line[half][c / 32] = quad_transpose(word[0], word[1], word[2], word[3]);
            }
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = first + 8 * half, column = lane_index() % 4 * 8;
            if (row >= end) continue;
            u16 *at = out.row(row) + column;
#pragma unroll
            for (int c = 0; c < HEAD_DIM_V; c += 32)
                if (c + column < HEAD_DIM_V) store(reinterpret_cast<Vector4 *>(at + c), line[half][c / 32]);
            if (lane_index() % 4 == 0 && lse) store(lse + row * lse_stride, row_lse[half]);
        }
    }
};
//% end -- output_stages

// Rows that see no key: zeros and -inf. A whole warp.
DEVICE void store_keyless(const ForwardSm90Args &args, const Sequence &s, int block, int head) {
    const int first = block * TILE_M, rows = smaller(TILE_M, s.q_len - first);
    clear_rows(rows_of(args.o, s.q_batch, s.q_begin, head), first, rows, HEAD_DIM_V);
    if (args.lse.data == 0) return;
    for (int i = lane_index(); i < rows; i += WARP)
        store(float_at(args.lse, s.q_batch, s.q_begin + first + i, head), -infinity());
}
