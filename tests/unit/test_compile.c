// test_compile.c - targets by rule, the compiler's report, NVRTC itself where there is one, and every NVRTC call
// failing where there is none.
#include "compile.h"

#include "unit.h"

// ---- targets ------------------------------------------------------------------------------------------------------

static const int cuda_12_0[] = {50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90};
static const int cuda_13_0[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
static const int only_70[] = {70};

static const struct {
    const char *arch, *on_12_0, *on_13_0;  // null: unsupported
} targets[] = {
    {"sm_80", "sm_80", "sm_80"},
    {"sm_86", "sm_86", "sm_86"},
    {"sm_87", "sm_87", "sm_87"},
    {"sm_88", "compute_87", "sm_88"},
    {"sm_89", "sm_89", "sm_89"},
    {"sm_90", "sm_90", "sm_90"},
    {"sm_90a", "sm_90a", "sm_90a"},
    {"sm_100", "compute_90", "sm_100"},
    {"sm_100a", "compute_90", "sm_100a"},
    {"sm_100f", "compute_90", "sm_100f"},
    {"sm_103", "compute_90", "sm_103"},
    {"sm_110", "compute_90", "sm_110"},
    {"sm_120", "compute_90", "sm_120"},
    {"sm_121", "compute_90", "sm_121"},
    {"sm_140", "compute_90", "compute_121"},
    {"sm_60", "sm_60", NULL},
    {"sm_40", NULL, NULL},
};

static void expect_target(const char *arch, const int *known, int count, const char *expected) {
    struct compile_target target;
    if (!expected) {
        unit_fails(compile_target(arch, known, count, &target), VF_ERROR_UNSUPPORTED, arch);
        return;
    }
    unit_ok(compile_target(arch, known, count, &target));
    ck_assert_str_eq(target.architecture, expected);
    ck_assert_int_eq(target.ptx, !strncmp(expected, "compute_", 8));
}

START_TEST(targets_by_rule) {
    for (size_t i = 0; i < ARRAY_LENGTH(targets); i++) {
        expect_target(targets[i].arch, cuda_12_0, (int)ARRAY_LENGTH(cuda_12_0), targets[i].on_12_0);
        expect_target(targets[i].arch, cuda_13_0, (int)ARRAY_LENGTH(cuda_13_0), targets[i].on_13_0);
    }
    expect_target("sm_90a", only_70, 1, "compute_70");
    expect_target("sm_90a", NULL, 0, NULL);
}
END_TEST

START_TEST(words_that_are_no_target) {
    static const char *const wrong[] = {"",     "sm_", "sm_9", "sm_0900",    "sm_1000", "sm_90b", "sm_90aa",
                                        "sm_a", "90",  "sm90", "compute_90", "sm_90 ",  "sm_-9"};
    struct compile_target target;
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
        unit_fails(compile_target(wrong[i], cuda_13_0, (int)ARRAY_LENGTH(cuda_13_0), &target),
                   VF_ERROR_INVALID_ARGUMENT, "is not sm_NN");
    }
    int number;
    char suffix;
    ck_assert(compile_parse_arch("sm_103f", &number, &suffix));
    ck_assert_int_eq(number, 103);
    ck_assert_int_eq(suffix, 'f');
}
END_TEST

// ---- report -------------------------------------------------------------------------------------------------------

START_TEST(reads_the_report) {
    struct compile_report report;
    compile_parse_log(
        "ptxas info    : 0 bytes gmem\n"
        "ptxas info    : Function properties for f\n"
        "ptxas         .     408 bytes stack frame, 36 bytes spill stores, 1140 bytes spill loads\n"
        "ptxas info    : Used 168 registers, used 1 barriers, 408 bytes cumulative stack size, 512 bytes smem\n"
        "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized\n"
        "ptxas info    : Function properties for g\n"
        "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used 32 registers",
        &report);
    ck_assert_int_eq(report.registers, 168);
    ck_assert_int_eq(report.stack_bytes, 408);
    ck_assert_int_eq(report.spill_stores, 36);
    ck_assert_int_eq(report.spill_loads, 1140);
    ck_assert_int_eq(report.shared_bytes, 512);
    ck_assert_int_eq(report.advice, 1);
    compile_parse_log("", &report);
    ck_assert_int_eq(report.registers, -1);
    ck_assert_int_eq(report.spill_stores, -1);
}
END_TEST

START_TEST(meta_round_trip) {
    struct compiled in = {.ptx = true, .report = {.registers = 168, .spill_loads = 4, .stack_bytes = -1}}, out = {0};
    struct buf meta = {0};
    compile_write_meta(&in, &meta);
    ck_assert(compile_read_meta(meta.data, &out));
    ck_assert(out.ptx);
    ck_assert_mem_eq(&out.report, &in.report, sizeof in.report);
    in.ptx = false;
    buf_clear(&meta);
    compile_write_meta(&in, &meta);
    ck_assert(compile_read_meta(meta.data, &out));
    ck_assert(!out.ptx);
    meta.data[0] = 'x';
    ck_assert(!compile_read_meta(meta.data, &out));
    ck_assert(!compile_read_meta("", &out));
    ck_assert(!compile_read_meta("form=elf\n", &out));
    ck_assert(!compile_read_meta("form=cubin\n", &out));
    buf_free(&meta);
}
END_TEST

// ---- NVRTC --------------------------------------------------------------------------------------------------------

static struct environment environment;
static struct nvrtc_api nvrtc;
static struct compiler compiler;

// False, and says so, without NVRTC.
static bool open_compiler(void) {
    unit_ok(environment_read(&environment));
    vf_status status = nvrtc_open(&environment, 0, NULL, &nvrtc);
    environment_free(&environment);
    if (status) {
        unit_skip("compiling: no NVRTC");
        return false;
    }
    unit_ok(compile_open(&nvrtc, &compiler));
    return true;
}

static const char kernel[] =
    "extern \"C\" __global__ void scale(float *x, float s) {\n"
    "    auto twice = [](float a) { return 2 * a; };\n"
    "    x[threadIdx.x] = twice(s * x[threadIdx.x]);\n"
    "}\n";

START_TEST(every_known_architecture) {
    if (!open_compiler()) return;
    for (int i = 0; i < compiler.known_count; i++) {
        char arch[16];
        if (compiler.known[i] < 80) continue;
        struct compiled compiled;
        snprintf(arch, sizeof arch, "sm_%d%s", compiler.known[i], compiler.known[i] == 90 ? "a" : "");
        unit_ok(compile_kernel(&compiler, "scale", kernel, arch, false, &compiled));
        ck_assert(!compiled.ptx);
        ck_assert_mem_eq(compiled.image.data,
                         "\x7f"
                         "ELF",
                         4);
        ck_assert_int_gt(compiled.report.registers, 0);
        ck_assert_int_eq(compiled.report.spill_loads, 0);
        compiled_free(&compiled);
    }
    nvrtc_close(&nvrtc);
}
END_TEST

START_TEST(newer_cards_get_ptx) {
    if (!open_compiler()) return;
    struct compiled compiled;
    char target[64];
    snprintf(target, sizeof target, ".target sm_%d", compiler.known[compiler.known_count - 1]);
    unit_ok(compile_kernel(&compiler, "scale", kernel, "sm_990", false, &compiled));
    ck_assert(compiled.ptx);
    ck_assert_ptr_nonnull(strstr(compiled.image.data, target));
    ck_assert_uint_eq(strlen(compiled.image.data) + 1, compiled.image.size);
    ck_assert_int_eq(compiled.report.registers, -1);
    compiled_free(&compiled);
    unit_ok(compile_kernel(&compiler, "scale", kernel, "sm_90a", true, &compiled));
    ck_assert(compiled.ptx);
    ck_assert_ptr_nonnull(strstr(compiled.image.data, ".target sm_90a"));
    compiled_free(&compiled);
    nvrtc_close(&nvrtc);
}
END_TEST

START_TEST(faults_in_the_text) {
    if (!open_compiler()) return;
    struct compiled compiled;
    unit_fails(compile_kernel(&compiler, "broken", "__global__ void f() { undefined(); }\n", "sm_80", false, &compiled),
               VF_ERROR_COMPILE, "broken(1): error: identifier \"undefined\" is undefined");
    ck_assert_ptr_nonnull(strstr(vf_last_error(), "sm_80"));
    ck_assert_int_ne(vf_last_driver_error(), 0);
    ck_assert_ptr_nonnull(strstr(compiled.log.data, "undefined"));
    compiled_free(&compiled);
    unit_fails(compile_kernel(&compiler, "x", "", "sm_1", false, &compiled), VF_ERROR_INVALID_ARGUMENT, "sm_1 is not");
    compiled_free(&compiled);
    nvrtc_close(&nvrtc);
}
END_TEST

// ---- every NVRTC call failing -------------------------------------------------------------------------------------

static int calls_until_failure, programs;

static int fake_result(void) {
    return calls_until_failure-- == 0 ? 11 : 0;
}

static const char *fake_error(int result) {
    return result ? "NVRTC_ERROR_INTERNAL_ERROR" : "NVRTC_SUCCESS";
}

static int fake_count(int *count) {
    *count = 1;
    return fake_result();
}

static int fake_archs(int *archs) {
    *archs = 90;
    return fake_result();
}

static int fake_create(nvrtcProgram *program, const char *source, const char *name, int count,
                       const char *const *headers, const char *const *names) {
    (void)source, (void)name, (void)count, (void)headers, (void)names;
    int result = fake_result();
    if (!result) {
        *program = malloc(1);
        programs++;
    }
    return result;
}

static int fake_destroy(nvrtcProgram *program) {
    free(*program);
    *program = NULL;
    programs--;
    return 0;
}

static int fake_compile(nvrtcProgram program, int count, const char *const *options) {
    (void)program;
    ck_assert_int_ge(count, 3);
    ck_assert_str_eq(options[0], "--gpu-architecture=sm_90a");
    return fake_result();
}

static int fake_size(nvrtcProgram program, size_t *size) {
    (void)program;
    *size = 4;
    return fake_result();
}

static int fake_text(nvrtcProgram program, char *text) {
    (void)program;
    memcpy(text, "abc", 4);
    return fake_result();
}

START_TEST(every_call_can_fail) {
    const struct nvrtc_api fake = {.nvrtcGetErrorString = fake_error,
                                   .nvrtcGetNumSupportedArchs = fake_count,
                                   .nvrtcGetSupportedArchs = fake_archs,
                                   .nvrtcCreateProgram = fake_create,
                                   .nvrtcDestroyProgram = fake_destroy,
                                   .nvrtcCompileProgram = fake_compile,
                                   .nvrtcGetCUBINSize = fake_size,
                                   .nvrtcGetCUBIN = fake_text,
                                   .nvrtcGetProgramLogSize = fake_size,
                                   .nvrtcGetProgramLog = fake_text};
    int failing = 0;
    for (bool done = false; !done; failing++) {
        calls_until_failure = failing;
        struct compiler with_fake;
        struct compiled compiled = {0};
        vf_status status = compile_open(&fake, &with_fake);
        if (!status) status = compile_kernel(&with_fake, "x", "", "sm_90a", false, &compiled);
        done = calls_until_failure >= 0;
        if (done) {
            unit_ok(status);
            ck_assert_str_eq(compiled.image.data, "abc");
            ck_assert_str_eq(compiled.log.data, "abc");
        } else {
            unit_fails(status, VF_ERROR_COMPILE, "NVRTC_ERROR_INTERNAL_ERROR");
            ck_assert_int_eq(vf_last_driver_error(), 11);
        }
        compiled_free(&compiled);
        ck_assert_int_eq(programs, 0);
    }
    ck_assert_int_eq(failing, 9);  // eight calls can fail, the ninth round fails none
}
END_TEST

START_TEST(identity_names_all_but_the_text) {
    const struct nvrtc_api fake = {.major = 13, .minor = 1};
    const struct compiler with_fake = {.nvrtc = &fake, .known = {80, 90}, .known_count = 2};
    struct buf text = {0};
    unit_ok(compile_identity("sm_90a", &text));
    ck_assert_ptr_eq(strstr(text.data, "arch=sm_90a options=--std=c++17,"), text.data);
    unit_fails(compile_identity("none", &text), VF_ERROR_INVALID_ARGUMENT, "none");
    ck_assert_int_eq(compile_version(&with_fake), 13010);
    buf_free(&text);
}
END_TEST

UNIT_MAIN("compile", targets_by_rule, words_that_are_no_target, reads_the_report, meta_round_trip,
          every_known_architecture, newer_cards_get_ptx, faults_in_the_text, every_call_can_fail,
          identity_names_all_but_the_text)
