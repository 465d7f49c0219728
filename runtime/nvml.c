// nvml.c - see nvml.h. Declarations as NVML's ABI has them (nvml.h of the driver).
#include "nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef struct nvmlDevice_st *nvmlDevice;

enum { CLOCK_SM = 1, CLOCK_MEMORY = 2, TEMPERATURE_GPU = 0 };

struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*find)(const char *bus_id, nvmlDevice *device);
    int (*clock)(nvmlDevice device, int type, unsigned *mhz);
    int (*clock_max)(nvmlDevice device, int type, unsigned *mhz);
    int (*power)(nvmlDevice device, unsigned *milliwatts);
    int (*temperature)(nvmlDevice device, int sensor, unsigned *degrees);
};

static bool load(void *library, struct nvml *nvml) {
    const struct {
        const char *symbol;
        void *target;
    } functions[] = {{"nvmlInit_v2", &nvml->init},
                     {"nvmlShutdown", &nvml->shutdown},
                     {"nvmlDeviceGetHandleByPciBusId_v2", &nvml->find},
                     {"nvmlDeviceGetClockInfo", &nvml->clock},
                     {"nvmlDeviceGetMaxClockInfo", &nvml->clock_max},
                     {"nvmlDeviceGetPowerUsage", &nvml->power},
                     {"nvmlDeviceGetTemperature", &nvml->temperature}};
    for (size_t i = 0; i < ARRAY_LENGTH(functions); i++) {
        void *function = dlsym(library, functions[i].symbol);
        if (!function) return false;
        memcpy(functions[i].target, &function, sizeof function);  // C has no cast from object to function pointers
    }
    return true;
}

static void read_device(const struct nvml *nvml, nvmlDevice device, struct nvml_reading *reading) {
    unsigned value = 0;
    if (nvml->clock(device, CLOCK_SM, &value) == 0) reading->clock_mhz = (int)value;
    if (nvml->clock(device, CLOCK_MEMORY, &value) == 0) reading->memory_clock_mhz = (int)value;
    if (nvml->clock_max(device, CLOCK_SM, &value) == 0) reading->clock_max_mhz = (int)value;
    if (nvml->power(device, &value) == 0) reading->power_watts = (int)(value / 1000);
    if (nvml->temperature(device, TEMPERATURE_GPU, &value) == 0) reading->temperature = (int)value;
}

struct nvml_reading nvml_read(int domain, int bus, int slot) {
    struct nvml_reading reading = {0, 0, 0, 0, 0};
    struct nvml nvml;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return reading;
    if (load(library, &nvml) && nvml.init() == 0) {
        char bus_id[32];
        nvmlDevice device = NULL;
        snprintf(bus_id, sizeof bus_id, "%08x:%02x:%02x.0", (unsigned)domain, (unsigned)bus, (unsigned)slot);
        if (nvml.find(bus_id, &device) == 0) read_device(&nvml, device, &reading);
        nvml.shutdown();
    }
    dlclose(library);
    return reading;
}
