// test_exhaustion.c - host memory that ends at any allocation of opening, preparing, calling, planning and explaining: a status,
// nothing left behind, and all of it works again afterwards. On the stub driver.
#include "starved.h"
#include "stub_context.h"

// What an open context is asked besides.
static vf_status questions(void) {
    vf_context *context = NULL;
    const vf_options options = {.backend = VF_BACKEND_CUDA};
    VF_TRY(vf_dev_open_with_api(&options, stub_cuda(), stub_nvrtc(), &context));
    const vf_forward_args args = sample_forward(stub_first);
    const vf_dev_info *info = NULL;
    vf_dev_variant *variant = NULL;
    vf_dev_list knobs = {0, NULL};
    char *request = NULL;
    size_t length = 0;
    vf_status status = vf_explain_forward(context, &args, NULL, NULL, 0, &length);
    if (!status) status = vf_dev_info_get(context, &info);
    if (!status) status = vf_dev_request_forward(context, &args, NULL, &request);
    if (!status) status = vf_dev_variant_create(context, request, NULL, &variant);
    if (!status) status = vf_dev_candidates(context, request, &knobs);
    vf_dev_list_free(&knobs);
    vf_dev_variant_free(variant);
    vf_dev_text_free(request);
    vf_close(context);
    return status;
}

// cJSON does not tell a text that is none from memory that ended, and the stub driver fails without a reason.
static bool is_sober(vf_status status) {
    return status == VF_ERROR_OUT_OF_MEMORY || status == VF_ERROR_CONFIG || status == VF_ERROR_DRIVER;
}

// Runs `step` with memory that ends after 1, 2 ... allocations, in growing strides, until there is enough.
static void starve(vf_status (*step)(void)) {
    for (long n = 1; n < 1000000; n += 1 + n / 30) {
        stub_reset();
        starved_left = n;
        const vf_status status = step();
        const bool enough = starved_left > 0;
        starved_left = -1;
        ck_assert_msg(status == VF_OK || is_sober(status), "%ld: %s, %s", n, vf_status_name(status), vf_last_error());
        ck_assert_msg(stub.libraries == 0 && stub.programs == 0 && stub.retained == 0 && stub.depth == 0,
                      "%ld: left behind", n);
        if (enough) {
            ck_assert_int_eq(status, VF_OK);
            return;
        }
    }
    ck_abort_msg("needs more than a million allocations");
}

START_TEST(memory_ends_anywhere) {
    if (!STARVED) {
        unit_skip("memory that ends: not under a sanitizer");
        return;
    }
    stub_set_up();
    setenv("VARFLASH_CACHE_DIR", "/dev/null/cache", 1);  // every round compiles
    starve(stub_everything);
    starve(questions);
    stub_tear_down();
}
END_TEST

UNIT_MAIN("exhaustion", memory_ends_anywhere)
