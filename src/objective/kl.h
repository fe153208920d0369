/* kl.h - estimators of KL(π‖ref) from one sampled token, x = ref − lp (Schulman 2020, "Approximating KL divergence").
 *
 *     k1 = −x        k2 = x²/2        k3 = e^x − 1 − x        abs = |x|        is-k1 = ρ·k1        is-k3 = ρ·k3, through ρ
 *
 * Which of their gradients is the gradient of the KL is another matter: docs/kl.md, and rein explain. */
#ifndef REIN_OBJECTIVE_KL_H
#define REIN_OBJECTIVE_KL_H

#include "../kernel/explog.h"
#include "options.h"

typedef struct divergence {
    V value, by_log_prob; /* k and dk/dlp */
} divergence;

/* k3 and its derivative in x: e^x − 1 − x and e^x − 1 = x + k3, neither of which cancels near 0. */
INLINE divergence k3_of(V x) {
    V excess;
    (void)exp_excess(x, &excess);
    return (divergence){excess, x + excess};
}

INLINE divergence kl_estimate(rein_kl_estimator which, rein_kl_direction direction, V log_prob, V ref, V ratio, V limit) {
    V x = clamp(ref - log_prob, -limit, limit);
    M inside = magnitude(ref - log_prob) <= limit;
    divergence k;
    if (which == REIN_K1 || which == REIN_IS_K1) {
        k = (divergence){-x, splat(1)};
    } else if (which == REIN_K2) {
        k = (divergence){x * x * (real)0.5, -x};
    } else if (which == REIN_KL_ABS) {
        k = (divergence){magnitude(x), pick(x > 0, splat(-1), pick(x < 0, splat(1), splat(0)))};
    } else if (direction == REIN_CURRENT_OVER_REF) { /* e^{−x} − 1 + x */
        k = k3_of(-x);
    } else {
        k = k3_of(x);
        k.by_log_prob = -k.by_log_prob;
    }
    k.by_log_prob = keep(inside, k.by_log_prob); /* kl_clamp: constant outside */
    if (which == REIN_IS_K1 || which == REIN_IS_K3) k = (divergence){ratio * k.value, ratio * (k.value + k.by_log_prob)};
    return k;
}

#endif
