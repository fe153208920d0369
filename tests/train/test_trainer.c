/* test_trainer.c - the gradient of a pass against central differences, and its bits: they depend on nothing but what they may depend on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/trainer.h"
#include "train/trainer_fixture.h"

#include "support/allocation.h"

static const rein_adamw ADAMW = {0.05, 0.9, 0.99, 1e-8, 0.01, 1};

static rein_pass_result pass_over(rein_trainer *t, const rein_groups *groups, const rein_pass_options *options) {
    rein_pass_result pass;
    OK(rein_trainer_forward_backward(&pass, t, groups, options, &error_));
    return pass;
}

/* The sum of the shards, in double. */
static double *gradient_of(const rein_trainer *t) {
    double *sum = some(t->floats, sizeof *sum);
    for (size_t s = 0; s < t->options.shards; s++)
        for (size_t i = 0; i < t->floats; i++) sum[i] += (double)t->buffers[s * t->floats + i];
    return sum;
}

/* ---- gradients. Old log-probs, advantages and whatever else is not differentiated are frozen where they are: the derivative of the loss
 * along a direction is Σ_t d loss/d log_prob_t · (log_prob_t(θ + hv) − log_prob_t(θ − hv))/2h, and the same for entropies; with Richardson's
 * extrapolation from h and 2h, because f32 allows no small h. d loss/d log_prob is rein_policy_loss's, in f64. */
typedef struct probe {
    subject *s;
    const rein_groups *groups;
    const expected *e;
    const rein_options *o;
    rein_parameter *parameter;
    float *before;
    double *direction;
    int whole; /* the loss itself is differenced, nothing is frozen */
} probe;

static double loss_at(const probe *p, double h) {
    float *log_probs = floats(p->e->tokens), *entropies = floats(p->e->tokens);
    double sum = 0;
    for (size_t i = 0; i < p->parameter->size; i++) p->parameter->value[i] = (float)((double)p->before[i] + h * p->direction[i]);
    OK(rein_parameters_changed(p->s->model, p->s->adapter, &error_));
    alone(log_probs, entropies, p->groups, &p->s->p);
    if (p->whole) {
        rein_loss loss;
        rein_batch batch = batch_of(p->e, p->groups->n);
        double *lp, *entropy;
        widen(&lp, p->e->tokens, log_probs), widen(&entropy, p->e->tokens, entropies);
        batch.log_probs = lp, batch.entropies = entropy;
        OK(rein_policy_loss(&loss, NULL, NULL, NULL, &batch, p->o, NULL, &error_));
        sum = loss.loss;
        free(lp), free(entropy);
    } else
        for (size_t i = 0; i < p->e->tokens; i++)
            if (p->e->mask[i]) sum += p->e->dlog_probs[i] * (double)log_probs[i] + p->e->dentropies[i] * (double)entropies[i];
    free(log_probs), free(entropies);
    return sum;
}

static double slope(const probe *p) {
    const double h = 8e-3, near = (loss_at(p, h) - loss_at(p, -h)) / (2 * h);
    const double far = (loss_at(p, 2 * h) - loss_at(p, -2 * h)) / (4 * h);
    return (4 * near - far) / 3;
}

/* Every array along a random direction. Returns the greatest error, relative to the norm of the whole gradient. */
static double worst_slope(subject *s, rein_trainer *t, const rein_groups *groups, const expected *e, const rein_options *o,
                          int whole) {
    double *gradient = gradient_of(t), norm = 0, worst = 0;
    for (size_t i = 0; i < t->floats; i++) norm += gradient[i] * gradient[i];
    norm = sqrt(norm);
    assert_true(norm > 1e-4);
    for (size_t a = 0; a < t->n_parameters; a++) {
        rein_parameter *parameter = &t->parameters[a];
        const double *g = gradient + (parameter->value - t->values);
        probe p = {s, groups, e, o, parameter, floats(parameter->size), some(parameter->size, sizeof(double)), whole};
        double by_gradient = 0, size = 0;
        memcpy(p.before, parameter->value, parameter->size * sizeof(float));
        for (size_t i = 0; i < parameter->size; i++) p.direction[i] = number(), size += p.direction[i] * p.direction[i];
        for (size_t i = 0; i < parameter->size; i++) p.direction[i] /= sqrt(size), by_gradient += g[i] * p.direction[i];
        const double error = fabs(slope(&p) - by_gradient) / norm;
        if (!(error <= worst)) worst = error;
        memcpy(parameter->value, p.before, parameter->size * sizeof(float));
        free(p.before), free(p.direction);
    }
    OK(rein_parameters_changed(s->model, s->adapter, &error_));
    free(gradient);
    return worst;
}

/* Settings; whether nothing but the ratio's old log-probs is frozen in them; whether truncated responses are masked. */
static const struct composition {
    const char *settings;
    int whole, mask_truncated;
} COMPOSITIONS[] = {
    {"preset=grpo", 1, 0},
    {"preset=grpo kl_estimator=is-k3 kl_loss_coef=0.5", 1, 1},
    {"preset=k2 tau=0.3 token_budget=4 budget_penalty_coef=0.1", 1, 0},
    {"preset=k2 tau=0.3 token_budget=4 budget_penalty_coef=0.1 kl_penalty_coef=0.2", 0, 0},
    {"preset=cispo", 0, 0},
    {"preset=art", 0, 1},
    {"preset=art kl_penalty_coef=0.5", 0, 0},
    {"preset=art kl_penalty_coef=0.5 kl_scope=group kl_penalty_source=sample", 0, 0},
    {"preset=art kimi_k2_tau=0.4", 0, 0},
    {"preset=gspo", 0, 0},
    {"preset=gspo epsilon=0.5 epsilon_high=0.5", 1, 1},
    {"preset=gspo kl_penalty_coef=0.3 kl_scope=group", 0, 0},
    {"preset=dapo overlong_max=8 overlong_cushion=4", 1, 0},
    {"preset=dapo overlong_max=8 overlong_cushion=4 entropy_coef=0.1", 1, 0},
    {"preset=dapo overlong_max=8 overlong_cushion=4 entropy_coef=0.1 kl_reward_coef=0.2", 0, 1},
    {"preset=grpo top_entropy=0.5", 0, 0},
    {"preset=grpo mismatch=token-tis tis_cap=1.02", 0, 0},
    {"preset=grpo mismatch=sequence-mask mismatch_low=0.9 mismatch_high=1.1", 0, 0},
    {"preset=rloo", 0, 0},
    {"preset=reinforce++", 0, 0},
    {"preset=ppo", 1, 0},
};

static void test_gradients(void **state) {
    (void)state;
    double worst = 0;
    for (int full = 0; full < 2; full++) {
        subject s = open_subject("a", full), other = open_subject("b", full);
        rein_trainer *t = open_trainer(&s, NULL);
        rein_groups groups = make_groups(3, 5);
        record(&groups, &s.p, 0.08);
        add_values(&groups);
        for (size_t i = 0; i < COUNT(COMPOSITIONS); i += quick() ? 3 : 1) {
            const struct composition *c = &COMPOSITIONS[i];
            const rein_pass_options o = {.objective = options_of(c->settings),
                                         .reference = &other.p,
                                         .policy_step = -1,
                                         .mask_truncated_completions = c->mask_truncated};
            const rein_pass_result pass = pass_over(t, &groups, &o);
            expected e = expect(&groups, &s.p, &other.p, o.objective, c->mask_truncated);
            if (!(fabs(pass.loss.loss - e.loss.loss) <= 1e-6 * (1 + fabs(e.loss.loss))))
                fail_msg("%s: the loss is %.9g, not %.9g", c->settings, pass.loss.loss, e.loss.loss);
            assert_true(pass.loss.metrics.trained_tokens == e.loss.metrics.trained_tokens && pass.nothing_to_train == 0);
            for (int whole = 0; whole <= c->whole; whole++) {
                const double error = worst_slope(&s, t, &groups, &e, o.objective, whole);
                if (!(error < 3e-4)) fail_msg("%s, %s: off by %g of the gradient", c->settings, full ? "full" : "LoRA", error);
                if (error > worst) worst = error;
            }
            rein_trainer_clear(t);
            free_expected(&e);
        }
        rein_groups_free(&groups);
        rein_trainer_close(t);
        close_subject(&s), close_subject(&other);
    }
    print_message("worst error of a derivative: %.2g of the gradient's norm\n", worst);
}

/* A temperature is part of the policy. */
static void test_temperature(void **state) {
    (void)state;
    subject s = open_subject("a", 0);
    s.p.temperature = 0.7;
    rein_trainer *t = open_trainer(&s, NULL);
    rein_groups groups = make_groups(2, 8);
    record(&groups, &s.p, 0.05);
    const rein_pass_options o = {.objective = options_of("preset=art"), .policy_step = -1};
    expected e = expect(&groups, &s.p, NULL, o.objective, 0);
    pass_over(t, &groups, &o);
    assert_true(worst_slope(&s, t, &groups, &e, o.objective, 0) < 3e-4);
    rein_trainer *other = open_trainer(&s, &(rein_trainer_options){.temperature = 1}); /* the same, given to the pass */
    pass_over(other, &groups, &(rein_pass_options){.objective = o.objective, .policy_step = -1, .temperature = 0.7});
    assert_memory_equal(other->buffers, t->buffers, t->options.shards * t->floats * sizeof *t->buffers);
    rein_pass_result pass;
    const rein_pass_options wrong = {.objective = o.objective, .policy_step = -1, .temperature = -1};
    REFUSED(rein_trainer_forward_backward(&pass, other, &groups, &wrong, &error_), "temperature is -1");
    rein_trainer_close(other);
    free_expected(&e), rein_groups_free(&groups), rein_trainer_close(t), close_subject(&s);
}

/* ---- bits */
static const char *const EVERYTHING =
    "preset=dapo overlong_max=8 overlong_cushion=4 entropy_coef=0.1 kl_loss_coef=0.3 kl_estimator=k3";

/* Shards after one pass by a trainer of these options; the caller frees them. */
static float *shards_of(const subject *s, const rein_trainer_options *options, const rein_groups *groups,
                        const rein_pass_options *o) {
    rein_trainer *t = open_trainer(s, options);
    const size_t n = t->options.shards * t->floats;
    pass_over(t, groups, o);
    float *copy = floats(n);
    memcpy(copy, t->buffers, n * sizeof *copy);
    rein_trainer_close(t);
    return copy;
}

static void test_threads_and_instruction_sets(void **state) {
    (void)state;
    for (int full = 0; full < 2; full++) {
        subject s = open_subject("a", full), other = open_subject("b", full);
        const size_t size = rein_parameter_floats(s.model, s.adapter) * sizeof(float);
        rein_groups groups = make_groups(5, 6);
        record(&groups, &s.p, 0.1);
        const rein_pass_options o = {.objective = options_of(EVERYTHING), .reference = &other.p, .policy_step = -1};
        float *first = NULL;
        for (int isa = REIN_ISA_REF; isa < REIN_ISA_COUNT; isa++)
            for (int threads = 1; threads <= 3 && rein_isa_available((rein_isa)isa); threads++) {
                const rein_trainer_options options = {.temperature = 1, .shards = 3, .exec = {threads, (rein_isa)isa}};
                float *shards = shards_of(&s, &options, &groups, &o);
                if (!first) first = shards;
                else assert_memory_equal(shards, first, 3 * size), free(shards);
            }
        free(first), rein_groups_free(&groups), close_subject(&s), close_subject(&other);
    }
}

/* Whatever a trainer did before, and however much memory it has: the same groups give the same bits. */
static void test_history_of_the_trainer(void **state) {
    (void)state;
    subject s = open_subject("a", 0);
    rein_groups groups = make_groups(3, 7), large = make_groups(20, 3), small = make_groups(1, 2);
    record(&groups, &s.p, 0.1), record(&large, &s.p, 0.1), record(&small, &s.p, 0.1);
    const rein_pass_options o = {.objective = options_of("preset=art"), .policy_step = -1};
    float *first = shards_of(&s, NULL, &groups, &o);
    rein_trainer *t = open_trainer(&s, NULL);
    const rein_groups *before[] = {&large, &small, &groups};
    for (size_t i = 0; i < COUNT(before); i++) {
        pass_over(t, before[i], &o);
        rein_trainer_clear(t);
        pass_over(t, &groups, &o);
        assert_memory_equal(t->buffers, first, t->options.shards * t->floats * sizeof *first);
        rein_trainer_clear(t);
    }
    rein_trainer_close(t);
    free(first), rein_groups_free(&groups), rein_groups_free(&large), rein_groups_free(&small), close_subject(&s);
}

static double distance(const float *a, const float *b, size_t n) {
    double sum = 0, size = 0;
    for (size_t i = 0; i < n; i++)
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]), size += (double)b[i] * (double)b[i];
    return sqrt(sum / size);
}

/* Sharing a prompt changes no log-prob, and gradients only by rounding; recomputing changes nothing. */
static void test_sharing_and_recomputing(void **state) {
    (void)state;
    for (int full = 0; full < 2; full++) {
        subject s = open_subject("a", full), other = open_subject("b", full);
        rein_groups groups = make_groups(4, 11);
        record(&groups, &s.p, 0.1);
        const rein_pass_options o = {.objective = options_of(EVERYTHING), .reference = &other.p, .policy_step = -1};
        const size_t floats_of = rein_parameter_floats(s.model, s.adapter), n = tokens_of(&groups);
        float *alone_ = floats(n), *entropies = floats(n), *together = floats(n), *of_together = floats(n);
        float *gradients[6];
        const rein_trainer_options kinds[6] = {{.temperature = 1, .shards = 1},
                                               {.temperature = 1, .shards = 1, .recompute = 1},
                                               {.temperature = 1, .shards = 1, .no_sharing = 1},
                                               {.temperature = 1, .shards = 1, .no_sharing = 1, .recompute = 1},
                                               {.temperature = 1, .shards = 1, .share_limit = 2},
                                               {.temperature = 1, .shards = 1, .share_limit = 1}};
        alone(alone_, entropies, &groups, &s.p);
        for (size_t k = 0; k < 6; k++) {
            rein_trainer *t = open_trainer(&s, &kinds[k]);
            OK(rein_trainer_log_probs(together, of_together, t, NULL, &groups, &error_));
            assert_memory_equal(together, alone_, n * sizeof *together);
            assert_memory_equal(of_together, entropies, n * sizeof *together);
            rein_trainer_close(t);
            gradients[k] = shards_of(&s, &kinds[k], &groups, &o);
        }
        assert_memory_equal(gradients[0], gradients[1], floats_of * sizeof(float));
        assert_memory_equal(gradients[2], gradients[3], floats_of * sizeof(float));
        for (size_t k = 2; k < 6; k++) assert_true(distance(gradients[k], gradients[0], floats_of) < 1e-6);
        assert_memory_not_equal(gradients[4], gradients[0], floats_of * sizeof(float)); /* part of the bits, as the header says */
        for (size_t k = 0; k < 6; k++) free(gradients[k]);
        free(alone_), free(entropies), free(together), free(of_together), rein_groups_free(&groups);
        close_subject(&s), close_subject(&other);
    }
}

/* Recomputing is for memory: it takes less of it, in a model of many layers. */
static void test_memory_of_recomputing(void **state) {
    (void)state;
    const rein_pass_options o = {.objective = options_of("preset=art"), .policy_step = -1};
    const tiny deep = {"llama", "LlamaForCausalLM", 12, 0, REIN_TENSOR_F32, 0};
    tiny_model(&deep, sub_folder("deep"));
    subject s = open_subject("deep", 0);
    rein_groups groups = {0};
    rein_trajectory *trajectories = group_of(&groups, 4);
    size_t bytes[2];
    for (size_t i = 0; i < 4; i++) add_history(&trajectories[i], &(int32_t){1}, 1, 500), trajectories[i].reward = (double)i;
    for (int recompute = 0; recompute < 2; recompute++) {
        rein_trainer *t = open_trainer(&s, &(rein_trainer_options){.recompute = recompute});
        pass_over(t, &groups, &o);
        bytes[recompute] = rein_activations_bytes(t->activations);
        rein_trainer_close(t);
    }
    print_message("activations of 2000 tokens: %zu bytes, with recomputing %zu\n", bytes[0], bytes[1]);
    assert_true(2 * bytes[1] < bytes[0]);
    rein_groups_free(&groups), close_subject(&s);
}

/* Group g goes to shard g modulo their number, over calls; the sum is ((0+1)+(2+3))+((4+5)+…). */
static float tree(const float *shards, size_t first, size_t n, size_t floats_of, size_t i) {
    if (n == 1) return shards[first * floats_of + i];
    size_t half = 1;
    while (2 * half < n) half *= 2;
    return tree(shards, first, half, floats_of, i) + tree(shards, first + half, n - half, floats_of, i);
}

static void test_shards(void **state) {
    (void)state;
    const size_t numbers[] = {1, 2, 3, 5, 8, 13};
    for (size_t k = 0; k < COUNT(numbers); k++) {
        subject s = open_subject("a", 0);
        rein_groups groups = make_groups(11, 12);
        record(&groups, &s.p, 0.1);
        /* token-sum has no normaliser, and no stage looks beyond its group: groups one by one add up to the same */
        const rein_pass_options o = {.objective = options_of("preset=art aggregation=token-sum"), .policy_step = -1};
        const rein_trainer_options options = {.temperature = 1, .shards = numbers[k]};
        rein_trainer *t = open_trainer(&s, &options), *one_by_one = open_trainer(&s, &options);
        const size_t n = t->options.shards * t->floats;
        pass_over(t, &groups, &o);
        for (size_t g = 0; g < groups.n; g++) pass_over(one_by_one, &(rein_groups){groups.groups + g, 1, 0}, &o);
        assert_memory_equal(one_by_one->buffers, t->buffers, n * sizeof(float));
        float *shards = floats(n), *sum = floats(t->floats), *values = values_of(&s);
        memcpy(shards, t->buffers, n * sizeof(float));
        for (size_t i = 0; i < t->floats; i++) sum[i] = tree(shards, 0, numbers[k], t->floats, i);
        double norm, squares = 0;
        OK(rein_trainer_optim_step(&norm, t, &ADAMW, &error_));
        for (size_t i = 0; i < t->floats; i++) squares += (double)sum[i] * (double)sum[i];
        assert_true(fabs(norm - sqrt(squares)) < 1e-9 * norm);
        float *first = floats(t->floats), *second = floats(t->floats), *now = values_of(&s); /* a step of AdamW on that sum */
        rein_parameter *parameters = some(t->n_parameters, sizeof *parameters);
        int64_t step = 0;
        for (size_t i = 0; i < t->n_parameters; i++) {
            parameters[i] = t->parameters[i];
            const size_t at = (size_t)(t->parameters[i].value - t->values);
            parameters[i].gradient = sum + at, parameters[i].value = values + at;
        }
        OK(rein_adamw_step(NULL, first, second, &step, parameters, t->n_parameters, &ADAMW, NULL, &error_));
        assert_memory_equal(now, values, t->floats * sizeof(float));
        assert_memory_equal(t->first, first, t->floats * sizeof(float));
        assert_memory_equal(t->second, second, t->floats * sizeof(float));
        for (size_t i = 0; i < n; i++) assert_true(t->buffers[i] == 0);
        free(shards), free(sum), free(values), free(first), free(second), free(now), free(parameters);
        rein_trainer_close(t), rein_trainer_close(one_by_one), rein_groups_free(&groups), close_subject(&s);
    }
}

/* ---- every allocation of a pass */
typedef struct starved {
    const subject *s, *other;
    const rein_groups *groups;
    const rein_options *objective;
} starved;

static rein_status one_pass(void *context, rein_error *err) {
    const starved *w = context;
    const rein_pass_options o = {.objective = w->objective, .reference = &w->other->p, .policy_step = -1};
    const rein_trainer_options options = {.temperature = 1, .exec = {.threads = 1}};
    rein_trainer *t;
    rein_pass_result pass;
    rein_status status = rein_trainer_open(&t, w->s->model, w->s->adapter, &options, err);
    if (status) return assert_null(t), status;
    status = rein_trainer_forward_backward(&pass, t, w->groups, &o, err);
    for (size_t i = 0; status && i < t->options.shards * t->floats; i++) assert_true(t->buffers[i] == 0);
    assert_true(t->holds == (status == REIN_OK));
    rein_trainer_close(t);
    return status;
}

static void test_memory(void **state) {
    (void)state;
    if (!can_fail()) skip();
    subject s = open_subject("a", 0), other = open_subject("b", 0);
    rein_groups groups = make_groups(3, 5);
    record(&groups, &s.p, 0.1);
    starved work = {&s, &other, &groups, options_of(EVERYTHING)};
    (void)fail_each_allocation; /* too strict: an arena that cannot have much asks for less */
    once = 0;
    const long n = fail_each(one_pass, &work);
    once = failures = 1;
    for (long k = 0; failures; k++) {
        rein_error err = {0};
        left = k, failures = 0;
        const rein_status status = one_pass(&work, &err);
        left = -1;
        assert_true(status == REIN_OK || (status == REIN_ENOMEM && failures && *err.message));
    }
    print_message("a trainer and a pass: %ld allocations\n", n);
    assert_true(n > 5);
    rein_groups_free(&groups), close_subject(&s), close_subject(&other);
}

static int start(void **state) {
    const int status = make_folder(state);
    if (!status) make_models();
    return status;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_temperature),
        cmocka_unit_test(test_threads_and_instruction_sets),
        cmocka_unit_test(test_history_of_the_trainer),
        cmocka_unit_test(test_sharing_and_recomputing),
        cmocka_unit_test(test_memory_of_recomputing),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, start, remove_folder);
}
