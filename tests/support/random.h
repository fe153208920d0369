/* random.h - random numbers for test cases: splitmix64 (Steele, Lea, Flood 2014). A test sets stream to repeat a sequence. */
#ifndef REIN_TESTS_SUPPORT_RANDOM_H
#define REIN_TESTS_SUPPORT_RANDOM_H

#include <stddef.h>
#include <stdint.h>

static uint64_t stream = 1;

static inline uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint64_t random_bits(void) { return next_random(&stream); }
static inline size_t below(size_t n) { return (size_t)(random_bits() % n); }
static inline double uniform(double low, double high) { return low + (high - low) * ((double)(random_bits() >> 11) * 0x1p-53); }

#endif
