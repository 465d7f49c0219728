// Order between blocks and between kernels.

DEVICE void global_wait_at_least(const u32 *address, u32 expected) { sim::global_wait_at_least(address, expected); }
DEVICE void global_release_add(u32 *address, u32 value) { sim::global_release_add(address, value); }

// The machine's clocks ask for an order that makes the value certain, as of any load.
DEVICE Float4 load_relaxed(const Float4 *address) { return *address; }

//% if cc >= 90 then
DEVICE void wait_for_predecessor() { sim::wait_for_predecessor(); }
DEVICE void allow_successor() { sim::allow_successor(); }
//% else
DEVICE void wait_for_predecessor() {}
DEVICE void allow_successor() {}
//% end -- cc
