/* metrics.c - the fields of rein_metrics: their names, for programs that do not compile against its declaration, and how they combine. */
#include "metrics.h"

#define FIELD(name, how) \
    { #name, offsetof(rein_metrics, name), how }
const rein_metric_field rein_metric_fields[REIN_METRIC_FIELDS] = {
    FIELD(reward, REIN_MEAN),
    FIELD(reward_std, REIN_MEAN),
    FIELD(frac_reward_zero_std, REIN_MEAN),
    FIELD(length_mean, REIN_MEAN),
    FIELD(length_max, REIN_GREATEST),
    FIELD(share_over_budget, REIN_MEAN),
    FIELD(clip_low, REIN_MEAN),
    FIELD(clip_high, REIN_MEAN),
    FIELD(ratio_mean, REIN_MEAN),
    FIELD(ratio_min, REIN_LEAST),
    FIELD(ratio_max, REIN_GREATEST),
    FIELD(ratio_p99, REIN_MEAN),
    FIELD(ess, REIN_MEAN),
    FIELD(kl_old_k1, REIN_MEAN),
    FIELD(kl_old_k3, REIN_MEAN),
    FIELD(kl_ref_k1, REIN_MEAN),
    FIELD(kl_ref_k3, REIN_MEAN),
    FIELD(kl_exact, REIN_MEAN),
    FIELD(teacher_divergence, REIN_MEAN),
    FIELD(entropy, REIN_MEAN),
    FIELD(surrogate_loss, REIN_MEAN),
    FIELD(kl_loss, REIN_MEAN),
    FIELD(teacher_loss, REIN_MEAN),
    FIELD(entropy_loss, REIN_MEAN),
    FIELD(tokens, REIN_COUNT),
    FIELD(trained_tokens, REIN_COUNT),
    FIELD(sequences, REIN_COUNT),
    FIELD(trained_sequences, REIN_COUNT),
    FIELD(groups, REIN_COUNT),
};

/* The names are promised in the order of the struct: the last field closes the count. */
_Static_assert(offsetof(rein_metrics, groups) == (REIN_METRIC_FIELDS - 1) * sizeof(double), "every metric has a row");

const char *rein_metric_name(size_t i) { return i < REIN_METRIC_FIELDS ? rein_metric_fields[i].name : NULL; }
