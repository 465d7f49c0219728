// suite.h - named lists of problems, shared by check, bench and the tests. Each problem carries its name.
#ifndef VF_SUITE_H
#define VF_SUITE_H

#include "problem.h"

struct suite_info {
    const char *name;  // "smoke"; "sweep:SEED:COUNT"
    const char *meaning;
};
extern const struct suite_info suite_infos[];
extern const size_t suite_info_count;

// Appends the problems of a suite. VF_ERROR_INVALID_ARGUMENT with the names there are for an unknown one.
vf_status suite_get(const char *name, struct problem_list *list);

#endif
