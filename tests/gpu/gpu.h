// gpu.h - what GPU tests start from: a problem in device memory, runs of it on any stream with outputs of their own, bit
// by bit comparisons, a stream that keeps the memory busy.
//
// Everything here asserts: a failure of the machinery is a failure of the test. Each test is a process of its own (Check
// forks) with a time limit, so that a kernel that never ends is a failure and not the end of all tests.
#ifndef VF_GPU_H
#define VF_GPU_H

#include "harness.h"
#include "probe.h"
#include "unit.h"
#include "varflash/varflash_dev.h"
#include "verify.h"

#define GPU_DEVICE 0

// The body of main: the tests, or exit status 77 and a sentence where there is no device. `seconds`: the limit of each.
int gpu_main(const char *name, const TTest *const tests[], size_t count, int seconds);

#define GPU_MAIN(name, seconds, ...)                                           \
    int main(void) {                                                           \
        const TTest *const tests[] = {__VA_ARGS__};                            \
        return gpu_main(name, tests, sizeof tests / sizeof tests[0], seconds); \
    }

// ---- a problem -----------------------------------------------------------------------------------------------------

struct gpu {
    vf_context *context;
    struct problem problem;
    struct harness harness;  // inputs
    struct probe probe;
};

// `text`: flags of a problem, or the name of one in the suite "faults". Its data lies on the device.
void gpu_open(struct gpu *gpu, const char *text);
void gpu_close(struct gpu *gpu);

// Against the oracle, with the knobs in force.
void gpu_verify(struct gpu *gpu);

// The kernels a problem is run with: those that rows choose, and of each other family that can serve it one variant.
struct gpu_family {
    char name[24];
    char *knobs[2];  // forward, backward; null: rows
};
#define GPU_FAMILIES 8
int gpu_families(struct gpu *gpu, struct gpu_family families[GPU_FAMILIES]);
void gpu_families_free(struct gpu_family *families, int count);
void gpu_use(struct gpu *gpu, const struct gpu_family *family);

// Runs `statement` once with each.
#define GPU_EACH_FAMILY(gpu, statement)                               \
    do {                                                              \
        struct gpu_family families_[GPU_FAMILIES];                    \
        const int families_count_ = gpu_families((gpu), families_);   \
        for (int family_ = 0; family_ < families_count_; family_++) { \
            gpu_use((gpu), &families_[family_]);                      \
            statement;                                                \
        }                                                             \
        gpu_use((gpu), &families_[0]);                                \
        gpu_families_free(families_, families_count_);                \
    } while (0)

// ---- runs of it ----------------------------------------------------------------------------------------------------

// Arguments that a test may change before it runs them. Inputs are those of the problem; outputs and workspace its own.
struct gpu_run {
    struct gpu *gpu;
    vf_forward_args forward;
    vf_backward_args backward;
    void *bases[TENSOR_COUNT];
    void *workspace;
};

// After gpu_use, which decides about the workspace.
void gpu_run_create(struct gpu *gpu, struct gpu_run *run);
void gpu_run_free(struct gpu_run *run);

void gpu_run_stream(struct gpu_run *run, struct CUstream_st *stream);
vf_tensor gpu_run_operand(const struct gpu_run *run, enum problem_operand operand);
void gpu_run_set_operand(struct gpu_run *run, enum problem_operand operand, vf_tensor tensor);

// Asynchronous, on the run's stream: outputs and workspace become canaries; the passes.
void gpu_run_poison(struct gpu_run *run);
vf_status gpu_run_forward(struct gpu_run *run);
vf_status gpu_run_backward(struct gpu_run *run);
void gpu_run_both(struct gpu_run *run);  // poison, forward and, if the problem has one, backward
void gpu_run_wait(const struct gpu_run *run);

// ---- comparing outputs ---------------------------------------------------------------------------------------------

// A list of PROBE_SAMEs on the device, one for each output of each of `runs` runs.
uint64_t *gpu_marks_create(struct gpu *gpu, int runs);

// Asynchronous, on b's stream: all bytes of the outputs that must be reproducible, canaries included.
void gpu_compare(const struct gpu_run *a, const struct gpu_run *b, uint64_t *marks, int run);

// Waits; asserts that nothing differed; frees the list.
void gpu_marks_judge(struct gpu *gpu, uint64_t *marks, int runs, const char *what);

// ---- traffic -------------------------------------------------------------------------------------------------------

// Copies and fills of large buffers on a stream of its own, from a thread of its own, until stopped.
struct gpu_traffic;
struct gpu_traffic *gpu_traffic_start(struct gpu *gpu);
void gpu_traffic_stop(struct gpu_traffic *traffic);

#endif
