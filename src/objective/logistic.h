/* logistic.h - the logistic function and its logarithm, without overflow. Private. */
#ifndef REIN_OBJECTIVE_LOGISTIC_H
#define REIN_OBJECTIVE_LOGISTIC_H

#include <math.h>

/* σ(x) = 1/(1 + e^−x). e^−|x| cannot overflow. */
static inline double rein_logistic(double x) {
    const double small = exp(-fabs(x));
    return (x >= 0 ? 1 : small) / (1 + small);
}

/* −log σ(x) = log(1 + e^−x) = max(0, −x) + log(1 + e^−|x|); its derivative is −σ(−x). */
static inline double rein_minus_log_logistic(double x) { return fmax(0, -x) + log1p(exp(-fabs(x))); }

#endif
