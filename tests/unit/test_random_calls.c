// test_random_calls.c - calls drawn at random, some of them spoiled in a few bytes, on the stub driver: whatever they say, a status and a
// sentence, and what is launched stays inside the workspace. Nothing has memory: addresses alone are judged.
#include <limits.h>

#include "stub_context.h"
#include "validate.h"

#define ROUNDS 1500
#define LANE ((uintptr_t)1 << 56)  // apart from each other: where tensors lie
#define WORKSPACE_LANE 20

static uint64_t state;

static uint64_t draw(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}
#define PICK(...) pick((const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
static int64_t pick(const int64_t *values, size_t count) {
    return values[draw() % count];
}

// ---- calls ---------------------------------------------------------------------------------------------------------

// Both passes as one, so that what is drawn for one serves the other.
struct sizes_of_call {
    int64_t batch, rows_q, rows_k, heads_q, heads_k, dim, dim_v;
    bool batched_q, batched_k;
};

static struct sizes_of_call draw_sizes(void) {
    const int64_t heads_k = PICK(1, 1, 2, 3, 1024, 70000), group = PICK(1, 1, 2, 7, 128, 4096);
    const bool narrow = draw() % 2;
    return (struct sizes_of_call){
        .batch = PICK(0, 1, 2, 3, 2048, 2049, 80000, 1 << 20, (1 << 27) - 512),
        .rows_q = PICK(0, 1, 63, 64, 65, 1000, 65537, 1 << 20, (1LL << 31) - 1, (1LL << 31) + 7, 1LL << 38),
        .rows_k = PICK(0, 1, 127, 128, 129, 5000, 65536, 1 << 20, (1LL << 31) - 1, 1LL << 32, 1LL << 38),
        .heads_q = heads_k * group,
        .heads_k = heads_k,
        .dim = narrow ? 64 : 128,
        .dim_v = narrow ? 64 : 40,
        .batched_q = draw() % 4 == 0,
        .batched_k = draw() % 4 == 0,
    };
}

static vf_tensor tensor_at(int lane, vf_dtype dtype, bool batched, int64_t batch, const int64_t *inner, int count) {
    vf_tensor tensor = {.data = (void *)((uintptr_t)(lane + 1) * LANE), .dtype = dtype, .ndim = count + batched};
    int64_t stride = 1;
    if (batched) tensor.shape[0] = batch;
    memcpy(tensor.shape + batched, inner, (size_t)count * sizeof *inner);
    for (int d = tensor.ndim - 1; d >= 0; d--) {
        tensor.stride[d] = stride;
        if (__builtin_mul_overflow(stride, tensor.shape[d] ? tensor.shape[d] : 1, &stride)) stride = INT64_MAX;
    }
    return tensor;
}

static vf_tensor lengths_at(int lane, int64_t count, bool wide) {
    return tensor_at(lane, wide ? VF_INT64 : VF_INT32, false, 0, &count, 1);
}

static vf_backward_args args_of(const struct sizes_of_call *sizes, vf_dtype dtype) {
    const int64_t q[] = {sizes->rows_q, sizes->heads_q, sizes->dim},
                  o[] = {sizes->rows_q, sizes->heads_q, sizes->dim_v};
    const int64_t k[] = {sizes->rows_k, sizes->heads_k, sizes->dim},
                  v[] = {sizes->rows_k, sizes->heads_k, sizes->dim_v};
    const int64_t lse[] = {sizes->heads_q, sizes->rows_q};
    const bool bq = sizes->batched_q, bk = sizes->batched_k;
    vf_backward_args args = {.q = tensor_at(0, dtype, bq, sizes->batch, q, 3),
                             .k = tensor_at(1, dtype, bk, sizes->batch, k, 3),
                             .v = tensor_at(2, dtype, bk, sizes->batch, v, 3),
                             .o = tensor_at(3, dtype, bq, sizes->batch, o, 3),
                             .lse = tensor_at(4, VF_FLOAT32, bq, sizes->batch, lse, 2),
                             .dout = tensor_at(5, dtype, bq, sizes->batch, o, 3),
                             .dq = tensor_at(6, dtype, bq, sizes->batch, q, 3),
                             .dk = tensor_at(7, dtype, bk, sizes->batch, k, 3),
                             .dv = tensor_at(8, dtype, bk, sizes->batch, v, 3)};
    if (!bq) args.problem.cu_seqlens_q = lengths_at(9, sizes->batch + 1, draw() % 2);
    if (!bk) args.problem.cu_seqlens_k = lengths_at(10, sizes->batch + 1, draw() % 2);
    if (draw() % 4 == 0) args.problem.seqused_q = lengths_at(11, sizes->batch, draw() % 2);
    if (draw() % 4 == 0) args.problem.seqused_k = lengths_at(12, sizes->batch, draw() % 2);
    if (draw() % 4 == 0) args.dlse = tensor_at(13, VF_FLOAT32, bq, sizes->batch, lse, 2);
    return args;
}

static void draw_strides(vf_tensor *tensor) {
    const int d = (int)(draw() % (uint64_t)(tensor->ndim - 1));
    tensor->stride[d] =
        PICK(0, -1, 1, 7, -tensor->stride[d], tensor->stride[d] + 8, 2 * tensor->stride[d], 1LL << 39, 1LL << 40);
}

static vf_backward_args draw_call(const struct sizes_of_call *sizes) {
    vf_backward_args args = args_of(sizes, draw() % 2 ? VF_BFLOAT16 : VF_FLOAT16);
    args.problem.mask = (vf_mask)(draw() % 3);
    args.problem.window_left = PICK(0, 3, -3, INT64_MAX, INT64_MIN, INT32_MAX, INT32_MIN, 1 << 30, -(1 << 30) - 1);
    args.problem.window_right = PICK(0, 3, -3, INT64_MAX, INT64_MIN, INT32_MAX, INT32_MIN, 1 << 30, -(1 << 30) - 1);
    args.problem.deterministic = (vf_switch)(draw() % 3);
    args.problem.fill = (vf_fill)(draw() % 2);
    args.problem.max_seqlen_q = PICK(0, 0, 1, INT64_MAX);
    vf_tensor *const inputs[] = {&args.q, &args.k, &args.v, &args.dout, &args.dq};
    if (draw() % 3 == 0) draw_strides(inputs[draw() % ARRAY_LENGTH(inputs)]);
    args.problem.device = 1;
    args.problem.workspace = (void *)(WORKSPACE_LANE * LANE);
    return args;
}

// A few bytes of anything, but of what the stub itself would follow.
static void spoil(vf_backward_args *args) {
    for (uint64_t i = draw() % 3 + 1; i > 0; i--)
        ((unsigned char *)args)[sizeof args->struct_size + draw() % (sizeof *args - sizeof args->struct_size)] =
            (unsigned char)draw();
    args->problem.device = 1;
    args->problem.stream = NULL;
    args->problem.check = 0;
}

static vf_forward_args forward_of(const vf_backward_args *args) {
    return (vf_forward_args){
        .q = args->q, .k = args->k, .v = args->v, .o = args->o, .lse = args->lse, .problem = args->problem};
}

// ---- what must hold ------------------------------------------------------------------------------------------------

struct parts {
    uint64_t begin, end;  // of the workspace
    uint64_t at;          // behind the last part
};

static void take_part(struct parts *parts, uint64_t begin, unsigned __int128 bytes) {
    ck_assert_uint_ge(begin, parts->at);
    ck_assert(bytes <= parts->end - begin);
    parts->at = begin + (uint64_t)bytes;
}

static void take_schedule(struct parts *parts, const struct kernel_schedule *schedule, int64_t batch) {
    const unsigned __int128 entries = (unsigned __int128)(2 * batch + 1);
    take_part(parts, schedule->header, sizeof(struct kernel_schedule_header));
    take_part(parts, schedule->first_block, (entries + 1) * sizeof(int64_t));
    take_part(parts, schedule->sequences, entries * sizeof(struct kernel_sequence));
}

// The workspace's parts follow each other, and hold what the kernels put there.
static void check_launches(const struct call *call) {
    struct parts parts = {.begin = (uint64_t)(uintptr_t)call->problem->workspace};
    parts.end = parts.begin + call->problem->workspace_size;
    parts.at = parts.begin;
    for (int i = 0; i < stub.launch_count; i++) {
        const struct stub_launch *launch = &stub.launches[i];
        ck_assert_uint_ge(launch->grid, 1);
        ck_assert_uint_le(launch->grid, (unsigned)(stub.multiprocessors * 32));
        ck_assert_int_eq(launch->chained && i == 0, false);
    }
    const struct kernel_schedule_args *schedule = &stub.launches[0].arguments.schedule;
    if (schedule->parts)
        take_part(&parts, schedule->parts, stub.launches[0].grid * sizeof(struct kernel_schedule_part));
    take_schedule(&parts, &schedule->by_q, call->batch);
    ck_assert_int_ge(schedule->share * stub.launches[0].grid, call->batch);
    if (!call->backward) return;
    take_schedule(&parts, &schedule->by_k, call->batch);
    const struct stub_launch *main = &stub.launches[stub.launch_count - 1];
    const bool sm90 = strstr(main->entry, "bwd_sm90") != NULL;
    if (!sm90) main--;  // bwd_post is the last
    const struct kernel_backward_sm90_args *hopper = &main->arguments.backward_sm90;
    const struct kernel_backward_args *portable = &main->arguments.backward;
    const int64_t rows = sm90 ? hopper->accumulator_rows : portable->accumulator_rows;
    const unsigned __int128 heads = (unsigned __int128)call->heads_q;
    ck_assert_int_eq(sm90 ? hopper->stat_rows : portable->stat_rows, call->total_q);
    take_part(&parts, sm90 ? hopper->stats : portable->stats,
              heads * (unsigned __int128)call->total_q * (sm90 ? 16 : 8));
    take_part(&parts, sm90 ? hopper->accumulator : portable->accumulator,
              heads * (unsigned __int128)rows * (unsigned __int128)call->request.head_dim * sizeof(float));
    take_part(&parts, sm90 ? hopper->turns : portable->turns,
              heads * (unsigned __int128)(rows / schedule->tile_m) * sizeof(uint32_t));
}

static void check_refusal(vf_status status) {
    ck_assert_int_eq(stub.launch_count, 0);
    ck_assert_msg(vf_last_error()[0] != 0, "%s without a sentence", vf_status_name(status));
    ck_assert_msg(status == VF_ERROR_INVALID_ARGUMENT || status == VF_ERROR_UNSUPPORTED || status == VF_ERROR_WORKSPACE,
                  "%s: %s", vf_status_name(status), vf_last_error());
}

// One pass of a call: what it says of itself, ahead of time and by a plan too. True: it was valid.
static bool try_pass(vf_context *context, vf_backward_args *args, bool backward, bool spoilt, size_t *bytes) {
    vf_forward_args forward = forward_of(args);
    struct call call;
    const struct validate_rules rules = {.pointers = VALIDATE_ALL};
    char text[4096];
    const vf_status sized = backward ? vf_backward_workspace_size(context, args, bytes)
                                     : vf_forward_workspace_size(context, &forward, bytes);
    if (!sized && !spoilt) args->problem.workspace_size = forward.problem.workspace_size = *bytes;
    stub.launch_count = 0;
    const vf_status told = backward ? vf_explain_backward(context, args, NULL, text, sizeof text, NULL)
                                    : vf_explain_forward(context, &forward, NULL, text, sizeof text, NULL);
    ck_assert_int_eq(stub.launch_count, 0);
    const vf_status status = backward ? vf_backward(context, args) : vf_forward(context, &forward);
    if (status) {
        check_refusal(status);
        // The workspace is no part of what explains.
        ck_assert_msg(told || status == VF_ERROR_WORKSPACE || status == VF_ERROR_INVALID_ARGUMENT,
                      "%s, but explained: %s", vf_last_error(), text);
        // One of the variants may need more than there is, and the one of this call less.
        ck_assert_msg(spoilt || status != VF_ERROR_WORKSPACE || sized == VF_ERROR_UNSUPPORTED, "%s", vf_last_error());
        return false;
    }
    ck_assert_msg(!sized && !told, "a call that is right is not when it is asked about: %s", vf_last_error());
    unit_ok(backward ? validate_backward(args, &rules, &call) : validate_forward(&forward, &rules, &call));
    if (stub.launch_count > 0) check_launches(&call);

    vf_plan *plan = NULL;
    const int launches = stub.launch_count;
    unit_ok(backward ? vf_plan_create_backward(context, args, &plan)
                     : vf_plan_create_forward(context, &forward, &plan));
    unit_ok(backward ? vf_plan_launch_backward(plan, args) : vf_plan_launch_forward(plan, &forward));
    ck_assert_int_eq(stub.launch_count, 2 * launches);
    for (int i = 0; i < launches; i++) {
        ck_assert_str_eq(stub.launches[i].entry, stub.launches[i + launches].entry);
        ck_assert_mem_eq(&stub.launches[i].arguments, &stub.launches[i + launches].arguments,
                         sizeof stub.launches[i].arguments);
    }
    vf_plan_destroy(plan);
    return true;
}

// A workspace for bounds serves whatever is within them.
static void check_bounds(vf_context *context, const struct sizes_of_call *sizes, const vf_backward_args *args,
                         size_t bytes) {
    struct sizes_of_call more = *sizes;
    int64_t *const grows[] = {&more.batch, &more.rows_q, &more.rows_k};
    *grows[draw() % ARRAY_LENGTH(grows)] += PICK(1, 2, 64, 1000);
    const int64_t times = PICK(1, 2, 3);
    more.heads_q *= times;
    more.heads_k *= times;
    const uint64_t before = state;
    vf_backward_args larger = args_of(&more, args->q.dtype);
    state = before;
    const vf_problem_args lengths = larger.problem;
    larger.problem = args->problem;
    larger.problem.cu_seqlens_q = lengths.cu_seqlens_q;
    larger.problem.cu_seqlens_k = lengths.cu_seqlens_k;
    larger.problem.seqused_q = larger.problem.seqused_k = (vf_tensor){.data = NULL};
    size_t most = 0;
    if (!vf_backward_workspace_size(context, &larger, &most)) ck_assert_uint_ge(most, bytes);
}

// ---- tests ---------------------------------------------------------------------------------------------------------

static void try_calls(int compute) {
    int right = 0, launched = 0;
    stub_set_up();
    stub.compute[0] = compute;
    vf_context *context = stub_open();
    state = (uint64_t)compute;
    for (int round = 0; round < ROUNDS; round++) {
        const struct sizes_of_call sizes = draw_sizes();
        const bool backward = draw() % 2, spoilt = draw() % 3 == 0;
        vf_backward_args args = draw_call(&sizes);
        size_t bytes = 0;
        if (spoilt) spoil(&args);
        if (!try_pass(context, &args, backward, spoilt, &bytes)) continue;
        right++;
        launched += stub.launch_count > 0;
        if (backward && !spoilt) check_bounds(context, &sizes, &args, bytes);
    }
    // Else the rounds say little.
    ck_assert_int_gt(right, ROUNDS / 6);
    ck_assert_int_gt(launched, ROUNDS / 8);
    stub_close(context);
    stub_tear_down();
}

START_TEST(hopper) {
    try_calls(90);
}
END_TEST

START_TEST(portable) {
    try_calls(80);
}
END_TEST

UNIT_MAIN("random_calls", hopper, portable)
