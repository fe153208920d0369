/* online_pairs.h - the pairs that a step with a preference_loss trains on: of the responses to each prompt the best and the worst. Private. */
#ifndef REIN_TRAIN_ONLINE_PAIRS_H
#define REIN_TRAIN_ONLINE_PAIRS_H

#include "objective/options.h"
#include "rein/trajectory.h"

typedef struct rein_online_pairs {
    /* In the order of the groups that they were chosen of: the chosen trajectory with reward 1, then the rejected one with reward 0. What the
     * trajectories point to is borrowed. */
    rein_groups groups;
    size_t ties; /* groups without a pair */
} rein_online_pairs;

/* The rewards of a group as the objective compares them [group->n]: with what its `shape` makes of them. */
rein_status rein_shaped_rewards(double *shaped, const rein_options *objective, const rein_group *group, rein_error *err);

/* Chooses a pair of each group: the greatest and the least shaped reward, and of equal ones the first. A group is a tie, and is left out, if
 * these are equal or if both trajectories have the same tokens. Trajectories in which nothing trains are not chosen. */
rein_status rein_online_pairs_choose(rein_online_pairs *pairs, const rein_groups *groups, const rein_options *objective,
                                     rein_error *err);
void rein_online_pairs_free(rein_online_pairs *pairs);

/* The objective that measures rewards and lengths of all groups of such a step: frac_reward_zero_std is the share of equal rewards. */
rein_options rein_online_measure(const rein_options *objective);

#endif
