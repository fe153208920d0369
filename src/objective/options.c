/* options.c - the options of the policy loss: one table of names, ranges and conditions; options as a handle, set and read by name; the
 * published constants of the surrogates; and the check that completes a composition. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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
enum { N_SURROGATES = 0 REIN_SURROGATES(COUNTED), N_PREFERENCE_LOSSES = 0 REIN_PREFERENCE_LOSSES(COUNTED) };
_Static_assert(sizeof surrogates / sizeof *surrogates == N_SURROGATES, "every surrogate has its published constants");

/* ---- when an option has an effect: a name, what the error says is needed, and the condition */
typedef rein_options O;
#define CONDITION(name, needs, condition)                     \
    static int name##_holds(const O *o) { return condition; } \
    static const rein_option_condition name = {name##_holds, needs};
static int always_holds(const O *o) { return (void)o, 1; }
static const rein_option_condition always = {always_holds, ""};
CONDITION(on_budget, "shape budget", o->shape == REIN_SHAPE_BUDGET)
CONDITION(on_truncate, "shape truncate", o->shape == REIN_SHAPE_TRUNCATE)
CONDITION(on_overlong, "shape overlong", o->shape == REIN_SHAPE_OVERLONG)
CONDITION(on_k15, "shape k1.5-length", o->shape == REIN_SHAPE_K15_LENGTH)
CONDITION(on_scalar_reward, "an advantage made from one reward (not gdpo, not given)",
          o->advantage != REIN_ADVANTAGE_GDPO && o->advantage != REIN_ADVANTAGE_GIVEN)
CONDITION(on_pass_at_k, "advantage pass-at-k", o->advantage == REIN_ADVANTAGE_PASS_AT_K)
CONDITION(on_gae, "advantage gae", o->advantage == REIN_ADVANTAGE_GAE)
CONDITION(on_std, "an advantage that divides by a std",
          o->advantage == REIN_ADVANTAGE_GROUP_STD || o->advantage == REIN_ADVANTAGE_BATCH_STD ||
              o->advantage == REIN_ADVANTAGE_REINFORCE_PP || o->advantage == REIN_ADVANTAGE_GDPO)
CONDITION(on_ratio, "a surrogate that takes a ratio (not reinforce, not gmpo)",
          o->surrogate != REIN_SURROGATE_REINFORCE && o->surrogate != REIN_SURROGATE_GMPO)
CONDITION(on_tis, "mismatch token-tis or sequence-tis",
          o->mismatch == REIN_MISMATCH_TOKEN_TIS || o->mismatch == REIN_MISMATCH_SEQUENCE_TIS)
CONDITION(on_mismatch_mask, "mismatch token-mask or sequence-mask",
          o->mismatch == REIN_MISMATCH_TOKEN_MASK || o->mismatch == REIN_MISMATCH_SEQUENCE_MASK)
CONDITION(on_clip, "a surrogate that clips", !isnan(surrogates[o->surrogate].epsilon))
CONDITION(on_clipped_ratio, "a surrogate that clips the ratio (clip, dual-clip, cispo, luspo)",
          on_clip_holds(o) && o->surrogate != REIN_SURROGATE_GMPO)
CONDITION(on_dual_clip, "surrogate dual-clip", o->surrogate == REIN_SURROGATE_DUAL_CLIP)
CONDITION(on_squared, "surrogate squared", o->surrogate == REIN_SURROGATE_SQUARED)
CONDITION(on_dro, "surrogate dro", o->surrogate == REIN_SURROGATE_DRO)
CONDITION(on_sapo, "surrogate sapo", o->surrogate == REIN_SURROGATE_SAPO)
CONDITION(on_vespo, "surrogate vespo", o->surrogate == REIN_SURROGATE_VESPO)
CONDITION(on_topr, "surrogate topr", o->surrogate == REIN_SURROGATE_TOPR)
CONDITION(on_dppo, "surrogate dppo", o->surrogate == REIN_SURROGATE_DPPO)
CONDITION(on_token_unit, "a token-level ratio", !rein_sequence_unit(o))
CONDITION(on_kl_loss, "kl_loss_coef", o->kl_loss_coef != 0)
CONDITION(on_sampled_kl_loss, "kl_loss_coef with a kl_estimator of the sampled token (not exact)",
          on_kl_loss_holds(o) && o->kl_estimator != REIN_KL_EXACT)
CONDITION(on_exact_reward, "a token-level ratio, and an advantage of one number per sequence (not gae, not given)",
          !rein_sequence_unit(o) && o->advantage != REIN_ADVANTAGE_GAE && o->advantage != REIN_ADVANTAGE_GIVEN)
CONDITION(on_k3_loss, "kl_loss_coef with kl_estimator k3 or is-k3",
          on_kl_loss_holds(o) && (o->kl_estimator == REIN_K3 || o->kl_estimator == REIN_IS_K3))
CONDITION(on_kl_penalty, "kl_penalty_coef", o->kl_penalty_coef != 0)
CONDITION(on_detached_kl, "kl_penalty_coef or kl_reward_coef", rein_detached_kl(o))
CONDITION(on_teacher, "teacher_coef", o->teacher_coef != 0)
CONDITION(on_jsd, "teacher_coef with divergence jsd", o->teacher_coef != 0 && o->divergence == REIN_DIVERGENCE_JSD)
CONDITION(on_sampled_teacher, "teacher_coef with divergence sampled", rein_teacher_in_advantage(o))
CONDITION(on_entropy, "entropy_coef", o->entropy_coef != 0)
CONDITION(on_preference, "a preference_loss", o->preference_loss != REIN_PREFERENCE_LOSS_NONE)
CONDITION(on_smoothing, "preference_loss cdpo or robust",
          o->preference_loss == REIN_PREFERENCE_LOSS_CDPO || o->preference_loss == REIN_PREFERENCE_LOSS_ROBUST)
CONDITION(on_simpo, "preference_loss simpo", o->preference_loss == REIN_PREFERENCE_LOSS_SIMPO)
CONDITION(on_cpo, "preference_loss cpo", o->preference_loss == REIN_PREFERENCE_LOSS_CPO)
CONDITION(on_kto, "preference_loss kto", o->preference_loss == REIN_PREFERENCE_LOSS_KTO)
CONDITION(on_dr_grpo, "aggregation dr-grpo", o->aggregation == REIN_DR_GRPO)
#undef CONDITION

/* ---- the table */

/* The words of the enums that are public. */
#define KL_SCOPES(X) X(REIN_KL_SCOPE_BATCH, "batch") X(REIN_KL_SCOPE_GROUP, "group") X(REIN_KL_SCOPE_SEQUENCE, "sequence")
#define KL_DIRECTIONS(X) X(REIN_CURRENT_OVER_REF, "current_over_ref") X(REIN_REF_OVER_CURRENT, "ref_over_current")

#define JOINED(value, word) "|" word
#define WORD(value, word) [value] = word,
#define NUM(name, stage, kind, low, high, standard, condition, help) \
    {{#name, NULL, stage, help}, NULL, offsetof(O, name), REIN_OPTION_##kind, low, high, standard, &condition},
#define PICK(name, stage, kind, list, when, help) \
    {{#name, &(list(JOINED))[1], stage, help},    \
     (const char *const[]){list(WORD) NULL},      \
     offsetof(O, name),                           \
     REIN_OPTION_##kind,                          \
     .condition = &when},
static const rein_option_row rows[] = {REIN_OPTION_LIST(NUM, PICK)};
#undef NUM
#undef PICK

const rein_option_info *rein_option_at(size_t i) { return i < REIN_OPTION_COUNT ? &rows[i].info : NULL; }

const rein_option_row *rein_option_find(const char *name) {
    for (size_t i = 0; i < REIN_OPTION_COUNT; i++)
        if (strcmp(rows[i].info.name, name) == 0) return &rows[i];
    return NULL;
}

static size_t index_of(const rein_option_row *row) { return (size_t)(row - rows); }
static int is_choice(const rein_option_row *row) { return row->kind >= REIN_OPTION_CHOICE; }
static double *number_of(O *o, const rein_option_row *row) { return (double *)(void *)((char *)o + row->offset); }
static int *choice_of(O *o, const rein_option_row *row) { return (int *)(void *)((char *)o + row->offset); }

/* The first value of a choice that has a word. */
static int first_value(const rein_option_row *row) { return row->kind == REIN_OPTION_CHOICE_FROM_1; }

/* The word of a choice's value; NULL where the value has none. */
static const char *word_of(const rein_option_row *row, int value) {
    int i = first_value(row);
    while (i < value && row->words[i]) i++;
    return i == value ? row->words[i] : NULL;
}

static rein_status check_range(const rein_option_row *row, double x, rein_error *err) {
    const char *name = row->info.name;
    const int positive = row->kind == REIN_OPTION_POSITIVE || row->kind == REIN_OPTION_SWITCH;
    if (!isfinite(x)) return rein_fail_at(err, REIN_EINVAL, name, -1, "is not a finite number");
    if (positive && !(x > 0)) return rein_fail_at(err, REIN_EINVAL, name, -1, "is %.17g: it must be above 0", x);
    if (row->kind == REIN_OPTION_WHOLE && x != floor(x))
        return rein_fail_at(err, REIN_EINVAL, name, -1, "is %.17g: it must be a whole number", x);
    if (x < row->low) return rein_fail_at(err, REIN_EINVAL, name, -1, "is %.17g: it must be %.17g or more", x, row->low);
    if (x > row->high) return rein_fail_at(err, REIN_EINVAL, name, -1, "is %.17g: it must be %.17g or less", x, row->high);
    return REIN_OK;
}

/* ---- questions about a composition */

int rein_sequence_unit(const rein_options *o) {
    const rein_ratio level = o->ratio ? o->ratio : surrogates[o->surrogate].level;
    if (o->surrogate == REIN_SURROGATE_GMPO) return 1;
    return on_ratio_holds(o) && (level == REIN_RATIO_SEQUENCE || level == REIN_RATIO_SEQUENCE_SUM);
}

int rein_advantage_per_token(const rein_options *o) {
    return o->advantage == REIN_ADVANTAGE_GAE || o->advantage == REIN_ADVANTAGE_GIVEN ||
           (o->advantage == REIN_ADVANTAGE_REINFORCE_PP && o->kl_reward_coef != 0);
}

int rein_options_preference(rein_preference_options *p, const rein_options *o) {
    if (!on_preference_holds(o)) return 0;
    *p = (rein_preference_options){(rein_preference)(o->preference_loss - 1),
                                   o->beta,
                                   o->label_smoothing,
                                   o->simpo_gamma,
                                   o->cpo_alpha,
                                   o->desirable_weight,
                                   o->undesirable_weight};
    return 1;
}

rein_status rein_options_check_tokens(const rein_options *o, rein_error *err) {
    if (!on_preference_holds(o)) return REIN_OK;
    return rein_fail_at(
        err, REIN_EINVAL, "preference_loss", -1,
        "is a loss over pairs, not over tokens: rein_preference_loss (rein objective preference-loss) computes it; rein "
        "run and rein train choose the pairs");
}

int rein_options_use_reference(const rein_options *o) {
    if (!o) return 0;
    const rein_preference_info *loss = on_preference_holds(o) ? rein_preference_at((size_t)o->preference_loss - 1) : NULL;
    if (loss) return loss->uses_reference;
    return o->kl_reward_coef > 0 || o->kl_penalty_coef > 0 || o->kl_loss_coef > 0 || o->kl_reward_exact > 0;
}

/* ---- lifetime */

rein_status rein_options_new(rein_options **options, const char *preset, rein_error *err) {
    *options = NULL;
    rein_options *o = malloc(sizeof *o);
    if (!o) return rein_fail(err, REIN_ENOMEM, "no memory for options");
    const rein_status status = rein_options_init(o, preset, err);
    if (status) free(o);
    else *options = o;
    return status;
}

rein_status rein_options_copy(rein_options **copy, const rein_options *options, rein_error *err) {
    *copy = malloc(sizeof **copy);
    if (!*copy) return rein_fail(err, REIN_ENOMEM, "no memory for options");
    **copy = *options;
    return REIN_OK;
}

void rein_options_free(rein_options *options) { free(options); }

/* ---- aliases */

static const rein_option_alias aliases[REIN_OPTION_ALIAS_COUNT] = {
    {"importance_sampling_level", "ratio", "NAME", "ART's name of ratio"},
    {"scale_rewards", "advantage", "true|false", "ART's name of advantage group-std (true) or group-mean (false)"},
    {"truncated_importance_sampling", "tis_cap", "X", "ART's name of tis_cap with mismatch token-tis"}};

const rein_option_alias *rein_option_alias_at(size_t i) { return i < REIN_OPTION_ALIAS_COUNT ? &aliases[i] : NULL; }

static const rein_option_alias *find_alias(const char *name) {
    for (size_t i = 0; i < REIN_OPTION_ALIAS_COUNT; i++)
        if (!strcmp(aliases[i].name, name)) return &aliases[i];
    return NULL;
}

static rein_status given_twice(const rein_option_alias *alias, rein_error *err) {
    return rein_fail_at(err, REIN_EINVAL, alias->name, -1, "and %s are the same option: give one of them", alias->option);
}

static rein_status set_alias(rein_options *o, const rein_option_alias *alias, const char *value, rein_error *err) {
    const char *name = alias->name;
    rein_options next = *o;
    rein_status status = REIN_OK;
    if (rein_options_given(o, alias->option)) return given_twice(alias, err);
    if (!strcmp(name, "scale_rewards")) {
        const int yes = !strcmp(value, "true") || !strcmp(value, "1"), no = !strcmp(value, "false") || !strcmp(value, "0");
        if (!yes && !no) return rein_fail_at(err, REIN_EINVAL, name, -1, "is \"%.60s\": it must be true or false", value);
        value = yes ? "group-std" : "group-mean";
    } else if (!strcmp(name, "truncated_importance_sampling")) {
        if (rein_options_given(o, "mismatch") && o->mismatch != REIN_MISMATCH_TOKEN_TIS)
            return rein_fail_at(err, REIN_EINVAL, name, -1, "means mismatch token-tis: another mismatch is given");
        status = rein_options_set(&next, "mismatch", "token-tis", err);
    }
    if (!status) status = rein_options_set(&next, alias->option, value, err);
    if (status) return status;
    next.given_by[alias - aliases] = 1;
    *o = next;
    return REIN_OK;
}

/* ---- set */

static rein_status unknown_option(const char *name, rein_error *err) {
    const char *names[REIN_OPTION_COUNT + REIN_OPTION_ALIAS_COUNT + 1] = {NULL};
    char shown[61];
    for (size_t i = 0; i < REIN_OPTION_COUNT; i++) names[i] = rows[i].info.name;
    for (size_t i = 0; i < REIN_OPTION_ALIAS_COUNT; i++) names[REIN_OPTION_COUNT + i] = aliases[i].name;
    snprintf(shown, sizeof shown, "%s", name);
    const char *nearest = rein_nearest(name, names);
    if (nearest) return rein_fail_at(err, REIN_EINVAL, shown, -1, "is not an option: did you mean %s?", nearest);
    return rein_fail_at(err, REIN_EINVAL, shown, -1, "is not an option: rein explain lists the options of a preset");
}

static rein_status set_choice(rein_options *o, const rein_option_row *row, const char *value, rein_error *err) {
    for (int i = first_value(row); row->words[i]; i++)
        if (!strcmp(row->words[i], value)) return *choice_of(o, row) = i, REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, row->info.name, -1, "is \"%.60s\": it must be one of %s", value, row->info.choices);
}

static rein_status set_number(rein_options *o, const rein_option_row *row, const char *value, rein_error *err) {
    char *end;
    const double x = strtod(value, &end);
    if (end == value || *end) return rein_fail_at(err, REIN_EINVAL, row->info.name, -1, "is \"%.60s\": it must be a number", value);
    const rein_status status = check_range(row, x, err);
    if (!status) *number_of(o, row) = x;
    return status;
}

/* The row of an option that may be set by this name. */
static rein_status find_to_set(const rein_option_row **row, const rein_options *o, const char *name, rein_error *err) {
    for (size_t i = 0; i < REIN_OPTION_ALIAS_COUNT; i++)
        if (!strcmp(name, aliases[i].option) && o->given_by[i]) return given_twice(&aliases[i], err);
    *row = rein_option_find(name);
    return *row ? REIN_OK : unknown_option(name, err);
}

/* After another surrogate was chosen: its own published constants and level, unless the user gave theirs. */
static void change_surrogate(rein_options *o, rein_surrogate before) {
    const struct published *was = &surrogates[before], *now = &surrogates[o->surrogate];
    if (was->epsilon != now->epsilon) {
        if (!rein_options_given(o, "epsilon")) o->epsilon = NAN;
        if (!rein_options_given(o, "epsilon_high")) o->epsilon_high = NAN;
    }
    if (was->level != now->level && !rein_options_given(o, "ratio")) o->ratio = REIN_RATIO_PUBLISHED;
}

rein_status rein_options_set(rein_options *o, const char *name, const char *value, rein_error *err) {
    const rein_option_alias *alias = find_alias(name);
    const rein_option_row *row;
    const rein_surrogate before = o->surrogate;
    if (alias) return set_alias(o, alias, value, err);
    rein_status status = find_to_set(&row, o, name, err);
    if (status) return status;
    status = is_choice(row) ? set_choice(o, row, value, err) : set_number(o, row, value, err);
    if (status) return status;
    o->given[index_of(row)] = 1;
    if (o->surrogate != before) change_surrogate(o, before);
    return REIN_OK;
}

rein_status rein_options_set_number(rein_options *o, const char *name, double x, rein_error *err) {
    char text[40];
    snprintf(text, sizeof text, "%.17g", x); /* enough digits for every double */
    return rein_options_set(o, name, text, err);
}

void rein_options_unset(rein_options *o, const char *name) {
    const rein_option_row *row = rein_option_find(name);
    if (row && !is_choice(row)) *number_of(o, row) = NAN;
}

/* ---- get */

int rein_options_given(const rein_options *o, const char *name) {
    const rein_option_row *row = name ? rein_option_find(name) : NULL;
    const rein_option_alias *alias = name ? find_alias(name) : NULL;
    if (row) return o->given[index_of(row)];
    if (alias) return o->given_by[alias - aliases];
    return !name && memchr(o->given, 1, sizeof o->given) != NULL;
}

rein_status rein_options_get(const char **word, const rein_options *options, const char *name, rein_error *err) {
    const rein_option_row *row = rein_option_find(name);
    if (!row) return unknown_option(name, err);
    if (!is_choice(row)) return rein_fail_at(err, REIN_EINVAL, name, -1, "is a number: rein_options_get_number reads it");
    rein_options o = *options;
    const char *found = word_of(row, *choice_of(&o, row));
    *word = found ? found : "";
    return REIN_OK;
}

rein_status rein_options_get_number(double *number, const rein_options *options, const char *name, rein_error *err) {
    const rein_option_row *row = rein_option_find(name);
    if (!row) return unknown_option(name, err);
    if (is_choice(row))
        return rein_fail_at(err, REIN_EINVAL, name, -1, "is one of %s: rein_options_get reads it", row->info.choices);
    rein_options o = *options;
    *number = *number_of(&o, row);
    return REIN_OK;
}

/* ---- published constants */

static void default_to(double *field, double published) {
    if (isnan(*field)) *field = published;
}

static void switch_off(rein_options *o, const rein_option_row *d) {
    if (is_choice(d)) *choice_of(o, d) = 0;
    else *number_of(o, d) = 0;
}

/* Constants that the loss over preferences does not have are NaN, unless they were given, which is an error. */
static void fill_preference(rein_options *o) {
    static const char *const names[] = {"beta",      "label_smoothing",  "simpo_gamma",
                                        "cpo_alpha", "desirable_weight", "undesirable_weight"};
    if (!on_preference_holds(o)) return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!rein_option_find(names[i])->condition->holds(o) && !rein_options_given(o, names[i])) rein_options_unset(o, names[i]);
    const rein_preference_options p = rein_preference_published((rein_preference)(o->preference_loss - 1));
    default_to(&o->beta, p.beta);
    default_to(&o->simpo_gamma, p.simpo_gamma);
    default_to(&o->cpo_alpha, p.cpo_alpha);
    default_to(&o->desirable_weight, p.desirable_weight);
    default_to(&o->undesirable_weight, p.undesirable_weight);
}

/* Published constants where nothing was given. Off switches become NaN, the form the loss tests for. */
static void fill(rein_options *o) {
    const struct published *p = &surrogates[o->surrogate];
    fill_preference(o);
    for (size_t i = 0; i < REIN_OPTION_COUNT; i++)
        if (rows[i].condition == &on_scalar_reward && !on_scalar_reward_holds(o) && !o->given[i]) switch_off(o, &rows[i]);
    if (o->ratio == REIN_RATIO_PUBLISHED || !on_ratio_holds(o)) o->ratio = p->level;
    if (isnan(o->epsilon) && isnan(o->epsilon_high)) o->epsilon_high = p->epsilon_high;
    default_to(&o->epsilon, p->epsilon);
    default_to(&o->epsilon_high, o->epsilon);
    default_to(&o->dppo_delta, o->dppo_divergence == REIN_DPPO_KL ? 0.05 : 0.15);
    default_to(&o->advantage_eps, o->advantage == REIN_ADVANTAGE_REINFORCE_PP ? 1e-8 : 1e-6);
    default_to(&o->mismatch_high, o->mismatch == REIN_MISMATCH_SEQUENCE_MASK ? 2 : 5);
    for (size_t i = 0; i < REIN_OPTION_COUNT; i++)
        if (!is_choice(&rows[i])) default_to(number_of(o, &rows[i]), rows[i].standard);
    if (o->kl_direction == REIN_KL_DIRECTION_DEFAULT) o->kl_direction = REIN_REF_OVER_CURRENT;
    for (size_t i = 0; i < REIN_OPTION_COUNT; i++)
        if (rows[i].kind == REIN_OPTION_SWITCH && *number_of(o, &rows[i]) == 0) *number_of(o, &rows[i]) = NAN;
    if (o->pass_k == 0) o->pass_k = NAN;
    if (isinf(o->dppo_ratio_cap)) o->dppo_ratio_cap = NAN; /* the options were resolved before */
}

/* ---- the check */

static int may_be_absent(const rein_option_row *d) {
    return d->kind == REIN_OPTION_SWITCH || strcmp(d->info.name, "pass_k") == 0 || strcmp(d->info.name, "token_budget") == 0;
}

/* Giving 0 to one of these turns it off, which is allowed where it has no effect. */
static int off_at_zero(const rein_option_row *d) { return d->condition == &on_scalar_reward || d->condition == &on_token_unit; }

/* A loss over preferences compares two responses by their shaped rewards: no other stage has an effect. */
static int is_replaced(const rein_options *o, const rein_option_row *row) {
    return on_preference_holds(o) && strcmp(row->info.stage, "preference") != 0 && strcmp(row->info.stage, "shape") != 0;
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
    const int value = *choice_of(o, row);
    if (!word_of(row, value))
        return rein_fail_at(err, REIN_EINVAL, row->info.name, -1, "is %d: it must be one of %s", value, row->info.choices);
    const int off = row->condition == &on_scalar_reward && value == 0; /* shape none */
    return useless && !off ? no_effect(o, row, err) : REIN_OK;
}

/* `o` has its published constants. */
static rein_status check_one(rein_options *o, const rein_option_row *row, rein_error *err) {
    const int effective = has_effect(o, row), useless = o->given[index_of(row)] && !effective;
    if (is_choice(row)) return check_choice(o, row, useless, err);
    const double x = *number_of(o, row);
    if (useless && !(x == 0 && off_at_zero(row))) return no_effect(o, row, err);
    return effective && !isnan(x) ? check_range(row, x, err) : REIN_OK;
}

static rein_option_state state_of(rein_options *filled, const rein_option_row *d) {
    if (!has_effect(filled, d)) return REIN_OPTION_IDLE;
    if (is_choice(d) || !isnan(*number_of(filled, d))) return REIN_OPTION_SET;
    return may_be_absent(d) ? REIN_OPTION_OFF : REIN_OPTION_REQUIRED;
}

/* No options are those of REINFORCE on the raw reward. */
static rein_options or_zero(const rein_options *o) { return o ? *o : (rein_options){0}; }

rein_option_state rein_options_state(const rein_options *given, size_t i) {
    rein_options o = or_zero(given);
    if (i >= REIN_OPTION_COUNT || (unsigned)o.surrogate >= N_SURROGATES || (unsigned)o.preference_loss >= N_PREFERENCE_LOSSES)
        return REIN_OPTION_IDLE;
    fill(&o);
    return state_of(&o, &rows[i]);
}

/* Names every option that is required and was not given, in one message. */
static rein_status check_missing(rein_options *o, rein_error *err) {
    char others[300] = "";
    const char *first = NULL;
    for (size_t i = 0; i < REIN_OPTION_COUNT; i++) {
        if (state_of(o, &rows[i]) != REIN_OPTION_REQUIRED) continue;
        const char *name = rows[i].info.name;
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
    const double high = cispo ? 1 + o->epsilon_high : on_dual_clip_holds(o) ? o->dual_clip : (double)INFINITY;
    if (!on_clipped_ratio_holds(o) || isnan(bound) || (bound > low && bound < high)) return REIN_OK;
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
    if (on_mismatch_mask_holds(o)) IN_ORDER(mismatch_low, mismatch_high);
    if (on_topr_holds(o)) IN_ORDER(topr_positive_low, topr_positive_high);
    if (on_topr_holds(o)) IN_ORDER(topr_negative_low, topr_negative_high);
    if (on_overlong_holds(o)) IN_ORDER(overlong_cushion, overlong_max);
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
    if ((unsigned)o.surrogate >= N_SURROGATES)
        return rein_fail_at(err, REIN_EINVAL, "surrogate", -1, "is %d: there are %d surrogates", (int)o.surrogate,
                            (int)N_SURROGATES);
    if ((unsigned)o.preference_loss >= N_PREFERENCE_LOSSES)
        return rein_fail_at(err, REIN_EINVAL, "preference_loss", -1, "is %d: there are %d losses", (int)o.preference_loss,
                            (int)N_PREFERENCE_LOSSES - 1);
    fill(&o);
    for (size_t i = 0; i < REIN_OPTION_COUNT; i++) {
        const rein_status status = check_one(&o, &rows[i], err);
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
