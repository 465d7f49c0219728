// test_config.c - configuration files: faults named by file and JSON pointer, layers, the first match, sizes, and that
// rows which only sizes tell apart agree in what changes bits.
#include "config.h"

#include <limits.h>

#include "kernel.h"
#include "unit.h"
#include "variant.h"

#define USE "\"use\": {\"family\": \"sm80\", \"tile_m\": 64, \"tile_n\": 32}"

static const struct {
    const char *json, *sentence;
} faults[] = {
    {"", "x.json: line 1 is not JSON"},
    {"{\n\"rows\": [\n{]}", "x.json: line 3 is not JSON"},
    {"[]", "x.json#: must be an object with rows"},
    {"{}", "x.json#: has no rows"},
    {"{\"rows\": {}}", "x.json#/rows: must be a list"},
    {"{\"rows\": [], \"row\": 1}", "x.json#/row: is not one of"},
    {"{\"rows\": [], \"rows\": []}", "x.json#/rows: is not one of"},
    {"{\"signature\": 1, \"rows\": []}", "x.json#/signature: must be a text"},
    {"{\"signature\": \"beef\", \"rows\": []}", "x.json#/signature: is beef, but this version's knobs have cafe"},
    {"{\"device\": 7, \"rows\": []}", "x.json#/device: must be the name"},
    {"{\"rows\": [1]}", "x.json#/rows/0: must be an object"},
    {"{\"rows\": [{}]}", "x.json#/rows/0: needs the knobs to use"},
    {"{\"rows\": [{" USE ", \"what\": {}}]}", "x.json#/rows/0/what: is not one of when, use, measured"},
    {"{\"rows\": [{" USE "}, {" USE ", " USE "}]}", "x.json#/rows/1/use: is not one of when, use, measured, each once"},
    {"{\"rows\": [{\"when\": {\"pass\": \"fwd\"}, " USE ", \"when\": {}}]}",
     "x.json#/rows/0/when: is not one of when, use, measured, each once"},
    {"{\"rows\": [{" USE ", \"measured\": {\"a\": 1}, \"measured\": {}}]}",
     "x.json#/rows/0/measured: is not one of when, use, measured, each once"},
    {"{\"rows\": [{\"when\": 1, " USE "}]}", "x.json#/rows/0/when: must be an object of conditions"},
    {"{\"rows\": [{\"when\": {\"colour\": 1}, " USE "}]}", "x.json#/rows/0/when/colour: is not a condition"},
    {"{\"rows\": [{\"when\": {\"pass\": \"fwd\", \"pass\": \"bwd\"}, " USE "}]}",
     "x.json#/rows/0/when/pass: is given twice"},
    {"{\"rows\": [{\"when\": {\"pass\": \"sideways\"}, " USE "}]}",
     "x.json#/rows/0/when/pass: 'sideways' is not one of fwd, bwd"},
    {"{\"rows\": [{\"when\": {\"mask\": [\"full\", 3]}, " USE "}]}", "x.json#/rows/0/when/mask: '(no text)'"},
    {"{\"rows\": [{\"when\": {\"arch\": \"turing\"}, " USE "}]}", "x.json#/rows/0/when/arch: must be names"},
    {"{\"rows\": [{\"when\": {\"softcap\": 1}, " USE "}]}", "x.json#/rows/0/when/softcap: must be true or false"},
    {"{\"rows\": [{\"when\": {\"head_dim_max\": 1.5}, " USE "}]}",
     "x.json#/rows/0/when/head_dim_max: must be a whole number"},
    {"{\"rows\": [{\"when\": {\"head_dim_max\": -8}, " USE "}]}",
     "x.json#/rows/0/when/head_dim_max: must be a whole number"},
    {"{\"rows\": [{\"when\": {\"head_dim_max\": 1e99}, " USE "}]}",
     "x.json#/rows/0/when/head_dim_max: must be a whole number"},
    {"{\"rows\": [{\"when\": {\"avg_q_max\": 48}, " USE "}]}", "x.json#/rows/0/when/avg_q_max: must be a power of two"},
    {"{\"rows\": [{\"use\": 3}]}", "x.json#/rows/0/use: must be an object of knobs"},
    {"{\"rows\": [{\"use\": {}}]}", "x.json#/rows/0/use: needs a family"},
    {"{\"rows\": [{\"use\": {\"family\": \"sm80\", \"tile_n\": 32}}]}", "x.json#/rows/0/use: needs a tile_m"},
    {"{\"rows\": [{\"use\": {\"family\": \"sm80\", \"tile_m\": 0, \"tile_n\": 32}}]}",
     "x.json#/rows/0/use: needs a tile_m"},
    {"{\"rows\": [{\"use\": {\"Tile m\": 64}}]}", "x.json#/rows/0/use/Tile m: is not a knob"},
    {"{\"rows\": [{\"use\": {\"tile_m\": [64]}}]}",
     "x.json#/rows/0/use/tile_m: must be a whole number, true, false or a word"},
    {"{\"rows\": [{\"use\": {\"family\": \"a b=c\"}}]}", "x.json#/rows/0/use/family: must be"},
};

START_TEST(faults_name_their_place) {
    for (size_t i = 0; i < ARRAY_LENGTH(faults); i++) {
        unit_fails(config_check("x.json", faults[i].json, strlen(faults[i].json), "cafe"), VF_ERROR_CONFIG,
                   faults[i].sentence);
    }
}
END_TEST

START_TEST(every_cut_of_a_file_is_refused_or_read) {
    static const char text[] =
        "{\"signature\": \"cafe\", \"rows\": [{\"when\": {\"pass\": \"fwd\"}, " USE ", \"measured\": {\"x\": 1}}]}";
    for (size_t size = 0; size < sizeof text - 1; size++) {
        ck_assert_int_eq(config_check("x.json", text, size, "cafe"), VF_ERROR_CONFIG);
    }
    unit_ok(config_check("x.json", text, sizeof text - 1, "cafe"));
}
END_TEST

// ---- layers and selection ------------------------------------------------------------------------------------------

static char folder[UNIT_PATH_SIZE], path[UNIT_PATH_SIZE + 64];

static struct config *open_config(const char *user, const char *in_folder) {
    struct environment environment = {.xdg_config_home = folder};
    struct config *config = NULL;
    unit_make_folder(folder);
    snprintf(path, sizeof path, "%s/varflash", folder);
    ck_assert_int_eq(fs_make_folder(path), 0);
    snprintf(path, sizeof path, "%s/varflash/b.json", folder);
    if (in_folder) unit_write_text(path, in_folder);
    snprintf(path, sizeof path, "%s/user.json", folder);
    if (user) unit_write_text(path, user);
    unit_ok(config_open(user ? path : NULL, &environment, "cafe", NULL, &config));
    unit_remove_folder(folder);
    return config;
}

static const struct config_row *first(const struct config *config, const struct config_query *query) {
    const struct config_row *rows[CONFIG_ROWS_MAX];
    ck_assert_uint_gt(config_reachable(config, query, rows, CONFIG_ROWS_MAX), 0);
    return rows[0];
}

static struct config_query query_of(int head_dim) {
    return (struct config_query){
        .request = {.dtype = VF_BFLOAT16, .head_dim = head_dim, .head_dim_v = head_dim, .aligned = true},
        .arch = "sm_86",
        .shared_kb = 99};
}

START_TEST(the_first_layer_that_matches_wins) {
    struct config *config = open_config("{\"rows\": [{\"when\": {\"head_dim_max\": 64}, " USE "}]}",
                                        "{\"rows\": [{\"when\": {\"head_dim_max\": 128}, " USE "}]}");
    struct config_query query = query_of(64);
    ck_assert_ptr_nonnull(strstr(first(config, &query)->origin, "user.json#/rows/0"));
    ck_assert_str_eq(first(config, &query)->knobs, "family=sm80 tile_m=64 tile_n=32");
    query = query_of(72);
    ck_assert_ptr_nonnull(strstr(first(config, &query)->origin, "varflash/b.json#/rows/0"));
    query = query_of(256);
    ck_assert_ptr_nonnull(strstr(first(config, &query)->origin, "configs/"));
    const struct config_row *rows[CONFIG_ROWS_MAX];
    query = query_of(64);
    ck_assert_uint_ge(config_candidates(config, &query, rows, CONFIG_ROWS_MAX), 3);
    ck_assert_uint_eq(config_candidates(config, &query, rows, 2), 2);
    config_close(config);
}
END_TEST

START_TEST(each_condition_decides) {
    static const struct {
        const char *when;
        bool holds;
    } rows[] = {{"\"pass\": \"fwd\"", true},
                {"\"pass\": \"bwd\"", false},
                {"\"pass\": [\"bwd\", \"fwd\"]", true},
                {"\"arch\": \"sm_86\"", true},
                {"\"arch\": [\"sm_90\", \"sm_90a\"]", false},
                {"\"dtype\": \"bf16\"", true},
                {"\"dtype\": \"fp16\"", false},
                {"\"head_dim_min\": 72", true},
                {"\"head_dim_min\": 80", false},
                {"\"head_dim_max\": 72", true},
                {"\"head_dim_max\": 64", false},
                {"\"head_dim_v_min\": 80", false},
                {"\"head_dim_v_max\": 64", false},
                {"\"mask\": \"full\"", true},
                {"\"mask\": [\"causal\", \"window\"]", false},
                {"\"softcap\": true", false},
                {"\"softcap\": false", true},
                {"\"aligned\": false", false},
                {"\"deterministic\": true", false},
                {"\"shared_kb_min\": 99", true},
                {"\"shared_kb_min\": 160", false}};
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        char text[512];
        snprintf(text, sizeof text, "{\"rows\": [{\"when\": {%s}, " USE "}]}", rows[i].when);
        struct config *config = open_config(text, NULL);
        const struct config_query query = query_of(72);
        const bool found = strstr(first(config, &query)->origin, "user.json") != NULL;
        ck_assert_msg(found == rows[i].holds, "%s", rows[i].when);
        config_close(config);
    }
}
END_TEST

START_TEST(rows_of_a_device_need_it) {
    struct config *config = open_config("{\"device\": \"Stub 0\", \"rows\": [{" USE "}]}", NULL);
    struct config_query query = query_of(64);
    ck_assert_ptr_null(strstr(first(config, &query)->origin, "user.json"));
    query.device = "Stub 1";
    ck_assert_ptr_null(strstr(first(config, &query)->origin, "user.json"));
    query.device = "Stub 0";
    ck_assert_ptr_nonnull(strstr(first(config, &query)->origin, "user.json"));
    config_close(config);
}
END_TEST

START_TEST(sizes_choose_among_reachable_rows) {
    struct config *config =
        open_config("{\"rows\": [{\"when\": {\"avg_k_max\": 64}, " USE
                    "}, {\"when\": {\"avg_q_max\": 128, \"group_max\": 1}, " USE "}, {" USE "}, {" USE "}]}",
                    NULL);
    const struct config_row *rows[CONFIG_ROWS_MAX];
    const struct config_query query = query_of(64);
    ck_assert_uint_eq(config_reachable(config, &query, rows, CONFIG_ROWS_MAX), 3);
    ck_assert(config_row_fits(rows[0], &(struct sizes){20, 6, 3}));
    ck_assert(!config_row_fits(rows[0], &(struct sizes){0, 7, 0}));
    ck_assert(config_row_fits(rows[1], &(struct sizes){7, 20, 0}));
    ck_assert(!config_row_fits(rows[1], &(struct sizes){7, 20, 1}));
    ck_assert(config_row_fits(rows[2], &(struct sizes){40, 40, 40}));
    config_close(config);
}
END_TEST

START_TEST(a_broken_file_fails_the_opening) {
    struct environment environment = {.home = folder};
    struct config *config = NULL;
    unit_make_folder(folder);
    snprintf(path, sizeof path, "%s/.config/varflash", folder);
    ck_assert_int_eq(fs_make_folder(path), 0);
    unit_ok(config_open(NULL, &environment, "cafe", NULL, &config));
    config_close(config);
    snprintf(path, sizeof path, "%s/.config/varflash/a.json", folder);
    unit_write_text(path, "{\"rows\": 1}");
    unit_fails(config_open(NULL, &environment, "cafe", NULL, &config), VF_ERROR_CONFIG, "a.json#/rows");
    unit_remove_folder(folder);
    unit_fails(config_open("/nonexistent/x.json", &environment, "cafe", NULL, &config), VF_ERROR_IO, "x.json");
}
END_TEST

// ---- with the generator --------------------------------------------------------------------------------------------

// A table that makes plans and no images.
static struct kernels *open_kernels(struct source *source) {
    static const struct environment nothing;
    const struct kernels_parts parts = {.environment = &nothing, .source = source};
    struct kernels *kernels = NULL;
    unit_ok(kernels_open(&parts, &kernels));
    return kernels;
}

START_TEST(rows_apart_by_size_must_give_equal_bits) {
    static const char text[] =
        "{\"rows\": [{\"when\": {\"pass\": \"fwd\", \"avg_k_max\": 64}, \"use\": {\"family\": \"sm80\", \"tile_m\": "
        "16, \"tile_n\": %d, "
        "\"warps\": 1, \"stages\": 1, \"q_registers\": false, \"blocks_per_sm\": 1}}, {\"when\": {\"pass\": \"fwd\"}, "
        "\"use\": "
        "{\"family\": \"sm80\", \"tile_m\": 64, \"tile_n\": 32, \"warps\": 4, \"stages\": 1, \"q_registers\": false, "
        "\"blocks_per_sm\": 1}}]}";
    for (int agree = 0; agree < 2; agree++) {
        char json[1024];
        snprintf(json, sizeof json, text, agree ? 32 : 64);
        struct config *config = open_config(json, NULL);
        struct source *source = NULL;
        struct kernels *kernels = NULL;
        struct variants *variants = NULL;
        struct choice choice;
        unit_ok(source_open(NULL, &source));
        kernels = open_kernels(source);
        unit_ok(variants_open(config, kernels, true, &variants));
        const struct request request = query_of(64).request;
        const struct sizes small = {4, 4, 0}, large = {10, 10, 0};
        if (agree) {
            unit_ok(variants_choose(variants, &request, &small, "sm_80", NULL, &choice));
            ck_assert_int_eq(choice.plan.tile_m, 16);
            unit_ok(variants_choose(variants, &request, &large, "sm_80", NULL, &choice));
            ck_assert_int_eq(choice.plan.tile_m, 64);
        } else {
            unit_fails(variants_choose(variants, &request, &large, "sm_80", NULL, &choice), VF_ERROR_CONFIG,
                       "must agree in every knob that changes results");
        }
        variants_close(variants);
        kernels_close(kernels);
        source_close(source);
        config_close(config);
    }
}
END_TEST

// Every built-in default is accepted by the generator for every kind of request and limit class.
START_TEST(built_in_rows_serve_everything) {
    static const char *const archs[] = {"sm_80", "sm_86", "sm_90a", "sm_100", "sm_120"};
    static const int dims[] = {8, 40, 64, 72, 128, 192, 256};
    struct environment environment = {.home = NULL};
    struct config *config = NULL;
    struct source *source = NULL;
    struct kernels *kernels = NULL;
    struct variants *variants = NULL;
    unit_ok(source_open(NULL, &source));
    kernels = open_kernels(source);
    unit_ok(config_open(NULL, &environment, source_signature(source), NULL, &config));
    unit_ok(variants_open(config, kernels, true, &variants));
    for (size_t i = 0; i < ARRAY_LENGTH(archs) * ARRAY_LENGTH(dims) * 2 * 2 * 3; i++) {
        const struct request request = {.backward = i % 2,
                                        .deterministic = i % 4 == 3,
                                        .aligned = i / 4 % 2,
                                        .dtype = VF_BFLOAT16,
                                        .mask = (vf_mask)(i / 2 % 3),
                                        .head_dim = dims[i % 7],
                                        .head_dim_v = dims[i / 7 % 7]};
        const struct config_row *rows[CONFIG_ROWS_MAX];
        size_t count = 0;
        const char *arch = archs[i % 5];
        unit_ok(variants_rows(variants, &request, arch, NULL, false, rows, &count));
        ck_assert_uint_gt(count, 0);
        ck_assert_int_eq(rows[count - 1]->average_k_max, INT_MAX);  // the last takes every size
        struct choice choice;
        const struct sizes sizes = {10, 10, 0};
        unit_ok(variants_choose(variants, &request, &sizes, arch, NULL, &choice));
    }
    variants_close(variants);
    kernels_close(kernels);
    config_close(config);
    source_close(source);
}
END_TEST

UNIT_MAIN("config", faults_name_their_place, every_cut_of_a_file_is_refused_or_read, the_first_layer_that_matches_wins,
          each_condition_decides, rows_of_a_device_need_it, sizes_choose_among_reachable_rows,
          a_broken_file_fails_the_opening, rows_apart_by_size_must_give_equal_bits, built_in_rows_serve_everything)
