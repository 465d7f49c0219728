// fuzz_problem.c - the problem parser: JSON if the input looks like it, else one line of flags. What is accepted must come
// back equal from both written forms, and its geometry must be computable.
#include <stdlib.h>
#include <string.h>

#include "problem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct problem *problem) {
    struct buf text = {0};
    struct problem again;
    struct problem_list list = {0};
    char sentence[160];
    problem_write_flags(problem, &text);
    if (problem_from_line(buf_string(&text), &again) || !problem_equal(problem, &again)) abort();
    problem_free(&again);
    buf_clear(&text);
    problem_write_json(problem, &text);
    if (problem_from_json(buf_string(&text), text.size, &list) || list.count != 1) abort();
    if (!problem_equal(problem, &list.items[0])) abort();
    problem_sound(problem, sentence, sizeof sentence);
    problem_list_free(&list);
    buf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct problem_list list = {0};
    char *text = malloc(size + 1);
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = 0;
    const size_t blank = strspn(text, " \t\r\n");
    if (text[blank] == '{' || text[blank] == '[') {
        problem_from_json((const char *)data, size, &list);
    } else {
        struct problem problem;
        if (!problem_from_line(text, &problem)) problem_list_add(&list, &problem);
    }
    for (size_t i = 0; i < list.count; i++) check(&list.items[i]);
    problem_list_free(&list);
    free(text);
    return 0;
}
