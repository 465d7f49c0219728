// Cases of faults.cu: accesses of shared and device memory, and the order between them.

//% if case == "shared_write_write" then -- finds race: write after write
fill();
words[0] = thread;
//% end -- case

//% if case == "shared_read_write" then -- finds race:
fill();
if (thread == 0)
    words[0] = 1;
else if (thread == 40)
    store(global, static_cast<float>(words[0]));
//% end -- case

//% if case == "shared_sync" then -- finds nothing
fill();
words[thread] = 1;
block_sync();
store(global + thread, static_cast<float>(words[thread ^ 33]));
//% end -- case

//% if case == "shared_bytes" then -- finds nothing
fill();
shared_pointer<unsigned char>(0)[thread] = 1;
//% end -- case

//% if case == "shuffle_is_no_order" then -- threads=32 finds race:
fill();
if (thread == 0) words[0] = 1;
if (shuffle(thread, 0) == 0 && thread == 1) store(global, static_cast<float>(words[0]));
//% end -- case

//% if case == "warp_sync_is_order" then -- threads=32 finds nothing
fill();
if (thread == 0) words[0] = 1;
warp_sync();
if (thread == 1) store(global, static_cast<float>(words[0]));
//% end -- case

//% if case == "many_readers" then -- threads=256 finds race: write after read
fill();
store(global + thread, static_cast<float>(words[0]));
if (thread == 255) words[0] = 1;
//% end -- case

//% if case == "shared_unwritten" then -- finds read of unwritten shared memory
store(global + thread, static_cast<float>(words[thread]));
//% end -- case

//% if case == "shared_outside" then -- finds shared memory out of bounds
words[2048] = 1;
//% end -- case

//% if case == "shared_misaligned" then -- finds misaligned shared access
fill();
if (thread == 0) store_shared(shared + 8, Vector4{0, 0, 0, 0});
//% end -- case

//% if case == "global_outside" then -- finds global memory out of bounds
store(global + 2048, 1.0f);
//% end -- case

//% if case == "global_before" then -- finds global memory out of bounds
store(global - 1, 1.0f);
//% end -- case

//% if case == "global_misaligned" then -- finds misaligned global access
if (thread == 0) store(reinterpret_cast<u64 *>(global + 1), u64{1});
//% end -- case

//% if case == "global_unwritten" then -- finds read of unwritten global memory
store(global + thread, load(global + 1024 + thread));
//% end -- case

//% if case == "global_inside_block" then -- finds global race inside a block
store(global, static_cast<float>(thread));
//% end -- case

//% if case == "global_between_blocks" then -- blocks=2 finds global race between blocks
store(global + thread, static_cast<float>(block_index()));
//% end -- case

//% if case == "global_halves" then -- finds nothing
store(reinterpret_cast<u16 *>(global) + thread, u16{1});
//% end -- case

//% if case == "release_and_acquire" then -- blocks=2 finds nothing
u32 *flag = reinterpret_cast<u32 *>(global);
if (block_index() == 0) {
    store(global + 64 + thread, 1.0f);
    block_sync();
    if (thread == 0) global_release_add(flag, 1);
} else {
    if (thread == 0) global_wait_at_least(flag, 1);
    block_sync();
    store(global + 128 + thread, load(global + 64 + (thread ^ 33)));
}
//% end -- case

//% if case == "acquire_of_one_warp" then -- blocks=2 finds global race between blocks
u32 *flag = reinterpret_cast<u32 *>(global);
if (block_index() == 0) {
    store(global + 64 + thread, 1.0f);
    block_sync();
    if (thread == 0) global_release_add(flag, 1);
} else {
    if (thread == 0) global_wait_at_least(flag, 1);
    warp_sync();
    store(global + 128 + thread, load(global + 64 + thread));
}
//% end -- case

//% if case == "unordered_sum" then -- blocks=2 finds nothing
reduce_add(global, 1.0f);
//% end -- case

//% if case == "unordered_sum_deterministic" then -- blocks=2 deterministic finds unordered reduction
reduce_add(global, 1.0f);
//% end -- case

//% if case == "sum_read_early" then -- blocks=2 finds global race between blocks
if (block_index() == 0)
    reduce_add(global + thread, 1.0f);
else
    store(global + 64 + thread, load(global + thread));
//% end -- case

//% if case == "nobody_releases" then -- blocks=2 finds hang
if (thread == 0 && block_index() == 1) global_wait_at_least(reinterpret_cast<u32 *>(global), 1);
//% end -- case

//% if case == "predecessor" then -- programmatic finds no griddepcontrol.wait
store(global + 64 + thread, load(global + thread));
wait_for_predecessor();
//% end -- case

//% if case == "predecessor_waited" then -- programmatic finds nothing
wait_for_predecessor();
store(global + 64 + thread, load(global + thread));
//% end -- case

//% if case == "never_waits" then -- programmatic finds exit without griddepcontrol.wait
fill();
//% end -- case
