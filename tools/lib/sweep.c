// sweep.c - see sweep.h. The class is index % SWEEP_CLASSES; what a class fixes is arithmetic on its number, chosen so
// that all head dims and all pairs of other facts occur.
#include "sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "status.h"

struct dice {
    uint64_t state;
};

// A number from low to high.
static int64_t roll(struct dice *dice, int64_t low, int64_t high) {
    dice->state = dice->state * 6364136223846793005u + 1442695040888963407u;
    return low + (int64_t)((dice->state >> 33) % (uint64_t)(high - low + 1));
}

static bool chance(struct dice *dice, int percent) {
    return roll(dice, 1, 100) <= percent;
}

// What is static in a kernel.
struct class {
    int64_t head_dim, head_dim_v;
    vf_dtype dtype;
    vf_mask mask;
    bool softcap, aligned, deterministic;
};

static struct class class_of(enum sweep_size size, uint64_t index) {
    static const vf_dtype dtypes[] = {VF_BFLOAT16, VF_FLOAT16, VF_FLOAT32};
    const int64_t c = (int64_t)(index % SWEEP_CLASSES);
    const int64_t head_dim = 8 * (1 + (c * 7 + c / 32) % 32);
    return (struct class){.head_dim = head_dim,
                          .head_dim_v = c % 7 < 3 ? 8 * (1 + (c * 13 + 5) % 32) : head_dim,
                          // The CPU backend has no classes: there every one takes all three types in turn.
                          .dtype = size == SWEEP_SMALL ? dtypes[(index / SWEEP_CLASSES + index) % 3] : dtypes[c % 2],
                          .mask = (vf_mask)(c / 2 % 3),
                          .softcap = c / 6 % 2,
                          .deterministic = c / 12 % 2,
                          .aligned = c % 5 != 4};
}

// ---- lengths -------------------------------------------------------------------------------------------------------

static int64_t length(struct dice *dice, int64_t longest) {
    static const int16_t edges[] = {1, 8, 16, 32, 48, 64, 80, 96, 112, 128, 192, 256, 384, 512, 640};
    if (chance(dice, 12)) return 0;
    if (chance(dice, 50)) return roll(dice, 0, longest);
    int64_t edge = edges[roll(dice, 0, ARRAY_LENGTH(edges) - 1)];
    edge += roll(dice, -1, 1);
    return edge <= longest ? edge : roll(dice, 0, longest);
}

// Halves the longest sequences until the oracle has little enough to do. By slots: a window or tokens in use do not
// make a problem long.
static void trim(struct problem *problem, double work) {
    const double pair = (double)(problem->heads_q * (problem->head_dim + problem->head_dim_v));
    for (;;) {
        int64_t pairs = 0, worst = 0;
        for (int64_t b = 0; b < problem->batch; b++) {
            pairs += problem->seqlens_q[b] * problem->seqlens_k[b];
            if (problem->seqlens_q[b] * problem->seqlens_k[b] > problem->seqlens_q[worst] * problem->seqlens_k[worst])
                worst = b;
        }
        if ((double)pairs * pair <= work) return;
        if (problem->seqlens_q[worst] > problem->seqlens_k[worst])
            problem->seqlens_q[worst] /= 2;
        else
            problem->seqlens_k[worst] /= 2;
    }
}

static vf_status make_lengths(struct dice *dice, enum sweep_size size, struct problem *problem) {
    const int64_t longest = size == SWEEP_SMALL ? 140 : 700;
    int64_t **const lists[] = {&problem->seqlens_q, &problem->seqlens_k, &problem->seqused_q, &problem->seqused_k};
    problem->batch = roll(dice, 0, 60) ? roll(dice, 1, size == SWEEP_SMALL ? 4 : 6) : 0;
    const bool used_q = chance(dice, 30), used_k = chance(dice, 30), wanted[] = {true, true, used_q, used_k};
    for (int i = 0; i < 4; i++) {
        if (!wanted[i]) continue;
        *lists[i] = malloc((size_t)problem->batch * sizeof **lists[i] + 1);
        VF_REQUIRE(*lists[i], VF_ERROR_OUT_OF_MEMORY, "sweep: no memory for lengths");
    }
    for (int64_t b = 0; b < problem->batch; b++) {
        problem->seqlens_q[b] = length(dice, longest);
        problem->seqlens_k[b] = chance(dice, 30) ? problem->seqlens_q[b] : length(dice, longest);
    }
    return VF_OK;
}

// After trimming: slots of batched sides become equal, tokens in use are drawn within the slots.
static void settle_lengths(struct dice *dice, struct problem *problem) {
    problem->batched_q = chance(dice, 15);
    problem->batched_k = problem->batched_q ? chance(dice, 80) : chance(dice, 5);
    int64_t shortest_q = INT64_MAX, shortest_k = INT64_MAX;
    for (int64_t b = 0; b < problem->batch; b++) {
        if (problem->seqlens_q[b] && problem->seqlens_q[b] < shortest_q) shortest_q = problem->seqlens_q[b];
        if (problem->seqlens_k[b] && problem->seqlens_k[b] < shortest_k) shortest_k = problem->seqlens_k[b];
    }
    for (int64_t b = 0; b < problem->batch; b++) {
        if (problem->batched_q) problem->seqlens_q[b] = shortest_q == INT64_MAX ? 0 : shortest_q;
        if (problem->batched_k) problem->seqlens_k[b] = shortest_k == INT64_MAX ? 0 : shortest_k;
        if (problem->seqused_q) problem->seqused_q[b] = roll(dice, 0, problem->seqlens_q[b]);
        if (problem->seqused_k) problem->seqused_k[b] = roll(dice, 0, problem->seqlens_k[b]);
    }
}

// Unused rows after the last sequence, and hints.
static void make_rows(struct dice *dice, struct problem *problem) {
    int64_t total_q = 0, total_k = 0, longest_q = 0, longest_k = 0;
    for (int64_t b = 0; b < problem->batch; b++) {
        total_q += problem->seqlens_q[b];
        total_k += problem->seqlens_k[b];
        if (problem->seqlens_q[b] > longest_q) longest_q = problem->seqlens_q[b];
        if (problem->seqlens_k[b] > longest_k) longest_k = problem->seqlens_k[b];
    }
    if (!problem->batched_q && chance(dice, 30)) problem->rows_q = total_q + roll(dice, 1, 40);
    if (!problem->batched_k && chance(dice, 30)) problem->rows_k = total_k + roll(dice, 1, 40);
    if (chance(dice, 20)) problem->max_seqlen_q = longest_q + roll(dice, 0, 9);
    if (chance(dice, 20)) problem->max_seqlen_k = longest_k + roll(dice, 0, 9);
}

// ---- strides -------------------------------------------------------------------------------------------------------

static void make_strides(struct dice *dice, const struct class *class, int operand, struct problem *problem) {
    struct problem_strides *strides = &problem->strides[operand];
    const bool key_side =
        operand == OPERAND_K || operand == OPERAND_V || operand == OPERAND_DK || operand == OPERAND_DV;
    const bool narrow = operand == OPERAND_Q || operand == OPERAND_K || operand == OPERAND_DQ || operand == OPERAND_DK;
    const bool statistic = operand == OPERAND_LSE || operand == OPERAND_DLSE;
    const bool input = !statistic && (operand <= OPERAND_V || operand == OPERAND_DOUT);
    const bool batched = key_side ? problem->batched_k : problem->batched_q;
    const int64_t heads = key_side ? problem->heads_k : problem->heads_q;
    const int64_t rows = (key_side ? problem->rows_k : problem->rows_q) + 1;
    const int64_t dim = statistic ? 1 : narrow ? problem->head_dim : problem->head_dim_v;
    // Class facts hold for q, so for the call; the other tensors of an unaligned class are either.
    const bool odd = !statistic && !class->aligned && (operand == OPERAND_Q || chance(dice, 60));
    const int64_t unit = odd || statistic ? 1 : 8;
    if (odd && (operand == OPERAND_Q || chance(dice, 70))) strides->storage_offset = roll(dice, 1, 7);
    if (chance(dice, 45)) return;
    strides->set = true;
    if (chance(dice, 50)) {  // [rows, heads, dim] with room between
        strides->head = dim + unit * roll(dice, 0, 3);
        strides->row = heads * strides->head + unit * roll(dice, 0, 5);
    } else {  // [heads, rows, dim]
        strides->row = dim + unit * roll(dice, 0, 3);
        strides->head = rows * strides->row + unit * roll(dice, 0, 5);
        strides->has_batch = batched;
        strides->batch = batched ? heads * strides->head + unit * roll(dice, 0, 5) : 0;
    }
    if (batched && statistic && !strides->has_batch) {
        strides->has_batch = true;
        strides->batch = rows * strides->row;
    }
    if (input && chance(dice, 10)) strides->row = -strides->row;
    if (input && chance(dice, 5)) strides->head = 0;
}

// ---- the rest ------------------------------------------------------------------------------------------------------

static void make_window(struct dice *dice, struct problem *problem) {
    // Never an edge pair that is no mask or causal: that would be another class.
    problem->window_left = chance(dice, 20) ? VF_NO_EDGE : chance(dice, 40) ? roll(dice, -3, 3) : roll(dice, -20, 300);
    problem->window_right = chance(dice, 15) ? VF_NO_EDGE : chance(dice, 40) ? roll(dice, -3, 3) : roll(dice, -20, 300);
    if (problem->window_left == VF_NO_EDGE && (problem->window_right == VF_NO_EDGE || !problem->window_right))
        problem->window_right = -1;
}

static vf_status draw(enum sweep_size size, struct dice *dice, const struct class *class, struct problem *problem) {
    problem->head_dim = class->head_dim;
    problem->head_dim_v = class->head_dim_v;
    problem->dtype = class->dtype;
    problem->mask = class->mask;
    problem->softcap = class->softcap ? (double)roll(dice, 1, 200) / 4 : 0;
    problem->deterministic = class->deterministic ? VF_ON : VF_AUTO;
    problem->heads_k = roll(dice, 1, size == SWEEP_SMALL ? 2 : 3);
    problem->heads_q = problem->heads_k * roll(dice, 1, size == SWEEP_SMALL ? 3 : 4);
    problem->backward = chance(dice, 90);
    problem->dlse = problem->backward && chance(dice, 30);
    problem->no_lse = !problem->backward && chance(dice, 40);
    problem->int64_lengths = chance(dice, 20);
    problem->fill = chance(dice, 20) ? VF_FILL_KEEP : VF_FILL_ZERO;
    problem->poison = (enum problem_poison)(chance(dice, 60) ? POISON_NAN : roll(dice, POISON_INF, POISON_ZERO));
    if (chance(dice, 20)) problem->softmax_scale = (double)roll(dice, 1, 64) / 64;
    if (chance(dice, 10)) problem->input_scale = (double)roll(dice, 1, 12) / 4;
    if (class->mask == VF_MASK_WINDOW) make_window(dice, problem);
    VF_TRY(make_lengths(dice, size, problem));
    trim(problem, size == SWEEP_SMALL ? 1.2e6 : 5e7);
    settle_lengths(dice, problem);
    make_rows(dice, problem);
    return problem_finish(problem);
}

vf_status sweep_problem(enum sweep_size size, uint64_t seed, uint64_t index, struct problem *problem) {
    struct dice dice = {seed * 0x9e3779b97f4a7c15u + index * 0xbf58476d1ce4e5b9u + 1};
    const struct class class = class_of(size, index);
    for (int i = 0; i < 4; i++) roll(&dice, 0, 1);
    problem_begin(problem);
    snprintf(problem->name, sizeof problem->name, "sweep%s:%llu:%llu", size == SWEEP_SMALL ? "-small" : "",
             (unsigned long long)seed, (unsigned long long)index);
    problem->seed = index + 1;
    const vf_status status = draw(size, &dice, &class, problem);
    if (status) {
        problem_free(problem);
        return status;
    }
    for (int i = 0; i < OPERAND_COUNT; i++) make_strides(&dice, &class, i, problem);
    return VF_OK;
}
