/* option_list.h - the options of the policy loss, one row each. Private.
 *
 * The name is that of the field in rein_options. options.c makes the table of the rows and explains their conditions (on_…). */
#ifndef REIN_OBJECTIVE_OPTION_LIST_H
#define REIN_OBJECTIVE_OPTION_LIST_H

/* NUM:  name, stage, kind, lowest, highest, published default, when it has an effect, help. The default is NAN if there is none, or if it
 *       depends on other options: fill() in options.c has those.
 * PICK: name, stage, kind, words, when it has an effect, help */
#define REIN_OPTION_LIST(NUM, PICK)                                                                                               \
    PICK(shape, "shape", CHOICE, REIN_SHAPES, on_scalar_reward, "how the response's length changes the reward")                   \
    NUM(token_budget, "shape", NUMBER, 0, 1e15, NAN, always, "B: tokens a response may use")                                      \
    NUM(budget_penalty_coef, "shape", NUMBER, 0, 1e300, NAN, on_budget, "lambda: reward lost per token over the budget")          \
    NUM(budget_penalty, "shape", NUMBER, 0, 1e300, NAN, on_truncate, "reward of a response over the budget, negated")             \
    NUM(overlong_max, "shape", POSITIVE, 0, 1e15, NAN, on_overlong, "Lmax: from here on the penalty is -1")                       \
    NUM(overlong_cushion, "shape", POSITIVE, 0, 1e15, NAN, on_overlong, "Lc: the penalty starts at Lmax - Lc")                    \
    NUM(length_weight, "shape", NUMBER, 0, 1e300, NAN, on_k15, "weight of the length reward")                                     \
    NUM(reward_clip, "shape", SWITCH, 0, 1e300, NAN, on_scalar_reward, "shaped rewards are clipped to ± this")                    \
    PICK(advantage, "advantage", CHOICE, REIN_ADVANTAGES, always, "the estimator that turns rewards into advantages")             \
    NUM(pass_k, "advantage", WHOLE, 2, 1e6, NAN, on_pass_at_k, "k of pass@k; the group's size when not given")                    \
    NUM(gae_gamma, "advantage", NUMBER, 0, 1, 1, on_gae, "discount")                                                              \
    NUM(gae_lambda, "advantage", NUMBER, 0, 1, 0.95, on_gae, "how far advantages look ahead")                                     \
    NUM(advantage_eps, "advantage", NUMBER, 0, 1e300, NAN, on_std, "added to the std (reinforce++: to the variance)")             \
    NUM(advantage_balance, "advantage", NUMBER, -1, 1, 0, always, "1: only positive advantages train, -1: only negative ones")    \
    PICK(ratio, "ratio", CHOICE_FROM_1, REIN_RATIOS, on_ratio, "the level of the importance ratio")                               \
    PICK(mismatch, "mismatch", CHOICE, REIN_MISMATCHES, always, "correction for a sampler that is not the old policy")            \
    NUM(tis_cap, "mismatch", POSITIVE, 0, 1e300, 2, on_tis, "C: weights are clipped to this")                                     \
    NUM(mismatch_low, "mismatch", NUMBER, 0, 1e300, 0.5, on_mismatch_mask, "weights below are dropped")                           \
    NUM(mismatch_high, "mismatch", POSITIVE, 0, 1e300, NAN, on_mismatch_mask, "weights above are dropped")                        \
    NUM(off_policy_mask_delta, "mismatch", SWITCH, 0, 1e300, NAN, always,                                                         \
        "delta: sequences with A < 0 and mean(sample - current log-prob) above it lose their surrogate")                          \
    PICK(surrogate, "surrogate", CHOICE, REIN_SURROGATES, always, "the loss of a token or sequence")                              \
    NUM(epsilon, "surrogate", NUMBER, 0, 1e300, NAN, on_clip, "lower clip range: 1 - epsilon (gmpo: -epsilon, in logs)")          \
    NUM(epsilon_high, "surrogate", NUMBER, 0, 1e300, NAN, on_clip, "upper clip range; epsilon when not given")                    \
    NUM(dual_clip, "surrogate", NUMBER, 1, 1e300, 3, on_dual_clip, "c: bound on the ratio where A < 0")                           \
    NUM(max_negative_advantage_importance_sampling_weight, "surrogate", SWITCH, 0, 1e300, NAN, on_clipped_ratio,                  \
        "bound on the ratio where A < 0 (ART)")                                                                                   \
    NUM(tau, "surrogate", NUMBER, 0, 1e300, NAN, on_squared, "strength of the log-ratio in the squared loss")                     \
    NUM(dro_beta, "surrogate", NUMBER, 0, 1e300, NAN, on_dro, "strength of the squared log-ratio")                                \
    NUM(sapo_tau_positive, "surrogate", POSITIVE, 0, 1e300, 1, on_sapo, "temperature where A > 0")                                \
    NUM(sapo_tau_negative, "surrogate", POSITIVE, 0, 1e300, 1.05, on_sapo, "temperature elsewhere")                               \
    NUM(vespo_k_positive, "surrogate", NUMBER, 0, 1e300, 2, on_vespo, "k of R^k e^{lambda(1-R)} where A >= 0")                    \
    NUM(vespo_lambda_positive, "surrogate", NUMBER, 0, 1e300, 3, on_vespo, "lambda where A >= 0")                                 \
    NUM(vespo_k_negative, "surrogate", NUMBER, 0, 1e300, 3, on_vespo, "k where A < 0")                                            \
    NUM(vespo_lambda_negative, "surrogate", NUMBER, 0, 1e300, 2, on_vespo, "lambda where A < 0")                                  \
    NUM(topr_positive_low, "surrogate", NUMBER, 0, 1e300, 1, on_topr, "lower bound of the ratio where A >= 0")                    \
    NUM(topr_positive_high, "surrogate", NUMBER, 0, 1e300, 1, on_topr, "upper bound where A >= 0")                                \
    NUM(topr_negative_low, "surrogate", NUMBER, 0, 1e300, 0, on_topr, "lower bound where A < 0")                                  \
    NUM(topr_negative_high, "surrogate", NUMBER, 0, 1e300, 1, on_topr, "upper bound where A < 0")                                 \
    PICK(dppo_divergence, "surrogate", CHOICE, REIN_DPPO_DIVERGENCES, on_dppo,                                                    \
         "divergence that measures the change of a token's probability")                                                          \
    NUM(dppo_delta, "surrogate", NUMBER, 0, 1e300, NAN, on_dppo, "divergence above which a token is dropped")                     \
    NUM(dppo_ratio_cap, "surrogate", SWITCH, 0, 1e300, NAN, on_dppo, "C: ratios are clipped to this")                             \
    NUM(kimi_k2_tau, "adjust", NUMBER, 0, 1e300, 0, on_token_unit, "A <- A - tau * stop(log-ratio), per token")                   \
    NUM(kl_reward_coef, "kl", NUMBER, 0, 1e300, 0, on_scalar_reward, "KL (k1, detached) in the reward")                           \
    NUM(kl_reward_exact, "kl", NUMBER, 0, 1e300, 0, on_exact_reward, "exact KL (detached) of the later tokens, in the reward")    \
    NUM(kl_penalty_coef, "kl", NUMBER, 0, 1e300, 0, always, "KL (centred, detached) in the advantage")                            \
    NUM(kl_loss_coef, "kl", NUMBER, 0, 1e300, NAN, always, "KL in the loss")                                                      \
    PICK(kl_estimator, "kl", CHOICE, REIN_KL_ESTIMATORS, on_kl_loss, "the estimator in the loss")                                 \
    PICK(kl_direction, "kl", CHOICE_FROM_1, KL_DIRECTIONS, on_k3_loss, "the direction of the quotient in k3")                     \
    PICK(kl_scope, "kl", CHOICE, KL_SCOPES, on_kl_penalty, "the tokens over which the KL penalty is centred")                     \
    PICK(kl_penalty_source, "kl", CHOICE, REIN_KL_SOURCES, on_detached_kl, "whose log-probs measure the detached KL")             \
    NUM(kl_clamp, "kl", SWITCH, 0, 1e300, NAN, on_sampled_kl_loss, "ref - log-prob is clipped to ± this in the KL loss")          \
    NUM(teacher_coef, "teacher", NUMBER, 0, 1e300, 0, always,                                                                     \
        "strength of a teacher: its divergence in the loss or the advantage")                                                     \
    PICK(divergence, "teacher", CHOICE, REIN_DIVERGENCES, on_teacher,                                                             \
         "from the teacher: of the sampled tokens, or over the whole vocabulary")                                                 \
    NUM(jsd_beta, "teacher", NUMBER, 1e-6, 0.999999, 0.5, on_jsd, "weight of KL(teacher||mixture), and of the teacher in it")     \
    NUM(teacher_discount, "teacher", NUMBER, 0, 1, 0, on_sampled_teacher, "discount of what later tokens say; 0: only its own")   \
    NUM(entropy_coef, "entropy", NUMBER, 0, 1e300, 0, always, "entropy bonus")                                                    \
    NUM(entropy_target, "entropy", SWITCH, 0, 1e300, NAN, on_entropy, "the bonus applies only while the entropy is at most this") \
    NUM(top_entropy, "entropy", SWITCH, 0, 1, NAN, always, "share of tokens, by entropy, whose surrogate trains")                 \
    PICK(preference_loss, "preference", CHOICE, REIN_PREFERENCE_LOSSES, always,                                                   \
         "a loss over the best and the worst response to each prompt, in place of all stages but shape")                          \
    NUM(beta, "preference", POSITIVE, 0, 1e300, NAN, on_preference, "scale of the rewards of the preference loss")                \
    NUM(label_smoothing, "preference", NUMBER, 0, 0.5, NAN, on_smoothing, "share of pairs whose order is wrong")                  \
    NUM(simpo_gamma, "preference", NUMBER, -1e300, 1e300, NAN, on_simpo, "margin of the reward")                                  \
    NUM(cpo_alpha, "preference", NUMBER, 0, 1e300, NAN, on_cpo, "weight of the log-likelihood of the chosen response")            \
    NUM(desirable_weight, "preference", NUMBER, 0, 1e300, NAN, on_kto, "weight of chosen responses")                              \
    NUM(undesirable_weight, "preference", NUMBER, 0, 1e300, NAN, on_kto, "weight of rejected responses")                          \
    PICK(aggregation, "aggregation", CHOICE, REIN_AGGREGATIONS, always, "how token losses become one number")                     \
    NUM(max_response_length, "aggregation", POSITIVE, 0, 1e15, NAN, on_dr_grpo, "Lmax: the constant that divides")

#endif
