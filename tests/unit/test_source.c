// test_source.c - the generator's Lua state: with a small tree of its own, with broken ones, with the built-in one,
// from many threads.
#include "source.h"

#include <pthread.h>

#include "embedded.h"
#include "fs.h"
#include "unit.h"

static char folder[UNIT_PATH_SIZE];

// A tree whose gen/init.lua is `init`.
static void make_tree(const char *init) {
    char path[2 * UNIT_PATH_SIZE];
    unit_make_folder(folder);
    snprintf(path, sizeof path, "%s/gen", folder);
    ck_assert_int_eq(fs_make_folder(path), 0);
    snprintf(path, sizeof path, "%s/templates", folder);
    ck_assert_int_eq(fs_make_folder(path), 0);
    snprintf(path, sizeof path, "%s/gen/init.lua", folder);
    unit_write_text(path, init);
    snprintf(path, sizeof path, "%s/gen/other.lua", folder);
    unit_write_text(path, "return { threads = 128 }\n");
    snprintf(path, sizeof path, "%s/templates/a.cu", folder);
    unit_write_text(path, "template a\n");
}

#define KERNEL                                                                                                       \
    "{ name = 'main', spec = 'kernel=main', entry = 'vf_main', boxes = '', threads = other.threads, shared_bytes = " \
    "4096.0, "                                                                                                       \
    "blocks_per_sm = 2, cluster = 1, registers = 255 }"
#define TREE                                                                  \
    "local other = require 'gen.other'\n"                                     \
    "local gen = {}\n"                                                        \
    "function gen.signature() return 'abc' end\n"                             \
    "function gen.plan(spec)\n"                                               \
    "  if spec == 'no' then return nil, 'cannot do no' end\n"                 \
    "  if spec == 'mute' then return nil end\n"                               \
    "  if spec == 'break' then local t; return t.x end\n"                     \
    "  if spec == 'object' then error({}) end\n"                              \
    "  return { family = 'f', tile_m = 128, tile_n = 64, kernels = { " KERNEL \
    " } }\n"                                                                  \
    "end\n"                                                                   \
    "function gen.source(spec)\n"                                             \
    "  if spec == 'no' then return nil, 'templates/a.cu:3: broken' end\n"     \
    "  return read_template('templates/a.cu') .. spec .. '\\0z'\n"            \
    "end\n"                                                                   \
    "return gen\n"

START_TEST(plans_and_texts) {
    make_tree(TREE);
    struct source *source;
    struct source_plan plan;
    struct buf text = {0};
    unit_ok(source_open(folder, &source));
    ck_assert_str_eq(source_signature(source), "abc");
    unit_ok(source_plan(source, "yes", &plan));
    ck_assert_str_eq(plan.family, "f");
    ck_assert_int_eq(plan.tile_m, 128);
    ck_assert_int_eq(plan.tile_n, 64);
    ck_assert_int_eq(plan.kernel_count, 1);
    ck_assert_str_eq(plan.kernels[0].name, "main");
    ck_assert_str_eq(plan.kernels[0].spec, "kernel=main");
    ck_assert_str_eq(plan.kernels[0].entry, "vf_main");
    ck_assert_int_eq(plan.kernels[0].threads, 128);
    ck_assert_int_eq(plan.kernels[0].shared_bytes, 4096);
    ck_assert_int_eq(plan.kernels[0].blocks_per_sm, 2);
    ck_assert_int_eq(plan.kernels[0].registers, 255);
    unit_ok(source_text(source, "x", &text));
    ck_assert_uint_eq(text.size, 14);
    ck_assert_mem_eq(text.data, "template a\nx\0z", 14);
    buf_free(&text);
    source_close(source);
    unit_remove_folder(folder);
}
END_TEST

START_TEST(refusals_and_faults) {
    make_tree(TREE);
    struct source *source;
    struct source_plan plan;
    struct buf text = {0};
    unit_ok(source_open(folder, &source));
    unit_fails(source_plan(source, "no", &plan), VF_ERROR_UNSUPPORTED, "cannot do no");
    unit_fails(source_plan(source, "mute", &plan), VF_ERROR_UNSUPPORTED, "without a reason");
    unit_fails(source_plan(source, "break", &plan), VF_ERROR_COMPILE, "gen/init.lua:7: ");
    unit_fails(source_plan(source, "object", &plan), VF_ERROR_COMPILE, "no text");
    ck_assert_int_eq(plan.kernel_count, 0);
    unit_fails(source_text(source, "no", &text), VF_ERROR_COMPILE, "templates/a.cu:3: broken");
    ck_assert_uint_eq(text.size, 0);
    unit_ok(source_plan(source, "yes", &plan));  // the state survives all of it
    source_close(source);
    unit_remove_folder(folder);
}
END_TEST

static const struct {
    const char *init, *fragment;
} broken_trees[] = {
    {"return 5", "gen/init.lua: does not return a table"},
    {"x x", "gen/init.lua:1: syntax error"},
    {"\x1bLua", "attempt to load a binary chunk"},
    {"return require 'gen.init'", "requires itself"},
    {"return require 'gen.missing'", "gen/missing.lua: no such file in /"},
    {"return require 'os'", "is not gen.NAME"},
    {"return require 'gen.../../etc/passwd'", "is not gen.NAME"},
    {"return {}", "attempt to call a nil value"},
    {"return { signature = function() return ('x'):rep(64) end }", "longer than 63"},
    {"return { signature = function() return {} end }", "string expected"},
};

START_TEST(broken_generators) {
    struct source *source;
    for (size_t i = 0; i < ARRAY_LENGTH(broken_trees); i++) {
        make_tree(broken_trees[i].init);
        unit_fails(source_open(folder, &source), VF_ERROR_COMPILE, broken_trees[i].fragment);
        unit_remove_folder(folder);
    }
    unit_fails(source_open("/nowhere", &source), VF_ERROR_COMPILE, "gen/init.lua: no such file in /nowhere");
}
END_TEST

START_TEST(signature_of_the_built_in_generator) {
    struct source *source;
    unit_ok(source_open(NULL, &source));
    ck_assert_str_eq(source_signature(source), embedded_signature);
    source_close(source);
}
END_TEST

// Values of plan() that are no plan. `other` is a table, as in TREE.
static const struct {
    const char *plan, *fragment;
} broken_plans[] = {
    {"5", "table expected"},
    {"{}", "kernels is not a table"},
    {"{ kernels = {} }", "0 kernels"},
    {"{ kernels = { 1, 2 } }", "kernel 1 is not a table"},
    {"{ kernels = { {}, {}, {}, {}, {}, {}, {} } }", "7 kernels"},
    {"{ family = 3, kernels = { " KERNEL " } }", "family is not a text"},
    {"{ family = ('f'):rep(32), kernels = { " KERNEL " } }", "family is longer than 31"},
    {"{ tile_m = 1.5, kernels = { " KERNEL " } }", "tile_m is not an integer"},
    {"{ tile_m = -1, kernels = { " KERNEL " } }", "tile_m is not an integer"},
    {"{ tile_m = 1 << 31, kernels = { " KERNEL " } }", "tile_m is not an integer"},
    {"{ kernels = { { name = 'a', spec = 'b', entry = 'c', boxes = '', threads = 1 } } }",
     "shared_bytes is not an integer"},
    {"{ kernels = { { name = 'a', spec = 'b' } } }", "entry is not a text"},
};

START_TEST(plans_are_checked) {
    struct source *source;
    struct source_plan plan;
    for (size_t i = 0; i < ARRAY_LENGTH(broken_plans); i++) {
        char init[1024];
        snprintf(init, sizeof init,
                 "local other = { threads = 1 }\nreturn { signature = function() return '' end, plan = function() "
                 "return %s end }",
                 broken_plans[i].plan);
        make_tree(init);
        unit_ok(source_open(folder, &source));
        unit_fails(source_plan(source, "", &plan), VF_ERROR_COMPILE, broken_plans[i].fragment);
        source_close(source);
        unit_remove_folder(folder);
    }
}
END_TEST

START_TEST(lua_cannot_reach_the_world) {
    make_tree(
        "local seen = {}\n"
        "for _, name in ipairs { 'io', 'os', 'debug', 'package', 'coroutine', 'print', 'dofile', 'loadfile', 'warn' } "
        "do\n"
        "  if _G[name] ~= nil then seen[#seen + 1] = name end\n"
        "end\n"
        "if math.random or math.randomseed then seen[#seen + 1] = 'random' end\n"
        "if read_template('templates/../gen/init.lua') then seen[#seen + 1] = 'above templates' end\n"
        "if read_template('gen/init.lua') then seen[#seen + 1] = 'beside templates' end\n"
        "if read_template('templates/none.cu') then seen[#seen + 1] = 'none' end\n"
        "return { signature = function() return table.concat(seen, ' ') end }");
    struct source *source;
    unit_ok(source_open(folder, &source));
    ck_assert_str_eq(source_signature(source), "");
    source_close(source);
    unit_remove_folder(folder);
}
END_TEST

#define CHECK_SPEC "pass=check arch=sm_90a"

START_TEST(built_in_generator) {
    struct source *source, *from_disk;
    struct source_plan plan;
    struct buf text = {0}, again = {0};
    unit_ok(source_open(NULL, &source));
    ck_assert_uint_gt(strlen(source_signature(source)), 4);
    unit_ok(source_plan(source, CHECK_SPEC, &plan));
    ck_assert_int_eq(plan.kernel_count, 1);
    ck_assert_str_eq(plan.kernels[0].name, "check_lengths");
    unit_ok(source_text(source, plan.kernels[0].spec, &text));
    ck_assert_ptr_nonnull(strstr(text.data, plan.kernels[0].entry));
    unit_fails(source_plan(source, "pass=up arch=sm_90a", &plan), VF_ERROR_UNSUPPORTED, "");
    unit_fails(source_plan(source, "", &plan), VF_ERROR_UNSUPPORTED, "");
    unit_fails(source_text(source, "kernel=none", &again), VF_ERROR_COMPILE, "none");

    // The same from the checkout, where the test runs in one.
    if (!source_open(".", &from_disk)) {
        unit_ok(source_text(from_disk, "kernel=check_lengths arch=sm_90a", &again));
        ck_assert_str_eq(again.data, text.data);
        source_close(from_disk);
    } else {
        unit_skip("templates from disk: not run in the repository root");
    }
    buf_free(&text);
    buf_free(&again);
    source_close(source);
}
END_TEST

static void *ask_often(void *argument) {
    struct source *source = argument;
    for (int i = 0; i < 20; i++) {
        struct source_plan plan;
        struct buf text = {0};
        bool right = !source_plan(source, CHECK_SPEC, &plan) && !source_text(source, plan.kernels[0].spec, &text);
        buf_free(&text);
        if (!right) return NULL;
    }
    return source;
}

START_TEST(threads_take_turns) {
    struct source *source;
    unit_ok(source_open(NULL, &source));
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) ck_assert_int_eq(pthread_create(&threads[i], NULL, ask_often, source), 0);
    for (int i = 0; i < 4; i++) {
        void *result;
        ck_assert_int_eq(pthread_join(threads[i], &result), 0);
        ck_assert_ptr_eq(result, source);
    }
    source_close(source);
    source_close(NULL);
}
END_TEST

UNIT_MAIN("source", signature_of_the_built_in_generator, plans_and_texts, refusals_and_faults, broken_generators,
          plans_are_checked, lua_cannot_reach_the_world, built_in_generator, threads_take_turns)
