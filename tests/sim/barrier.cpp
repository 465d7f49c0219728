// barrier.cpp - barriers inside a block: named ones, mbarriers, and the pool of registers.
//
// A waiter is woken when its barrier completes and looks at the current phase when it runs: one that comes two phases late waits for
// ever, as on the hardware.
#include "core.h"

namespace sim {

// ---- named barriers ---------------------------------------------------------------------------------------------------

void barrier_complete(NamedBarrier &b) {
    b.arrived = b.expected = 0;
    b.generation++;
    b.released.swap(b.gathering);
    b.gathering.clear();
    for (Fiber *f : b.waiters) wake(f);
    b.waiters.clear();
}

static NamedBarrier &enter(u32 id, u32 threads, const void *pc) {
    if (id > 15) {
        find("named barrier out of range", pc, nullptr, "barrier %u", id);
        abandon();
    }
    NamedBarrier &b = block->named[id];
    const u32 expected = threads ? threads : block->live;
    if (threads % WARP) find("named barrier count", pc, nullptr, "%u is no multiple of 32", threads);
    if (b.arrived && b.expected != expected)
        find("named barrier count", pc, b.pc, "barrier %u: %u after %u", id, expected, b.expected);
    b.expected = expected;
    b.pc = pc;
    publish(b.gathering);
    tick();
    b.arrived++;
    progress++;
    if (b.arrived > b.expected) find("named barrier overrun", pc, nullptr, "barrier %u", id);
    return b;
}

void barrier_sync(u32 id, u32 threads) {
    const void *pc = CALLER;
    NamedBarrier &b = enter(id, threads, pc);
    TRACE("barrier %u: sync, %u of %u threads are there", id, b.arrived, b.expected);
    if (b.arrived == b.expected) {
        barrier_complete(b);
    } else {
        const u32 generation = b.generation;
        b.waiters.push_back(self);
        while (b.generation == generation) park(Wait::NAMED_BARRIER, id, b.expected, pc);
    }
    acquire(b.released);  // still this generation's: the next one needs this thread
}
void barrier_arrive(u32 id, u32 threads) {
    NamedBarrier &b = enter(id, threads, CALLER);
    TRACE("barrier %u: arrive, %u of %u threads are there", id, b.arrived, b.expected);
    if (b.arrived == b.expected) barrier_complete(b);
    maybe_yield();
}

// ---- mbarriers --------------------------------------------------------------------------------------------------------

MBarrier *find_mbarrier(u32 barrier, const char *what, const void *pc) {
    const auto found = block->mbarriers.find(barrier);
    if (found == block->mbarriers.end()) {
        if (shared_bounds(barrier, 8, what, pc))
            find("mbarrier not initialised", pc, nullptr, "%s at shared %#x", what, barrier);
        return nullptr;
    }
    MBarrier &b = found->second;
    if (self && !options.no_hazards && self->clock[b.init_entry] < b.init_time)
        find("mbarrier used before its initialisation is visible", pc, nullptr, "%s at shared %#x", what, barrier);
    return &b;
}

void mbarrier_init(u32 barrier, u32 arrivals) {
    if (barrier % 8) find("misaligned shared access", CALLER, nullptr, "mbarrier at shared %#x", barrier);
    if (!shared_bounds(barrier, 8, "mbarrier", CALLER)) abandon();
    if (block->mbarriers.count(barrier))
        find("mbarrier initialised twice", CALLER, nullptr, "at shared %#x, never invalidated", barrier);
    MBarrier &b = block->mbarriers[barrier];
    b = MBarrier();
    b.count = b.pending = arrivals;
    b.init_entry = self->entry;
    b.init_time = self->clock[self->entry];
    (*block->shadow)[(barrier - WINDOW) / 16].barrier |= static_cast<u16>(0xff << barrier % 16);
}
void mbarrier_init_fence() {
    for (auto &b : block->mbarriers)
        if (b.second.init_entry == self->entry) b.second.fenced = true;
}

void mbarrier_settle(MBarrier &b, u32 barrier) {
    if (b.pending || b.bytes) return;
    b.phase++;
    b.pending = b.count;
    b.released.swap(b.gathering);
    b.gathering.clear();
    for (Fiber *f : b.waiters) wake(f);
    b.waiters.clear();
    progress++;
    TRACE("mbarrier %#x: phase %u begins", barrier, b.phase);
}

bool mbarrier_count(u32 barrier, u32 bytes, const void *pc) {
    MBarrier *b = find_mbarrier(barrier, "arrival", pc);
    if (!b) return false;
    TRACE("mbarrier %#x of block %u: arrival, %u bytes expected", barrier, block->id, bytes);
    if (!b->pending) {
        find("mbarrier overrun", pc, nullptr, "arrival at shared %#x of block %u, where none is pending", barrier,
             block->id);
        return false;
    }
    b->bytes += bytes;
    b->pending--;
    if (block == self->home)
        publish(b->gathering);
    else
        publish_weakly(b->gathering, self->clock);
    tick();
    progress++;
    mbarrier_settle(*b, barrier);
    return true;
}
void mbarrier_arrive(u32 barrier, u32 bytes) {
    if (mbarrier_count(barrier, bytes, CALLER)) maybe_yield();
}

static MBarrier *mbarrier_to_read(u32 barrier, u32 parity, const void *pc) {
    MBarrier *b = find_mbarrier(barrier, "wait", pc);
    if (b && parity > 1) find("mbarrier parity", pc, nullptr, "%u", parity);
    return b;
}
bool mbarrier_passed(u32 barrier, u32 parity) {
    MBarrier *b = mbarrier_to_read(barrier, parity, CALLER);
    if (!b || (b->phase & 1) == parity) return false;
    if (b->phase) acquire(b->released);
    return true;
}
void mbarrier_wait(u32 barrier, u32 parity) {
    const void *pc = CALLER;
    MBarrier *b = mbarrier_to_read(barrier, parity, pc);
    if (!b) return;
    while ((b->phase & 1) == parity) {
        b->waiters.push_back(self);
        park(Wait::MBARRIER, barrier, parity, pc);
    }
    if (b->phase) acquire(b->released);
}

// ---- registers --------------------------------------------------------------------------------------------------------

void set_registers(u32 registers, bool increase) {
    const void *pc = CALLER;
    if (registers % 8 || registers < 24 || registers > 256) find("setmaxnreg value", pc, nullptr, "%u", registers);
    if (increase ? registers < self->registers : registers > self->registers)
        find("setmaxnreg direction", pc, nullptr, "%u to %u", self->registers, registers);
    const i64 more = static_cast<i64>(registers) - self->registers;
    while (more > block->free_registers) {
        block->register_waiters.push_back(self);
        park(Wait::REGISTERS, registers, static_cast<u64>(block->free_registers), pc);
    }
    block->free_registers -= more;
    self->registers = registers;
    progress++;
    if (more < 0) {
        for (Fiber *f : block->register_waiters) wake(f);
        block->register_waiters.clear();
    }
}

}  // namespace sim
