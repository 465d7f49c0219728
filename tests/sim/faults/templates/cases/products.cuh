// Cases of faults.cu: wgmma.

//% if case == "product" then -- threads=128 finds nothing
fill_for_copies();
float d[4] = {1, 2, 3, 4};
u32 a[4] = {};
wgmma_fence();
multiply(d, a);
wgmma_wait<0>();
store(global + thread, d[0]);
//% end -- case

//% if case == "product_without_fence" then -- threads=128 finds missing wgmma.fence
fill_for_copies();
float d[4];
u32 a[4];
wgmma_fence();
for (int i = 0; i < 4; i++) {
    d[i] = global[i];
    a[i] = 0;
}
multiply(d, a);
wgmma_wait<0>();
store(global + 64 + thread, d[0]);
//% end -- case

//% if case == "product_read_early" then -- threads=128 finds accumulator read before its wgmma has completed
fill_for_copies();
float d[4];
u32 a[4];
start(d, a);
store(global + thread, d[0]);
wgmma_wait<0>();
//% end -- case

//% if case == "product_operand_reused" then -- threads=128 finds register written while a wgmma uses it
fill_for_copies();
float d[4];
u32 a[4];
start(d, a);
a[0] = thread;
wgmma_wait<0>();
store(global + thread, d[0]);
//% end -- case

//% if case == "product_left" then -- threads=128 finds exit with a wgmma in flight
fill_for_copies();
float d[4];
u32 a[4];
start(d, a);
//% end -- case

//% if case == "product_without_proxy_fence" then -- threads=128 finds missing fence.proxy.async
fill();
float d[4];
u32 a[4];
start(d, a);
wgmma_wait<0>();
//% end -- case

//% if case == "product_tile_overwritten" then -- threads=128 finds race: write after read
fill_for_copies();
float d[4];
u32 a[4];
start(d, a);
words[thread] = 1;
wgmma_wait<0>();
//% end -- case

//% if case == "product_of_unwritten" then -- threads=128 finds read of unwritten shared memory
float d[4];
u32 a[4];
start(d, a);
wgmma_wait<0>();
//% end -- case

//% if case == "product_of_another_warps_rows" then -- threads=128 finds race
fill_for_copies();
float d[4] = {};
words[1024 + thread] = 0;
fence_async_proxy();
warp_sync();
wgmma_fence();
const u64 steps = 128ull >> 4 << 16 | 256ull >> 4 << 32;  // chunks of 8 rows x 16 bytes, one after the other
wgmma_ss<8, K_MAJOR, K_MAJOR>(d, (shared + 4096) >> 4 | steps, shared >> 4 | steps, 1);
wgmma_commit();
wgmma_wait<0>();
//% end -- case

//% if case == "product_descriptor" then -- threads=128 finds wgmma descriptor
fill_for_copies();
float d[4] = {};
u32 a[4] = {};
wgmma_fence();
multiply(d, a, 1ull << 14);
wgmma_wait<0>();
//% end -- case
