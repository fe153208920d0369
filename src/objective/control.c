/* control.c - controllers that adapt a coefficient: dual ascent on the mean length, and the adaptive entropy coefficient. */
#include <math.h>

#include "rein/objective.h"

/* λ ← max(0, λ + η·(mean L − target)) */
rein_status rein_budget_control(double *multiplier, const int64_t *lengths, size_t n, double target_length, double step_size,
                                rein_error *err) {
    if (n == 0) return rein_fail_at(err, REIN_EINVAL, "response_lengths", -1, "is empty: at least one is needed");
    if (!(*multiplier >= 0) || !isfinite(*multiplier))
        return rein_fail_at(err, REIN_EINVAL, "multiplier", -1, "is %g: it must be 0 or more", *multiplier);
    if (!(target_length >= 0) || !isfinite(target_length))
        return rein_fail_at(err, REIN_EINVAL, "target_length", -1, "is %g: it must be 0 or more", target_length);
    if (!(step_size >= 0) || !isfinite(step_size))
        return rein_fail_at(err, REIN_EINVAL, "step_size", -1, "is %g: it must be 0 or more", step_size);
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (lengths[i] < 0)
            return rein_fail_at(err, REIN_EINVAL, "response_lengths", (int64_t)i, "is %lld: a length is 0 or more",
                                (long long)lengths[i]);
        sum += (double)lengths[i];
    }
    const double next = *multiplier + step_size * (sum / (double)n - target_length);
    if (!isfinite(next)) return rein_fail(err, REIN_ERANGE, "the multiplier is not finite: step_size is too large");
    *multiplier = next > 0 ? next : 0;
    return REIN_OK;
}

/* c ← c + Δ below the target, c − Δ above it, never below 0                      Skywork-OR1, arXiv 2505.22312 */
rein_status rein_entropy_control(double *coef, double mean_entropy, double entropy_target, double step_size, rein_error *err) {
    if (!(*coef >= 0) || !isfinite(*coef)) return rein_fail_at(err, REIN_EINVAL, "coef", -1, "is %g: it must be 0 or more", *coef);
    if (!isfinite(mean_entropy)) return rein_fail_at(err, REIN_EINVAL, "mean_entropy", -1, "is not a finite number");
    if (!isfinite(entropy_target)) return rein_fail_at(err, REIN_EINVAL, "entropy_target", -1, "is not a finite number");
    if (!(step_size >= 0) || !isfinite(step_size))
        return rein_fail_at(err, REIN_EINVAL, "step_size", -1, "is %g: it must be 0 or more", step_size);
    const double next = *coef + (mean_entropy <= entropy_target ? step_size : -step_size);
    *coef = next > 0 ? next : 0;
    return REIN_OK;
}
