// probe.c - see probe.h.
#include "probe.h"

#include "context.h"
#include "unit.h"
#include "varflash/varflash_dev.h"

struct probe_args {
    uint64_t a, b;
    int64_t pitch_a, pitch_b, words, rows;
    uint64_t first;
};

static const char text[] =
    "struct Args { unsigned long long a, b; long long pitch_a, pitch_b, words, rows; unsigned long long first; };\n"
    "#define EACH(args, row, word) \\\n"
    "    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x, row, word; \\\n"
    "         i < args.words * args.rows && (row = i / args.words, word = i % args.words, true); \\\n"
    "         i += gridDim.x * (long long)blockDim.x)\n"
    "static __device__ unsigned *at(unsigned long long base, long long offset) { return (unsigned *)(base + offset); "
    "}\n"
    "extern \"C\" __global__ void gpu_compare(Args args) {\n"
    "    EACH(args, row, word)\n"
    "        if (at(args.a, row * args.pitch_a)[word] != at(args.b, row * args.pitch_b)[word])\n"
    "            atomicMin((unsigned long long *)args.first, (unsigned long long)i * 4);\n"
    "}\n"
    "extern \"C\" __global__ void gpu_copy(Args args) {\n"
    "    EACH(args, row, word) at(args.a, row * args.pitch_a)[word] = at(args.b, row * args.pitch_b)[word];\n"
    "}\n";

#define THREADS 256
#define BLOCKS 1024

void probe_open(vf_context *context, struct probe *probe) {
    const struct compiler *compiler;
    struct compiled compiled = {.ptx = false};
    *probe = (struct probe){.context = context};
    unit_ok(kernels_compiler(context->kernels, &compiler));
    unit_ok(compile_kernel(compiler, "probe", text, devices_get(context->devices, 0)->arch, false, &compiled));
    unit_ok(module_load(context->cuda, buf_string(&compiled.image), "gpu_compare", &probe->compare));
    unit_ok(module_load(context->cuda, buf_string(&compiled.image), "gpu_copy", &probe->copy));
    compiled_free(&compiled);
}

void probe_close(struct probe *probe) {
    module_unload(probe->context->cuda, &probe->compare);
    module_unload(probe->context->cuda, &probe->copy);
}

static void launch(const struct probe *probe, const struct module *module, struct probe_args args,
                   struct CUstream_st *stream) {
    struct scope scope;
    CUfunction function;
    void *parameters[] = {&args};
    const struct cuda_launch_config config = {
        .grid_x = BLOCKS, .grid_y = 1, .grid_z = 1, .block_x = THREADS, .block_y = 1, .block_z = 1, .stream = stream};
    unit_ok(scope_enter(probe->context->devices, 1, NULL, stream, &scope));
    unit_ok(module_function(scope.api, module, 0, &function));
    unit_ok(
        cuda_check(scope.api, scope.api->cuLaunchKernelEx(&config, function, parameters, NULL), "cuLaunchKernelEx"));
    scope_leave(&scope);
}

void probe_compare(const struct probe *probe, struct probe_rows a, struct probe_rows b, int64_t width, int64_t rows,
                   uint64_t *first, struct CUstream_st *stream) {
    const struct probe_args args = {.a = (uintptr_t)a.data,
                                    .b = (uintptr_t)b.data,
                                    .pitch_a = a.pitch,
                                    .pitch_b = b.pitch,
                                    .words = width / 4,
                                    .rows = rows,
                                    .first = (uintptr_t)first};
    launch(probe, &probe->compare, args, stream);
}

void probe_copy(const struct probe *probe, void *to, int64_t to_pitch, struct probe_rows from, int64_t width,
                int64_t rows, struct CUstream_st *stream) {
    const struct probe_args args = {.a = (uintptr_t)to,
                                    .b = (uintptr_t)from.data,
                                    .pitch_a = to_pitch,
                                    .pitch_b = from.pitch,
                                    .words = width / 4,
                                    .rows = rows};
    launch(probe, &probe->copy, args, stream);
}
