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

//% if case == "cluster_buffer_handed_back" then -- cluster=2 finds nothing
fill_for_copies();
start_pair(1);
copy_all();
mbarrier_wait(shared + BARRIER, 0);
keep(words[1024 + thread]);
block_sync();
if (thread == 0) mbarrier_arrive_peer(peer(OTHER_BARRIER));
mbarrier_wait(shared + OTHER_BARRIER, 0);
words[thread] = 1;  // the source: what was read is the other block's by now
fence_async_proxy();
block_sync();
copy_all();
mbarrier_wait(shared + BARRIER, 1);
keep(words[1024 + thread]);
cluster_sync();
//% end -- case

//% if case == "cluster_source_overwritten" then -- cluster=2 finds race:
fill_for_copies();
start_pair(1);
copy_all();
if (thread == 0) words[0] = 1;
mbarrier_wait(shared + BARRIER, 0);
cluster_sync();
//% end -- case

//% if case == "cluster_source_of_own_wait" then -- cluster=2 finds race:
fill_for_copies();
start_pair(1);
copy_all();
mbarrier_wait(shared + BARRIER, 0);  // the other block's copy has arrived here, not this one's there
words[thread] = 1;
cluster_sync();
//% end -- case

//% if case == "cluster_source_not_fenced" then -- cluster=2 finds missing fence.proxy.async
fill();
start_pair(1);
copy_all();
mbarrier_wait(shared + BARRIER, 0);
cluster_sync();
//% end -- case

//% if case == "cluster_target_not_fenced" then -- cluster=2 finds missing fence.proxy.async
fill_for_copies();
start_pair(1);
words[1024 + thread] = 1;
block_sync();
if (thread == 0) mbarrier_arrive_peer(peer(OTHER_BARRIER));
mbarrier_wait(shared + OTHER_BARRIER, 0);
copy_all();
mbarrier_wait(shared + BARRIER, 0);
cluster_sync();
//% end -- case

//% if case == "cluster_target_fenced" then -- cluster=2 finds nothing
fill_for_copies();
start_pair(1);
words[1024 + thread] = 1;
fence_async_proxy();
block_sync();
if (thread == 0) mbarrier_arrive_peer(peer(OTHER_BARRIER));
mbarrier_wait(shared + OTHER_BARRIER, 0);
copy_all();
mbarrier_wait(shared + BARRIER, 0);
cluster_sync();
//% end -- case

//% if case == "cluster_target_in_use" then -- cluster=2 finds race:
fill_for_copies();
start_pair(1);
keep(words[1024 + thread]);
copy_all();
mbarrier_wait(shared + BARRIER, 0);
cluster_sync();
//% end -- case

//% if case == "cluster_arrival_of_others" then -- cluster=2 finds race:
fill_for_copies();
start_pair(1);
keep(words[1024 + thread]);  // only lane 0 has told that it is through
if (thread == 0) mbarrier_arrive_peer(peer(OTHER_BARRIER));
mbarrier_wait(shared + OTHER_BARRIER, 0);
copy_all();
mbarrier_wait(shared + BARRIER, 0);
cluster_sync();
//% end -- case

//% if case == "cluster_read_early" then -- cluster=2 finds race:
fill_for_copies();
start_pair(1);
copy_all();
keep(words[1024 + thread]);
mbarrier_wait(shared + BARRIER, 0);
cluster_sync();
//% end -- case

//% if case == "cluster_told_by_the_sender" then -- cluster=2 finds race:
fill_for_copies();
start_pair(1);
copy_all();
if (thread == 0) mbarrier_arrive_peer(peer(OTHER_BARRIER));
mbarrier_wait(shared + OTHER_BARRIER, 0);
keep(words[1024 + thread]);
mbarrier_wait(shared + BARRIER, 0);
cluster_sync();
//% end -- case

//% if case == "cluster_arrival_is_no_release" then -- cluster=2 finds global race between blocks
start_pair(ALL);
keep(1);
mbarrier_arrive_peer(peer(BARRIER));
mbarrier_wait(shared + BARRIER, 0);
words[thread] = static_cast<u32>(load(other_word()));
cluster_sync();
//% end -- case

//% if case == "cluster_copy_is_no_release" then -- cluster=2 finds global race between blocks
fill_for_copies();
start_pair(1);
keep(1);
block_sync();
copy_all();
mbarrier_wait(shared + BARRIER, 0);
words[thread] = static_cast<u32>(load(other_word()));
cluster_sync();
//% end -- case

//% if case == "cluster_sync_is_release" then -- cluster=2 finds nothing
start_pair(ALL);
keep(1);
cluster_sync();
words[thread] = static_cast<u32>(load(other_word()));
//% end -- case

//% if case == "cluster_to_cluster" then -- blocks=4 cluster=2 finds nothing
u32 *flag = pointer<u32>(args.data) + 1020;
if (thread == 0 && block_index() == 0) atomic_add(pointer<u64>(args.data) + 510, static_cast<u64>(0));
if (block_index() == 1) keep(1);
cluster_sync();
if (block_index() == 0 && thread == 0) global_release_add(flag, 1);
if (block_index() == 2 && thread == 0) global_wait_at_least(flag, 1);
cluster_sync();
if (block_index() == 3) words[thread] = static_cast<u32>(load(global + 512 + ALL + thread));
//% end -- case

//% if case == "cluster_to_cluster_unsynchronised" then -- blocks=4 cluster=2 finds global race between blocks
u32 *flag = pointer<u32>(args.data) + 1020;
if (block_index() == 1) keep(1);
if (block_index() == 0 && thread == 0) global_release_add(flag, 1);
if (block_index() == 3 && thread == 0) {
    global_wait_at_least(flag, 1);
    words[0] = static_cast<u32>(load(global + 512 + ALL));
}
//% end -- case

//% if case == "cluster_peer_stored_to" then -- cluster=2 finds peer address where this block's own is due
fill();
cluster_sync();
store_shared(peer(0), 1u);
cluster_sync();
//% end -- case

//% if case == "cluster_peer_waited_for" then -- cluster=2 finds peer address where this block's own is due
start_pair(ALL);
mbarrier_arrive(shared + BARRIER);
mbarrier_wait(peer(BARRIER), 0);
cluster_sync();
//% end -- case

//% if case == "cluster_peer_multiplied" then -- cluster=2 threads=128 finds peer address where this block's own is due
fill_for_copies();
cluster_sync();
float d[4] = {};
u32 a[4] = {};
wgmma_fence();
wgmma_rs<8, K_MAJOR>(d, a, matrix_descriptor(peer(0), 16), 1);
cluster_sync();
//% end -- case

//% if case == "cluster_plain_address" then -- cluster=2 finds address of this block where a peer address is due
start_pair(ALL);
mbarrier_arrive_peer(shared + BARRIER);
cluster_sync();
//% end -- case

//% if case == "cluster_wrong_rank" then -- cluster=2 finds no such block in the cluster
start_pair(ALL);
mbarrier_arrive_peer(peer_address(shared + BARRIER, 2));
cluster_sync();
//% end -- case

//% if case == "cluster_out_of_bounds" then -- cluster=2 finds shared memory out of bounds
fill_for_copies();
start_pair(1);
if (thread == 0) bulk_copy_peer(peer(7680), shared, 1024, peer(BARRIER));
cluster_sync();
//% end -- case

//% if case == "cluster_copy_misaligned" then -- cluster=2 finds misaligned bulk copy
fill_for_copies();
start_pair(1);
if (thread == 0) bulk_copy_peer(peer(4096), shared + 8, 1024, peer(BARRIER));
cluster_sync();
//% end -- case

//% if case == "cluster_own_barrier" then -- cluster=2 finds barrier of another block than the copy's
fill_for_copies();
start_pair(1);
if (thread == 0) bulk_copy_peer(peer(4096), shared, 1024, peer_address(shared + BARRIER, cluster_rank()));
cluster_sync();
//% end -- case

//% if case == "cluster_too_few_bytes" then -- cluster=2 finds hang
fill_for_copies();
start_pair(1);
if (thread == 0) {
    mbarrier_arrive_expect(shared + BARRIER, 32);
    bulk_copy_peer(peer(4096), shared, 16, peer(BARRIER));
}
mbarrier_wait(shared + BARRIER, 0);
//% end -- case

//% if case == "cluster_copy_read_early" then -- cluster=2 finds race:
fill_for_copies();
start_pair(1);
if (thread == 0) {
    mbarrier_arrive_expect(shared + BARRIER, 16);
    bulk_copy_peer(peer(2048), shared, 16, peer(BARRIER));
}
keep(words[512]);
mbarrier_wait(shared + BARRIER, 0);
cluster_sync();
//% end -- case

//% if case == "cluster_multicast_seen_elsewhere" then -- cluster=2 finds race:
start_pair(1);
if (thread == 0) {
    mbarrier_arrive_expect(shared + BARRIER, 1024);
    if (cluster_rank() == 0) {
        tma_load_5d_multicast(shared, args.map, shared + BARRIER, 0, 0, 0, 0, 0, 3);
        mbarrier_wait(shared + BARRIER, 0);
        mbarrier_arrive_peer(peer(OTHER_BARRIER));
    }
}
if (cluster_rank() == 1) {
    mbarrier_wait(shared + OTHER_BARRIER, 0);
    keep(words[thread]);
}
mbarrier_wait(shared + BARRIER, 0);
cluster_sync();
//% end -- case

//% if case == "cluster_multicast_to_nobody" then -- cluster=2 finds no such block in the cluster
start_pair(1);
if (thread == 0) tma_load_5d_multicast(shared, args.map, shared + BARRIER, 0, 0, 0, 0, 0, 4);
cluster_sync();
//% end -- case

//% if case == "cluster_barriers_unseen" then -- cluster=2 finds mbarrier
start_barriers(ALL);
mbarrier_arrive_peer(peer(BARRIER));
mbarrier_wait(shared + BARRIER, 0);
cluster_sync();
//% end -- case

//% if case == "cluster_barrier_not_fenced" then -- cluster=2 finds missing fence.mbarrier_init
fill_for_copies();
if (thread == 0) mbarrier_init(shared + BARRIER, 1);
cluster_sync();
if (thread == 0) {
    mbarrier_arrive_expect(shared + BARRIER, 16);
    bulk_copy_peer(peer(4096), shared, 16, peer(BARRIER));
}
mbarrier_wait(shared + BARRIER, 0);
cluster_sync();
//% end -- case

//% if case == "cluster_arrival_overrun" then -- cluster=2 finds mbarrier overrun
start_pair(2);
if (thread < 3 && cluster_rank() == 0) mbarrier_arrive_peer(peer(BARRIER));
if (thread == 0) mbarrier_arrive_expect(shared + OTHER_BARRIER, 8);
if (thread < 2) mbarrier_arrive_peer(peer(OTHER_BARRIER));
cluster_sync();
//% end -- case

//% if case == "cluster_arrival_at_the_end" then -- cluster=2 finds block ended too early
start_pair(ALL);
mbarrier_arrive_peer(peer(BARRIER));
//% end -- case

//% if case == "cluster_copy_at_the_end" then -- cluster=2 finds block ended too early
fill_for_copies();
start_pair(1);
copy_all();
mbarrier_wait(shared + BARRIER, 0);  // the other block's copy; this one's may still be read from here
//% end -- case

//% if case == "cluster_waited_for_at_the_end" then -- cluster=2 finds nothing
start_pair(ALL);
mbarrier_arrive_peer(peer(BARRIER));
mbarrier_wait(shared + BARRIER, 0);
//% end -- case

//% if case == "cluster_peer_gone" then -- cluster=2 finds hang
start_pair(ALL);
if (cluster_rank() == 0) mbarrier_wait(shared + BARRIER, 0);
//% end -- case

//% if case == "cluster_sync_of_some_lanes" then -- cluster=2 finds hang
if (lane_index() != 5) cluster_sync();
//% end -- case

//% if case == "cluster_sync_without_those_that_ended" then -- cluster=2 finds nothing
if (thread < 32 || cluster_rank() == 1) cluster_sync();
//% end -- case

//% if case == "cluster_grid" then -- blocks=3 cluster=2 finds launch outside the kernel's bounds
cluster_sync();
//% end -- case
