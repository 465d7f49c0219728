// embedded.h - the files that are compiled into the library: gen/*.lua, templates/** and configs/*.json.
//
// build/gen/embedded.c is written by tools/embed.lua. Nothing here interprets the files: source.c reads the generator
// and the templates, config.c the configurations. Paths are relative to the repository ("gen/init.lua"), sorted,
// unique.
#ifndef VF_EMBEDDED_H
#define VF_EMBEDDED_H

#include <stddef.h>

struct embedded_file {
    const char *path;
    const unsigned char *data;  // followed by a zero byte that `size` does not count
    size_t size;
};

extern const struct embedded_file embedded_files[];
extern const size_t embedded_file_count;

// 32 hexadecimal digits that name the content of gen/ and templates/ (not of configs/): equal digests write equal
// kernels.
extern const char embedded_digest[];

// The signature of the generator's knobs, which configurations may name: what source_signature of these files says.
extern const char embedded_signature[];

#endif
