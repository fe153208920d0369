/* step_metrics.c - how each metric of several passes combines. */
#include "step_metrics.h"

#include <stddef.h>
#include <string.h>

/* MEAN: over all passes. COUNT: the sum over the passes of the first epoch, since later ones see the same groups again. */
typedef enum combination { MEAN, COUNT, LEAST, GREATEST } combination;

static const struct {
    size_t offset;
    combination how;
} table[] = {
    {offsetof(rein_metrics, reward), MEAN},
    {offsetof(rein_metrics, reward_std), MEAN},
    {offsetof(rein_metrics, frac_reward_zero_std), MEAN},
    {offsetof(rein_metrics, length_mean), MEAN},
    {offsetof(rein_metrics, length_max), GREATEST},
    {offsetof(rein_metrics, share_over_budget), MEAN},
    {offsetof(rein_metrics, clip_low), MEAN},
    {offsetof(rein_metrics, clip_high), MEAN},
    {offsetof(rein_metrics, ratio_mean), MEAN},
    {offsetof(rein_metrics, ratio_min), LEAST},
    {offsetof(rein_metrics, ratio_max), GREATEST},
    {offsetof(rein_metrics, ratio_p99), MEAN},
    {offsetof(rein_metrics, ess), MEAN},
    {offsetof(rein_metrics, kl_old_k1), MEAN},
    {offsetof(rein_metrics, kl_old_k3), MEAN},
    {offsetof(rein_metrics, kl_ref_k1), MEAN},
    {offsetof(rein_metrics, kl_ref_k3), MEAN},
    {offsetof(rein_metrics, entropy), MEAN},
    {offsetof(rein_metrics, surrogate_loss), MEAN},
    {offsetof(rein_metrics, kl_loss), MEAN},
    {offsetof(rein_metrics, entropy_loss), MEAN},
    {offsetof(rein_metrics, tokens), COUNT},
    {offsetof(rein_metrics, trained_tokens), COUNT},
    {offsetof(rein_metrics, sequences), COUNT},
    {offsetof(rein_metrics, trained_sequences), COUNT},
    {offsetof(rein_metrics, groups), COUNT},
};
enum { N_METRICS = sizeof table / sizeof *table };
_Static_assert(N_METRICS == sizeof(rein_metrics) / sizeof(double), "every metric has a row");

static double get(const rein_metrics *metrics, size_t i) {
    double x;
    memcpy(&x, (const char *)metrics + table[i].offset, sizeof x);
    return x;
}

static void set(rein_metrics *metrics, size_t i, double x) { memcpy((char *)metrics + table[i].offset, &x, sizeof x); }

void rein_metrics_add(rein_metrics *sum, const rein_metrics *pass, int first, int first_epoch) {
    for (size_t i = 0; i < N_METRICS; i++) {
        const double x = get(pass, i), before = get(sum, i);
        switch (table[i].how) {
        case MEAN: set(sum, i, before + x); break;
        case COUNT: set(sum, i, first_epoch ? before + x : before); break;
        case LEAST: set(sum, i, first || x < before ? x : before); break;
        case GREATEST: set(sum, i, first || x > before ? x : before); break;
        }
    }
}

void rein_metrics_finish(rein_metrics *sum, size_t passes) {
    for (size_t i = 0; i < N_METRICS; i++)
        if (table[i].how == MEAN) set(sum, i, get(sum, i) / (double)passes);
}
