// test_badinput.c - wrong calls, a row each: every one gets its status and one sentence, and nothing is launched,
// written or leaked.
//
// Rows run on the CPU backend, where every output is watched, and on the stub driver, where every launch is.
#include <math.h>

#include "stub_context.h"

// What a row bends. Forward rows use forward, others backward.
struct wrong {
    const char *name;
    void (*bend_forward)(vf_forward_args *args);
    void (*bend_backward)(vf_backward_args *args);
    vf_status status;
    const char *sentence;  // a part of it
};

#define FORWARD(name, status, sentence, ...)  \
    static void name(vf_forward_args *args) { \
        __VA_ARGS__;                          \
    }
#define BACKWARD(name, status, sentence, ...)  \
    static void name(vf_backward_args *args) { \
        __VA_ARGS__;                           \
    }

#define INVALID VF_ERROR_INVALID_ARGUMENT
#define UNSUPPORTED VF_ERROR_UNSUPPORTED
#define WORKSPACE VF_ERROR_WORKSPACE

// THE table. Each row: name, status, part of the sentence, what is bent.
#define WRONG_CALLS(FORWARD, BACKWARD)                                                                               \
    FORWARD(q_absent, INVALID, "q: is absent", args->q = (vf_tensor){0})                                             \
    FORWARD(k_absent, INVALID, "k: is absent", args->k = (vf_tensor){0})                                             \
    FORWARD(v_absent, INVALID, "v: is absent", args->v = (vf_tensor){0})                                             \
    FORWARD(o_absent, INVALID, "o: is absent; the forward needs it", args->o = (vf_tensor){0})                       \
    BACKWARD(lse_absent, INVALID, "lse: is absent; the backward needs it", args->lse = (vf_tensor){0})               \
    BACKWARD(dout_absent, INVALID, "dout: is absent", args->dout = (vf_tensor){0})                                   \
    BACKWARD(dq_absent, INVALID, "dq: is absent", args->dq = (vf_tensor){0})                                         \
    BACKWARD(dk_absent, INVALID, "dk: is absent", args->dk = (vf_tensor){0})                                         \
    BACKWARD(dv_absent, INVALID, "dv: is absent", args->dv = (vf_tensor){0})                                         \
    FORWARD(q_null, INVALID, "q: data is null", args->q.data = NULL)                                                 \
    FORWARD(v_null, INVALID, "v: data is null", args->v.data = NULL)                                                 \
    FORWARD(o_null, INVALID, "o: data is null", args->o.data = NULL)                                                 \
    FORWARD(lse_null, INVALID, "lse: data is null", args->lse.data = NULL)                                           \
    BACKWARD(dk_null, INVALID, "dk: data is null", args->dk.data = NULL)                                             \
    FORWARD(cu_null, INVALID, "cu_seqlens_k: data is null", args->problem.cu_seqlens_k.data = NULL)                  \
    FORWARD(struct_too_small, INVALID, "struct_size: is 8", args->struct_size = 8)                                   \
    FORWARD(struct_too_large, INVALID, "struct_size", args->struct_size = SIZE_MAX)                                  \
    FORWARD(two_dims, INVALID, "q: has 2 dimensions; must have 3", args->q.ndim = 2)                                 \
    FORWARD(five_dims, INVALID, "k: has 5 dimensions", args->k.ndim = 5)                                             \
    FORWARD(negative_dims, INVALID, "v: has -1 dimensions", args->v.ndim = -1)                                       \
    FORWARD(batched_q_with_cu, INVALID, "q: has 4 dimensions; must have 3",                                          \
            args->q = sample_batched(memory, 5, 4, 64))                                                              \
    FORWARD(packed_q_without_cu, INVALID, "q: has 3 dimensions; must have 4",                                        \
            args->problem.cu_seqlens_q = (vf_tensor){0})                                                             \
    FORWARD(negative_rows, INVALID, "q: dimension 0 is -10", args->q.shape[0] = -10)                                 \
    FORWARD(negative_heads, INVALID, "k: dimension 1 is -2", args->k.shape[1] = -2)                                  \
    FORWARD(no_heads, INVALID, "q: has no heads", args->q.shape[1] = 0)                                              \
    FORWARD(no_key_heads, INVALID, "k: has no heads", args->k.shape[1] = args->v.shape[1] = 0)                       \
    FORWARD(heads_3_2, INVALID, "q: has 3 heads and k has 2",                                                        \
            args->q.shape[1] = args->o.shape[1] = args->lse.shape[0] = 3)                                            \
    FORWARD(head_dim_100, UNSUPPORTED, "head_dim: is 100; every multiple of 8",                                      \
            args->q.shape[2] = args->k.shape[2] = 100)                                                               \
    FORWARD(head_dim_264, UNSUPPORTED, "head_dim: is 264", args->q.shape[2] = args->k.shape[2] = 264)                \
    FORWARD(head_dim_0, INVALID, "head_dim: is 0", args->q.shape[2] = args->k.shape[2] = 0)                          \
    FORWARD(head_dim_v_12, UNSUPPORTED, "head_dim_v: is 12", args->v.shape[2] = args->o.shape[2] = 12)               \
    FORWARD(k_head_dim, INVALID, "k: shape is [12, 2, 56]; must be [12, 2, 64]", args->k.shape[2] = 56)              \
    FORWARD(v_heads, INVALID, "v: shape is [12, 1, 32]; must be [12, 2, 32]", args->v.shape[1] = 1)                  \
    FORWARD(v_rows, INVALID, "v: shape is [11, 2, 32]", args->v.shape[0] = 11)                                       \
    FORWARD(o_head_dim, INVALID, "o: shape is [10, 4, 24]", args->o.shape[2] = 24)                                   \
    FORWARD(lse_rows, INVALID, "lse: shape is [4, 9]; must be [4, 10]", args->lse.shape[1] = 9)                      \
    FORWARD(lse_transposed, INVALID, "lse: shape is [10, 4]", args->lse = sample_rows(memory, 10, 4))                \
    FORWARD(lse_dims, INVALID, "lse: has 3 dimensions", args->lse.ndim = 3)                                          \
    BACKWARD(dq_shape, INVALID, "dq: shape is [9, 4, 64]", args->dq.shape[0] = 9)                                    \
    BACKWARD(dk_shape, INVALID, "dk: shape is [12, 4, 64]; must be [12, 2, 64]",                                     \
             args->dk = sample_operand(memory, 12, 4, 64))                                                           \
    BACKWARD(dout_shape, INVALID, "dout: shape is [10, 4, 64]", args->dout = sample_operand(memory, 10, 4, 64))      \
    FORWARD(q_none, INVALID, "q: dtype is none", args->q.dtype = VF_NONE)                                            \
    FORWARD(q_integers, INVALID, "q: dtype is int32", args->q.dtype = VF_INT32)                                      \
    FORWARD(q_unknown, INVALID, "q: dtype is none", args->q.dtype = (vf_dtype)77)                                    \
    FORWARD(mixed, INVALID, "k: dtype is fp16; must be bf16 like q", args->k.dtype = VF_FLOAT16)                     \
    FORWARD(mixed_output, INVALID, "o: dtype is fp16", args->o.dtype = VF_FLOAT16)                                   \
    FORWARD(lse_half, INVALID, "lse: dtype is bf16; must be fp32", args->lse.dtype = VF_BFLOAT16)                    \
    FORWARD(cu_float, INVALID, "cu_seqlens_q: dtype is fp32; must be int32 or int64",                                \
            args->problem.cu_seqlens_q.dtype = VF_FLOAT32)                                                           \
    FORWARD(cu_dims, INVALID, "cu_seqlens_q: has 2 dimensions; must have 1", args->problem.cu_seqlens_q.ndim = 2)    \
    FORWARD(cu_empty, INVALID, "cu_seqlens_q: has no entry", args->problem.cu_seqlens_q.shape[0] = 0)                \
    FORWARD(cu_strided, INVALID, "cu_seqlens_k: stride is 2", args->problem.cu_seqlens_k.stride[0] = 2)              \
    FORWARD(cu_misaligned, INVALID, "cu_seqlens_k: data is", add_bytes(&args->problem.cu_seqlens_k, 2))              \
    FORWARD(batches_differ, INVALID, "cu_seqlens_k: is for 1 sequences, but cu_seqlens_q for 2",                     \
            args->problem.cu_seqlens_k.shape[0] = 2)                                                                 \
    FORWARD(used_size, INVALID, "seqused_q: is for 3 sequences",                                                     \
            args->problem.seqused_q = sample_lengths_of(memory, (int32_t[]){1, 1, 1}, 3))                            \
    FORWARD(used_float, INVALID, "seqused_k: dtype is fp32", args->problem.seqused_k = sample_rows(memory, 1, 2);    \
            args->problem.seqused_k.ndim = 1; args->problem.seqused_k.shape[0] = 2)                                  \
    FORWARD(last_stride, INVALID, "q: stride of the last dimension is 2", args->q.stride[2] = 2)                     \
    FORWARD(last_stride_0, INVALID, "v: stride of the last dimension is 0", args->v.stride[2] = 0)                   \
    BACKWARD(last_stride_dout, INVALID, "dout: stride of the last dimension is 0", args->dout.stride[2] = 0)         \
    FORWARD(odd_pointer, INVALID, "q: data is", add_bytes(&args->q, 1))                                              \
    FORWARD(lse_pointer, INVALID, "lse: data is", add_bytes(&args->lse, 2))                                          \
    FORWARD(o_stride_0, INVALID, "o: two of its elements share memory", args->o.stride[0] = 0)                       \
    FORWARD(o_rows_interleave, INVALID, "o: two of its elements share memory", args->o.stride[0] = 32)               \
    FORWARD(lse_stride_0, INVALID, "lse: two of its elements share memory", args->lse.stride[0] = 0)                 \
    BACKWARD(dk_stride_0, INVALID, "dk: two of its elements share memory", args->dk.stride[1] = 0)                   \
    FORWARD(o_is_v, INVALID, "o: overlaps ", args->o.data = args->v.data) /* and what lies behind v */               \
    FORWARD(o_is_q, INVALID, "o: overlaps q", args->o.data = args->q.data)                                           \
    FORWARD(lse_in_o, INVALID, "o: overlaps lse", args->lse.data = args->o.data)                                     \
    FORWARD(o_over_lengths, INVALID, "o: overlaps", args->o.data = args->problem.cu_seqlens_q.data)                  \
    FORWARD(o_in_workspace, INVALID, "o: overlaps workspace", args->o.data = args->problem.workspace)                \
    FORWARD(k_in_workspace, INVALID, "workspace: overlaps k", args->k.data = args->problem.workspace)                \
    FORWARD(workspace_without_end, INVALID, "o: overlaps workspace", args->problem.workspace = (void *)256;          \
            args->problem.workspace_size = SIZE_MAX)                                                                 \
    BACKWARD(dk_is_dv, INVALID, "dk: overlaps dv", args->dv.data = args->dk.data)                                    \
    BACKWARD(dq_is_dout, INVALID, "dq: overlaps ", args->dq.data = args->dout.data) /* and what lies behind dout */  \
    FORWARD(far_stride, INVALID, "k: shape and strides reach beyond", args->k.stride[0] = INT64_MAX / 4)             \
    FORWARD(far_negative_stride, INVALID, "q: shape and strides reach beyond", args->q.stride[0] = INT64_MIN)        \
    FORWARD(batch_2_31, UNSUPPORTED, "batch: is",                                                                    \
            args->problem.cu_seqlens_q.shape[0] = args->problem.cu_seqlens_k.shape[0] = (int64_t)1 << 31)            \
    FORWARD(batch_2_27, UNSUPPORTED, "batch: is 134217728; at most 134217216",                                       \
            args->problem.cu_seqlens_q.shape[0] = args->problem.cu_seqlens_k.shape[0] = (1 << 27) + 1)               \
    FORWARD(rows_2_40, UNSUPPORTED, "q: has more rows than",                                                         \
            args->q.shape[0] = args->o.shape[0] = args->lse.shape[1] = (int64_t)1 << 40)                             \
    FORWARD(heads_2_30, UNSUPPORTED, "q: has 1073741824 heads",                                                      \
            args->q.shape[1] = args->o.shape[1] = args->lse.shape[0] = 1 << 30)                                      \
    FORWARD(mask_7, INVALID, "mask: is 7", args->problem.mask = (vf_mask)7)                                          \
    FORWARD(mask_negative, INVALID, "mask: is -1", args->problem.mask = (vf_mask)-1)                                 \
    FORWARD(switch_3, INVALID, "deterministic: is 3", args->problem.deterministic = (vf_switch)3)                    \
    FORWARD(fill_2, INVALID, "fill: is 2", args->problem.fill = (vf_fill)2)                                          \
    FORWARD(check_2, INVALID, "check: is 2", args->problem.check = 2)                                                \
    FORWARD(flag, INVALID, "flags: is 0x4", args->problem.flags = 4)                                                 \
    FORWARD(device_negative, INVALID, "device: is -1", args->problem.device = -1)                                    \
    FORWARD(max_negative, INVALID, "max_seqlen_k: is -1", args->problem.max_seqlen_k = -1)                           \
    FORWARD(scale_negative, INVALID, "softmax_scale: is -1", args->problem.softmax_scale = -1)                       \
    FORWARD(scale_nan, INVALID, "softmax_scale: is", args->problem.softmax_scale = NAN)                              \
    FORWARD(scale_infinite, INVALID, "softmax_scale: is inf", args->problem.softmax_scale = INFINITY)                \
    FORWARD(scale_beyond_float, INVALID, "softmax_scale: is 1e+300", args->problem.softmax_scale = 1e300)            \
    FORWARD(scale_below_float, INVALID, "softmax_scale: is 1e-300", args->problem.softmax_scale = 1e-300)            \
    FORWARD(scale_nearly_beyond_float, INVALID, "softmax_scale: is 3e+38", args->problem.softmax_scale = 3e38)       \
    BACKWARD(softcap_nearly_beyond_float, INVALID, "softcap: is 3e+38", args->problem.softcap = 3e38)                \
    FORWARD(softcap_below_scale, INVALID, "softcap: is 1e-20; softmax_scale divided by it",                          \
            args->problem.softmax_scale = 1e30;                                                                      \
            args->problem.softcap = 1e-20)                                                                           \
    BACKWARD(softcap_tiny, INVALID, "softcap: is 1e-40; softmax_scale divided by it", args->problem.softcap = 1e-40) \
    BACKWARD(softcap_negative, INVALID, "softcap: is -15", args->problem.softcap = -15)                              \
    FORWARD(softcap_nan, INVALID, "softcap: is", args->problem.softcap = NAN)                                        \
    FORWARD(workspace_misaligned, WORKSPACE, "is not aligned to 256 bytes",                                          \
            args->problem.workspace = (char *)args->problem.workspace + 128)                                         \
    BACKWARD(workspace_misaligned_too, WORKSPACE, "is not aligned",                                                  \
             args->problem.workspace = (char *)args->problem.workspace + 16)

static sample_memory memory;

static void add_bytes(vf_tensor *tensor, size_t bytes) {
    tensor->data = (char *)tensor->data + bytes;
}

WRONG_CALLS(FORWARD, BACKWARD)

static const struct wrong wrongs[] = {
#undef FORWARD
#undef BACKWARD
#define FORWARD(name, status, sentence, ...) {#name, name, NULL, status, sentence},
#define BACKWARD(name, status, sentence, ...) {#name, NULL, name, status, sentence},
    WRONG_CALLS(FORWARD, BACKWARD)};

static bool is_poison(const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        if (((const unsigned char *)data)[i] != 0x7f) return false;
    }
    return true;
}

// One line, no newline: a sentence.
static void check_sentence(const struct wrong *wrong, vf_status status) {
    ck_assert_msg(status == wrong->status, "%s: %s (%s)", wrong->name, vf_status_name(status), vf_last_error());
    ck_assert_msg(strstr(vf_last_error(), wrong->sentence) != NULL, "%s: '%s'", wrong->name, vf_last_error());
    ck_assert_ptr_null(strchr(vf_last_error(), '\n'));
}

static void run(vf_context *context, const struct wrong *wrong) {
    vf_forward_args forward = sample_forward(memory);
    vf_backward_args backward = sample_backward(memory);
    const vf_forward_args forward_before = forward;
    const vf_backward_args backward_before = backward;
    vf_status status;
    if (wrong->bend_forward) {
        wrong->bend_forward(&forward);
        status = vf_forward(context, &forward);
    } else {
        wrong->bend_backward(&backward);
        status = vf_backward(context, &backward);
    }
    check_sentence(wrong, status);
    ck_assert(is_poison(forward_before.o.data, 10 * 4 * 32 * 2));
    ck_assert(is_poison(forward_before.lse.data, 4 * 10 * 4));
    ck_assert(is_poison(backward_before.dq.data, 10 * 4 * 64 * 2));
    ck_assert(is_poison(backward_before.dk.data, 12 * 2 * 64 * 2));
    ck_assert(is_poison(backward_before.dv.data, 12 * 2 * 32 * 2));
}

START_TEST(on_the_cpu) {
    vf_context *context = NULL;
    unit_ok(vf_open(&(vf_options){.backend = VF_BACKEND_CPU}, &context));
    memory = sample_host;
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
        run(context, &wrongs[i]);
        sample_host_free();
    }
    vf_close(context);
}
END_TEST

START_TEST(on_the_stub_driver) {
    memory = stub_first;
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
        vf_context *context = NULL;
        stub_reset();
        unit_ok(vf_dev_open_with_api(&(vf_options){.backend = VF_BACKEND_CUDA}, stub_cuda(), stub_nvrtc(), &context));
        run(context, &wrongs[i]);
        ck_assert_int_eq(stub.launch_count, 0);
        ck_assert_int_eq(stub.compilations, 0);
        vf_close(context);
        ck_assert_int_eq(stub.depth, 0);
    }
    stub_reset();
}
END_TEST

// The unbent calls are right: without this the rows above prove little.
START_TEST(the_samples_are_right) {
    vf_context *context = NULL;
    unit_ok(vf_open(&(vf_options){.backend = VF_BACKEND_CPU}, &context));
    const vf_forward_args forward = sample_forward(sample_host);
    const vf_backward_args backward = sample_backward(sample_host);
    unit_ok(vf_forward(context, &forward));
    ck_assert(!is_poison(forward.o.data, 10 * 4 * 32 * 2));
    unit_ok(vf_backward(context, &backward));
    vf_close(context);
    sample_host_free();
}
END_TEST

START_TEST(broken_lengths_in_checked_mode) {
    static const struct {
        int32_t cu_q[3], cu_k[3], used_k[2];
        int64_t max_q;
        const char *sentence;
    } rows[] = {{{1, 4, 10}, {0, 4, 12}, {4, 8}, 0, "cu_seqlens_q[0] is 1; the first entry must be 0"},
                {{0, 7, 5}, {0, 4, 12}, {4, 8}, 0, "cu_seqlens_q[2] is 5, less than the entry before it"},
                {{0, 4, 11}, {0, 4, 12}, {4, 8}, 0, "cu_seqlens_q[2] is 11, but q has 10 rows"},
                {{0, 4, 10}, {0, 4, 13}, {4, 8}, 0, "cu_seqlens_k[2] is 13, but k has 12 rows"},
                {{0, 4, 10}, {0, 4, 12}, {5, 8}, 0, "seqused_k[0] is 5, more than the sequence has rows"},
                {{0, 4, 10}, {0, 4, 12}, {4, -8}, 0, "seqused_k[1] is -8; must not be negative"},
                {{0, 4, 10}, {0, 4, 12}, {4, 8}, 5, "sequence 1 has 6 rows of q, but max_seqlen_q is 5"},
                {{0, -4, 10}, {0, 4, 12}, {4, 8}, 0, "cu_seqlens_q[1] is -4, less than the entry before it"}};
    vf_context *context = NULL;
    unit_ok(vf_open(&(vf_options){.backend = VF_BACKEND_CPU}, &context));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        vf_forward_args args = sample_forward(sample_host);
        args.problem.cu_seqlens_q = sample_lengths_of(sample_host, rows[i].cu_q, 3);
        args.problem.cu_seqlens_k = sample_lengths_of(sample_host, rows[i].cu_k, 3);
        args.problem.seqused_k = sample_lengths_of(sample_host, rows[i].used_k, 2);
        args.problem.max_seqlen_q = rows[i].max_q;
        args.problem.check = VF_CHECK_DEVICE;
        unit_fails(vf_forward(context, &args), VF_ERROR_LENGTHS, rows[i].sentence);
        ck_assert(is_poison(args.o.data, 10 * 4 * 32 * 2));
        // Unchecked: no fault, nothing outside (the sanitizers watch).
        args.problem.check = 0;
        unit_ok(vf_forward(context, &args));
        sample_host_free();
    }
    vf_close(context);
}
END_TEST

// More tokens than a sequence may have: all of them the same, so that no memory is needed.
START_TEST(too_long_a_sequence) {
    const int64_t cu[] = {0, 0, (int64_t)1 << 30}, count = 3;
    vf_context *context = NULL;
    unit_ok(vf_open(&(vf_options){.backend = VF_BACKEND_CPU}, &context));
    vf_forward_args args = sample_forward(sample_host);
    args.problem.cu_seqlens_k = sample_tensor_of(sample_host, VF_INT64, 8, 1, &count);
    memcpy(args.problem.cu_seqlens_k.data, cu, sizeof cu);
    args.k.shape[0] = args.v.shape[0] = ((int64_t)1 << 30) + 5;
    args.k.stride[0] = args.v.stride[0] = 0;
    args.problem.check = VF_CHECK_DEVICE;
    unit_fails(vf_forward(context, &args), VF_ERROR_LENGTHS,
               "sequence 1 has 1073741824 rows of k; at most 1073741823 are possible");
    args.problem.max_seqlen_k = INT64_MAX;
    unit_fails(vf_forward(context, &args), VF_ERROR_LENGTHS, "at most 1073741823");
    args.problem.max_seqlen_k = 7;
    unit_fails(vf_forward(context, &args), VF_ERROR_LENGTHS, "but max_seqlen_k is 7");
    ck_assert(is_poison(args.o.data, 10 * 4 * 32 * 2));
    vf_close(context);
    sample_host_free();
}
END_TEST

START_TEST(null_everything) {
    vf_context *context = NULL;
    size_t bytes = 0;
    const vf_forward_args args = sample_forward(sample_host);
    const vf_backward_args backward = sample_backward(sample_host);
    unit_fails(vf_open(NULL, NULL), INVALID, "context: is null");
    unit_ok(vf_open(&(vf_options){.backend = VF_BACKEND_CPU}, &context));
    unit_fails(vf_forward(NULL, &args), INVALID, "context: is null");
    unit_fails(vf_backward(NULL, &backward), INVALID, "context: is null");
    unit_fails(vf_forward(context, NULL), INVALID, "args: is null");
    unit_fails(vf_backward(context, NULL), INVALID, "args: is null");
    unit_fails(vf_forward_workspace_size(context, &args, NULL), INVALID, "bytes: is null");
    unit_fails(vf_backward_workspace_size(NULL, &backward, &bytes), INVALID, "context: is null");
    unit_fails(vf_prepare_forward(NULL, &args), INVALID, "context: is null");
    unit_fails(vf_prepare_backward(context, NULL), INVALID, "args: is null");
    unit_fails(vf_plan_create_forward(context, &args, NULL), INVALID, "plan: is null");
    unit_fails(vf_plan_launch_backward(NULL, &backward), INVALID, "plan: is null");
    unit_fails(vf_explain_forward(NULL, &args, NULL, NULL, 0, NULL), INVALID, "context: is null");
    unit_fails(vf_explain_forward(context, &args, NULL, NULL, 9, NULL), INVALID, "text: is null");
    vf_plan_destroy(NULL);
    vf_close(NULL);
    vf_close(context);
    sample_host_free();
}
END_TEST

START_TEST(bad_options) {
    static const vf_bundle nothing[] = {{NULL, NULL, 0}}, missing[] = {{"/nonexistent.vfb", NULL, 0}},
                           junk[] = {{NULL, "junk", 4}};
    const struct {
        vf_options options;
        vf_status status;
        const char *sentence;
    } rows[] = {{{.struct_size = 4}, INVALID, "options.struct_size: is 4"},
                {{.backend = (vf_backend)9}, INVALID, "options.backend: is 9"},
                {{.log_level = 5}, INVALID, "options.log_level: is 5"},
                {{.log_level = -1}, INVALID, "options.log_level: is -1"},
                {{.cpu_threads = -2}, INVALID, "options.cpu_threads: is -2"},
                {{.bundles = NULL, .bundle_count = 1}, INVALID, "options.bundles: is null"},
                {{.bundles = nothing, .bundle_count = 1}, INVALID, "options.bundles[0]: must have either"},
                {{.bundles = missing, .bundle_count = 1}, VF_ERROR_IO, "/nonexistent.vfb: cannot be read"},
                {{.bundles = junk, .bundle_count = 1}, VF_ERROR_IO, "is no bundle of kernels"},
                {{.config = "/nonexistent.json"}, VF_ERROR_IO, "/nonexistent.json"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        vf_context *context = (vf_context *)(uintptr_t)1;
        unit_fails(vf_open(&rows[i].options, &context), rows[i].status, rows[i].sentence);
        ck_assert_ptr_null(context);
    }
}
END_TEST

UNIT_MAIN("badinput", on_the_cpu, on_the_stub_driver, the_samples_are_right, broken_lengths_in_checked_mode,
          too_long_a_sequence, null_everything, bad_options)
