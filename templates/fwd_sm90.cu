// ---- Contract ---------------------------------------------------------------------------------------------------------
//
// Variable-length attention forward for Hopper: copy engine and wgmma, sm_90a.
//
//     o = softmax(mask(softmax_scale * q k^T)) v      lse = log of the softmax's denominator      (docs/design.md, contract)
//
// Persistent, BLOCKS_PER_SM blocks each: a warpgroup of helpers draws work and feeds q, k and v through shared memory, CONSUMERS warpgroups own 64
// rows of q each and keep scores, weights and output in registers. docs/kernels-hopper.md tells the whole story. There are two ways:
//
//     attn/forward_turns.cuh    all consumers work on one tile, TILE_M = 64 * CONSUMERS rows, and take turns at the tensor cores: one group's
//                               softmax runs under the others' products
//     attn/forward_alone.cuh    TILE_M = 64, for short sequences: each consumer works on tiles of its own, and waits for memory alone
//
// Host: BLOCKS_PER_SM blocks per SM; schedule.cu has run before; maps as the budget says and tile/panels.cuh explains; o 16-byte aligned.

//% include "attn/types.cuh"

// ---- Constants --------------------------------------------------------------------------------------------------------

$(constants())

constexpr int GROUP_THREADS = 128;
constexpr int GROUP_ROWS = 64;
constexpr int THREADS = GROUP_THREADS * (CONSUMERS + 1);
static_assert(TILE_N % 16 == 0, "weights are contracted 16 keys at a time");

$(args_structs())

//% include "attn/item_order.cuh"
//% include "attn/mask.cuh"
//% include "attn/softcap.cuh"
//% include "attn/softmax_sm90.cuh"
//% include "attn/element.cuh"
//% include "tile/panels.cuh"
//% include "tile/ring.cuh"
//% include "tile/rows.cuh"
//% include "tile/store.cuh"
//% include "ptx/sync.cuh"
//% include "ptx/warpgroup.cuh"

//% if output_stages > 0 then
// Where o passes on its way out, a warp's rows behind the other's.
constexpr int STAGED_ROWS = 16;
constexpr int STAGING_OFFSET = $(budget.offsets.staging);
using Staged = Panels<STAGED_ROWS, HEAD_DIM_V>;
//% end -- output_stages

//% include "attn/forward_rows.cuh"

// ---- Roles ------------------------------------------------------------------------------------------------------------

//% if budget.alone then
//% include "attn/forward_alone.cuh"
//% else
//% include "attn/forward_turns.cuh"
//% end -- alone

// ---- Entry ------------------------------------------------------------------------------------------------------------

KERNEL(THREADS, BLOCKS_PER_SM) $(entry)(PARAMETER ForwardSm90Args args) {
    const int warp = uniform(thread_index() / WARP);
    const u32 shared = shared_address(shared_memory());
    allow_successor();
    initialise_barriers(shared);
    if (thread_index() == 0) {
        prefetch_tensor_map(args.q);
        prefetch_tensor_map(args.k);
        prefetch_tensor_map(args.v);
        //% if output_stages > 0 then
        prefetch_tensor_map(args.output);
        //% end -- output_stages
    }
    block_sync();
    if (warp < 4) {
        //% if budget.trade then
        decrease_registers<$(budget.helper_registers)>();
        //% end -- trade
        wait_for_predecessor();
        help(args, shared, warp);
    } else {
        //% if budget.trade then
        increase_registers<$(budget.consumer_registers)>();
        //% end -- trade
        consume(args, shared, warp / 4 - 1, warp % 4);
        //% if output_stages > 0 then
        bulk_wait<0>();
        //% end -- output_stages
    }
}
