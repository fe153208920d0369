/* operation_policy.c - policy-loss: a whole step of sampled responses with any composition of the catalogue. Options are
 * passed to the library as text, so that their names and ranges are in one table only. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "operation.h"
#include "rein/objective.h"

static const char *const KEYS[] = {"log_probs",
                                   "old_log_probs",
                                   "ref_log_probs",
                                   "sample_log_probs",
                                   "entropies",
                                   "exact_kl",
                                   "teacher_log_probs",
                                   "teacher_divergence",
                                   "values",
                                   "advantages",
                                   "mask",
                                   "sequence_lengths",
                                   "group_sizes",
                                   "rewards",
                                   "reward_components",
                                   "reward_weights",
                                   "baseline_rewards",
                                   "response_lengths",
                                   "correct",
                                   "token_budget",
                                   "preset",
                                   "options",
                                   NULL};

/* ------------------------------------------------------------------------------------------------------------------ the options */

static const rein_option_info *option_named(const char *name) {
    const rein_option_info *info;
    for (size_t i = 0; (info = rein_option_at(i)); i++)
        if (!strcmp(info->name, name)) return info;
    return NULL;
}

static void set_option(rein_fields *in, rein_options *options, const char *name, const rein_json *value) {
    char field[60];
    const char *text = NULL;
    const rein_option_info *info = option_named(name);
    const rein_json_kind kind = rein_json_kind_of(value);
    snprintf(field, sizeof field, "options.%.40s", name);
    if (info && kind != (info->choices ? REIN_JSON_STRING : REIN_JSON_NUMBER))
        rein_fields_wrong(in, field, value, "%s is needed", info->choices ? info->choices : "a number");
    else if (kind == REIN_JSON_BOOLEAN) text = rein_json_true(value) ? "true" : "false";
    else if (kind == REIN_JSON_STRING) text = rein_json_string(value);
    else if (kind != REIN_JSON_NUMBER) rein_fields_wrong(in, field, value, "a number, a text, true or false is needed");
    if (in->status) return;
    in->status = text ? rein_options_set(options, name, text, in->err)
                      : rein_options_set_number(options, name, rein_json_number(value), in->err);
}

static void read_options(rein_arguments *in, rein_options **made) {
    rein_fields *fields = &in->fields;
    const char *name, *preset = rein_arguments_has(in, "preset") ? rein_fields_string(fields, "preset") : "none";
    const rein_json *value, *budget = rein_json_get(in->root, "token_budget"), *given = rein_fields_object(fields, "options");
    if (!fields->status) fields->status = rein_options_new(made, preset, fields->err);
    rein_options *options = *made;
    if (budget && rein_json_get(given, "token_budget"))
        rein_fields_fail(fields, REIN_EINVAL, "token_budget", -1, "is given twice, also in options: one of them is needed");
    if (fields->status) return;
    if (budget && rein_json_kind_of(budget) != REIN_JSON_ARRAY) {
        rein_arguments_number(in, "token_budget"); /* a number, or an error */
        if (!fields->status) set_option(fields, options, "token_budget", budget);
    }
    if (rein_arguments_has(in, "advantages") && !rein_json_get(given, "advantage") && !fields->status)
        fields->status = rein_options_set(options, "advantage", "given", fields->err);
    for (void *at = NULL; !fields->status && (at = rein_json_next(&name, &value, given, at));)
        set_option(fields, options, name, value);
}

/* -------------------------------------------------------------------------------------------------------------------- the batch */

typedef struct shape {
    rein_axis tokens, sequences, groups, components;
} shape;

static const double *optional(rein_arguments *in, const char *name, rein_axis *axis, const uint8_t *mask) {
    return rein_arguments_has(in, name) ? rein_arguments_numbers(in, name, axis, mask) : NULL;
}

static void read_tokens(rein_arguments *in, shape *s, rein_batch *batch) {
    const uint8_t *mask = batch->mask = rein_arguments_has(in, "mask") ? rein_arguments_bits(in, "mask", &s->tokens) : NULL;
    batch->dtype = REIN_F64;
    batch->log_probs = rein_arguments_numbers(in, "log_probs", &s->tokens, mask);
    batch->old_log_probs = optional(in, "old_log_probs", &s->tokens, mask);
    batch->ref_log_probs = optional(in, "ref_log_probs", &s->tokens, mask);
    batch->sample_log_probs = optional(in, "sample_log_probs", &s->tokens, mask);
    batch->entropies = optional(in, "entropies", &s->tokens, mask);
    batch->exact_kl = optional(in, "exact_kl", &s->tokens, mask);
    batch->teacher_log_probs = optional(in, "teacher_log_probs", &s->tokens, mask);
    batch->teacher_divergence = optional(in, "teacher_divergence", &s->tokens, mask);
    batch->values = optional(in, "values", &s->tokens, mask);
    batch->advantages = optional(in, "advantages", &s->tokens, mask);
}

/* Here, where its name is known: the library sees offsets. */
static const size_t *read_groups(rein_arguments *in, shape *s) {
    const size_t *offsets = rein_arguments_offsets(in, "group_sizes", &s->groups, &s->sequences);
    for (size_t g = 0; offsets && g < s->groups.n; g++)
        if (offsets[g + 1] == offsets[g])
            rein_fields_fail(&in->fields, REIN_EINVAL, "group_sizes", (int64_t)g, "is 0: a group has at least one sequence");
    return offsets;
}

static void read_shape(rein_arguments *in, shape *s, rein_batch *batch) {
    if (rein_arguments_has(in, "sequence_lengths")) {
        batch->sequence_offsets = rein_arguments_offsets(in, "sequence_lengths", &s->sequences, &s->tokens);
    } else {
        size_t *offsets = rein_arguments_alloc(in, 2, sizeof *offsets);
        if (offsets) offsets[1] = s->tokens.n;
        batch->sequence_offsets = offsets;
        s->sequences = (rein_axis){"sequence_lengths (absent: all tokens are one sequence)", 1};
    }
    s->groups = (rein_axis){NULL, 0};
    if (rein_arguments_has(in, "group_sizes")) batch->group_offsets = read_groups(in, s);
    else s->groups = (rein_axis){"group_sizes (absent: all sequences are one group)", 1};
    batch->n_sequences = s->sequences.n;
    batch->n_groups = s->groups.n;
}

/* One baseline for each sequence, or one for each group, shared by its sequences. */
static const double *read_baselines(rein_arguments *in, shape *s, const size_t *group_offsets) {
    rein_axis axis = {0};
    const double *given = optional(in, "baseline_rewards", &axis, NULL);
    if (!given || axis.n == s->sequences.n) return given;
    if (axis.n != s->groups.n) {
        rein_fields_fail(&in->fields, REIN_EINVAL, "baseline_rewards", -1,
                         "has %zu entries: one a group (%zu) or one a sequence (%zu) is needed", axis.n, s->groups.n,
                         s->sequences.n);
        return NULL;
    }
    double *baselines = rein_arguments_alloc(in, s->sequences.n, sizeof *baselines);
    for (size_t g = 0; baselines && g < s->groups.n; g++) {
        size_t first = group_offsets ? group_offsets[g] : 0, last = group_offsets ? group_offsets[g + 1] : s->sequences.n;
        for (size_t i = first; i < last; i++) baselines[i] = given[g];
    }
    return baselines;
}

static void read_rewards(rein_arguments *in, shape *s, rein_batch *batch) {
    int components = rein_arguments_has(in, "reward_components");
    if (components && rein_arguments_has(in, "rewards"))
        rein_fields_fail(&in->fields, REIN_EINVAL, "rewards", -1, "and reward_components are both given: one of them is needed");
    if (!components && rein_arguments_has(in, "reward_weights"))
        rein_fields_fail(&in->fields, REIN_EINVAL, "reward_weights", -1, "has no effect without reward_components");
    if (components) batch->reward_components = rein_arguments_matrix(in, "reward_components", &s->sequences, &s->components);
    else if (rein_arguments_has(in, "rewards") || !batch->advantages)
        batch->rewards = rein_arguments_numbers(in, "rewards", &s->sequences, NULL);
    if (s->components.name) s->components.name = "a row of reward_components";
    batch->n_components = s->components.n;
    batch->reward_weights = optional(in, "reward_weights", &s->components, NULL);
    batch->baseline_rewards = read_baselines(in, s, batch->group_offsets);
    if (rein_arguments_has(in, "response_lengths"))
        batch->response_lengths = rein_arguments_lengths(in, "response_lengths", &s->sequences);
    if (rein_arguments_has(in, "correct")) batch->correct = rein_arguments_bits(in, "correct", &s->sequences);
    if (rein_json_kind_of(rein_json_get(in->root, "token_budget")) == REIN_JSON_ARRAY)
        batch->token_budgets = rein_arguments_lengths(in, "token_budget", &s->sequences);
}

/* ------------------------------------------------------------------------------------------------------------------- the result */

static void write_metrics(rein_text *out, const rein_metrics *m, const rein_batch *batch) {
    rein_json_put_name(out, "metrics");
    rein_text_put(out, "{");
    const int rewarded = batch->rewards || batch->reward_components;
    if (rewarded) rein_json_put_field(out, "reward", m->reward);
    if (rewarded) rein_json_put_field(out, "reward_std", m->reward_std);
    rein_json_put_field(out, "frac_reward_zero_std", m->frac_reward_zero_std);
    rein_json_put_field(out, "completions/mean_length", m->length_mean);
    rein_json_put_field(out, "completions/max_length", m->length_max);
    rein_json_put_field(out, "budget/share_over", m->share_over_budget);
    rein_json_put_field(out, "clip_ratio/low_mean", m->clip_low);
    rein_json_put_field(out, "clip_ratio/high_mean", m->clip_high);
    rein_json_put_field(out, "ratio/mean", m->ratio_mean);
    rein_json_put_field(out, "ratio/min", m->ratio_min);
    rein_json_put_field(out, "ratio/max", m->ratio_max);
    rein_json_put_field(out, "ratio/p99", m->ratio_p99);
    rein_json_put_field(out, "ratio/ess", m->ess);
    rein_json_put_field(out, "kl_old/k1", m->kl_old_k1);
    rein_json_put_field(out, "kl_old/k3", m->kl_old_k3);
    if (batch->ref_log_probs) rein_json_put_field(out, "kl_policy_ref", m->kl_ref_k1);
    if (batch->ref_log_probs) rein_json_put_field(out, "kl", m->kl_ref_k3);
    if (batch->exact_kl) rein_json_put_field(out, "kl_exact", m->kl_exact);
    const int teacher = batch->teacher_log_probs || batch->teacher_divergence;
    if (teacher) rein_json_put_field(out, "teacher/divergence", m->teacher_divergence);
    if (batch->entropies) rein_json_put_field(out, "entropy", m->entropy);
    rein_json_put_field(out, "loss/surrogate", m->surrogate_loss);
    rein_json_put_field(out, "loss/kl", m->kl_loss);
    if (teacher) rein_json_put_field(out, "loss/teacher", m->teacher_loss);
    rein_json_put_field(out, "loss/entropy", m->entropy_loss);
    rein_json_put_field(out, "num_tokens", m->tokens);
    rein_json_put_field(out, "trained_tokens", m->trained_tokens);
    rein_json_put_field(out, "sequences", m->sequences);
    rein_json_put_field(out, "trained_sequences", m->trained_sequences);
    rein_json_put_field(out, "groups", m->groups);
    rein_text_put(out, "}");
}

static rein_status run_policy_loss(rein_arguments *in, int grad, const rein_exec *exec, rein_text *out) {
    shape s = {0};
    rein_batch batch = {0};
    rein_options *options = NULL;
    rein_loss loss;
    read_options(in, &options);
    read_tokens(in, &s, &batch);
    read_shape(in, &s, &batch);
    read_rewards(in, &s, &batch);
    size_t n = s.tokens.n;
    double *advantages = rein_arguments_alloc(in, n, sizeof *advantages);
    double *grad_log_probs = grad ? rein_arguments_alloc(in, n, sizeof *grad_log_probs) : NULL;
    double *grad_entropies = grad && batch.entropies ? rein_arguments_alloc(in, n, sizeof *grad_entropies) : NULL;
    double *grad_exact_kl = grad && batch.exact_kl ? rein_arguments_alloc(in, n, sizeof *grad_exact_kl) : NULL;
    double *grad_teacher = grad && batch.teacher_divergence ? rein_arguments_alloc(in, n, sizeof *grad_teacher) : NULL;
    rein_status status = rein_arguments_status(in);
    if (!status)
        status = rein_policy_loss(&loss, grad_log_probs, grad_entropies, advantages, &batch, options, exec, in->fields.err);
    if (!status && grad_exact_kl) status = rein_policy_loss_exact_kl_gradient(grad_exact_kl, &batch, options, in->fields.err);
    if (!status && grad_teacher) status = rein_policy_loss_teacher_gradient(grad_teacher, &batch, options, in->fields.err);
    rein_options_free(options);
    if (status) return status;
    rein_json_put_field(out, "loss", loss.loss);
    rein_json_put_array(out, "advantages", advantages, n);
    write_metrics(out, &loss.metrics, &batch);
    if (grad_log_probs) rein_json_put_array(out, "grad_log_probs", grad_log_probs, n);
    if (grad_entropies) rein_json_put_array(out, "grad_entropies", grad_entropies, n);
    if (grad_exact_kl) rein_json_put_array(out, "grad_exact_kl", grad_exact_kl, n);
    if (grad_teacher) rein_json_put_array(out, "grad_teacher_divergence", grad_teacher, n);
    if (loss.nothing_to_train) {
        rein_json_put_name(out, "nothing_to_train");
        rein_text_put(out, "true");
        in->note = "no token trains, so the loss and every gradient are 0";
    }
    return REIN_OK;
}

const rein_operation rein_operation_policy_loss = {
    .info.name = "policy-loss",
    .info.summary = "any composition of the catalogue, over one step",
    .info.arguments =
        "log_probs, old_log_probs, and where used ref_log_probs, sample_log_probs, entropies, exact_kl, teacher_log_probs, "
        "teacher_divergence, values, mask [tokens] (null where masked); "
        "sequence_lengths, group_sizes; rewards [sequences], or reward_components [sequences][n] with reward_weights, or "
        "advantages [tokens]; where used baseline_rewards, response_lengths, correct, token_budget; preset (a name of rein explain "
        "--all) and options, an "
        "object that overrides it",
    .info.results = "loss, advantages [tokens], metrics",
    .info.gradients =
        "grad_log_probs [tokens], and grad_entropies, grad_exact_kl, grad_teacher_divergence when entropies, exact_kl, "
        "teacher_divergence are given",
    .info.formula = "shape reward → advantage → adjust per token → ratio → surrogate → + KL, entropy → aggregate\n"
                    "loss = Σ_t w_t·(ω_t·ℓ_t + β·k_t − c·H_t)",
    .info.source = "that of the preset: rein explain --all lists them",
    .info.note = "Every stage is an option; a preset is one choice for each. rein explain PRESET shows the choices, with formula, "
                 "source and defaults.",
    .info.example = "{\"preset\": \"dapo\", \"log_probs\": [-0.5, -1, -2, -0.7], \"old_log_probs\": [-0.6, -1, -1.8, -0.7], "
                    "\"sequence_lengths\": [2, 2], \"rewards\": [1, 0]}",
    .keys = KEYS,
    .run = run_policy_loss,
};
