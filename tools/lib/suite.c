// suite.c - the named lists. Most problems are lines of suite_lines.h, as they would stand on a command line; what
// follows a rule is made by code.
#include "suite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "status.h"
#include "suite_lines.h"
#include "sweep.h"

#define SWEEP_LIMIT 1000000

const struct suite_info suite_infos[] = {
    {"smoke", "small problems that together use every feature"},
    {"faults", "inputs that broke other libraries, at full size"},
    {"faults-large", "those that need 20 GB of device memory or more"},
    {"faults-small", "the same kinds of fault, small enough for the CPU backend"},
    {"default", "what `make bench` times"},
    {"bench", "dense and packed batches of 16k and 64k tokens"},
    {"bench-dims", "head dims that others pad: 40, 72, 80, 104"},
    {"short", "8192 sequences of 34 tokens"},
    {"tune", "what configs/ is tuned by: dense, packed, short, GQA and 192/128; 'held-...' are to be held out"},
    {"sweep:SEED:COUNT", "random problems, lengths to 700"},
    {"sweep-small:SEED:COUNT", "random problems for the CPU backend, lengths to 140"},
};
const size_t suite_info_count = ARRAY_LENGTH(suite_infos);

static vf_status add_line(struct problem_list *list, const char *line) {
    struct problem problem;
    VF_TRY(problem_from_line(line, &problem));
    return problem_list_add(list, &problem);
}

static vf_status add_lines(struct problem_list *list, const char *const *lines) {
    for (; *lines; lines++) VF_TRY(add_line(list, *lines));
    return VF_OK;
}

static vf_status add_text(struct problem_list *list, const char *format, ...) PRINTF_LIKE(2, 3);

static vf_status add_text(struct problem_list *list, const char *format, ...) {
    char line[1024];
    va_list values;
    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    return add_line(list, line);
}

// ---- lists that follow a rule --------------------------------------------------------------------------------------

// K2: every pair of edges, with rows on both sides of the diagonal.
static vf_status add_windows(struct problem_list *list) {
    static const char *const edges[] = {"-3", "-2", "-1", "0", "1", "2", "3", "1000000", "inf"};
    for (size_t left = 0; left < ARRAY_LENGTH(edges); left++)
        for (size_t right = 0; right < ARRAY_LENGTH(edges); right++)
            VF_TRY(add_text(list,
                            "--name K2-window-%s,%s --seqlens-q 5,12,1,0,9,70 --seqlens-k 9,5,7,4,0,131 --heads-q 2 "
                            "--heads-k 1 --window %s,%s --deterministic --backward",
                            edges[left], edges[right], edges[left], edges[right]));
    return VF_OK;
}

// K5: value dims of all sizes beside a head dim of 128.
static vf_status add_value_dims(struct problem_list *list) {
    for (int dim = 8; dim <= 120; dim += 8)
        VF_TRY(add_text(list,
                        "--name K5-128-%d --seqlens-q 65,0,130 --seqlens-k 33,4,190 --heads-q 2 --heads-k 1 --head-dim "
                        "128 --head-dim-v %d --causal --backward",
                        dim, dim));
    return VF_OK;
}

// S3: pointers that are aligned to 2 bytes only, one operand after the other.
static vf_status add_offsets(struct problem_list *list) {
    for (int operand = 0; operand < OPERAND_COUNT; operand++)
        for (int offset = 1; offset <= 7; offset += operand == OPERAND_Q ? 1 : 3)
            if (operand != OPERAND_DLSE)
                VF_TRY(add_text(list,
                                "--name S3-%s+%d --seqlens-q 37,70 --seqlens-k 50,65 --heads-q 2 --causal --backward "
                                "--strides %s=+%d",
                                problem_operand_names[operand], offset, problem_operand_names[operand], offset));
    return VF_OK;
}

// W1: the trap of an offset beyond 2^31 elements in one operand after the other; beyond 2^32 at the end.
static vf_status add_far_operands(struct problem_list *list) {
    for (int operand = 0; operand < OPERAND_COUNT; operand++) {
        if (operand == OPERAND_LSE || operand == OPERAND_DLSE || operand == OPERAND_DOUT) continue;
        VF_TRY(add_text(list,
                        "--name W1-%s --seqlens-q 30000,20000 --heads-q 2 --head-dim 96 --deterministic --backward "
                        "--strides %s=90000,96",
                        problem_operand_names[operand], problem_operand_names[operand]));
    }
    return VF_OK;
}

static vf_status add_faults_common(struct problem_list *list) {
    VF_TRY(add_lines(list, fault_lines));
    VF_TRY(add_windows(list));
    VF_TRY(add_value_dims(list));
    return add_offsets(list);
}

// ---- benchmarks ----------------------------------------------------------------------------------------------------

static vf_status add_dense(struct problem_list *list, int dim, int length, int causal) {
    return add_text(list, "--name dense-d%d-s%d-c%d --seqlens-q %dx%d --heads-q %d --head-dim %d --backward%s", dim,
                    length, causal, length, 16384 / length, 2048 / dim, dim, causal ? " --causal" : "");
}

static vf_status add_packed(struct problem_list *list, const char *name, const char *lengths, int dim, int group,
                            int causal) {
    return add_text(list, "--name %s-d%d-c%d --seqlens-q %s --heads-q %d --heads-k %d --head-dim %d --backward%s", name,
                    dim, causal, lengths, 2048 / dim, 2048 / dim / group, dim, causal ? " --causal" : "");
}

static vf_status add_short(struct problem_list *list, int dim) {
    return add_text(list, "--name 8192x34-d%d-c0 --seqlens-q 34x8192 --heads-q 12 --head-dim %d --backward", dim, dim);
}

static vf_status add_bench(struct problem_list *list) {
    static const int dense_dims[] = {64, 128, 256}, packed_dims[] = {64, 128}, lengths[] = {512, 2048, 8192, 16384};
    for (size_t d = 0; d < ARRAY_LENGTH(dense_dims); d++)
        for (size_t s = 0; s < ARRAY_LENGTH(lengths); s++)
            for (int causal = 0; causal < 2; causal++) VF_TRY(add_dense(list, dense_dims[d], lengths[s], causal));
    for (size_t d = 0; d < ARRAY_LENGTH(packed_dims); d++) {
        const int dim = packed_dims[d];
        for (int causal = 0; causal < 2; causal++) {
            VF_TRY(add_packed(list, "lognormal64k", lognormal_lengths, dim, 1, causal));
            VF_TRY(add_packed(list, "lognormal64k-gqa8", lognormal_lengths, dim, 8, causal));
            VF_TRY(add_packed(list, "one16k+384x128", "16384,128x384", dim, 1, causal));
        }
        VF_TRY(add_short(list, dim));
    }
    return VF_OK;
}

static vf_status add_bench_dims(struct problem_list *list) {
    static const int dims[] = {40, 72, 80, 104};
    for (size_t d = 0; d < ARRAY_LENGTH(dims); d++)
        for (int causal = 0; causal < 2; causal++) {
            VF_TRY(add_dense(list, dims[d], 8192, causal));
            VF_TRY(add_packed(list, "lognormal64k", lognormal_lengths, dims[d], 1, causal));
        }
    return VF_OK;
}

// ---- what is tuned by ----------------------------------------------------------------------------------------------

struct tuned {
    const char *name, *lengths;
    int group;  // query heads of a key head
};

static const struct tuned tuned_common[] = {
    {"s2048", "2048x8", 1},
    {"s8192", "8192x2", 1},
    {"lognormal64k", lognormal_lengths, 1},
    {"held-s4096", "4096x4", 1},
    {"held-mixed", "1000,3000,200,5000,700,2500,100x30,900", 1},
};
static const struct tuned tuned_more[] = {
    {"s512", "512x32", 1},
    {"s16384", "16384", 1},
    {"lognormal64k-gqa8", lognormal_lengths, 8},
    {"one16k+384x128", "16384,128x384", 1},
    {"held-s1024", "1024x16", 1},
    {"held-gqa4", "6000,2000x3", 4},
    {"8192x34", "34x8192", 1},
    {"held-2000x100", "100x2000", 1},
};

static vf_status add_tuned(struct problem_list *list, const struct tuned *tuned, size_t count, int dim, int dim_v,
                           int causal) {
    // Heads whose number a group divides, about 2048 columns in all.
    const int heads = 2048 / dim / 8 * 8;
    for (size_t i = 0; i < count; i++)
        VF_TRY(add_text(list,
                        "--name %s-d%d-c%d --seqlens-q %s --heads-q %d --heads-k %d --head-dim %d --head-dim-v %d "
                        "--backward%s",
                        tuned[i].name, dim, causal, tuned[i].lengths, heads, heads / tuned[i].group, dim, dim_v,
                        causal ? " --causal" : ""));
    return VF_OK;
}

static vf_status add_tune(struct problem_list *list) {
    static const int dims[][2] = {{64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}};
    for (size_t d = 0; d < ARRAY_LENGTH(dims); d++) {
        const int dim = dims[d][0];
        for (int causal = 0; causal < 2; causal++) {
            VF_TRY(add_tuned(list, tuned_common, ARRAY_LENGTH(tuned_common), dim, dims[d][1], causal));
            if (dim == 64 || dim == 128)
                VF_TRY(add_tuned(list, tuned_more, ARRAY_LENGTH(tuned_more), dim, dims[d][1], causal));
        }
    }
    // What else has rows of its own.
    VF_TRY(add_line(list, "--name 8192x34-d96-c0 --seqlens-q 34x8192 --heads-q 12 --head-dim 96 --backward"));
    for (int causal = 0; causal < 2; causal++) {
        const char *mask = causal ? " --causal" : "";
        VF_TRY(add_text(list, "--name s8192-d192-192-c%d --seqlens-q 8192x2 --heads-q 8 --head-dim 192 --backward%s",
                        causal, mask));
        VF_TRY(add_text(list,
                        "--name s8192-d128-cap-c%d --seqlens-q 8192x2 --heads-q 16 --head-dim 128 --softcap 30 "
                        "--backward%s",
                        causal, mask));
    }
    return VF_OK;
}

static vf_status add_default(struct problem_list *list) {
    for (int dim = 64; dim <= 256; dim *= 2)
        for (int causal = 0; causal < 2; causal++) VF_TRY(add_dense(list, dim, 8192, causal));
    for (int causal = 0; causal < 2; causal++)
        VF_TRY(add_packed(list, "lognormal64k", lognormal_lengths, 128, 1, causal));
    return add_short(list, 128);
}

// ---- names ---------------------------------------------------------------------------------------------------------

// A whole number at *text, which moves behind it and the character `end`.
static bool read_number(const char **text, char end, uint64_t *number) {
    char *rest;
    if (**text < '0' || **text > '9') return false;
    errno = 0;
    *number = strtoull(*text, &rest, 10);
    if (errno || *rest != end) return false;
    *text = rest + 1;
    return true;
}

// "SEED:COUNT" after the name of a sweep.
static vf_status add_sweep(struct problem_list *list, enum sweep_size size, const char *text) {
    uint64_t seed, count;
    VF_REQUIRE(read_number(&text, ':', &seed) && read_number(&text, 0, &count) && count <= SWEEP_LIMIT,
               VF_ERROR_INVALID_ARGUMENT, "suite: a sweep is sweep:SEED:COUNT, with at most %d problems", SWEEP_LIMIT);
    for (uint64_t index = 0; index < count; index++) {
        struct problem problem;
        VF_TRY(sweep_problem(size, seed, index, &problem));
        VF_TRY(problem_list_add(list, &problem));
    }
    return VF_OK;
}

static vf_status add_suite(const char *name, struct problem_list *list) {
    if (!strncmp(name, "sweep:", 6)) return add_sweep(list, SWEEP_NORMAL, name + 6);
    if (!strncmp(name, "sweep-small:", 12)) return add_sweep(list, SWEEP_SMALL, name + 12);
    if (!strcmp(name, "smoke")) return add_lines(list, smoke_lines);
    if (!strcmp(name, "bench")) return add_bench(list);
    if (!strcmp(name, "bench-dims")) return add_bench_dims(list);
    if (!strcmp(name, "default")) return add_default(list);
    if (!strcmp(name, "short")) return add_short(list, 128);
    if (!strcmp(name, "tune")) return add_tune(list);
    if (!strcmp(name, "faults-large")) return add_lines(list, fault_large_lines);
    if (!strcmp(name, "faults-small")) {
        VF_TRY(add_lines(list, fault_small_lines));
        return add_faults_common(list);
    }
    if (!strcmp(name, "faults")) {
        VF_TRY(add_lines(list, fault_full_lines));
        VF_TRY(add_far_operands(list));
        return add_faults_common(list);
    }
    VF_FAIL(
        VF_ERROR_INVALID_ARGUMENT,
        "suite: '%.40s' is none of smoke, faults, faults-large, faults-small, default, bench, bench-dims, short, tune, "
        "sweep:SEED:COUNT, sweep-small:SEED:COUNT",
        name);
}

vf_status suite_get(const char *name, struct problem_list *list) {
    const size_t before = list->count;
    const vf_status status = add_suite(name, list);
    while (status && list->count > before) problem_free(&list->items[--list->count]);
    return status;
}
