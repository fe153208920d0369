/* check.h - small checks that most test programs use. Include cmocka.h first. */
#ifndef REIN_TESTS_SUPPORT_CHECK_H
#define REIN_TESTS_SUPPORT_CHECK_H

#include <stdlib.h>
#include <string.h>

#include "rein/base.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Checks that a call succeeds. The call reports its error in error_: OK(rein_file_write(path, text, size, &error_)). */
#define OK(call)                                                                         \
    do {                                                                                 \
        rein_error error_ = {0};                                                         \
        const rein_status status_ = (call);                                              \
        if (status_ != REIN_OK) fail_msg("status %d: %s", (int)status_, error_.message); \
    } while (0)

/* Checks the status of a call whose error stands in err. */
static inline void fine(rein_status status, const rein_error *err) {
    if (status != REIN_OK) fail_msg("status %d: %s", (int)status, err->message);
}

/* Checks that the message of an error contains a text. */
static inline void says(const rein_error *err, const char *part) {
    if (!strstr(err->message, part)) fail_msg("\"%s\" does not say \"%s\"", err->message, part);
}

/* REIN_TEST_FAST=1 asks for fewer cases, because the sanitizers are slow. */
static inline int quick(void) {
    const char *fast = getenv("REIN_TEST_FAST");
    return fast && *fast && *fast != '0';
}

/* REIN_TEST_SEED=N makes tests that draw at random draw differently; `make soak` sets it. */
static inline unsigned long test_seed(void) {
    const char *seed = getenv("REIN_TEST_SEED");
    return seed ? strtoul(seed, NULL, 10) : 0;
}

#endif
