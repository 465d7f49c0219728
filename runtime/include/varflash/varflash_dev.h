/* varflash_dev.h - what the varflash command, the tests and the benchmarks need beyond varflash.h: look inside (requests,
 * variants, sources, images), force a choice, and enough of a device (memory, streams, events, graphs) to run problems.
 *
 * UNSTABLE: anything here may change in any release. On a context of the CPU backend "device memory" is host memory, streams
 * are null, events are host clocks, and graphs are VF_ERROR_UNSUPPORTED, so that a caller needs no second path. Devices are
 * CUDA ordinals from 0 here. Thread rules, statuses and vf_last_error are those of varflash.h. */
#ifndef VARFLASH_DEV_H
#define VARFLASH_DEV_H

#include "varflash/varflash.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- opening with other drivers ----------------------------------------------------------------------------------- */

struct cuda_api; /* runtime/cuda_api.h: tables of function pointers, as the stub driver and the simulator fill them */
struct nvrtc_api;

/* vf_open, but the driver and the compiler are these tables (null: the real one). They must outlive the context. */
VF_API vf_status vf_dev_open_with_api(const vf_options *options, const struct cuda_api *cuda,
                                      const struct nvrtc_api *nvrtc, vf_context **context);

/* ---- lists of texts ------------------------------------------------------------------------------------------------ */

typedef struct vf_dev_list {
    size_t count;
    char **items;
} vf_dev_list;

VF_API void vf_dev_list_free(vf_dev_list *list); /* null is ignored */
VF_API void vf_dev_text_free(char *text);        /* null is ignored */

/* ---- requests and variants ----------------------------------------------------------------------------------------- */

/* The request of a call as text: "pass=fwd arch=sm_90a dtype=bf16 head_dim=128 ... deterministic=0", then " mapped=0" if its
 * aligned operands are out of reach of tensor maps. Data pointers may be null (and then count as aligned). `arch` null: the device's own. The caller frees *request with vf_dev_text_free. */
VF_API vf_status vf_dev_request_forward(vf_context *context, const vf_forward_args *args, const char *arch,
                                        char **request);
VF_API vf_status vf_dev_request_backward(vf_context *context, const vf_backward_args *args, const char *arch,
                                         char **request);

typedef struct vf_dev_kernel {
    const char *name;  /* "schedule", "fwd_sm80", ... */
    const char *spec;  /* key of the kernel: what its text depends on, and nothing else */
    const char *entry; /* the symbol */
    int threads;
    int blocks_per_sm; /* 0: one block in all */
    int registers;     /* budgeted per thread */
    size_t shared_bytes;
} vf_dev_kernel;

typedef struct vf_dev_variant {
    const char *request; /* as given */
    const char *knobs;   /* "family=sm80 tile_m=128 ...": the row's with `set` applied */
    const char *row;     /* where the row stands: "configs/sm80.json#/rows/3" */
    int tile_m, tile_n;
    size_t kernel_count;
    const vf_dev_kernel *kernels; /* in launch order */
} vf_dev_variant;

/* The variant that serves `request` (a text as above), no device needed. `set`, if not null, overrides knobs of the row:
 * "tile_m=64 stages=3". The caller frees *variant. VF_ERROR_UNSUPPORTED with the budget's sentence. */
VF_API vf_status vf_dev_variant_create(vf_context *context, const char *request, const char *set,
                                       vf_dev_variant **variant);
VF_API void vf_dev_variant_free(vf_dev_variant *variant); /* null is ignored */

/* The knobs of every row, of whatever layer and average length, whose static conditions hold for `request` and whose variant the
 * generator accepts: one text each, no two alike, in order of preference. */
VF_API vf_status vf_dev_candidates(vf_context *context, const char *request, vf_dev_list *knobs);

/* From now on every call of a pass in `context` uses its knobs in place of a row; null or "": rows. Not while calls run. */
VF_API vf_status vf_dev_force(vf_context *context, const char *forward, const char *backward);

/* The CUDA text of a kernel, lines != 0: with #line directives that name the templates. The caller frees it with
 * vf_dev_text_free. */
VF_API vf_status vf_dev_source(vf_context *context, const char *kernel_spec, int lines, char **text);

typedef struct vf_dev_image {
    void *data; /* cubin or PTX */
    size_t size;
    int is_ptx;
    char *log;     /* the compiler's report, unaltered; "" where the image came from the cache */
    int registers; /* from the report; -1: unknown */
    int64_t stack_bytes, spill_store_bytes, spill_load_bytes; /* -1: unknown */
    double seconds;                                           /* that the compiler took */
} vf_dev_image;

/* Compiles a kernel for its arch, past every cache, no device needed; a cubin is then left in the disk cache for calls to
 * find. ptx != 0: PTX to read instead. The caller frees with
 * vf_dev_image_free; on VF_ERROR_COMPILE image->log holds the compiler's log and must be freed too. */
VF_API vf_status vf_dev_compile(vf_context *context, const char *kernel_spec, int ptx, vf_dev_image *image);
VF_API void vf_dev_image_free(vf_dev_image *image); /* a zeroed image is ignored */

/* ---- building ahead of time ---------------------------------------------------------------------------------------- */

/* The variants that calls of a request can get, whatever their sizes and on whatever device of its architecture, one spec a line:
 * request and knobs. mapped == 0: calls whose operands tensor maps cannot address. The caller frees with vf_dev_text_free.
 * VF_ERROR_UNSUPPORTED if no row serves it. */
VF_API vf_status vf_dev_variants(vf_context *context, const char *request, int mapped, char **variants);

/* The knobs of every variant that the generator can make for a request, a line each: what a tuner chooses from. The caller frees with
 * vf_dev_text_free. VF_ERROR_UNSUPPORTED if there is none. */
VF_API vf_status vf_dev_space(vf_context *context, const char *request, char **knobs);

/* The plan of a variant as text (runtime/source_plan.h), freed with vf_dev_text_free. "pass=check arch=sm_90a" is a variant too. */
VF_API vf_status vf_dev_plan(vf_context *context, const char *variant, char **plan);

typedef struct vf_dev_built {
    void *data; /* cubin, or PTX with its final zero */
    size_t size;
    char *facts;    /* "form=cubin", "registers=168" ... a line each */
    double seconds; /* that the compiler took; 0: the disk cache had it */
} vf_dev_built;

/* The image of a kernel from the disk cache, else from NVRTC whatever VARFLASH_JIT says; then the cache has it too. No device
 * needed. The caller frees with vf_dev_built_free. */
VF_API vf_status vf_dev_build(vf_context *context, const char *kernel_spec, vf_dev_built *built);
VF_API void vf_dev_built_free(vf_dev_built *built); /* a zeroed one is ignored */

/* What a context has done since it was opened. */
typedef struct vf_dev_counters {
    uint64_t compiled;    /* kernels that went through NVRTC */
    uint64_t from_cache;  /* kernels read from the disk cache */
    uint64_t from_bundle; /* kernels read from a bundle */
    uint64_t launched;    /* kernels launched */
} vf_dev_counters;

VF_API vf_dev_counters vf_dev_count(const vf_context *context);

/* ---- what is here -------------------------------------------------------------------------------------------------- */

typedef struct vf_dev_variable {
    const char *name;    /* VARFLASH_... */
    const char *value;   /* null: not set */
    const char *meaning; /* one line */
} vf_dev_variable;

typedef struct vf_dev_info {
    int driver_version;       /* 13000 = 13.0; 0: none */
    const char *driver_state; /* "" or one sentence: why there is no driver or device, and what to do */
    int nvrtc_version;        /* 13000 = 13.0; 0: none */
    const char *nvrtc_path;   /* "" if none */
    const char *nvrtc_state;  /* "" or one sentence */
    const char *cache_dir;    /* "" = memory only */
    const char *cache_state;  /* "" or one sentence */
    const char *generator;    /* digest of the embedded generator and templates, or the VARFLASH_SOURCE directory */
    const char *signature;    /* of the generator's knobs, as configuration files may name it */
    const char *cpu;          /* vector code in use: "avx2", ... */
    int cpu_threads;
    int device_count;
    size_t config_count;
    const char *const *configs; /* the configuration files in force, first match first */
    size_t variable_count;
    const vf_dev_variable *variables; /* every environment variable the library knows */
} vf_dev_info;

/* Owned by the context, valid until vf_close. Never fails for what is missing: the states say so. */
VF_API vf_status vf_dev_info_get(vf_context *context, const vf_dev_info **info);

typedef struct vf_dev_device {
    char name[128];
    char arch[16]; /* what kernels are compiled for here: "sm_90a" */
    int compute_major, compute_minor;
    int multiprocessors;
    size_t shared_bytes_per_block; /* the most that one block can opt in to */
    size_t l2_bytes;
    size_t memory_total, memory_free;
    int clock_mhz, clock_max_mhz, memory_clock_mhz; /* now (NVML), at most; 0: unknown */
    int power_watts, temperature;                   /* now (NVML); 0: unknown */
} vf_dev_device;

VF_API vf_status vf_dev_device_get(vf_context *context, int device, vf_dev_device *out);

/* ---- device memory, streams, events, graphs ------------------------------------------------------------------------ */

/* At least 256-byte aligned; 0 bytes give a non-null pointer. */
VF_API vf_status vf_dev_alloc(vf_context *context, int device, size_t bytes, void **data);
VF_API vf_status vf_dev_free(vf_context *context, void *data); /* null is ignored */

/* These three wait until the copy is done, after all earlier work of the device. */
VF_API vf_status vf_dev_upload(vf_context *context, void *to, const void *from, size_t bytes);
VF_API vf_status vf_dev_download(vf_context *context, void *to, const void *from, size_t bytes);
VF_API vf_status vf_dev_synchronize(vf_context *context, int device);

/* Asynchronous, on `stream`: every byte becomes `byte`; a copy within the device. */
VF_API vf_status vf_dev_set(vf_context *context, void *data, int byte, size_t bytes, struct CUstream_st *stream);
VF_API vf_status vf_dev_copy(vf_context *context, void *to, const void *from, size_t bytes, struct CUstream_st *stream);

/* A stream that does not wait for the legacy default stream. */
VF_API vf_status vf_dev_stream_create(vf_context *context, int device, struct CUstream_st **stream);
VF_API vf_status vf_dev_stream_destroy(vf_context *context, struct CUstream_st *stream);
VF_API vf_status vf_dev_stream_synchronize(vf_context *context, struct CUstream_st *stream);

typedef struct vf_dev_event vf_dev_event;

VF_API vf_status vf_dev_event_create(vf_context *context, int device, vf_dev_event **event);
VF_API vf_status vf_dev_event_record(vf_dev_event *event, struct CUstream_st *stream);
VF_API vf_status vf_dev_event_elapsed(const vf_dev_event *start, vf_dev_event *stop,
                                      double *milliseconds); /* waits for stop */
VF_API void vf_dev_event_destroy(vf_dev_event *event);

typedef struct vf_dev_graph vf_dev_graph;

/* Work given to `stream` between begin and end becomes the graph. */
VF_API vf_status vf_dev_capture_begin(vf_context *context, struct CUstream_st *stream);
VF_API vf_status vf_dev_capture_end(vf_context *context, struct CUstream_st *stream, vf_dev_graph **graph);
VF_API vf_status vf_dev_graph_launch(vf_dev_graph *graph, struct CUstream_st *stream);
VF_API void vf_dev_graph_destroy(vf_dev_graph *graph);

#ifdef __cplusplus
}
#endif
#endif
