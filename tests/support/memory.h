/* memory.h - memory for test data: never NULL, filled with zeros; the test frees it. Include cmocka.h first. */
#ifndef REIN_TESTS_SUPPORT_MEMORY_H
#define REIN_TESTS_SUPPORT_MEMORY_H

#include <stdlib.h>

static inline void *some(size_t n, size_t size) {
    void *memory = calloc(n + 1, size);
    assert_non_null(memory);
    return memory;
}

static inline float *floats(size_t n) { return some(n, sizeof(float)); }

#endif
