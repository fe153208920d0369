/* test_four.c - the four named operations and the controllers: the worked values of the specification, naive references in long double,
 * every error by field and position, and outputs that stay as they were when a call fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rein/rein.h"
#include "support/check.h"
#include "support/random.h"

#define NOT_A_NUMBER ((double)NAN)
#define INFINITE ((double)INFINITY)

static void near_to(double got, double expected, double tolerance) {
    if (!(fabs(got - expected) <= tolerance)) fail_msg("%.17g is not %.17g (off by %.3g)", got, expected, fabs(got - expected));
}

/* An error whose message holds each of the texts; it is one line and has no full stop. */
static void is_error(rein_status got, rein_status expected, const rein_error *err, const char *text, const char *more) {
    if (got != expected) fail_msg("status %d, not %d, where \"%s\" is wrong", (int)got, (int)expected, text);
    assert_int_equal(err->code, expected);
    if (!strstr(err->message, text) || (more && !strstr(err->message, more)))
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", err->message, text, more ? more : "");
    assert_null(strchr(err->message, '\n'));
    assert_int_not_equal(err->message[strlen(err->message) - 1], '.');
}

/* x as a float and what the double twin is given in its place. A call on purpose: inlined, gcc 12.2's -O3 forgets to round some of them. */
__attribute__((noinline)) static double narrow(float *to, double x) {
    *to = (float)x;
    return (double)*to;
}
/* ---------------------------------------------------------------------------------------------------------------- budget loss */

typedef struct budget_case {
    size_t n_prompts;
    size_t offsets[8];
    double rewards[24], lp[24], old[24];
    int64_t lengths[24], budgets[24];
    rein_budget budget;
} budget_case;

static rein_status budget_loss(const budget_case *c, double *loss, double *adjusted, double *advantages, double *baselines,
                               double *grad, rein_error *err) {
    return rein_budget_loss(loss, adjusted, advantages, baselines, grad, c->rewards, c->lp, c->old, c->lengths, c->offsets,
                            c->n_prompts, &c->budget, NULL, err);
}

static void check_worked_budget(const budget_case *c, double loss, const char *shown) {
    double got;
    char text[32];
    rein_error err;
    assert_int_equal(budget_loss(c, &got, NULL, NULL, NULL, NULL, &err), REIN_OK);
    near_to(got, loss, 1e-12 * loss);
    snprintf(text, sizeof text, "%.4f", got);
    assert_string_equal(text, shown);
}

static void test_budget_worked(void **state) {
    (void)state;
    const budget_case first = {1,
                               {0, 2},
                               {1, .5},
                               {-1, -1.5},
                               {-1.2, -1.3},
                               {150, 80},
                               {0},
                               {.token_budget = 100, .kl_coef = .1, .budget_penalty_coef = .01}};
    const budget_case second = {1,          {0, 2},   {1, 2}, {-.5, -.8},
                                {-.5, -.8}, {50, 60}, {0},    {.token_budget = 100, .kl_coef = .1, .budget_penalty_coef = .01}};
    const budget_case third = {2,
                               {0, 2, 4},
                               {1, .5, .8, 1.2},
                               {-1, -1.2, -.8, -.9},
                               {-1.1, -1.1, -.7, -1},
                               {120, 80, 90, 110},
                               {0},
                               {.token_budget = 100, .kl_coef = .05, .budget_penalty_coef = .02}};
    check_worked_budget(&first, .0004, "0.0004");
    check_worked_budget(&second, .25, "0.2500");
    check_worked_budget(&third, .005525, "0.0055");
    /* the first: both adjusted rewards are 0.5, so both advantages are exactly 0 and the loss is the KL part alone */
    double loss, adjusted[2], advantages[2], baseline, grad[2];
    assert_int_equal(budget_loss(&first, &loss, adjusted, advantages, &baseline, grad, NULL), REIN_OK);
    assert_true(adjusted[0] == .5 && adjusted[1] == .5 && baseline == .5 && advantages[0] == 0 && advantages[1] == 0);
    near_to(grad[0], .002, 1e-17);
    near_to(grad[1], -.002, 1e-17);
}

static budget_case random_budget_case(rein_budget_rule rule) {
    budget_case c = {.n_prompts = 1 + below(7)};
    for (size_t p = 0; p < c.n_prompts; p++) c.offsets[p + 1] = c.offsets[p] + 1 + below(3);
    for (size_t i = 0; i < c.offsets[c.n_prompts]; i++) {
        c.rewards[i] = uniform(-1, 2);
        c.lp[i] = uniform(-30, -1);
        c.old[i] = c.lp[i] + uniform(-2, 2);
        c.lengths[i] = (int64_t)below(200);
        c.budgets[i] = (int64_t)below(200);
    }
    c.budget = (rein_budget){.token_budget = uniform(0, 200), .kl_coef = uniform(0, 1), .rule = rule};
    *(rule == REIN_BUDGET_LINEAR ? &c.budget.budget_penalty_coef : &c.budget.budget_penalty) = uniform(0, .1);
    return c;
}

/* The formulas, as they stand. */
static void naive_budget(const budget_case *c, int each, long double *loss, long double *adjusted, long double *advantages,
                         long double *baselines, long double *grad) {
    const size_t n = c->offsets[c->n_prompts];
    *loss = 0;
    for (size_t p = 0; p < c->n_prompts; p++) {
        const size_t first = c->offsets[p], last = c->offsets[p + 1];
        baselines[p] = 0;
        for (size_t i = first; i < last; i++) {
            const long double limit = each ? (long double)c->budgets[i] : (long double)c->budget.token_budget,
                              length = (long double)c->lengths[i];
            const long double over = length > limit ? length - limit : 0;
            adjusted[i] = (long double)c->rewards[i] - (long double)c->budget.budget_penalty_coef * over;
            if (c->budget.rule == REIN_BUDGET_TRUNCATE)
                adjusted[i] = over > 0 ? -(long double)c->budget.budget_penalty : (long double)c->rewards[i];
            baselines[p] += adjusted[i] / (long double)(last - first);
        }
        for (size_t i = first; i < last; i++) {
            const long double tau = c->budget.kl_coef;
            advantages[i] = last - first == 1 ? 0 : adjusted[i] - baselines[p];
            const long double gap = advantages[i] - tau * ((long double)c->lp[i] - (long double)c->old[i]);
            *loss += gap * gap / (long double)n;
            grad[i] = -2 * tau * gap / (long double)n;
        }
    }
}

static void test_budget_naive(void **state) {
    (void)state;
    for (int k = 0; k < 400; k++) {
        const int each = k % 2, truncate = k / 2 % 2;
        budget_case c = random_budget_case(truncate ? REIN_BUDGET_TRUNCATE : REIN_BUDGET_LINEAR);
        if (each) c.budget.token_budgets = c.budgets;
        double loss, adjusted[24], advantages[24], baselines[8], grad[24];
        long double expected, x_adjusted[24], x_advantages[24], x_baselines[8], x_grad[24];
        assert_int_equal(budget_loss(&c, &loss, adjusted, advantages, baselines, grad, NULL), REIN_OK);
        naive_budget(&c, each, &expected, x_adjusted, x_advantages, x_baselines, x_grad);
        near_to(loss, (double)expected, 1e-13 * (1 + loss));
        for (size_t i = 0; i < c.offsets[c.n_prompts]; i++) {
            near_to(adjusted[i], (double)x_adjusted[i], 1e-13);
            near_to(advantages[i], (double)x_advantages[i], 1e-13);
            near_to(grad[i], (double)x_grad[i], 1e-13);
        }
        for (size_t p = 0; p < c.n_prompts; p++) near_to(baselines[p], (double)x_baselines[p], 1e-13);
    }
}

/* d loss / d lp by central differences: a parabola, so they are exact. */
static void test_budget_gradient(void **state) {
    (void)state;
    for (int k = 0; k < 50; k++) {
        const budget_case c = random_budget_case(REIN_BUDGET_LINEAR);
        double loss, grad[24], up, down;
        assert_int_equal(budget_loss(&c, &loss, NULL, NULL, NULL, grad, NULL), REIN_OK);
        for (size_t i = 0; i < c.offsets[c.n_prompts]; i++) {
            budget_case moved = c;
            moved.lp[i] = c.lp[i] + 0x1p-10;
            budget_loss(&moved, &up, NULL, NULL, NULL, NULL, NULL);
            moved.lp[i] = c.lp[i] - 0x1p-10;
            budget_loss(&moved, &down, NULL, NULL, NULL, NULL, NULL);
            near_to(grad[i], (up - down) * 0x1p9, 1e-9);
        }
    }
}

/* At the budget is not over it; over it by one costs one. */
static void test_budget_edges(void **state) {
    (void)state;
    budget_case c = {1,
                     {0, 3},
                     {1, 1, 1},
                     {-1, -1, -1},
                     {-1, -1, -1},
                     {100, 101, 0},
                     {0},
                     {.token_budget = 100, .kl_coef = 1, .budget_penalty_coef = .5}};
    double loss, adjusted[3];
    budget_loss(&c, &loss, adjusted, NULL, NULL, NULL, NULL);
    assert_true(adjusted[0] == 1 && adjusted[1] == .5 && adjusted[2] == 1);
    c.budget = (rein_budget){.token_budget = 100, .budget_penalty = .25, .rule = REIN_BUDGET_TRUNCATE};
    budget_loss(&c, &loss, adjusted, NULL, NULL, NULL, NULL);
    assert_true(adjusted[0] == 1 && adjusted[1] == -.25 && adjusted[2] == 1);
}

/* [0.1, 0.1, 0.1], and 0.3 beside 0.1 + 0.2: equal but for rounding is equal; a group of one is its own baseline. */
static void test_budget_equal_rewards(void **state) {
    (void)state;
    const budget_case c = {3,   {0, 3, 5, 6}, {.1, .1, .1, .3, .1 + .2, 7},     {-1, -1, -1, -1, -1, -1}, {-1, -1, -1, -1, -1, -1},
                           {0}, {0},          {.token_budget = 9, .kl_coef = 1}};
    double loss, advantages[6], grad[6];
    assert_int_equal(budget_loss(&c, &loss, NULL, advantages, NULL, grad, NULL), REIN_OK);
    for (size_t i = 0; i < 6; i++) assert_true(advantages[i] == 0 && grad[i] == 0);
    assert_true(loss == 0);
}

static void test_budget_f32(void **state) {
    (void)state;
    for (int k = 0; k < 100; k++) {
        budget_case c = random_budget_case(REIN_BUDGET_LINEAR);
        float rewards[24], lp[24], old[24], adjusted[24], advantages[24], baselines[8], grad[24];
        double loss, wide_loss, wide_adjusted[24], wide_advantages[24], wide_baselines[8], wide_grad[24];
        const size_t n = c.offsets[c.n_prompts];
        for (size_t i = 0; i < n; i++) {
            c.rewards[i] = narrow(&rewards[i], c.rewards[i]);
            c.lp[i] = narrow(&lp[i], c.lp[i]);
            c.old[i] = narrow(&old[i], c.old[i]);
        }
        assert_int_equal(rein_budget_loss_f32(&loss, adjusted, advantages, baselines, grad, rewards, lp, old, c.lengths, c.offsets,
                                              c.n_prompts, &c.budget, NULL, NULL),
                         REIN_OK);
        assert_int_equal(budget_loss(&c, &wide_loss, wide_adjusted, wide_advantages, wide_baselines, wide_grad, NULL), REIN_OK);
        near_to(loss, wide_loss, 1e-6 * wide_loss);
        for (size_t i = 0; i < n; i++) {
            near_to((double)adjusted[i], wide_adjusted[i], 1e-6 * (1 + fabs(wide_adjusted[i])));
            near_to((double)advantages[i], wide_advantages[i], 1e-6 * (1 + fabs(wide_advantages[i])));
            near_to((double)grad[i], wide_grad[i], 1e-6 * (1 + fabs(wide_grad[i])));
        }
        for (size_t p = 0; p < c.n_prompts; p++)
            near_to((double)baselines[p], wide_baselines[p], 1e-6 * (1 + fabs(wide_baselines[p])));
    }
}

static const budget_case GOOD_BUDGET = {2,
                                        {0, 2, 3},
                                        {1, 2, 3},
                                        {-1, -2, -3},
                                        {-1, -2, -3},
                                        {5, 6, 7},
                                        {5, 5, 5},
                                        {.token_budget = 4, .kl_coef = .1, .budget_penalty_coef = .1}};

static void budget_fails(budget_case c, rein_status status, const char *text, const char *more) {
    double loss = 77, out[24], baselines[8] = {77};
    rein_error err = {0};
    for (size_t i = 0; i < COUNT(out); i++) out[i] = 77;
    is_error(budget_loss(&c, &loss, out, out, baselines, out, &err), status, &err, text, more);
    assert_true(loss == 77 && baselines[0] == 77);
    for (size_t i = 0; i < COUNT(out); i++) assert_true(out[i] == 77);
    assert_int_equal(budget_loss(&c, &loss, NULL, NULL, NULL, NULL, NULL), status); /* no rein_error */
}

static void test_budget_errors(void **state) {
    (void)state;
    const double bad[] = {NOT_A_NUMBER, INFINITE, -INFINITE};
    budget_case c;
    for (size_t k = 0; k < COUNT(bad); k++) {
        c = GOOD_BUDGET, c.rewards[2] = bad[k], budget_fails(c, REIN_EINVAL, "rewards[2]", "finite");
        c = GOOD_BUDGET, c.lp[1] = bad[k], budget_fails(c, REIN_EINVAL, "log_probs[1]", "finite");
        c = GOOD_BUDGET, c.old[0] = bad[k], budget_fails(c, REIN_EINVAL, "old_log_probs[0]", "finite");
        c = GOOD_BUDGET, c.budget.kl_coef = bad[k], budget_fails(c, REIN_EINVAL, "kl_coef", "0 or more");
        c = GOOD_BUDGET, c.budget.token_budget = bad[k], budget_fails(c, REIN_EINVAL, "token_budget", "0 or more");
        c = GOOD_BUDGET, c.budget.budget_penalty_coef = bad[k], budget_fails(c, REIN_EINVAL, "budget_penalty_coef", "0 or more");
        c = GOOD_BUDGET, c.budget.rule = REIN_BUDGET_TRUNCATE, c.budget.budget_penalty = bad[k],
        budget_fails(c, REIN_EINVAL, "budget_penalty", "0 or more");
    }
    c = GOOD_BUDGET, c.lengths[2] = -3, budget_fails(c, REIN_EINVAL, "response_lengths[2] is -3", "0 or more");
    c = GOOD_BUDGET, c.budgets[1] = -1, c.budget.token_budgets = c.budgets,
    budget_fails(c, REIN_EINVAL, "token_budget[1] is -1", "0 or more");
    c = GOOD_BUDGET, c.budget.kl_coef = -.5, budget_fails(c, REIN_EINVAL, "kl_coef is -0.5", "0 or more");
    c = GOOD_BUDGET, c.budget.rule = (rein_budget_rule)5, budget_fails(c, REIN_EINVAL, "rule is 5", "REIN_BUDGET_LINEAR");
    c = GOOD_BUDGET, c.n_prompts = 0, budget_fails(c, REIN_EINVAL, "rewards is empty", "at least one");
    c = GOOD_BUDGET, c.offsets[1] = 0, budget_fails(c, REIN_EINVAL, "offsets[1] is 0", "at least one");
    c = GOOD_BUDGET, c.offsets[2] = 1, budget_fails(c, REIN_EINVAL, "offsets[2] is 1", "at least one");
    c = GOOD_BUDGET, c.rewards[0] = 1e200, budget_fails(c, REIN_ERANGE, "the loss is not finite", "too large");
    const rein_exec exec = {-1, REIN_ISA_BEST};
    rein_error err;
    double loss;
    c = GOOD_BUDGET;
    is_error(
        rein_budget_loss(&loss, NULL, NULL, NULL, NULL, c.rewards, c.lp, c.old, c.lengths, c.offsets, 2, &c.budget, &exec, &err),
        REIN_EINVAL, &err, "threads is -1", NULL);
}

/* The loss is finite, its gradient −2τ·A/n is not. */
static void test_budget_overflow_of_the_gradient(void **state) {
    (void)state;
    budget_case c = GOOD_BUDGET;
    double loss = 77, grad[3] = {77, 77, 77};
    rein_error err = {0};
    c.rewards[0] = 1e20, c.budget.kl_coef = 1e300;
    is_error(budget_loss(&c, &loss, NULL, NULL, NULL, grad, &err), REIN_ERANGE, &err, "not finite", NULL);
    assert_true(loss == 77 && grad[0] == 77 && grad[1] == 77 && grad[2] == 77);
}

/* A penalty that the rule does not use is not looked at: {0} of the other rule is fine. */
static void test_budget_other_rule_unread(void **state) {
    (void)state;
    budget_case c = GOOD_BUDGET;
    double loss;
    c.budget.budget_penalty = -1;
    assert_int_equal(budget_loss(&c, &loss, NULL, NULL, NULL, NULL, NULL), REIN_OK);
    c.budget = (rein_budget){.token_budget = 4, .budget_penalty_coef = -1, .rule = REIN_BUDGET_TRUNCATE};
    assert_int_equal(budget_loss(&c, &loss, NULL, NULL, NULL, NULL, NULL), REIN_OK);
}

/* ------------------------------------------------------------------------------------------------------ group policy objective */

typedef struct gpo_case {
    size_t n;
    double ratios[40], advantages[40], current[40], ref[40], epsilon, beta;
    rein_kl_direction direction;
} gpo_case;

static rein_status gpo(const gpo_case *c, rein_gpo *value, double *grad_ratios, double *grad_current, rein_error *err) {
    return rein_gpo_objective(value, grad_ratios, grad_current, c->ratios, c->advantages, c->current, c->ref, c->n, c->epsilon,
                              c->beta, c->direction, NULL, err);
}

static long double naive_gpo(const gpo_case *c) {
    long double surrogate = 0, kl = 0;
    for (size_t i = 0; i < c->n; i++) {
        const long double r = c->ratios[i], a = c->advantages[i], low = 1 - (long double)c->epsilon,
                          high = 1 + (long double)c->epsilon;
        const long double clipped = (r < low ? low : r > high ? high : r) * a;
        const long double q =
            c->direction == REIN_REF_OVER_CURRENT ? (long double)c->ref[i] / c->current[i] : (long double)c->current[i] / c->ref[i];
        surrogate += r * a < clipped ? r * a : clipped;
        kl += r * (q - logl(q) - 1);
    }
    return (surrogate - (long double)c->beta * kl) / (long double)c->n;
}

static void test_gpo_worked(void **state) {
    (void)state;
    const struct {
        gpo_case c;
        const char *shown;
    } worked[] = {{{3, {1.2, .8, 1.1}, {1, 1, 1}, {.9, 1.1, 1}, {1, .5, 1.5}, .2, .01, REIN_KL_DIRECTION_DEFAULT}, "1.0319499611"},
                  {{3, {1, 1, 1}, {1, 1, 1}, {.5, .5, .5}, {.5, .5, .5}, .2, .01, REIN_KL_DIRECTION_DEFAULT}, "1.0000000000"},
                  {{3, {1.1, .9, 1}, {2, -1.5, .5}, {.4, .6, .5}, {.5, .5, .5}, .2, .05, REIN_CURRENT_OVER_REF}, "0.4493105249"}};
    for (size_t i = 0; i < COUNT(worked); i++) {
        rein_gpo value;
        char text[32];
        assert_int_equal(gpo(&worked[i].c, &value, NULL, NULL, NULL), REIN_OK);
        snprintf(text, sizeof text, "%.10f", value.objective);
        assert_string_equal(text, worked[i].shown);
        near_to(value.objective, (double)naive_gpo(&worked[i].c), 1e-12);
        near_to(value.objective, value.surrogate - worked[i].c.beta * value.kl, 1e-15);
    }
}

static gpo_case random_gpo_case(void) {
    gpo_case c = {.n = 1 + below(40), .epsilon = uniform(0, .5), .beta = uniform(0, .3), .direction = (rein_kl_direction)below(3)};
    for (size_t i = 0; i < c.n; i++) {
        c.ratios[i] = uniform(.3, 2);
        c.advantages[i] = uniform(-2, 2);
        c.current[i] = uniform(.01, 1.5);
        c.ref[i] = uniform(.01, 1.5);
    }
    return c;
}

static void test_gpo_naive(void **state) {
    (void)state;
    for (int k = 0; k < 300; k++) {
        const gpo_case c = random_gpo_case();
        rein_gpo value;
        double grad_ratios[40], grad_current[40];
        assert_int_equal(gpo(&c, &value, grad_ratios, grad_current, NULL), REIN_OK);
        near_to(value.objective, (double)naive_gpo(&c), 1e-12 * (1 + fabs(value.objective)));
        for (size_t i = 0; i < c.n; i++) {
            const long double step = 1e-5L;
            if (fabs(fabs(c.ratios[i] - 1) - c.epsilon) < 1e-4) continue; /* a kink */
            gpo_case up = c, down = c;
            up.ratios[i] += (double)step, down.ratios[i] -= (double)step;
            near_to(grad_ratios[i], (double)((naive_gpo(&up) - naive_gpo(&down)) / ((long double)up.ratios[i] - down.ratios[i])),
                    1e-8);
            up = down = c;
            up.current[i] *= 1 + (double)step, down.current[i] *= 1 - (double)step;
            const double slope = (double)((naive_gpo(&up) - naive_gpo(&down)) / ((long double)up.current[i] - down.current[i]));
            near_to(grad_current[i], slope, 1e-7 * (1 + fabs(slope)));
        }
    }
}

/* Exactly at a kink the gradient is the unclipped branch's: (A − β·k)/n. */
static void test_gpo_kink(void **state) {
    (void)state;
    const gpo_case c = {4, {1.25, 1.25, .75, .75}, {1, -1, 1, -1}, {1, 1, 1, 1}, {1, 1, 1, 1}, .25, .5, REIN_CURRENT_OVER_REF};
    rein_gpo value;
    double grad[4];
    assert_int_equal(gpo(&c, &value, grad, NULL, NULL), REIN_OK);
    for (size_t i = 0; i < 4; i++) near_to(grad[i], c.advantages[i] / 4, 0);
    assert_true(value.kl == 0);
}

/* The directions agree to second order: q − log q − 1 of 1 + x and of 1/(1 + x) differ by x³/3. */
static void test_gpo_directions(void **state) {
    (void)state;
    for (double x = -.01; x < .011; x += .002) {
        gpo_case c = {1, {1}, {0}, {.5 * (1 + x)}, {.5}, .2, 1, REIN_CURRENT_OVER_REF};
        rein_gpo one, other;
        gpo(&c, &one, NULL, NULL, NULL);
        c.direction = REIN_REF_OVER_CURRENT;
        gpo(&c, &other, NULL, NULL, NULL);
        near_to(one.kl, x * x / 2, fabs(x * x * x));
        near_to(one.kl - other.kl, x * x * x / 3, x * x * x * x);
    }
}

static void test_gpo_f32(void **state) {
    (void)state;
    for (int k = 0; k < 100; k++) {
        gpo_case c = random_gpo_case();
        float ratios[40], advantages[40], current[40], ref[40], grad_ratios[40], grad_current[40];
        double wide_ratios[40], wide_current[40];
        rein_gpo value, wide;
        for (size_t i = 0; i < c.n; i++) {
            c.ratios[i] = narrow(&ratios[i], c.ratios[i]);
            c.advantages[i] = narrow(&advantages[i], c.advantages[i]);
            c.current[i] = narrow(&current[i], c.current[i]);
            c.ref[i] = narrow(&ref[i], c.ref[i]);
        }
        assert_int_equal(rein_gpo_objective_f32(&value, grad_ratios, grad_current, ratios, advantages, current, ref, c.n, c.epsilon,
                                                c.beta, c.direction, NULL, NULL),
                         REIN_OK);
        assert_int_equal(gpo(&c, &wide, wide_ratios, wide_current, NULL), REIN_OK);
        near_to(value.objective, wide.objective, 1e-5 * (1 + fabs(wide.objective)));
        for (size_t i = 0; i < c.n; i++) {
            if (fabs(fabs(c.ratios[i] - 1) - c.epsilon) < 1e-5) continue;
            near_to((double)grad_ratios[i], wide_ratios[i], 1e-5 * (1 + fabs(wide_ratios[i])));
            near_to((double)grad_current[i], wide_current[i], 1e-5 * (1 + fabs(wide_current[i])));
        }
    }
}

static void gpo_fails(gpo_case c, rein_status status, const char *text, const char *more) {
    rein_gpo value = {77, 77, 77};
    double out[40];
    rein_error err = {0};
    for (size_t i = 0; i < COUNT(out); i++) out[i] = 77;
    is_error(gpo(&c, &value, out, out, &err), status, &err, text, more);
    assert_true(value.objective == 77 && value.surrogate == 77 && value.kl == 77);
    for (size_t i = 0; i < COUNT(out); i++) assert_true(out[i] == 77);
    assert_int_equal(gpo(&c, &value, NULL, NULL, NULL), status);
}

static void test_gpo_errors(void **state) {
    (void)state;
    const gpo_case good = {3, {1, 1, 1}, {1, 1, 1}, {.5, .5, .5}, {.5, .5, .5}, .2, .1, REIN_KL_DIRECTION_DEFAULT};
    const double bad[] = {NOT_A_NUMBER, INFINITE, -INFINITE}, not_a_probability[] = {0, -.5, -0.0, NOT_A_NUMBER, INFINITE};
    gpo_case c;
    for (size_t k = 0; k < COUNT(bad); k++) {
        c = good, c.ratios[1] = bad[k], gpo_fails(c, REIN_EINVAL, "ratios[1]", "0 or more");
        c = good, c.advantages[2] = bad[k], gpo_fails(c, REIN_EINVAL, "advantages[2]", "finite");
        c = good, c.epsilon = bad[k], gpo_fails(c, REIN_EINVAL, "epsilon", "0 or more");
        c = good, c.beta = bad[k], gpo_fails(c, REIN_EINVAL, "beta", "0 or more");
    }
    for (size_t k = 0; k < COUNT(not_a_probability); k++) {
        c = good, c.current[0] = not_a_probability[k], gpo_fails(c, REIN_EINVAL, "pi_current[0]", "above 0");
        c = good, c.ref[2] = not_a_probability[k], gpo_fails(c, REIN_EINVAL, "pi_ref[2]", "above 0");
    }
    c = good, c.ratios[0] = -.1, gpo_fails(c, REIN_EINVAL, "ratios[0] is -0.1", "0 or more");
    c = good, c.epsilon = -.2, gpo_fails(c, REIN_EINVAL, "epsilon is -0.2", "0 or more");
    c = good, c.beta = -1, gpo_fails(c, REIN_EINVAL, "beta is -1", "0 or more");
    c = good, c.n = 0, gpo_fails(c, REIN_EINVAL, "ratios is empty", "at least one");
    c = good, c.direction = (rein_kl_direction)3, gpo_fails(c, REIN_EINVAL, "kl_direction is 3", NULL);
    c = good, c.current[1] = 1e300, c.ref[1] = 1e-300, gpo_fails(c, REIN_ERANGE, "the objective is not finite", "too large");
    c = good, c.ratios[1] = 1e300, c.advantages[1] = -1e300, gpo_fails(c, REIN_ERANGE, "the objective is not finite", "too large");
    rein_gpo value;
    rein_error err;
    double grad[2][3] = {{77, 77, 77}, {77, 77, 77}}; /* β·ρ is infinite, and 0 of it no number: a gradient is */
    c = good, c.ratios[1] = c.beta = 1e308, c.current[0] = .25;
    is_error(gpo(&c, &value, grad[0], grad[1], &err), REIN_ERANGE, &err, "not finite", "too large");
    for (int i = 0; i < 6; i++) assert_true(grad[i / 3][i % 3] == 77);
}

/* The objective is finite, its gradient β·ρ·q/π is not. */
static void test_gpo_overflow_of_the_gradient(void **state) {
    (void)state;
    const gpo_case c = {2, {1, 1}, {1, 1}, {.5, 1e-200}, {.5, .5}, .2, .1, REIN_REF_OVER_CURRENT};
    rein_gpo value = {77, 77, 77};
    double grad_ratios[2] = {77, 77}, grad_current[2] = {77, 77};
    rein_error err = {0};
    is_error(gpo(&c, &value, grad_ratios, grad_current, &err), REIN_ERANGE, &err, "not finite", NULL);
    assert_true(value.objective == 77 && grad_ratios[0] == 77 && grad_ratios[1] == 77 && grad_current[0] == 77 &&
                grad_current[1] == 77);
}

/* ---------------------------------------------------------------------------------------------------------------- rlhf update */

static void test_rlhf_worked(void **state) {
    (void)state;
    const double w[] = {1, 1}, rewards[] = {1, 1}, lp[] = {-1.5, -1.5}, g[] = {.5, -.5, .5, -.5};
    double out[2];
    assert_int_equal(rein_rlhf_update(out, w, rewards, lp, lp, g, 2, 2, 1, .1, NULL, NULL), REIN_OK);
    near_to(out[0], 1.05, 1e-15);
    near_to(out[1], .95, 1e-15);
}

enum { ROWS = 7, COLUMNS = 5003 }; /* neither fits a stride of the implementation */

/* w' may be w: the same bits as apart; against the formula; f32 beside it; any number of threads. */
static void test_rlhf_naive(void **state) {
    (void)state;
    static double w[COLUMNS], apart[COLUMNS], g[ROWS * COLUMNS];
    static float w_f32[COLUMNS], g_f32[ROWS * COLUMNS];
    double rewards[ROWS], lp[ROWS], ref[ROWS];
    float rewards_f32[ROWS], lp_f32[ROWS], ref_f32[ROWS];
    const double beta = .3, lr = .07;
    for (size_t i = 0; i < ROWS; i++) {
        rewards[i] = narrow(&rewards_f32[i], uniform(-1, 1));
        lp[i] = narrow(&lp_f32[i], uniform(-3, 0));
        ref[i] = narrow(&ref_f32[i], uniform(-3, 0));
    }
    for (size_t j = 0; j < COLUMNS; j++) w[j] = narrow(&w_f32[j], uniform(-1, 1));
    for (size_t k = 0; k < ROWS * COLUMNS; k++) g[k] = narrow(&g_f32[k], uniform(-1, 1));
    assert_int_equal(rein_rlhf_update(apart, w, rewards, lp, ref, g, ROWS, COLUMNS, beta, lr, NULL, NULL), REIN_OK);
    for (size_t j = 0; j < COLUMNS; j++) {
        long double sum = 0;
        for (size_t i = 0; i < ROWS; i++)
            sum += ((long double)rewards[i] - (long double)beta * ((long double)lp[i] - ref[i])) * g[i * COLUMNS + j];
        near_to(apart[j], (double)(w[j] + (long double)lr * sum / ROWS), 1e-15);
    }
    for (int threads = 1; threads <= 3; threads++) {
        static double same[COLUMNS];
        const rein_exec exec = {threads, REIN_ISA_BEST};
        memcpy(same, w, sizeof w);
        assert_int_equal(rein_rlhf_update(same, same, rewards, lp, ref, g, ROWS, COLUMNS, beta, lr, &exec, NULL), REIN_OK);
        assert_memory_equal(same, apart, sizeof same);
    }
    assert_int_equal(rein_rlhf_update_f32(w_f32, w_f32, rewards_f32, lp_f32, ref_f32, g_f32, ROWS, COLUMNS, beta, lr, NULL, NULL),
                     REIN_OK);
    for (size_t j = 0; j < COLUMNS; j++) near_to((double)w_f32[j], apart[j], 1e-6);
}

typedef struct rlhf_case {
    size_t n, p;
    double w[3], rewards[2], lp[2], ref[2], g[6], beta, lr;
} rlhf_case;

static void rlhf_fails(rlhf_case c, rein_status status, const char *text, const char *more) {
    const rlhf_case before = c;
    double out[3] = {77, 77, 77};
    rein_error err = {0};
    is_error(rein_rlhf_update(out, c.w, c.rewards, c.lp, c.ref, c.g, c.n, c.p, c.beta, c.lr, NULL, &err), status, &err, text, more);
    assert_true(out[0] == 77 && out[1] == 77 && out[2] == 77);
    assert_int_equal(rein_rlhf_update(c.w, c.w, c.rewards, c.lp, c.ref, c.g, c.n, c.p, c.beta, c.lr, NULL, NULL), status);
    assert_memory_equal(&c, &before, sizeof c); /* in place, too */
}

/* A bad number in any of several strips: those that were written before are as they were. */
static void test_rlhf_errors_in_strips(void **state) {
    enum { WEIGHTS = 3 * 4096 + 5 };
    static double w[WEIGHTS], out[WEIGHTS], g[2 * WEIGHTS];
    const double r[] = {1, 2}, lp[] = {0, 0};
    const size_t places[] = {0, 5000, WEIGHTS - 1};
    (void)state;
    for (size_t i = 0; i < WEIGHTS; i++) w[i] = (double)i, g[i] = g[WEIGHTS + i] = 1;
    for (int threads = 1; threads < 4; threads++)
        for (int isa = 0; isa < 2; isa++)
            for (size_t k = 0; k < COUNT(places); k++) {
                const rein_exec exec = {.threads = threads, .isa = isa ? REIN_ISA_REF : REIN_ISA_BEST};
                rein_error err;
                char name[40];
                snprintf(name, sizeof name, "log_prob_grads[%zu]", WEIGHTS + places[k]);
                for (size_t i = 0; i < WEIGHTS; i++) out[i] = 77;
                g[WEIGHTS + places[k]] = NOT_A_NUMBER;
                is_error(rein_rlhf_update(out, w, r, lp, lp, g, 2, WEIGHTS, 0, 1, &exec, &err), REIN_EINVAL, &err, name, "finite");
                is_error(rein_rlhf_update(w, w, r, lp, lp, g, 2, WEIGHTS, 0, 1, &exec, &err), REIN_EINVAL, &err, name, "finite");
                for (size_t i = 0; i < WEIGHTS; i++) assert_true(out[i] == 77 && w[i] == (double)i);
                g[WEIGHTS + places[k]] = 1;
                assert_int_equal(rein_rlhf_update(out, w, r, lp, lp, g, 2, WEIGHTS, 0, 1, &exec, NULL), REIN_OK);
                for (size_t i = 0; i < WEIGHTS; i++) assert_true(out[i] == (double)i + 1.5);
            }
}

static void test_rlhf_errors(void **state) {
    (void)state;
    rlhf_case good, c;
    memset(&good, 0, sizeof good);
    good.n = 2, good.p = 3, good.beta = .1, good.lr = .1;
    for (size_t i = 0; i < 6; i++) good.g[i] = (double)i;
    const double bad[] = {NOT_A_NUMBER, INFINITE, -INFINITE};
    for (size_t k = 0; k < COUNT(bad); k++) {
        c = good, c.w[2] = bad[k], rlhf_fails(c, REIN_EINVAL, "weights[2]", "finite");
        c = good, c.rewards[1] = bad[k], rlhf_fails(c, REIN_EINVAL, "rewards[1]", "finite");
        c = good, c.lp[0] = bad[k], rlhf_fails(c, REIN_EINVAL, "policy_log_probs[0]", "finite");
        c = good, c.ref[1] = bad[k], rlhf_fails(c, REIN_EINVAL, "ref_log_probs[1]", "finite");
        c = good, c.g[5] = bad[k], rlhf_fails(c, REIN_EINVAL, "log_prob_grads[5]", "finite");
        c = good, c.beta = bad[k], rlhf_fails(c, REIN_EINVAL, "beta", "0 or more");
        c = good, c.lr = bad[k], rlhf_fails(c, REIN_EINVAL, "lr", "0 or more");
    }
    c = good, c.beta = -1, rlhf_fails(c, REIN_EINVAL, "beta is -1", "0 or more");
    c = good, c.lr = -.5, rlhf_fails(c, REIN_EINVAL, "lr is -0.5", "0 or more");
    c = good, c.n = 0, rlhf_fails(c, REIN_EINVAL, "rewards is empty", "at least one");
    c = good, c.p = 0, rlhf_fails(c, REIN_EINVAL, "weights is empty", "at least one");
    c = good, c.rewards[0] = 1e300, c.g[1] = 1e300, rlhf_fails(c, REIN_ERANGE, "not finite", "too large");
}

/* --------------------------------------------------------------------------------------------------- KL-penalised advantages */

enum { TOKENS = 14 };
static const size_t SEQUENCES[] = {0, 4, 4, 9, 11, 14}; /* one has no token */
static const size_t GROUPS[] = {0, 2, 3, 5};

typedef struct kl_case {
    double advantages[TOKENS], lp[TOKENS], ref[TOKENS];
    uint8_t mask[TOKENS];
    double coef;
    rein_kl_scope scope;
    const size_t *sequences, *groups;
    size_t n_tokens, n_sequences, n_groups;
} kl_case;

static rein_status kl_advantage(const kl_case *c, double *adjusted, double *kl, rein_error *err) {
    return rein_kl_advantage(adjusted, kl, c->advantages, c->lp, c->ref, c->mask, c->n_tokens, c->coef, c->scope, c->sequences,
                             c->n_sequences, c->groups, c->n_groups, err);
}

static kl_case random_kl_case(rein_kl_scope scope) {
    kl_case c = {.coef = uniform(.1, 1),
                 .scope = scope,
                 .sequences = SEQUENCES,
                 .groups = GROUPS,
                 .n_tokens = TOKENS,
                 .n_sequences = 5,
                 .n_groups = 3};
    for (size_t t = 0; t < TOKENS; t++) {
        c.advantages[t] = uniform(-2, 2);
        c.mask[t] = uniform(0, 1) < .7;
        c.lp[t] = c.mask[t] ? uniform(-3, 0) : NOT_A_NUMBER; /* a sampler's gap: never read */
        c.ref[t] = c.mask[t] ? uniform(-3, 0) : -INFINITE;
    }
    return c;
}

/* First and last token of scope k; 0 past the last. */
static int scope_at(const kl_case *c, size_t k, size_t *first, size_t *last) {
    if (c->scope == REIN_KL_SCOPE_BATCH) return *first = 0, *last = TOKENS, k < 1;
    if (c->scope == REIN_KL_SCOPE_SEQUENCE) return k < 5 ? (*first = SEQUENCES[k], *last = SEQUENCES[k + 1], 1) : 0;
    return k < 3 ? (*first = SEQUENCES[GROUPS[k]], *last = SEQUENCES[GROUPS[k + 1]], 1) : 0;
}

static void check_kl_scope(const kl_case *c, const double *adjusted, size_t first, size_t last) {
    long double sum = 0, count = 0, moved = 0;
    for (size_t t = first; t < last; t++)
        if (c->mask[t]) sum += (long double)c->lp[t] - c->ref[t], count++;
    for (size_t t = first; t < last; t++) {
        const long double d = c->mask[t] ? (long double)c->lp[t] - c->ref[t] : 0;
        if (!c->mask[t]) assert_memory_equal(&adjusted[t], &c->advantages[t], sizeof *adjusted); /* keeps its bits */
        else near_to(adjusted[t], (double)(c->advantages[t] + (long double)c->coef * (sum / count - d)), 1e-14);
        moved += (long double)adjusted[t] - c->advantages[t];
    }
    near_to((double)moved, 0, 1e-14); /* nothing is added to a scope */
}

static void test_kl_scopes(void **state) {
    (void)state;
    for (int k = 0; k < 300; k++) {
        const kl_case c = random_kl_case((rein_kl_scope)(k % 3));
        double adjusted[TOKENS], kl;
        long double sum = 0, count = 0;
        size_t first, last;
        assert_int_equal(kl_advantage(&c, adjusted, &kl, NULL), REIN_OK);
        for (size_t s = 0; scope_at(&c, s, &first, &last); s++) check_kl_scope(&c, adjusted, first, last);
        for (size_t t = 0; t < TOKENS; t++)
            if (c.mask[t]) sum += (long double)c.lp[t] - c.ref[t], count++;
        near_to(kl, count > 0 ? (double)(sum / count) : 0, 1e-14); /* of the whole batch, whatever the scope */
    }
}

/* Drift costs: of two tokens the one that moved away from the reference loses what the other gains. */
static void test_kl_sign(void **state) {
    (void)state;
    const double a[] = {1, 1}, lp[] = {-.5, -1}, ref[] = {-1.5, -1};
    double adjusted[2], kl;
    assert_int_equal(rein_kl_advantage(adjusted, &kl, a, lp, ref, NULL, 2, .2, REIN_KL_SCOPE_BATCH, NULL, 0, NULL, 0, NULL),
                     REIN_OK);
    near_to(adjusted[0], .9, 1e-16);
    near_to(adjusted[1], 1.1, 2.3e-16);
    near_to(kl, .5, 0);
}

static void test_kl_zero_is_identity(void **state) {
    (void)state;
    for (int scope = 0; scope < 3; scope++) {
        kl_case c = random_kl_case((rein_kl_scope)scope);
        double adjusted[TOKENS], kl = 5;
        c.coef = 0;
        c.advantages[3] = -0.0;
        assert_int_equal(kl_advantage(&c, adjusted, &kl, NULL), REIN_OK);
        assert_memory_equal(adjusted, c.advantages, sizeof adjusted);
        assert_int_equal(rein_kl_advantage(adjusted, &kl, c.advantages, c.lp, NULL, c.mask, TOKENS, 0, c.scope, c.sequences, 5,
                                           c.groups, 3, NULL),
                         REIN_OK);
        assert_memory_equal(adjusted, c.advantages, sizeof adjusted);
        assert_true(kl == 0); /* without a reference; with one it is measured all the same */
        kl_case all = c;
        for (size_t t = 0; t < TOKENS; t++) all.mask[t] = 1, all.lp[t] = -1, all.ref[t] = -1.25 - (t == 0);
        assert_int_equal(kl_advantage(&all, adjusted, &kl, NULL), REIN_OK);
        near_to(kl, .25 + 1. / TOKENS, 1e-15);
        assert_memory_equal(adjusted, all.advantages, sizeof adjusted);
    }
}

static void test_kl_in_place_and_nothing_trained(void **state) {
    (void)state;
    for (int scope = 0; scope < 3; scope++) {
        kl_case c = random_kl_case((rein_kl_scope)scope);
        double adjusted[TOKENS], kl;
        kl_advantage(&c, adjusted, &kl, NULL);
        assert_int_equal(kl_advantage(&c, c.advantages, &kl, NULL), REIN_OK);
        assert_memory_equal(adjusted, c.advantages, sizeof adjusted);
        memset(c.mask, 0, sizeof c.mask);
        assert_int_equal(kl_advantage(&c, adjusted, &kl, NULL), REIN_OK);
        assert_memory_equal(adjusted, c.advantages, sizeof adjusted);
        assert_true(kl == 0);
    }
}

static void test_kl_f32(void **state) {
    (void)state;
    for (int k = 0; k < 60; k++) {
        kl_case c = random_kl_case((rein_kl_scope)(k % 3));
        float a[TOKENS], lp[TOKENS], ref[TOKENS], adjusted[TOKENS];
        double wide[TOKENS], kl, wide_kl;
        for (size_t t = 0; t < TOKENS; t++) {
            c.advantages[t] = narrow(&a[t], c.advantages[t]);
            c.lp[t] = narrow(&lp[t], c.lp[t]);
            c.ref[t] = narrow(&ref[t], c.ref[t]);
        }
        assert_int_equal(kl_advantage(&c, wide, &wide_kl, NULL), REIN_OK);
        assert_int_equal(
            rein_kl_advantage_f32(adjusted, &kl, a, lp, ref, c.mask, TOKENS, c.coef, c.scope, SEQUENCES, 5, GROUPS, 3, NULL),
            REIN_OK);
        for (size_t t = 0; t < TOKENS; t++) near_to((double)adjusted[t], wide[t], 1e-6);
        near_to(kl, wide_kl, 1e-12);
    }
}

static void kl_fails(kl_case c, rein_status status, const char *text, const char *more) {
    double adjusted[TOKENS], kl = 77;
    rein_error err = {0};
    for (size_t t = 0; t < TOKENS; t++) adjusted[t] = 77;
    is_error(kl_advantage(&c, adjusted, &kl, &err), status, &err, text, more);
    assert_true(kl == 77);
    for (size_t t = 0; t < TOKENS; t++) assert_true(adjusted[t] == 77);
    assert_int_equal(kl_advantage(&c, adjusted, &kl, NULL), status);
}

static void test_kl_errors(void **state) {
    (void)state;
    static const size_t falling[] = {0, 4, 3, 9, 11, 14}, short_one[] = {0, 4, 4, 9, 11, 13}, late[] = {1, 4, 4, 9, 11, 14},
                        few_groups[] = {0, 2, 3, 4};
    static const size_t falling_groups[] = {0, 3, 2, 5};
    const double bad[] = {NOT_A_NUMBER, INFINITE, -INFINITE};
    kl_case good = random_kl_case(REIN_KL_SCOPE_GROUP), c;
    for (size_t t = 0; t < TOKENS; t++) good.mask[t] = 1, good.lp[t] = -1, good.ref[t] = -2;
    for (size_t k = 0; k < COUNT(bad); k++) {
        c = good, c.lp[6] = bad[k], kl_fails(c, REIN_EINVAL, "log_probs[6]", "finite");
        c = good, c.ref[0] = bad[k], kl_fails(c, REIN_EINVAL, "ref_log_probs[0]", "finite");
        c = good, c.advantages[13] = bad[k], kl_fails(c, REIN_EINVAL, "advantages[13]", "finite");
        c = good, c.coef = bad[k], kl_fails(c, REIN_EINVAL, "kl_penalty_coef", "0 or more");
    }
    c = good, c.coef = -.1, kl_fails(c, REIN_EINVAL, "kl_penalty_coef is -0.1", "0 or more");
    c = good, c.n_tokens = 0, kl_fails(c, REIN_EINVAL, "advantages is empty", "at least one");
    c = good, c.scope = (rein_kl_scope)3, kl_fails(c, REIN_EINVAL, "kl_scope is 3", NULL);
    c = good, c.sequences = NULL, kl_fails(c, REIN_EINVAL, "sequence_offsets is missing", "kl_scope");
    c = good, c.groups = NULL, kl_fails(c, REIN_EINVAL, "group_offsets is missing", "kl_scope");
    c = good, c.sequences = falling, kl_fails(c, REIN_EINVAL, "sequence_offsets[2]", "never");
    c = good, c.sequences = short_one, kl_fails(c, REIN_EINVAL, "sequence_offsets covers 13 tokens", "14");
    c = good, c.sequences = late, kl_fails(c, REIN_EINVAL, "sequence_offsets[0] is 1", "start at 0");
    c = good, c.groups = falling_groups, kl_fails(c, REIN_EINVAL, "group_offsets[2]", "never");
    c = good, c.groups = few_groups, kl_fails(c, REIN_EINVAL, "group_offsets covers 4 sequences", "5");
    c = good, c.lp[0] = 1e308, c.ref[0] = -1e308, kl_fails(c, REIN_ERANGE, "KL is not finite", "too large");
    rein_error err;
    double adjusted[TOKENS], kl;
    is_error(rein_kl_advantage(adjusted, &kl, good.advantages, good.lp, NULL, NULL, TOKENS, .1, REIN_KL_SCOPE_BATCH, NULL, 0, NULL,
                               0, &err),
             REIN_EINVAL, &err, "ref_log_probs is missing", "kl_penalty_coef");
    is_error(rein_kl_advantage(adjusted, &kl, good.advantages, NULL, good.ref, NULL, TOKENS, .1, REIN_KL_SCOPE_BATCH, NULL, 0, NULL,
                               0, &err),
             REIN_EINVAL, &err, "log_probs is missing", "kl_penalty_coef");
}

/* A scope whose adjustment overflows while the batch's KL does not must not hand out infinite advantages. */
static void test_kl_overflow_of_the_adjustment(void **state) {
    (void)state;
    kl_case c = random_kl_case(REIN_KL_SCOPE_BATCH);
    for (size_t t = 0; t < TOKENS; t++) c.mask[t] = 1, c.lp[t] = -1, c.ref[t] = -1;
    c.lp[0] = 1e300, c.coef = 1e300;
    kl_fails(c, REIN_ERANGE, "not finite", NULL);
}

/* ---------------------------------------------------------------------------------------------------------------- controllers */

static void test_budget_control(void **state) {
    (void)state;
    const int64_t lengths[] = {150, 80, 220};
    double multiplier = .01;
    assert_int_equal(rein_budget_control(&multiplier, lengths, 3, 100, .0001, NULL), REIN_OK);
    near_to(multiplier, .01 + .0001 * 50, 1e-16); /* mean 150 */
    assert_int_equal(rein_budget_control(&multiplier, lengths, 3, 1000, .0001, NULL), REIN_OK);
    assert_true(multiplier == 0); /* not below */
    assert_int_equal(rein_budget_control(&multiplier, lengths, 3, 150, 1, NULL), REIN_OK);
    assert_true(multiplier == 0);
}

/* The constraint is met: a population whose mean length falls with the multiplier ends at the target. */
static void test_budget_control_converges(void **state) {
    (void)state;
    double multiplier = 0;
    int64_t length = 0;
    for (int step = 0; step < 2000; step++) {
        length = (int64_t)lround(400 / (1 + 20 * multiplier));
        assert_int_equal(rein_budget_control(&multiplier, &length, 1, 160, .0002, NULL), REIN_OK);
    }
    assert_int_equal(length, 160);
    near_to(multiplier, .075, .001);
}

static void control_fails(double multiplier, int64_t length, size_t n, double target, double step, rein_status status,
                          const char *text, const char *more) {
    double m = multiplier;
    rein_error err = {0};
    const int64_t lengths[] = {10, length};
    is_error(rein_budget_control(&m, lengths, n, target, step, &err), status, &err, text, more);
    assert_memory_equal(&m, &multiplier, sizeof m);
}

static void test_budget_control_errors(void **state) {
    (void)state;
    const double bad[] = {NOT_A_NUMBER, INFINITE, -INFINITE, -1};
    for (size_t k = 0; k < COUNT(bad); k++) {
        control_fails(bad[k], 1, 2, 1, 1, REIN_EINVAL, "multiplier", "0 or more");
        control_fails(1, 1, 2, bad[k], 1, REIN_EINVAL, "target_length", "0 or more");
        control_fails(1, 1, 2, 1, bad[k], REIN_EINVAL, "step_size", "0 or more");
    }
    control_fails(1, -4, 2, 1, 1, REIN_EINVAL, "response_lengths[1] is -4", "0 or more");
    control_fails(1, 1, 0, 1, 1, REIN_EINVAL, "response_lengths is empty", "at least one");
    control_fails(1, INT64_MAX, 2, 1, 1e300, REIN_ERANGE, "not finite", "step_size");
}

static void test_entropy_control(void **state) {
    (void)state;
    double coef = .5;
    assert_int_equal(rein_entropy_control(&coef, .1, .2, .125, NULL), REIN_OK); /* below the target: more */
    assert_true(coef == .625);
    assert_int_equal(rein_entropy_control(&coef, .2, .2, .125, NULL), REIN_OK); /* at the target: more */
    assert_true(coef == .75);
    assert_int_equal(rein_entropy_control(&coef, .3, .2, .5, NULL), REIN_OK);
    assert_true(coef == .25);
    assert_int_equal(rein_entropy_control(&coef, .3, .2, .5, NULL), REIN_OK);
    assert_true(coef == 0); /* not below */
}

static void entropy_fails(double coef, double entropy, double target, double step, const char *text) {
    double c = coef;
    rein_error err = {0};
    is_error(rein_entropy_control(&c, entropy, target, step, &err), REIN_EINVAL, &err, text, NULL);
    assert_memory_equal(&c, &coef, sizeof c);
}

static void test_entropy_control_errors(void **state) {
    (void)state;
    const double bad[] = {NOT_A_NUMBER, INFINITE, -INFINITE};
    for (size_t k = 0; k < COUNT(bad); k++) {
        entropy_fails(bad[k], 1, 1, 1, "coef is");
        entropy_fails(1, bad[k], 1, 1, "mean_entropy");
        entropy_fails(1, 1, bad[k], 1, "entropy_target");
        entropy_fails(1, 1, 1, bad[k], "step_size");
    }
    entropy_fails(-1, 1, 1, 1, "coef is -1");
    entropy_fails(1, 1, 1, -1, "step_size is -1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget_worked),
        cmocka_unit_test(test_budget_naive),
        cmocka_unit_test(test_budget_gradient),
        cmocka_unit_test(test_budget_edges),
        cmocka_unit_test(test_budget_equal_rewards),
        cmocka_unit_test(test_budget_f32),
        cmocka_unit_test(test_budget_errors),
        cmocka_unit_test(test_budget_overflow_of_the_gradient),
        cmocka_unit_test(test_budget_other_rule_unread),
        cmocka_unit_test(test_gpo_worked),
        cmocka_unit_test(test_gpo_naive),
        cmocka_unit_test(test_gpo_kink),
        cmocka_unit_test(test_gpo_directions),
        cmocka_unit_test(test_gpo_f32),
        cmocka_unit_test(test_gpo_errors),
        cmocka_unit_test(test_gpo_overflow_of_the_gradient),
        cmocka_unit_test(test_rlhf_worked),
        cmocka_unit_test(test_rlhf_naive),
        cmocka_unit_test(test_rlhf_errors),
        cmocka_unit_test(test_rlhf_errors_in_strips),
        cmocka_unit_test(test_kl_scopes),
        cmocka_unit_test(test_kl_sign),
        cmocka_unit_test(test_kl_zero_is_identity),
        cmocka_unit_test(test_kl_in_place_and_nothing_trained),
        cmocka_unit_test(test_kl_f32),
        cmocka_unit_test(test_kl_errors),
        cmocka_unit_test(test_kl_overflow_of_the_adjustment),
        cmocka_unit_test(test_budget_control),
        cmocka_unit_test(test_budget_control_converges),
        cmocka_unit_test(test_budget_control_errors),
        cmocka_unit_test(test_entropy_control),
        cmocka_unit_test(test_entropy_control_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
