// warp.cpp - what the 32 lanes of a warp do together: shuffles, votes, matrices to and from registers, mma.sync.
//
// Lanes deposit their operands and park; the last one does the work for all. Different instructions at one gathering are a finding.
// Shuffles and votes exchange values and order no memory; warp_sync does.
#include <algorithm>
#include <cstring>

#include "core.h"

namespace sim {

static const char *const NAMES[] = {"",         "a shuffle", "a vote",           "warp_sync",   "ldmatrix",
                                    "stmatrix", "mma.sync",  "wgmma.wait_group", "cluster_sync"};

template <class T> static T &operand(u32 lane) {
    return *static_cast<T *>(self->warp->operands[lane]);
}

void gather(Kind kind, void *own, void (*complete)(), const void *pc) {
    Warp &warp = *self->warp;
    if (warp.arrived == 0) {
        warp.kind = kind;
        warp.pc = pc;
        settle_banks(warp);
    } else if (warp.kind != kind) {
        find("divergent warp", pc, warp.pc, "%s while other lanes are at %s", NAMES[static_cast<int>(kind)],
             NAMES[static_cast<int>(warp.kind)]);
        abandon();
    }
    warp.operands[self->lane()] = own;
    warp.arrived |= 1u << self->lane();
    if (warp.arrived != ~0u) {
        park(Wait::COLLECTIVE, static_cast<u64>(kind), 0, pc);
        return;
    }
    complete();
    warp.arrived = 0;
    progress++;
    for (u32 lane = 0; lane < WARP; lane++)
        if (lane != self->lane()) wake(&block->fibers[warp.id * WARP + lane]);
}

// ---- values -----------------------------------------------------------------------------------------------------------

struct ShuffleLane {
    u64 value;
    u32 argument;
    Shuffle kind;
    const void *pc;
    u64 result;
};
static void complete_shuffle() {
    for (u32 lane = 0; lane < WARP; lane++) {
        ShuffleLane &l = operand<ShuffleLane>(lane);
        u32 from = 0;
        if (l.kind == Shuffle::INDEX) from = l.argument % WARP;
        if (l.kind == Shuffle::UP) from = lane >= l.argument ? lane - l.argument : lane;
        if (l.kind == Shuffle::XOR) from = (lane ^ l.argument) % WARP;
        l.result = operand<ShuffleLane>(from).value;
        if (l.kind == Shuffle::UNIFORM && l.result != l.value)
            find("value that is not uniform", l.pc, nullptr, "lane %u has %llx, lane 0 %llx", lane, l.value, l.result);
    }
}
u64 shuffle(u64 value, u32 argument, Shuffle kind) {
    ShuffleLane lane = {value, argument, kind, CALLER, 0};
    gather(Kind::SHUFFLE, &lane, complete_shuffle, CALLER);
    return lane.result;
}

struct VoteLane {
    bool predicate;
    u32 result;
};
static void complete_vote() {
    u32 votes = 0;
    for (u32 lane = 0; lane < WARP; lane++) votes |= static_cast<u32>(operand<VoteLane>(lane).predicate) << lane;
    for (u32 lane = 0; lane < WARP; lane++) operand<VoteLane>(lane).result = votes;
}
u32 ballot(bool predicate) {
    VoteLane lane = {predicate, 0};
    gather(Kind::VOTE, &lane, complete_vote, CALLER);
    return lane.result;
}

// Every lane's clock becomes the join of all.
static void complete_sync() {
    if (options.no_hazards) return;
    static Clock joined;
    Fiber *lanes = &block->fibers[self->warp->id * WARP];
    joined.assign(block->words, 0);
    for (u32 lane = 0; lane < WARP; lane++) join(joined.data(), lanes[lane].clock);
    for (u32 lane = 0; lane < WARP; lane++) {
        Fiber &f = lanes[lane];
        memcpy(f.clock, joined.data(), block->words * sizeof(u32));
        tick(f);
    }
}
void sync_warp() {
    gather(Kind::SYNC, nullptr, complete_sync, CALLER);
}

// ---- matrices ---------------------------------------------------------------------------------------------------------

struct MatrixLane {
    u32 address;
    u32 *registers;
    u32 count;
    bool transposed;
    const void *pc;
};

// The rows of a matrix lie where lanes 8 i ... say; each is accessed in its own lane's name.
static bool matrix_row(const MatrixLane &l, u32 lane, bool write) {
    Fiber &fiber = block->fibers[self->warp->id * WARP + lane];
    count_banks(fiber, l.address, 16, l.pc);
    return shared_access(fiber.actor(), l.address, 16, write, false, l.pc);
}
static void complete_load() {
    const u32 rows = operand<MatrixLane>(0).count * 8;
    static u16 matrix[32][8];
    for (u32 row = 0; row < rows; row++) {
        const MatrixLane &l = operand<MatrixLane>(row);
        if (matrix_row(l, row, false))
            memcpy(matrix[row], shared_at(l.address), 16);
        else
            memset(matrix[row], 0xff, 16);
    }
    for (u32 lane = 0; lane < WARP; lane++) {
        const MatrixLane &l = operand<MatrixLane>(lane);
        const u32 g = lane / 4, t = lane % 4;
        for (u32 i = 0; i < l.count; i++) {
            const u16 low = l.transposed ? matrix[i * 8 + 2 * t][g] : matrix[i * 8 + g][2 * t];
            const u16 high = l.transposed ? matrix[i * 8 + 2 * t + 1][g] : matrix[i * 8 + g][2 * t + 1];
            l.registers[i] = low | static_cast<u32>(high) << 16;
        }
    }
}
void load_matrices(u32 address, u32 *registers, u32 count, bool transposed) {
    if (self->tick_before_access) tick();
    MatrixLane lane = {address, registers, count, transposed, CALLER};
    gather(Kind::LOAD_MATRIX, &lane, complete_load, CALLER);
}

static void complete_store() {
    const u32 rows = operand<MatrixLane>(0).count * 8;
    static u16 matrix[32][8];
    for (u32 lane = 0; lane < WARP; lane++) {
        const MatrixLane &l = operand<MatrixLane>(lane);
        const u32 g = lane / 4, t = lane % 4;
        for (u32 i = 0; i < l.count; i++)
            for (u32 odd = 0; odd < 2; odd++)
                (l.transposed ? matrix[i * 8 + 2 * t + odd][g] : matrix[i * 8 + g][2 * t + odd]) =
                    static_cast<u16>(l.registers[i] >> 16 * odd);
    }
    for (u32 row = 0; row < rows; row++) {
        const MatrixLane &l = operand<MatrixLane>(row);
        if (matrix_row(l, row, true)) memcpy(shared_at(l.address), matrix[row], 16);
    }
}
void store_matrices(u32 address, const u32 *registers, u32 count, bool transposed) {
    if (self->tick_before_access) tick();
    MatrixLane lane = {address, const_cast<u32 *>(registers), count, transposed, CALLER};
    gather(Kind::STORE_MATRIX, &lane, complete_store, CALLER);
}

// ---- mma.sync ---------------------------------------------------------------------------------------------------------

struct MultiplyLane {
    float *c;
    const u32 *a, *b;
    u32 k;
    bool half;
};
static void complete_multiply() {
    static float a[16][16], b[16][8], c[16][8];
    const u32 k = operand<MultiplyLane>(0).k;
    const bool half = operand<MultiplyLane>(0).half;
    for (u32 lane = 0; lane < WARP; lane++) {
        const MultiplyLane &l = operand<MultiplyLane>(lane);
        const u32 g = lane / 4, t = lane % 4;
        for (u32 i = 0; i < k / 4; i++)  // a: rows g and g + 8, then the same 8 columns on
            for (u32 odd = 0; odd < 2; odd++)
                a[g + i % 2 * 8][2 * t + odd + i / 2 * 8] = to_float(static_cast<u16>(l.a[i] >> 16 * odd), half);
        for (u32 i = 0; i < k / 8; i++)
            for (u32 odd = 0; odd < 2; odd++)
                b[2 * t + odd + i * 8][g] = to_float(static_cast<u16>(l.b[i] >> 16 * odd), half);
        for (u32 i = 0; i < 4; i++) c[g + i / 2 * 8][2 * t + i % 2] = l.c[i];
    }
    for (auto &row : c) {
        float sum[8];
        memcpy(sum, row, sizeof sum);
        for (u32 step = 0; step < k; step++)
            for (u32 column = 0; column < 8; column++) sum[column] += a[&row - c][step] * b[step][column];
        memcpy(row, sum, sizeof row);
    }
    for (u32 lane = 0; lane < WARP; lane++) {
        const MultiplyLane &l = operand<MultiplyLane>(lane);
        for (u32 i = 0; i < 4; i++) l.c[i] = c[lane / 4 + i / 2 * 8][2 * (lane % 4) + i % 2];
    }
    statistics.products++;
}
void multiply(float *c, const u32 *a, const u32 *b, u32 k, bool half) {
    MultiplyLane lane = {c, a, b, k, half};
    gather(Kind::MULTIPLY, &lane, complete_multiply, CALLER);
}

}  // namespace sim
