/* check.h - the checks of numbers that several operations share. Private. */
#ifndef REIN_OBJECTIVE_CHECK_H
#define REIN_OBJECTIVE_CHECK_H

#include <math.h>

#include "rein/objective.h"

/* index: its place in an array, or −1. */
static inline rein_status rein_check_finite(double x, const char *name, int64_t index, rein_error *err) {
    return isfinite(x) ? REIN_OK : rein_fail_at(err, REIN_EINVAL, name, index, "is not a finite number");
}

/* Each of n numbers; x may be NULL. */
static inline rein_status rein_check_numbers(const void *x, rein_dtype type, size_t n, const char *name, rein_error *err) {
    rein_status status = REIN_OK;
    for (size_t i = 0; x && status == REIN_OK && i < n; i++)
        status =
            rein_check_finite(type == REIN_F32 ? (double)((const float *)x)[i] : ((const double *)x)[i], name, (int64_t)i, err);
    return status;
}

static inline rein_status rein_check_coefficient(double x, const char *name, rein_error *err) {
    return x >= 0 && isfinite(x) ? REIN_OK : rein_fail_at(err, REIN_EINVAL, name, -1, "is %g: it must be 0 or more", x);
}

/* Lengths or budgets; x may be NULL. */
static inline rein_status rein_check_lengths(const int64_t *x, size_t n, const char *name, rein_error *err) {
    for (size_t i = 0; x && i < n; i++)
        if (x[i] < 0) return rein_fail_at(err, REIN_EINVAL, name, (int64_t)i, "is %lld: it must be 0 or more", (long long)x[i]);
    return REIN_OK;
}

/* Offsets of n rows start at 0 and never fall. */
static inline rein_status rein_check_offsets(const size_t *offsets, size_t n, const char *name, rein_error *err) {
    if (!offsets) return rein_fail_at(err, REIN_EINVAL, name, -1, "is missing");
    if (offsets[0] != 0) return rein_fail_at(err, REIN_EINVAL, name, 0, "is %zu: offsets start at 0", offsets[0]);
    for (size_t i = 0; i < n; i++)
        if (offsets[i + 1] < offsets[i])
            return rein_fail_at(err, REIN_EINVAL, name, (int64_t)(i + 1), "is %zu: offsets never fall, and the one before is %zu",
                                offsets[i + 1], offsets[i]);
    return REIN_OK;
}

#endif
