// Cases of faults.cu: asynchronous copies.

//% if case == "copy_read_early" then -- finds race:
fill();
cp_async_16(shared + thread * 16, global + thread * 4, 16);
cp_async_commit();
store(global + 512 + thread, static_cast<float>(words[thread * 4]));
//% end -- case

//% if case == "copy_waited" then -- finds nothing
cp_async_16(shared + thread * 16, global + thread * 4, 16);
cp_async_commit();
cp_async_wait<0>();
store(global + 512 + thread, static_cast<float>(words[thread * 4]));
//% end -- case

//% if case == "copy_of_another_thread" then -- finds race:
fill();
cp_async_16(shared + thread * 16, global + thread * 4, 16);
cp_async_commit();
cp_async_wait<0>();
store(global + 512 + thread, static_cast<float>(words[(thread ^ 1) * 4]));
//% end -- case

//% if case == "copy_of_a_later_group" then -- finds race:
fill();
cp_async_commit();
cp_async_16(shared + thread * 16, global + thread * 4, 16);
cp_async_commit();
cp_async_wait<1>();
store(global + 512 + thread, static_cast<float>(words[thread * 4]));
//% end -- case

//% if case == "copy_over_what_is_read" then -- finds race:
fill();
store(global + 512 + thread, static_cast<float>(words[(thread ^ 1) * 4]));
cp_async_16(shared + thread * 16, global + thread * 4, 16);
cp_async_commit();
cp_async_wait<0>();
//% end -- case

//% if case == "copy_left" then -- finds exit with cp.async in flight
fill();
cp_async_16(shared + thread * 16, global + thread * 4, 16);
//% end -- case

//% if case == "copy_misaligned" then -- finds misaligned global access
fill();
cp_async_16(shared + thread * 16, global + thread * 4 + 1, 16);
cp_async_wait<0>();
//% end -- case

//% if case == "copies_of_other_barrier" then -- finds race:
start_barriers(1);
if (thread == 0) {
    mbarrier_arrive_expect(shared + BARRIER, 1024);
    bulk_load(shared, global, 1024, shared + BARRIER);
    mbarrier_arrive_expect(shared + OTHER_BARRIER, 1024);
    bulk_load(shared + 1024, global, 1024, shared + OTHER_BARRIER);
}
mbarrier_wait(shared + OTHER_BARRIER, 0);
store(global + 512 + thread, static_cast<float>(words[thread]));
mbarrier_wait(shared + BARRIER, 0);
//% end -- case

//% if case == "bulk_too_few_bytes" then -- finds hang
start_barriers(1);
if (thread == 0) {
    mbarrier_arrive_expect(shared + BARRIER, 2048);
    bulk_load(shared, global, 1024, shared + BARRIER);
    mbarrier_wait(shared + BARRIER, 0);
}
//% end -- case

//% if case == "bulk_read_early" then -- finds race:
fill();
fence_async_proxy();
start_barriers(1);
if (thread == 0) {
    mbarrier_arrive_expect(shared + BARRIER, 1024);
    bulk_load(shared, global, 1024, shared + BARRIER);
    words[0] = 1;
    mbarrier_wait(shared + BARRIER, 0);
}
//% end -- case

//% if case == "bulk_waited" then -- finds nothing
start_barriers(1);
if (thread == 0) {
    mbarrier_arrive_expect(shared + BARRIER, 1024);
    bulk_load(shared, global, 1024, shared + BARRIER);
}
mbarrier_wait(shared + BARRIER, 0);
store(global + 512 + thread, static_cast<float>(words[thread]));
//% end -- case

//% if case == "bulk_without_proxy_fence" then -- finds missing fence.proxy.async
fill();
start_barriers(1);
if (thread == 0) load_waited();
//% end -- case

//% if case == "bulk_without_init_fence" then -- finds missing fence.mbarrier_init
if (thread == 0) mbarrier_init(shared + BARRIER, 1);
block_sync();
if (thread == 0) load_waited();
//% end -- case

//% if case == "tensor_rows" then -- finds nothing
start_barriers(1);
if (thread == 0) {
    mbarrier_arrive_expect(shared + BARRIER, 1024);
    tma_load_5d(shared, args.map, shared + BARRIER, 0, 12, 0, 0, 0);
}
mbarrier_wait(shared + BARRIER, 0);
store(global + 512 + thread, static_cast<float>(words[thread]));
//% end -- case

//% if case == "tensor_misaligned" then -- finds misaligned bulk copy
start_barriers(1);
if (thread == 0) {
    mbarrier_arrive_expect(shared + BARRIER, 1024);
    tma_load_5d(shared + 128, args.map, shared + BARRIER, 0, 0, 0, 0, 0);
    mbarrier_wait(shared + BARRIER, 0);
}
//% end -- case

//% if case == "tensor_store_without_fence" then -- finds missing fence.proxy.async
fill();
if (thread == 0) {
    words[0] = 1;
    tma_store_5d(args.map, shared, 0, 0, 0, 0, 0);
    bulk_commit();
    bulk_wait<0>();
}
//% end -- case

//% if case == "tensor_store_left" then -- finds exit with an unread bulk store
fill_for_copies();
if (thread == 0) {
    tma_store_5d(args.map, shared, 0, 0, 0, 0, 0);
    bulk_commit();
}
//% end -- case

//% if case == "tensor_store_overwritten" then -- finds race:
fill_for_copies();
if (thread == 0) {
    tma_store_5d(args.map, shared, 0, 0, 0, 0, 0);
    bulk_commit();
    words[0] = 1;
    bulk_wait<0>();
}
//% end -- case
