/* loop.h - inside of the loop, for loop.c (how it opens, and its steps), loop_check.c, loop_plan.c, loop_sample.c
 * and loop_evaluate.c. Private. */
#ifndef REIN_TRAIN_LOOP_H
#define REIN_TRAIN_LOOP_H

#include "session.h"
#include "task_runner.h"

struct rein_loop {
    rein_session *session;
    rein_task_runner *runner;
    rein_groups ptx;
    rein_loop_options options;
    char (*judge_names)[80]; /* "rewards/exact/mean" */
    /* Evaluations. */
    int evaluated;                    /* 1: `first` and `last` are set */
    rein_loop_evaluation first, last; /* of the run */
    json_t *evaluations;              /* array of the lines of evaluations.jsonl */
    rein_groups before, after;        /* the sampled ones */
    double max_gap;                   /* of all steps; NaN: none measured */
    int stopped;
};

/* Everything that can be checked of the settings before a model is opened. */
rein_status rein_loop_check(const rein_settings *settings, rein_error *err);

/* REIN_EINVAL if a setting that evaluations depend on is not what the evaluations of the run were made with. */
rein_status rein_loop_check_comparable(const rein_loop *loop, rein_error *err);

/* Whether stop_at holds for a metric of this name and value. */
int rein_stop_holds(const char *stop_at, const char *name, double value);

/* ---- loop_sample.c: what a step trains on. With dynamic sampling it is sampled in several rounds. {0} is empty. */
typedef struct rein_step_batch {
    rein_groups sampled; /* all of it, round after round */
    size_t rounds;
    rein_groups chosen; /* what trains; borrowed from `sampled` */
} rein_step_batch;

void rein_step_batch_free(rein_step_batch *batch);

/* 1 if a (further) round is needed. */
int rein_step_batch_wants_more(const rein_step_batch *batch, const rein_settings *settings);

/* The places [prompts] in the task of the examples of a round of the next step. */
rein_status rein_loop_places(uint64_t *indices, const rein_loop *loop, size_t round, rein_error *err);

/* Samples and rewards the next round; *round is its groups, borrowed from the batch. */
rein_status rein_loop_sample_round(rein_groups *round, rein_step_batch *batch, rein_loop *loop, rein_error *err);

/* Chooses which groups of a round, which are rewarded, train. */
rein_status rein_loop_choose(rein_step_batch *batch, const rein_groups *round, const rein_loop *loop, rein_error *err);

/* 1 if top_k, top_p or min_p make the sampler differ from the policy. */
int rein_settings_truncate(const rein_settings *settings);

/* ---- loop_evaluate.c */

/* Evaluates the policy as that of step `step`; rows [n] are its metrics. */
rein_status rein_loop_evaluate_as(rein_named_number *rows, size_t *n, rein_loop *loop, int64_t step, rein_error *err);

/* Reads the evaluations of earlier sessions of the run, up to its step. */
rein_status rein_loop_read_evaluations(rein_loop *loop, rein_error *err);

#endif
