// test_wide.c - offsets beyond 2^31 and 2^32, in bytes and in elements: one operand at a time lies scattered over 16 GB,
// and the results have the bits that they have when it is contiguous; what lies between the rows of an output stays.
#include "base.h"
#include "gpu.h"

// Which stride is large.
enum far { FAR_ROWS, FAR_HEADS, FAR_SLOTS };

struct layout {
    enum far far;
    int64_t stride;  // elements
};

#define ELEMENTS_4G ((int64_t)1 << 32)
#define FAR_BYTES (((size_t)17 << 30) + ((size_t)256 << 20))  // 2^32 floats and room for the last row
#define CANARY_ROW ((size_t)1 << 20)

// The memory in which operands lie far apart, all of it canaries between two cases.
struct wide {
    struct gpu *gpu;
    struct gpu_run near, far;
    unsigned char *buffer;  // FAR_BYTES
    void *canaries;         // CANARY_ROW
    uint64_t *first;        // on the device
    size_t used;            // of buffer
};

static bool is_output(const struct gpu *gpu, enum problem_operand operand) {
    return gpu->harness.host.images[operand].output;
}

// The strides of an operand in a layout; slots, rows, heads in this order.
static void strides_of(const struct tensor_image *image, struct layout layout, int64_t strides[3]) {
    strides[0] = layout.far == FAR_SLOTS ? layout.stride : image->slot_stride;
    strides[1] = layout.far == FAR_ROWS ? layout.stride : image->row_stride;
    strides[2] = layout.far == FAR_HEADS ? layout.stride : image->head_stride;
}

// The operand in `buffer`: shape of the contiguous one, other strides.
static vf_tensor far_view(struct wide *wide, enum problem_operand operand, struct layout layout) {
    const struct tensor_image *image = &wide->gpu->harness.host.images[operand];
    const bool statistic = operand == OPERAND_LSE || operand == OPERAND_DLSE;
    int64_t strides[3];
    strides_of(image, layout, strides);
    vf_tensor tensor = gpu_run_operand(&wide->far, operand);
    tensor.data = wide->buffer + wide->used;
    const int first = tensor.ndim - (statistic ? 2 : 3);
    if (first) tensor.stride[0] = strides[0];
    tensor.stride[first + statistic] = strides[1];
    tensor.stride[first + !statistic] = strides[2];
    const int64_t last =
        (image->slots - 1) * strides[0] + (image->rows - 1) * strides[1] + (image->heads - 1) * strides[2] + image->dim;
    wide->used += ((size_t)last * image->element + 255) / 256 * 256;
    ck_assert_uint_le(wide->used, FAR_BYTES);
    return tensor;
}

// Between the operand's place in `buffer` and its contiguous one: there, back, or canaries there.
enum move { SCATTER, GATHER, ERASE };

static void move(struct wide *wide, enum move move, enum problem_operand operand, vf_tensor far, struct layout layout) {
    const struct tensor_image *image = &wide->gpu->harness.host.images[operand];
    const struct probe *probe = &wide->gpu->probe;
    const vf_tensor near = gpu_run_operand(&wide->far, operand);
    const int64_t element = (int64_t)image->element, width = image->dim * element;
    int64_t strides[3];
    strides_of(image, layout, strides);
    for (int64_t slot = 0; slot < image->slots; slot++)
        for (int64_t head = 0; head < image->heads; head++) {
            char *there = (char *)far.data + (slot * strides[0] + head * strides[2]) * element;
            char *here = (char *)near.data + tensor_offset(image, slot, 0, head) * element;
            const int64_t there_pitch = strides[1] * element, here_pitch = image->row_stride * element;
            if (move == GATHER)
                probe_copy(probe, here, here_pitch, (struct probe_rows){there, there_pitch}, width, image->rows, NULL);
            else
                probe_copy(
                    probe, there, there_pitch,
                    move == SCATTER ? (struct probe_rows){here, here_pitch} : (struct probe_rows){wide->canaries, 0},
                    width, image->rows, NULL);
        }
}

// Once the operands were erased from it again, `buffer` holds canaries alone.
static void judge_between(struct wide *wide, const char *what) {
    const struct gpu *gpu = wide->gpu;
    uint64_t first;
    unit_ok(vf_dev_set(gpu->context, wide->first, 0xff, sizeof first, NULL));
    probe_compare(&gpu->probe, (struct probe_rows){wide->buffer, (int64_t)CANARY_ROW},
                  (struct probe_rows){wide->canaries, 0}, (int64_t)CANARY_ROW, (int64_t)(FAR_BYTES / CANARY_ROW),
                  wide->first, NULL);
    unit_ok(vf_dev_download(gpu->context, &first, wide->first, sizeof first));
    ck_assert_msg(first == PROBE_SAME, "%s: %s: written between the rows, first at byte %llu", gpu->problem.name, what,
                  (unsigned long long)first);
}

// One run with some operands in a layout of their own. Far outputs are gathered to where they lie in the other run, so
// that all outputs are compared alike.
static void run_case(struct wide *wide, const enum problem_operand *operands, size_t count, struct layout layout) {
    struct gpu *gpu = wide->gpu;
    vf_tensor views[OPERAND_COUNT];
    char what[64];
    snprintf(what, sizeof what, "%s with a stride of %lld", tensor_names[operands[0]], (long long)layout.stride);
    wide->used = 0;
    for (size_t i = 0; i < count; i++) {
        views[i] = far_view(wide, operands[i], layout);
        gpu_run_set_operand(&wide->far, operands[i], views[i]);
        if (!is_output(gpu, operands[i])) move(wide, SCATTER, operands[i], views[i], layout);
    }
    gpu_run_both(&wide->far);
    for (size_t i = 0; i < count; i++) {
        if (is_output(gpu, operands[i])) move(wide, GATHER, operands[i], views[i], layout);
        move(wide, ERASE, operands[i], views[i], layout);
        gpu_run_set_operand(&wide->far, operands[i], gpu_run_operand(&wide->far, operands[i]));
    }
    uint64_t *marks = gpu_marks_create(gpu, 1);
    gpu_compare(&wide->near, &wide->far, marks, 0);
    gpu_marks_judge(gpu, marks, 1, what);
    judge_between(wide, what);
}

// ---- cases ---------------------------------------------------------------------------------------------------------

struct group {
    enum problem_operand operands[4];
    size_t count;
};

static void wide_open(struct gpu *gpu, struct wide *wide) {
    void *memory;
    *wide = (struct wide){.gpu = gpu};
    gpu_run_create(gpu, &wide->near);
    gpu_run_create(gpu, &wide->far);
    unit_ok(vf_dev_alloc(gpu->context, GPU_DEVICE, FAR_BYTES, &memory));
    wide->buffer = memory;
    unit_ok(vf_dev_alloc(gpu->context, GPU_DEVICE, CANARY_ROW, &wide->canaries));
    wide->first = gpu_marks_create(gpu, 1);
    unit_ok(vf_dev_set(gpu->context, wide->buffer, TENSOR_CANARY, FAR_BYTES, NULL));
    unit_ok(vf_dev_set(gpu->context, wide->canaries, TENSOR_CANARY, CANARY_ROW, NULL));
    gpu_run_both(&wide->near);
}

static void wide_close(struct wide *wide) {
    struct gpu *gpu = wide->gpu;
    unit_ok(vf_dev_free(gpu->context, wide->first));
    unit_ok(vf_dev_free(gpu->context, wide->canaries));
    unit_ok(vf_dev_free(gpu->context, wide->buffer));
    gpu_run_free(&wide->near);
    gpu_run_free(&wide->far);
}

static void groups(struct gpu *gpu, const struct group *groups, size_t count, struct layout layout) {
    struct wide wide;
    wide_open(gpu, &wide);
    for (size_t i = 0; i < count; i++) run_case(&wide, groups[i].operands, groups[i].count, layout);
    wide_close(&wide);
}

static void each_operand(struct gpu *gpu, struct layout layout) {
    struct group each[OPERAND_COUNT];
    size_t count = 0;
    gpu_verify(gpu);
    for (int i = 0; i < OPERAND_COUNT; i++)
        if (gpu->harness.host.images[i].bytes) each[count++] = (struct group){{(enum problem_operand)i}, 1};
    groups(gpu, each, count, layout);
}

// False, visibly, where the device is too small.
static bool has_memory(const struct gpu *gpu, size_t bytes) {
    vf_dev_device device;
    unit_ok(vf_dev_device_get(gpu->context, GPU_DEVICE, &device));
    if (device.memory_free >= bytes) return true;
    char text[128];
    snprintf(text, sizeof text, "%s: needs %zu GB of device memory", gpu->problem.name, bytes >> 30);
    unit_skip(text);
    return false;
}

#define GB ((size_t)1 << 30)

#define FAR_CASE(name, text, gigabytes, body)                              \
    START_TEST(name) {                                                     \
        struct gpu gpu;                                                    \
        gpu_open(&gpu, text);                                              \
        if (has_memory(&gpu, (gigabytes)*GB)) GPU_EACH_FAMILY(&gpu, body); \
        gpu_close(&gpu);                                                   \
    }                                                                      \
    END_TEST

#define SMALL " --head-dim 96 --deterministic --dlse --backward"

// The last row lies 2^32 elements behind the first ...
FAR_CASE(rows, "--name W1-rows --seqlens-q 700,300,0,24 --seqlens-k 650,330,20,24 --heads-q 2" SMALL, 20,
         each_operand(&gpu, ((struct layout){FAR_ROWS, ELEMENTS_4G / 1000 / 8 * 8})))
// ... even within one tile; the last head; the last slot of a batched tensor.
FAR_CASE(rows_of_a_tile, "--name W1-tile --seqlens-q 100 --seqlens-k 102 --heads-q 4 --heads-k 2" SMALL, 20,
         each_operand(&gpu, ((struct layout){FAR_ROWS, ELEMENTS_4G / 96 / 8 * 8})))
FAR_CASE(heads, "--name W1-heads --seqlens-q 200,77 --seqlens-k 150,90 --heads-q 3" SMALL, 20,
         each_operand(&gpu, ((struct layout){FAR_HEADS, ELEMENTS_4G / 2 + 64})))
FAR_CASE(slots, "--name W1-slots --seqlens-q 200x3 --seqlens-k 150x3 --batched --heads-q 2" SMALL, 20,
         each_operand(&gpu, ((struct layout){FAR_SLOTS, ELEMENTS_4G / 2 + 64})))

static const struct group dout_alone[] = {{{OPERAND_DOUT}, 1}};
static const struct group keys[] = {{{OPERAND_K, OPERAND_V}, 2}, {{OPERAND_K, OPERAND_V, OPERAND_DK, OPERAND_DV}, 4}};

FAR_CASE(reported_dout, "--name W1 --seqlens-q 225304,185619 --heads-q 16 --head-dim 96 --deterministic --backward", 50,
         groups(&gpu, dout_alone, ARRAY_LENGTH(dout_alone), ((struct layout){FAR_ROWS, 9728})))
FAR_CASE(reported_keys, "--name W3 --seqlens-q 24000 --head-dim 128 --deterministic --backward", 20,
         groups(&gpu, keys, ARRAY_LENGTH(keys), ((struct layout){FAR_ROWS, 89600})))

GPU_MAIN("wide", 150, rows, rows_of_a_tile, heads, slots, reported_dout, reported_keys)
