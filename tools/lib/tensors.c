// tensors.c - see tensors.h. First the layout of every image is worked out, then memory is mapped, then filled.
#include "tensors.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base.h"
#include "crew.h"
#include "number.h"
#include "status.h"

// ORDER operands, then the lengths.
const char *const tensor_names[TENSOR_COUNT] = {"q",         "k",        "v",  "o",  "lse",          "dout",
                                                "dlse",      "dq",       "dk", "dv", "cu_seqlens_q", "cu_seqlens_k",
                                                "seqused_q", "seqused_k"};

#define IMAGE_LIMIT ((__int128)1 << 46)  // bytes; more than any machine here maps

// ---- layout --------------------------------------------------------------------------------------------------------

static bool wanted(const struct problem *problem, int tensor) {
    switch (tensor) {
        case OPERAND_DOUT:
        case OPERAND_DQ:
        case OPERAND_DK:
        case OPERAND_DV:
            return problem->backward;
        case OPERAND_DLSE:
            return problem->dlse;
        case OPERAND_LSE:
            return !problem->no_lse;
        case TENSOR_CU_Q:
            return !problem->batched_q;
        case TENSOR_CU_K:
            return !problem->batched_k;
        case TENSOR_USED_Q:
            return problem->seqused_q;
        case TENSOR_USED_K:
            return problem->seqused_k;
        default:
            return true;
    }
}

static bool is_output(int tensor) {
    return tensor == OPERAND_O || tensor == OPERAND_LSE || tensor == OPERAND_DQ || tensor == OPERAND_DK ||
           tensor == OPERAND_DV;
}

// Shape and strides of an operand.
static void lay_operand(const struct problem *problem, int operand, struct tensor_image *image) {
    const bool key_side =
        operand == OPERAND_K || operand == OPERAND_V || operand == OPERAND_DK || operand == OPERAND_DV;
    const bool statistic = operand == OPERAND_LSE || operand == OPERAND_DLSE;
    const bool narrow = operand == OPERAND_Q || operand == OPERAND_K || operand == OPERAND_DQ || operand == OPERAND_DK;
    const bool batched = key_side ? problem->batched_k : problem->batched_q;
    const struct problem_strides *given = &problem->strides[operand];
    image->slots = batched ? problem->batch : 1;
    image->rows = key_side ? problem->rows_k : problem->rows_q;
    image->heads = key_side ? problem->heads_k : problem->heads_q;
    image->dim = statistic ? 1 : narrow ? problem->head_dim : problem->head_dim_v;
    image->row_stride = given->set ? given->row : statistic ? 1 : image->heads * image->dim;
    image->head_stride = given->set ? given->head : statistic ? image->rows : image->dim;
    image->slot_stride = given->has_batch ? given->batch
                         : statistic      ? image->heads * image->rows
                                          : image->rows * image->row_stride;
    vf_tensor *view = &image->view;
    *view = (vf_tensor){.dtype = statistic ? VF_FLOAT32 : problem->dtype};
    if (batched) {
        view->shape[view->ndim] = image->slots;
        view->stride[view->ndim++] = image->slot_stride;
    }
    for (int i = 0; i < 2; i++) {  // [rows, heads, dim], but lse is [heads, rows]
        const bool row = statistic ? i == 1 : i == 0;
        view->shape[view->ndim] = row ? image->rows : image->heads;
        view->stride[view->ndim++] = row ? image->row_stride : image->head_stride;
    }
    if (!statistic) {
        view->shape[view->ndim] = image->dim;
        view->stride[view->ndim++] = 1;
    }
}

static void lay_lengths(const struct problem *problem, int tensor, struct tensor_image *image) {
    const bool cumulative = tensor == TENSOR_CU_Q || tensor == TENSOR_CU_K;
    image->slots = image->heads = image->dim = 1;
    image->rows = problem->batch + cumulative;
    image->row_stride = 1;
    image->view = (vf_tensor){
        .dtype = problem->int64_lengths ? VF_INT64 : VF_INT32, .ndim = 1, .shape = {image->rows}, .stride = {1}};
}

static vf_status lay(const struct problem *problem, int tensor, struct tensor_image *image) {
    const int64_t storage_offset = tensor < OPERAND_COUNT ? problem->strides[tensor].storage_offset : 0;
    if (tensor < OPERAND_COUNT)
        lay_operand(problem, tensor, image);
    else
        lay_lengths(problem, tensor, image);
    image->element = number_size(image->view.dtype);
    image->output = is_output(tensor);
    // Lowest and highest element, counted from the first.
    __int128 low = 0, high = 0;
    bool empty = false;
    for (int i = 0; i < image->view.ndim; i++) {
        const __int128 reach = (__int128)(image->view.shape[i] - 1) * image->view.stride[i];
        empty |= !image->view.shape[i];
        if (reach < 0)
            low += reach;
        else
            high += reach;
    }
    if (empty) low = high = 0;
    const __int128 element = (__int128)image->element;
    const __int128 offset = (__int128)TENSOR_GUARD + (-low * element + 255) / 256 * 256 + storage_offset * element;
    const __int128 size = (offset + (high + 1) * element + (__int128)TENSOR_GUARD + 255) / 256 * 256;
    VF_REQUIRE(offset < IMAGE_LIMIT && size < IMAGE_LIMIT, VF_ERROR_INVALID_ARGUMENT,
               "problem: %s would span more than 2^46 bytes", tensor_names[tensor]);
    image->offset = (size_t)offset;
    image->size = (size_t)size;
    return VF_OK;
}

// ---- memory --------------------------------------------------------------------------------------------------------

static vf_status map(struct tensor_image *image) {
    void *bytes = mmap(NULL, image->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    VF_REQUIRE(bytes != MAP_FAILED, VF_ERROR_OUT_OF_MEMORY, "problem: no address space for a tensor of %zu bytes",
               image->size);
    image->bytes = bytes;
    image->view.data = image->bytes + image->offset;
    return VF_OK;
}

vf_status tensor_clone(const struct tensor_image *image, struct tensor_image *clone) {
    *clone = *image;
    clone->bytes = NULL;
    return image->bytes ? map(clone) : VF_OK;
}

void tensor_free(struct tensor_image *image) {
    if (image->bytes) munmap(image->bytes, image->size);
    *image = (struct tensor_image){0};
}

void tensors_free(struct tensors *tensors) {
    for (int i = 0; i < TENSOR_COUNT; i++) tensor_free(&tensors->images[i]);
}

// ---- elements ------------------------------------------------------------------------------------------------------

int64_t tensor_offset(const struct tensor_image *image, int64_t slot, int64_t row, int64_t head) {
    return slot * image->slot_stride + row * image->row_stride + head * image->head_stride;
}

static unsigned char *element_at(const struct tensor_image *image, int64_t slot, int64_t row, int64_t head) {
    return image->bytes + image->offset + tensor_offset(image, slot, row, head) * (int64_t)image->element;
}

void tensor_load(const struct tensor_image *image, int64_t slot, int64_t row, int64_t head, int64_t count,
                 double *values) {
    number_load(image->view.dtype, element_at(image, slot, row, head), count, values);
}

void tensor_store(struct tensor_image *image, int64_t slot, int64_t row, int64_t head, int64_t count,
                  const double *values) {
    number_store(image->view.dtype, values, count, element_at(image, slot, row, head));
}

// ---- filling -------------------------------------------------------------------------------------------------------

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

// The sum of four uniform numbers, centred and scaled to deviation 1: near enough to normal, the same bits everywhere.
static double normal(uint64_t key, uint64_t column) {
    const uint64_t bits = mix(key + column * 0x9e3779b97f4a7c15u);
    const int64_t sum = (int64_t)((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
    return (double)(sum - 131070) * 0x1.bb67ae8584caap-16;  // sqrt(3) / 65536
}

static uint64_t poison_bits(const struct problem *problem, vf_dtype dtype) {
    const bool negative = problem->poison == POISON_NEGATIVE_INF, nan = problem->poison == POISON_NAN;
    switch (dtype) {
        case VF_FLOAT16:
            return 0x0001000100010001u * (0x7c00u | (negative ? 0x8000u : 0) | (nan ? 0x01ffu : 0));
        case VF_BFLOAT16:
            return 0x0001000100010001u * (0x7f80u | (negative ? 0x8000u : 0) | (nan ? 0x0055u : 0));
        default:
            return 0x0000000100000001u *
                   (uint64_t)(0x7f800000u | (negative ? 0x80000000u : 0) | (nan ? 0x00555555u : 0));
    }
}

struct fill {
    struct tensor_image *image;
    const bool *live;  // [slots * rows]
    uint64_t key, pattern;
    double deviation;
};

#define FILL_BYTES ((size_t)1 << 22)
#define FILL_COLUMNS 64

static void fill_pattern(void *user, int64_t piece) {
    const struct fill *fill = user;
    const size_t begin = (size_t)piece * FILL_BYTES;
    const size_t end = begin + FILL_BYTES < fill->image->size ? begin + FILL_BYTES : fill->image->size;
    for (size_t at = begin; at < end; at += 8) memcpy(fill->image->bytes + at, &fill->pattern, 8);
}

static void draw(vf_dtype dtype, double deviation, uint64_t key, int64_t count, unsigned char *to) {
    double values[FILL_COLUMNS];
    for (int64_t done = 0; done < count; done += FILL_COLUMNS) {
        const int64_t width = count - done < FILL_COLUMNS ? count - done : FILL_COLUMNS;
        for (int64_t c = 0; c < width; c++) values[c] = normal(key, (uint64_t)(done + c)) * deviation;
        number_store(dtype, values, width, to + done * (int64_t)number_size(dtype));
    }
}

void tensors_draw(vf_dtype dtype, double deviation, uint64_t seed, int64_t count, unsigned char *to) {
    draw(dtype, deviation, mix(seed), count, to);
}

static void fill_row(const struct fill *fill, int64_t at, int64_t head) {
    const struct tensor_image *image = fill->image;
    const uint64_t key = mix(fill->key + (uint64_t)(at * image->heads + head));
    draw(image->view.dtype, fill->deviation, key, image->dim,
         element_at(image, at / image->rows, at % image->rows, head));
}

static void fill_rows(void *user, int64_t piece) {
    const struct fill *fill = user;
    const struct tensor_image *image = fill->image;
    const int64_t count = crew_rows(image->heads * image->dim);
    for (int64_t at = piece * count; at < (piece + 1) * count && at < image->slots * image->rows; at++)
        for (int64_t head = 0; fill->live[at] && head < image->heads; head++) fill_row(fill, at, head);
}

static void fill_image(int threads, struct fill *fill) {
    const int64_t pieces = (int64_t)((fill->image->size + FILL_BYTES - 1) / FILL_BYTES);
    if (fill->pattern) crew_run(threads, pieces, fill_pattern, fill);
    if (fill->live) {
        const int64_t rows = fill->image->slots * fill->image->rows;
        const int64_t count = crew_rows(fill->image->heads * fill->image->dim);
        // Overlapping rows (a stride of 0) are written in order: the last one wins, whatever the number of threads.
        const bool apart = fill->image->row_stride && fill->image->head_stride;
        crew_run(apart ? threads : 1, (rows + count - 1) / count, fill_rows, fill);
    }
}

static bool *live_rows(const struct problem *problem, const struct problem_span *spans, int64_t slots, int64_t rows) {
    bool *live = calloc((size_t)(slots * rows) + 1, sizeof *live);
    for (int64_t b = 0; live && b < problem->batch; b++)
        for (int64_t row = spans[b].row; row < spans[b].row + spans[b].used && row < rows; row++)
            live[spans[b].batch * rows + row] = true;
    return live;
}

static void fill_lengths(const struct problem *problem, int tensor, struct tensor_image *image) {
    const bool q_side = tensor == TENSOR_CU_Q || tensor == TENSOR_USED_Q;
    const bool cumulative = tensor == TENSOR_CU_Q || tensor == TENSOR_CU_K;
    const int64_t *lengths = cumulative ? (q_side ? problem->seqlens_q : problem->seqlens_k)
                                        : (q_side ? problem->seqused_q : problem->seqused_k);
    int64_t sum = q_side ? problem->start_q : problem->start_k;
    for (int64_t i = 0; i < image->rows; i++) {
        const int64_t value = cumulative ? sum : lengths[i];
        if (cumulative && i < problem->batch) sum += lengths[i];
        if (image->element == 8)
            ((int64_t *)image->view.data)[i] = value;
        else
            ((int32_t *)image->view.data)[i] = (int32_t)value;
    }
}

vf_status tensors_create(const struct problem *problem, int threads, struct tensors *tensors) {
    vf_status status = VF_OK;
    struct problem_span *spans_q = NULL, *spans_k = NULL;
    bool *live_q = NULL, *live_k = NULL;
    *tensors = (struct tensors){0};
    for (int i = 0; i < TENSOR_COUNT && !status; i++) {
        if (!wanted(problem, i)) continue;
        status = lay(problem, i, &tensors->images[i]);
        if (!status) status = map(&tensors->images[i]);
    }
    if (!status) status = problem_spans(problem, &spans_q, &spans_k);
    if (status) goto out;
    live_q = live_rows(problem, spans_q, problem_slots_q(problem), problem->rows_q);
    live_k = live_rows(problem, spans_k, problem_slots_k(problem), problem->rows_k);
    if (!live_q || !live_k) {
        status = status_fail(VF_ERROR_OUT_OF_MEMORY, "problem: no memory for %lld rows", (long long)problem->rows_q);
        goto out;
    }
    for (int i = 0; i < TENSOR_COUNT; i++) {
        struct tensor_image *image = &tensors->images[i];
        if (!image->bytes) continue;
        struct fill fill = {.image = image, .deviation = problem->input_scale};
        if (i == OPERAND_DLSE) fill.deviation = 1;
        if (image->output) {
            memset(&fill.pattern, TENSOR_CANARY, sizeof fill.pattern);
        } else if (i < OPERAND_COUNT) {
            fill.live = i == OPERAND_K || i == OPERAND_V ? live_k : live_q;
            fill.key = mix(problem->seed * 31 + (uint64_t)i + 1) << 1;
            fill.pattern = problem->poison == POISON_ZERO ? 0 : poison_bits(problem, image->view.dtype);
        } else {
            // Lengths beyond the end are absurd: very long, or negative.
            memset(&fill.pattern, problem->seed % 2 ? 0x55 : 0xaa, sizeof fill.pattern);
        }
        fill_image(threads, &fill);
        if (i >= OPERAND_COUNT) fill_lengths(problem, i, image);
    }
out:
    free(spans_q);
    free(spans_k);
    free(live_q);
    free(live_k);
    if (status) tensors_free(tensors);
    return status;
}

vf_status tensors_lay(const struct problem *problem, struct tensors *tensors) {
    vf_status status = VF_OK;
    *tensors = (struct tensors){0};
    for (int i = 0; i < TENSOR_COUNT && !status; i++) {
        struct tensor_image *image = &tensors->images[i];
        if (!wanted(problem, i)) continue;
        status = lay(problem, i, image);
        if (!status && i >= OPERAND_COUNT) status = map(image);
        if (!status && i >= OPERAND_COUNT) fill_lengths(problem, i, image);
    }
    if (status) tensors_free(tensors);
    return status;
}

// ---- calls ---------------------------------------------------------------------------------------------------------

vf_tensor tensor_at(const struct tensor_image *image, void *base) {
    vf_tensor tensor = image->view;
    if (tensor.ndim) tensor.data = (unsigned char *)base + image->offset;
    return tensor;
}

static vf_tensor view_of(const struct tensors *tensors, void *const bases[TENSOR_COUNT], int tensor) {
    const struct tensor_image *image = &tensors->images[tensor];
    return bases ? tensor_at(image, bases[tensor]) : image->view;
}

static vf_problem_args shared_args(const struct problem *problem, const struct tensors *tensors,
                                   void *const bases[TENSOR_COUNT]) {
    return (vf_problem_args){.mask = problem->mask,
                             .window_left = problem->window_left,
                             .window_right = problem->window_right,
                             .softmax_scale = problem->softmax_scale,
                             .softcap = problem->softcap,
                             .deterministic = problem->deterministic,
                             .fill = problem->fill,
                             .cu_seqlens_q = view_of(tensors, bases, TENSOR_CU_Q),
                             .cu_seqlens_k = view_of(tensors, bases, TENSOR_CU_K),
                             .seqused_q = view_of(tensors, bases, TENSOR_USED_Q),
                             .seqused_k = view_of(tensors, bases, TENSOR_USED_K),
                             .max_seqlen_q = problem->max_seqlen_q,
                             .max_seqlen_k = problem->max_seqlen_k};
}

void tensors_forward_args(const struct problem *problem, const struct tensors *tensors, void *const bases[TENSOR_COUNT],
                          vf_forward_args *args) {
    *args = (vf_forward_args){.struct_size = sizeof *args,
                              .q = view_of(tensors, bases, OPERAND_Q),
                              .k = view_of(tensors, bases, OPERAND_K),
                              .v = view_of(tensors, bases, OPERAND_V),
                              .o = view_of(tensors, bases, OPERAND_O),
                              .lse = view_of(tensors, bases, OPERAND_LSE),
                              .problem = shared_args(problem, tensors, bases)};
}

void tensors_backward_args(const struct problem *problem, const struct tensors *tensors,
                           void *const bases[TENSOR_COUNT], vf_backward_args *args) {
    *args = (vf_backward_args){.struct_size = sizeof *args,
                               .q = view_of(tensors, bases, OPERAND_Q),
                               .k = view_of(tensors, bases, OPERAND_K),
                               .v = view_of(tensors, bases, OPERAND_V),
                               .o = view_of(tensors, bases, OPERAND_O),
                               .lse = view_of(tensors, bases, OPERAND_LSE),
                               .dout = view_of(tensors, bases, OPERAND_DOUT),
                               .dlse = view_of(tensors, bases, OPERAND_DLSE),
                               .dq = view_of(tensors, bases, OPERAND_DQ),
                               .dk = view_of(tensors, bases, OPERAND_DK),
                               .dv = view_of(tensors, bases, OPERAND_DV),
                               .problem = shared_args(problem, tensors, bases)};
}

// Images side by side in an address space that nobody reads.
static vf_status describe(const struct problem *problem, struct tensors *tensors, void *bases[TENSOR_COUNT]) {
    uintptr_t next = (uintptr_t)1 << 20;
    *tensors = (struct tensors){0};
    for (int i = 0; i < TENSOR_COUNT; i++) {
        bases[i] = NULL;
        if (!wanted(problem, i)) continue;
        VF_TRY(lay(problem, i, &tensors->images[i]));
        bases[i] = (void *)next;
        next += tensors->images[i].size;
    }
    return VF_OK;
}

vf_status tensors_describe_forward(const struct problem *problem, vf_forward_args *args) {
    struct tensors tensors;
    void *bases[TENSOR_COUNT];
    VF_TRY(describe(problem, &tensors, bases));
    tensors_forward_args(problem, &tensors, bases, args);
    return VF_OK;
}

vf_status tensors_describe_backward(const struct problem *problem, vf_backward_args *args) {
    struct tensors tensors;
    void *bases[TENSOR_COUNT];
    VF_TRY(describe(problem, &tensors, bases));
    tensors_backward_args(problem, &tensors, bases, args);
    return VF_OK;
}
