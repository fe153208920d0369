/* options.c - the options of the policy loss: one table of names, ranges and conditions; the published constants of the surrogates; and
 * the check that completes a composition. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../base/base.h"
#include "option_table.h"

/* What was published with each surrogate: the level of its ratio and its clip range (NaN: it has none). */
static const struct published {
    rein_ratio level;
    double epsilon, epsilon_high;
} surrogates[] = {
    [REIN_SURROGATE_REINFORCE] = {REIN_RATIO_TOKEN, NAN, NAN},      [REIN_SURROGATE_CLIP] = {REIN_RATIO_TOKEN, 0.2, 0.2},
    [REIN_SURROGATE_DUAL_CLIP] = {REIN_RATIO_TOKEN, 0.2, 0.2},      [REIN_SURROGATE_CISPO] = {REIN_RATIO_TOKEN, 1, 4},
    [REIN_SURROGATE_SQUARED] = {REIN_RATIO_SEQUENCE_SUM, NAN, NAN}, [REIN_SURROGATE_DRO] = {REIN_RATIO_TOKEN, NAN, NAN},
    [REIN_SURROGATE_GMPO] = {REIN_RATIO_TOKEN, 0.4, 0.4},           [REIN_SURROGATE_SAPO] = {REIN_RATIO_TOKEN, NAN, NAN},
    [REIN_SURROGATE_VESPO] = {REIN_RATIO_SEQUENCE_SUM, NAN, NAN},   [REIN_SURROGATE_TOPR] = {REIN_RATIO_SEQUENCE_SUM, NAN, NAN},
    [REIN_SURROGATE_DPPO] = {REIN_RATIO_TOKEN, NAN, NAN},           [REIN_SURROGATE_LUSPO] = {REIN_RATIO_SEQUENCE, 0.002, 0.0025},
};

#define COUNTED(value, word) +1
enum { N_SURROGATES = 0 REIN_SURROGATES(COUNTED) };
_Static_assert(sizeof surrogates / sizeof *surrogates == N_SURROGATES, "every surrogate has its published constants");

/* ---- when an option has an effect */
typedef rein_options O;
static int always(const O *o) { return (void)o, 1; }
static int on_budget(const O *o) { return o->shape == REIN_SHAPE_BUDGET; }
static int on_truncate(const O *o) { return o->shape == REIN_SHAPE_TRUNCATE; }
static int on_overlong(const O *o) { return o->shape == REIN_SHAPE_OVERLONG; }
static int on_k15(const O *o) { return o->shape == REIN_SHAPE_K15_LENGTH; }
static int on_scalar_reward(const O *o) { return o->advantage != REIN_ADVANTAGE_GDPO && o->advantage != REIN_ADVANTAGE_GIVEN; }
static int on_pass_at_k(const O *o) { return o->advantage == REIN_ADVANTAGE_PASS_AT_K; }
static int on_gae(const O *o) { return o->advantage == REIN_ADVANTAGE_GAE; }
static int on_std(const O *o) {
    return o->advantage == REIN_ADVANTAGE_GROUP_STD || o->advantage == REIN_ADVANTAGE_BATCH_STD ||
           o->advantage == REIN_ADVANTAGE_REINFORCE_PP || o->advantage == REIN_ADVANTAGE_GDPO;
}
static int on_ratio(const O *o) { return o->surrogate != REIN_SURROGATE_REINFORCE && o->surrogate != REIN_SURROGATE_GMPO; }
static int on_tis(const O *o) { return o->mismatch == REIN_MISMATCH_TOKEN_TIS || o->mismatch == REIN_MISMATCH_SEQUENCE_TIS; }
static int on_mismatch_mask(const O *o) {
    return o->mismatch == REIN_MISMATCH_TOKEN_MASK || o->mismatch == REIN_MISMATCH_SEQUENCE_MASK;
}
static int on_clip(const O *o) { return !isnan(surrogates[o->surrogate].epsilon); }
static int on_clipped_ratio(const O *o) { return on_clip(o) && o->surrogate != REIN_SURROGATE_GMPO; }
static int on_dual_clip(const O *o) { return o->surrogate == REIN_SURROGATE_DUAL_CLIP; }
static int on_squared(const O *o) { return o->surrogate == REIN_SURROGATE_SQUARED; }
static int on_dro(const O *o) { return o->surrogate == REIN_SURROGATE_DRO; }
static int on_sapo(const O *o) { return o->surrogate == REIN_SURROGATE_SAPO; }
static int on_vespo(const O *o) { return o->surrogate == REIN_SURROGATE_VESPO; }
static int on_topr(const O *o) { return o->surrogate == REIN_SURROGATE_TOPR; }
static int on_dppo(const O *o) { return o->surrogate == REIN_SURROGATE_DPPO; }
static int on_token_unit(const O *o) { return !rein_sequence_unit(o); }
static int on_kl_loss(const O *o) { return o->kl_loss_coef != 0; }
static int on_k3_loss(const O *o) { return on_kl_loss(o) && (o->kl_estimator == REIN_K3 || o->kl_estimator == REIN_IS_K3); }
static int on_kl_penalty(const O *o) { return o->kl_penalty_coef != 0; }
static int on_entropy(const O *o) { return o->entropy_coef != 0; }
static int on_dr_grpo(const O *o) { return o->aggregation == REIN_DR_GRPO; }

/* ---- the table */

/* The words of the enums that are public: their places are those of the enums. */
#define KL_SCOPES(X) X(REIN_KL_SCOPE_BATCH, "batch") X(REIN_KL_SCOPE_GROUP, "group") X(REIN_KL_SCOPE_SEQUENCE, "sequence")
#define KL_DIRECTIONS(X) X(REIN_CURRENT_OVER_REF, "current_over_ref") X(REIN_REF_OVER_CURRENT, "ref_over_current")
#define PLACE(value, word) PLACE_OF_##value,
enum { KL_SCOPES(PLACE) };
enum { PLACE_OF_DEFAULT, KL_DIRECTIONS(PLACE) };
#define SAME(value, word) _Static_assert((int)PLACE_OF_##value == (int)value, word " has the place of its enum value");
KL_SCOPES(SAME)
KL_DIRECTIONS(SAME)

#define JOINED(value, word) "|" word
#define WORD(value, word) word,
#define NUM(name, stage, kind, low, high, has_effect, needs, help) \
    { {#name, NULL, stage, help}, NULL, offsetof(O, name), REIN_OPTION_##kind, low, high, has_effect, needs }
#define PICK(name, stage, kind, list, has_effect, needs, help)                                                                   \
    {                                                                                                                            \
        {#name, &(list(JOINED))[1], stage, help}, (const char *const[]){list(WORD) NULL}, offsetof(O, name), REIN_OPTION_##kind, \
            0, 0, has_effect, needs                                                                                              \
    }
const rein_option_row rein_option_rows[] = {
    PICK(shape, "shape", CHOICE, REIN_SHAPES, on_scalar_reward, "an advantage made from one reward (not gdpo, not given)",
         "how the response's length changes the reward"),
    NUM(token_budget, "shape", NUMBER, 0, 1e15, always, "", "B: tokens a response may use"),
    NUM(budget_penalty_coef, "shape", NUMBER, 0, 1e300, on_budget, "shape budget", "lambda: reward lost per token over the budget"),
    NUM(budget_penalty, "shape", NUMBER, 0, 1e300, on_truncate, "shape truncate", "reward of a response over the budget, negated"),
    NUM(overlong_max, "shape", POSITIVE, 0, 1e15, on_overlong, "shape overlong", "Lmax: from here on the penalty is -1"),
    NUM(overlong_cushion, "shape", POSITIVE, 0, 1e15, on_overlong, "shape overlong", "Lc: the penalty starts at Lmax - Lc"),
    NUM(length_weight, "shape", NUMBER, 0, 1e300, on_k15, "shape k1.5-length", "weight of the length reward"),
    NUM(reward_clip, "shape", SWITCH, 0, 1e300, on_scalar_reward, "an advantage made from one reward (not gdpo, not given)",
        "shaped rewards are clipped to ± this"),
    PICK(advantage, "advantage", CHOICE, REIN_ADVANTAGES, always, "", "the estimator that turns rewards into advantages"),
    NUM(pass_k, "advantage", WHOLE, 2, 1e6, on_pass_at_k, "advantage pass-at-k", "k of pass@k; the group's size when not given"),
    NUM(gae_gamma, "advantage", NUMBER, 0, 1, on_gae, "advantage gae", "discount"),
    NUM(gae_lambda, "advantage", NUMBER, 0, 1, on_gae, "advantage gae", "how far advantages look ahead"),
    NUM(advantage_eps, "advantage", NUMBER, 0, 1e300, on_std, "an advantage that divides by a std",
        "added to the std (reinforce++: to the variance)"),
    NUM(advantage_balance, "advantage", NUMBER, -1, 1, always, "", "1: only positive advantages train, -1: only negative ones"),
    PICK(ratio, "ratio", CHOICE_FROM_1, REIN_RATIOS, on_ratio, "a surrogate that takes a ratio (not reinforce, not gmpo)",
         "the level of the importance ratio"),
    PICK(mismatch, "mismatch", CHOICE, REIN_MISMATCHES, always, "", "correction for a sampler that is not the old policy"),
    NUM(tis_cap, "mismatch", POSITIVE, 0, 1e300, on_tis, "mismatch token-tis or sequence-tis", "C: weights are clipped to this"),
    NUM(mismatch_low, "mismatch", NUMBER, 0, 1e300, on_mismatch_mask, "mismatch token-mask or sequence-mask",
        "weights below are dropped"),
    NUM(mismatch_high, "mismatch", POSITIVE, 0, 1e300, on_mismatch_mask, "mismatch token-mask or sequence-mask",
        "weights above are dropped"),
    NUM(off_policy_mask_delta, "mismatch", SWITCH, 0, 1e300, always, "",
        "delta: sequences with A < 0 and mean(sample - current log-prob) above it lose their surrogate"),
    PICK(surrogate, "surrogate", CHOICE, REIN_SURROGATES, always, "", "the loss of a token or sequence"),
    NUM(epsilon, "surrogate", NUMBER, 0, 1e300, on_clip, "a surrogate that clips",
        "lower clip range: 1 - epsilon (gmpo: -epsilon, in logs)"),
    NUM(epsilon_high, "surrogate", NUMBER, 0, 1e300, on_clip, "a surrogate that clips", "upper clip range; epsilon when not given"),
    NUM(dual_clip, "surrogate", NUMBER, 1, 1e300, on_dual_clip, "surrogate dual-clip", "c: bound on the ratio where A < 0"),
    NUM(max_negative_advantage_importance_sampling_weight, "surrogate", SWITCH, 0, 1e300, on_clipped_ratio,
        "a surrogate that clips the ratio (clip, dual-clip, cispo, luspo)", "bound on the ratio where A < 0 (ART)"),
    NUM(tau, "surrogate", NUMBER, 0, 1e300, on_squared, "surrogate squared", "strength of the log-ratio in the squared loss"),
    NUM(dro_beta, "surrogate", NUMBER, 0, 1e300, on_dro, "surrogate dro", "strength of the squared log-ratio"),
    NUM(sapo_tau_positive, "surrogate", POSITIVE, 0, 1e300, on_sapo, "surrogate sapo", "temperature where A > 0"),
    NUM(sapo_tau_negative, "surrogate", POSITIVE, 0, 1e300, on_sapo, "surrogate sapo", "temperature elsewhere"),
    NUM(vespo_k_positive, "surrogate", NUMBER, 0, 1e300, on_vespo, "surrogate vespo", "k of R^k e^{lambda(1-R)} where A >= 0"),
    NUM(vespo_lambda_positive, "surrogate", NUMBER, 0, 1e300, on_vespo, "surrogate vespo", "lambda where A >= 0"),
    NUM(vespo_k_negative, "surrogate", NUMBER, 0, 1e300, on_vespo, "surrogate vespo", "k where A < 0"),
    NUM(vespo_lambda_negative, "surrogate", NUMBER, 0, 1e300, on_vespo, "surrogate vespo", "lambda where A < 0"),
    NUM(topr_positive_low, "surrogate", NUMBER, 0, 1e300, on_topr, "surrogate topr", "lower bound of the ratio where A >= 0"),
    NUM(topr_positive_high, "surrogate", NUMBER, 0, 1e300, on_topr, "surrogate topr", "upper bound where A >= 0"),
    NUM(topr_negative_low, "surrogate", NUMBER, 0, 1e300, on_topr, "surrogate topr", "lower bound where A < 0"),
    NUM(topr_negative_high, "surrogate", NUMBER, 0, 1e300, on_topr, "surrogate topr", "upper bound where A < 0"),
    PICK(dppo_divergence, "surrogate", CHOICE, REIN_DPPO_DIVERGENCES, on_dppo, "surrogate dppo",
         "divergence that measures the change of a token's probability"),
    NUM(dppo_delta, "surrogate", NUMBER, 0, 1e300, on_dppo, "surrogate dppo", "divergence above which a token is dropped"),
    NUM(dppo_ratio_cap, "surrogate", SWITCH, 0, 1e300, on_dppo, "surrogate dppo", "C: ratios are clipped to this"),
    NUM(kimi_k2_tau, "adjust", NUMBER, 0, 1e300, on_token_unit, "a token-level ratio", "A <- A - tau * stop(log-ratio), per token"),
    NUM(kl_reward_coef, "kl", NUMBER, 0, 1e300, on_scalar_reward, "an advantage made from one reward (not gdpo, not given)",
        "KL (k1, detached) in the reward"),
    NUM(kl_penalty_coef, "kl", NUMBER, 0, 1e300, always, "", "KL (centred, detached) in the advantage"),
    NUM(kl_loss_coef, "kl", NUMBER, 0, 1e300, always, "", "KL in the loss"),
    PICK(kl_estimator, "kl", CHOICE, REIN_KL_ESTIMATORS, on_kl_loss, "kl_loss_coef", "the estimator in the loss"),
    PICK(kl_direction, "kl", CHOICE_FROM_1, KL_DIRECTIONS, on_k3_loss, "kl_loss_coef with kl_estimator k3 or is-k3",
         "the direction of the quotient in k3"),
    PICK(kl_scope, "kl", CHOICE, KL_SCOPES, on_kl_penalty, "kl_penalty_coef", "the tokens over which the KL penalty is centred"),
    PICK(kl_penalty_source, "kl", CHOICE, REIN_KL_SOURCES, rein_detached_kl, "kl_penalty_coef or kl_reward_coef",
         "whose log-probs measure the detached KL"),
    NUM(kl_clamp, "kl", SWITCH, 0, 1e300, on_kl_loss, "kl_loss_coef", "ref - log-prob is clipped to ± this in the KL loss"),
    NUM(entropy_coef, "entropy", NUMBER, 0, 1e300, always, "", "entropy bonus"),
    NUM(entropy_target, "entropy", SWITCH, 0, 1e300, on_entropy, "entropy_coef",
        "the bonus applies only while the entropy is at most this"),
    NUM(top_entropy, "entropy", SWITCH, 0, 1, always, "", "share of tokens, by entropy, whose surrogate trains"),
    PICK(aggregation, "aggregation", CHOICE, REIN_AGGREGATIONS, always, "", "how token losses become one number"),
    NUM(max_response_length, "aggregation", POSITIVE, 0, 1e15, on_dr_grpo, "aggregation dr-grpo",
        "Lmax: the constant that divides"),
};
#undef NUM
#undef PICK
_Static_assert(sizeof rein_option_rows / sizeof *rein_option_rows == REIN_OPTION_COUNT,
               "rein_options.given has a place for each option");

const rein_option_info *rein_option_at(size_t i) { return i < REIN_OPTION_COUNT ? &rein_option_rows[i].info : NULL; }

const rein_option_row *rein_option_find(const char *name) {
    for (size_t i = 0; i < REIN_OPTION_COUNT; i++)
        if (strcmp(rein_option_rows[i].info.name, name) == 0) return &rein_option_rows[i];
    return NULL;
}

double *rein_option_number(rein_options *o, const rein_option_row *row) { return (double *)(void *)((char *)o + row->offset); }
int *rein_option_choice(rein_options *o, const rein_option_row *row) { return (int *)(void *)((char *)o + row->offset); }

const char *rein_option_word(const rein_option_row *row, int value) {
    int i = value - (row->kind == REIN_OPTION_CHOICE_FROM_1);
    const char *const *word = row->words;
    if (i < 0) return NULL;
    while (*word && i-- > 0) word++;
    return *word;
}

rein_status rein_option_check_range(const rein_option_row *row, double x, rein_error *err) {
    const char *name = row->info.name;
    const int positive = row->kind == REIN_OPTION_POSITIVE || row->kind == REIN_OPTION_SWITCH;
    if (!isfinite(x)) return rein_fail_at(err, REIN_EINVAL, name, -1, "is not a finite number");
    if (positive && !(x > 0)) return rein_fail_at(err, REIN_EINVAL, name, -1, "is %.17g: it must be above 0", x);
    if (row->kind == REIN_OPTION_WHOLE && x != floor(x))
        return rein_fail_at(err, REIN_EINVAL, name, -1, "is %.17g: a whole number is needed", x);
    if (x < row->low) return rein_fail_at(err, REIN_EINVAL, name, -1, "is %.17g: it must be %.17g or more", x, row->low);
    if (x > row->high) return rein_fail_at(err, REIN_EINVAL, name, -1, "is %.17g: it must be %.17g or less", x, row->high);
    return REIN_OK;
}

/* ---- questions about a composition */

int rein_sequence_unit(const rein_options *o) {
    const rein_ratio level = o->ratio ? o->ratio : surrogates[o->surrogate].level;
    if (o->surrogate == REIN_SURROGATE_GMPO) return 1;
    return on_ratio(o) && (level == REIN_RATIO_SEQUENCE || level == REIN_RATIO_SEQUENCE_SUM);
}

int rein_advantage_per_token(const rein_options *o) {
    return o->advantage == REIN_ADVANTAGE_GAE || o->advantage == REIN_ADVANTAGE_GIVEN ||
           (o->advantage == REIN_ADVANTAGE_REINFORCE_PP && o->kl_reward_coef != 0);
}

int rein_options_use_reference(const rein_options *o) {
    if (!o) return 0;
    return o->kl_reward_coef > 0 || o->kl_penalty_coef > 0 || o->kl_loss_coef > 0;
}

/* ---- published constants */

void rein_options_change_surrogate(rein_options *o, rein_surrogate before) {
    const struct published *was = &surrogates[before], *now = &surrogates[o->surrogate];
    if (was->epsilon != now->epsilon) {
        if (!rein_options_given(o, "epsilon")) o->epsilon = NAN;
        if (!rein_options_given(o, "epsilon_high")) o->epsilon_high = NAN;
    }
    if (was->level != now->level && !rein_options_given(o, "ratio")) o->ratio = REIN_RATIO_PUBLISHED;
}

static void default_to(double *field, double published) {
    if (isnan(*field)) *field = published;
}

static void switch_off(rein_options *o, const rein_option_row *d) {
    if (rein_option_is_choice(d)) *rein_option_choice(o, d) = 0;
    else *rein_option_number(o, d) = 0;
}

/* Published constants where nothing was given. Off switches become NaN, the form the loss tests for. */
static void fill(rein_options *o) {
    const struct published *p = &surrogates[o->surrogate];
    const rein_option_row *const rows = rein_option_rows;
    for (size_t i = 0; i < REIN_OPTION_COUNT; i++)
        if (rows[i].has_effect == on_scalar_reward && !on_scalar_reward(o) && !o->given[i]) switch_off(o, &rows[i]);
    if (o->ratio == REIN_RATIO_PUBLISHED || !on_ratio(o)) o->ratio = p->level;
    if (isnan(o->epsilon) && isnan(o->epsilon_high)) o->epsilon_high = p->epsilon_high;
    default_to(&o->epsilon, p->epsilon);
    default_to(&o->epsilon_high, o->epsilon);
    default_to(&o->dual_clip, 3);
    default_to(&o->sapo_tau_positive, 1);
    default_to(&o->sapo_tau_negative, 1.05);
    default_to(&o->vespo_k_positive, 2);
    default_to(&o->vespo_lambda_positive, 3);
    default_to(&o->vespo_k_negative, 3);
    default_to(&o->vespo_lambda_negative, 2);
    default_to(&o->topr_positive_low, 1);
    default_to(&o->topr_positive_high, 1);
    default_to(&o->topr_negative_low, 0);
    default_to(&o->topr_negative_high, 1);
    default_to(&o->dppo_delta, o->dppo_divergence == REIN_DPPO_KL ? 0.05 : 0.15);
    default_to(&o->gae_gamma, 1);
    default_to(&o->gae_lambda, 0.95);
    default_to(&o->advantage_eps, o->advantage == REIN_ADVANTAGE_REINFORCE_PP ? 1e-8 : 1e-6);
    default_to(&o->tis_cap, 2);
    default_to(&o->mismatch_low, 0.5);
    default_to(&o->mismatch_high, o->mismatch == REIN_MISMATCH_SEQUENCE_MASK ? 2 : 5);
    default_to(&o->kimi_k2_tau, 0);
    default_to(&o->advantage_balance, 0);
    default_to(&o->kl_reward_coef, 0);
    default_to(&o->kl_penalty_coef, 0);
    default_to(&o->entropy_coef, 0);
    if (o->kl_direction == REIN_KL_DIRECTION_DEFAULT) o->kl_direction = REIN_REF_OVER_CURRENT;
    for (size_t i = 0; i < REIN_OPTION_COUNT; i++)
        if (rows[i].kind == REIN_OPTION_SWITCH && *rein_option_number(o, &rows[i]) == 0) *rein_option_number(o, &rows[i]) = NAN;
    if (o->pass_k == 0) o->pass_k = NAN;
    if (isinf(o->dppo_ratio_cap)) o->dppo_ratio_cap = NAN; /* the options were resolved before */
}

/* ---- the check */

static int may_be_absent(const rein_option_row *d) {
    return d->kind == REIN_OPTION_SWITCH || strcmp(d->info.name, "pass_k") == 0 || strcmp(d->info.name, "token_budget") == 0;
}

/* Giving 0 to one of these turns it off, which is allowed where it has no effect. */
static int off_at_zero(const rein_option_row *d) { return d->has_effect == on_scalar_reward || d->has_effect == on_token_unit; }

static rein_status no_effect(const rein_option_row *row, rein_error *err) {
    return rein_fail_at(err, REIN_EINVAL, row->info.name, -1, "has no effect: it needs %s", row->needs);
}

static rein_status check_choice(rein_options *o, const rein_option_row *row, int useless, rein_error *err) {
    const int value = *rein_option_choice(o, row);
    if (!rein_option_word(row, value))
        return rein_fail_at(err, REIN_EINVAL, row->info.name, -1, "is %d: one of %s", value, row->info.choices);
    const int off = row->has_effect == on_scalar_reward && value == 0; /* shape none */
    return useless && !off ? no_effect(row, err) : REIN_OK;
}

/* `o` has its published constants. */
static rein_status check_one(rein_options *o, const rein_option_row *row, rein_error *err) {
    const int has_effect = row->has_effect(o), useless = o->given[rein_option_index(row)] && !has_effect;
    if (rein_option_is_choice(row)) return check_choice(o, row, useless, err);
    const double x = *rein_option_number(o, row);
    if (useless && !(x == 0 && off_at_zero(row))) return no_effect(row, err);
    return has_effect && !isnan(x) ? rein_option_check_range(row, x, err) : REIN_OK;
}

static rein_option_state state_of(rein_options *filled, const rein_option_row *d) {
    if (!d->has_effect(filled)) return REIN_OPTION_IDLE;
    if (rein_option_is_choice(d) || !isnan(*rein_option_number(filled, d))) return REIN_OPTION_SET;
    return may_be_absent(d) ? REIN_OPTION_OFF : REIN_OPTION_REQUIRED;
}

/* No options are those of REINFORCE on the raw reward. */
static rein_options or_zero(const rein_options *o) { return o ? *o : (rein_options){0}; }

rein_option_state rein_options_state(const rein_options *given, size_t i) {
    rein_options o = or_zero(given);
    if (i >= REIN_OPTION_COUNT || (unsigned)o.surrogate >= N_SURROGATES) return REIN_OPTION_IDLE;
    fill(&o);
    return state_of(&o, &rein_option_rows[i]);
}

/* Names every option that is required and was not given, in one message. */
static rein_status check_missing(rein_options *o, rein_error *err) {
    char others[300] = "";
    const char *first = NULL;
    for (size_t i = 0; i < REIN_OPTION_COUNT; i++) {
        if (state_of(o, &rein_option_rows[i]) != REIN_OPTION_REQUIRED) continue;
        const char *name = rein_option_rows[i].info.name;
        const size_t used = strlen(others);
        if (!first) first = name;
        else snprintf(others + used, sizeof others - used, "%s%s", used ? " and " : "", name);
    }
    if (!first) return REIN_OK;
    if (*others)
        return rein_fail_at(err, REIN_EINVAL, first, -1, "is required, as is %s: they have no published values, so give them",
                            others);
    return rein_fail_at(err, REIN_EINVAL, first, -1, "is required: it has no published value, so give one");
}

/* The bound on the ratio where A < 0 must be above the lower bound of the clip (below it, no token with A < 0 would train) and below the
 * upper bound that the surrogate has for A < 0 (above it, it would have no effect). */
static rein_status check_negative_bound(const rein_options *o, rein_error *err) {
    static const char name[] = "max_negative_advantage_importance_sampling_weight";
    const double bound = o->max_negative_advantage_importance_sampling_weight, low = 1 - o->epsilon;
    const int cispo = o->surrogate == REIN_SURROGATE_CISPO;
    const double high = cispo ? 1 + o->epsilon_high : on_dual_clip(o) ? o->dual_clip : (double)INFINITY;
    if (!on_clipped_ratio(o) || isnan(bound) || (bound > low && bound < high)) return REIN_OK;
    if (bound <= low) return rein_fail_at(err, REIN_EINVAL, name, -1, "is %.17g: it must be above 1 - epsilon, %.17g", bound, low);
    return rein_fail_at(err, REIN_EINVAL, name, -1, "is %.17g: it must be below %s, %.17g, to have an effect", bound,
                        cispo ? "1 + epsilon_high" : "dual_clip", high);
}

static rein_status check_order(const char *low_name, double low, const char *high_name, double high, rein_error *err) {
    if (!(low > high)) return REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, low_name, -1, "is %.17g: it must not be above %s, %.17g", low, high_name, high);
}

static rein_status check_ranges(const rein_options *o, rein_error *err) {
    rein_status status = REIN_OK;
#define IN_ORDER(low, high) status = status ? status : check_order(#low, o->low, #high, o->high, err)
    if (on_mismatch_mask(o)) IN_ORDER(mismatch_low, mismatch_high);
    if (on_topr(o)) IN_ORDER(topr_positive_low, topr_positive_high);
    if (on_topr(o)) IN_ORDER(topr_negative_low, topr_negative_high);
    if (on_overlong(o)) IN_ORDER(overlong_cushion, overlong_max);
#undef IN_ORDER
    return status ? status : check_negative_bound(o, err);
}

/* Options that are right one by one but not together. */
static rein_status check_together(const rein_options *o, rein_error *err) {
    if (o->surrogate == REIN_SURROGATE_GMPO && rein_advantage_per_token(o))
        return rein_fail_at(err, REIN_EINVAL, "surrogate", -1,
                            "gmpo clips by the sign of a sequence's advantage: advantage %s gives one per token",
                            o->advantage == REIN_ADVANTAGE_GAE     ? "gae"
                            : o->advantage == REIN_ADVANTAGE_GIVEN ? "given"
                                                                   : "reinforce++ with kl_reward_coef");
    if (o->kl_penalty_coef != 0 && o->kl_scope == REIN_KL_SCOPE_SEQUENCE && rein_sequence_unit(o))
        return rein_fail_at(err, REIN_EINVAL, "kl_scope", -1,
                            "sequence has no effect: with a sequence-level ratio the penalty is one number per sequence, and "
                            "centred over itself it is 0");
    if (o->kimi_k2_tau != 0 && rein_sequence_unit(o)) return no_effect(rein_option_find("kimi_k2_tau"), err);
    return check_ranges(o, err);
}

rein_status rein_options_resolve(rein_options *resolved, const rein_options *given, rein_error *err) {
    rein_options o = or_zero(given);
    if ((unsigned)o.surrogate >= N_SURROGATES)
        return rein_fail_at(err, REIN_EINVAL, "surrogate", -1, "is %d: there are %d surrogates", (int)o.surrogate,
                            (int)N_SURROGATES);
    fill(&o);
    for (size_t i = 0; i < REIN_OPTION_COUNT; i++) {
        const rein_status status = check_one(&o, &rein_option_rows[i], err);
        if (status != REIN_OK) return status;
    }
    rein_status status = check_missing(&o, err);
    if (status == REIN_OK) status = check_together(&o, err);
    if (status != REIN_OK) return status;
    default_to(&o.dppo_ratio_cap, (double)INFINITY);
    default_to(&o.kl_loss_coef, 0);
    *resolved = o;
    return REIN_OK;
}

rein_status rein_options_check(const rein_options *options, rein_error *err) {
    rein_options resolved;
    return rein_options_resolve(&resolved, options, err);
}
