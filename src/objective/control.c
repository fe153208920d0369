/* control.c - controllers that adapt a coefficient: dual ascent on the mean length, the adaptive entropy coefficient, and the adaptive
 * coefficient of a KL. */
#include "check.h"
#include "rein/objective.h"

/* λ ← max(0, λ + η·(mean L − target)) */
rein_status rein_budget_control(double *multiplier, const int64_t *lengths, size_t n, double target_length, double step_size,
                                rein_error *err) {
    if (n == 0) return rein_fail_at(err, REIN_EINVAL, "response_lengths", -1, "is empty: at least one is needed");
    rein_status status = rein_check_coefficient(*multiplier, "multiplier", err);
    if (status == REIN_OK) status = rein_check_coefficient(target_length, "target_length", err);
    if (status == REIN_OK) status = rein_check_coefficient(step_size, "step_size", err);
    if (status == REIN_OK) status = rein_check_lengths(lengths, n, "response_lengths", err);
    if (status != REIN_OK) return status;
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)lengths[i];
    const double next = *multiplier + step_size * (sum / (double)n - target_length);
    if (!isfinite(next)) return rein_fail(err, REIN_ERANGE, "the multiplier is not finite: step_size is too large");
    *multiplier = next > 0 ? next : 0;
    return REIN_OK;
}

/* c ← c + Δ below the target, c − Δ above it, never below 0                      Skywork-OR1, arXiv 2505.22312 */
rein_status rein_entropy_control(double *coef, double mean_entropy, double entropy_target, double step_size, rein_error *err) {
    rein_status status = rein_check_coefficient(*coef, "coef", err);
    if (status == REIN_OK) status = rein_check_finite(mean_entropy, "mean_entropy", -1, err);
    if (status == REIN_OK) status = rein_check_finite(entropy_target, "entropy_target", -1, err);
    if (status == REIN_OK) status = rein_check_coefficient(step_size, "step_size", err);
    if (status != REIN_OK) return status;
    const double next = *coef + (mean_entropy <= entropy_target ? step_size : -step_size);
    *coef = next > 0 ? next : 0;
    return REIN_OK;
}

/* β ← β·(1 + clip(KL/target − 1, ±0.2)·n/horizon)                              Ziegler et al. 2019, arXiv 1909.08593, sec. 2.2 */
rein_status rein_kl_control(double *coef, double kl, double target, size_t n, double horizon, rein_error *err) {
    rein_status status = rein_check_coefficient(*coef, "coef", err);
    if (status == REIN_OK) status = rein_check_finite(kl, "kl", -1, err);
    if (status != REIN_OK) return status;
    if (!(target > 0 && isfinite(target)))
        return rein_fail_at(err, REIN_EINVAL, "kl_target", -1, "is %g: it must be above 0", target);
    if (!(horizon > 0.2 * (double)n && isfinite(horizon)))
        return rein_fail_at(err, REIN_EINVAL, "kl_horizon", -1,
                            "is %g: it must be above a fifth of the responses of a step, %zu, or the coefficient could become 0",
                            horizon, n);
    const double error = kl / target - 1, clipped = error < -0.2 ? -0.2 : error > 0.2 ? 0.2 : error;
    const double next = *coef * (1 + clipped * (double)n / horizon);
    if (!isfinite(next)) return rein_fail(err, REIN_ERANGE, "the coefficient of the KL is not finite");
    *coef = next;
    return REIN_OK;
}
