// test_hash.c - BLAKE2b-256 against values of an independent implementation (Python's hashlib.blake2b(digest_size=32)).
#include "hash.h"

#include "unit.h"

// Of the first `size` bytes of (7 i + 3) mod 256: empty, and either side of each block boundary.
static const struct {
    size_t size;
    const char *digest;
} vectors[] = {
    {0, "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8"},
    {1, "e88bd757ad5b9bedf372d8d3f0cf6c962a469db61a265f6418e1ffed86da29ec"},
    {127, "c9ae3859964b35f04c54b36d33cf299d7290ee621005d28e51598a943560aaaa"},
    {128, "f0501d06597880592bc49234eef100ec1ff349058d0e9d9b753504e24af86dd6"},
    {129, "a34a4e1e03c541dfbf3099c4b6c143c022ced65c28bd7e8a10e0a098461aecf0"},
    {255, "f2d64a40e9412a3414161ff6250075225418fd7c271c1123e162e1bca0de9f93"},
    {256, "d93ebb9c802f5630ab22516fd82b6c21bc8bd551d531349b715f046ed11ed871"},
    {257, "4ce481b24d387422d2bc2baa03d1afd55a1327939ff537c71eb9b38709268649"},
    {1000, "d62b6c768ce1afc8367e0498ab2f8e3f7c178c35b1429f14c4604b545d200f52"},
};

static unsigned char pattern[1000];

static void fill_pattern(void) {
    for (size_t i = 0; i < sizeof pattern; i++) pattern[i] = (unsigned char)(7 * i + 3);
}

START_TEST(known_values) {
    fill_pattern();
    unsigned char digest[HASH_SIZE];
    char text[HASH_TEXT_SIZE];
    for (size_t i = 0; i < ARRAY_LENGTH(vectors); i++) {
        hash_bytes(pattern, vectors[i].size, digest);
        hash_text(digest, text);
        ck_assert_str_eq(text, vectors[i].digest);
    }
    hash_bytes("abc", 3, digest);
    hash_text(digest, text);
    ck_assert_str_eq(text, "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
}
END_TEST

START_TEST(pieces_give_the_same) {
    fill_pattern();
    unsigned char whole[HASH_SIZE], pieces[HASH_SIZE];
    hash_bytes(pattern, sizeof pattern, whole);
    for (size_t step = 1; step < 300; step++) {
        struct hash hash;
        hash_begin(&hash);
        for (size_t at = 0; at < sizeof pattern; at += step) {
            hash_add(&hash, pattern + at, at + step < sizeof pattern ? step : sizeof pattern - at);
        }
        hash_end(&hash, pieces);
        ck_assert_mem_eq(pieces, whole, HASH_SIZE);
    }
}
END_TEST

UNIT_MAIN("hash", known_values, pieces_give_the_same)
