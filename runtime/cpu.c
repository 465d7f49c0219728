// cpu.c - see cpu.h. Translates a call into a task, picks the vector code, and hands the items to the threads.
#include "cpu.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cpu_pool.h"
#include "cpu_schedule.h"
#include "cpu_task.h"
#include "request.h"
#include "status.h"

// A thread is worth starting for this many multiply-adds: some tens of microseconds.
#define PRODUCTS_PER_THREAD 1e6

// ---- vector code ---------------------------------------------------------------------------------------------------

static const char *const level_names[CPU_LEVEL_COUNT] = {"generic", "avx2", "avx512"};

// The level in use; -1 until it is first needed.
static atomic_int level_in_use = -1;

static const struct cpu_kernels *level_kernels(enum cpu_level level) {
    return level == CPU_AVX512 ? cpu_avx512 : level == CPU_AVX2 ? cpu_avx2 : cpu_generic;
}

static bool processor_has(enum cpu_level level) {
#ifdef __x86_64__
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");  // all of these have F16C
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if (level == CPU_AVX512) return avx512;
    if (level == CPU_AVX2) return avx2;
#endif
    return level == CPU_GENERIC;
}

bool cpu_select(enum cpu_level level) {
    if (!processor_has(level) || !level_kernels(level)) return false;
    atomic_store(&level_in_use, (int)level);
    return true;
}

enum cpu_level cpu_level(void) {
    if (atomic_load(&level_in_use) < 0) {
        enum cpu_level level = CPU_AVX512;
        while (!cpu_select(level)) level--;
    }
    return (enum cpu_level)atomic_load(&level_in_use);
}

const char *cpu_level_name(enum cpu_level level) {
    return level_names[level];
}

int cpu_thread_count(void) {
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) return CPU_COUNT(&set);
    const long online = sysconf(_SC_NPROCESSORS_ONLN);  // more processors than a cpu_set_t holds
    return online > 0 ? (int)online : 1;
}

// ---- a call as a task
// ------------------------------------------------------------------------------------------------

// Which dimension of a tensor is what, from [.., slot, .., row, .., head, ..] as varflash.h lays them out.
static struct cpu_operand operand(const vf_tensor *tensor, bool batched, bool statistic) {
    if (!tensor) return (struct cpu_operand){0};
    const uint64_t size = tensor->dtype == VF_FLOAT32 ? 4 : 2;
    const int first = batched ? 1 : 0;
    const int row = statistic ? first + 1 : first, head = statistic ? first : first + 1;
    return (struct cpu_operand){
        .data = (uint64_t)(uintptr_t)tensor->data,
        .slot_stride = batched ? (uint64_t)tensor->stride[0] * size : 0,
        .row_stride = (uint64_t)tensor->stride[row] * size,
        .head_stride = (uint64_t)tensor->stride[head] * size,
    };
}

static struct cpu_task task_of(const struct call *call) {
    const vf_tensor *const *tensors = call->tensors;
    const bool q = call->q_batched, k = call->k_batched;
    return (struct cpu_task){
        .kernels = level_kernels(cpu_level()),
        .backward = call->backward,
        .dtype = call->request.dtype,
        .element = call->request.dtype == VF_FLOAT32 ? 4 : 2,
        .head_dim = call->request.head_dim,
        .head_dim_v = call->request.head_dim_v,
        .heads_k = call->heads_k,
        .group = call->heads_k ? call->heads_q / call->heads_k : 0,
        .left = call->window_left,
        .right = call->window_right,
        .scale = call->scale,
        .softcap = call->softcap,
        .q = operand(tensors[CALL_Q], q, false),
        .k = operand(tensors[CALL_K], k, false),
        .v = operand(tensors[CALL_V], k, false),
        .o = operand(tensors[CALL_O], q, false),
        .lse = operand(tensors[CALL_LSE], q, true),
        .dout = operand(tensors[CALL_DOUT], q, false),
        .dlse = operand(tensors[CALL_DLSE], q, true),
        .dq = operand(tensors[CALL_DQ], q, false),
        .dk = operand(tensors[CALL_DK], k, false),
        .dv = operand(tensors[CALL_DV], k, false),
    };
}

// ---- items
// -------------------------------------------------------------------------------------------------------------

static void zero_rows(const struct cpu_task *task, const struct cpu_operand *operand, const struct cpu_range *rows,
                      int64_t heads, int dim) {
    for (int64_t i = 0; i < rows->length; i++) {
        for (int64_t head = 0; head < heads; head++) {
            memset(cpu_address(operand, rows->slot, rows->begin + i, head), 0, (size_t)dim * task->element);
        }
    }
}

static void fill_lse(const struct cpu_task *task, const struct cpu_range *rows, int64_t heads) {
    const float nothing = -INFINITY;
    for (int64_t head = 0; head < heads; head++) {
        for (int64_t i = 0; i < rows->length; i++) {
            memcpy(cpu_address(&task->lse, rows->slot, rows->begin + i, head), &nothing, sizeof nothing);
        }
    }
}

static void fill_gap(const struct cpu_task *task, const struct cpu_entry *entry, int64_t part) {
    struct cpu_range rows = entry->kind == CPU_GAP_Q ? entry->q : entry->k;
    rows.begin += part * CPU_GAP_ROWS;
    rows.length = cpu_min(CPU_GAP_ROWS, rows.length - part * CPU_GAP_ROWS);
    const int64_t heads_q = task->heads_k * task->group;
    if (entry->kind == CPU_GAP_K) {
        zero_rows(task, &task->dk, &rows, task->heads_k, task->head_dim);
        zero_rows(task, &task->dv, &rows, task->heads_k, task->head_dim_v);
    } else if (task->backward) {
        zero_rows(task, &task->dq, &rows, heads_q, task->head_dim);
    } else {
        zero_rows(task, &task->o, &rows, heads_q, task->head_dim_v);
        if (task->lse.data) fill_lse(task, &rows, heads_q);
    }
}

// The forward takes the last rows first, since under a causal mask they see most keys; the backward takes the first
// keys first, which most rows see, and must: see cpu_backward.inc.
static void run_item(const void *context, size_t item, void *scratch) {
    const struct cpu_task *task = context;
    const struct cpu_entry *entry = cpu_schedule_entry(&task->schedule, item);
    const int64_t part = (int64_t)(item - entry->first_item);
    if (entry->kind != CPU_SEQUENCE) {
        fill_gap(task, entry, part);
    } else if (task->backward) {
        task->kernels->backward(task, entry, part % task->heads_k, part / task->heads_k, scratch);
    } else {
        const int64_t blocks = cpu_blocks(entry->q.length * task->group, CPU_ROWS);
        task->kernels->forward(task, entry, part % task->heads_k, blocks - 1 - part / task->heads_k, scratch);
    }
}

static vf_status take_accumulators(struct cpu_task *task) {
    const struct cpu_schedule *schedule = &task->schedule;
    if (schedule->turns == 0) return VF_OK;
    size_t bytes;
    task->turns = calloc(schedule->turns, sizeof *task->turns);
    if (!__builtin_mul_overflow(schedule->accumulators, (size_t)task->head_dim * sizeof(float), &bytes)) {
        task->accumulators = malloc(bytes);
    }
    VF_REQUIRE(task->turns && task->accumulators, VF_ERROR_OUT_OF_MEMORY,
               "cpu: no memory for %zu rows of float32 gradients of q", schedule->accumulators);
    return VF_OK;
}

static vf_status run(const struct call *call, int threads) {
    struct cpu_task task = task_of(call);
    vf_status status = cpu_schedule_make(&task, call);
    if (status) goto out;
    status = take_accumulators(&task);
    if (status) goto out;
    const size_t scratch = task.backward ? task.kernels->backward_scratch(&task) : task.kernels->forward_scratch(&task);
    const double products = task.schedule.products * (task.head_dim + task.head_dim_v) * (task.backward ? 2.5 : 1);
    const double useful = 1 + products / PRODUCTS_PER_THREAD;
    const int wanted = threads > 0 ? threads : cpu_thread_count();
    status = cpu_run(useful < wanted ? (int)useful : wanted, task.schedule.items, scratch, run_item, &task);
out:
    free(task.accumulators);
    free(task.turns);
    cpu_schedule_free(&task.schedule);
    return status;
}

vf_status cpu_forward(const vf_forward_args *args, int threads) {
    struct call call;
    call_forward(&call, args);
    call_read(&call);
    return run(&call, threads);
}

vf_status cpu_backward(const vf_backward_args *args, int threads) {
    struct call call;
    call_backward(&call, args);
    call_read(&call);
    return run(&call, threads);
}

size_t cpu_forward_workspace(const vf_forward_args *args) {
    (void)args;
    return 0;
}

size_t cpu_backward_workspace(const vf_backward_args *args) {
    (void)args;
    return 0;
}
