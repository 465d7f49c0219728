// Cases of faults.cu: clusters of two blocks. Blocks 0 and 1 do the same to each other, unless a case says otherwise.

//% if case == "cluster_arrive" then -- cluster=2 finds nothing
start_pair(ALL);
mbarrier_arrive_peer(peer(BARRIER));
mbarrier_wait(shared + BARRIER, 0);
mbarrier_arrive_peer(peer_address(shared + BARRIER, cluster_rank()));
mbarrier_wait(shared + BARRIER, 1);
cluster_sync();
//% end -- case

//% if case == "cluster_copy" then -- cluster=2 finds nothing
fill_for_copies();
start_pair(1);
if (thread == 0) {
    mbarrier_arrive_expect(shared + BARRIER, 1024);
    bulk_copy_peer(peer(2048), shared, 1024, peer(BARRIER));
}
mbarrier_wait(shared + BARRIER, 0);
keep(words[512 + thread]);
cluster_sync();
//% end -- case

//% if case == "cluster_store" then -- cluster=2 finds nothing
start_pair(1);
if (thread == 0) mbarrier_arrive_expect(shared + BARRIER, ALL * 8);
store_async_peer(peer(thread * 8), 7, peer(BARRIER));
mbarrier_wait(shared + BARRIER, 0);
keep(words[thread * 2]);
cluster_sync();
//% end -- case

//% if case == "cluster_multicast" then -- cluster=2 finds nothing
start_pair(1);
if (thread == 0) {
    mbarrier_arrive_expect(shared + BARRIER, 2048);
    tma_load_5d_multicast(shared + cluster_rank() * 1024, args.map, shared + BARRIER, 0, 0, 0, 0, 0, 3);
}
mbarrier_wait(shared + BARRIER, 0);
keep(words[thread] + words[256 + thread]);
cluster_sync();
//% end -- case
