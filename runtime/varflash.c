// varflash.c - the public functions of varflash.h, but plans (plan.c) and questions (explain.c). Validates, then hands
// a call to the backend.
#include "varflash/varflash.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "cpu.h"
#include "dev_info.h"
#include "embedded.h"
#include "lengths.h"
#include "varflash/varflash_dev.h"

int vf_version(void) {
    return VF_VERSION_MAJOR * 10000 + VF_VERSION_MINOR * 100 + VF_VERSION_PATCH;
}

// ---- context -------------------------------------------------------------------------------------------------------

static vf_status check_options(const vf_options *options) {
    VF_REQUIRE(options->struct_size == 0 || options->struct_size >= sizeof *options, VF_ERROR_INVALID_ARGUMENT,
               "options.struct_size: is %zu; must be 0 or sizeof(vf_options), here %zu", options->struct_size,
               sizeof *options);
    VF_REQUIRE((unsigned)options->backend <= VF_BACKEND_CPU, VF_ERROR_INVALID_ARGUMENT,
               "options.backend: is %d; must be VF_BACKEND_AUTO, VF_BACKEND_CUDA or VF_BACKEND_CPU",
               (int)options->backend);
    VF_REQUIRE(options->log_level >= 0 && options->log_level <= LOG_LEVEL_DEBUG, VF_ERROR_INVALID_ARGUMENT,
               "options.log_level: is %d; must be 1 to 4, or 0 for the default", options->log_level);
    VF_REQUIRE(options->cpu_threads >= 0, VF_ERROR_INVALID_ARGUMENT, "options.cpu_threads: is %d; must not be negative",
               options->cpu_threads);
    VF_REQUIRE(options->bundles || options->bundle_count == 0, VF_ERROR_INVALID_ARGUMENT,
               "options.bundles: is null, and bundle_count is %zu", options->bundle_count);
    for (size_t i = 0; i < options->bundle_count; i++) {
        VF_REQUIRE(!options->bundles[i].path != !options->bundles[i].data, VF_ERROR_INVALID_ARGUMENT,
                   "options.bundles[%zu]: must have either path or data", i);
    }
    return VF_OK;
}

// ---- bundles -------------------------------------------------------------------------------------------------------

static vf_status add_bundle(struct vf_context *context, const vf_bundle *given) {
    struct bundle **bundles = realloc(context->bundles, (context->bundle_count + 1) * sizeof *bundles);
    VF_REQUIRE(bundles, VF_ERROR_OUT_OF_MEMORY, "no memory for a bundle");
    context->bundles = bundles;
    struct bundle *bundle;
    VF_TRY(given->path ? bundle_open(given->path, &bundle)
                       : bundle_open_memory("bundle in memory", given->data, given->size, &bundle));
    bundles[context->bundle_count++] = bundle;
    VF_REQUIRE(!strcmp(bundle_generator(bundle), embedded_digest), VF_ERROR_IO,
               "%s: was built by another version of varflash (generator %s, here %s); build it again with this one",
               bundle_name(bundle), bundle_generator(bundle), embedded_digest);
    log_write(&context->logger, LOG_LEVEL_INFO, "%s: %zu variants, %zu kernels", bundle_name(bundle),
              bundle_plan_count(bundle), bundle_kernel_count(bundle));
    return VF_OK;
}

static vf_status open_bundles(struct vf_context *context, const vf_options *options) {
    const char *names = context->environment.bundles;
    // Kernels from a checkout that is being worked on are not the ones in a bundle.
    if (context->environment.source) return VF_OK;
    for (size_t i = 0; i < options->bundle_count; i++) VF_TRY(add_bundle(context, &options->bundles[i]));
    while (names && *names) {
        char path[4096];
        const size_t length = strcspn(names, ":");
        VF_REQUIRE(length < sizeof path, VF_ERROR_IO, "VARFLASH_BUNDLES: a path is too long");
        snprintf(path, sizeof path, "%.*s", (int)length, names);
        if (length) VF_TRY(add_bundle(context, &(vf_bundle){.path = path}));
        names += length + (names[length] == ':');
    }
    return VF_OK;
}

// ---- opening -------------------------------------------------------------------------------------------------------

// Looks for the driver and its devices. What is missing decides an AUTO context for the CPU and fails a CUDA one.
static vf_status open_devices(struct vf_context *context, const struct cuda_api *cuda) {
    if (!cuda) {
        VF_TRY(cuda_open(&context->own_cuda));
        cuda = &context->own_cuda;
    }
    context->cuda = cuda;
    return devices_open(cuda, &context->devices);
}

static vf_status choose_backend(struct vf_context *context, vf_backend wanted, const struct cuda_api *cuda) {
    context->backend = VF_BACKEND_CPU;
    if (wanted == VF_BACKEND_CPU) return VF_OK;
    const vf_status status = open_devices(context, cuda);
    if (!status) {
        context->backend = VF_BACKEND_CUDA;
        return VF_OK;
    }
    snprintf(context->driver_state, sizeof context->driver_state, "%s", vf_last_error());
    if (wanted == VF_BACKEND_CUDA || status == VF_ERROR_OUT_OF_MEMORY) return status;
    log_write(&context->logger, LOG_LEVEL_INFO, "using the CPU backend: %s", context->driver_state);
    status_forget();
    return VF_OK;
}

static vf_status open_parts(struct vf_context *context, const vf_options *options, const struct cuda_api *cuda,
                            const struct nvrtc_api *nvrtc) {
    VF_TRY(environment_read(&context->environment));
    const struct environment *environment = &context->environment;
    const int environment_level = log_level_parse(environment->log);
    context->logger = (struct logger){.function = options->log,
                                      .user = options->log_user,
                                      .level = options->log_level  ? options->log_level
                                               : environment_level ? environment_level
                                                                   : LOG_LEVEL_WARNING};
    context->cpu_threads = options->cpu_threads;
    VF_TRY(choose_backend(context, options->backend, cuda));
    VF_TRY(source_open(environment->source, &context->source));
    VF_TRY(config_open(options->config, environment, source_signature(context->source), &context->logger,
                       &context->config));
    VF_TRY(cache_open(options->cache_dir, environment, &context->logger, &context->cache));
    VF_TRY(open_bundles(context, options));
    const struct kernels_parts parts = {.cuda = context->cuda,
                                        .nvrtc = nvrtc,
                                        .environment = environment,
                                        .logger = &context->logger,
                                        .source = context->source,
                                        .cache = context->cache,
                                        .bundles = context->bundles,
                                        .bundle_count = context->bundle_count};
    VF_TRY(kernels_open(&parts, &context->kernels));
    VF_TRY(variants_open(context->config, context->kernels, !context->cuda || context->cuda->cuTensorMapEncodeTiled,
                         &context->variants));
    return trace_open(environment->trace, &context->logger, &context->trace);
}

vf_status vf_dev_open_with_api(const vf_options *options, const struct cuda_api *cuda, const struct nvrtc_api *nvrtc,
                               vf_context **out) {
    static const vf_options defaults = {.struct_size = 0};
    VF_REQUIRE(out, VF_ERROR_INVALID_ARGUMENT, "context: is null");
    *out = NULL;
    if (!options) options = &defaults;
    VF_TRY(check_options(options));
    struct vf_context *context = calloc(1, sizeof *context);
    VF_REQUIRE(context, VF_ERROR_OUT_OF_MEMORY, "no memory for a context");
    pthread_mutex_init(&context->info_lock, NULL);
    const vf_status status = open_parts(context, options, cuda, nvrtc);
    if (status) {
        vf_close(context);
        return status;
    }
    *out = context;
    return VF_OK;
}

vf_status vf_open(const vf_options *options, vf_context **context) {
    return vf_dev_open_with_api(options, NULL, NULL, context);
}

void vf_close(vf_context *context) {
    if (!context) return;
    dev_info_free(context->info);
    trace_close(context->trace);
    variants_close(context->variants);
    kernels_close(context->kernels);
    for (size_t i = 0; i < context->bundle_count; i++) bundle_close(context->bundles[i]);
    free(context->bundles);
    cache_close(context->cache);
    config_close(context->config);
    source_close(context->source);
    devices_close(context->devices);
    cuda_close(&context->own_cuda);
    environment_free(&context->environment);
    pthread_mutex_destroy(&context->info_lock);
    free(context);
}

vf_backend vf_context_backend(const vf_context *context) {
    return context ? context->backend : VF_BACKEND_AUTO;
}

// ---- running: the CPU ----------------------------------------------------------------------------------------------

// The problem with its defaults filled and its mask in normal form.
static vf_problem_args normal_problem(const struct call *call) {
    vf_problem_args problem = *call->problem;
    problem.mask = call->request.mask;
    problem.window_left = call->window_left == INT32_MAX ? VF_NO_EDGE : call->window_left;
    problem.window_right = call->window_right == INT32_MAX ? VF_NO_EDGE : call->window_right;
    problem.softmax_scale = call->scale;
    problem.softcap = call->softcap;
    return problem;
}

static vf_tensor tensor_of(const struct call *call, enum call_tensor tensor) {
    return call->tensors[tensor] ? *call->tensors[tensor] : (vf_tensor){.data = NULL};
}

static vf_forward_args forward_of(const struct call *call) {
    return (vf_forward_args){.q = tensor_of(call, CALL_Q),
                             .k = tensor_of(call, CALL_K),
                             .v = tensor_of(call, CALL_V),
                             .o = tensor_of(call, CALL_O),
                             .lse = tensor_of(call, CALL_LSE),
                             .problem = normal_problem(call)};
}

static vf_backward_args backward_of(const struct call *call) {
    return (vf_backward_args){.q = tensor_of(call, CALL_Q),
                              .k = tensor_of(call, CALL_K),
                              .v = tensor_of(call, CALL_V),
                              .o = tensor_of(call, CALL_O),
                              .lse = tensor_of(call, CALL_LSE),
                              .dout = tensor_of(call, CALL_DOUT),
                              .dlse = tensor_of(call, CALL_DLSE),
                              .dq = tensor_of(call, CALL_DQ),
                              .dk = tensor_of(call, CALL_DK),
                              .dv = tensor_of(call, CALL_DV),
                              .problem = normal_problem(call)};
}

static size_t cpu_workspace(const struct call *call) {
    if (!call->backward) {
        const vf_forward_args args = forward_of(call);
        return cpu_forward_workspace(&args);
    }
    const vf_backward_args args = backward_of(call);
    return cpu_backward_workspace(&args);
}

static vf_status run_cpu(struct vf_context *context, const struct call *call) {
    VF_TRY(launch_check_workspace(call, cpu_workspace(call)));
    if (call->problem->check) {
        int64_t found = 0;
        const uint64_t fault = lengths_check(call, &found);
        VF_TRY(lengths_status(call, fault, found));
    }
    if (context->trace) trace_call(context->trace, call, NULL);
    if (!launch_writes(call)) return VF_OK;
    if (!call->backward) {
        const vf_forward_args args = forward_of(call);
        return cpu_forward(&args, context->cpu_threads);
    }
    const vf_backward_args args = backward_of(call);
    return cpu_backward(&args, context->cpu_threads);
}

// ---- running: CUDA -------------------------------------------------------------------------------------------------

// Where a tensor without elements points to, if anywhere, tells nothing.
static const void *data_of(const vf_tensor *tensor) {
    return tensor && !tensor_empty(tensor) ? tensor->data : NULL;
}

vf_status context_enter(struct vf_context *context, const struct call *call, struct scope *scope) {
    const void *data = NULL;
    for (int i = 0; i < CALL_TENSORS && !data; i++) data = data_of(call->tensors[i]);
    for (int i = 0; i < CALL_LENGTHS && !data; i++) data = data_of(call->lengths[i]);
    int device = call->problem->device;
    if (device == 0 && !data) {
        const struct device *guess = NULL;
        VF_TRY(devices_guess(context->devices, 0, &guess));
        device = guess->ordinal + 1;
    }
    return scope_enter(context->devices, device, data, call->problem->stream, scope);
}

static const struct variant *pick(const struct prepared *prepared, const struct sizes *sizes) {
    for (size_t i = 0; i < prepared->count; i++) {
        if (!prepared->rows[i] || config_row_fits(prepared->rows[i], sizes)) return prepared->variants[i];
    }
    return NULL;
}

static vf_status run_in_scope(struct vf_context *context, const struct call *call, const struct prepared *prepared,
                              const struct scope *scope) {
    const struct variant *variant = prepared ? pick(prepared, &call->sizes) : NULL;
    if (!variant) {
        VF_TRY(variants_get(context->variants, &call->request, &call->sizes, scope, call->problem->stream, &variant));
    }
    struct layout layout;
    VF_TRY(launch_layout(call, variant->choice.plan.tile_m, variant->choice.plan.tile_n, &layout));
    VF_TRY(launch_check_workspace(call, layout.total));
    if (call->problem->check) {
        const struct variant *check = NULL;
        VF_TRY(variants_get_check(context->variants, scope, call->problem->stream, &check));
        atomic_fetch_add_explicit(&context->launched, 1, memory_order_relaxed);
        VF_TRY(launch_check(call, check, scope));
    }
    if (context->trace) trace_call(context->trace, call, scope);
    if (!launch_writes(call)) return VF_OK;
    uint64_t launched = 0;
    const vf_status status = launch_call(call, variant, &layout, scope, &launched);
    atomic_fetch_add_explicit(&context->launched, launched, memory_order_relaxed);
    return status;
}

vf_status context_run(struct vf_context *context, const struct call *call, const struct prepared *prepared,
                      uint64_t prepared_context) {
    if (context->backend == VF_BACKEND_CPU) return run_cpu(context, call);
    if (!launch_writes(call) && !call->problem->check) return VF_OK;
    struct scope scope;
    VF_TRY(context_enter(context, call, &scope));
    const vf_status status = run_in_scope(context, call, scope.context == prepared_context ? prepared : NULL, &scope);
    scope_leave(&scope);
    return status;
}

static struct validate_rules rules_of(const struct vf_context *context, enum validate_pointers pointers) {
    return (struct validate_rules){.pointers = pointers, .host = context->backend == VF_BACKEND_CPU};
}

#define REQUIRE_CONTEXT() VF_REQUIRE(context, VF_ERROR_INVALID_ARGUMENT, "context: is null")

vf_status vf_forward(vf_context *context, const vf_forward_args *args) {
    REQUIRE_CONTEXT();
    const struct validate_rules rules = rules_of(context, VALIDATE_ALL);
    struct call call;
    VF_TRY(validate_forward(args, &rules, &call));
    return context_run(context, &call, NULL, 0);
}

vf_status vf_backward(vf_context *context, const vf_backward_args *args) {
    REQUIRE_CONTEXT();
    const struct validate_rules rules = rules_of(context, VALIDATE_ALL);
    struct call call;
    VF_TRY(validate_backward(args, &rules, &call));
    return context_run(context, &call, NULL, 0);
}

// ---- workspace -----------------------------------------------------------------------------------------------------

// The most over the rows of one architecture. Pointers are not known, so that operands may be unaligned, aligned, or
// within reach of tensor maps.
static vf_status add_rows(struct vf_context *context, const struct call *call, const char *arch, const char *device,
                          size_t *bytes) {
    struct request request = call->request;
    size_t found = 0;
    for (int access = 0; access < 3; access++) {
        const struct config_row *rows[CONFIG_ROWS_MAX];
        size_t count = 0;
        request.aligned = access > 0;
        request.mapped = access > 1;
        VF_TRY(variants_rows(context->variants, &request, arch, device, false, rows, &count));
        for (size_t i = 0; i < count; i++, found++) {
            struct layout layout;
            VF_TRY(launch_layout(call, rows[i]->tile_m, rows[i]->tile_n, &layout));
            if (layout.total > *bytes) *bytes = layout.total;
        }
    }
    char text[REQUEST_TEXT];
    request_write(&request, arch, text);
    VF_REQUIRE(found > 0, VF_ERROR_UNSUPPORTED, "no configuration row serves '%s'", text);
    return VF_OK;
}

static vf_status add_forced(struct vf_context *context, const struct call *call, const char *arch, size_t *bytes) {
    struct choice choice;
    struct layout layout;
    VF_TRY(variants_choose(context->variants, &call->request, &call->sizes, arch, NULL, &choice));
    VF_TRY(launch_layout(call, choice.plan.tile_m, choice.plan.tile_n, &layout));
    if (layout.total > *bytes) *bytes = layout.total;
    return VF_OK;
}

static vf_status add_arch(struct vf_context *context, const struct call *call, const char *arch, const char *device,
                          size_t *bytes) {
    return variants_forced(context->variants, &call->request) ? add_forced(context, call, arch, bytes)
                                                              : add_rows(context, call, arch, device, bytes);
}

vf_status context_workspace(struct vf_context *context, const struct call *call, const char *arch, size_t *bytes) {
    *bytes = 0;
    if (arch) return add_arch(context, call, arch, NULL, bytes);
    if (context->backend == VF_BACKEND_CPU) {
        *bytes = cpu_workspace(call);
        return VF_OK;
    }
    const int wanted = call->problem->device;
    VF_REQUIRE(wanted <= devices_count(context->devices), VF_ERROR_INVALID_ARGUMENT,
               "device: there is no CUDA device %d, of %d", wanted - 1, devices_count(context->devices));
    vf_status refused = VF_OK;
    bool served = false;
    for (int i = 0; i < devices_count(context->devices); i++) {
        if (wanted != 0 && wanted != i + 1) continue;
        const struct device *device = devices_get(context->devices, i);
        const vf_status status = add_arch(context, call, device->arch, device->name, bytes);
        if (status && status != VF_ERROR_UNSUPPORTED) return status;
        if (status) refused = status;
        served |= !status;
    }
    if (!served) return refused;
    if (refused) status_forget();  // of a device that is not the call's
    return VF_OK;
}

vf_status vf_forward_workspace_size(vf_context *context, const vf_forward_args *args, size_t *bytes) {
    REQUIRE_CONTEXT();
    VF_REQUIRE(bytes, VF_ERROR_INVALID_ARGUMENT, "bytes: is null");
    const struct validate_rules rules = rules_of(context, VALIDATE_SHAPES);
    struct call call;
    VF_TRY(validate_forward(args, &rules, &call));
    return context_workspace(context, &call, NULL, bytes);
}

vf_status vf_backward_workspace_size(vf_context *context, const vf_backward_args *args, size_t *bytes) {
    REQUIRE_CONTEXT();
    VF_REQUIRE(bytes, VF_ERROR_INVALID_ARGUMENT, "bytes: is null");
    const struct validate_rules rules = rules_of(context, VALIDATE_SHAPES);
    struct call call;
    VF_TRY(validate_backward(args, &rules, &call));
    return context_workspace(context, &call, NULL, bytes);
}
