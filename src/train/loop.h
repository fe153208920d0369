/* loop.h - inside of the loop, for loop.c (its beginning and its steps), loop_check.c, loop_groups.c and loop_evaluate.c. Private. */
#ifndef REIN_TRAIN_LOOP_H
#define REIN_TRAIN_LOOP_H

#include "session.h"
#include "task_runner.h"

struct rein_loop {
    rein_session *session;
    rein_task_runner *runner;
    rein_groups ptx;
    rein_loop_options options;
    /* The step at work. */
    rein_rollout *rounds; /* [n_rounds] */
    size_t n_rounds;
    rein_groups groups;
    char (*judge_names)[80]; /* "rewards/exact/mean" */
    size_t sampled_prompts;
    /* Evaluations. */
    rein_loop_evaluation first, last;
    json_t *evaluations;        /* array of the lines of evaluations.jsonl */
    rein_rollout before, after; /* the sampled ones */
    double max_gap;             /* of all steps; NaN: none measured */
    int stopped;
};

/* Everything that can be said of the settings before a model is opened. */
rein_status rein_loop_check(const rein_settings *settings, rein_error *err);

/* Whether stop_at holds for a metric of this name and value. */
int rein_stop_holds(const char *stop_at, const char *name, double value);

/* What a rollout says as trajectory groups; appended. `only` [n] says which of its prompts, NULL: all. truncating: the recorded log-probs
 * are the sampler's, not the policy's. */
rein_status rein_loop_groups(rein_groups *groups, const rein_rollout *rollout, const unsigned char *only, int64_t step,
                             int truncating, const rein_reward *reward, rein_error *err);

/* "advantages" of every trajectory: [tokens of all histories]. */
rein_status rein_loop_put_advantages(rein_groups *groups, const float *advantages, rein_error *err);

/* Evaluates the policy as that of step `step`; rows [n] are what there is to say of it. */
rein_status rein_loop_evaluate_as(rein_metric_row *rows, size_t *n, rein_loop *loop, int64_t step, rein_error *err);

/* Reads what earlier sessions of the run evaluated, up to its step. */
rein_status rein_loop_recall(rein_loop *loop, rein_error *err);

#endif
