/* rollout.h - sampling a part of a batch, for processes that share one. Private; rein/rollout.h has the rest. */
#ifndef REIN_ROLLOUT_ROLLOUT_H
#define REIN_ROLLOUT_ROLLOUT_H

#include "rein/rollout.h"

/* rein_rollout_sample of some of the prompts: those at places [n], ascending, of options->indices (NULL: all of them). They get the completions
 * that they would get beside the others. */
rein_status rein_rollout_sample_some(rein_groups *groups, const rein_rollout_options *options, const size_t *places, size_t n,
                                     rein_error *err);

#endif
