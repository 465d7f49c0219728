// mbarrier: transaction barriers in shared memory, which bulk copies complete on. Addresses are in the shared window (shared_address).
//
// A barrier counts arrivals and bytes; its phase ends when both are due, and the parity of phases alternates, beginning with 0. A wait
// for parity p ends when the phase of parity p has ended; on a fresh barrier a wait for parity 1 ends at once.

// mbarrier.init.shared::cta.b64, sm_80, ISA 7.0. Visible to other threads after a block sync, to the copy engine after the fence below.
DEVICE void mbarrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// fence.mbarrier_init.release.cluster, sm_90, ISA 8.0: by the thread that has initialised.
DEVICE void mbarrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// mbarrier.arrive.shared::cta.b64, sm_80, ISA 7.0: release, block scope.
DEVICE void mbarrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// mbarrier.arrive.expect_tx.shared::cta.b64, sm_90, ISA 8.0: arrives, and the phase also waits for `bytes`.
DEVICE void mbarrier_arrive_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// mbarrier.test_wait.parity.shared::cta.b64, sm_90, ISA 7.8: whether the phase has ended; if so, acquire, block scope. Asked ahead of where it matters
// the answer, some 50 cycles, comes while something else is done.
DEVICE bool mbarrier_passed(u32 barrier, u32 parity) {
    u32 passed;
    asm volatile(
        "{ .reg .pred p;\n"
        "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(passed)
        : "r"(barrier), "r"(parity)
        : "memory");
    return passed != 0;
}
// mbarrier.try_wait.parity.shared::cta.b64, sm_90, ISA 7.8, until the phase has ended: acquire, block scope. The thread may sleep for up to
// MOST_NANOSECONDS in between: polling takes issue slots and power from those who compute. A wait that a whole warp needs is
// one lane's, then a warp sync: a lane that polls late may find the next phase over as well, unless that needs an arrival of this warp behind
// something that all its lanes do together, as consumers' phases do.
constexpr u32 MOST_NANOSECONDS = 10000000;
DEVICE void mbarrier_wait(u32 barrier, u32 parity) {
    u32 done;
    do {
        asm volatile(
            "{ .reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2, %3;\n"
            "selp.u32 %0, 1, 0, p; }"
            : "=r"(done)
            : "r"(barrier), "r"(parity), "r"(MOST_NANOSECONDS)
            : "memory");
    } while (done == 0);
}
