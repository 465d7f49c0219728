// trace.c - see trace.h. Member names: tools/lib/problem_options.c.
#include "trace.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "lengths.h"

struct trace {
    FILE *file;
    const struct logger *logger;
    pthread_mutex_t lock;  // a line is written whole
};

vf_status trace_open(const char *path, const struct logger *logger, struct trace **out) {
    *out = NULL;
    if (!path) return VF_OK;
    FILE *file = fopen(path, "ae");
    VF_REQUIRE(file, VF_ERROR_IO, "VARFLASH_TRACE: %s: %s", path, strerror(errno));
    struct trace *trace = malloc(sizeof *trace);
    if (!trace) {
        fclose(file);
        VF_FAIL(VF_ERROR_OUT_OF_MEMORY, "no memory for the trace");
    }
    trace->file = file;
    trace->logger = logger;
    pthread_mutex_init(&trace->lock, NULL);
    *out = trace;
    return VF_OK;
}

void trace_close(struct trace *trace) {
    if (!trace) return;
    fclose(trace->file);
    pthread_mutex_destroy(&trace->lock);
    free(trace);
}

// ---- lengths, wherever they are ------------------------------------------------------------------------------------

// Host copies of the tensors of lengths; data null where absent.
struct host_lengths {
    vf_tensor tensors[CALL_LENGTHS];
};

static vf_status copy_lengths(const struct call *call, const struct scope *scope, struct host_lengths *host) {
    for (int i = 0; i < CALL_LENGTHS; i++) {
        const vf_tensor *tensor = call->lengths[i];
        if (!tensor || tensor->shape[0] == 0) continue;
        const size_t bytes = (size_t)tensor->shape[0] * request_dtype_size(tensor->dtype);
        host->tensors[i] = *tensor;
        host->tensors[i].data = malloc(bytes);
        VF_REQUIRE(host->tensors[i].data, VF_ERROR_OUT_OF_MEMORY, "no memory for lengths");
        if (!scope) {
            memcpy(host->tensors[i].data, tensor->data, bytes);
        } else {
            CUDA_TRY(scope->api, cuMemcpyDtoHAsync, host->tensors[i].data, (CUdeviceptr)(uintptr_t)tensor->data, bytes,
                     call->problem->stream);
        }
    }
    if (scope) CUDA_TRY(scope->api, cuStreamSynchronize, call->problem->stream);
    return VF_OK;
}

static void free_lengths(struct host_lengths *host) {
    for (int i = 0; i < CALL_LENGTHS; i++) free(host->tensors[i].data);
}

// ---- writing -------------------------------------------------------------------------------------------------------

static void write_slots(struct buf *line, const char *name, const vf_tensor *cu, int64_t batch, int64_t slot) {
    buf_printf(line, "\"%s\": [", name);
    for (int64_t i = 0; i < batch; i++) {
        int64_t length = slot;
        // Broken lengths are written too; a difference that overflows is no problem that can be read again.
        if (cu->data) __builtin_sub_overflow(lengths_entry(cu, i + 1), lengths_entry(cu, i), &length);
        buf_printf(line, "%s%" PRId64, i ? ", " : "", length);
    }
    buf_text(line, "]");
}

static void write_used(struct buf *line, const char *name, const vf_tensor *used, int64_t batch) {
    if (!used->data) return;
    buf_printf(line, ", \"%s\": [", name);
    for (int64_t i = 0; i < batch; i++) buf_printf(line, "%s%" PRId64, i ? ", " : "", lengths_entry(used, i));
    buf_text(line, "]");
}

static void write_start(struct buf *line, const char *name, const vf_tensor *cu) {
    if (cu->data && lengths_entry(cu, 0) != 0) buf_printf(line, ", \"%s\": %" PRId64, name, lengths_entry(cu, 0));
}

static void write_edge(struct buf *line, int32_t edge, const char *after) {
    if (edge == INT32_MAX) {
        buf_printf(line, "inf%s", after);
    } else {
        buf_printf(line, "%" PRId32 "%s", edge, after);
    }
}

// Row, head and batch stride and the offset of the first element from an aligned address; a contiguous operand needs no
// mention.
static void write_strides(struct buf *line, const char *name, const vf_tensor *tensor, bool heads_first) {
    const int batched = tensor->ndim - (heads_first ? 2 : 3);
    const int row = batched + (heads_first ? 1 : 0), head = batched + (heads_first ? 0 : 1);
    const size_t element = request_dtype_size(tensor->dtype);
    const uintptr_t offset = (uintptr_t)tensor->data % 256 / element;
    bool contiguous = offset == 0;
    int64_t expected = 1;
    for (int d = tensor->ndim - 1; d >= 0; d--) {
        contiguous &= tensor->shape[d] <= 1 || tensor->stride[d] == expected;
        expected *= tensor->shape[d];
    }
    if (contiguous) return;
    buf_printf(line, ", \"%s\": \"%" PRId64 ",%" PRId64, name, tensor->stride[row], tensor->stride[head]);
    if (batched) buf_printf(line, ",%" PRId64, tensor->stride[0]);
    if (offset) buf_printf(line, "+%zu", (size_t)offset);
    buf_text(line, "\"");
}

static void write_all_strides(struct buf *line, const struct call *call) {
    struct buf strides = {.data = NULL};
    for (int i = 0; i < CALL_TENSORS; i++) {
        if (!call->tensors[i]) continue;
        write_strides(&strides, call_tensor_names[i], call->tensors[i], i == CALL_LSE || i == CALL_DLSE);
    }
    // What stands between the braces starts with a comma.
    if (strides.size > 2) buf_printf(line, ", \"strides\": {%s}", buf_string(&strides) + 2);
    buf_free(&strides);
}

static void write_call(struct buf *line, const struct call *call, const struct host_lengths *host) {
    const vf_problem_args *problem = call->problem;
    const struct request *request = &call->request;
    buf_text(line, "{");
    write_slots(line, "seqlens_q", &host->tensors[CALL_CU_Q], call->batch, call->rows_q);
    buf_text(line, ", ");
    write_slots(line, "seqlens_k", &host->tensors[CALL_CU_K], call->batch, call->rows_k);
    write_used(line, "seqused_q", &host->tensors[CALL_USED_Q], call->batch);
    write_used(line, "seqused_k", &host->tensors[CALL_USED_K], call->batch);
    write_start(line, "start_q", &host->tensors[CALL_CU_Q]);
    write_start(line, "start_k", &host->tensors[CALL_CU_K]);
    buf_printf(line, ", \"rows_q\": %" PRId64 ", \"rows_k\": %" PRId64, call->rows_q, call->rows_k);
    if (call->q_batched && call->k_batched) {
        buf_text(line, ", \"batched\": true");
    } else {
        if (call->q_batched) buf_text(line, ", \"batched_q\": true");
        if (call->k_batched) buf_text(line, ", \"batched_k\": true");
    }
    for (int i = 0; i < CALL_LENGTHS; i++) {
        if (!call->lengths[i] || call->lengths[i]->dtype != VF_INT64) continue;
        buf_text(line, ", \"int64_lengths\": true");
        break;
    }
    if (problem->max_seqlen_q) buf_printf(line, ", \"max_seqlen_q\": %" PRId64, problem->max_seqlen_q);
    if (problem->max_seqlen_k) buf_printf(line, ", \"max_seqlen_k\": %" PRId64, problem->max_seqlen_k);
    buf_printf(
        line,
        ", \"heads_q\": %" PRId64 ", \"heads_k\": %" PRId64 ", \"head_dim\": %d, \"head_dim_v\": %d, \"dtype\": \"%s\"",
        call->heads_q, call->heads_k, request->head_dim, request->head_dim_v, request_dtype_name(request->dtype));
    if (request->mask == VF_MASK_CAUSAL) buf_text(line, ", \"causal\": true");
    if (request->mask == VF_MASK_WINDOW) {
        buf_text(line, ", \"window\": \"");
        write_edge(line, call->window_left, ",");
        write_edge(line, call->window_right, "\"");
    }
    if (problem->softmax_scale != 0) buf_printf(line, ", \"scale\": %.17g", problem->softmax_scale);
    if (problem->softcap != 0) buf_printf(line, ", \"softcap\": %.17g", problem->softcap);
    if (request->deterministic) buf_text(line, ", \"deterministic\": true");
    if (call->backward) buf_text(line, ", \"backward\": true");
    if (!call->tensors[CALL_LSE]) buf_text(line, ", \"no_lse\": true");
    if (call->tensors[CALL_DLSE]) buf_text(line, ", \"dlse\": true");
    if (problem->fill == VF_FILL_KEEP) buf_text(line, ", \"fill\": \"keep\"");
    write_all_strides(line, call);
    buf_text(line, "}\n");
}

static vf_status write_line(struct trace *trace, const struct call *call, const struct scope *scope,
                            struct host_lengths *host, struct buf *line) {
    bool capturing = false;
    if (scope) VF_TRY(scope_capturing(scope, call->problem->stream, &capturing));
    VF_REQUIRE(!capturing, VF_ERROR_CAPTURE, "the lengths cannot be read while the stream is captured");
    VF_TRY(copy_lengths(call, scope, host));
    write_call(line, call, host);
    VF_TRY(buf_check(line));
    pthread_mutex_lock(&trace->lock);
    const bool written = fwrite(line->data, 1, line->size, trace->file) == line->size && fflush(trace->file) == 0;
    pthread_mutex_unlock(&trace->lock);
    VF_REQUIRE(written, VF_ERROR_IO, "%s", strerror(errno));
    return VF_OK;
}

void trace_call(struct trace *trace, const struct call *call, const struct scope *scope) {
    struct host_lengths host = {.tensors[0].data = NULL};
    struct buf line = {.data = NULL};
    if (write_line(trace, call, scope, &host, &line)) {
        log_write(trace->logger, LOG_LEVEL_WARNING, "VARFLASH_TRACE: a call is left out: %s", vf_last_error());
        status_forget();
    }
    free_lengths(&host);
    buf_free(&line);
}
