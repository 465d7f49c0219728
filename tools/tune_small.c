// tune_small.c - the problem by which a sweep checks the candidates of another.
#include <stdlib.h>
#include <string.h>

#include "problem.h"
#include "tune.h"

static vf_status set_lengths(int64_t **list, const int64_t *lengths, size_t count) {
    free(*list);
    *list = malloc(count * sizeof(**list));
    if (!*list) return VF_ERROR_OUT_OF_MEMORY;
    memcpy(*list, lengths, count * sizeof(**list));
    return VF_OK;
}

vf_status tune_small_problem(const struct problem *problem, bool backward, struct problem *small) {
    static const int64_t packed_q[4] = {257, 64, 1, 130}, packed_k[4] = {300, 65, 70, 130},
                         batched[4] = {150, 150, 150, 150};
    vf_status status = problem_copy(problem, small);
    if (status) return status;
    status = set_lengths(&small->seqlens_q, small->batched_q ? batched : packed_q, 4);
    if (!status) status = set_lengths(&small->seqlens_k, small->batched_k ? batched : packed_k, 4);
    free(small->seqused_q);
    free(small->seqused_k);
    small->seqused_q = small->seqused_k = NULL;
    small->batch = 4;
    // Two heads of keys are as good as all of them.
    if (small->heads_k > 2 && small->heads_q % small->heads_k == 0) {
        small->heads_q = small->heads_q / small->heads_k * 2;
        small->heads_k = 2;
    }
    small->rows_q = small->batched_q ? 150 : 257 + 64 + 1 + 130;
    small->rows_k = small->batched_k ? 150 : 300 + 65 + 70 + 130;
    small->max_seqlen_q = small->max_seqlen_k = 0;
    small->backward = backward;
    small->name[0] = 0;
    for (size_t i = 0; i < OPERAND_COUNT; i++) small->strides[i].has_batch = false;
    return status;
}
