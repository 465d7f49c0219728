// module.c - see module.h.
#include "module.h"

vf_status module_load(const struct cuda_api *api, const void *image, const char *entry, struct module *module) {
    *module = (struct module){NULL, NULL};
    CUlibrary library = NULL;
    CUDA_TRY(api, cuLibraryLoadData, &library, image, NULL, NULL, 0, NULL, NULL, 0);
    const vf_status status =
        cuda_check(api, api->cuLibraryGetKernel(&module->kernel, library, entry), "cuLibraryGetKernel");
    if (status) {
        api->cuLibraryUnload(library);
        *module = (struct module){NULL, NULL};
        return status;
    }
    module->library = library;
    return VF_OK;
}

void module_unload(const struct cuda_api *api, struct module *module) {
    if (module->library) api->cuLibraryUnload(module->library);
    *module = (struct module){NULL, NULL};
}

vf_status module_function(const struct cuda_api *api, const struct module *module, int shared_bytes,
                          CUfunction *function) {
    CUDA_TRY(api, cuKernelGetFunction, function, module->kernel);
    CUDA_TRY(api, cuFuncSetAttribute, *function, CUDA_FUNCTION_DYNAMIC_SHARED_BYTES, shared_bytes);
    return VF_OK;
}
