// test_explain.c - explanations are JSON, name the row and the kernels of a good call and every fault of a bad one.
#include <cjson/cJSON.h>

#include "stub_context.h"

static char text[16384];

static cJSON *explain(vf_context *context, const vf_forward_args *args, const char *arch, vf_status expected) {
    size_t length = 0;
    ck_assert_int_eq(vf_explain_forward(context, args, arch, text, sizeof text, &length), expected);
    ck_assert_uint_eq(length, strlen(text));
    cJSON *json = cJSON_Parse(text);
    ck_assert_msg(json != NULL, "%s", text);
    return json;
}

static const char *member(const cJSON *json, const char *name) {
    const cJSON *item = cJSON_GetObjectItem(json, name);
    ck_assert_msg(cJSON_IsString(item), "%s: %s", name, text);
    return item->valuestring;
}

static int entries(const cJSON *json, const char *name) {
    return cJSON_GetArraySize(cJSON_GetObjectItem(json, name));
}

START_TEST(a_good_call) {
    vf_context *context = NULL;
    stub_reset();
    unit_ok(vf_dev_open_with_api(&(vf_options){.backend = VF_BACKEND_CUDA}, stub_cuda(), stub_nvrtc(), &context));
    const vf_forward_args args = sample_forward(stub_first);
    cJSON *json = explain(context, &args, NULL, VF_OK);
    ck_assert_str_eq(member(json, "status"), "VF_OK");
    ck_assert_str_eq(member(json, "arch"), "sm_100");
    ck_assert_str_eq(member(json, "device"), "Stub 0");
    ck_assert_ptr_nonnull(strstr(member(json, "row"), "configs/sm80.json#/rows/"));
    ck_assert_ptr_nonnull(strstr(member(json, "knobs"), "family=sm80"));
    ck_assert_int_eq(entries(json, "kernels"), 2);
    ck_assert_int_eq(entries(json, "faults"), 0);
    ck_assert_int_eq(entries(json, "notes"), 0);
    size_t bytes = 0;
    unit_ok(vf_forward_workspace_size(context, &args, &bytes));
    ck_assert_double_eq(cJSON_GetObjectItem(json, "workspace_bytes")->valuedouble, (double)bytes);
    cJSON_Delete(json);
    ck_assert_int_eq(stub.launch_count, 0);
    ck_assert_int_eq(stub.compilations, 0);
    vf_close(context);
    ck_assert_int_eq(stub.depth, 0);
    stub_reset();
}
END_TEST

START_TEST(without_a_device) {
    vf_context *context = NULL;
    unit_ok(vf_open(&(vf_options){.backend = VF_BACKEND_CPU}, &context));
    vf_forward_args args = sample_forward(sample_host);
    args.q.data = args.k.data = NULL;
    cJSON *json = explain(context, &args, "sm_120", VF_OK);
    ck_assert_str_eq(member(json, "backend"), "cuda");
    ck_assert_str_eq(member(json, "arch"), "sm_120");
    cJSON_Delete(json);
    json = explain(context, &args, NULL, VF_OK);
    ck_assert_str_eq(member(json, "backend"), "cpu");
    cJSON_Delete(json);
    json = explain(context, &args, "sm_70", VF_ERROR_UNSUPPORTED);
    ck_assert_int_eq(entries(json, "faults"), 1);
    cJSON_Delete(json);
    vf_close(context);
    sample_host_free();
}
END_TEST

START_TEST(every_fault_is_listed) {
    vf_context *context = NULL;
    unit_ok(vf_open(&(vf_options){.backend = VF_BACKEND_CPU}, &context));
    vf_forward_args args = sample_forward(sample_host);
    args.problem.flags = 2;
    args.problem.softcap = -1;
    args.v.dtype = VF_FLOAT16;
    cJSON *json = explain(context, &args, "sm_80", VF_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(entries(json, "faults"), 3);
    cJSON_Delete(json);
    // The text is cut as snprintf cuts.
    char small[8];
    size_t length = 0;
    ck_assert_int_eq(vf_explain_forward(context, &args, "sm_80", small, sizeof small, &length),
                     VF_ERROR_INVALID_ARGUMENT);
    ck_assert_uint_eq(strlen(small), sizeof small - 1);
    ck_assert_uint_gt(length, sizeof small);
    ck_assert_int_eq(vf_explain_forward(context, &args, "sm_80", NULL, 0, &length), VF_ERROR_INVALID_ARGUMENT);
    vf_close(context);
    sample_host_free();
}
END_TEST

START_TEST(misaligned_operands_are_noted) {
    vf_context *context = NULL;
    unit_ok(vf_open(&(vf_options){.backend = VF_BACKEND_CPU}, &context));
    vf_forward_args args = sample_forward(sample_host);
    args.q.data = (char *)args.q.data + 2;
    args.k.stride[0] += 4;
    args.q.shape[0] = args.o.shape[0] = args.lse.shape[1] = 9;
    args.k.shape[0] = args.v.shape[0] = 11;
    cJSON *json = explain(context, &args, "sm_80", VF_OK);
    ck_assert_int_eq(entries(json, "notes"), 2);
    ck_assert_ptr_nonnull(strstr(member(json, "request"), "aligned=0"));
    cJSON_Delete(json);
    vf_close(context);
    sample_host_free();
}
END_TEST

START_TEST(the_backward_too) {
    vf_context *context = NULL;
    unit_ok(vf_open(&(vf_options){.backend = VF_BACKEND_CPU}, &context));
    const vf_backward_args args = sample_backward(sample_host);
    unit_ok(vf_explain_backward(context, &args, "sm_80", text, sizeof text, NULL));
    cJSON *json = cJSON_Parse(text);
    ck_assert_int_eq(entries(json, "kernels"), 4);
    cJSON_Delete(json);
    vf_close(context);
    sample_host_free();
}
END_TEST

UNIT_MAIN("explain", a_good_call, without_a_device, every_fault_is_listed, misaligned_operands_are_noted,
          the_backward_too)
