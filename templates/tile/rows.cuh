// Rows of operands in global memory. Every offset is 64-bit from its first multiplication.

//% include "attn/types.cuh"

// One head's rows of an operand, from some row on.
struct Rows {
    u16 *data;       // row 0
    i64 row_stride;  // elements

    DEVICE u16 *row(int i) const { return data + static_cast<i64>(i) * row_stride; }
};
DEVICE Rows rows_of(const Operand &operand, int batch, i64 row, int head) {
    const i64 offset = batch * operand.batch_stride + row * operand.row_stride + head * operand.head_stride;
    return {pointer<u16>(operand.data) + offset, operand.row_stride};
}
DEVICE float *float_at(const Operand &operand, int batch, i64 row, int head) {
    return pointer<float>(operand.data) +
           (batch * operand.batch_stride + row * operand.row_stride + head * operand.head_stride);
}
