/* trajectory.h - what a policy was asked, what it wrote and how good that was: one type from the sampler to the trainer to the disk.
 *
 * A group is one prompt with several trajectories; a trajectory is one attempt, with its reward; a history is one sequence of tokens of it.
 * The sampler fills groups (rollout.h), judges reward them, the trainer learns from them and writes them (train.h). Files of groups give
 * the same type. A caller may also fill groups by hand: 0 means not known unless a comment says otherwise. */
#ifndef REIN_TRAJECTORY_H
#define REIN_TRAJECTORY_H

#include "rein/base.h"
#include "rein/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A prompt and its reference answer. {0} is empty. Texts end with 0 and are UTF-8. */
typedef struct rein_example {
    const char *prompt;           /* a plain text; NULL: messages are given */
    const rein_message *messages; /* [n_messages] a chat */
    size_t n_messages;
    const char *answer; /* what verifiers compare with; NULL: none */
    int64_t budget;     /* tokens; -1: not set */
    const char *json;   /* the whole JSON object, as programs are given it; NULL: none */
    char *memory;       /* from malloc: everything above points into it; NULL: it points to memory of the caller */
    int needs_template; /* 1: messages have more than a role and a content, or there are tools: `json` has them */
} rein_example;

/* Frees an example and makes it {0}. Harmless on {0}. */
REIN_API void rein_example_free(rein_example *example);

/* How a completion ended. The values are part of the ABI: never renumbered. */
typedef enum rein_finish {
    REIN_FINISH_NONE = 0,       /* not yet, or not known */
    REIN_FINISH_END_TOKEN = 1,  /* by one of end_ids */
    REIN_FINISH_STOP_TEXT = 2,  /* by one of stops */
    REIN_FINISH_MAX_TOKENS = 3, /* at max_tokens */
    REIN_FINISH_CONTEXT = 4     /* at the model's last position */
} rein_finish;

/* One sequence of tokens: what the model saw and what it wrote. */
typedef struct rein_history {
    size_t n;
    int32_t *ids;             /* [n] */
    uint8_t *mask;            /* [n] 1 where the policy sampled the token, so that it trains; never the first token */
    float *log_probs;         /* [n] of the policy that sampled, where mask is 1; NaN where that is not known, and elsewhere */
    float *values;            /* [n] of a critic, or NULL */
    float *sampler_log_probs; /* [n] of the sampler, where top_k, top_p or min_p made it differ from the policy; or NULL */
    float *advantages;        /* [n] that the loss used, 0 where nothing trains (keep_advantages of rein_train_options); or NULL */
    rein_text text;           /* what the sampled tokens say, without stops and special tokens */
    size_t *text_ends;        /* [n] bytes of `text` that were certain after each token; NULL: there is no text */
    uint64_t activation_key;  /* of its rows in the activation cache (rein_sampled); 0: none. It is not written */
} rein_history;

/* The log-probs under which the tokens were drawn: the sampler's, where they differ from the policy's. */
REIN_API const float *rein_history_recorded(const rein_history *history);

typedef struct rein_named_number {
    const char *name;
    double value;
} rein_named_number;

typedef struct rein_trajectory {
    rein_history *histories; /* [n_histories], at least one; they share the reward */
    size_t n_histories;
    double reward;
    int64_t policy_step;        /* the step of the policy that sampled it; -1: not known */
    int truncated;              /* cut off at a limit of length, not ended by the model */
    int64_t budget;             /* tokens; -1: not set */
    rein_finish finish;         /* of what was sampled here */
    rein_named_number *scores;  /* [n_scores] what each judge gave, before weighting, in the order of the judges */
    size_t n_scores;            /* 0: no judge, or not known */
    rein_named_number *metrics; /* [n_metrics] what else was measured (rein_trajectory_set_metric) */
    size_t n_metrics;
    int from_messages; /* 1: the tokens were made of messages, which `json` has */
    char *json;        /* a JSON object: what its file says besides the fields above; NULL: nothing */
} rein_trajectory;

typedef struct rein_group {
    rein_trajectory *trajectories; /* of one prompt; [n], at least one */
    size_t n;
    rein_example example; /* what was asked; {0}: not known, as in groups of a file */
    char *json;           /* a JSON object: what its file says besides the trajectories; NULL: nothing */
} rein_group;

/* {0} is empty. Everything belongs to it, in memory from malloc. Any number of threads may read one at the same time. */
typedef struct rein_groups {
    rein_group *groups;
    size_t n, capacity;
} rein_groups;

/* Frees groups and makes them {0}. Harmless on {0}. */
REIN_API void rein_groups_free(rein_groups *groups);

/* Takes *group over, as the last of the groups, and makes it {0}; on failure (REIN_ENOMEM) it stays the caller's. */
REIN_API rein_status rein_groups_append(rein_groups *groups, rein_group *group, rein_error *err);

/* Tokens that the policy wrote: those that train, of all histories. Thread-safe, as is the next. */
REIN_API size_t rein_trajectory_length(const rein_trajectory *trajectory);

/* 1 if the first judge gave 1 or more; without judges, if the reward is 1 or more. */
REIN_API int rein_trajectory_is_right(const rein_trajectory *trajectory);

/* Sets a metric, which is written under metrics.NAME; the name is copied. On failure everything is as it was. */
REIN_API rein_status rein_trajectory_set_metric(rein_trajectory *trajectory, const char *name, double value, rein_error *err);

#ifdef __cplusplus
}
#endif
#endif
