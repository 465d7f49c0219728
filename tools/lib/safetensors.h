// safetensors.h - reads and writes .safetensors files: 8 bytes of header length, a JSON header, then the data.
//
// A file is read whole, judged whole, and only then used: offsets, shapes and sizes that do not agree are refused with
// a sentence, whatever the bytes are. Only the types that attention needs: F16, BF16, F32, I32, I64. Invariant: every
// tensor of a file that was opened lies within its bytes and has exactly the size that its shape needs.
#ifndef VF_SAFETENSORS_H
#define VF_SAFETENSORS_H

#include "buf.h"
#include "varflash/varflash.h"

#define SAFETENSORS_NAME_SIZE 128

struct safetensors_entry {
    char name[SAFETENSORS_NAME_SIZE];
    vf_tensor tensor;  // contiguous; data lies in the file's bytes, aligned to 16 by the reader
    size_t size;       // bytes
};

struct safetensors {
    size_t count;
    struct safetensors_entry *entries;
    void *bytes;  // what the entries point into
};

// VF_ERROR_IO, or VF_ERROR_INVALID_ARGUMENT for what is malformed; `path` or `name` stands in the sentence. On failure
// nothing is left to free.
vf_status safetensors_read(const char *path, struct safetensors *file);
vf_status safetensors_parse(const void *bytes, size_t size, const char *name, struct safetensors *file);
void safetensors_free(struct safetensors *file);

// The tensor of that name, or null.
const vf_tensor *safetensors_find(const struct safetensors *file, const char *name);

// Writes the tensors in the order given (contiguous or not) to a temporary in the same folder, then renames it.
struct safetensors_item {
    const char *name;
    vf_tensor tensor;
};
vf_status safetensors_write(const char *path, const struct safetensors_item *items, size_t count);

#endif
