/* test_options.c - the options and presets of the policy loss: published numbers, written down here a second time from the papers; what is
 * required, what has no effect, what suggests what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "objective/options.h"
#include "rein/rein.h"
#include "support/check.h"

/* "a=1 b=x": the next pair, or 0 at the end. */
static int next_pair(const char **list, char name[64], char value[64]) {
    int taken = 0;
    if (sscanf(*list, " %63[^= ]=%63[^ ]%n", name, value, &taken) < 2) return 0;
    *list += taken;
    return 1;
}

static rein_options preset(const char *name) {
    rein_options o;
    rein_error err;
    if (rein_options_init(&o, name, &err) != REIN_OK) fail_msg("%s", err.message);
    return o;
}

static void set(rein_options *o, const char *list) {
    char name[64], value[64];
    rein_error err;
    while (next_pair(&list, name, value))
        if (rein_options_set(o, name, value, &err) != REIN_OK) fail_msg("%s=%s: %s", name, value, err.message);
}

/* An option as text, %.17g for numbers, "" where nothing is set. */
static rein_status show(char text[64], const rein_options *o, const char *name) {
    const char *word = "";
    double x = NAN;
    *text = 0;
    if (rein_options_get(&word, o, name, NULL) == REIN_OK) return snprintf(text, 64, "%s", word), REIN_OK;
    const rein_status status = rein_options_get_number(&x, o, name, NULL);
    if (!isnan(x)) snprintf(text, 64, "%.17g", x);
    return status;
}

static void has(const rein_options *o, const char *list, const char *who) {
    char name[64], value[64], got[64];
    while (next_pair(&list, name, value)) {
        const rein_status status = show(got, o, name);
        const char *expected = strcmp(value, "absent") == 0 ? "" : value;
        const int same = strcmp(got, expected) == 0 ||
                         (*expected && *got && strtod(got, NULL) == strtod(expected, NULL) && strtod(got, NULL) != 0);
        if (status != REIN_OK || !same) fail_msg("%s: %s is \"%s\", not \"%s\"", who, name, got, expected);
    }
}

static void resolves(const rein_options *o, const char *expected, const char *who) {
    rein_options r;
    rein_error err = {0};
    if (rein_options_resolve(&r, o, &err) != REIN_OK) fail_msg("%s: %s", who, err.message);
    has(&r, expected, who);
}

static void rejected(const rein_options *o, const char *text, const char *more) {
    rein_options r;
    memset(&r, 0x5a, sizeof r);
    const rein_options before = r;
    rein_error err = {0};
    const rein_status status = rein_options_resolve(&r, o, &err);
    if (status != REIN_EINVAL) fail_msg("status %d where \"%s\" \"%s\" was expected", (int)status, text, more ? more : "");
    if (!strstr(err.message, text) || (more && !strstr(err.message, more)))
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", err.message, text, more ? more : "");
    assert_null(strchr(err.message, '\n'));
    assert_memory_equal(&r, &before, sizeof r);
    assert_int_equal(rein_options_resolve(&r, o, NULL), REIN_EINVAL);
}

/* ---- presets: the published numbers of every row, and what must be given */
static const struct expectation {
    const char *name, *required, *values;
} PRESETS[] = {
    {"reinforce", "",
     "shape=none advantage=none surrogate=reinforce aggregation=seq-mean-token-sum kl_loss_coef=0 kl_reward_coef=0 "
     "kl_penalty_coef=0 entropy_coef=0"},
    {"rloo", "", "advantage=leave-one-out surrogate=reinforce kl_reward_coef=0.03 kl_loss_coef=0 aggregation=seq-mean-token-sum"},
    {"reinforce++", "",
     "advantage=reinforce++ advantage_eps=1e-8 surrogate=clip ratio=token epsilon=0.2 epsilon_high=0.2 kl_reward_coef=0.001 "
     "aggregation=seq-mean-token-mean"},
    {"ppo", "",
     "advantage=gae gae_gamma=1 gae_lambda=0.95 surrogate=clip ratio=token epsilon=0.2 epsilon_high=0.2 aggregation=token-mean "
     "kl_loss_coef=0"},
    {"grpo", "",
     "shape=none advantage=group-std advantage_eps=1e-6 surrogate=clip ratio=token epsilon=0.2 epsilon_high=0.2 kl_loss_coef=0.04 "
     "kl_estimator=k3 "
     "kl_direction=ref_over_current aggregation=seq-mean-token-mean kl_reward_coef=0 kl_penalty_coef=0 mismatch=none"},
    {"dr-grpo", "max_response_length=3000",
     "advantage=group-mean surrogate=clip epsilon=0.2 epsilon_high=0.2 kl_loss_coef=0 aggregation=dr-grpo "
     "max_response_length=3000"},
    {"dapo", "",
     "shape=overlong overlong_max=20480 overlong_cushion=4096 advantage=group-std surrogate=clip epsilon=0.2 epsilon_high=0.28 "
     "kl_loss_coef=0 aggregation=token-mean"},
    {"bnpo", "", "advantage=group-std surrogate=clip epsilon=0.2 epsilon_high=0.2 kl_loss_coef=0 aggregation=token-mean"},
    {"gspo", "",
     "advantage=group-std ratio=sequence surrogate=clip epsilon=0.0003 epsilon_high=0.0004 kl_loss_coef=0 "
     "aggregation=seq-mean-token-mean"},
    {"gmpo", "", "advantage=group-std surrogate=gmpo epsilon=0.4 epsilon_high=0.4 aggregation=seq-mean-token-mean"},
    {"cispo", "", "advantage=group-std surrogate=cispo ratio=token epsilon=1 epsilon_high=4 aggregation=token-mean"},
    {"sapo", "",
     "advantage=group-std surrogate=sapo ratio=token sapo_tau_positive=1 sapo_tau_negative=1.05 aggregation=seq-mean-token-mean"},
    {"k1.5", "tau=0.1 length_weight=0.5",
     "shape=k1.5-length length_weight=0.5 advantage=group-mean surrogate=squared ratio=sequence-sum tau=0.1 "
     "aggregation=seq-mean-token-mean"},
    {"k2", "tau=0.1 budget_penalty_coef=0.01",
     "shape=budget budget_penalty_coef=0.01 token_budget=absent advantage=group-mean surrogate=squared ratio=sequence-sum tau=0.1 "
     "aggregation=seq-mean-token-mean"},
    {"deepseek-v3.2", "kl_loss_coef=0.01",
     "advantage=group-mean surrogate=clip ratio=token epsilon=0.2 epsilon_high=0.2 kl_loss_coef=0.01 kl_estimator=is-k3 "
     "kl_direction=ref_over_current off_policy_mask_delta=absent aggregation=seq-mean-token-mean"},
    {"art", "",
     "advantage=group-std advantage_eps=1e-6 surrogate=cispo ratio=token epsilon=1 epsilon_high=4 kl_penalty_coef=0 kl_scope=batch "
     "kl_penalty_source=current_learner "
     "kimi_k2_tau=0 aggregation=seq-mean-token-mean"},
    {"online-dpo", "", "preference_loss=dpo beta=0.1 label_smoothing=absent simpo_gamma=absent shape=none"},
};

static void test_preset_names(void **state) {
    (void)state;
    size_t n = 0;
    for (; rein_preset_name(n); n++) {
        assert_true(n < COUNT(PRESETS));
        assert_string_equal(rein_preset_name(n), PRESETS[n].name);
    }
    assert_int_equal(n, COUNT(PRESETS));
    assert_null(rein_preset_name(n + 100));
}

static void test_presets_resolve(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(PRESETS); i++) {
        rein_options o = preset(PRESETS[i].name);
        set(&o, PRESETS[i].required);
        resolves(&o, PRESETS[i].values, PRESETS[i].name);
    }
}

/* Each required option alone: without it the message names it. */
static void test_presets_require(void **state) {
    (void)state;
    char missing[64], unused[64], name[64], value[64];
    for (size_t i = 0; i < COUNT(PRESETS); i++)
        for (const char *list = PRESETS[i].required; next_pair(&list, missing, unused);) {
            rein_options o = preset(PRESETS[i].name);
            for (const char *others = PRESETS[i].required; next_pair(&others, name, value);)
                if (strcmp(name, missing) != 0) assert_int_equal(rein_options_set(&o, name, value, NULL), REIN_OK);
            rejected(&o, missing, "required");
        }
}

/* No value of a preset is lost on the way: what the table says can be set by hand on nothing, with the same result. */
static void test_presets_by_hand(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(PRESETS); i++) {
        rein_options chosen = preset(PRESETS[i].name), by_hand = preset("none"), a, b;
        char name[64], value[64], left[64], right[64];
        set(&chosen, PRESETS[i].required);
        assert_int_equal(rein_options_resolve(&a, &chosen, NULL), REIN_OK);
        for (size_t k = 0; rein_option_at(k); k++) { /* everything the preset decided */
            snprintf(name, sizeof name, "%s", rein_option_at(k)->name);
            assert_int_equal(show(value, &chosen, name), REIN_OK);
            if (*value) assert_int_equal(rein_options_set(&by_hand, name, value, NULL), REIN_OK);
        }
        memset(by_hand.given, 0, sizeof by_hand.given);
        assert_int_equal(rein_options_resolve(&b, &by_hand, NULL), REIN_OK);
        for (size_t k = 0; rein_option_at(k); k++) {
            show(left, &a, rein_option_at(k)->name);
            show(right, &b, rein_option_at(k)->name);
            if (strcmp(left, right) != 0)
                fail_msg("%s: %s is %s, by hand %s", PRESETS[i].name, rein_option_at(k)->name, left, right);
        }
    }
}

static void test_presets_describe(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(PRESETS); i++) {
        const rein_preset_info *info = rein_preset_describe(PRESETS[i].name);
        assert_non_null(info);
        assert_string_equal(info->name, PRESETS[i].name);
        assert_true(*info->title && *info->source && *info->formula && *info->purpose && info->note);
        assert_non_null(strstr(info->formula, "loss = "));
    }
    assert_null(rein_preset_describe("gprO"));
    const struct {
        const char *name, *source;
    } sources[] = {{"grpo", "2402.03300"}, {"dapo", "2503.14476"},          {"dr-grpo", "2503.20783"},
                   {"gspo", "2507.18071"}, {"gmpo", "2507.20673"},          {"rloo", "2402.14740"},
                   {"ppo", "1707.06347"},  {"k1.5", "2501.12599"},          {"k2", "2507.20534"},
                   {"sapo", "2511.20347"}, {"deepseek-v3.2", "2512.02556"}, {"cispo", "2506.13585"},
                   {"art", "562"},         {"reinforce++", "2501.03262"},   {"reinforce", "Williams"},
                   {"bnpo", "TRL"},        {"online-dpo", "2402.04792"}};
    for (size_t i = 0; i < COUNT(sources); i++)
        assert_non_null(strstr(rein_preset_describe(sources[i].name)->source, sources[i].source));
}

static void test_preset_unknown(void **state) {
    (void)state;
    const char *const misspelt[][2] = {
        {"gpro", "grpo"}, {"GRPO1", NULL},     {"reinforce+", "reinforce"}, {"deepseek-v3", "deepseek-v3.2"},
        {"k15", "k1.5"},  {"zzzzzzzzzz", NULL}};
    for (size_t i = 0; i < COUNT(misspelt); i++) {
        rein_options o;
        memset(&o, 0x5a, sizeof o);
        const rein_options before = o;
        rein_error err;
        assert_int_equal(rein_options_init(&o, misspelt[i][0], &err), REIN_EINVAL);
        assert_non_null(strstr(err.message, misspelt[i][0]));
        if (misspelt[i][1]) assert_non_null(strstr(err.message, misspelt[i][1]));
        else assert_null(strstr(err.message, "did you mean"));
        assert_memory_equal(&o, &before, sizeof o);
        assert_int_equal(rein_options_init(&o, misspelt[i][0], NULL), REIN_EINVAL);
    }
}

/* {0} is REINFORCE on the raw reward, with zero taken literally. */
static void test_zero_is_reinforce(void **state) {
    (void)state;
    rein_options o;
    memset(&o, 0, sizeof o);
    resolves(&o,
             "shape=none advantage=none surrogate=reinforce mismatch=none aggregation=token-mean kl_loss_coef=0 kl_reward_coef=0 "
             "kl_penalty_coef=0 entropy_coef=0 "
             "reward_clip=absent top_entropy=absent off_policy_mask_delta=absent",
             "{0}");
    o.surrogate = REIN_SURROGATE_CLIP; /* epsilon is 0, not 0.2 */
    resolves(&o, "epsilon=0 epsilon_high=0", "{0} with clip");
}

/* A loss over preferences has its own published constants, and no loss of tokens. */
static void test_preference_losses(void **state) {
    (void)state;
    for (size_t i = 0; rein_preference_at(i); i++) {
        const rein_preference_options wanted = rein_preference_published(rein_preference_at(i)->loss);
        rein_options o = preset("online-dpo"), resolved;
        rein_preference_options p;
        assert_int_equal(rein_options_set(&o, "preference_loss", rein_preference_at(i)->name, NULL), REIN_OK);
        assert_int_equal(rein_options_use_reference(&o), rein_preference_at(i)->uses_reference);
        if (wanted.loss != REIN_PREFERENCE_CDPO && wanted.loss != REIN_PREFERENCE_ROBUST) {
            assert_int_equal(rein_options_resolve(&resolved, &o, NULL), REIN_OK);
            assert_true(rein_options_preference(&p, &resolved));
            assert_int_equal(rein_preference_check(&p, NULL), REIN_OK);
            assert_true(p.loss == wanted.loss && p.beta == wanted.beta);
            continue;
        }
        rejected(&o, "label_smoothing", "required");
        assert_int_equal(rein_options_set(&o, "label_smoothing", "0.5", NULL), REIN_OK);
        const int robust = wanted.loss == REIN_PREFERENCE_ROBUST;
        assert_int_equal(rein_options_resolve(&resolved, &o, NULL), robust ? REIN_EINVAL : REIN_OK);
    }
    const rein_options o = preset("online-dpo");
    const size_t offsets[] = {0, 1, 2};
    const double lp[] = {-1, -2}, rewards[] = {1, 0};
    const rein_batch b = {.n_sequences = 2, .sequence_offsets = offsets, .log_probs = lp, .old_log_probs = lp, .rewards = rewards};
    double advantages[2];
    rein_loss loss;
    rein_error err;
    assert_int_equal(rein_policy_loss(&loss, NULL, NULL, NULL, &b, &o, NULL, &err), REIN_EINVAL);
    assert_string_equal(err.field, "preference_loss");
    assert_int_equal(rein_advantages(advantages, &b, &o, &err), REIN_EINVAL);
    assert_string_equal(err.field, "preference_loss");
}

/* ---- one option at a time */
static void test_option_table(void **state) {
    (void)state;
    size_t n = 0;
    for (const rein_option_info *info; (info = rein_option_at(n)); n++) {
        assert_true(*info->name && *info->stage && *info->help);
        assert_null(strchr(info->help, '\n'));
        for (size_t k = 0; k < n; k++) assert_string_not_equal(info->name, rein_option_at(k)->name);
    }
    assert_true(n == REIN_OPTION_COUNT);
    assert_null(rein_option_at(n + 1));
}

/* What is set is what is got, for every choice of every option and for numbers to the last bit. */
static void test_round_trip(void **state) {
    (void)state;
    char value[64], got[64];
    for (size_t k = 0; rein_option_at(k); k++) {
        const rein_option_info *info = rein_option_at(k);
        rein_options o = preset("none");
        if (!info->choices) {
            snprintf(value, sizeof value, "%.17g",
                     strcmp(info->name, "pass_k") == 0      ? 3
                     : strcmp(info->name, "dual_clip") == 0 ? 1.1
                                                            : 0.1 + 1e-16);
            assert_int_equal(rein_options_set(&o, info->name, value, NULL), REIN_OK);
            assert_int_equal(show(got, &o, info->name), REIN_OK);
            assert_true(strtod(got, NULL) == strtod(value, NULL));
            for (size_t i = 0; rein_option_at(i); i++) assert_int_equal(o.given[i], i == k);
            continue;
        }
        for (const char *word = info->choices; word; word = strchr(word, '|') ? strchr(word, '|') + 1 : NULL) {
            snprintf(value, sizeof value, "%.*s", (int)strcspn(word, "|"), word);
            assert_int_equal(rein_options_set(&o, info->name, value, NULL), REIN_OK);
            assert_int_equal(show(got, &o, info->name), REIN_OK);
            assert_string_equal(got, value);
            assert_true(rein_options_given(&o, info->name) && rein_options_given(&o, NULL));
        }
    }
}

static void test_get_errors(void **state) {
    (void)state;
    const rein_options o = preset("grpo");
    const char *word = "before";
    double x = 7;
    rein_error err;
    assert_int_equal(rein_options_get(&word, &o, "aggregatoin", &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "did you mean aggregation?"));
    assert_string_equal(err.field, "aggregatoin");
    assert_int_equal(rein_options_get(&word, &o, "epsilon", &err), REIN_EINVAL);
    assert_string_equal(err.message, "epsilon is a number: rein_options_get_number reads it");
    assert_string_equal(word, "before");
    assert_int_equal(rein_options_get_number(&x, &o, "epsilom", &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "did you mean epsilon?"));
    assert_int_equal(rein_options_get_number(&x, &o, "kl_scope", &err), REIN_EINVAL);
    assert_string_equal(err.message, "kl_scope is one of batch|group|sequence: rein_options_get reads it");
    assert_true(x == 7);
    assert_int_equal(rein_options_get_number(&x, &o, "epsilon_high", NULL), REIN_OK);
    assert_true(isnan(x)); /* not given: resolved to epsilon later */
    assert_int_equal(rein_options_get(&word, &o, "ratio", NULL), REIN_OK);
    assert_string_equal(word, ""); /* the level that the surrogate was published with */
}

/* ---- the handle */
static void test_handle(void **state) {
    (void)state;
    rein_options *o, *copy;
    rein_error err;
    double x;
    assert_int_equal(rein_options_new(&o, "gpro", &err), REIN_EINVAL);
    assert_null(o);
    assert_string_equal(err.field, "preset");
    assert_string_equal(err.message + err.reason, "\"gpro\" does not exist: did you mean grpo?");
    assert_int_equal(rein_options_new(&o, "grpo", NULL), REIN_OK);
    assert_false(rein_options_given(o, NULL));
    assert_int_equal(rein_options_copy(&copy, o, NULL), REIN_OK);
    assert_int_equal(rein_options_set_number(copy, "epsilon", 0.125, NULL), REIN_OK);
    assert_true(rein_options_given(copy, "epsilon") && rein_options_given(copy, NULL) && !rein_options_given(copy, "tau"));
    assert_false(rein_options_given(copy, "no such option"));
    assert_int_equal(rein_options_get_number(&x, copy, "epsilon", NULL), REIN_OK);
    assert_true(x == 0.125);
    assert_int_equal(rein_options_get_number(&x, o, "epsilon", NULL), REIN_OK);
    assert_true(x == 0.2 && !rein_options_given(o, NULL)); /* the original stays */
    assert_int_equal(rein_options_resolve(copy, copy, NULL), REIN_OK);
    assert_int_equal(rein_options_get_number(&x, copy, "epsilon_high", NULL), REIN_OK);
    assert_true(x == 0.125);
    rein_options_free(copy);
    rein_options_free(o);
    rein_options_free(NULL);
    assert_int_equal(rein_options_new(&o, NULL, NULL), REIN_OK);
    assert_int_equal(rein_options_check(o, NULL), REIN_OK);
    rein_options_free(o);
}

static void test_set_number(void **state) {
    (void)state;
    rein_options o = preset("grpo"), before = o;
    rein_error err;
    assert_int_equal(rein_options_set_number(&o, "epsilon", -1, &err), REIN_EINVAL);
    assert_string_equal(err.message, "epsilon is -1: it must be 0 or more");
    assert_int_equal(rein_options_set_number(&o, "epsilon", NAN, &err), REIN_EINVAL);
    assert_int_equal(rein_options_set_number(&o, "surrogate", 3, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "surrogate is \"3\": it must be one of reinforce|clip"));
    assert_int_equal(rein_options_set_number(&o, "epsilom", 3, &err), REIN_EINVAL);
    assert_memory_equal(&o, &before, sizeof o);
    assert_int_equal(rein_options_set_number(&o, "truncated_importance_sampling", 3, NULL), REIN_OK);
    assert_int_equal(rein_options_set_number(&o, "tis_cap", 3, &err), REIN_EINVAL); /* given twice */
    resolves(&o, "mismatch=token-tis tis_cap=3", "by an alias");
}

/* No options at all are REINFORCE on the raw reward. */
static void test_no_options(void **state) {
    (void)state;
    const double log_probs[] = {-0.5, -1, -2}, rewards[] = {1, 0.5};
    const size_t offsets[] = {0, 2, 3};
    const rein_batch batch = {
        .n_groups = 1, .n_sequences = 2, .sequence_offsets = offsets, .log_probs = log_probs, .rewards = rewards};
    const rein_options zero = {0};
    rein_options resolved;
    rein_loss none, some;
    double gradient[2][3], advantages[3], shaped[2];
    assert_int_equal(rein_policy_loss(&none, gradient[0], NULL, NULL, &batch, NULL, NULL, NULL), REIN_OK);
    assert_int_equal(rein_policy_loss(&some, gradient[1], NULL, NULL, &batch, &zero, NULL, NULL), REIN_OK);
    assert_true(none.loss == some.loss && fabs(none.loss - (0.5 + 1 + 0.5 * 2) / 3) < 1e-15);
    assert_memory_equal(gradient[0], gradient[1], sizeof gradient[0]);
    assert_int_equal(rein_advantages(advantages, &batch, NULL, NULL), REIN_OK);
    assert_true(advantages[0] == 1 && advantages[2] == 0.5);
    assert_int_equal(rein_shape_rewards(shaped, &batch, NULL, NULL), REIN_OK);
    assert_true(shaped[0] == 1 && shaped[1] == 0.5);
    assert_int_equal(rein_options_resolve(&resolved, NULL, NULL), REIN_OK);
    assert_int_equal(rein_options_use_reference(NULL), 0);
    assert_null(rein_kl_bias_of(NULL, 0));
}

static void test_use_reference(void **state) {
    (void)state;
    const char *const with[] = {"kl_reward_coef=0.1", "kl_penalty_coef=0.1", "kl_loss_coef=0.1"};
    rein_options o = preset("dapo");
    assert_false(rein_options_use_reference(&o));
    for (size_t i = 0; i < COUNT(with); i++) o = preset("dapo"), set(&o, with[i]), assert_true(rein_options_use_reference(&o));
}

/* Every error names its option as data. */
static void test_fields(void **state) {
    (void)state;
    const char *const cases[][3] = {{"k2", "", "budget_penalty_coef"},
                                    {"grpo", "tau=1", "tau"},
                                    {"grpo", "surrogate=gmpo advantage=gae", "surrogate"},
                                    {"grpo", "surrogate=squared tau=1 kl_penalty_coef=1 kl_scope=sequence", "kl_scope"},
                                    {"grpo", "mismatch=token-mask mismatch_low=9", "mismatch_low"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        rein_options o = preset(cases[i][0]);
        rein_error err = {0};
        set(&o, cases[i][1]);
        assert_int_equal(rein_options_check(&o, &err), REIN_EINVAL);
        assert_string_equal(err.field, cases[i][2]);
        assert_true(err.index == -1 && err.reason == strlen(err.field) + 1);
        assert_memory_equal(err.message, err.field, strlen(err.field));
    }
}

/* The names of rein_metrics' fields, in order. */
static void test_metric_names(void **state) {
    (void)state;
    size_t n = 0;
    while (rein_metric_name(n)) n++;
    assert_int_equal(n * sizeof(double), sizeof(rein_metrics));
    assert_string_equal(rein_metric_name(0), "reward");
    assert_string_equal(rein_metric_name(offsetof(rein_metrics, kl_ref_k3) / sizeof(double)), "kl_ref_k3");
    assert_string_equal(rein_metric_name(n - 1), "groups");
}

static void set_fails(const char *name, const char *value, const char *text, const char *more) {
    rein_options o = preset("grpo");
    const rein_options before = o;
    rein_error err = {0};
    const rein_status status = rein_options_set(&o, name, value, &err);
    if (status != REIN_EINVAL) fail_msg("%s=%s is accepted", name, value);
    if (!strstr(err.message, text) || !strstr(err.message, more))
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", err.message, text, more);
    assert_null(strchr(err.message, '\n'));
    assert_memory_equal(&o, &before, sizeof o);
}

static void test_set_errors(void **state) {
    (void)state;
    set_fails("epsilom", "1", "epsilom is not an option", "epsilon");
    set_fails("kl_coef", "1", "kl_coef is not an option", "kl_");
    set_fails("scale_reward", "true", "scale_reward is not an option", "scale_rewards");
    set_fails("temperature_of_the_sampler", "1", "temperature_of_the_sampler", "is not an option");
    set_fails("epsilon", "-0.1", "epsilon is -0.1", "0 or more");
    set_fails("epsilon", "0.2x", "epsilon is \"0.2x\"", "number");
    set_fails("epsilon", "", "epsilon is \"\"", "number");
    set_fails("epsilon", "nan", "epsilon", "finite");
    set_fails("epsilon", "inf", "epsilon", "finite");
    set_fails("epsilon", "1e999", "epsilon", "finite");
    set_fails("tis_cap", "0", "tis_cap is 0", "above 0");
    set_fails("reward_clip", "0", "reward_clip is 0", "above 0");
    set_fails("pass_k", "2.5", "pass_k is 2.5", "whole number");
    set_fails("pass_k", "1", "pass_k is 1", "2 or more");
    set_fails("gae_gamma", "1.01", "gae_gamma is 1.01", "1 or less");
    set_fails("advantage_balance", "-1.5", "advantage_balance is -1.5", "-1 or more");
    set_fails("top_entropy", "1.5", "top_entropy is 1.5", "1 or less");
    set_fails("dual_clip", "0.9", "dual_clip", "1 or more");
    set_fails("advantage", "group_std", "advantage is \"group_std\"", "group-std");
    set_fails("surrogate", "clip|dual-clip", "surrogate is", "dual-clip");
    set_fails("ratio", "", "ratio is \"\"", "token");
    set_fails("kl_direction", "forward", "kl_direction", "ref_over_current");
}

/* The same limits hold for a struct filled by hand. */
static void test_resolve_checks_fields(void **state) {
    (void)state;
    rein_options o = preset("grpo");
    o.epsilon = -1, rejected(&o, "epsilon is -1", "0 or more");
    o = preset("grpo"), o.kl_loss_coef = -.5, rejected(&o, "kl_loss_coef is -0.5", "0 or more");
    o = preset("grpo"), o.kl_loss_coef = (double)INFINITY, rejected(&o, "kl_loss_coef", "finite");
    o = preset("grpo"), o.surrogate = (rein_surrogate)40, rejected(&o, "surrogate is 40", NULL);
    o = preset("grpo"), o.advantage = (rein_advantage)40, rejected(&o, "advantage is 40", "group-std");
    o = preset("grpo"), o.aggregation = (rein_aggregation)-1, rejected(&o, "aggregation is -1", "token-mean");
    o = preset("grpo"), o.ratio = (rein_ratio)-1, rejected(&o, "ratio is", "token");
    o = preset("grpo"), o.mismatch = (rein_mismatch)9, rejected(&o, "mismatch is 9", "token-tis");
    o = preset("grpo"), o.shape = (rein_shape)9, rejected(&o, "shape is 9", "budget");
    o = preset("grpo"), o.kl_estimator = (rein_kl_estimator)9, rejected(&o, "kl_estimator is 9", "k3");
    o = preset("grpo"), o.kl_direction = (rein_kl_direction)9, rejected(&o, "kl_direction is", "ref_over_current");
}

/* ---- aliases: ART's names */
static void test_aliases(void **state) {
    (void)state;
    rein_options o = preset("art");
    set(&o, "importance_sampling_level=sequence scale_rewards=false truncated_importance_sampling=3");
    resolves(&o, "ratio=sequence advantage=group-mean mismatch=token-tis tis_cap=3", "art's names");
    o = preset("art");
    set(&o, "scale_rewards=true");
    resolves(&o, "advantage=group-std", "scale_rewards");
    o = preset("dr-grpo");
    set(&o, "scale_rewards=1 max_response_length=9");
    resolves(&o, "advantage=group-std", "scale_rewards 1");
    set_fails("scale_rewards", "perhaps", "scale_rewards is \"perhaps\"", "true or false");
    set_fails("importance_sampling_level", "word", "word", "token");
    set_fails("truncated_importance_sampling", "-1", "-1", "above 0");
}

/* Each alias that the library lists sets the option it names. */
static void test_alias_table(void **state) {
    (void)state;
    size_t n = 0;
    for (const rein_option_alias *alias; (alias = rein_option_alias_at(n)); n++) {
        rein_options o = preset("grpo");
        assert_true(*alias->value && *alias->help);
        const char *value = strcmp(alias->value, "X") == 0 ? "2" : strcmp(alias->value, "NAME") == 0 ? "sequence" : "true";
        assert_int_equal(rein_options_set(&o, alias->name, value, NULL), REIN_OK);
        assert_true(rein_options_given(&o, alias->name) && rein_options_given(&o, alias->option));
    }
    assert_int_equal(n, REIN_OPTION_ALIAS_COUNT);
}

static void test_alias_beside_original(void **state) {
    (void)state;
    const struct {
        const char *alias, *alias_value, *option, *value;
    } pairs[] = {{"importance_sampling_level", "token", "ratio", "sequence"},
                 {"scale_rewards", "true", "advantage", "group-mean"},
                 {"truncated_importance_sampling", "2", "tis_cap", "3"}};
    for (size_t i = 0; i < COUNT(pairs); i++)
        for (int order = 0; order < 2; order++) {
            rein_options o = preset("cispo");
            rein_error err = {0};
            const char *const names[] = {pairs[i].alias, pairs[i].option}, *const values[] = {pairs[i].alias_value, pairs[i].value};
            assert_int_equal(rein_options_set(&o, names[order], values[order], NULL), REIN_OK);
            const rein_options before = o;
            assert_int_equal(rein_options_set(&o, names[!order], values[!order], &err), REIN_EINVAL);
            if (!strstr(err.message, pairs[i].alias) || !strstr(err.message, pairs[i].option))
                fail_msg("\"%s\" does not name both", err.message);
            assert_memory_equal(&o, &before, sizeof o);
        }
}

/* Its mismatch comes with truncated_importance_sampling: another one beside it would be ignored. */
static void test_alias_and_mismatch(void **state) {
    (void)state;
    for (int order = 0; order < 2; order++) {
        rein_options o = preset("cispo");
        const char *const names[] = {"truncated_importance_sampling", "mismatch"}, *const values[] = {"2", "sequence-mask"};
        assert_int_equal(rein_options_set(&o, names[order], values[order], NULL), REIN_OK);
        rein_status status = rein_options_set(&o, names[!order], values[!order], NULL);
        if (status == REIN_OK) status = rein_options_resolve(&o, &o, NULL);
        if (status != REIN_EINVAL) fail_msg("%s after %s is accepted", names[!order], names[order]);
    }
}

/* ---- an option that has no effect is an error */
static const struct idle {
    const char *base, *settings, *option, *why; /* on preset `base`, the last of the settings has no effect */
} IDLE[] = {
    {"grpo", "shape=budget token_budget=9 budget_penalty_coef=1 budget_penalty=1", "budget_penalty", "shape truncate"},
    {"grpo", "shape=truncate token_budget=9 budget_penalty=1 budget_penalty_coef=1", "budget_penalty_coef", "shape budget"},
    {"grpo", "budget_penalty_coef=1", "budget_penalty_coef", "shape budget"},
    {"grpo", "budget_penalty=1", "budget_penalty", "shape truncate"},
    {"grpo", "overlong_max=9", "overlong_max", "shape overlong"},
    {"grpo", "overlong_cushion=9", "overlong_cushion", "shape overlong"},
    {"grpo", "length_weight=1", "length_weight", "shape k1.5-length"},
    {"grpo", "advantage=gdpo reward_clip=1", "reward_clip", "not gdpo"},
    {"grpo", "advantage=gdpo shape=overlong overlong_max=9 overlong_cushion=1", "shape", "not gdpo"},
    {"grpo", "advantage=gdpo kl_reward_coef=0.1", "kl_reward_coef", "not gdpo"},
    {"grpo", "advantage=given kl_reward_coef=0.1", "kl_reward_coef", "not given"},
    {"grpo", "pass_k=4", "pass_k", "pass-at-k"},
    {"grpo", "gae_gamma=0.5", "gae_gamma", "gae"},
    {"grpo", "gae_lambda=0.5", "gae_lambda", "gae"},
    {"dr-grpo", "max_response_length=9 advantage_eps=0.5", "advantage_eps", "std"},
    {"rloo", "ratio=token", "ratio", "takes a ratio"},
    {"gmpo", "ratio=sequence", "ratio", "takes a ratio"},
    {"grpo", "tis_cap=2", "tis_cap", "token-tis"},
    {"grpo", "mismatch=token-mask tis_cap=2", "tis_cap", "token-tis"},
    {"grpo", "mismatch_low=0.5", "mismatch_low", "token-mask"},
    {"grpo", "mismatch=token-tis mismatch_high=5", "mismatch_high", "token-mask"},
    {"rloo", "epsilon=0.2", "epsilon", "clips"},
    {"rloo", "epsilon_high=0.2", "epsilon_high", "clips"},
    {"sapo", "epsilon=0.2", "epsilon", "clips"},
    {"grpo", "dual_clip=3", "dual_clip", "dual-clip"},
    {"rloo", "max_negative_advantage_importance_sampling_weight=2", "max_negative_advantage_importance_sampling_weight",
     "clips the ratio"},
    {"gmpo", "max_negative_advantage_importance_sampling_weight=2", "max_negative_advantage_importance_sampling_weight",
     "clips the ratio"},
    {"sapo", "max_negative_advantage_importance_sampling_weight=2", "max_negative_advantage_importance_sampling_weight",
     "clips the ratio"},
    {"grpo", "surrogate=squared tau=1 max_negative_advantage_importance_sampling_weight=2",
     "max_negative_advantage_importance_sampling_weight", "clips"},
    {"grpo", "surrogate=topr max_negative_advantage_importance_sampling_weight=2",
     "max_negative_advantage_importance_sampling_weight", "clips the ratio"},
    {"grpo", "surrogate=dppo max_negative_advantage_importance_sampling_weight=2",
     "max_negative_advantage_importance_sampling_weight", "clips the ratio"},
    {"grpo", "tau=0.1", "tau", "squared"},
    {"grpo", "dro_beta=0.1", "dro_beta", "dro"},
    {"grpo", "sapo_tau_positive=2", "sapo_tau_positive", "sapo"},
    {"grpo", "sapo_tau_negative=2", "sapo_tau_negative", "sapo"},
    {"grpo", "vespo_k_positive=2", "vespo_k_positive", "vespo"},
    {"grpo", "vespo_lambda_positive=2", "vespo_lambda_positive", "vespo"},
    {"grpo", "vespo_k_negative=2", "vespo_k_negative", "vespo"},
    {"grpo", "vespo_lambda_negative=2", "vespo_lambda_negative", "vespo"},
    {"grpo", "topr_positive_low=1", "topr_positive_low", "topr"},
    {"grpo", "topr_positive_high=1", "topr_positive_high", "topr"},
    {"grpo", "topr_negative_low=0.5", "topr_negative_low", "topr"},
    {"grpo", "topr_negative_high=1", "topr_negative_high", "topr"},
    {"grpo", "dppo_divergence=kl", "dppo_divergence", "dppo"},
    {"grpo", "dppo_delta=0.1", "dppo_delta", "dppo"},
    {"grpo", "dppo_ratio_cap=2", "dppo_ratio_cap", "dppo"},
    {"gspo", "kimi_k2_tau=0.1", "kimi_k2_tau", "token-level ratio"},
    {"gmpo", "kimi_k2_tau=0.1", "kimi_k2_tau", "token-level ratio"},
    {"dapo", "kl_estimator=k2", "kl_estimator", "kl_loss_coef"},
    {"dapo", "kl_direction=current_over_ref", "kl_direction", "kl_loss_coef"},
    {"grpo", "kl_estimator=k2 kl_direction=current_over_ref", "kl_direction", "k3"},
    {"grpo", "kl_scope=group", "kl_scope", "kl_penalty_coef"},
    {"grpo", "kl_penalty_source=sample", "kl_penalty_source", "kl_penalty_coef"},
    {"dapo", "kl_clamp=1", "kl_clamp", "kl_loss_coef"},
    {"grpo", "kl_estimator=exact kl_clamp=1", "kl_clamp", "not exact"},
    {"gspo", "kl_reward_exact=0.1", "kl_reward_exact", "token-level ratio"},
    {"ppo", "kl_reward_exact=0.1", "kl_reward_exact", "not gae"},
    {"grpo", "entropy_target=1", "entropy_target", "entropy_coef"},
    {"grpo", "max_response_length=9", "max_response_length", "dr-grpo"},
    {"grpo", "divergence=reverse", "divergence", "teacher_coef"},
    {"grpo", "teacher_coef=1 divergence=forward jsd_beta=0.3", "jsd_beta", "divergence jsd"},
    {"grpo", "teacher_coef=1 divergence=jsd teacher_discount=0.5", "teacher_discount", "divergence sampled"},
    {"grpo", "beta=0.2", "beta", "preference_loss"},
    {"online-dpo", "label_smoothing=0.1", "label_smoothing", "preference_loss cdpo or robust"},
    {"online-dpo", "simpo_gamma=0.1", "simpo_gamma", "preference_loss simpo"},
    {"online-dpo", "cpo_alpha=0.1", "cpo_alpha", "preference_loss cpo"},
    {"online-dpo", "desirable_weight=2", "desirable_weight", "preference_loss kto"},
    {"online-dpo", "undesirable_weight=2", "undesirable_weight", "preference_loss kto"},
    {"online-dpo", "advantage=group-mean", "advantage", "only shape remains"},
    {"online-dpo", "mismatch=token-tis", "mismatch", "only shape remains"},
    {"online-dpo", "kl_loss_coef=0", "kl_loss_coef", "only shape remains"},
    {"grpo", "preference_loss=dpo aggregation=token-mean", "aggregation", "only shape remains"},
};

static void test_idle_options(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(IDLE); i++) {
        rein_options o = preset(IDLE[i].base);
        set(&o, IDLE[i].settings);
        char said[80];
        snprintf(said, sizeof said, "%s has no effect", IDLE[i].option);
        rejected(&o, said, IDLE[i].why);
    }
}

/* Those that have an effect in every composition; all others are in the list above. */
static void test_idle_options_are_all(void **state) {
    (void)state;
    const char *const always[] = {"token_budget",          "advantage",   "advantage_balance", "mismatch",
                                  "off_policy_mask_delta", "surrogate",   "kl_penalty_coef",   "kl_loss_coef",
                                  "entropy_coef",          "top_entropy", "aggregation",       "preference_loss",
                                  "teacher_coef",          NULL};
    for (size_t k = 0; rein_option_at(k); k++) {
        const char *name = rein_option_at(k)->name;
        int found = 0;
        for (size_t i = 0; always[i]; i++) found |= strcmp(always[i], name) == 0;
        for (size_t i = 0; i < COUNT(IDLE); i++) found |= strcmp(IDLE[i].option, name) == 0;
        if (!found) fail_msg("%s is never shown to be rejected where it has no effect", name);
    }
}

/* Also when the value happens to be 0 or the first choice: trap 10 of docs/testing.md. */
static void test_idle_zero_and_first_choice(void **state) {
    (void)state;
    const char *const settings[][3] = {{"rloo", "epsilon=0", "epsilon"},
                                       {"grpo", "tau=0", "tau"},
                                       {"grpo", "budget_penalty_coef=0", "budget_penalty_coef"},
                                       {"grpo", "dppo_divergence=tv", "dppo_divergence"},
                                       {"dapo", "kl_estimator=k1", "kl_estimator"},
                                       {"grpo", "kl_scope=batch", "kl_scope"},
                                       {"grpo", "kl_penalty_source=current_learner", "kl_penalty_source"}};
    int accepted = 0;
    for (size_t i = 0; i < COUNT(settings); i++) {
        rein_options o = preset(settings[i][0]), r;
        set(&o, settings[i][1]);
        if (rein_options_resolve(&r, &o, NULL) == REIN_OK)
            accepted++, print_message("accepted and ignored: %s with %s\n", settings[i][1], settings[i][0]);
    }
    assert_int_equal(accepted, 0);
}

/* A preset's own value that no longer applies is not an error. */
static void test_stale_preset_values(void **state) {
    (void)state;
    const char *const overrides[][3] = {
        {"grpo", "surrogate=reinforce", "surrogate=reinforce"},   /* leaves epsilon */
        {"grpo", "kl_loss_coef=0", "kl_loss_coef=0"},             /* leaves kl_estimator */
        {"ppo", "advantage=group-mean", "advantage=group-mean"},  /* leaves gae's */
        {"dapo", "shape=none", "shape=none"},                     /* leaves overlong's */
        {"sapo", "surrogate=clip", "surrogate=clip epsilon=0.2"}, /* leaves sapo's */
        {"gspo", "surrogate=reinforce", "surrogate=reinforce"},   /* leaves its ratio */
        {"art", "surrogate=squared tau=1", "surrogate=squared ratio=sequence-sum tau=1"},
        {"k2", "shape=none tau=1", "shape=none"}, /* needs no penalty any more */
        {"k1.5", "shape=none tau=1", "shape=none"},
        {"dr-grpo", "aggregation=token-mean", "aggregation=token-mean"},  /* nor a length */
        {"k2", "surrogate=clip budget_penalty_coef=1", "surrogate=clip"}, /* nor a tau */
    };
    for (size_t i = 0; i < COUNT(overrides); i++) {
        rein_options o = preset(overrides[i][0]);
        set(&o, overrides[i][1]);
        resolves(&o, overrides[i][2], overrides[i][0]);
    }
}

/* A surrogate brings its published constants and level with it, from whatever preset it replaces; what the user gave stays. */
static void test_surrogate_brings_its_own(void **state) {
    (void)state;
    const struct {
        const char *base, *settings, *expected;
    } cases[] = {
        {"grpo", "surrogate=cispo", "epsilon=1 epsilon_high=4 ratio=token"},
        {"grpo", "surrogate=gmpo", "epsilon=0.4 epsilon_high=0.4"},
        {"grpo", "surrogate=luspo", "epsilon=0.002 epsilon_high=0.0025 ratio=sequence"},
        {"grpo", "surrogate=dual-clip", "epsilon=0.2 epsilon_high=0.2 dual_clip=3"},
        {"grpo", "surrogate=squared tau=1", "ratio=sequence-sum"},
        {"grpo", "surrogate=vespo",
         "ratio=sequence-sum vespo_k_positive=2 vespo_lambda_positive=3 vespo_k_negative=3 vespo_lambda_negative=2"},
        {"grpo", "surrogate=topr",
         "ratio=sequence-sum topr_positive_low=1 topr_positive_high=1 topr_negative_low=0 topr_negative_high=1"},
        {"grpo", "surrogate=dppo", "ratio=token dppo_divergence=tv dppo_delta=0.15"},
        {"grpo", "surrogate=dppo dppo_divergence=kl", "dppo_delta=0.05"},
        {"grpo", "surrogate=sapo", "sapo_tau_positive=1 sapo_tau_negative=1.05"},
        {"grpo", "surrogate=dro dro_beta=2", "ratio=token dro_beta=2"},
        {"cispo", "surrogate=clip", "epsilon=0.2 epsilon_high=0.2"},
        {"dapo", "surrogate=dual-clip", "epsilon=0.2 epsilon_high=0.28"}, /* the same family: DAPO's range stays */
        {"gspo", "surrogate=cispo", "epsilon=1 epsilon_high=4"},
        {"grpo", "epsilon=0.1 surrogate=cispo", "epsilon=0.1"},
        {"grpo", "surrogate=cispo epsilon=0.1", "epsilon=0.1"},
        {"grpo", "ratio=sequence surrogate=squared tau=1", "ratio=sequence"},
        {"grpo", "epsilon=0.3", "epsilon=0.3 epsilon_high=0.3"}, /* symmetric unless said */
        {"dapo", "epsilon=0.1", "epsilon=0.1 epsilon_high=0.28"},
        {"none", "surrogate=cispo", "epsilon=1 epsilon_high=4"},
        {"none", "surrogate=clip epsilon_high=0.5", "epsilon=0.2 epsilon_high=0.5"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        rein_options o = preset(cases[i].base);
        set(&o, cases[i].settings);
        resolves(&o, cases[i].expected, cases[i].settings);
    }
}

static void test_other_published_constants(void **state) {
    (void)state;
    const char *const cases[][2] = {{"mismatch=token-tis", "tis_cap=2"},
                                    {"mismatch=sequence-tis", "tis_cap=2"},
                                    {"mismatch=token-mask", "mismatch_low=0.5 mismatch_high=5"},
                                    {"mismatch=sequence-mask", "mismatch_low=0.5 mismatch_high=2"},
                                    {"advantage=gae", "gae_gamma=1 gae_lambda=0.95"},
                                    {"advantage=pass-at-k", "pass_k=absent"},
                                    {"advantage=reinforce++", "advantage_eps=1e-8"},
                                    {"advantage=gdpo", "advantage_eps=1e-6"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        rein_options o = preset("grpo");
        set(&o, cases[i][0]);
        resolves(&o, cases[i][1], cases[i][0]);
    }
}

static rein_option_state state_named(const rein_options *o, const char *name) {
    for (size_t i = 0; rein_option_at(i); i++)
        if (strcmp(rein_option_at(i)->name, name) == 0) return rein_options_state(o, i);
    fail_msg("no option %s", name);
    return REIN_OPTION_IDLE;
}

static void test_states(void **state) {
    rein_options k2, grpo;
    (void)state;
    assert_int_equal(rein_options_init(&k2, "k2", NULL), REIN_OK);
    assert_int_equal(rein_options_init(&grpo, "grpo", NULL), REIN_OK);
    assert_int_equal(state_named(&k2, "tau"), REIN_OPTION_REQUIRED);
    assert_int_equal(state_named(&k2, "budget_penalty_coef"), REIN_OPTION_REQUIRED);
    assert_int_equal(state_named(&k2, "epsilon"), REIN_OPTION_IDLE);
    assert_int_equal(rein_options_set(&k2, "tau", "0.1", NULL), REIN_OK);
    assert_int_equal(state_named(&k2, "tau"), REIN_OPTION_SET);
    assert_int_equal(state_named(&grpo, "epsilon"), REIN_OPTION_SET); /* published */
    assert_int_equal(state_named(&grpo, "kl_clamp"), REIN_OPTION_OFF);
    assert_int_equal(state_named(&grpo, "surrogate"), REIN_OPTION_SET);
    assert_int_equal(rein_options_state(&grpo, 1000), REIN_OPTION_IDLE);
}

static void test_required_options(void **state) {
    (void)state;
    const char *const cases[][2] = {{"surrogate=squared", "tau"},
                                    {"surrogate=dro", "dro_beta"},
                                    {"shape=budget token_budget=9", "budget_penalty_coef"},
                                    {"shape=truncate token_budget=9", "budget_penalty"},
                                    {"shape=overlong", "overlong_max"},
                                    {"shape=overlong overlong_max=9", "overlong_cushion"},
                                    {"shape=k1.5-length", "length_weight"},
                                    {"aggregation=dr-grpo", "max_response_length"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        rein_options o = preset("grpo");
        set(&o, cases[i][0]);
        rejected(&o, cases[i][1], "required");
    }
}

static void test_compositions_that_cannot_be(void **state) {
    (void)state;
    const char *const cases[][3] = {
        {"advantage=gae surrogate=gmpo", "gmpo", "gae"},
        {"advantage=given surrogate=gmpo", "gmpo", "given"},
        {"advantage=reinforce++ kl_reward_coef=0.1 surrogate=gmpo", "gmpo", "reinforce++"},
        {"mismatch=token-mask mismatch_low=3 mismatch_high=2", "mismatch_low is 3", "mismatch_high"},
        {"shape=overlong overlong_max=5 overlong_cushion=6", "overlong_cushion is 6", "overlong_max"},
        {"max_negative_advantage_importance_sampling_weight=0.8", "weight is 0.8", "above 1 - epsilon, 0.8"},
        {"surrogate=cispo epsilon=0.25 max_negative_advantage_importance_sampling_weight=0.5", "is 0.5", "above 1 - epsilon, 0.75"},
        {"surrogate=cispo max_negative_advantage_importance_sampling_weight=5", "weight is 5", "below 1 + epsilon_high, 5"},
        {"surrogate=dual-clip max_negative_advantage_importance_sampling_weight=3", "weight is 3", "below dual_clip, 3"},
        {"surrogate=squared tau=1 kl_penalty_coef=1 kl_scope=sequence", "kl_scope sequence", "sequence"},
        {"surrogate=topr topr_negative_low=2 topr_negative_high=1", "topr_negative_low", "topr_negative_high"},
        {"surrogate=topr topr_positive_low=2 topr_positive_high=1", "topr_positive_low", "topr_positive_high"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        rein_options o = preset("grpo");
        set(&o, cases[i][0]);
        rejected(&o, cases[i][1], cases[i][2]);
    }
}

/* Resolving twice is resolving once, in place too. */
static void test_resolve_again(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(PRESETS); i++) {
        rein_options o = preset(PRESETS[i].name), once, twice;
        char a[64], b[64];
        rein_error err = {0};
        set(&o, PRESETS[i].required);
        assert_int_equal(rein_options_resolve(&once, &o, NULL), REIN_OK);
        twice = once;
        if (rein_options_resolve(&twice, &twice, &err) != REIN_OK) fail_msg("%s, again: %s", PRESETS[i].name, err.message);
        for (size_t k = 0; rein_option_at(k); k++) {
            show(a, &once, rein_option_at(k)->name);
            show(b, &twice, rein_option_at(k)->name);
            assert_string_equal(a, b);
        }
    }
}

/* ---- the rows of the gradient-bias table that a composition sits in */
static void bias_is(const char *base, const char *settings, size_t i, const char *form, const char *on_policy,
                    const char *off_policy) {
    rein_options o = preset(base);
    set(&o, settings);
    const rein_kl_bias *row = rein_kl_bias_of(&o, i);
    if (!form) {
        assert_null(row);
        return;
    }
    assert_non_null(row);
    if (!strstr(row->form, form) || strncmp(row->on_policy, on_policy, strlen(on_policy)) != 0 ||
        strncmp(row->off_policy, off_policy, strlen(off_policy)) != 0)
        fail_msg("%s %s: \"%s\", \"%s\", \"%s\"", base, settings, row->form, row->on_policy, row->off_policy);
    assert_true(*row->meaning);
}

static void test_bias_rows(void **state) {
    (void)state;
    bias_is("dapo", "", 0, NULL, NULL, NULL);
    bias_is("rloo", "", 0, "reward", "exact", "exact when multiplied by stop(ρ)");
    bias_is("rloo", "", 1, NULL, NULL, NULL);
    bias_is("art", "kl_penalty_coef=0.1", 0, "advantage", "exact", "exact when multiplied by stop(ρ)");
    bias_is("grpo", "", 0, "k3", "wrong", "wrong");
    bias_is("grpo", "kl_estimator=k1", 0, "k1", "no gradient", "wrong");
    bias_is("grpo", "kl_estimator=k2", 0, "k2", "exact", "exact when multiplied by stop(ρ)");
    bias_is("grpo", "kl_estimator=exact", 0, "exact KL as loss", "exact for the token itself", "wrong");
    bias_is("grpo", "kl_estimator=exact kl_reward_exact=0.04", 0, "in the reward", "exact together", "exact together");
    bias_is("grpo", "kl_estimator=exact kl_reward_exact=0.04", 1, "exact KL as loss", "exact for the token itself", "wrong");
    bias_is("grpo", "kl_estimator=abs", 0, "|x|", "wrong", "wrong");
    bias_is("grpo", "kl_estimator=is-k1", 0, "ρ·k1", "exact", "exact");
    bias_is("deepseek-v3.2", "kl_loss_coef=0.1", 0, "ρ·k3", "exact", "exact");
    bias_is("deepseek-v3.2", "kl_loss_coef=0.1 kl_direction=current_over_ref", 0, "current", "wrong", "wrong");
    bias_is("grpo", "kl_reward_coef=0.1 kl_penalty_coef=0.1", 0, "reward", "exact", "exact when");
    bias_is("grpo", "kl_reward_coef=0.1 kl_penalty_coef=0.1", 1, "advantage", "exact", "exact when");
    bias_is("grpo", "kl_reward_coef=0.1 kl_penalty_coef=0.1", 2, "k3", "wrong", "wrong");
    bias_is("grpo", "kl_reward_coef=0.1 kl_penalty_coef=0.1", 3, NULL, NULL, NULL);
    bias_is("grpo", "kl_reward_coef=0.1", 1, "k3", "wrong", "wrong");
    bias_is("grpo", "kl_reward_coef=0.1", 2, NULL, NULL, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_preset_names),
        cmocka_unit_test(test_presets_resolve),
        cmocka_unit_test(test_presets_require),
        cmocka_unit_test(test_presets_by_hand),
        cmocka_unit_test(test_presets_describe),
        cmocka_unit_test(test_preset_unknown),
        cmocka_unit_test(test_zero_is_reinforce),
        cmocka_unit_test(test_option_table),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_get_errors),
        cmocka_unit_test(test_handle),
        cmocka_unit_test(test_set_number),
        cmocka_unit_test(test_no_options),
        cmocka_unit_test(test_use_reference),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_metric_names),
        cmocka_unit_test(test_set_errors),
        cmocka_unit_test(test_resolve_checks_fields),
        cmocka_unit_test(test_aliases),
        cmocka_unit_test(test_alias_table),
        cmocka_unit_test(test_alias_beside_original),
        cmocka_unit_test(test_alias_and_mismatch),
        cmocka_unit_test(test_preference_losses),
        cmocka_unit_test(test_idle_options),
        cmocka_unit_test(test_idle_options_are_all),
        cmocka_unit_test(test_idle_zero_and_first_choice),
        cmocka_unit_test(test_stale_preset_values),
        cmocka_unit_test(test_surrogate_brings_its_own),
        cmocka_unit_test(test_other_published_constants),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_required_options),
        cmocka_unit_test(test_compositions_that_cannot_be),
        cmocka_unit_test(test_resolve_again),
        cmocka_unit_test(test_bias_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
