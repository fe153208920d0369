/* test_trainer_pass.c - what a trainer takes and what it refuses: old log-probs, references, rewards, gaps, files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rein/rollout.h"
#include "train/trainer.h"
#include "train/trainer_fixture.h"

static const rein_adamw ADAMW = {0.05, 0.9, 0.99, 1e-8, 0.01, 1};

static rein_pass_result pass_over(rein_trainer *t, const rein_groups *groups, const rein_pass_options *options) {
    rein_pass_result pass;
    OK(rein_trainer_forward_backward(&pass, t, groups, options, &error_));
    return pass;
}

static void step(rein_trainer *t, const rein_groups *groups, const char *settings) {
    const rein_pass_options o = {.objective = options_of(settings), .policy_step = -1};
    assert_false(pass_over(t, groups, &o).nothing_to_train);
    OK(rein_trainer_optim_step(NULL, t, &ADAMW, &error_));
}

static size_t trained_tokens(const rein_groups *groups) { return rein_groups_summarise(groups).trained_tokens; }

static float *copy_of(const float *from, size_t n) {
    float *to = floats(n);
    memcpy(to, from, n * sizeof *to);
    return to;
}

/* The gradient a pass leaves behind; then there is none. */
static float *take_gradient(rein_trainer *t, const rein_groups *groups, const rein_pass_options *o, rein_pass_result *pass) {
    *pass = pass_over(t, groups, o);
    float *gradient = copy_of(t->buffers, t->options.shards * t->floats);
    rein_trainer_clear(t);
    return gradient;
}

/* ---- old log-probs */
static void test_old_log_probs(void **state) {
    (void)state;
    subject s = open_subject("a", 0);
    rein_trainer *t = open_trainer(&s, NULL);
    rein_groups groups = make_groups(3, 5);
    const size_t n = tokens_of(&groups), size = t->options.shards * t->floats * sizeof(float), trained = trained_tokens(&groups);
    float *current = floats(n), *recorded = floats(n), *at = recorded;
    rein_pass_result pass;
    rein_pass_options o = {.objective = options_of("preset=grpo kl_loss_coef=0"), .policy_step = -1};
    OK(rein_trainer_log_probs(current, NULL, t, NULL, &groups, &error_));
    float *missing = take_gradient(t, &groups, &o, &pass);
    assert_int_equal(pass.recomputed, trained);
    assert_true(pass.loss.metrics.ratio_min == 1 && pass.loss.metrics.ratio_max == 1);
    record(&groups, &s.p, 0);
    float *same = take_gradient(t, &groups, &o, &pass);
    assert_int_equal(pass.recomputed, 0);
    assert_memory_equal(missing, same, size);
    record(&groups, &s.p, 0.1);
    float *drifted = take_gradient(t, &groups, &o, &pass);
    assert_true(pass.loss.metrics.ratio_min < 1 && pass.loss.metrics.ratio_max > 1);
    EACH_HISTORY(h, &groups) memcpy(at, h->log_probs, h->n * sizeof *at), at += h->n;
    o.old_log_probs = recorded; /* given, they take the place of the recorded ones */
    record(&groups, &s.p, 0);
    float *given = take_gradient(t, &groups, &o, &pass);
    assert_memory_equal(given, drifted, size);
    o.old_log_probs = NULL;
    groups.groups[1].trajectories[0].histories[0].log_probs[groups.groups[1].trajectories[0].histories[0].n - 1] = NAN;
    float *one = take_gradient(t, &groups, &o, &pass);
    assert_int_equal(pass.recomputed, 1);
    assert_memory_equal(one, same, size);
    free(missing), free(same), free(drifted), free(given), free(one), free(current), free(recorded);
    rein_groups_free(&groups), rein_trainer_close(t), close_subject(&s);
}

/* A correction of mismatch needs what the sampler saw, and takes the policy as it is for the old one. */
static void test_mismatch(void **state) {
    (void)state;
    subject s = open_subject("a", 0);
    rein_trainer *t = open_trainer(&s, NULL);
    rein_groups groups = make_groups(2, 5);
    rein_pass_result pass;
    const char *const needs[] = {"preset=art mismatch=token-tis tis_cap=2", "preset=art off_policy_mask_delta=0.1",
                                 "preset=art kl_penalty_coef=0.1 kl_penalty_source=sample"};
    record(&groups, &s.p, 0.3);
    rein_pass_options o = {.objective = options_of(needs[0]), .policy_step = -1};
    pass = pass_over(t, &groups, &o);
    assert_true(pass.loss.metrics.ratio_min == 1 && pass.loss.metrics.ratio_max == 1);
    groups.groups[0].trajectories[0].histories[0].log_probs[groups.groups[0].trajectories[0].histories[0].n - 1] = NAN;
    for (size_t i = 0; i < COUNT(needs); i++) {
        o.objective = options_of(needs[i]), o.reference = &s.p;
        REFUSED(rein_trainer_forward_backward(&pass, t, &groups, &o, &error_), "1 trained tokens have no recorded log-prob");
        assert_false(t->holds);
    }
    rein_groups_free(&groups), rein_trainer_close(t), close_subject(&s);
}

/* What stands at tokens that do not train is not a number to anybody. */
static void test_masked_log_probs(void **state) {
    (void)state;
    const float strange[] = {NAN, INFINITY, -INFINITY, -9999, 3e38F};
    subject s = open_subject("a", 0);
    rein_trainer *t = open_trainer(&s, NULL);
    rein_groups groups = make_groups(3, 5);
    rein_pass_result pass, plain;
    const rein_pass_options o = {.objective =
                                     options_of("preset=dapo overlong_max=8 overlong_cushion=4 entropy_coef=0.1 kl_loss_coef=0.2 "
                                                "kl_estimator=k3 mismatch=token-tis tis_cap=2"),
                                 .reference = &s.p,
                                 .policy_step = 3,
                                 .mask_truncated_completions = 1};
    record(&groups, &s.p, 0.1);
    for (size_t i = 0; i < groups.groups[0].n; i++) groups.groups[0].trajectories[i].policy_step = 3;
    float *first = take_gradient(t, &groups, &o, &plain);
    for (size_t k = 0; k < COUNT(strange); k++) {
        EACH_HISTORY(h, &groups)
        for (size_t i = 0; i < h->n; i++)
            if (!h->mask[i]) h->log_probs[i] = strange[k];
        const rein_history *cut = &groups.groups[0].trajectories[2].histories[0]; /* masked because it was cut off */
        for (size_t i = 0; i < cut->n; i++) cut->log_probs[i] = strange[k];
        float *gradient = take_gradient(t, &groups, &o, &pass);
        assert_memory_equal(gradient, first, t->options.shards * t->floats * sizeof *first);
        assert_memory_equal(&pass.loss, &plain.loss, sizeof pass.loss);
        assert_true(pass.max_gap == plain.max_gap && pass.max_gap > 0);
        free(gradient);
    }
    free(first), rein_groups_free(&groups), rein_trainer_close(t), close_subject(&s);
}

/* The error is about this array of the second trajectory of the second group, and this token. */
static void refuse_token(rein_trainer *t, const rein_groups *groups, const char *array, size_t token) {
    const rein_pass_options o = {.objective = options_of("preset=art"), .policy_step = -1};
    rein_pass_result pass;
    rein_error err = {0};
    char field[100];
    snprintf(field, sizeof field, "groups[1].trajectories[1].histories[0].%s", array);
    assert_int_equal(rein_trainer_forward_backward(&pass, t, groups, &o, &err), REIN_EINVAL);
    assert_string_equal(err.field, field);
    assert_int_equal(err.index, token);
}

static void test_wrong_log_probs(void **state) {
    (void)state;
    subject s = open_subject("a", 0);
    rein_trainer *t = open_trainer(&s, NULL);
    rein_groups groups = make_groups(3, 5);
    rein_pass_result pass;
    char said[200];
    const rein_pass_options o = {.objective = options_of("preset=art"), .policy_step = -1};
    record(&groups, &s.p, 0.1);
    rein_history *h = &groups.groups[1].trajectories[1].histories[0];
    const size_t last = h->n - 1;
    const struct {
        float value;
        const char *said; /* of the last token */
    } cases[] = {{-INFINITY, "log_probs[%zu] is -inf: a log-probability"},
                 {INFINITY, "log_probs[%zu] is inf: a log-probability"},
                 {0.5F, "log_probs[%zu] is 0.5: a log-probability (0 or below) is needed, or NaN where it is not known"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        h->log_probs[last] = cases[i].value;
        snprintf(said, sizeof said, cases[i].said, last);
        REFUSED(rein_trainer_forward_backward(&pass, t, &groups, &o, &error_), said);
        refuse_token(t, &groups, "log_probs", last);
    }
    h->log_probs[last] = 1e-4F; /* by what rounding can do, as in files */
    OK(rein_trainer_forward_backward(&pass, t, &groups, &o, &error_));
    rein_groups_free(&groups), rein_trainer_close(t), close_subject(&s);
}

/* ---- references */
static void test_reference(void **state) {
    (void)state;
    for (int full = 0; full < 2; full++) {
        subject s = open_subject("a", full), other = open_subject("b", full);
        rein_trainer *t = open_trainer(&s, NULL);
        rein_groups groups = make_groups(3, 5);
        const size_t size = t->options.shards * t->floats * sizeof(float);
        rein_pass_result pass;
        record(&groups, &s.p, 0.1);
        rein_pass_options o = {.objective = options_of("preset=grpo kl_loss_coef=0.5"), .reference = &s.p, .policy_step = -1};
        rein_pass_options none = {.objective = options_of("preset=grpo kl_loss_coef=0"), .policy_step = -1};
        float *own = take_gradient(t, &groups, &o, &pass); /* the policy itself: no distance, no gradient of it */
        assert_true(pass.loss.metrics.kl_ref_k1 == 0 && pass.loss.metrics.kl_ref_k3 == 0 && pass.loss.metrics.kl_loss == 0);
        assert_int_equal(pass.reference_tokens, trained_tokens(&groups));
        const rein_policy trap = {(const rein_model *)(uintptr_t)16, (const rein_adapter *)(uintptr_t)16, 1};
        none.reference = &trap; /* it is not read */
        float *without = take_gradient(t, &groups, &none, &pass);
        assert_int_equal(pass.reference_tokens, 0);
        assert_true(pass.seconds_reference == 0);
        assert_memory_equal(own, without, size);
        o.reference = &other.p;
        float *theirs = take_gradient(t, &groups, &o, &pass), *log_probs = floats(tokens_of(&groups));
        assert_true(pass.loss.metrics.kl_ref_k3 > 0);
        assert_memory_not_equal(own, theirs, size);
        OK(rein_trainer_log_probs(log_probs, NULL, t, &other.p, &groups, &error_));
        o.reference_log_probs = log_probs, o.reference = &trap;
        float *given = take_gradient(t, &groups, &o, &pass);
        assert_int_equal(pass.reference_tokens, 0);
        assert_memory_equal(given, theirs, size);
        o.reference_log_probs = NULL, o.reference = NULL;
        REFUSED(rein_trainer_forward_backward(&pass, t, &groups, &o, &error_), "reference is missing");
        free(own), free(without), free(theirs), free(given), free(log_probs);
        rein_groups_free(&groups), rein_trainer_close(t), close_subject(&s), close_subject(&other);
    }
}

/* A truncation that keeps everything is the policy, by another way through the head; what it cannot have is refused. */
static void test_truncation(void **state) {
    (void)state;
    subject s = open_subject("a", 0), full = open_subject("a", 1);
    rein_trainer *t = open_trainer(&s, NULL), *of_full = open_trainer(&full, NULL);
    rein_groups groups = make_groups(3, 5);
    rein_pass_result pass;
    const rein_truncation all = {0, 1, 0}, greatest = {1, 1, 0};
    const rein_options *exact = options_of("preset=grpo kl_estimator=exact");
    record(&groups, &s.p, 0.1);
    rein_pass_options o = {
        .objective = options_of("preset=grpo kl_loss_coef=0.1 entropy_coef=0.1"), .reference = &s.p, .policy_step = -1};
    float *plain = take_gradient(t, &groups, &o, &pass);
    const double loss = pass.loss.loss, entropy = pass.loss.metrics.entropy;
    o.truncation = &all;
    float *kept = take_gradient(t, &groups, &o, &pass);
    double off = 0, size = 0;
    for (size_t i = 0; i < t->options.shards * t->floats; i++) {
        const double x = (double)plain[i], gap = (double)kept[i] - x;
        off += gap * gap, size += x * x;
    }
    assert_true(size > 0 && sqrt(off / size) < 1e-5);
    assert_true(fabs(pass.loss.loss - loss) < 1e-6 && fabs(pass.loss.metrics.entropy - entropy) < 1e-6);
    REFUSED(rein_trainer_forward_backward(&pass, of_full, &groups, &o, &error_), "needs a head that does not train");
    o.truncation = &greatest;
    REFUSED(rein_trainer_forward_backward(&pass, t, &groups, &o, &error_), "is not among those that top_k, top_p and min_p keep");
    o.truncation = &all, o.objective = exact;
    REFUSED(rein_trainer_forward_backward(&pass, t, &groups, &o, &error_), "has no exact KL");
    free(plain), free(kept), rein_groups_free(&groups);
    rein_trainer_close(t), rein_trainer_close(of_full), close_subject(&s), close_subject(&full);
}

/* The penalty takes from some tokens what it gives to others: over each scope it adds up to nothing; and the trainer has its gradient. */
static void test_penalty_adds_up(void **state) {
    (void)state;
    const char *const settings[] = {"preset=art kl_penalty_coef=0.7 kl_scope=batch",
                                    "preset=art kl_penalty_coef=0.7 kl_scope=group",
                                    "preset=art kl_penalty_coef=0.7 kl_scope=sequence"};
    subject s = open_subject("a", 0), other = open_subject("b", 0);
    rein_groups groups = make_groups(4, 5);
    record(&groups, &s.p, 0.1);
    const rein_options *plain = options_of("preset=art");
    expected before = expect(&groups, &s.p, &other.p, plain, 0);
    for (size_t scope = 0; scope < COUNT(settings); scope++) {
        const rein_pass_options o = {.objective = options_of(settings[scope]), .reference = &other.p, .policy_step = -1};
        expected e = expect(&groups, &s.p, &other.p, o.objective, 0);
        rein_trainer *t = open_trainer(&s, NULL);
        const rein_pass_result pass = pass_over(t, &groups, &o);
        assert_true(fabs(pass.loss.metrics.kl_ref_k1 - e.loss.metrics.kl_ref_k1) < 1e-6);
        assert_true(fabs(pass.loss.loss - e.loss.loss) < 1e-6);
        double sum = 0, moved = 0;
        for (size_t q = 0, g = 0; q < e.sequences; q++) {
            for (size_t i = e.sequence_offsets[q]; i < e.sequence_offsets[q + 1]; i++) {
                sum += e.advantages[i] - before.advantages[i];
                moved += fabs(e.advantages[i] - before.advantages[i]);
            }
            const int last_of_group = q + 1 == e.group_offsets[g + 1];
            g += (size_t)last_of_group;
            if (scope == 2 || (scope == 1 && last_of_group) || q + 1 == e.sequences) {
                assert_true(fabs(sum) < 1e-12);
                sum = 0;
            }
        }
        assert_true(moved > 0.1);
        free_expected(&e), rein_trainer_close(t);
    }
    free_expected(&before), rein_groups_free(&groups), close_subject(&s), close_subject(&other);
}

/* ---- nothing to train */
static void test_nothing_to_train(void **state) {
    (void)state;
    const char *const presets[] = {"preset=grpo kl_loss_coef=0", "preset=art", "preset=gspo", "preset=cispo",
                                   "preset=dr-grpo max_response_length=9"};
    subject s = open_subject("a", 0);
    rein_groups groups = make_groups(3, 5), next = make_groups(4, 6);
    record(&groups, &s.p, 0), record(&next, &s.p, 0);
    for (size_t g = 0; g < groups.n; g++)
        for (size_t i = 0; i < groups.groups[g].n; i++) groups.groups[g].trajectories[i].reward = 0.1;
    rein_trainer *t = open_trainer(&s, NULL), *fresh = open_trainer(&s, NULL);
    const rein_pass_options art = {.objective = options_of("preset=art"), .policy_step = -1};
    for (size_t k = 0; k < COUNT(presets); k++) {
        const rein_pass_options o = {.objective = options_of(presets[k]), .policy_step = -1};
        const rein_pass_result pass = pass_over(t, &groups, &o);
        assert_true(pass.nothing_to_train && pass.loss.loss == 0 && pass.loss.metrics.frac_reward_zero_std == 1);
        REFUSED(rein_trainer_optim_step(NULL, t, &ADAMW, &error_), "there is no gradient");
        assert_int_equal(rein_trainer_steps(t), 0);
    }
    pass_over(t, &next, &art), pass_over(fresh, &next, &art); /* and what comes after does not know of it */
    assert_memory_equal(t->buffers, fresh->buffers, t->options.shards * t->floats * sizeof(float));
    rein_trainer_clear(t);
    EACH_HISTORY(h, &next) memset(h->mask, 0, h->n);
    const rein_pass_result pass = pass_over(t, &next, &art);
    assert_true(pass.nothing_to_train && pass.loss.nothing_to_train && pass.loss.loss == 0 && isnan(pass.max_gap));
    REFUSED(rein_trainer_optim_step(NULL, t, &ADAMW, &error_), "there is no gradient");
    rein_groups_free(&groups), rein_groups_free(&next), rein_trainer_close(t), rein_trainer_close(fresh), close_subject(&s);
}

/* ---- the gap: what rein_generator recorded is what the trainer computes */
static rein_groups sample(const rein_policy *policy, int64_t at_step, rein_activation_cache *cache) {
    rein_groups groups = {0};
    rein_generator *generator;
    rein_sampling sampling = rein_sampling_plain();
    sampling.max_tokens = 9;
    OK(rein_generator_open(&generator, policy, NULL, &(rein_generator_options){.activation_cache = cache}, &error_));
    for (size_t p = 0; p < 3; p++) {
        int32_t prompt[4] = {(int32_t)p, 3, 5, 7};
        const rein_request request = {prompt, 1 + p, 4, {.step = (uint64_t)at_step, .prompt = p}, sampling, NULL, 0};
        size_t count;
        OK(rein_generator_add(&count, generator, &request, &error_));
        rein_trajectory *t = group_of(&groups, 4);
        for (size_t i = 0; i < 4; i++) {
            add_history(&t[i], prompt, 1 + p, 9);
            t[i].policy_step = at_step, t[i].reward = (double)i;
        }
    }
    for (size_t count = 1; count;) {
        const rein_sampled *sampled;
        OK(rein_generator_step(&sampled, &count, generator, &error_));
        for (size_t i = 0; i < count; i++) {
            rein_history *h = groups.groups[sampled[i].request].trajectories[sampled[i].sample].histories;
            const size_t at = 1 + sampled[i].request + sampled[i].position;
            h->ids[at] = sampled[i].id, h->log_probs[at] = sampled[i].log_prob;
            h->activation_key = sampled[i].activation_key;
        }
    }
    rein_generator_close(generator);
    return groups;
}

static void test_gap(void **state) {
    (void)state;
    const char *const settings[] = {"preset=grpo kl_loss_coef=0", "preset=gspo", "preset=art entropy_coef=0.1",
                                    "preset=cispo mismatch=token-tis tis_cap=2"};
    for (int full = 0; full < 2; full++) {
        subject s = open_subject("a", full);
        s.p.temperature = 0.8;
        rein_trainer *t = open_trainer(&s, NULL);
        rein_groups groups = sample(&s.p, 7, NULL);
        for (size_t k = 0; k < COUNT(settings); k++) {
            const rein_pass_options o = {.objective = options_of(settings[k]), .policy_step = 7},
                                    another = {.objective = o.objective, .policy_step = 6};
            const rein_pass_result pass = pass_over(t, &groups, &o);
            assert_true(pass.max_gap == 0 && pass.loss.metrics.ratio_max == 1 && pass.loss.metrics.ratio_min == 1);
            assert_true(pass.loss.metrics.kl_old_k1 == 0 && pass.loss.metrics.kl_old_k3 == 0);
            assert_true(isnan(pass_over(t, &groups, &another).max_gap)); /* not by this policy: nothing to measure */
            rein_trainer_clear(t);
        }
        const rein_pass_options o = {.objective = options_of(settings[0]), .policy_step = 7};
        change(&s, 1e-3);
        const double gap = pass_over(t, &groups, &o).max_gap;
        assert_true(gap > 0 && gap < 0.5);
        rein_groups_free(&groups), rein_trainer_close(t), close_subject(&s);
    }
}

/* ---- the activation cache: the same bits; every unit but the first is taken from it */
static void test_activation_cache(void **state) {
    (void)state;
    static const struct {
        size_t share_limit;
        int no_sharing, recompute;
        size_t rows; /* not computed: samples have 8 rows of their own, the prompts 1 to 3 */
    } cases[] = {{0, 0, 0, 2 * 4 * 8 + 2 + 3},
                 {0, 0, 1, 2 * 4 * 8 + 2 + 3},
                 {2, 0, 0, 5 * 2 * 8 + 1 + 2 * (2 + 3)},
                 {0, 1, 0, 2 * 4 * 8 + 4 * (2 + 3)}};
    for (size_t c = 0; c < COUNT(cases); c++) {
        subject s = open_subject("a", 0);
        rein_activation_cache *cache;
        OK(rein_activation_cache_open(&cache, 1 << 24, cases[c].recompute, &error_));
        rein_trainer_options options = {
            .share_limit = cases[c].share_limit, .no_sharing = cases[c].no_sharing, .recompute = cases[c].recompute};
        rein_trainer *computes = open_trainer(&s, &options);
        options.activation_cache = cache;
        rein_trainer *t = open_trainer(&s, &options);
        rein_groups groups = sample(&s.p, 7, cache);
        const rein_pass_options o = {.objective = options_of("preset=reinforce"), .policy_step = 7};
        rein_pass_result with, without;
        float *got = take_gradient(t, &groups, &o, &with), *wanted = take_gradient(computes, &groups, &o, &without);
        assert_true(with.cached_tokens == cases[c].rows && without.cached_tokens == 0);
        assert_true(with.max_gap == 0 && with.loss.loss == without.loss.loss);
        assert_memory_equal(got, wanted, rein_parameter_floats(s.model, s.adapter) * sizeof *got);
        groups.groups[2].trajectories[3].histories[0].activation_key = 0;
        free(got), got = take_gradient(t, &groups, &o, &with);
        assert_true(with.cached_tokens < cases[c].rows && with.cached_tokens > 0);
        assert_memory_equal(got, wanted, rein_parameter_floats(s.model, s.adapter) * sizeof *got);
        free(got), free(wanted), rein_groups_free(&groups);
        rein_trainer_close(t), rein_trainer_close(computes), rein_activation_cache_close(cache), close_subject(&s);
    }
}

/* ---- budgets: a trajectory's own, or token_budget; they matter where the objective has them */
static void test_budgets(void **state) {
    (void)state;
    subject s = open_subject("a", 0);
    rein_trainer *t = open_trainer(&s, NULL);
    rein_groups groups = make_groups(2, 5);
    float *log_probs = floats(tokens_of(&groups));
    rein_pass_result pass;
    record(&groups, &s.p, 0.1);
    rein_options *k2 = options_of("preset=k2 tau=0.3 token_budget=3 budget_penalty_coef=0.1");
    const rein_pass_options o = {.objective = k2, .policy_step = -1};
    float *common = take_gradient(t, &groups, &o, &pass);
    const double over = pass.loss.metrics.share_over_budget;
    assert_true(over > 0 && over < 1);
    groups.groups[0].trajectories[0].budget = 3; /* the same, said once more */
    float *one = take_gradient(t, &groups, &o, &pass);
    assert_memory_equal(one, common, t->options.shards * t->floats * sizeof *one);
    OK(rein_trainer_log_probs(log_probs, NULL, t, NULL, &groups, &error_)); /* has nothing to do with budgets */
    const rein_pass_options art = {.objective = options_of("preset=art"), .policy_step = -1};
    pass_over(t, &groups, &art);
    rein_trainer_clear(t);
    for (size_t g = 0; g < groups.n; g++)
        for (size_t i = 0; i < groups.groups[g].n; i++) groups.groups[g].trajectories[i].budget = 100;
    free(take_gradient(t, &groups, &o, &pass));
    assert_true(pass.loss.metrics.share_over_budget == 0);
    for (size_t g = 0; g < groups.n; g++)
        for (size_t i = 0; i < groups.groups[g].n; i++) groups.groups[g].trajectories[i].budget = 3;
    k2->token_budget = NAN;
    float *each = take_gradient(t, &groups, &o, &pass);
    assert_memory_equal(each, common, t->options.shards * t->floats * sizeof *one);
    groups.groups[1].trajectories[1].budget = -1;
    REFUSED(rein_trainer_forward_backward(&pass, t, &groups, &o, &error_), "token_budget");
    free(common), free(one), free(each), free(log_probs);
    rein_groups_free(&groups), rein_trainer_close(t), close_subject(&s);
}

/* ---- files */
typedef struct state_of_trainer {
    float *values, *first, *second;
    size_t bytes;
    int64_t steps;
} state_of_trainer;

static state_of_trainer remember(const subject *s, const rein_trainer *t) {
    return (state_of_trainer){values_of(s), copy_of(t->first, t->floats), copy_of(t->second, t->floats), t->floats * sizeof(float),
                              t->steps};
}

static void assert_state(const subject *s, const rein_trainer *t, state_of_trainer *before) {
    float *values = values_of(s);
    assert_memory_equal(values, before->values, before->bytes);
    assert_memory_equal(t->first, before->first, before->bytes);
    assert_memory_equal(t->second, before->second, before->bytes);
    assert_int_equal(t->steps, before->steps);
    free(values);
}

static void forget(state_of_trainer *state) { free(state->values), free(state->first), free(state->second); }

/* Five steps, or two, a file, and three by another trainer: the same bits. */
static void test_save_and_load(void **state) {
    (void)state;
    for (int full = 0; full < 2; full++) {
        rein_groups groups[5];
        subject s = open_subject("a", full), again = open_subject("a", full);
        rein_trainer *t = open_trainer(&s, NULL),
                     *other = open_trainer(&again, &(rein_trainer_options){.temperature = 1, .exec = {.threads = 1}});
        for (size_t i = 0; i < 5; i++) groups[i] = make_groups(1 + i, 40 + i), record(&groups[i], &s.p, 0.05);
        stream = 3, change(&again, 0.1); /* not what was saved */
        char *const directory = strdup(sub_folder(full ? "saved-full" : "saved"));
        for (size_t i = 0; i < 2; i++) step(t, &groups[i], "preset=art");
        OK(rein_trainer_save(t, directory, &error_));
        const rein_pass_options o = {.objective = options_of("preset=art"), .policy_step = -1};
        pass_over(other, &groups[0], &o); /* a gradient held is lost with the weights it belongs to */
        OK(rein_trainer_load(other, directory, &error_));
        REFUSED(rein_trainer_optim_step(NULL, other, &ADAMW, &error_), "there is no gradient");
        assert_int_equal(rein_trainer_steps(other), 2);
        for (size_t i = 2; i < 5; i++) step(t, &groups[i], "preset=art"), step(other, &groups[i], "preset=art");
        assert_int_equal(rein_trainer_steps(other), 5);
        state_of_trainer wanted = remember(&s, t);
        assert_state(&again, other, &wanted);
        forget(&wanted), free(directory);
        for (size_t i = 0; i < 5; i++) rein_groups_free(&groups[i]);
        rein_trainer_close(t), rein_trainer_close(other), close_subject(&s), close_subject(&again);
    }
}

static void put_file(const char *directory, const char *name, const char *text) {
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    OK(rein_file_write(path, text, strlen(text), &error_));
}

static void copy_file(const char *from, const char *to, const char *name) {
    char path[1200];
    rein_file file;
    snprintf(path, sizeof path, "%s/%s", from, name);
    OK(rein_file_map(&file, path, &error_));
    snprintf(path, sizeof path, "%s/%s", to, name);
    OK(rein_file_write(path, file.data, file.size, &error_));
    rein_file_unmap(&file);
}

/* What is refused changes nothing. */
static void test_wrong_files(void **state) {
    (void)state;
    subject s = open_subject("a", 0), wide = open_subject("b", 0), all = open_subject("a", 1);
    const rein_lora_options lora = {.rank = 2, .alpha = 5, .seed = 4}, scaled = {.rank = 3, .alpha = 6, .seed = 4};
    rein_groups groups = make_groups(2, 9);
    rein_trainer *t = open_trainer(&s, NULL), *full = open_trainer(&all, NULL), *other;
    rein_adapter *adapters[2];
    char *const good = strdup(sub_folder("good")), *const whole = strdup(sub_folder("whole")),
                *const broken = strdup(sub_folder("broken"));
    step(t, &groups, "preset=art"), step(full, &groups, "preset=art");
    OK(rein_trainer_save(t, good, &error_));
    OK(rein_trainer_save(full, whole, &error_));
    step(t, &groups, "preset=art"), step(full, &groups, "preset=art");
    state_of_trainer before = remember(&s, t), before_full = remember(&all, full);

    REFUSED(rein_trainer_load(t, in_folder("nowhere"), &error_), "nowhere");
    OK(rein_adapter_new(&adapters[0], s.model, &lora, &error_));
    OK(rein_adapter_new(&adapters[1], s.model, &scaled, &error_));
    for (size_t i = 0; i < 2; i++) {
        char directory[1100], name[20];
        snprintf(name, sizeof name, "other%zu", i);
        snprintf(directory, sizeof directory, "%s", sub_folder(name));
        OK(rein_trainer_open(&other, s.model, adapters[i], &(rein_trainer_options){.temperature = 1}, &error_));
        OK(rein_trainer_save(other, directory, &error_));
        REFUSED(rein_trainer_load(t, directory, &error_), i ? "alpha 6" : "first.");
        assert_state(&s, t, &before);
        copy_file(good, directory, "optimizer.safetensors"); /* its moments fit, its weights do not */
        REFUSED(rein_trainer_load(t, directory, &error_), i ? "alpha 6" : "rank 2");
        assert_state(&s, t, &before);
        rein_trainer_close(other), rein_adapter_close(adapters[i]);
    }
    copy_file(good, broken, "adapter_config.json"), copy_file(good, broken, "adapter_model.safetensors");
    put_file(broken, "optimizer.safetensors", "not safetensors at all");
    REFUSED(rein_trainer_load(t, broken, &error_), "optimizer.safetensors");
    char path[1200];
    snprintf(path, sizeof path, "%s/optimizer.safetensors", broken);
    remove(path);
    REFUSED(rein_trainer_load(t, broken, &error_), "optimizer.safetensors");
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", broken);
    remove(path), copy_file(good, broken, "optimizer.safetensors");
    REFUSED(rein_trainer_load(t, broken, &error_), "adapter_model.safetensors");
    REFUSED(rein_trainer_load(t, whole, &error_), "first."); /* moments of all weights */
    REFUSED(rein_trainer_load(full, good, &error_), "first.");
    assert_state(&s, t, &before), assert_state(&all, full, &before_full);
    copy_file(whole, broken, "optimizer.safetensors"); /* the model is not there */
    REFUSED(rein_trainer_load(full, broken, &error_), "broken");
    assert_state(&all, full, &before_full);
    OK(rein_trainer_load(t, good, &error_));
    OK(rein_trainer_load(full, whole, &error_));
    assert_int_equal(rein_trainer_steps(t), 1);
    free(good), free(whole), free(broken), forget(&before), forget(&before_full), rein_groups_free(&groups);
    rein_trainer_close(t), rein_trainer_close(full), close_subject(&s), close_subject(&wide), close_subject(&all);
}

/* ---- borders */
static void test_wrong_options(void **state) {
    (void)state;
    subject s = open_subject("a", 0);
    rein_trainer *t;
    const double temperatures[] = {0, -1, NAN, INFINITY, 1e4};
    REFUSED(rein_trainer_open(&t, s.model, NULL, &(rein_trainer_options){.temperature = 1}, &error_), "nothing trains");
    for (size_t i = 0; i < COUNT(temperatures); i++)
        REFUSED(rein_trainer_open(&t, s.model, s.adapter, &(rein_trainer_options){.temperature = temperatures[i]}, &error_),
                "temperature is");
    rein_activation_cache *inputs;
    OK(rein_activation_cache_open(&inputs, 1, 1, &error_));
    REFUSED(
        rein_trainer_open(&t, s.model, s.adapter, &(rein_trainer_options){.temperature = 1, .activation_cache = inputs}, &error_),
        "activation_cache was opened with recompute");
    rein_activation_cache_close(inputs);
    REFUSED(rein_trainer_open(&t, s.model, s.adapter, &(rein_trainer_options){.temperature = 1, .shards = 4097}, &error_),
            "shards is 4097");
    assert_null(t);
    REFUSED(rein_trainer_open(&t, s.model, s.adapter, &(rein_trainer_options){.temperature = 1, .exec = {.threads = -1}}, &error_),
            "threads");
    rein_trainer_close(NULL);
    close_subject(&s);
}

static void refuse_groups(rein_trainer *t, const rein_groups *groups, const char *said) {
    const rein_pass_options o = {.objective = options_of("preset=art"), .policy_step = -1};
    float log_probs[2000];
    rein_pass_result pass;
    REFUSED(rein_trainer_forward_backward(&pass, t, groups, &o, &error_), said);
    REFUSED(rein_trainer_log_probs(log_probs, NULL, t, NULL, groups, &error_), said);
    assert_false(t->holds);
}

static void test_wrong_groups(void **state) {
    (void)state;
    subject s = open_subject("a", 0);
    rein_trainer *t = open_trainer(&s, NULL);
    rein_groups groups = make_groups(3, 5);
    rein_trajectory *bad = &groups.groups[1].trajectories[1];
    rein_history *h = bad->histories;
    refuse_groups(t, &(rein_groups){0}, "there are no groups");
    const double rewards[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 3; i++) bad->reward = rewards[i], refuse_groups(t, &groups, "groups[1].trajectories[1].reward is");
    bad->reward = 0;
    bad->n_histories = 0, refuse_groups(t, &groups, "groups[1].trajectories[1] has no history"), bad->n_histories = 1;
    h->mask[0] = 1, refuse_groups(t, &groups, "groups[1].trajectories[1].histories[0].mask[0] is 1: the first token cannot train"),
    h->mask[0] = 0;
    const size_t n = h->n, size = groups.groups[1].n;
    h->n = 0, refuse_groups(t, &groups, "groups[1].trajectories[1].histories[0] has no token"), h->n = n;
    groups.groups[1].n = 0, refuse_groups(t, &groups, "groups[1] has no trajectory"), groups.groups[1].n = size;
    const int32_t id = h->ids[n - 1], wrong[] = {-1, TINY_VOCABULARY, INT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        h->ids[n - 1] = wrong[i], refuse_groups(t, &groups, "the model's tokens are 0 to");
        refuse_token(t, &groups, "ids", n - 1);
    }
    h->ids[n - 1] = id;
    rein_groups_free(&groups), rein_trainer_close(t), close_subject(&s);
}

static void test_wrong_objectives(void **state) {
    (void)state;
    subject s = open_subject("a", 0);
    rein_trainer *t = open_trainer(&s, NULL);
    rein_groups groups = make_groups(2, 5);
    rein_pass_result pass;
    const char *const cases[][2] = {
        {"preset=k2", "tau"}, {"preset=ppo", "values"}, {"preset=grpo tau=1", "tau"}, {"advantage=remax", "baseline_rewards"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        const rein_pass_options o = {.objective = options_of(cases[i][0]), .reference = &s.p, .policy_step = -1};
        REFUSED(rein_trainer_forward_backward(&pass, t, &groups, &o, &error_), cases[i][1]);
    }
    /* a failure forgets what was held: the gradient of a step is whole or there is none */
    const rein_pass_options good = {.objective = options_of("preset=art"), .policy_step = -1},
                            bad = {.objective = options_of("preset=k2")};
    pass_over(t, &groups, &good);
    REFUSED(rein_trainer_forward_backward(&pass, t, &groups, &bad, &error_), "required");
    REFUSED(rein_trainer_optim_step(NULL, t, &ADAMW, &error_), "there is no gradient");
    rein_adamw adamw = ADAMW;
    adamw.learning_rate = NAN;
    pass_over(t, &groups, &good);
    float *before = values_of(&s);
    REFUSED(rein_trainer_optim_step(NULL, t, &adamw, &error_), "learning_rate");
    float *after = values_of(&s);
    assert_memory_equal(before, after, t->floats * sizeof(float));
    assert_int_equal(rein_trainer_steps(t), 0);
    OK(rein_trainer_optim_step(NULL, t, &ADAMW, &error_)); /* a wrong option does not lose the gradient */
    assert_int_equal(rein_trainer_steps(t), 1);
    free(before), free(after), rein_groups_free(&groups), rein_trainer_close(t), close_subject(&s);
}

static int start(void **state) {
    const int status = make_folder(state);
    if (!status) make_models();
    return status;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_old_log_probs),    cmocka_unit_test(test_mismatch),         cmocka_unit_test(test_masked_log_probs),
        cmocka_unit_test(test_wrong_log_probs),  cmocka_unit_test(test_reference),        cmocka_unit_test(test_penalty_adds_up),
        cmocka_unit_test(test_truncation),       cmocka_unit_test(test_nothing_to_train), cmocka_unit_test(test_gap),
        cmocka_unit_test(test_activation_cache), cmocka_unit_test(test_budgets),          cmocka_unit_test(test_save_and_load),
        cmocka_unit_test(test_wrong_files),      cmocka_unit_test(test_wrong_options),    cmocka_unit_test(test_wrong_groups),
        cmocka_unit_test(test_wrong_objectives),
    };
    return cmocka_run_group_tests(tests, start, remove_folder);
}
