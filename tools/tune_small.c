// tune_small.c - the problem by which a sweep checks the candidates of another.
#include <stdlib.h>
#include <string.h>

#include "problem.h"
#include "tune.h"

#define LENGTHS 4

static int64_t total(const int64_t lengths[LENGTHS]) {
    return lengths[0] + lengths[1] + lengths[2] + lengths[3];
}

static vf_status set_lengths(int64_t **list, const int64_t *lengths, size_t count) {
    free(*list);
    *list = malloc(count * sizeof(**list));
    if (!*list) return VF_ERROR_OUT_OF_MEMORY;
    memcpy(*list, lengths, count * sizeof(**list));
    return VF_OK;
}

vf_status tune_small_problem(const struct problem *problem, bool backward, struct problem *small) {
    // Several tiles each way; more keys, then more queries than any ring of stages holds; one alone. The longest costs the oracle's threads no
    // more than the others.
    static const int64_t packed_q[LENGTHS] = {200, 40, 600, 1}, packed_k[LENGTHS] = {190, 600, 40, 70},
                         batched[LENGTHS] = {150, 150, 150, 150};
    vf_status status = problem_copy(problem, small);
    if (status) return status;
    status = set_lengths(&small->seqlens_q, small->batched_q ? batched : packed_q, LENGTHS);
    if (!status) status = set_lengths(&small->seqlens_k, small->batched_k ? batched : packed_k, LENGTHS);
    free(small->seqused_q);
    free(small->seqused_k);
    small->seqused_q = small->seqused_k = NULL;
    small->batch = LENGTHS;
    // Two heads of keys are as good as all of them, and four heads that share one as more.
    if (small->heads_k > 2 && small->heads_q % small->heads_k == 0) {
        const int64_t group = small->heads_q / small->heads_k;
        small->heads_k = 2;
        small->heads_q = 2 * (group > 4 && group % 4 == 0 ? 4 : group);
    }
    small->rows_q = small->batched_q ? batched[0] : total(packed_q);
    small->rows_k = small->batched_k ? batched[0] : total(packed_k);
    small->max_seqlen_q = small->max_seqlen_k = 0;
    small->backward = backward;
    small->name[0] = 0;
    for (size_t i = 0; i < OPERAND_COUNT; i++) small->strides[i].has_batch = false;
    return status;
}
