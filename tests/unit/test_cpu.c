// test_cpu.c - the CPU backend as a whole: random problems at every level of vector code, and what must not change any
// bit.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "cpu_case.h"
#include "loop_main.h"
#include "unit.h"

#define SWEEP_PARTS 4
#ifdef __SANITIZE_ADDRESS__
#define SWEEP_PROBLEMS 150  // a part; what the plain build has checked is here only watched
#else
#define SWEEP_PROBLEMS 600
#endif

// Level number `index` of those that run here, modulo their count.
static void use_level(int index) {
    enum cpu_level levels[CPU_LEVEL_COUNT];
    int count = 0;
    for (int level = 0; level < CPU_LEVEL_COUNT; level++) {
        if (cpu_select((enum cpu_level)level)) levels[count++] = (enum cpu_level)level;
    }
    ck_assert_int_gt(count, 0);
    cpu_select(levels[index % count]);
}

static void sweep(int first, int count, int64_t longest) {
    int wrong = 0;
    for (int i = first; i < first + count; i++) {
        use_level(i);
        const struct case_problem problem = case_random((uint64_t)i, longest);
        if (!case_run(&problem)) wrong++;
    }
    ck_assert_msg(wrong == 0, "%d of %d problems are wrong", wrong, count);
}

// Small problems: every feature mixed with every other.
START_TEST(sweep_small) {
    sweep(_i * SWEEP_PROBLEMS, SWEEP_PROBLEMS, 40);
}
END_TEST

// Lengths that cross the blocks of every loop.
START_TEST(sweep_long) {
    sweep(100000 + _i * 8, 8, 420);
}
END_TEST

// A problem of several blocks in every direction, enough of it for eight threads.
static struct case_problem blocks_problem(vf_mask mask) {
    struct case_problem problem = {.seed = 7, .batch = 3, .heads_k = 2, .group = 3, .head_dim = 40, .head_dim_v = 24};
    const int64_t lengths_q[] = {0, 311, 130}, lengths_k[] = {5, 407, 290};
    memcpy(problem.q.slots, lengths_q, sizeof lengths_q);
    memcpy(problem.k.slots, lengths_k, sizeof lengths_k);
    problem.q.tail = 3;
    problem.dtype = VF_FLOAT32;
    problem.mask = mask;
    problem.left = 150;
    problem.right = 20;
    problem.backward = problem.dlse = true;
    problem.poison = NAN;
    return problem;
}

static void run(struct case_tensors *tensors, int threads) {
    unit_ok(cpu_forward(&tensors->forward, threads));
    unit_ok(cpu_backward(&tensors->backward, threads));
}

static void expect_same_outputs(const struct case_tensors *a, const struct case_tensors *b, int threads) {
    for (int name = 0; name < CASE_TENSORS; name++) {
        if (!a->before[name]) continue;
        ck_assert_msg(!memcmp(a->memory[name], b->memory[name], a->bytes[name]), "tensor %d differs with %d threads",
                      name, threads);
    }
}

START_TEST(any_number_of_threads) {
    static const int counts[] = {2, 3, 8, 0};
    const struct case_problem problem = blocks_problem((vf_mask)(_i % 3));
    use_level(_i / 3);
    struct case_tensors one, many;
    case_make(&problem, &one);
    run(&one, 1);
    for (size_t i = 0; i < ARRAY_LENGTH(counts); i++) {
        for (int repeat = 0; repeat < 3; repeat++) {
            case_make(&problem, &many);
            run(&many, counts[i]);
            expect_same_outputs(&one, &many, counts[i]);
            case_free(&many);
        }
    }
    ck_assert(case_check(&problem, &one));
    case_free(&one);
}
END_TEST

// Rows [first, first + count) of a packed tensor; lse and dlse have rows in their second dimension.
static vf_tensor rows_of(const vf_tensor *tensor, int dimension, int64_t first, int64_t count) {
    vf_tensor part = *tensor;
    if (!part.data) return part;
    const int64_t index[4] = {dimension == 0 ? first : 0, dimension == 1 ? first : 0};
    part.data = case_at(tensor, index);
    part.shape[dimension] = count;
    return part;
}

// The part of a call that is one sequence, as a call of its own: packed, or batched with a batch of one.
static void alone(const struct case_problem *problem, struct case_tensors *tensors, int64_t b, bool batched,
                  int64_t lengths[4]) {
    int64_t slot, q_row, k_row;
    case_place(&problem->q, b, 0, &slot, &q_row);
    case_place(&problem->k, b, 0, &slot, &k_row);
    const int64_t sq = problem->q.slots[b], sk = problem->k.slots[b];
    vf_tensor view[CASE_TENSORS];
    for (int name = 0; name < CASE_TENSORS; name++) {
        const bool k = name == CASE_K || name == CASE_V || name == CASE_DK || name == CASE_DV;
        const bool statistic = name == CASE_LSE || name == CASE_DLSE;
        view[name] = rows_of(&tensors->view[name], statistic ? 1 : 0, k ? k_row : q_row, k ? sk : sq);
        if (!batched) continue;
        vf_tensor *tensor = &view[name];
        memmove(tensor->shape + 1, tensor->shape, 3 * sizeof(int64_t));
        memmove(tensor->stride + 1, tensor->stride, 3 * sizeof(int64_t));
        tensor->shape[0] = 1;
        tensor->stride[0] = INT64_MAX;  // a stride that nothing is to be multiplied with but 0
        tensor->ndim++;
    }
    const int64_t ends[4] = {0, sq, 0, sk};
    memcpy(lengths, ends, sizeof ends);
    vf_problem_args args = tensors->forward.problem;
    args.cu_seqlens_q = args.cu_seqlens_k = (vf_tensor){0};
    if (!batched) {
        args.cu_seqlens_q = (vf_tensor){lengths, VF_INT64, 1, {2}, {1}};
        args.cu_seqlens_k = (vf_tensor){lengths + 2, VF_INT64, 1, {2}, {1}};
    }
    case_call(tensors, view, args);
}

// R2: a sequence gives the same bits in its batch and alone.
START_TEST(any_batch) {
    struct case_problem problem = blocks_problem((vf_mask)(_i % 3));
    problem.q.tail = 0;
    use_level(_i / 3);
    struct case_tensors whole, parts;
    case_make(&problem, &whole);
    case_make(&problem, &parts);
    run(&whole, 2);
    for (int64_t b = 0; b < problem.batch; b++) {
        int64_t lengths[4];
        struct case_tensors part = parts;
        alone(&problem, &part, b, b == 2, lengths);
        run(&part, 2);
    }
    expect_same_outputs(&whole, &parts, 2);
    case_free(&whole);
    case_free(&parts);
}
END_TEST

// A live token that is not finite spoils its own sequence and key head only.
START_TEST(nan_stays_at_home) {
    const struct case_problem problem = blocks_problem(VF_MASK_CAUSAL);
    use_level(_i);
    struct case_tensors clean, spoilt;
    case_make(&problem, &clean);
    run(&clean, 2);
    for (enum case_tensor_name name = CASE_Q; name <= CASE_V; name++) {
        case_make(&problem, &spoilt);
        const int64_t index[4] = {name == CASE_Q ? 20 : 30, 0, 1};  // in sequence 1, a head of key head 0
        *(float *)case_at(&spoilt.view[name], index) = NAN;
        run(&spoilt, 2);
        for (enum case_tensor_name out = 0; out < CASE_TENSORS; out++) {
            if (!clean.before[out] || out == CASE_LSE) continue;
            const vf_tensor *tensor = &clean.view[out];
            const bool k = out == CASE_DK || out == CASE_DV;
            for (int64_t row = 0; row < tensor->shape[0]; row++) {
                const bool own = k ? row >= 5 && row < 5 + 407 : row < 311;
                for (int64_t head = 0; head < tensor->shape[1]; head++) {
                    const int64_t at[4] = {row, head};
                    const bool same =
                        !memcmp(case_at(tensor, at), case_at(&spoilt.view[out], at), (size_t)tensor->shape[2] * 4);
                    ck_assert_msg(same || (own && head < (k ? 1 : 3)), "tensor %d row %d head %d", out, (int)row,
                                  (int)head);
                }
            }
        }
        case_free(&spoilt);
    }
    case_free(&clean);
}
END_TEST

// J6, E2: broken lengths. Every element is still written, and nothing else (the canaries; under AddressSanitizer
// everything).
START_TEST(broken_lengths) {
    static const int64_t broken[][5] = {{3, 1, 9, 4, 12},     {0, 500, 2, -7, 40},
                                        {-5, -5, -5, -5, -5}, {900, 1, 2, 3, 4},
                                        {0, 6, 12, 18, 1000}, {INT64_MIN, INT64_MAX, 0, INT64_MIN, INT64_MAX}};
    use_level(_i);
    for (size_t i = 0; i < ARRAY_LENGTH(broken) * ARRAY_LENGTH(broken); i++) {
        struct case_problem problem = {
            .seed = i, .batch = 4, .heads_k = 1, .group = 2, .head_dim = 16, .head_dim_v = 8};
        for (int b = 0; b < 4; b++) problem.q.slots[b] = 6, problem.k.slots[b] = 5;
        problem.q.wide = problem.k.wide = true;
        problem.q.has_used = problem.k.has_used = i % 2;
        problem.dtype = VF_BFLOAT16;
        problem.mask = (vf_mask)(i % 2);
        problem.backward = true;
        for (int name = 0; name < CASE_TENSORS; name++) problem.layout[name] = CASE_SCATTERED;
        struct case_tensors tensors;
        case_make(&problem, &tensors);
        memcpy(tensors.lengths[0], broken[i % 6], sizeof broken[0]);
        memcpy(tensors.lengths[1], broken[i / 6 % 6] + 1, 4 * sizeof(int64_t));
        memcpy(tensors.lengths[2], broken[i / 6], sizeof broken[0]);
        memcpy(tensors.lengths[3], broken[i / 6] + 1, 4 * sizeof(int64_t));
        run(&tensors, 2);
        for (int name = 0; name < CASE_TENSORS; name++) {
            if (!tensors.before[name]) continue;
            const vf_tensor *tensor = &tensors.view[name];
            int64_t index[4], elements = 1;
            for (int d = 0; d < tensor->ndim; d++) elements *= tensor->shape[d];
            for (int64_t at = 0; at < elements; at++) {
                int64_t rest = at;
                for (int d = tensor->ndim - 1; d >= 0; d--) {
                    index[d] = rest % tensor->shape[d];
                    rest /= tensor->shape[d];
                }
                ck_assert_msg(!isnan(case_get(tensor, index)), "tensor %d was not written", name);
                memset(case_at(tensor, index), 0xff, name == CASE_LSE ? 4 : 2);
            }
            ck_assert(!memcmp(tensors.before[name], tensors.memory[name], tensors.bytes[name]));
        }
        case_free(&tensors);
    }
}
END_TEST

// More accumulators than there is address space for: a status, and operands untouched (there is no memory behind them).
START_TEST(out_of_memory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    unit_skip("sanitizers end a program that asks for so much memory");
#else
    static float nothing[1];
    const int64_t heads = 1024, dim = 256, rows = (int64_t)1 << 30;
    const vf_tensor q = {nothing, VF_FLOAT32, 4, {1, rows, heads, dim}, {rows * heads * dim, heads * dim, dim, 1}};
    const vf_tensor lse = {nothing, VF_FLOAT32, 3, {1, heads, rows}, {heads * rows, rows, 1}};
    const vf_backward_args args = {.q = q, .k = q, .v = q, .o = q, .lse = lse, .dout = q, .dq = q, .dk = q, .dv = q};
    unit_fails(cpu_backward(&args, 2), VF_ERROR_OUT_OF_MEMORY, "no memory for");
#endif
}
END_TEST

START_TEST(levels) {
    ck_assert(cpu_select(CPU_GENERIC));
    ck_assert_int_eq(cpu_level(), CPU_GENERIC);
    ck_assert_str_eq(cpu_level_name(CPU_GENERIC), "generic");
    ck_assert_str_eq(cpu_level_name(CPU_AVX2), "avx2");
    ck_assert_str_eq(cpu_level_name(CPU_AVX512), "avx512");
    ck_assert_int_ge(cpu_thread_count(), 1);
    ck_assert_uint_eq(cpu_forward_workspace(&(vf_forward_args){0}), 0);
    ck_assert_uint_eq(cpu_backward_workspace(&(vf_backward_args){0}), 0);
}
END_TEST

LOOP_MAIN("cpu", 60, {levels, 0}, {sweep_small, SWEEP_PARTS}, {sweep_long, 3}, {any_number_of_threads, 9},
          {any_batch, 9}, {nan_stays_at_home, 3}, {broken_lengths, 3}, {out_of_memory, 0})
