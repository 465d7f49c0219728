// memory.cpp - device memory: a sparse arena, its shadow, atomics, and flags between blocks.
//
// The shadow holds, for every 2 bytes, the last write and the last read: launch, block, actor, time. Inside a block, clocks order
// accesses; between blocks of a launch, only a release that an acquire has seen; between launches, the stream, or griddepcontrol.wait.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unordered_map>

#include "core.h"

namespace sim {

constexpr size_t ARENA = static_cast<size_t>(256) << 30, PAGE = 4096, CELL = 2;

struct Touch {
    u32 launch, time;
    u16 block, entry;
};
struct Cell {
    Touch write, read;
    bool atomic;  // the last write
};

static char *arena;
static Cell *cells;
static u8 *written;  // a byte a byte
static size_t used, allocated;
static std::map<const char *, size_t> allocations;

// What releases on a flag have published, by cluster.
struct Flag {
    std::map<u32, Snapshot> clusters;
};
static std::unordered_map<const void *, Flag> flags;
static std::unordered_multimap<const void *, Fiber *> flag_waiters;

// ---- allocations ------------------------------------------------------------------------------------------------------

template <class T> static T *reserve(size_t count) {
    void *at =
        mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        perror("sim: address space for device memory");
        abort();
    }
    return static_cast<T *>(at);
}
static void open_arena() {
    if (arena) return;
    arena = reserve<char>(ARENA);
    cells = reserve<Cell>(ARENA / CELL);
    written = reserve<u8>(ARENA);
}
static size_t offset_of(const void *p) {
    return static_cast<size_t>(static_cast<const char *>(p) - arena);
}
bool is_device(const void *p) {
    return arena && offset_of(p) < ARENA;
}

// The allocation that [p, p + bytes) lies in, or end().
static std::map<const char *, size_t>::iterator holder(const void *pointer, size_t bytes) {
    const char *p = static_cast<const char *>(pointer);
    static std::map<const char *, size_t>::iterator last;
    static size_t generation = ~static_cast<size_t>(0);
    auto inside = [&](auto &it) { return p >= it->first && p + bytes <= it->first + it->second; };
    if (generation == used + allocations.size() && inside(last)) return last;
    auto next = allocations.upper_bound(p);
    if (next == allocations.begin()) return allocations.end();
    --next;
    if (!inside(next)) return allocations.end();
    last = next;
    generation = used + allocations.size();
    return next;
}

static bool global_bounds(const void *p, size_t bytes, bool write, const void *pc) {
    if (holder(p, bytes) != allocations.end()) return true;
    auto next = allocations.upper_bound(static_cast<const char *>(p));
    if (next == allocations.begin()) {
        find("global memory out of bounds", pc, nullptr, "%s of %zu bytes at %p, before every allocation",
             write ? "write" : "read", bytes, p);
        return false;
    }
    --next;
    find("global memory out of bounds", pc, nullptr, "%s of %zu bytes at byte %lld of an allocation of %zu",
         write ? "write" : "read", bytes, static_cast<i64>(static_cast<const char *>(p) - next->first), next->second);
    return false;
}

// ---- order ------------------------------------------------------------------------------------------------------------

static bool is_in(u32 id, u32 first) {  // a block, the cluster that begins with `first`
    return id - first < block->cluster->blocks.size();
}
// Whether something in another cluster of this launch comes before the point of view `view`.
static bool other_cluster_before(const Touch &touch, const u32 *view) {
    const std::vector<Known> &known = block->cluster->known;
    for (size_t i = known.size(); i-- > 0;) {
        const Known &k = known[i];
        if (is_in(touch.block, k.first) && (*k.snapshot)[touch.entry] >= touch.time && view[k.reader] >= k.time)
            return true;
    }
    return false;
}
static bool ordered(const Touch &touch, const u32 *view) {
    return is_in(touch.block, block->cluster->first) ? view[touch.entry] >= touch.time
                                                     : other_cluster_before(touch, view);
}

static void check_order(const Touch &touch, bool earlier_write, bool write, const Actor &actor, const void *pc) {
    const char *after = earlier_write ? "write" : "read";
    if (touch.launch == now.id) {
        if (options.no_hazards || ordered(touch, actor.view)) return;
        find(touch.block == block->id ? "global race inside a block" : "global race between blocks", pc, nullptr,
             "%s by %s, not ordered after a %s by %s", write ? "write" : "read", who(actor.entry).c_str(), after,
             who(touch.entry, touch.block).c_str());
    } else if (touch.launch >= now.chain && !actor.view[block->predecessor_entry]) {
        find("no griddepcontrol.wait", pc, nullptr, "%s of what an earlier kernel may still %s",
             write ? "write" : "read", after);
    }
}

bool global_access(const Actor &actor, const void *pointer, size_t bytes, Effect effect, const void *pc) {
    const bool write = effect != Effect::READ && effect != Effect::POLL;
    const bool atomic = write ? effect != Effect::WRITE : effect == Effect::POLL;
    if (!global_bounds(pointer, bytes, write, pc)) return false;
    const size_t at = offset_of(pointer);
    if ((bytes & (bytes - 1)) == 0 && bytes <= 16 && at % bytes)
        find("misaligned global access", pc, nullptr, "%zu bytes at %p", bytes, pointer);
    if (effect != Effect::WRITE && memchr(written + at, 0, bytes))
        find("read of unwritten global memory", pc, nullptr, "%zu bytes at byte %zu of an allocation", bytes,
             static_cast<size_t>(static_cast<const char *>(pointer) - holder(pointer, bytes)->first));
    if (write) memset(written + at, 1, bytes);
    const Touch touch = {now.id, actor.time, static_cast<u16>(block->id), static_cast<u16>(actor.entry)};
    for (size_t i = at / CELL; i <= (at + bytes - 1) / CELL; i++) {
        Cell &cell = cells[i];
        if (effect == Effect::REDUCTION && now.kernel->facts.deterministic && cell.write.launch == now.id &&
            cell.atomic && !options.no_hazards && !ordered(cell.write, actor.view))
            find("unordered reduction", pc, nullptr, "with one by %s: the sum depends on timing",
                 who(cell.write.entry, cell.write.block).c_str());
        if (!(atomic && cell.atomic)) check_order(cell.write, true, write, actor, pc);
        if (write) check_order(cell.read, false, write, actor, pc);  // by no atomic: polls are not kept
        if (write) {
            cell.write = touch;
            cell.atomic = atomic;
        } else if (!atomic) {
            cell.read = touch;
        }
    }
    return true;
}

void memory_launch() {
    flags.clear();
    flag_waiters.clear();
}

// ---- atomics ----------------------------------------------------------------------------------------------------------

template <class T> static T atomically(T *p, T value, Atomic operation, const void *pc) {
    maybe_yield();
    u32 shared;
    const bool allowed = is_shared(p, shared) ? shared_access(accessor(), shared, sizeof(T), true, true, pc)
                                              : global_access(accessor(), p, sizeof(T), Effect::ATOMIC, pc);
    if (!allowed) abandon();
    const T old = *p;
    *p = operation == Atomic::ADD ? old + value : old < value ? old : value;
    progress++;
    return old;
}
u64 atomic(u64 *p, u64 value, Atomic operation) {
    return atomically(p, value, operation, CALLER);
}
u32 atomic(u32 *p, u32 value, Atomic operation) {
    return atomically(p, value, operation, CALLER);
}

void reduce_add(float *p, const float *values, u32 count) {
    if (!global_access(accessor(), p, count * sizeof *p, Effect::REDUCTION, CALLER)) abandon();
    for (u32 i = 0; i < count; i++) p[i] += values[i];
}

// ---- flags between blocks ---------------------------------------------------------------------------------------------

static void flag_publish(Flag &flag, u32 from, const u32 *view) {
    Snapshot &known = flag.clusters[from];
    auto joined = known ? std::make_shared<Clock>(*known) : std::make_shared<Clock>(block->words, 0);
    join(joined->data(), view);
    known = joined;
}

static void flag_acquire(const Flag &flag) {
    std::vector<Known> &known = block->cluster->known;
    for (const auto &from : flag.clusters) {
        if (from.first == block->cluster->first) {
            join(self->clock, from.second->data());
            continue;
        }
        bool have = false;
        for (const Known &k : known) have = have || (k.snapshot == from.second && k.reader == self->entry);
        if (!have) known.push_back({from.first, from.second, self->entry, self->clock[self->entry]});
    }
    tick();
}

void global_wait_at_least(const u32 *p, u32 expected) {
    for (;;) {
        if (!global_access(accessor(), p, sizeof *p, Effect::POLL, CALLER)) abandon();
        if (*p >= expected) break;
        TRACE("acquire: %p is %u, waits for %u", static_cast<const void *>(p), *p, expected);
        flag_waiters.emplace(p, self);
        park(Wait::GLOBAL, *p, expected, CALLER);
    }
    const auto flag = flags.find(p);
    if (flag != flags.end() && !options.no_hazards) flag_acquire(flag->second);
}

void global_release_add(u32 *p, u32 value) {
    if (!global_access(accessor(), p, sizeof *p, Effect::ATOMIC, CALLER)) abandon();
    *p += value;
    TRACE("release: %p becomes %u", static_cast<const void *>(p), *p);
    if (!options.no_hazards) {  // cumulative: what this thread knows of other clusters goes along
        Flag &flag = flags[p];
        flag_publish(flag, block->cluster->first, self->clock);
        for (const Known &k : block->cluster->known)
            if (self->clock[k.reader] >= k.time && flag.clusters[k.first] != k.snapshot)
                flag_publish(flag, k.first, k.snapshot->data());
        tick();
    }
    const auto waiting = flag_waiters.equal_range(p);
    for (auto w = waiting.first; w != waiting.second; ++w) wake(w->second);
    flag_waiters.erase(p);
    progress++;
    maybe_yield();
}

void wait_for_predecessor() {
    learn(self->clock, block->predecessor_entry, 1);
    self->version++;
}
void allow_successor() {}

}  // namespace sim

using namespace sim;

void *sim_alloc(size_t bytes) {
    open_arena();
    const size_t room = (bytes + PAGE - 1) / PAGE * PAGE + PAGE;  // a page between allocations
    if (bytes > ARENA || used + room + PAGE > ARENA) return nullptr;
    char *at = arena + PAGE + used;
    used += room;
    allocated += bytes;
    allocations[at] = bytes;
    return at;
}

// Gives pages back, all zeros when they are touched again.
static void discard(size_t from, size_t bytes) {
    const size_t to = (from + bytes + PAGE - 1) / PAGE * PAGE;
    madvise(arena + from, to - from, MADV_DONTNEED);
    madvise(written + from, to - from, MADV_DONTNEED);
    madvise(cells + from / CELL, (to - from) / CELL * sizeof(Cell), MADV_DONTNEED);
}
bool sim_free(void *address) {
    const auto at = allocations.find(static_cast<const char *>(address));
    if (at == allocations.end()) return false;
    discard(offset_of(at->first), at->second);
    allocated -= at->second;
    allocations.erase(at);
    if (allocations.empty()) used = 0;
    return true;
}
size_t sim_allocated(void) {
    return allocated;
}
bool sim_holds(const void *address, size_t bytes) {
    return is_device(address) && holder(address, bytes) != allocations.end();
}

void sim_mark_written(const void *address, size_t bytes) {
    memset(written + offset_of(address), 1, bytes);
}
void sim_mark_unwritten(const void *address, size_t bytes) {
    memset(written + offset_of(address), 0, bytes);
}
