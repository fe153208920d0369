/* operation_four.c - the four named operations and the budget controller, from JSON to JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operation.h"
#include "rein/objective.h"

/* ---------------------------------------------------------------------------------------------------------------- budget-loss */

static const char *const BUDGET_LOSS_KEYS[] = {"rewards", "log_probs",   "old_log_probs",       "response_lengths", "token_budget",
                                               "kl_coef", "budget_rule", "budget_penalty_coef", "budget_penalty",   NULL};

/* The library numbers the responses of the whole batch, the JSON has rows of them: rewards[3] becomes rewards[1][0]. */
static rein_status in_rows(const rein_arguments *in, const rein_rows *rows, rein_status status) {
    rein_error *err = in->fields.err;
    char field[sizeof err->field];
    if (!status || err->index < 0 || (size_t)err->index >= rows->offsets[rows->n]) return status;
    const size_t i = (size_t)err->index;
    size_t r = 0;
    while (rows->offsets[r + 1] <= i) r++;
    snprintf(field, sizeof field, "%.100s[%zu]", err->field, r);
    return rein_fail_at(err, status, field, (int64_t)(i - rows->offsets[r]), "%s", err->message + err->reason);
}

static void read_budget(rein_arguments *in, rein_rows *rows, rein_budget *budget) {
    static const char *const rules[] = {"linear", "truncate", NULL};
    budget->rule = rein_fields_choice_or(&in->fields, "budget_rule", rules, 0) ? REIN_BUDGET_TRUNCATE : REIN_BUDGET_LINEAR;
    int truncate = budget->rule == REIN_BUDGET_TRUNCATE;
    const char *needed = truncate ? "budget_penalty" : "budget_penalty_coef";
    const char *other = truncate ? "budget_penalty_coef" : "budget_penalty";
    if (rein_arguments_has(in, other))
        rein_fields_fail(&in->fields, REIN_EINVAL, other, -1, "has no effect with budget_rule \"%s\": give %s instead",
                         rules[truncate], needed);
    *(truncate ? &budget->budget_penalty : &budget->budget_penalty_coef) = rein_arguments_number(in, needed);
    budget->kl_coef = rein_arguments_number(in, "kl_coef");
    if (rein_json_kind_of(rein_json_get(in->root, "token_budget")) == REIN_JSON_ARRAY)
        budget->token_budgets = rein_arguments_length_rows(in, "token_budget", rows);
    else budget->token_budget = rein_arguments_number(in, "token_budget");
}

static rein_status run_budget_loss(rein_arguments *in, int grad, const rein_exec *exec, rein_text *out) {
    rein_rows rows = {0};
    rein_budget budget = {0};
    const double *rewards = rein_arguments_number_rows(in, "rewards", &rows);
    const double *log_probs = rein_arguments_number_rows(in, "log_probs", &rows);
    const double *old_log_probs = rein_arguments_number_rows(in, "old_log_probs", &rows);
    const int64_t *response_lengths = rein_arguments_length_rows(in, "response_lengths", &rows);
    read_budget(in, &rows, &budget);
    size_t n = rein_arguments_status(in) ? 0 : rows.offsets[rows.n];
    double loss, *adjusted = rein_arguments_alloc(in, n, sizeof *adjusted),
                 *advantages = rein_arguments_alloc(in, n, sizeof *advantages);
    double *baselines = rein_arguments_alloc(in, rows.n, sizeof *baselines);
    double *grad_log_probs = grad ? rein_arguments_alloc(in, n, sizeof *grad_log_probs) : NULL;
    if (rein_arguments_status(in)) return rein_arguments_status(in);
    rein_status status = rein_budget_loss(&loss, adjusted, advantages, baselines, grad_log_probs, rewards, log_probs, old_log_probs,
                                          response_lengths, rows.offsets, rows.n, &budget, exec, in->fields.err);
    if (status) return in_rows(in, &rows, status);
    rein_json_put_field(out, "loss", loss);
    rein_json_put_rows(out, "adjusted_rewards", adjusted, rows.offsets, rows.n);
    rein_json_put_rows(out, "advantages", advantages, rows.offsets, rows.n);
    rein_json_put_array(out, "baselines", baselines, rows.n);
    if (grad) rein_json_put_rows(out, "grad_log_probs", grad_log_probs, rows.offsets, rows.n);
    return REIN_OK;
}

const rein_operation rein_operation_budget_loss = {
    .info.name = "budget-loss",
    .info.summary = "budget-constrained loss (Kimi K2)",
    .info.arguments =
        "rewards, log_probs, old_log_probs, response_lengths [batch][K]; token_budget (a number or [batch][K]), kl_coef, "
        "budget_penalty_coef; optional budget_rule: linear, or truncate with budget_penalty in place of budget_penalty_coef",
    .info.results = "loss, adjusted_rewards, advantages [batch][K], baselines [batch]",
    .info.gradients = "grad_log_probs [batch][K]",
    .info.formula = "adjusted_i = r_i − λ·max(0, L_i − B)\nA_i = adjusted_i − mean over its prompt's responses\n"
                    "loss = mean_i (A_i − τ·(lp_i − old_i))²\ndloss/dlp_i = −2τ·(A_i − τ·(lp_i − old_i))/N",
    .info.source = "Kimi K2, arXiv 2507.20534, sec. 3.2.3",
    .info.note =
        "λ is budget_penalty_coef, B token_budget, τ kl_coef; none of their values is published. budget_rule truncate is the "
        "rule of the report: the reward of a response over the budget is −budget_penalty.",
    .info.example = "{\"rewards\": [[1, 0.5]], \"log_probs\": [[-1, -1.5]], \"old_log_probs\": [[-1.2, -1.3]], "
                    "\"response_lengths\": [[150, 80]], \"token_budget\": 100, \"kl_coef\": 0.1, \"budget_penalty_coef\": 0.01}",
    .keys = BUDGET_LOSS_KEYS,
    .run = run_budget_loss,
};

/* ------------------------------------------------------------------------------------------------------------------------ gpo */

static const char *const GPO_KEYS[] = {"ratios", "advantages", "pi_current", "pi_ref", "epsilon", "beta", "kl_direction", NULL};

static rein_status run_gpo(rein_arguments *in, int grad, const rein_exec *exec, rein_text *out) {
    static const char *const directions[] = {"current_over_ref", "ref_over_current", NULL};
    rein_axis axis = {0};
    rein_gpo value;
    const double *ratios = rein_arguments_numbers(in, "ratios", &axis, NULL);
    const double *advantages = rein_arguments_numbers(in, "advantages", &axis, NULL);
    const double *pi_current = rein_arguments_numbers(in, "pi_current", &axis, NULL);
    const double *pi_ref = rein_arguments_numbers(in, "pi_ref", &axis, NULL);
    double epsilon = rein_arguments_number(in, "epsilon"), beta = rein_arguments_number(in, "beta");
    int ref_over_current = rein_fields_choice_or(&in->fields, "kl_direction", directions, 0);
    double *grad_ratios = grad ? rein_arguments_alloc(in, axis.n, sizeof *grad_ratios) : NULL;
    double *grad_pi_current = grad ? rein_arguments_alloc(in, axis.n, sizeof *grad_pi_current) : NULL;
    if (!rein_arguments_status(in) && !axis.n)
        rein_fields_fail(&in->fields, REIN_EINVAL, "ratios", -1, "is empty: one entry or more is needed");
    if (rein_arguments_status(in)) return rein_arguments_status(in);
    rein_status status =
        rein_gpo_objective(&value, grad_ratios, grad_pi_current, ratios, advantages, pi_current, pi_ref, axis.n, epsilon, beta,
                           ref_over_current ? REIN_REF_OVER_CURRENT : REIN_CURRENT_OVER_REF, exec, in->fields.err);
    if (status) return status;
    rein_json_put_field(out, "objective", value.objective);
    rein_json_put_field(out, "surrogate", value.surrogate);
    rein_json_put_field(out, "kl", value.kl);
    if (grad) rein_json_put_array(out, "grad_ratios", grad_ratios, axis.n);
    if (grad) rein_json_put_array(out, "grad_pi_current", grad_pi_current, axis.n);
    return REIN_OK;
}

const rein_operation rein_operation_gpo = {
    .info.name = "gpo",
    .info.summary = "group policy objective: clipped surrogate minus a KL term",
    .info.arguments =
        "ratios, advantages, pi_current, pi_ref [n]; epsilon, beta; optional kl_direction: current_over_ref (default) or "
        "ref_over_current",
    .info.results = "objective, surrogate, kl",
    .info.gradients = "grad_ratios, grad_pi_current [n]",
    .info.formula = "J = mean_i min(ρ_i A_i, clip(ρ_i, 1−ε, 1+ε) A_i) − β·mean_i ρ_i (q_i − log q_i − 1)",
    .info.source = "after DeepSeek-V3.2, arXiv 2512.02556, eq. 7",
    .info.note =
        "kl_direction selects what the KL term estimates, over samples weighted by ρ:\n"
        "current_over_ref (default): q = π/π_ref. It estimates χ²(π‖ref) − KL(π‖ref). Near the reference this equals the KL to "
        "second order; elsewhere it does not, and it explodes where the policy is likely and the reference is not.\n"
        "ref_over_current: q = π_ref/π, as published. It is an unbiased estimate of KL(π‖ref).",
    .info.example =
        "{\"ratios\": [1.2, 0.8, 1.1], \"advantages\": [1, 1, 1], \"pi_current\": [0.9, 1.1, 1], \"pi_ref\": [1, 0.5, 1.5], "
        "\"epsilon\": 0.2, \"beta\": 0.01}",
    .keys = GPO_KEYS,
    .run = run_gpo,
};

/* ---------------------------------------------------------------------------------------------------------------- rlhf-update */

static const char *const RLHF_UPDATE_KEYS[] = {"weights", "rewards", "policy_log_probs", "ref_log_probs", "log_prob_grads", "beta",
                                               "lr",      NULL};

static rein_status run_rlhf_update(rein_arguments *in, int grad, const rein_exec *exec, rein_text *out) {
    rein_axis n = {0}, p = {0};
    double *weights = rein_arguments_numbers(in, "weights", &p, NULL);
    const double *rewards = rein_arguments_numbers(in, "rewards", &n, NULL);
    const double *policy_log_probs = rein_arguments_numbers(in, "policy_log_probs", &n, NULL);
    const double *ref_log_probs = rein_arguments_numbers(in, "ref_log_probs", &n, NULL);
    const double *log_prob_grads = rein_arguments_matrix(in, "log_prob_grads", &n, &p);
    double beta = rein_arguments_number(in, "beta"), lr = rein_arguments_number(in, "lr");
    (void)grad;
    if (!rein_arguments_status(in) && !n.n)
        rein_fields_fail(&in->fields, REIN_EINVAL, "rewards", -1, "is empty: one entry or more is needed");
    if (rein_arguments_status(in)) return rein_arguments_status(in);
    rein_status status = rein_rlhf_update(weights, weights, rewards, policy_log_probs, ref_log_probs, log_prob_grads, n.n, p.n,
                                          beta, lr, exec, in->fields.err);
    if (!status) rein_json_put_array(out, "weights", weights, p.n);
    return status;
}

const rein_operation rein_operation_rlhf_update = {
    .info.name = "rlhf-update",
    .info.summary = "one step of KL-regularised policy gradient on a weight vector",
    .info.arguments = "weights [P]; rewards, policy_log_probs, ref_log_probs [N]; log_prob_grads [N][P]; beta, lr",
    .info.results = "weights [P]",
    .info.gradients = NULL,
    .info.formula = "w' = w + lr·(1/N) Σ_i (R_i − β·(lp_i − ref_i))·G_i,  G_i = d lp_i/d w",
    .info.source = "KL-regularised policy gradient (REINFORCE)",
    .info.note = "The KL to the reference is k1 in the reward and is not differentiated: its gradient is exact on-policy.",
    .info.example =
        "{\"weights\": [1, 1], \"rewards\": [1, 1], \"policy_log_probs\": [-1.5, -1.5], \"ref_log_probs\": [-1.5, -1.5], "
        "\"log_prob_grads\": [[0.5, -0.5], [0.5, -0.5]], \"beta\": 1, \"lr\": 0.1}",
    .keys = RLHF_UPDATE_KEYS,
    .run = run_rlhf_update,
};

/* --------------------------------------------------------------------------------------------------------------- kl-advantage */

static const char *const KL_ADVANTAGE_KEYS[] = {"advantages", "log_probs",        "ref_log_probs", "mask", "kl_penalty_coef",
                                                "kl_scope",   "sequence_lengths", "group_sizes",   NULL};

/* The offsets that a scope needs, and no others: a shape that would have no effect is an error. */
static void read_scope(rein_arguments *in, rein_kl_scope scope, const rein_axis *tokens, rein_axis *sequences, rein_axis *groups,
                       const size_t **sequence_offsets, const size_t **group_offsets) {
    static const char *const names[] = {"batch", "group", "sequence"};
    if (scope == REIN_KL_SCOPE_BATCH && rein_arguments_has(in, "sequence_lengths"))
        rein_fields_fail(&in->fields, REIN_EINVAL, "sequence_lengths", -1,
                         "has no effect with kl_scope \"%s\": scopes sequence and group use it", names[scope]);
    if (scope != REIN_KL_SCOPE_GROUP && rein_arguments_has(in, "group_sizes"))
        rein_fields_fail(&in->fields, REIN_EINVAL, "group_sizes", -1, "has no effect with kl_scope \"%s\": scope group uses it",
                         names[scope]);
    if (scope != REIN_KL_SCOPE_BATCH && !rein_arguments_has(in, "sequence_lengths"))
        rein_fields_fail(&in->fields, REIN_EINVAL, "sequence_lengths", -1,
                         "is missing: kl_scope \"%s\" needs the tokens of each sequence", names[scope]);
    if (scope == REIN_KL_SCOPE_GROUP && !rein_arguments_has(in, "group_sizes"))
        rein_fields_fail(&in->fields, REIN_EINVAL, "group_sizes", -1,
                         "is missing: kl_scope \"group\" needs the sequences of each group");
    if (scope != REIN_KL_SCOPE_BATCH) *sequence_offsets = rein_arguments_offsets(in, "sequence_lengths", sequences, tokens);
    if (scope == REIN_KL_SCOPE_GROUP) *group_offsets = rein_arguments_offsets(in, "group_sizes", groups, sequences);
}

static rein_status run_kl_advantage(rein_arguments *in, int grad, const rein_exec *exec, rein_text *out) {
    static const char *const scopes[] = {"batch", "group", "sequence", NULL};
    rein_axis tokens = {0}, sequences = {0}, groups = {0};
    const size_t *sequence_offsets = NULL, *group_offsets = NULL;
    const double *advantages = rein_arguments_numbers(in, "advantages", &tokens, NULL);
    const uint8_t *mask = rein_arguments_has(in, "mask") ? rein_arguments_bits(in, "mask", &tokens) : NULL;
    double kl_penalty_coef = rein_arguments_number(in, "kl_penalty_coef"), kl_policy_ref;
    const double *log_probs = rein_arguments_numbers(in, "log_probs", &tokens, mask);
    const double *ref_log_probs = kl_penalty_coef == 0 && !rein_arguments_has(in, "ref_log_probs")
                                      ? NULL
                                      : rein_arguments_numbers(in, "ref_log_probs", &tokens, mask);
    rein_kl_scope scope = (rein_kl_scope)rein_fields_choice_or(&in->fields, "kl_scope", scopes, REIN_KL_SCOPE_BATCH);
    read_scope(in, scope, &tokens, &sequences, &groups, &sequence_offsets, &group_offsets);
    double *adjusted = rein_arguments_alloc(in, tokens.n, sizeof *adjusted);
    (void)grad, (void)exec;
    if (rein_arguments_status(in)) return rein_arguments_status(in);
    rein_status status =
        rein_kl_advantage(adjusted, &kl_policy_ref, advantages, log_probs, ref_log_probs, mask, tokens.n, kl_penalty_coef, scope,
                          sequence_offsets, sequences.n, group_offsets, groups.n, in->fields.err);
    if (status) return status;
    rein_json_put_array(out, "advantages", adjusted, tokens.n);
    rein_json_put_field(out, "kl_policy_ref", kl_policy_ref);
    return REIN_OK;
}

const rein_operation rein_operation_kl_advantage = {
    .info.name = "kl-advantage",
    .info.summary = "KL-penalised advantages (ART): drifted tokens lose, others gain",
    .info.arguments =
        "advantages, log_probs, ref_log_probs [tokens] (log-probs may be null where masked, ref_log_probs absent when "
        "kl_penalty_coef is 0), "
        "kl_penalty_coef; optional mask [tokens], kl_scope: batch (default), sequence with sequence_lengths, group with "
        "sequence_lengths and group_sizes",
    .info.results = "advantages [tokens], kl_policy_ref",
    .info.gradients = NULL,
    .info.formula = "d_t = lp_t − ref_t\nA'_t = A_t + c·(mean of d over the scope − d_t), where mask is 1",
    .info.source = "OpenPipe ART, pull request 562",
    .info.note =
        "Tokens that drifted from the reference lose advantage, the others gain; the adjustments sum to zero over each scope. "
        "The gradient is that of KL(policy‖reference), except for the share 1/n that each token has in the mean.",
    .info.example =
        "{\"advantages\": [1, 1, -1], \"log_probs\": [-0.5, -1, -2], \"ref_log_probs\": [-1, -1, -1.5], \"mask\": [1, 1, 1], "
        "\"kl_penalty_coef\": 0.1}",
    .keys = KL_ADVANTAGE_KEYS,
    .run = run_kl_advantage,
};

/* ------------------------------------------------------------------------------------------------------------- budget-control */

static const char *const BUDGET_CONTROL_KEYS[] = {"multiplier", "response_lengths", "target_length", "step_size", NULL};

static rein_status run_budget_control(rein_arguments *in, int grad, const rein_exec *exec, rein_text *out) {
    rein_axis axis = {0};
    double multiplier = rein_arguments_number(in, "multiplier");
    const int64_t *lengths = rein_arguments_lengths(in, "response_lengths", &axis);
    double target_length = rein_arguments_number(in, "target_length"), step_size = rein_arguments_number(in, "step_size");
    (void)grad, (void)exec;
    if (!rein_arguments_status(in) && !axis.n)
        rein_fields_fail(&in->fields, REIN_EINVAL, "response_lengths", -1, "is empty: one entry or more is needed");
    if (rein_arguments_status(in)) return rein_arguments_status(in);
    rein_status status = rein_budget_control(&multiplier, lengths, axis.n, target_length, step_size, in->fields.err);
    if (!status) rein_json_put_field(out, "multiplier", multiplier);
    return status;
}

const rein_operation rein_operation_budget_control = {
    .info.name = "budget-control",
    .info.summary = "one step of dual ascent towards a mean length",
    .info.arguments = "multiplier, response_lengths [n], target_length, step_size",
    .info.results = "multiplier",
    .info.gradients = NULL,
    .info.formula = "λ ← max(0, λ + η·(mean L − target))",
    .info.source = "dual ascent on a constraint of the mean length",
    .info.note = "Use λ as budget_penalty_coef: it rises while responses are too long and falls when they are not.",
    .info.example = "{\"multiplier\": 0.01, \"response_lengths\": [150, 80, 220], \"target_length\": 100, \"step_size\": 0.0001}",
    .keys = BUDGET_CONTROL_KEYS,
    .run = run_budget_control,
};
