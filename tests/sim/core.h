// core.h - what the parts of the machine share: threads, blocks, clocks, the launch under way.
//
// One host thread. `self` is the running fiber, null in the scheduler and while an asynchronous operation takes effect; `block` the
// block whose state is being worked on.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine.h"
#include "machine.h"

namespace sim {

// Functions of machine.h call it first: where in the kernel they were called.
#define CALLER __builtin_return_address(0)

constexpr u32 WARP = 32;
constexpr u32 SHARED_LIMIT = 232448;
constexpr u32 WINDOW = 1024;        // shared-window address of the dynamic array
constexpr u32 MOST_ENTRIES = 8192;  // of a cluster's clocks
constexpr u32 SLOTS = 128;  // bulk copies of one block that are in flight, or of whose end not everybody has heard

struct Random {
    u64 state;
    u64 next();
    u32 below(u32 n);
    bool chance(u32 percent) { return below(100) < percent; }
    template <class T> T &pick(std::vector<T> &from) { return from[below(static_cast<u32>(from.size()))]; }
};

// ---- happens-before ---------------------------------------------------------------------------------------------------
//
// Every actor of a cluster has an entry in its clocks: of each block its threads, then each warp's products, the slots of bulk copies and each
// thread's cp.async (if the kernel has any); last, one for griddepcontrol.wait. A block by itself is a cluster of one.
//
// Where a cluster has several blocks, a clock has a second half. What a release at cluster scope has brought stands in both; an arrival on another
// block's barrier has the scope of one block and reaches the second half alone: it hands a buffer back, but carries no ordinary stores over.
using Clock = std::vector<u32>;
using Snapshot = std::shared_ptr<const Clock>;

// Who accesses memory: its entry, its time there, and what it knows of all others.
struct Actor {
    u32 entry, time;
    const u32 *view;
    bool generic;  // proxy
};

struct Access {
    u64 bits;
    const void *pc;
};
// The shadow of 16 bytes of shared memory.
struct Chunk {
    u16 written, barrier;            // a bit a byte
    std::vector<Access> accesses;    // the last ones
    std::unique_ptr<u32[]> readers;  // once there are many: [4 words][entries] the time of each one's last read
};

// ---- threads ----------------------------------------------------------------------------------------------------------
enum class Wait { NONE, COLLECTIVE, NAMED_BARRIER, CLUSTER, MBARRIER, REGISTERS, GLOBAL, EXITED };

struct Warp;
struct Block;
struct Cluster;
struct Copy;

// Registers of a product in flight.
struct Flight {
    char *low, *high;
    u32 group;
    bool accumulator;
};

struct AsyncCopy {
    u32 shared, size, bytes, group, time;
    const char *global;
    bool lazy;
    Snapshot view;
    const void *pc;
};

struct Fiber {
    boost::context::detail::fcontext_t context;
    Stack *stack;
    Warp *warp;
    Block *home;
    u32 index;    // in the block
    u32 entry;    // in clocks
    u32 *clock;   // own view
    u32 version;  // of it
    Wait wait;
    u64 waits_for, detail;
    const void *pc;
    u32 registers;
    std::vector<u32> proxy_fences;  // own time at each
    // cp.async
    std::vector<AsyncCopy> async;
    u32 async_time;
    std::vector<u32> async_groups;  // of each committed group, the time of its last operation
    Snapshot async_view;            // of version async_version
    u32 async_version;
    bool tick_before_access;  // an operation in flight has taken this thread's time
    // bulk stores
    std::vector<std::shared_ptr<Copy>> stores;
    u32 store_group;
    // wgmma
    bool fenced;
    u32 issued, product_group;
    std::vector<Flight> flights;

    u32 lane() const { return index % WARP; }
    Actor actor() const { return {entry, clock[entry], clock, true}; }
};

enum class Kind { NONE, SHUFFLE, VOTE, SYNC, LOAD_MATRIX, STORE_MATRIX, MULTIPLY, PRODUCT_WAIT, CLUSTER_SYNC };

// A product of the 16 rows of one warp, some of whose lanes have issued it.
struct WarpProduct {
    Product of[WARP];
    const Product *first;  // of the lane that came first
    u32 have, group, time;
    bool done;
    Snapshot view;
    const void *pc;
};

struct Warp {
    u32 id;
    u32 ready, exited, yielded;  // lanes
    u32 priority;
    // the collective that lanes are gathering for
    Kind kind;
    u32 arrived;
    void *operands[WARP];
    const void *pc;
    // wgmma
    std::vector<std::unique_ptr<WarpProduct>> products;  // of which the first is number `first`
    u32 first, next, time, completed_time;               // next: to take effect
    Snapshot view;
    u64 view_version;
};

struct MBarrier {
    u32 count, pending, phase;
    i64 bytes;
    bool fenced;
    u32 init_entry, init_time;
    Clock gathering, released;
    std::vector<Fiber *> waiters;
};
struct NamedBarrier {
    u32 expected, arrived, generation;
    Clock gathering, released;
    std::vector<Fiber *> waiters;
    const void *pc;
};

// What entry `reader` has learnt of another cluster by an acquire at its time `time`: that cluster's clocks.
struct Known {
    u32 first;  // its first block
    Snapshot snapshot;
    u32 reader, time;
};

struct Block {
    u32 id, rank;
    Cluster *cluster;
    bool started;
    u32 threads, live;
    u32 victim;  // the warp that a starving schedule starves
    // Of its clocks: all entries; words; how far the second half is from the first, which may be it. Then where its own entries begin.
    u32 entries, words, weak;
    u32 thread_entry, warp_entry, slot_entry, async_entry, predecessor_entry;
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    std::vector<u32> clocks;
    u8 *memory;
    std::vector<Chunk> *shadow;
    std::map<u32, MBarrier> mbarriers;
    NamedBarrier named[16];
    std::vector<std::shared_ptr<Copy>> copies;
    u32 async_pending;
    u32 slot_time[SLOTS];
    bool slot_busy[SLOTS];
    i64 free_registers;
    std::vector<Fiber *> register_waiters;
    std::vector<u32> visits;  // when each entry of other blocks last accessed this one
};

struct Cluster {
    u32 first, running;  // block; blocks that have not ended
    std::vector<std::unique_ptr<Block>> blocks;
    NamedBarrier barrier;
    std::vector<Known> known;
};

// ---- the launch under way ---------------------------------------------------------------------------------------------
enum class Timing { EAGER, LAZY, MIXED };
enum class Turns { UNIFORM, PRIORITIES, STARVED };

struct Kernel {
    std::string entry, spec;
    sim_facts facts;
    void (*run)(const void *parameter);
    bool has_wgmma, has_async;
    char *image_low, *image_high;
};

struct Launch {
    const Kernel *kernel;
    sim_grid grid;
    const char *parameter;
    u32 id, chain;  // chain: the first launch that may not have ended when this one starts
    Random random;
    Timing copies, products;
    Turns turns;
    u32 yield_percent, resident, block_turn;
    u32 starved_rank;  // blocks of this rank run only when no others can; ~0: none
};

extern sim_options options;
extern sim_statistics statistics;
extern Launch now;
extern Fiber *self;
extern Block *block;
extern bool aborting;
extern u64 progress;  // counts whatever might let someone else go on

// Another block's state is worked on for a while, in which self keeps running.
struct On {
    Block *const before;
    explicit On(Block &other) : before(block) { block = &other; }
    ~On() { block = before; }
    On(const On &) = delete;
};

// ---- fiber.cpp
void park(Wait wait, u64 waits_for, u64 detail, const void *pc);  // until someone wakes it
void wake(Fiber *fiber);
void maybe_yield();           // stays runnable, but the rest of its warp goes first
[[noreturn]] void abandon();  // the launch ends here; self only
void stop();                  // the launch ends as soon as it can; returns only in the scheduler
bool lazily();                // whether an asynchronous copy that starts now is to be late
bool at_once();               // whether it is to happen where it is issued

// ---- clock.cpp: what threads know of each other, and the shadow of shared memory
void join(u32 *into, const u32 *from);
void learn(u32 *clock, u32 entry, u32 time);
void tick(Fiber &fiber);  // its time goes on: what it does from now on is not covered by what it has released
void tick();              // self's
void acquire(const Clock &released);
void publish(Clock &gathering);
void publish(Clock &gathering, const u32 *view);
void publish_weakly(Clock &gathering, const u32 *view);  // to another block: the second half alone
std::string who(u32 entry);
std::string who(u32 entry, u32 id);  // in any cluster: the block's
bool shared_bounds(u32 address, u32 bytes, const char *what, const void *pc);
u8 *shared_at(u32 address);
bool is_shared(const void *pointer, u32 &address);
bool shared_access(const Actor &actor, u32 address, u32 bytes, bool write, bool atomic, const void *pc);
void async_shared(const Actor &actor, u32 address, u8 *data, bool write, const void *pc);  // 16 bytes

Actor accessor();  // self, at a time that nothing in flight has taken

// ---- memory.cpp: device memory and its shadow
enum class Effect { READ, WRITE, ATOMIC, REDUCTION, POLL };
bool is_device(const void *pointer);
bool global_access(const Actor &actor, const void *pointer, size_t bytes, Effect effect, const void *pc);
void memory_launch();  // a launch begins: its flags are new

// ---- barrier.cpp
MBarrier *find_mbarrier(u32 barrier, const char *what, const void *pc);
void mbarrier_settle(MBarrier &b, u32 barrier);
bool mbarrier_count(u32 barrier, u32 bytes,
                    const void *pc);  // self's arrival at a barrier of `block`, whosever that is
void barrier_complete(NamedBarrier &b);

// ---- cluster.cpp
bool is_peer_address(u32 address);
void visit(u32 entry, u32 time, const void *pc);  // `block` is accessed by another one
void check_visits(const Block &b);                // it has ended
void cluster_exit(Cluster &cluster);              // one of its threads has

// ---- warp.cpp, product.cpp, copy.cpp, tensor.cpp: one step of what is asynchronous; false: there is nothing to do
inline float to_float(u16 bits, bool half) {
    if (half) {
        _Float16 value;
        memcpy(&value, &bits, sizeof value);
        return static_cast<float>(value);
    }
    const u32 wide = static_cast<u32>(bits) << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}
bool product_step(Warp &warp);
bool product_ready(const Warp &warp);
bool copy_step(bool forced);
void check_exit(Fiber &fiber);
void gather(Kind kind, void *operand, void (*complete)(), const void *pc);

// ---- banks.cpp
void count_banks(const Fiber &fiber, u32 address, u32 bytes, const void *pc);
void settle_banks(Warp &warp);
void name_banks();

// ---- finding.cpp
__attribute__((format(printf, 4, 5))) void find(const char *kind, const void *pc, const void *earlier,
                                                const char *format, ...);
__attribute__((format(printf, 1, 2))) void trace(const char *format, ...);
#define TRACE(...)                                 \
    do {                                           \
        if (options.trace > 0) trace(__VA_ARGS__); \
    } while (0)
std::string where(const void *pc);
void leave_library();  // a kernel's code goes away: what refers to places in it is named
void report_hang(const std::vector<Block *> &resident);

}  // namespace sim
