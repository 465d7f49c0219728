// fiber.cpp - threads as fibers, and the scheduler that turns a seed into one order of events.
//
// A step picks a warp of a resident block and runs its lanes until each waits. The lanes of a warp stay together (none gets a step of
// another warp ahead of its siblings) unless strict_lanes. Blocks start lazily. A launch in which nothing can move hangs, exactly:
// every wait of a kernel parks its fiber until the event that ends it.
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core.h"

namespace sim {

namespace context = boost::context::detail;

constexpr u64 TURN_LIMIT = 20000000;     // accesses
constexpr u64 LAUNCH_LIMIT = 400000000;  // turns, if the options do not say

sim_options options;
sim_statistics statistics;
Launch now;
Fiber *self;
Block *block;
bool aborting;
u64 progress;
RunningStack stack;

static context::fcontext_t scheduler;
static std::vector<Stack *> stack_pool;
static std::vector<std::vector<Chunk> *> shadow_pool;
static std::vector<u8 *> memory_pool;

// ---- chance -----------------------------------------------------------------------------------------------------------

u64 Random::next() {  // splitmix64
    state += 0x9e3779b97f4a7c15;
    u64 z = state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}
u32 Random::below(u32 n) {
    return static_cast<u32>((next() >> 32) * n >> 32);
}

bool lazily() {
    return now.copies == Timing::LAZY || (now.copies == Timing::MIXED && now.random.chance(60));
}
bool at_once() {
    return now.copies == Timing::EAGER || (now.copies == Timing::MIXED && now.random.chance(25));
}

u32 thread_x() {
    return self->index;
}
u32 block_x() {
    return block->id;
}
u32 grid_x() {
    return now.grid.blocks;
}
unsigned char *shared_memory() {
    return block->memory;
}

// ---- fibers -----------------------------------------------------------------------------------------------------------

static void leave() {
    scheduler = context::jump_fcontext(scheduler, nullptr).fctx;
}

void abandon() {
    aborting = true;
    leave();
    __builtin_unreachable();
}
void stop() {
    if (self) abandon();
    aborting = true;
}
void park(Wait wait, u64 waits_for, u64 detail, const void *pc) {
    self->wait = wait;
    self->waits_for = waits_for;
    self->detail = detail;
    self->pc = pc;
    self->warp->ready &= ~(1u << self->lane());
    leave();
}
void wake(Fiber *fiber) {
    fiber->wait = Wait::NONE;
    fiber->warp->ready |= 1u << fiber->lane();
}
void maybe_yield() {
    if (!now.random.chance(now.yield_percent)) return;
    self->warp->yielded |= 1u << self->lane();
    leave();
}

static void fiber_main(context::transfer_t transfer) {
    scheduler = transfer.fctx;
    now.kernel->run(now.parameter);
    check_exit(*self);
    const u32 bit = 1u << self->lane();
    self->wait = Wait::EXITED;
    self->warp->ready &= ~bit;
    self->warp->exited |= bit;
    block->live--;
    progress++;
    NamedBarrier &all = block->named[0];
    if (all.arrived && all.expected > block->live) {
        all.expected = block->live;
        if (all.arrived == all.expected) barrier_complete(all);
    }
    cluster_exit(*block->cluster);
    leave();
}

static Stack *new_stack() {
    constexpr size_t GUARD = 4096;
    auto *low = static_cast<char *>(
        mmap(nullptr, GUARD + STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    mprotect(low, GUARD, PROT_NONE);
    return new Stack{low + GUARD, new u32[STACK_BYTES / 4](), 0, nullptr, nullptr};
}

static void run_fiber(Fiber &fiber) {
    self = &fiber;
    statistics.switches++;
    stack.of = fiber.stack;
    stack.limit = stack.accesses + TURN_LIMIT;
    fiber.context = context::jump_fcontext(fiber.context, nullptr).fctx;
    self = nullptr;
}

// ---- blocks -----------------------------------------------------------------------------------------------------------

template <class T> static T take(std::vector<T> &pool, T (*make)()) {
    if (pool.empty()) return make();
    T one = pool.back();
    pool.pop_back();
    return one;
}

// A cluster whose blocks are there, none of them started.
static std::unique_ptr<Cluster> new_cluster(u32 number) {
    const u32 size = static_cast<u32>(now.kernel->facts.cluster);
    auto cluster = std::make_unique<Cluster>();
    cluster->first = number * size;
    cluster->running = size;
    for (u32 rank = 0; rank < size; rank++) {
        cluster->blocks.push_back(std::make_unique<Block>());
        Block &b = *cluster->blocks.back();
        b.id = cluster->first + rank;
        b.rank = rank;
        b.cluster = cluster.get();
    }
    return cluster;
}

// How many entries a block has in its cluster's clocks.
static u32 entries_of_block() {
    return now.grid.threads + now.grid.threads / WARP + SLOTS + (now.kernel->has_async ? now.grid.threads : 0);
}
static void number_entries(Block &b) {
    const u32 size = static_cast<u32>(b.cluster->blocks.size()), part = entries_of_block();
    b.thread_entry = b.rank * part;
    b.warp_entry = b.thread_entry + b.threads;
    b.slot_entry = b.warp_entry + b.threads / WARP;
    b.async_entry = b.slot_entry + SLOTS;
    b.predecessor_entry = size * part;
    b.entries = (b.predecessor_entry + 1 + 7) / 8 * 8;
    b.weak = size > 1 ? b.entries : 0;
    b.words = b.entries + b.weak;
}

static void start_block(Block &b) {
    block = &b;
    b.started = true;
    b.threads = b.live = now.grid.threads;
    const u32 warps = b.threads / WARP;
    // Helpers, the last warps of kernels whose warps have roles, would be starved too rarely otherwise.
    b.victim = now.random.chance(50) ? now.random.below(warps) : warps - 1 - now.random.below(std::min(warps, 4u));
    number_entries(b);
    b.fibers = std::vector<Fiber>(b.threads);
    b.warps = std::vector<Warp>(warps);
    b.clocks.assign(static_cast<size_t>(b.words) * b.threads, 0);
    b.memory = take<u8 *>(memory_pool,
                          [] { return static_cast<u8 *>(aligned_alloc(1024, (SHARED_LIMIT + 1023) / 1024 * 1024)); });
    memset(b.memory, 0xff, now.grid.shared_bytes);
    b.shadow = take<std::vector<Chunk> *>(shadow_pool, [] { return new std::vector<Chunk>(SHARED_LIMIT / 16); });
    for (u32 i = 0; i < (now.grid.shared_bytes + 15) / 16; i++) {
        Chunk &chunk = (*b.shadow)[i];
        chunk.written = chunk.barrier = 0;
        chunk.accesses.clear();
        chunk.readers.reset();
    }
    for (u32 i = 0; i < warps; i++) {
        b.warps[i].id = i;
        b.warps[i].ready = ~0u;
        b.warps[i].priority = now.random.below(1000);
    }
    for (u32 i = 0; i < b.threads; i++) {
        Fiber &f = b.fibers[i];
        f.stack = take<Stack *>(stack_pool, new_stack);
        f.stack->fences++;
        f.stack->flights_low = f.stack->flights_high = nullptr;
        f.home = &b;
        f.index = i;
        f.entry = b.thread_entry + i;
        f.warp = &b.warps[i / WARP];
        f.clock = &b.clocks[static_cast<size_t>(i) * b.words];
        learn(f.clock, f.entry, 1);
        if (!now.grid.programmatic) learn(f.clock, b.predecessor_entry, 1);
        f.version = 1;
        f.registers = static_cast<u32>(now.kernel->facts.registers);
        f.context = context::make_fcontext(f.stack->low + STACK_BYTES, STACK_BYTES, fiber_main);
    }
}

// What a block that has run to its end must not leave behind.
static void check_end(const Block &b) {
    for (u32 id = 0; id < 16; id++)
        if (b.named[id].arrived)
            find("named barrier unbalanced at exit", b.named[id].pc, nullptr, "barrier %u: %u of %u", id,
                 b.named[id].arrived, b.named[id].expected);
    for (const auto &m : b.mbarriers)
        if (m.second.bytes || m.second.pending != m.second.count)
            find("mbarrier unbalanced at exit", nullptr, nullptr, "%#x: %u of %u arrivals pending, %lld bytes", m.first,
                 m.second.pending, m.second.count, m.second.bytes);
    const u32 launched = static_cast<u32>(now.kernel->facts.registers);
    if (b.free_registers > 0 &&
        std::none_of(b.fibers.begin(), b.fibers.end(), [&](const Fiber &fiber) { return fiber.registers > launched; }))
        find("registers given back that nobody takes", nullptr, nullptr, "%lld of them", b.free_registers);
    bool waited = !now.grid.programmatic;
    for (const Fiber &f : b.fibers) waited = waited || f.clock[b.predecessor_entry];
    if (!waited)
        find("exit without griddepcontrol.wait", nullptr, nullptr,
             "the next kernel would not wait for the last but one");
    check_visits(b);
}

// What its blocks had, other blocks of it may still have accessed after their end.
static void end_cluster(const Cluster &cluster) {
    for (const auto &b : cluster.blocks) {
        if (!b->started) continue;
        for (Warp &w : b->warps) settle_banks(w);
        for (Fiber &f : b->fibers) stack_pool.push_back(f.stack);
        memory_pool.push_back(b->memory);
        shadow_pool.push_back(b->shadow);
    }
}

// ---- schedules --------------------------------------------------------------------------------------------------------

// One asynchronous operation of the block moves on. Not forced: only those that the seed doesn't hold back.
static bool asynchronous_step(bool forced) {
    const bool copies = !block->copies.empty() || block->async_pending;
    static std::vector<Warp *> ready;
    ready.clear();
    if (forced || now.products != Timing::LAZY)
        for (Warp &w : block->warps)
            if (product_ready(w)) ready.push_back(&w);
    if (copies && (ready.empty() || now.random.chance(50)) && copy_step(forced)) return true;
    return !ready.empty() && product_step(*now.random.pick(ready));
}

// One step of a block; false if nothing in it can move.
static bool step(Block &b) {
    block = &b;
    if (now.random.chance(now.copies == Timing::EAGER ? 60 : 20)) asynchronous_step(false);
    static std::vector<Warp *> ready;
    ready.clear();
    for (Warp &w : b.warps)
        if (w.ready) ready.push_back(&w);
    if (ready.empty()) return asynchronous_step(true);
    if (now.turns == Turns::STARVED) {  // one warp only runs when nothing else can
        if (ready.size() == 1 && ready[0]->id == b.victim && asynchronous_step(true)) return true;
        if (ready.size() > 1) ready.erase(std::remove(ready.begin(), ready.end(), &b.warps[b.victim]), ready.end());
    }
    Warp *warp = now.random.pick(ready);
    if (now.turns == Turns::PRIORITIES) {
        for (Warp *w : ready)
            if (w->priority > warp->priority) warp = w;
        if (now.random.chance(2)) warp->priority = now.random.below(1000);
    }
    const bool descending = now.random.chance(30);
    warp->yielded = 0;
    do
        for (u32 i = 0; i < WARP && !aborting; i++) {
            const u32 lane = descending ? WARP - 1 - i : i;
            if ((warp->ready & ~warp->yielded) >> lane & 1) run_fiber(b.fibers[warp->id * WARP + lane]);
        }
    while (!options.strict_lanes && (warp->ready & ~warp->yielded) && !aborting);
    return true;
}

static bool can_move(const Block &b) {
    if (!b.started || !b.copies.empty() || b.async_pending) return true;
    for (const Warp &w : b.warps)
        if (w.ready || product_ready(w)) return true;
    return false;
}

static Block *pick_block(std::vector<Block *> &running) {
    Block *one = now.random.pick(running);
    if (one->rank != now.starved_rank) return one;
    std::vector<Block *> others;
    for (Block *b : running)
        if (b->rank != now.starved_rank && can_move(*b)) others.push_back(b);
    return others.empty() ? one : now.random.pick(others);
}

template <class T, class P> static void erase_first(std::vector<T> &from, P which) {
    from.erase(std::find_if(from.begin(), from.end(), which));
}

static void run_clusters() {
    const u32 count = now.grid.blocks / static_cast<u32>(now.kernel->facts.cluster);
    std::vector<u32> order(count);
    std::iota(order.begin(), order.end(), 0u);
    if (options.any_order)
        for (u32 i = count; i > 1; i--) std::swap(order[i - 1], order[now.random.below(i)]);
    std::vector<std::unique_ptr<Cluster>> resident;
    std::vector<Block *> running;  // theirs that have not ended
    u32 next = 0, quantum = 0;
    u64 turns = 0;
    const u64 limit = options.turn_limit > 0 ? static_cast<u64>(options.turn_limit) : LAUNCH_LIMIT;
    Block *current = nullptr;
    while (!aborting) {
        while (resident.size() < now.resident && next < count) {
            resident.push_back(new_cluster(order[next++]));
            for (const auto &b : resident.back()->blocks) running.push_back(b.get());
        }
        if (running.empty()) return;
        if (!current || !quantum--) {
            current = pick_block(running);
            quantum = now.random.below(now.block_turn);
        }
        if (!current->started)
            for (const auto &b : current->cluster->blocks) start_block(*b);
        const bool moved = step(*current);
        if (!aborting && current->live == 0 && current->copies.empty() && !current->async_pending) {
            check_end(*current);
            erase_first(running, [&](Block *b) { return b == current; });
            Cluster *of = current->cluster;
            if (--of->running == 0) {
                end_cluster(*of);
                erase_first(resident, [&](auto &c) { return c.get() == of; });
            }
            current = nullptr;
            continue;
        }
        if (++turns > limit) {
            find("endless launch", nullptr, nullptr, "%llu turns", turns);
            aborting = true;
        }
        if (moved) continue;
        current = nullptr;
        if (std::any_of(running.begin(), running.end(), [](const Block *b) { return can_move(*b); })) continue;
        report_hang(running);
        aborting = true;
    }
    for (const auto &cluster : resident) end_cluster(*cluster);
}

// ---- launches ---------------------------------------------------------------------------------------------------------

// A fault inside a kernel is a finding, not the end of the process: the handler abandons the launch.
static void on_fault(int number, siginfo_t *, void *machine_context) {
    if (!self) {
        signal(number, SIG_DFL);
        return;
    }
    const auto at = static_cast<ucontext_t *>(machine_context)->uc_mcontext.gregs[REG_RIP];
    find("crash", reinterpret_cast<void *>(at + 1), nullptr, "%s", strsignal(number));
    abandon();
}
static const int FAULTS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
static struct sigaction previous[4];

static void catch_faults() {
    static char *handler_stack = new char[64 << 10];
    stack_t alternative = {};
    alternative.ss_sp = handler_stack;
    alternative.ss_size = 64 << 10;
    sigaltstack(&alternative, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int i = 0; i < 4; i++) sigaction(FAULTS[i], &action, &previous[i]);
}
static void release_faults() {
    for (int i = 0; i < 4; i++) sigaction(FAULTS[i], &previous[i], nullptr);
}

static bool grid_fits(const sim_facts &facts, const sim_grid &grid) {
    const u32 cluster = static_cast<u32>(facts.cluster);
    if (grid.blocks && grid.blocks < 65536 && grid.threads && grid.threads % WARP == 0 &&
        grid.threads <= static_cast<u32>(facts.threads) && grid.shared_bytes <= SHARED_LIMIT &&
        grid.blocks % cluster == 0 && cluster * entries_of_block() < MOST_ENTRIES)
        return true;
    find("launch outside the kernel's bounds", nullptr, nullptr,
         "%u blocks of %u threads and %u bytes of shared memory; %d threads, clusters of %d", grid.blocks, grid.threads,
         grid.shared_bytes, facts.threads, facts.cluster);
    return false;
}

}  // namespace sim

using namespace sim;

bool sim_launch(const struct sim_kernel *kernel, const struct sim_grid *grid, const void *parameter) {
    now.kernel = reinterpret_cast<const Kernel *>(kernel);
    now.grid = *grid;
    now.id++;
    if (!grid->programmatic) now.chain = now.id;
    aborting = false;
    if (!grid_fits(now.kernel->facts, *grid)) return false;
    std::vector<char> copy(now.kernel->facts.parameter_bytes + 64);  // aligned as constant memory is
    now.parameter = reinterpret_cast<char *>((reinterpret_cast<size_t>(copy.data()) + 63) / 64 * 64);
    memcpy(const_cast<char *>(now.parameter), parameter, now.kernel->facts.parameter_bytes);
    now.random.state = options.seed * 0x2545F4914F6CDD1D + now.id * 77;
    for (int i = 0; i < 4; i++) now.random.next();
    now.copies = static_cast<Timing>(now.random.below(3));
    now.products = static_cast<Timing>(now.random.below(3));
    now.turns = static_cast<Turns>(now.random.below(3));
    static const u32 yields[] = {0, 5, 30};
    now.yield_percent = yields[now.random.below(3)];
    static const u32 block_turns[] = {1, 4, 20, 200}, residents[] = {1, 2, 3, 3};
    now.block_turn = block_turns[now.random.below(4)];
    now.resident = residents[now.random.below(4)];
    if (options.resident > 0) now.resident = static_cast<u32>(options.resident);
    const u32 cluster = static_cast<u32>(now.kernel->facts.cluster);
    now.starved_rank = cluster > 1 && now.random.chance(30) ? now.random.below(cluster) : ~0u;
    statistics.launches++;
    stack.watched = now.kernel->has_wgmma;
    memory_launch();
    catch_faults();
    run_clusters();
    release_faults();
    self = nullptr;
    block = nullptr;
    return !aborting;
}

void sim_fence(void) {
    now.chain = now.id + 1;
}

struct sim_statistics sim_get_statistics(void) {
    statistics.accesses = stack.accesses;
    return statistics;
}
