// test_repeat.c - the same bits a thousand times, with another stream keeping the memory busy: the forward always, the
// backward where it is deterministic. The first run is judged against the oracle.
#include "gpu.h"

#define RUNS 1000

static void repeat(struct gpu *gpu) {
    struct gpu_run first, again;
    gpu_verify(gpu);
    gpu_run_create(gpu, &first);
    gpu_run_create(gpu, &again);
    struct CUstream_st *stream;
    unit_ok(vf_dev_stream_create(gpu->context, GPU_DEVICE, &stream));
    gpu_run_stream(&first, stream);
    gpu_run_stream(&again, stream);
    uint64_t *marks = gpu_marks_create(gpu, RUNS);
    gpu_run_both(&first);
    struct gpu_traffic *traffic = gpu_traffic_start(gpu);
    for (int run = 0; run < RUNS; run++) {
        gpu_run_both(&again);
        gpu_compare(&first, &again, marks, run);
    }
    gpu_run_wait(&again);
    gpu_traffic_stop(traffic);
    gpu_marks_judge(gpu, marks, RUNS, "repeated");
    unit_ok(vf_dev_stream_destroy(gpu->context, stream));
    gpu_run_free(&first);
    gpu_run_free(&again);
}

#define REPEAT(name, text)                   \
    START_TEST(name) {                       \
        struct gpu gpu;                      \
        gpu_open(&gpu, text);                \
        GPU_EACH_FAMILY(&gpu, repeat(&gpu)); \
        gpu_close(&gpu);                     \
    }                                        \
    END_TEST

REPEAT(empty, "E1")
REPEAT(empty_causal, "E1-causal")
REPEAT(empty_deterministic, "E1-deterministic")
REPEAT(image_text_8_heads, "M5-8")
REPEAT(image_text_20_heads, "M5-20")
REPEAT(batched_12_heads, "R1-h12")
REPEAT(batched_8_heads, "R1-h8")
REPEAT(window, "R1-window")
REPEAT(grouped, "R1-gqa")
REPEAT(dim_256, "R1-d256")
REPEAT(varlen,
       "--name R1-varlen --seqlens-q 1,700,0,33x40,129,4x60,513 --seqlens-k 300,650,7,40x40,0,1x60,513 --heads-q 6 "
       "--heads-k 3 --head-dim 128 --deterministic --dlse --backward")
REPEAT(varlen_dim_72,
       "--name R1-varlen-d72 --seqlens-q 700,33x40,129,513 --heads-q 4 --head-dim 72 --causal --softcap 10 "
       "--deterministic --backward")

GPU_MAIN("repeat", 120, empty, empty_causal, empty_deterministic, image_text_8_heads, image_text_20_heads,
         batched_12_heads, batched_8_heads, window, grouped, dim_256, varlen, varlen_dim_72)
