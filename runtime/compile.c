// compile.c - NVRTC: target, options, image, report.
#include "compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "status.h"

// Besides the target: what decides the image. The generated text needs nothing else, above all no include path.
#define FIXED_OPTIONS "--std=c++17", "--device-as-default-execution-space"

// ---- target -------------------------------------------------------------------------------------------------------

bool compile_parse_arch(const char *arch, int *number, char *suffix) {
    if (strncmp(arch, "sm_", 3) != 0) return false;
    size_t digits = strspn(arch + 3, "0123456789");
    const char *end = arch + 3 + digits;
    if (digits < 2 || digits > 3 || arch[3] == '0') return false;
    if (*end && (strspn(end, "af") != 1 || end[1])) return false;
    *number = (int)strtol(arch + 3, NULL, 10);
    *suffix = *end;
    return true;
}

static vf_status check_arch(const char *arch, int *number, char *suffix) {
    VF_REQUIRE(compile_parse_arch(arch, number, suffix), VF_ERROR_INVALID_ARGUMENT,
               "arch=%s is not sm_NN, sm_NNa or sm_NNf", arch);
    return VF_OK;
}

vf_status compile_target(const char *arch, const int *known, int count, struct compile_target *target) {
    int number;
    char suffix;
    VF_TRY(check_arch(arch, &number, &suffix));
    int below = 0;  // the newest known one that PTX for `arch` can be made of
    for (int i = 0; i < count; i++) {
        if (known[i] == number) {
            *target = (struct compile_target){.ptx = false};
            snprintf(target->architecture, sizeof target->architecture, "%s", arch);
            return VF_OK;
        }
        if (known[i] < number && known[i] > below) below = known[i];
    }
    VF_REQUIRE(below, VF_ERROR_UNSUPPORTED, "%s is older than anything this NVRTC compiles for", arch);
    *target = (struct compile_target){.ptx = true};
    snprintf(target->architecture, sizeof target->architecture, "compute_%d", below);
    return VF_OK;
}

static vf_status nvrtc_check(const struct nvrtc_api *nvrtc, int result, const char *call) {
    if (!result) return VF_OK;
    return status_fail_code(VF_ERROR_COMPILE, result, "%s failed: %s (nvrtcResult %d)", call,
                            nvrtc->nvrtcGetErrorString(result), result);
}

#define NVRTC_TRY(nvrtc, name, ...) VF_TRY(nvrtc_check((nvrtc), (nvrtc)->name(__VA_ARGS__), #name))

vf_status compile_open(const struct nvrtc_api *nvrtc, struct compiler *compiler) {
    *compiler = (struct compiler){.nvrtc = nvrtc};
    int count = 0;
    NVRTC_TRY(nvrtc, nvrtcGetNumSupportedArchs, &count);
    VF_REQUIRE(count > 0 && count <= (int)ARRAY_LENGTH(compiler->known), VF_ERROR_COMPILE,
               "NVRTC %d.%d names %d architectures, expected 1 to %zu", nvrtc->major, nvrtc->minor, count,
               ARRAY_LENGTH(compiler->known));
    NVRTC_TRY(nvrtc, nvrtcGetSupportedArchs, compiler->known);
    compiler->known_count = count;
    return VF_OK;
}

int compile_version(const struct compiler *compiler) {
    return compiler->nvrtc->major * 1000 + compiler->nvrtc->minor * 10;
}

vf_status compile_identity(const char *arch, struct buf *text) {
    static const char *const fixed[] = {FIXED_OPTIONS};
    int number;
    char suffix;
    VF_TRY(check_arch(arch, &number, &suffix));
    buf_printf(text, "arch=%s options=", arch);
    for (size_t i = 0; i < ARRAY_LENGTH(fixed); i++) buf_printf(text, "%s%s", i ? "," : "", fixed[i]);
    return buf_check(text);
}

// ---- report -------------------------------------------------------------------------------------------------------
// The number that stands in front of `words` in the line [line, end), 0 if it is not there.
static int number_before(const char *line, const char *end, const char *words) {
    const char *at = memmem(line, (size_t)(end - line), words, strlen(words));
    if (!at) return 0;
    while (at > line && at[-1] >= '0' && at[-1] <= '9') at--;
    return (int)strtol(at, NULL, 10);
}

static void raise_to(int *value, int found) {
    if (*value < found) *value = found;
}

void compile_parse_log(const char *log, struct compile_report *report) {
#define FIELD(name, meaning) report->name = -1;
    COMPILE_REPORT(FIELD)
#undef FIELD
    report->advice = 0;
    for (const char *line = log; *line;) {
        const char *end = strchrnul(line, '\n');
        size_t length = (size_t)(end - line);
        if (memmem(line, length, " bytes stack frame", 18)) {
            raise_to(&report->stack_bytes, number_before(line, end, " bytes stack frame"));
            raise_to(&report->spill_stores, number_before(line, end, " bytes spill stores"));
            raise_to(&report->spill_loads, number_before(line, end, " bytes spill loads"));
        }
        if (memmem(line, length, " registers", 10) && memmem(line, length, "Used ", 5)) {
            raise_to(&report->registers, number_before(line, end, " registers"));
            raise_to(&report->shared_bytes, number_before(line, end, " bytes smem"));
        }
        if (memmem(line, length, "(C75", 4)) report->advice++;
        line = end + (*end == '\n');
    }
}

void compile_write_meta(const struct compiled *compiled, struct buf *text) {
    buf_printf(text, "form=%s\n", compiled->ptx ? "ptx" : "cubin");
#define FIELD(name, meaning) buf_printf(text, #name "=%d\n", compiled->report.name);
    COMPILE_REPORT(FIELD)
#undef FIELD
}

// The value of `key` ("registers=") in `key=value` lines, or null.
static const char *meta_value(const char *text, const char *key) {
    while (text && *text) {
        if (!strncmp(text, key, strlen(key))) return text + strlen(key);
        text = strchr(text, '\n');
        if (text) text++;
    }
    return NULL;
}

bool compile_read_meta(const char *text, struct compiled *compiled) {
    const char *form = meta_value(text, "form=");
    if (!form) return false;
    compiled->ptx = !strncmp(form, "ptx\n", 4);
    if (!compiled->ptx && strncmp(form, "cubin\n", 6) != 0) return false;
    const char *value;
#define FIELD(name, meaning)                                  \
    if (!(value = meta_value(text, #name "="))) return false; \
    compiled->report.name = (int)strtol(value, NULL, 10);
    COMPILE_REPORT(FIELD)
#undef FIELD
    return true;
}

// ---- compiling ----------------------------------------------------------------------------------------------------

static vf_status take_log(const struct nvrtc_api *nvrtc, nvrtcProgram program, struct buf *log) {
    size_t size = 0;
    NVRTC_TRY(nvrtc, nvrtcGetProgramLogSize, program, &size);
    if (size < 2) return VF_OK;  // empty: the final zero alone
    char *text = buf_extend(log, size);
    if (!text) return buf_check(log);
    NVRTC_TRY(nvrtc, nvrtcGetProgramLog, program, text);
    log->size = strlen(log->data);
    return VF_OK;
}

static vf_status take_image(const struct nvrtc_api *nvrtc, nvrtcProgram program, bool ptx, struct buf *image) {
    size_t size = 0;
    if (ptx) {
        NVRTC_TRY(nvrtc, nvrtcGetPTXSize, program, &size);
    } else {
        NVRTC_TRY(nvrtc, nvrtcGetCUBINSize, program, &size);
    }
    char *bytes = buf_extend(image, size);
    if (!bytes) return buf_check(image);
    if (ptx) {
        NVRTC_TRY(nvrtc, nvrtcGetPTX, program, bytes);
    } else {
        NVRTC_TRY(nvrtc, nvrtcGetCUBIN, program, bytes);
    }
    return VF_OK;
}

static vf_status run_compiler(const struct nvrtc_api *nvrtc, nvrtcProgram program, const char *name,
                              const struct compile_target *target, struct compiled *compiled) {
    char architecture[64];
    snprintf(architecture, sizeof architecture, "--gpu-architecture=%s", target->architecture);
    // Last, because PTX is not assembled: the assembler's report.
    const char *options[] = {architecture, FIXED_OPTIONS, "--ptxas-options=-v"};
    int count = (int)ARRAY_LENGTH(options) - target->ptx;
    int result = nvrtc->nvrtcCompileProgram(program, count, options);
    VF_TRY(take_log(nvrtc, program, &compiled->log));
    if (result) {
        return status_fail_code(VF_ERROR_COMPILE, result, "NVRTC %d.%d cannot compile %s for %s (%s):\n%s",
                                nvrtc->major, nvrtc->minor, name, target->architecture,
                                nvrtc->nvrtcGetErrorString(result), buf_string(&compiled->log));
    }
    compile_parse_log(buf_string(&compiled->log), &compiled->report);
    compiled->ptx = target->ptx;
    return take_image(nvrtc, program, target->ptx, &compiled->image);
}

vf_status compile_kernel(const struct compiler *compiler, const char *name, const char *text, const char *arch,
                         bool want_ptx, struct compiled *compiled) {
    *compiled = (struct compiled){0};
    const struct nvrtc_api *nvrtc = compiler->nvrtc;
    struct compile_target target;
    VF_TRY(compile_target(arch, compiler->known, compiler->known_count, &target));
    if (want_ptx && !target.ptx) {
        target.ptx = true;
        snprintf(target.architecture, sizeof target.architecture, "compute_%s", arch + strlen("sm_"));
    }
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    nvrtcProgram program = NULL;
    NVRTC_TRY(nvrtc, nvrtcCreateProgram, &program, text, name, 0, NULL, NULL);
    vf_status status = run_compiler(nvrtc, program, name, &target, compiled);
    nvrtc->nvrtcDestroyProgram(&program);
    clock_gettime(CLOCK_MONOTONIC, &end);
    compiled->milliseconds = (double)(end.tv_sec - start.tv_sec) * 1e3 + (double)(end.tv_nsec - start.tv_nsec) * 1e-6;
    return status;
}

void compiled_free(struct compiled *compiled) {
    buf_free(&compiled->image);
    buf_free(&compiled->log);
    *compiled = (struct compiled){0};
}
