/* explog.c - exp and log over arrays; compiled per type and instruction set. */
#include "explog.h"
#include "kernels.h"

void KERNEL(rein_exp)(real *y, const real *x, size_t n) {
    for (size_t i = 0; i < n; i += LANES) store(y + i, exp_lanes(load(x + i, n - i)), n - i);
}

void KERNEL(rein_log)(real *y, const real *x, size_t n) {
    for (size_t i = 0; i < n; i += LANES) store(y + i, log_lanes(load(x + i, n - i)), n - i);
}
