// copy.h - a bulk copy in flight: between copy.cpp, which says when, and tensor.cpp, which says what.
#pragma once

#include "core.h"

namespace sim {

// What a tensor map holds here instead of the driver's encoding; copied at issue.
struct TensorMap {
    u64 magic, base;
    i64 stride[4];  // bytes; of dimensions 1 ...
    u64 dimension[5];
    u16 box[5];
    u8 rank, element_bytes, swizzle;  // swizzle: the driver's enum
};
static_assert(sizeof(TensorMap) <= 128, "a tensor map has 128 bytes");

enum class CopyKind { LOAD, STORE, PEER };

struct Copy {
    CopyKind kind;
    bool tensor;
    TensorMap map;
    int coordinates[5];
    u32 shared, barrier, bytes;
    char *global;
    Block *target;    // where a load arrives, or what goes to another block
    u32 peer_shared;  // where there, if it is not from global memory
    u32 slot, entry, time, issuer, group;
    Clock view;
    u32 steps;  // taken: of a load, data then bytes at the barrier; of a store, source read then written; to a block, all three
    bool lazy, waited_for;
    const void *pc;
    std::vector<u8> data;  // what a store has read

    Actor actor() const { return {entry, time, view.data(), false}; }
};

// A 16-byte piece of a copy; valid: how many of its bytes, from the first, lie inside.
struct Piece {
    u32 shared;
    char *global;
    u32 valid;
};

// The pieces of a box, or of a run of bytes.
template <class F> void for_each_piece(const Copy &copy, F visit) {
    if (!copy.tensor) {
        for (u32 i = 0; i < copy.bytes; i += 16) visit(Piece{copy.shared + i, copy.global + i, 16});
        return;
    }
    const TensorMap &m = copy.map;
    static const u32 bits[] = {0, 1, 3, 7};
    const u32 row_bytes = m.box[0] * m.element_bytes;
    u32 rows = 1;
    for (u32 i = 1; i < m.rank; i++) rows *= m.box[i];
    for (u32 row = 0; row < rows; row++) {
        bool inside = true;
        u64 address = m.base;
        u32 rest = row;
        for (u32 i = 1; i < m.rank; i++) {
            const i64 at = static_cast<i64>(copy.coordinates[i]) + rest % m.box[i];
            rest /= m.box[i];
            inside = inside && at >= 0 && static_cast<u64>(at) < m.dimension[i];
            address += static_cast<u64>(at * m.stride[i - 1]);
        }
        for (u32 byte = 0; byte < row_bytes; byte += 16) {
            const u32 shared = copy.shared + row * row_bytes + byte;
            const i64 first = copy.coordinates[0] + static_cast<i64>(byte / m.element_bytes);
            i64 valid =
                0;  // the element may lie left of the tensor: then the whole piece does, as boxes begin at multiples of it
            if (inside && first >= 0) valid = (static_cast<i64>(m.dimension[0]) - first) * m.element_bytes;
            valid = valid < 0 ? 0 : valid > 16 ? 16 : valid;
            visit(Piece{shared ^ (shared >> 7 & bits[m.swizzle]) << 4,
                        reinterpret_cast<char *>(address + static_cast<u64>(first * m.element_bytes)),
                        static_cast<u32>(valid)});
        }
    }
}

// A whole bulk operation is queued and, if the seed says so, begins at once.
void copy_issue(const std::shared_ptr<Copy> &copy);
std::shared_ptr<Copy> new_box(CopyKind kind, const void *map, u32 shared, u32 barrier, const int *coordinates, u32 rank,
                              const void *pc);
std::shared_ptr<Copy> copy_new(CopyKind kind, u32 shared, u32 barrier, const void *pc);

}  // namespace sim
