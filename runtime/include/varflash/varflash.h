/* varflash.h - attention over packed ("varlen") batches, forward and backward, on CUDA devices and on the CPU.
 *
 * A call names its tensors, the mask and a stream; the library picks a kernel, generates and compiles it when it is needed
 * for the first time (NVRTC, no nvcc), caches it, and launches it. Lengths stay on the device: no call but one in checked
 * mode waits for the device, and a launch can be captured in a graph and replayed with other lengths in the same buffers.
 *
 * For every sequence b, q head h, with g = h / (heads_q / heads_k), and its used lengths sq, sk:
 *
 *     x[i][j] = softmax_scale * dot(q[i][h], k[j][g])          then, with a softcap: x = softcap * tanh(x / softcap)
 *     o[i][h] = sum over visible j of exp(x[i][j] - lse[i]) * v[j][g]
 *     lse[i]  = log of the sum over visible j of exp(x[i][j])                                        (natural logarithm)
 *
 * Key j is visible to query i iff j < sk and the mask admits it. Masks align bottom right (d = sk - sq): causal admits
 * j <= i + d; a window admits i + d - left <= j <= i + d + right. A row without a visible key has o = 0, lse = -inf and no
 * gradient. Formulas: FlashAttention-2, arXiv:2307.08691. What holds for every kernel stands in docs/design.md, section 4.
 *
 * Tensors are described by vf_tensor: element strides of any int64 value, the last dimension contiguous.
 *     packed   [tokens, heads, dim] with cu_seqlens of batch + 1 entries: sequence b is rows cu[b] ... cu[b + 1] - 1
 *     batched  [batch, seqlen, heads, dim] without cu_seqlens
 * q, o, dout, dq share one form; k, v, dk, dv the other; the two may differ. Outputs and workspace share no byte with anything else of
 * the call and no two elements of an output share one; views that interleave in one buffer are fine. Inputs may overlap at will.
 * Zero is every field's default.
 *
 * Threads: a context and a plan may be used by any number of threads at once. The library never prints, exits or aborts.
 * Not to be used in a child process after fork(). */
#ifndef VARFLASH_H
#define VARFLASH_H

#include <stddef.h>
#include <stdint.h>

#define VF_VERSION_MAJOR 0
#define VF_VERSION_MINOR 1
#define VF_VERSION_PATCH 0

#if defined(VF_BUILD) && defined(__GNUC__)
#define VF_API __attribute__((visibility("default")))
#else
#define VF_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status ---------------------------------------------------------------------------------------------------- */

/* Values are stable. Texts: vf_status_name; the sentence about one failure: vf_last_error. */
typedef enum vf_status {
    VF_OK = 0,
    VF_ERROR_INVALID_ARGUMENT = 1, /* a field is null, negative, mismatched, misaligned or overlapping */
    VF_ERROR_UNSUPPORTED = 2,      /* valid, but nothing here can do it: vf_explain lists every reason */
    VF_ERROR_WORKSPACE = 3,        /* workspace null, misaligned or too small */
    VF_ERROR_LENGTHS = 4,        /* checked mode: the lengths on the device are broken; the sentence names the index */
    VF_ERROR_NO_DEVICE = 5,      /* no CUDA driver or device */
    VF_ERROR_NO_COMPILER = 6,    /* a kernel must be compiled and NVRTC cannot be found, or VARFLASH_JIT=off */
    VF_ERROR_COMPILE = 7,        /* generating or compiling a kernel failed; vf_last_error carries NVRTC's log */
    VF_ERROR_CAPTURE = 8,        /* not possible while the stream is being captured; the capture stays usable */
    VF_ERROR_CONFIG = 9,         /* a configuration file is malformed: file and JSON pointer are named */
    VF_ERROR_DRIVER = 10,        /* a CUDA driver call failed; vf_last_driver_error has its code */
    VF_ERROR_OUT_OF_MEMORY = 11, /* host memory */
    VF_ERROR_IO = 12,            /* a file could not be read or written */
    VF_ERROR_INTERNAL = 13       /* a fault of this library: please report it */
} vf_status;

/* "VF_OK", "VF_ERROR_UNSUPPORTED", ...; "VF_ERROR_UNKNOWN" for a value that is none. Static storage. */
VF_API const char *vf_status_name(vf_status status);

/* The sentence about the calling thread's last failed call: argument, found, allowed. "" before the first failure. Valid
 * until the thread's next call into the library. */
VF_API const char *vf_last_error(void);

/* The CUresult or nvrtcResult behind the calling thread's last failure, 0 if there was none. */
VF_API int vf_last_driver_error(void);

/* VF_VERSION_MAJOR * 10000 + VF_VERSION_MINOR * 100 + VF_VERSION_PATCH of the library that runs. */
VF_API int vf_version(void);

/* ---- context --------------------------------------------------------------------------------------------------- */

typedef struct vf_context vf_context;

typedef enum vf_backend {
    VF_BACKEND_AUTO = 0, /* CUDA where a device and a driver are there, else the CPU */
    VF_BACKEND_CUDA = 1, /* device pointers */
    VF_BACKEND_CPU = 2   /* host pointers; calls return when the result is there */
} vf_backend;

typedef void (*vf_log_function)(int level, const char *message, void *user); /* 1 error, 2 warning, 3 info, 4 debug */

/* Kernels built ahead of time (varflash build): a file, or bytes in memory that outlive the context. Where a bundle has a call's
 * kernels, neither NVRTC nor a cache folder is needed. */
typedef struct vf_bundle {
    const char *path; /* null: data and size; else a file, and data is null */
    const void *data;
    size_t size;
} vf_bundle;

typedef struct vf_options {
    size_t struct_size; /* sizeof(vf_options); 0 = the layout of version 1.0 */
    vf_backend backend;
    vf_log_function log; /* null: silent */
    void *log_user;
    int log_level;            /* 0: from VARFLASH_LOG, else 2 */
    int cpu_threads;          /* CPU backend; 0: all cores this process may use. Results do not depend on it */
    const char *cache_dir;    /* null: VARFLASH_CACHE_DIR, else the XDG rules (docs/api.md) */
    const char *config;       /* a JSON file of rows that come before all others; null: VARFLASH_CONFIG */
    const vf_bundle *bundles; /* looked into in this order, then those of VARFLASH_BUNDLES */
    size_t bundle_count;
} vf_options;

/* Opens a context that serves all devices. `options` may be null, is read during the call only. The environment is read here
 * and never again. On VF_OK the caller owns *context and ends it with vf_close.
 * VF_ERROR_NO_DEVICE only if options ask for VF_BACKEND_CUDA; VF_ERROR_CONFIG, VF_ERROR_INVALID_ARGUMENT; VF_ERROR_IO for a bundle
 * that cannot be used: unreadable, damaged, or built by another version of varflash. */
VF_API vf_status vf_open(const vf_options *options, vf_context **context);

/* Unloads the kernels. No call may be running; work already launched must be complete. Null is ignored. */
VF_API void vf_close(vf_context *context);

/* VF_BACKEND_CUDA or VF_BACKEND_CPU: what `context` runs on. */
VF_API vf_backend vf_context_backend(const vf_context *context);

/* ---- tensors --------------------------------------------------------------------------------------------------- */

typedef enum vf_dtype {
    VF_NONE = 0,
    VF_FLOAT16 = 1,
    VF_BFLOAT16 = 2,
    VF_FLOAT32 = 3, /* lse, dlse; with the CPU backend all operands */
    VF_INT32 = 4,
    VF_INT64 = 5
} vf_dtype;

/* data == NULL with ndim == 0: absent. A tensor with a dimension of 0 may have null data. Strides in elements. */
typedef struct vf_tensor {
    void *data;
    vf_dtype dtype;
    int ndim;
    int64_t shape[4];
    int64_t stride[4];
} vf_tensor;

/* ---- calls ----------------------------------------------------------------------------------------------------- */

typedef enum vf_mask { VF_MASK_FULL = 0, VF_MASK_CAUSAL = 1, VF_MASK_WINDOW = 2 } vf_mask;
#define VF_NO_EDGE INT64_MAX /* a window without a limit on that side */

typedef enum vf_switch { VF_AUTO = 0, VF_ON = 1, VF_OFF = 2 } vf_switch;

typedef enum vf_fill {
    VF_FILL_ZERO = 0, /* output rows where no token lives become 0, lse -inf */
    VF_FILL_KEEP = 1  /* they keep what they hold */
} vf_fill;

struct CUstream_st; /* CUstream and cudaStream_t point to it */

/* What forward and backward share. The last member of both, so that it can grow. */
typedef struct vf_problem_args {
    vf_mask mask;
    int64_t window_left, window_right; /* read with VF_MASK_WINDOW only; may be negative; VF_NO_EDGE. Causal and a left
                                          edge: right = 0 */
    double softmax_scale;              /* 0: 1 / sqrt(head_dim); positive, at most 2^127 otherwise */
    double softcap;                    /* 0: none; positive, it and scale / softcap at most 2^127 otherwise */
    vf_switch deterministic;           /* backward; VF_AUTO is VF_OFF on CUDA. The forward and the CPU are always */
    vf_fill fill;
    vf_tensor cu_seqlens_q, cu_seqlens_k; /* [batch + 1], int32 or int64, contiguous, on the device; absent: batched. A
                                             sequence has at most 2^30 - 1 tokens */
    vf_tensor seqused_q, seqused_k;       /* [batch], int32 or int64: tokens in use of each sequence; absent: all */
    int64_t max_seqlen_q, max_seqlen_k;   /* upper bounds, which checked mode verifies and no result depends on;
                                             0: unknown */
    void *workspace;                      /* device memory, 256-byte aligned, contents irrelevant; in use until the work
                                             launched by the call is complete */
    size_t workspace_size;                /* bytes; at least vf_*_workspace_size */
    struct CUstream_st *stream;           /* null: the legacy default stream. Ignored by the CPU backend */
    int device;                           /* 0: the device of q's memory; n: CUDA device n - 1 */
    int check;                            /* VF_CHECK_DEVICE: lengths are validated on the device first. Waits for it */
    uint32_t flags;                       /* must be 0 */
} vf_problem_args;

#define VF_CHECK_DEVICE 1

typedef struct vf_forward_args {
    size_t struct_size; /* sizeof(vf_forward_args); 0 = the layout of version 1.0 */
    vf_tensor q, k, v;  /* in  [.., heads_q, head_dim] [.., heads_k, head_dim] [.., heads_k, head_dim_v] */
    vf_tensor o;        /* out [.., heads_q, head_dim_v], the dtype of q */
    vf_tensor lse; /* out, float32: [heads_q, tokens], batched [batch, heads_q, seqlen]; any strides; may be absent */
    vf_problem_args problem;
} vf_forward_args;

typedef struct vf_backward_args {
    size_t struct_size;        /* sizeof(vf_backward_args); 0 = the layout of version 1.0 */
    vf_tensor q, k, v, o, lse; /* in, as the forward read and wrote them */
    vf_tensor dout;            /* in, like o */
    vf_tensor dlse;            /* in, like lse: gradient with respect to lse; may be absent */
    vf_tensor dq, dk, dv;      /* out, like q, k, v */
    vf_problem_args problem;
} vf_backward_args;

/* Launches the forward pass on args->problem.stream and returns. args is read during the call only; tensors and workspace
 * belong to the caller and must live until the work is complete. Asynchronous, never synchronises (but see check), allocates no
 * device memory. The first use of a kernel compiles and loads it, which is refused during a capture (VF_ERROR_CAPTURE).
 * Reads q k v and the lengths; writes every element of o and lse. VF_ERROR_INVALID_ARGUMENT, _UNSUPPORTED, _WORKSPACE, _LENGTHS,
 * _NO_DEVICE, _NO_COMPILER, _COMPILE, _CAPTURE, _DRIVER, _OUT_OF_MEMORY; on an error nothing was launched or written. */
VF_API vf_status vf_forward(vf_context *context, const vf_forward_args *args);

/* The same for the backward pass. Reads q k v o lse dout [dlse] and the lengths; writes every element of dq, dk and dv. */
VF_API vf_status vf_backward(vf_context *context, const vf_backward_args *args);

/* Bytes of workspace for a call whose shapes (batch, tokens, heads) are at most those of `args`; data pointers, streams and
 * workspace fields are not read. Monotone: any call within the bounds runs in it. Always 0 on the CPU backend's forward. */
VF_API vf_status vf_forward_workspace_size(vf_context *context, const vf_forward_args *args, size_t *bytes);
VF_API vf_status vf_backward_workspace_size(vf_context *context, const vf_backward_args *args, size_t *bytes);

/* Compiles and loads every kernel that a call like `args` can ask for, so that the call itself does neither. Same statuses. */
VF_API vf_status vf_prepare_forward(vf_context *context, const vf_forward_args *args);
VF_API vf_status vf_prepare_backward(vf_context *context, const vf_backward_args *args);

/* ---- plans: everything up to loaded kernels, done once ---------------------------------------------------------- */

typedef struct vf_plan vf_plan;

/* A plan fixes what is static in `args`: shapes but for batch and tokens, dtypes, mask, features, device. Launching it with
 * args of the same kind checks them and launches. A plan is immutable: two launches at once need two workspaces, not two plans.
 * The caller owns *plan, which must end before its context. */
VF_API vf_status vf_plan_create_forward(vf_context *context, const vf_forward_args *args, vf_plan **plan);
VF_API vf_status vf_plan_create_backward(vf_context *context, const vf_backward_args *args, vf_plan **plan);
VF_API vf_status vf_plan_launch_forward(const vf_plan *plan, const vf_forward_args *args);
VF_API vf_status vf_plan_launch_backward(const vf_plan *plan, const vf_backward_args *args);
VF_API void vf_plan_destroy(vf_plan *plan); /* null is ignored */

/* ---- questions ------------------------------------------------------------------------------------------------- */

/* Writes a JSON text that says which configuration row serves the call, the variant with its kernels, and why; or every
 * constraint that the call fails. snprintf's rule: at most `size` bytes with the final zero; *length is the full length.
 * Returns what the call would return as far as the host can tell. Works without a device: `arch` ("sm_90a") stands in for it;
 * null: the device's own. */
VF_API vf_status vf_explain_forward(vf_context *context, const vf_forward_args *args, const char *arch, char *text,
                                    size_t size, size_t *length);
VF_API vf_status vf_explain_backward(vf_context *context, const vf_backward_args *args, const char *arch, char *text,
                                     size_t size, size_t *length);

#ifdef __cplusplus
}
#endif
#endif
