// hash.h - BLAKE2b-256 (RFC 7693), the digest of cache keys and of every stored payload.
//
// Chosen over SHA-256 because plain C does 0.7 GB/s of it, with no vector code and no dispatch: a kernel image is
// verified in a tenth of a millisecond. `b2sum -l 256` computes the same. Not keyed: it detects damage, not forgery.
#ifndef VF_HASH_H
#define VF_HASH_H

#include "base.h"

#define HASH_SIZE 32                        // bytes of a digest
#define HASH_TEXT_SIZE (2 * HASH_SIZE + 1)  // its hexadecimal text with the final zero

struct hash {
    uint64_t state[8];
    uint64_t length;  // bytes compressed so far
    size_t pending;   // bytes in block
    unsigned char block[128];
};

void hash_begin(struct hash *hash);
void hash_add(struct hash *hash, const void *data, size_t size);
void hash_end(struct hash *hash, unsigned char digest[HASH_SIZE]);

// The three in one.
void hash_bytes(const void *data, size_t size, unsigned char digest[HASH_SIZE]);

// Lower case hexadecimal.
void hash_text(const unsigned char digest[HASH_SIZE], char text[HASH_TEXT_SIZE]);

#endif
