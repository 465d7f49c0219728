// validate.c - see validate.h. The constraints are those of docs/design.md, sections 4 and 5.
//
// Checks come in stages. Within a stage every fault is reported; a stage that found one ends the search if the next
// would have to guess what was meant.
#include "validate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "overlap.h"

struct validation {
    const struct validate_rules *rules;
    struct call *call;
    vf_status status;  // of the first fault
    int faults;
    // What the shapes say, once `read_dims` has found them sound.
    bool q_batched, k_batched;
    int64_t batch, rows_q, rows_k, heads_q, heads_k, head_dim, head_dim_v;
};

// ---- reporting -----------------------------------------------------------------------------------------------------

static void report(struct validation *v, vf_status status, const char *format, ...) PRINTF_LIKE(3, 4);

static void report(struct validation *v, vf_status status, const char *format, ...) {
    char sentence[512];
    va_list values;
    va_start(values, format);
    vsnprintf(sentence, sizeof sentence, format, values);
    va_end(values);
    if (v->faults++ == 0) v->status = status_fail(status, "%s", sentence);
    if (v->rules->sink) v->rules->sink->add(v->rules->sink, status, sentence);
}

// A failed condition is reported; what follows decides for itself whether it can go on.
#define CHECK(condition, status, ...)                       \
    do {                                                    \
        if (!(condition)) report(v, (status), __VA_ARGS__); \
    } while (0)

#define INVALID VF_ERROR_INVALID_ARGUMENT

#define SHAPE_TEXT 96

static const char *shape_text(int ndim, const int64_t *shape, char text[SHAPE_TEXT]) {
    int length = snprintf(text, SHAPE_TEXT, "[");
    for (int i = 0; i < ndim; i++) {
        length += snprintf(text + length, SHAPE_TEXT - (size_t)length, "%s%lld", i ? ", " : "", (long long)shape[i]);
    }
    snprintf(text + length, SHAPE_TEXT - (size_t)length, "]");
    return text;
}

// ---- the tensors of both passes: THE table -------------------------------------------------------------------------

enum use { UNUSED, INPUT, OUTPUT, OPTIONAL_INPUT, OPTIONAL_OUTPUT };
enum form { LIKE_Q, LIKE_K, LIKE_V, LIKE_O, LIKE_LSE };

static const struct rule {
    enum form form;
    enum use forward, backward;
    const char *layout;  // what the shape means, for sentences
} rules[CALL_TENSORS] = {
    [CALL_Q] = {LIKE_Q, INPUT, INPUT, "heads_q, head_dim"},
    [CALL_K] = {LIKE_K, INPUT, INPUT, "heads_k, head_dim"},
    [CALL_V] = {LIKE_V, INPUT, INPUT, "heads_k, head_dim_v"},
    [CALL_O] = {LIKE_O, OUTPUT, INPUT, "heads_q, head_dim_v"},
    [CALL_LSE] = {LIKE_LSE, OPTIONAL_OUTPUT, INPUT, "heads_q, rows of q"},
    [CALL_DOUT] = {LIKE_O, UNUSED, INPUT, "heads_q, head_dim_v"},
    [CALL_DLSE] = {LIKE_LSE, UNUSED, OPTIONAL_INPUT, "heads_q, rows of q"},
    [CALL_DQ] = {LIKE_Q, UNUSED, OUTPUT, "heads_q, head_dim"},
    [CALL_DK] = {LIKE_K, UNUSED, OUTPUT, "heads_k, head_dim"},
    [CALL_DV] = {LIKE_V, UNUSED, OUTPUT, "heads_k, head_dim_v"},
};

static enum use use_of(const struct call *call, int tensor) {
    return call->backward ? rules[tensor].backward : rules[tensor].forward;
}

static bool is_output(const struct call *call, int tensor) {
    const enum use use = use_of(call, tensor);
    return use == OUTPUT || use == OPTIONAL_OUTPUT;
}

static bool form_is_batched(const struct validation *v, enum form form) {
    return form == LIKE_K || form == LIKE_V ? v->k_batched : v->q_batched;
}

static int form_dims(const struct validation *v, enum form form) {
    return (form == LIKE_LSE ? 2 : 3) + form_is_batched(v, form);
}

static void form_shape(const struct validation *v, enum form form, int64_t shape[4]) {
    const bool key_side = form == LIKE_K || form == LIKE_V;
    const int64_t rows = key_side ? v->rows_k : v->rows_q, heads = key_side ? v->heads_k : v->heads_q;
    const int64_t width = form == LIKE_Q || form == LIKE_K ? v->head_dim : v->head_dim_v;
    int at = 0;
    if (form_is_batched(v, form)) shape[at++] = v->batch;
    shape[at++] = form == LIKE_LSE ? heads : rows;
    shape[at++] = form == LIKE_LSE ? rows : heads;
    if (form != LIKE_LSE) shape[at] = width;
}

// ---- stage 1: plain values -----------------------------------------------------------------------------------------

// Kernels multiply by log2(e), and by the quotient of scale and softcap: all of it must be finite.
#define LARGEST_NUMBER 0x1p127

static void check_number(struct validation *v, const char *name, double value, const char *zero) {
    CHECK(value == 0 || ((float)value > 0 && value <= LARGEST_NUMBER), INVALID,
          "%s: is %g; must be positive as float32 and at most 2^127, or 0 for %s", name, value, zero);
}

static void check_values(struct validation *v) {
    const vf_problem_args *problem = v->call->problem;
    CHECK((unsigned)problem->mask <= VF_MASK_WINDOW, INVALID,
          "mask: is %d; must be VF_MASK_FULL, VF_MASK_CAUSAL or VF_MASK_WINDOW", (int)problem->mask);
    CHECK((unsigned)problem->deterministic <= VF_OFF, INVALID, "deterministic: is %d; must be VF_AUTO, VF_ON or VF_OFF",
          (int)problem->deterministic);
    CHECK((unsigned)problem->fill <= VF_FILL_KEEP, INVALID, "fill: is %d; must be VF_FILL_ZERO or VF_FILL_KEEP",
          (int)problem->fill);
    CHECK(problem->check == 0 || problem->check == VF_CHECK_DEVICE, INVALID,
          "check: is %d; must be 0 or VF_CHECK_DEVICE", problem->check);
    CHECK(problem->flags == 0, INVALID, "flags: is 0x%x; no flag is known, must be 0", (unsigned)problem->flags);
    CHECK(problem->device >= 0, INVALID, "device: is %d; must be 0 (where q is) or an ordinal + 1", problem->device);
    CHECK(problem->max_seqlen_q >= 0, INVALID, "max_seqlen_q: is %lld; must be a bound, or 0 for unknown",
          (long long)problem->max_seqlen_q);
    CHECK(problem->max_seqlen_k >= 0, INVALID, "max_seqlen_k: is %lld; must be a bound, or 0 for unknown",
          (long long)problem->max_seqlen_k);
    check_number(v, "softmax_scale", problem->softmax_scale, "1 / sqrt(head_dim)");
    check_number(v, "softcap", problem->softcap, "none");
    const double scale = problem->softmax_scale != 0 ? problem->softmax_scale : 1;  // the default is below
    CHECK(!(problem->softcap > 0 && scale / problem->softcap > LARGEST_NUMBER), INVALID,
          "softcap: is %g; softmax_scale divided by it must be at most 2^127", problem->softcap);
    CHECK((uintptr_t)problem->workspace % 256 == 0 || v->rules->pointers == VALIDATE_SHAPES, VF_ERROR_WORKSPACE,
          "workspace: %p is not aligned to 256 bytes", problem->workspace);
}

// ---- stage 2: each tensor by itself --------------------------------------------------------------------------------

static void check_shape(struct validation *v, const char *name, const vf_tensor *tensor) {
    for (int i = 0; i < tensor->ndim; i++) {
        CHECK(tensor->shape[i] >= 0, INVALID, "%s: dimension %d is %lld; must not be negative", name, i,
              (long long)tensor->shape[i]);
    }
}

static void check_operand(struct validation *v, const struct rule *rule, const char *name, const vf_tensor *tensor) {
    const enum form form = rule->form;
    const bool batched = form_is_batched(v, form);
    if (tensor->ndim == form_dims(v, form)) {
        check_shape(v, name, tensor);
    } else {
        report(v, INVALID, "%s: has %d dimensions; must have %d: [%s%s%s], because cu_seqlens_%c is %s", name,
               tensor->ndim, form_dims(v, form), batched ? "batch, " : "", form == LIKE_LSE ? "" : "rows, ",
               rule->layout, form == LIKE_K || form == LIKE_V ? 'k' : 'q', batched ? "absent" : "given");
    }
}

static void check_lengths(struct validation *v, const char *name, const vf_tensor *tensor, bool cumulative) {
    if (tensor->ndim == 1) {
        check_shape(v, name, tensor);
        CHECK(!cumulative || tensor->shape[0] != 0, INVALID,
              "%s: has no entry; must have batch + 1, the first of them 0", name);
    } else {
        report(v, INVALID, "%s: has %d dimensions; must have 1: [batch%s]", name, tensor->ndim,
               cumulative ? " + 1" : "");
    }
    CHECK(tensor->dtype == VF_INT32 || tensor->dtype == VF_INT64, INVALID, "%s: dtype is %s; must be int32 or int64",
          name, request_dtype_name(tensor->dtype));
}

static void check_tensors(struct validation *v) {
    const struct call *call = v->call;
    for (int i = 0; i < CALL_TENSORS; i++) {
        const enum use use = use_of(call, i);
        if (call->tensors[i] && use != UNUSED) {
            check_operand(v, &rules[i], call_tensor_names[i], call->tensors[i]);
        } else {
            CHECK(use != INPUT && use != OUTPUT, INVALID, "%s: is absent; the %s needs it", call_tensor_names[i],
                  call->backward ? "backward" : "forward");
        }
    }
    for (int i = 0; i < CALL_LENGTHS; i++) {
        if (!call->lengths[i]) continue;
        check_lengths(v, call_lengths_names[i], call->lengths[i], i == CALL_CU_Q || i == CALL_CU_K);
    }
}

// ---- stage 3: the dimensions ---------------------------------------------------------------------------------------

// The batch by its first witness; all others must agree.
static void check_batch(struct validation *v) {
    const struct call *call = v->call;
    const char *first = NULL;
    for (int i = 0; i < CALL_LENGTHS + 2; i++) {
        const bool is_lengths = i < CALL_LENGTHS;
        if (is_lengths ? !call->lengths[i] : !(i == CALL_LENGTHS ? v->q_batched : v->k_batched)) continue;
        const char *name = is_lengths ? call_lengths_names[i] : i == CALL_LENGTHS ? "q" : "k";
        const int64_t count = is_lengths ? call->lengths[i]->shape[0] - (i == CALL_CU_Q || i == CALL_CU_K)
                                         : call->tensors[i == CALL_LENGTHS ? CALL_Q : CALL_K]->shape[0];
        if (!first) {
            first = name;
            v->batch = count;
        }
        CHECK(count == v->batch, INVALID, "%s: is for %lld sequences, but %s for %lld", name, (long long)count, first,
              (long long)v->batch);
    }
    CHECK(v->batch <= CALL_BATCH_LIMIT, VF_ERROR_UNSUPPORTED, "batch: is %lld; at most %lld are possible",
          (long long)v->batch, (long long)CALL_BATCH_LIMIT);
}

static void check_head_dim(struct validation *v, const char *name, int64_t dim) {
    CHECK(dim > 0, INVALID, "%s: is %lld; must be positive", name, (long long)dim);
    CHECK(dim <= 0 || (dim <= 256 && dim % 8 == 0), VF_ERROR_UNSUPPORTED,
          "%s: is %lld; every multiple of 8 from 8 to 256 is possible", name, (long long)dim);
}

static void check_rows(struct validation *v, const char *name, int64_t rows, bool batched) {
    CHECK(!batched || rows <= CALL_LENGTH_LIMIT, VF_ERROR_UNSUPPORTED,
          "%s: has %lld rows a sequence; at most %lld are possible", name, (long long)rows,
          (long long)CALL_LENGTH_LIMIT);
    int64_t total;
    CHECK(!__builtin_mul_overflow(rows, batched ? v->batch : 1, &total) && total <= INT64_MAX >> 24,
          VF_ERROR_UNSUPPORTED, "%s: has more rows than 2^39", name);
}

static void check_dims(struct validation *v) {
    const vf_tensor *q = v->call->tensors[CALL_Q], *k = v->call->tensors[CALL_K], *values = v->call->tensors[CALL_V];
    check_batch(v);
    v->rows_q = q->shape[v->q_batched];
    v->rows_k = k->shape[v->k_batched];
    v->heads_q = q->shape[q->ndim - 2];
    v->heads_k = k->shape[k->ndim - 2];
    v->head_dim = q->shape[q->ndim - 1];
    v->head_dim_v = values->shape[values->ndim - 1];
    check_rows(v, "q", v->rows_q, v->q_batched);
    check_rows(v, "k", v->rows_k, v->k_batched);
    check_head_dim(v, "head_dim", v->head_dim);
    check_head_dim(v, "head_dim_v", v->head_dim_v);
    CHECK(v->heads_q > 0, INVALID, "q: has no heads; must have one at least");
    CHECK(v->heads_k > 0, INVALID, "k: has no heads; must have one at least");
    CHECK(v->heads_q <= INT32_MAX >> 8, VF_ERROR_UNSUPPORTED, "q: has %lld heads; at most %d are possible",
          (long long)v->heads_q, INT32_MAX >> 8);
    CHECK(v->heads_k <= 0 || v->heads_q % v->heads_k == 0, INVALID,
          "q: has %lld heads and k has %lld; the first must be a multiple of the second", (long long)v->heads_q,
          (long long)v->heads_k);

    switch (q->dtype) {
        case VF_FLOAT16:
        case VF_BFLOAT16:
            break;
        case VF_FLOAT32:
            CHECK(v->rules->host, VF_ERROR_UNSUPPORTED,
                  "q: dtype is fp32, which only the CPU backend has; fp16 and bf16 are possible");
            break;
        default:
            report(v, INVALID, "q: dtype is %s; must be fp16 or bf16%s", request_dtype_name(q->dtype),
                   v->rules->host ? " or fp32" : "");
    }
}

// ---- stage 4: agreement, strides, pointers -------------------------------------------------------------------------

static void check_data(struct validation *v, const char *name, const vf_tensor *tensor, size_t element) {
    if (v->rules->pointers == VALIDATE_SHAPES || (v->rules->pointers == VALIDATE_GIVEN && !tensor->data)) return;
    if (tensor_empty(tensor) || element == 0) return;
    CHECK(tensor->data, INVALID, "%s: data is null", name);
    CHECK((uintptr_t)tensor->data % element == 0, INVALID,
          "%s: data is %p; must be aligned to its elements of %zu bytes", name, tensor->data, element);
}

static void check_agreement(struct validation *v) {
    const struct call *call = v->call;
    const vf_dtype dtype = call->tensors[CALL_Q]->dtype;
    for (int i = 0; i < CALL_TENSORS; i++) {
        const vf_tensor *tensor = call->tensors[i];
        if (!tensor || use_of(call, i) == UNUSED) continue;
        const char *name = call_tensor_names[i];
        const enum form form = rules[i].form;
        const vf_dtype wanted = form == LIKE_LSE ? VF_FLOAT32 : dtype;
        CHECK(tensor->dtype == wanted, INVALID, "%s: dtype is %s; must be %s%s", name,
              request_dtype_name(tensor->dtype), request_dtype_name(wanted), form == LIKE_LSE ? "" : " like q");
        int64_t shape[4];
        form_shape(v, form, shape);
        char found[SHAPE_TEXT], allowed[SHAPE_TEXT];
        CHECK(!memcmp(shape, tensor->shape, (size_t)tensor->ndim * sizeof *shape), INVALID,
              "%s: shape is %s; must be %s", name, shape_text(tensor->ndim, tensor->shape, found),
              shape_text(tensor->ndim, shape, allowed));
        const int last = tensor->ndim - 1;
        CHECK(form == LIKE_LSE || tensor->shape[last] <= 1 || tensor->stride[last] == 1, INVALID,
              "%s: stride of the last dimension is %lld; must be 1 (contiguous)", name,
              (long long)tensor->stride[last]);
        check_data(v, name, tensor, request_dtype_size(wanted));
    }
    for (int i = 0; i < CALL_LENGTHS; i++) {
        const vf_tensor *tensor = call->lengths[i];
        if (!tensor) continue;
        CHECK(tensor->shape[0] <= 1 || tensor->stride[0] == 1, INVALID, "%s: stride is %lld; must be 1 (contiguous)",
              call_lengths_names[i], (long long)tensor->stride[0]);
        check_data(v, call_lengths_names[i], tensor, request_dtype_size(tensor->dtype));
    }
}

// ---- stage 5: overlap ----------------------------------------------------------------------------------------------

#define VIEWS (CALL_TENSORS + CALL_LENGTHS + 1)

struct view {
    const char *name;
    struct footprint footprint;
    bool output;
};

static void check_pair(struct validation *v, const struct view *a, const struct view *b) {
    const enum overlap overlap = overlap_pair(&a->footprint, &b->footprint);
    CHECK(overlap != OVERLAP_YES, INVALID, "%s: overlaps %s; an output must have memory of its own", a->name, b->name);
    CHECK(overlap != OVERLAP_UNKNOWN, INVALID,
          "%s: cannot be shown to be apart from %s; their memory must not interleave in this way", a->name, b->name);
}

static void check_self(struct validation *v, const char *name, const vf_tensor *tensor) {
    const enum overlap overlap = overlap_self(tensor);
    CHECK(overlap != OVERLAP_YES, INVALID, "%s: two of its elements share memory; an output must not overlap itself",
          name);
    CHECK(overlap != OVERLAP_UNKNOWN, INVALID, "%s: its elements cannot be shown to be apart; strides must nest", name);
}

static void check_overlap(struct validation *v) {
    const struct call *call = v->call;
    struct view views[VIEWS];
    int count = 0;
    for (int i = 0; i < CALL_TENSORS; i++) {
        const vf_tensor *tensor = call->tensors[i];
        if (!tensor || use_of(call, i) == UNUSED) continue;
        struct view *view = &views[count];
        *view = (struct view){.name = call_tensor_names[i], .output = is_output(call, i)};
        // Memory that is not given, or not looked at, may come to lie anywhere.
        const bool given = v->rules->pointers != VALIDATE_SHAPES && tensor->data;
        vf_tensor anywhere = *tensor;
        anywhere.data = (void *)(uintptr_t)OVERLAP_EXTENT_LIMIT;
        if (!footprint_tensor(given ? tensor : &anywhere, request_dtype_size(tensor->dtype), &view->footprint)) {
            report(v, INVALID, "%s: shape and strides reach beyond the address space", view->name);
            continue;
        }
        if (view->output) check_self(v, view->name, tensor);
        if (given) count++;
    }
    if (v->rules->pointers == VALIDATE_SHAPES) return;
    for (int i = 0; i < CALL_LENGTHS; i++) {
        const vf_tensor *tensor = call->lengths[i];
        if (!tensor || !tensor->data) continue;
        views[count] = (struct view){.name = call_lengths_names[i]};
        footprint_bytes(tensor->data, (size_t)tensor->shape[0] * request_dtype_size(tensor->dtype),
                        &views[count++].footprint);
    }
    if (call->problem->workspace) {
        views[count] = (struct view){.name = "workspace", .output = true};
        footprint_bytes(call->problem->workspace, call->problem->workspace_size, &views[count++].footprint);
    }
    for (int a = 0; a < count; a++) {
        if (!views[a].output) continue;
        for (int b = 0; b < count; b++) {
            // Each pair once; an output comes first.
            if (!views[b].output || a < b) check_pair(v, &views[a], &views[b]);
        }
    }
}

// ---- all of it -----------------------------------------------------------------------------------------------------

static vf_status validate(const struct validate_rules *how, struct call *call) {
    struct validation v = {.rules = how, .call = call};
    v.q_batched = !call->lengths[CALL_CU_Q];
    v.k_batched = !call->lengths[CALL_CU_K];
    check_values(&v);
    const int values = v.faults;
    check_tensors(&v);
    if (v.faults > values) return v.status;
    check_dims(&v);
    check_agreement(&v);
    if (v.faults > values) return v.status;
    check_overlap(&v);
    if (v.faults == 0) call_read(call);
    return v.status;
}

// 0 is the first layout, which is also the only one so far. What a newer caller's struct has beyond it must be at its
// default.
static vf_status check_struct(const struct validate_rules *how, const void *args, size_t known) {
    struct validation v = {.rules = how};
    if (!args) {
        report(&v, INVALID, "args: is null");
        return v.status;
    }
    size_t size;
    memcpy(&size, args, sizeof size);
    if (size != 0 && (size < known || size > known + 4096)) {
        report(&v, INVALID, "struct_size: is %zu; must be 0 or sizeof of the struct, here %zu", size, known);
        return v.status;
    }
    for (size_t i = known; i < size; i++) {
        if (((const unsigned char *)args)[i] != 0) {
            report(&v, INVALID, "struct_size: is %zu, and a field beyond the %zu bytes that this version knows is set",
                   size, known);
            return v.status;
        }
    }
    return VF_OK;
}

vf_status validate_forward(const vf_forward_args *args, const struct validate_rules *how, struct call *call) {
    VF_TRY(check_struct(how, args, sizeof *args));
    call_forward(call, args);
    return validate(how, call);
}

vf_status validate_backward(const vf_backward_args *args, const struct validate_rules *how, struct call *call) {
    VF_TRY(check_struct(how, args, sizeof *args));
    call_backward(call, args);
    return validate(how, call);
}
