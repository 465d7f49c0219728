// test_streams.c - streams, captures and graphs: work happens on the caller's stream and nowhere else, a captured launch
// reads the lengths when it is replayed, and other lengths never compile anything.
#include <pthread.h>
#include <stdint.h>

#include "base.h"
#include "gpu.h"

#define ROWS_Q 600
#define ROWS_K 640
#define BATCH 4
#define PROBLEM                                                                                                      \
    "--seqlens-q 300,0,129,64 --seqlens-k 280,77,130,64 --rows-q 600 --rows-k 640 --heads-q 4 --heads-k 2 --causal " \
    "--deterministic --backward "
static const char narrow[] = "--name d64 " PROBLEM, wide[] = "--name d128 --head-dim 128 " PROBLEM;

#define LEGACY ((struct CUstream_st *)(uintptr_t)1)
#define PER_THREAD ((struct CUstream_st *)(uintptr_t)2)

#define EACH_FAMILY(name, text, body)      \
    START_TEST(name) {                     \
        struct gpu gpu;                    \
        gpu_open(&gpu, text);              \
        GPU_EACH_FAMILY(&gpu, body(&gpu)); \
        gpu_close(&gpu);                   \
    }                                      \
    END_TEST

// Synchronises the device: a null stream means something only where a context is current.
static void wait(struct gpu *gpu) {
    unit_ok(vf_dev_synchronize(gpu->context, GPU_DEVICE));
}

// ---- order within a stream -----------------------------------------------------------------------------------------

#define DELAY_BYTES ((size_t)512 << 20)
#define DELAYS 24  // a few milliseconds: longer than a launch takes

static const enum problem_operand inputs[] = {OPERAND_Q, OPERAND_K, OPERAND_V, OPERAND_DOUT};

// The inputs become right on `stream` after a delay and wrong again behind the call. Whoever runs anywhere else, or does
// not wait for what comes before, reads NaN.
static void in_order(struct gpu *gpu, const struct gpu_run *expected, struct CUstream_st *stream, uint64_t *marks,
                     int run) {
    struct gpu_run here;
    void *saved[ARRAY_LENGTH(inputs)], *delay;
    gpu_run_create(gpu, &here);
    gpu_run_stream(&here, stream);
    unit_ok(vf_dev_alloc(gpu->context, GPU_DEVICE, DELAY_BYTES, &delay));
    for (size_t i = 0; i < ARRAY_LENGTH(inputs); i++) {
        const size_t size = gpu->harness.host.images[inputs[i]].size;
        unit_ok(vf_dev_alloc(gpu->context, GPU_DEVICE, size, &saved[i]));
        unit_ok(vf_dev_copy(gpu->context, saved[i], gpu->harness.bases[inputs[i]], size, NULL));
        unit_ok(vf_dev_set(gpu->context, gpu->harness.bases[inputs[i]], TENSOR_CANARY, size, NULL));
    }
    wait(gpu);
    for (int i = 0; i < DELAYS; i++) unit_ok(vf_dev_set(gpu->context, delay, i, DELAY_BYTES, stream));
    for (size_t i = 0; i < ARRAY_LENGTH(inputs); i++)
        unit_ok(vf_dev_copy(gpu->context, gpu->harness.bases[inputs[i]], saved[i],
                            gpu->harness.host.images[inputs[i]].size, stream));
    gpu_run_both(&here);
    gpu_compare(expected, &here, marks, run);
    for (size_t i = 0; i < ARRAY_LENGTH(inputs); i++)
        unit_ok(vf_dev_set(gpu->context, gpu->harness.bases[inputs[i]], TENSOR_CANARY,
                           gpu->harness.host.images[inputs[i]].size, stream));
    wait(gpu);
    for (size_t i = 0; i < ARRAY_LENGTH(inputs); i++) {
        unit_ok(vf_dev_copy(gpu->context, gpu->harness.bases[inputs[i]], saved[i],
                            gpu->harness.host.images[inputs[i]].size, NULL));
        wait(gpu);
        unit_ok(vf_dev_free(gpu->context, saved[i]));
    }
    unit_ok(vf_dev_free(gpu->context, delay));
    gpu_run_free(&here);
}

static void order(struct gpu *gpu) {
    struct gpu_run expected;
    struct CUstream_st *stream;
    unit_ok(vf_dev_stream_create(gpu->context, GPU_DEVICE, &stream));
    struct CUstream_st *const streams[] = {stream, NULL, LEGACY, PER_THREAD};
    gpu_verify(gpu);
    gpu_run_create(gpu, &expected);
    gpu_run_both(&expected);
    wait(gpu);
    uint64_t *marks = gpu_marks_create(gpu, ARRAY_LENGTH(streams));
    for (int i = 0; i < (int)ARRAY_LENGTH(streams); i++) in_order(gpu, &expected, streams[i], marks, i);
    gpu_marks_judge(gpu, marks, ARRAY_LENGTH(streams), "on its own, default, legacy, per-thread stream");
    unit_ok(vf_dev_stream_destroy(gpu->context, stream));
    gpu_run_free(&expected);
}

EACH_FAMILY(order_of_dim_64, narrow, order)
EACH_FAMILY(order_of_dim_128, wide, order)

// ---- several threads -----------------------------------------------------------------------------------------------

#define THREADS 4
#define THREAD_RUNS 100

struct worker {
    struct gpu_run run;
    const struct gpu_run *expected;
    uint64_t *marks;
    pthread_t thread;
};

static void *work(void *user) {
    struct worker *worker = user;
    for (int run = 0; run < THREAD_RUNS; run++) {
        gpu_run_both(&worker->run);
        gpu_compare(worker->expected, &worker->run, worker->marks, run);
    }
    return NULL;
}

// One context, one stream a thread (the last two use their own per-thread streams), all at once.
static void threads(struct gpu *gpu) {
    struct gpu_run expected;
    struct worker workers[THREADS];
    gpu_run_create(gpu, &expected);
    gpu_run_both(&expected);
    wait(gpu);
    for (int i = 0; i < THREADS; i++) {
        struct CUstream_st *stream = PER_THREAD;
        gpu_run_create(gpu, &workers[i].run);
        if (i < THREADS / 2) unit_ok(vf_dev_stream_create(gpu->context, GPU_DEVICE, &stream));
        gpu_run_stream(&workers[i].run, stream);
        workers[i].expected = &expected;
        workers[i].marks = gpu_marks_create(gpu, THREAD_RUNS);
    }
    for (int i = 0; i < THREADS; i++) ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    for (int i = 0; i < THREADS; i++) ck_assert_int_eq(pthread_join(workers[i].thread, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        gpu_marks_judge(gpu, workers[i].marks, THREAD_RUNS, "beside other threads");
        if (i < THREADS / 2) unit_ok(vf_dev_stream_destroy(gpu->context, workers[i].run.forward.problem.stream));
        gpu_run_free(&workers[i].run);
    }
    gpu_run_free(&expected);
}

START_TEST(threads_share_a_context) {
    struct gpu gpu;
    gpu_open(&gpu, narrow);
    threads(&gpu);
    gpu_close(&gpu);
}
END_TEST

// ---- captures ------------------------------------------------------------------------------------------------------

// A kernel that is not loaded cannot be while a stream is captured; the capture takes other work, then and later.
START_TEST(first_use_in_a_capture) {
    struct gpu gpu;
    struct gpu_run captured, direct;
    struct CUstream_st *stream;
    vf_dev_graph *graph;
    gpu_open(&gpu, narrow);
    gpu_run_create(&gpu, &captured);
    gpu_run_create(&gpu, &direct);
    unit_ok(vf_dev_stream_create(gpu.context, GPU_DEVICE, &stream));
    gpu_run_stream(&captured, stream);

    unit_ok(vf_dev_capture_begin(gpu.context, stream));
    unit_fails(gpu_run_forward(&captured), VF_ERROR_CAPTURE, "vf_prepare");
    unit_fails(gpu_run_backward(&captured), VF_ERROR_CAPTURE, "vf_prepare");
    unit_ok(vf_dev_set(gpu.context, captured.workspace, 0x5a, 256, stream));
    unit_ok(vf_dev_capture_end(gpu.context, stream, &graph));
    unit_ok(vf_dev_graph_launch(graph, stream));
    unsigned char bytes[256];
    gpu_run_wait(&captured);
    unit_ok(vf_dev_download(gpu.context, bytes, captured.workspace, sizeof bytes));
    for (size_t i = 0; i < sizeof bytes; i++) ck_assert_uint_eq(bytes[i], 0x5a);
    vf_dev_graph_destroy(graph);

    unit_ok(vf_prepare_forward(gpu.context, &captured.forward));
    unit_ok(vf_prepare_backward(gpu.context, &captured.backward));
    unit_ok(vf_dev_capture_begin(gpu.context, stream));
    gpu_run_both(&captured);
    unit_ok(vf_dev_capture_end(gpu.context, stream, &graph));
    unit_ok(vf_dev_graph_launch(graph, stream));
    gpu_run_wait(&captured);
    gpu_run_both(&direct);
    wait(&gpu);
    uint64_t *marks = gpu_marks_create(&gpu, 1);
    gpu_compare(&direct, &captured, marks, 0);
    gpu_run_wait(&captured);
    gpu_marks_judge(&gpu, marks, 1, "captured after vf_prepare");

    vf_dev_graph_destroy(graph);
    unit_ok(vf_dev_stream_destroy(gpu.context, stream));
    gpu_run_free(&captured);
    gpu_run_free(&direct);
    gpu_close(&gpu);
}
END_TEST

// Both sides, [BATCH + 1]; what is left of the rows belongs to no sequence.
static const int32_t other_lengths[][2][BATCH + 1] = {
    {{0, 300, 300, 429, 493}, {0, 280, 357, 487, 551}}, {{0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}},
    {{0, 600, 600, 600, 600}, {0, 640, 640, 640, 640}}, {{0, 0, 0, 0, 600}, {0, 0, 0, 0, 640}},
    {{0, 150, 300, 450, 600}, {0, 160, 320, 480, 640}}, {{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}},
    {{0, 599, 599, 600, 600}, {0, 1, 1, 1, 640}},       {{0, 13, 213, 290, 600}, {0, 0, 500, 501, 640}},
    {{0, 64, 128, 192, 256}, {0, 0, 0, 0, 0}},          {{0, 0, 0, 0, 0}, {0, 128, 256, 384, 512}},
};

static void upload_lengths(struct gpu *gpu, const int32_t lengths[2][BATCH + 1]) {
    for (int side = 0; side < 2; side++) {
        const int tensor = side ? TENSOR_CU_K : TENSOR_CU_Q;
        const vf_tensor on_device = tensor_at(&gpu->harness.host.images[tensor], gpu->harness.bases[tensor]);
        unit_ok(vf_dev_upload(gpu->context, on_device.data, lengths[side], sizeof lengths[side]));
    }
}

// Forward and backward in one graph, replayed with other lengths in the same buffers.
static void replay(struct gpu *gpu) {
    struct gpu_run replayed, direct;
    struct CUstream_st *stream;
    vf_dev_graph *graph;
    vf_plan *plan;
    gpu_run_create(gpu, &replayed);
    gpu_run_create(gpu, &direct);
    unit_ok(vf_dev_stream_create(gpu->context, GPU_DEVICE, &stream));
    gpu_run_stream(&replayed, stream);
    gpu_run_stream(&direct, stream);
    gpu_run_both(&direct);  // loads the kernels
    gpu_run_wait(&direct);
    unit_ok(vf_plan_create_backward(gpu->context, &replayed.backward, &plan));

    unit_ok(vf_dev_capture_begin(gpu->context, stream));
    unit_ok(gpu_run_forward(&replayed));
    unit_ok(vf_plan_launch_backward(plan, &replayed.backward));
    unit_ok(vf_dev_capture_end(gpu->context, stream, &graph));

    uint64_t *marks = gpu_marks_create(gpu, ARRAY_LENGTH(other_lengths));
    const vf_dev_counters before = vf_dev_count(gpu->context);
    for (int i = 0; i < (int)ARRAY_LENGTH(other_lengths); i++) {
        upload_lengths(gpu, other_lengths[i]);
        gpu_run_poison(&replayed);
        unit_ok(vf_dev_graph_launch(graph, stream));
        gpu_run_both(&direct);
        gpu_compare(&direct, &replayed, marks, i);
        gpu_run_wait(&replayed);
    }
    const vf_dev_counters after = vf_dev_count(gpu->context);
    ck_assert_uint_eq(after.compiled, before.compiled);
    gpu_marks_judge(gpu, marks, ARRAY_LENGTH(other_lengths), "replayed with other lengths");

    upload_lengths(gpu, other_lengths[0]);
    vf_dev_graph_destroy(graph);
    vf_plan_destroy(plan);
    unit_ok(vf_dev_stream_destroy(gpu->context, stream));
    gpu_run_free(&replayed);
    gpu_run_free(&direct);
}

EACH_FAMILY(replay_of_dim_64, narrow, replay)
EACH_FAMILY(replay_of_dim_128, wide, replay)

// ---- other batches -------------------------------------------------------------------------------------------------

#define BATCHES 10000
#define MOST_SEQUENCES 64

static uint32_t draw(uint64_t *random, uint32_t below) {
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*random >> 33) % below;
}

// cu_seqlens of `batch` sequences that use at most `rows` rows; returns how many.
static int32_t draw_lengths(uint64_t *random, int batch, int32_t rows, int32_t cu[MOST_SEQUENCES + 1]) {
    cu[0] = 0;
    for (int i = 0; i < batch; i++) {
        const int32_t left = rows - cu[i], most = draw(random, 8) ? left / (batch - i) : left;
        cu[i + 1] = cu[i] + (int32_t)draw(random, (uint32_t)most + 1);
    }
    return cu[batch];
}

static void set_batch(struct gpu_run *run, void *const lengths[2], int batch, int32_t rows_q, int32_t rows_k,
                      double scale) {
    for (int i = 0; i < OPERAND_COUNT; i++) {
        vf_tensor tensor = gpu_run_operand(run, (enum problem_operand)i);
        const bool key_side = i == OPERAND_K || i == OPERAND_V || i == OPERAND_DK || i == OPERAND_DV;
        if (!tensor.ndim) continue;
        tensor.shape[i == OPERAND_LSE] = key_side ? rows_k : rows_q;
        gpu_run_set_operand(run, (enum problem_operand)i, tensor);
    }
    vf_problem_args *const both[] = {&run->forward.problem, &run->backward.problem};
    for (int i = 0; i < 2; i++) {
        both[i]->softmax_scale = scale;
        both[i]->cu_seqlens_q =
            (vf_tensor){.data = lengths[0], .dtype = VF_INT32, .ndim = 1, .shape = {batch + 1}, .stride = {1}};
        both[i]->cu_seqlens_k = both[i]->cu_seqlens_q;
        both[i]->cu_seqlens_k.data = lengths[1];
    }
}

// Ten thousand batches: other counts, lengths, totals and scales. Prepared once, nothing is compiled or loaded again.
START_TEST(other_batches_compile_nothing) {
    struct gpu gpu;
    struct gpu_run run;
    void *lengths[2];
    uint64_t random = 7;
    gpu_open(&gpu, narrow);
    gpu_run_create(&gpu, &run);
    for (int i = 0; i < 2; i++)
        unit_ok(vf_dev_alloc(gpu.context, GPU_DEVICE, (MOST_SEQUENCES + 1) * sizeof(int32_t), &lengths[i]));
    set_batch(&run, lengths, MOST_SEQUENCES, ROWS_Q, ROWS_K, 0);
    size_t size, largest = 0;
    unit_ok(vf_forward_workspace_size(gpu.context, &run.forward, &largest));
    unit_ok(vf_backward_workspace_size(gpu.context, &run.backward, &size));
    if (size > largest) largest = size;
    void *workspace;
    unit_ok(vf_dev_alloc(gpu.context, GPU_DEVICE, largest, &workspace));
    run.forward.problem.workspace = run.backward.problem.workspace = workspace;
    run.forward.problem.workspace_size = run.backward.problem.workspace_size = largest;
    unit_ok(vf_prepare_forward(gpu.context, &run.forward));
    unit_ok(vf_prepare_backward(gpu.context, &run.backward));
    const vf_dev_counters before = vf_dev_count(gpu.context);
    for (int i = 0; i < BATCHES; i++) {
        int32_t cu[2][MOST_SEQUENCES + 1];
        const int batch = 1 + (int)draw(&random, MOST_SEQUENCES);
        const int32_t used_q = draw_lengths(&random, batch, ROWS_Q, cu[0]);
        const int32_t used_k = draw_lengths(&random, batch, ROWS_K, cu[1]);
        const int32_t rows_q = used_q + (int32_t)draw(&random, (uint32_t)(ROWS_Q - used_q) + 1);
        const int32_t rows_k = used_k + (int32_t)draw(&random, (uint32_t)(ROWS_K - used_k) + 1);
        for (int side = 0; side < 2; side++)
            unit_ok(vf_dev_upload(gpu.context, lengths[side], cu[side], ((size_t)batch + 1) * sizeof cu[0][0]));
        set_batch(&run, lengths, batch, rows_q, rows_k, 0.01 * (1 + draw(&random, 100)));
        unit_ok(gpu_run_forward(&run));
        unit_ok(gpu_run_backward(&run));
    }
    wait(&gpu);
    const vf_dev_counters after = vf_dev_count(gpu.context);
    ck_assert_uint_eq(after.compiled, before.compiled);
    ck_assert_uint_eq(after.from_cache, before.from_cache);
    ck_assert_uint_gt(after.launched, before.launched);
    unit_ok(vf_dev_free(gpu.context, workspace));
    for (int i = 0; i < 2; i++) unit_ok(vf_dev_free(gpu.context, lengths[i]));
    gpu_run_free(&run);
    gpu_close(&gpu);
}
END_TEST

GPU_MAIN("streams", 90, order_of_dim_64, order_of_dim_128, threads_share_a_context, first_use_in_a_capture,
         replay_of_dim_64, replay_of_dim_128, other_batches_compile_nothing)
