/* task_runner.h - inside of a task runner, for the loop. Private. */
#ifndef REIN_TRAIN_TASK_RUNNER_H
#define REIN_TRAIN_TASK_RUNNER_H

#include "settings.h"

enum { REIN_TASK_RUNNER_STOPS = 64 };

struct rein_task_runner {
    rein_settings settings;
    rein_model_info info;
    rein_tokenizer *tokenizer;
    rein_task *task, *eval_task; /* eval_task may be `task` */
    rein_split eval_split;
    rein_reward *reward;
    rein_chat chat;
    rein_prompting prompting;
    char *stops; /* cut apart at the ends of its lines */
    const char *stop_list[REIN_TASK_RUNNER_STOPS];
    size_t n_stops;
    size_t held_out; /* examples that a program is known to hold out */
    int held_out_ends;
    rein_ranks *ranks; /* that share sampling and rewarding; NULL: one */
};

/* Checks every example of a file, and the first of each split of other tasks: prompts that cannot be encoded or are too long, answers that a
 * judge needs and that are missing. */
rein_status rein_task_runner_check(rein_task_runner *runner, rein_error *err);

/* The number of prompts of an evaluation: the held-out examples, at most eval_prompts. */
rein_status rein_task_runner_held_out(size_t *n, rein_task_runner *runner, rein_error *err);

/* How examples are sampled; the caller adds which ones. */
rein_rollout_options rein_task_runner_options(rein_task_runner *runner, rein_policy policy, rein_exec exec);

/* Samples the prompts of the options, and rewards what was sampled. ranks [options->n]: which rank does that for each prompt; all get the
 * groups of all. On failure the groups are as they were. */
rein_status rein_task_runner_sample(rein_groups *groups, rein_task_runner *runner, const rein_rollout_options *options,
                                    const size_t *ranks, rein_error *err);

#endif
