/* demo.c - `rein demo`: the four operations and a short training, on numbers made while you watch. It says what is a toy and what is not:
 * the policy is three numbers, the mathematics is the library's. Each part is one screenful of at most 80 columns. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "demo_policy.h"
#include "help.h"
#include "terminal.h"

typedef struct paint {
    const char *good, *bad, *bold, *dim, *plain;
} paint;

typedef struct story {
    const char *program;
    rein_out out;
    paint paint;
    uint64_t seed;
    rein_error err;
    policy start, trained;
    rollout rollout;           /* of the start policy; the first SHOWN responses are the ones that are shown */
    double advantage[SAMPLES]; /* of those, under the budget */
    double now[SAMPLES];       /* their log-probabilities under the trained policy */
} story;

static const rein_exec EXEC = {.threads = 1}; /* a few hundred numbers: threads would only wait for each other */
static const double LAMBDA = 0.002;           /* the penalty of part 1, from which the controller of part 2 starts */

static const paint COLOURS = {"\033[32m", "\033[31m", "\033[1m", "\033[2m", "\033[0m"}, NONE = {"", "", "", "", ""};

/* ------------------------------------------------------------------------------------------------------------------- drawing */

/* A bar of `value`, drawn on `columns` cells that span 0..most, with the limit's line in it. */
static void bar(story *s, double value, double limit, double most, int columns) {
    static const char *const eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    int line = (int)lround(limit / most * columns), full, rest;
    int parts = (int)lround(fmin(fmax(value, 0), most) / most * columns * 8);
    full = parts / 8, rest = parts % 8;
    for (int c = 0; c < columns; c++) {
        const char *colour = c < line ? s->paint.good : s->paint.bad;
        if (c == line) rein_out_format(&s->out, "%s│%s", s->paint.bold, s->paint.plain);
        else if (c < full) rein_out_format(&s->out, "%s█%s", colour, s->paint.plain);
        else if (c == full) rein_out_format(&s->out, "%s%s%s", colour, eighths[rest], s->paint.plain);
        else rein_out_text(&s->out, " ");
    }
}

/* Shares that add up to 1 as one strip. */
static void strip(story *s, const double shares[STYLES], int columns) {
    static const char *const shades[STYLES] = {"░", "▒", "█"};
    double sum = 0;
    int from = 0;
    for (int k = 0; k < STYLES; k++) {
        sum += shares[k];
        int to = k == STYLES - 1 ? columns : (int)lround(sum * columns);
        rein_out_repeat(&s->out, shades[k], (size_t)(to - from));
        from = to;
    }
}

static void title(story *s, const char *text, const char *call) {
    rein_out_format(&s->out, "\n%s%s%s%s%s%s%s\n", s->paint.bold, text, s->paint.plain, *call ? "  " : "", s->paint.dim, call,
                    s->paint.plain);
}

/* Text padded to `columns`; printf would count bytes. */
static void padded(story *s, const char *text, size_t columns) {
    rein_out_text(&s->out, text);
    rein_out_repeat(&s->out, " ", rein_columns(text) < columns ? columns - rein_columns(text) : 0);
}

/* ------------------------------------------------------------------------------------------------------------ 1. a token budget */

static rein_status part_budget(story *s) {
    const rollout *r = &s->rollout;
    rein_budget budget = {.token_budget = rein_demo_budget, .kl_coef = rein_demo_tau, .budget_penalty_coef = LAMBDA};
    double loss, adjusted[SHOWN], grad[SHOWN];
    rein_status status = rein_budget_loss(&loss, adjusted, s->advantage, NULL, grad, r->reward, r->log_prob, r->log_prob, r->length,
                                          r->prompts, SHOWN_PROMPTS, &budget, &EXEC, &s->err);
    if (status) return status;
    title(s, "1. A token budget", "rein objective budget-loss");
    rein_out_format(&s->out,
                    "   %d prompts, %d responses each. A right answer earns 1; every token beyond the\n"
                    "   budget of %g costs %g. The advantage is against the prompt's own mean.\n\n",
                    SHOWN_PROMPTS, RESPONSES, rein_demo_budget, LAMBDA);
    rein_out_text(&s->out, "   ");
    padded(s, "length, and the budget (│)", 29);
    rein_out_text(&s->out, " tokens  right  adjusted  advantage  dloss/dlp\n");
    for (size_t i = 0; i < SHOWN; i++) {
        rein_out_format(&s->out, "%-3s", i % RESPONSES ? "" : (const char *[]){"p1", "p2", "p3", "p4"}[i / RESPONSES]);
        bar(s, (double)r->length[i], rein_demo_budget, 520, 29);
        rein_out_format(&s->out, " %6d  %s%5s%s  %8.2f  %+9.2f  %+9.4f\n", (int)r->length[i],
                        r->reward[i] > 0 ? s->paint.good : s->paint.bad, r->reward[i] > 0 ? "yes" : "no", s->paint.plain,
                        adjusted[i], s->advantage[i], grad[i]);
    }
    rein_out_format(&s->out,
                    "\n   loss = mean (A − τ·(lp − old))² = %.6f with τ = %g; here lp = old still.\n"
                    "   A step down makes what beats its prompt's mean likelier, the rest less so.\n",
                    loss, rein_demo_tau);
    return REIN_OK;
}

/* ---------------------------------------------------------------------------------------------------------- 2. learning to keep it */

static void show_step(story *s, size_t step, const progress *p) {
    rein_out_format(&s->out, "   %4zu  ", step);
    bar(s, p->length, rein_demo_budget, 320, 24);
    rein_out_format(&s->out, " %6.0f  %3.0f %%  %3.0f %%  %.5f  ", p->length, 100 * p->right, 100 * p->over, p->multiplier);
    strip(s, p->probabilities, 14);
    rein_out_text(&s->out, "\n");
}

static rein_status part_training(story *s) {
    progress p = {0}, first = {0};
    double multiplier = LAMBDA;
    rein_status status = REIN_OK;
    title(s, "2. Learning to keep it", "preset k2 and the budget controller");
    rein_out_format(&s->out,
                    "   A toy policy, no language model: it answers in one of three styles, terse (░,\n"
                    "   %.0f tokens, %.0f %% right), concise (▒, %.0f, %.0f %%) or rambling (█, %.0f, %.0f %%).\n"
                    "   %d steps of %d responses; after each, dual ascent raises the penalty λ while\n"
                    "   the mean length is above %g tokens, and lowers it while it is below.\n\n",
                    rein_styles[0].length, 100 * rein_styles[0].accuracy, rein_styles[1].length, 100 * rein_styles[1].accuracy,
                    rein_styles[2].length, 100 * rein_styles[2].accuracy, STEPS, SAMPLES, rein_demo_target);
    rein_out_text(&s->out, "   step  ");
    padded(s, "mean length, budget (│)", 24);
    rein_out_text(&s->out, " tokens  right   over        λ  styles\n");
    for (size_t step = 0; step <= STEPS && !status; step++) {
        status = rein_demo_step(&s->trained, &multiplier, &p, s->seed, step, &s->err);
        if (step == 0) first = p;
        if (!status && step % 4 == 0) show_step(s, step, &p);
    }
    rein_out_format(&s->out, "\n   Mean length %.0f → %.0f tokens, right %.0f %% → %.0f %%, over budget %.0f %% → %.0f %%.\n",
                    first.length, p.length, 100 * first.right, 100 * p.right, 100 * first.over, 100 * p.over);
    return status;
}

/* ----------------------------------------------------------------------------------------------------------- 3. how far it moved */

static void show_ratios(story *s, const double *ratios, const double *gradient) {
    for (int k = 0; k < STYLES; k++) {
        double ratio = 0;
        int n = 0, silent = 0;
        for (size_t i = 0; i < SHOWN; i++) {
            if (s->rollout.style[i] == k) n++, ratio = ratios[i], silent += gradient[i] == 0;
        }
        if (n)
            rein_out_format(&s->out, "   %-9s %2d responses   ρ = %.3f   %d still pull, %d clipped to silence\n",
                            rein_styles[k].name, n, ratio, n - silent, silent);
    }
}

static rein_status part_trust_region(story *s) {
    static const double epsilon = 0.2, beta = 0.05;
    double ratios[SHOWN], current[SHOWN], reference[SHOWN], gradient[SHOWN];
    rein_gpo clipped = {0}, value[2] = {{0}};
    for (size_t i = 0; i < SHOWN; i++) {
        current[i] = exp(s->now[i]);
        reference[i] = exp(s->rollout.log_prob[i]);
        ratios[i] = current[i] / reference[i];
    }
    rein_status status = rein_gpo_objective(&clipped, gradient, NULL, ratios, s->advantage, current, reference, SHOWN, epsilon, 0,
                                            REIN_CURRENT_OVER_REF, &EXEC, &s->err);
    for (int way = 0; way < 2 && !status; way++) {
        status = rein_gpo_objective(&value[way], NULL, NULL, ratios, s->advantage, current, reference, SHOWN, epsilon, beta,
                                    way ? REIN_REF_OVER_CURRENT : REIN_CURRENT_OVER_REF, &EXEC, &s->err);
    }
    if (status) return status;
    title(s, "3. A trust region", "rein objective gpo");
    rein_out_format(&s->out,
                    "   The %d responses of part 1 under the trained policy: ρ = π_now / π_start.\n"
                    "   Outside [%g, %g] the clip silences what has gone far enough its way.\n",
                    SHOWN, 1 - epsilon, 1 + epsilon);
    show_ratios(s, ratios, gradient);
    rein_out_format(&s->out,
                    "   objective = surrogate − β·kl = %+.4f − %g·%.4f = %+.4f\n"
                    "   With the KL quotient the other way round (ref_over_current) kl = %.4f: only\n"
                    "   that is unbiased for KL(now‖start). rein explain gpo says more.\n",
                    value[0].surrogate, beta, value[0].kl, value[0].objective, value[1].kl);
    return REIN_OK;
}

/* ---------------------------------------------------------------------------------------------------------- 4. and 5. KL, and weights */

static rein_status part_kl(story *s) {
    double adjusted[SHOWN], kl, sum = 0;
    const double coef = 0.1;
    rein_status status = rein_kl_advantage(adjusted, &kl, s->advantage, s->now, s->rollout.log_prob, NULL, SHOWN, coef,
                                           REIN_KL_SCOPE_BATCH, NULL, 0, NULL, 0, &s->err);
    if (status) return status;
    title(s, "4. KL in the advantage", "rein objective kl-advantage");
    rein_out_format(&s->out, "   d = lp_now − lp_start; A' = A + %g·(mean d − d): what rose pays what fell.\n", coef);
    for (int k = 0; k < STYLES; k++) {
        double drift = 0, change = 0;
        int n = 0;
        for (size_t i = 0; i < SHOWN; i++) {
            if (s->rollout.style[i] != k) continue;
            n++, drift = s->now[i] - s->rollout.log_prob[i], change = adjusted[i] - s->advantage[i];
        }
        if (n)
            rein_out_format(&s->out, "   %-9s %2d responses   d = %+7.3f   A' − A = %+.4f each\n", rein_styles[k].name, n, drift,
                            change);
    }
    for (size_t i = 0; i < SHOWN; i++) sum += adjusted[i] - s->advantage[i];
    rein_out_format(&s->out,
                    "   The changes add up to %.1g. kl_policy_ref, the mean of d: %+.4f,\n"
                    "   below 0 because the start policy chose these answers.\n",
                    fabs(sum), kl);
    return REIN_OK;
}

static rein_status part_update(story *s) {
    static const double beta = 0.05, lr = 2;
    double grads[SHOWN * STYLES], uniform[SHOWN], before[STYLES], after[STYLES];
    policy updated = s->start;
    rein_demo_probabilities(before, &s->start);
    for (size_t i = 0; i < SHOWN; i++) {
        uniform[i] = -log(STYLES);
        for (size_t k = 0; k < STYLES; k++) grads[i * STYLES + k] = ((int)k == s->rollout.style[i]) - before[k];
    }
    rein_status status = rein_rlhf_update(updated.logits, s->start.logits, s->advantage, s->rollout.log_prob, uniform, grads, SHOWN,
                                          STYLES, beta, lr, &EXEC, &s->err);
    if (status) return status;
    rein_demo_probabilities(after, &updated);
    title(s, "5. The update itself", "rein objective rlhf-update");
    rein_out_format(&s->out,
                    "   w' = w + lr·mean (A − β·(lp − ref))·dlp/dw: one step of the start policy's\n"
                    "   three weights on part 1, lr = %g, β = %g, towards a reference without taste:\n",
                    lr, beta);
    for (int k = 0; k < STYLES; k++) {
        rein_out_format(&s->out, "   %-9s w %+.4f → %+.4f   π %4.1f %% → %4.1f %%\n", rein_styles[k].name, s->start.logits[k],
                        updated.logits[k], 100 * before[k], 100 * after[k]);
    }
    return REIN_OK;
}

static void part_next(story *s) {
    title(s, "What to try next", "");
    rein_out_format(&s->out,
                    "   %s explain k2\n"
                    "   %s explain --all\n"
                    "   echo '{\"ratios\": [1.5, 0.9], \"advantages\": [1, -1], \"pi_current\": [0.3, 0.5],\n"
                    "     \"pi_ref\": [0.2, 0.6], \"epsilon\": 0.2, \"beta\": 0.05}' |\n"
                    "     %s objective gpo --grad\n",
                    s->program, s->program, s->program);
}

/* ------------------------------------------------------------------------------------------------------------------ the command */

static rein_status tell(story *s) {
    rein_out_format(&s->out,
                    "%srein %s%s: reinforcement learning that keeps the policy in hand.\nEvery number below is computed now.\n",
                    s->paint.bold, rein_version(), s->paint.plain);
    rein_demo_start(&s->start);
    s->trained = s->start;
    rein_demo_sample(&s->rollout, &s->start, s->seed, 0);
    rein_status status = part_budget(s);
    if (!status) status = part_training(s);
    double probabilities[STYLES];
    rein_demo_probabilities(probabilities, &s->trained);
    for (size_t i = 0; i < SAMPLES; i++) s->now[i] = log(probabilities[s->rollout.style[i]]);
    if (!status) status = part_trust_region(s);
    if (!status) status = part_kl(s);
    if (!status) status = part_update(s);
    if (!status) part_next(s);
    return status;
}

int rein_run_demo(const rein_args *args) {
    const char *text = rein_option_value(args, "seed");
    char *end = NULL;
    story *s = calloc(1, sizeof *s);
    if (!s) return rein_say(REIN_FAILED, "demo", "out of memory");
    s->program = args->program;
    s->seed = text ? strtoull(text, &end, 10) : 1;
    s->paint = rein_colours() ? COLOURS : NONE;
    int status = REIN_DONE;
    if (text && (end == text || *end || !strchr("0123456789", text[0])))
        status = rein_say(REIN_WRONG, "demo", "--seed is \"%s\": a whole number, 0 or more, is needed", text);
    else if (tell(s)) status = rein_say(REIN_FAILED, "demo", "%s", s->err.message);
    else status = rein_print(&s->out);
    rein_out_free(&s->out);
    free(s);
    return status;
}
