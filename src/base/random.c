/* random.c - Philox 4x64-10, and weights drawn from it. The constants are those of the paper's reference code (Random123). */
#include "random.h"

#include <math.h>

#include "pool.h"

__extension__ typedef unsigned __int128 wide; /* ISO C has no name for a product of two 64-bit numbers */

enum { ROUNDS = 10, CHUNK = 4096 }; /* a chunk is a whole number of blocks */

static const uint64_t MULTIPLIERS[2] = {0xd2e7470ee14c6c93u, 0xca5a826395121157u};
static const uint64_t KEY_STEPS[2] = {0x9e3779b97f4a7c15u, 0xbb67ae8584caa73bu}; /* golden ratio; √3 − 1 */
static const double TURN = 6.283185307179586476925286766559;

void rein_random_block(uint64_t bits[4], uint64_t seed, uint64_t stream, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    uint64_t key[2] = {seed, stream};
    for (int round = 0; round < ROUNDS; round++) {
        const wide left = (wide)MULTIPLIERS[0] * a, right = (wide)MULTIPLIERS[1] * c;
        a = (uint64_t)(right >> 64) ^ b ^ key[0];
        b = (uint64_t)right;
        c = (uint64_t)(left >> 64) ^ d ^ key[1];
        d = (uint64_t)left;
        key[0] += KEY_STEPS[0], key[1] += KEY_STEPS[1];
    }
    bits[0] = a, bits[1] = b, bits[2] = c, bits[3] = d;
}

uint64_t rein_random_bits(uint64_t seed, uint64_t stream, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    uint64_t bits[4];
    rein_random_block(bits, seed, stream, a, b, c, d);
    return bits[0];
}

static double unit(uint64_t bits) { return (double)(bits >> 11) * 0x1p-53; }

double rein_random_uniform(uint64_t seed, uint64_t stream, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    return unit(rein_random_bits(seed, stream, a, b, c, d));
}

/* ---- filling arrays */
typedef void shape(double out[4], const uint64_t bits[4], double low, double size);

static void shape_uniform(double out[4], const uint64_t bits[4], double low, double size) {
    for (int i = 0; i < 4; i++) out[i] = low + size * unit(bits[i]);
}

/* Two normals from two uniforms (Box and Muller 1958): r = sqrt(−2 ln u), u in (0, 1] so that the logarithm exists. */
static void shape_normal(double out[4], const uint64_t bits[4], double low, double size) {
    (void)low;
    for (int i = 0; i < 4; i += 2) {
        const double radius = size * sqrt(-2 * log((double)((bits[i] >> 11) + 1) * 0x1p-53)), angle = TURN * unit(bits[i + 1]);
        out[i] = radius * cos(angle);
        out[i + 1] = radius * sin(angle);
    }
}

typedef struct filling {
    float *to;
    size_t n;
    double low, size;
    uint64_t seed, stream, a, b, c;
    shape *shape;
} filling;

static void fill_chunk(void *context, size_t piece, int thread) {
    const filling *f = context;
    const size_t first = piece * CHUNK, last = f->n - first < CHUNK ? f->n : first + CHUNK;
    (void)thread;
    for (size_t i = first; i < last; i += 4) {
        uint64_t bits[4];
        double out[4];
        rein_random_block(bits, f->seed, f->stream, f->a, f->b, f->c, i / 4);
        f->shape(out, bits, f->low, f->size);
        for (size_t k = 0; k < 4 && i + k < last; k++) f->to[i + k] = (float)out[k];
    }
}

static void fill(filling f, int threads) { rein_parallel(threads, f.n / CHUNK + (f.n % CHUNK != 0), fill_chunk, &f); }

void rein_random_fill_uniform(float *to, size_t n, double low, double high, uint64_t seed, uint64_t stream, uint64_t a, uint64_t b,
                              uint64_t c, int threads) {
    fill((filling){to, n, low, high - low, seed, stream, a, b, c, shape_uniform}, threads);
}

void rein_random_fill_normal(float *to, size_t n, double deviation, uint64_t seed, uint64_t stream, uint64_t a, uint64_t b,
                             uint64_t c, int threads) {
    fill((filling){to, n, 0, deviation, seed, stream, a, b, c, shape_normal}, threads);
}
