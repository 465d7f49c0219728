// cluster.cpp - blocks that run together: addresses of each other's shared memory, what goes there, and their barrier.
//
// An access to another block's memory or barriers is a visit. The visited block may end only when it knows, by happens-before, that the visit is
// over; so one that ends too early is found in every schedule.
#include <algorithm>
#include <cstring>

#include "copy.h"

namespace sim {

constexpr u32 RANK_SHIFT = 24;  // a peer address: rank + 1, then the address in that block's shared window

u32 cluster_rank() {
    return self->home->rank;
}
bool is_peer_address(u32 address) {
    return address >> RANK_SHIFT;
}
u32 peer_address(u32 shared, u32 rank) {
    if (rank >= block->cluster->blocks.size()) {
        find("no such block in the cluster", CALLER, nullptr, "rank %u of %zu", rank, block->cluster->blocks.size());
        abandon();
    }
    if (!shared_bounds(shared, 1, "address of what another block has", CALLER)) abandon();
    return (rank + 1) << RANK_SHIFT | shared;
}

void own_address(u32 shared) {
    if (!shared_bounds(shared, 1, "operand", CALLER)) abandon();
}

// The block that a peer address is in, and the address there.
static Block &resolve(u32 &address, const void *pc) {
    const u32 rank = (address >> RANK_SHIFT) - 1;
    if (!is_peer_address(address)) {
        find("address of this block where a peer address is due", pc, nullptr, "shared %#x", address);
        abandon();
    }
    if (rank >= block->cluster->blocks.size()) {
        find("no such block in the cluster", pc, nullptr, "peer address %#x", address);
        abandon();
    }
    address &= (1u << RANK_SHIFT) - 1;
    return *block->cluster->blocks[rank];
}

// ---- visits -----------------------------------------------------------------------------------------------------------

void visit(u32 entry, u32 time, const void *pc) {
    if (!block->live)
        find("block ended too early", pc, nullptr, "%s accesses block %u, which has ended", who(entry).c_str(),
             block->id);
    if (block->visits.empty()) block->visits.assign(block->entries, 0);
    block->visits[entry] = std::max(block->visits[entry], time);
}

void check_visits(const Block &b) {
    for (const auto &other : b.cluster->blocks)
        for (const auto &copy : other->copies)
            if (copy->target == &b && other.get() != &b)
                find("block ended too early", copy->pc, nullptr, "a copy to shared %#x has not arrived",
                     copy->kind == CopyKind::LOAD ? copy->shared : copy->peer_shared);
    if (options.no_hazards || b.visits.empty()) return;
    std::vector<u32> known(b.entries);
    for (const Fiber &f : b.fibers)
        for (u32 i = 0; i < b.entries; i++) known[i] = std::max(known[i], f.clock[i + b.weak]);
    for (u32 i = 0; i < b.entries; i++)
        if (b.visits[i] > known[i])
            find("block ended too early", nullptr, nullptr, "the last access by %s is not ordered before it",
                 who(i).c_str());
}

// ---- the cluster's barrier --------------------------------------------------------------------------------------------

static u32 living(const Cluster &cluster) {
    u32 threads = 0;
    for (const auto &b : cluster.blocks) threads += b->live;
    return threads;
}
static void check_complete(Cluster &cluster) {
    cluster.barrier.expected = living(cluster);
    if (cluster.barrier.arrived == cluster.barrier.expected) barrier_complete(cluster.barrier);
}
void cluster_exit(Cluster &cluster) {
    if (cluster.barrier.arrived) check_complete(cluster);
}

void cluster_sync() {
    const void *pc = CALLER;
    gather(
        Kind::CLUSTER_SYNC, nullptr, [] {}, pc);  // aligned: the lanes of a warp come together
    NamedBarrier &b = block->cluster->barrier;
    const u32 generation = b.generation;
    publish(b.gathering);
    tick();
    b.arrived++;
    progress++;
    TRACE("cluster_sync: %u of %u threads are there", b.arrived, living(*block->cluster));
    check_complete(*block->cluster);
    if (b.generation == generation) b.waiters.push_back(self);
    while (b.generation == generation) park(Wait::CLUSTER, 0, 0, pc);
    acquire(b.released);  // still this generation's: the next one needs this thread
}

// ---- what goes to another block ---------------------------------------------------------------------------------------

void mbarrier_arrive_peer(u32 barrier) {
    Block &target = resolve(barrier, CALLER);
    bool counted;
    {
        const bool own = &target == block;
        const On there(target);
        if (!own) visit(self->entry, self->clock[self->entry], CALLER);
        counted = mbarrier_count(barrier, 0, CALLER);
    }
    if (counted) maybe_yield();
}

void bulk_copy_peer(u32 peer_shared, u32 shared, u32 bytes, u32 barrier) {
    const void *pc = CALLER;
    Block &target = resolve(peer_shared, pc), &completes = resolve(barrier, pc);
    if (&target != &completes) {
        find("barrier of another block than the copy's", pc, nullptr, "block %u; the copy goes to block %u",
             completes.id, target.id);
        abandon();
    }
    if (bytes % 16 || shared % 16 || peer_shared % 16) {
        find("misaligned bulk copy", pc, nullptr, "%u bytes, shared %#x, to %#x", bytes, shared, peer_shared);
        abandon();
    }
    {
        const On there(target);
        if (!find_mbarrier(barrier, "copy from another block", pc)) abandon();
    }
    auto copy = copy_new(CopyKind::PEER, shared, barrier, pc);
    copy->target = &target;
    copy->peer_shared = peer_shared;
    copy->bytes = bytes;
    copy_issue(copy);
}

// One copy a block, each at its own time.
void tensor_load_multicast(u32 shared, const void *map, u32 barrier, const int *coordinates, u32 rank, u32 blocks) {
    const auto &all = block->cluster->blocks;
    if (!blocks || blocks >> all.size()) {
        find("no such block in the cluster", CALLER, nullptr, "mask %#x of %zu blocks", blocks, all.size());
        abandon();
    }
    for (u32 i = 0; i < all.size(); i++) {
        if (!(blocks >> i & 1)) continue;
        {
            const On there(*all[i]);
            if (!find_mbarrier(barrier, "tensor load", CALLER)) abandon();
        }
        auto copy = new_box(CopyKind::LOAD, map, shared, barrier, coordinates, rank, CALLER);
        copy->target = all[i].get();
        copy_issue(copy);
    }
}

}  // namespace sim
