// Clusters of blocks.

//% include "ptx/tma.cuh"

DEVICE u32 cluster_rank() { return sim::cluster_rank(); }
DEVICE u32 peer_address(u32 shared, u32 rank) { return sim::peer_address(shared, rank); }
DEVICE void cluster_sync() { sim::cluster_sync(); }
DEVICE void mbarrier_arrive_peer(u32 peer_barrier) { sim::mbarrier_arrive_peer(peer_barrier); }
DEVICE void bulk_copy_peer(u32 peer_shared, u32 shared, u32 bytes, u32 peer_barrier) {
    sim::bulk_copy_peer(peer_shared, shared, bytes, peer_barrier);
}
DEVICE void tma_load_5d_multicast(u32 shared, const TensorMap &map, u32 barrier, int c0, int c1, int c2, int c3, int c4,
                                  u16 blocks) {
    const int c[5] = {c0, c1, c2, c3, c4};
    sim::tensor_load_multicast(shared, &map, barrier, c, 5, blocks);
}
