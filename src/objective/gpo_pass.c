/* gpo_pass.c - the sums and gradients of the group policy objective on lanes; compiled per type and instruction set.
 *
 *     J = mean min(ρA, clip(ρ, 1−ε, 1+ε)A) − β·mean ρ(q − log q − 1),   q = π/π_ref or π_ref/π
 *
 * With x = log q the bracket of the KL term is e^x − 1 − x, the k3 of the policy loss; its derivative in x is e^x − 1. */
#include "kernels.h"

#include "kl.h"
#include "surrogate.h"

rein_gpo_sums KERNEL(rein_gpo_pass)(const rein_gpo_task *g, size_t first, size_t last, int write) {
    const real *ratios = g->ratios, *advantages = g->advantages, *current = g->pi_current, *refs = g->pi_ref;
    real *by_ratios = g->grad_ratios, *by_current = g->grad_pi_current;
    const V low = splat((real)(1 - g->epsilon)), high = splat((real)(1 + g->epsilon));
    const real scale = (real)g->scale, beta = (real)g->beta, sign = g->direction == REIN_REF_OVER_CURRENT ? -1 : 1;
    rein_gpo_sums sums = {0, 0, 0};
    V steepest = splat(0);
    for (size_t i = first; i < last; i += LANES) {
        const size_t left = last - i;
        const M on = load_mask(NULL, left);
        const V one = splat(1), ratio = load(ratios + i, left), advantage = load(advantages + i, left);
        const V pi = pick(on, load(current + i, left), one), ref = pick(on, load(refs + i, left), one);
        const V above_one = (pi - ref) / ref; /* near 1 the difference of the logarithms would cancel */
        const M near = magnitude(above_one) < (real)0.5;
        const divergence k3 = k3_of(sign * pick(near, log1p_lanes(above_one), log_lanes(pi) - log_lanes(ref)));
        const region trusted = trust_region(advantage, low, high);
        const V limited = clamp(ratio, trusted.low, trusted.high), objective = limited * advantage;
        const V by_ratio = scale * (keep(limited == ratio, advantage) - beta * k3.value);
        const V by_pi = -scale * beta * ratio * sign * k3.by_log_prob / pi;
        sums.surrogate += add_lanes(keep(on, objective));
        sums.kl += add_lanes(keep(on, ratio * k3.value));
        const M numbers = (by_ratio == by_ratio) & (by_pi == by_pi); /* a maximum would ignore a NaN */
        steepest = pick(numbers, most(most(magnitude(by_ratio), magnitude(by_pi)), steepest), splat((real)HUGE_VAL));
        if (write && by_ratios) store(by_ratios + i, by_ratio, left);
        if (write && by_current) store(by_current + i, by_pi, left);
    }
    for (int l = 0; l < LANES; l++) sums.steepest = fmax(sums.steepest, (double)steepest[l]);
    return sums;
}
