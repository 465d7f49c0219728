// test_driver.c - the simulator as a driver: calls, captures and graphs run kernels, programmatic launches, refusals, and that the
// failure of each driver call in a whole check is a status that leaves nothing behind. Results are those of the oracle.
#include "context.h"
#include "driver.h"
#include "harness.h"
#include "module.h"
#include "unit.h"
#include "varflash/varflash_dev.h"
#include "verify.h"

#define CACHE "build/sim-cache"

static vf_context *open_compute(int compute, int fail_at) {
    const struct sim_device device = {.compute = compute,
                                      .multiprocessors = 2,
                                      .fail_at = fail_at,
                                      .quiet = true,
                                      .options = {.seed = 3, .cache = CACHE}};
    const vf_options options = {.backend = VF_BACKEND_CUDA, .cache_dir = CACHE "/library"};
    vf_context *context = NULL;
    sim_driver_reset(&device);
    vf_dev_open_with_api(&options, sim_cuda(), sim_nvrtc(), &context);
    return context;
}

static vf_context *open_simulator(int fail_at) {
    return open_compute(90, fail_at);
}

// Nothing is left, and the driver never had to refuse.
static void close_simulator(vf_context *context) {
    vf_close(context);
    ck_assert_int_eq(stub.libraries, 0);
    ck_assert_int_eq(stub.streams, 0);
    ck_assert_int_eq(stub.graphs, 0);
    ck_assert_int_eq(stub.retained, 0);
    ck_assert_int_eq(stub.depth, 0);
    ck_assert_int_eq(stub.misuses, 0);
    ck_assert_uint_eq(sim_allocated(), 0);
}

static struct problem problem_of(const char *line) {
    struct problem problem;
    unit_ok(problem_from_line(line, &problem));
    return problem;
}

#define SMALL "--seqlens-q 20,0,33 --seqlens-k 40,3,17 --heads-q 2 --heads-k 1 --head-dim 32 --causal --backward"

START_TEST(results_are_the_oracles) {
    vf_context *context = open_simulator(0);
    struct problem problem = problem_of(SMALL);
    struct verify_result result;
    const struct verify_options options = {.threads = 1, .repeat = 2, .checked = true};
    unit_ok(verify_problem(context, &problem, &options, &result));
    ck_assert_msg(result.verdict == VERIFY_RIGHT, "%s", result.sentence);
    ck_assert_uint_gt(sim_get_statistics().launches, 6);
    problem_free(&problem);
    close_simulator(context);
}
END_TEST

// Scores that are a small part of the cap, in both families.
START_TEST(a_cap_far_above_all_scores_is_none) {
    for (int compute = 80; compute <= 90; compute += 10) {
        vf_context *context = open_compute(compute, 0);
        struct problem problem =
            problem_of("--seqlens-q 20,33 --seqlens-k 40,17 --head-dim 32 --softcap 1e9 --backward");
        struct verify_result result;
        const struct verify_options options = {.threads = 1, .repeat = 1};
        unit_ok(verify_problem(context, &problem, &options, &result));
        ck_assert_msg(result.verdict == VERIFY_RIGHT, "%d: %s", compute, result.sentence);
        problem_free(&problem);
        close_simulator(context);
    }
}
END_TEST

// Outputs of a graph's second replay, after they were poisoned, are those of the call that was captured.
START_TEST(graphs_run_again) {
    vf_context *context = open_simulator(0);
    struct problem problem = problem_of(SMALL);
    struct harness harness;
    unit_ok(harness_create(context, &problem, 0, 1, &harness));
    unit_ok(harness_forward(&harness));
    unit_ok(harness_fetch(&harness, false));
    const struct tensor_image *o = &harness.host.images[OPERAND_O];
    unsigned char *expected = malloc(o->size), *found = malloc(o->size);
    memcpy(expected, o->bytes, o->size);

    struct CUstream_st *stream;
    vf_dev_graph *graph;
    vf_forward_args args;
    unit_ok(vf_dev_stream_create(context, 0, &stream));
    tensors_forward_args(&problem, &harness.host, harness.bases, &args);
    args.problem.workspace = harness.workspace + TENSOR_GUARD;
    args.problem.workspace_size = harness.workspace_size;
    args.problem.stream = stream;
    unit_ok(vf_prepare_forward(context, &args));
    unit_ok(harness_reset(&harness, false));
    unit_ok(vf_dev_capture_begin(context, stream));
    unit_ok(vf_forward(context, &args));
    unit_ok(vf_dev_capture_end(context, stream, &graph));
    unit_ok(vf_dev_download(context, found, harness.bases[OPERAND_O], o->size));
    ck_assert_msg(memcmp(found, expected, o->size) != 0, "a captured call ran");
    for (int turn = 0; turn < 2; turn++) {
        unit_ok(harness_reset(&harness, false));
        unit_ok(vf_dev_graph_launch(graph, stream));
        unit_ok(vf_dev_stream_synchronize(context, stream));
        unit_ok(vf_dev_download(context, found, harness.bases[OPERAND_O], o->size));
        ck_assert_mem_eq(found, expected, o->size);
    }
    vf_dev_graph_destroy(graph);
    unit_ok(vf_dev_stream_destroy(context, stream));
    free(expected);
    free(found);
    harness_free(&harness);
    problem_free(&problem);
    close_simulator(context);
}
END_TEST

// What a kernel must not do makes its launch fail, and the sentence says what and where.
START_TEST(a_finding_fails_the_launch) {
    vf_context *context = open_simulator(0);
    struct problem problem = problem_of(SMALL);
    struct harness harness;
    unit_ok(harness_create(context, &problem, 0, 1, &harness));
    // The keys' memory is gone: reading them is out of bounds.
    unit_ok(vf_dev_free(context, harness.bases[OPERAND_K]));
    unit_fails(harness_forward(&harness), VF_ERROR_DRIVER, "CUDA_ERROR_LAUNCH_FAILED");
    ck_assert_ptr_nonnull(strstr(vf_last_error(), "templates/"));
    harness.bases[OPERAND_K] = NULL;
    harness_free(&harness);
    problem_free(&problem);
    close_simulator(context);
}
END_TEST

START_TEST(the_driver_refuses) {
    vf_context *context = open_simulator(0);
    const struct cuda_api *api = sim_cuda();
    void *data;
    char byte = 0;
    unit_ok(vf_dev_alloc(context, 0, 100, &data));
    unit_fails(vf_dev_upload(context, (char *)data + 99, "ab", 2), VF_ERROR_DRIVER, "cuMemcpyHtoDAsync");
    unit_fails(vf_dev_download(context, &byte, (char *)data + 100, 1), VF_ERROR_INVALID_ARGUMENT, "not memory");
    ck_assert_int_eq(stub.misuses, 1);
    stub.misuses = 0;

    // The copy engine's rules: a stride that is no multiple of 16 bytes.
    struct cuda_tensor_map map;
    const uint64_t dimensions[] = {64, 8}, good[] = {128}, bad[] = {130};
    const uint32_t box[] = {64, 8}, steps[] = {1, 1};
    ck_assert_int_eq(api->cuTensorMapEncodeTiled(&map, 6, 2, data, dimensions, good, box, steps, 0, 3, 0, 0), 0);
    ck_assert_int_ne(api->cuTensorMapEncodeTiled(&map, 6, 2, data, dimensions, bad, box, steps, 0, 3, 0, 0), 0);
    ck_assert_int_ne(
        api->cuTensorMapEncodeTiled(&map, 6, 2, (char *)data + 8, dimensions, good, box, steps, 0, 3, 0, 0), 0);
    unit_ok(vf_dev_free(context, data));
    close_simulator(context);
}
END_TEST

// ---- lengths -------------------------------------------------------------------------------------------------------

#define ROWS_Q 70
#define ROWS_K 90

// What cu_seqlens and seqused may hold: often small, else whatever arithmetic might trip over.
static int64_t any_length(uint64_t *state, bool wide) {
    static const int64_t edges[] = {-1,        1,         ROWS_Q,        ROWS_K,        ROWS_K + 1,    INT32_MAX,
                                    INT32_MIN, 1LL << 30, INT64_MAX,     INT64_MIN,     INT64_MIN + 5, 1LL << 32,
                                    0,         64,        INT64_MAX - 9, INT64_MAX / 2, INT64_MIN / 2, 65};
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t roll = *state >> 33;
    const int64_t value =
        roll % 3 ? (int64_t)(roll / 3 % (ROWS_K + 2)) : edges[roll / 3 % (sizeof edges / sizeof *edges)];
    return wide ? value : (int32_t)value;
}

static void upload_length(const struct harness *harness, int tensor, int64_t index, int64_t value) {
    const struct tensor_image *image = &harness->host.images[tensor];
    const int32_t narrow = (int32_t)value;
    const void *from = image->element == 8 ? (const void *)&value : &narrow;
    const size_t at = image->offset + (size_t)index * image->element;
    memcpy(image->bytes + at, from, image->element);
    unit_ok(vf_dev_upload(harness->context, (char *)harness->bases[tensor] + at, from, image->element));
}

// Lengths of any kind: checked mode finds on the device what the host finds, in the same words; unchecked both passes end, and a
// finding of the simulator (memory that is no one's, a hang, a race of sequences that overlap) would fail their launches.
static void try_any_lengths(const struct problem *problem, int compute) {
    const vf_options host_options = {.backend = VF_BACKEND_CPU};
    const struct sim_device device = {
        .compute = compute, .multiprocessors = 2, .quiet = true, .options = {.seed = 5, .cache = CACHE}};
    const vf_options options = {.backend = VF_BACKEND_CUDA, .cache_dir = CACHE "/library"};
    const int tensors[] = {TENSOR_CU_Q, TENSOR_CU_K, TENSOR_USED_Q, TENSOR_USED_K};
    vf_context *context = NULL, *host = NULL;
    struct harness harness;
    uint64_t state = (uint64_t)compute;
    int broken = 0;
    sim_driver_reset(&device);
    unit_ok(vf_dev_open_with_api(&options, sim_cuda(), sim_nvrtc(), &context));
    unit_ok(vf_open(&host_options, &host));
    unit_ok(harness_create(context, problem, 0, 1, &harness));
    void *host_bases[TENSOR_COUNT];
    for (int i = 0; i < TENSOR_COUNT; i++) host_bases[i] = harness.host.images[i].bytes;
    for (int round = 0; round < 30; round++) {
        for (int i = 0; i < 4; i++) {
            for (int64_t b = 0; b < problem->batch + (i < 2); b++) {
                const bool start = i < 2 && b == 0 && round % 4;
                upload_length(&harness, tensors[i], b, start ? 0 : any_length(&state, problem->int64_lengths));
            }
        }
        vf_forward_args args;
        char expected[256];
        tensors_forward_args(problem, &harness.host, host_bases, &args);
        args.problem.check = VF_CHECK_DEVICE;
        const vf_status status = vf_forward(host, &args);
        snprintf(expected, sizeof expected, "%s", vf_last_error());
        harness.checked = true;
        const vf_status found = harness_forward(&harness);
        ck_assert_msg(found == status && (!status || !strcmp(vf_last_error(), expected)), "round %d: %s, not %s: %s",
                      round, vf_last_error(), vf_status_name(status), expected);
        broken += status == VF_ERROR_LENGTHS;
        harness.checked = false;
        unit_ok(harness_forward(&harness));
        unit_ok(harness_backward(&harness));
    }
    ck_assert_int_gt(broken, 25);
    harness_free(&harness);
    vf_close(host);
    close_simulator(context);
}

START_TEST(lengths_of_any_kind) {
    static const char *const lines[] = {
        "--seqlens-q 20,20,30 --seqlens-k 30,30,30 --seqused-q 20,20,30 --seqused-k 9,9,9 "
        "--heads-q 4 --heads-k 1 --head-dim 32 --causal --deterministic --backward",
        "--seqlens-q 20,20,30 --seqlens-k 30,30,30 --seqused-q 20,20,30 --seqused-k 9,9,9 "
        "--int64-lengths --heads-q 2 --head-dim 64 --window 40,3 --backward"};
    for (int i = 0; i < 4; i++) {
        struct problem problem = problem_of(lines[i % 2]);
        ck_assert(problem.rows_q == ROWS_Q && problem.rows_k == ROWS_K);
        try_any_lengths(&problem, i < 2 ? 90 : 80);
        problem_free(&problem);
    }
}
END_TEST

// ---- failures ------------------------------------------------------------------------------------------------------

// One of the kernels of test_machine.c that runs in clusters of two.
START_TEST(clusters_are_launched_whole) {
    static char source[1 << 17];
    const struct sim_device device = {.compute = 90,
                                      .multiprocessors = 2,
                                      .quiet = true,
                                      .options = {.root = "tests/sim/faults", .sim_root = ".", .cache = CACHE}};
    vf_context *context = open_simulator(0);
    const struct cuda_api *api = sim_cuda();
    FILE *pipe = popen("lua5.4 tests/sim/faults/gen/init.lua source cluster_arrive", "r");
    source[fread(source, 1, sizeof source - 1, pipe)] = 0;
    pclose(pipe);
    sim_configure(&device.options);
    struct scope scope;
    struct module module;
    CUfunction function;
    char arguments[192] = {0};
    void *parameters[] = {arguments};
    struct cuda_launch_config config = {
        .grid_x = 4, .grid_y = 1, .grid_z = 1, .block_x = 64, .block_y = 1, .block_z = 1, .shared_bytes = 8192};
    unit_ok(scope_enter(context->devices, 1, NULL, NULL, &scope));
    unit_ok(module_load(api, source, "vf_cluster_arrive", &module));
    unit_ok(module_function(api, &module, 8192, &function));
    ck_assert_int_eq(api->cuLaunchKernelEx(&config, function, parameters, NULL), 0);
    config.grid_x = 3;
    ck_assert_int_eq(api->cuLaunchKernelEx(&config, function, parameters, NULL), SIM_INVALID_CLUSTER_SIZE);
    ck_assert_int_eq(stub.misuses, 1);
    stub.misuses = 0;
    module_unload(api, &module);
    scope_leave(&scope);
    close_simulator(context);
}
END_TEST

// Memory, both passes in checked mode, results: up to the first failure.
static vf_status run_everything(vf_context *context, const struct problem *problem, struct harness *harness) {
    *harness = (struct harness){.context = NULL};
    VF_TRY(harness_create(context, problem, 0, 1, harness));
    harness->checked = true;
    VF_TRY(harness_forward(harness));
    VF_TRY(harness_fetch(harness, false));
    VF_TRY(harness_backward(harness));
    return harness_fetch(harness, true);
}

// Every call of the driver and of the compiler on the way fails once.
START_TEST(every_driver_call_fails_once) {
    struct problem problem = problem_of("--seqlens-q 9 --seqlens-k 12 --head-dim 8 --backward");
    struct harness harness;
    int at = 0;
    do {
        vf_context *context = open_simulator(++at);
        const vf_status status = context ? run_everything(context, &problem, &harness) : VF_ERROR_DRIVER;
        stub.fail_at = 0;  // what follows cleans up
        if (context) harness_free(&harness);
        vf_close(context);
        // A driver that fails to clean up has failed no call.
        const bool cleans = stub.failed && (strstr(stub.failed, "Pop") || strstr(stub.failed, "Unload") ||
                                            strstr(stub.failed, "Release") || strstr(stub.failed, "Destroy") ||
                                            strstr(stub.failed, "Free"));
        ck_assert_msg(!stub.failed || cleans == (status == VF_OK), "call %d, %s: %s", at, stub.failed,
                      vf_status_name(status));
        ck_assert_msg(stub.libraries == 0 && stub.programs == 0 && stub.retained == 0 && stub.depth == 0 &&
                          stub.misuses == 0 && (cleans || sim_allocated() == 0),
                      "call %d, %s: %d libraries, %d programs, %d contexts, %zu bytes left, depth %d, %d misuses", at,
                      stub.failed, stub.libraries, stub.programs, stub.retained, sim_allocated(), stub.depth,
                      stub.misuses);
    } while (stub.failed);
    ck_assert_int_gt(at, 150);
    problem_free(&problem);
}
END_TEST

UNIT_MAIN("sim_driver", results_are_the_oracles, a_cap_far_above_all_scores_is_none, graphs_run_again,
          a_finding_fails_the_launch, the_driver_refuses, clusters_are_launched_whole, lengths_of_any_kind,
          every_driver_call_fails_once)
