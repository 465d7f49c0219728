// nvml.h - clocks, power and temperature of a device right now, where libnvidia-ml.so.1 is there. Never needed for a
// result.
#ifndef VF_NVML_H
#define VF_NVML_H

#include "base.h"

struct nvml_reading {
    int clock_mhz, clock_max_mhz, memory_clock_mhz, power_watts, temperature;  // 0: unknown
};

// Of the device at that place on the PCI bus. Opens and closes the library each time: about a millisecond.
struct nvml_reading nvml_read(int domain, int bus, int slot);

#endif
