/* critic.h - a learned critic: a model with a value head that trains beside the policy. Private.
 *
 * V_t is the value head on the hidden state before token t (rein_score_options.before). At the beginning of a step the critic values all
 * trained tokens; advantages and returns follow, and stay the same for all passes of the step. */
#ifndef REIN_TRAIN_CRITIC_H
#define REIN_TRAIN_CRITIC_H

#include "objective/options.h"
#include "rein/train.h"
#include "settings.h"

#define REIN_CRITIC_SAME "same"
#define REIN_CRITIC_FOLDER "critic" /* in a checkpoint */

typedef struct rein_critic {
    rein_model *model;     /* its own; NULL: it shares that of the policy */
    rein_adapter *adapter; /* with the value head; NULL: all weights train */
    rein_trainer *trainer;
} rein_critic;

/* Opens the critic of the settings, as a new run begins with it. policy: the model of the policy, which must outlive the critic. `trainer`
 * are the options of the policy's trainer. What trains is what trains of the policy: an adapter with a value head, or all weights. Without a
 * value head in the files, it begins at 0, and so do all values. *critic is NULL on failure. The caller closes it. */
rein_status rein_critic_open(rein_critic **critic, const rein_settings *settings, rein_model *policy,
                             const rein_trainer_options *trainer, rein_error *err);

/* NULL is fine. */
void rein_critic_close(rein_critic *critic);

/* In the folder of a checkpoint: the critic in the formats of the ecosystem, and its optimizer. */
rein_status rein_critic_save(const rein_critic *critic, const char *checkpoint, rein_error *err);
rein_status rein_critic_load(rein_critic *critic, const char *checkpoint, rein_error *err);

/* What a step learns from: arrays of all tokens of the groups, in order, 0 where nothing trains. */
typedef struct rein_critic_step {
    float *values, *returns, *advantages; /* [tokens]; advantages are whitened, if they are to be */
    double *rewards;                      /* [trajectories], shaped */
    /* Over the trained tokens of the step: */
    double value_mean, return_mean, advantage_mean, advantage_std; /* before whitening */
    double explained_variance;                                     /* 1 − Var(G − V)/Var(G); NaN: all returns are equal */
} rein_critic_step;

/* Frees the arrays; harmless on {0}. */
void rein_critic_step_free(rein_critic_step *step);

/* How a step is valued. */
typedef struct rein_critic_options {
    const rein_options *objective; /* gae, with the coefficient of the KL in this step */
    const float *old, *reference;  /* [tokens] log-probs; old NULL: those recorded; reference NULL: there is no KL in the reward */
    int mask_truncated, whiten;
} rein_critic_options;

/* Values all trained tokens, then r_t = −β·(old_t − ref_t), and the shaped reward on the last trained token; A by GAE; G = A + V before
 * whitening. The caller frees *step, which is {0} on failure. */
rein_status rein_critic_value(rein_critic_step *step, rein_critic *critic, const rein_groups *groups,
                              const rein_critic_options *options, rein_error *err);

#endif
