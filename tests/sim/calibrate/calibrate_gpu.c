// calibrate_gpu.c - see calibrate.h: the real driver and NVRTC.
#include "calibrate.h"

vf_status calibrate_open(vf_context **context) {
    const vf_options options = {.backend = VF_BACKEND_CUDA};
    return vf_open(&options, context);
}
