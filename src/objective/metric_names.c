/* metric_names.c - the fields of rein_metrics by name, for programs that do not compile against its declaration. */
#include "rein/objective.h"

#define METRICS(X)                                                                                                            \
    X(reward)                                                                                                                 \
    X(reward_std)                                                                                                             \
    X(frac_reward_zero_std)                                                                                                   \
    X(length_mean)                                                                                                            \
    X(length_max) X(share_over_budget) X(clip_low) X(clip_high) X(ratio_mean) X(ratio_min) X(ratio_max) X(ratio_p99) X(ess)   \
        X(kl_old_k1) X(kl_old_k3) X(kl_ref_k1) X(kl_ref_k3) X(entropy) X(surrogate_loss) X(kl_loss) X(entropy_loss) X(tokens) \
            X(trained_tokens) X(sequences) X(trained_sequences) X(groups)

#define PLACE(name) PLACE_OF_##name,
enum { METRICS(PLACE) COUNT };
#define IN_ORDER(name) \
    _Static_assert(offsetof(rein_metrics, name) == PLACE_OF_##name * sizeof(double), #name " is at the place of its name");
METRICS(IN_ORDER)
_Static_assert(sizeof(rein_metrics) == COUNT * sizeof(double), "every metric has a name");

#define NAME(name) #name,
static const char *const names[] = {METRICS(NAME)};

const char *rein_metric_name(size_t i) { return i < COUNT ? names[i] : NULL; }
