// stub_nvrtc.c - the compiler of stub_cuda.h: its "cubin" is the source.
#include <stdlib.h>
#include <string.h>

#include "stub_cuda.h"

struct _nvrtcProgram {
    char *source;
};

#define CALL() \
    if (stub_fails(__func__)) return STUB_FAILURE
#define CLEANUP() const int cleanup_result = stub_fails(__func__) ? STUB_FAILURE : 0

// --------------------------------------------------------------------------------

static int give(void *to, const void *from, size_t bytes) {
    memcpy(to, from, bytes);
    return 0;
}

static int nvrtcVersion(int *major, int *minor) {
    *major = 13;
    *minor = 0;
    return 0;
}
static const int known_archs[] = {80, 86, 87, 89, 90, 100, 120};
static int nvrtcGetNumSupportedArchs(int *count) {
    CALL();
    *count = (int)ARRAY_LENGTH(known_archs);
    return 0;
}
static int nvrtcGetSupportedArchs(int *archs) {
    CALL();
    memcpy(archs, known_archs, sizeof known_archs);
    return 0;
}
static int nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *name, int header_count,
                              const char *const *headers, const char *const *header_names) {
    CALL();
    (void)name, (void)header_count, (void)headers, (void)header_names;
    char *copied = strdup(source);
    *program = copied ? malloc(sizeof **program) : NULL;
    if (!*program) {
        free(copied);
        return 1;  // NVRTC_ERROR_OUT_OF_MEMORY
    }
    (*program)->source = copied;
    stub.programs++;
    return 0;
}
static int nvrtcDestroyProgram(nvrtcProgram *program) {
    CLEANUP();
    free((*program)->source);
    free(*program);
    stub.programs--;
    return cleanup_result;
}
static int nvrtcCompileProgram(nvrtcProgram program, int count, const char *const *options) {
    CALL();
    (void)program, (void)count, (void)options;
    stub.compilations++;
    return stub.compile_error ? 6 : 0;  // NVRTC_ERROR_COMPILATION
}
static int nvrtcGetCUBINSize(nvrtcProgram program, size_t *size) {
    CALL();
    *size = strlen(program->source) + 1;
    return 0;
}
static int nvrtcGetCUBIN(nvrtcProgram program, char *image) {
    CALL();
    return give(image, program->source, strlen(program->source) + 1);
}
static int nvrtcGetPTXSize(nvrtcProgram program, size_t *size) {
    CALL();
    *size = strlen(program->source) + 1;
    return 0;
}
static int nvrtcGetPTX(nvrtcProgram program, char *text) {
    CALL();
    return give(text, program->source, strlen(program->source) + 1);
}
static const char *log_text(void) {
    return stub.compile_error ? stub.compile_error : "ptxas info: Used 64 registers\n";
}
static int nvrtcGetProgramLogSize(nvrtcProgram program, size_t *size) {
    CALL();
    (void)program;
    *size = strlen(log_text()) + 1;
    return 0;
}
static int nvrtcGetProgramLog(nvrtcProgram program, char *text) {
    CALL();
    (void)program;
    return give(text, log_text(), strlen(log_text()) + 1);
}
static const char *error_string(int result) {
    return result ? "NVRTC_ERROR_COMPILATION" : "NVRTC_SUCCESS";
}

const struct nvrtc_api *stub_nvrtc(void) {
    static const struct nvrtc_api api = {.major = 13,
                                         .minor = 0,
                                         .path = "stub",
                                         .nvrtcGetErrorString = error_string,
#define FUNCTION(name, parameters) .name = name,
                                         NVRTC_FUNCTIONS(FUNCTION)
#undef FUNCTION
    };
    return &api;
}
