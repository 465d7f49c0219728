// test_api.c - the public functions as a program uses them: the CPU backend from a few lines, kernels that are compiled once, forced knobs,
// VARFLASH_JIT, _DUMP and _TRACE, DLPack tensors.
#include <dirent.h>
#include <math.h>
#include <pthread.h>

#include "problem.h"
#include "stub_context.h"
#include "varflash/varflash_dlpack.h"

static vf_context *open_cpu(void) {
    vf_context *context = NULL;
    unit_ok(vf_open(&(vf_options){.backend = VF_BACKEND_CPU}, &context));
    return context;
}

// ---- the CPU backend -----------------------------------------------------------------------------------------------

START_TEST(a_few_lines_of_c) {
    float o[8], lse[1];
    float k[16], v[16];
    for (int i = 0; i < 16; i++) v[i] = k[i] = (float)i;
    float query[8] = {0};
    vf_context *context = NULL;
    unit_ok(vf_open(NULL, &context));
    ck_assert_int_ne(vf_context_backend(context), VF_BACKEND_AUTO);
    vf_close(context);
    context = open_cpu();
    ck_assert_int_eq(vf_context_backend(context), VF_BACKEND_CPU);
    const vf_forward_args args = {.q = {query, VF_FLOAT32, 4, {1, 1, 1, 8}, {8, 8, 8, 1}},
                                  .k = {k, VF_FLOAT32, 4, {1, 2, 1, 8}, {16, 8, 8, 1}},
                                  .v = {v, VF_FLOAT32, 4, {1, 2, 1, 8}, {16, 8, 8, 1}},
                                  .o = {o, VF_FLOAT32, 4, {1, 1, 1, 8}, {8, 8, 8, 1}},
                                  .lse = {lse, VF_FLOAT32, 3, {1, 1, 1}, {1, 1, 1}}};
    unit_ok(vf_forward(context, &args));
    // A query of zeros sees both keys alike.
    for (int i = 0; i < 8; i++) ck_assert_float_eq_tol(o[i], (v[i] + v[i + 8]) / 2, 1e-6f);
    ck_assert_float_eq_tol(lse[0], logf(2), 1e-6f);
    size_t bytes = 1;
    unit_ok(vf_forward_workspace_size(context, &args, &bytes));
    ck_assert_uint_eq(bytes, 0);
    unit_ok(vf_prepare_forward(context, &args));
    vf_close(context);
}
END_TEST

START_TEST(names_and_versions) {
    ck_assert_int_eq(vf_version(), VF_VERSION_MAJOR * 10000 + VF_VERSION_MINOR * 100 + VF_VERSION_PATCH);
    ck_assert_str_eq(vf_status_name(VF_OK), "VF_OK");
    ck_assert_str_eq(vf_status_name(VF_ERROR_INTERNAL), "VF_ERROR_INTERNAL");
    ck_assert_str_eq(vf_status_name((vf_status)99), "VF_ERROR_UNKNOWN");
    ck_assert_int_eq(vf_context_backend(NULL), VF_BACKEND_AUTO);
}
END_TEST

START_TEST(no_driver_no_device) {
    stub_set_up();
    vf_context *context = NULL;
    stub.device_count = 0;
    unit_fails(vf_dev_open_with_api(&(vf_options){.backend = VF_BACKEND_CUDA}, stub_cuda(), stub_nvrtc(), &context),
               VF_ERROR_NO_DEVICE, "CUDA_VISIBLE_DEVICES");
    unit_ok(vf_dev_open_with_api(NULL, stub_cuda(), stub_nvrtc(), &context));
    ck_assert_int_eq(vf_context_backend(context), VF_BACKEND_CPU);
    ck_assert_str_eq(vf_last_error(), "");  // nothing failed
    vf_close(context);
    stub_tear_down();
}
END_TEST

// ---- kernels are made once -----------------------------------------------------------------------------------------

START_TEST(ten_thousand_batches_compile_nothing_new) {
    stub_set_up();
    vf_context *context = stub_open();
    vf_forward_args args = sample_forward(stub_first);
    unit_ok(vf_prepare_forward(context, &args));
    const uint64_t compiled = vf_dev_count(context).compiled;
    ck_assert_uint_eq(compiled, SAMPLE_FORWARD_KERNELS);
    srand(3);
    for (int i = 0; i < 10000; i++) {
        const int64_t rows_q = rand() % 5000, rows_k = rand() % 5000;
        args.q.shape[0] = args.o.shape[0] = args.lse.shape[1] = rows_q;
        args.lse.stride[0] = rows_q;
        args.q.data = (void *)(uintptr_t)(1u << 20), args.o.data = (void *)(uintptr_t)(1u << 28);
        args.lse.data = (void *)(uintptr_t)(1u << 29);
        args.k.shape[0] = args.v.shape[0] = rows_k;
        args.k.data = (void *)(uintptr_t)(1u << 30), args.v.data = (void *)(uintptr_t)(3u << 29);
        args.problem.softmax_scale = 0.01 * (1 + rand() % 100);
        args.problem.device = 1;
        stub.launch_count = 0;
        unit_ok(vf_forward(context, &args));
    }
    ck_assert_uint_eq(vf_dev_count(context).compiled, compiled);
    ck_assert_uint_gt(vf_dev_count(context).launched, 19000);
    vf_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(the_disk_cache_serves_the_next_context) {
    stub_set_up();
    const vf_backward_args args = sample_backward(stub_first);
    vf_context *context = stub_open();
    unit_ok(vf_prepare_backward(context, &args));
    ck_assert_uint_eq(vf_dev_count(context).compiled, 4);
    vf_close(context);
    context = stub_open();
    unit_ok(vf_prepare_backward(context, &args));
    ck_assert_uint_eq(vf_dev_count(context).compiled, 0);
    ck_assert_uint_eq(vf_dev_count(context).from_cache, 4);
    vf_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(jit_off_says_what_is_missing) {
    stub_set_up();
    setenv("VARFLASH_JIT", "off", 1);
    const vf_forward_args args = sample_forward(stub_first);
    vf_context *context = stub_open();
    unit_fails(vf_forward(context, &args), VF_ERROR_NO_COMPILER, "varflash build --spec 'pass=fwd arch=sm_100 ");
    ck_assert_ptr_eq(strstr(vf_last_error(), "fwd_sm80_"), vf_last_error());  // the variant's name
    ck_assert_int_eq(stub.launch_count, 0);
    // The command that the sentence names does this for every kernel of the variant.
    vf_dev_image image;
    unit_ok(vf_dev_compile(context, "kernel=schedule arch=sm_100", 0, &image));
    vf_dev_image_free(&image);
    unit_fails(vf_forward(context, &args), VF_ERROR_NO_COMPILER, "kernel=fwd_sm80");
    vf_close(context);
    unsetenv("VARFLASH_JIT");
    stub_tear_down();
}
END_TEST

static void *prepare_in_thread(void *context) {
    const vf_forward_args forward = {
        .q = {NULL, VF_BFLOAT16, 3, {9, 2, 64}, {128, 64, 1}},
        .k = {NULL, VF_BFLOAT16, 3, {9, 2, 64}, {128, 64, 1}},
        .v = {NULL, VF_BFLOAT16, 3, {9, 2, 64}, {128, 64, 1}},
        .o = {NULL, VF_BFLOAT16, 3, {9, 2, 64}, {128, 64, 1}},
        .problem = {.cu_seqlens_q = {NULL, VF_INT32, 1, {2}, {1}}, .cu_seqlens_k = {NULL, VF_INT32, 1, {2}, {1}}}};
    return (void *)(uintptr_t)vf_prepare_forward(context, &forward);
}

START_TEST(threads_compile_a_kernel_once) {
    stub_set_up();
    stub_push(stub_context(0));  // the stub's stack is every thread's: none of them pushes
    vf_context *context = stub_open();
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) ck_assert_int_eq(pthread_create(&threads[i], NULL, prepare_in_thread, context), 0);
    for (int i = 0; i < 8; i++) {
        void *status;
        pthread_join(threads[i], &status);
        ck_assert_int_eq((int)(uintptr_t)status, VF_OK);
    }
    ck_assert_uint_eq(vf_dev_count(context).compiled, SAMPLE_FORWARD_KERNELS);
    ck_assert_int_eq(stub.compilations, SAMPLE_FORWARD_KERNELS);
    ck_assert_int_eq(stub.libraries, SAMPLE_FORWARD_KERNELS);
    vf_close(context);
    stub_pop();
    stub_tear_down();
}
END_TEST

// One thread's part: questions, sizes and plans of a few requests, in an order of its own.
static void *ask_in_thread(void *context) {
    static atomic_uint threads;
    const unsigned first = atomic_fetch_add(&threads, 1);
    for (unsigned i = 0; i < 24; i++) {
        const int64_t dim = 64 + (int64_t)((first + i * 5) % 3) * 8;
        const vf_tensor operand = {NULL, VF_BFLOAT16, 3, {9, 2, dim}, {2 * dim, dim, 1}},
                        lengths = {NULL, VF_INT32, 1, {2}, {1}};
        const vf_forward_args args = {
            .q = operand,
            .k = operand,
            .v = operand,
            .o = operand,
            .problem = {.mask = (vf_mask)((first + i) % 2), .cu_seqlens_q = lengths, .cu_seqlens_k = lengths}};
        char text[4096];
        size_t bytes = 0;
        vf_plan *plan = NULL;
        if (vf_explain_forward(context, &args, NULL, text, sizeof text, NULL) || vf_last_error()[0] ||
            vf_forward_workspace_size(context, &args, &bytes) || vf_plan_create_forward(context, &args, &plan) ||
            !bytes)
            return context;
        vf_plan_destroy(plan);
    }
    return NULL;
}

START_TEST(threads_ask_for_different_things) {
    stub_set_up();
    stub_push(stub_context(0));  // as above
    vf_context *context = stub_open();
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) ck_assert_int_eq(pthread_create(&threads[i], NULL, ask_in_thread, context), 0);
    for (int i = 0; i < 8; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        ck_assert_ptr_null(failed);
    }
    ck_assert_uint_eq(vf_dev_count(context).compiled, (uint64_t)stub.compilations);
    ck_assert_int_eq(stub.libraries, stub.compilations);
    stub_pop();
    stub_close(context);
    stub_tear_down();
}
END_TEST

START_TEST(forced_knobs_replace_rows) {
    stub_set_up();
    vf_context *context = stub_open();
    const vf_forward_args args = sample_forward(stub_first);
    unit_ok(vf_forward(context, &args));
    const int tile_m = stub.launches[0].arguments.schedule.tile_m;
    unit_ok(
        vf_dev_force(context, "family=sm80 tile_m=32 tile_n=32 warps=2 stages=1 q_registers=0 blocks_per_sm=1", NULL));
    unit_ok(vf_forward(context, &args));
    ck_assert_int_eq(stub.launches[2].arguments.schedule.tile_m, 32);
    size_t bytes = 0;
    unit_ok(vf_forward_workspace_size(context, &args, &bytes));
    ck_assert_uint_gt(bytes, 0);
    unit_ok(vf_dev_force(context, "family=sm80 tile_m=32", "family=sm80"));
    unit_fails(vf_forward(context, &args), VF_ERROR_UNSUPPORTED, "forced: ");
    unit_ok(vf_dev_force(context, NULL, "family=sm80 tile_m=32"));
    unit_ok(vf_forward(context, &args));
    ck_assert_int_eq(stub.launches[4].arguments.schedule.tile_m, tile_m);
    vf_close(context);
    stub_tear_down();
}
END_TEST

// ---- environment ---------------------------------------------------------------------------------------------------

static int count_files(const char *path, const char *suffix) {
    struct dirent *entry;
    int count = 0;
    DIR *directory = opendir(path);
    while (directory && (entry = readdir(directory))) {
        const char *end = strrchr(entry->d_name, '.');
        count += end && !strcmp(end, suffix);
    }
    if (directory) closedir(directory);
    return count;
}

START_TEST(dump_writes_what_is_used) {
    stub_set_up();
    char path[UNIT_PATH_SIZE + 8];
    snprintf(path, sizeof path, "%s/dump", stub_folder);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    setenv("VARFLASH_DUMP", path, 1);
    const vf_forward_args args = sample_forward(stub_first);
    vf_context *context = stub_open();
    unit_ok(vf_forward(context, &args));
    vf_close(context);
    ck_assert_int_eq(count_files(path, ".cu"), 2);
    ck_assert_int_eq(count_files(path, ".cubin"), 2);
    ck_assert_int_eq(count_files(path, ".log"), 2);
    unsetenv("VARFLASH_DUMP");
    stub_tear_down();
}
END_TEST

START_TEST(a_dump_that_fails_says_why) {
    stub_set_up();
    struct unit_log log = {0};
    setenv("VARFLASH_DUMP", "/nonexistent/dump", 1);
    const vf_options options = {.backend = VF_BACKEND_CUDA, .log = unit_take_line, .log_user = &log};
    const vf_forward_args args = sample_forward(stub_first);
    vf_context *context = NULL;
    unit_ok(vf_dev_open_with_api(&options, stub_cuda(), stub_nvrtc(), &context));
    unit_ok(vf_forward(context, &args));
    vf_close(context);
    ck_assert_msg(!strncmp(log.last, "VARFLASH_DUMP: /nonexistent/dump/vf_", 36) && strstr(log.last, "No such file"),
                  "%s", log.last);
    unsetenv("VARFLASH_DUMP");
    stub_tear_down();
}
END_TEST

// What a trace holds is a problem that says the same.
static void check_trace(const char *path, const vf_problem_args *problem) {
    struct buf text = {.data = NULL};
    struct problem_list list = {.items = NULL};
    unit_ok(fs_read(path, &text));
    unit_ok(problem_from_json(buf_string(&text), text.size, &list));
    ck_assert_uint_eq(list.count, 1);
    const struct problem *read = &list.items[0];
    ck_assert_int_eq(read->batch, 2);
    ck_assert_int_eq(read->seqlens_q[0], 4);
    ck_assert_int_eq(read->seqlens_q[1], 6);
    ck_assert_int_eq(read->seqlens_k[1], 8);
    ck_assert_int_eq(read->seqused_k[1], 3);
    ck_assert_int_eq(read->heads_q, 4);
    ck_assert_int_eq(read->head_dim_v, 32);
    ck_assert_int_eq(read->dtype, VF_BFLOAT16);
    ck_assert_int_eq(read->mask, VF_MASK_WINDOW);
    ck_assert_int_eq(read->window_left, problem->window_left);
    ck_assert_int_eq(read->window_right, VF_NO_EDGE);
    ck_assert_double_eq(read->softcap, problem->softcap);
    ck_assert(read->backward);
    ck_assert_int_eq(read->deterministic, VF_ON);
    ck_assert_int_eq(read->strides[OPERAND_K].row, 256);
    ck_assert(!read->strides[OPERAND_Q].set);
    problem_list_free(&list);
    buf_free(&text);
}

START_TEST(a_trace_is_a_problem) {
    stub_set_up();
    char path[UNIT_PATH_SIZE + 32];
    for (int device = 0; device < 2; device++) {
        snprintf(path, sizeof path, "%s/trace%d.json", stub_folder, device);
        setenv("VARFLASH_TRACE", path, 1);
        const sample_memory memory = device ? stub_first : sample_host;
        vf_context *context = device ? stub_open() : open_cpu();
        vf_backward_args args = sample_backward(memory);
        args.k = sample_tensor_of(memory, VF_BFLOAT16, 2, 3, (int64_t[]){SAMPLE_ROWS_K, 4, SAMPLE_DIM});
        args.k.shape[1] = SAMPLE_HEADS_K;
        args.problem.mask = VF_MASK_WINDOW;
        args.problem.window_left = -3;
        args.problem.window_right = VF_NO_EDGE;
        args.problem.softcap = 12.5;
        args.problem.deterministic = VF_ON;
        args.problem.seqused_k = sample_lengths_of(memory, (int32_t[]){4, 3}, 2);
        unit_ok(vf_backward(context, &args));
        vf_close(context);
        check_trace(path, &args.problem);
    }
    unsetenv("VARFLASH_TRACE");
    stub_tear_down();
}
END_TEST

// Also calls are written whose lengths no problem can have.
START_TEST(a_trace_of_broken_lengths) {
    static const int64_t cu[] = {0, 4, INT64_MIN}, count = 3;
    char path[UNIT_PATH_SIZE + 32];
    stub_set_up();
    snprintf(path, sizeof path, "%s/trace.json", stub_folder);
    setenv("VARFLASH_TRACE", path, 1);
    vf_context *context = open_cpu();
    vf_forward_args args = sample_forward(sample_host);
    args.problem.cu_seqlens_k = sample_tensor_of(sample_host, VF_INT64, 8, 1, &count);
    memcpy(args.problem.cu_seqlens_k.data, cu, sizeof cu);
    unit_ok(vf_forward(context, &args));
    vf_close(context);
    struct buf text = {.data = NULL};
    unit_ok(fs_read(path, &text));
    ck_assert_ptr_nonnull(strstr(buf_string(&text), "\"seqlens_k\": [4, "));
    buf_free(&text);
    unsetenv("VARFLASH_TRACE");
    stub_tear_down();
}
END_TEST

START_TEST(a_trace_says_where_there_is_no_lse) {
    stub_set_up();
    char path[UNIT_PATH_SIZE + 32];
    struct buf text = {.data = NULL};
    struct problem_list list = {.items = NULL};
    snprintf(path, sizeof path, "%s/trace.json", stub_folder);
    setenv("VARFLASH_TRACE", path, 1);
    vf_context *context = stub_open();
    vf_forward_args args = sample_forward(stub_first);
    unit_ok(vf_forward(context, &args));
    args.lse = (vf_tensor){.data = NULL};
    unit_ok(vf_forward(context, &args));
    vf_close(context);
    unit_ok(fs_read(path, &text));
    unit_ok(problem_from_json(buf_string(&text), text.size, &list));
    ck_assert_uint_eq(list.count, 2);
    ck_assert(!list.items[0].no_lse);
    ck_assert(list.items[1].no_lse);
    problem_list_free(&list);
    buf_free(&text);
    unsetenv("VARFLASH_TRACE");
    stub_tear_down();
}
END_TEST

START_TEST(a_capture_is_not_traced) {
    stub_set_up();
    char path[UNIT_PATH_SIZE + 32];
    snprintf(path, sizeof path, "%s/trace.json", stub_folder);
    setenv("VARFLASH_TRACE", path, 1);
    vf_context *context = stub_open();
    vf_forward_args args = sample_forward(stub_first);
    args.problem.stream = stub_stream(stub_context(0));
    unit_ok(vf_prepare_forward(context, &args));
    stub_capture(args.problem.stream);
    unit_ok(vf_forward(context, &args));
    ck_assert_str_eq(vf_last_error(), "");  // the call did not fail
    ck_assert_int_eq(stub_capture_state(args.problem.stream), CUDA_CAPTURE_ACTIVE);
    vf_close(context);
    unsetenv("VARFLASH_TRACE");
    setenv("VARFLASH_TRACE", "/nonexistent/trace", 1);
    unit_fails(vf_open(NULL, &context), VF_ERROR_IO, "VARFLASH_TRACE: /nonexistent/trace");
    unsetenv("VARFLASH_TRACE");
    stub_tear_down();
}
END_TEST

// ---- DLPack --------------------------------------------------------------------------------------------------------

START_TEST(dlpack_tensors) {
    // As dlpack.h declares them.
    struct {
        void *data;
        struct {
            int32_t device_type, device_id;
        } device;
        int32_t ndim;
        struct {
            uint8_t code, bits;
            uint16_t lanes;
        } dtype;
        int64_t *shape, *strides;
        uint64_t byte_offset;
    } dl = {.ndim = 3, .dtype = {4, 16, 1}, .byte_offset = 6};
    uint16_t data[64];
    int64_t shape[] = {2, 3, 8}, strides[] = {0, -8, 1};
    vf_tensor tensor;
    dl.data = data;
    dl.shape = shape;
    ck_assert_int_eq(vf_tensor_from_dlpack(&dl, &tensor), VF_OK);
    ck_assert_ptr_eq(tensor.data, data + 3);
    ck_assert_int_eq(tensor.dtype, VF_BFLOAT16);
    ck_assert_int_eq(tensor.stride[0], 24);
    ck_assert_int_eq(tensor.stride[1], 8);
    ck_assert_int_eq(tensor.stride[2], 1);
    dl.strides = strides;
    ck_assert_int_eq(vf_tensor_from_dlpack(&dl, &tensor), VF_OK);
    ck_assert_int_eq(tensor.stride[1], -8);
    shape[1] = shape[0] = (int64_t)1 << 40;  // expanded: more elements than there are numbers
    ck_assert_int_eq(vf_tensor_from_dlpack(&dl, &tensor), VF_OK);
    ck_assert_int_eq(tensor.shape[0], shape[0]);
    dl.ndim = 5;
    ck_assert_int_eq(vf_tensor_from_dlpack(&dl, &tensor), VF_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(tensor.ndim, 0);
    static const struct {
        int code, bits, lanes;
        vf_dtype dtype;
    } types[] = {{0, 32, 1, VF_INT32},    {0, 64, 1, VF_INT64}, {2, 16, 1, VF_FLOAT16}, {2, 32, 1, VF_FLOAT32},
                 {4, 16, 1, VF_BFLOAT16}, {2, 64, 1, VF_NONE},  {1, 32, 1, VF_NONE},    {2, 16, 4, VF_NONE}};
    for (size_t i = 0; i < ARRAY_LENGTH(types); i++) {
        ck_assert_int_eq(vf_dtype_from_dlpack(types[i].code, types[i].bits, types[i].lanes), types[i].dtype);
    }
}
END_TEST

UNIT_MAIN("api", a_few_lines_of_c, names_and_versions, no_driver_no_device, ten_thousand_batches_compile_nothing_new,
          the_disk_cache_serves_the_next_context, jit_off_says_what_is_missing, threads_compile_a_kernel_once,
          threads_ask_for_different_things, forced_knobs_replace_rows, dump_writes_what_is_used,
          a_dump_that_fails_says_why, a_trace_is_a_problem, a_trace_of_broken_lengths,
          a_trace_says_where_there_is_no_lse, a_capture_is_not_traced, dlpack_tensors)
