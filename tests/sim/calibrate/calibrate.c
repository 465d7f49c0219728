// calibrate.c - does the simulator compute what a GPU does? Runs calibrate.cu and calibrate_pair.cu, one test after the other, on the device
// that it is linked with.
//
//   calibrate ROOT                prints a line a test: what a GPU prints is kept as tests/sim/calibrate/recorded.txt
//   calibrate ROOT RECORDED       compares with such lines: bit for bit; approximations within the documented error
//   calibrate ROOT --words TEST   prints all words of a test, to look for what differs
//
// ROOT: the tree that root.sh makes. Needs a device of compute capability 9.0.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate.h"
#include "context.h"
#include "module.h"
#include "varflash/varflash_dev.h"

#define INPUT 16384          // bytes
#define OUTPUT (512 * 1024)  // bytes
#define ROWS 200             // of the mapped tensors
#define ROW_ELEMENTS 160
#define HEAD_ELEMENTS 80
#define COLUMNS 72
#define BOX_ROWS 64
#define SLOTS 2
#define LG2 (-1)

// Mirrors CalibrateArgs of calibrate.cuh.
struct arguments {
    uint64_t input, output, test, variant;
    struct cuda_tensor_map load, store;
};

// A result is the output, or MAP: what has become of the stored tensor. PAIR: of two blocks.
enum { BF16_ONLY = 1, MAP = 2, PAIR = 4 };

// ORDER calibrate_tests, by kernel. Approximations may differ by so many units in the last place; LG2: by 2^-22 of the result, or of 1 where it is
// less, as the PTX ISA says; everything else by nothing.
static const struct test {
    const char *name;
    int number, variant, words, ulp, flags;
} tests[] = {
    {"warp", 0, 0, 128 * 13, 0, 0},
    {"exact", 1, 0, 128 * 10, 0, 0},
    {"ex2", 2, 0, 128, 2, BF16_ONLY},
    {"lg2", 2, 1, 128, LG2, BF16_ONLY},
    {"rcp", 2, 2, 128, 1, BF16_ONLY},
    {"copies", 3, 0, 1024 + 128, 0, BF16_ONLY},
    {"reductions", 4, 0, 136, 0, BF16_ONLY},
    {"ldmatrix", 5, 0, 128 * 13, 0, BF16_ONLY},
    {"stmatrix", 6, 0, 2048, 0, BF16_ONLY},
    {"mma", 7, 0, 128 * 8, 0, 0},
    {"tma-load", 8, 0, 8 * 2048, 0, BF16_ONLY},
    {"tma-store", 9, 0, SLOTS *ROWS *ROW_ELEMENTS / 2, 0, BF16_ONLY | MAP},
    {"bulk", 10, 0, 1024, 0, BF16_ONLY},
    {"wgmma-16", 11, 16, 128 * 8 * 3, 0, 0},
    {"wgmma-64", 11, 64, 128 * 32 * 6, 0, 0},
    {"wgmma-80", 11, 80, 128 * 40 * 3, 0, 0},
    {"wgmma-128", 11, 128, 128 * 64 * 6, 0, 0},
    {"wgmma-256", 11, 256, 128 * 128 * 6, 0, 0},
    {"wgmma-plain", 12, 0, 128 * 32, 0, BF16_ONLY},
    {"pair-multicast", 0, 0, 2 * 4096, 0, BF16_ONLY | PAIR},
    {"pair-copy", 1, 0, 2 * 3 * 2048, 0, BF16_ONLY | PAIR},
};
enum { TESTS = sizeof(tests) / sizeof(*tests) };

struct bench {
    vf_context *context;
    const struct cuda_api *cuda;
    struct module modules[2];  // of one block, of two
    unsigned char *input, *output, *loaded, *stored;
    uint32_t words[OUTPUT / 4];
};

// ---- running -------------------------------------------------------------------------------------------------------

// The row map of a [slot, row, head, column] tensor, as the runtime makes them (docs/design.md).
static vf_status encode(const struct bench *bench, const unsigned char *data, struct cuda_tensor_map *map) {
    const uint64_t row = ROW_ELEMENTS * 2, slot = row * ROWS;
    const uint64_t dimensions[] = {COLUMNS, BOX_ROWS, ROWS + 1, 2, SLOTS},
                   strides[] = {row, row, HEAD_ELEMENTS * 2, slot};
    const uint32_t box[] = {64, BOX_ROWS, 1, 1, 1}, steps[] = {1, 1, 1, 1, 1};
    // 16-bit words, no interleave, 128-byte swizzle, sectors of 256 bytes, zeros outside.
    CUDA_TRY(bench->cuda, cuTensorMapEncodeTiled, map, 1, 5, (void *)(uintptr_t)(data - BOX_ROWS * row), dimensions,
             strides, box, steps, 0, 3, 3, 0);
    return VF_OK;
}

static vf_status load(const char *kernel, const char *dtype, const struct bench *bench, struct module *module) {
    char spec[64], entry[64];
    vf_dev_image image;
    snprintf(spec, sizeof spec, "kernel=%s arch=sm_90a dtype=%s", kernel, dtype);
    snprintf(entry, sizeof entry, "vf_%s_%s", kernel, dtype);
    VF_TRY(vf_dev_compile(bench->context, spec, 0, &image));
    const vf_status status = module_load(bench->cuda, image.data, entry, module);
    vf_dev_image_free(&image);
    return status;
}

static vf_status open_bench(const char *dtype, struct bench *bench) {
    const size_t tensor = (size_t)SLOTS * ROWS * ROW_ELEMENTS * 2;
    unsigned char *bytes = malloc(tensor + INPUT);
    for (size_t i = 0; i < tensor + INPUT; i++) bytes[i] = (unsigned char)(i * 73 + i / 251);
    bench->cuda = bench->context->cuda;
    vf_status status = load("calibrate", dtype, bench, &bench->modules[0]);
    if (!status) status = load("calibrate_pair", dtype, bench, &bench->modules[1]);
    if (!status) status = vf_dev_alloc(bench->context, 0, INPUT, (void **)&bench->input);
    if (!status) status = vf_dev_alloc(bench->context, 0, OUTPUT, (void **)&bench->output);
    if (!status) status = vf_dev_alloc(bench->context, 0, tensor, (void **)&bench->loaded);
    if (!status) status = vf_dev_alloc(bench->context, 0, tensor, (void **)&bench->stored);
    if (!status) status = vf_dev_upload(bench->context, bench->input, bytes, INPUT);
    if (!status) status = vf_dev_upload(bench->context, bench->loaded, bytes, tensor);
    free(bytes);
    return status;
}

static vf_status launch(struct bench *bench, const struct test *test, const struct scope *scope) {
    struct arguments arguments = {.input = (uint64_t)(uintptr_t)bench->input,
                                  .output = (uint64_t)(uintptr_t)bench->output,
                                  .test = (uint64_t)test->number,
                                  .variant = (uint64_t)test->variant};
    void *parameters[] = {&arguments};
    const struct cuda_launch_config config = {.grid_x = test->flags & PAIR ? 2 : 1,
                                              .grid_y = 1,
                                              .grid_z = 1,
                                              .block_x = 128,
                                              .block_y = 1,
                                              .block_z = 1,
                                              .shared_bytes = 64 * 1024};
    CUfunction function;
    VF_TRY(encode(bench, bench->loaded, &arguments.load));
    VF_TRY(encode(bench, bench->stored, &arguments.store));
    VF_TRY(module_function(scope->api, &bench->modules[test->flags & PAIR ? 1 : 0], 64 * 1024, &function));
    CUDA_TRY(scope->api, cuLaunchKernelEx, &config, function, parameters, NULL);
    CUDA_TRY(scope->api, cuCtxSynchronize);
    return VF_OK;
}

static vf_status run(struct bench *bench, const struct test *test) {
    const size_t tensor = (size_t)SLOTS * ROWS * ROW_ELEMENTS * 2;
    struct scope scope;
    VF_TRY(vf_dev_set(bench->context, bench->output, 0, OUTPUT, NULL));
    VF_TRY(vf_dev_set(bench->context, bench->stored, 0, tensor, NULL));
    VF_TRY(vf_dev_synchronize(bench->context, 0));
    VF_TRY(scope_enter(bench->context->devices, 1, NULL, NULL, &scope));
    const vf_status status = launch(bench, test, &scope);
    scope_leave(&scope);
    VF_TRY(status);
    return vf_dev_download(bench->context, bench->words, test->flags & MAP ? bench->stored : bench->output,
                           (size_t)test->words * 4);
}

// ---- telling and comparing -----------------------------------------------------------------------------------------

#define LINE 8192

// "exact/bf16 1280 9c0f..." or, of approximations, the words themselves.
static void describe(const struct bench *bench, const struct test *test, const char *dtype, char line[LINE]) {
    int at = snprintf(line, LINE, "%s/%s %d", test->name, dtype, test->words);
    uint64_t hash = 0xcbf29ce484222325;
    for (int i = 0; i < test->words; i++) {
        hash = (hash ^ bench->words[i]) * 0x100000001b3;
        hash ^= hash >> 29;
        if (test->ulp) at += snprintf(line + at, LINE - (size_t)at, " %08x", bench->words[i]);
    }
    if (!test->ulp) snprintf(line + at, LINE - (size_t)at, " %016llx", (unsigned long long)hash);
}

static float number_of(uint32_t bits) {
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

// Floats in order, so that neighbours differ by 1.
static int64_t rank(uint32_t bits) {
    return bits & 0x80000000 ? -(int64_t)(bits & 0x7fffffff) : (int64_t)bits;
}

// Whether two lines of a test say the same.
static bool same(const struct test *test, const char *found, const char *recorded) {
    if (!test->ulp) return !strcmp(found, recorded);
    char *a, *b;
    const long words = strtol(strchr(found, ' '), &a, 10);
    if (words != strtol(strchr(recorded, ' '), &b, 10)) return false;
    for (long i = 0; i < words; i++) {
        const uint32_t x = (uint32_t)strtoul(a, &a, 16), y = (uint32_t)strtoul(b, &b, 16);
        const float log = number_of(y);
        if (test->ulp == LG2 ? !(fabsf(number_of(x) - log) <= 0x1.1p-22f * fmaxf(fabsf(log), 1.0f))
                             : llabs(rank(x) - rank(y)) > test->ulp)
            return false;
    }
    return true;
}

// The recorded line of the same test and type.
static bool find_recorded(FILE *recorded, const char *line, char out[LINE]) {
    const size_t name = strcspn(line, " ") + 1;
    rewind(recorded);
    while (fgets(out, LINE, recorded)) {
        out[strcspn(out, "\n")] = 0;
        if (!strncmp(out, line, name)) return true;
    }
    return false;
}

struct totals {
    int passed, failed;
};

static void judge(const struct test *test, const char *line, FILE *recorded, struct totals *totals) {
    static char expected[LINE];
    if (find_recorded(recorded, line, expected) && same(test, line, expected)) {
        totals->passed++;
    } else {
        totals->failed++;
        printf("%s: is not what a GPU recorded\n", test->name);
    }
}

static vf_status run_all(struct bench *bench, const char *dtype, FILE *recorded, const char *words,
                         struct totals *totals) {
    static char line[LINE];
    for (int i = 0; i < TESTS; i++) {
        const struct test *test = &tests[i];
        if (((test->flags & BF16_ONLY) && strcmp(dtype, "bf16") != 0) || (words && strcmp(words, test->name) != 0))
            continue;
        VF_TRY(run(bench, test));
        describe(bench, test, dtype, line);
        if (words) {
            for (int w = 0; w < test->words; w++) printf("%s %d %08x\n", dtype, w, bench->words[w]);
        } else if (!recorded) {
            puts(line);
        } else {
            judge(test, line, recorded, totals);
        }
    }
    return VF_OK;
}

static vf_status run_type(const char *dtype, FILE *recorded, const char *words, struct totals *totals) {
    static struct bench bench;
    bench = (struct bench){.context = NULL};
    VF_TRY(calibrate_open(&bench.context));
    vf_status status = open_bench(dtype, &bench);
    if (!status) status = run_all(&bench, dtype, recorded, words, totals);
    vf_dev_free(bench.context, bench.input);
    vf_dev_free(bench.context, bench.output);
    vf_dev_free(bench.context, bench.loaded);
    vf_dev_free(bench.context, bench.stored);
    for (int i = 0; i < 2; i++) module_unload(bench.cuda, &bench.modules[i]);
    vf_close(bench.context);
    return status;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: calibrate ROOT [RECORDED | --words TEST]\n");
        return 2;
    }
    const char *words = argc > 3 ? argv[3] : NULL;
    FILE *recorded = argc == 3 ? fopen(argv[2], "r") : NULL;
    struct totals totals = {0, 0};
    if (argc == 3 && !recorded) {
        perror(argv[2]);
        return 2;
    }
    setenv("VARFLASH_SOURCE", argv[1], 1);
    vf_status status = run_type("bf16", recorded, words, &totals);
    if (!status) status = run_type("fp16", recorded, words, &totals);
    if (status) fprintf(stderr, "%s\n", vf_last_error());
    if (recorded) {
        fclose(recorded);
        printf("%d passed, %d failed\n", totals.passed, totals.failed + (status != VF_OK));
    }
    return status ? (status == VF_ERROR_NO_DEVICE ? 77 : 1) : totals.failed > 0;
}
