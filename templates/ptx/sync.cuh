// Order between blocks and between kernels.

// ld.acquire.gpu.global.u32, sm_70, ISA 6.0, until the value, which only grows, is no less than `expected`. One lane waits, then a warp sync.
DEVICE void global_wait_at_least(const u32 *address, u32 expected) {
    u32 value;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    } while (value < expected);
}
// red.release.gpu.global.add.u32, sm_70, ISA 6.0. Release is cumulative: what other threads of the block did before a barrier between them
// and this one is covered too.
DEVICE void global_release_add(u32 *address, u32 value) {
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

// ld.relaxed.gpu.global.v4.f32, sm_70, ISA 6.0: what other blocks have written, past the first-level cache.
DEVICE Float4 load_relaxed(const Float4 *address) {
    Float4 v;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(address)
                 : "memory");
    return v;
}

//% if cc >= 90 then
// griddepcontrol.wait, sm_90, ISA 7.8: the kernels before this one in the chain are complete and their writes visible.
DEVICE void wait_for_predecessor() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// griddepcontrol.launch_dependents, sm_90, ISA 7.8: the next kernel of the chain may start to be placed.
DEVICE void allow_successor() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
//% else
// Before sm_90 a kernel starts after its predecessor has ended.
DEVICE void wait_for_predecessor() {}
DEVICE void allow_successor() {}
//% end -- cc
