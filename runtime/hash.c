// hash.c - BLAKE2b with a 32-byte digest, no key, after RFC 7693. Names follow the RFC where they are its own.
#include "hash.h"

#include <string.h>

static const uint64_t initial[8] = {
    0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu, 0xa54ff53a5f1d36f1u,
    0x510e527fade682d1u, 0x9b05688c2b3e6c1fu, 0x1f83d9abfb41bd6bu, 0x5be0cd19137e2179u,
};

// Order in which a round takes the words of the block; rounds 10 and 11 repeat 0 and 1.
static const unsigned char sigma[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static uint64_t rotate(uint64_t value, int bits) {
    return value >> bits | value << (64 - bits);
}

static uint64_t load_word(const unsigned char *bytes) {
    uint64_t word = 0;
    for (int i = 7; i >= 0; i--) word = word << 8 | bytes[i];
    return word;
}

// The RFC's G. Always inlined, so that indices are constants and v stays in registers.
__attribute__((always_inline)) static inline void mix(uint64_t *v, int a, int b, int c, int d, uint64_t x, uint64_t y) {
    v[a] += v[b] + x;
    v[d] = rotate(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = rotate(v[b] ^ v[c], 24);
    v[a] += v[b] + y;
    v[d] = rotate(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = rotate(v[b] ^ v[c], 63);
}

// The RFC's F: takes in one block of 128 bytes, of which `used` count.
static void compress(struct hash *hash, const unsigned char *block, size_t used, bool last) {
    hash->length += used;
    uint64_t v[16], m[16];
    for (int i = 0; i < 8; i++) v[i] = hash->state[i];
    for (int i = 0; i < 8; i++) v[8 + i] = initial[i];
    for (size_t i = 0; i < 16; i++) m[i] = load_word(block + 8 * i);
    v[12] ^= hash->length;  // v[13] would take the high half of a 128-bit length
    if (last) v[14] = ~v[14];
#pragma GCC unroll 12
    for (int round = 0; round < 12; round++) {
        const unsigned char *s = sigma[round % 10];
        mix(v, 0, 4, 8, 12, m[s[0]], m[s[1]]);
        mix(v, 1, 5, 9, 13, m[s[2]], m[s[3]]);
        mix(v, 2, 6, 10, 14, m[s[4]], m[s[5]]);
        mix(v, 3, 7, 11, 15, m[s[6]], m[s[7]]);
        mix(v, 0, 5, 10, 15, m[s[8]], m[s[9]]);
        mix(v, 1, 6, 11, 12, m[s[10]], m[s[11]]);
        mix(v, 2, 7, 8, 13, m[s[12]], m[s[13]]);
        mix(v, 3, 4, 9, 14, m[s[14]], m[s[15]]);
    }
    for (int i = 0; i < 8; i++) hash->state[i] ^= v[i] ^ v[8 + i];
}

void hash_begin(struct hash *hash) {
    memcpy(hash->state, initial, sizeof hash->state);
    hash->state[0] ^= 0x01010000u ^ HASH_SIZE;  // the RFC's parameter block: depth and fanout 1, no key, digest size
    hash->length = 0;
    hash->pending = 0;
}

void hash_add(struct hash *hash, const void *data, size_t size) {
    const unsigned char *bytes = data;
    while (size) {
        // A full block is compressed only when more follows: the last one is marked as such.
        if (hash->pending == sizeof hash->block) {
            compress(hash, hash->block, sizeof hash->block, false);
            hash->pending = 0;
        }
        size_t room = sizeof hash->block - hash->pending;
        size_t taken = size < room ? size : room;
        memcpy(hash->block + hash->pending, bytes, taken);
        hash->pending += taken;
        bytes += taken;
        size -= taken;
    }
}

void hash_end(struct hash *hash, unsigned char digest[HASH_SIZE]) {
    memset(hash->block + hash->pending, 0, sizeof hash->block - hash->pending);
    compress(hash, hash->block, hash->pending, true);
    for (int i = 0; i < HASH_SIZE; i++) digest[i] = (unsigned char)(hash->state[i / 8] >> 8 * (i % 8));
}

void hash_bytes(const void *data, size_t size, unsigned char digest[HASH_SIZE]) {
    struct hash hash;
    hash_begin(&hash);
    hash_add(&hash, data, size);
    hash_end(&hash, digest);
}

void hash_text(const unsigned char digest[HASH_SIZE], char text[HASH_TEXT_SIZE]) {
    for (size_t i = 0; i < HASH_SIZE; i++) {
        text[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        text[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    text[HASH_TEXT_SIZE - 1] = 0;
}
