/* require.h - what a fuzz target claims. A claim that does not hold ends the program, and libFuzzer keeps the input. */
#ifndef REIN_TESTS_FUZZ_REQUIRE_H
#define REIN_TESTS_FUZZ_REQUIRE_H

#include <stdio.h>
#include <stdlib.h>

/* what says what is wrong, shown what it was: a message, a name or "". */
static inline void require(int condition, const char *what, const char *shown) {
    if (condition) return;
    fprintf(stderr, "fuzz: %s: %s\n", what, shown);
    abort();
}

#endif
