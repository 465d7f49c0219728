// module.h - a compiled image in the driver: one library, one kernel, and its function in each context.
//
// Knows neither specs nor the cache. A library belongs to no context, so that one image serves all devices of its
// architecture.
#ifndef VF_MODULE_H
#define VF_MODULE_H

#include "base.h"
#include "cuda_api.h"

struct module {
    CUlibrary library;
    CUkernel kernel;
};

// `image` is a cubin or PTX with its final zero. VF_ERROR_DRIVER; then *module needs no unloading.
vf_status module_load(const struct cuda_api *api, const void *image, const char *entry, struct module *module);
void module_unload(const struct cuda_api *api, struct module *module);  // a zeroed module is ignored

// The function in the current context, allowed `shared_bytes` of dynamic shared memory.
vf_status module_function(const struct cuda_api *api, const struct module *module, int shared_bytes,
                          CUfunction *function);

#endif
