// fuzz_safetensors.c - the safetensors reader: every byte of every tensor of an accepted file can be read.
#include <stdlib.h>

#include "number.h"
#include "safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct safetensors file;
    if (safetensors_parse(data, size, "input", &file)) return 0;
    unsigned sum = 0;
    for (size_t i = 0; i < file.count; i++) {
        const struct safetensors_entry *entry = &file.entries[i];
        const unsigned char *bytes = entry->tensor.data;
        size_t needed = number_size(entry->tensor.dtype);
        for (int d = 0; d < entry->tensor.ndim; d++) needed *= (size_t)entry->tensor.shape[d];
        if (needed != entry->size || safetensors_find(&file, entry->name) != &entry->tensor) abort();
        for (size_t b = 0; b < entry->size; b++) sum += bytes[b];
    }
    volatile unsigned kept = sum;  // so that the reads happen
    (void)kept;
    safetensors_free(&file);
    return 0;
}
