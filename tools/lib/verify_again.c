// verify_again.c - see verify_again.h. Every comparison is of bits, element by element, between the first results and
// those of another run.
#include "verify_again.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "judge.h"
#include "number.h"
#include "status.h"
#include "varflash/varflash_dev.h"

// Copies of the first results.
struct first {
    struct tensor_image images[VERIFY_TENSORS];
};

static void first_free(struct first *first) {
    for (int i = 0; i < VERIFY_TENSORS; i++) tensor_free(&first->images[i]);
}

static vf_status first_keep(const struct harness *harness, struct first *first) {
    *first = (struct first){0};
    for (int i = 0; i < VERIFY_TENSORS; i++) {
        const struct tensor_image *image = &harness->host.images[judge_operands[i]];
        if (!image->bytes) continue;
        const vf_status status = tensor_clone(image, &first->images[i]);
        if (status) {
            first_free(first);
            return status;
        }
        memcpy(first->images[i].bytes, image->bytes, image->size);
    }
    return VF_OK;
}

static const unsigned char *row_at(const struct tensor_image *image, int64_t slot, int64_t row, int64_t head) {
    return image->bytes + image->offset + tensor_offset(image, slot, row, head) * (int64_t)image->element;
}

// Rows of the slots of every step-th sequence. `skip`: a sequence and kv head that is not compared (-1: none).
static vf_status compare(const struct problem *problem, const struct first *first, const struct tensors *tensors,
                         bool backward, int64_t step, int64_t skip_sequence, int64_t skip_head, const char *what,
                         struct verify_result *result) {
    struct problem_span *spans_q, *spans_k;
    VF_TRY(problem_spans(problem, &spans_q, &spans_k));
    for (int t = backward ? VERIFY_DQ : VERIFY_O; t < (backward ? VERIFY_TENSORS : VERIFY_DQ); t++) {
        const struct tensor_image *old = &first->images[t], *new = &tensors->images[judge_operands[t]];
        if (!old->bytes) continue;
        const struct problem_span *spans = t >= VERIFY_DK ? spans_k : spans_q;
        const int64_t group = t >= VERIFY_DK ? 1 : problem->heads_q / problem->heads_k;
        const size_t bytes = (size_t)old->dim * old->element;
        for (int64_t b = 0; b < problem->batch && result->verdict == VERIFY_RIGHT; b += step)
            for (int64_t i = 0; i < spans[b].slot; i++)
                for (int64_t head = 0; head < old->heads; head++) {
                    if (b == skip_sequence && head / group == skip_head) continue;
                    if (!memcmp(row_at(old, spans[b].batch, spans[b].row + i, head),
                                row_at(new, spans[b].batch, spans[b].row + i, head), bytes))
                        continue;
                    judge_wrong(result, "%s: sequence %lld, head %lld, row %lld: %s", verify_tensor_names[t],
                                (long long)b, (long long)head, (long long)i, what);
                }
    }
    free(spans_q);
    free(spans_k);
    return VF_OK;
}

static vf_status failed(struct verify_result *result, const char *what, vf_status status) {
    result->status = status;
    judge_wrong(result, "%s: %s: %.380s", what, vf_status_name(status), vf_last_error());
    return VF_OK;
}

// ---- the same call again -------------------------------------------------------------------------------------------

// Runs both passes where the second is wanted too; o and lse of the backward are those of this forward.
static vf_status run_both(struct harness *harness, const char *what, struct verify_result *result) {
    for (int backward = 0; backward <= (int)harness->problem->backward; backward++) {
        if (!harness_reproducible(harness, backward)) continue;
        const vf_status status = backward ? harness_backward(harness) : harness_forward(harness);
        if (status) return failed(result, what, status);
        VF_TRY(harness_fetch(harness, backward));
    }
    return VF_OK;
}

static vf_status compare_both(struct harness *harness, const struct first *first, const struct tensors *tensors,
                              int64_t skip_sequence, int64_t skip_head, const char *what,
                              struct verify_result *result) {
    for (int backward = 0; backward <= (int)harness->problem->backward; backward++)
        if (harness_reproducible(harness, backward))
            VF_TRY(compare(harness->problem, first, tensors, backward, 1, skip_sequence, skip_head, what, result));
    return VF_OK;
}

static vf_status repeat(struct harness *harness, const struct verify_options *options, const struct first *first,
                        struct verify_result *result) {
    for (int run = 1; run < options->repeat && result->verdict == VERIFY_RIGHT; run++) {
        VF_TRY(run_both(harness, "repeated", result));
        VF_TRY(compare_both(harness, first, &harness->host, -1, -1, "other bits when the call is repeated", result));
    }
    return VF_OK;
}

// ---- each sequence alone -------------------------------------------------------------------------------------------

#define ALONE_LIMIT 32  // sequences tried, spread over the batch

// Where sequence b of one side lies in the tensors of the batch, and the lengths of a batch of one.
struct alone {
    const struct harness *harness;
    int64_t b;
    struct problem_span span_q, span_k;
    void *cu_q, *cu_k;  // device: [0, slot]
};

static vf_tensor cut(const struct alone *alone, const vf_tensor *tensor, enum problem_operand operand) {
    const bool key_side =
        operand == OPERAND_K || operand == OPERAND_V || operand == OPERAND_DK || operand == OPERAND_DV;
    const bool statistic = operand == OPERAND_LSE || operand == OPERAND_DLSE;
    const struct tensor_image *image = &alone->harness->host.images[operand];
    const struct problem_span *span = key_side ? &alone->span_k : &alone->span_q;
    const bool batched = key_side ? alone->harness->problem->batched_k : alone->harness->problem->batched_q;
    vf_tensor part = *tensor;
    if (!tensor->ndim) return part;
    part.data =
        (unsigned char *)tensor->data + tensor_offset(image, span->batch, span->row, 0) * (int64_t)image->element;
    if (batched)
        part.shape[0] = 1;
    else
        part.shape[statistic ? 1 : 0] = span->slot;
    return part;
}

static void cut_lengths(const struct alone *alone, vf_problem_args *args) {
    const size_t element = alone->harness->problem->int64_lengths ? 8 : 4;
    if (args->cu_seqlens_q.ndim) args->cu_seqlens_q.data = alone->cu_q;
    if (args->cu_seqlens_k.ndim) args->cu_seqlens_k.data = alone->cu_k;
    vf_tensor *const lists[] = {&args->cu_seqlens_q, &args->cu_seqlens_k, &args->seqused_q, &args->seqused_k};
    for (int i = 0; i < 4; i++) {
        if (!lists[i]->ndim) continue;
        lists[i]->shape[0] = i < 2 ? 2 : 1;
        if (i >= 2) lists[i]->data = (unsigned char *)lists[i]->data + (size_t)alone->b * element;
    }
    args->max_seqlen_q = args->max_seqlen_k = 0;
}

static vf_status upload_slot(const struct alone *alone, void *to, int64_t slot) {
    const int64_t wide[2] = {0, slot};
    const int32_t narrow[2] = {0, (int32_t)slot};
    return alone->harness->problem->int64_lengths ? vf_dev_upload(alone->harness->context, to, wide, sizeof wide)
                                                  : vf_dev_upload(alone->harness->context, to, narrow, sizeof narrow);
}

// Runs one pass for one sequence; its outputs land where those of the batch would.
static vf_status run_alone(struct harness *harness, const struct alone *alone, bool backward) {
    VF_TRY(upload_slot(alone, alone->cu_q, alone->span_q.slot));
    VF_TRY(upload_slot(alone, alone->cu_k, alone->span_k.slot));
    if (backward) {
        vf_backward_args args;
        tensors_backward_args(harness->problem, &harness->host, harness->bases, &args);
        vf_tensor *const tensors[OPERAND_COUNT] = {&args.q,    &args.k,    &args.v,  &args.o,  &args.lse,
                                                   &args.dout, &args.dlse, &args.dq, &args.dk, &args.dv};
        for (int i = 0; i < OPERAND_COUNT; i++) *tensors[i] = cut(alone, tensors[i], (enum problem_operand)i);
        cut_lengths(alone, &args.problem);
        return harness_run_backward(harness, &args);
    }
    vf_forward_args args;
    tensors_forward_args(harness->problem, &harness->host, harness->bases, &args);
    vf_tensor *const tensors[] = {&args.q, &args.k, &args.v, &args.o, &args.lse};
    for (int i = 0; i <= OPERAND_LSE; i++) *tensors[i] = cut(alone, tensors[i], (enum problem_operand)i);
    cut_lengths(alone, &args.problem);
    return harness_run_forward(harness, &args);
}

static vf_status invariance_pass(struct harness *harness, struct alone *alone, const struct first *first,
                                 const struct problem_span *spans_q, const struct problem_span *spans_k, bool backward,
                                 struct verify_result *result) {
    const int64_t batch = harness->problem->batch;
    const int64_t step = (batch + ALONE_LIMIT - 1) / ALONE_LIMIT;
    VF_TRY(harness_reset(harness, backward));
    for (int64_t b = 0; b < batch; b += step) {
        alone->b = b;
        alone->span_q = spans_q[b];
        alone->span_k = spans_k[b];
        const vf_status status = run_alone(harness, alone, backward);
        if (status) return failed(result, "a sequence alone", status);
    }
    VF_TRY(harness_fetch(harness, backward));
    return compare(harness->problem, first, &harness->host, backward, step, -1, -1,
                   "other bits when the sequence is alone", result);
}

static vf_status invariance(struct harness *harness, const struct first *first, struct verify_result *result) {
    struct alone alone = {.harness = harness};
    struct problem_span *spans_q, *spans_k;
    VF_TRY(problem_spans(harness->problem, &spans_q, &spans_k));
    vf_status status = vf_dev_alloc(harness->context, harness->device, 16, &alone.cu_q);
    if (!status) status = vf_dev_alloc(harness->context, harness->device, 16, &alone.cu_k);
    for (int backward = 0; backward <= (int)harness->problem->backward && !status; backward++) {
        if (!harness_reproducible(harness, backward)) continue;
        status = invariance_pass(harness, &alone, first, spans_q, spans_k, backward, result);
    }
    vf_dev_free(harness->context, alone.cu_q);
    vf_dev_free(harness->context, alone.cu_k);
    free(spans_q);
    free(spans_k);
    return status;
}

// ---- other strides -------------------------------------------------------------------------------------------------

static vf_status contiguous(struct harness *harness, const struct verify_options *options, const struct first *first,
                            struct verify_result *result) {
    struct problem plain;
    struct harness other;
    VF_TRY(problem_copy(harness->problem, &plain));
    memset(plain.strides, 0, sizeof plain.strides);
    vf_status status = harness_create(harness->context, &plain, harness->device, options->threads, &other);
    if (!status) {
        status = harness_force(&other, harness->knobs[0], harness->knobs[1]);
        if (!status) status = run_both(&other, "without strides of its own", result);
        if (!status && result->verdict == VERIFY_RIGHT)
            status =
                compare_both(harness, first, &other.host, -1, -1, "other bits than with contiguous tensors", result);
        harness_free(&other);
    }
    problem_free(&plain);
    return status;
}

// ---- a spoiled token -----------------------------------------------------------------------------------------------

// The longest sequence in which there is a key and a row.
static int64_t spoil_sequence(const struct problem *problem, const struct problem_span *q,
                              const struct problem_span *k) {
    int64_t best = -1;
    for (int64_t b = 0; b < problem->batch; b++)
        if (q[b].used && k[b].used && (best < 0 || k[b].used > k[best].used)) best = b;
    return best;
}

static vf_status spoil_tokens(struct harness *harness, const struct problem_span *spans_q,
                              const struct problem_span *spans_k, int64_t b, int64_t head_k) {
    static const enum problem_operand operands[] = {OPERAND_Q, OPERAND_K, OPERAND_V, OPERAND_DOUT};
    const int64_t group = harness->problem->heads_q / harness->problem->heads_k;
    for (size_t i = 0; i < ARRAY_LENGTH(operands); i++) {
        struct tensor_image *image = &harness->host.images[operands[i]];
        if (!image->bytes) continue;
        const bool key_side = operands[i] == OPERAND_K || operands[i] == OPERAND_V;
        const struct problem_span *span = key_side ? &spans_k[b] : &spans_q[b];
        const double nan = NAN;
        tensor_store(image, span->batch, span->row + span->used / 2, key_side ? head_k : head_k * group, 1, &nan);
        VF_TRY(vf_dev_upload(harness->context, harness->bases[operands[i]], image->bytes, image->size));
    }
    return VF_OK;
}

// Whether tokens or heads of an input share memory (a stride of 0): then one token cannot be spoiled alone.
static bool shared(const struct tensors *tensors) {
    static const enum problem_operand inputs[] = {OPERAND_Q, OPERAND_K, OPERAND_V, OPERAND_DOUT};
    for (size_t i = 0; i < ARRAY_LENGTH(inputs); i++) {
        const struct tensor_image *image = &tensors->images[inputs[i]];
        if (image->bytes && (!image->row_stride || !image->head_stride)) return true;
    }
    return false;
}

static vf_status spoil(struct harness *harness, const struct first *first, struct verify_result *result) {
    struct problem_span *spans_q, *spans_k;
    VF_TRY(problem_spans(harness->problem, &spans_q, &spans_k));
    vf_status status = VF_OK;
    const int64_t b = spoil_sequence(harness->problem, spans_q, spans_k);
    const int64_t head_k = (int64_t)(harness->problem->seed % (uint64_t)harness->problem->heads_k);
    if (b >= 0 && !shared(&harness->host)) {
        status = spoil_tokens(harness, spans_q, spans_k, b, head_k);
        if (!status) status = run_both(harness, "with a spoiled token", result);
        if (!status && result->verdict == VERIFY_RIGHT)
            status = compare_both(harness, first, &harness->host, b, head_k,
                                  "changed by a NaN in another sequence or kv head", result);
    }
    free(spans_q);
    free(spans_k);
    return status;
}

vf_status verify_again(struct harness *harness, const struct verify_options *options, struct verify_result *result) {
    struct first first;
    if (options->repeat < 2 && !options->invariance && !options->contiguous && !options->spoil) return VF_OK;
    if (result->verdict != VERIFY_RIGHT) return VF_OK;
    VF_TRY(first_keep(harness, &first));
    vf_status status = repeat(harness, options, &first, result);
    if (!status && options->invariance && result->verdict == VERIFY_RIGHT) status = invariance(harness, &first, result);
    if (!status && options->contiguous && result->verdict == VERIFY_RIGHT)
        status = contiguous(harness, options, &first, result);
    if (!status && options->spoil && result->verdict == VERIFY_RIGHT)  // last: it spoils the inputs
        status = spoil(harness, &first, result);
    first_free(&first);
    return status;
}
