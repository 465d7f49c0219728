// test_launch.c - what reaches the driver: arguments, workspaces, grids, order, checked mode. With the stub driver and the real generator.
#include "launch.h"

#include <limits.h>

#include "stub_context.h"

static void starts_with(const char *text, const char *start) {
    ck_assert_msg(!strncmp(text, start, strlen(start)), "'%s' does not start with '%s'", text, start);
}

// ---- arguments -----------------------------------------------------------------------------------------------------

START_TEST(forward_arguments) {
    stub_set_up();
    vf_context *context = stub_open();
    vf_forward_args args = sample_forward(stub_first);
    args.q.stride[0] = 1000;
    args.q.data = stub_first(1000 * 10 * 2);
    args.problem.mask = VF_MASK_WINDOW;
    args.problem.window_left = 3;
    args.problem.window_right = VF_NO_EDGE;
    args.problem.softcap = 15;
    args.problem.seqused_k = sample_lengths_of(stub_first, (int32_t[]){1, 2}, 2);
    unit_ok(vf_forward(context, &args));
    ck_assert_int_eq(stub.launch_count, 2);

    const struct stub_launch *first = &stub.launches[0], *main_kernel = &stub.launches[1];
    ck_assert_str_eq(first->entry, "vf_schedule");
    ck_assert_uint_eq(first->grid, 1);
    ck_assert(!first->chained);
    const struct kernel_schedule_args *schedule = &first->arguments.schedule;
    ck_assert_uint_eq(schedule->cu_q.data, (uintptr_t)args.problem.cu_seqlens_q.data);
    ck_assert_uint_eq(schedule->used_k.data, (uintptr_t)args.problem.seqused_k.data);
    ck_assert_uint_eq(schedule->used_q.data, 0);
    ck_assert_int_eq(schedule->batch, 2);
    ck_assert_int_eq(schedule->q_rows, 10);
    ck_assert_int_eq(schedule->k_rows, 12);
    ck_assert_int_eq(schedule->fill, 1);
    ck_assert_uint_eq(schedule->by_k.header, 0);

    starts_with(main_kernel->entry, "vf_fwd_sm80_d64_v32_bf16_window_softcap");
    ck_assert(main_kernel->chained);
    const struct kernel_forward_args *forward = &main_kernel->arguments.forward;
    ck_assert_uint_eq(forward->q.data, (uintptr_t)args.q.data);
    ck_assert_int_eq(forward->q.row_stride, 1000);
    ck_assert_int_eq(forward->q.head_stride, 64);
    ck_assert_int_eq(forward->q.batch_stride, 0);
    ck_assert_int_eq(forward->lse.row_stride, 1);
    ck_assert_int_eq(forward->lse.head_stride, 10);
    ck_assert_uint_eq(forward->schedule.header, schedule->by_q.header);
    ck_assert_int_eq(forward->heads, 4);
    ck_assert_int_eq(forward->group, 2);
    ck_assert_int_eq(forward->window_left, 3);
    ck_assert_int_eq(forward->window_right, INT_MAX);
    ck_assert_float_eq_tol(forward->scale, 0.125f, 1e-7f);
    ck_assert_float_eq(forward->softcap, 15.0f);
    stub_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(batched_arguments) {
    stub_set_up();
    vf_context *context = stub_open();
    vf_forward_args args = sample_batched_forward(stub_first);
    args.lse = (vf_tensor){.data = NULL};
    args.problem.fill = VF_FILL_KEEP;
    unit_ok(vf_forward(context, &args));
    const struct kernel_schedule_args *schedule = &stub.launches[0].arguments.schedule;
    ck_assert_uint_eq(schedule->cu_q.data, 0);
    ck_assert_int_eq(schedule->q_rows, 5);
    ck_assert_int_eq(schedule->k_rows, 7);
    ck_assert_int_eq(schedule->fill, 0);
    const struct kernel_forward_args *forward = &stub.launches[1].arguments.forward;
    ck_assert_int_eq(forward->q.batch_stride, 5 * 4 * 64);
    ck_assert_int_eq(forward->q.row_stride, 4 * 64);
    ck_assert_uint_eq(forward->lse.data, 0);
    stub_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(backward_arguments) {
    stub_set_up();
    vf_context *context = stub_open();
    vf_backward_args args = sample_backward(stub_first);
    args.dlse = sample_rows(stub_first, SAMPLE_HEADS_Q, SAMPLE_ROWS_Q);
    unit_ok(vf_backward(context, &args));
    static const char *const entries[] = {"vf_schedule", "vf_bwd_pre", "vf_bwd_sm80", "vf_bwd_post"};
    ck_assert_int_eq(stub.launch_count, 4);
    for (int i = 0; i < 4; i++) {
        starts_with(stub.launches[i].entry, entries[i]);
        ck_assert_int_eq(stub.launches[i].chained, i > 0);
    }
    const struct kernel_schedule_args *schedule = &stub.launches[0].arguments.schedule;
    const struct kernel_backward_pre_args *pre = &stub.launches[1].arguments.pre;
    const struct kernel_backward_args *backward = &stub.launches[2].arguments.backward;
    const struct kernel_backward_post_args *post = &stub.launches[3].arguments.post;
    ck_assert_uint_eq(pre->dlse.data, (uintptr_t)args.dlse.data);
    ck_assert_uint_eq(pre->schedule.header, schedule->by_q.header);
    ck_assert_uint_eq(backward->schedule.header, schedule->by_k.header);
    ck_assert_uint_eq(post->schedule.header, schedule->by_q.header);
    ck_assert_uint_eq(backward->stats, pre->stats);
    ck_assert_uint_eq(backward->accumulator, post->accumulator);
    ck_assert_int_eq(backward->stat_rows, 10);
    ck_assert_int_eq(backward->accumulator_rows, 0);  // all keys fit one tile
    ck_assert_uint_eq(backward->dv.data, (uintptr_t)args.dv.data);
    ck_assert_int_eq(backward->dk.head_stride, 64);
    ck_assert_uint_eq(schedule->by_q.header % LAUNCH_ALIGNMENT, 0);
    ck_assert_uint_eq(schedule->by_k.sequences % LAUNCH_ALIGNMENT, 0);
    stub_close(context);
    stub_tear_down();
}
END_TEST

// Many sequences are listed by several blocks: one launch counts, the next places.
START_TEST(a_large_batch_is_shared_out) {
    stub_set_up();
    vf_context *context = stub_open();
    static const struct {
        int64_t batch;
        unsigned shares;
        int64_t share;
    } cases[] = {{0, 1, 1}, {1, 1, 1}, {2048, 1, 2048}, {2049, 2, 1025}, {8192, 4, 2048}, {1 << 20, 64, 16384}};
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        vf_forward_args args = sample_forward(stub_first);
        size_t bytes = 0;
        args.problem.cu_seqlens_q.shape[0] = args.problem.cu_seqlens_k.shape[0] = cases[i].batch + 1;
        args.problem.cu_seqlens_q.data = args.problem.cu_seqlens_k.data = stub_first((size_t)(cases[i].batch + 1) * 4);
        unit_ok(vf_forward_workspace_size(context, &args, &bytes));
        args.problem.workspace = stub_first(args.problem.workspace_size = bytes);
        stub.launch_count = 0;
        unit_ok(vf_forward(context, &args));
        const bool shared = cases[i].shares > 1;
        ck_assert_int_eq(stub.launch_count, 2 + shared);
        for (int l = 0; l <= shared; l++) {
            const struct stub_launch *launch = &stub.launches[l];
            ck_assert_str_eq(launch->entry, "vf_schedule");
            ck_assert_uint_eq(launch->grid, cases[i].shares);
            ck_assert_int_eq(launch->chained, l);
            ck_assert_int_eq(launch->arguments.schedule.counted, l);
            ck_assert_int_eq(launch->arguments.schedule.share, cases[i].share);
            ck_assert_int_eq(launch->arguments.schedule.parts != 0, shared);
        }
        ck_assert(stub.launches[1 + shared].chained);
    }
    stub_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(no_programmatic_launch_before_9_0) {
    stub_set_up();
    stub.compute[0] = 86;
    vf_context *context = stub_open();
    const vf_forward_args args = sample_forward(stub_first);
    unit_ok(vf_forward(context, &args));
    ck_assert(!stub.launches[1].chained);
    stub_close(context);
    stub_tear_down();
}
END_TEST

// ---- workspace and grids -------------------------------------------------------------------------------------------

static struct call call_of(int64_t batch, int64_t rows_q, int64_t rows_k, int64_t heads, bool batched) {
    return (struct call){.backward = true,
                         .request = {.head_dim = 72, .backward = true},
                         .batch = batch,
                         .rows_q = rows_q,
                         .rows_k = rows_k,
                         .total_q = rows_q * (batched ? batch : 1),
                         .total_k = rows_k * (batched ? batch : 1),
                         .heads_q = heads,
                         .heads_k = heads};
}

START_TEST(layout_is_monotone_and_aligned) {
    static const int64_t batches[] = {0, 1, 2, 7, 100}, rows[] = {0, 1, 63, 64, 65, 1000, 100000};
    for (int batched = 0; batched < 2; batched++) {
        for (size_t i = 0; i < ARRAY_LENGTH(batches) * ARRAY_LENGTH(rows) * ARRAY_LENGTH(rows); i++) {
            const int64_t batch = batches[i % 5], q = rows[i / 5 % 7], k = rows[i / 35];
            struct call call = call_of(batch, q, k, 3, batched);
            struct layout layout, more;
            unit_ok(launch_layout(&call, 64, 128, &layout));
            ck_assert_uint_eq(layout.total % LAUNCH_ALIGNMENT, 0);
            ck_assert_uint_eq(layout.accumulator % LAUNCH_ALIGNMENT, 0);
            const int64_t more_batch[] = {batch + 1, batch, batch, batch}, more_q[] = {q, q + 1, q, q};
            const int64_t more_k[] = {k, k, k + 1, k}, more_heads[] = {3, 3, 3, 4};
            for (int j = 0; j < 4; j++) {
                call = call_of(more_batch[j], more_q[j], more_k[j], more_heads[j], batched);
                unit_ok(launch_layout(&call, 64, 128, &more));
                ck_assert_uint_ge(more.total, layout.total);
            }
        }
    }
}
END_TEST

START_TEST(accumulators_hold_every_split) {
    // Whatever the lengths: rows of the sequences with more keys than a tile, each rounded up.
    srand(1);
    for (int round = 0; round < 2000; round++) {
        const int64_t batch = 1 + rand() % 8;
        int64_t total_q = 0, total_k = 0, needed = 0;
        for (int64_t b = 0; b < batch; b++) {
            const int64_t q = rand() % 200, k = rand() % 300;
            total_q += q;
            total_k += k;
            if (k > 128) needed += (q + 63) / 64 * 64;
        }
        const struct call call = call_of(batch, total_q, total_k, 1, false);
        struct layout layout;
        unit_ok(launch_layout(&call, 64, 128, &layout));
        ck_assert_int_ge(layout.accumulator_rows, needed);
    }
}
END_TEST

START_TEST(layout_refuses_what_does_not_fit) {
    const struct call call = call_of(1, INT64_MAX >> 25, INT64_MAX >> 25, 1 << 22, false);
    struct layout layout;
    unit_fails(launch_layout(&call, 64, 128, &layout), VF_ERROR_UNSUPPORTED, "address space");
}
END_TEST

START_TEST(workspace_of_bounds_serves_less) {
    stub_set_up();
    vf_context *context = stub_open();
    vf_backward_args args = sample_backward(stub_first);
    size_t bytes = 0;
    unit_ok(vf_backward_workspace_size(context, &args, &bytes));
    args.problem.workspace_size = bytes;
    unit_ok(vf_backward(context, &args));
    args.problem.workspace_size = 255;
    const int launches = stub.launch_count;
    unit_fails(vf_backward(context, &args), VF_ERROR_WORKSPACE, "the call needs");
    args.problem.workspace = NULL;
    unit_fails(vf_backward(context, &args), VF_ERROR_WORKSPACE, "is null");
    ck_assert_int_eq(stub.launch_count, launches);
    stub_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(grids_are_capped_and_never_zero) {
    stub_set_up();
    vf_context *context = stub_open();
    vf_forward_args args = sample_forward(stub_first);
    unit_ok(vf_forward(context, &args));
    // At most 5 entries of one block each, times 4 heads.
    ck_assert_uint_le(stub.launches[1].grid, 20);
    ck_assert_uint_ge(stub.launches[1].grid, 1);
    args.q = args.o = args.lse = (vf_tensor){.data = NULL};
    args.q = sample_operand(stub_first, 100000, SAMPLE_HEADS_Q, SAMPLE_DIM);
    args.o = sample_operand(stub_first, 100000, SAMPLE_HEADS_Q, SAMPLE_DIM_V);
    unit_ok(vf_forward(context, &args));
    ck_assert_uint_eq(stub.launches[3].grid % 132, 0);
    stub_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(grids_are_whole_clusters) {
    static const struct {
        int64_t device_blocks, cluster, tiles, heads;
        unsigned grid;
    } cases[] = {
        {132, 1, 1, 1, 1},      {132, 1, 20, 4, 80},   {132, 1, 200, 4, 132}, {132, 1, INT64_MAX, 8, 132},
        {132, 2, 1, 1, 2},      {132, 2, 5, 3, 30},    {132, 2, 65, 1, 130},  {132, 2, 67, 1, 132},
        {131, 2, 1000, 9, 130}, {1, 2, 1000, 9, 2},    {3, 2, 7, 1, 2},       {132, 4, 33, 1, 132},
        {130, 4, 1000, 1, 128}, {2, 4, 1, INT_MAX, 4},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++)
        ck_assert_uint_eq(launch_grid(cases[i].device_blocks, cases[i].cluster, cases[i].tiles, cases[i].heads),
                          cases[i].grid);
}
END_TEST

// Two blocks share a piece of 128 keys of a wide head: there are at most 5 pieces of 4 heads.
START_TEST(a_kernel_of_pairs) {
    static const struct {
        int multiprocessors;
        unsigned grid;
    } cases[] = {{132, 40}, {39, 38}, {1, 2}};
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        stub_set_up();
        stub.compute[0] = 90;
        stub.multiprocessors = cases[i].multiprocessors;
        vf_context *context = stub_open();
        vf_backward_args args = sample_backward(stub_first);
        args.q = sample_operand(stub_first, SAMPLE_ROWS_Q, SAMPLE_HEADS_Q, 192);
        args.k = sample_operand(stub_first, SAMPLE_ROWS_K, SAMPLE_HEADS_K, 192);
        args.dq = sample_operand(stub_first, SAMPLE_ROWS_Q, SAMPLE_HEADS_Q, 192);
        args.dk = sample_operand(stub_first, SAMPLE_ROWS_K, SAMPLE_HEADS_K, 192);
        unit_ok(vf_dev_force(context, NULL, "family=sm90 tile_m=64 tile_n=128 stages=2 dout_stages=1"));
        unit_ok(vf_backward(context, &args));
        const struct stub_launch *last = &stub.launches[stub.launch_count - 1];
        starts_with(last->entry, "vf_bwd_sm90");
        ck_assert_uint_eq(last->grid, cases[i].grid);
        stub_close(context);
        stub_tear_down();
    }
}
END_TEST

// ---- empty problems ------------------------------------------------------------------------------------------------

START_TEST(nothing_to_write_launches_nothing) {
    stub_set_up();
    vf_context *context = stub_open();
    vf_forward_args args = sample_forward(stub_first);
    args.q = sample_operand(stub_first, 0, SAMPLE_HEADS_Q, SAMPLE_DIM);
    args.o = sample_operand(stub_first, 0, SAMPLE_HEADS_Q, SAMPLE_DIM_V);
    args.lse = sample_rows(stub_first, SAMPLE_HEADS_Q, 0);
    ck_assert_ptr_null(args.q.data);
    unit_ok(vf_forward(context, &args));
    // No workspace is needed for that either.
    args.problem.workspace = NULL;
    args.problem.workspace_size = 0;
    unit_ok(vf_forward(context, &args));
    ck_assert_int_eq(stub.launch_count, 0);
    stub_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(rows_without_sequences_are_filled) {
    stub_set_up();
    vf_context *context = stub_open();
    vf_forward_args args = sample_forward(stub_first);
    args.problem.cu_seqlens_q.shape[0] = args.problem.cu_seqlens_k.shape[0] = 1;  // batch 0
    unit_ok(vf_forward(context, &args));
    ck_assert_int_eq(stub.launch_count, 2);
    ck_assert_int_eq(stub.launches[0].arguments.schedule.batch, 0);
    args.problem.fill = VF_FILL_KEEP;
    unit_ok(vf_forward(context, &args));
    ck_assert_int_eq(stub.launch_count, 2);
    stub_close(context);
    stub_tear_down();
}
END_TEST

// A batched side beside a packed one: where there is no slot there is no row, whatever the shape says.
START_TEST(slots_that_are_not_there_have_no_rows) {
    stub_set_up();
    vf_context *context = stub_open();
    vf_backward_args args = sample_backward(stub_first);
    args.problem.cu_seqlens_q = (vf_tensor){.data = NULL};
    args.problem.cu_seqlens_k.shape[0] = 1;
    const int64_t q_shape[] = {0, 5, SAMPLE_HEADS_Q, SAMPLE_DIM}, o_shape[] = {0, 5, SAMPLE_HEADS_Q, SAMPLE_DIM_V};
    args.q = args.dq = sample_tensor_of(stub_first, VF_BFLOAT16, 2, 4, q_shape);
    args.o = args.dout = sample_tensor_of(stub_first, VF_BFLOAT16, 2, 4, o_shape);
    args.lse = sample_tensor_of(stub_first, VF_FLOAT32, 4, 3, (int64_t[]){0, SAMPLE_HEADS_Q, 5});
    unit_ok(vf_backward(context, &args));
    ck_assert_int_gt(stub.launch_count, 0);
    ck_assert_int_eq(stub.launches[0].arguments.schedule.batch, 0);
    ck_assert_int_eq(stub.launches[0].arguments.schedule.q_rows, 0);
    ck_assert_int_eq(stub.launches[0].arguments.schedule.k_rows, SAMPLE_ROWS_K);
    stub_close(context);
    stub_tear_down();
}
END_TEST

// ---- checked mode --------------------------------------------------------------------------------------------------

START_TEST(checked_mode_reports_and_launches_nothing) {
    stub_set_up();
    vf_context *context = stub_open();
    vf_forward_args args = sample_forward(stub_first);
    args.problem.check = VF_CHECK_DEVICE;
    args.problem.max_seqlen_q = 9;
    unit_ok(vf_forward(context, &args));
    ck_assert_int_eq(stub.launch_count, 3);
    ck_assert_str_eq(stub.launches[0].entry, "vf_check_lengths");
    ck_assert_int_eq(stub.launches[0].arguments.check.max_q, 9);
    ck_assert_int_eq(stub.launches[0].arguments.check.max_k, (1 << 30) - 1);
    ck_assert_uint_eq(stub.launches[0].grid, 1);

    static const struct {
        uint64_t fault;
        int64_t found;
        const char *sentence;
    } faults[] = {{0 * 16 + 0, 3, "cu_seqlens_q[0] is 3; the first entry must be 0"},
                  {2 * 16 + 1, -5, "cu_seqlens_q[2] is -5, less than the entry before it"},
                  {2 * 16 + 10, 2046, "cu_seqlens_k[2] is 2046, but k has 12 rows"},
                  {1 * 16 + 3, 77, "sequence 1 has 77 rows of q, but max_seqlen_q is 9"},
                  {1 * 16 + 11, 1 << 30, "sequence 1 has 1073741824 rows of k; at most 1073741823 are possible"},
                  {1 * 16 + 12, -1, "seqused_k[1] is -1; must not be negative"},
                  {1 * 16 + 13, 100, "seqused_k[1] is 100, more than the sequence has rows"}};
    for (size_t i = 0; i < ARRAY_LENGTH(faults); i++) {
        stub.launch_count = 0;
        stub.check_report = (struct kernel_check_report){faults[i].fault, faults[i].found};
        unit_fails(vf_forward(context, &args), VF_ERROR_LENGTHS, faults[i].sentence);
        ck_assert_int_eq(stub.launch_count, 1);
    }
    stub.check_report.fault = 7;
    unit_fails(vf_forward(context, &args), VF_ERROR_INTERNAL, "check_lengths");
    stub_close(context);
    stub_tear_down();
}
END_TEST

UNIT_MAIN("launch", forward_arguments, batched_arguments, backward_arguments, a_large_batch_is_shared_out,
          no_programmatic_launch_before_9_0, layout_is_monotone_and_aligned, accumulators_hold_every_split,
          layout_refuses_what_does_not_fit, workspace_of_bounds_serves_less, grids_are_capped_and_never_zero,
          grids_are_whole_clusters, a_kernel_of_pairs, nothing_to_write_launches_nothing,
          rows_without_sequences_are_filled, slots_that_are_not_there_have_no_rows,
          checked_mode_reports_and_launches_nothing)
