/* kl.h - estimators of KL(π‖ref) from one sampled token, x = ref − lp (Schulman 2020, "Approximating KL divergence").
 *
 *     k1 = −x        k2 = x²/2        k3 = e^x − 1 − x        abs = |x|        is-k1 = ρ·k1        is-k3 = ρ·k3, through ρ
 *
 * docs/kl.md and `rein explain` say which of their gradients is the gradient of the KL. */
#ifndef REIN_OBJECTIVE_KL_H
#define REIN_OBJECTIVE_KL_H

#include "../kernel/explog.h"
#include "options.h"

/* e^x, e^x − 1 and e^x − 1 − x without cancellation. */
typedef struct exponential {
    V value, change, excess; /* e^x, e^x − 1, e^x − 1 − x */
} exponential;

/* Most log-ratios are near 0: a vector of them needs only a polynomial. */
INLINE exponential exponential_of(V x) {
    const V square = x * x;
    exponential e;
    if (__builtin_expect(all(square <= EXP_NEAR * EXP_NEAR), 1)) {
        const near_terms terms = near_terms_of();
        const V curve = near_curve(x, square, &terms);
        e.excess = square * curve;
        e.change = fmadd(square, curve, x);
        e.value = e.change + 1;
    } else {
        e.value = exp_excess(x, &e.excess);
        e.change =
            pick(magnitude(x) < (real)0.25, x + e.excess, e.value - 1); /* the first cancels far below 0, the second near 0 */
    }
    return e;
}

typedef struct divergence {
    V value, by_log_prob; /* k and dk/dlp */
} divergence;

/* e^x − 1 − x and its derivative in x, e^x − 1 = x + (e^x − 1 − x). Neither cancels near 0. */
INLINE divergence k3_of(V x) {
    V excess;
    (void)exp_excess(x, &excess);
    return (divergence){excess, x + excess};
}

/* Which term the loss has. Bytes: a composition is compared as one piece of memory. */
enum { NO_KL = 0xff };
typedef struct kl_form {
    uint8_t estimator; /* a rein_kl_estimator, or NO_KL */
    uint8_t reversed;  /* k3 of −x: kl_direction current_over_ref */
    uint8_t clamped;   /* x stays within ±kl_clamp; the estimate is constant outside */
} kl_form;

/* `of_x` is the exponential of x, which the caller needs for a metric too. */
INLINE divergence kl_estimate(const kl_form form, V x, exponential of_x, V ratio, V limit) {
    const int estimator = form.estimator;
    const M inside = magnitude(x) <= limit;
    divergence k;
    if (form.clamped) x = clamp(x, -limit, limit), of_x = exponential_of(x);
    if (estimator == REIN_K1 || estimator == REIN_IS_K1) {
        k = (divergence){-x, splat(1)};
    } else if (estimator == REIN_K2) {
        k = (divergence){x * x * (real)0.5, -x};
    } else if (estimator == REIN_KL_ABS) {
        k = (divergence){magnitude(x), pick(x > 0, splat(-1), pick(x < 0, splat(1), splat(0)))};
    } else if (form.reversed) {
        const exponential e = exponential_of(-x);
        k = (divergence){e.excess, e.change};
    } else {
        k = (divergence){of_x.excess, -of_x.change};
    }
    if (form.clamped) k.by_log_prob = keep(inside, k.by_log_prob);
    if (estimator == REIN_IS_K1 || estimator == REIN_IS_K3) k = (divergence){ratio * k.value, ratio * (k.value + k.by_log_prob)};
    return k;
}

#endif
