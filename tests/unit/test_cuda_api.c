// test_cuda_api.c - the two tables: their ABI against cuda.h where there is one, filling, and how NVRTC is found.
#include "cuda_api.h"

#include <sys/stat.h>

#include "unit.h"

#if defined(__has_include)
#if __has_include("/usr/local/cuda/include/cuda.h")
#define HAVE_CUDA_H
#include "/usr/local/cuda/include/cuda.h"
#endif
#endif

// ---- the ABI ------------------------------------------------------------------------------------------------------

START_TEST(abi_is_that_of_cuda_h) {
#ifdef HAVE_CUDA_H
#define SAME(ours, theirs) ck_assert_int_eq((int)(ours), (int)(theirs))
    SAME(CUDA_RESULT_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
    SAME(CUDA_RESULT_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
    SAME(CUDA_RESULT_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
    SAME(CUDA_RESULT_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
    SAME(CUDA_RESULT_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    SAME(CUDA_RESULT_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    SAME(CUDA_DEVICE_CLOCK_KHZ, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
    SAME(CUDA_DEVICE_SM_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    SAME(CUDA_DEVICE_L2_BYTES, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
    SAME(CUDA_DEVICE_PCI_BUS, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
    SAME(CUDA_DEVICE_PCI_SLOT, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
    SAME(CUDA_DEVICE_PCI_DOMAIN, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
    SAME(CUDA_DEVICE_CC_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    SAME(CUDA_DEVICE_CC_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    SAME(CUDA_DEVICE_SHARED_BYTES_PER_BLOCK, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    SAME(CUDA_FUNCTION_DYNAMIC_SHARED_BYTES, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
    SAME(CUDA_POINTER_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
    SAME(CUDA_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE);
    SAME(CUDA_CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    SAME(CUDA_CAPTURE_INVALIDATED, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    SAME(CUDA_CAPTURE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL);
    SAME(CUDA_CAPTURE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    SAME(CUDA_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
    SAME(CUDA_STREAM_NON_BLOCKING_FLAG, CU_STREAM_NON_BLOCKING);
    SAME(CUDA_LAUNCH_PROGRAMMATIC_SERIALIZATION, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);

#define SAME_FIELD(ours, our_field, theirs, their_field) \
    SAME(offsetof(struct ours, our_field), offsetof(theirs, their_field))
    SAME(sizeof(struct cuda_launch_config), sizeof(CUlaunchConfig));
    SAME_FIELD(cuda_launch_config, block_x, CUlaunchConfig, blockDimX);
    SAME_FIELD(cuda_launch_config, shared_bytes, CUlaunchConfig, sharedMemBytes);
    SAME_FIELD(cuda_launch_config, stream, CUlaunchConfig, hStream);
    SAME_FIELD(cuda_launch_config, attributes, CUlaunchConfig, attrs);
    SAME_FIELD(cuda_launch_config, attribute_count, CUlaunchConfig, numAttrs);
    SAME(sizeof(struct cuda_launch_attribute), sizeof(CUlaunchAttribute));
    SAME_FIELD(cuda_launch_attribute, value.programmatic_serialization, CUlaunchAttribute,
               value.programmaticStreamSerializationAllowed);
    SAME(sizeof(struct cuda_tensor_map), sizeof(CUtensorMap));
    SAME(CUDA_TENSOR_MAP_FLOAT16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
    SAME(CUDA_TENSOR_MAP_BFLOAT16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
    SAME(CUDA_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_INTERLEAVE_NONE);
    SAME(CUDA_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_SWIZZLE_128B);
    SAME(CUDA_TENSOR_MAP_PROMOTE_256B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
    SAME(CUDA_TENSOR_MAP_FILL_ZEROS, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);

    // cuda.h makes each name a macro for the symbol that belongs to its declarations.
    static const char *const symbols[][2] = {
#define PAIR(name, symbol) {#name, symbol},
#define ROW(name, symbol, parameters) PAIR(name, symbol)
        CUDA_FUNCTIONS(ROW, ROW)};
    for (size_t i = 0; i < ARRAY_LENGTH(symbols); i++) {
        // _v2 of this one is newer than CUDA 12.0, with the same parameters.
        if (!strcmp(symbols[i][1], "cuEventElapsedTime")) continue;
        ck_assert_str_eq(symbols[i][0], symbols[i][1]);
    }
#else
    unit_skip("comparison with cuda.h: no /usr/local/cuda/include/cuda.h");
#endif
}
END_TEST

// ---- filling ------------------------------------------------------------------------------------------------------

static void *find_all_but(void *missing, const char *symbol) {
    static char something;
    return strcmp(symbol, missing) ? &something : NULL;
}

START_TEST(needed_and_optional_symbols) {
    struct cuda_api api = {0};
    unit_ok(cuda_fill(&api, find_all_but, (char[]){"none"}));
    ck_assert(api.cuInit && api.cuLaunchKernelEx && api.cuTensorMapEncodeTiled);
    unit_ok(cuda_fill(&api, find_all_but, (char[]){"cuTensorMapEncodeTiled"}));
    ck_assert(!api.cuTensorMapEncodeTiled);
    unit_fails(cuda_fill(&api, find_all_but, (char[]){"cuLibraryLoadData"}), VF_ERROR_NO_DEVICE, "cuLibraryLoadData");
    unit_fails(cuda_fill(&api, find_all_but, (char[]){"cuMemAlloc_v2"}), VF_ERROR_NO_DEVICE,
               "update the NVIDIA driver");
}
END_TEST

static int name_of(int result, const char **text) {
    if (result != 700) return CUDA_RESULT_INVALID_VALUE;
    *text = "CUDA_ERROR_ILLEGAL_ADDRESS";
    return 0;
}

static int text_of(int result, const char **text) {
    if (result != 700) return CUDA_RESULT_INVALID_VALUE;
    *text = "an illegal memory access was encountered";
    return 0;
}

static int synchronize(CUstream stream) {
    return stream ? 700 : 0;
}

static vf_status wait_for(const struct cuda_api *api, CUstream stream) {
    CUDA_TRY(api, cuStreamSynchronize, stream);
    return VF_OK;
}

START_TEST(driver_failures_become_sentences) {
    struct cuda_api api = {.cuGetErrorName = name_of, .cuGetErrorString = text_of, .cuStreamSynchronize = synchronize};
    unit_ok(wait_for(&api, NULL));
    unit_fails(wait_for(&api, (CUstream)&api), VF_ERROR_DRIVER,
               "cuStreamSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS (CUresult 700): an illegal memory access");
    ck_assert_int_eq(vf_last_driver_error(), 700);
    unit_fails(cuda_check(&api, 12345, "cuX"), VF_ERROR_DRIVER, "unknown error (CUresult 12345)");
    unit_fails(cuda_check(&(struct cuda_api){0}, CUDA_RESULT_NO_DEVICE, "cuInit"), VF_ERROR_NO_DEVICE, "cuInit");
}
END_TEST

START_TEST(driver_opens_or_says_why) {
    struct cuda_api api;
    vf_status status = cuda_open(&api);
    if (status) {
        ck_assert_int_eq(status, VF_ERROR_NO_DEVICE);
        ck_assert_uint_gt(strlen(vf_last_error()), 20);
        ck_assert_ptr_null(api.library);
    } else {
        ck_assert_int_ge(api.version, 12000);
        cuda_close(&api);
    }
}
END_TEST

// ---- NVRTC --------------------------------------------------------------------------------------------------------

START_TEST(driver_must_be_as_new_as_the_compiler) {
    ck_assert(nvrtc_fits_driver(13, 13000));
    ck_assert(nvrtc_fits_driver(12, 13000));
    ck_assert(nvrtc_fits_driver(12, 12000));  // minor versions do not matter
    ck_assert(!nvrtc_fits_driver(13, 12090));
    ck_assert(nvrtc_fits_driver(13, 0));
}
END_TEST

// Position of `text` in the candidates of `environment`, -1 if it is none of them.
static long candidate_at(const struct environment *environment, const char *text) {
    struct buf lines = {0};
    nvrtc_candidates(environment, &lines);
    unit_ok(buf_check(&lines));
    const char *at = strstr(buf_string(&lines), text);
    long position = at ? at - lines.data : -1;
    buf_free(&lines);
    return position;
}

static void make_python(const char *prefix, const char *below) {
    char path[3 * UNIT_PATH_SIZE], file[4 * UNIT_PATH_SIZE];
    snprintf(path, sizeof path, "%s/lib/python3.11/site-packages/nvidia/%s/lib", prefix, below);
    ck_assert_int_eq(fs_make_folder(path), 0);
    snprintf(file, sizeof file, "%s/libnvrtc.so.13", path);
    unit_write_text(file, "");
}

START_TEST(places_to_look) {
    char folder[UNIT_PATH_SIZE], venv[UNIT_PATH_SIZE + 8], path[2 * UNIT_PATH_SIZE], program[2 * UNIT_PATH_SIZE];
    unit_make_folder(folder);
    struct environment environment = {0};
    ck_assert_int_eq(candidate_at(&environment, "/usr/local/cuda/lib64/libnvrtc.so.13\n"), 0);

    environment.cuda_home = folder;
    snprintf(path, sizeof path, "%s/lib64/libnvrtc.so.12", folder);
    ck_assert_int_ge(candidate_at(&environment, path), 0);
    ck_assert_int_lt(candidate_at(&environment, path),
                     candidate_at(&environment, "/usr/local/cuda/lib64/libnvrtc.so.13"));

    snprintf(venv, sizeof venv, "%s/venv", folder);
    make_python(venv, "cu13");
    make_python(venv, "cuda_nvrtc");
    environment.virtual_env = venv;
    ck_assert_int_gt(candidate_at(&environment, "nvidia/cu13/lib/libnvrtc.so.13"), 0);
    ck_assert_int_gt(candidate_at(&environment, "nvidia/cuda_nvrtc/lib/libnvrtc.so.13"), 0);
    environment.virtual_env = NULL;
    ck_assert_int_lt(candidate_at(&environment, "venv/lib"), 0);

    // The prefix of python3 on PATH: as it is called, and as what it is a link to.
    snprintf(path, sizeof path, "/nowhere::relative:%s/bin", venv);
    environment.path = path;
    ck_assert_int_lt(candidate_at(&environment, "venv/lib"), 0);
    snprintf(program, sizeof program, "%s/bin", venv);
    ck_assert_int_eq(fs_make_folder(program), 0);
    snprintf(program, sizeof program, "%s/bin/python3", venv);
    unit_write_text(program, "");
    ck_assert_int_eq(chmod(program, 0700), 0);
    ck_assert_int_gt(candidate_at(&environment, "venv/lib/python3.11/site-packages/nvidia/cu13"), 0);
    char link[2 * UNIT_PATH_SIZE];
    snprintf(link, sizeof link, "%s/python3", folder);
    ck_assert_int_eq(symlink(program, link), 0);
    environment.path = folder;
    ck_assert_int_gt(candidate_at(&environment, "venv/lib/python3.11/site-packages/nvidia/cu13"), 0);
    unit_remove_folder(folder);
}
END_TEST

START_TEST(named_compiler_must_be_one) {
    struct nvrtc_api api;
    struct environment environment = {.nvrtc = (char[]){"/nowhere/libnvrtc.so"}};
    unit_fails(nvrtc_open(&environment, 0, NULL, &api), VF_ERROR_NO_COMPILER, "VARFLASH_NVRTC=/nowhere/libnvrtc.so");
    ck_assert_ptr_null(api.library);
    struct unit_log log;
    struct logger logger = unit_logger(&log);
    environment.nvrtc = (char[]){"libm.so.6"};
    unit_fails(nvrtc_open(&environment, 0, &logger, &api), VF_ERROR_NO_COMPILER, "VARFLASH_NVRTC=libm.so.6");
    ck_assert_int_eq(log.lines, 1);
    ck_assert_ptr_null(api.library);
}
END_TEST

START_TEST(compiler_is_found) {
    struct environment environment;
    struct nvrtc_api api, again;
    unit_ok(environment_read(&environment));
    vf_status status = nvrtc_open(&environment, 0, NULL, &api);
    if (status) {
        ck_assert_int_eq(status, VF_ERROR_NO_COMPILER);
        ck_assert_ptr_nonnull(strstr(vf_last_error(), "pip install"));
        unit_skip("NVRTC: not on this machine");
    } else {
        ck_assert_int_ge(api.major, 12);
        ck_assert_int_eq(api.path[0], '/');
        unit_ok(nvrtc_open(&environment, 0, NULL, &again));  // the loaded one
        ck_assert_str_eq(again.path, api.path);
        nvrtc_close(&again);
        unit_fails(nvrtc_open(&environment, 11080, NULL, &again), VF_ERROR_NO_COMPILER, "the driver is for CUDA 11.8");
        nvrtc_close(&api);
    }
    environment_free(&environment);
}
END_TEST

UNIT_MAIN("cuda_api", abi_is_that_of_cuda_h, needed_and_optional_symbols, driver_failures_become_sentences,
          driver_opens_or_says_why, driver_must_be_as_new_as_the_compiler, places_to_look, named_compiler_must_be_one,
          compiler_is_found)
