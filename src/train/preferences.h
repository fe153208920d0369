/* preferences.h - a loss over preferences in a pass of the trainer: from the log-probs of tokens to the gradient of each token. Private.
 *
 * A group is a pair, the chosen trajectory and then the rejected one; for kto it is any number of completions of one prompt, desirable where
 * the reward is above 0. The gradient of a group depends on its own log-probs alone (and for kto on the KL of the options), so it is known
 * as soon as the group has gone forward: a pass needs no other pass before it. */
#ifndef REIN_TRAIN_PREFERENCES_H
#define REIN_TRAIN_PREFERENCES_H

#include "packing.h"

/* REIN_EINVAL unless the groups are what the loss of the pass takes. */
rein_status rein_preferences_check(const rein_groups *groups, const rein_pass_options *options, rein_error *err);

/* 1 if the loss needs the log-probs of a reference. */
int rein_preference_uses_reference(const rein_preference_options *options);

/* The gradient of the loss of the step by the log-probs of a group: dlog_probs of its trained tokens become dL/ds. log_probs and reference
 * [n_tokens] of the step; reference is not read where the loss has none. */
rein_status rein_preferences_gradient(float *dlog_probs, const rein_packing *packing, size_t group, const float *log_probs,
                                      const float *reference, const rein_pass_options *options, rein_error *err);

/* The loss of the step and its metrics. */
rein_status rein_preferences_measure(double *loss, rein_preference_metrics *metrics, const rein_packing *packing,
                                     const float *log_probs, const float *reference, const rein_pass_options *options,
                                     rein_arena *arena, rein_error *err);

#endif
