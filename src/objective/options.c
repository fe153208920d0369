/* options.c - the options of the policy loss: one table of names, ranges and conditions; the published constants of the surrogates; and
 * options as a handle, set and read by name. options_check.c completes and checks a composition. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../base/base.h"
#include "option_table.h"

static const rein_surrogate_constants surrogates[] = {
    [REIN_SURROGATE_REINFORCE] = {REIN_RATIO_TOKEN, NAN, NAN},      [REIN_SURROGATE_CLIP] = {REIN_RATIO_TOKEN, 0.2, 0.2},
    [REIN_SURROGATE_DUAL_CLIP] = {REIN_RATIO_TOKEN, 0.2, 0.2},      [REIN_SURROGATE_CISPO] = {REIN_RATIO_TOKEN, 1, 4},
    [REIN_SURROGATE_SQUARED] = {REIN_RATIO_SEQUENCE_SUM, NAN, NAN}, [REIN_SURROGATE_DRO] = {REIN_RATIO_TOKEN, NAN, NAN},
    [REIN_SURROGATE_GMPO] = {REIN_RATIO_TOKEN, 0.4, 0.4},           [REIN_SURROGATE_SAPO] = {REIN_RATIO_TOKEN, NAN, NAN},
    [REIN_SURROGATE_VESPO] = {REIN_RATIO_SEQUENCE_SUM, NAN, NAN},   [REIN_SURROGATE_TOPR] = {REIN_RATIO_SEQUENCE_SUM, NAN, NAN},
    [REIN_SURROGATE_DPPO] = {REIN_RATIO_TOKEN, NAN, NAN},           [REIN_SURROGATE_LUSPO] = {REIN_RATIO_SEQUENCE, 0.002, 0.0025},
};

_Static_assert(sizeof surrogates / sizeof *surrogates == REIN_N_SURROGATES, "every surrogate has its published constants");

const rein_surrogate_constants *rein_surrogate_published(rein_surrogate surrogate) {
    return (unsigned)surrogate < REIN_N_SURROGATES ? &surrogates[surrogate] : NULL;
}

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

const rein_option_row *rein_option_row_at(size_t i) { return i < REIN_OPTION_COUNT ? &rows[i] : NULL; }

const rein_option_row *rein_option_find(const char *name) {
    for (size_t i = 0; i < REIN_OPTION_COUNT; i++)
        if (strcmp(rows[i].info.name, name) == 0) return &rows[i];
    return NULL;
}

static size_t index_of(const rein_option_row *row) { return (size_t)(row - rows); }

/* The first value of a choice that has a word. */
static int first_value(const rein_option_row *row) { return row->kind == REIN_OPTION_CHOICE_FROM_1; }

const char *rein_option_word(const rein_option_row *row, int value) {
    int i = first_value(row);
    while (i < value && row->words[i]) i++;
    return i == value ? row->words[i] : NULL;
}

rein_status rein_option_check_range(const rein_option_row *row, double x, rein_error *err) {
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
        if (!strcmp(row->words[i], value)) return *rein_option_choice(o, row) = i, REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, row->info.name, -1, "is \"%.60s\": it must be one of %s", value, row->info.choices);
}

static rein_status set_number(rein_options *o, const rein_option_row *row, const char *value, rein_error *err) {
    char *end;
    const double x = strtod(value, &end);
    if (end == value || *end) return rein_fail_at(err, REIN_EINVAL, row->info.name, -1, "is \"%.60s\": it must be a number", value);
    const rein_status status = rein_option_check_range(row, x, err);
    if (!status) *rein_option_number(o, row) = x;
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
    const rein_surrogate_constants *was = &surrogates[before], *now = &surrogates[o->surrogate];
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
    status = rein_option_is_choice(row) ? set_choice(o, row, value, err) : set_number(o, row, value, err);
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
    if (row && !rein_option_is_choice(row)) *rein_option_number(o, row) = NAN;
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
    if (!rein_option_is_choice(row))
        return rein_fail_at(err, REIN_EINVAL, name, -1, "is a number: rein_options_get_number reads it");
    rein_options o = *options;
    const char *found = rein_option_word(row, *rein_option_choice(&o, row));
    *word = found ? found : "";
    return REIN_OK;
}

rein_status rein_options_get_number(double *number, const rein_options *options, const char *name, rein_error *err) {
    const rein_option_row *row = rein_option_find(name);
    if (!row) return unknown_option(name, err);
    if (rein_option_is_choice(row))
        return rein_fail_at(err, REIN_EINVAL, name, -1, "is one of %s: rein_options_get reads it", row->info.choices);
    rein_options o = *options;
    *number = *rein_option_number(&o, row);
    return REIN_OK;
}
