// test_plan.c - plans: made once, launched with any batch, refused for calls of another kind; a variant for every size a row may ask for.
#include "stub_context.h"

// A context whose first rows are these, or the built-in ones.
static vf_context *open_rows(const char *rows) {
    vf_context *context = NULL;
    stub_set_up();
    vf_options options = {.backend = VF_BACKEND_CUDA};
    char path[UNIT_PATH_SIZE + 32];
    snprintf(path, sizeof path, "%s/rows.json", stub_folder);
    if (rows) {
        unit_write_text(path, rows);
        options.config = path;
    }
    unit_ok(vf_dev_open_with_api(&options, stub_cuda(), stub_nvrtc(), &context));
    return context;
}

START_TEST(a_plan_launches_what_a_call_does) {
    vf_context *context = open_rows(NULL);
    vf_backward_args args = sample_backward(stub_first);
    vf_plan *plan = NULL;
    unit_ok(vf_plan_create_backward(context, &args, &plan));
    ck_assert_int_eq(stub.launch_count, 0);
    unit_ok(vf_plan_launch_backward(plan, &args));
    unit_ok(vf_backward(context, &args));
    ck_assert_int_eq(stub.launch_count, 8);
    for (int i = 0; i < 4; i++) {
        ck_assert_str_eq(stub.launches[i].entry, stub.launches[i + 4].entry);
        const void *planned = &stub.launches[i].arguments, *direct = &stub.launches[i + 4].arguments;
        ck_assert_int_eq(memcmp(planned, direct, sizeof stub.launches[i].arguments), 0);
    }
    ck_assert_uint_eq(vf_dev_count(context).compiled, 4);
    vf_plan_destroy(plan);
    stub_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(a_warm_plan_asks_the_driver_little) {
    vf_context *context = open_rows(NULL);
    const vf_forward_args args = sample_forward(stub_first);
    vf_plan *plan = NULL;
    unit_ok(vf_plan_create_forward(context, &args, &plan));
    const int before = stub.calls;
    unit_ok(vf_plan_launch_forward(plan, &args));
    // Where is q, what is current, [push,] its id, two launches[, pop].
    ck_assert_int_le(stub.calls - before, 8);
    vf_plan_destroy(plan);
    stub_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(plans_refuse_other_kinds) {
    vf_context *context = open_rows(NULL);
    vf_forward_args args = sample_forward(stub_first);
    vf_plan *plan = NULL;
    unit_ok(vf_plan_create_forward(context, &args, &plan));
    vf_forward_args other = args;
    other.problem.mask = VF_MASK_CAUSAL;
    unit_fails(vf_plan_launch_forward(plan, &other), VF_ERROR_INVALID_ARGUMENT, "plan: was made for mask");
    other = args;
    other.problem.softcap = 3;
    unit_fails(vf_plan_launch_forward(plan, &other), VF_ERROR_INVALID_ARGUMENT,
               "plan: was made for softcap present = 0");
    other = args;
    other.q.data = (char *)args.q.data + 2;
    other.q.shape[0] = other.o.shape[0] = other.lse.shape[1] = 9;
    unit_fails(vf_plan_launch_forward(plan, &other), VF_ERROR_INVALID_ARGUMENT, "aligned to 16 bytes = 1");
    other = args;
    other.q.shape[1] = other.o.shape[1] = other.lse.shape[0] = 2;
    unit_fails(vf_plan_launch_forward(plan, &other), VF_ERROR_INVALID_ARGUMENT, "heads_q = 4, the call has 2");
    other = sample_batched_forward(stub_first);
    unit_fails(vf_plan_launch_forward(plan, &other), VF_ERROR_INVALID_ARGUMENT, "q batched");
    other = args;
    other.o.data = NULL;
    unit_fails(vf_plan_launch_forward(plan, &other), VF_ERROR_INVALID_ARGUMENT, "o: data is null");
    const vf_backward_args backward = sample_backward(stub_first);
    unit_fails(vf_plan_launch_backward(plan, &backward), VF_ERROR_INVALID_ARGUMENT, "plan: was made for the forward");
    ck_assert_int_eq(stub.launch_count, 0);

    // The other way round: what a plan for any alignment does for aligned operands.
    vf_plan *any = NULL;
    other = args;
    other.q.data = (char *)args.q.data + 2;
    other.q.shape[0] = other.o.shape[0] = other.lse.shape[1] = 9;
    unit_ok(vf_plan_create_forward(context, &other, &any));
    unit_ok(vf_plan_launch_forward(any, &args));
    ck_assert_ptr_nonnull(strstr(stub.launches[1].entry, "unaligned"));
    vf_plan_destroy(any);
    vf_plan_destroy(plan);
    stub_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(a_plan_needs_shapes_only) {
    vf_context *context = open_rows(NULL);
    vf_forward_args args = sample_forward(stub_first), shapes = args;
    shapes.q.data = shapes.k.data = shapes.v.data = shapes.o.data = shapes.lse.data = NULL;
    shapes.problem.cu_seqlens_q.data = shapes.problem.cu_seqlens_k.data = shapes.problem.workspace = NULL;
    vf_plan *plan = NULL;
    unit_ok(vf_plan_create_forward(context, &shapes, &plan));
    unit_ok(vf_plan_launch_forward(plan, &args));
    // In another context the plan's kernels are found there.
    args.problem.stream = stub_stream(stub_context(0));
    unit_ok(vf_plan_launch_forward(plan, &args));
    ck_assert_uint_eq(vf_dev_count(context).compiled, SAMPLE_FORWARD_KERNELS);
    vf_plan_destroy(plan);
    stub_close(context);
    stub_tear_down();
}
END_TEST

#define ROW(when, tile_m)                                                                         \
    "{\"when\": {\"pass\": \"fwd\"" when "}, \"use\": {\"family\": \"sm80\", \"tile_m\": " tile_m \
    ", \"tile_n\": 32, \"warps\": 1, \"stages\": 1, \"q_registers\": false, \"blocks_per_sm\": 1}}"

START_TEST(sizes_choose_the_variant_at_launch) {
    vf_context *context = open_rows("{\"rows\": [" ROW(", \"avg_q_max\": 8", "16") ", " ROW("", "32") "]}");
    vf_forward_args args = sample_forward(stub_first);
    vf_plan *plan = NULL;
    unit_ok(vf_plan_create_forward(context, &args, &plan));
    ck_assert_uint_eq(vf_dev_count(context).compiled, 3);  // schedule and two forwards
    unit_ok(vf_plan_launch_forward(plan, &args));
    ck_assert_int_eq(stub.launches[0].arguments.schedule.tile_m, 16);
    args.q = sample_operand(stub_first, 1000, SAMPLE_HEADS_Q, SAMPLE_DIM);
    args.o = sample_operand(stub_first, 1000, SAMPLE_HEADS_Q, SAMPLE_DIM_V);
    args.lse = sample_rows(stub_first, SAMPLE_HEADS_Q, 1000);
    unit_ok(vf_plan_launch_forward(plan, &args));
    ck_assert_int_eq(stub.launches[2].arguments.schedule.tile_m, 32);
    // Sizes that no call had yet are no reason to compile in a capture.
    args.problem.stream = NULL;
    unit_ok(vf_forward(context, &args));
    ck_assert_uint_eq(vf_dev_count(context).compiled, 3);
    vf_plan_destroy(plan);
    stub_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(plans_on_the_cpu) {
    vf_context *context = NULL;
    unit_ok(vf_open(&(vf_options){.backend = VF_BACKEND_CPU}, &context));
    const vf_backward_args args = sample_backward(sample_host);
    vf_plan *plan = NULL;
    unit_ok(vf_plan_create_backward(context, &args, &plan));
    unit_ok(vf_plan_launch_backward(plan, &args));
    vf_plan_destroy(plan);
    vf_close(context);
    sample_host_free();
}
END_TEST

UNIT_MAIN("plan", a_plan_launches_what_a_call_does, a_warm_plan_asks_the_driver_little, plans_refuse_other_kinds,
          a_plan_needs_shapes_only, sizes_choose_the_variant_at_launch, plans_on_the_cpu)
