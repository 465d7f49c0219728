// problem.c - a problem's life and geometry; its text forms stand in problem_options.c and problem_json.c.
#include "problem.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "number.h"
#include "status.h"

// ORDER operands
const char *const problem_operand_names[OPERAND_COUNT] = {"q", "k", "v", "o", "lse", "dout", "dlse", "dq", "dk", "dv"};

void problem_begin(struct problem *problem) {
    *problem = (struct problem){.batch = -1,
                                .rows_q = -1,
                                .rows_k = -1,
                                .heads_q = 1,
                                .head_dim = 64,
                                .dtype = VF_BFLOAT16,
                                .window_left = VF_NO_EDGE,
                                .window_right = VF_NO_EDGE,
                                .input_scale = 1};
}

void problem_free(struct problem *problem) {
    free(problem->seqlens_q);
    free(problem->seqlens_k);
    free(problem->seqused_q);
    free(problem->seqused_k);
    *problem = (struct problem){0};
}

// ---- the whole, judged ---------------------------------------------------------------------------------------------

static vf_status copy_lengths(const int64_t *from, int64_t count, int64_t **to) {
    *to = NULL;
    if (!from) return VF_OK;
    const size_t bytes = (size_t)count * sizeof **to;
    *to = malloc(bytes + 1);
    VF_REQUIRE(*to, VF_ERROR_OUT_OF_MEMORY, "problem: no memory for %lld lengths", (long long)count);
    memcpy(*to, from, bytes);
    return VF_OK;
}

// What cu_seqlens ends at, and the largest entry it has.
static int64_t end_of(const int64_t *lengths, int64_t batch, int64_t start, int64_t *largest) {
    int64_t end = start, top = start;
    for (int64_t b = 0; b < batch; b++) {
        end += lengths[b];
        if (end > top) top = end;
    }
    if (largest) *largest = top;
    return end;
}

static vf_status finish_side(const char *side, const struct problem *problem, const int64_t *lengths, int64_t start,
                             bool batched, int64_t *rows) {
    int64_t largest;
    const int64_t end = end_of(lengths, problem->batch, start, &largest);
    if (!batched) {
        VF_REQUIRE(problem->int64_lengths || largest <= INT32_MAX, VF_ERROR_INVALID_ARGUMENT,
                   "problem: the lengths of %s add up to %lld, which needs --int64-lengths", side, (long long)largest);
        if (*rows < 0) *rows = end < 0 ? 0 : end;
        return VF_OK;
    }
    for (int64_t b = 1; b < problem->batch; b++)
        VF_REQUIRE(lengths[b] == lengths[0], VF_ERROR_INVALID_ARGUMENT,
                   "problem: batched tensors have slots of one length, but seqlens-%s has %lld and %lld", side,
                   (long long)lengths[0], (long long)lengths[b]);
    // Slots that are not there have rows all the same.
    const int64_t slot = problem->batch ? lengths[0] : *rows < 0 ? 0 : *rows;
    VF_REQUIRE(slot >= 0 && start == 0, VF_ERROR_INVALID_ARGUMENT,
               "problem: batched tensors have no cu_seqlens, so seqlens-%s cannot be negative and start-%s not set",
               side, side);
    VF_REQUIRE(*rows < 0 || *rows == slot, VF_ERROR_INVALID_ARGUMENT,
               "problem: rows-%s is %lld, but batched slots have %lld rows; leave it out", side, (long long)*rows,
               (long long)slot);
    *rows = slot;
    return VF_OK;
}

vf_status problem_finish(struct problem *problem) {
    VF_REQUIRE(problem->seqlens_q, VF_ERROR_INVALID_ARGUMENT,
               "problem: --seqlens-q is missing, for example --seqlens-q 0,1,1023");
    if (!problem->seqlens_k) VF_TRY(copy_lengths(problem->seqlens_q, problem->batch, &problem->seqlens_k));
    if (!problem->heads_k) problem->heads_k = problem->heads_q;
    if (!problem->head_dim_v) problem->head_dim_v = problem->head_dim;
    VF_TRY(finish_side("q", problem, problem->seqlens_q, problem->start_q, problem->batched_q, &problem->rows_q));
    VF_TRY(finish_side("k", problem, problem->seqlens_k, problem->start_k, problem->batched_k, &problem->rows_k));
    VF_REQUIRE(problem->backward || !problem->dlse, VF_ERROR_INVALID_ARGUMENT,
               "problem: --dlse is part of the backward pass: add --backward");
    VF_REQUIRE(!problem->backward || !problem->no_lse, VF_ERROR_INVALID_ARGUMENT,
               "problem: --no-lse and --backward: the backward pass reads lse");
    for (int i = 0; i < OPERAND_COUNT; i++) {
        const bool batched = i == OPERAND_K || i == OPERAND_V || i == OPERAND_DK || i == OPERAND_DV
                                 ? problem->batched_k
                                 : problem->batched_q;
        VF_REQUIRE(batched || !problem->strides[i].has_batch, VF_ERROR_INVALID_ARGUMENT,
                   "problem: --strides %s=: a batch stride, but the tensor is packed", problem_operand_names[i]);
    }
    return VF_OK;
}

// ---- comparing and copying -----------------------------------------------------------------------------------------

static bool lengths_equal(const int64_t *a, const int64_t *b, int64_t count) {
    if (!a || !b) return a == b;
    return !memcmp(a, b, (size_t)count * sizeof *a);
}

bool problem_equal(const struct problem *a, const struct problem *b) {
    for (int i = 0; i < OPERAND_COUNT; i++) {
        const struct problem_strides *s = &a->strides[i], *t = &b->strides[i];
        if (s->set != t->set || s->has_batch != t->has_batch || s->row != t->row || s->head != t->head ||
            s->batch != t->batch || s->storage_offset != t->storage_offset)
            return false;
    }
    return !strcmp(a->name, b->name) && a->batch == b->batch && lengths_equal(a->seqlens_q, b->seqlens_q, a->batch) &&
           lengths_equal(a->seqlens_k, b->seqlens_k, a->batch) && lengths_equal(a->seqused_q, b->seqused_q, a->batch) &&
           lengths_equal(a->seqused_k, b->seqused_k, a->batch) && a->start_q == b->start_q &&
           a->start_k == b->start_k && a->rows_q == b->rows_q && a->rows_k == b->rows_k &&
           a->batched_q == b->batched_q && a->batched_k == b->batched_k && a->int64_lengths == b->int64_lengths &&
           a->max_seqlen_q == b->max_seqlen_q && a->max_seqlen_k == b->max_seqlen_k && a->heads_q == b->heads_q &&
           a->heads_k == b->heads_k && a->head_dim == b->head_dim && a->head_dim_v == b->head_dim_v &&
           a->dtype == b->dtype && a->mask == b->mask && a->window_left == b->window_left &&
           a->window_right == b->window_right && a->softmax_scale == b->softmax_scale && a->softcap == b->softcap &&
           a->deterministic == b->deterministic && a->fill == b->fill && a->backward == b->backward &&
           a->dlse == b->dlse && a->no_lse == b->no_lse && a->input_scale == b->input_scale && a->seed == b->seed &&
           a->poison == b->poison && a->expect == b->expect;
}

vf_status problem_copy(const struct problem *from, struct problem *to) {
    const int64_t *const lists[] = {from->seqlens_q, from->seqlens_k, from->seqused_q, from->seqused_k};
    *to = *from;
    int64_t **const copies[] = {&to->seqlens_q, &to->seqlens_k, &to->seqused_q, &to->seqused_k};
    for (int i = 0; i < 4; i++) *copies[i] = NULL;
    for (int i = 0; i < 4; i++) {
        const vf_status status = copy_lengths(lists[i], from->batch, copies[i]);
        if (status) {
            problem_free(to);
            return status;
        }
    }
    return VF_OK;
}

vf_status problem_list_add(struct problem_list *list, struct problem *problem) {
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 16;
        struct problem *items = realloc(list->items, capacity * sizeof *items);
        if (!items) {
            problem_free(problem);
            VF_FAIL(VF_ERROR_OUT_OF_MEMORY, "problem: no memory for a list of %zu", capacity);
        }
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = *problem;
    *problem = (struct problem){0};
    return VF_OK;
}

void problem_list_free(struct problem_list *list) {
    for (size_t i = 0; i < list->count; i++) problem_free(&list->items[i]);
    free(list->items);
    *list = (struct problem_list){0};
}

// ---- geometry ------------------------------------------------------------------------------------------------------

static bool broken(char *sentence, size_t size, const char *format, ...) PRINTF_LIKE(3, 4);

static bool broken(char *sentence, size_t size, const char *format, ...) {
    va_list values;
    va_start(values, format);
    if (sentence) vsnprintf(sentence, size, format, values);
    va_end(values);
    return false;
}

static bool side_sound(const struct problem *problem, bool q_side, char *sentence, size_t size) {
    const char *side = q_side ? "q" : "k";
    const int64_t *lengths = q_side ? problem->seqlens_q : problem->seqlens_k;
    const int64_t *used = q_side ? problem->seqused_q : problem->seqused_k;
    const int64_t start = q_side ? problem->start_q : problem->start_k;
    const int64_t rows = q_side ? problem->rows_q : problem->rows_k;
    const int64_t bound = q_side ? problem->max_seqlen_q : problem->max_seqlen_k;
    const bool batched = q_side ? problem->batched_q : problem->batched_k;
    if (start) return broken(sentence, size, "cu_seqlens_%s[0] is %lld", side, (long long)start);
    int64_t end = 0;
    for (int64_t b = 0; b < problem->batch; b++) {
        end += lengths[b];
        if (lengths[b] < 0) return broken(sentence, size, "cu_seqlens_%s[%lld] decreases", side, (long long)b + 1);
        if (!batched && end > rows)
            return broken(sentence, size, "cu_seqlens_%s[%lld] is %lld, beyond %lld rows", side, (long long)b + 1,
                          (long long)end, (long long)rows);
        if (used && (used[b] < 0 || used[b] > lengths[b]))
            return broken(sentence, size, "seqused_%s[%lld] is %lld, in a slot of %lld", side, (long long)b,
                          (long long)used[b], (long long)lengths[b]);
        if (bound && (used ? used[b] : lengths[b]) > bound)
            return broken(sentence, size, "sequence %lld of %s is longer than max_seqlen_%s", (long long)b, side, side);
    }
    return true;
}

bool problem_sound(const struct problem *problem, char *sentence, size_t size) {
    return side_sound(problem, true, sentence, size) && side_sound(problem, false, sentence, size);
}

static void fill_spans(const struct problem *problem, const int64_t *lengths, const int64_t *used, bool batched,
                       struct problem_span *spans) {
    int64_t row = 0;
    for (int64_t b = 0; b < problem->batch; b++) {
        const int64_t slot = lengths[b] < 0 ? 0 : lengths[b], wanted = used ? used[b] : slot;
        spans[b] = (struct problem_span){.batch = batched ? b : 0,
                                         .row = batched ? 0 : row,
                                         .slot = slot,
                                         .used = wanted < 0      ? 0
                                                 : wanted > slot ? slot
                                                                 : wanted};
        row += slot;
    }
}

vf_status problem_spans(const struct problem *problem, struct problem_span **spans_q, struct problem_span **spans_k) {
    const size_t bytes = (size_t)problem->batch * sizeof **spans_q + 1;
    *spans_q = malloc(bytes);
    *spans_k = malloc(bytes);
    if (!*spans_q || !*spans_k) {
        free(*spans_q);
        free(*spans_k);
        VF_FAIL(VF_ERROR_OUT_OF_MEMORY, "problem: no memory for %lld sequences", (long long)problem->batch);
    }
    fill_spans(problem, problem->seqlens_q, problem->seqused_q, problem->batched_q, *spans_q);
    fill_spans(problem, problem->seqlens_k, problem->seqused_k, problem->batched_k, *spans_k);
    return VF_OK;
}

int64_t problem_slots_q(const struct problem *problem) {
    return problem->batched_q ? problem->batch : 1;
}
int64_t problem_slots_k(const struct problem *problem) {
    return problem->batched_k ? problem->batch : 1;
}

double problem_scale(const struct problem *problem) {
    return problem->softmax_scale > 0 ? problem->softmax_scale : 1 / sqrt((double)problem->head_dim);
}

// a + b without wrapping: edges are any int64.
static int64_t add_clamped(int64_t a, int64_t b) {
    int64_t sum;
    if (!__builtin_add_overflow(a, b, &sum)) return sum;
    return b < 0 ? INT64_MIN : INT64_MAX;
}

bool problem_visible(const struct problem *problem, int64_t used_q, int64_t used_k, int64_t i, int64_t *first,
                     int64_t *last) {
    const int64_t diagonal = i + used_k - used_q;
    *first = 0;
    *last = used_k;
    if (problem->mask == VF_MASK_CAUSAL) *last = diagonal + 1;
    if (problem->mask == VF_MASK_WINDOW) {
        const int64_t left = problem->window_left, right = problem->window_right;
        if (left != VF_NO_EDGE) *first = add_clamped(diagonal, left == INT64_MIN ? INT64_MAX : -left);
        if (right != VF_NO_EDGE) *last = add_clamped(add_clamped(diagonal, right), 1);
    }
    if (*first < 0) *first = 0;
    if (*last > used_k) *last = used_k;
    return *first < *last;
}

double problem_pairs(const struct problem *problem) {
    double pairs = 0;
    for (int64_t b = 0; b < problem->batch; b++) {
        int64_t sq = problem->seqlens_q[b], sk = problem->seqlens_k[b], first, last;
        if (problem->seqused_q && problem->seqused_q[b] < sq) sq = problem->seqused_q[b];
        if (problem->seqused_k && problem->seqused_k[b] < sk) sk = problem->seqused_k[b];
        if (problem->mask == VF_MASK_FULL) {
            if (sq > 0 && sk > 0) pairs += (double)sq * (double)sk;
            continue;
        }
        for (int64_t i = 0; i < sq; i++)
            if (problem_visible(problem, sq, sk, i, &first, &last)) pairs += (double)(last - first);
    }
    return pairs;
}

double problem_flops(const struct problem *problem, bool backward) {
    const double d = (double)problem->head_dim, dv = (double)problem->head_dim_v;
    return problem_pairs(problem) * (double)problem->heads_q * 2 * (backward ? 3 * d + 2 * dv : d + dv);
}
