// test_cpu_faults.c - on the CPU backend: inputs that broke other attention libraries, at a size that fits here.
//
// The names are those of the kinds of fault: widths of indices (W), emptiness (E), unused memory (M), strides (S),
// masks, heads and dimensions (K). Every problem runs at every level of vector code.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cpu.h"
#include "cpu_case.h"
#include "loop_main.h"
#include "unit.h"

static void run_case(struct case_problem problem) {
    for (int level = 0; level < CPU_LEVEL_COUNT; level++) {
        if (!cpu_select((enum cpu_level)level)) continue;
        problem.seed++;
        ck_assert_msg(case_run(&problem), "level %s", cpu_level_name((enum cpu_level)level));
    }
}

// One sequence, forward and backward, with everything else at its default.
static struct case_problem one(int64_t sq, int64_t sk, int dim, vf_mask mask) {
    struct case_problem problem = {
        .batch = 1, .heads_k = 1, .group = 1, .head_dim = dim, .head_dim_v = dim, .mask = mask};
    problem.q.slots[0] = sq;
    problem.k.slots[0] = sk;
    problem.left = problem.right = VF_NO_EDGE;
    problem.dtype = VF_BFLOAT16;
    problem.backward = true;
    problem.poison = NAN;
    return problem;
}

static void set_lengths(struct case_problem *problem, int64_t batch, const int64_t *q, const int64_t *k) {
    problem->batch = batch;
    memcpy(problem->q.slots, q, (size_t)batch * sizeof *q);
    memcpy(problem->k.slots, k, (size_t)batch * sizeof *k);
}

START_TEST(e1_empty_sequences_and_rows_behind_them) {
    struct case_problem problem = one(0, 0, 128, _i ? VF_MASK_CAUSAL : VF_MASK_FULL);
    set_lengths(&problem, 3, (int64_t[]){0, 0, 103}, (int64_t[]){0, 1, 205});
    problem.q.tail = 103;
    problem.heads_k = 4;
    run_case(problem);
}
END_TEST

START_TEST(e3_nothing_at_all) {
    static const int64_t some[] = {3, 0, 7}, none[] = {0, 0, 0};
    for (int kind = 0; kind < 8; kind++) {
        struct case_problem problem = one(0, 0, 16, _i ? VF_MASK_CAUSAL : VF_MASK_FULL);
        set_lengths(&problem, kind & 4 ? 0 : 3, kind & 1 ? some : none, kind & 2 ? some : none);
        problem.q.tail = problem.k.tail = kind & 4 ? 5 : 0;
        problem.dtype = VF_FLOAT32;
        run_case(problem);
    }
}
END_TEST

START_TEST(e4_rows_that_see_nothing) {
    struct case_problem problem = one(0, 0, 32, VF_MASK_CAUSAL);
    set_lengths(&problem, 3, (int64_t[]){76, 34, 146}, (int64_t[]){1, 1, 1});
    problem.dtype = VF_FLOAT16;
    problem.deviation = 3;
    run_case(problem);
    run_case(one(4, 2, 8, VF_MASK_CAUSAL));  // E5
}
END_TEST

// E6: one visible key, whatever its logit, is all of the output.
START_TEST(e6_one_key_with_a_huge_negative_logit) {
    static const float logits[] = {-1e4f, -1e5f, -1e30f, 1e30f};
    for (int i = 0; i < 4 * CPU_LEVEL_COUNT; i++) {
        if (!cpu_select((enum cpu_level)(i / 4))) continue;
        struct case_problem problem = one(40, 1, 16, VF_MASK_FULL);
        problem.dtype = VF_FLOAT32;
        problem.scale = 1;
        struct case_tensors tensors;
        case_make(&problem, &tensors);
        for (int64_t row = 0; row < 40; row++) {
            for (int64_t c = 0; c < 16; c++)
                *(float *)case_at(&tensors.view[CASE_Q], (int64_t[4]){row, 0, c}) = c ? 0 : 1;
        }
        *(float *)case_at(&tensors.view[CASE_K], (int64_t[4]){0}) = logits[i % 4];
        unit_ok(cpu_forward(&tensors.forward, 1));
        unit_ok(cpu_backward(&tensors.backward, 1));
        for (int64_t row = 0; row < 40; row++) {
            ck_assert(case_get(&tensors.view[CASE_LSE], (int64_t[4]){0, row}) == logits[i % 4]);
            for (int64_t c = 0; c < 16; c++) {
                const double v = case_get(&tensors.view[CASE_V], (int64_t[4]){0, 0, c});
                ck_assert(case_get(&tensors.view[CASE_O], (int64_t[4]){row, 0, c}) == v);
                ck_assert(isfinite(case_get(&tensors.view[CASE_DQ], (int64_t[4]){row, 0, c})));
                ck_assert(isfinite(case_get(&tensors.view[CASE_DK], (int64_t[4]){0, 0, c})));
                ck_assert(isfinite(case_get(&tensors.view[CASE_DV], (int64_t[4]){0, 0, c})));
            }
        }
        case_free(&tensors);
    }
}
END_TEST

START_TEST(m1_rows_after_the_last_sequence) {
    struct case_problem problem = one(0, 0, 64, VF_MASK_CAUSAL);
    set_lengths(&problem, 3, (int64_t[]){14, 43, 51}, (int64_t[]){14, 43, 51});
    problem.q.tail = problem.k.tail = 2;
    problem.heads_k = 2;
    run_case(problem);
}
END_TEST

// M2, M3, M4, K2b: slots that are not full, with what must not matter in the rest.
START_TEST(m2_unused_memory) {
    static const double poisons[] = {NAN, INFINITY, -INFINITY};
    struct case_problem problem = one(0, 0, 64, VF_MASK_FULL);
    set_lengths(&problem, 4, (int64_t[]){1, 1, 1, 1}, (int64_t[]){128, 128, 128, 128});
    memcpy(problem.k.used, (int64_t[]){32, 64, 96, 48}, 4 * sizeof(int64_t));
    problem.k.has_used = problem.k.batched = true;
    problem.heads_k = 2;
    problem.poison = poisons[_i];
    run_case(problem);

    problem = one(24, 24, 128, VF_MASK_CAUSAL);
    problem.q.used[0] = problem.k.used[0] = 21;
    problem.q.has_used = problem.k.has_used = true;
    problem.group = 16;
    problem.poison = poisons[_i];
    run_case(problem);

    for (int used = 1; used < 4; used++) {  // of q, of k, of both; the middle one is larger than its slot
        problem = one(0, 0, 16, VF_MASK_CAUSAL);
        set_lengths(&problem, 3, (int64_t[]){3, 4, 2}, (int64_t[]){3, 4, 2});
        memcpy(problem.q.used, (int64_t[]){2, 9, 1}, 3 * sizeof(int64_t));
        memcpy(problem.k.used, (int64_t[]){2, 9, 1}, 3 * sizeof(int64_t));
        problem.q.has_used = used & 1;
        problem.k.has_used = used & 2;
        problem.poison = poisons[_i];
        run_case(problem);
    }
}
END_TEST

// S1, S2, S3: each operand with strides of its own (any sign, 0 for inputs, any offset) while the others are plain.
START_TEST(s_strides_of_each_operand) {
    for (int name = 0; name < CASE_TENSORS; name++) {
        for (uint64_t seed = 0; seed < 6; seed++) {
            struct case_problem problem = one(0, 0, 24, VF_MASK_FULL);
            set_lengths(&problem, 2, (int64_t[]){5, 5}, (int64_t[]){5, 5});
            problem.q.batched = problem.k.batched = seed % 2;
            problem.heads_k = 2;
            problem.seed = 100 * seed;
            problem.dlse = true;
            problem.layout[name] =
                name == CASE_O || name == CASE_LSE || name >= CASE_DQ ? CASE_SCATTERED : CASE_EXPANDED;
            run_case(problem);
        }
    }
}
END_TEST

START_TEST(k1_causal_aligns_bottom_right) {
    static const int64_t lengths[][2] = {{1, 3},     {3, 1},   {5, 2},   {2, 5},    {129, 128},
                                         {128, 129}, {1, 513}, {511, 1}, {193, 197}};
    for (size_t i = 0; i < ARRAY_LENGTH(lengths); i++) run_case(one(lengths[i][0], lengths[i][1], 16, VF_MASK_CAUSAL));
}
END_TEST

START_TEST(k2_every_window) {
    static const int64_t edges[] = {-3, -2, -1, 0, 1, 2, 3, 1000, (int64_t)1 << 40, -((int64_t)1 << 40), VF_NO_EDGE};
    static const int64_t lengths[][2] = {{7, 11}, {11, 7}, {9, 9}, {200, 130}};
    for (size_t left = 0; left < ARRAY_LENGTH(edges); left++) {
        for (size_t right = 0; right < ARRAY_LENGTH(edges); right++) {
            struct case_problem problem = one(0, 0, 8, VF_MASK_WINDOW);
            const size_t pair = (left + right) % 6 == 5 ? 3 : (size_t)_i;
            set_lengths(&problem, 1, &lengths[pair][0], &lengths[pair][1]);
            problem.left = edges[left];
            problem.right = edges[right];
            run_case(problem);
        }
    }
}
END_TEST

START_TEST(k4_softcap) {
    for (int cap = 10; cap <= 15; cap += 5) {  // one after the other, in one process
        struct case_problem problem = one(100, 130, 128, VF_MASK_CAUSAL);
        problem.softcap = cap;
        problem.deviation = 2;
        run_case(problem);
        problem.dtype = VF_FLOAT32;
        run_case(problem);
    }
}
END_TEST

// K5: every head_dim with every residue of head_dim_v.
START_TEST(k5_head_dims) {
    for (int dim = 8; dim <= 256; dim += 8) {
        struct case_problem problem = one(11, 13, dim, VF_MASK_CAUSAL);
        problem.head_dim_v = 8 + dim * 13 % 32 * 8;
        problem.dtype = (vf_dtype)(VF_FLOAT16 + dim / 8 % 3);
        run_case(problem);
    }
}
END_TEST

START_TEST(k6_head_ratios) {
    static const int64_t ratios[][2] = {{4, 10}, {8, 12}, {3, 3}, {7, 3}, {2, 16}, {1, 70}, {1, 250}};
    for (size_t i = 0; i < ARRAY_LENGTH(ratios); i++) {
        struct case_problem problem = one(9, 14, 24, VF_MASK_CAUSAL);
        problem.heads_k = ratios[i][0];
        problem.group = ratios[i][1];
        run_case(problem);
    }
}
END_TEST

// ---- widths of indices
// ---------------------------------------------------------------------------------------------------

// Memory that is there only where it is touched.
static void *sparse(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ck_assert(memory != MAP_FAILED);
    return memory;
}

// W1, W3: each operand in turn with a row stride so large that offsets pass 2^31 and 2^32 elements. Equal, bit for bit.
START_TEST(w1_offsets_beyond_32_bits) {
    const int64_t stride = ((int64_t)1 << 29) + 16;
    struct case_problem problem = one(11, 11, 16, VF_MASK_CAUSAL);
    const size_t bytes = ((size_t)stride * 10 + 16) * 2;
    for (int level = 0; level < CPU_LEVEL_COUNT; level++) {
        if (!cpu_select((enum cpu_level)level)) continue;
        for (int name = 0; name < CASE_TENSORS; name++) {
            if (name == CASE_LSE || name == CASE_DLSE) continue;
            struct case_tensors plain, wide;
            case_make(&problem, &plain);
            case_make(&problem, &wide);
            vf_tensor *views[] = {&wide.backward.q,
                                  &wide.backward.k,
                                  &wide.backward.v,
                                  &wide.backward.o,
                                  NULL,
                                  &wide.backward.dout,
                                  NULL,
                                  &wide.backward.dq,
                                  &wide.backward.dk,
                                  &wide.backward.dv};
            vf_tensor *forward[] = {&wide.forward.q, &wide.forward.k, &wide.forward.v, &wide.forward.o};
            const vf_tensor near_view = *views[name];
            vf_tensor far_view = near_view;
            far_view.data = sparse(bytes);
            far_view.stride[0] = stride;
            for (int64_t row = 0; row < 11; row++) {
                memcpy(case_at(&far_view, (int64_t[4]){row}), case_at(&near_view, (int64_t[4]){row}), 32);
            }
            *views[name] = far_view;
            if (name <= CASE_O) *forward[name] = far_view;
            unit_ok(cpu_forward(&plain.forward, 1));
            unit_ok(cpu_backward(&plain.backward, 1));
            unit_ok(cpu_forward(&wide.forward, 1));
            unit_ok(cpu_backward(&wide.backward, 1));
            for (int64_t row = 0; row < 11; row++) {
                memcpy(case_at(&near_view, (int64_t[4]){row}), case_at(&far_view, (int64_t[4]){row}), 32);
            }
            for (int out = 0; out < CASE_TENSORS; out++) {
                if (plain.memory[out]) ck_assert(!memcmp(plain.memory[out], wide.memory[out], plain.bytes[out]));
            }
            munmap(far_view.data, bytes);
            case_free(&plain);
            case_free(&wide);
        }
    }
}
END_TEST

static vf_tensor packed(int64_t rows, int64_t heads, int64_t dim, float start) {
    vf_tensor tensor = {
        malloc((size_t)(rows * heads * dim) * sizeof(float)), VF_FLOAT32, 3, {rows, heads, dim}, {heads * dim, dim, 1}};
    for (int64_t i = 0; i < rows * heads * dim; i++) ((float *)tensor.data)[i] = start + (float)(i % 1021) * 0x1p-10f;
    return tensor;
}

// Attention to a single key is its value: with one token a sequence, or one in all, O = V, LSE = the logit, dV = dO, dQ
// = dK = 0.
static void expect_identity(int64_t sequences, int64_t heads) {
    const int64_t dim = 8, count = sequences * heads * dim;
    int32_t *cu = malloc((size_t)(sequences + 1) * sizeof *cu);
    for (int64_t i = 0; i <= sequences; i++) cu[i] = (int32_t)i;
    vf_tensor q = packed(sequences, heads, dim, 0), v = packed(sequences, heads, dim, 1),
              o = packed(sequences, heads, dim, 9);
    vf_tensor dout = packed(sequences, heads, dim, 0.5f), dq = packed(sequences, heads, dim, 9),
              dk = packed(sequences, heads, dim, 9);
    vf_tensor dv = packed(sequences, heads, dim, 9), lse = packed(heads, sequences, 1, 9);
    lse.ndim = 2;
    const vf_tensor lengths = {cu, VF_INT32, 1, {sequences + 1}, {1}};
    const vf_problem_args args = {.cu_seqlens_q = lengths, .cu_seqlens_k = lengths};
    const vf_forward_args forward = {0, q, q, v, o, lse, args};
    const vf_backward_args backward = {0, q, q, v, o, lse, dout, {0}, dq, dk, dv, args};
    unit_ok(cpu_forward(&forward, 2));
    unit_ok(cpu_backward(&backward, 2));
    ck_assert(!memcmp(o.data, v.data, (size_t)count * sizeof(float)));
    ck_assert(!memcmp(dv.data, dout.data, (size_t)count * sizeof(float)));
    int64_t wrong = 0;  // an assertion that holds is a message to the parent process: too many of them
    for (int64_t i = 0; i < count; i++) {
        wrong += !(fabsf(((float *)dq.data)[i]) < 1e-4f);
        wrong += !(fabsf(((float *)dk.data)[i]) < 1e-4f);
    }
    ck_assert_int_eq(wrong, 0);
    vf_tensor *all[] = {&q, &v, &o, &dout, &dq, &dk, &dv, &lse};
    for (size_t i = 0; i < ARRAY_LENGTH(all); i++) free(all[i]->data);
    free(cu);
}

START_TEST(w4_more_sequences_or_heads_than_16_bits) {
    if (!cpu_select((enum cpu_level)_i)) return;
    for (int64_t count = 65535; count <= 65537; count++) {
        expect_identity(count, 1);
        expect_identity(1, count);
    }
}
END_TEST

// W5: values of 1 under a window: O = 1, and LSE of equal logits = logit + log of the keys seen.
START_TEST(w5_a_sequence_longer_than_16_bits) {
    if (!cpu_select((enum cpu_level)_i)) return;
    for (int64_t length = 65535; length <= 65537; length++) {
        vf_tensor q = packed(length, 1, 8, 0), v = packed(length, 1, 8, 0), o = packed(length, 1, 8, 9),
                  lse = packed(1, length, 1, 9);
        for (int64_t i = 0; i < length * 8; i++) ((float *)q.data)[i] = ((float *)v.data)[i] = 1;
        lse.ndim = 2;
        int64_t cu[] = {0, length};
        const vf_tensor lengths = {cu, VF_INT64, 1, {2}, {1}};
        const vf_problem_args args = {.mask = VF_MASK_WINDOW,
                                      .window_left = 9,
                                      .softmax_scale = 0.125,
                                      .cu_seqlens_q = lengths,
                                      .cu_seqlens_k = lengths};
        const vf_forward_args forward = {0, q, q, v, o, lse, args};
        unit_ok(cpu_forward(&forward, 2));
        int64_t wrong = 0;
        for (int64_t i = 0; i < length; i++) {
            wrong += !(fabsf(((float *)o.data)[i * 8 + 7] - 1) < 1e-6f);
            wrong += !(fabs(((float *)lse.data)[i] - 1 - log((double)(i < 9 ? i + 1 : 10))) < 1e-6);
        }
        ck_assert_int_eq(wrong, 0);
        vf_tensor *all[] = {&q, &v, &o, &lse};
        for (size_t t = 0; t < ARRAY_LENGTH(all); t++) free(all[t]->data);
    }
}
END_TEST

LOOP_MAIN("cpu_faults", 60, {e1_empty_sequences_and_rows_behind_them, 2}, {e3_nothing_at_all, 2},
          {e4_rows_that_see_nothing, 0}, {e6_one_key_with_a_huge_negative_logit, 0},
          {m1_rows_after_the_last_sequence, 0}, {m2_unused_memory, 3}, {s_strides_of_each_operand, 0},
          {k1_causal_aligns_bottom_right, 0}, {k2_every_window, 3}, {k4_softcap, 0}, {k5_head_dims, 0},
          {k6_head_ratios, 0}, {w1_offsets_beyond_32_bits, 0},
          {w4_more_sequences_or_heads_than_16_bits, CPU_LEVEL_COUNT},
          {w5_a_sequence_longer_than_16_bits, CPU_LEVEL_COUNT})
