// test_invariance.c - a sequence has the same bits alone and in every batch, also where batches of short and of long
// sequences are served by different rows of the configuration.
//
// One packed batch is the reference; every other batch is a range of its sequences: views of the same tensors, with
// lengths of their own.
#include <stdint.h>

#include "base.h"
#include "gpu.h"

// Alone, the longest sequence is above every average that rows ask for; among the short ones the average is below.
#define LENGTHS_Q "700,1500,1x40,33,5,64x8,0,300,17x20,129,2,511"
#define LENGTHS_K "640,1400,1x20,9x20,70,5,64x8,40,290,30x20,0,65,511"

#define RANDOM_RANGES 24
#define ROWS 16  // configuration rows told apart

struct ranges {
    struct gpu *gpu;
    struct gpu_run whole, part;
    struct problem_span *spans_q, *spans_k;
    void *lengths[2];  // cu_seqlens of the part: q, k
    uint64_t *marks;
    int count;
    char rows[ROWS][128];
    int row_count;
};

static bool key_side(enum problem_operand operand) {
    return operand == OPERAND_K || operand == OPERAND_V || operand == OPERAND_DK || operand == OPERAND_DV;
}

static int64_t rows_between(const struct problem_span *spans, int64_t first, int64_t count) {
    return spans[first + count - 1].row + spans[first + count - 1].slot - spans[first].row;
}

// The part of an operand that holds sequences first ... first + count - 1.
static vf_tensor cut(const struct ranges *ranges, const struct gpu_run *run, enum problem_operand operand,
                     int64_t first, int64_t count) {
    const struct tensor_image *image = &ranges->gpu->harness.host.images[operand];
    const struct problem_span *spans = key_side(operand) ? ranges->spans_k : ranges->spans_q;
    const bool statistic = operand == OPERAND_LSE || operand == OPERAND_DLSE;
    vf_tensor tensor = gpu_run_operand(run, operand);
    tensor.data = (char *)tensor.data + tensor_offset(image, 0, spans[first].row, 0) * (int64_t)image->element;
    tensor.shape[statistic] = rows_between(spans, first, count);
    return tensor;
}

static vf_tensor upload_lengths(const struct ranges *ranges, int side, int64_t first, int64_t count) {
    const struct problem_span *spans = side ? ranges->spans_k : ranges->spans_q;
    int32_t *lengths = malloc(((size_t)count + 1) * sizeof *lengths);
    ck_assert_ptr_nonnull(lengths);
    for (int64_t i = 0; i <= count; i++) lengths[i] = (int32_t)(i ? rows_between(spans, first, i) : 0);
    unit_ok(vf_dev_upload(ranges->gpu->context, ranges->lengths[side], lengths, ((size_t)count + 1) * sizeof *lengths));
    free(lengths);
    return (vf_tensor){
        .data = ranges->lengths[side], .dtype = VF_INT32, .ndim = 1, .shape = {count + 1}, .stride = {1}};
}

// The rows of the configuration that served so far.
static void note_row(struct ranges *ranges) {
    static char text[65536];
    size_t length;
    unit_ok(vf_explain_forward(ranges->gpu->context, &ranges->part.forward, NULL, text, sizeof text, &length));
    char row[128] = "";
    const char *word = strstr(text, "\"row\"");
    if (!word || sscanf(word, "\"row\":%*[ \t]\"%127[^\"]\"", row) != 1) return;
    for (int i = 0; i < ranges->row_count; i++)
        if (!strcmp(ranges->rows[i], row)) return;
    ck_assert_int_lt(ranges->row_count, ROWS);
    memcpy(ranges->rows[ranges->row_count++], row, sizeof row);
}

static void compare(struct ranges *ranges, int64_t first, int64_t count) {
    static const enum problem_operand outputs[] = {OPERAND_O, OPERAND_LSE, OPERAND_DQ, OPERAND_DK, OPERAND_DV};
    struct CUstream_st *stream = ranges->part.forward.problem.stream;
    for (size_t i = 0; i < ARRAY_LENGTH(outputs); i++) {
        const struct tensor_image *image = &ranges->gpu->harness.host.images[outputs[i]];
        const vf_tensor whole = cut(ranges, &ranges->whole, outputs[i], first, count);
        const vf_tensor part = cut(ranges, &ranges->part, outputs[i], first, count);
        const bool lse = outputs[i] == OPERAND_LSE;
        const int64_t rows = part.shape[lse], element = (int64_t)image->element;
        const int64_t width = lse ? rows * element : image->row_stride * element;
        const int64_t pitch = lse ? image->head_stride * element : width;
        probe_compare(&ranges->gpu->probe, (struct probe_rows){whole.data, pitch},
                      (struct probe_rows){part.data, pitch}, width, lse ? image->heads : rows,
                      &ranges->marks[ranges->count * VERIFY_TENSORS + (int)i], stream);
    }
}

static void run_range(struct ranges *ranges, int64_t first, int64_t count) {
    struct gpu_run *part = &ranges->part;
    for (int i = 0; i < OPERAND_COUNT; i++)
        if (ranges->gpu->harness.host.images[i].bytes)
            gpu_run_set_operand(part, (enum problem_operand)i,
                                cut(ranges, part, (enum problem_operand)i, first, count));
    vf_problem_args *const both[] = {&part->forward.problem, &part->backward.problem};
    for (int i = 0; i < 2; i++) {
        both[i]->cu_seqlens_q = upload_lengths(ranges, 0, first, count);
        both[i]->cu_seqlens_k = upload_lengths(ranges, 1, first, count);
    }
    note_row(ranges);
    gpu_run_both(part);
    compare(ranges, first, count);
    ranges->count++;
}

// Both sides of a batch need rows: a range without any is nothing to launch.
static void run_ranges(struct ranges *ranges) {
    const int64_t batch = ranges->gpu->problem.batch;
    uint64_t random = 0x9e3779b97f4a7c15u;
    for (int64_t b = 0; b < batch; b += b % 5 == 4 ? 3 : 1) run_range(ranges, b, 1);
    for (int i = 0; i < RANDOM_RANGES; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const int64_t first = (int64_t)(random >> 33) % batch;
        random = random * 6364136223846793005u + 1442695040888963407u;
        run_range(ranges, first, 1 + (int64_t)(random >> 33) % (batch - first));
    }
}

// `rows` becomes the number of configuration rows that the batches found.
static void invariance(struct gpu *gpu, int *rows) {
    struct ranges ranges = {.gpu = gpu};
    gpu_verify(gpu);
    unit_ok(problem_spans(&gpu->problem, &ranges.spans_q, &ranges.spans_k));
    gpu_run_create(gpu, &ranges.whole);
    gpu_run_create(gpu, &ranges.part);
    for (int i = 0; i < 2; i++)
        unit_ok(vf_dev_alloc(gpu->context, GPU_DEVICE, ((size_t)gpu->problem.batch + 1) * 4, &ranges.lengths[i]));
    const int most = (int)gpu->problem.batch + RANDOM_RANGES;
    ranges.marks = gpu_marks_create(gpu, most);
    gpu_run_both(&ranges.whole);
    run_ranges(&ranges);
    gpu_marks_judge(gpu, ranges.marks, most, "in another batch");
    for (int i = 0; i < 2; i++) unit_ok(vf_dev_free(gpu->context, ranges.lengths[i]));
    gpu_run_free(&ranges.whole);
    gpu_run_free(&ranges.part);
    free(ranges.spans_q);
    free(ranges.spans_k);
    if (!*rows) *rows = ranges.row_count;
}

static int invariance_of(const char *flags) {
    char text[512];
    struct gpu gpu;
    int rows = 0;
    snprintf(text, sizeof text, "--seqlens-q " LENGTHS_Q " --seqlens-k " LENGTHS_K " --deterministic --backward %s",
             flags);
    gpu_open(&gpu, text);
    GPU_EACH_FAMILY(&gpu, invariance(&gpu, &rows));
    gpu_close(&gpu);
    return rows;
}

START_TEST(dim_64) {
    // The defaults have a row for short sequences here: without it this test tests nothing.
    ck_assert_int_ge(invariance_of("--name d64 --heads-q 4"), 2);
}
END_TEST

START_TEST(dim_128_causal_grouped) {
    ck_assert_int_ge(invariance_of("--name d128-causal-gqa --heads-q 8 --heads-k 2 --head-dim 128 --causal"), 2);
}
END_TEST

START_TEST(dim_128_window) {
    invariance_of("--name d128-window --heads-q 4 --head-dim 128 --window 100,20 --dtype fp16 --dlse");
}
END_TEST

START_TEST(dim_256) {
    invariance_of("--name d256 --heads-q 2 --heads-k 1 --head-dim 256");
}
END_TEST

START_TEST(dim_72_softcap) {
    invariance_of("--name d72-softcap --heads-q 2 --head-dim 72 --causal --softcap 10");
}
END_TEST

GPU_MAIN("invariance", 120, dim_64, dim_128_causal_grouped, dim_128_window, dim_256, dim_72_softcap)
