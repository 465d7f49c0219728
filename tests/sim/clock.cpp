// clock.cpp - happens-before: vector clocks, and the shadow of shared memory that they are held against.
//
// Precise to the byte: a chunk of 16 bytes keeps its last accesses with the bytes that each touched. An access that does not come after
// an earlier conflicting one in the accessor's own view is a race, whatever the order of this run was. What only this run's order made
// true (shuffles, votes, the scheduler) is in no view.
#include <algorithm>
#include <cstring>

#include "core.h"

namespace sim {

constexpr size_t FEW_READERS = 16, MANY_READERS = 40;

// ---- clocks -----------------------------------------------------------------------------------------------------------

// The machine spends more time here than anywhere else.
void join(u32 *into, const u32 *from) {
    const u32 words = block->words;
    for (u32 i = 0; i < words; i++) into[i] = into[i] > from[i] ? into[i] : from[i];
}
void learn(u32 *clock, u32 entry, u32 time) {
    clock[entry] = std::max(clock[entry], time);
    clock[entry + block->weak] = std::max(clock[entry + block->weak], time);
}
void tick(Fiber &fiber) {
    fiber.clock[fiber.entry + block->weak] = ++fiber.clock[fiber.entry];
    fiber.version++;
    fiber.tick_before_access = false;
}
void tick() {
    tick(*self);
}
void acquire(const Clock &released) {
    if (options.no_hazards || released.empty()) return;
    join(self->clock, released.data());
    self->version++;
}
void publish(Clock &gathering, const u32 *view) {
    if (options.no_hazards) return;
    if (gathering.empty())
        gathering.assign(view, view + block->words);
    else
        join(gathering.data(), view);
}
void publish(Clock &gathering) {
    publish(gathering, self->clock);
}
void publish_weakly(Clock &gathering, const u32 *view) {
    if (options.no_hazards) return;
    if (gathering.empty()) gathering.assign(block->words, 0);
    for (u32 i = block->weak; i < block->words; i++) gathering[i] = std::max(gathering[i], view[i]);
}

// The block of the cluster that has an entry.
static const Block &block_of(u32 entry) {
    const auto &blocks = block->cluster->blocks;
    return *blocks[entry / (block->predecessor_entry / blocks.size())];
}
std::string who(u32 entry, u32 id) {
    const Block &b = block_of(entry);  // or one like it: all clusters number their entries alike
    const std::string of = id == block->id ? "" : " of block " + std::to_string(id);
    if (entry < b.warp_entry) return "thread " + std::to_string(entry - b.thread_entry) + of;
    if (entry < b.slot_entry) return "the product of warp " + std::to_string(entry - b.warp_entry) + of;
    if (entry < b.async_entry) return "a bulk copy" + of;
    return "cp.async of thread " + std::to_string(entry - b.async_entry) + of;
}
std::string who(u32 entry) {
    return who(entry, block_of(entry).id);
}

// ---- accesses of a chunk ----------------------------------------------------------------------------------------------

static u64 pack(const Actor &actor, u32 mask, bool write, bool atomic) {
    return static_cast<u64>(actor.time) << 32 | static_cast<u64>(atomic) << 31 | static_cast<u64>(actor.generic) << 30 |
           static_cast<u64>(write) << 29 | static_cast<u64>(actor.entry) << 16 | mask;
}
static u32 time_of(u64 bits) {
    return static_cast<u32>(bits >> 32);
}
static u32 entry_of(u64 bits) {
    return bits >> 16 & (MOST_ENTRIES - 1);
}
static u32 mask_of(u64 bits) {
    return bits & 0xffff;
}
static bool is_write(u64 bits) {
    return bits >> 29 & 1;
}
static bool is_generic(u64 bits) {
    return bits >> 30 & 1;
}
static bool is_atomic(u64 bits) {
    return bits >> 31 & 1;
}

// Whether a thread's access at `time` has been handed to the async proxy before the point of view `view`.
static bool proxy_fenced(u32 entry, u32 time, const u32 *view) {
    if (entry - block->thread_entry >= block->threads) return false;
    const std::vector<u32> &fences = block->fibers[entry - block->thread_entry].proxy_fences;
    const auto fence = std::lower_bound(fences.begin(), fences.end(), time);
    return fence != fences.end() && view[entry] > *fence;
}

static void report_race(const Actor &actor, u32 address, u32 entry, bool write, bool earlier_write, const void *pc,
                        const void *earlier) {
    const char *kind = !write          ? "race: read after write"
                       : earlier_write ? "race: write after write"
                                       : "race: write after read";
    find(kind, pc, earlier, "%s at shared %#x, not ordered after %s", who(actor.entry).c_str(), address,
         who(entry).c_str());
}

static void note_reader(Chunk &chunk, u32 entry, u32 time, u32 mask) {
    for (u32 word = 0; word < 4; word++)
        if (mask >> 4 * word & 15) chunk.readers[word * block->entries + entry] = time;
}

// A write meets the readers of a chunk that has many.
static void check_readers(Chunk &chunk, u32 address, u32 mask, const Actor &actor, const void *pc) {
    bool left = false;
    for (u32 word = 0; word < 4; word++) {
        u32 *times = &chunk.readers[word * block->entries];
        const u32 part = mask >> 4 * word & 15;
        for (u32 entry = 0; part && entry < block->entries; entry++)
            if (times[entry] > actor.view[entry + block->weak]) {
                report_race(actor, address, entry, true, false, pc, nullptr);
                break;
            }
        if (part == 15)
            memset(times, 0, block->entries * sizeof *times);
        else
            left = true;
    }
    if (!left) chunk.readers.reset();
}

static void gather_readers(Chunk &chunk) {
    chunk.readers = std::make_unique<u32[]>(block->entries * 4);
    auto &list = chunk.accesses;
    list.erase(std::remove_if(list.begin(), list.end(),
                              [&](const Access &a) {
                                  if (!is_write(a.bits))
                                      note_reader(chunk, entry_of(a.bits), time_of(a.bits), mask_of(a.bits));
                                  return !is_write(a.bits);
                              }),
               list.end());
}

// Whether an arrival from another block lets an earlier access come before: it orders a write after all but ordinary stores, and these before the
// async proxy's writes.
__attribute__((noinline)) static bool comes_weakly_before(u64 earlier, const Actor &actor, bool write) {
    return write && !(is_write(earlier) && is_generic(earlier) && actor.generic) &&
           actor.view[entry_of(earlier) + block->weak] >= time_of(earlier);
}

// One access to the bytes `mask` of a chunk.
static void chunk_access(u32 address, u32 mask, const Actor &actor, bool write, bool atomic, const void *pc) {
    Chunk &chunk = (*block->shadow)[(address - WINDOW) / 16];
    if (chunk.barrier & mask)
        find("access to an mbarrier", pc, nullptr, "%s at shared %#x", who(actor.entry).c_str(), address);
    if ((!write || atomic) && (chunk.written & mask) != mask)
        find("read of unwritten shared memory", pc, nullptr, "%s at shared %#x: bytes %04x of %04x",
             who(actor.entry).c_str(), address, mask & ~chunk.written, mask);
    if (write) chunk.written |= static_cast<u16>(mask);
    if (options.no_hazards) return;
    size_t kept = 0;
    const bool few = chunk.accesses.size() < FEW_READERS;
    for (size_t i = 0; i < chunk.accesses.size(); i++) {
        const Access earlier = chunk.accesses[i];
        const u64 e = earlier.bits;
        const bool conflict = (mask_of(e) & mask) && (write || is_write(e)) && !(atomic && is_atomic(e));
        // To see what a read need not keep costs more than keeping it.
        if (!conflict && few && entry_of(e) != actor.entry) {
            chunk.accesses[kept++] = earlier;
            continue;
        }
        const bool before =
            actor.view[entry_of(e)] >= time_of(e) || (block->weak && comes_weakly_before(e, actor, write));
        if (conflict) {
            if (!before)
                report_race(actor, address, entry_of(e), write, is_write(e), pc, earlier.pc);
            else if (!actor.generic && is_generic(e) && is_write(e) &&
                     !proxy_fenced(entry_of(e), time_of(e), actor.view + block->weak))
                find("missing fence.proxy.async", pc, earlier.pc, "%s at shared %#x after a write by %s",
                     who(actor.entry).c_str(), address, who(entry_of(e)).c_str());
        }
        const bool replaced = before && !(mask_of(e) & ~mask) && (write || !is_write(e));
        if (!replaced) chunk.accesses[kept++] = earlier;
    }
    chunk.accesses.resize(kept);
    if (chunk.readers && write) check_readers(chunk, address, mask, actor, pc);
    if (!write && !chunk.readers && kept >= MANY_READERS) gather_readers(chunk);
    if (!write && chunk.readers)
        note_reader(chunk, actor.entry, actor.time, mask);
    else
        chunk.accesses.push_back({pack(actor, mask, write, atomic), pc});
}

// ---- shared memory ----------------------------------------------------------------------------------------------------

u8 *shared_at(u32 address) {
    return block->memory + (address - WINDOW);
}

bool is_shared(const void *pointer, u32 &address) {
    const size_t offset = static_cast<size_t>(static_cast<const u8 *>(pointer) - block->memory);
    address = WINDOW + static_cast<u32>(offset);
    return offset < SHARED_LIMIT;
}

bool shared_bounds(u32 address, u32 bytes, const char *what, const void *pc) {
    if (address >= WINDOW && address - WINDOW <= now.grid.shared_bytes &&
        bytes <= now.grid.shared_bytes - (address - WINDOW))
        return true;
    if (is_peer_address(address)) {
        find("peer address where this block's own is due", pc, nullptr, "%s at %#x", what, address);
        return false;
    }
    find("shared memory out of bounds", pc, nullptr, "%s of %u bytes at offset %lld of %u", what, bytes,
         static_cast<i64>(address) - WINDOW, now.grid.shared_bytes);
    return false;
}

bool shared_access(const Actor &actor, u32 address, u32 bytes, bool write, bool atomic, const void *pc) {
    if (!shared_bounds(address, bytes, write ? "write" : "read", pc)) return false;
    if ((bytes & (bytes - 1)) == 0 && bytes <= 16 && address % bytes)
        find("misaligned shared access", pc, nullptr, "%u bytes at shared %#x", bytes, address);
    while (bytes) {
        const u32 in = address % 16, part = std::min(bytes, 16 - in);
        chunk_access(address - in, ((1u << part) - 1) << in, actor, write, atomic, pc);
        address += part;
        bytes -= part;
    }
    return true;
}

void async_shared(const Actor &actor, u32 address, u8 *data, bool write, const void *pc) {
    if (!shared_bounds(address, 16, write ? "asynchronous write" : "asynchronous read", pc)) {
        if (!write) memset(data, 0xff, 16);
        return;
    }
    chunk_access(address, 0xffff, actor, write, false, pc);
    if (write)
        memcpy(shared_at(address), data, 16);
    else
        memcpy(data, shared_at(address), 16);
}

u32 shared_address(const void *pointer) {
    u32 address;
    if (is_shared(pointer, address)) return address;
    find("not shared memory", CALLER, nullptr, "%p has no address in the shared window", pointer);
    abandon();
}

Actor accessor() {
    if (self->tick_before_access) tick();
    return self->actor();
}

static bool checked(u32 address, u32 bytes, bool write, const void *pc) {
    count_banks(*self, address, bytes, pc);
    return shared_access(accessor(), address, bytes, write, false, pc);
}
void load_shared(u32 address, void *to, u32 bytes) {
    if (checked(address, bytes, false, CALLER))
        memcpy(to, shared_at(address), bytes);
    else
        abandon();
}
void store_shared(u32 address, const void *from, u32 bytes) {
    if (checked(address, bytes, true, CALLER))
        memcpy(shared_at(address), from, bytes);
    else
        abandon();
}

// ---- plain accesses ---------------------------------------------------------------------------------------------------

// The stack's accesses that hooks.cpp does not settle itself.
void in_flight(const char *p, size_t bytes, bool write, const void *pc) {
    for (const Flight &flight : self->flights)
        if (p < flight.high && p + bytes > flight.low && (write || flight.accumulator)) {
            find(write ? "register written while a wgmma uses it" : "accumulator read before its wgmma has completed",
                 pc, nullptr, "group %u", flight.group);
            return;
        }
}

void access(void *pointer, size_t bytes, bool write, const void *pc) {
    if (!self || !bytes) return;
    char *p = static_cast<char *>(pointer);
    u32 address;
    bool allowed;
    if (is_shared(p, address)) {
        allowed = checked(address, static_cast<u32>(bytes), write, pc);
    } else if (is_device(p)) {
        allowed = global_access(accessor(), p, bytes, write ? Effect::WRITE : Effect::READ, pc);
    } else {
        const bool constant = (p >= now.kernel->image_low && p < now.kernel->image_high) ||
                              (p >= now.parameter && p + bytes <= now.parameter + now.kernel->facts.parameter_bytes);
        allowed = constant && !write;
        if (!allowed)
            find("access to no known memory", pc, nullptr, "%s of %zu bytes at %p", write ? "write" : "read", bytes,
                 pointer);
    }
    if (!allowed) abandon();  // before the access happens
}
void endless(const void *pc) {
    find("endless loop", pc, nullptr, "no wait in 20 million accesses");
    abandon();
}
void undefined(const char *what, const void *pc) {
    find(what, pc, nullptr, "undefined behaviour");
}

}  // namespace sim
