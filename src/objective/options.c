/* options.c - the options of the policy loss: one table of names, bounds and where each can act; the published constants of the
 * surrogates; and the check that makes a composition whole. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../base/base.h"
#include "options.h"

/* ---- what was published with each surrogate: the level of its ratio and its clip range (NaN: it has none) */
static const struct published {
    const char *name;
    rein_ratio level;
    double epsilon, epsilon_high;
} surrogates[] = {
    [REIN_SURROGATE_REINFORCE] = {"reinforce", REIN_RATIO_TOKEN, NAN, NAN},
    [REIN_SURROGATE_CLIP] = {"clip", REIN_RATIO_TOKEN, 0.2, 0.2},
    [REIN_SURROGATE_DUAL_CLIP] = {"dual-clip", REIN_RATIO_TOKEN, 0.2, 0.2},
    [REIN_SURROGATE_CISPO] = {"cispo", REIN_RATIO_TOKEN, 1, 4},
    [REIN_SURROGATE_SQUARED] = {"squared", REIN_RATIO_SEQUENCE_SUM, NAN, NAN},
    [REIN_SURROGATE_DRO] = {"dro", REIN_RATIO_TOKEN, NAN, NAN},
    [REIN_SURROGATE_GMPO] = {"gmpo", REIN_RATIO_TOKEN, 0.4, 0.4},
    [REIN_SURROGATE_SAPO] = {"sapo", REIN_RATIO_TOKEN, NAN, NAN},
    [REIN_SURROGATE_VESPO] = {"vespo", REIN_RATIO_SEQUENCE_SUM, NAN, NAN},
    [REIN_SURROGATE_TOPR] = {"topr", REIN_RATIO_SEQUENCE_SUM, NAN, NAN},
    [REIN_SURROGATE_DPPO] = {"dppo", REIN_RATIO_TOKEN, NAN, NAN},
    [REIN_SURROGATE_LUSPO] = {"luspo", REIN_RATIO_SEQUENCE, 0.002, 0.0025},
};

/* ---- where an option can act */
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
static int on_kl_detached(const O *o) { return o->kl_penalty_coef != 0 || o->kl_reward_coef != 0; }
static int on_entropy(const O *o) { return o->entropy_coef != 0; }
static int on_dr_grpo(const O *o) { return o->aggregation == REIN_DR_GRPO; }

/* ---- the table */
enum kind {
    NUMBER,   /* low <= x <= high */
    POSITIVE, /* 0 < x <= high */
    WHOLE,    /* a whole number, low <= x <= high */
    SWITCH,   /* 0 < x <= high; absent means off */
    CHOICE,
    CHOICE1 /* a choice whose enum has an unnamed default at 0 */
};

static const struct option {
    rein_option_info info;
    size_t offset;
    enum kind kind;
    double low, high;
    int (*acts)(const O *);
    const char *where; /* "needs …", for the error */
} options[] = {
#define NUM(name, stage, kind, low, high, acts, where, help) \
    { {#name, NULL, stage, help}, offsetof(O, name), kind, low, high, acts, where }
#define PICK(name, stage, kind, choices, acts, where, help) \
    { {#name, choices, stage, help}, offsetof(O, name), kind, 0, 0, acts, where }
    PICK(shape, "shape", CHOICE, "none|budget|truncate|overlong|k1.5-length", on_scalar_reward,
         "an advantage made from one reward (not gdpo, not given)", "how the reward is shaped by the response's length"),
    NUM(token_budget, "shape", NUMBER, 0, 1e15, always, "", "B: tokens a response may use"),
    NUM(budget_penalty_coef, "shape", NUMBER, 0, 1e300, on_budget, "shape budget", "lambda: reward lost per token over the budget"),
    NUM(budget_penalty, "shape", NUMBER, 0, 1e300, on_truncate, "shape truncate", "reward of a response over the budget, negated"),
    NUM(overlong_max, "shape", POSITIVE, 0, 1e15, on_overlong, "shape overlong", "Lmax: from here on the penalty is -1"),
    NUM(overlong_cushion, "shape", POSITIVE, 0, 1e15, on_overlong, "shape overlong", "Lc: the penalty starts at Lmax - Lc"),
    NUM(length_weight, "shape", NUMBER, 0, 1e300, on_k15, "shape k1.5-length", "weight of the length reward"),
    NUM(reward_clip, "shape", SWITCH, 0, 1e300, on_scalar_reward, "an advantage made from one reward (not gdpo, not given)",
        "shaped rewards are clipped to ± this"),
    PICK(advantage, "advantage", CHOICE,
         "none|group-mean|group-std|batch-std|leave-one-out|reinforce++|opo|remax|pass-at-k|max-rl|gdpo|gae|given", always, "",
         "the estimator that turns rewards into advantages"),
    NUM(pass_k, "advantage", WHOLE, 2, 1e6, on_pass_at_k, "advantage pass-at-k", "k of pass@k; the group's size when not given"),
    NUM(gae_gamma, "advantage", NUMBER, 0, 1, on_gae, "advantage gae", "discount"),
    NUM(gae_lambda, "advantage", NUMBER, 0, 1, on_gae, "advantage gae", "how far advantages look ahead"),
    NUM(advantage_eps, "advantage", NUMBER, 0, 1e300, on_std, "an advantage that divides by a std",
        "added to the std (reinforce++: to the variance)"),
    NUM(advantage_balance, "advantage", NUMBER, -1, 1, always, "", "1: only positive advantages train, -1: only negative ones"),
    PICK(ratio, "ratio", CHOICE1, "token|sequence|sequence-sum|sequence-token|average|geometric-average", on_ratio,
         "a surrogate that takes a ratio (not reinforce, not gmpo)", "the level of the importance ratio"),
    PICK(mismatch, "mismatch", CHOICE, "none|token-tis|token-mask|sequence-tis|sequence-mask", always, "",
         "correction for a sampler that is not the old policy"),
    NUM(tis_cap, "mismatch", POSITIVE, 0, 1e300, on_tis, "mismatch token-tis or sequence-tis", "C: weights are cut to this"),
    NUM(mismatch_low, "mismatch", NUMBER, 0, 1e300, on_mismatch_mask, "mismatch token-mask or sequence-mask",
        "weights below are dropped"),
    NUM(mismatch_high, "mismatch", POSITIVE, 0, 1e300, on_mismatch_mask, "mismatch token-mask or sequence-mask",
        "weights above are dropped"),
    NUM(off_policy_mask_delta, "mismatch", SWITCH, 0, 1e300, always, "",
        "delta: sequences with A < 0 and mean(sample - current log-prob) above it lose their surrogate"),
    PICK(surrogate, "surrogate", CHOICE, "reinforce|clip|dual-clip|cispo|squared|dro|gmpo|sapo|vespo|topr|dppo|luspo", always, "",
         "the loss of a token or sequence"),
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
    PICK(dppo_divergence, "surrogate", CHOICE, "tv|kl", on_dppo, "surrogate dppo", "which divergence of the token's probability"),
    NUM(dppo_delta, "surrogate", NUMBER, 0, 1e300, on_dppo, "surrogate dppo", "divergence above which a token is dropped"),
    NUM(dppo_ratio_cap, "surrogate", SWITCH, 0, 1e300, on_dppo, "surrogate dppo", "C: ratios are cut to this"),
    NUM(kimi_k2_tau, "adjust", NUMBER, 0, 1e300, on_token_unit, "a token-level ratio", "A <- A - tau * stop(log-ratio), per token"),
    NUM(kl_reward_coef, "kl", NUMBER, 0, 1e300, on_scalar_reward, "an advantage made from one reward (not gdpo, not given)",
        "KL (k1, detached) in the reward"),
    NUM(kl_penalty_coef, "kl", NUMBER, 0, 1e300, always, "", "KL (centred, detached) in the advantage"),
    NUM(kl_loss_coef, "kl", NUMBER, 0, 1e300, always, "", "KL in the loss"),
    PICK(kl_estimator, "kl", CHOICE, "k1|k2|k3|abs|is-k1|is-k3", on_kl_loss, "kl_loss_coef", "the estimator in the loss"),
    PICK(kl_direction, "kl", CHOICE1, "current_over_ref|ref_over_current", on_k3_loss, "kl_loss_coef with kl_estimator k3 or is-k3",
         "which way round the quotient of k3 is"),
    PICK(kl_scope, "kl", CHOICE, "batch|group|sequence", on_kl_penalty, "kl_penalty_coef", "over what the KL penalty is centred"),
    PICK(kl_penalty_source, "kl", CHOICE, "current_learner|sample", on_kl_detached, "kl_penalty_coef or kl_reward_coef",
         "whose log-probs the detached KL is measured with"),
    NUM(kl_clamp, "kl", SWITCH, 0, 1e300, on_kl_loss, "kl_loss_coef", "ref - log-prob is clipped to ± this in the KL loss"),
    NUM(entropy_coef, "entropy", NUMBER, 0, 1e300, always, "", "entropy bonus"),
    NUM(entropy_target, "entropy", SWITCH, 0, 1e300, on_entropy, "entropy_coef",
        "the bonus acts only while the entropy is at most this"),
    NUM(top_entropy, "entropy", SWITCH, 0, 1, always, "", "share of tokens, by entropy, whose surrogate trains"),
    PICK(aggregation, "aggregation", CHOICE, "token-mean|token-sum|seq-mean-token-mean|seq-mean-token-sum|dr-grpo", always, "",
         "how token losses become one number"),
    NUM(max_response_length, "aggregation", POSITIVE, 0, 1e15, on_dr_grpo, "aggregation dr-grpo",
        "Lmax: the constant that divides"),
#undef NUM
#undef PICK
};

enum { COUNT = sizeof options / sizeof *options };
_Static_assert(sizeof(rein_options) <= 1024, "the Python package holds options in so many bytes");

/* ART's names, and where their bit of `given` is. */
static const struct alias {
    const char *name, *option;
    int bit;
} aliases[] = {{"importance_sampling_level", "ratio", 61},
               {"scale_rewards", "advantage", 62},
               {"truncated_importance_sampling", "tis_cap", 63}};
_Static_assert(COUNT <= 61, "the aliases' bits of rein_options.given");

const rein_option_info *rein_option_at(size_t i) { return i < COUNT ? &options[i].info : NULL; }

static double *number_of(rein_options *o, const struct option *d) { return (double *)(void *)((char *)o + d->offset); }
static int *choice_of(rein_options *o, const struct option *d) { return (int *)(void *)((char *)o + d->offset); }
static int is_choice(const struct option *d) { return d->kind >= CHOICE; }
static uint64_t bit_of(const struct option *d) { return (uint64_t)1 << (d - options); }

/* The i-th word of "a|b|c"; returns its length, 0 past the last. */
static size_t word_at(const char **word, const char *choices, int i) {
    for (; i > 0; i--) {
        choices = strchr(choices, '|');
        if (!choices) return 0;
        choices++;
    }
    *word = choices;
    return strcspn(choices, "|");
}

static const struct option *find(const char *name) {
    for (size_t i = 0; i < COUNT; i++)
        if (strcmp(options[i].info.name, name) == 0) return &options[i];
    return NULL;
}

static rein_status unknown_option(const char *name, rein_error *err) {
    const char *names[COUNT + 4];
    size_t n = 0;
    for (; n < COUNT; n++) names[n] = options[n].info.name;
    for (size_t i = 0; i < 3; i++) names[n++] = aliases[i].name;
    names[n] = NULL;
    const char *near = rein_nearest(name, names);
    return rein_fail(err, REIN_EINVAL, near ? "option %.60s does not exist: did you mean %s?" : "option %.60s does not exist", name,
                     near);
}

static rein_status set_choice(rein_options *o, const struct option *d, const char *value, rein_error *err) {
    const char *word;
    size_t length;
    for (int i = 0; (length = word_at(&word, d->info.choices, i)) > 0; i++) {
        if (strlen(value) != length || memcmp(value, word, length) != 0) continue;
        *choice_of(o, d) = i + (d->kind == CHOICE1);
        return REIN_OK;
    }
    return rein_fail(err, REIN_EINVAL, "%s is \"%.60s\": one of %s", d->info.name, value, d->info.choices);
}

static rein_status check_range(const struct option *d, double x, rein_error *err) {
    const char *name = d->info.name;
    if (!isfinite(x)) return rein_fail(err, REIN_EINVAL, "%s is not a finite number", name);
    if ((d->kind == POSITIVE || d->kind == SWITCH) && !(x > 0))
        return rein_fail(err, REIN_EINVAL, "%s is %.17g: it must be above 0", name, x);
    if (d->kind == WHOLE && x != floor(x)) return rein_fail(err, REIN_EINVAL, "%s is %.17g: a whole number is needed", name, x);
    if (x < d->low) return rein_fail(err, REIN_EINVAL, "%s is %.17g: it must be %.17g or more", name, x, d->low);
    if (x > d->high) return rein_fail(err, REIN_EINVAL, "%s is %.17g: it must be %.17g or less", name, x, d->high);
    return REIN_OK;
}

static rein_status set_number(rein_options *o, const struct option *d, const char *value, rein_error *err) {
    char *end;
    const double x = strtod(value, &end);
    if (end == value || *end) return rein_fail(err, REIN_EINVAL, "%s is \"%.60s\": a number is needed", d->info.name, value);
    const rein_status status = check_range(d, x, err);
    if (status == REIN_OK) *number_of(o, d) = x;
    return status;
}

/* A new surrogate brings its own published constants and level, unless the user gave theirs. */
static void change_surrogate(rein_options *o, rein_surrogate from) {
    const struct published *was = &surrogates[from], *now = &surrogates[o->surrogate];
    if (was->epsilon != now->epsilon) {
        if (!(o->given & bit_of(find("epsilon")))) o->epsilon = NAN;
        if (!(o->given & bit_of(find("epsilon_high")))) o->epsilon_high = NAN;
    }
    if (was->level != now->level && !(o->given & bit_of(find("ratio")))) o->ratio = REIN_RATIO_PUBLISHED;
}

static rein_status set_alias(rein_options *o, const struct alias *a, const char *value, rein_error *err) {
    const struct option *d = find(a->option);
    if (o->given & bit_of(d))
        return rein_fail(err, REIN_EINVAL, "%s and %s are the same option: give one of them", a->name, a->option);
    rein_options next = *o;
    if (strcmp(a->name, "scale_rewards") == 0) {
        const int yes = strcmp(value, "true") == 0 || strcmp(value, "1") == 0,
                  no = strcmp(value, "false") == 0 || strcmp(value, "0") == 0;
        if (!yes && !no) return rein_fail(err, REIN_EINVAL, "scale_rewards is \"%.60s\": true or false", value);
        value = yes ? "group-std" : "group-mean";
    } else if (strcmp(a->name, "truncated_importance_sampling") == 0) {
        if (o->given & bit_of(find("mismatch")) && o->mismatch != REIN_MISMATCH_TOKEN_TIS)
            return rein_fail(err, REIN_EINVAL, "truncated_importance_sampling is mismatch token-tis: another mismatch is given");
        const rein_status status = rein_options_set(&next, "mismatch", "token-tis", err);
        if (status != REIN_OK) return status;
    }
    const rein_status status = rein_options_set(&next, a->option, value, err);
    if (status != REIN_OK) return status;
    next.given |= (uint64_t)1 << a->bit;
    *o = next;
    return REIN_OK;
}

rein_status rein_options_set(rein_options *o, const char *name, const char *value, rein_error *err) {
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        if (strcmp(name, aliases[i].name) == 0) return set_alias(o, &aliases[i], value, err);
        if (strcmp(name, aliases[i].option) == 0 && o->given >> aliases[i].bit & 1)
            return rein_fail(err, REIN_EINVAL, "%s and %s are the same option: give one of them", aliases[i].name, name);
    }
    const struct option *d = find(name);
    if (!d) return unknown_option(name, err);
    const rein_surrogate before = o->surrogate;
    const rein_status status = is_choice(d) ? set_choice(o, d, value, err) : set_number(o, d, value, err);
    if (status != REIN_OK) return status;
    o->given |= bit_of(d);
    if (o->surrogate != before) change_surrogate(o, before);
    return REIN_OK;
}

void rein_options_unset(rein_options *o, const char *name) {
    const struct option *d = find(name);
    if (d && !is_choice(d)) *number_of(o, d) = NAN;
}

rein_status rein_options_get(char *value, size_t size, const rein_options *given, const char *name, rein_error *err) {
    const struct option *d = find(name);
    if (!d) return unknown_option(name, err);
    rein_options o = *given;
    char text[64] = "";
    if (is_choice(d)) {
        const char *word = "";
        const int i = *choice_of(&o, d) - (d->kind == CHOICE1);
        const size_t n = i < 0 ? 0 : word_at(&word, d->info.choices, i);
        snprintf(text, sizeof text, "%.*s", (int)n, word);
    } else if (!isnan(*number_of(&o, d))) {
        snprintf(text, sizeof text, "%.17g", *number_of(&o, d));
    }
    if (strlen(text) >= size) return rein_fail(err, REIN_ENOMEM, "%s needs %zu bytes", name, strlen(text) + 1);
    memcpy(value, text, strlen(text) + 1);
    return REIN_OK;
}

int rein_sequence_unit(const rein_options *o) {
    const rein_ratio level = o->ratio ? o->ratio : surrogates[o->surrogate].level;
    if (o->surrogate == REIN_SURROGATE_GMPO) return 1;
    return on_ratio(o) && (level == REIN_RATIO_SEQUENCE || level == REIN_RATIO_SEQUENCE_SUM);
}

int rein_advantage_per_token(const rein_options *o) {
    return o->advantage == REIN_ADVANTAGE_GAE || o->advantage == REIN_ADVANTAGE_GIVEN ||
           (o->advantage == REIN_ADVANTAGE_REINFORCE_PP && o->kl_reward_coef != 0);
}

static void default_to(double *field, double published) {
    if (isnan(*field)) *field = published;
}

static void switch_off(rein_options *o, const struct option *d) {
    if (is_choice(d)) *choice_of(o, d) = 0;
    else *number_of(o, d) = 0;
}

/* Published constants where nothing was given. Off switches become NaN, the form the loss tests for. */
static void fill(rein_options *o) {
    const struct published *p = &surrogates[o->surrogate];
    for (size_t i = 0; i < COUNT; i++)
        if (options[i].acts == on_scalar_reward && !on_scalar_reward(o) && !(o->given & bit_of(&options[i])))
            switch_off(o, &options[i]);
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
    for (size_t i = 0; i < COUNT; i++)
        if (options[i].kind == SWITCH && *number_of(o, &options[i]) == 0) *number_of(o, &options[i]) = NAN;
    if (o->pass_k == 0) o->pass_k = NAN;
    if (isinf(o->dppo_ratio_cap)) o->dppo_ratio_cap = NAN; /* resolved before */
}

static int may_be_absent(const struct option *d) {
    return d->kind == SWITCH || strcmp(d->info.name, "pass_k") == 0 || strcmp(d->info.name, "token_budget") == 0;
}

/* Where the option has no place, saying 0 is saying so. */
static int off_at_zero(const struct option *d) { return d->acts == on_scalar_reward || d->acts == on_token_unit; }

static rein_status check_one(rein_options *o, const struct option *d, rein_error *err) {
    const int given = (o->given & bit_of(d)) != 0, acts = d->acts(o);
    if (is_choice(d)) {
        const char *word;
        const int i = *choice_of(o, d) - (d->kind == CHOICE1);
        if (i < 0 || !word_at(&word, d->info.choices, i))
            return rein_fail(err, REIN_EINVAL, "%s is %d: one of %s", d->info.name, i, d->info.choices);
        if (given && !acts && !(d->acts == on_scalar_reward && *choice_of(o, d) == 0)) /* shape none */
            return rein_fail(err, REIN_EINVAL, "%s cannot act here: it needs %s", d->info.name, d->where);
        return REIN_OK;
    }
    const double x = *number_of(o, d);
    if (given && !acts && !(x == 0 && off_at_zero(d)))
        return rein_fail(err, REIN_EINVAL, "%s cannot act here: it needs %s", d->info.name, d->where);
    if (!acts || (isnan(x) && may_be_absent(d))) return REIN_OK;
    return isnan(x) ? REIN_OK : check_range(d, x, err);
}

static rein_option_state state_of(rein_options *filled, const struct option *d) {
    if (!d->acts(filled)) return REIN_OPTION_IDLE;
    if (is_choice(d) || !isnan(*number_of(filled, d))) return REIN_OPTION_SET;
    return may_be_absent(d) ? REIN_OPTION_OFF : REIN_OPTION_REQUIRED;
}

rein_option_state rein_options_state(const rein_options *given, size_t i) {
    rein_options o = *given;
    if (i >= COUNT || (unsigned)o.surrogate > REIN_SURROGATE_LUSPO) return REIN_OPTION_IDLE;
    fill(&o);
    return state_of(&o, &options[i]);
}

/* What is required and was not given: all of it in one message. */
static rein_status check_missing(rein_options *o, rein_error *err) {
    char names[200] = "";
    size_t used = 0, missing = 0;
    for (size_t i = 0; i < COUNT; i++)
        if (state_of(o, &options[i]) == REIN_OPTION_REQUIRED)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", missing++ ? ", " : "", options[i].info.name);
    if (missing == 0) return REIN_OK;
    return rein_fail(err, REIN_EINVAL,
                     missing == 1 ? "%s is required: it has no published value, so give one"
                                  : "%s are required: they have no published values, so give them",
                     names);
}

/* The bound on the ratio where A < 0 lies above the clip's own lower bound, below which nothing with A < 0 would be left to train, and
 * below the upper one that the surrogate has for A < 0, where it would do nothing. */
static rein_status check_negative_bound(const rein_options *o, rein_error *err) {
    const double bound = o->max_negative_advantage_importance_sampling_weight, low = 1 - o->epsilon;
    const int cispo = o->surrogate == REIN_SURROGATE_CISPO;
    const double high = cispo ? 1 + o->epsilon_high : on_dual_clip(o) ? o->dual_clip : (double)INFINITY;
    if (!on_clipped_ratio(o) || isnan(bound) || (bound > low && bound < high)) return REIN_OK;
    if (bound <= low)
        return rein_fail(err, REIN_EINVAL,
                         "max_negative_advantage_importance_sampling_weight is %.17g: it must be above 1 - epsilon, %.17g", bound,
                         low);
    return rein_fail(err, REIN_EINVAL,
                     "max_negative_advantage_importance_sampling_weight is %.17g: it cannot act at or above %s, %.17g", bound,
                     cispo ? "1 + epsilon_high" : "dual_clip", high);
}

/* Compositions that no single option can tell. */
static rein_status check_together(const rein_options *o, rein_error *err) {
    if (o->surrogate == REIN_SURROGATE_GMPO && rein_advantage_per_token(o))
        return rein_fail(err, REIN_EINVAL,
                         "surrogate gmpo clips by the sign of a sequence's advantage: advantage %s gives one a token",
                         o->advantage == REIN_ADVANTAGE_GAE     ? "gae"
                         : o->advantage == REIN_ADVANTAGE_GIVEN ? "given"
                                                                : "reinforce++ with kl_reward_coef");
    if (o->kl_penalty_coef != 0 && o->kl_scope == REIN_KL_SCOPE_SEQUENCE && rein_sequence_unit(o))
        return rein_fail(err, REIN_EINVAL,
                         "kl_scope sequence cannot act here: with a sequence-level ratio the penalty is one number a "
                         "sequence, and centred over itself it is 0");
    if (o->kimi_k2_tau != 0 && rein_sequence_unit(o))
        return rein_fail(err, REIN_EINVAL, "kimi_k2_tau cannot act here: it needs a token-level ratio");
    if (on_mismatch_mask(o) && o->mismatch_low > o->mismatch_high)
        return rein_fail(err, REIN_EINVAL, "mismatch_low is %.17g: it must not be above mismatch_high, %.17g", o->mismatch_low,
                         o->mismatch_high);
    if (on_topr(o) && o->topr_positive_low > o->topr_positive_high)
        return rein_fail(err, REIN_EINVAL, "topr_positive_low is %.17g: it must not be above topr_positive_high, %.17g",
                         o->topr_positive_low, o->topr_positive_high);
    if (on_topr(o) && o->topr_negative_low > o->topr_negative_high)
        return rein_fail(err, REIN_EINVAL, "topr_negative_low is %.17g: it must not be above topr_negative_high, %.17g",
                         o->topr_negative_low, o->topr_negative_high);
    if (on_overlong(o) && o->overlong_cushion > o->overlong_max)
        return rein_fail(err, REIN_EINVAL, "overlong_cushion is %.17g: it must not be above overlong_max, %.17g",
                         o->overlong_cushion, o->overlong_max);
    return check_negative_bound(o, err);
}

rein_status rein_options_resolve(rein_options *resolved, const rein_options *given, rein_error *err) {
    rein_options o = *given;
    if ((unsigned)o.surrogate > REIN_SURROGATE_LUSPO)
        return rein_fail(err, REIN_EINVAL, "surrogate is %d: no such surrogate", (int)o.surrogate);
    fill(&o);
    for (size_t i = 0; i < COUNT; i++) {
        const rein_status status = check_one(&o, &options[i], err);
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

int rein_options_use_reference(const rein_options *o) {
    return o->kl_reward_coef > 0 || o->kl_penalty_coef > 0 || o->kl_loss_coef > 0;
}
