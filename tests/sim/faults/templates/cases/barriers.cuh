// Cases of faults.cu: barriers in shared memory, named barriers, the pool of registers.

//% if case == "named_unbalanced" then -- finds named barrier unbalanced at exit
if (thread < 32) named_barrier_arrive(1, 64);
//% end -- case

//% if case == "named_count" then -- finds named barrier count
if (thread < 32)
    named_barrier_arrive(1, 64);
else
    named_barrier_sync(1, 96);
//% end -- case

//% if case == "named_hang" then -- finds hang
if (thread < 32) named_barrier_sync(1, 64);
//% end -- case

//% if case == "barrier_unknown" then -- finds mbarrier not initialised
mbarrier_arrive(shared + BARRIER);
//% end -- case

//% if case == "barrier_twice" then -- finds mbarrier initialised twice
if (thread < 2) mbarrier_init(shared + BARRIER, 1);
//% end -- case

//% if case == "barrier_early" then -- finds mbarrier
if (thread == 0) mbarrier_init(shared + BARRIER, 1);
warp_sync();
if (thread == 32) mbarrier_wait(shared + BARRIER, 1);
block_sync();
//% end -- case

//% if case == "barrier_one_short" then -- finds hang
start_barriers(2);
if (thread == 0) mbarrier_arrive(shared + BARRIER);
if (thread == 40) mbarrier_wait(shared + BARRIER, 0);
//% end -- case

//% if case == "barrier_wrong_parity" then -- finds hang
start_barriers(1);
if (thread == 40) mbarrier_wait(shared + BARRIER, 0);
if (thread == 0) {
    mbarrier_arrive(shared + BARRIER);
    mbarrier_wait(shared + BARRIER, 1);
}
//% end -- case

//% if case == "barrier_too_late" then -- finds hang
start_barriers(1);
if (thread == 0) {
    mbarrier_arrive(shared + BARRIER);
    mbarrier_arrive(shared + BARRIER);
}
block_sync();
if (thread == 40) mbarrier_wait(shared + BARRIER, 0);
//% end -- case

//% if case == "barrier_of_data" then -- finds nothing
fill();
start_barriers(1);
if (thread == 0) {
    words[0] = 1;
    mbarrier_arrive(shared + BARRIER);
}
if (thread == 40) {
    mbarrier_wait(shared + BARRIER, 0);
    words[0] = 2;
}
//% end -- case

//% if case == "barrier_for_others" then -- finds race:
fill();
start_barriers(1);
if (thread < 32) {
    store(global + thread, static_cast<float>(words[thread]));
    if (thread == 0) mbarrier_arrive(shared + BARRIER);
} else if (thread == 32) {
    mbarrier_wait(shared + BARRIER, 0);
    words[5] = 1;
}
//% end -- case

//% if case == "barrier_after_warp_sync" then -- finds nothing
fill();
start_barriers(1);
if (thread < 32) {
    store(global + thread, static_cast<float>(words[thread]));
    warp_sync();
    if (thread == 0) mbarrier_arrive(shared + BARRIER);
} else if (thread == 32) {
    mbarrier_wait(shared + BARRIER, 0);
    words[5] = 1;
}
//% end -- case

//% if case == "barrier_touched" then -- finds access to an mbarrier
start_barriers(1);
words[BARRIER / 4] = 0;
//% end -- case

//% if case == "barrier_left" then -- finds mbarrier unbalanced at exit
start_barriers(2);
if (thread == 0) mbarrier_arrive(shared + BARRIER);
//% end -- case

//% if case == "registers_short" then -- threads=256 finds hang
increase_registers<104>();
//% end -- case

//% if case == "registers_left" then -- threads=256 finds registers given back that nobody takes
if (thread < 128) decrease_registers<64>();
//% end -- case

//% if case == "registers_traded" then -- threads=256 finds nothing
if (thread < 128)
    decrease_registers<64>();
else
    increase_registers<128>();
//% end -- case
