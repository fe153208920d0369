/* episodes.h - what rollouts of one turn and of several share. Private. */
#ifndef REIN_ROLLOUT_EPISODES_H
#define REIN_ROLLOUT_EPISODES_H

#include "environment.h"
#include "model/tokenizer_parts.h"
#include "model/weights.h"
#include "rein/rollout.h"

/* The environment of a task; NULL: it is none (task.c). */
rein_environment *rein_task_environment(const rein_task *task);

/* The sampling of a rollout: end_ids gets the end tokens of the caller, and the end of a turn where the prompts are chats. */
rein_status rein_rollout_sampling(rein_sampling *sampling, int32_t end_ids[REIN_MAX_END_IDS + 1],
                                  const rein_rollout_options *options, rein_error *err);

/* rein_rollout_sample_some (rollout.h) for a task that is an environment: plays one episode for each trajectory. */
rein_status rein_rollout_play(rein_groups *groups, const rein_rollout_options *options, const size_t *places, size_t n,
                              rein_error *err);

#endif
