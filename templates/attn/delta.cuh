// delta, the sum over d of dO * O minus the gradient of lse: what the softmax's gradient subtracts in every row of queries.

//% include "attn/types.cuh"
//% include "tile/global.cuh"

constexpr int CHUNKS = HEAD_DIM_V / 8;  // of a row of O
constexpr int row_lanes(int chunks) {
    return chunks > 16 ? 32 : chunks > 8 ? 16 : chunks > 4 ? 8 : chunks > 2 ? 4 : chunks;
}
constexpr int ROW_LANES = row_lanes(CHUNKS);  // lanes that share a row, a chunk each

DEVICE float dot_pair(u32 a, u32 b) {
    const float low = unpack(static_cast<u16>(a)) * unpack(static_cast<u16>(b));
    return fma_f32(unpack(static_cast<u16>(a >> 16)), unpack(static_cast<u16>(b >> 16)), low);
}
DEVICE float dot_chunk(const Vector4 &a, const Vector4 &b) {
    return (dot_pair(a.x, b.x) + dot_pair(a.y, b.y)) + (dot_pair(a.z, b.z) + dot_pair(a.w, b.w));
}
DEVICE Vector4 read_chunk(const u16 *from) {
    //% if aligned then
    return load_once(reinterpret_cast<const Vector4 *>(from));
    //% else
    return gather_chunk(from);
    //% end -- aligned
}

// This lane's part of the sum; `row` is one of the sequence. No branch, so that the loads of several rows are under way together.
DEVICE float row_product(const Operand &o, const Operand &dout, const Sequence &s, int head, int row) {
    const int lane = thread_index() % ROW_LANES, column = smaller(lane, CHUNKS - 1) * 8;
    const Rows o_rows = rows_of(o, s.q_batch, s.q_begin, head), dout_rows = rows_of(dout, s.q_batch, s.q_begin, head);
    const float product = dot_chunk(read_chunk(o_rows.row(row) + column), read_chunk(dout_rows.row(row) + column));
    return lane < CHUNKS ? product : 0.0f;
}
// Of one row, in lane 0 of each ROW_LANES, from the parts; all lanes of the warp take part.
DEVICE float row_delta(float product, const Operand &dlse, const Sequence &s, int head, int row) {
    const int lane = thread_index() % ROW_LANES;
    float delta = product;
#pragma unroll
    for (int distance = 1; distance < ROW_LANES; distance *= 2) delta += shuffle_xor(delta, distance);
    if (dlse.data && row < s.q_len && lane == 0) delta -= load(float_at(dlse, s.q_batch, s.q_begin + row, head));
    return delta;
}
