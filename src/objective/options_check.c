/* options_check.c - the check that completes a composition: published constants where nothing was given, and then what is missing, out of
 * its range, without effect, or not right together. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../base/base.h"
#include "option_table.h"

/* Whether the option of this name has an effect among the options of the objective. */
static int applies(const rein_options *o, const char *name) { return rein_option_find(name)->condition->holds(o); }

/* Whether the two options have an effect under the same condition. */
static int goes_with(const rein_option_row *row, const char *name) { return row->condition == rein_option_find(name)->condition; }

static int has_preference_loss(const rein_options *o) { return o->preference_loss != REIN_PREFERENCE_LOSS_NONE; }

/* ---- published constants */

static void default_to(double *field, double published) {
    if (isnan(*field)) *field = published;
}

static void switch_off(rein_options *o, const rein_option_row *d) {
    if (rein_option_is_choice(d)) *rein_option_choice(o, d) = 0;
    else *rein_option_number(o, d) = 0;
}

/* Constants that the loss over preferences does not have are NaN, unless they were given, which is an error. */
static void fill_preference(rein_options *o) {
    static const char *const names[] = {"beta",      "label_smoothing",  "simpo_gamma",
                                        "cpo_alpha", "desirable_weight", "undesirable_weight"};
    if (!has_preference_loss(o)) return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!applies(o, names[i]) && !rein_options_given(o, names[i])) rein_options_unset(o, names[i]);
    const rein_preference_options p = rein_preference_published((rein_preference)(o->preference_loss - 1));
    default_to(&o->beta, p.beta);
    default_to(&o->simpo_gamma, p.simpo_gamma);
    default_to(&o->cpo_alpha, p.cpo_alpha);
    default_to(&o->desirable_weight, p.desirable_weight);
    default_to(&o->undesirable_weight, p.undesirable_weight);
}

/* The standard value of a number that was not given. A switch that is off becomes NaN, the form the loss tests for. */
static void fill_number(rein_options *o, const rein_option_row *row) {
    if (rein_option_is_choice(row)) return;
    double *x = rein_option_number(o, row);
    default_to(x, row->standard);
    if (row->kind == REIN_OPTION_SWITCH && *x == 0) *x = NAN;
}

/* Published constants where nothing was given. */
static void fill(rein_options *o) {
    const rein_surrogate_constants *p = rein_surrogate_published(o->surrogate);
    const rein_option_row *shape = rein_option_find("shape");
    fill_preference(o);
    for (size_t i = 0; i < REIN_OPTION_COUNT; i++) {
        const rein_option_row *row = rein_option_row_at(i);
        if (row->condition == shape->condition && !shape->condition->holds(o) && !o->given[i]) switch_off(o, row);
    }
    if (o->ratio == REIN_RATIO_PUBLISHED || !applies(o, "ratio")) o->ratio = p->level;
    if (isnan(o->epsilon) && isnan(o->epsilon_high)) o->epsilon_high = p->epsilon_high;
    default_to(&o->epsilon, p->epsilon);
    default_to(&o->epsilon_high, o->epsilon);
    default_to(&o->dppo_delta, o->dppo_divergence == REIN_DPPO_KL ? 0.05 : 0.15);
    default_to(&o->advantage_eps, o->advantage == REIN_ADVANTAGE_REINFORCE_PP ? 1e-8 : 1e-6);
    default_to(&o->mismatch_high, o->mismatch == REIN_MISMATCH_SEQUENCE_MASK ? 2 : 5);
    for (size_t i = 0; i < REIN_OPTION_COUNT; i++) fill_number(o, rein_option_row_at(i));
    if (o->kl_direction == REIN_KL_DIRECTION_DEFAULT) o->kl_direction = REIN_REF_OVER_CURRENT;
    if (o->pass_k == 0) o->pass_k = NAN;
    if (isinf(o->dppo_ratio_cap)) o->dppo_ratio_cap = NAN; /* the options were resolved before */
}

/* ---- the check */

static int may_be_absent(const rein_option_row *d) {
    return d->kind == REIN_OPTION_SWITCH || strcmp(d->info.name, "pass_k") == 0 || strcmp(d->info.name, "token_budget") == 0;
}

/* Giving 0 to one of these turns it off, which is allowed where it has no effect. */
static int off_at_zero(const rein_option_row *d) { return goes_with(d, "shape") || goes_with(d, "kimi_k2_tau"); }

/* A loss over preferences compares two responses by their shaped rewards: no other stage has an effect. */
static int is_replaced(const rein_options *o, const rein_option_row *row) {
    return has_preference_loss(o) && strcmp(row->info.stage, "preference") != 0 && strcmp(row->info.stage, "shape") != 0;
}

static int has_effect(const rein_options *o, const rein_option_row *row) {
    return row->condition->holds(o) && !is_replaced(o, row);
}

static rein_status no_effect(const rein_options *o, const rein_option_row *row, rein_error *err) {
    if (is_replaced(o, row))
        return rein_fail_at(err, REIN_EINVAL, row->info.name, -1,
                            "has no effect: preference_loss replaces the objective, of which only shape remains");
    return rein_fail_at(err, REIN_EINVAL, row->info.name, -1, "has no effect: it needs %s", row->condition->needs);
}

static rein_status check_choice(rein_options *o, const rein_option_row *row, int useless, rein_error *err) {
    const int value = *rein_option_choice(o, row);
    if (!rein_option_word(row, value))
        return rein_fail_at(err, REIN_EINVAL, row->info.name, -1, "is %d: it must be one of %s", value, row->info.choices);
    const int off = goes_with(row, "shape") && value == 0; /* shape none */
    return useless && !off ? no_effect(o, row, err) : REIN_OK;
}

/* Option i; `o` has its published constants. */
static rein_status check_one(rein_options *o, size_t i, rein_error *err) {
    const rein_option_row *row = rein_option_row_at(i);
    const int effective = has_effect(o, row), useless = o->given[i] && !effective;
    if (rein_option_is_choice(row)) return check_choice(o, row, useless, err);
    const double x = *rein_option_number(o, row);
    if (useless && !(x == 0 && off_at_zero(row))) return no_effect(o, row, err);
    return effective && !isnan(x) ? rein_option_check_range(row, x, err) : REIN_OK;
}

static rein_option_state state_of(rein_options *filled, const rein_option_row *d) {
    if (!has_effect(filled, d)) return REIN_OPTION_IDLE;
    if (rein_option_is_choice(d) || !isnan(*rein_option_number(filled, d))) return REIN_OPTION_SET;
    return may_be_absent(d) ? REIN_OPTION_OFF : REIN_OPTION_REQUIRED;
}

/* No options are those of REINFORCE on the raw reward. */
static rein_options or_zero(const rein_options *o) { return o ? *o : (rein_options){0}; }

rein_option_state rein_options_state(const rein_options *given, size_t i) {
    rein_options o = or_zero(given);
    if (i >= REIN_OPTION_COUNT || (unsigned)o.surrogate >= REIN_N_SURROGATES ||
        (unsigned)o.preference_loss >= REIN_N_PREFERENCE_LOSSES)
        return REIN_OPTION_IDLE;
    fill(&o);
    return state_of(&o, rein_option_row_at(i));
}

/* Names every option that is required and was not given, in one message. */
static rein_status check_missing(rein_options *o, rein_error *err) {
    char others[300] = "";
    const char *first = NULL;
    for (size_t i = 0; i < REIN_OPTION_COUNT; i++) {
        if (state_of(o, rein_option_row_at(i)) != REIN_OPTION_REQUIRED) continue;
        const char *name = rein_option_at(i)->name;
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
    const int cispo = o->surrogate == REIN_SURROGATE_CISPO, dual = o->surrogate == REIN_SURROGATE_DUAL_CLIP;
    const double high = cispo ? 1 + o->epsilon_high : dual ? o->dual_clip : (double)INFINITY;
    if (!applies(o, name) || isnan(bound) || (bound > low && bound < high)) return REIN_OK;
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
#define IN_ORDER(low, high) \
    if (!status && applies(o, #low)) status = check_order(#low, o->low, #high, o->high, err)
    IN_ORDER(mismatch_low, mismatch_high);
    IN_ORDER(topr_positive_low, topr_positive_high);
    IN_ORDER(topr_negative_low, topr_negative_high);
    IN_ORDER(overlong_cushion, overlong_max);
#undef IN_ORDER
    if (!status && o->preference_loss == REIN_PREFERENCE_LOSS_ROBUST && !(o->label_smoothing < 0.5))
        return rein_fail_at(err, REIN_EINVAL, "label_smoothing", -1, "is %.17g: it must be below 1/2 for preference_loss robust",
                            o->label_smoothing);
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
    if (o->kl_reward_exact != 0 && o->kl_reward_coef != 0)
        return rein_fail_at(err, REIN_EINVAL, "kl_reward_exact", -1,
                            "and kl_reward_coef both put the KL into the reward: give one of them");
    if (o->kl_penalty_coef != 0 && rein_exact_kl_loss(o))
        return rein_fail_at(err, REIN_EINVAL, "kl_estimator", -1,
                            "exact is a KL of the loss (kl_loss_coef) or of the reward (kl_reward_exact), not of the advantage "
                            "(kl_penalty_coef): an exact KL depends only on the tokens before it, so E[KL_t*grad lp_t] = 0");
    if (rein_teacher_in_loss(o) && rein_exact_kl_loss(o))
        return rein_fail_at(
            err, REIN_EINVAL, "kl_estimator", -1,
            "exact and a divergence from the teacher both compare whole vocabularies, and a pass compares one: take "
            "another kl_estimator, or divergence sampled");
    if (rein_teacher_in_advantage(o) && (rein_sequence_unit(o) || o->advantage == REIN_ADVANTAGE_GIVEN))
        return rein_fail_at(
            err, REIN_EINVAL, "divergence", -1,
            "sampled changes the advantage of each token: it needs a token-level ratio, and advantages that are not "
            "given (reverse, forward and jsd need neither)");
    if (o->kimi_k2_tau != 0 && rein_sequence_unit(o)) return no_effect(o, rein_option_find("kimi_k2_tau"), err);
    return check_ranges(o, err);
}

rein_status rein_options_resolve(rein_options *resolved, const rein_options *given, rein_error *err) {
    rein_options o = or_zero(given);
    if ((unsigned)o.surrogate >= REIN_N_SURROGATES)
        return rein_fail_at(err, REIN_EINVAL, "surrogate", -1, "is %d: there are %d surrogates", (int)o.surrogate,
                            (int)REIN_N_SURROGATES);
    if ((unsigned)o.preference_loss >= REIN_N_PREFERENCE_LOSSES)
        return rein_fail_at(err, REIN_EINVAL, "preference_loss", -1, "is %d: there are %d losses", (int)o.preference_loss,
                            (int)REIN_N_PREFERENCE_LOSSES - 1);
    fill(&o);
    for (size_t i = 0; i < REIN_OPTION_COUNT; i++) {
        const rein_status status = check_one(&o, i, err);
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
