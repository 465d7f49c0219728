// request.h - a call in one form for both passes, and the request: what of it is static in a kernel.
//
// Not a judge: validate.c says whether a call is right, and fills a struct call through call_read once it is.
// Invariant: whatever changes from one batch to the next (lengths, totals, pointers, strides, scale, edges) is in
// struct call and never in struct request.
#ifndef VF_REQUEST_H
#define VF_REQUEST_H

#include "base.h"
#include "status.h"
#include "varflash/varflash.h"

// Every tensor of both passes. ORDER call_tensor: call_tensor_names.
enum call_tensor {
    CALL_Q,
    CALL_K,
    CALL_V,
    CALL_O,
    CALL_LSE,
    CALL_DOUT,
    CALL_DLSE,
    CALL_DQ,
    CALL_DK,
    CALL_DV,
    CALL_TENSORS
};
extern const char *const call_tensor_names[CALL_TENSORS];

// The four tensors of lengths. ORDER call_lengths: call_lengths_names, lengths.h.
enum call_lengths { CALL_CU_Q, CALL_CU_K, CALL_USED_Q, CALL_USED_K, CALL_LENGTHS };
extern const char *const call_lengths_names[CALL_LENGTHS];

struct request {
    bool backward, softcap, aligned, deterministic;
    bool mapped;  // tensor maps can address every operand: decides between families, stands in no spec
    vf_dtype dtype;
    vf_mask mask;  // normal form: a window that admits everything is FULL, one that is causal is CAUSAL
    int head_dim, head_dim_v;
};

// What the host knows about the sizes of a call, as powers of two, rounded up: a configuration row may ask for them.
struct sizes {
    int average_q, average_k;  // rows / batch
    int group;                 // query heads per key head
};

struct call {
    bool backward;
    const vf_tensor *tensors[CALL_TENSORS];  // null: absent, or not of this pass
    const vf_tensor *lengths[CALL_LENGTHS];  // null: absent
    const vf_problem_args *problem;
    // From here on by call_read.
    struct request request;
    struct sizes sizes;
    bool q_batched, k_batched;
    int64_t batch, heads_q, heads_k;
    int64_t rows_q, rows_k;             // rows of the packed tensor, or of one slot; 0 without slots
    int64_t total_q, total_k;           // rows of all slots together
    int32_t window_left, window_right;  // INT32_MAX: no edge; else within +-CALL_EDGE_LIMIT
    float scale, softcap;
};

// templates/schedule.cu counts entries in 28 bits: two a sequence, one more, and at most 512 because of gaps that are several.
#define CALL_BATCH_LIMIT (((int64_t)1 << 27) - 512)

// A sequence has at most this many rows; an edge further out than that sees as much as one just there.
#define CALL_LENGTH_LIMIT (((int64_t)1 << 30) - 1)
#define CALL_EDGE_LIMIT ((int32_t)1 << 30)

// Point into args; nothing is judged or derived.
void call_forward(struct call *call, const vf_forward_args *args);
void call_backward(struct call *call, const vf_backward_args *args);

// Derives the rest. The call must be valid.
void call_read(struct call *call);

// What keeps an operand from being moved 16 bytes at a time, or from being addressed by tensor maps.
enum call_access { CALL_ACCESS_ALIGNED, CALL_ACCESS_MAPPED };

// Whether anything does; then `text`, if it is not null, is a sentence about it.
#define CALL_OBSTACLE 160
bool call_obstacle(const struct call *call, enum call_tensor tensor, enum call_access access, char *text);

bool tensor_empty(const vf_tensor *tensor);  // has a dimension of 0

#define REQUEST_TEXT 192

// "pass=fwd arch=sm_90a dtype=bf16 ..." in canonical order.
void request_write(const struct request *request, const char *arch, char text[REQUEST_TEXT]);

// The same for a call, of which more is known: ends in " mapped=0" if aligned operands are out of reach of tensor maps.
void request_describe(const struct request *request, const char *arch, char text[REQUEST_TEXT]);

// The reverse of both; every field must be there, each once, and no other.
#define ARCH_TEXT 16
vf_status request_parse(const char *text, struct request *request, char arch[ARCH_TEXT]);

// Copies the value of `key` out of a spec, "key=value key=value ...".
vf_status request_word(const char *spec, const char *key, char *value, size_t size);

// Different for any two pairs that differ.
uint64_t request_key(const struct request *request, const struct sizes *sizes);

const char *request_dtype_name(vf_dtype dtype);  // "bf16"; "none" for a value that is none
size_t request_dtype_size(vf_dtype dtype);       // bytes; 0 for a value that is none

#endif
