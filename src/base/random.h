/* random.h - randomness with an address. Private.
 *
 * A random number is a function of where it is needed, not of what was drawn before it: Philox 4x64-10 (Salmon, Moraes, Dror and Shaw,
 * "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011), whose key is (seed, stream) and whose counter is the address. So neither the
 * order of the work, nor how it was batched, nor the number of threads can change a sample. Every function here is pure, or fills the
 * caller's array, and is thread-safe. */
#ifndef REIN_BASE_RANDOM_H
#define REIN_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* What the numbers are for, and what their address (a, b, c, d) means. A seed's results depend on these values: new ones are added, none is
 * renumbered. */
enum rein_random_stream {
    REIN_RANDOM_SAMPLING = 0, /* (step, prompt, sample, token) */
    REIN_RANDOM_ADAPTER = 1,  /* (module, matrix, 0, element / 4): the fills below */
    REIN_RANDOM_SHUFFLE = 2,  /* (epoch, position, 0, 0) */
    REIN_RANDOM_SPARE = 3,    /* uses without their own stream: tests */
    REIN_RANDOM_TASK = 4,     /* (0: asking, 1: demonstrating; index; attempt, and the split when asking; number of the draw) */
    REIN_RANDOM_INIT = 5,     /* (tensor, 0, 0, element / 4) */
    REIN_RANDOM_MIXTURE = 7,  /* (step, 0, 0, 0): own samples or given data */
    REIN_RANDOM_SCORE = 6     /* (0, 0, 0, element / 4): a new score head */
};

/* The four outputs at (a, b, c, d). */
void rein_random_block(uint64_t bits[4], uint64_t seed, uint64_t stream, uint64_t a, uint64_t b, uint64_t c, uint64_t d);

/* The first of them. */
uint64_t rein_random_bits(uint64_t seed, uint64_t stream, uint64_t a, uint64_t b, uint64_t c, uint64_t d);

/* Its upper 53 bits as a number in [0, 1): a multiple of 2^-53, each with the same probability. */
double rein_random_uniform(uint64_t seed, uint64_t stream, uint64_t a, uint64_t b, uint64_t c, uint64_t d);

/* to[i], i < n, comes from output i % 4 at (a, b, c, i / 4) alone: a shorter array is the beginning of a longer one, and the number of
 * threads (at least 1) changes nothing.
 * Uniform: low + (high − low)·u, in double, rounded to float; so `high` itself can occur. */
void rein_random_fill_uniform(float *to, size_t n, double low, double high, uint64_t seed, uint64_t stream, uint64_t a, uint64_t b,
                              uint64_t c, int threads);

/* Normal with mean 0, by Box and Muller in double, rounded to float: outputs 0 and 1 give elements 0 and 1, outputs 2 and 3 the others.
 * No element is further out than 8.6 deviations. The bits are those of the C library's log, cos and sin. */
void rein_random_fill_normal(float *to, size_t n, double deviation, uint64_t seed, uint64_t stream, uint64_t a, uint64_t b,
                             uint64_t c, int threads);

#endif
