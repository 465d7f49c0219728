// calibrate.h - where calibrate.c gets its device from: calibrate_gpu.c or calibrate_sim.c, whichever is linked.
#ifndef SIM_CALIBRATE_H
#define SIM_CALIBRATE_H

#include "varflash/varflash.h"

vf_status calibrate_open(vf_context **context);

#endif
