// test_problem.c - problems as flags and as JSON: exact round trips, and one sentence for everything malformed.
#include "loop_main.h"
#include "problem.h"
#include "suite.h"
#include "unit.h"

static void check_round_trip(const struct problem *problem) {
    struct buf text = {0};
    struct problem again;
    struct problem_list list = {0};
    problem_write_flags(problem, &text);
    unit_ok(problem_from_line(buf_string(&text), &again));
    ck_assert_msg(problem_equal(problem, &again), "flags: %s", buf_string(&text));
    problem_free(&again);

    buf_clear(&text);
    problem_write_json(problem, &text);
    unit_ok(problem_from_json(buf_string(&text), text.size, &list));
    ck_assert_uint_eq(list.count, 1);
    ck_assert_msg(problem_equal(problem, &list.items[0]), "JSON: %s", buf_string(&text));
    problem_list_free(&list);

    unit_ok(problem_copy(problem, &again));
    ck_assert(problem_equal(problem, &again));
    problem_free(&again);
    buf_free(&text);
}

START_TEST(every_problem_of_the_suites_comes_back) {
    static const char *const names[] = {"smoke",      "faults", "faults-small", "faults-large",      "bench",
                                        "bench-dims", "short",  "sweep:7:400",  "sweep-small:7:400", "default",
                                        "tune"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct problem_list list = {0};
        unit_ok(suite_get(names[i], &list));
        for (size_t p = 0; p < list.count; p++) check_round_trip(&list.items[p]);
        problem_list_free(&list);
    }
}
END_TEST

START_TEST(extreme_values_come_back) {
    static const char *const lines[] = {
        "--seqlens-q none",
        "--seqlens-q none --batched-q --rows-q 5 --rows-k 7",
        "--seqlens-q none --batched --rows-k 3",
        "--seqlens-q 0 --seed 18446744073709551615",
        "--seqlens-q 5 --scale 4.9406564584124654e-324 --softcap 1.7976931348623157e308",
        "--seqlens-q 5 --softcap 0.1 --input-scale 0",
        "--seqlens-q 5 --window -9223372036854775808,inf",
        "--seqlens-q 5 --window=-1,-1 --causal",
        "--seqlens-q 1x1048576 --seqlens-k 1099511627776x1048576 --int64-lengths",
        "--seqlens-q 5,-3,4 --rows-q 0 --start-q -7",
        "--seqlens-q 5 --strides q=-1099511627776,0+1099511627776 --strides lse=1,9",
        "--seqlens-q 3,3 --batched --strides o=-1,2,-3",
        "--seqlens-q 3,4 --seqlens-k 5,5 --batched-k --strides dv=1,2,3+4 --backward",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct problem problem;
        unit_ok(problem_from_line(lines[i], &problem));
        check_round_trip(&problem);
        problem_free(&problem);
    }
}
END_TEST

START_TEST(what_is_not_given_follows_from_the_rest) {
    struct problem problem;
    unit_ok(problem_from_line("--seqlens-q 3,5 --heads-q 6 --head-dim 72", &problem));
    ck_assert_int_eq(problem.batch, 2);
    ck_assert_int_eq(problem.seqlens_k[1], 5);
    ck_assert_int_eq(problem.heads_k, 6);
    ck_assert_int_eq(problem.head_dim_v, 72);
    ck_assert_int_eq(problem.rows_q, 8);
    ck_assert_int_eq(problem.dtype, VF_BFLOAT16);
    ck_assert_int_eq(problem.poison, POISON_NAN);
    ck_assert_double_eq(problem.input_scale, 1);
    problem_free(&problem);
    unit_ok(problem_from_line("--causal --window 4,9 --seqlens-q 3", &problem));
    ck_assert_int_eq(problem.mask, VF_MASK_WINDOW);
    ck_assert_int_eq(problem.window_left, 4);
    ck_assert_int_eq(problem.window_right, 0);
    problem_free(&problem);
}
END_TEST

static const struct {
    const char *line, *fragment;
} bad_lines[] = {
    {"", "--seqlens-q is missing"},
    {"--causal", "--seqlens-q is missing"},
    {"--seqlens-q", "needs a value"},
    {"--seqlens-q 1,", "no list of lengths"},
    {"--seqlens-q ,1", "no list of lengths"},
    {"--seqlens-q 1,,2", "no list of lengths"},
    {"--seqlens-q 1.5", "no list of lengths"},
    {"--seqlens-q 3x", "no list of lengths"},
    {"--seqlens-q x3", "no list of lengths"},
    {"--seqlens-q 3x-1", "no list of lengths"},
    {"--seqlens-q 1x1048577", "no list of lengths"},
    {"--seqlens-q 1x1048576,1", "no list of lengths"},
    {"--seqlens-q 1099511627777", "no list of lengths"},
    {"--seqlens-q 99999999999999999999", "no list of lengths"},
    {"--seqlens-q 3000000000", "--int64-lengths"},
    {"--seqlens-q 1,2 --seqlens-k 3", "an earlier list has 2"},
    {"--seqlens-q 1 --seqused-q 1,1", "an earlier list has 1"},
    {"--seqlens-q 1 --seqlens-q 2", "given twice"},
    {"--seqlens-q 1 --causal --causal", "given twice"},
    {"--seqlens-q 1 --causal=1", "takes no value"},
    {"--seqlens-q 1 --no-such-thing", "no such option"},
    {"--seqlens-q 1 stray", "begin with --"},
    {"--seqlens-q 1 -c", "begin with --"},
    {"--seqlens-q 1 --heads-q 0", "from 1 to"},
    {"--seqlens-q 1 --heads-q -3", "from 1 to"},
    {"--seqlens-q 1 --heads-k 1048576", "from 1 to"},
    {"--seqlens-q 1 --head-dim eight", "not a whole number"},
    {"--seqlens-q 1 --head-dim 8q", "not a whole number"},
    {"--seqlens-q 1 --head-dim-v ''", "not a whole number"},
    {"--seqlens-q 1 --dtype int8", "none of bf16, fp16, fp32"},
    {"--seqlens-q 1 --window 3", "not LEFT,RIGHT"},
    {"--seqlens-q 1 --window 3,4,5", "not LEFT,RIGHT"},
    {"--seqlens-q 1 --window infinite,0", "not LEFT,RIGHT"},
    {"--seqlens-q 1 --window 9223372036854775808,0", "not LEFT,RIGHT"},
    {"--seqlens-q 1 --scale -1", "positive or 0"},
    {"--seqlens-q 1 --scale nan", "positive or 0"},
    {"--seqlens-q 1 --softcap inf", "positive or 0"},
    {"--seqlens-q 1 --softcap 1e999", "positive or 0"},
    {"--seqlens-q 1 --seed -1", "below 2^64"},
    {"--seqlens-q 1 --seed 18446744073709551616", "below 2^64"},
    {"--seqlens-q 1 --fill maybe", "none of zero, keep"},
    {"--seqlens-q 1 --poison 7", "none of nan, inf, -inf, zero"},
    {"--seqlens-q 1 --expect success", "none of ok, invalid, unsupported"},
    {"--seqlens-q 1 --strides q", "names no tensor"},
    {"--seqlens-q 1 --strides p=1,2", "names no tensor"},
    {"--seqlens-q 1 --strides =1,2", "names no tensor"},
    {"--seqlens-q 1 --strides q=", "is not TENSOR="},
    {"--seqlens-q 1 --strides q=1", "is not TENSOR="},
    {"--seqlens-q 1 --strides q=1,2,3,4", "is not TENSOR="},
    {"--seqlens-q 1 --strides q=1,2+", "is not TENSOR="},
    {"--seqlens-q 1 --strides q=1,2+-1", "is not TENSOR="},
    {"--seqlens-q 1 --strides q=1099511627777,2", "is not TENSOR="},
    {"--seqlens-q 1 --strides q=1,2,3", "the tensor is packed"},
    {"--seqlens-q 1 --strides q=1,2 --strides q=+1", "given twice"},
    {"--seqlens-q 1 --dlse", "add --backward"},
    {"--seqlens-q 1 --no-lse --backward", "reads lse"},
    {"--seqlens-q 1,2 --batched", "slots of one length"},
    {"--seqlens-q -1,-1 --batched", "no cu_seqlens"},
    {"--seqlens-q 1 --batched --start-q 1", "no cu_seqlens"},
    {"--seqlens-q 2 --batched --rows-q 3", "leave it out"},
    {"--seqlens-q 1 --name a|b", "letters, digits"},
    {"--seqlens-q 1 --name 0123456789012345678901234567890123456789012345678901234567890123", "letters, digits"},
};

START_TEST(malformed_flags_get_a_sentence) {
    struct problem problem;
    unit_fails(problem_from_line(bad_lines[_i].line, &problem), VF_ERROR_INVALID_ARGUMENT, bad_lines[_i].fragment);
    problem_free(&problem);  // a failure leaves nothing, and that may be freed
}
END_TEST

static const struct {
    const char *text, *fragment;
} bad_json[] = {
    {"", "not JSON"},
    {"{", "not JSON"},
    {"{\"seqlens_q\": [1]} x", "malformed at byte 19"},
    {"null", "is an object"},
    {"7", "is an object"},
    {"{}", "--seqlens-q is missing"},
    {"[1]", "problems[0]: is no object"},
    {"{\"problems\": 3}", "problems: is no array"},
    {"{\"problems\": [], \"seqlens_q\": [1]}", "no other member"},
    {"{\"problems\": [{\"seqlens_q\": [1]}, {\"seqlens_q\": [1], \"dtype\": \"x\"}]}", "problems[1]: dtype: "},
    {"{\"seqlens_q\": [1], \"seqlens-k\": [1]}", "seqlens-k: a problem has no such member"},
    {"{\"seqlens_q\": [1], \"colour\": 1}", "colour: a problem has no such member"},
    {"{\"seqlens_q\": [1], \"seqlens_q\": [1]}", "given twice"},
    {"{\"seqlens_q\": [1.5]}", "no list of lengths"},
    {"{\"seqlens_q\": [[1]]}", "must be a number, a text"},
    {"{\"seqlens_q\": {\"a\": 1}}", "must be a number, a text"},
    {"{\"seqlens_q\": true}", "must be a number, a text"},
    {"{\"seqlens_q\": [1], \"causal\": 1}", "must be true or false"},
    {"{\"seqlens_q\": [1], \"heads_q\": 1e300}", "not a whole number"},
    {"{\"seqlens_q\": [1], \"strides\": \"q=1,2\"}", "must be an object"},
    {"{\"seqlens_q\": [1], \"strides\": {\"q\": {}}}", "must be a text"},
    {"{\"seqlens_q\": [1], \"strides\": {\"q\": [1]}}", "is not TENSOR="},
    {"[{\"seqlens_q\": \"0x1048576\"}, {\"seqlens_q\": \"0x1048576\"}, {\"seqlens_q\": \"0x1048576\"}, "
     "{\"seqlens_q\": \"0x1048576\"}, {\"seqlens_q\": [1]}]",
     "split the file"},
};

START_TEST(malformed_json_gets_a_sentence) {
    struct problem_list list = {0};
    unit_fails(problem_from_json(bad_json[_i].text, strlen(bad_json[_i].text), &list), VF_ERROR_INVALID_ARGUMENT,
               bad_json[_i].fragment);
    ck_assert_uint_eq(list.count, 0);
    problem_list_free(&list);
}
END_TEST

START_TEST(json_texts_may_follow_each_other) {
    const char *text = "{\"seqlens_q\": [1]}\n[{\"seqlens_q\": [2]}, {\"seqlens_q\": [3]}]\n{\"seqlens_q\": [4]}\n";
    struct problem_list list = {0};
    unit_ok(problem_from_json(text, strlen(text), &list));
    ck_assert_uint_eq(list.count, 4);
    for (size_t i = 0; i < list.count; i++) ck_assert_int_eq(list.items[i].seqlens_q[0], (int64_t)i + 1);
    problem_list_free(&list);
}
END_TEST

START_TEST(json_takes_numbers_texts_and_arrays) {
    const char *text =
        "{\"problems\": [{\"seqlens_q\": [\"7x2\", 3], \"window\": [-3, \"inf\"], \"strides\": {\"dout\": [9728, 96]}, "
        "\"seed\": 12, \"softcap\": 1.5, \"backward\": true, \"causal\": false}, {\"seqlens_q\": \"none\"}]}";
    struct problem_list list = {0};
    unit_ok(problem_from_json(text, strlen(text), &list));
    ck_assert_uint_eq(list.count, 2);
    const struct problem *problem = &list.items[0];
    ck_assert_int_eq(problem->seqlens_q[1], 7);
    ck_assert_int_eq(problem->window_left, -3);
    ck_assert_int_eq(problem->window_right, VF_NO_EDGE);
    ck_assert_int_eq(problem->strides[OPERAND_DOUT].row, 9728);
    ck_assert_int_eq(problem->mask, VF_MASK_WINDOW);
    ck_assert_int_eq(list.items[1].batch, 0);
    problem_list_free(&list);
}
END_TEST

// ---- geometry ----

// The definition in varflash.h, said once more.
static bool admitted(const struct problem *problem, int64_t sq, int64_t sk, int64_t i, int64_t j) {
    const int64_t d = sk - sq;
    if (problem->mask == VF_MASK_CAUSAL) return j <= i + d;
    if (problem->mask == VF_MASK_FULL) return true;
    return (problem->window_left == VF_NO_EDGE || j >= i + d - problem->window_left) &&
           (problem->window_right == VF_NO_EDGE || j <= i + d + problem->window_right);
}

START_TEST(visible_keys_are_those_of_the_definition) {
    static const int64_t edges[] = {-3, -1, 0, 2, 50, VF_NO_EDGE};
    for (int mask = 0; mask < 3; mask++)
        for (int left = 0; left < 6; left++)
            for (int right = 0; right < 6; right++) {
                const struct problem problem = {
                    .mask = (vf_mask)mask, .window_left = edges[left], .window_right = edges[right]};
                for (int64_t sq = 0; sq < 7; sq++)
                    for (int64_t sk = 0; sk < 7; sk++)
                        for (int64_t i = 0; i < sq; i++) {
                            int64_t first, last, seen = 0;
                            const bool any = problem_visible(&problem, sq, sk, i, &first, &last);
                            for (int64_t j = 0; j < sk; j++) {
                                const bool visible = admitted(&problem, sq, sk, i, j);
                                seen += visible;
                                ck_assert_int_eq(visible, any && j >= first && j < last);
                            }
                            ck_assert_int_eq(any, seen > 0);
                        }
            }
}
END_TEST

START_TEST(edges_may_be_any_number) {
    const struct problem problem = {.mask = VF_MASK_WINDOW, .window_left = INT64_MIN, .window_right = INT64_MIN};
    int64_t first, last;
    ck_assert(!problem_visible(&problem, 5, 9, 3, &first, &last));
    const struct problem wide = {.mask = VF_MASK_WINDOW, .window_left = INT64_MAX - 1, .window_right = INT64_MAX - 1};
    ck_assert(problem_visible(&wide, 5, 9, 3, &first, &last));
    ck_assert_int_eq(last - first, 9);
}
END_TEST

START_TEST(broken_lengths_are_named) {
    static const struct {
        const char *line, *fragment;
    } cases[] = {
        {"--seqlens-q 5 --start-q 1", "cu_seqlens_q[0] is 1"},
        {"--seqlens-q 5 --start-k -1", "cu_seqlens_k[0] is -1"},
        {"--seqlens-q 5,-1 --rows-q 9", "cu_seqlens_q[2] decreases"},
        {"--seqlens-q 5,6 --rows-k 10", "cu_seqlens_k[2] is 11, beyond 10 rows"},
        {"--seqlens-q 5,6 --seqused-q 5,7", "seqused_q[1] is 7"},
        {"--seqlens-q 5,6 --seqused-k -1,6", "seqused_k[0] is -1"},
        {"--seqlens-q 5,6 --max-seqlen-q 5", "sequence 1 of q"},
    };
    char sentence[160];
    struct problem problem;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unit_ok(problem_from_line(cases[i].line, &problem));
        ck_assert(!problem_sound(&problem, sentence, sizeof sentence));
        ck_assert_msg(strstr(sentence, cases[i].fragment) != NULL, "%s", sentence);
        problem_free(&problem);
    }
    unit_ok(problem_from_line("--seqlens-q 5,0,6 --seqused-q 5,0,1 --rows-q 20 --max-seqlen-q 5", &problem));
    ck_assert(problem_sound(&problem, NULL, 0));
    problem_free(&problem);
}
END_TEST

START_TEST(products_count_visible_pairs) {
    struct problem problem;
    unit_ok(problem_from_line("--seqlens-q 4,2 --seqlens-k 2,4 --heads-q 3 --head-dim 8 --head-dim-v 16 --causal",
                              &problem));
    ck_assert_double_eq(problem_pairs(&problem), 0 + 0 + 1 + 2 + 3 + 4);
    ck_assert_double_eq(problem_flops(&problem, false), 10 * 3 * 2 * 24.0);
    ck_assert_double_eq(problem_flops(&problem, true), 10 * 3 * 2 * (3 * 8 + 2 * 16.0));
    problem_free(&problem);
}
END_TEST

LOOP_MAIN("problem", 60, {every_problem_of_the_suites_comes_back, 0}, {extreme_values_come_back, 0},
          {what_is_not_given_follows_from_the_rest, 0},
          {malformed_flags_get_a_sentence, sizeof bad_lines / sizeof *bad_lines},
          {malformed_json_gets_a_sentence, sizeof bad_json / sizeof *bad_json},
          {json_takes_numbers_texts_and_arrays, 0}, {json_texts_may_follow_each_other, 0},
          {visible_keys_are_those_of_the_definition, 0}, {edges_may_be_any_number, 0}, {broken_lengths_are_named, 0},
          {products_count_visible_pairs, 0})
