/* test_traps.c - bugs that public frameworks had (docs/testing.md), each a test with its number; and what a failure leaves behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "objective/batches.h"

/* ---- helpers */

static int mentions(const rein_error *err, const char *word) { return strstr(err->message, word) != NULL; }

#define assert_says(err, word)                                                                 \
    do {                                                                                       \
        if (!mentions(&(err), word)) fail_msg("\"%s\" does not name %s", (err).message, word); \
    } while (0)

#define assert_ok(status, err)                                  \
    do {                                                        \
        if ((status) != REIN_OK) fail_msg("%s", (err).message); \
    } while (0)

#define assert_close(a, b) assert_true(near(a, b))
static int near(double a, double b) { return fabs(a - b) <= 1e-12 * (1 + fabs(b)); }

/* Bit for bit; the metrics are doubles without gaps. */
static int same_loss(const rein_loss *a, const rein_loss *b) {
    return memcmp(&a->loss, &b->loss, sizeof a->loss) == 0 && memcmp(&a->metrics, &b->metrics, sizeof a->metrics) == 0 &&
           a->nothing_to_train == b->nothing_to_train;
}

static const rein_exec one_thread = {.threads = 1};

static int all_finite(const double *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return 0;
    return 1;
}

static int metrics_finite(const rein_metrics *m) { return all_finite((const double *)(const void *)m, sizeof *m / sizeof(double)); }

/* Everything that can be read by a composition, one of each kind. */
static const char *const compositions[] = {
    "preset=grpo",
    "preset=gspo",
    "preset=gmpo",
    "preset=cispo",
    "preset=sapo",
    "preset=dapo",
    "preset=ppo",
    "preset=rloo",
    "preset=reinforce++",
    "preset=reinforce",
    "preset=k2 tau=0.1 budget_penalty_coef=0.01",
    "preset=k1.5 tau=0.1 length_weight=0.5",
    "preset=dr-grpo max_response_length=20",
    "preset=deepseek-v3.2 kl_loss_coef=0.1 off_policy_mask_delta=0.01",
    "preset=art kl_penalty_coef=0.1 kimi_k2_tau=0.2",
    "preset=gspo kl_penalty_coef=0.1 kl_scope=group",
    "surrogate=dppo dppo_divergence=kl mismatch=token-tis",
    "surrogate=vespo mismatch=sequence-tis entropy_coef=0.1",
    "surrogate=topr mismatch=sequence-mask top_entropy=0.5",
    "surrogate=clip mismatch=token-mask ratio=average entropy_coef=0.1 entropy_target=1.5",
    "surrogate=dro dro_beta=0.3 ratio=geometric-average kl_loss_coef=0.1 kl_estimator=abs kl_clamp=0.4",
    "surrogate=luspo ratio=sequence-token kl_loss_coef=0.2 kl_estimator=is-k1 advantage=opo",
    "surrogate=dual-clip advantage=gdpo",
};
enum { COMPOSITIONS = sizeof compositions / sizeof *compositions };

static const shape medium = {.groups = 4, .group_size = 4, .length = 30, .masked = 0.3, .drift = 0.3};

/* ---- 1 */

static void refill_masked(ragged *r, double x) {
    for (int a = 0; a < TOKEN_ARRAYS; a++)
        for (size_t t = 0; t < r->n_tokens; t++)
            if (!r->mask[t]) ragged_put(r, (enum token_array)a, t, x);
}

/* A token that does not train, with a log-ratio far above 89, NaN or ±inf, changes no bit of anything. */
static void trap_1_a_masked_token_overflows(void **state) {
    static const double rubbish[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, -9999, 3e38, 1};
    ragged *r = ragged_new(medium);
    void *gradient[2], *by_entropy[2];
    (void)state;
    for (int i = 0; i < 2; i++) gradient[i] = some(r->max_tokens, 8), by_entropy[i] = some(r->max_tokens, 8);
    for (size_t c = 0; c < COMPOSITIONS; c++)
        for (int f32 = 0; f32 < 2; f32++) {
            const rein_options o = options_of(compositions[c]);
            rng g = rng_of(100, c);
            ragged_fill(r, &g, medium);
            rein_batch b = ragged_batch(r, &o, f32 ? REIN_F32 : REIN_F64);
            const size_t bytes = r->n_tokens * (f32 ? 4 : 8);
            rein_loss loss[2];
            rein_error err;
            refill_masked(r, -0.5);
            for (size_t t = 0; t < r->n_tokens; t++) /* the old framework's bug: d = 95 under the mask */
                if (!r->mask[t]) ragged_put(r, OLD_LOG_PROBS, t, -95.5);
            assert_ok(rein_policy_loss(&loss[0], gradient[0], b.entropies ? by_entropy[0] : NULL, NULL, &b, &o, &one_thread, &err),
                      err);
            assert_true(metrics_finite(&loss[0].metrics));
            for (size_t k = 0; k < sizeof rubbish / sizeof *rubbish; k++) {
                refill_masked(r, rubbish[k]);
                assert_ok(
                    rein_policy_loss(&loss[1], gradient[1], b.entropies ? by_entropy[1] : NULL, NULL, &b, &o, &one_thread, &err),
                    err);
                assert_true(same_loss(&loss[0], &loss[1]));
                assert_memory_equal(gradient[0], gradient[1], bytes);
                if (b.entropies) assert_memory_equal(by_entropy[0], by_entropy[1], bytes);
            }
        }
    for (int i = 0; i < 2; i++) free(gradient[i]), free(by_entropy[i]);
    ragged_free(r);
}

/* The same for the operation that takes advantages. */
static void trap_1_a_masked_token_in_kl_advantage(void **state) {
    const double a[] = {1, 2, 3, 4}, good[] = {-1, -1, -1.5, -2}, ref[] = {-1.25, -7, -1, -7};
    const uint8_t mask[] = {1, 0, 1, 0};
    double plain[4], other[4], kl[2];
    rein_error err;
    (void)state;
    assert_ok(rein_kl_advantage(plain, &kl[0], a, good, ref, mask, 4, 0.5, REIN_KL_SCOPE_BATCH, NULL, 0, NULL, 0, &err), err);
    const double bad[] = {-1, (double)NAN, -1.5, -(double)INFINITY}, worse[] = {-1.25, (double)INFINITY, -1, (double)NAN};
    assert_ok(rein_kl_advantage(other, &kl[1], a, bad, worse, mask, 4, 0.5, REIN_KL_SCOPE_BATCH, NULL, 0, NULL, 0, &err), err);
    assert_memory_equal(plain, other, sizeof plain);
    assert_memory_equal(&kl[0], &kl[1], sizeof *kl);
    assert_true(plain[1] == 2 && plain[3] == 4);
}

/* ---- 2 */

/* A clip range that no f32 reaches holds nothing, and 0 of an infinite bound is 0. */
static void a_clip_range_beyond_f32(void **state) {
    static const size_t offsets[] = {0, 3};
    const float lp[] = {-1, -1.5f, -1}, old[] = {-1.1f, -1, -3};
    const rein_options o = options_of("surrogate=clip advantage=none aggregation=token-sum epsilon=1e300");
    (void)state;
    for (double reward = -1; reward <= 1; reward += 2) {
        const rein_batch b = {.n_sequences = 1,
                              .sequence_offsets = offsets,
                              .dtype = REIN_F32,
                              .log_probs = lp,
                              .old_log_probs = old,
                              .rewards = &reward};
        rein_loss loss;
        rein_error err;
        assert_ok(rein_policy_loss(&loss, NULL, NULL, NULL, &b, &o, NULL, &err), err);
        const double ratios = exp(0.1) + exp(-0.5) + exp(2);
        assert_true(fabs(loss.loss + reward * ratios) < 1e-5);
        assert_true(loss.metrics.clip_low == 0 && loss.metrics.clip_high == 0);
    }
}

/* One masked token in a sequence so long that a float cannot tell it from a whole one. */
static void a_mask_in_a_long_sequence(void **state) {
    enum { LENGTH = (1 << 24) + 1, MASKED = 12345 };
    static const size_t offsets[] = {0, LENGTH};
    float *numbers = some(LENGTH, sizeof *numbers);
    uint8_t *mask = some(LENGTH, 1);
    const double reward = 1;
    const rein_options o = options_of("surrogate=clip advantage=none");
    const rein_batch b = {.n_sequences = 1,
                          .sequence_offsets = offsets,
                          .dtype = REIN_F32,
                          .mask = mask,
                          .log_probs = numbers,
                          .old_log_probs = numbers,
                          .rewards = &reward};
    rein_loss loss;
    rein_error err;
    (void)state;
    memset(mask, 1, LENGTH);
    for (size_t i = 0; i < LENGTH; i++) numbers[i] = -1;
    mask[MASKED] = 0, numbers[MASKED] = (float)NAN;
    assert_ok(rein_policy_loss(&loss, NULL, NULL, NULL, &b, &o, NULL, &err), err);
    assert_true(loss.metrics.trained_tokens == LENGTH - 1 && loss.metrics.ratio_mean == 1 && near(loss.loss, -1));
    free(numbers), free(mask);
}

/* However far the reference lies below, e^x − 1 is −1, not what is left of x and e^x − 1 − x, which cancel. */
static void trap_2_a_reference_far_below(void **state) {
    static const double reaches[] = {0.2, 0.3, 1.5, 30, 1e4, 1e8, 1e30};
    static const size_t offsets[] = {0, 1};
    const rein_options o = options_of("surrogate=clip advantage=none aggregation=token-sum kl_loss_coef=0.5 kl_estimator=k3");
    (void)state;
    for (size_t k = 0; k < sizeof reaches / sizeof *reaches; k++)
        for (int f32 = 0; f32 < 2; f32++) {
            const double lp = 0, ref = -reaches[k], reward = 0;
            const float lp_f32 = 0, ref_f32 = (float)ref;
            const rein_batch b = {.n_sequences = 1,
                                  .sequence_offsets = offsets,
                                  .dtype = f32 ? REIN_F32 : REIN_F64,
                                  .log_probs = f32 ? (const void *)&lp_f32 : &lp,
                                  .old_log_probs = f32 ? (const void *)&lp_f32 : &lp,
                                  .ref_log_probs = f32 ? (const void *)&ref_f32 : &ref,
                                  .rewards = &reward};
            double gradient = 77;
            float gradient_f32 = 77;
            rein_loss loss;
            rein_error err;
            assert_ok(rein_policy_loss(&loss, f32 ? (void *)&gradient_f32 : &gradient, NULL, NULL, &b, &o, NULL, &err), err);
            const double expected = -0.5 * expm1(ref), got = f32 ? (double)gradient_f32 : gradient;
            assert_true(fabs(got - expected) <= (f32 ? 3e-7 : 1e-15) * expected);
        }
}

static void trap_2_k3_overflows(void **state) {
    const size_t offsets[] = {0, 2, 4};
    const double lp[] = {-1, -1, -900, -1}, ref[] = {-1, -1, -1, -1}, rewards[] = {1, 0};
    const float lp_f32[] = {-1, -1, -95, -1}, ref_f32[] = {-1, -1, -1, -1};
    static const char *const settings[] = {"preset=grpo", "surrogate=clip kl_loss_coef=0.1 kl_estimator=is-k3",
                                           "surrogate=clip kl_loss_coef=0.1 kl_estimator=k3 entropy_coef=0.1"};
    const double entropies[4] = {1, 1, 1, 1};
    const float entropies_f32[4] = {1, 1, 1, 1};
    (void)state;
    for (int f32 = 0; f32 < 2; f32++)
        for (int k = 0; k < 3; k++) {
            rein_options o = options_of(settings[k]);
            rein_batch b = {.n_sequences = 2, .sequence_offsets = offsets, .dtype = f32 ? REIN_F32 : REIN_F64, .rewards = rewards};
            b.log_probs = b.old_log_probs = f32 ? (const void *)lp_f32 : (const void *)lp;
            b.ref_log_probs = f32 ? (const void *)ref_f32 : (const void *)ref;
            b.entropies = k < 2 ? NULL : f32 ? (const void *)entropies_f32 : (const void *)entropies;
            double gradient[4], before[4];
            rein_loss loss, loss_before;
            rein_error err;
            memset(gradient, 0x5a, sizeof gradient), memset(before, 0x5a, sizeof before);
            memset(&loss, 0x5a, sizeof loss), memset(&loss_before, 0x5a, sizeof loss);
            assert_int_equal(rein_policy_loss(&loss, gradient, NULL, NULL, &b, &o, &one_thread, &err), REIN_ERANGE);
            assert_int_equal(err.code, REIN_ERANGE);
            assert_says(err, "kl_clamp");
            assert_string_equal(err.field, "log_probs");
            assert_int_equal(err.index, 2);
            assert_memory_equal(gradient, before, sizeof gradient);
            assert_memory_equal(&loss, &loss_before, sizeof loss);

            o.kl_clamp = 10;
            assert_ok(rein_policy_loss(&loss, gradient, NULL, NULL, &b, &o, &one_thread, &err), err);
            assert_true(isfinite(loss.loss) && loss.metrics.kl_loss > 0 && metrics_finite(&loss.metrics));
            for (int t = 0; t < 4; t++) assert_true(isfinite(f32 ? (double)((float *)(void *)gradient)[t] : gradient[t]));
        }
}

/* ---- 3 */

/* Two micro-batches of 1 and 3 tokens: the mean of their means is 0.75, the mean is 0.875. */
static void trap_3_mean_of_micro_batch_means(void **state) {
    const size_t offsets[] = {0, 1, 4};
    const double lp[] = {-0.5, -1, -1, -1}, rewards[] = {1, 1};
    const rein_batch b = {.n_sequences = 2, .sequence_offsets = offsets, .log_probs = lp, .rewards = rewards};
    const rein_options o = options_of("surrogate=reinforce aggregation=token-mean");
    rein_step *step;
    rein_loss loss;
    rein_error err;
    double gradient[4];
    (void)state;
    const size_t size = rein_step_size(&b, &o, NULL);
    void *buffer = some(1, size);
    assert_ok(rein_step_begin(&step, buffer, size, &b, &o, &one_thread, &err), err);
    assert_ok(rein_step_loss(step, 0, 1, NULL, NULL, gradient, NULL, NULL, &err), err);
    assert_ok(rein_step_loss(step, 1, 2, NULL, NULL, gradient, NULL, NULL, &err), err);
    assert_ok(rein_step_finish(&loss, step, &err), err);
    assert_true(loss.loss == 0.875);
    for (int t = 0; t < 4; t++) assert_true(gradient[t] == -0.25);
    free(buffer);
}

/* ---- 4 */

static void trap_4_nothing_to_train(void **state) {
    ragged *r = ragged_new(medium);
    double *gradient = some(r->max_tokens, 8), *by_entropy = some(r->max_tokens, 8), *advantages = some(r->max_tokens, 8);
    (void)state;
    for (size_t c = 0; c < COMPOSITIONS; c++)
        for (int empty = 0; empty < 2; empty++) {
            const rein_options o = options_of(compositions[c]);
            rng g = rng_of(400, c);
            ragged_fill(r, &g, medium);
            memset(r->mask, 0, r->max_tokens);
            refill_masked(r, (double)NAN);
            for (size_t i = 0; empty && i <= r->n_sequences; i++) r->sequence_offsets[i] = 0; /* not even a token */
            const rein_batch b = ragged_batch(r, &o, REIN_F64);
            for (size_t t = 0; t < r->n_tokens; t++) gradient[t] = by_entropy[t] = (double)NAN;
            rein_loss loss;
            rein_error err;
            assert_ok(rein_policy_loss(&loss, gradient, b.entropies ? by_entropy : NULL, advantages, &b, &o, &one_thread, &err),
                      err);
            assert_true(loss.loss == 0 && loss.nothing_to_train == 1);
            assert_true(metrics_finite(&loss.metrics));
            assert_true(loss.metrics.trained_tokens == 0 && loss.metrics.trained_sequences == 0);
            for (size_t t = 0; t < (empty ? 0 : r->n_tokens); t++) {
                assert_true(gradient[t] == 0);
                if (b.entropies) assert_true(by_entropy[t] == 0);
            }
        }
    free(gradient), free(by_entropy), free(advantages);
    ragged_free(r);
}

/* ---- 5 */

static void advantages_of(double *a, const double *rewards, size_t n, size_t groups, const size_t *group_offsets,
                          const char *settings) {
    size_t offsets[9];
    double lp[8];
    const int64_t lengths[8] = {3, 1, 4, 1, 5, 9, 2, 6};
    for (size_t i = 0; i <= n; i++) offsets[i] = i;
    for (size_t i = 0; i < n; i++) lp[i] = -1;
    const rein_options o = options_of(settings);
    const int components = o.advantage == REIN_ADVANTAGE_GDPO;
    const rein_batch b = {.n_groups = groups,
                          .n_sequences = n,
                          .n_components = (size_t)components,
                          .group_offsets = group_offsets,
                          .sequence_offsets = offsets,
                          .log_probs = lp,
                          .rewards = components ? NULL : rewards,
                          .reward_components = components ? rewards : NULL,
                          .response_lengths = lengths};
    rein_error err;
    assert_ok(rein_advantages(a, &b, &o, &err), err);
}

static const char *const centred[] = {"advantage=group-mean",
                                      "advantage=group-std",
                                      "advantage=group-std advantage_eps=0",
                                      "advantage=batch-std",
                                      "advantage=batch-std advantage_eps=0",
                                      "advantage=leave-one-out",
                                      "advantage=opo",
                                      "advantage=max-rl"};

static void trap_5_equal_rewards_that_differ_in_their_last_bit(void **state) {
    const double rewards[] = {0.1 + 0.2, 0.3, 0.1, 0.1, 0.1, 1, 0, 7};
    const size_t groups[] = {0, 2, 5, 7, 8};
    (void)state;
    assert_true(rewards[0] != rewards[1]);
    for (size_t k = 0; k < sizeof centred / sizeof *centred; k++) {
        double a[8];
        advantages_of(a, rewards, 8, 4, groups, centred[k]);
        for (int i = 0; i < 5; i++) assert_true(a[i] == 0);
        assert_true(a[5] > 0 && a[6] < 0); /* and where they do differ, they count */
        assert_true(a[7] == 0);            /* a group of one */
        advantages_of(a, rewards, 2, 0, NULL, centred[k]);
        assert_true(a[0] == 0 && a[1] == 0);
        advantages_of(a, rewards + 2, 3, 0, NULL, centred[k]);
        assert_true(a[0] == 0 && a[1] == 0 && a[2] == 0);
        advantages_of(a, rewards + 7, 1, 0, NULL, centred[k]);
        assert_true(a[0] == 0);
    }
}

static void trap_5_in_the_other_places(void **state) {
    const double rewards[] = {0.1 + 0.2, 0.3}, lp[] = {-1, -2};
    const int64_t lengths[] = {5, 5};
    const size_t offsets[] = {0, 2};
    const rein_budget budget = {.token_budget = 2, .kl_coef = 0.1, .budget_penalty_coef = 0.01};
    double loss, a[2], gradient[2];
    (void)state;
    assert_int_equal(rein_budget_loss(&loss, NULL, a, NULL, gradient, rewards, lp, lp, lengths, offsets, 1, &budget, NULL, NULL),
                     REIN_OK);
    assert_true(loss == 0 && a[0] == 0 && a[1] == 0 && gradient[0] == 0 && gradient[1] == 0);
    advantages_of(a, rewards, 2, 0, NULL, "advantage=gdpo");
    assert_true(a[0] == 0 && a[1] == 0);
    advantages_of(a, rewards, 2, 0, NULL, "advantage=reinforce++");
    assert_true(a[0] == 0 && a[1] == 0);
}

/* ---- 6 */

/* A sequence with masked tokens inside and behind is the same sequence without them. */
static void trap_6_padding_leaks_into_sequence_products(void **state) {
    const size_t padded[] = {0, 6, 9}, packed[] = {0, 3, 5};
    const uint8_t mask[] = {1, 0, 1, 1, 0, 0, 0, 1, 1};
    const double rewards[] = {1, -0.5};
    const double x[4][5] = {
        {-1, -0.5, -2, -1.5, -0.7}, {-1.2, -0.4, -2.3, -1.4, -0.9}, {-1.1, -0.8, -1.9, -1.3, -1}, {-1, -0.6, -2.2, -1.6, -0.8}};
    static const char *const settings[] = {"preset=gspo",
                                           "preset=gmpo",
                                           "surrogate=squared tau=0.3",
                                           "surrogate=clip ratio=sequence-sum",
                                           "surrogate=clip ratio=sequence-token",
                                           "surrogate=clip ratio=average",
                                           "surrogate=clip ratio=geometric-average",
                                           "surrogate=vespo",
                                           "surrogate=luspo",
                                           "surrogate=clip mismatch=sequence-tis",
                                           "surrogate=clip mismatch=sequence-mask mismatch_high=9",
                                           "surrogate=clip off_policy_mask_delta=0.01",
                                           "surrogate=clip kl_reward_coef=0.1",
                                           "surrogate=clip ratio=sequence kl_penalty_coef=0.1"};
    (void)state;
    for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) {
        const rein_options o = options_of(settings[k]);
        double wide[4][9], gradient[9], expected[5];
        for (int a = 0; a < 4; a++)
            for (int t = 0, from = 0; t < 9; t++) wide[a][t] = mask[t] ? x[a][from++] : a % 2 ? 0 : -9999;
        const rein_batch loose = {.n_sequences = 2,
                                  .sequence_offsets = padded,
                                  .mask = mask,
                                  .log_probs = wide[0],
                                  .old_log_probs = wide[1],
                                  .ref_log_probs = wide[2],
                                  .sample_log_probs = wide[3],
                                  .rewards = rewards};
        const rein_batch tight = {.n_sequences = 2,
                                  .sequence_offsets = packed,
                                  .log_probs = x[0],
                                  .old_log_probs = x[1],
                                  .ref_log_probs = x[2],
                                  .sample_log_probs = x[3],
                                  .rewards = rewards};
        rein_loss a, b;
        rein_error err;
        assert_ok(rein_policy_loss(&a, gradient, NULL, NULL, &loose, &o, NULL, &err), err);
        assert_ok(rein_policy_loss(&b, expected, NULL, NULL, &tight, &o, NULL, &err), err);
        assert_close(a.loss, b.loss);
        assert_close(a.metrics.ratio_mean, b.metrics.ratio_mean);
        for (int t = 0, from = 0; t < 9; t++) {
            if (mask[t]) assert_close(gradient[t], expected[from++]);
            else assert_true(gradient[t] == 0);
        }
    }
}

/* ---- 7 */

static void trap_7_log_probs_of_a_truncated_sampler(void **state) {
    static const char *const settings[] = {"surrogate=clip mismatch=token-tis",
                                           "surrogate=clip mismatch=token-mask",
                                           "surrogate=clip mismatch=sequence-tis",
                                           "surrogate=clip mismatch=sequence-mask",
                                           "surrogate=clip off_policy_mask_delta=0.1",
                                           "surrogate=clip kl_penalty_coef=0.1 kl_penalty_source=sample",
                                           "surrogate=clip kl_reward_coef=0.1 kl_penalty_source=sample"};
    static const double bad[] = {-(double)INFINITY, (double)NAN, (double)INFINITY};
    const size_t offsets[] = {0, 3, 6};
    const double rewards[] = {1, -1};
    size_t accepted = 0;
    (void)state;
    for (size_t k = 0; k < sizeof settings / sizeof *settings; k++)
        for (int v = 0; v < 3; v++)
            for (int f32 = 0; f32 < 2; f32++) {
                const rein_options o = options_of(settings[k]);
                double good[6], samp[6], out[6], before[6];
                float good_f32[6], samp_f32[6];
                for (int t = 0; t < 6; t++) good_f32[t] = samp_f32[t] = -1, good[t] = samp[t] = -1;
                samp[4] = bad[v], samp_f32[4] = (float)bad[v];
                memset(out, 0x5a, sizeof out), memset(before, 0x5a, sizeof before);
                const void *lp = f32 ? (const void *)good_f32 : (const void *)good;
                const rein_batch b = {.n_sequences = 2,
                                      .sequence_offsets = offsets,
                                      .dtype = f32 ? REIN_F32 : REIN_F64,
                                      .log_probs = lp,
                                      .old_log_probs = lp,
                                      .ref_log_probs = lp,
                                      .sample_log_probs = f32 ? (const void *)samp_f32 : (const void *)samp,
                                      .rewards = rewards};
                rein_loss loss;
                rein_error err = {0};
                if (rein_policy_loss(&loss, out, NULL, NULL, &b, &o, &one_thread, &err) == REIN_OK) {
                    print_message("accepted: %s with sample_log_probs[4] = %g (%s)\n", settings[k], bad[v], f32 ? "f32" : "f64");
                    accepted++;
                    continue;
                }
                assert_int_equal(err.code, REIN_EINVAL);
                assert_says(err, "sample_log_probs[4]");
                assert_memory_equal(out, before, sizeof out);
            }
    assert_int_equal(accepted, 0);
}

static void trap_7_in_the_other_arrays(void **state) {
    static const char *const names[] = {"log_probs[4]", "old_log_probs[4]", "ref_log_probs[4]"};
    static const char *const settings[] = {"preset=grpo", "preset=gspo kl_loss_coef=0.1", "preset=gmpo kl_loss_coef=0.1",
                                           "preset=cispo kl_loss_coef=0.1 kl_clamp=2", "preset=deepseek-v3.2 kl_loss_coef=0.1"};
    static const double bad[] = {-(double)INFINITY, (double)NAN, (double)INFINITY};
    const size_t offsets[] = {0, 3, 6};
    const double rewards[] = {1, -1};
    (void)state;
    for (size_t k = 0; k < sizeof settings / sizeof *settings; k++)
        for (int a = 0; a < 3; a++)
            for (int v = 0; v < 3; v++) {
                const rein_options o = options_of(settings[k]);
                double x[3][6];
                for (int i = 0; i < 18; i++) x[i / 6][i % 6] = -1;
                x[a][4] = bad[v];
                const rein_batch b = {.n_sequences = 2,
                                      .sequence_offsets = offsets,
                                      .log_probs = x[0],
                                      .old_log_probs = x[1],
                                      .ref_log_probs = x[2],
                                      .rewards = rewards};
                double out[6];
                rein_loss loss;
                rein_error err;
                assert_int_equal(rein_policy_loss(&loss, out, NULL, NULL, &b, &o, &one_thread, &err), REIN_EINVAL);
                assert_says(err, names[a]);
            }
}

/* ---- 8 */

/* p = 0 under a logarithm: an entropy that was computed as 0·(−inf) is NaN where it came from, and never enters. */
static void trap_8_entropy_of_a_certain_token(void **state) {
    const size_t offsets[] = {0, 2, 4};
    const uint8_t mask[] = {1, 0, 1, 1};
    const double lp[] = {-1, -1, -1, -1}, rewards[] = {1, 0}, bad[] = {(double)NAN, -(double)INFINITY, (double)INFINITY};
    static const char *const settings[] = {"surrogate=clip entropy_coef=0.1", "surrogate=clip entropy_coef=0.1 entropy_target=2",
                                           "surrogate=clip top_entropy=0.5", "surrogate=clip"};
    (void)state;
    for (int k = 0; k < 4; k++)
        for (int v = 0; v < 3; v++) {
            double entropies[] = {0, bad[v], 0, 0.5}, gradient[4], by_entropy[4];
            const rein_options o = options_of(settings[k]);
            const rein_batch b = {.n_sequences = 2,
                                  .sequence_offsets = offsets,
                                  .mask = mask,
                                  .log_probs = lp,
                                  .old_log_probs = lp,
                                  .entropies = entropies,
                                  .rewards = rewards};
            rein_loss loss;
            rein_error err;
            assert_ok(rein_policy_loss(&loss, gradient, by_entropy, NULL, &b, &o, &one_thread, &err), err);
            assert_true(all_finite(gradient, 4) && all_finite(by_entropy, 4) && metrics_finite(&loss.metrics));
            assert_close(loss.metrics.entropy, 0.5 / 3);
            entropies[2] = bad[v];
            assert_int_equal(rein_policy_loss(&loss, gradient, by_entropy, NULL, &b, &o, &one_thread, &err), REIN_EINVAL);
            assert_says(err, "entropies[2]");
        }
}

/* The library's own p·log p: the divergence of dppo where a token is certain. */
static void trap_8_divergence_of_a_certain_token(void **state) {
    const size_t offsets[] = {0, 3};
    const double lp[] = {0, 0, -0.1}, old[] = {0, -0.2, 0}, rewards[] = {1};
    const rein_batch b = {.n_sequences = 1, .sequence_offsets = offsets, .log_probs = lp, .old_log_probs = old, .rewards = rewards};
    const rein_options o = options_of("surrogate=dppo dppo_divergence=kl aggregation=token-sum");
    double gradient[3];
    rein_loss loss;
    rein_error err;
    (void)state;
    assert_ok(rein_policy_loss(&loss, gradient, NULL, NULL, &b, &o, &one_thread, &err), err);
    assert_true(isfinite(loss.loss));
    assert_true(gradient[0] == -1);        /* p = q = 1: no divergence */
    assert_true(gradient[1] == 0);         /* p = 1, q < 1: infinitely far, and A pushes on */
    assert_close(gradient[2], -exp(-0.1)); /* q = 1 > p: A pushes back */
    assert_close(loss.metrics.clip_high, 1. / 3);
}

/* ---- 9 */

static void trap_9_a_missing_reward(void **state) {
    const size_t offsets[] = {0, 1, 2};
    const double lp[] = {-1, -1};
    double rewards[] = {1, (double)NAN}, components[] = {1, 0, (double)NAN, 2}, out[2], loss_value;
    const rein_options o = options_of("preset=bnpo"), g = options_of("surrogate=clip advantage=gdpo");
    rein_batch b = {.n_sequences = 2, .sequence_offsets = offsets, .log_probs = lp, .old_log_probs = lp};
    rein_loss loss;
    rein_error err;
    (void)state;
    assert_int_equal(rein_policy_loss(&loss, out, NULL, NULL, &b, &o, &one_thread, &err), REIN_EINVAL);
    assert_says(err, "rewards is missing");
    b.rewards = rewards;
    assert_int_equal(rein_policy_loss(&loss, out, NULL, NULL, &b, &o, &one_thread, &err), REIN_EINVAL);
    assert_says(err, "rewards[1]");
    b.rewards = NULL, b.reward_components = components, b.n_components = 2;
    assert_int_equal(rein_policy_loss(&loss, out, NULL, NULL, &b, &g, NULL, &err), REIN_EINVAL);
    assert_says(err, "reward_components[2]");
    b.reward_components = NULL;
    assert_int_equal(rein_policy_loss(&loss, out, NULL, NULL, &b, &g, NULL, &err), REIN_EINVAL);
    assert_says(err, "reward_components is missing");

    const int64_t lengths[] = {1, 1};
    const size_t prompts[] = {0, 2};
    const rein_budget budget = {.token_budget = 1, .kl_coef = 0.1};
    assert_int_equal(
        rein_budget_loss(&loss_value, NULL, NULL, NULL, out, rewards, lp, lp, lengths, prompts, 1, &budget, NULL, &err),
        REIN_EINVAL);
    assert_says(err, "rewards[1]");
    const double weights[] = {1}, grads[] = {1, 1};
    assert_int_equal(rein_rlhf_update(out, weights, rewards, lp, lp, grads, 2, 1, 0.1, 0.1, NULL, &err), REIN_EINVAL);
    assert_says(err, "rewards[1]");
    b.rewards = lp;
    const rein_options remax = options_of("surrogate=clip advantage=remax");
    assert_int_equal(rein_policy_loss(&loss, out, NULL, NULL, &b, &remax, NULL, &err), REIN_EINVAL);
    assert_says(err, "baseline_rewards is missing");
}

/* ---- 10 */

/* Every option: `value` changes something on top of `acting`, and is refused on top of `idle` ("": it always has an effect). Those of a
 * loss over preferences act in training (tests/train/test_online_pairs.c), jsd_beta too (test_teacher.c), and are refused in test_options.c. */
static const struct option_case {
    const char *name, *value, *acting, *idle;
} option_cases[] = {
    {"shape", "budget", "surrogate=clip", "surrogate=clip advantage=gdpo"},
    {"token_budget", "3", "surrogate=clip", ""},
    {"budget_penalty_coef", "0.1", "surrogate=clip shape=budget budget_penalty_coef=0.02",
     "surrogate=clip shape=truncate budget_penalty=1"},
    {"budget_penalty", "2", "surrogate=clip shape=truncate budget_penalty=1",
     "surrogate=clip shape=budget budget_penalty_coef=0.1"},
    {"overlong_max", "20", "surrogate=clip shape=overlong overlong_max=25 overlong_cushion=20", "surrogate=clip"},
    {"overlong_cushion", "10", "surrogate=clip shape=overlong overlong_max=25 overlong_cushion=20", "surrogate=clip"},
    {"length_weight", "0.5", "surrogate=clip shape=k1.5-length length_weight=1", "surrogate=clip"},
    {"reward_clip", "0.3", "surrogate=clip", "surrogate=clip advantage=gdpo"},
    {"advantage", "group-mean", "surrogate=clip", ""},
    {"pass_k", "2", "surrogate=clip advantage=pass-at-k", "surrogate=clip advantage=group-mean"},
    {"gae_gamma", "0.5", "surrogate=clip advantage=gae", "surrogate=clip"},
    {"gae_lambda", "0.5", "surrogate=clip advantage=gae", "surrogate=clip advantage=group-std"},
    {"advantage_eps", "0.1", "surrogate=clip advantage=group-std", "surrogate=clip advantage=group-mean"},
    {"advantage_balance", "0.5", "surrogate=clip", ""},
    {"ratio", "sequence", "surrogate=clip", "surrogate=gmpo"},
    {"ratio", "token", "surrogate=squared tau=0.2", "surrogate=reinforce"},
    {"mismatch", "token-tis", "surrogate=clip", ""},
    {"tis_cap", "0.9", "surrogate=clip mismatch=token-tis", "surrogate=clip mismatch=token-mask"},
    {"mismatch_low", "0.99", "surrogate=clip mismatch=token-mask", "surrogate=clip mismatch=token-tis"},
    {"mismatch_high", "1.01", "surrogate=clip mismatch=token-mask", "surrogate=clip"},
    {"off_policy_mask_delta", "0.0001", "surrogate=clip", ""},
    {"surrogate", "cispo", "surrogate=clip", ""},
    {"epsilon", "0.01", "surrogate=clip", "surrogate=sapo"},
    {"epsilon_high", "0.01", "surrogate=clip", "surrogate=dppo"},
    {"dual_clip", "1.1", "surrogate=dual-clip", "surrogate=clip"},
    {"max_negative_advantage_importance_sampling_weight", "1.01", "surrogate=clip", "surrogate=gmpo"},
    {"max_negative_advantage_importance_sampling_weight", "1.01", "surrogate=dual-clip", "surrogate=topr"},
    {"max_negative_advantage_importance_sampling_weight", "1.01", "surrogate=cispo", "surrogate=dppo"},
    {"max_negative_advantage_importance_sampling_weight", "0.999", "surrogate=luspo", "surrogate=sapo"},
    {"tau", "0.3", "surrogate=squared tau=0.1", "surrogate=clip"},
    {"dro_beta", "0.3", "surrogate=dro dro_beta=0.1", "surrogate=squared tau=0.1"},
    {"sapo_tau_positive", "2", "surrogate=sapo", "surrogate=clip"},
    {"sapo_tau_negative", "2", "surrogate=sapo", "surrogate=clip"},
    {"vespo_k_positive", "1", "surrogate=vespo", "surrogate=clip"},
    {"vespo_lambda_positive", "1", "surrogate=vespo", "surrogate=topr"},
    {"vespo_k_negative", "1", "surrogate=vespo", "surrogate=clip"},
    {"vespo_lambda_negative", "1", "surrogate=vespo", "surrogate=sapo"},
    {"topr_positive_low", "0.5", "surrogate=topr", "surrogate=vespo"},
    {"topr_positive_high", "2", "surrogate=topr", "surrogate=clip"},
    {"topr_negative_low", "0.99", "surrogate=topr", "surrogate=clip"},
    {"topr_negative_high", "0.5", "surrogate=topr", "surrogate=clip"},
    {"dppo_divergence", "kl", "surrogate=dppo dppo_delta=0.03", "surrogate=clip"},
    {"dppo_delta", "0.01", "surrogate=dppo", "surrogate=clip"},
    {"dppo_ratio_cap", "0.9", "surrogate=dppo", "surrogate=clip"},
    {"kimi_k2_tau", "0.5", "surrogate=clip", "surrogate=clip ratio=sequence"},
    {"kimi_k2_tau", "0.5", "surrogate=reinforce", "surrogate=gmpo"},
    {"kl_reward_coef", "0.1", "surrogate=clip", "surrogate=clip advantage=gdpo"},
    {"kl_reward_exact", "0.1", "surrogate=clip kl_loss_coef=0.1 kl_estimator=exact", "surrogate=clip ratio=sequence"},
    {"kl_reward_exact", "0.1", "surrogate=reinforce kl_loss_coef=0.1 kl_estimator=exact", "surrogate=clip advantage=gae"},
    {"kl_penalty_coef", "0.1", "surrogate=clip", ""},
    {"kl_loss_coef", "0.1", "surrogate=clip", ""},
    {"kl_estimator", "k2", "surrogate=clip kl_loss_coef=0.1", "surrogate=clip kl_penalty_coef=0.1"},
    {"kl_direction", "current_over_ref", "surrogate=clip kl_loss_coef=0.1 kl_estimator=k3",
     "surrogate=clip kl_loss_coef=0.1 kl_estimator=k2"},
    {"kl_scope", "group", "surrogate=clip kl_penalty_coef=0.1", "surrogate=clip kl_reward_coef=0.1"},
    {"kl_scope", "sequence", "surrogate=clip kl_penalty_coef=0.1", "surrogate=clip kl_penalty_coef=0.1 ratio=sequence"},
    {"kl_penalty_source", "sample", "surrogate=clip kl_penalty_coef=0.1", "surrogate=clip kl_loss_coef=0.1"},
    {"kl_clamp", "0.05", "surrogate=clip kl_loss_coef=0.1", "surrogate=clip kl_reward_coef=0.1"},
    {"kl_clamp", "0.05", "surrogate=clip kl_loss_coef=0.1", "surrogate=clip kl_loss_coef=0.1 kl_estimator=exact"},
    {"entropy_coef", "0.1", "surrogate=clip", ""},
    {"entropy_target", "0.01", "surrogate=clip entropy_coef=0.1", "surrogate=clip"},
    {"top_entropy", "0.5", "surrogate=clip", ""},
    {"aggregation", "seq-mean-token-mean", "surrogate=clip", ""},
    {"teacher_coef", "0.5", "surrogate=clip", ""},
    {"divergence", "reverse", "surrogate=clip teacher_coef=1", "surrogate=clip"},
    {"teacher_discount", "0.5", "surrogate=clip teacher_coef=1", "surrogate=clip teacher_coef=1 divergence=reverse"},
    {"max_response_length", "20", "surrogate=clip aggregation=dr-grpo max_response_length=30",
     "surrogate=clip aggregation=token-mean"},
};
enum { OPTION_CASES = sizeof option_cases / sizeof *option_cases };

static void trap_10_every_option_is_listed(void **state) {
    (void)state;
    for (size_t i = 0; rein_option_at(i); i++) {
        int found = strcmp(rein_option_at(i)->stage, "preference") == 0 || strcmp(rein_option_at(i)->name, "jsd_beta") == 0;
        for (size_t k = 0; k < OPTION_CASES; k++) found |= strcmp(option_cases[k].name, rein_option_at(i)->name) == 0;
        if (!found) fail_msg("%s has no case here", rein_option_at(i)->name);
    }
}

static void trap_10_an_option_that_can_act_does(void **state) {
    ragged *r = ragged_new(medium);
    double *gradient[2] = {some(r->max_tokens, 8), some(r->max_tokens, 8)};
    rng g = rng_of(1000, 0);
    size_t idle = 0;
    (void)state;
    do ragged_fill(r, &g, medium); /* enough sequences that each sign of A meets each side of a bound */
    while (r->n_sequences < 13 || r->group_offsets[1] < 3);
    for (size_t k = 0; k < OPTION_CASES; k++) {
        const struct option_case *c = &option_cases[k];
        rein_options o = options_of(c->acting), with;
        rein_loss loss[2];
        rein_error err;
        if (strcmp(c->name, "shape") == 0) o.budget_penalty_coef = 0.1; /* ready, but not given */
        with = o;
        assert_ok(rein_options_set(&with, c->name, c->value, &err), err);
        for (int i = 0; i < 2; i++) {
            rein_batch b = ragged_batch(r, i ? &with : &o, REIN_F64);
            if (strcmp(c->name, "token_budget") == 0) b.token_budgets = NULL;
            if (i == 0 && strncmp(c->name, "entropy", 7) != 0 && strcmp(c->name, "top_entropy") != 0) b.entropies = NULL;
            const rein_status status = rein_policy_loss(&loss[i], gradient[i], NULL, NULL, &b, i ? &with : &o, &one_thread, &err);
            if (status != REIN_OK) fail_msg("%s=%s on %s: %s", c->name, c->value, c->acting, err.message);
        }
        if (same_loss(&loss[0], &loss[1]) && memcmp(gradient[0], gradient[1], r->n_tokens * sizeof(double)) == 0)
            print_message("%s=%s is accepted on \"%s\" and does nothing\n", c->name, c->value, c->acting), idle++;
    }
    assert_int_equal(idle, 0);
    free(gradient[0]), free(gradient[1]);
    ragged_free(r);
}

static void trap_10_an_option_that_cannot_act_is_refused(void **state) {
    (void)state;
    for (size_t k = 0; k < OPTION_CASES; k++) {
        const struct option_case *c = &option_cases[k];
        if (!c->idle[0]) continue;
        rein_options o = options_of(c->idle), resolved = o;
        rein_error err;
        assert_ok(rein_options_resolve(&resolved, &o, &err), err); /* it is the option that is wrong, not the rest */
        assert_ok(rein_options_set(&o, c->name, c->value, &err), err);
        if (rein_options_resolve(&resolved, &o, &err) == REIN_OK)
            fail_msg("%s=%s is accepted on \"%s\"", c->name, c->value, c->idle);
        assert_says(err, c->name);
        assert_int_equal(err.code, REIN_EINVAL);
    }
}

/* The first choice of a list is no exception: given where it has no effect, it is refused. */
static void trap_10_nor_is_a_default_that_was_given(void **state) {
    static const struct option_case cases[] = {{"kl_estimator", "k1", "", "surrogate=clip"},
                                               {"dppo_divergence", "tv", "", "surrogate=clip"},
                                               {"kl_scope", "batch", "", "surrogate=clip"},
                                               {"kl_penalty_source", "current_learner", "", "surrogate=clip"}};
    size_t accepted = 0;
    (void)state;
    for (size_t k = 0; k < 4; k++) {
        rein_options o = options_of(cases[k].idle);
        rein_error err;
        assert_ok(rein_options_set(&o, cases[k].name, cases[k].value, &err), err);
        if (rein_options_resolve(&o, &o, &err) != REIN_OK) continue;
        print_message("accepted and ignored: %s=%s on %s\n", cases[k].name, cases[k].value, cases[k].idle);
        accepted++;
    }
    assert_int_equal(accepted, 0);
}

/* Data that has no effect is refused as well. */
static void trap_10_data_that_cannot_act(void **state) {
    const size_t offsets[] = {0, 1};
    const double x = -1, reward = 1;
    const uint8_t correct = 1;
    const rein_batch plain = {
        .n_sequences = 1, .sequence_offsets = offsets, .log_probs = &x, .old_log_probs = &x, .rewards = &reward};
    const rein_options o = options_of("surrogate=clip");
    rein_batch b[5];
    static const char *const names[] = {"values", "baseline_rewards", "correct", "reward_components", "reward_weights"};
    (void)state;
    for (int i = 0; i < 5; i++) b[i] = plain;
    b[0].values = &x, b[1].baseline_rewards = &x, b[2].correct = &correct, b[3].reward_components = &x, b[4].reward_weights = &x;
    b[3].n_components = b[4].n_components = 1;
    for (int i = 0; i < 5; i++) {
        rein_loss loss;
        rein_error err;
        assert_int_equal(rein_policy_loss(&loss, NULL, NULL, NULL, &b[i], &o, NULL, &err), REIN_EINVAL);
        assert_says(err, names[i]);
    }
}

/* ---- 11 */

static void trap_11_sum_instead_of_mean_in_sequence_ratios(void **state) {
    const size_t offsets[] = {0, 2};
    const double lp[] = {-1, -1.5}, old[] = {-1.1, -1.8}, rewards[] = {2};
    const rein_batch b = {.n_sequences = 1, .sequence_offsets = offsets, .log_probs = lp, .old_log_probs = old, .rewards = rewards};
    rein_loss loss;
    rein_error err;
    double gradient[2];
    (void)state;
    rein_options o = options_of("surrogate=clip ratio=sequence epsilon=0.9 aggregation=seq-mean-token-mean");
    assert_ok(rein_policy_loss(&loss, gradient, NULL, NULL, &b, &o, &one_thread, &err), err);
    assert_close(loss.loss, -2 * exp(0.2)); /* (0.1 + 0.3)/2 */
    assert_close(gradient[0], -exp(0.2));
    assert_close(gradient[1], -exp(0.2));
    assert_close(loss.metrics.ratio_mean, exp(0.2));
    o = options_of("surrogate=clip ratio=sequence-sum epsilon=0.9 aggregation=seq-mean-token-mean");
    assert_ok(rein_policy_loss(&loss, gradient, NULL, NULL, &b, &o, &one_thread, &err), err);
    assert_close(loss.loss, -2 * exp(0.4));
    assert_close(gradient[0], -2 * exp(0.4));
    o = options_of("surrogate=gmpo epsilon=0.4 aggregation=seq-mean-token-mean");
    assert_ok(rein_policy_loss(&loss, gradient, NULL, NULL, &b, &o, &one_thread, &err), err);
    assert_close(loss.loss, -2 * exp(0.2));
    assert_close(gradient[1], -exp(0.2));
}

/* ---- 12 */

static void trap_12_the_samplers_distribution_is_not_the_policys(void **state) {
    const size_t offsets[] = {0, 2};
    const double lp[] = {-1, -1.5}, samp[] = {-0.5, -3}, other[] = {-1, -1.5}, rewards[] = {1};
    rein_batch b = {.n_sequences = 1,
                    .sequence_offsets = offsets,
                    .log_probs = lp,
                    .old_log_probs = lp,
                    .sample_log_probs = samp,
                    .rewards = rewards};
    static const struct {
        const char *settings;
        double weight[2];
    } cases[] = {
        {"mismatch=token-tis", {0.60653065971263342, 2}}, /* e^−0.5; min(e^1.5, 2) */
        {"mismatch=token-mask", {0.60653065971263342, 4.4816890703380648}},
        {"mismatch=token-mask mismatch_low=0.7", {0, 4.4816890703380648}},
        {"mismatch=token-mask mismatch_high=4", {0.60653065971263342, 0}},
        {"mismatch=sequence-tis", {2, 2}}, /* min(e^1, 2) */
        {"mismatch=sequence-tis tis_cap=4", {2.7182818284590452, 2.7182818284590452}},
        {"mismatch=sequence-mask", {0, 0}}, /* e^1 > 2 */
        {"mismatch=sequence-mask mismatch_high=3", {2.7182818284590452, 2.7182818284590452}},
        {"off_policy_mask_delta=0.1", {1, 1}}, /* mean(samp − lp) = −0.5 */
    };
    rein_loss loss, without;
    rein_error err;
    double gradient[2];
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char settings[120];
        snprintf(settings, sizeof settings, "surrogate=clip aggregation=token-sum %s", cases[k].settings);
        const rein_options o = options_of(settings);
        assert_ok(rein_policy_loss(&loss, gradient, NULL, NULL, &b, &o, &one_thread, &err), err);
        for (int t = 0; t < 2; t++) assert_close(gradient[t], -cases[k].weight[t]);
        assert_close(loss.loss, -cases[k].weight[0] - cases[k].weight[1]);
    }
    /* and unasked the sampler's numbers are not the old policy's */
    const rein_options plain = options_of("surrogate=clip");
    assert_ok(rein_policy_loss(&loss, gradient, NULL, NULL, &b, &plain, NULL, &err), err);
    b.sample_log_probs = other;
    assert_ok(rein_policy_loss(&without, gradient, NULL, NULL, &b, &plain, NULL, &err), err);
    assert_true(same_loss(&loss, &without));
    assert_true(loss.metrics.ratio_mean == 1);
    b.sample_log_probs = NULL;
    const rein_options tis = options_of("surrogate=clip mismatch=token-tis");
    assert_int_equal(rein_policy_loss(&loss, gradient, NULL, NULL, &b, &tis, NULL, &err), REIN_EINVAL);
    assert_says(err, "sample_log_probs is missing");
}

/* ---- what comes out is a finite number or an error */

static const double extremes[] = {0, -1, 1, -1e-30, 88.8, -104, 400, -800, 1e4, -1e5, 1e19, -1e19, 3e37, -3e38, 1e-40};

static void results_are_finite_or_refused(void **state) {
    const shape tiny = {.groups = 2, .group_size = 2, .length = 9, .masked = 0.2, .drift = 0.3};
    const size_t cases = 40 * property_cases(1000);
    size_t accepted = 0, bad = 0;
    (void)state;
    ragged *r = ragged_new(tiny);
    double *out[2] = {some(r->max_tokens, 8), some(r->max_tokens, 8)};
    for (size_t k = 0; k < cases; k++) {
        rng g = rng_of(2000, k);
        const char *settings = compositions[rng_below(&g, COMPOSITIONS)];
        rein_options o = options_of(settings);
        const int f32 = rng_chance(&g, 0.5);
        ragged_fill(r, &g, tiny);
        for (int hits = 1 + (int)rng_below(&g, 3); hits > 0; hits--) {
            const double x = extremes[rng_below(&g, sizeof extremes / sizeof *extremes)];
            if (rng_chance(&g, 0.2)) r->rewards[rng_below(&g, r->n_sequences)] = x * x;
            else if (rng_chance(&g, 0.1) && o.kl_loss_coef > 0) o.kl_loss_coef = fabs(x);
            else if (rng_chance(&g, 0.1) && o.entropy_coef > 0) o.entropy_coef = fabs(x);
            else if (r->n_tokens) ragged_put(r, (enum token_array)rng_below(&g, TOKEN_ARRAYS), rng_below(&g, r->n_tokens), x);
        }
        const rein_batch b = ragged_batch(r, &o, f32 ? REIN_F32 : REIN_F64);
        rein_loss loss;
        rein_error err = {0};
        if (rein_policy_loss(&loss, out[0], b.entropies ? out[1] : NULL, NULL, &b, &o, &one_thread, &err) != REIN_OK) {
            assert_true(err.message[0] && strlen(err.message) < sizeof err.message - 1);
            continue;
        }
        accepted++;
        const int sane = isfinite(loss.loss) && metrics_finite(&loss.metrics);
        int gradients = 1;
        for (int a = 0; a < (b.entropies ? 2 : 1); a++)
            for (size_t t = 0; t < r->n_tokens; t++)
                gradients &= isfinite(f32 ? (double)((float *)(void *)out[a])[t] : out[a][t]) != 0;
        if (sane && gradients) continue;
        if (bad++ < 20)
            print_message("case %zu: %s, %s: loss %g, finite metrics %d, finite gradients %d\n", k, settings, f32 ? "f32" : "f64",
                          loss.loss, sane, gradients);
    }
    print_message("%zu cases, %zu accepted, %zu not finite\n", cases, accepted, bad);
    assert_true(accepted > cases / 4 && accepted < cases);
    assert_int_equal(bad, 0);
    free(out[0]), free(out[1]);
    ragged_free(r);
}

/* What is finite in the loss's double need not be in the gradient's float: refused, and nothing is written. */
static void a_float_gradient_that_overflows_is_refused(void **state) {
    const size_t offsets[] = {0, 1};
    const float lp = -1, ref = -1.5f, near = -1, far = -89.5f, entropy = 1; /* far: the ratio is 2.7e38 */
    const double reward = 0;
    static const struct {
        const char *settings;
        int far;
    } cases[] = {{"surrogate=clip kl_loss_coef=1e39 kl_estimator=k3", 0},
                 {"surrogate=clip entropy_coef=1e39", 0},
                 {"surrogate=clip kl_loss_coef=1 kl_estimator=is-k1", 1}, /* ρ·k = 1.3e38, its derivative ρ·(k + 1) is too much */
                 {"surrogate=clip kl_loss_coef=100 kl_estimator=is-k3", 1}};
    size_t bad = 0;
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const rein_options o = options_of(cases[k].settings);
        const rein_batch b = {.n_sequences = 1,
                              .sequence_offsets = offsets,
                              .dtype = REIN_F32,
                              .log_probs = &lp,
                              .old_log_probs = cases[k].far ? &far : &near,
                              .ref_log_probs = &ref,
                              .entropies = &entropy,
                              .rewards = &reward};
        rein_loss loss;
        rein_error err;
        float gradient = 77, by_entropy = 77;
        const int refused = rein_policy_loss(&loss, &gradient, &by_entropy, NULL, &b, &o, &one_thread, &err) != REIN_OK;
        const int untouched = gradient == 77 && by_entropy == 77;
        if (refused ? untouched : isfinite(gradient) && isfinite(by_entropy)) continue;
        print_message("%s: %s, gradient %g, by entropy %g\n", cases[k].settings, refused ? "refused" : "accepted", (double)gradient,
                      (double)by_entropy);
        bad++;
    }
    assert_int_equal(bad, 0);
}

/* A reference that is only reported, e^(ref − lp) too large for a number: loss and gradient are as without it. */
static void a_reference_without_weight_cannot_refuse(void **state) {
    enum { N = 21 };
    static const char *const settings[] = {"surrogate=clip advantage=none", "surrogate=cispo advantage=none"};
    const size_t offsets[] = {0, N};
    const double reward = 1;
    (void)state;
    for (int k = 0; k < 4; k++)
        for (int at = 5; at < N; at += 15) { /* in a whole vector, and in the last one */
            const rein_options o = options_of(settings[k / 2]);
            const int f32 = k % 2;
            double wide[3][N], by[2][N];
            float narrow[3][N], by_f32[2][N];
            rein_loss with, without;
            rein_error err = {0};
            for (int t = 0; t < N; t++) {
                wide[0][t] = wide[1][t] = wide[2][t] = -1;
                if (t == at) wide[0][t] = wide[1][t] = -1000;
                for (int a = 0; a < 3; a++) narrow[a][t] = (float)wide[a][t];
            }
            rein_batch b = {.n_sequences = 1, .sequence_offsets = offsets, .dtype = f32 ? REIN_F32 : REIN_F64, .rewards = &reward};
            b.log_probs = f32 ? (void *)narrow[0] : wide[0], b.old_log_probs = f32 ? (void *)narrow[1] : wide[1];
            assert_int_equal(rein_policy_loss(&without, f32 ? (void *)by_f32[0] : by[0], NULL, NULL, &b, &o, &one_thread, &err), 0);
            b.ref_log_probs = f32 ? (void *)narrow[2] : wide[2];
            if (rein_policy_loss(&with, f32 ? (void *)by_f32[1] : by[1], NULL, NULL, &b, &o, &one_thread, &err))
                fail_msg("%s: %s", settings[k / 2], err.message);
            assert_true(with.loss == without.loss && isfinite(with.metrics.kl_ref_k3));
            if (f32) assert_memory_equal(by_f32[0], by_f32[1], sizeof by_f32[0]);
            else assert_memory_equal(by[0], by[1], sizeof by[0]);
        }
}

/* What is reported is finite, too: rewards that overflow when they are added up, where nothing trains; the advantage of a token that the
 * mismatch mask drops. */
static void a_report_that_overflows_is_refused(void **state) {
    enum { N = 10 };
    const size_t offsets[] = {0, 1, 2}, all[] = {0, N};
    const double large[] = {1.7e308, 1.7e308, 1, 1}, some[] = {1e200, 1, 1, 1}, weights[] = {1e200, 1}, reward = 1;
    const uint8_t none[] = {0, 0};
    const rein_options plain = options_of("advantage=group-mean"),
                       dropping = options_of("kl_penalty_coef=2 mismatch=token-mask mismatch_low=0.5 mismatch_high=2");
    double lp[N], near[N], sample[N], gradient[N], advantages[N];
    rein_loss loss;
    rein_error err;
    (void)state;
    for (size_t t = 0; t < N; t++) lp[t] = near[t] = sample[t] = -1;
    lp[N - 1] = -1e308, sample[N - 1] = 0;
    rein_batch b = {.n_sequences = 2,
                    .sequence_offsets = offsets,
                    .log_probs = near,
                    .old_log_probs = near,
                    .mask = none,
                    .reward_components = large,
                    .n_components = 2};
    assert_int_equal(rein_policy_loss(&loss, gradient, NULL, NULL, &b, &plain, &one_thread, &err), REIN_ERANGE);
    assert_non_null(strstr(err.message, "rewards"));
    b.reward_components = some, b.reward_weights = weights;
    assert_int_equal(rein_policy_loss(&loss, gradient, NULL, NULL, &b, &plain, &one_thread, &err), REIN_ERANGE);
    rein_batch dropped = {.n_sequences = 1,
                          .sequence_offsets = all,
                          .log_probs = near,
                          .old_log_probs = near,
                          .ref_log_probs = near,
                          .sample_log_probs = sample,
                          .rewards = &reward};
    assert_int_equal(rein_policy_loss(&loss, gradient, NULL, advantages, &dropped, &dropping, &one_thread, &err), REIN_OK);
    dropped.log_probs = lp; /* 2·(1e308 − 1e307) is too much */
    assert_int_equal(rein_policy_loss(&loss, gradient, NULL, advantages, &dropped, &dropping, &one_thread, &err), REIN_ERANGE);
}

/* The effective sample size is at least 1/n, also when one ratio's square overflows. */
static void the_effective_sample_size_is_a_share(void **state) {
    const size_t offsets[] = {0, 3};
    const float lp[] = {-1, -1, -1}, old[] = {-1, -1, -60};
    const double lp_f64[] = {-1, -1, -1}, old_f64[] = {-1, -1, -400}, reward = 1;
    const rein_options o = options_of("surrogate=clip");
    rein_batch b = {.n_sequences = 1,
                    .sequence_offsets = offsets,
                    .dtype = REIN_F32,
                    .log_probs = lp,
                    .old_log_probs = old,
                    .rewards = &reward};
    rein_loss loss;
    rein_error err;
    (void)state;
    assert_ok(rein_policy_loss(&loss, NULL, NULL, NULL, &b, &o, &one_thread, &err), err);
    assert_true(fabs(loss.metrics.ess - 1. / 3) < 1e-6);
    b.dtype = REIN_F64, b.log_probs = lp_f64, b.old_log_probs = old_f64;
    assert_ok(rein_policy_loss(&loss, NULL, NULL, NULL, &b, &o, &one_thread, &err), err);
    assert_true(fabs(loss.metrics.ess - 1. / 3) < 1e-6);
}

/* ---- what a failure leaves behind */

typedef struct guard {
    double out[4][8], before[4][8];
} guard;

static guard guard_new(void) {
    guard g;
    memset(&g, 0x5a, sizeof g);
    return g;
}

static void guard_check(const guard *g) { assert_memory_equal(g->out, g->before, sizeof g->out); }

static void a_failed_budget_loss_writes_nothing(void **state) {
    const double good[] = {1, 2, 3}, huge[] = {1e308, 1e308, -1e308}, bad[] = {1, 2, (double)NAN};
    const float bad_f32[] = {1, 2, (float)INFINITY}, good_f32[] = {1, 2, 3};
    const int64_t lengths[] = {1, 2, 3}, negative[] = {1, 2, -3};
    const size_t offsets[] = {0, 1, 3}, empty[] = {0, 3, 3};
    const rein_budget b = {.token_budget = 2, .kl_coef = 0.1, .budget_penalty_coef = 0.1},
                      wrong = {.token_budget = 2, .kl_coef = -1};
    rein_error err;
    guard g = guard_new();
    double *o[] = {g.out[0], g.out[1], g.out[2], g.out[3] + 1, g.out[3]};
    (void)state;
    assert_int_equal(rein_budget_loss(o[4], o[0], o[1], o[2], o[3], bad, good, good, lengths, offsets, 2, &b, NULL, &err),
                     REIN_EINVAL);
    assert_says(err, "rewards[2]");
    guard_check(&g);
    assert_int_equal(rein_budget_loss(o[4], o[0], o[1], o[2], o[3], good, bad, good, lengths, offsets, 2, &b, NULL, &err),
                     REIN_EINVAL);
    assert_says(err, "log_probs[2]");
    guard_check(&g);
    assert_int_equal(rein_budget_loss(o[4], o[0], o[1], o[2], o[3], huge, good, good, lengths, offsets, 2, &b, NULL, &err),
                     REIN_ERANGE);
    guard_check(&g);
    assert_int_equal(rein_budget_loss(o[4], o[0], o[1], o[2], o[3], good, good, good, negative, offsets, 2, &b, NULL, &err),
                     REIN_EINVAL);
    assert_says(err, "response_lengths[2]");
    guard_check(&g);
    assert_int_equal(rein_budget_loss(o[4], o[0], o[1], o[2], o[3], good, good, good, lengths, empty, 2, &b, NULL, &err),
                     REIN_EINVAL);
    guard_check(&g);
    assert_int_equal(rein_budget_loss(o[4], o[0], o[1], o[2], o[3], good, good, good, lengths, offsets, 2, &wrong, NULL, &err),
                     REIN_EINVAL);
    assert_says(err, "kl_coef");
    guard_check(&g);
    float *f[] = {(float *)(void *)g.out[0], (float *)(void *)g.out[1], (float *)(void *)g.out[2], (float *)(void *)(g.out[3] + 1)};
    assert_int_equal(
        rein_budget_loss_f32(o[4], f[0], f[1], f[2], f[3], good_f32, good_f32, bad_f32, lengths, offsets, 2, &b, NULL, &err),
        REIN_EINVAL);
    assert_says(err, "old_log_probs[2]");
    guard_check(&g);
}

static void a_failed_gpo_writes_nothing(void **state) {
    const double good[] = {1, 0.5, 2}, zero[] = {1, 0, 1}, bad[] = {1, 2, (double)NAN}, huge[] = {1, 1, 1e308},
                 tiny[] = {1, 1, 1e-300};
    rein_error err;
    guard g = guard_new();
    rein_gpo *value = (rein_gpo *)(void *)g.out[2];
    double *a = g.out[0], *c = g.out[1];
    const rein_kl_direction d = REIN_CURRENT_OVER_REF;
    (void)state;
    assert_int_equal(rein_gpo_objective(value, a, c, good, good, zero, good, 3, 0.2, 0.1, d, NULL, &err), REIN_EINVAL);
    assert_says(err, "pi_current[1]");
    assert_int_equal(rein_gpo_objective(value, a, c, good, good, good, zero, 3, 0.2, 0.1, d, NULL, &err), REIN_EINVAL);
    assert_says(err, "pi_ref[1]");
    assert_int_equal(rein_gpo_objective(value, a, c, bad, good, good, good, 3, 0.2, 0.1, d, NULL, &err), REIN_EINVAL);
    assert_says(err, "ratios[2]");
    assert_int_equal(rein_gpo_objective(value, a, c, good, bad, good, good, 3, 0.2, 0.1, d, NULL, &err), REIN_EINVAL);
    assert_says(err, "advantages[2]");
    assert_int_equal(rein_gpo_objective(value, a, c, good, good, good, good, 3, -0.2, 0.1, d, NULL, &err), REIN_EINVAL);
    assert_says(err, "epsilon");
    assert_int_equal(rein_gpo_objective(value, a, c, good, good, good, good, 3, 0.2, -0.1, d, NULL, &err), REIN_EINVAL);
    assert_says(err, "beta");
    assert_int_equal(rein_gpo_objective(value, a, c, good, good, good, good, 0, 0.2, 0.1, d, NULL, &err), REIN_EINVAL);
    assert_int_equal(rein_gpo_objective(value, a, c, huge, good, huge, tiny, 3, 0.2, 0.1, d, NULL, &err), REIN_ERANGE);
    guard_check(&g);
}

/* Only what cannot be reached is written by the update in place: what it held comes back. */
static void a_failed_update_writes_nothing(void **state) {
    const double w[] = {1, 2}, r[] = {1, 1}, lp[] = {-1, -1}, bad[] = {1, (double)NAN}, grads[] = {1, 2, 3, 4};
    const double bad_grads[] = {1, 2, 3, (double)INFINITY}, huge[] = {1e308, 1e308, 1e308, 1e308};
    rein_error err;
    guard g = guard_new();
    double *out = g.out[0];
    (void)state;
    assert_int_equal(rein_rlhf_update(out, w, bad, lp, lp, grads, 2, 2, 0.1, 0.1, NULL, &err), REIN_EINVAL);
    assert_says(err, "rewards[1]");
    assert_int_equal(rein_rlhf_update(out, bad, r, lp, lp, grads, 2, 2, 0.1, 0.1, NULL, &err), REIN_EINVAL);
    assert_says(err, "weights[1]");
    assert_int_equal(rein_rlhf_update(out, w, r, lp, lp, bad_grads, 2, 2, 0.1, 0.1, NULL, &err), REIN_EINVAL);
    assert_says(err, "log_prob_grads[3]");
    assert_int_equal(rein_rlhf_update(out, w, r, lp, lp, huge, 2, 2, 0.1, 1e9, NULL, &err), REIN_ERANGE);
    assert_int_equal(rein_rlhf_update(out, w, r, lp, lp, grads, 2, 2, -0.1, 0.1, NULL, &err), REIN_EINVAL);
    assert_says(err, "beta");
    guard_check(&g);
    double in_place[] = {1, 2};
    assert_int_equal(rein_rlhf_update(in_place, in_place, r, lp, lp, bad_grads, 2, 2, 0.1, 0.1, NULL, &err), REIN_EINVAL);
    assert_true(in_place[0] == 1 && in_place[1] == 2);
}

static void a_failed_kl_advantage_writes_nothing(void **state) {
    const double a[] = {1, 2, 3}, lp[] = {-1, -2, -3}, bad[] = {-1, (double)NAN, -1}, huge[] = {1e308, 1e308, 1e308},
                 low[] = {-1e308, -1e308, -1e308};
    const size_t sequences[] = {0, 1, 3}, short_of[] = {0, 1, 2};
    rein_error err;
    guard g = guard_new();
    double *out = g.out[0], *kl = g.out[1];
    (void)state;
    assert_int_equal(rein_kl_advantage(out, kl, a, bad, lp, NULL, 3, 0.1, REIN_KL_SCOPE_BATCH, NULL, 0, NULL, 0, &err),
                     REIN_EINVAL);
    assert_says(err, "log_probs[1]");
    assert_int_equal(rein_kl_advantage(out, kl, a, lp, bad, NULL, 3, 0.1, REIN_KL_SCOPE_BATCH, NULL, 0, NULL, 0, &err),
                     REIN_EINVAL);
    assert_says(err, "ref_log_probs[1]");
    assert_int_equal(rein_kl_advantage(out, kl, bad, lp, lp, NULL, 3, 0.1, REIN_KL_SCOPE_BATCH, NULL, 0, NULL, 0, &err),
                     REIN_EINVAL);
    assert_says(err, "advantages[1]");
    assert_int_equal(rein_kl_advantage(out, kl, a, lp, lp, NULL, 3, -0.1, REIN_KL_SCOPE_BATCH, NULL, 0, NULL, 0, &err),
                     REIN_EINVAL);
    assert_says(err, "kl_penalty_coef");
    assert_int_equal(rein_kl_advantage(out, kl, a, lp, lp, NULL, 3, 0.1, REIN_KL_SCOPE_SEQUENCE, NULL, 0, NULL, 0, &err),
                     REIN_EINVAL);
    assert_says(err, "sequence_offsets");
    assert_int_equal(rein_kl_advantage(out, kl, a, lp, lp, NULL, 3, 0.1, REIN_KL_SCOPE_SEQUENCE, short_of, 2, NULL, 0, &err),
                     REIN_EINVAL);
    assert_int_equal(rein_kl_advantage(out, kl, a, lp, lp, NULL, 3, 0.1, REIN_KL_SCOPE_GROUP, sequences, 2, NULL, 0, &err),
                     REIN_EINVAL);
    assert_says(err, "group_offsets");
    assert_int_equal(rein_kl_advantage(out, kl, a, huge, low, NULL, 3, 0.1, REIN_KL_SCOPE_BATCH, NULL, 0, NULL, 0, &err),
                     REIN_ERANGE);
    guard_check(&g);
    assert_int_equal(rein_kl_advantage(out, kl, a, huge, lp, NULL, 2, 1e10, REIN_KL_SCOPE_BATCH, NULL, 0, NULL, 0, &err),
                     REIN_ERANGE);
    guard_check(&g);
}

static void a_failed_policy_loss_writes_nothing(void **state) {
    ragged *r = ragged_new(medium);
    const size_t n = r->max_tokens;
    double *out[3], *before = some(n, 8);
    (void)state;
    memset(before, 0x5a, n * 8);
    for (int a = 0; a < 3; a++) out[a] = some(n, 8), memset(out[a], 0x5a, n * 8);
    for (size_t c = 0; c < COMPOSITIONS; c++)
        for (int a = 0; a < ENTROPIES; a++) {
            rein_options o = options_of(compositions[c]);
            rng g = rng_of(3000, c);
            size_t last = 0; /* a trained token */
            do {
                ragged_fill(r, &g, medium);
                for (size_t t = 0; t < r->n_tokens; t++) last = r->mask[t] ? t : last;
            } while (last == 0);
            if (isnan(o.kl_loss_coef) || o.kl_loss_coef == 0) o.kl_loss_coef = 0.1; /* so that all three are read */
            if (a == SAMPLE_LOG_PROBS)
                r->rewards[r->n_sequences - 1] = r->components[0] = (double)NAN; /* another error, found early */
            else ragged_put(r, (enum token_array)a, last, (double)NAN);
            const rein_batch b = ragged_batch(r, &o, REIN_F64);
            rein_loss loss, loss_before;
            rein_error err = {0};
            memset(&loss, 0x5a, sizeof loss), memset(&loss_before, 0x5a, sizeof loss);
            if (rein_policy_loss(&loss, out[0], b.entropies ? out[1] : NULL, out[2], &b, &o, &one_thread, &err) != REIN_EINVAL)
                fail_msg("%s: array %d: %s", compositions[c], a, err.message);
            for (int k = 0; k < 3; k++) assert_memory_equal(out[k], before, n * 8);
            assert_memory_equal(&loss, &loss_before, sizeof loss);
        }
    for (int a = 0; a < 3; a++) free(out[a]);
    free(before);
    ragged_free(r);
}

static void failed_shaping_and_control_write_nothing(void **state) {
    const size_t offsets[] = {0, 1, 2};
    const double lp[] = {-1, -1}, rewards[] = {1, (double)NAN};
    const int64_t lengths[] = {5, -1};
    const rein_batch b = {.n_sequences = 2, .sequence_offsets = offsets, .log_probs = lp, .rewards = rewards};
    const rein_options o = options_of("advantage=group-mean");
    guard g = guard_new();
    double multiplier = 0.5, coef = 0.5;
    rein_error err;
    (void)state;
    assert_int_equal(rein_advantages(g.out[0], &b, &o, &err), REIN_EINVAL);
    assert_int_equal(rein_shape_rewards(g.out[1], &b, &o, &err), REIN_EINVAL);
    guard_check(&g);
    assert_int_equal(rein_budget_control(&multiplier, lengths, 2, 3, 0.1, &err), REIN_EINVAL);
    assert_int_equal(rein_entropy_control(&coef, (double)NAN, 1, 0.1, &err), REIN_EINVAL);
    assert_true(multiplier == 0.5 && coef == 0.5);
    rein_options p, p_before;
    memset(&p, 0x5a, sizeof p), memset(&p_before, 0x5a, sizeof p);
    assert_int_equal(rein_options_init(&p, "grop", &err), REIN_EINVAL);
    assert_says(err, "grpo");
    assert_memory_equal(&p, &p_before, sizeof p);
    p = p_before = options_of("preset=grpo");
    assert_int_equal(rein_options_set(&p, "epsilon", "-1", &err), REIN_EINVAL);
    assert_int_equal(rein_options_set(&p, "epsilom", "1", &err), REIN_EINVAL);
    assert_says(err, "epsilon");
    assert_int_equal(rein_options_set(&p, "surrogate", "klip", &err), REIN_EINVAL);
    assert_memory_equal(&p, &p_before, sizeof p);
}

/* The contract of a step is another one: what failed is 0, what was done stands, and the step is over. */
static void a_failed_micro_batch_is_zero(void **state) {
    const size_t offsets[] = {0, 2, 4, 6};
    double lp[] = {-1, -1, -1, (double)NAN, -1, -1}, gradient[6], advantages[6], by_entropy[6];
    const double rewards[] = {1, 2, 3}, old[] = {-1, -1, -1, -1, -1, -1}, entropies[] = {1, 1, 1, 1, 1, 1};
    const rein_batch b = {.n_sequences = 3,
                          .sequence_offsets = offsets,
                          .log_probs = lp,
                          .old_log_probs = old,
                          .entropies = entropies,
                          .rewards = rewards};
    const rein_options o = options_of("surrogate=clip entropy_coef=0.1");
    const size_t size = rein_step_size(&b, &o, NULL);
    void *buffer = some(1, size);
    rein_step *step;
    rein_loss loss;
    rein_error err;
    (void)state;
    for (int t = 0; t < 6; t++) gradient[t] = advantages[t] = by_entropy[t] = 77;
    assert_ok(rein_step_begin(&step, buffer, size, &b, &o, &one_thread, &err), err);
    assert_ok(rein_step_loss(step, 0, 1, NULL, NULL, gradient, by_entropy, advantages, &err), err);
    assert_int_equal(rein_step_loss(step, 1, 2, NULL, NULL, gradient, by_entropy, advantages, &err), REIN_EINVAL);
    assert_says(err, "log_probs[3]");
    for (int t = 0; t < 2; t++) assert_true(gradient[t] != 0 && gradient[t] != 77 && by_entropy[t] != 77);
    for (int t = 2; t < 4; t++) assert_true(gradient[t] == 0 && by_entropy[t] == 0);
    for (int t = 4; t < 6; t++) assert_true(gradient[t] == 77 && by_entropy[t] == 77);
    assert_int_equal(rein_step_loss(step, 2, 3, NULL, NULL, gradient, by_entropy, advantages, &err), REIN_EINVAL);
    assert_int_equal(rein_step_finish(&loss, step, &err), REIN_EINVAL);
    free(buffer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trap_1_a_masked_token_overflows),
        cmocka_unit_test(trap_1_a_masked_token_in_kl_advantage),
        cmocka_unit_test(trap_2_k3_overflows),
        cmocka_unit_test(trap_2_a_reference_far_below),
        cmocka_unit_test(a_clip_range_beyond_f32),
        cmocka_unit_test(a_mask_in_a_long_sequence),
        cmocka_unit_test(trap_3_mean_of_micro_batch_means),
        cmocka_unit_test(trap_4_nothing_to_train),
        cmocka_unit_test(trap_5_equal_rewards_that_differ_in_their_last_bit),
        cmocka_unit_test(trap_5_in_the_other_places),
        cmocka_unit_test(trap_6_padding_leaks_into_sequence_products),
        cmocka_unit_test(trap_7_log_probs_of_a_truncated_sampler),
        cmocka_unit_test(trap_7_in_the_other_arrays),
        cmocka_unit_test(trap_8_entropy_of_a_certain_token),
        cmocka_unit_test(trap_8_divergence_of_a_certain_token),
        cmocka_unit_test(trap_9_a_missing_reward),
        cmocka_unit_test(trap_10_every_option_is_listed),
        cmocka_unit_test(trap_10_an_option_that_can_act_does),
        cmocka_unit_test(trap_10_an_option_that_cannot_act_is_refused),
        cmocka_unit_test(trap_10_nor_is_a_default_that_was_given),
        cmocka_unit_test(trap_10_data_that_cannot_act),
        cmocka_unit_test(trap_11_sum_instead_of_mean_in_sequence_ratios),
        cmocka_unit_test(trap_12_the_samplers_distribution_is_not_the_policys),
        cmocka_unit_test(results_are_finite_or_refused),
        cmocka_unit_test(a_float_gradient_that_overflows_is_refused),
        cmocka_unit_test(a_reference_without_weight_cannot_refuse),
        cmocka_unit_test(a_report_that_overflows_is_refused),
        cmocka_unit_test(the_effective_sample_size_is_a_share),
        cmocka_unit_test(a_failed_budget_loss_writes_nothing),
        cmocka_unit_test(a_failed_gpo_writes_nothing),
        cmocka_unit_test(a_failed_update_writes_nothing),
        cmocka_unit_test(a_failed_kl_advantage_writes_nothing),
        cmocka_unit_test(a_failed_policy_loss_writes_nothing),
        cmocka_unit_test(failed_shaping_and_control_write_nothing),
        cmocka_unit_test(a_failed_micro_batch_is_zero),
    };
    return cmocka_run_group_tests_name("traps", tests, NULL, NULL);
}
