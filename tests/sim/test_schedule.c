// test_schedule.c - the kernel that makes work lists, alone on the simulator: whether they are what the lengths say, for batches of which no
// operand could be in memory. What it writes outside the lists is a finding of the machine.
//
// VARFLASH_SOURCE: a tree whose gen/ and templates/ are tried in place of those built in; SIM_CACHE: where kernels are kept. mutants.lua sets them.
#include <string.h>

#include "buf.h"
#include "driver.h"
#include "kernel_args.h"
#include "launch.h"
#include "source.h"
#include "unit.h"

// One side of a batch: cu_seqlens, or null where it is batched; seqused, or null.
struct lengths {
    const int64_t *cu, *used;
    int64_t rows;  // of the packed tensor, or of a slot
};
struct batch {
    int64_t count;
    struct lengths q, k;
    int tile_m, tile_n;
    bool forward, keep;
};

// What a list has: arrays of the device, and how long they are.
struct list {
    struct kernel_schedule_header *header;
    int64_t *first_block;
    struct kernel_sequence *sequences;
};

static struct sim_module *module;
static const struct sim_kernel *kernel;

static void setup(void) {
    const char *root = getenv("VARFLASH_SOURCE"), *cache = getenv("SIM_CACHE");
    const struct sim_options options = {.seed = 1,
                                        .root = root,
                                        .sim_root = ".",
                                        .cache = cache ? cache : "build/sim-cache",
                                        .finding_limit = 1,
                                        .turn_limit = 1000000};
    static char message[2000];
    struct source *source;
    struct buf text = {.data = NULL};
    sim_configure(&options);
    unit_ok(source_open(root, &source));
    unit_ok(source_text(source, "kernel=schedule arch=sm_90a", &text));
    module = sim_load(text.data, text.size, message, sizeof message);
    ck_assert_msg(module != NULL, "does not compile: %s", message);
    kernel = sim_find(module, "vf_schedule");
    buf_free(&text);
    source_close(source);
}

static void teardown(void) {
    sim_unload(module);
    ck_assert_uint_eq(sim_allocated(), 0);
}

// ---- running -------------------------------------------------------------------------------------------------------

static void *allocate(int64_t count, size_t size) {
    void *data = sim_alloc(count > 0 ? (size_t)count * size : 1);
    ck_assert_ptr_nonnull(data);
    return data;
}

static struct kernel_lengths upload(const int64_t *values, int64_t count) {
    if (!values) return (struct kernel_lengths){.data = 0};
    void *data = allocate(count, sizeof *values);
    memcpy(data, values, (size_t)count * sizeof *values);
    sim_mark_written(data, (size_t)count * sizeof *values);
    return (struct kernel_lengths){(uint64_t)(uintptr_t)data, 1};
}

static struct kernel_schedule make_list(int64_t entries, struct list *list) {
    list->header = allocate(1, sizeof *list->header);
    list->first_block = allocate(entries + 1, sizeof *list->first_block);
    list->sequences = allocate(entries, sizeof *list->sequences);
    return (struct kernel_schedule){(uint64_t)(uintptr_t)list->header, (uint64_t)(uintptr_t)list->first_block,
                                    (uint64_t)(uintptr_t)list->sequences};
}
static void free_list(const struct list *list) {
    if (!list->header) return;
    sim_free(list->header);
    sim_free(list->first_block);
    sim_free(list->sequences);
}

static void free_address(uint64_t address) {
    if (address) sim_free((void *)(uintptr_t)address);
}

static struct layout layout_of(const struct batch *batch) {
    const struct call call = {.backward = !batch->forward,
                              .batch = batch->count,
                              .heads_q = 1,
                              .rows_q = batch->q.rows,
                              .rows_k = batch->k.rows,
                              .total_q = batch->q.rows * (batch->q.cu ? 1 : batch->count),
                              .total_k = batch->k.rows * (batch->k.cu ? 1 : batch->count),
                              .request = {.head_dim = 8}};
    struct layout layout;
    unit_ok(launch_layout(&call, batch->tile_m, batch->tile_n, &layout));
    return layout;
}

// As runtime/launch.c launches it.
static void run(const struct batch *batch, const struct layout *layout, struct list lists[2]) {
    struct kernel_schedule_args args = {
        .cu_q = upload(batch->q.cu, batch->count + 1),
        .cu_k = upload(batch->k.cu, batch->count + 1),
        .used_q = upload(batch->q.used, batch->count),
        .used_k = upload(batch->k.used, batch->count),
        .by_q = make_list(layout->entries, &lists[0]),
        .batch = batch->count,
        .q_rows = batch->q.rows,
        .k_rows = batch->k.rows,
        .share = batch->count > 0 ? (batch->count + layout->shares - 1) / layout->shares : 1,
        .tile_m = batch->tile_m,
        .tile_n = batch->tile_n,
        .fill = !batch->keep,
    };
    if (!batch->forward) args.by_k = make_list(layout->entries, &lists[1]);
    if (layout->shares > 1)
        args.parts = (uint64_t)(uintptr_t)allocate(layout->shares, sizeof(struct kernel_schedule_part));
    const struct sim_facts *facts = sim_kernel_facts(kernel);
    struct sim_grid grid = {(uint32_t)layout->shares, (uint32_t)facts->threads, (uint32_t)facts->shared_bytes, false};
    sim_fence();
    sim_clear_findings();
    sim_launch(kernel, &grid, &args);
    args.counted = 1;
    grid.programmatic = true;
    if (layout->shares > 1) sim_launch(kernel, &grid, &args);
    ck_assert_msg(sim_finding_count() == 0, "finding: %s: %s at %s", sim_get_finding(0)->kind, sim_get_finding(0)->text,
                  sim_get_finding(0)->place);
    free_address(args.parts);
    free_address(args.cu_q.data);
    free_address(args.cu_k.data);
    free_address(args.used_q.data);
    free_address(args.used_k.data);
}

// ---- what the lengths say ------------------------------------------------------------------------------------------

#define LONGEST CALL_LENGTH_LIMIT

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
    return value < low ? low : value > high ? high : value;
}
static int64_t divide_up(int64_t value, int64_t by) {
    return (value + by - 1) / by;
}

static int64_t begin_of(const struct lengths *side, int64_t index) {
    return side->cu ? clamp(side->cu[index], 0, side->rows) : 0;
}
static int64_t end_of(const struct lengths *side, int64_t index) {
    return side->cu ? clamp(side->cu[index + 1], 0, side->rows) : side->rows;
}
static int64_t used_of(const struct lengths *side, int64_t index) {
    const int64_t slot = end_of(side, index) - begin_of(side, index);
    return clamp(side->used ? clamp(side->used[index], 0, slot) : slot, 0, LONGEST);
}

// Whether a sequence ends before it begins.
static bool falls(const struct lengths *side, int64_t count) {
    bool any = false;
    for (int64_t i = 0; i < count; i++) any |= end_of(side, i) < begin_of(side, i);
    return any;
}

static void add_gap(struct buf *out, bool of_k, int32_t slot, int64_t begin, int64_t rows) {
    for (int64_t count; rows > 0; begin += count, rows -= count) {
        count = clamp(rows, 0, LONGEST);
        struct kernel_sequence gap = {.accumulator_row = -1};
        *(of_k ? &gap.k_begin : &gap.q_begin) = begin;
        *(of_k ? &gap.k_len : &gap.q_len) = (int32_t)count;
        *(of_k ? &gap.k_batch : &gap.q_batch) = slot;
        buf_append(out, &gap, sizeof gap);
    }
}

// The entries of a list, in any order; accumulator_row of those that have one: 0.
static void expect(const struct batch *batch, bool of_k, struct buf *out) {
    const struct lengths *side = of_k ? &batch->k : &batch->q;
    const int64_t count = batch->count;
    if (falls(&batch->q, count) || falls(&batch->k, count)) return;
    for (int64_t i = 0; i < count; i++) {
        const struct kernel_sequence sequence = {
            .q_begin = begin_of(&batch->q, i),
            .k_begin = begin_of(&batch->k, i),
            .stat_row = batch->q.cu ? begin_of(&batch->q, i) : i * batch->q.rows,
            .accumulator_row =
                !batch->forward && used_of(&batch->k, i) > batch->tile_n && used_of(&batch->q, i) > 0 ? 0 : -1,
            .q_len = (int32_t)used_of(&batch->q, i),
            .k_len = (int32_t)used_of(&batch->k, i),
            .q_batch = batch->q.cu ? 0 : (int32_t)i,
            .k_batch = batch->k.cu ? 0 : (int32_t)i,
        };
        if (used_of(side, i) > 0) buf_append(out, &sequence, sizeof sequence);
        if (batch->keep) continue;
        const int64_t used_end = begin_of(side, i) + used_of(side, i);
        const bool last = side->cu && i == count - 1;
        if (i == 0) add_gap(out, of_k, 0, 0, begin_of(side, 0));
        add_gap(out, of_k, side->cu ? 0 : (int32_t)i, used_end, (last ? side->rows : end_of(side, i)) - used_end);
    }
    if (count == 0 && side->cu && !batch->keep) add_gap(out, of_k, 0, 0, side->rows);
}

// ---- judging -------------------------------------------------------------------------------------------------------

static int by_place(const void *left, const void *right) {
    const struct kernel_sequence *a = left, *b = right;
    const int64_t keys[][2] = {{a->q_batch, b->q_batch}, {a->k_batch, b->k_batch}, {a->q_begin, b->q_begin},
                               {a->k_begin, b->k_begin}, {a->q_len, b->q_len},     {a->k_len, b->k_len}};
    for (size_t i = 0; i < ARRAY_LENGTH(keys); i++) {
        if (keys[i][0] != keys[i][1]) return keys[i][0] < keys[i][1] ? -1 : 1;
    }
    return 0;
}

static int by_accumulators(const void *left, const void *right) {
    const struct kernel_sequence *a = left, *b = right;
    return (a->accumulator_row > b->accumulator_row) - (a->accumulator_row < b->accumulator_row);
}

// Sequences that have accumulators have them to themselves, and all that there are.
static void judge_accumulators(const struct batch *batch, const struct layout *layout, const struct list *list,
                               struct kernel_sequence *entries) {
    const int64_t count = list->header->entries;
    int64_t next = 0;
    qsort(entries, (size_t)count, sizeof *entries, by_accumulators);
    for (int64_t i = 0; i < count; i++) {
        if (entries[i].accumulator_row < 0) continue;
        ck_assert_int_eq(entries[i].accumulator_row, next);
        next += divide_up(entries[i].q_len, batch->tile_m) * batch->tile_m;
    }
    ck_assert_int_eq(list->header->accumulator_rows, next);
    ck_assert_int_le(next, layout->accumulator_rows);
}

static void judge(const struct batch *batch, const struct layout *layout, bool of_k, const struct list *list) {
    const int64_t count = list->header->entries;
    const int tile = of_k ? batch->tile_n : batch->tile_m;
    struct buf expected = {.data = NULL}, found = {.data = NULL};
    expect(batch, of_k, &expected);
    ck_assert_uint_eq(list->header->ticket, 0);
    ck_assert_int_eq(count, (int64_t)(expected.size / sizeof(struct kernel_sequence)));
    ck_assert_int_le(count, layout->entries);
    int64_t blocks = 0, longest = LONGEST;
    for (int64_t i = 0; i < count; i++) {
        const struct kernel_sequence *entry = &list->sequences[i];
        const int64_t rows = of_k ? entry->k_len : entry->q_len, other = of_k ? entry->q_len : entry->k_len;
        ck_assert_int_eq(list->first_block[i], blocks);
        blocks += divide_up(rows, tile);
        ck_assert_msg(other <= longest + longest / 8, "entry %lld is longer than one before it", (long long)i);
        longest = other < longest ? other : longest;
    }
    ck_assert_int_eq(list->first_block[count], blocks);
    ck_assert_int_eq(list->header->blocks, blocks);
    buf_append(&found, list->sequences, (size_t)count * sizeof *list->sequences);
    if (count > 0) {
        struct kernel_sequence *a = (void *)found.data, *b = (void *)expected.data;
        if (!batch->forward) judge_accumulators(batch, layout, list, a);
        qsort(a, (size_t)count, sizeof *a, by_place);
        qsort(b, (size_t)count, sizeof *b, by_place);
        for (int64_t i = 0; i < count; i++) {
            if (a[i].accumulator_row > 0) a[i].accumulator_row = 0;
            ck_assert_mem_eq(&a[i], &b[i], sizeof *a);
        }
    }
    buf_free(&expected);
    buf_free(&found);
}

// Entries of the list by q.
static int64_t try_batch(const struct batch *batch) {
    const struct layout layout = layout_of(batch);
    struct list lists[2] = {{.header = NULL}};
    run(batch, &layout, lists);
    for (int of_k = 0; of_k < 2 - batch->forward; of_k++) judge(batch, &layout, of_k, &lists[of_k]);
    const int64_t entries = lists[0].header->entries;
    for (int i = 0; i < 2; i++) free_list(&lists[i]);
    return entries;
}

// ---- batches -------------------------------------------------------------------------------------------------------

#define MOST 5000

static int64_t roll(uint64_t *state, int64_t most) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(*state >> 33) % (most + 1);
}

// Sound lengths, many of them 0; returns the rows.
static int64_t draw(uint64_t *state, int64_t count, int64_t longest, int64_t *cu, int64_t *used) {
    cu[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t length = roll(state, 2) == 0 ? 0 : roll(state, roll(state, longest));
        cu[i + 1] = cu[i] + length;
        used[i] = roll(state, 1) ? length : roll(state, length);
    }
    return cu[count] + roll(state, 1) * roll(state, 300);
}

// As many sequences as there are lanes, threads, shares, and one more or less.
START_TEST(lists_are_what_the_lengths_say) {
    static const int64_t counts[] = {0, 1, 2, 31, 32, 33, 100, 1023, 1024, 1025, 2048, 2049, MOST};
    static int64_t cu[2][MOST + 1], used[2][MOST];
    uint64_t state = 1;
    for (size_t i = 0; i < ARRAY_LENGTH(counts); i++) {
        for (int kind = 0; kind < (counts[i] > 1000 ? 2 : 24); kind++) {
            const int64_t count = counts[i], longest = kind % 3 == 0 ? 4000 : 200;
            const int64_t rows_q = draw(&state, count, longest, cu[0], used[0]);
            const int64_t rows_k = draw(&state, count, longest, cu[1], used[1]);
            const int packed = kind < 4 || count == 0 ? 3 : kind % 4;
            const struct batch batch = {
                .count = count,
                .q = {packed & 1 ? cu[0] : NULL, roll(&state, 1) ? used[0] : NULL, packed & 1 ? rows_q : longest},
                .k = {packed & 2 ? cu[1] : NULL, roll(&state, 1) ? used[1] : NULL, packed & 2 ? rows_k : longest},
                .tile_m = kind % 2 ? 64 : 192,
                .tile_n = kind % 2 ? 128 : 80,
                .forward = kind % 4 == 3,
                .keep = kind % 8 == 6,
            };
            try_batch(&batch);
        }
    }
}
END_TEST

// Gaps of more rows than an entry can have, behind the last sequence, inside one, and before the first.
START_TEST(gaps_of_any_size) {
    static const int64_t most = INT64_MAX >> 24;
    const int64_t cu[][4] = {{0, 5, 9, 20}, {0, 5, most - 3, most}, {most / 3, most / 2, most - 7, most - 1}};
    const int64_t used[] = {5, 4, 1};
    for (size_t q = 0; q < ARRAY_LENGTH(cu); q++) {
        for (size_t k = 0; k < ARRAY_LENGTH(cu); k++) {
            const struct batch batch = {
                .count = 3, .q = {cu[q], used, most}, .k = {cu[k], used, most}, .tile_m = 16, .tile_n = 16};
            ck_assert_int_gt(try_batch(&batch), most / LONGEST);
        }
    }
    const int64_t late[] = {3, 20};
    const struct batch one = {.count = 1, .q = {late, NULL, 20}, .k = {late, NULL, 20}, .tile_m = 64, .tile_n = 64};
    ck_assert_int_eq(try_batch(&one), 2);
    const int64_t edges[] = {LONGEST - 1, LONGEST, LONGEST + 1, 2 * LONGEST, 2 * LONGEST + 1}, none[] = {0};
    for (size_t i = 0; i < ARRAY_LENGTH(edges); i++) {
        const struct batch batch = {.q = {none, NULL, edges[i]}, .k = {none, NULL, 0}, .tile_m = 64, .tile_n = 128};
        ck_assert_int_eq(try_batch(&batch), divide_up(edges[i], LONGEST));
    }
    const struct batch slots = {
        .count = 2, .q = {NULL, used, LONGEST}, .k = {NULL, used, 9}, .tile_m = 64, .tile_n = 64};
    ck_assert_int_eq(try_batch(&slots), 4);
}
END_TEST

// As many sequences of as many rows as there can be.
START_TEST(counts_are_wide_enough) {
    static int64_t cu[513];
    for (int i = 0; i <= 512; i++) cu[i] = i * LONGEST;
    const struct lengths side = {cu, NULL, cu[512]};
    const struct batch batch = {.count = 512, .q = side, .k = side, .tile_m = 16, .tile_n = 16};
    ck_assert_int_eq(try_batch(&batch), 512);
}
END_TEST

// Sequences so long and so many that, were they listed, their blocks would be more than the list's arithmetic holds.
START_TEST(lengths_that_fall_are_an_empty_batch) {
    static int64_t wild[MOST + 1], mild[MOST + 1], sound[MOST + 1];
    for (int i = 0; i <= MOST; i++) {
        wild[i] = i % 2 ? LONGEST : 0;
        sound[i] = i * 7;
    }
    const int64_t counts[] = {2, 33, 1025, 2049, MOST}, places[] = {2, 32, 33, 1024, 2048, 2049, MOST};
    for (size_t i = 0; i < ARRAY_LENGTH(counts); i++) {
        struct batch batch = {
            .count = counts[i], .q = {wild, NULL, LONGEST}, .k = {sound, NULL, MOST * 7}, .tile_m = 16, .tile_n = 16};
        ck_assert_int_eq(try_batch(&batch), 0);
        batch.q = batch.k;
        batch.k = (struct lengths){wild, NULL, LONGEST};
        ck_assert_int_eq(try_batch(&batch), 0);
        // Once only, by a row.
        for (size_t p = 0; p < ARRAY_LENGTH(places) && places[p] <= counts[i]; p++) {
            memcpy(mild, sound, sizeof mild);
            mild[places[p]] = mild[places[p] - 1] - 1;
            batch.k.cu = mild;
            ck_assert_int_eq(try_batch(&batch), 0);
        }
    }
}
END_TEST

// Ends beyond the tensor are its end: nothing overlaps, and what is inside is listed.
START_TEST(lengths_beyond_the_rows_end_there) {
    const int64_t q[] = {0, 40, 90, 70, INT64_MAX}, k[] = {INT64_MIN, -5, 9, 60, 50};
    const struct batch batch = {.count = 4, .q = {q, NULL, 60}, .k = {k, NULL, 50}, .tile_m = 64, .tile_n = 64};
    ck_assert_int_eq(try_batch(&batch), 2);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("sim_schedule");
    TCase *group = tcase_create("lists");
    tcase_set_timeout(group, UNIT_SECONDS);
    tcase_add_checked_fixture(group, setup, teardown);
    tcase_add_test(group, lists_are_what_the_lengths_say);
    tcase_add_test(group, gaps_of_any_size);
    tcase_add_test(group, counts_are_wide_enough);
    tcase_add_test(group, lengths_that_fall_are_an_empty_batch);
    tcase_add_test(group, lengths_beyond_the_rows_end_there);
    suite_add_tcase(suite, group);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
