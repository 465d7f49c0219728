// suites.c - prints the suites that are worth timing, "name<tab>flags" a line: what varflash.compare reads.
#include <stdio.h>
#include <stdlib.h>

#include "base.h"
#include "suite.h"

static bool print_suite(const char *name) {
    struct problem_list list = {.items = NULL};
    bool good = !suite_get(name, &list);
    for (size_t i = 0; good && i < list.count; i++) {
        struct buf line = {.data = NULL};
        problem_write_flags(&list.items[i], &line);
        good = !buf_check(&line) && printf("%s\t%s\n", name, buf_string(&line)) > 0;
        buf_free(&line);
    }
    problem_list_free(&list);
    return good;
}

int main(void) {
    static const char *const names[] = {"default", "bench", "bench-dims", "short", "tune"};
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        if (!print_suite(names[i])) return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
