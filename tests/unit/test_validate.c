// test_validate.c - what validation makes of calls: overlap against counting bytes, the masks' normal form, alignment,
// requests as text and as numbers, every fault listed.
#include "validate.h"

#include "overlap.h"
#include "sample.h"
#include "unit.h"

// ---- overlap -------------------------------------------------------------------------------------------------------

#define ARENA 4096

// The bytes of a small view, marked one by one; true if one is marked twice.
static bool mark(const vf_tensor *tensor, size_t element, unsigned char bytes[ARENA]) {
    bool twice = false;
    int64_t count = 1;
    for (int i = 0; i < tensor->ndim; i++) count *= tensor->shape[i];
    for (int64_t n = 0; n < count; n++) {
        int64_t rest = n, at = (int64_t)(uintptr_t)tensor->data;
        for (int i = tensor->ndim - 1; i >= 0; i--) {
            at += rest % tensor->shape[i] * tensor->stride[i] * (int64_t)element;
            rest /= tensor->shape[i];
        }
        for (size_t b = 0; b < element; b++) {
            twice |= bytes[at + (int64_t)b];
            bytes[at + (int64_t)b] = 1;
        }
    }
    return twice;
}

// A view inside the arena with strides that often meet.
static vf_tensor random_view(size_t element) {
    for (;;) {
        vf_tensor view = {.ndim = 1 + rand() % 4, .data = (void *)(uintptr_t)(rand() % (ARENA / 8) * 8)};
        int64_t low = (int64_t)(uintptr_t)view.data, high = low + (int64_t)element;
        for (int i = 0; i < view.ndim; i++) {
            view.shape[i] = rand() % 12 == 0 ? 0 : 1 + rand() % 5;
            view.stride[i] = rand() % 8 == 0 ? 0 : rand() % 40 - 8;
            const int64_t span = view.stride[i] * (view.shape[i] - 1) * (int64_t)element;
            if (view.shape[i] > 0) *(span < 0 ? &low : &high) += span;
        }
        if (low >= 0 && high <= ARENA) return view;
    }
}

START_TEST(overlap_is_exact_for_small_views) {
    srand(7);
    int pairs = 0, selves = 0;
    for (int round = 0; round < 20000; round++) {
        static const size_t sizes[] = {2, 4};
        const size_t element_a = sizes[rand() % 2], element_b = sizes[rand() % 2];
        const vf_tensor a = random_view(element_a), b = random_view(element_b);
        unsigned char bytes[ARENA] = {0}, others[ARENA] = {0};
        struct footprint of_a, of_b;
        ck_assert(footprint_tensor(&a, element_a, &of_a));
        ck_assert(footprint_tensor(&b, element_b, &of_b));
        const bool self = mark(&a, element_a, bytes);
        mark(&b, element_b, others);
        bool pair = false;
        for (int i = 0; i < ARENA; i++) pair |= bytes[i] && others[i];
        ck_assert_int_eq(overlap_self(&a), self ? OVERLAP_YES : OVERLAP_NO);
        ck_assert_int_eq(overlap_pair(&of_a, &of_b), pair ? OVERLAP_YES : OVERLAP_NO);
        ck_assert_int_eq(overlap_pair(&of_b, &of_a), pair ? OVERLAP_YES : OVERLAP_NO);
        pairs += pair;
        selves += self;
    }
    // The generator above meets both answers often.
    ck_assert_int_gt(pairs, 500);
    ck_assert_int_gt(selves, 2000);
}
END_TEST

START_TEST(packed_views_are_apart) {
    // dq, dk, dv of one [rows, 3, heads, dim] buffer with 400,000 rows.
    vf_tensor views[3];
    struct footprint footprints[3];
    for (int i = 0; i < 3; i++) {
        views[i] = (vf_tensor){.data = (void *)(uintptr_t)(1 << 20 | i * 16 * 96 * 2), .ndim = 3};
        memcpy(views[i].shape, (int64_t[]){400000, 16, 96}, 3 * sizeof(int64_t));
        memcpy(views[i].stride, (int64_t[]){3 * 16 * 96, 96, 1}, 3 * sizeof(int64_t));
        ck_assert(footprint_tensor(&views[i], 2, &footprints[i]));
        ck_assert_int_eq(overlap_self(&views[i]), OVERLAP_NO);
    }
    ck_assert_int_eq(overlap_pair(&footprints[0], &footprints[1]), OVERLAP_NO);
    ck_assert_int_eq(overlap_pair(&footprints[1], &footprints[2]), OVERLAP_NO);
    views[2].data = (char *)views[1].data + 2;
    ck_assert(footprint_tensor(&views[2], 2, &footprints[2]));
    ck_assert_int_eq(overlap_pair(&footprints[1], &footprints[2]), OVERLAP_YES);
}
END_TEST

START_TEST(views_beyond_the_address_space) {
    vf_tensor view = {.data = (void *)(uintptr_t)4096, .ndim = 2, .shape = {3, 4}, .stride = {INT64_MAX / 2, 1}};
    struct footprint footprint;
    ck_assert(!footprint_tensor(&view, 2, &footprint));
    view.stride[0] = -4096;
    ck_assert(!footprint_tensor(&view, 2, &footprint));  // below address 0
    view.shape[0] = 1;
    view.stride[0] = INT64_MIN;  // a stride that is never used
    ck_assert(footprint_tensor(&view, 2, &footprint));
    view.shape[1] = 0;
    ck_assert(footprint_tensor(&view, 2, &footprint));
    ck_assert(footprint.empty);
}
END_TEST

// ---- normal forms --------------------------------------------------------------------------------------------------

static struct call read_call(const vf_forward_args *args) {
    const struct validate_rules rules = {.pointers = VALIDATE_ALL};
    struct call call;
    unit_ok(validate_forward(args, &rules, &call));
    return call;
}

START_TEST(masks_have_one_form) {
    static const struct {
        vf_mask mask;
        int64_t left, right;
        vf_mask normal;
        int32_t window_left, window_right;
    } rows[] = {{VF_MASK_FULL, 3, 3, VF_MASK_FULL, INT32_MAX, INT32_MAX},
                {VF_MASK_CAUSAL, 3, 3, VF_MASK_CAUSAL, INT32_MAX, 0},
                {VF_MASK_WINDOW, VF_NO_EDGE, VF_NO_EDGE, VF_MASK_FULL, INT32_MAX, INT32_MAX},
                {VF_MASK_WINDOW, VF_NO_EDGE, 0, VF_MASK_CAUSAL, INT32_MAX, 0},
                {VF_MASK_WINDOW, 5, 0, VF_MASK_WINDOW, 5, 0},
                {VF_MASK_WINDOW, VF_NO_EDGE, -1, VF_MASK_WINDOW, INT32_MAX, -1},
                {VF_MASK_WINDOW, 0, VF_NO_EDGE, VF_MASK_WINDOW, 0, INT32_MAX},
                {VF_MASK_WINDOW, (int64_t)1 << 40, -((int64_t)1 << 40), VF_MASK_WINDOW, INT32_MAX, -(1 << 30)},
                {VF_MASK_WINDOW, -3, 1, VF_MASK_WINDOW, -3, 1},
                {VF_MASK_WINDOW, (int64_t)1 << 40, (int64_t)1 << 40, VF_MASK_FULL, INT32_MAX, INT32_MAX}};
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        vf_forward_args args = sample_forward(sample_host);
        args.problem.mask = rows[i].mask;
        args.problem.window_left = rows[i].left;
        args.problem.window_right = rows[i].right;
        const struct call call = read_call(&args);
        ck_assert_int_eq(call.request.mask, rows[i].normal);
        ck_assert_int_eq(call.window_left, rows[i].window_left);
        ck_assert_int_eq(call.window_right, rows[i].window_right);
        sample_host_free();
    }
}
END_TEST

START_TEST(alignment_is_of_what_is_used) {
    vf_forward_args args = sample_forward(sample_host);
    ck_assert(read_call(&args).request.aligned);
    args.q.stride[0] += 4;
    args.q.shape[0] = args.o.shape[0] = args.lse.shape[1] = 9;
    ck_assert(!read_call(&args).request.aligned);
    args.q.stride[0] -= 4;
    args.v.data = (char *)args.v.data + 2;
    args.v.shape[0] = args.k.shape[0] = 11;
    ck_assert(!read_call(&args).request.aligned);
    args.v.data = (char *)args.v.data - 2;
    args.lse.data = (char *)args.lse.data + 4;  // float32, one at a time: its place does not matter
    ck_assert(read_call(&args).request.aligned);
    sample_host_free();
}
END_TEST

START_TEST(strange_strides_are_right) {
    vf_forward_args args = sample_forward(sample_host);
    args.k.stride[0] = 0;                                         // every key the same
    args.v.data = (char *)args.v.data + (size_t)11 * 2 * 32 * 2;  // from the last row backwards
    args.v.stride[0] = -2 * 32;
    args.lse = sample_tensor_of(sample_host, VF_FLOAT32, 4, 2, (int64_t[]){10, 4});
    memcpy(args.lse.shape, (int64_t[]){4, 10}, 2 * sizeof(int64_t));  // transposed
    memcpy(args.lse.stride, (int64_t[]){1, 4}, 2 * sizeof(int64_t));
    read_call(&args);
    sample_host_free();
}
END_TEST

START_TEST(sizes_are_powers_of_two_rounded_up) {
    vf_forward_args args = sample_forward(sample_host);
    const struct call call = read_call(&args);
    ck_assert_int_eq(call.sizes.average_q, 3);  // 10 / 2 = 5
    ck_assert_int_eq(call.sizes.average_k, 3);  // 12 / 2 = 6
    ck_assert_int_eq(call.sizes.group, 1);
    sample_host_free();
}
END_TEST

// ---- requests ------------------------------------------------------------------------------------------------------

START_TEST(requests_are_written_and_read) {
    for (int i = 0; i < 3 * 2 * 3 * 32; i++) {
        const struct request request = {.mapped = i / 36 & i / 288 & 1,
                                        .dtype = (vf_dtype)(VF_FLOAT16 + i % 3),
                                        .backward = i / 3 % 2,
                                        .mask = (vf_mask)(i / 6 % 3),
                                        .softcap = i / 18 & 1,
                                        .aligned = i / 36 & 1,
                                        .deterministic = i / 72 & 1,
                                        .head_dim = 8 + i % 32 * 8,
                                        .head_dim_v = 256 - i % 32 * 8};
        char text[REQUEST_TEXT], again[REQUEST_TEXT], arch[ARCH_TEXT];
        struct request read;
        request_describe(&request, "sm_90a", text);
        unit_ok(request_parse(text, &read, arch));
        ck_assert_int_eq(read.mapped, request.mapped);
        request_describe(&read, arch, again);
        ck_assert_str_eq(text, again);
    }
}
END_TEST

START_TEST(requests_that_are_none) {
    static const struct {
        const char *text, *sentence;
    } rows[] = {
        {"", "arch is missing"},
        {"pass=fwd arch=sm_90a_and_very_long dtype=bf16", "arch is too long"},
        {"pass=sideways arch=sm_80", "pass=sideways is not one of fwd, bwd"},
        {"pass=fwd arch=sm_80 dtype=bf16 head_dim=12 head_dim_v=64 mask=full softcap=0 aligned=1 deterministic=0",
         "head_dim=12"},
        {"pass=fwd arch=sm_80 dtype=bf16 head_dim=64x head_dim_v=64 mask=full softcap=0 aligned=1 deterministic=0",
         "head_dim=64x"},
        {"pass=fwd arch=sm_80 dtype=bf16 head_dim=64 head_dim_v=64 mask=round softcap=0 aligned=1 deterministic=0",
         "mask=round"},
        {"pass=fwd arch=sm_80 dtype=bf16 head_dim=64 head_dim_v=64 mask=full softcap=2 aligned=1 deterministic=0",
         "softcap=2"},
        {"pass=fwd arch=sm_80 dtype=bf16 head_dim=64 head_dim_v=64 mask=full softcap=0 aligned=1 deterministic=0 x=1",
         "must have"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct request request;
        char arch[ARCH_TEXT];
        unit_fails(request_parse(rows[i].text, &request, arch), VF_ERROR_INVALID_ARGUMENT, rows[i].sentence);
    }
}
END_TEST

START_TEST(keys_differ_where_requests_do) {
    const struct request base = {.dtype = VF_BFLOAT16, .head_dim = 64, .head_dim_v = 64};
    const struct sizes none = {0, 0, 0};
    struct request changed[9] = {base, base, base, base, base, base, base, base, base};
    changed[0].backward = true;
    changed[1].softcap = true;
    changed[2].aligned = true;
    changed[3].deterministic = true;
    changed[4].dtype = VF_FLOAT16;
    changed[5].mask = VF_MASK_WINDOW;
    changed[6].head_dim = 72;
    changed[7].head_dim_v = 256;
    changed[8].mapped = true;
    const struct sizes sizes[] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {63, 63, 63}};
    uint64_t keys[14] = {request_key(&base, &none)};
    for (int i = 0; i < 9; i++) keys[1 + i] = request_key(&changed[i], &none);
    for (int i = 0; i < 4; i++) keys[10 + i] = request_key(&base, &sizes[i]);
    for (int i = 0; i < 14; i++) {
        ck_assert_uint_lt(keys[i], (uint64_t)1 << 40);
        for (int j = 0; j < i; j++) ck_assert_uint_ne(keys[i], keys[j]);
    }
}
END_TEST

// ---- every fault ---------------------------------------------------------------------------------------------------

struct collector {
    struct validate_sink sink;
    int count;
    char first[256], last[256];
};

static void collect(struct validate_sink *sink, vf_status status, const char *sentence) {
    struct collector *collector = (struct collector *)sink;
    ck_assert_int_ne(status, VF_OK);
    snprintf(collector->count++ ? collector->last : collector->first, 256, "%s", sentence);
}

START_TEST(a_sink_gets_every_fault) {
    vf_forward_args args = sample_forward(sample_host);
    args.problem.flags = 1;
    args.problem.softcap = -1;
    args.k.dtype = VF_FLOAT16;
    args.v.shape[0] = 3;
    args.o.stride[2] = 5;
    struct collector collector = {.sink.add = collect};
    const struct validate_rules rules = {.pointers = VALIDATE_ALL, .sink = &collector.sink};
    struct call call;
    unit_fails(validate_forward(&args, &rules, &call), VF_ERROR_INVALID_ARGUMENT, "flags");
    ck_assert_int_eq(collector.count, 5);
    ck_assert_ptr_nonnull(strstr(collector.first, "flags"));
    ck_assert_ptr_nonnull(strstr(collector.last, "o: stride of the last"));
    sample_host_free();
}
END_TEST

START_TEST(pointers_are_looked_at_as_told) {
    vf_forward_args args = sample_forward(sample_host);
    struct call call;
    args.q.data = NULL;
    args.o.data = (char *)args.o.data + 1;
    args.problem.workspace = NULL;
    struct validate_rules rules = {.pointers = VALIDATE_SHAPES};
    unit_ok(validate_forward(&args, &rules, &call));
    rules.pointers = VALIDATE_GIVEN;
    unit_fails(validate_forward(&args, &rules, &call), VF_ERROR_INVALID_ARGUMENT, "o: data");
    args.o.data = NULL;
    unit_ok(validate_forward(&args, &rules, &call));
    rules.pointers = VALIDATE_ALL;
    unit_fails(validate_forward(&args, &rules, &call), VF_ERROR_INVALID_ARGUMENT, "q: data is null");
    sample_host_free();
}
END_TEST

// Bounds are asked for before there is memory: strides of either sign, whatever stands where a pointer will.
START_TEST(strides_are_judged_without_memory) {
    vf_forward_args args = sample_forward(sample_host);
    struct call call;
    args.q.stride[0] = -args.q.stride[0];
    args.o.stride[0] = -args.o.stride[0];
    args.q.data = args.o.data = NULL;
    struct validate_rules rules = {.pointers = VALIDATE_GIVEN};
    unit_ok(validate_forward(&args, &rules, &call));
    rules.pointers = VALIDATE_SHAPES;
    unit_ok(validate_forward(&args, &rules, &call));
    args.q.data = (void *)UINTPTR_MAX;
    unit_ok(validate_forward(&args, &rules, &call));
    args.q.stride[0] = INT64_MIN / 4;
    unit_fails(validate_forward(&args, &rules, &call), VF_ERROR_INVALID_ARGUMENT, "q: shape and strides reach beyond");
    sample_host_free();
}
END_TEST

START_TEST(struct_sizes) {
    struct {
        vf_forward_args args;
        int64_t later[2];
    } newer = {.args = sample_forward(sample_host)};
    const struct validate_rules rules = {.pointers = VALIDATE_ALL};
    struct call call;
    newer.args.struct_size = sizeof newer.args;
    unit_ok(validate_forward(&newer.args, &rules, &call));
    newer.args.struct_size = sizeof newer;  // a newer caller whose new fields are at their defaults
    unit_ok(validate_forward(&newer.args, &rules, &call));
    newer.later[1] = 1;
    unit_fails(validate_forward(&newer.args, &rules, &call), VF_ERROR_INVALID_ARGUMENT, "a field beyond");
    sample_host_free();
}
END_TEST

START_TEST(float32_is_the_hosts) {
    vf_forward_args args = sample_forward(sample_host);
    struct call call;
    args.q.dtype = args.k.dtype = args.v.dtype = args.o.dtype = VF_FLOAT32;
    struct validate_rules rules = {.pointers = VALIDATE_SHAPES, .host = true};
    unit_ok(validate_forward(&args, &rules, &call));
    rules.host = false;
    unit_fails(validate_forward(&args, &rules, &call), VF_ERROR_UNSUPPORTED, "only the CPU backend");
    sample_host_free();
}
END_TEST

UNIT_MAIN("validate", overlap_is_exact_for_small_views, packed_views_are_apart, views_beyond_the_address_space,
          masks_have_one_form, alignment_is_of_what_is_used, strange_strides_are_right,
          sizes_are_powers_of_two_rounded_up, requests_are_written_and_read, requests_that_are_none,
          keys_differ_where_requests_do, a_sink_gets_every_fault, pointers_are_looked_at_as_told,
          strides_are_judged_without_memory, struct_sizes, float32_is_the_hosts)
