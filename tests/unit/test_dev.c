// test_dev.c - what varflash_dev.h gives to tools: variants, sources, images, information, and memory, streams, events and graphs.
#include "stub_context.h"

static vf_context *open_cpu(void) {
    vf_context *context = NULL;
    unit_ok(vf_open(&(vf_options){.backend = VF_BACKEND_CPU}, &context));
    return context;
}

// ---- varflash_dev.h ------------------------------------------------------------------------------------------------

#define REQUEST \
    "pass=fwd arch=sm_86 dtype=bf16 head_dim=64 head_dim_v=64 mask=causal softcap=0 aligned=1 deterministic=0"

START_TEST(variants_sources_images) {
    stub_set_up();
    vf_context *context = NULL;
    unit_ok(vf_dev_open_with_api(&(vf_options){.backend = VF_BACKEND_CPU}, NULL, stub_nvrtc(), &context));
    vf_dev_variant *variant = NULL;
    unit_ok(vf_dev_variant_create(context, REQUEST, NULL, &variant));
    ck_assert_str_eq(variant->request, REQUEST);
    ck_assert_uint_eq(variant->kernel_count, 2);
    ck_assert_str_eq(variant->kernels[0].name, "schedule");
    ck_assert_int_eq(variant->kernels[0].blocks_per_sm, 0);
    vf_dev_variant_free(variant);
    unit_ok(vf_dev_variant_create(context, REQUEST, "tile_m=64 stages=1", &variant));
    ck_assert_int_eq(variant->tile_m, 64);
    ck_assert_ptr_nonnull(strstr(variant->knobs, "stages=1"));

    char *text = NULL;
    unit_ok(vf_dev_source(context, variant->kernels[1].spec, 0, &text));
    ck_assert_ptr_nonnull(strstr(text, variant->kernels[1].entry));
    vf_dev_text_free(text);
    vf_dev_image image;
    unit_ok(vf_dev_compile(context, variant->kernels[1].spec, 0, &image));
    ck_assert(!image.is_ptx);
    vf_dev_image_free(&image);
    unit_ok(vf_dev_compile(context, variant->kernels[1].spec, 1, &image));
    ck_assert(image.is_ptx);
    vf_dev_image_free(&image);
    stub.compile_error = "templates/x.cu(1): error\n";
    unit_fails(vf_dev_compile(context, variant->kernels[1].spec, 0, &image), VF_ERROR_COMPILE, "templates/x.cu(1)");
    ck_assert_ptr_nonnull(strstr(image.log, "templates/x.cu(1)"));
    vf_dev_image_free(&image);
    vf_dev_variant_free(variant);

    unit_fails(vf_dev_variant_create(context, REQUEST, "tile_m=65", &variant), VF_ERROR_UNSUPPORTED, "tile_m=65");
    unit_fails(vf_dev_variant_create(context, REQUEST, "tile_m", &variant), VF_ERROR_INVALID_ARGUMENT,
               "is not knob=value");
    unit_fails(vf_dev_variant_create(context, REQUEST, "colour=1", &variant), VF_ERROR_UNSUPPORTED, "colour");
    unit_fails(vf_dev_variant_create(context, "pass=fwd", NULL, &variant), VF_ERROR_INVALID_ARGUMENT,
               "arch is missing");
    ck_assert_ptr_null(variant);
    vf_dev_list knobs;
    unit_ok(vf_dev_candidates(context, REQUEST, &knobs));
    ck_assert_uint_ge(knobs.count, 2);
    for (size_t i = 0; i < knobs.count; i++) {
        for (size_t j = 0; j < i; j++) ck_assert_str_ne(knobs.items[i], knobs.items[j]);
    }
    vf_dev_list_free(&knobs);
    vf_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(requests_of_calls) {
    stub_set_up();
    vf_context *context = stub_open();
    vf_backward_args args = sample_backward(stub_first);
    char *request = NULL;
    unit_ok(vf_dev_request_backward(context, &args, NULL, &request));
    ck_assert_str_eq(
        request,
        "pass=bwd arch=sm_100 dtype=bf16 head_dim=64 head_dim_v=32 mask=full softcap=0 aligned=1 deterministic=0");
    vf_dev_text_free(request);
    args.problem.deterministic = VF_ON;
    args.q.data = NULL;
    unit_ok(vf_dev_request_backward(context, &args, "sm_120", &request));
    ck_assert_ptr_nonnull(strstr(request, "arch=sm_120"));
    ck_assert_ptr_nonnull(strstr(request, "deterministic=1"));
    vf_dev_text_free(request);
    vf_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(information) {
    stub_set_up();
    vf_context *context = stub_open();
    const vf_dev_info *info = NULL, *again = NULL;
    unit_ok(vf_dev_info_get(context, &info));
    unit_ok(vf_dev_info_get(context, &again));
    ck_assert_ptr_eq(info, again);
    ck_assert_int_eq(info->driver_version, 13000);
    ck_assert_int_eq(info->nvrtc_version, 13000);
    ck_assert_int_eq(info->device_count, 1);
    ck_assert_str_eq(info->cache_dir, stub_folder);
    ck_assert_str_eq(info->configs[info->config_count - 1], "configs/sm80.json");
    bool found = false;
    for (size_t i = 0; i < info->variable_count; i++) {
        found |=
            !strcmp(info->variables[i].name, "VARFLASH_CACHE_DIR") && !strcmp(info->variables[i].value, stub_folder);
    }
    ck_assert(found);
    vf_dev_device device;
    unit_ok(vf_dev_device_get(context, 0, &device));
    ck_assert_str_eq(device.arch, "sm_100");
    ck_assert_int_eq(device.multiprocessors, 132);
    ck_assert_uint_eq(device.memory_total, (size_t)1 << 30);
    unit_fails(vf_dev_device_get(context, 1, &device), VF_ERROR_INVALID_ARGUMENT, "no CUDA device 1, of 1");
    vf_close(context);

    context = open_cpu();
    unit_ok(vf_dev_info_get(context, &info));
    ck_assert(info->device_count > 0 || info->driver_state[0] != 0);
    ck_assert_int_gt(info->cpu_threads, 0);
    unit_fails(vf_dev_device_get(context, 0, &device), VF_ERROR_NO_DEVICE, "CPU backend");
    vf_close(context);
    stub_tear_down();
}
END_TEST

// Memory, streams, events and graphs, the same lines for both backends.
static vf_status use_device(vf_context *context) {
    const bool cuda = vf_context_backend(context) == VF_BACKEND_CUDA;
    char bytes[100] = "varflash", back[100];
    void *a = NULL, *b = NULL;
    struct CUstream_st *stream = NULL;
    vf_dev_event *start = NULL, *stop = NULL;
    vf_dev_graph *graph = NULL;
    double milliseconds = -1;
    vf_status status = vf_dev_alloc(context, 0, sizeof bytes, &a);
    if (!status) status = vf_dev_alloc(context, 0, sizeof bytes, &b);
    if (!status) status = vf_dev_stream_create(context, 0, &stream);
    if (!status) status = vf_dev_event_create(context, 0, &start);
    if (!status) status = vf_dev_event_create(context, 0, &stop);
    if (!status) status = vf_dev_upload(context, a, bytes, sizeof bytes);
    if (!status) status = vf_dev_set(context, b, 7, sizeof bytes, stream);
    if (!status) status = vf_dev_event_record(start, stream);
    if (!status) status = vf_dev_copy(context, b, a, sizeof bytes, stream);
    if (!status) status = vf_dev_event_record(stop, stream);
    if (!status) status = vf_dev_event_elapsed(start, stop, &milliseconds);
    if (!status) status = vf_dev_download(context, back, b, sizeof back);
    if (!status) ck_assert(!strcmp(back, bytes) && milliseconds >= 0);
    if (!status && cuda) status = vf_dev_capture_begin(context, stream);
    if (!status && cuda) status = vf_dev_capture_end(context, stream, &graph);
    if (!status && cuda) status = vf_dev_graph_launch(graph, stream);
    if (!status) status = vf_dev_stream_synchronize(context, stream);
    if (!status) status = vf_dev_synchronize(context, 0);
    vf_dev_graph_destroy(graph);
    vf_dev_event_destroy(start);
    vf_dev_event_destroy(stop);
    // Freeing asks the driver too, and may be what fails: once more then.
    vf_status freed = vf_dev_stream_destroy(context, stream);
    if (freed && stub.streams > 0) freed = vf_dev_stream_destroy(context, stream);
    for (int i = 0; i < 2; i++) {
        void *data = i ? b : a;
        const int alive = stub.allocations;
        vf_status one = vf_dev_free(context, data);
        if (one && cuda && stub.allocations == alive) vf_dev_free(context, data);
        if (!freed) freed = one;
    }
    return status ? status : freed;
}

START_TEST(memory_streams_events_graphs) {
    stub_set_up();
    vf_context *context = open_cpu();
    unit_ok(use_device(context));
    unit_fails(vf_dev_capture_begin(context, NULL), VF_ERROR_UNSUPPORTED, "CPU backend");
    vf_close(context);
    context = stub_open();
    const int before = stub.calls;
    unit_ok(use_device(context));
    vf_close(context);
    const int calls = stub.calls;
    for (int at = before + 1; at <= calls; at++) {
        stub_reset();
        stub.fail_at = at;
        context = stub_open();
        use_device(context);
        vf_close(context);
        ck_assert_ptr_nonnull(stub.failed);
        ck_assert_msg(stub.allocations == 0 && stub.streams == 0 && stub.events == 0 && stub.graphs == 0 &&
                          stub.depth == 0 && stub.retained == 0 && stub.misuses == 0,
                      "call %d, %s: %d %d %d %d, depth %d, %d retained, %d misuses", at, stub.failed, stub.allocations,
                      stub.streams, stub.events, stub.graphs, stub.depth, stub.retained, stub.misuses);
    }
    stub_tear_down();
}
END_TEST

UNIT_MAIN("dev", variants_sources_images, requests_of_calls, information, memory_streams_events_graphs)
