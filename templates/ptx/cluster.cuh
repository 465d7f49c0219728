// Clusters: neighbouring blocks that the card starts together and whose shared memory each of them reaches.
//
// Blocks of a cluster have ranks from 0, their index modulo the cluster's size. An address of another block's shared memory is its own
// kind (peer_address) and goes only into the instructions below. Before the first of them every block has initialised its barriers
// (cluster_sync), and none ends before the last of them (cluster_sync again).

//% include "ptx/tma.cuh"

// %cluster_ctarank, sm_90, ISA 7.8.
DEVICE u32 cluster_rank() {
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
// mapa.shared::cluster.u32, sm_90, ISA 7.8: what lies at `shared` in this block, in the block of that rank.
DEVICE u32 peer_address(u32 shared, u32 rank) {
    u32 address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
    return address;
}
// barrier.cluster.arrive.release and wait.acquire, sm_90, ISA 7.8: all threads of all blocks.
DEVICE void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// mbarrier.arrive.shared::cluster.b64, sm_90, ISA 8.0: an arrival on another block's barrier (or, through its peer address, this one's). It hands
// back a buffer that has been read and is written next by the copy engine; ordinary stores it does not carry over (release at cluster scope
// is a fence of the whole card's memory).
DEVICE void mbarrier_arrive_peer(u32 peer_barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(peer_barrier) : "memory");
}
// cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes, sm_90, ISA 8.0: a run of bytes into another block's shared memory, 16-byte
// aligned and a multiple of 16, which complete on a barrier of that block. Nothing here says when the source has been read: the other block's
// arrival, after its wait, does.
DEVICE void bulk_copy_peer(u32 peer_shared, u32 shared, u32 bytes, u32 peer_barrier) {
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     peer_shared),
                 "r"(shared), "r"(bytes), "r"(peer_barrier)
                 : "memory");
}
// cp.async.bulk.tensor.5d...multicast::cluster, sm_90, ISA 8.0: the box arrives at `shared` of every block whose rank's bit is set in `blocks`, and its
// bytes complete on the barrier at `barrier` of each.
DEVICE void tma_load_5d_multicast(u32 shared, const TensorMap &map, u32 barrier, int c0, int c1, int c2, int c3, int c4,
                                  u16 blocks) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(shared),
        "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "h"(blocks)
        : "memory");
}
