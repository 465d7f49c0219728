// bundle_format.h - a bundle's file, for the one who writes it (tools/lib/bundle_write.c) and the one who reads it.
//
//     head      header, plans, kernels (both sorted by spec), the texts they name, the manifest
//     images    zstd frames
//
// All numbers are little-endian, offsets count from the start of the file. The head is verified when a bundle is opened,
// an image when it is used, so that a process touches the pages of what it needs and no others.
#ifndef VF_BUNDLE_FORMAT_H
#define VF_BUNDLE_FORMAT_H

#include "hash.h"

#define BUNDLE_MAGIC "vfbundle"
#define BUNDLE_FORMAT 1
#define BUNDLE_GENERATOR_SIZE 32  // characters of embedded_digest

// Where a header's fields stand, and their bytes.
enum {
    BUNDLE_AT_FORMAT = 8,          // 4
    BUNDLE_AT_PLANS = 12,          // 4, how many
    BUNDLE_AT_KERNELS = 16,        // 4
    BUNDLE_AT_COMPILER = 20,       // 4, NVRTC's version: 13000
    BUNDLE_AT_HEAD_SIZE = 24,      // 8
    BUNDLE_AT_SIZE = 32,           // 8, of the file
    BUNDLE_AT_MANIFEST = 40,       // 8
    BUNDLE_AT_MANIFEST_SIZE = 48,  // 8
    BUNDLE_AT_GENERATOR = 56,      // 32 characters
    BUNDLE_AT_DIGEST = 88,         // BLAKE2b-256 of the head with zeros here
    BUNDLE_HEADER_SIZE = 88 + HASH_SIZE
};

// Two texts: spec and plan, spec and facts.
enum {
    BUNDLE_PAIR_SPEC = 0,        // 8
    BUNDLE_PAIR_TEXT = 8,        // 8
    BUNDLE_PAIR_SPEC_SIZE = 16,  // 4
    BUNDLE_PAIR_TEXT_SIZE = 20,  // 4
    BUNDLE_PAIR_SIZE = 24
};

// A kernel: a pair, then its image.
enum {
    BUNDLE_KERNEL_FRAME = BUNDLE_PAIR_SIZE,            // 8
    BUNDLE_KERNEL_FRAME_SIZE = BUNDLE_PAIR_SIZE + 8,   // 8
    BUNDLE_KERNEL_IMAGE_SIZE = BUNDLE_PAIR_SIZE + 16,  // 8
    BUNDLE_KERNEL_DIGEST = BUNDLE_PAIR_SIZE + 24,      // of the image
    BUNDLE_KERNEL_SIZE = BUNDLE_PAIR_SIZE + 24 + HASH_SIZE
};

#define BUNDLE_LARGEST_IMAGE ((uint64_t)1 << 28)

#endif
