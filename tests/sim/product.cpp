// product.cpp - wgmma: products that happen, warp by warp, some time between their issue and the wait.
//
// The 64 rows of a warpgroup's product are four independent products of 16 rows here. At its moment each reads A and B (shared memory by the
// descriptors' 64 bits, or the lanes' registers) and updates the accumulators, which are the lanes' own arrays on their stacks. Of A in shared
// memory each reads all 64 rows, as any part of the instruction may.
#include <algorithm>
#include <cstring>

#include "core.h"

namespace sim {

// ---- descriptors ------------------------------------------------------------------------------------------------------

// Where the 16-byte row of a core matrix lies.
struct Descriptor {
    u32 start, leading, stride, span, bits;
    bool plain, sound;

    explicit Descriptor(u64 d)
        : start((d & 0x3fff) << 4), leading((d >> 16 & 0x3fff) << 4), stride((d >> 32 & 0x3fff) << 4),
          plain(d >> 62 == 0), sound(!(d >> 49 & 7) && !(d & 0xc000c000c000ull)) {
        static const u32 spans[] = {16, 128, 64, 32}, masks[] = {0, 7, 3, 1};
        span = spans[d >> 62];
        bits = masks[d >> 62];
    }
    u32 swizzled(u32 address) const { return address ^ (address >> 7 & bits) << 4; }
    // The contracted index is contiguous: chunk 0 or 1 of 8 of it.
    u32 k_major(u32 row, u32 chunk) const {
        if (plain) return start + row / 8 * stride + row % 8 * 16 + chunk * leading;
        return swizzled(start + row / 8 * stride + row % 8 * span + chunk * 16);
    }
    // The rows are contiguous: chunks of 8 of them.
    u32 mn_major(u32 k, u32 chunk) const {
        const u32 per = span / 16;
        return swizzled(start + chunk / per * leading + k / 8 * stride + k % 8 * span + chunk % per * 16);
    }
};

// ---- a product happens ------------------------------------------------------------------------------------------------

static float a[16][16], b[16][256], d[16][256];

struct Operands {
    const WarpProduct &op;
    Actor actor;

    // 8 values at `address` as float32.
    void fetch(u32 address, float *to) const {
        u16 e[8];
        async_shared(actor, address, reinterpret_cast<u8 *>(e), false, op.pc);
        const bool half = op.of[0].half;
        for (u32 i = 0; i < 8; i++) to[i] = to_float(e[i], half);
    }

    // Reads `rows` rows from `first` on as matrix(row, k).
    template <class F> void read(u64 descriptor, bool rows_contiguous, u32 first, u32 rows, F matrix) const {
        const Descriptor from(descriptor);
        if (!from.sound || (from.plain && rows_contiguous))
            find("wgmma descriptor", op.pc, nullptr, "%016llx is not one that is known here", descriptor);
        float e[8];
        if (!rows_contiguous) {
            for (u32 row = 0; row < rows; row++)
                for (u32 chunk = 0; chunk < 2; chunk++) {
                    fetch(from.k_major(first + row, chunk), e);
                    for (u32 i = 0; i < 8; i++) matrix(row, chunk * 8 + i) = e[i];
                }
            return;
        }
        for (u32 k = 0; k < 16; k++)
            for (u32 chunk = 0; chunk < rows / 8; chunk++) {
                fetch(from.mn_major(k, first / 8 + chunk), e);
                for (u32 i = 0; i < 8; i++) matrix(chunk * 8 + i, k) = e[i];
            }
    }
    void read_registers() const {
        for (u32 lane = 0; lane < WARP; lane++)
            for (u32 i = 0; i < 4; i++)
                for (u32 odd = 0; odd < 2; odd++)
                    a[lane / 4 + i % 2 * 8][lane % 4 * 2 + odd + i / 2 * 8] =
                        to_float(static_cast<u16>(*op.of[lane].a_register[i] >> 16 * odd), op.of[0].half);
    }
};

static float &accumulator(u32 lane, u32 i) {
    return d[lane / 4 + 8 * (i >> 1 & 1)][8 * (i >> 2) + 2 * (lane % 4) + (i & 1)];
}

static void add_product(u32 columns) {
    for (u32 row = 0; row < 16; row++)
        for (u32 k = 0; k < 16; k++)
            for (u32 column = 0; column < columns; column++) d[row][column] += a[row][k] * b[k][column];
}

static void happen(Warp &warp, WarpProduct &op) {
    const Product &first = op.of[0];
    static Clock view;
    view.assign(block->words, 0);
    if (op.view) view = *op.view;
    learn(view.data(), block->warp_entry + warp.id, op.time);
    const Operands operands = {op, {block->warp_entry + warp.id, op.time, view.data(), false}};
    if (first.a_in_registers)
        operands.read_registers();
    else
        for (u32 quarter = 1; quarter <= 4; quarter++)  // the warp's own last
            operands.read(first.a, first.a_rows_contiguous, (warp.id + quarter) % 4 * 16, 16,
                          [](u32 row, u32 k) -> float & { return a[row][k]; });
    operands.read(first.b, first.b_rows_contiguous, 0, first.columns,
                  [](u32 row, u32 k) -> float & { return b[k][row]; });
    for (u32 lane = 0; lane < WARP; lane++)
        for (u32 i = 0; i < first.columns / 2; i++) accumulator(lane, i) = first.accumulate ? op.of[lane].d[i] : 0.0f;
    add_product(first.columns);
    for (u32 lane = 0; lane < WARP; lane++)
        for (u32 i = 0; i < first.columns / 2; i++) op.of[lane].d[i] = accumulator(lane, i);
    op.done = true;
    statistics.products++;
    TRACE("wgmma of warp %u happens: 64 x %u, b %#llx", warp.id, first.columns, first.b);
}

bool product_ready(const Warp &warp) {
    return warp.next - warp.first < warp.products.size() && warp.products[warp.next - warp.first]->have == ~0u;
}
bool product_step(Warp &warp) {
    if (!product_ready(warp)) return false;
    Fiber *running = self;
    self = nullptr;
    happen(warp, *warp.products[warp.next++ - warp.first]);
    self = running;
    progress++;
    return true;
}

// ---- issue ------------------------------------------------------------------------------------------------------------

static void check_fence(const void *pointer, size_t bytes, const void *pc) {
    const size_t offset = static_cast<size_t>(static_cast<const char *>(pointer) - self->stack->low);
    if (offset >= STACK_BYTES) return;
    for (size_t word = offset / 4; word < (offset + bytes) / 4; word++)
        if (self->stack->touched[word] == self->stack->fences) {
            find("missing wgmma.fence", pc, nullptr, "a register of the product was accessed since the last fence");
            return;
        }
}

// Registers are the product's from now to its wait.
static void take_off(const void *pointer, size_t bytes, bool is_accumulator) {
    char *low = const_cast<char *>(static_cast<const char *>(pointer)), *high = low + bytes;
    Stack &own = *self->stack;
    own.flights_low = self->flights.empty() ? low : std::min(own.flights_low, low);
    own.flights_high = std::max(own.flights_high, high);
    for (Flight &f : self->flights)
        if (f.accumulator == is_accumulator && f.group == self->product_group && low <= f.high && high >= f.low) {
            f.low = std::min(f.low, low);
            f.high = std::max(f.high, high);
            return;
        }
    self->flights.push_back({low, high, self->product_group, is_accumulator});
}

static bool agree(const Product &x, const Product &y) {
    return x.columns == y.columns && x.b == y.b && x.a == y.a && x.accumulate == y.accumulate &&
           x.a_in_registers == y.a_in_registers;
}

// What the product sees: all that its lanes know.
static Snapshot view_of(Warp &warp) {
    if (options.no_hazards) return nullptr;
    const Fiber *lanes = &block->fibers[warp.id * WARP];
    u64 version = 0;
    for (u32 lane = 0; lane < WARP; lane++) version += lanes[lane].version;
    if (!warp.view || warp.view_version != version) {
        auto joined = std::make_shared<Clock>(block->words, 0);
        for (u32 lane = 0; lane < WARP; lane++) join(joined->data(), lanes[lane].clock);
        warp.view = joined;
        warp.view_version = version;
    }
    return warp.view;
}

void wgmma(const Product &product) {
    const void *pc = CALLER;
    Fiber &f = *self;
    Warp &warp = *f.warp;
    const u32 index = f.issued++ - warp.first;
    while (index >= warp.products.size()) warp.products.push_back(std::make_unique<WarpProduct>());
    WarpProduct &op = *warp.products[index];
    if (op.have == 0) {
        op.group = f.product_group;
        op.pc = pc;
        op.first = &op.of[f.lane()];
    } else if (op.group != f.product_group || !agree(*op.first, product)) {
        find("wgmma differs among the lanes of a warp", pc, op.pc, "lane %u", f.lane());
    }
    op.of[f.lane()] = product;
    if (!f.fenced) find("missing wgmma.fence", pc, nullptr, "none before the first product");
    check_fence(product.d, product.columns * 2, pc);
    take_off(product.d, product.columns * 2, true);
    for (u32 i = 0; product.a_in_registers && i < 4; i++) {
        check_fence(product.a_register[i], 4, pc);
        take_off(product.a_register[i], 4, false);
    }
    if (f.tick_before_access) tick();
    op.have |= 1u << f.lane();
    if (op.have != ~0u) return;
    op.time = ++warp.time;
    op.view = view_of(warp);
    progress++;
    if (now.products == Timing::EAGER || (now.products == Timing::MIXED && now.random.chance(30)))
        while (product_step(warp)) {
        }
}

void wgmma_fence() {
    self->stack->fences++;
    self->fenced = true;
}
void wgmma_commit() {
    self->product_group++;
}

// ---- wait -------------------------------------------------------------------------------------------------------------

static i64 complete_below;  // groups; of the warp that is waiting
static const void *wait_pc;

static void complete_wait() {
    Warp &warp = *self->warp;
    const Fiber *lanes = &block->fibers[warp.id * WARP];
    for (u32 lane = 0; lane < WARP; lane++)
        if (lanes[lane].product_group != self->product_group)
            find("wgmma groups differ among the lanes of a warp", wait_pc, nullptr, "lane %u", lane);
    while (warp.next - warp.first < warp.products.size() &&
           warp.products[warp.next - warp.first]->group < complete_below)
        if (!product_step(warp)) {
            find("wgmma issued by only part of a warp", wait_pc, nullptr, "at the wait");
            abandon();
        }
    while (!warp.products.empty() && warp.products[0]->done && warp.products[0]->group < complete_below) {
        warp.completed_time = warp.products[0]->time;
        warp.products.erase(warp.products.begin());
        warp.first++;
    }
}
void wgmma_wait(u32 pending) {
    TRACE("wgmma: waits until %u groups are pending", pending);
    const i64 below = static_cast<i64>(self->product_group) - pending;
    wait_pc = CALLER;
    complete_below = below;
    gather(Kind::PRODUCT_WAIT, nullptr, complete_wait, CALLER);
    const u32 entry = block->warp_entry + self->warp->id;
    if (self->clock[entry] != self->warp->completed_time) {
        learn(self->clock, entry, self->warp->completed_time);
        self->version++;
    }
    auto &flights = self->flights;
    flights.erase(std::remove_if(flights.begin(), flights.end(), [&](const Flight &f) { return f.group < below; }),
                  flights.end());
    if (flights.empty()) self->stack->flights_low = self->stack->flights_high = nullptr;
}

}  // namespace sim
