// judge_exact.c - what needs no oracle and no tolerance: zeros, infinities, and bytes that nobody may touch.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "crew.h"
#include "judge.h"
#include "number.h"
#include "status.h"

// What a row of the tensor belongs to.
enum owner {
    OWNER_NONE,  // no token lives there
    OWNER_LIVE,
    OWNER_BLIND  // a row that sees nothing, a key that nobody sees
};

struct owners {
    unsigned char *rows;  // [slots * rows]
    int32_t *sequences;   // for sentences
    const struct problem_span *spans;
};

static void free_owners(struct owners *owners) {
    free(owners->rows);
    free(owners->sequences);
}

static vf_status make_owners(const struct problem *problem, bool q_side, const struct problem_span *spans,
                             struct owners *owners) {
    const int64_t rows = q_side ? problem->rows_q : problem->rows_k;
    const int64_t slots = q_side ? problem_slots_q(problem) : problem_slots_k(problem);
    *owners = (struct owners){.rows = calloc((size_t)(slots * rows) + 1, 1),
                              .sequences = calloc((size_t)(slots * rows) + 1, sizeof(int32_t)),
                              .spans = spans};
    VF_REQUIRE(owners->rows && owners->sequences, VF_ERROR_OUT_OF_MEMORY, "verify: no memory for %lld rows",
               (long long)(slots * rows));
    for (int64_t b = 0; b < problem->batch; b++) {
        const int64_t begin = spans[b].batch * rows + spans[b].row;
        for (int64_t i = 0; i < spans[b].slot; i++) owners->sequences[begin + i] = (int32_t)b;
        memset(owners->rows + begin, OWNER_BLIND, (size_t)spans[b].used);
    }
    return VF_OK;
}

// Rows that see a key, and keys that a row sees, come alive. Visible ranges of successive rows are counted by where
// they begin and end, so that long sequences cost no more than their length.
static vf_status open_eyes(const struct problem *problem, struct owners *q, struct owners *k) {
    for (int64_t b = 0; b < problem->batch; b++) {
        const struct problem_span *span_q = &q->spans[b], *span_k = &k->spans[b];
        unsigned char *rows = q->rows + span_q->batch * problem->rows_q + span_q->row;
        unsigned char *keys = k->rows + span_k->batch * problem->rows_k + span_k->row;
        int64_t first, last, watchers = 0;
        int64_t *change = calloc((size_t)span_k->used + 1, sizeof *change);
        VF_REQUIRE(change, VF_ERROR_OUT_OF_MEMORY, "verify: no memory for %lld keys", (long long)span_k->used);
        for (int64_t i = 0; i < span_q->used; i++) {
            if (!problem_visible(problem, span_q->used, span_k->used, i, &first, &last)) continue;
            rows[i] = OWNER_LIVE;
            change[first]++;
            change[last]--;
        }
        for (int64_t j = 0; j < span_k->used; j++)
            if ((watchers += change[j]) > 0) keys[j] = OWNER_LIVE;
        free(change);
    }
    return VF_OK;
}

// ---- rows ----------------------------------------------------------------------------------------------------------

struct scan {
    const struct problem *problem;
    const struct tensor_image *image;
    const struct owners *owners;
    const char *name;
    bool statistic;
    int64_t *bad;  // of each piece: the first wrong (row, head) in it, or -1
};

#define SCAN_COLUMNS 64

static const unsigned char *row_at(const struct tensor_image *image, int64_t at, int64_t head) {
    return image->bytes + image->offset +
           tensor_offset(image, at / image->rows, at % image->rows, head) * (int64_t)image->element;
}

// What is wrong with one row of one head; null if nothing is.
static const char *row_fault(const struct scan *scan, int64_t at, int64_t head, int64_t *column) {
    const struct tensor_image *image = scan->image;
    const enum owner owner = scan->owners->rows[at];
    const unsigned char *bytes = row_at(image, at, head);
    double values[SCAN_COLUMNS];
    const bool kept = owner == OWNER_NONE && scan->problem->fill == VF_FILL_KEEP;
    for (int64_t done = 0; done < image->dim; done += SCAN_COLUMNS) {
        const int64_t count = image->dim - done < SCAN_COLUMNS ? image->dim - done : SCAN_COLUMNS;
        number_load(image->view.dtype, bytes + done * (int64_t)image->element, count, values);
        for (int64_t c = 0; c < count; c++) {
            *column = done + c;
            if (kept) {
                for (size_t i = 0; i < image->element; i++)
                    if (bytes[(size_t)(done + c) * image->element + i] != TENSOR_CANARY)
                        return "holds no token and was to be kept, but was written";
            } else if (owner == OWNER_LIVE) {
                if (!isfinite(values[c])) return "was not written, or is not finite";
            } else if (scan->statistic ? values[c] != -INFINITY : values[c] != 0) {
                return owner == OWNER_NONE
                           ? (scan->statistic ? "holds no token, must be -inf" : "holds no token, must be 0")
                       : scan->statistic ? "sees nothing, must be -inf"
                                         : "sees nothing or is seen by nobody, must be 0";
            }
        }
    }
    return NULL;
}

static void scan_piece(void *user, int64_t piece) {
    const struct scan *scan = user;
    const struct tensor_image *image = scan->image;
    int64_t column;
    scan->bad[piece] = -1;
    const int64_t count = crew_rows(image->heads * image->dim);
    for (int64_t at = piece * count; at < (piece + 1) * count && at < image->slots * image->rows; at++)
        for (int64_t head = 0; head < image->heads; head++)
            if (row_fault(scan, at, head, &column)) {
                scan->bad[piece] = at * image->heads + head;
                return;
            }
}

static vf_status scan_tensor(struct scan *scan, int threads, struct verify_result *result) {
    const struct tensor_image *image = scan->image;
    const int64_t count = crew_rows(image->heads * image->dim);
    const int64_t pieces = (image->slots * image->rows + count - 1) / count;
    scan->bad = malloc((size_t)pieces * sizeof *scan->bad + 1);
    VF_REQUIRE(scan->bad, VF_ERROR_OUT_OF_MEMORY, "verify: no memory for %lld pieces", (long long)pieces);
    crew_run(threads, pieces, scan_piece, scan);
    for (int64_t piece = 0; piece < pieces; piece++) {
        if (scan->bad[piece] < 0) continue;
        const int64_t at = scan->bad[piece] / image->heads, head = scan->bad[piece] % image->heads;
        int64_t column = 0;
        double value;
        const char *fault = row_fault(scan, at, head, &column);
        number_load(image->view.dtype, row_at(image, at, head) + column * (int64_t)image->element, 1, &value);
        const int64_t row = at % image->rows, sequence = scan->owners->sequences[at];
        if (scan->owners->rows[at] == OWNER_NONE)
            judge_wrong(result, "%s: tensor row %lld, head %lld, column %lld: %s; got %.9g", scan->name, (long long)row,
                        (long long)head, (long long)column, fault, value);
        else
            judge_wrong(result, "%s: sequence %lld, head %lld, row %lld, column %lld: %s; got %.9g", scan->name,
                        (long long)sequence, (long long)head, (long long)(row - scan->owners->spans[sequence].row),
                        (long long)column, fault, value);
        break;
    }
    free(scan->bad);
    return VF_OK;
}

// ---- guards --------------------------------------------------------------------------------------------------------

struct guards {
    unsigned char *bytes;
    size_t size;
    size_t *bad;  // of each piece: the first byte that is no canary, or SIZE_MAX
};

#define GUARD_PIECE ((size_t)1 << 20)

static void scan_guards(void *user, int64_t piece) {
    const struct guards *guards = user;
    const size_t begin = (size_t)piece * GUARD_PIECE;
    const size_t end = begin + GUARD_PIECE < guards->size ? begin + GUARD_PIECE : guards->size;
    uint64_t canaries, word;
    memset(&canaries, TENSOR_CANARY, sizeof canaries);
    guards->bad[piece] = SIZE_MAX;
    for (size_t at = begin; at < end; at += sizeof word) {
        memcpy(&word, guards->bytes + at, sizeof word);
        if (word == canaries) continue;
        while (guards->bytes[at] == TENSOR_CANARY) at++;
        guards->bad[piece] = at;
        return;
    }
}

static void hide_elements(struct tensor_image *image) {
    for (int64_t at = 0; at < image->slots * image->rows; at++)
        for (int64_t head = 0; head < image->heads; head++)
            memset(image->bytes + (row_at(image, at, head) - image->bytes), TENSOR_CANARY,
                   (size_t)image->dim * image->element);
}

vf_status judge_guards(const struct tensor_image *image, bool elements, const char *name, int threads,
                       struct verify_result *result) {
    if (!image->bytes) return VF_OK;
    const int64_t pieces = (int64_t)((image->size + GUARD_PIECE - 1) / GUARD_PIECE);
    struct tensor_image copy = {0};
    struct guards guards = {image->bytes, image->size, malloc((size_t)pieces * sizeof(size_t) + 1)};
    VF_REQUIRE(guards.bad, VF_ERROR_OUT_OF_MEMORY, "verify: no memory for %lld pieces", (long long)pieces);
    vf_status status = VF_OK;
    if (elements) {
        status = tensor_clone(image, &copy);
        if (status) goto out;
        memcpy(copy.bytes, image->bytes, image->size);
        hide_elements(&copy);
        guards.bytes = copy.bytes;
    }
    crew_run(threads, pieces, scan_guards, &guards);
    for (int64_t piece = 0; piece < pieces; piece++) {
        if (guards.bad[piece] == SIZE_MAX) continue;
        const int64_t distance = (int64_t)guards.bad[piece] - (int64_t)image->offset;
        judge_wrong(result, "%s: %s: byte %lld from its first element was written", name,
                    elements ? "memory that is no element of it" : "an output of a call that was refused",
                    (long long)distance);
        break;
    }
out:
    tensor_free(&copy);
    free(guards.bad);
    return status;
}

// ---- all of it -----------------------------------------------------------------------------------------------------

vf_status judge_exact(const struct problem *problem, const struct tensors *tensors, bool backward, int threads,
                      struct verify_result *result) {
    struct problem_span *spans_q, *spans_k;
    struct owners q = {0}, k = {0};
    VF_TRY(problem_spans(problem, &spans_q, &spans_k));
    vf_status status = make_owners(problem, true, spans_q, &q);
    if (!status) status = make_owners(problem, false, spans_k, &k);
    if (!status) status = open_eyes(problem, &q, &k);
    for (int i = 0; i < VERIFY_TENSORS && !status; i++) {
        const struct tensor_image *image = &tensors->images[judge_operands[i]];
        if (!image->bytes || (i >= VERIFY_DQ && !backward)) continue;
        struct scan scan = {.problem = problem,
                            .image = image,
                            .owners = i >= VERIFY_DK ? &k : &q,
                            .name = verify_tensor_names[i],
                            .statistic = i == VERIFY_LSE};
        status = scan_tensor(&scan, threads, result);
        if (!status) status = judge_guards(image, true, verify_tensor_names[i], threads, result);
    }
    free_owners(&q);
    free_owners(&k);
    free(spans_q);
    free(spans_k);
    return status;
}
