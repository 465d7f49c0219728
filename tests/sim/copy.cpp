// copy.cpp - asynchronous copies: when cp.async and bulk operations take effect.
//
// An operation is queued at its issue and happens when the seed says: at once, some steps later, or only when a wait demands it or nothing
// else can move. Its reads and writes are checked like any others, in the view that its issuer had: whoever touches the
// buffers must be ordered before the issue or after the completion.
#include <algorithm>
#include <cstring>

#include "copy.h"

namespace sim {

// ---- cp.async ---------------------------------------------------------------------------------------------------------

static void perform(Fiber &fiber, size_t index) {
    const AsyncCopy op = fiber.async[index];
    fiber.async.erase(fiber.async.begin() + static_cast<std::ptrdiff_t>(index));
    block->async_pending--;
    progress++;
    statistics.copies++;
    TRACE("cp.async of thread %u happens: shared %#x, %u bytes", fiber.index, op.shared, op.bytes);
    Fiber *running = self;
    self = nullptr;
    const Actor actor = {block->async_entry + fiber.index, op.time, op.view->data(), true};
    u8 data[16] = {};
    if (op.bytes && global_access(actor, op.global, op.bytes, Effect::READ, op.pc)) memcpy(data, op.global, op.bytes);
    if (shared_access(actor, op.shared, op.size, true, false, op.pc)) memcpy(shared_at(op.shared), data, op.size);
    self = running;
}

void async_copy(u32 shared, const void *global, u32 size, u32 bytes) {
    Fiber &f = *self;
    if (bytes > size) find("cp.async of more bytes than its size", CALLER, nullptr, "%u of %u", bytes, size);
    if (reinterpret_cast<size_t>(global) % size)
        find("misaligned global access", CALLER, nullptr, "cp.async of %u bytes at %p", size, global);
    if (!f.async_view || f.async_version != f.version) {
        f.async_view = std::make_shared<Clock>(f.clock, f.clock + block->words);
        f.async_version = f.version;
    }
    f.tick_before_access = true;
    f.async.push_back({shared, size, bytes, static_cast<u32>(f.async_groups.size()), ++f.async_time,
                       static_cast<const char *>(global), lazily(), f.async_view, CALLER});
    block->async_pending++;
    if (at_once()) perform(f, f.async.size() - 1);
}
void async_commit() {
    self->async_groups.push_back(self->async_time);
}
void async_wait(u32 pending) {
    Fiber &f = *self;
    TRACE("cp.async: waits until %u groups are pending", pending);
    if (pending >= f.async_groups.size()) return;
    const size_t complete = f.async_groups.size() - pending;  // the groups below
    // In any order: nothing orders copies among themselves.
    for (;;) {
        std::vector<size_t> due;
        for (size_t i = 0; i < f.async.size(); i++)
            if (f.async[i].group < complete) due.push_back(i);
        if (due.empty()) break;
        perform(f, now.random.pick(due));
    }
    learn(f.clock, block->async_entry + f.index, f.async_groups[complete - 1]);
    f.version++;
}

// ---- bulk operations --------------------------------------------------------------------------------------------------

static void finish(const std::shared_ptr<Copy> &copy) {
    block->slot_busy[copy->slot] = false;
    auto &list = block->copies;
    list.erase(std::find(list.begin(), list.end(), copy));
}

static void arrive_bytes(Copy &copy) {
    const bool own = copy.target == block;
    const On there(*copy.target);
    if (!own) visit(copy.entry, copy.time, copy.pc);
    const auto found = block->mbarriers.find(copy.barrier);
    if (found == block->mbarriers.end()) return;  // reported at issue
    MBarrier &b = found->second;
    if (!b.fenced) find("missing fence.mbarrier_init", copy.pc, nullptr, "mbarrier %#x", copy.barrier);
    b.bytes -= copy.bytes;
    if (own) {
        publish(b.gathering, copy.view.data());
    } else {  // of the issuer's own doings only the copy
        publish_weakly(b.gathering, copy.view.data());
        if (!options.no_hazards) learn(b.gathering.data(), copy.entry, copy.time);
    }
    if (b.bytes < 0 && b.pending == 0)
        find("mbarrier bytes nobody expects", copy.pc, nullptr, "mbarrier %#x", copy.barrier);
    mbarrier_settle(b, copy.barrier);
}

static void load_data(Copy &copy) {
    u32 bytes = 0;  // of the whole box
    bool outside = true;
    for_each_piece(copy, [&](const Piece &piece) {
        alignas(16) u8 data[16] = {};
        outside = outside && !piece.valid;
        if (piece.valid && global_access(copy.actor(), piece.global, piece.valid, Effect::READ, copy.pc))
            memcpy(data, piece.global, piece.valid);
        const On there(*copy.target);
        async_shared(copy.actor(), piece.shared, data, true, copy.pc);
        bytes += 16;
    });
    copy.bytes = bytes;
    // Seen on an H200: it faults where there is no memory.
    if (outside && copy.tensor && !sim_holds(reinterpret_cast<const void *>(copy.map.base), 16))
        find("box outside its tensor", copy.pc, nullptr,
             "the engine touches the map's first address, which is in no allocation");
}
static void read_source(Copy &copy) {
    if (copy.kind == CopyKind::PEER) visit(copy.entry, copy.time, copy.pc);
    for_each_piece(copy, [&](const Piece &piece) {
        u8 data[16];
        async_shared(copy.actor(), piece.shared, data, false, copy.pc);
        copy.data.insert(copy.data.end(), data, data + 16);
    });
}
static void write_peer(Copy &copy) {
    const bool own = copy.target == block;
    const On there(*copy.target);
    if (!own) visit(copy.entry, copy.time, copy.pc);
    for (u32 i = 0; i < copy.bytes; i += 16) {
        const u32 part = std::min(copy.bytes - i, 16u);
        if (shared_access(copy.actor(), copy.peer_shared + i, part, true, false, copy.pc))
            memcpy(shared_at(copy.peer_shared + i), &copy.data[i], part);
    }
}
static void write_global(Copy &copy) {
    size_t at = 0;
    for_each_piece(copy, [&](const Piece &piece) {
        const u8 *data = &copy.data[at];
        at += 16;
        if (piece.valid && global_access(copy.actor(), piece.global, piece.valid, Effect::WRITE, copy.pc))
            memcpy(piece.global, data, piece.valid);
    });
}

// One of an operation's steps; true when it is complete.
static bool advance(Copy &copy) {
    using Step = void (*)(Copy &);
    static const Step load[] = {load_data, arrive_bytes, nullptr}, store[] = {read_source, write_global, nullptr},
                      peer[] = {read_source, write_peer, arrive_bytes, nullptr};
    static const Step *const steps[] = {load, store, peer};  // ORDER CopyKind
    progress++;
    statistics.copies++;
    TRACE("bulk copy of thread %u, shared %#x: step %u", copy.issuer, copy.shared, copy.steps);
    Fiber *running = self;
    self = nullptr;
    const Step *step = &steps[static_cast<int>(copy.kind)][copy.steps++];
    step[0](copy);
    self = running;
    return !step[1];
}

bool copy_step(bool forced) {
    if (block->async_pending && (block->copies.empty() || now.random.chance(50))) {
        const u32 start = now.random.below(block->threads);
        for (u32 i = 0; i < block->threads; i++) {
            Fiber &f = block->fibers[(start + i) % block->threads];
            if (f.async.empty()) continue;
            const size_t at = now.random.below(static_cast<u32>(f.async.size()));
            if (f.async[at].lazy && !forced) return false;
            perform(f, at);
            return true;
        }
    }
    std::vector<std::shared_ptr<Copy>> ready;
    for (const auto &copy : block->copies)
        if (forced || !copy->lazy) ready.push_back(copy);
    if (ready.empty()) return false;
    const auto copy = now.random.pick(ready);
    if (advance(*copy)) finish(copy);
    return true;
}

// A slot whose last operation the issuer knows to be over: who learns of the new one would else seem to know of that one too. Slots
// that nobody has heard of are the last resort.
static u32 free_slot() {
    for (;;) {
        u32 idle = SLOTS;
        for (u32 i = 0; i < SLOTS; i++) {
            if (block->slot_busy[i]) continue;
            if (self->clock[block->slot_entry + i + block->weak] >= block->slot_time[i]) return i;
            if (idle == SLOTS || block->slot_time[i] < block->slot_time[idle]) idle = i;
        }
        if (idle < SLOTS) return idle;
        const auto oldest = block->copies.front();
        if (advance(*oldest)) finish(oldest);
    }
}
std::shared_ptr<Copy> copy_new(CopyKind kind, u32 shared, u32 barrier, const void *pc) {
    auto copy = std::make_shared<Copy>();
    copy->kind = kind;
    copy->shared = shared;
    copy->barrier = barrier;
    copy->pc = pc;
    copy->issuer = self->index;
    copy->target = block;
    copy->slot = free_slot();
    copy->entry = block->slot_entry + copy->slot;
    block->slot_busy[copy->slot] = true;
    copy->time = ++block->slot_time[copy->slot];
    copy->view.assign(self->clock, self->clock + block->words);
    learn(copy->view.data(), copy->entry, copy->time);
    tick();
    copy->lazy = lazily();
    progress++;
    return copy;
}
void copy_issue(const std::shared_ptr<Copy> &copy) {
    TRACE("bulk copy: shared %#x, mbarrier %#x of block %u", copy->shared, copy->barrier, copy->target->id);
    block->copies.push_back(copy);
    if (copy->kind == CopyKind::STORE) {
        copy->group = self->store_group;
        self->stores.push_back(copy);
    }
    if (at_once()) {
        while (!advance(*copy)) {
        }
        finish(copy);
    }
    maybe_yield();
}

void bulk_load(u32 shared, const void *global, u32 bytes, u32 barrier) {
    if (!find_mbarrier(barrier, "bulk load", CALLER)) abandon();
    if (bytes % 16 || shared % 16 || reinterpret_cast<size_t>(global) % 16) {
        find("misaligned bulk copy", CALLER, nullptr, "%u bytes, shared %#x, global %p", bytes, shared, global);
        abandon();
    }
    auto copy = copy_new(CopyKind::LOAD, shared, barrier, CALLER);
    copy->bytes = bytes;
    copy->global = static_cast<char *>(const_cast<void *>(global));
    copy_issue(copy);
}

void bulk_commit() {
    self->store_group++;
}
void bulk_wait(u32 pending, bool read_only) {
    const i64 complete = static_cast<i64>(self->store_group) - pending;
    std::vector<std::shared_ptr<Copy>> left;
    for (const auto &copy : self->stores) {
        if (copy->group >= complete) {
            left.push_back(copy);
            continue;
        }
        while (copy->steps < (read_only ? 1u : 2u))
            if (advance(*copy)) finish(copy);
        copy->waited_for = true;
        learn(self->clock, copy->entry, copy->time);
        self->version++;
        if (read_only && copy->steps < 2) left.push_back(copy);
    }
    self->stores = left;
}

void fence_async_proxy() {
    self->proxy_fences.push_back(self->clock[self->entry]);
    tick();
}

// ---- exit -------------------------------------------------------------------------------------------------------------

void check_exit(Fiber &fiber) {
    if (fiber.async_time && fiber.clock[block->async_entry + fiber.index] < fiber.async_time)
        find("exit with cp.async in flight", nullptr, nullptr, "nobody has waited for the last copies");
    for (const auto &copy : fiber.stores)
        if (!copy->waited_for) find("exit with an unread bulk store", copy->pc, nullptr, "shared %#x", copy->shared);
    if (!fiber.flights.empty()) find("exit with a wgmma in flight", nullptr, nullptr, "warp %u", fiber.warp->id);
}

}  // namespace sim
