// cpu_case.c - see cpu_case.h: problems, tensors, memory.
#include "cpu_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- numbers -------------------------------------------------------------------------------------------------------

static uint64_t draw(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int64_t draw_below(uint64_t *state, int64_t end) {
    return (int64_t)(draw(state) % (uint64_t)end);
}

static double draw_normal(uint64_t *state) {
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += (double)(draw(state) >> 11) * 0x1p-53;
    return sum;
}

static size_t element_size(vf_dtype dtype) {
    return dtype == VF_FLOAT16 || dtype == VF_BFLOAT16 ? 2 : dtype == VF_INT64 ? 8 : 4;
}

// Bits of a value, the slow and plain way.
static uint16_t half_bits(double value) {
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    double size = fabs(value);
    if (isnan(size)) return 0x7e00;
    int exponent;
    frexp(size, &exponent);
    const int scale = exponent - 11 < -24 ? -24 : exponent - 11;
    const double mantissa = nearbyint(ldexp(size, -scale));
    size = ldexp(mantissa, scale);
    if (size >= 65520) return (uint16_t)(sign | 0x7c00);
    if (size < 0x1p-14) return (uint16_t)(sign | (uint16_t)ldexp(size, 24));
    frexp(size, &exponent);
    return (uint16_t)(sign | ((exponent + 14) << 10) | ((int)ldexp(size, 11 - exponent) & 0x3ff));
}

static double half_value(uint16_t bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
    const double size = exponent == 31 ? (mantissa ? NAN : INFINITY)
                        : exponent     ? ldexp(mantissa + 1024, exponent - 25)
                                       : ldexp(mantissa, -24);
    return bits & 0x8000 ? -size : size;
}

static void put(void *at, vf_dtype dtype, double value) {
    const float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, 4);
    uint16_t narrow = dtype == VF_FLOAT16 ? half_bits(value) : (uint16_t)((bits + (isnan(value) ? 0 : 0x8000)) >> 16);
    memcpy(at, dtype == VF_FLOAT32 ? (void *)&bits : (void *)&narrow, element_size(dtype));
}

void *case_at(const vf_tensor *tensor, const int64_t index[4]) {
    int64_t offset = 0;
    for (int d = 0; d < tensor->ndim; d++) offset += index[d] * tensor->stride[d];
    return (char *)tensor->data + offset * (int64_t)element_size(tensor->dtype);
}

double case_get(const vf_tensor *tensor, const int64_t index[4]) {
    uint16_t narrow;
    uint32_t bits;
    float single;
    const void *at = case_at(tensor, index);
    if (tensor->dtype == VF_FLOAT32) {
        memcpy(&bits, at, 4);
    } else {
        memcpy(&narrow, at, 2);
        if (tensor->dtype == VF_FLOAT16) return half_value(narrow);
        bits = (uint32_t)narrow << 16;
    }
    memcpy(&single, &bits, 4);
    return single;
}

// ---- lengths
// ---------------------------------------------------------------------------------------------------------

int64_t case_length(const struct case_side *side, int64_t b) {
    return side->has_used && side->used[b] < side->slots[b] ? side->used[b] : side->slots[b];
}

void case_place(const struct case_side *side, int64_t b, int64_t i, int64_t *slot, int64_t *row) {
    *slot = side->batched ? b : 0;
    *row = i;
    for (int64_t earlier = 0; !side->batched && earlier < b; earlier++) *row += side->slots[earlier];
}

static int64_t side_rows(const struct case_side *side, int64_t batch) {
    int64_t rows = side->tail;
    if (side->batched) return batch ? side->slots[0] : 0;
    for (int64_t b = 0; b < batch; b++) rows += side->slots[b];
    return rows;
}

static vf_tensor lengths_tensor(int64_t *values, bool wide, int64_t count) {
    if (!wide) {  // in place: the narrow entries stay behind the wide ones that are still to be read
        for (int64_t i = 0; i < count; i++) {
            const int32_t narrow = (int32_t)values[i];
            memcpy((char *)values + i * 4, &narrow, 4);
        }
    }
    return (vf_tensor){values, wide ? VF_INT64 : VF_INT32, 1, {count}, {1}};
}

static void side_lengths(const struct case_side *side, int64_t batch, int64_t *cu, int64_t *used, vf_tensor *cu_view,
                         vf_tensor *used_view) {
    for (int64_t b = 0; b <= batch; b++) cu[b] = b ? cu[b - 1] + side->slots[b - 1] : 0;
    if (!side->batched) *cu_view = lengths_tensor(cu, side->wide, batch + 1);
    memcpy(used, side->used, sizeof side->used);
    if (side->has_used) *used_view = lengths_tensor(used, side->wide, batch);
}

// ---- tensors
// -----------------------------------------------------------------------------------------------------------

// Strides for the shape, and memory around it. The last dimension stays contiguous but in lse and dlse.
static void lay_out(vf_tensor *tensor, enum case_layout layout, bool statistic, uint64_t *state, unsigned char **memory,
                    size_t *bytes) {
    int order[4] = {0, 1, 2, 3};
    const int outer = statistic ? tensor->ndim : tensor->ndim - 1;
    int64_t extent = 1, lowest = 0, offset = 64;
    if (!statistic) {
        tensor->stride[outer] = 1;
        extent = tensor->shape[outer];
    }
    for (int i = outer - 1; i > 0 && layout != CASE_DENSE; i--) {
        const int other = (int)draw_below(state, i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (int i = outer - 1; i >= 0; i--) {
        const int d = order[i];
        const int64_t shape = tensor->shape[d] ? tensor->shape[d] : 1;
        if (layout != CASE_DENSE) extent += draw_below(state, 12);
        tensor->stride[d] = extent;
        if (layout == CASE_EXPANDED && draw_below(state, 3) == 0) tensor->stride[d] = 0;
        if (layout != CASE_DENSE && draw_below(state, 3) == 0) tensor->stride[d] = -tensor->stride[d];
        if (tensor->stride[d] < 0) lowest += (shape - 1) * tensor->stride[d];
        extent *= shape;
    }
    if (layout != CASE_DENSE) offset += draw_below(state, 8);
    const size_t size = element_size(tensor->dtype);
    *bytes = (size_t)(extent + offset + 64) * size;
    *memory = malloc(*bytes);
    tensor->data = *memory + (offset - lowest) * (int64_t)size;
}

static bool of_k(enum case_tensor_name name) {
    return name == CASE_K || name == CASE_V || name == CASE_DK || name == CASE_DV;
}

static bool is_output(const struct case_problem *problem, enum case_tensor_name name) {
    return name >= CASE_DQ || name == CASE_O || name == CASE_LSE || (name == CASE_DQ && problem->backward);
}

static void shape_tensor(const struct case_problem *problem, enum case_tensor_name name, vf_tensor *tensor) {
    const struct case_side *side = of_k(name) ? &problem->k : &problem->q;
    const bool statistic = name == CASE_LSE || name == CASE_DLSE;
    const int64_t rows = side_rows(side, problem->batch), heads = problem->heads_k * (of_k(name) ? 1 : problem->group);
    const int64_t dim = name == CASE_V || name == CASE_O || name == CASE_DOUT || name == CASE_DV ? problem->head_dim_v
                                                                                                 : problem->head_dim;
    const int64_t plain[] = {problem->batch, rows, heads, dim}, statistics[] = {problem->batch, heads, rows};
    const int first = side->batched ? 0 : 1, dims = (statistic ? 3 : 4) - first;
    *tensor = (vf_tensor){.dtype = statistic ? VF_FLOAT32 : problem->dtype, .ndim = dims};
    memcpy(tensor->shape, (statistic ? statistics : plain) + first, (size_t)dims * sizeof(int64_t));
}

static void fill_live(const struct case_problem *problem, const struct case_side *side, const vf_tensor *tensor,
                      bool statistic, uint64_t *state) {
    const double deviation = problem->deviation != 0 ? problem->deviation : 1;
    const int first = side->batched ? 1 : 0;
    const int64_t heads = tensor->shape[statistic ? first : first + 1], dim = statistic ? 1 : tensor->shape[first + 2];
    for (int64_t b = 0; b < problem->batch; b++) {
        for (int64_t i = 0; i < case_length(side, b); i++) {
            int64_t slot, row;
            case_place(side, b, i, &slot, &row);
            for (int64_t at = 0; at < heads * dim; at++) {
                int64_t index[4] = {slot};
                index[first + (statistic ? 1 : 0)] = row;
                index[first + (statistic ? 0 : 1)] = at / dim;
                if (!statistic) index[first + 2] = at % dim;
                put(case_at(tensor, index), tensor->dtype, deviation * draw_normal(state));
            }
        }
    }
}

void case_call(struct case_tensors *tensors, const vf_tensor view[CASE_TENSORS], vf_problem_args args) {
    tensors->forward =
        (vf_forward_args){0, view[CASE_Q], view[CASE_K], view[CASE_V], view[CASE_O], view[CASE_LSE], args};
    tensors->backward = (vf_backward_args){0,
                                           view[CASE_Q],
                                           view[CASE_K],
                                           view[CASE_V],
                                           view[CASE_O],
                                           view[CASE_LSE],
                                           view[CASE_DOUT],
                                           view[CASE_DLSE],
                                           view[CASE_DQ],
                                           view[CASE_DK],
                                           view[CASE_DV],
                                           args};
}

void case_make(const struct case_problem *problem, struct case_tensors *tensors) {
    *tensors = (struct case_tensors){0};
    uint64_t state = problem->seed;
    for (enum case_tensor_name name = 0; name < CASE_TENSORS; name++) {
        if (name == CASE_LSE && problem->no_lse) continue;
        if (name > CASE_LSE && !problem->backward) continue;
        if (name == CASE_DLSE && !problem->dlse) continue;
        vf_tensor *tensor = &tensors->view[name];
        const bool statistic = name == CASE_LSE || name == CASE_DLSE;
        shape_tensor(problem, name, tensor);
        lay_out(tensor, problem->layout[name], statistic, &state, &tensors->memory[name], &tensors->bytes[name]);
        if (is_output(problem, name)) {
            memset(tensors->memory[name], 0xff, tensors->bytes[name]);  // NaN in every type
            tensors->before[name] = malloc(tensors->bytes[name]);
            memcpy(tensors->before[name], tensors->memory[name], tensors->bytes[name]);
        } else {
            const size_t size = element_size(tensor->dtype);
            for (size_t i = 0; i < tensors->bytes[name]; i += size)
                put(tensors->memory[name] + i, tensor->dtype, problem->poison);
            fill_live(problem, of_k(name) ? &problem->k : &problem->q, tensor, statistic, &state);
        }
    }
    vf_problem_args args = {.mask = problem->mask,
                            .window_left = problem->left,
                            .window_right = problem->right,
                            .softmax_scale = problem->scale,
                            .softcap = problem->softcap,
                            .fill = problem->fill};
    side_lengths(&problem->q, problem->batch, tensors->lengths[0], tensors->lengths[1], &args.cu_seqlens_q,
                 &args.seqused_q);
    side_lengths(&problem->k, problem->batch, tensors->lengths[2], tensors->lengths[3], &args.cu_seqlens_k,
                 &args.seqused_k);
    case_call(tensors, tensors->view, args);
}

void case_free(struct case_tensors *tensors) {
    for (int i = 0; i < CASE_TENSORS; i++) {
        free(tensors->memory[i]);
        free(tensors->before[i]);
    }
}

// ---- random problems
// -----------------------------------------------------------------------------------------------------

static int64_t draw_length(uint64_t *state, int64_t longest) {
    const int64_t kind = draw_below(state, 8);
    if (kind == 0) return 0;
    if (kind == 1) return 1;
    if (kind == 2) return 8 * (1 + draw_below(state, longest / 8)) - 1 + draw_below(state, 3);
    return draw_below(state, longest + 1);
}

static void draw_side(struct case_side *side, int64_t batch, int64_t longest, uint64_t *state) {
    side->batched = batch > 0 && draw_below(state, 3) == 0;
    side->has_used = draw_below(state, 2) == 0;
    side->wide = draw_below(state, 2) == 0;
    side->tail = side->batched ? 0 : draw_below(state, 4);
    const int64_t same = draw_length(state, longest);
    for (int64_t b = 0; b < batch; b++) {
        side->slots[b] = side->batched ? same : draw_length(state, longest);
        side->used[b] =
            draw_below(state, 4) ? draw_below(state, side->slots[b] + 1) : side->slots[b] + draw_below(state, 3);
    }
}

struct case_problem case_random(uint64_t seed, int64_t longest) {
    static const int dims[] = {8, 16, 24, 32, 40, 64, 72, 96, 104, 128, 256};
    static const double poisons[] = {NAN, INFINITY, -INFINITY};
    uint64_t state = seed ^ 0x5bd1e995u;
    struct case_problem problem = {.seed = seed, .batch = draw_below(&state, 5)};
    draw_side(&problem.q, problem.batch, longest, &state);
    draw_side(&problem.k, problem.batch, longest, &state);
    problem.heads_k = 1 + draw_below(&state, 3);
    problem.group = draw_below(&state, 2) ? 1 : 1 + draw_below(&state, 5);
    // Wide heads are rare: what they add to narrow ones is mostly time.
    const int64_t kinds = draw_below(&state, 6) ? 7 : 11;
    problem.head_dim = dims[draw_below(&state, kinds)];
    problem.head_dim_v = draw_below(&state, 2) ? problem.head_dim : dims[draw_below(&state, kinds)];
    problem.dtype = (vf_dtype)(VF_FLOAT16 + draw_below(&state, 3));
    problem.mask = (vf_mask)draw_below(&state, 3);
    problem.left = draw_below(&state, 4) ? draw_below(&state, longest) - 3 : VF_NO_EDGE;
    problem.right = draw_below(&state, 4) ? draw_below(&state, longest) - 3 : VF_NO_EDGE;
    if (draw_below(&state, 3) == 0) {  // narrow, and empty at times
        problem.left = draw_below(&state, 7) - 3;
        problem.right = draw_below(&state, 7) - 3;
    }
    problem.scale = draw_below(&state, 2) ? 0 : 0.3;
    problem.softcap = draw_below(&state, 3) ? 0 : 1.0 + (double)draw_below(&state, 15);
    problem.deviation = draw_below(&state, 3) ? 1 : 3;
    problem.fill = draw_below(&state, 4) ? VF_FILL_ZERO : VF_FILL_KEEP;
    problem.backward = draw_below(&state, 4) != 0;
    problem.dlse = draw_below(&state, 2);
    problem.no_lse = !problem.backward && draw_below(&state, 3) == 0;
    problem.poison = poisons[draw_below(&state, 3)];
    for (enum case_tensor_name name = 0; name < CASE_TENSORS; name++) {
        problem.layout[name] = (enum case_layout)draw_below(&state, is_output(&problem, name) ? 2 : 3);
    }
    problem.threads = 1 + (int)draw_below(&state, 3);
    return problem;
}
