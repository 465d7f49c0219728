// stub_context.h - contexts on the stub driver, with folders of the test's own for all that they read and write.
#ifndef VF_STUB_CONTEXT_H
#define VF_STUB_CONTEXT_H

#include "base.h"
#include "sample.h"
#include "stub_cuda.h"
#include "unit.h"
#include "varflash/varflash_dev.h"

static char stub_folder[UNIT_PATH_SIZE];

static inline void stub_set_up(void) {
    static const char *const unset[] = {"VARFLASH_JIT", "VARFLASH_DUMP", "VARFLASH_TRACE", "VARFLASH_CONFIG",
                                        "VARFLASH_SOURCE"};
    stub_reset();
    unit_make_folder(stub_folder);
    setenv("VARFLASH_CACHE_DIR", stub_folder, 1);
    setenv("XDG_CONFIG_HOME", stub_folder, 1);
    for (size_t i = 0; i < ARRAY_LENGTH(unset); i++) unsetenv(unset[i]);
}

static inline void stub_tear_down(void) {
    unit_remove_folder(stub_folder);
    stub_reset();
    sample_host_free();
}

static inline vf_context *stub_open(void) {
    vf_context *context = NULL;
    const vf_options options = {.backend = VF_BACKEND_CUDA};
    unit_ok(vf_dev_open_with_api(&options, stub_cuda(), stub_nvrtc(), &context));
    return context;
}

// Nothing is left, and the driver never had to refuse.
static inline void stub_close(vf_context *context) {
    vf_close(context);
    ck_assert_int_eq(stub.libraries, 0);
    ck_assert_int_eq(stub.programs, 0);
    ck_assert_int_eq(stub.retained, 0);
    ck_assert_int_eq(stub.depth, 0);
    ck_assert_int_eq(stub.misuses, 0);
}

static inline void *stub_first(size_t bytes) {
    return stub_memory(0, bytes);
}

static inline void *stub_second(size_t bytes) {
    return stub_memory(1, bytes);
}

// One of everything. The first failure's status.
static inline vf_status stub_everything(void) {
    vf_context *context = NULL;
    const vf_options options = {.backend = VF_BACKEND_CUDA};
    VF_TRY(vf_dev_open_with_api(&options, stub_cuda(), stub_nvrtc(), &context));
    vf_forward_args forward = sample_forward(stub_first);
    vf_backward_args backward = sample_backward(stub_first);
    forward.problem.check = VF_CHECK_DEVICE;
    vf_plan *plan = NULL;
    vf_status status = vf_prepare_forward(context, &forward);
    if (!status) status = vf_forward(context, &forward);
    backward.problem.stream = stub_stream(stub_context(0));
    if (!status) status = vf_backward(context, &backward);
    if (!status) status = vf_plan_create_backward(context, &backward, &plan);
    if (!status) status = vf_plan_launch_backward(plan, &backward);
    vf_plan_destroy(plan);
    vf_close(context);
    return status;
}

#endif
