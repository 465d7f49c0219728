// object.h - bytes as an ELF object file with one symbol, to be linked into a program. No assembler needed.
#ifndef VF_OBJECT_H
#define VF_OBJECT_H

#include "buf.h"

// Appends a relocatable object for the machine this program runs on: `symbol` is a read-only array of 8-byte alignment.
void object_write(const char *symbol, const void *data, size_t size, struct buf *file);

#endif
