// fuzz_config.c - the configuration reader: anything but VF_OK and VF_ERROR_CONFIG with a sentence is a fault.
#include "config.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const vf_status status = config_check("input", (const char *)data, size, "signature");
    if (status != VF_OK && (status != VF_ERROR_CONFIG || !*vf_last_error())) abort();
    return 0;
}
