// bench.c - `varflash bench`: how long problems take, sustained. A card slows down under load, so that bursts read too fast: the
// measured calls follow an equally long run of the same calls without a pause. Not a profiler; host costs are in bench_host.c.
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "command.h"
#include "number.h"
#include "output.h"
#include "tensors.h"
#include "varflash/varflash_dev.h"

#define BATCHES 9         // of calls; each gives one time
#define BATCH_CALLS 4096  // at most

struct timing {
    double milliseconds;  // a call: median of the batches
    double spread;        // (slowest - fastest batch) / median
    int64_t calls;        // in a batch
    double times[BATCHES];
};

// ---- one pass --------------------------------------------------------------------------------------------------------

vf_status bench_launch(const struct bench_pass *pass) {
    return pass->backward ? vf_plan_launch_backward(pass->plan, &pass->back)
                          : vf_plan_launch_forward(pass->plan, &pass->forward);
}

vf_status bench_open(struct harness *harness, bool backward, struct bench_pass *pass) {
    *pass = (struct bench_pass){.harness = harness, .backward = backward};
    if (backward)
        tensors_backward_args(harness->problem, &harness->host, harness->bases, &pass->back);
    else
        tensors_forward_args(harness->problem, &harness->host, harness->bases, &pass->forward);
    vf_problem_args *problem = backward ? &pass->back.problem : &pass->forward.problem;
    problem->device = vf_context_backend(harness->context) == VF_BACKEND_CUDA ? harness->device + 1 : 0;
    problem->workspace = harness->workspace + TENSOR_GUARD;
    problem->workspace_size = harness->workspace_size;
    vf_status status = backward ? vf_plan_create_backward(harness->context, &pass->back, &pass->plan)
                                : vf_plan_create_forward(harness->context, &pass->forward, &pass->plan);
    if (!status) status = bench_launch(pass);
    if (!status) status = vf_dev_synchronize(harness->context, harness->device);
    return status;
}

void bench_close(struct bench_pass *pass) {
    vf_plan_destroy(pass->plan);
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, size_t count) {
    qsort(values, count, sizeof(*values), by_value);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

// `batches` times `calls` launches with an event before, between and after; milliseconds of a call for each batch.
static vf_status time_batches(const struct bench_pass *pass, int batches, int64_t calls, double *milliseconds) {
    vf_dev_event *events[BATCHES + 1] = {0};
    vf_context *context = pass->harness->context;
    vf_status status = VF_OK;
    for (int i = 0; !status && i <= batches; i++)
        status = vf_dev_event_create(context, pass->harness->device, &events[i]);
    if (!status) status = vf_dev_event_record(events[0], NULL);
    for (int i = 0; i < batches; i++) {
        for (int64_t call = 0; !status && call < calls; call++) status = bench_launch(pass);
        if (!status) status = vf_dev_event_record(events[i + 1], NULL);
    }
    for (int i = 0; !status && i < batches; i++) {
        status = vf_dev_event_elapsed(events[i], events[i + 1], &milliseconds[i]);
        milliseconds[i] /= (double)calls;
    }
    for (int i = 0; i <= batches; i++) vf_dev_event_destroy(events[i]);
    return status;
}

static vf_status measure(const struct bench_pass *pass, double seconds, struct timing *timing) {
    double estimate, sorted[BATCHES];
    vf_status status = time_batches(pass, 1, 3, &estimate);
    if (status) return status;
    double calls = ceil(1e3 * seconds / BATCHES / fmax(estimate, 1e-4));
    timing->calls = (int64_t)fmin(fmax(calls, 1), BATCH_CALLS);
    // The warm-up takes as long as what is measured, which follows it at once.
    for (int64_t i = 0; !status && i < BATCHES * timing->calls; i++) status = bench_launch(pass);
    if (!status) status = time_batches(pass, BATCHES, timing->calls, timing->times);
    if (status) return status;
    memcpy(sorted, timing->times, sizeof(sorted));
    timing->milliseconds = bench_median(sorted, BATCHES);
    timing->spread = (sorted[BATCHES - 1] - sorted[0]) / timing->milliseconds;
    return VF_OK;
}

// ---- what a call does ------------------------------------------------------------------------------------------------

vf_status bench_bytes(const struct problem *problem, bool backward, double *bytes) {
    struct problem_span *q = NULL, *k = NULL;
    const vf_status status = problem_spans(problem, &q, &k);
    double rows_q = 0, rows_k = 0;
    for (int64_t b = 0; !status && b < problem->batch; b++) {
        rows_q += (double)q[b].used;
        rows_k += (double)k[b].used;
    }
    const double d = (double)problem->head_dim, dv = (double)problem->head_dim_v;
    const double size = (double)number_size(problem->dtype);
    const double q_row = (double)problem->heads_q * size, k_row = (double)problem->heads_k * size;
    *bytes = rows_q * (q_row * (d + dv) + 4.0 * (double)problem->heads_q) + rows_k * k_row * (d + dv);
    if (backward) *bytes += rows_q * q_row * (d + dv) + rows_k * k_row * (d + dv);  // dq dout, dk dv
    free(q);
    free(k);
    return status;
}

// ---- telling ---------------------------------------------------------------------------------------------------------

// Of the device now, or of the CPU backend.
static cJSON *where_json(vf_context *context, int ordinal) {
    cJSON *json = cJSON_CreateObject();
    char driver[COMMAND_VERSION];
    const vf_dev_info *info;
    vf_dev_device device;
    if (vf_dev_info_get(context, &info)) return json;
    if (vf_context_backend(context) == VF_BACKEND_CPU) {
        cJSON_AddStringToObject(json, "device", "CPU");
        cJSON_AddStringToObject(json, "vector_code", info->cpu);
        cJSON_AddNumberToObject(json, "threads", info->cpu_threads);
        return json;
    }
    if (vf_dev_device_get(context, ordinal, &device)) return json;
    cJSON_AddStringToObject(json, "device", device.name);
    cJSON_AddStringToObject(json, "arch", device.arch);
    cJSON_AddStringToObject(json, "driver", command_cuda_version(driver, info->driver_version));
    cJSON_AddNumberToObject(json, "clock_mhz", device.clock_mhz);
    cJSON_AddNumberToObject(json, "clock_max_mhz", device.clock_max_mhz);
    cJSON_AddNumberToObject(json, "memory_clock_mhz", device.memory_clock_mhz);
    cJSON_AddNumberToObject(json, "power_watts", device.power_watts);
    cJSON_AddNumberToObject(json, "temperature", device.temperature);
    return json;
}

static void print_where(vf_context *context, int ordinal) {
    cJSON *json = where_json(context, ordinal);
    const char *comma = "";
    for (const cJSON *item = output_first(json); item; item = item->next) {
        if (cJSON_IsString(item))
            printf("%s%s %s", comma, item->string, item->valuestring);
        else
            printf("%s%s %d", comma, item->string, item->valueint);
        comma = ", ";
    }
    putchar('\n');
    cJSON_Delete(json);
}

static cJSON *make_record(const struct options *options, vf_context *context, const struct problem *problem,
                          bool backward, const struct timing *timing, double bytes) {
    struct buf flags = {0};
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "name", problem->name);
    cJSON_AddStringToObject(json, "pass", backward ? "backward" : "forward");
    cJSON_AddNumberToObject(json, "ms", timing->milliseconds);
    cJSON_AddNumberToObject(json, "spread", timing->spread);
    cJSON_AddNumberToObject(json, "batches", BATCHES);
    cJSON_AddNumberToObject(json, "calls", (double)timing->calls);
    cJSON_AddNumberToObject(json, "tflops", problem_flops(problem, backward) / timing->milliseconds / 1e9);
    cJSON_AddNumberToObject(json, "gbytes", bytes / timing->milliseconds / 1e6);
    cJSON_AddItemToObject(json, "times", cJSON_CreateDoubleArray(timing->times, BATCHES));
    problem_write_flags(problem, &flags);
    cJSON_AddStringToObject(json, "problem", buf_string(&flags));
    cJSON_AddItemToObject(json, "where", where_json(context, (int)options->device));
    buf_free(&flags);
    return json;
}

static double member(const cJSON *json, const char *name) {
    return cJSON_GetObjectItemCaseSensitive(json, name)->valuedouble;
}

static void print_record(const struct options *options, const struct problem *problem, const cJSON *record) {
    if (options->json) {
        output_json(cJSON_Duplicate(record, true), true);
    } else if (!options->quiet) {
        char label[COMMAND_LABEL];
        output_clear();
        printf("%-32s %-8s %10.4f ms  +-%4.1f%%  %7.2f TFLOP/s  %7.1f GB/s\n", command_label(problem, label),
               cJSON_GetObjectItemCaseSensitive(record, "pass")->valuestring, member(record, "ms"),
               50 * member(record, "spread"), member(record, "tflops"), member(record, "gbytes"));
        fflush(stdout);
    }
}

// ---- the verb --------------------------------------------------------------------------------------------------------

// *knobs is what the harness uses until the next time.
static vf_status force_set(const struct options *options, struct harness *harness, bool backward, char **knobs) {
    vf_context *context = harness->context;
    if (!options->set.count || vf_context_backend(context) == VF_BACKEND_CPU) return VF_OK;
    char *request = NULL, *set = command_set(options);
    vf_dev_variant *variant = NULL;
    vf_status status = vf_dev_force(context, NULL, NULL);
    if (!status) status = command_request(context, options, harness->problem, backward, NULL, &request);
    if (!status) status = vf_dev_variant_create(context, request, set, &variant);
    if (!status) {
        free(*knobs);
        *knobs = output_copy(variant->knobs);
        status = harness_force(harness, backward ? NULL : *knobs, backward ? *knobs : NULL);
    }
    vf_dev_variant_free(variant);
    vf_dev_text_free(request);
    free(set);
    return status;
}

static vf_status bench_problem(const struct options *options, vf_context *context, const struct problem *problem,
                               cJSON *records) {
    struct harness harness;
    char *knobs = NULL;
    vf_status status = harness_create_to_time(context, problem, (int)options->device, &harness);
    for (int backward = 0; !status && backward <= (int)problem->backward; backward++) {
        struct bench_pass pass = {0};
        struct timing timing;
        double bytes = 0;
        status = force_set(options, &harness, backward, &knobs);
        if (!status) status = bench_open(&harness, backward, &pass);
        if (!status) status = measure(&pass, options->duration, &timing);
        if (!status) status = bench_bytes(problem, backward, &bytes);
        if (!status) {
            cJSON *record = make_record(options, context, problem, backward, &timing, bytes);
            print_record(options, problem, record);
            cJSON_AddItemToArray(records, record);
        }
        bench_close(&pass);
    }
    harness_free(&harness);
    free(knobs);
    return status;
}

int verb_bench(const struct options *options) {
    struct problem_list list;
    vf_context *context = NULL;
    cJSON *records = NULL;
    char label[COMMAND_LABEL];
    if (options->suite && !strcmp(options->suite, "list")) return command_list_suites(options);
    if (options->host) return bench_host(options);
    if (options->compare) return bench_compare(options);
    int code = command_can_write(options->report);
    if (!code) code = command_problems(options, &list);
    if (code) return code;
    records = cJSON_CreateArray();
    code = command_open(options, &context);
    if (code) goto out;
    if (!options->json) print_where(context, (int)options->device);
    for (size_t i = 0; i < list.count && !command_interrupted(); i++) {
        output_progress("bench", i, list.count);
        const vf_status status = bench_problem(options, context, &list.items[i], records);
        if (!status) continue;
        output_error("%s: %s", command_label(&list.items[i], label), vf_last_error());
        if (!code) code = options_code(status);
    }
    output_progress("bench", list.count, list.count);
    // Clocks and temperature may have changed.
    if (!options->json && vf_context_backend(context) != VF_BACKEND_CPU) print_where(context, (int)options->device);
    if (command_interrupted()) code = CODE_INTERRUPTED;
    if (options->report && cJSON_GetArraySize(records)) {
        const int written = bench_report(options->report, records);
        if (!code) code = written;
    }
out:
    cJSON_Delete(records);
    vf_close(context);
    problem_list_free(&list);
    return code;
}
