// problem.h - the common currency of check, bench, explain, the sweeps, the fuzzers and the simulator: one attention
// problem.
//
// Given as flags or as JSON, kept as plain data, printed as the flags that replay it. A problem describes shapes,
// lengths, options and how its tensors are filled (seed, poison); it holds no tensors: tensors.h makes those. It may
// describe what the library must refuse: lengths that break the rules, head counts that do not divide. Invariant: a
// problem that was read or finished without an error is printed and read back equal, field by field.
#ifndef VF_PROBLEM_H
#define VF_PROBLEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "varflash/varflash.h"

// The operands whose strides a problem may set. ORDER operands: problem_operand_names.
enum problem_operand {
    OPERAND_Q,
    OPERAND_K,
    OPERAND_V,
    OPERAND_O,
    OPERAND_LSE,
    OPERAND_DOUT,
    OPERAND_DLSE,
    OPERAND_DQ,
    OPERAND_DK,
    OPERAND_DV,
    OPERAND_COUNT
};
extern const char *const problem_operand_names[OPERAND_COUNT];

struct problem_strides {
    bool set, has_batch;
    int64_t row, head, batch;  // elements; without has_batch the batch stride is seqlen * row
    int64_t storage_offset;    // elements between an aligned address and the first element
};

// What rows without a token and the space between elements hold in the inputs. ORDER poisons
enum problem_poison { POISON_NAN, POISON_INF, POISON_NEGATIVE_INF, POISON_ZERO };

#define PROBLEM_NAME_SIZE 64
#define PROBLEM_BATCH_LIMIT ((int64_t)1 << 20)
#define PROBLEM_LENGTH_LIMIT ((int64_t)1 << 40)  // of lengths and rows; heads and dims are below 2^20
#define PROBLEM_COUNT_LIMIT ((int64_t)1 << 22)   // lengths of all problems of one JSON text

struct problem {
    char name[PROBLEM_NAME_SIZE];    // a label: letters, digits and -_.:/+=  ("" for none)
    int64_t batch;                   // entries of each list of lengths
    int64_t *seqlens_q, *seqlens_k;  // slot lengths: what cu_seqlens (or the batched form) provides; a negative one
                                     // makes cu_seqlens decrease
    int64_t *seqused_q, *seqused_k;  // tokens in use, or null
    int64_t start_q, start_k;        // first entry of cu_seqlens; anything but 0 breaks the rules
    int64_t rows_q, rows_k;          // rows of the packed tensors, of one slot if batched. After problem_finish never 0
                                     // for "not given"; fewer than the slots need breaks the rules
    bool batched_q, batched_k;       // [batch, seqlen, heads, dim]: all slot lengths of the side are equal
    bool int64_lengths;              // int64 cu_seqlens and seqused instead of int32
    int64_t max_seqlen_q, max_seqlen_k;  // hints; 0: none
    int64_t heads_q, heads_k;
    int64_t head_dim, head_dim_v;
    vf_dtype dtype;
    vf_mask mask;
    int64_t window_left, window_right;  // VF_NO_EDGE: none
    double softmax_scale, softcap;      // 0: default, none
    vf_switch deterministic;
    vf_fill fill;
    bool backward, dlse;
    bool no_lse;  // the forward without its output lse
    struct problem_strides strides[OPERAND_COUNT];
    double input_scale;  // inputs are normal with this deviation
    uint64_t seed;
    enum problem_poison poison;
    vf_status expect;  // VF_OK, or how the library must refuse the problem

    uint64_t given;  // bit i: problem_options[i] was set. Not part of what problems are compared by
};

struct problem_list {
    struct problem *items;
    size_t count, capacity;
};

// ---- options: THE table of flags and of JSON members ---------------------------------------------------------------
// A flag is --name; the JSON member has underscores
// for dashes. A repeatable option adds to what it said before.

struct problem_option {
    const char *name;
    const char *argument;  // null: a switch
    bool repeatable;
    const char *help;
};
extern const struct problem_option problem_options[];
extern const size_t problem_option_count;

// Every field at its default. problem_free ends a problem and leaves a zeroed one, which may be freed again.
void problem_begin(struct problem *problem);
void problem_free(struct problem *problem);

// One option by its name without dashes; `value` null for a switch. VF_ERROR_INVALID_ARGUMENT with one sentence.
vf_status problem_set(struct problem *problem, const char *name, const char *value);

// After the last option: fills what was not given (lengths of k from q, heads_k, head_dim_v, rows) and judges the
// whole.
vf_status problem_finish(struct problem *problem);

// The three in one, for a line of problem flags alone ("--causal --softcap 15 --window=-3,1"). On failure nothing is left to
// free.
vf_status problem_from_line(const char *line, struct problem *problem);
// Appends the problem, or the problems of {"problems": [...]} or [...], to `list`, which stays as it was on failure. Any
// number of these may follow each other, as in a trace.
vf_status problem_from_json(const char *text, size_t size, struct problem_list *list);

// The flags that give this problem, without a line end; problem_write_json: one object.
void problem_write_flags(const struct problem *problem, struct buf *out);
void problem_write_json(const struct problem *problem, struct buf *out);

bool problem_equal(const struct problem *a, const struct problem *b);
vf_status problem_copy(const struct problem *from, struct problem *to);

// ---- lists ---------------------------------------------------------------------------------------------------------

// Takes the problem over (the caller's becomes a zeroed one), also on failure.
vf_status problem_list_add(struct problem_list *list, struct problem *problem);
void problem_list_free(struct problem_list *list);

// ---- geometry ------------------------------------------------------------------------------------------------------
// Where
// sequence b lies. Sound lengths only, but for the first.

// Whether cu_seqlens and seqused obey the rules of checked mode; if not, `sentence` (may be null) says what is broken.
bool problem_sound(const struct problem *problem, char *sentence, size_t size);

struct problem_span {
    int64_t batch, row;  // of the first token: batch index (0 in packed tensors) and row
    int64_t slot, used;  // rows of the slot, tokens in use
};
// All spans of both sides, [batch] each; used lengths are clamped to their slots. The caller frees both.
vf_status problem_spans(const struct problem *problem, struct problem_span **spans_q, struct problem_span **spans_k);

// Slots of a side: 1 if packed, else batch; rows of each stand in rows_q, rows_k.
int64_t problem_slots_q(const struct problem *problem);
int64_t problem_slots_k(const struct problem *problem);

// Visible (query, key) pairs of one head, and the products that cost: 4 * pairs * heads * dim forward, 2.5 times that
// backward (with unequal dims: 2 * pairs * heads * (d + dv) and 2 * pairs * heads * (3 d + 2 dv)).
double problem_pairs(const struct problem *problem);
double problem_flops(const struct problem *problem, bool backward);

double problem_scale(const struct problem *problem);  // softmax_scale or its default

// Keys that query i of a sequence sees are first <= j < last; false if there are none.
bool problem_visible(const struct problem *problem, int64_t used_q, int64_t used_k, int64_t i, int64_t *first,
                     int64_t *last);

#endif
