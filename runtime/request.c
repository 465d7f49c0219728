// request.c - see request.h.
#include "request.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const call_tensor_names[CALL_TENSORS] = {"q", "k", "v", "o", "lse", "dout", "dlse", "dq", "dk", "dv"};
const char *const call_lengths_names[CALL_LENGTHS] = {"cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k"};

// ---- tensors -------------------------------------------------------------------------------------------------------

bool tensor_empty(const vf_tensor *tensor) {
    for (int i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] == 0) return true;
    }
    return false;
}

// ---- calls ---------------------------------------------------------------------------------------------------------

static const vf_tensor *if_present(const vf_tensor *tensor) {
    return tensor && (tensor->data || tensor->ndim != 0) ? tensor : NULL;
}

static void take_problem(struct call *call, const vf_problem_args *problem) {
    call->problem = problem;
    call->lengths[CALL_CU_Q] = if_present(&problem->cu_seqlens_q);
    call->lengths[CALL_CU_K] = if_present(&problem->cu_seqlens_k);
    call->lengths[CALL_USED_Q] = if_present(&problem->seqused_q);
    call->lengths[CALL_USED_K] = if_present(&problem->seqused_k);
}

void call_forward(struct call *call, const vf_forward_args *args) {
    *call = (struct call){.backward = false};
    const vf_tensor *tensors[] = {&args->q, &args->k, &args->v, &args->o, &args->lse};
    for (size_t i = 0; i < ARRAY_LENGTH(tensors); i++) call->tensors[i] = if_present(tensors[i]);
    take_problem(call, &args->problem);
}

void call_backward(struct call *call, const vf_backward_args *args) {
    *call = (struct call){.backward = true};
    const vf_tensor *tensors[CALL_TENSORS] = {&args->q,    &args->k,    &args->v,  &args->o,  &args->lse,
                                              &args->dout, &args->dlse, &args->dq, &args->dk, &args->dv};
    for (size_t i = 0; i < ARRAY_LENGTH(tensors); i++) call->tensors[i] = if_present(tensors[i]);
    take_problem(call, &args->problem);
}

static int32_t clamp_edge(int64_t edge) {
    if (edge >= CALL_EDGE_LIMIT) return INT32_MAX;
    return edge < -CALL_EDGE_LIMIT ? -CALL_EDGE_LIMIT : (int32_t)edge;
}

// The mask's normal form: one request for all ways to say the same.
static void read_mask(struct call *call) {
    const vf_problem_args *problem = call->problem;
    call->window_left = call->window_right = INT32_MAX;
    if (problem->mask == VF_MASK_CAUSAL) call->window_right = 0;
    if (problem->mask == VF_MASK_WINDOW) {
        call->window_left = clamp_edge(problem->window_left);
        call->window_right = clamp_edge(problem->window_right);
    }
    const bool left = call->window_left != INT32_MAX, right = call->window_right != INT32_MAX;
    call->request.mask = !left && !right                    ? VF_MASK_FULL
                         : !left && call->window_right == 0 ? VF_MASK_CAUSAL
                                                            : VF_MASK_WINDOW;
}

static bool obstacle(char *text, const char *format, ...) PRINTF_LIKE(2, 3);
static bool obstacle(char *text, const char *format, ...) {
    va_list values;
    va_start(values, format);
    if (text) vsnprintf(text, CALL_OBSTACLE, format, values);
    va_end(values);
    return true;
}

bool call_obstacle(const struct call *call, enum call_tensor which, enum call_access access, char *text) {
    const vf_tensor *tensor = call->tensors[which];
    const char *name = call_tensor_names[which];
    const int64_t longest = (int64_t)1 << 39, most = INT32_MAX;  // strides of maps are below 2^40 bytes
    if (!tensor || which == CALL_LSE || which == CALL_DLSE) return false;
    if ((uintptr_t)tensor->data % 16 != 0) {
        return obstacle(text, "%s starts at %p, not at a multiple of 16 bytes", name, tensor->data);
    }
    for (int d = 0; d < tensor->ndim - 1; d++) {
        const int64_t extent = tensor->shape[d], stride = tensor->stride[d];
        if (extent <= 1) continue;
        if (stride % 8 != 0) {
            return obstacle(text, "%s has stride %lld, not a multiple of 8 elements", name, (long long)stride);
        }
        if (access == CALL_ACCESS_ALIGNED) continue;
        if (stride < 0 || stride >= longest) {
            return obstacle(text, "%s has stride %lld; tensor maps take 0 to 2^39 elements", name, (long long)stride);
        }
        if (extent > most) {
            return obstacle(text, "%s has extent %lld; tensor maps take less than 2^31", name, (long long)extent);
        }
    }
    return false;
}

static bool no_obstacle(const struct call *call, enum call_access access) {
    for (int i = 0; i < CALL_TENSORS; i++) {
        if (call_obstacle(call, (enum call_tensor)i, access, NULL)) return false;
    }
    return true;
}

// Smallest n with 2^n >= value / parts.
static int log2_up(int64_t value, int64_t parts) {
    if (parts < 1) return 0;
    const uint64_t average = (uint64_t)(value / parts + (value % parts != 0));
    return average <= 1 ? 0 : 64 - __builtin_clzll(average - 1);
}

void call_read(struct call *call) {
    const vf_problem_args *problem = call->problem;
    const vf_tensor *q = call->tensors[CALL_Q], *k = call->tensors[CALL_K], *v = call->tensors[CALL_V];
    const vf_tensor *cu = call->lengths[CALL_CU_Q] ? call->lengths[CALL_CU_Q] : call->lengths[CALL_CU_K];

    call->q_batched = !call->lengths[CALL_CU_Q];
    call->k_batched = !call->lengths[CALL_CU_K];
    call->batch = cu ? cu->shape[0] - 1 : q->shape[0];
    // Rows of slots that are not there are none.
    call->rows_q = call->q_batched && call->batch == 0 ? 0 : q->shape[call->q_batched];
    call->rows_k = call->k_batched && call->batch == 0 ? 0 : k->shape[call->k_batched];
    call->total_q = call->rows_q * (call->q_batched ? call->batch : 1);
    call->total_k = call->rows_k * (call->k_batched ? call->batch : 1);
    call->heads_q = q->shape[q->ndim - 2];
    call->heads_k = k->shape[k->ndim - 2];

    struct request *request = &call->request;
    request->backward = call->backward;
    request->dtype = q->dtype;
    request->head_dim = (int)q->shape[q->ndim - 1];
    request->head_dim_v = (int)v->shape[v->ndim - 1];
    request->softcap = problem->softcap != 0;
    request->deterministic = call->backward && problem->deterministic == VF_ON;
    request->aligned = no_obstacle(call, CALL_ACCESS_ALIGNED);
    request->mapped = request->aligned && no_obstacle(call, CALL_ACCESS_MAPPED);
    read_mask(call);

    call->scale = (float)(problem->softmax_scale != 0 ? problem->softmax_scale : 1 / sqrt((double)request->head_dim));
    call->softcap = (float)problem->softcap;
    call->sizes = (struct sizes){.average_q = log2_up(call->total_q, call->batch),
                                 .average_k = log2_up(call->total_k, call->batch),
                                 .group = log2_up(call->heads_q, call->heads_k)};
}

// ---- requests as text and as numbers -------------------------------------------------------------------------------

static const struct {
    vf_dtype dtype;
    const char *name;
    size_t size;
} dtypes[] = {{VF_FLOAT16, "fp16", 2},
              {VF_BFLOAT16, "bf16", 2},
              {VF_FLOAT32, "fp32", 4},
              {VF_INT32, "int32", 4},
              {VF_INT64, "int64", 8}};

static const char *const mask_names[] = {"full", "causal", "window"};

const char *request_dtype_name(vf_dtype dtype) {
    for (size_t i = 0; i < ARRAY_LENGTH(dtypes); i++) {
        if (dtypes[i].dtype == dtype) return dtypes[i].name;
    }
    return "none";
}

size_t request_dtype_size(vf_dtype dtype) {
    for (size_t i = 0; i < ARRAY_LENGTH(dtypes); i++) {
        if (dtypes[i].dtype == dtype) return dtypes[i].size;
    }
    return 0;
}

static const char *mask_name(vf_mask mask) {
    return (size_t)mask < ARRAY_LENGTH(mask_names) ? mask_names[mask] : "unknown";
}

void request_write(const struct request *request, const char *arch, char text[REQUEST_TEXT]) {
    snprintf(text, REQUEST_TEXT,
             "pass=%s arch=%s dtype=%s head_dim=%d head_dim_v=%d mask=%s softcap=%d aligned=%d deterministic=%d",
             request->backward ? "bwd" : "fwd", arch, request_dtype_name(request->dtype), request->head_dim,
             request->head_dim_v, mask_name(request->mask), request->softcap, request->aligned, request->deterministic);
}

#define OUT_OF_REACH " mapped=0"

void request_describe(const struct request *request, const char *arch, char text[REQUEST_TEXT]) {
    request_write(request, arch, text);
    const size_t length = strlen(text);
    if (request->aligned && !request->mapped) snprintf(text + length, REQUEST_TEXT - length, OUT_OF_REACH);
}

vf_status request_word(const char *spec, const char *key, char *value, size_t size) {
    const size_t key_length = strlen(key);
    for (const char *word = spec; *word; word += strspn(word, " ")) {
        const size_t length = strcspn(word, " ");
        if (length > key_length && !strncmp(word, key, key_length) && word[key_length] == '=') {
            VF_REQUIRE(length - key_length - 1 < size, VF_ERROR_INVALID_ARGUMENT, "spec '%s': %s is too long", spec,
                       key);
            snprintf(value, size, "%.*s", (int)(length - key_length - 1), word + key_length + 1);
            return VF_OK;
        }
        word += length;
    }
    VF_FAIL(VF_ERROR_INVALID_ARGUMENT, "spec '%s': %s is missing", spec, key);
}

// A word out of `names`, as its index.
static vf_status read_choice(const char *text, const char *key, const char *const *names, int count, int *index) {
    char value[16];
    VF_TRY(request_word(text, key, value, sizeof value));
    for (int i = 0; i < count; i++) {
        if (!strcmp(value, names[i])) {
            *index = i;
            return VF_OK;
        }
    }
    VF_FAIL(VF_ERROR_INVALID_ARGUMENT, "request '%s': %s=%s is not one of %s, %s%s%s", text, key, value, names[0],
            names[1], count > 2 ? ", " : "", count > 2 ? names[2] : "");
}

static vf_status read_dim(const char *text, const char *key, int *dim) {
    char value[16];
    VF_TRY(request_word(text, key, value, sizeof value));
    char *end;
    const long number = strtol(value, &end, 10);
    VF_REQUIRE(!*end && number >= 8 && number <= 256 && number % 8 == 0, VF_ERROR_INVALID_ARGUMENT,
               "request '%s': %s=%s is not a multiple of 8 from 8 to 256", text, key, value);
    *dim = (int)number;
    return VF_OK;
}

vf_status request_parse(const char *text, struct request *request, char arch[ARCH_TEXT]) {
    static const char *const passes[] = {"fwd", "bwd"}, *const types[] = {"fp16", "bf16", "fp32"},
                             *const flags[] = {"0", "1"};
    int pass = 0, dtype = 0, mask = 0, softcap = 0, aligned = 0, deterministic = 0;
    VF_TRY(request_word(text, "arch", arch, ARCH_TEXT));
    VF_TRY(read_choice(text, "pass", passes, 2, &pass));
    VF_TRY(read_choice(text, "dtype", types, 3, &dtype));
    VF_TRY(read_choice(text, "mask", mask_names, 3, &mask));
    VF_TRY(read_choice(text, "softcap", flags, 2, &softcap));
    VF_TRY(read_choice(text, "aligned", flags, 2, &aligned));
    VF_TRY(read_choice(text, "deterministic", flags, 2, &deterministic));
    *request = (struct request){.backward = pass == 1,
                                .dtype = (vf_dtype)(VF_FLOAT16 + dtype),
                                .mask = (vf_mask)mask,
                                .softcap = softcap == 1,
                                .aligned = aligned == 1,
                                .mapped = aligned == 1 && !strstr(text, OUT_OF_REACH),
                                .deterministic = deterministic == 1};
    VF_TRY(read_dim(text, "head_dim", &request->head_dim));
    VF_TRY(read_dim(text, "head_dim_v", &request->head_dim_v));
    // What was read must be all there is: a misspelt word would otherwise be a silent default.
    char again[REQUEST_TEXT];
    request_describe(request, arch, again);
    VF_REQUIRE(strlen(again) == strlen(text), VF_ERROR_INVALID_ARGUMENT, "request '%s': must have the form '%s'", text,
               again);
    return VF_OK;
}

uint64_t request_key(const struct request *request, const struct sizes *sizes) {
    const struct {
        unsigned value, bits;
    } fields[] = {{request->backward, 1},
                  {request->softcap, 1},
                  {request->aligned, 1},
                  {request->mapped, 1},
                  {request->deterministic, 1},
                  {(unsigned)request->dtype, 3},
                  {(unsigned)request->mask, 2},
                  {(unsigned)request->head_dim / 8, 6},
                  {(unsigned)request->head_dim_v / 8, 6},
                  {(unsigned)sizes->average_q, 6},
                  {(unsigned)sizes->average_k, 6},
                  {(unsigned)sizes->group, 6}};
    uint64_t key = 0;
    for (size_t i = 0; i < ARRAY_LENGTH(fields); i++) key = key << fields[i].bits | fields[i].value;
    return key;
}
