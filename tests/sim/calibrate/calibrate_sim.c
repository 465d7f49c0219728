// calibrate_sim.c - see calibrate.h: the simulator.
#include <stdlib.h>

#include "calibrate.h"
#include "driver.h"
#include "varflash/varflash_dev.h"

vf_status calibrate_open(vf_context **context) {
    const struct sim_device device = {
        .compute = 90,
        .multiprocessors = 1,
        .options = {.seed = 1, .root = getenv("VARFLASH_SOURCE"), .sim_root = ".", .cache = "build/sim-cache"}};
    const vf_options options = {.backend = VF_BACKEND_CUDA, .cache_dir = "build/sim-cache/library"};
    sim_driver_reset(&device);
    return vf_dev_open_with_api(&options, sim_cuda(), sim_nvrtc(), context);
}
