/* sha256.c - SHA-256 as FIPS 180-4 writes it down, section 6.2. */
#include "sha256.h"

#include <stdint.h>
#include <string.h>

enum { BLOCK = 64, ROUNDS = 64 };

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes (4.2.2). */
static const uint32_t constants[ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turn_right(uint32_t x, int by) { return x >> by | x << (32 - by); }

static void extend(uint32_t w[ROUNDS], const unsigned char block[BLOCK]) {
    for (int t = 0; t < 16; t++)
        w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 | (uint32_t)block[4 * t + 2] << 8 | block[4 * t + 3];
    for (int t = 16; t < ROUNDS; t++) {
        const uint32_t a = w[t - 15], b = w[t - 2];
        w[t] = w[t - 16] + (turn_right(a, 7) ^ turn_right(a, 18) ^ a >> 3) + w[t - 7] +
               (turn_right(b, 17) ^ turn_right(b, 19) ^ b >> 10);
    }
}

static void add_block(uint32_t h[8], const unsigned char block[BLOCK]) {
    uint32_t w[ROUNDS], v[8];
    extend(w, block);
    memcpy(v, h, sizeof v);
    for (int t = 0; t < ROUNDS; t++) {
        const uint32_t a = v[0], e = v[4];
        const uint32_t one =
            v[7] + (turn_right(e, 6) ^ turn_right(e, 11) ^ turn_right(e, 25)) + ((e & v[5]) ^ (~e & v[6])) + constants[t] + w[t];
        const uint32_t two = (turn_right(a, 2) ^ turn_right(a, 13) ^ turn_right(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += one;
        v[0] = one + two;
    }
    for (int i = 0; i < 8; i++) h[i] += v[i];
}

/* The last bytes, a bit 1, zeros, and the number of bits. */
static void add_end(uint32_t h[8], const unsigned char *rest, size_t n, size_t size) {
    unsigned char end[2 * BLOCK] = {0};
    const size_t length = n + 9 > BLOCK ? 2 * BLOCK : BLOCK;
    if (n) memcpy(end, rest, n);
    end[n] = 0x80;
    for (size_t i = 0; i < 8; i++) end[length - 1 - i] = (unsigned char)((uint64_t)size * 8 >> 8 * i);
    for (size_t at = 0; at < length; at += BLOCK) add_block(h, end + at);
}

void rein_sha256(unsigned char digest[REIN_SHA256_BYTES], const void *data, size_t size) {
    uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const unsigned char *bytes = data;
    size_t at = 0;
    for (; size - at >= BLOCK; at += BLOCK) add_block(h, bytes + at);
    add_end(h, size > at ? bytes + at : NULL, size - at, size);
    for (size_t i = 0; i < REIN_SHA256_BYTES; i++) digest[i] = (unsigned char)(h[i / 4] >> (24 - 8 * (i % 4)));
}

const char *rein_sha256_base64(char to[REIN_SHA256_BASE64], const void *data, size_t size) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char digest[REIN_SHA256_BYTES + 1] = {0};
    rein_sha256(digest, data, size);
    for (size_t i = 0; i < 11; i++) {
        const uint32_t three = (uint32_t)digest[3 * i] << 16 | (uint32_t)digest[3 * i + 1] << 8 | digest[3 * i + 2];
        for (size_t k = 0; k < 4; k++) to[4 * i + k] = digits[three >> (18 - 6 * k) & 63];
    }
    to[43] = '='; /* 32 bytes are 42 digits and two thirds of one */
    to[44] = 0;
    return to;
}
