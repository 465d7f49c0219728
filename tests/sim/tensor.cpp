// tensor.cpp - tensor maps: what the host may encode, and operations on their boxes.
#include <cstring>

#include "copy.h"

namespace sim {

constexpr u64 MAGIC = 0x70616d726f736e74;

std::shared_ptr<Copy> new_box(CopyKind kind, const void *map, u32 shared, u32 barrier, const int *coordinates, u32 rank,
                              const void *pc) {
    auto copy = copy_new(kind, shared, barrier, pc);
    copy->tensor = true;
    if (reinterpret_cast<size_t>(map) % 64) find("misaligned tensor map", pc, nullptr, "%p", map);
    memcpy(&copy->map, map, sizeof copy->map);
    const TensorMap &m = copy->map;
    if (m.magic != MAGIC || m.rank != rank) {
        find("not a tensor map of this rank", pc, nullptr, "%u dimensions", rank);
        abandon();
    }
    memcpy(copy->coordinates, coordinates, rank * sizeof *coordinates);
    // The pattern of a swizzle repeats every 2, 4 or 8 rows of 128 bytes; a tile begins with it, as descriptors assume.
    static const u32 alignment[] = {128, 256, 512, 1024};
    if (shared % alignment[m.swizzle])
        find("misaligned bulk copy", pc, nullptr, "shared %#x, swizzle %u", shared, m.swizzle);
    return copy;
}
void tensor_load(u32 shared, const void *map, u32 barrier, const int *coordinates, u32 rank) {
    if (!find_mbarrier(barrier, "tensor load", CALLER)) abandon();
    copy_issue(new_box(CopyKind::LOAD, map, shared, barrier, coordinates, rank, CALLER));
}
void tensor_store(const void *map, u32 shared, const int *coordinates, u32 rank) {
    copy_issue(new_box(CopyKind::STORE, map, shared, 0, coordinates, rank, CALLER));
}

}  // namespace sim

using namespace sim;

const char *sim_tensor_map(void *map, const void *base, int rank, const uint64_t *dimensions, const uint64_t *strides,
                           const uint32_t *box, const uint32_t *element_strides, int element_bytes, int swizzle) {
    static const u32 span[] = {~0u, 32, 64, 128};
    TensorMap m = {};
    if (rank < 1 || rank > 5) return "the rank is not 1 to 5";
    if (swizzle < 0 || swizzle > 3) return "no such swizzle";
    if (reinterpret_cast<size_t>(base) % 16) return "the base is not 16-byte aligned";
    if (reinterpret_cast<size_t>(map) % 64) return "the map is not 64-byte aligned";
    m.magic = MAGIC;
    m.base = reinterpret_cast<size_t>(base);
    m.rank = static_cast<u8>(rank);
    m.element_bytes = static_cast<u8>(element_bytes);
    m.swizzle = static_cast<u8>(swizzle);
    for (int i = 0; i < rank; i++) {
        if (dimensions[i] == 0 || dimensions[i] > 1ull << 32) return "a dimension is not 1 to 2^32";
        if (box[i] == 0 || box[i] > 256) return "a side of the box is not 1 to 256";
        if (element_strides[i] != 1) return "an element stride is not 1";
        m.dimension[i] = dimensions[i];
        m.box[i] = static_cast<u16>(box[i]);
        if (i == 0) continue;
        if (strides[i - 1] % 16 || strides[i - 1] >= 1ull << 40) return "a stride is no multiple of 16 below 2^40";
        m.stride[i - 1] = static_cast<i64>(strides[i - 1]);
    }
    const u32 row = box[0] * static_cast<u32>(element_bytes);
    if (row % 16) return "a row of the box is no multiple of 16 bytes";
    if (row > span[swizzle]) return "a row of the box is wider than the swizzle";
    memset(map, 0, 128);
    memcpy(map, &m, sizeof m);
    return nullptr;
}
