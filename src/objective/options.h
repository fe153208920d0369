/* options.h - the options of the policy loss as typed fields, for the library's own sources. Private.
 *
 * Programs outside of the library hold a handle and name options by text (rein/objective.h). */
#ifndef REIN_OBJECTIVE_OPTIONS_H
#define REIN_OBJECTIVE_OPTIONS_H

#include "option_list.h"
#include "rein/objective.h"

/* Each choice with the word that the command line, YAML, JSON and Python use for it. The enum and the words come from one list. */
#define REIN_SHAPES(X)                 \
    X(REIN_SHAPE_NONE, "none")         \
    X(REIN_SHAPE_BUDGET, "budget")     \
    X(REIN_SHAPE_TRUNCATE, "truncate") \
    X(REIN_SHAPE_OVERLONG, "overlong") \
    X(REIN_SHAPE_K15_LENGTH, "k1.5-length")

/* none: the shaped reward itself. given: the batch's advantages; rewards are only reported. */
#define REIN_ADVANTAGES(X)                           \
    X(REIN_ADVANTAGE_NONE, "none")                   \
    X(REIN_ADVANTAGE_GROUP_MEAN, "group-mean")       \
    X(REIN_ADVANTAGE_GROUP_STD, "group-std")         \
    X(REIN_ADVANTAGE_BATCH_STD, "batch-std")         \
    X(REIN_ADVANTAGE_LEAVE_ONE_OUT, "leave-one-out") \
    X(REIN_ADVANTAGE_REINFORCE_PP, "reinforce++")    \
    X(REIN_ADVANTAGE_OPO, "opo")                     \
    X(REIN_ADVANTAGE_REMAX, "remax")                 \
    X(REIN_ADVANTAGE_PASS_AT_K, "pass-at-k")         \
    X(REIN_ADVANTAGE_MAX_RL, "max-rl")               \
    X(REIN_ADVANTAGE_GDPO, "gdpo")                   \
    X(REIN_ADVANTAGE_GAE, "gae")                     \
    X(REIN_ADVANTAGE_GIVEN, "given")

#define REIN_RATIOS(X)                             \
    X(REIN_RATIO_TOKEN, "token")                   \
    X(REIN_RATIO_SEQUENCE, "sequence")             \
    X(REIN_RATIO_SEQUENCE_SUM, "sequence-sum")     \
    X(REIN_RATIO_SEQUENCE_TOKEN, "sequence-token") \
    X(REIN_RATIO_AVERAGE, "average")               \
    X(REIN_RATIO_GEOMETRIC_AVERAGE, "geometric-average")

#define REIN_MISMATCHES(X)                        \
    X(REIN_MISMATCH_NONE, "none")                 \
    X(REIN_MISMATCH_TOKEN_TIS, "token-tis")       \
    X(REIN_MISMATCH_TOKEN_MASK, "token-mask")     \
    X(REIN_MISMATCH_SEQUENCE_TIS, "sequence-tis") \
    X(REIN_MISMATCH_SEQUENCE_MASK, "sequence-mask")

#define REIN_SURROGATES(X)                   \
    X(REIN_SURROGATE_REINFORCE, "reinforce") \
    X(REIN_SURROGATE_CLIP, "clip")           \
    X(REIN_SURROGATE_DUAL_CLIP, "dual-clip") \
    X(REIN_SURROGATE_CISPO, "cispo")         \
    X(REIN_SURROGATE_SQUARED, "squared")     \
    X(REIN_SURROGATE_DRO, "dro")             \
    X(REIN_SURROGATE_GMPO, "gmpo")           \
    X(REIN_SURROGATE_SAPO, "sapo")           \
    X(REIN_SURROGATE_VESPO, "vespo")         \
    X(REIN_SURROGATE_TOPR, "topr")           \
    X(REIN_SURROGATE_DPPO, "dppo")           \
    X(REIN_SURROGATE_LUSPO, "luspo")

#define REIN_KL_ESTIMATORS(X) \
    X(REIN_K1, "k1")          \
    X(REIN_K2, "k2")          \
    X(REIN_K3, "k3")          \
    X(REIN_KL_ABS, "abs")     \
    X(REIN_IS_K1, "is-k1")    \
    X(REIN_IS_K3, "is-k3")    \
    X(REIN_KL_EXACT, "exact")

#define REIN_KL_SOURCES(X)                               \
    X(REIN_KL_SOURCE_CURRENT_LEARNER, "current_learner") \
    X(REIN_KL_SOURCE_SAMPLE, "sample")

#define REIN_DPPO_DIVERGENCES(X) \
    X(REIN_DPPO_TV, "tv")        \
    X(REIN_DPPO_KL, "kl")

#define REIN_DIVERGENCES(X)               \
    X(REIN_DIVERGENCE_SAMPLED, "sampled") \
    X(REIN_DIVERGENCE_REVERSE, "reverse") \
    X(REIN_DIVERGENCE_FORWARD, "forward") \
    X(REIN_DIVERGENCE_JSD, "jsd")

#define REIN_AGGREGATIONS(X)                           \
    X(REIN_TOKEN_MEAN, "token-mean")                   \
    X(REIN_TOKEN_SUM, "token-sum")                     \
    X(REIN_SEQ_MEAN_TOKEN_MEAN, "seq-mean-token-mean") \
    X(REIN_SEQ_MEAN_TOKEN_SUM, "seq-mean-token-sum")   \
    X(REIN_DR_GRPO, "dr-grpo")

/* A rein_preference plus 1; 0 is none. */
#define REIN_PREFERENCE_LOSSES(X)                \
    X(REIN_PREFERENCE_LOSS_NONE, "none")         \
    X(REIN_PREFERENCE_LOSS_DPO, "dpo")           \
    X(REIN_PREFERENCE_LOSS_CDPO, "cdpo")         \
    X(REIN_PREFERENCE_LOSS_ROBUST, "robust")     \
    X(REIN_PREFERENCE_LOSS_HINGE, "hinge")       \
    X(REIN_PREFERENCE_LOSS_IPO_MEAN, "ipo_mean") \
    X(REIN_PREFERENCE_LOSS_IPO_SUM, "ipo_sum")   \
    X(REIN_PREFERENCE_LOSS_SIMPO, "simpo")       \
    X(REIN_PREFERENCE_LOSS_CPO, "cpo")           \
    X(REIN_PREFERENCE_LOSS_ORPO, "orpo")         \
    X(REIN_PREFERENCE_LOSS_KTO, "kto")

#define REIN_VALUE(value, word) value,
typedef enum rein_shape { REIN_SHAPES(REIN_VALUE) } rein_shape;
typedef enum rein_advantage { REIN_ADVANTAGES(REIN_VALUE) } rein_advantage;
typedef enum rein_ratio {
    REIN_RATIO_PUBLISHED = 0, /* the level the surrogate was published with; it has no word */
    REIN_RATIOS(REIN_VALUE)
} rein_ratio;
typedef enum rein_mismatch { REIN_MISMATCHES(REIN_VALUE) } rein_mismatch;
typedef enum rein_surrogate { REIN_SURROGATES(REIN_VALUE) } rein_surrogate;
typedef enum rein_kl_estimator { REIN_KL_ESTIMATORS(REIN_VALUE) } rein_kl_estimator;
typedef enum rein_kl_penalty_source { REIN_KL_SOURCES(REIN_VALUE) } rein_kl_penalty_source;
typedef enum rein_dppo_divergence { REIN_DPPO_DIVERGENCES(REIN_VALUE) } rein_dppo_divergence;
typedef enum rein_divergence { REIN_DIVERGENCES(REIN_VALUE) } rein_divergence;
typedef enum rein_aggregation { REIN_AGGREGATIONS(REIN_VALUE) } rein_aggregation;
enum rein_preference_loss { REIN_PREFERENCE_LOSSES(REIN_VALUE) }; /* no typedef: the name is that of a function */
#undef REIN_VALUE

#define REIN_PLACE(name, ...) REIN_OPTION_PLACE_##name,
enum { REIN_OPTION_LIST(REIN_PLACE, REIN_PLACE) REIN_OPTION_COUNT };
#undef REIN_PLACE
enum { REIN_OPTION_ALIAS_COUNT = 3 };

/* A composition: a field for each row of REIN_OPTION_LIST, a double or the enum of its choice (rein_shape shape). {0} is REINFORCE on the raw
 * reward, and zero is literal (kl_loss_coef 0: no KL). NaN means "not given": a published constant takes its place, or the check says that
 * one is required. */
struct rein_options {
#define REIN_NUMBER(name, ...) double name;
#define REIN_CHOICE(name, ...) enum rein_##name name;
    REIN_OPTION_LIST(REIN_NUMBER, REIN_CHOICE)
#undef REIN_NUMBER
#undef REIN_CHOICE
    unsigned char given[REIN_OPTION_COUNT];          /* 1: rein_options_set set it; in the order of rein_option_at */
    unsigned char given_by[REIN_OPTION_ALIAS_COUNT]; /* 1: by this alias; in the order of rein_option_alias_at */
};

/* Fills *options, which need not hold anything, as rein_options_new does. */
rein_status rein_options_init(rein_options *options, const char *preset, rein_error *err);

/* REIN_EINVAL if the composition is a loss over preferences, which has no loss of tokens and no advantages. */
rein_status rein_options_check_tokens(const rein_options *options, rein_error *err);

/* Reads the loss over preferences of resolved options; returns 0 if there is none. */
int rein_options_preference(rein_preference_options *preference, const rein_options *resolved);

/* Makes a number "not given": NaN. */
void rein_options_unset(rein_options *options, const char *name);

/* 1 if the surrogate's unit is the sequence: a sequence ratio, the sum of one, or gmpo. */
int rein_sequence_unit(const rein_options *options);

/* 1 if there is one advantage per token instead of one per sequence. */
int rein_advantage_per_token(const rein_options *options);

/* 1 if the loss has the KL of whole distributions. */
static inline int rein_exact_kl_loss(const rein_options *o) { return o->kl_loss_coef != 0 && o->kl_estimator == REIN_KL_EXACT; }

/* 1 if that KL is read: in the loss, or in the reward. */
static inline int rein_uses_exact_kl(const rein_options *o) { return rein_exact_kl_loss(o) || o->kl_reward_exact != 0; }

/* 1 if the reference's log-probs of the sampled tokens are read, not only for a metric. */
static inline int rein_uses_ref_log_probs(const rein_options *o) {
    return o->kl_reward_coef > 0 || o->kl_penalty_coef > 0 || (o->kl_loss_coef > 0 && o->kl_estimator != REIN_KL_EXACT);
}

/* 1 if a teacher's log-probs of the sampled tokens change the advantages; if a divergence from its distributions is in the loss. */
static inline int rein_teacher_in_advantage(const rein_options *o) {
    return o->teacher_coef > 0 && o->divergence == REIN_DIVERGENCE_SAMPLED;
}
static inline int rein_teacher_in_loss(const rein_options *o) {
    return o->teacher_coef > 0 && o->divergence != REIN_DIVERGENCE_SAMPLED;
}

/* 1 if a KL is measured without a gradient: in the reward or in the advantage. */
static inline int rein_detached_kl(const rein_options *o) { return o->kl_reward_coef != 0 || o->kl_penalty_coef != 0; }

#endif
