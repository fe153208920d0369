/* check.h - the checks of numbers that several operations share. Private. */
#ifndef REIN_OBJECTIVE_CHECK_H
#define REIN_OBJECTIVE_CHECK_H

#include <math.h>

#include "rein/base.h"

/* index: its place in an array, or −1. */
static inline rein_status rein_check_finite(double x, const char *name, int64_t index, rein_error *err) {
    return isfinite(x) ? REIN_OK : rein_fail_at(err, REIN_EINVAL, name, index, "is not a finite number");
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

#endif
