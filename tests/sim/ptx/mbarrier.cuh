// mbarrier: transaction barriers in shared memory.

DEVICE void mbarrier_init(u32 barrier, u32 arrivals) { sim::mbarrier_init(barrier, arrivals); }
DEVICE void mbarrier_init_fence() { sim::mbarrier_init_fence(); }
DEVICE void mbarrier_arrive(u32 barrier) { sim::mbarrier_arrive(barrier, 0); }
DEVICE void mbarrier_arrive_expect(u32 barrier, u32 bytes) { sim::mbarrier_arrive(barrier, bytes); }
DEVICE bool mbarrier_passed(u32 barrier, u32 parity) { return sim::mbarrier_passed(barrier, parity); }
DEVICE void mbarrier_wait(u32 barrier, u32 parity) { sim::mbarrier_wait(barrier, parity); }
