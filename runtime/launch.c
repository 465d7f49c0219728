// launch.c - see launch.h.
#include "launch.h"

#include "kernel_args.h"
#include "lengths.h"

// ---- workspace -----------------------------------------------------------------------------------------------------

struct cursor {
    size_t at;
    bool overflow;
};

// The next part: a * b * c bytes.
static size_t add_part(struct cursor *cursor, int64_t a, int64_t b, size_t c) {
    const size_t start = cursor->at;
    size_t bytes;
    cursor->overflow |= __builtin_mul_overflow((size_t)a, (size_t)b, &bytes) ||
                        __builtin_mul_overflow(bytes, c, &bytes) ||
                        __builtin_add_overflow(bytes, LAUNCH_ALIGNMENT - 1, &bytes);
    bytes -= bytes % LAUNCH_ALIGNMENT;
    cursor->overflow |= __builtin_add_overflow(cursor->at, bytes, &cursor->at) || cursor->at > SIZE_MAX / 2;
    return start;
}

// What the backward's first kernel keeps of a query row and head: 8 bytes in the portable family, 16 in Hopper's. The
// larger, so that a workspace serves both.
#define STATISTICS_BYTES 16

// A schedule: header, first blocks, sequences; the kernel gets one address for each.
static size_t add_schedule(struct cursor *cursor, int64_t entries) {
    const size_t start = add_part(cursor, 1, 1, sizeof(struct kernel_schedule_header));
    add_part(cursor, entries + 1, 1, sizeof(int64_t));
    add_part(cursor, entries, 1, sizeof(struct kernel_sequence));
    return start;
}

static int64_t divide_up(int64_t value, int64_t by) {
    return value / by + (value % by != 0);
}
static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

// Rows of dQ accumulators: those of all sequences with more keys than a tile, each rounded up to whole tiles. At most
// as many sequences can have that many keys as fit into all keys.
static int64_t accumulator_rows(const struct call *call, int tile_m, int tile_n) {
    if (call->rows_k <= tile_n) return 0;
    const int64_t sequences = smaller(call->batch, divide_up(call->total_k, tile_n));
    return (divide_up(call->total_q, tile_m) + sequences) * tile_m;
}

// A block of threads lists about so many sequences as fast as it starts; more are shared out. Every block reads the
// counts of all, which bounds their number.
enum { SHARE = 2048, SHARES_MAX = 64 };

static int64_t shares_of(int64_t batch) {
    return batch <= SHARE ? 1 : smaller(divide_up(batch, SHARE), SHARES_MAX);
}

vf_status launch_layout(const struct call *call, int tile_m, int tile_n, struct layout *layout) {
    struct cursor cursor = {0, false};
    // A sequence and a gap each, and a gap before the first; gaps of more rows than a sequence can have are several.
    layout->entries = 2 * call->batch + 1 + larger(call->rows_q, call->rows_k) / CALL_LENGTH_LIMIT;
    layout->shares = shares_of(call->batch);
    layout->stat_rows = call->backward ? call->total_q : 0;
    layout->accumulator_rows = call->backward ? accumulator_rows(call, tile_m, tile_n) : 0;
    layout->report = add_part(&cursor, 1, 1, sizeof(struct kernel_check_report));
    layout->parts = add_part(&cursor, layout->shares > 1 ? layout->shares : 0, 1, sizeof(struct kernel_schedule_part));
    layout->by_q = add_schedule(&cursor, layout->entries);
    if (call->backward) {
        layout->by_k = add_schedule(&cursor, layout->entries);
        layout->stats = add_part(&cursor, call->heads_q, layout->stat_rows, STATISTICS_BYTES);
        layout->accumulator =
            add_part(&cursor, call->heads_q, layout->accumulator_rows, (size_t)call->request.head_dim * sizeof(float));
        layout->turns = add_part(&cursor, call->heads_q, layout->accumulator_rows / tile_m, sizeof(uint32_t));
    }
    layout->total = cursor.at;
    VF_REQUIRE(!cursor.overflow, VF_ERROR_UNSUPPORTED,
               "workspace: %lld heads of %lld rows need more than fits the address space", (long long)call->heads_q,
               (long long)call->total_q);
    return VF_OK;
}

vf_status launch_check_workspace(const struct call *call, size_t needed) {
    const vf_problem_args *problem = call->problem;
    const char *pass = call->backward ? "backward" : "forward";
    VF_REQUIRE(problem->workspace || needed == 0, VF_ERROR_WORKSPACE,
               "workspace: is null; vf_%s_workspace_size says %zu bytes", pass, needed);
    VF_REQUIRE(problem->workspace_size >= needed, VF_ERROR_WORKSPACE,
               "workspace: has %zu bytes; the call needs %zu (vf_%s_workspace_size)", problem->workspace_size, needed,
               pass);
    return VF_OK;
}

// ---- arguments -----------------------------------------------------------------------------------------------------

static uint64_t address(const void *data) {
    return (uint64_t)(uintptr_t)data;
}

static uint64_t workspace(const struct call *call) {
    return address(call->problem->workspace);
}

static struct kernel_operand operand(const vf_tensor *tensor, bool batched) {
    if (!tensor) return (struct kernel_operand){.data = 0};
    const int64_t *stride = tensor->stride + batched;
    return (struct kernel_operand){address(tensor->data), batched ? tensor->stride[0] : 0, stride[0], stride[1]};
}

// lse and dlse have heads before rows.
static struct kernel_operand row_operand(const vf_tensor *tensor, bool batched) {
    struct kernel_operand out = operand(tensor, batched);
    const int64_t head_stride = out.row_stride;
    out.row_stride = out.head_stride;
    out.head_stride = head_stride;
    return out;
}

static struct kernel_operand of_q(const struct call *call, enum call_tensor tensor) {
    return operand(call->tensors[tensor], call->q_batched);
}
static struct kernel_operand of_k(const struct call *call, enum call_tensor tensor) {
    return operand(call->tensors[tensor], call->k_batched);
}
static struct kernel_operand of_rows(const struct call *call, enum call_tensor tensor) {
    return row_operand(call->tensors[tensor], call->q_batched);
}

static struct kernel_lengths lengths(const struct call *call, enum call_lengths which) {
    const vf_tensor *tensor = call->lengths[which];
    if (!tensor) return (struct kernel_lengths){.data = 0};
    return (struct kernel_lengths){address(tensor->data), tensor->dtype == VF_INT64};
}

// Walks the parts as add_schedule laid them out.
static struct kernel_schedule schedule(const struct call *call, size_t offset, int64_t entries) {
    struct cursor cursor = {offset, false};
    const uint64_t base = workspace(call);
    const size_t header = add_part(&cursor, 1, 1, sizeof(struct kernel_schedule_header));
    const size_t first_block = add_part(&cursor, entries + 1, 1, sizeof(int64_t));
    return (struct kernel_schedule){base + header, base + first_block, base + cursor.at};
}

// Any kernel's one parameter. Those with tensor maps begin with them, in the order of the plan.
union arguments {
    struct cuda_tensor_map maps[TENSOR_MAPS_MAX];
    struct kernel_schedule_args schedule;
    struct kernel_forward_args forward;
    struct kernel_forward_sm90_args forward_sm90;
    struct kernel_backward_pre_args pre;
    struct kernel_backward_pre_sm90_args pre_sm90;
    struct kernel_backward_args backward;
    struct kernel_backward_sm90_args backward_sm90;
    struct kernel_backward_post_args post;
    struct kernel_check_args check;
};

static void pack_schedule(const struct call *call, const struct layout *layout, const struct source_plan *plan,
                          struct kernel_schedule_args *out) {
    *out = (struct kernel_schedule_args){
        .cu_q = lengths(call, CALL_CU_Q),
        .cu_k = lengths(call, CALL_CU_K),
        .used_q = lengths(call, CALL_USED_Q),
        .used_k = lengths(call, CALL_USED_K),
        .by_q = schedule(call, layout->by_q, layout->entries),
        .batch = call->batch,
        .q_rows = call->rows_q,
        .k_rows = call->rows_k,
        .share = call->batch > 0 ? divide_up(call->batch, layout->shares) : 1,
        .parts = layout->shares > 1 ? workspace(call) + layout->parts : 0,
        .tile_m = plan->tile_m,
        .tile_n = plan->tile_n,
        .fill = call->problem->fill == VF_FILL_ZERO,
    };
    if (call->backward) out->by_k = schedule(call, layout->by_k, layout->entries);
}

// What a pass's kernels are told in both families: the ends of their structs (gen/args.lua).
#define FORWARD_ARGUMENTS(call, layout)                                                         \
    .o = of_q(call, CALL_O), .lse = of_rows(call, CALL_LSE),                                    \
    .schedule = schedule(call, layout->by_q, layout->entries), .heads = (int32_t)call->heads_q, \
    .group = (int32_t)(call->heads_q / call->heads_k), .window_left = call->window_left,        \
    .window_right = call->window_right, .scale = call->scale, .softcap = call->softcap
#define BACKWARD_ARGUMENTS(call, layout)                                                                           \
    .dq = of_q(call, CALL_DQ), .dk = of_k(call, CALL_DK), .dv = of_k(call, CALL_DV),                               \
    .schedule = schedule(call, layout->by_k, layout->entries), .stats = workspace(call) + layout->stats,           \
    .accumulator = workspace(call) + layout->accumulator, .turns = workspace(call) + layout->turns,                \
    .stat_rows = layout->stat_rows, .accumulator_rows = layout->accumulator_rows, .heads = (int32_t)call->heads_q, \
    .group = (int32_t)(call->heads_q / call->heads_k), .window_left = call->window_left,                           \
    .window_right = call->window_right, .scale = call->scale, .softcap = call->softcap

static void pack_forward(const struct call *call, const struct layout *layout, struct kernel_forward_args *out) {
    *out = (struct kernel_forward_args){
        .q = of_q(call, CALL_Q),
        .k = of_k(call, CALL_K),
        .v = of_k(call, CALL_V),
        FORWARD_ARGUMENTS(call, layout),
    };
}

static void pack_forward_sm90(const struct call *call, const struct layout *layout,
                              struct kernel_forward_sm90_args *out) {
    *out = (struct kernel_forward_sm90_args){
        FORWARD_ARGUMENTS(call, layout),
    };
}

static void pack_pre(const struct call *call, const struct layout *layout, struct kernel_backward_pre_args *out) {
    const uint64_t base = workspace(call);
    *out = (struct kernel_backward_pre_args){
        .o = of_q(call, CALL_O),
        .dout = of_q(call, CALL_DOUT),
        .lse = of_rows(call, CALL_LSE),
        .dlse = of_rows(call, CALL_DLSE),
        .schedule = schedule(call, layout->by_q, layout->entries),
        .stats = base + layout->stats,
        .accumulator = base + layout->accumulator,
        .turns = base + layout->turns,
        .stat_rows = layout->stat_rows,
        .accumulator_rows = layout->accumulator_rows,
        .heads = (int32_t)call->heads_q,
    };
}

static void pack_pre_sm90(const struct call *call, const struct layout *layout,
                          struct kernel_backward_pre_sm90_args *out) {
    const uint64_t base = workspace(call);
    *out = (struct kernel_backward_pre_sm90_args){
        .o = of_q(call, CALL_O),
        .dout = of_q(call, CALL_DOUT),
        .dq = of_q(call, CALL_DQ),
        .lse = of_rows(call, CALL_LSE),
        .dlse = of_rows(call, CALL_DLSE),
        .schedule = schedule(call, layout->by_q, layout->entries),
        .stats = base + layout->stats,
        .turns = base + layout->turns,
        .stat_rows = layout->stat_rows,
        .accumulator_rows = layout->accumulator_rows,
        .heads = (int32_t)call->heads_q,
        .window_left = call->window_left,
        .window_right = call->window_right,
        .scale = call->scale,
    };
}

static void pack_backward(const struct call *call, const struct layout *layout, struct kernel_backward_args *out) {
    *out = (struct kernel_backward_args){
        .q = of_q(call, CALL_Q),
        .k = of_k(call, CALL_K),
        .v = of_k(call, CALL_V),
        .dout = of_q(call, CALL_DOUT),
        BACKWARD_ARGUMENTS(call, layout),
    };
}

static void pack_backward_sm90(const struct call *call, const struct layout *layout,
                               struct kernel_backward_sm90_args *out) {
    *out = (struct kernel_backward_sm90_args){
        BACKWARD_ARGUMENTS(call, layout),
    };
}

static void pack_post(const struct call *call, const struct layout *layout, struct kernel_backward_post_args *out) {
    *out = (struct kernel_backward_post_args){
        .dq = of_q(call, CALL_DQ),
        .schedule = schedule(call, layout->by_q, layout->entries),
        .accumulator = workspace(call) + layout->accumulator,
        .accumulator_rows = layout->accumulator_rows,
        .heads = (int32_t)call->heads_q,
        .window_left = call->window_left,
        .window_right = call->window_right,
        .scale = call->scale,
    };
}

// ---- launching -----------------------------------------------------------------------------------------------------

unsigned launch_grid(int64_t device_blocks, int64_t cluster, int64_t tiles, int64_t heads) {
    const int64_t most = larger(device_blocks / cluster, 1);
    return (unsigned)((tiles >= most ? most : smaller(most, tiles * heads)) * cluster);
}

// A kernel whose grid is smaller than the device takes less room there. `tiles` is an upper bound.
static unsigned grid_of(const struct call *call, const struct layout *layout, const struct variant *variant,
                        int index) {
    const struct source_plan *plan = &variant->choice.plan;
    const enum role role = variant->roles[index];
    const bool by_k = role == ROLE_BACKWARD || role == ROLE_BACKWARD_SM90;
    const int64_t rows = by_k ? call->total_k : call->total_q;
    const int64_t tiles = rows / (by_k ? plan->tile_n : plan->tile_m) + layout->entries;
    return launch_grid(variant->grid[index], plan->kernels[index].cluster, tiles, call->heads_q);
}

static vf_status launch(const struct call *call, const struct variant *variant, int index, const struct scope *scope,
                        unsigned grid, bool chained, union arguments *arguments) {
    struct cuda_launch_attribute attribute = {.id = CUDA_LAUNCH_PROGRAMMATIC_SERIALIZATION,
                                              .value.programmatic_serialization = 1};
    const struct cuda_launch_config config = {
        .grid_x = grid,
        .grid_y = 1,
        .grid_z = 1,
        .block_x = (unsigned)variant->threads[index],
        .block_y = 1,
        .block_z = 1,
        .shared_bytes = (unsigned)variant->shared_bytes[index],
        .stream = call->problem->stream,
        .attributes = &attribute,
        // Compute capability 9.0 and later can start a kernel before its predecessor has ended.
        .attribute_count = chained && scope->device->compute_major >= 9,
    };
    void *parameters[] = {arguments};
    CUDA_TRY(scope->api, cuLaunchKernelEx, &config, variant->functions[index], parameters, NULL);
    return VF_OK;
}

bool launch_writes(const struct call *call) {
    const int outputs[] = {CALL_O, CALL_LSE, CALL_DQ, CALL_DK, CALL_DV};
    // With fill off and no sequence there is no row to write.
    if (call->problem->fill == VF_FILL_KEEP && call->batch == 0) return false;
    for (size_t i = call->backward ? 2 : 0; i < (call->backward ? ARRAY_LENGTH(outputs) : 2); i++) {
        const vf_tensor *tensor = call->tensors[outputs[i]];
        if (tensor && !tensor_empty(tensor)) return true;
    }
    return false;
}

vf_status launch_check(const struct call *call, const struct variant *check, const struct scope *scope) {
    bool capturing = false;
    VF_TRY(scope_capturing(scope, call->problem->stream, &capturing));
    VF_REQUIRE(!capturing, VF_ERROR_CAPTURE,
               "check: checked mode waits for the device, which a capture cannot; use check = 0 in it");
    // The report is the workspace's first part whatever the variant.
    union arguments arguments = {.check = {
                                     .cu_q = lengths(call, CALL_CU_Q),
                                     .cu_k = lengths(call, CALL_CU_K),
                                     .used_q = lengths(call, CALL_USED_Q),
                                     .used_k = lengths(call, CALL_USED_K),
                                     .batch = call->batch,
                                     .q_rows = call->rows_q,
                                     .k_rows = call->rows_k,
                                     .max_q = lengths_longest(call, false),
                                     .max_k = lengths_longest(call, true),
                                     .report = workspace(call),
                                 }};
    struct kernel_check_report report = {.fault = 0};
    VF_TRY(launch(call, check, 0, scope, 1, false, &arguments));
    CUDA_TRY(scope->api, cuMemcpyDtoHAsync, &report, arguments.check.report, sizeof report, call->problem->stream);
    CUDA_TRY(scope->api, cuStreamSynchronize, call->problem->stream);
    return lengths_status(call, report.fault, report.found);
}

// One launch, or with several shares two: they are counted, then placed.
static vf_status launch_schedule(const struct call *call, const struct variant *variant, int index,
                                 const struct layout *layout, const struct scope *scope, uint64_t *launched) {
    union arguments arguments;
    pack_schedule(call, layout, &variant->choice.plan, &arguments.schedule);
    const unsigned grid = (unsigned)layout->shares;
    if (grid > 1) {
        VF_TRY(launch(call, variant, index, scope, grid, false, &arguments));
        ++*launched;
        arguments.schedule.counted = 1;
    }
    VF_TRY(launch(call, variant, index, scope, grid, grid > 1, &arguments));
    ++*launched;
    return VF_OK;
}

struct kernel_maps {
    struct cuda_tensor_map maps[TENSOR_MAPS_MAX];
};

static vf_status encode_maps(const struct call *call, const struct variant *variant, const struct scope *scope,
                             struct kernel_maps kernels[SOURCE_KERNELS_MAX]) {
    for (int i = 0; i < variant->choice.plan.kernel_count; i++) {
        for (int m = 0; m < variant->maps[i].count; m++) {
            VF_TRY(tensor_map_encode(call, &variant->maps[i].boxes[m], call->problem->workspace, scope->api,
                                     &kernels[i].maps[m]));
        }
    }
    return VF_OK;
}

vf_status launch_call(const struct call *call, const struct variant *variant, const struct layout *layout,
                      const struct scope *scope, uint64_t *launched) {
    const struct source_plan *plan = &variant->choice.plan;
    struct kernel_maps kernels[SOURCE_KERNELS_MAX];
    VF_TRY(encode_maps(call, variant, scope, kernels));  // first, so that nothing is launched if it fails
    for (int i = 0; i < plan->kernel_count; i++) {
        union arguments arguments;
        switch (variant->roles[i]) {
            case ROLE_SCHEDULE:
                VF_TRY(launch_schedule(call, variant, i, layout, scope, launched));
                continue;
            case ROLE_FORWARD:
                pack_forward(call, layout, &arguments.forward);
                break;
            case ROLE_FORWARD_SM90:
                pack_forward_sm90(call, layout, &arguments.forward_sm90);
                break;
            case ROLE_BACKWARD_PRE:
                pack_pre(call, layout, &arguments.pre);
                break;
            case ROLE_BACKWARD_PRE_SM90:
                pack_pre_sm90(call, layout, &arguments.pre_sm90);
                break;
            case ROLE_BACKWARD:
                pack_backward(call, layout, &arguments.backward);
                break;
            case ROLE_BACKWARD_SM90:
                pack_backward_sm90(call, layout, &arguments.backward_sm90);
                break;
            case ROLE_BACKWARD_POST:
                pack_post(call, layout, &arguments.post);
                break;
            case ROLE_CHECK:
                VF_FAIL(VF_ERROR_INTERNAL, "a variant has checked mode's kernel");
        }
        for (int m = 0; m < variant->maps[i].count; m++) arguments.maps[m] = kernels[i].maps[m];
        VF_TRY(launch(call, variant, i, scope, grid_of(call, layout, variant, i), i > 0, &arguments));
        ++*launched;
    }
    return VF_OK;
}
