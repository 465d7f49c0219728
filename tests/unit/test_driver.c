// test_driver.c - contexts, devices and captures as drivers have them, and that the failure of every driver call is a status that leaves
// nothing behind. With the stub driver and the real generator.
#include "stub_context.h"

// ---- contexts and devices ------------------------------------------------------------------------------------------

START_TEST(the_streams_context_is_used_and_restored) {
    stub_set_up();
    vf_context *context = stub_open();
    vf_forward_args args = sample_forward(stub_first);
    CUcontext own = stub_context(0), other = stub_context(0);
    args.problem.stream = stub_stream(own);
    stub_push(other);
    unit_ok(vf_forward(context, &args));
    ck_assert_ptr_eq(stub.launches[1].context, own);
    ck_assert_ptr_eq(stub_current(), other);
    ck_assert_int_eq(stub.retained, 0);
    // A second context of the same device gets functions of its own.
    args.problem.stream = stub_stream(other);
    unit_ok(vf_forward(context, &args));
    ck_assert_ptr_eq(stub.launches[3].context, other);
    ck_assert_int_eq(stub.compilations, 2);
    stub_pop();
    stub_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(null_streams_use_current_or_primary) {
    stub_set_up();
    stub.device_count = 2;
    vf_context *context = stub_open();
    vf_forward_args args = sample_forward(stub_second);
    unit_ok(vf_forward(context, &args));  // nothing current
    ck_assert_ptr_eq(stub.launches[1].context, stub_primary(1));
    CUcontext first = stub_context(0), second = stub_context(1);
    stub_push(first);  // current, but on another device
    unit_ok(vf_forward(context, &args));
    ck_assert_ptr_eq(stub.launches[3].context, stub_primary(1));
    stub_push(second);
    unit_ok(vf_forward(context, &args));
    ck_assert_ptr_eq(stub.launches[5].context, second);
    args.problem.stream = (struct CUstream_st *)(uintptr_t)2;  // the thread's own stream
    unit_ok(vf_forward(context, &args));
    ck_assert_ptr_eq(stub.launches[7].stream, args.problem.stream);
    ck_assert_int_eq(stub.retained, 1);
    stub_pop();
    stub_pop();
    stub_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(devices_must_agree) {
    stub_set_up();
    stub.device_count = 2;
    vf_context *context = stub_open();
    vf_forward_args args = sample_forward(stub_second);
    args.problem.stream = stub_stream(stub_context(0));
    unit_fails(vf_forward(context, &args), VF_ERROR_INVALID_ARGUMENT, "stream: belongs to another device");
    args.problem.stream = NULL;
    args.problem.device = 3;
    unit_fails(vf_forward(context, &args), VF_ERROR_INVALID_ARGUMENT, "there is no CUDA device 2, of 2");
    args.problem.device = 2;
    unit_ok(vf_forward(context, &args));
    int16_t host[64];
    args.q.data = host;
    args.problem.device = 0;
    unit_fails(vf_forward(context, &args), VF_ERROR_INVALID_ARGUMENT, "is not memory that CUDA knows");
    ck_assert_int_eq(stub.launch_count, 2);
    stub_close(context);
    stub_tear_down();
}
END_TEST

// A view of nothing may point anywhere, such as behind the end of its memory, where another device's begins.
START_TEST(nothing_tells_no_device) {
    stub_set_up();
    stub.device_count = 2;
    vf_context *context = stub_open();
    vf_backward_args args = sample_backward(stub_second);
    args.q.shape[0] = args.o.shape[0] = args.dout.shape[0] = args.dq.shape[0] = args.lse.shape[1] = 0;
    args.q.data = (void *)(uintptr_t)4096;
    unit_ok(vf_backward(context, &args));
    args.q.data = stub_first(64);
    unit_ok(vf_backward(context, &args));
    ck_assert_int_gt(stub.launch_count, 0);
    for (int i = 0; i < stub.launch_count; i++) ck_assert_ptr_eq(stub.launches[i].context, stub_primary(1));
    stub_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(mixed_devices_get_their_own_kernels) {
    stub_set_up();
    stub.device_count = 2;
    stub.compute[0] = 86;
    stub.compute[1] = 89;
    vf_context *context = stub_open();
    const vf_forward_args one = sample_forward(stub_first), two = sample_forward(stub_second);
    unit_ok(vf_forward(context, &one));
    unit_ok(vf_forward(context, &two));
    ck_assert_int_eq(stub.compilations, 4);
    size_t bytes = 0;
    unit_ok(vf_forward_workspace_size(context, &one, &bytes));
    ck_assert_uint_gt(bytes, 0);
    stub_close(context);
    stub_tear_down();
}
END_TEST

// A card that no kernel serves is no obstacle to calls on another.
START_TEST(a_device_too_old_is_left_alone) {
    stub_set_up();
    stub.device_count = 2;
    stub.compute[0] = 75;
    vf_context *context = stub_open();
    vf_forward_args args = sample_forward(stub_second);
    size_t bytes = 0, same = 0;
    unit_ok(vf_forward_workspace_size(context, &args, &bytes));
    ck_assert_str_eq(vf_last_error(), "");
    args.problem.device = 2;
    unit_ok(vf_forward_workspace_size(context, &args, &same));
    ck_assert_uint_eq(bytes, same);
    unit_ok(vf_forward(context, &args));
    args.problem.device = 1;
    unit_fails(vf_forward_workspace_size(context, &args, &bytes), VF_ERROR_UNSUPPORTED, "sm_75");
    stub_close(context);
    stub.compute[1] = 70;
    context = stub_open();
    args.problem.device = 0;
    unit_fails(vf_forward_workspace_size(context, &args, &bytes), VF_ERROR_UNSUPPORTED, "sm_7");
    stub_close(context);
    stub_tear_down();
}
END_TEST

// ---- captures ------------------------------------------------------------------------------------------------------

START_TEST(cold_kernels_are_refused_in_a_capture) {
    stub_set_up();
    vf_context *context = stub_open();
    vf_forward_args args = sample_forward(stub_first);
    args.problem.stream = stub_stream(stub_context(0));
    stub_capture(args.problem.stream);
    unit_fails(vf_forward(context, &args), VF_ERROR_CAPTURE, "vf_prepare_forward");
    ck_assert_int_eq(stub_capture_state(args.problem.stream), CUDA_CAPTURE_ACTIVE);
    ck_assert_int_eq(stub.launch_count, 0);
    unit_fails(vf_prepare_forward(context, &args), VF_ERROR_CAPTURE, "captured");
    ck_assert_int_eq(stub_capture_state(args.problem.stream), CUDA_CAPTURE_ACTIVE);
    stub_end_capture(args.problem.stream);

    unit_ok(vf_prepare_forward(context, &args));
    stub_capture(args.problem.stream);
    unit_ok(vf_forward(context, &args));
    args.problem.check = VF_CHECK_DEVICE;
    unit_fails(vf_forward(context, &args), VF_ERROR_CAPTURE, "captur");
    ck_assert_int_eq(stub_capture_state(args.problem.stream), CUDA_CAPTURE_ACTIVE);
    ck_assert_int_eq(stub.launch_count, 2);
    ck_assert(stub.launches[0].captured);
    stub_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(a_capture_elsewhere_survives_the_legacy_stream) {
    stub_set_up();
    vf_context *context = stub_open();
    vf_forward_args args = sample_forward(stub_first);
    CUstream capturing = stub_stream(stub_primary(0));
    stub_capture(capturing);
    unit_fails(vf_prepare_forward(context, &args), VF_ERROR_CAPTURE, "captured");
    ck_assert_int_eq(stub_capture_state(capturing), CUDA_CAPTURE_ACTIVE);
    stub_end_capture(capturing);
    stub_close(context);
    stub_tear_down();
}
END_TEST

// ---- every driver call fails once ----------------------------------------------------------------------------------

START_TEST(every_driver_call_fails_once) {
    stub_set_up();
    setenv("VARFLASH_CACHE_DIR", "/dev/null/cache", 1);  // no folder can be there: every round compiles
    unit_ok(stub_everything());
    const int calls = stub.calls;
    ck_assert_int_gt(calls, 100);
    for (int at = 1; at <= calls; at++) {
        stub_reset();
        stub.fail_at = at;
        const vf_status status = stub_everything();
        // A driver that fails to clean up has failed no call.
        const bool cleans = stub.failed && (strstr(stub.failed, "Pop") || strstr(stub.failed, "Unload") ||
                                            strstr(stub.failed, "Release") || strstr(stub.failed, "Destroy"));
        ck_assert_ptr_nonnull(stub.failed);
        ck_assert_msg(cleans == (status == VF_OK), "call %d, %s: %s, %s", at, stub.failed, vf_status_name(status),
                      vf_last_error());
        if (!cleans) {
            ck_assert_msg(strstr(vf_last_error(), stub.failed) != NULL || strstr(vf_last_error(), "NVRTC") != NULL,
                          "call %d, %s: '%s'", at, stub.failed, vf_last_error());
            ck_assert_int_eq(vf_last_driver_error(), STUB_FAILURE);
        }
        ck_assert_msg(
            stub.libraries == 0 && stub.programs == 0 && stub.retained == 0 && stub.depth == 0 && stub.misuses == 0,
            "call %d, %s: %d libraries, %d programs, %d contexts left, depth %d, %d misuses", at, stub.failed,
            stub.libraries, stub.programs, stub.retained, stub.depth, stub.misuses);
    }
    stub_tear_down();
}
END_TEST

START_TEST(a_failure_is_not_remembered) {
    stub_set_up();
    vf_context *context = stub_open();
    const vf_forward_args args = sample_forward(stub_first);
    stub.compile_error = "templates/fwd_sm80.cu(14): error: identifier \"x\" is undefined\n";
    unit_fails(vf_forward(context, &args), VF_ERROR_COMPILE, "templates/fwd_sm80.cu(14)");
    stub.compile_error = NULL;
    unit_ok(vf_forward(context, &args));
    stub_close(context);
    stub_tear_down();
}
END_TEST

UNIT_MAIN("driver", the_streams_context_is_used_and_restored, null_streams_use_current_or_primary, devices_must_agree,
          nothing_tells_no_device, mixed_devices_get_their_own_kernels, a_device_too_old_is_left_alone,
          cold_kernels_are_refused_in_a_capture, a_capture_elsewhere_survives_the_legacy_stream,
          every_driver_call_fails_once, a_failure_is_not_remembered)
