// test_source_plan.c - launch facts as text: what is written reads back equal, and nothing else is taken for a plan.
#include "source_plan.h"

#include "unit.h"

static struct source_plan example(void) {
    struct source_plan plan = {
        .family = "sm80", .tile_m = 128, .tile_n = 64, .numeric = 7, .shared_per_block = 232448, .kernel_count = 2};
    plan.kernels[0] = (struct source_kernel){
        .name = "schedule", .entry = "vf_schedule", .spec = "kernel=schedule arch=sm_90a", .threads = 1024};
    plan.kernels[1] = (struct source_kernel){.name = "fwd_sm80",
                                             .entry = "vf_fwd_sm80_d64",
                                             .spec = "kernel=fwd_sm80 arch=sm_90a tile_m=128",
                                             .threads = 128,
                                             .shared_bytes = 50000,
                                             .blocks_per_sm = 2,
                                             .registers = 168};
    return plan;
}

START_TEST(reads_what_it_wrote) {
    const struct source_plan plan = example();
    struct source_plan back;
    struct buf text = {.data = NULL}, again = {.data = NULL};
    source_plan_write(&plan, &text);
    ck_assert(source_plan_read(text.data, text.size, &back));
    source_plan_write(&back, &again);
    ck_assert_str_eq(text.data, again.data);
    ck_assert_int_eq(back.kernel_count, 2);
    ck_assert_int_eq(back.tile_m, 128);
    ck_assert_str_eq(back.kernels[1].spec, plan.kernels[1].spec);
    ck_assert_int_eq(back.kernels[1].shared_bytes, 50000);
    buf_free(&text);
    buf_free(&again);
}
END_TEST

START_TEST(no_part_is_a_plan) {
    const struct source_plan plan = example();
    struct source_plan back;
    struct buf text = {.data = NULL};
    source_plan_write(&plan, &text);
    const size_t first = (size_t)(strchr(text.data, '\n') - text.data) + 1;
    const size_t second = (size_t)(strchr(text.data + first, '\n') - text.data) + 1;
    for (size_t size = 0; size < text.size; size++)
        ck_assert_int_eq(source_plan_read(text.data, size, &back), size == second);
    for (size_t at = 0; at < text.size; at++) {  // never past the end, whatever the bytes
        const char kept = text.data[at];
        for (int byte = 0; byte < 256; byte += 5) {
            text.data[at] = (char)byte;
            source_plan_read(text.data, text.size, &back);
        }
        text.data[at] = kept;
    }
    buf_free(&text);
}
END_TEST

START_TEST(values_that_do_not_fit) {
    static const char *const texts[] = {
        "plan tile_m=2147483648 tile_n=1 numeric=1 shared_per_block=1 family=x\n",
        "plan tile_m=-1 tile_n=1 numeric=1 shared_per_block=1 family=x\n",
        "plan tile_m= tile_n=1 numeric=1 shared_per_block=1 family=x\n",
        "plan tile_m=1 tile_n=1 numeric=1 shared_per_block=1 family=0123456789012345678901234567890123456789\n",
        "plan tile_m=1 tile_n=1 numeric=1 shared_per_block=1 family=x more=1\n",
        "plan tile_m=1 tile_n=1 numeric=1 shared_per_block=1 family=x\n\n",
    };
    struct source_plan back;
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) ck_assert(!source_plan_read(texts[i], strlen(texts[i]), &back));
}
END_TEST

UNIT_MAIN("source_plan", reads_what_it_wrote, no_part_is_a_plan, values_that_do_not_fit)
