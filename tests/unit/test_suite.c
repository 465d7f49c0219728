// test_suite.c - the named lists: what they promise to contain, and that sweeps are the same everywhere and reuse
// kernels.
#include "suite.h"
#include "sweep.h"
#include "unit.h"

START_TEST(every_listed_suite_is_there) {
    for (size_t i = 0; i < suite_info_count; i++) {
        char name[64];
        const char *colon = strchr(suite_infos[i].name, ':');
        const int length = colon ? (int)(colon - suite_infos[i].name) : (int)strlen(suite_infos[i].name);
        snprintf(name, sizeof name, "%.*s%s", length, suite_infos[i].name, colon ? ":1:3" : "");
        struct problem_list list = {0};
        unit_ok(suite_get(name, &list));
        ck_assert_uint_gt(list.count, 0);
        for (size_t p = 0; p < list.count; p++) {
            ck_assert_msg(*list.items[p].name, "%s: problem %zu has no name", name, p);
            for (size_t other = 0; other < p; other++) ck_assert_str_ne(list.items[p].name, list.items[other].name);
        }
        problem_list_free(&list);
    }
}
END_TEST

START_TEST(unknown_names_are_refused) {
    static const char *const names[] = {"",           "smok",       "sweep",      "sweep:",          "sweep:1",
                                        "sweep:1:2x", "sweep:-1:2", "sweep:1:-2", "sweep:1:1000001", "sweep-small:a:2"};
    struct problem_list list = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        unit_fails(suite_get(names[i], &list), VF_ERROR_INVALID_ARGUMENT, "suite: ");
        ck_assert_uint_eq(list.count, 0);
    }
    problem_list_free(&list);
}
END_TEST

static const struct problem *find(const struct problem_list *list, const char *name) {
    for (size_t i = 0; i < list->count; i++)
        if (!strcmp(list->items[i].name, name)) return &list->items[i];
    ck_abort_msg("no problem %s", name);
}

START_TEST(benchmarks_have_the_shapes_of_the_comparison) {
    struct problem_list list = {0};
    unit_ok(suite_get("bench", &list));
    ck_assert_uint_eq(list.count, 24 + 14);
    const struct problem *dense = find(&list, "dense-d128-s2048-c1");
    ck_assert_int_eq(dense->batch, 8);
    ck_assert_int_eq(dense->heads_q, 16);
    ck_assert_int_eq(dense->mask, VF_MASK_CAUSAL);
    const struct problem *packed = find(&list, "lognormal64k-gqa8-d64-c0");
    ck_assert_int_eq(packed->batch, 94);
    ck_assert_int_eq(packed->rows_q, 65536);
    ck_assert_int_eq(packed->seqlens_q[0], 263);
    ck_assert_int_eq(packed->seqlens_q[59], 5952);
    ck_assert_int_eq(packed->seqlens_k[93], 269);
    ck_assert_int_eq(packed->heads_q, 32);
    ck_assert_int_eq(packed->heads_k, 4);
    ck_assert_int_eq(find(&list, "one16k+384x128-d128-c1")->batch, 385);
    ck_assert_int_eq(find(&list, "8192x34-d128-c0")->rows_q, 278528);
    problem_list_free(&list);
}
END_TEST

START_TEST(faults_hold_the_case_of_the_far_operand) {
    struct problem_list list = {0};
    unit_ok(suite_get("faults", &list));
    const struct problem *problem = find(&list, "W1-dout");
    ck_assert_int_eq(problem->rows_q, 410923);
    ck_assert_int_eq(problem->seqlens_q[0], 225304);
    ck_assert_int_eq(problem->heads_q, 16);
    ck_assert_int_eq(problem->head_dim, 96);
    ck_assert_int_eq(problem->strides[OPERAND_DOUT].row, 9728);
    ck_assert_int_eq(find(&list, "E1")->rows_q, 2046);
    problem_list_free(&list);
}
END_TEST

// ---- sweeps ----

static bool aligned(const struct problem *problem, bool backward) {
    for (int i = 0; i < OPERAND_COUNT; i++) {
        const struct problem_strides *strides = &problem->strides[i];
        if (i == OPERAND_LSE || i == OPERAND_DLSE || (i > OPERAND_LSE && !backward)) continue;
        if (strides->row % 8 || strides->head % 8 || strides->batch % 8 || strides->storage_offset % 8) return false;
    }
    return true;
}

// Every value of one static fact occurs together with every value of every other.
START_TEST(classes_cover_all_pairs) {
    enum { FACTS = 7 };
    static const int values[FACTS] = {2, 3, 2, 2, 2, 2, 2};
    bool seen[FACTS][FACTS][3][3] = {0};
    for (uint64_t index = 0; index < SWEEP_CLASSES; index++) {
        struct problem p;
        unit_ok(sweep_problem(SWEEP_NORMAL, 2, index, &p));
        const int facts[FACTS] = {p.dtype == VF_FLOAT16,
                                  (int)p.mask,
                                  p.softcap > 0,
                                  aligned(&p, false),
                                  p.deterministic == VF_ON,
                                  p.head_dim % 16 == 0,
                                  p.head_dim == p.head_dim_v};
        for (int a = 0; a < FACTS; a++)
            for (int b = 0; b < FACTS; b++) seen[a][b][facts[a]][facts[b]] = true;
        problem_free(&p);
    }
    for (int a = 0; a < FACTS; a++)
        for (int b = 0; b < FACTS; b++)
            for (int i = 0; a != b && i < values[a]; i++)
                for (int j = 0; j < values[b]; j++) ck_assert_msg(seen[a][b][i][j], "%d = %d with %d = %d", a, i, b, j);
}
END_TEST

// What a kernel of a pass depends on.
static void class_text(const struct problem *problem, bool backward, char text[96]) {
    snprintf(text, 96, "%d %lld %lld %d %d %d %d %d", backward, (long long)problem->head_dim,
             (long long)problem->head_dim_v, problem->dtype, problem->mask, problem->softcap > 0,
             aligned(problem, backward), backward && problem->deterministic == VF_ON);
}

static size_t count_classes(const struct problem_list *list, bool backward, size_t counts[SWEEP_CLASSES + 1]) {
    static char classes[SWEEP_CLASSES + 1][96];
    size_t count = 0;
    for (size_t p = 0; p < list->count; p++) {
        char text[96];
        size_t at = 0;
        class_text(&list->items[p], backward, text);
        while (at < count && strcmp(classes[at], text) != 0) at++;
        if (at == count) {
            ck_assert_uint_lt(count, SWEEP_CLASSES);
            memcpy(classes[count], text, sizeof text);
            counts[count++] = 0;
        }
        counts[at]++;
    }
    return count;
}

START_TEST(sweeps_reuse_kernels) {
    struct problem_list list = {0};
    size_t counts[SWEEP_CLASSES + 1];
    unit_ok(suite_get("sweep:5:960", &list));
    for (int backward = 0; backward < 2; backward++) {
        const size_t classes = count_classes(&list, backward, counts);
        for (size_t i = 0; i < classes; i++) ck_assert_uint_ge(counts[i], 16);
    }
    problem_list_free(&list);
}
END_TEST

START_TEST(sweeps_are_sound_and_the_same_every_time) {
    static const enum sweep_size sizes[] = {SWEEP_NORMAL, SWEEP_SMALL};
    for (uint64_t index = 0; index < 600; index++)
        for (int size = 0; size < 2; size++) {
            struct problem one, two;
            unit_ok(sweep_problem(sizes[size], 3, index, &one));
            unit_ok(sweep_problem(sizes[size], 3, index, &two));
            ck_assert(problem_equal(&one, &two));
            ck_assert(problem_sound(&one, NULL, 0));
            for (int64_t b = 0; b < one.batch; b++) ck_assert_int_le(one.seqlens_q[b], size ? 140 : 700);
            problem_free(&one);
            problem_free(&two);
        }
}
END_TEST

START_TEST(sweeps_mix_all_features) {
    enum { FEATURES = 28 };
    static const char *const names[FEATURES] = {
        "empty q",    "empty k",     "no batch",  "used q",        "used k",   "rows q",     "rows k",
        "batched",    "mixed forms", "int64",     "hints",         "groups",   "other dv",   "causal",
        "window",     "softcap",     "scale",     "deterministic", "forward",  "dlse",       "keep",
        "inf poison", "strides",     "unaligned", "negative",      "stride 0", "tile edges", "no lse"};
    int seen[FEATURES] = {0}, dims[33] = {0};
    for (uint64_t index = 0; index < 2000; index++) {
        struct problem p;
        unit_ok(sweep_problem(SWEEP_NORMAL, 1, index, &p));
        int64_t slots = 0;
        bool empty_q = false, empty_k = false, edge = false, negative = false, still = false, strided = false;
        for (int64_t b = 0; b < p.batch; b++) {
            slots += p.seqlens_q[b];
            empty_q |= !p.seqlens_q[b];
            empty_k |= !p.seqlens_k[b];
            edge |= p.seqlens_q[b] == 129 || p.seqlens_k[b] == 63;
        }
        for (int i = 0; i < OPERAND_COUNT; i++) {
            strided |= p.strides[i].set;
            negative |= p.strides[i].row < 0;
            still |= p.strides[i].set && !p.strides[i].head;
        }
        const bool facts[FEATURES] = {empty_q,
                                      empty_k,
                                      !p.batch,
                                      p.seqused_q,
                                      p.seqused_k,
                                      !p.batched_q && p.rows_q > slots,
                                      p.rows_k > 0,
                                      p.batched_q && p.batched_k,
                                      p.batched_q != p.batched_k,
                                      p.int64_lengths,
                                      p.max_seqlen_q && p.max_seqlen_k,
                                      p.heads_q > p.heads_k,
                                      p.head_dim != p.head_dim_v,
                                      p.mask == VF_MASK_CAUSAL,
                                      p.mask == VF_MASK_WINDOW,
                                      p.softcap > 0,
                                      p.softmax_scale > 0,
                                      p.deterministic == VF_ON,
                                      !p.backward,
                                      p.dlse,
                                      p.fill == VF_FILL_KEEP,
                                      p.poison == POISON_INF,
                                      strided,
                                      !aligned(&p, true),
                                      negative,
                                      still,
                                      edge,
                                      p.no_lse};
        for (int i = 0; i < FEATURES; i++) seen[i] += facts[i];
        dims[p.head_dim / 8]++;
        problem_free(&p);
    }
    for (int i = 0; i < FEATURES; i++) ck_assert_msg(seen[i] >= 10, "%s: %d times", names[i], seen[i]);
    for (int i = 1; i <= 32; i++) ck_assert_msg(dims[i] >= 16, "head_dim %d: %d times", 8 * i, dims[i]);
}
END_TEST

UNIT_MAIN("suite", every_listed_suite_is_there, unknown_names_are_refused, benchmarks_have_the_shapes_of_the_comparison,
          faults_hold_the_case_of_the_far_operand, classes_cover_all_pairs, sweeps_reuse_kernels,
          sweeps_are_sound_and_the_same_every_time, sweeps_mix_all_features)
