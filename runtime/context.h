// context.h - what a vf_context is made of. For varflash.c and the files beside it: plan.c, explain.c, trace.c, dev.c.
#ifndef VF_CONTEXT_H
#define VF_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>

#include "cache.h"
#include "config.h"
#include "cuda_api.h"
#include "device.h"
#include "fs.h"
#include "kernel.h"
#include "launch.h"
#include "log.h"
#include "source.h"
#include "trace.h"
#include "validate.h"
#include "varflash/varflash.h"
#include "variant.h"

struct dev_info;

struct vf_context {
    vf_backend backend;
    int cpu_threads;
    struct logger logger;
    struct environment environment;
    struct cuda_api own_cuda;     // filled unless a table was given
    const struct cuda_api *cuda;  // null: no driver
    char driver_state[512];       // why there is none, or no device
    struct devices *devices;      // null on the CPU backend
    struct source *source;
    struct config *config;
    struct cache *cache;
    struct bundle **bundles;
    size_t bundle_count;
    struct kernels *kernels;
    struct variants *variants;
    struct trace *trace;    // null: off
    struct dev_info *info;  // made when first asked for
    pthread_mutex_t info_lock;
    atomic_uint_fast64_t launched;
};

// A call that is known to be valid, from here to its end. `prepared` null: the variant is looked up.
vf_status context_run(struct vf_context *context, const struct call *call, const struct prepared *prepared,
                      uint64_t prepared_context);

// Enters the scope of a call: by its data if there is any, else by its stream and the current context.
vf_status context_enter(struct vf_context *context, const struct call *call, struct scope *scope);

// The most that any variant which the call can get asks for, on any device it can run on. `arch` null: the devices'.
vf_status context_workspace(struct vf_context *context, const struct call *call, const char *arch, size_t *bytes);

#endif
