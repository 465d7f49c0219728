// test_tensor_map.c - kernels that read through tensor maps: what the maps hold, which calls get them, and why others
// do not.
#include "tensor_map.h"

#include "stub_context.h"

// A device whose built-in rows choose the Hopper family.
static void set_up(void) {
    stub_set_up();
    stub.compute[0] = 90;
}

// The knobs of the row that serves a call where there are maps, to be forced where there are none.
#define KNOBS 256
static void hopper_knobs(const vf_forward_args *args, char knobs[KNOBS]) {
    vf_context *context = stub_open();
    char *request = NULL;
    vf_dev_variant *variant = NULL;
    unit_ok(vf_dev_request_forward(context, args, NULL, &request));
    unit_ok(vf_dev_variant_create(context, request, NULL, &variant));
    ck_assert_msg(strstr(variant->knobs, "family=sm90") != NULL, "%s", variant->knobs);
    snprintf(knobs, KNOBS, "%s", variant->knobs);
    vf_dev_variant_free(variant);
    vf_dev_text_free(request);
    stub_close(context);
}

static vf_context *open_with(const struct cuda_api *api) {
    vf_context *context = NULL;
    unit_ok(vf_dev_open_with_api(&(vf_options){.backend = VF_BACKEND_CUDA}, api, stub_nvrtc(), &context));
    return context;
}

static const struct stub_launch *main_launch(void) {
    ck_assert_int_ge(stub.launch_count, 2);
    return &stub.launches[stub.launch_count - 1];
}

static bool is_hopper(const struct stub_launch *launch) {
    return strstr(launch->entry, "vf_fwd_sm90") != NULL;
}

static struct stub_map map_of(const struct cuda_tensor_map *map) {
    struct stub_map made;
    memcpy(&made, map, sizeof made);
    return made;
}

// ---- what a map holds ----------------------------------------------------------------------------------------------

static void check_map(const struct stub_map *map, const vf_tensor *tensor, int box) {
    const int batched = tensor->ndim - 3;
    const uint64_t row = (uint64_t)tensor->stride[batched] * 2;
    ck_assert_int_eq(map->rank, 5);
    ck_assert_uint_eq(map->address, (uintptr_t)tensor->data - (uint64_t)box * row);
    const uint64_t dimensions[5] = {(uint64_t)tensor->shape[batched + 2], (uint64_t)box,
                                    (uint64_t)tensor->shape[batched] + 1, (uint64_t)tensor->shape[batched + 1],
                                    batched ? (uint64_t)tensor->shape[0] : 1};
    const uint64_t strides[4] = {row, row, (uint64_t)tensor->stride[batched + 1] * 2,
                                 batched ? (uint64_t)tensor->stride[0] * 2 : 16};
    const int boxes[5] = {64, box, 1, 1, 1};
    for (int i = 0; i < 5; i++) {
        ck_assert_uint_eq(map->dimensions[i], dimensions[i]);
        ck_assert_int_eq(map->box[i], boxes[i]);
        ck_assert_int_eq(map->steps[i], 1);
        if (i < 4) ck_assert_uint_eq(map->strides[i], strides[i]);
    }
    ck_assert_int_eq(map->type, tensor->dtype == VF_FLOAT16 ? 6 : 9);
    ck_assert_int_eq(map->swizzle, 3);
    ck_assert_int_eq(map->interleave, 0);
    ck_assert_int_eq(map->fill, 0);
}

static void check_forward(const vf_forward_args *args) {
    const struct kernel_forward_sm90_args *forward = &main_launch()->arguments.forward_sm90;
    ck_assert(is_hopper(main_launch()));
    const struct stub_map q = map_of(&forward->q), k = map_of(&forward->k), v = map_of(&forward->v);
    const struct kernel_schedule_args *schedule = &stub.launches[stub.launch_count - 2].arguments.schedule;
    const int keys =
        schedule->tile_m == 64 ? schedule->tile_n / 2 : schedule->tile_n;  // short: tiles come in two parts
    check_map(&q, &args->q, 64);
    check_map(&k, &args->k, keys);
    check_map(&v, &args->v, keys);
    ck_assert_uint_eq(forward->o.data, (uintptr_t)args->o.data);
    ck_assert_uint_eq(forward->lse.data, (uintptr_t)args->lse.data);
    ck_assert_uint_eq(forward->schedule.header, stub.launches[stub.launch_count - 2].arguments.schedule.by_q.header);
    ck_assert_int_eq(forward->heads, 4);
    ck_assert_int_eq(forward->group, 2);
    ck_assert_float_eq_tol(forward->scale, 0.125f, 1e-7f);
}

START_TEST(packed_and_batched) {
    set_up();
    vf_context *context = stub_open();
    vf_forward_args args = sample_forward(stub_first);
    args.k.stride[0] = 1 << 20;  // strides are the caller's
    args.k.data = stub_first((size_t)12 << 21);
    unit_ok(vf_forward(context, &args));
    check_forward(&args);
    args = sample_forward(stub_first);
    args.q.dtype = args.k.dtype = args.v.dtype = args.o.dtype = VF_FLOAT16;
    unit_ok(vf_forward(context, &args));
    check_forward(&args);
    args = sample_batched_forward(stub_first);
    unit_ok(vf_forward(context, &args));
    check_forward(&args);
    stub_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(an_output_that_the_copy_engine_stores) {
    set_up();
    vf_context *context = stub_open();
    const vf_forward_args args = sample_forward(stub_first);
    unit_ok(vf_dev_force(
        context, "family=sm90 tile_m=128 tile_n=64 stages=2 blocks_per_sm=1 consumers=2 output_stages=1", NULL));
    unit_ok(vf_forward(context, &args));
    check_forward(&args);
    const struct stub_map output = map_of(&main_launch()->arguments.forward_sm90.output);
    check_map(&output, &args.o, 16);
    stub_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(the_backward) {
    set_up();
    vf_context *context = stub_open();
    vf_backward_args args = sample_backward(stub_first);
    memset(args.dout.stride, 0, sizeof args.dout.stride[0] * 2);  // expanded, as a sum's gradient is
    args.dlse = sample_rows(stub_first, SAMPLE_HEADS_Q, SAMPLE_ROWS_Q);
    unit_ok(vf_backward(context, &args));
    static const char *const entries[] = {"vf_schedule", "vf_bwd_pre_sm90", "vf_bwd_sm90"};  // nothing to finish
    ck_assert_int_eq(stub.launch_count, 3);
    for (int i = 0; i < 3; i++)
        ck_assert_msg(strncmp(stub.launches[i].entry, entries[i], strlen(entries[i])) == 0, "%s",
                      stub.launches[i].entry);
    const struct kernel_schedule_args *schedule = &stub.launches[0].arguments.schedule;
    const struct kernel_backward_pre_sm90_args *pre = &stub.launches[1].arguments.pre_sm90;
    const struct kernel_backward_sm90_args *backward = &main_launch()->arguments.backward_sm90;
    const struct stub_map q = map_of(&backward->q), k = map_of(&backward->k), v = map_of(&backward->v),
                          dout = map_of(&backward->dout);
    check_map(&q, &args.q, schedule->tile_m);
    check_map(&k, &args.k, schedule->tile_n / 2);  // each compute warpgroup's
    check_map(&v, &args.v, schedule->tile_n / 2);
    check_map(&dout, &args.dout, schedule->tile_m);
    ck_assert_uint_eq(pre->o.data, (uintptr_t)args.o.data);
    ck_assert_uint_eq(pre->dlse.data, (uintptr_t)args.dlse.data);
    ck_assert_uint_eq(pre->dq.data, (uintptr_t)args.dq.data);
    ck_assert_uint_eq(pre->schedule.header, schedule->by_q.header);
    ck_assert_uint_eq(backward->schedule.header, schedule->by_k.header);
    ck_assert_uint_eq(backward->stats, pre->stats);
    ck_assert_uint_eq(pre->stats % 16, 0);
    ck_assert_uint_eq(backward->turns, pre->turns);
    ck_assert_uint_eq(backward->dq.data, (uintptr_t)args.dq.data);
    ck_assert_uint_eq(backward->dk.data, (uintptr_t)args.dk.data);
    ck_assert_uint_eq(backward->dv.data, (uintptr_t)args.dv.data);
    ck_assert_int_eq(backward->group, 2);
    stub_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(a_stride_that_is_never_used_may_be_any) {
    set_up();
    vf_context *context = stub_open();
    vf_forward_args args = sample_forward(stub_first);
    args.k = sample_operand(stub_first, SAMPLE_ROWS_K, 1, SAMPLE_DIM);
    args.v = sample_operand(stub_first, SAMPLE_ROWS_K, 1, SAMPLE_DIM_V);
    args.k.stride[1] = -3;
    unit_ok(vf_forward(context, &args));
    ck_assert(is_hopper(main_launch()));
    const struct stub_map k = map_of(&main_launch()->arguments.forward_sm90.k);
    ck_assert_uint_eq(k.dimensions[3], 1);
    ck_assert_uint_eq(k.strides[2], 16);
    // One row, batched: a row's address comes from base, box and stride, whatever the stride is.
    args = sample_batched_forward(stub_first);
    args.q = sample_batched(stub_first, 1, SAMPLE_HEADS_Q, SAMPLE_DIM);
    args.o = sample_batched(stub_first, 1, SAMPLE_HEADS_Q, SAMPLE_DIM_V);
    args.lse = (vf_tensor){.data = NULL};
    args.q.stride[1] = 7;
    unit_ok(vf_forward(context, &args));
    const struct stub_map q = map_of(&main_launch()->arguments.forward_sm90.q);
    ck_assert_uint_eq(q.address + (q.box[1] - 1) * q.strides[0] + q.strides[1], (uintptr_t)args.q.data);
    stub_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(an_empty_operand_has_a_map_too) {
    set_up();
    vf_context *context = stub_open();
    vf_forward_args args = sample_forward(stub_first);
    args.k.shape[0] = args.v.shape[0] = 0;
    args.k.data = args.v.data = NULL;
    args.problem.cu_seqlens_k = sample_lengths_of(stub_first, (int32_t[]){0, 0, 0}, 3);
    unit_ok(vf_forward(context, &args));
    const struct stub_map k = map_of(&main_launch()->arguments.forward_sm90.k);
    ck_assert_uint_eq(k.address, (uintptr_t)args.problem.workspace);
    ck_assert_uint_eq(k.dimensions[2], 1);
    stub_close(context);
    stub_tear_down();
}
END_TEST

// ---- who gets none -------------------------------------------------------------------------------------------------

static char text[16384];

// The portable family serves, and the explanation says why.
static void check_passed_over(vf_context *context, const vf_forward_args *args, const char *why) {
    unit_ok(vf_explain_forward(context, args, NULL, text, sizeof text, NULL));
    ck_assert_msg(strstr(text, "family=sm80") != NULL, "%s", text);
    ck_assert_msg(strstr(text, why) != NULL, "'%s' is not in %s", why, text);
}

// What tools try on the call are rows that can serve it.
static void check_candidates(vf_context *context, const vf_forward_args *args) {
    char *request = NULL;
    vf_dev_list knobs;
    unit_ok(vf_dev_request_forward(context, args, NULL, &request));
    unit_ok(vf_dev_candidates(context, request, &knobs));
    ck_assert_uint_gt(knobs.count, 0);
    for (size_t i = 0; i < knobs.count; i++) ck_assert_ptr_null(strstr(knobs.items[i], "family=sm90"));
    vf_dev_list_free(&knobs);
    vf_dev_text_free(request);
}

static void bend(vf_forward_args *args, int how) {
    switch (how) {
        case 0:
            args->v.data = (char *)args->v.data + 2;
            break;
        case 1:
            args->k.stride[0] += 4;
            break;
        case 2:
            args->q.stride[0] = -args->q.stride[0];
            args->q.data = (char *)args->q.data + (SAMPLE_ROWS_Q - 1) * SAMPLE_HEADS_Q * SAMPLE_DIM * 2;
            break;
        default:
            args->k.stride[0] = (int64_t)1 << 39;
            break;
    }
}

START_TEST(operands_out_of_reach) {
    static const char *const reasons[] = {"not at a multiple of 16 bytes: unaligned kernels; ",
                                          "k has stride 132, not a multiple of 8 elements: unaligned kernels; ",
                                          ("#/rows/0 is passed over: it needs tensor maps, and q has stride "
                                           "-256; tensor maps take 0 to 2^39 elements"),
                                          "needs tensor maps, and k has stride 549755813888"};
    set_up();
    vf_context *context = stub_open();
    for (int i = 0; i < (int)ARRAY_LENGTH(reasons); i++) {
        vf_forward_args args = sample_forward(stub_first);
        if (i == 1) args.k.data = stub_first(12 * 132 * 2);
        bend(&args, i);
        check_passed_over(context, &args, reasons[i]);
        check_candidates(context, &args);
        if (i == 3) continue;  // no such memory
        unit_ok(vf_forward(context, &args));
        ck_assert(!is_hopper(main_launch()));
    }
    stub_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(more_rows_than_coordinates_count) {
    vf_forward_args args = sample_forward(sample_host);
    struct call call;
    char why[CALL_OBSTACLE];
    args.k.shape[0] = (int64_t)INT32_MAX + 1;
    call_forward(&call, &args);
    ck_assert(!call_obstacle(&call, CALL_K, CALL_ACCESS_ALIGNED, why));
    ck_assert(call_obstacle(&call, CALL_K, CALL_ACCESS_MAPPED, why));
    ck_assert_str_eq(why, "k has extent 2147483648; tensor maps take less than 2^31");
    ck_assert(!call_obstacle(&call, CALL_Q, CALL_ACCESS_MAPPED, NULL));
    ck_assert(!call_obstacle(&call, CALL_LSE, CALL_ACCESS_MAPPED, NULL));
    ck_assert(!call_obstacle(&call, CALL_DQ, CALL_ACCESS_MAPPED, NULL));
    call_read(&call);
    ck_assert(call.request.aligned && !call.request.mapped);
    sample_host_free();
}
END_TEST

START_TEST(a_driver_without_maps) {
    set_up();
    struct cuda_api api = *stub_cuda();
    api.cuTensorMapEncodeTiled = NULL;
    const vf_forward_args args = sample_forward(stub_first);
    char knobs[KNOBS];
    hopper_knobs(&args, knobs);
    vf_context *context = open_with(&api);
    check_passed_over(context, &args, "rows/0 is passed over: it needs tensor maps, and this driver makes none");
    unit_ok(vf_forward(context, &args));
    ck_assert(!is_hopper(main_launch()));
    unit_ok(vf_dev_force(context, knobs, NULL));
    unit_fails(vf_forward(context, &args), VF_ERROR_UNSUPPORTED, "forced: family sm90 reads through tensor maps");
    stub_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(other_architectures_need_no_excuse) {
    set_up();
    stub.compute[0] = 80;
    vf_context *context = stub_open();
    vf_forward_args args = sample_forward(stub_first);
    bend(&args, 2);
    unit_ok(vf_explain_forward(context, &args, NULL, text, sizeof text, NULL));
    ck_assert_ptr_null(strstr(text, "tensor maps"));
    stub_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(forced_where_it_cannot_serve) {
    set_up();
    vf_forward_args args = sample_forward(stub_first);
    char knobs[KNOBS];
    hopper_knobs(&args, knobs);
    vf_context *context = stub_open();
    unit_ok(vf_dev_force(context, knobs, NULL));
    unit_ok(vf_forward(context, &args));
    ck_assert(is_hopper(main_launch()));
    bend(&args, 2);
    unit_fails(vf_forward(context, &args), VF_ERROR_UNSUPPORTED, "cannot address these operands");
    stub_close(context);
    stub_tear_down();
}
END_TEST

// ---- plans ---------------------------------------------------------------------------------------------------------

START_TEST(a_plan_keeps_to_its_kind) {
    set_up();
    vf_context *context = stub_open();
    vf_forward_args args = sample_forward(stub_first), bent = sample_forward(stub_first);
    bend(&bent, 2);
    vf_plan *mapped = NULL, *portable = NULL;
    unit_ok(vf_plan_create_forward(context, &args, &mapped));
    unit_ok(vf_plan_create_forward(context, &bent, &portable));
    unit_ok(vf_plan_launch_forward(mapped, &args));
    ck_assert(is_hopper(main_launch()));
    unit_fails(vf_plan_launch_forward(mapped, &bent), VF_ERROR_INVALID_ARGUMENT, "in reach of tensor maps");
    unit_ok(vf_plan_launch_forward(portable, &bent));
    unit_ok(vf_plan_launch_forward(portable, &args));
    ck_assert(!is_hopper(main_launch()));
    vf_plan_destroy(mapped);
    vf_plan_destroy(portable);
    stub_close(context);
    stub_tear_down();
}
END_TEST

// ---- failures ------------------------------------------------------------------------------------------------------

static int refuse(struct cuda_tensor_map *map, int type, uint32_t rank, void *address, const uint64_t *dimensions,
                  const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave, int swizzle,
                  int promotion, int fill) {
    (void)map, (void)type, (void)rank, (void)address, (void)dimensions, (void)strides, (void)box, (void)steps;
    (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    return CUDA_RESULT_INVALID_VALUE;
}

START_TEST(a_failing_call) {
    set_up();
    struct cuda_api api = *stub_cuda();
    api.cuTensorMapEncodeTiled = refuse;
    vf_context *context = open_with(&api);
    const vf_forward_args args = sample_forward(stub_first);
    unit_fails(vf_forward(context, &args), VF_ERROR_DRIVER, "q: cuTensorMapEncodeTiled");
    ck_assert_int_eq(vf_last_driver_error(), CUDA_RESULT_INVALID_VALUE);
    ck_assert_int_eq(stub.launch_count, 0);
    stub_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(boxes_as_text) {
    struct tensor_map_box boxes[TENSOR_MAPS_MAX];
    int count = -1;
    unit_ok(tensor_map_read("", boxes, &count));
    ck_assert_int_eq(count, 0);
    unit_ok(tensor_map_read("q:64,dout:8,dk:256", boxes, &count));
    ck_assert_int_eq(count, 3);
    ck_assert_int_eq(boxes[1].tensor, CALL_DOUT);
    ck_assert_int_eq(boxes[1].rows, 8);
    ck_assert_int_eq(boxes[2].tensor, CALL_DK);
    static const char *const wrong[] = {"q",        "q:",   "q:0", "q:257",
                                        "q:64;k:8", "w:64", ":64", "q:64,q:64,q:64,q:64,q:64,q:64,q:64,q:64,q:64"};
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
        unit_fails(tensor_map_read(wrong[i], boxes, &count), VF_ERROR_INTERNAL, wrong[i]);
}
END_TEST

UNIT_MAIN("tensor_map", packed_and_batched, an_output_that_the_copy_engine_stores, the_backward,
          a_stride_that_is_never_used_may_be_any, an_empty_operand_has_a_map_too, operands_out_of_reach,
          more_rows_than_coordinates_count, a_driver_without_maps, other_architectures_need_no_excuse,
          forced_where_it_cannot_serve, a_plan_keeps_to_its_kind, a_failing_call, boxes_as_text)
