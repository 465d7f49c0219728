// matrix_nvrtc.c - the compiler of the compile matrix: kernels in, one line of the assembler's report each.
//
// Reads lines "ARCH FILE" and writes "FILE ok registers=N ... milliseconds=N", or "FILE failed" with NVRTC's words in
// FILE.log. --identity: NVRTC's version and options. Compiles as the library does, by its own compile.c. NVRTC holds a
// lock, so tests/matrix.lua, which builds this program, starts several.
#include <stdio.h>
#include <string.h>

#include "compile.h"
#include "fs.h"
#include "status.h"

// Constants that a kernel does not use (#177) are no fault: every knob is written as one.
static int count_warnings(const struct buf *log) {
    int count = 0;
    for (const char *at = log->size ? log->data : ""; (at = strstr(at, "warning ")); at++) {
        count += strncmp(at, "warning #177-D", 14) != 0;
    }
    return count;
}

static void compile_line(const struct compiler *compiler, const char *arch, const char *file) {
    struct buf text = {0};
    struct compiled compiled = {0};
    vf_status status = fs_read(file, &text);
    if (!status) status = compile_kernel(compiler, file, buf_string(&text), arch, false, &compiled);
    if (status) {
        struct buf log = {0};
        buf_printf(&log, "%s.log", file);
        FILE *out = buf_check(&log) ? NULL : fopen(log.data, "w");
        if (out) {
            fputs(vf_last_error(), out);
            fclose(out);
        }
        buf_free(&log);
        printf("%s failed\n", file);
    } else {
        const struct compile_report *report = &compiled.report;
        printf("%s ok", file);
#define FIELD(name, meaning) printf(" " #name "=%d", report->name);
        COMPILE_REPORT(FIELD)
#undef FIELD
        printf(" warnings=%d milliseconds=%.0f\n", count_warnings(&compiled.log), compiled.milliseconds);
    }
    fflush(stdout);
    compiled_free(&compiled);
    buf_free(&text);
}

static vf_status print_identity(const struct compiler *compiler) {
    struct buf text = {0};
    vf_status status = compile_identity("sm_80", &text);
    if (!status) printf("nvrtc=%d %s\n", compile_version(compiler), buf_string(&text));
    buf_free(&text);
    return status;
}

int main(int count, char **words) {
    struct environment environment = {0};
    struct nvrtc_api nvrtc;
    struct compiler compiler;
    const struct logger silent = {0};
    vf_status status = environment_read(&environment);
    if (!status) status = nvrtc_open(&environment, 0, &silent, &nvrtc);
    if (!status) status = compile_open(&nvrtc, &compiler);
    const bool identity = count > 1 && !strcmp(words[1], "--identity");
    if (!status && identity) status = print_identity(&compiler);
    if (status) {
        fprintf(stderr, "%s\n", vf_last_error());
        return status == VF_ERROR_NO_COMPILER ? 77 : 1;
    }
    char line[4096], arch[32], file[4000];
    while (!identity && fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "%31s %3999s", arch, file) == 2) compile_line(&compiler, arch, file);
    }
    nvrtc_close(&nvrtc);
    environment_free(&environment);
    return 0;
}
