/* reward_loss.c - the Bradley–Terry loss of a reward model over pairs, with a margin and a term that centres the rewards.
 *
 *     L = −log σ(r_w − r_l − m) + c·(r_w + r_l)²              e = σ(−(r_w − r_l − m))
 *     dL/dr_w = −e + 2c(r_w + r_l)        dL/dr_l = e + 2c(r_w + r_l)
 *
 * Christiano et al. 2017 and InstructGPT, arXiv 2203.02155; the margin: Llama 2, arXiv 2307.09288; the centring: arXiv 2312.09244. */
#include "check.h"
#include "logistic.h"

static rein_status check(const double *chosen, const double *rejected, const double *margins, size_t n, double centre,
                         rein_error *err) {
    if (n == 0) return rein_fail_at(err, REIN_EINVAL, "chosen_rewards", -1, "is empty: at least one pair is needed");
    rein_status status = rein_check_coefficient(centre, "center_rewards_coefficient", err);
    if (status == REIN_OK) status = rein_check_numbers(chosen, REIN_F64, n, "chosen_rewards", err);
    if (status == REIN_OK) status = rein_check_numbers(rejected, REIN_F64, n, "rejected_rewards", err);
    return status == REIN_OK ? rein_check_numbers(margins, REIN_F64, n, "margins", err) : status;
}

rein_status rein_reward_loss(double *loss, double *grad_chosen_rewards, double *grad_rejected_rewards, double *accuracy,
                             const double *chosen_rewards, const double *rejected_rewards, const double *margins, size_t n,
                             double center_rewards_coefficient, rein_error *err) {
    const double c = center_rewards_coefficient, weight = 1 / (double)n;
    const rein_status status = check(chosen_rewards, rejected_rewards, margins, n, c, err);
    if (status != REIN_OK) return status;
    double sum = 0, right = 0, steepest = 0;
    for (size_t i = 0; i < n; i++) {
        const double gap = chosen_rewards[i] - rejected_rewards[i], centre = chosen_rewards[i] + rejected_rewards[i];
        sum += rein_minus_log_logistic(gap - (margins ? margins[i] : 0)) + c * centre * centre;
        right += gap > 0;
        steepest = fmax(steepest, fabs(2 * c * centre));
    }
    if (!isfinite(sum) || !isfinite(steepest)) return rein_fail(err, REIN_ERANGE, "the loss is not finite: a reward is too large");
    for (size_t i = 0; i < n; i++) {
        const double gap = chosen_rewards[i] - rejected_rewards[i] - (margins ? margins[i] : 0);
        const double e = rein_logistic(-gap), centring = 2 * c * (chosen_rewards[i] + rejected_rewards[i]);
        if (grad_chosen_rewards) grad_chosen_rewards[i] = weight * (centring - e);
        if (grad_rejected_rewards) grad_rejected_rewards[i] = weight * (centring + e);
    }
    *loss = sum * weight;
    if (accuracy) *accuracy = right * weight;
    return REIN_OK;
}
