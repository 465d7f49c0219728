// bench_host.c - `varflash bench --host`: what a call costs the host, next to bare launches of the same kernels.
//
// The bare launches are the call's own: the context gets a driver table whose cuLaunchKernelEx keeps what one call launches, and
// later launches it again without the library. Calls come in groups that the driver's queue takes without blocking.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "command.h"
#include "cuda_api.h"
#include "kernel_args.h"
#include "output.h"
#include "varflash/varflash_dev.h"

#define GROUPS 201
#define GROUP_CALLS 50
#define DEFAULT_LENGTHS "16x4"

// ---- recording -------------------------------------------------------------------------------------------------------

union parameters {  // the largest of what kernels take
    struct kernel_schedule_args schedule;
    struct kernel_forward_args forward;
    struct kernel_backward_pre_args pre;
    struct kernel_backward_args backward;
    struct kernel_backward_post_args post;
};

struct launch {
    struct cuda_launch_config config;
    struct cuda_launch_attribute attributes[4];
    CUfunction function;
    union parameters parameters;
};

// Sizes in launch order, ORDER launches: fwd, bwd.
static const size_t forward_sizes[] = {sizeof(struct kernel_schedule_args), sizeof(struct kernel_forward_args)};
static const size_t backward_sizes[] = {sizeof(struct kernel_schedule_args), sizeof(struct kernel_backward_pre_args),
                                        sizeof(struct kernel_backward_args), sizeof(struct kernel_backward_post_args)};

static struct {
    struct cuda_api driver;  // the real one
    CUcontext context;       // in which the launches were made
    const size_t *sizes;     // null: not recording
    size_t size_count, count;
    struct launch launches[4];
} record;

static int record_launch(const struct cuda_launch_config *config, CUfunction function, void **parameters,
                         void **extra) {
    if (record.sizes && record.count < record.size_count && config->attribute_count <= 4) {
        struct launch *launch = &record.launches[record.count];
        launch->config = *config;
        launch->function = function;
        if (config->attribute_count)
            memcpy(launch->attributes, config->attributes, config->attribute_count * sizeof(*launch->attributes));
        launch->config.attributes = launch->attributes;
        memcpy(&launch->parameters, parameters[0], record.sizes[record.count]);
        record.driver.cuCtxGetCurrent(&record.context);
        record.count++;
    }
    return record.driver.cuLaunchKernelEx(config, function, parameters, extra);
}

static vf_status launch_again(const struct bench_pass *pass) {
    (void)pass;
    for (size_t i = 0; i < record.count; i++) {
        void *parameters[] = {&record.launches[i].parameters};
        const int result =
            record.driver.cuLaunchKernelEx(&record.launches[i].config, record.launches[i].function, parameters, NULL);
        if (result) return cuda_check(&record.driver, result, "cuLaunchKernelEx");
    }
    return VF_OK;
}

// ---- timing ----------------------------------------------------------------------------------------------------------

static vf_status call(const struct bench_pass *pass) {
    return pass->backward ? vf_backward(pass->harness->context, &pass->back)
                          : vf_forward(pass->harness->context, &pass->forward);
}

static vf_status time_calls(const struct bench_pass *pass, vf_status (*one)(const struct bench_pass *),
                            double *microseconds) {
    double times[GROUPS];
    for (int group = 0; group < GROUPS; group++) {
        vf_status status = vf_dev_synchronize(pass->harness->context, pass->harness->device);
        const double start = output_seconds();
        for (int i = 0; !status && i < GROUP_CALLS; i++) status = one(pass);
        times[group] = 1e6 * (output_seconds() - start) / GROUP_CALLS;
        if (status) return status;
    }
    *microseconds = bench_median(times, GROUPS);
    return vf_dev_synchronize(pass->harness->context, pass->harness->device);
}

static void print(const struct options *options, const struct bench_pass *pass, const double times[3]) {
    const char *name = pass->backward ? "backward" : "forward";
    if (options->json) {
        cJSON *json = cJSON_CreateObject();
        cJSON_AddStringToObject(json, "pass", name);
        cJSON_AddNumberToObject(json, "kernels", (double)record.count);
        cJSON_AddNumberToObject(json, "bare_us", times[0]);
        cJSON_AddNumberToObject(json, "plan_us", times[1]);
        cJSON_AddNumberToObject(json, "call_us", times[2]);
        output_json(json, true);
        return;
    }
    printf("%-8s  %zu bare launches %6.2f us   plan %6.2f us (%+.2f)   vf_%s %6.2f us (%+.2f)\n", name, record.count,
           times[0], times[1], times[1] - times[0], name, times[2], times[2] - times[0]);
}

static vf_status bench_pass(const struct options *options, struct harness *harness, bool backward) {
    struct bench_pass pass;
    double times[3];
    record.sizes = backward ? backward_sizes : forward_sizes;
    record.size_count = backward ? 4 : 2;
    record.count = 0;
    vf_status status = bench_open(harness, backward, &pass);
    record.sizes = NULL;
    if (!status)
        status = cuda_check(&record.driver, record.driver.cuCtxPushCurrent(record.context), "cuCtxPushCurrent");
    if (!status) {
        status = time_calls(&pass, launch_again, &times[0]);
        CUcontext popped;
        record.driver.cuCtxPopCurrent(&popped);
    }
    if (!status) status = time_calls(&pass, bench_launch, &times[1]);
    if (!status) status = time_calls(&pass, call, &times[2]);
    if (!status) print(options, &pass, times);
    bench_close(&pass);
    return status;
}

int bench_host(const struct options *options) {
    struct problem problem;
    struct harness harness = {0};
    vf_context *context = NULL;
    if (options->backend == VF_BACKEND_CPU) {
        output_error("bench: --host measures launches, which the CPU backend has none of");
        return CODE_USAGE;
    }
    int code = command_one_problem(options, DEFAULT_LENGTHS, &problem);
    if (code) return code;
    vf_options library = command_library_options(options);
    library.backend = VF_BACKEND_CUDA;
    vf_status status = cuda_open(&record.driver);
    if (!status) {
        struct cuda_api table = record.driver;
        table.cuLaunchKernelEx = record_launch;
        static struct cuda_api recording;
        recording = table;
        status = vf_dev_open_with_api(&library, &recording, NULL, &context);
    }
    if (!status) status = harness_create(context, &problem, (int)options->device, 0, &harness);
    for (int backward = 0; !status && backward <= problem.backward; backward++)
        status = bench_pass(options, &harness, backward);
    if (status) code = command_failed(status);
    harness_free(&harness);
    vf_close(context);
    cuda_close(&record.driver);
    problem_free(&problem);
    return code;
}
