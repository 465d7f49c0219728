// traffic.c - the stream that keeps the memory busy while others compute; see gpu.h.
#include <pthread.h>
#include <stdatomic.h>

#include "gpu.h"

#define BUFFER_BYTES ((size_t)256 << 20)
#define ROUND 8  // copies and fills in flight

struct gpu_traffic {
    vf_context *context;
    pthread_t thread;
    struct CUstream_st *stream;
    void *buffers[2];
    atomic_bool stop;
    atomic_int rounds;
    vf_status status;
};

static void *run(void *user) {
    struct gpu_traffic *traffic = user;
    vf_status status = VF_OK;
    while (!atomic_load(&traffic->stop) && !status) {
        for (int i = 0; i < ROUND && !status; i++) {
            status = vf_dev_copy(traffic->context, traffic->buffers[i % 2], traffic->buffers[1 - i % 2], BUFFER_BYTES,
                                 traffic->stream);
            if (!status)
                status = vf_dev_set(traffic->context, traffic->buffers[i % 2], i, BUFFER_BYTES, traffic->stream);
        }
        if (!status) status = vf_dev_stream_synchronize(traffic->context, traffic->stream);
        atomic_fetch_add(&traffic->rounds, 1);
    }
    traffic->status = status;
    return NULL;
}

struct gpu_traffic *gpu_traffic_start(struct gpu *gpu) {
    struct gpu_traffic *traffic = calloc(1, sizeof *traffic);
    ck_assert_ptr_nonnull(traffic);
    traffic->context = gpu->context;
    for (int i = 0; i < 2; i++) unit_ok(vf_dev_alloc(gpu->context, GPU_DEVICE, BUFFER_BYTES, &traffic->buffers[i]));
    unit_ok(vf_dev_stream_create(gpu->context, GPU_DEVICE, &traffic->stream));
    ck_assert_int_eq(pthread_create(&traffic->thread, NULL, run, traffic), 0);
    return traffic;
}

void gpu_traffic_stop(struct gpu_traffic *traffic) {
    atomic_store(&traffic->stop, true);
    ck_assert_int_eq(pthread_join(traffic->thread, NULL), 0);
    ck_assert_int_eq(traffic->status, VF_OK);
    ck_assert_int_gt(atomic_load(&traffic->rounds), 0);
    unit_ok(vf_dev_stream_destroy(traffic->context, traffic->stream));
    for (int i = 0; i < 2; i++) unit_ok(vf_dev_free(traffic->context, traffic->buffers[i]));
    free(traffic);
}
