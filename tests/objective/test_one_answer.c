/* test_one_answer.c - one answer, bit for bit: for any number of threads, any cut into micro-batches, every instruction set; and the
 * step's own contract about its workspace and the order of its calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/base.h"
#include "objective/batches.h"
#include "objective/step.h"

static const char *const compositions[] = {
    "preset=grpo",
    "preset=dapo",
    "preset=gspo",
    "preset=gspo ratio=sequence-token",
    "preset=gmpo",
    "preset=cispo",
    "preset=sapo",
    "preset=ppo",
    "preset=reinforce++",
    "preset=rloo",
    "preset=k2 tau=0.1 budget_penalty_coef=0.01",
    "preset=deepseek-v3.2 kl_loss_coef=0.1 off_policy_mask_delta=0.01",
    "preset=art kl_penalty_coef=0.1 kimi_k2_tau=0.2",
    "preset=dr-grpo max_response_length=3000 mismatch=sequence-tis entropy_coef=0.01",
    "surrogate=vespo advantage=batch-std top_entropy=0.3 entropy_coef=0.01 entropy_target=9",
    "surrogate=topr advantage=gdpo mismatch=token-mask",
    "surrogate=dppo advantage=opo mismatch=token-tis dppo_divergence=kl",
    "surrogate=clip advantage=group-std kl_loss_coef=0.1 kl_estimator=exact kl_reward_exact=0.2",
    "surrogate=dro dro_beta=0.2 ratio=average kl_loss_coef=0.1 kl_estimator=is-k1",
    "surrogate=luspo ratio=geometric-average advantage=max-rl kl_penalty_coef=0.1 kl_scope=group",
    "surrogate=dual-clip ratio=sequence-sum advantage=pass-at-k kl_loss_coef=0.1 kl_estimator=abs kl_clamp=0.5",
};
enum { COMPOSITIONS = sizeof compositions / sizeof *compositions };

/* Large: several blocks and tiles. Small: sequences shorter than a vector. */
static const shape large = {.groups = 8, .group_size = 8, .length = 2000, .masked = 0.3, .drift = 0.2};
static const shape little = {.groups = 6, .group_size = 6, .length = 11, .masked = 0.3, .drift = 0.2};

/* ---- an answer: everything that a step gives */
typedef struct answer {
    rein_loss loss;
    unsigned char *gradient, *by_entropy, *advantages; /* of the batch's type */
    size_t bytes;
} answer;

static answer answer_new(size_t tokens) {
    return (answer){.gradient = some(tokens, 8), .by_entropy = some(tokens, 8), .advantages = some(tokens, 8)};
}

static void answer_free(answer *a) { free(a->gradient), free(a->by_entropy), free(a->advantages); }

/* Cuts [0, sequences] at random: first, last, …; `most` sequences at a time. */
static size_t next_cut(rng *g, size_t first, size_t sequences, size_t most) {
    const size_t last = first + (most <= 1 ? most : rng_below(g, most + 1)); /* empty micro-batches too */
    return last < sequences ? last : sequences;
}

/* Through a step, `most` sequences at a time (0: all at once). */
static void run(answer *a, const rein_batch *b, const rein_options *o, const rein_exec *e, size_t most, rng *g,
                int with_advantages) {
    const size_t size = rein_step_size(b, o, e);
    void *buffer = some(1, size);
    rein_step *step;
    rein_error err;
    assert_int_not_equal(size, 0);
    a->bytes = b->sequence_offsets[b->n_sequences] * (b->dtype == REIN_F32 ? 4 : 8);
    memset(a->gradient, 0xff, a->bytes), memset(a->by_entropy, 0xff, a->bytes), memset(a->advantages, 0xff, a->bytes);
    if (rein_step_begin(&step, buffer, size, b, o, e, &err) != REIN_OK) fail_msg("%s", err.message);
    for (size_t first = 0; first < b->n_sequences;) {
        const size_t last = most ? next_cut(g, first, b->n_sequences, most) : b->n_sequences;
        if (rein_step_loss(step, first, last, NULL, NULL, a->gradient, b->entropies ? a->by_entropy : NULL,
                           with_advantages ? a->advantages : NULL, &err) != REIN_OK)
            fail_msg("%s", err.message);
        first = last;
    }
    if (rein_step_finish(&a->loss, step, &err) != REIN_OK) fail_msg("%s", err.message);
    free(buffer);
}

static void assert_same(const answer *a, const answer *b, const char *settings, const char *what) {
    if (memcmp(&a->loss.loss, &b->loss.loss, sizeof a->loss.loss) != 0)
        fail_msg("%s, %s: loss %a and %a", settings, what, a->loss.loss, b->loss.loss);
    const double *m = (const double *)(const void *)&a->loss.metrics, *n = (const double *)(const void *)&b->loss.metrics;
    for (size_t i = 0; i < sizeof a->loss.metrics / sizeof *m; i++)
        if (memcmp(&m[i], &n[i], sizeof *m) != 0) fail_msg("%s, %s: metric %zu is %a and %a", settings, what, i, m[i], n[i]);
    if (memcmp(a->gradient, b->gradient, a->bytes) != 0) fail_msg("%s, %s: the gradients differ", settings, what);
    if (memcmp(a->by_entropy, b->by_entropy, a->bytes) != 0) fail_msg("%s, %s: the gradients by entropies differ", settings, what);
    if (memcmp(a->advantages, b->advantages, a->bytes) != 0) fail_msg("%s, %s: the advantages differ", settings, what);
}

/* For each composition, type and size: a reference answer, and whatever `vary` makes of it. */
typedef void vary_fn(answer *reference, answer *other, const rein_batch *b, const rein_options *o, rng *g, const char *settings);

static void for_all(vary_fn *vary, uint64_t id) {
    ragged *r = ragged_new(large);
    answer reference = answer_new(r->max_tokens), other = answer_new(r->max_tokens);
    for (size_t c = 0; c < COMPOSITIONS; c++)
        for (int f32 = 0; f32 < 2; f32++)
            for (int size = 0; size < 2; size++) {
                rng g = rng_of(id, c);
                const rein_options o = options_of(compositions[c]);
                do ragged_fill(r, &g, size ? large : little);
                while (r->n_tokens < (size ? 30000 : 30));
                const rein_batch b = ragged_batch(r, &o, f32 ? REIN_F32 : REIN_F64);
                vary(&reference, &other, &b, &o, &g, compositions[c]);
            }
    answer_free(&reference), answer_free(&other);
    ragged_free(r);
}

/* ---- threads */
static void vary_threads(answer *reference, answer *other, const rein_batch *b, const rein_options *o, rng *g,
                         const char *settings) {
    static const int threads[] = {2, 3, 8};
    const rein_exec one = {.threads = 1};
    run(reference, b, o, &one, 0, g, 1);
    for (int k = 0; k < 3; k++) {
        const rein_exec e = {.threads = threads[k]};
        run(other, b, o, &e, 0, g, 1);
        assert_same(reference, other, settings, "threads");
        run(reference, b, o, &one, 0, g, 0); /* without the advantages */
        run(other, b, o, &e, 0, g, 0);
        assert_same(reference, other, settings, "threads");
        run(reference, b, o, &one, 0, g, 1);
    }
}

static void threads_change_no_bit(void **state) {
    (void)state;
    for_all(vary_threads, 10);
}

/* ---- micro-batches */
static void vary_cuts(answer *reference, answer *other, const rein_batch *b, const rein_options *o, rng *g, const char *settings) {
    static const size_t most[] = {1, 2, 5, 17, 60};
    for (int with_advantages = 0; with_advantages < 2; with_advantages++) {
        run(reference, b, o, NULL, 0, g, with_advantages);
        for (int k = 0; k < 5; k++) {
            const rein_exec e = {.threads = 1 + (int)rng_below(g, 3)};
            run(other, b, o, &e, most[k], g, with_advantages);
            assert_same(reference, other, settings, "micro-batches");
        }
    }
}

static void micro_batches_change_no_bit(void **state) {
    (void)state;
    for_all(vary_cuts, 20);
}

/* ---- ranks: processes that share a step. Here each is a step of its own, in turn. */
typedef struct rank {
    void *buffer;
    rein_step *step;
    size_t first, last;
} rank;

/* Adds the rank's sequences, `most` at a time, and writes what it would send to `sums`. */
static void run_rank(double *sums, answer *a, rank *k, const rein_batch *b, size_t most, rng *g) {
    rein_error err;
    assert_int_equal(rein_step_skip(k->step, k->first, &err), REIN_OK);
    for (size_t first = k->first; first < k->last;) {
        const size_t last = next_cut(g, first, k->last, most);
        if (rein_step_loss(k->step, first, last, NULL, NULL, a->gradient, b->entropies ? a->by_entropy : NULL, a->advantages, &err))
            fail_msg("%s", err.message);
        first = last;
    }
    assert_int_equal(rein_step_skip(k->step, b->n_sequences, &err), REIN_OK);
    assert_int_equal(rein_step_sums(sums, k->step, &err), REIN_OK);
}

/* In a relay each rank continues the sums of the one before. Otherwise the last one gets those of the others, in no particular order. */
static void run_ranks(answer *a, const rein_batch *b, const rein_options *o, size_t n, int relay, rng *g) {
    rank ranks[4];
    double *sums[4];
    rein_error err;
    memset(a->gradient, 0xff, a->bytes), memset(a->by_entropy, 0xff, a->bytes), memset(a->advantages, 0xff, a->bytes);
    for (size_t k = 0; k < n; k++) {
        const rein_exec e = {.threads = 1 + (int)rng_below(g, 3)};
        const size_t size = rein_step_size(b, o, &e), end = (k + 1) * b->n_sequences / n;
        rank *r = &ranks[k];
        r->buffer = some(1, size);
        if (rein_step_begin(&r->step, r->buffer, size, b, o, &e, &err)) fail_msg("%s", err.message);
        r->first = k ? ranks[k - 1].last : 0;
        r->last = relay ? end : rein_step_cut(r->step, end);
        sums[k] = some(rein_step_sums_length(r->step), sizeof *sums[k]);
        if (relay && k) assert_int_equal(rein_step_add_sums(r->step, sums[k - 1], &err), REIN_OK);
        run_rank(sums[k], a, r, b, 1 + rng_below(g, 9), g);
    }
    for (size_t k = n - 1; !relay && k-- > 0;) assert_int_equal(rein_step_add_sums(ranks[n - 1].step, sums[k], &err), REIN_OK);
    assert_int_equal(rein_step_finish(&a->loss, ranks[n - 1].step, &err), REIN_OK);
    for (size_t k = 0; k < n; k++) free(ranks[k].buffer), free(sums[k]);
}

static void vary_ranks(answer *reference, answer *other, const rein_batch *b, const rein_options *o, rng *g, const char *settings) {
    run(reference, b, o, NULL, 0, g, 1);
    other->bytes = reference->bytes;
    for (size_t n = 1; n <= 4; n++)
        for (int relay = 0; relay < 2; relay++) {
            run_ranks(other, b, o, n, relay, g);
            assert_same(reference, other, settings, relay ? "ranks in a relay" : "ranks");
        }
}

static void ranks_change_no_bit(void **state) {
    (void)state;
    for_all(vary_ranks, 25);
}

static void shares_are_checked(void **state) {
    const size_t offsets[] = {0, 1, 2, 3};
    const double lp[] = {-1, -2, -3}, rewards[] = {1, 2, 4};
    const rein_batch b = {.n_sequences = 3, .sequence_offsets = offsets, .log_probs = lp, .old_log_probs = lp, .rewards = rewards};
    const rein_options o = options_of("surrogate=clip aggregation=token-sum");
    const size_t size = rein_step_size(&b, &o, NULL);
    void *buffer = some(1, size), *other = some(1, size);
    rein_step *step, *rest;
    rein_loss loss;
    rein_error err;
    (void)state;
    assert_int_equal(rein_step_begin(&step, buffer, size, &b, &o, NULL, &err), REIN_OK);
    assert_int_equal(rein_step_begin(&rest, other, size, &b, &o, NULL, &err), REIN_OK);
    assert_true(rein_step_cut(step, 0) == 0 && rein_step_cut(step, 1) == 3 && rein_step_cut(step, 3) == 3); /* a single block */
    assert_int_equal(rein_step_skip(step, 4, &err), REIN_EINVAL);
    assert_int_equal(rein_step_skip(step, 2, &err), REIN_OK);
    assert_int_equal(rein_step_skip(step, 1, &err), REIN_EINVAL);
    assert_int_equal(rein_step_loss(step, 1, 3, NULL, NULL, NULL, NULL, NULL, &err), REIN_EINVAL); /* 1 was skipped */
    assert_int_equal(rein_step_loss(step, 2, 3, NULL, NULL, NULL, NULL, NULL, &err), REIN_OK);
    const size_t n = rein_step_sums_length(step);
    double *sums = some(n, sizeof *sums);
    assert_int_equal(rein_step_sums(sums, step, &err), REIN_OK);
    assert_int_equal(rein_step_loss(rest, 0, 2, NULL, NULL, NULL, NULL, NULL, &err), REIN_OK);
    for (size_t i = 0; i < n; i += i < 4 ? 1 : n - 5) { /* a number of each kind */
        const double was = sums[i];
        sums[i] = (double)NAN;
        assert_int_equal(rein_step_add_sums(rest, sums, &err), REIN_EINVAL);
        assert_true(strcmp(err.field, "sums") == 0 && err.index == (int64_t)i);
        sums[i] = was;
    }
    assert_int_equal(rein_step_add_sums(rest, sums, &err), REIN_OK);
    assert_int_equal(rein_step_finish(&loss, rest, &err), REIN_OK);
    assert_true(loss.loss == -7 && loss.metrics.trained_tokens == 3);
    assert_int_equal(rein_step_add_sums(rest, sums, &err), REIN_EINVAL); /* twice: more tokens than the step has */
    assert_true(strcmp(err.field, "sums") == 0 && err.index == 0);
    free(buffer), free(other), free(sums);
}

/* ---- instruction sets */
static void vary_isa(answer *reference, answer *other, const rein_batch *b, const rein_options *o, rng *g, const char *settings) {
    const rein_exec ref = {.threads = 2, .isa = REIN_ISA_REF};
    for (int with_advantages = 0; with_advantages < 2; with_advantages++) {
        run(reference, b, o, &ref, 0, g, with_advantages);
        for (rein_isa isa = REIN_ISA_REF + 1; isa < REIN_ISA_COUNT; isa++) {
            if (!rein_isa_available(isa)) continue;
            const rein_exec fast = {.threads = 2, .isa = isa};
            run(other, b, o, &fast, 0, g, with_advantages);
            assert_same(reference, other, settings, "instruction sets");
        }
    }
}

static void instruction_sets_change_no_bit(void **state) {
    (void)state;
    if (rein_isa_best() == REIN_ISA_REF) skip();
    for_all(vary_isa, 30);
}

/* ---- common compositions have loops of their own. A separate array for stop(·) selects the loop of any composition. */
static void vary_loop(answer *reference, answer *other, const rein_batch *b, const rein_options *o, rng *g, const char *settings) {
    for (rein_isa isa = REIN_ISA_REF; isa < REIN_ISA_COUNT; isa++) {
        if (!rein_isa_available(isa)) continue;
        const rein_exec e = {.threads = 1, .isa = isa};
        const size_t size = rein_step_size(b, o, &e);
        const size_t bytes = b->sequence_offsets[b->n_sequences] * (b->dtype == REIN_F32 ? 4 : 8);
        void *buffer = some(1, size), *copy = some(1, bytes);
        rein_step *step;
        rein_error err;
        run(reference, b, o, &e, 0, g, 1);
        memcpy(copy, b->log_probs, other->bytes = bytes);
        memset(other->by_entropy, 0xff, bytes);
        if (rein_step_begin(&step, buffer, size, b, o, &e, &err) != REIN_OK ||
            rein_step_loss_apart(step, 0, b->n_sequences, NULL, copy, NULL, other->gradient,
                                 b->entropies ? other->by_entropy : NULL, other->advantages, &err) != REIN_OK ||
            rein_step_finish(&other->loss, step, &err) != REIN_OK)
            fail_msg("%s: %s", settings, err.message);
        assert_same(reference, other, settings, "the loop of any composition");
        free(buffer), free(copy);
    }
}

static void the_loop_of_a_common_composition_changes_no_bit(void **state) {
    (void)state;
    for_all(vary_loop, 36);
}

/* Sequences of which a part trains, starting anywhere in a cache line. */
static void a_step_of_masked_sequences(void **state) {
    enum { SEQUENCES = 700, LENGTH = 3001, TOKENS = SEQUENCES * LENGTH };
    static size_t offsets[SEQUENCES + 1];
    static double rewards[SEQUENCES];
    float *numbers = some(2 * (size_t)TOKENS, sizeof *numbers);
    uint8_t *mask = some(TOKENS, 1);
    rng g = rng_of(35, 0);
    (void)state;
    for (size_t i = 0; i < SEQUENCES; i++) {
        const size_t first = rng_below(&g, 100) * rng_below(&g, 2), end = rng_below(&g, LENGTH + 1);
        offsets[i + 1] = offsets[i] + LENGTH;
        rewards[i] = rng_normal(&g);
        for (size_t t = 0; t < LENGTH; t++) mask[offsets[i] + t] = t >= first && t < end;
    }
    for (size_t t = 0; t < 2 * (size_t)TOKENS; t++)
        numbers[t] = mask[t % TOKENS] ? -(float)(rng_next(&g) >> 40) * 0x1p-24f : (float)rng_rubbish(&g);
    const rein_batch b = {.n_sequences = SEQUENCES,
                          .sequence_offsets = offsets,
                          .dtype = REIN_F32,
                          .mask = mask,
                          .log_probs = numbers,
                          .old_log_probs = numbers + TOKENS,
                          .entropies = numbers + TOKENS,
                          .rewards = rewards};
    const rein_options o = options_of("preset=dapo advantage=none entropy_coef=0.01");
    const rein_exec ref = {.threads = 2, .isa = REIN_ISA_REF};
    answer plain = answer_new(TOKENS), other = answer_new(TOKENS);
    run(&plain, &b, &o, &ref, 0, &g, 1);
    for (rein_isa isa = REIN_ISA_REF; isa < REIN_ISA_COUNT; isa++)
        for (size_t most = 0; most < 200 && rein_isa_available(isa); most += 100) {
            const rein_exec fast = {.threads = 2, .isa = isa};
            run(&other, &b, &o, &fast, most, &g, 1);
            assert_same(&plain, &other, "dapo", "instruction sets and cuts");
        }
    for (size_t t = 0; t < TOKENS; t++)
        if (!mask[t])
            assert_true(((const float *)(void *)other.gradient)[t] == 0 && ((const float *)(void *)other.by_entropy)[t] == 0);
    answer_free(&plain), answer_free(&other);
    free(numbers), free(mask);
}

/* Far-out log-ratios take other branches of exp; they too must agree. */
static void instruction_sets_agree_on_extremes(void **state) {
    static const double far[] = {0.34, 0.35, 5, 80, 86.5, 88, 104, 300, 706, 709, 1e-20, 1e-9};
    ragged *r = ragged_new(little);
    answer reference = answer_new(r->max_tokens), other = answer_new(r->max_tokens);
    (void)state;
    if (rein_isa_best() == REIN_ISA_REF) skip();
    for (size_t k = 0; k < property_cases(1000); k++) {
        rng g = rng_of(31, k);
        const char *settings = compositions[rng_below(&g, COMPOSITIONS)];
        rein_options o = options_of(settings);
        if (o.kl_loss_coef > 0 && isnan(o.kl_clamp)) o.kl_clamp = 30;
        ragged_fill(r, &g, little);
        for (int i = 0; i < 3 && r->n_tokens; i++) {
            const size_t t = rng_below(&g, r->n_tokens);
            ragged_put(r, OLD_LOG_PROBS, t, r->array[LOG_PROBS][t] + far[rng_below(&g, 12)]); /* the ratio falls: no overflow */
        }
        for (int f32 = 0; f32 < 2; f32++) {
            const rein_batch b = ragged_batch(r, &o, f32 ? REIN_F32 : REIN_F64);
            const rein_exec ref = {.threads = 1, .isa = REIN_ISA_REF};
            rein_loss loss;
            const int fine = rein_policy_loss(&loss, NULL, NULL, NULL, &b, &o, &ref, NULL) == REIN_OK;
            if (fine) run(&reference, &b, &o, &ref, 0, &g, 1);
            for (rein_isa isa = REIN_ISA_REF + 1; isa < REIN_ISA_COUNT; isa++) {
                if (!rein_isa_available(isa)) continue;
                const rein_exec fast = {.threads = 1, .isa = isa};
                assert_int_equal(rein_policy_loss(&loss, NULL, NULL, NULL, &b, &o, &fast, NULL) == REIN_OK, fine);
                if (!fine) continue;
                run(&other, &b, &o, &fast, 0, &g, 1);
                assert_same(&reference, &other, settings, "instruction sets");
            }
        }
    }
    answer_free(&reference), answer_free(&other);
    ragged_free(r);
}

/* ---- asking for more changes nothing */
static void vary_outputs(answer *reference, answer *other, const rein_batch *b, const rein_options *o, rng *g,
                         const char *settings) {
    run(reference, b, o, NULL, 0, g, 1);
    run(other, b, o, NULL, 0, g, 0);
    memcpy(other->advantages, reference->advantages, reference->bytes);
    const double *m = (const double *)(const void *)&reference->loss, *n = (const double *)(const void *)&other->loss;
    for (size_t i = 0; i < offsetof(rein_loss, nothing_to_train) / sizeof *m; i++)
        if (!(m[i] == n[i]))
            fail_msg("%s: asking for the advantages changes number %zu of the loss from %a to %a", settings, i, n[i], m[i]);
    for (size_t t = 0; t < b->sequence_offsets[b->n_sequences]; t++) {
        const double x =
            b->dtype == REIN_F32 ? (double)((float *)(void *)reference->gradient)[t] : ((double *)(void *)reference->gradient)[t];
        const double y =
            b->dtype == REIN_F32 ? (double)((float *)(void *)other->gradient)[t] : ((double *)(void *)other->gradient)[t];
        if (!(x == y)) fail_msg("%s: asking for the advantages changes gradient %zu from %a to %a", settings, t, y, x);
    }
    rein_loss whole;
    rein_error err;
    memset(other->gradient, 0xff, other->bytes);
    if (rein_policy_loss(&whole, other->gradient, b->entropies ? other->by_entropy : NULL, other->advantages, b, o, NULL, &err) !=
        REIN_OK)
        fail_msg("%s", err.message);
    other->loss = whole;
    assert_same(reference, other, settings, "policy_loss and a step");
}

static void outputs_asked_for_change_no_number(void **state) {
    (void)state;
    for_all(vary_outputs, 40);
}

/* ---- the named operations */
enum { N = 70000 };

static void named_operations_too(void **state) {
    static const int threads[] = {2, 3, 8};
    double *x[6], *out[2][4];
    float *x_f32[6], *out_f32[2][4];
    int64_t *lengths = some(N, sizeof *lengths);
    size_t *offsets = some(N + 1, sizeof *offsets), prompts = 0;
    rng g = rng_of(50, 0);
    (void)state;
    for (int a = 0; a < 6; a++) {
        x[a] = some(N, sizeof(double)), x_f32[a] = some(N, sizeof(float));
        for (int i = 0; i < N; i++) x_f32[a][i] = (float)rng_between(&g, 0.1, 2), x[a][i] = (double)x_f32[a][i];
    }
    for (int i = 0; i < N; i++) lengths[i] = (int64_t)rng_below(&g, 100);
    for (int k = 0; k < 8; k++) out[k / 4][k % 4] = some(N, sizeof(double)), out_f32[k / 4][k % 4] = some(N, sizeof(float));
    while (offsets[prompts] < N) {
        const size_t next = offsets[prompts] + 1 + rng_below(&g, 20);
        offsets[++prompts] = next < N ? next : N;
    }
    const rein_budget budget = {.token_budget = 50, .kl_coef = 0.1, .budget_penalty_coef = 0.01};
    double loss[2], loss_f32[2];
    rein_gpo value[2], value_f32[2];
    for (int k = -1; k < 3 + REIN_ISA_COUNT - REIN_ISA_REF; k++) { /* −1: the reference; from 3: each instruction set */
        const rein_exec e = {.threads = k < 0   ? 1
                                        : k < 3 ? threads[k]
                                                : 2,
                             .isa = k < 3 ? REIN_ISA_BEST : (rein_isa)(REIN_ISA_REF + k - 3)};
        if (!rein_isa_available(e.isa)) continue;
        const int s = k >= 0;
        assert_int_equal(
            rein_budget_loss(&loss[s], NULL, NULL, NULL, out[s][0], x[0], x[1], x[2], lengths, offsets, prompts, &budget, &e, NULL),
            0);
        assert_int_equal(rein_budget_loss_f32(&loss_f32[s], NULL, NULL, NULL, out_f32[s][0], x_f32[0], x_f32[1], x_f32[2], lengths,
                                              offsets, prompts, &budget, &e, NULL),
                         0);
        assert_int_equal(rein_gpo_objective(&value[s], out[s][1], out[s][2], x[0], x[1], x[2], x[3], N, 0.2, 0.1,
                                            REIN_CURRENT_OVER_REF, &e, NULL),
                         0);
        assert_int_equal(rein_gpo_objective_f32(&value_f32[s], out_f32[s][1], out_f32[s][2], x_f32[0], x_f32[1], x_f32[2], x_f32[3],
                                                N, 0.2, 0.1, REIN_REF_OVER_CURRENT, &e, NULL),
                         0);
        assert_int_equal(rein_rlhf_update(out[s][3], x[0], x[1], x[2], x[3], x[4], 7, N / 7, 0.1, 0.01, &e, NULL), 0);
        assert_int_equal(
            rein_rlhf_update_f32(out_f32[s][3], x_f32[0], x_f32[1], x_f32[2], x_f32[3], x_f32[4], 7, N / 7, 0.1, 0.01, &e, NULL),
            0);
        if (!s) continue;
        assert_memory_equal(&loss[0], &loss[1], sizeof *loss);
        assert_memory_equal(&loss_f32[0], &loss_f32[1], sizeof *loss);
        assert_memory_equal(&value[0], &value[1], sizeof *value);
        assert_memory_equal(&value_f32[0], &value_f32[1], sizeof *value);
        for (int a = 0; a < 4; a++) {
            assert_memory_equal(out[0][a], out[1][a], N * sizeof(double));
            assert_memory_equal(out_f32[0][a], out_f32[1][a], N * sizeof(float));
        }
    }
    for (int a = 0; a < 6; a++) free(x[a]), free(x_f32[a]);
    for (int k = 0; k < 8; k++) free(out[k / 4][k % 4]), free(out_f32[k / 4][k % 4]);
    free(lengths), free(offsets);
}

/* ---- the workspace */
static void the_size_asked_for_suffices_and_a_byte_less_does_not(void **state) {
    ragged *r = ragged_new(little);
    answer reference = answer_new(r->max_tokens);
    (void)state;
    for (size_t c = 0; c < COMPOSITIONS; c++)
        for (int f32 = 0; f32 < 2; f32++) {
            const rein_options o = options_of(compositions[c]);
            const rein_exec e = {.threads = 1 + (int)(c % 3)};
            rng g = rng_of(60, c);
            ragged_fill(r, &g, little);
            const rein_batch b = ragged_batch(r, &o, f32 ? REIN_F32 : REIN_F64);
            const size_t size = rein_step_size(&b, &o, &e);
            run(&reference, &b, &o, &e, 0, &g, 0);
            for (size_t shift = 0; shift < 65; shift += shift < 3 ? 1 : 7) {
                unsigned char *buffer = some(1, size + shift); /* ends where the workspace ends: a sanitizer sees the next byte */
                rein_step *step = NULL;
                rein_loss loss;
                rein_error err;
                assert_int_equal(rein_step_begin(&step, buffer + shift, size - 1, &b, &o, &e, &err), REIN_ENOMEM);
                assert_null(step);
                assert_int_equal(err.code, REIN_ENOMEM);
                if (rein_step_begin(&step, buffer + shift, size, &b, &o, &e, &err) != REIN_OK) fail_msg("%s", err.message);
                assert_true((unsigned char *)step >= buffer + shift && (unsigned char *)step < buffer + shift + size);
                assert_int_equal(rein_step_loss(step, 0, b.n_sequences, NULL, NULL, NULL, NULL, NULL, &err), REIN_OK);
                assert_int_equal(rein_step_finish(&loss, step, &err), REIN_OK);
                assert_memory_equal(&loss.metrics, &reference.loss.metrics, sizeof loss.metrics);
                free(buffer);
            }
            rein_step *step = NULL;
            rein_error err;
            assert_int_equal(rein_step_begin(&step, NULL, 0, &b, &o, &e, &err), REIN_ENOMEM);
            assert_null(step);
        }
    answer_free(&reference);
    ragged_free(r);
}

static void a_workspace_may_be_used_again(void **state) {
    ragged *r = ragged_new(little);
    answer first = answer_new(r->max_tokens), again = answer_new(r->max_tokens);
    rng g = rng_of(61, 0);
    rein_step *step;
    rein_error err;
    rein_loss loss[2];
    (void)state;
    ragged_fill(r, &g, little);
    const rein_options o = options_of("preset=grpo");
    const rein_batch b = ragged_batch(r, &o, REIN_F64);
    const size_t size = rein_step_size(&b, &o, NULL);
    void *buffer = some(1, size);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(rein_step_begin(&step, buffer, size, &b, &o, NULL, &err), REIN_OK);
        assert_int_equal(rein_step_loss(step, 0, b.n_sequences, NULL, NULL, k ? again.gradient : first.gradient, NULL, NULL, &err),
                         REIN_OK);
        assert_int_equal(rein_step_finish(&loss[k], step, &err), REIN_OK);
    }
    assert_memory_equal(&loss[0].metrics, &loss[1].metrics, sizeof loss[0].metrics);
    assert_memory_equal(first.gradient, again.gradient, r->n_tokens * sizeof(double));
    free(buffer);
    answer_free(&first), answer_free(&again);
    ragged_free(r);
}

static void a_wrong_shape_has_no_size(void **state) {
    const size_t falling[] = {0, 3, 2}, late[] = {1, 2, 3}, fine[] = {0, 1, 2}, groups[] = {0, 1}, hole[] = {0, 1, 1, 2};
    const double x[3] = {-1, -1, -1};
    const rein_options o = options_of("surrogate=clip");
    const rein_batch good = {.n_sequences = 2, .sequence_offsets = fine, .log_probs = x, .old_log_probs = x, .rewards = x};
    rein_batch b[6];
    (void)state;
    assert_int_not_equal(rein_step_size(&good, &o, NULL), 0);
    for (int i = 0; i < 6; i++) b[i] = good;
    b[0].sequence_offsets = falling, b[1].sequence_offsets = late, b[2].sequence_offsets = NULL, b[3].n_sequences = 0;
    b[4].group_offsets = groups, b[4].n_groups = 1;
    b[5].group_offsets = hole, b[5].n_groups = 3;
    for (int i = 0; i < 6; i++) {
        char buffer[256];
        rein_step *step;
        rein_error err = {0};
        assert_int_equal(rein_step_size(&b[i], &o, NULL), 0);
        assert_int_equal(rein_step_begin(&step, buffer, sizeof buffer, &b[i], &o, NULL, &err), REIN_EINVAL);
        assert_true(err.message[0] != 0);
    }
}

/* ---- the order of calls */
static void micro_batches_come_in_order(void **state) {
    const size_t offsets[] = {0, 1, 2, 3};
    const double lp[] = {-1, -2, -3}, rewards[] = {1, 2, 4};
    const rein_batch b = {.n_sequences = 3, .sequence_offsets = offsets, .log_probs = lp, .old_log_probs = lp, .rewards = rewards};
    const rein_options o = options_of("surrogate=clip aggregation=token-sum");
    const size_t size = rein_step_size(&b, &o, NULL);
    void *buffer = some(1, size);
    rein_step *step;
    rein_loss loss;
    rein_error err;
    double gradient[3] = {7, 7, 7};
    (void)state;
    assert_int_equal(rein_step_begin(&step, buffer, size, &b, &o, NULL, &err), REIN_OK);
    assert_int_equal(rein_step_finish(&loss, step, &err), REIN_OK); /* nothing added yet */
    assert_true(loss.loss == 0 && loss.metrics.trained_tokens == 0);
    assert_int_equal(rein_step_loss(step, 1, 2, NULL, NULL, gradient, NULL, NULL, &err), REIN_EINVAL); /* a gap */
    assert_int_equal(rein_step_loss(step, 0, 4, NULL, NULL, gradient, NULL, NULL, &err), REIN_EINVAL); /* past the end */
    assert_true(gradient[0] == 7 && gradient[1] == 7 && gradient[2] == 7);
    assert_int_equal(rein_step_loss(step, 0, 1, NULL, NULL, gradient, NULL, NULL, &err),
                     REIN_OK); /* it was the call that was wrong */
    assert_int_equal(rein_step_loss(step, 0, 1, NULL, NULL, gradient, NULL, NULL, &err), REIN_EINVAL); /* twice */
    assert_int_equal(rein_step_loss(step, 1, 0, NULL, NULL, gradient, NULL, NULL, &err), REIN_EINVAL); /* backwards */
    assert_int_equal(rein_step_loss(step, 1, 1, NULL, NULL, gradient, NULL, NULL, &err), REIN_OK);     /* nothing at all */
    assert_int_equal(rein_step_finish(&loss, step, &err), REIN_OK);                                    /* "so far" */
    assert_true(loss.loss == -1 && loss.metrics.trained_tokens == 1);
    assert_int_equal(rein_step_loss(step, 1, 3, NULL, NULL, gradient, NULL, NULL, &err), REIN_OK);
    assert_int_equal(rein_step_finish(&loss, step, &err), REIN_OK);
    assert_true(loss.loss == -7);
    assert_int_equal(rein_step_loss(step, 3, 3, NULL, NULL, gradient, NULL, NULL, &err), REIN_OK);
    assert_int_equal(rein_step_loss(step, 3, 4, NULL, NULL, gradient, NULL, NULL, &err), REIN_EINVAL);
    free(buffer);
}

/* Log-probs and entropies may come with the micro-batch, when nothing of the whole step reads them. */
static void arrays_may_come_with_the_micro_batch(void **state) {
    const size_t offsets[] = {0, 1, 2};
    const double lp[] = {-1, -2}, rewards[] = {1, 2}, entropies[] = {0.5, 0.25};
    rein_batch b = {.n_sequences = 2, .sequence_offsets = offsets, .old_log_probs = lp, .rewards = rewards};
    const rein_options o = options_of("surrogate=clip aggregation=token-sum entropy_coef=0.1"),
                       kl = options_of("surrogate=clip kl_penalty_coef=0.1"), top = options_of("surrogate=clip top_entropy=0.5"),
                       target = options_of("surrogate=clip entropy_coef=0.1 entropy_target=1");
    const size_t size = rein_step_size(&b, &o, NULL) + 4096;
    void *buffer = some(1, size);
    rein_step *step;
    rein_loss loss;
    rein_error err;
    double gradient[2], by_entropy[2];
    (void)state;
    if (rein_step_begin(&step, buffer, size, &b, &o, NULL, &err) != REIN_OK) fail_msg("%s", err.message);
    assert_int_equal(rein_step_loss(step, 0, 2, NULL, entropies, gradient, NULL, NULL, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "log_probs"));
    assert_int_equal(rein_step_loss(step, 0, 2, lp, NULL, gradient, NULL, NULL, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "entropies"));
    assert_int_equal(rein_step_loss(step, 0, 2, lp, entropies, gradient, by_entropy, NULL, &err), REIN_OK);
    assert_int_equal(rein_step_finish(&loss, step, &err), REIN_OK);
    assert_true(fabs(loss.loss - (-3 - 0.075)) < 1e-15 && by_entropy[0] == -0.1 && by_entropy[1] == -0.1);

    b.ref_log_probs = lp;
    assert_int_equal(rein_step_begin(&step, buffer, size, &b, &kl, NULL, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "log_probs"));
    assert_int_equal(rein_step_begin(&step, buffer, size, &b, &top, NULL, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "entropies"));
    assert_int_equal(rein_step_begin(&step, buffer, size, &b, &target, NULL, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "entropies"));
    free(buffer);
}

/* What the whole step decided at begin stays: log-probs that move between the micro-batches do not move the KL's average. */
static void the_step_is_decided_at_begin(void **state) {
    const size_t offsets[] = {0, 1, 2};
    double lp[] = {-1, -2}, later[] = {-1, -1.5}, advantages[2];
    const double rewards[] = {1, 2}, ref[] = {-1.5, -2};
    const rein_batch b = {.n_sequences = 2,
                          .sequence_offsets = offsets,
                          .log_probs = lp,
                          .old_log_probs = lp,
                          .ref_log_probs = ref,
                          .rewards = rewards};
    const rein_options o = options_of("surrogate=clip kl_penalty_coef=1");
    const size_t size = rein_step_size(&b, &o, NULL);
    void *buffer = some(1, size);
    rein_step *step;
    rein_error err;
    (void)state;
    assert_int_equal(rein_step_begin(&step, buffer, size, &b, &o, NULL, &err), REIN_OK);
    assert_int_equal(rein_step_loss(step, 0, 1, lp, NULL, NULL, NULL, advantages, &err), REIN_OK);
    assert_int_equal(rein_step_loss(step, 1, 2, later, NULL, NULL, NULL, advantages, &err), REIN_OK);
    assert_true(advantages[0] == 1 + (0.25 - 0.5));
    assert_true(advantages[1] == 2 + (0.25 - 0));
    free(buffer);
}

/* With token-sum and the raw reward a token's gradient does not depend on the rest of the batch: the first sequences alone must give the
 * same bits. */
static void the_rest_of_the_batch_changes_no_bit(void **state) {
    (void)state;
    const size_t length = 1021, many = 430, few = 50, tokens = many * length;
    float *lp = some(tokens, sizeof *lp), *old = some(tokens, sizeof *old), *ref = some(tokens, sizeof *ref);
    float *among_many = some(tokens, sizeof *among_many), *alone = some(few * length, sizeof *alone);
    double *rewards = some(many, sizeof *rewards);
    size_t *offsets = some(many + 1, sizeof *offsets);
    for (size_t t = 0; t < tokens; t++) {
        const uint32_t h = (uint32_t)t * 2654435761u;
        lp[t] = -(float)(h >> 16) / 65536;
        old[t] = lp[t] + (float)(h & 255) / 1024 - 0.125f;
        ref[t] = lp[t] - (float)(h >> 8 & 255) / 512 + 0.25f;
    }
    for (size_t i = 0; i <= many; i++) offsets[i] = i * length;
    for (size_t i = 0; i < many; i++) rewards[i] = (double)(i % 5) - 2;
    rein_options o;
    rein_loss loss;
    assert_int_equal(rein_options_init(&o, "none", NULL), REIN_OK);
    o.surrogate = REIN_SURROGATE_CLIP;
    o.aggregation = REIN_TOKEN_SUM;
    o.kl_loss_coef = 0.1;
    rein_batch b = {.n_sequences = many,
                    .sequence_offsets = offsets,
                    .dtype = REIN_F32,
                    .log_probs = lp,
                    .old_log_probs = old,
                    .ref_log_probs = ref,
                    .rewards = rewards};
    assert_int_equal(rein_policy_loss(&loss, among_many, NULL, NULL, &b, &o, NULL, NULL), REIN_OK);
    b.n_sequences = few;
    assert_int_equal(rein_policy_loss(&loss, alone, NULL, NULL, &b, &o, NULL, NULL), REIN_OK);
    assert_memory_equal(among_many, alone, few * length * sizeof *alone);
    free(lp), free(old), free(ref), free(among_many), free(alone), free(rewards), free(offsets);
}

static void a_machine_that_is_not_there(void **state) {
    const size_t offsets[] = {0, 1};
    const double x = -1;
    const rein_batch b = {.n_sequences = 1, .sequence_offsets = offsets, .log_probs = &x, .old_log_probs = &x, .rewards = &x};
    const rein_options o = options_of("surrogate=clip");
    const rein_exec fewer = {.threads = -1}, other = {.isa = (rein_isa)99};
    rein_loss loss;
    rein_error err;
    (void)state;
    assert_int_equal(rein_policy_loss(&loss, NULL, NULL, NULL, &b, &o, &fewer, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "threads"));
    assert_int_equal(rein_policy_loss(&loss, NULL, NULL, NULL, &b, &o, &other, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "isa"));
}

/* Advantages made elsewhere, here by rein_advantages, do what those made inside do, to the last rounding; no reward is needed. */
static void given_advantages_change_nothing(void **state) {
    static const char *const settings[] = {
        "preset=grpo", "preset=ppo", "preset=rloo", "preset=cispo advantage_balance=0.5", "preset=art kl_penalty_coef=0.1",
        "preset=gspo"};
    (void)state;
    for (size_t c = 0; c < sizeof settings / sizeof *settings; c++) {
        rng g = rng_of(77, c);
        ragged *r = ragged_new(little);
        ragged_fill(r, &g, little);
        rein_options o = options_of(settings[c]);
        rein_batch b = ragged_batch(r, &o, REIN_F64);
        answer inside = answer_new(r->n_tokens), given = answer_new(r->n_tokens);
        double *advantages = some(r->n_tokens, sizeof *advantages);
        rein_error err;
        run(&inside, &b, &o, NULL, 0, &g, 1);
        assert_int_equal(rein_advantages(advantages, &b, &o, &err), REIN_OK);
        for (size_t t = 0; t < r->n_tokens; t++)
            if (!r->mask[t]) advantages[t] = rng_rubbish(&g);
        assert_int_equal(rein_options_set(&o, "advantage", "given", &err), REIN_OK);
        if (o.advantage_balance != 0)
            assert_int_equal(rein_options_set(&o, "advantage_balance", "0", &err), REIN_OK); /* it acted */
        b.advantages = advantages, b.rewards = NULL, b.values = NULL;
        run(&given, &b, &o, NULL, 0, &g, 1);
        const double *const one = (const double *)(const void *)inside.gradient, *const two =
                                                                                     (const double *)(const void *)given.gradient;
        for (size_t t = 0; t < r->n_tokens; t++) assert_true(fabs(one[t] - two[t]) <= 1e-15 * fabs(one[t]) + 1e-18);
        assert_true(fabs(inside.loss.loss - given.loss.loss) <= 1e-14);
        assert_true(given.loss.metrics.reward == 0);
        free(advantages), answer_free(&inside), answer_free(&given), ragged_free(r);
    }
}

/* The balance acts on given advantages too, and leaves the caller's alone. */
static void given_advantages_are_balanced(void **state) {
    const double lp[] = {-1, -1, -1}, advantages[] = {2, -2, 4};
    const size_t offsets[] = {0, 3};
    const rein_options o = options_of("advantage=given advantage_balance=0.25 aggregation=token-sum");
    const rein_batch b = {.n_sequences = 1, .sequence_offsets = offsets, .log_probs = lp, .advantages = advantages};
    double gradient[3], seen[3];
    rein_loss loss;
    (void)state;
    assert_int_equal(rein_policy_loss(&loss, gradient, NULL, seen, &b, &o, NULL, NULL), REIN_OK);
    assert_true(seen[0] == 2 && seen[1] == -1.5 && seen[2] == 4);
    assert_true(gradient[0] == -2 && gradient[1] == 1.5 && gradient[2] == -4);
    assert_true(advantages[1] == -2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(micro_batches_change_no_bit),
        cmocka_unit_test(ranks_change_no_bit),
        cmocka_unit_test(shares_are_checked),
        cmocka_unit_test(instruction_sets_change_no_bit),
        cmocka_unit_test(the_loop_of_a_common_composition_changes_no_bit),
        cmocka_unit_test(a_step_of_masked_sequences),
        cmocka_unit_test(instruction_sets_agree_on_extremes),
        cmocka_unit_test(outputs_asked_for_change_no_number),
        cmocka_unit_test(named_operations_too),
        cmocka_unit_test(the_size_asked_for_suffices_and_a_byte_less_does_not),
        cmocka_unit_test(a_workspace_may_be_used_again),
        cmocka_unit_test(a_wrong_shape_has_no_size),
        cmocka_unit_test(micro_batches_come_in_order),
        cmocka_unit_test(arrays_may_come_with_the_micro_batch),
        cmocka_unit_test(the_step_is_decided_at_begin),
        cmocka_unit_test(the_rest_of_the_batch_changes_no_bit),
        cmocka_unit_test(a_machine_that_is_not_there),
        cmocka_unit_test(given_advantages_change_nothing),
        cmocka_unit_test(given_advantages_are_balanced),
    };
    return cmocka_run_group_tests_name("one answer", tests, NULL, NULL);
}
