/* test_expert_load.c - the balance of experts: values of transformers for two small models, how it adds up, and where it is bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/activations.h"
#include "model/engine_fixture.h"

/* aux_loss (load_balancing_loss_func) of transformers 5.22 in float64 with output_router_logits on the ids (7·i + 3) mod vocabulary of 40 tokens, and
 * the other three computed in torch from its router_logits. */
static const struct {
    const char *model;
    rein_expert_balance wanted;
} goldens[] = {
    {"qwen3_moe", {1.75, 0.3395163674499715, 1.2052788478802174, 2.1077933311462402}},
    {"olmoe", {1.6875, 0.3523983456480298, 1.2941844173782533, 2.0433454513549805}},
};

static void assert_near(const char *what, double got, double wanted) {
    if (!(fabs(got - wanted) < 2e-6)) fail_msg("%s is %.9g, not %.9g", what, got, wanted);
}

static void same_balance(rein_expert_balance got, rein_expert_balance wanted) {
    assert_near("load_max", got.load_max, wanted.load_max);
    assert_near("load_cv", got.load_cv, wanted.load_cv);
    assert_near("entropy", got.entropy, wanted.entropy);
    assert_near("balance_loss", got.balance_loss, wanted.balance_loss);
}

/* One sequence with one token more than the goldens have, because the last is only a target. */
static rein_expert_balance balance_of(const char *name, int passes, const rein_forward_options *how) {
    rein_model *model = open_model(fixture(name, ""), 1);
    const rein_policy policy = {model, NULL, 1};
    rein_activations *a;
    rein_expert_load *load;
    batch *b = batch_new();
    pass p = {0};
    OK(rein_activations_open(&a, NULL, &error_));
    OK(rein_expert_load_open(&load, &model->config, &error_));
    a->load = load;
    add_segment(b, -1);
    for (int i = 0; i < 41; i++) add_token(b, (i * 7 + 3) % (int32_t)model->config.vocab_size, 1, 1, 0, -1);
    for (int i = 0; i < passes; i++) run_pass(&p, a, &policy, b, how);
    const rein_expert_balance balance = rein_expert_load_balance(load);
    rein_expert_load_clear(load);
    assert_true(isnan(rein_expert_load_balance(load).load_max) && isnan(rein_expert_load_balance(load).balance_loss));
    rein_expert_load_close(load);
    rein_activations_close(a);
    pass_free(&p);
    free(b);
    rein_model_close(model);
    return balance;
}

static void test_goldens(void **state) {
    (void)state;
    const rein_forward_options keep = {.keep = 1}, recompute = {.keep = 1, .recompute = 1};
    for (size_t i = 0; i < COUNT(goldens); i++) {
        same_balance(balance_of(goldens[i].model, 1, &keep), goldens[i].wanted);
        same_balance(balance_of(goldens[i].model, 2, &recompute), goldens[i].wanted);
    }
}

/* A uniform choice, and one that names the same two experts always; a layer without experts does not count. */
static void test_bounds(void **state) {
    (void)state;
    rein_expert_load *load;
    const rein_model_config c = {.n_layers = 3, .n_experts = 4, .experts_per_token = 2};
    const float flat[8] = {0.25f, 0.25f, 0.25f, 0.25f, 0.25f, 0.25f, 0.25f, 0.25f}, sharp[8] = {0.5f, 0.5f, 0, 0, 0.5f, 0.5f, 0, 0};
    const size_t all[4] = {0, 1, 2, 3}, same[4] = {0, 1, 0, 1};
    OK(rein_expert_load_open(&load, &c, &error_));
    rein_expert_load_add(load, 0, flat, all, 2);
    same_balance(rein_expert_load_balance(load), (rein_expert_balance){1, 0, log(4), 2});
    rein_expert_load_clear(load);
    rein_expert_load_add(load, 2, sharp, same, 2);
    same_balance(rein_expert_load_balance(load), (rein_expert_balance){2, 1, log(2), 4});
    rein_expert_load_add(load, 0, flat, all, 2); /* f = ¾ ¾ ¼ ¼, P = ⅜ ⅜ ⅛ ⅛ */
    same_balance(rein_expert_load_balance(load), (rein_expert_balance){2, 0.5, (log(4) + log(2)) / 2, 2.5});
    rein_expert_load_close(load);
    OK(rein_expert_load_open(&load, &(rein_model_config){.n_layers = 2}, &error_));
    assert_null(load);
    rein_expert_load_close(load);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_goldens), cmocka_unit_test(test_bounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
