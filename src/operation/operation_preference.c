/* operation_preference.c - losses over preferences, of reward models and of critics, from JSON to JSON. */
#include <math.h>
#include <string.h>

#include "operation.h"
#include "rein/objective.h"

/* ------------------------------------------------------------------------------------------------------------ preference-loss */

static const char *const PREFERENCE_KEYS[] = {"loss",
                                              "chosen_log_probs",
                                              "rejected_log_probs",
                                              "ref_chosen_log_probs",
                                              "ref_rejected_log_probs",
                                              "chosen_lengths",
                                              "rejected_lengths",
                                              "log_probs",
                                              "ref_log_probs",
                                              "labels",
                                              "kl",
                                              "beta",
                                              "label_smoothing",
                                              "simpo_gamma",
                                              "cpo_alpha",
                                              "desirable_weight",
                                              "undesirable_weight",
                                              NULL};

/* The names of the losses, in the order of the enum. */
static const char *const LOSSES[] = {"dpo", "cdpo", "robust", "hinge", "ipo_mean", "ipo_sum", "simpo", "cpo", "orpo", "kto", NULL};

static const rein_preference_info *read_loss(rein_arguments *in) {
    rein_fields_string(&in->fields, "loss"); /* it is required */
    const int at = rein_fields_choice_or(&in->fields, "loss", LOSSES, 0);
    return rein_preference_describe(LOSSES[at]);
}

/* A given constant replaces the published one. */
static void read_constants(rein_arguments *in, rein_preference_options *o) {
    struct {
        const char *name;
        double *to;
    } constants[] = {
        {"beta", &o->beta},           {"label_smoothing", &o->label_smoothing},   {"simpo_gamma", &o->simpo_gamma},
        {"cpo_alpha", &o->cpo_alpha}, {"desirable_weight", &o->desirable_weight}, {"undesirable_weight", &o->undesirable_weight}};
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (rein_arguments_has(in, constants[i].name)) *constants[i].to = rein_arguments_number(in, constants[i].name);
    if (!in->fields.status) in->fields.status = rein_preference_check(o, in->fields.err);
}

/* Arguments that the loss does not have are errors: a reference that is given must have an effect. */
static void refuse(rein_arguments *in, const rein_preference_info *info, const char *const *names) {
    for (; *names; names++)
        if (rein_arguments_has(in, *names))
            rein_fields_fail(&in->fields, REIN_EINVAL, *names, -1, "has no effect with loss \"%s\"", info->name);
}

static void refuse_unused(rein_arguments *in, const rein_preference_info *info) {
    static const char *const of_pairs[] = {"chosen_log_probs",
                                           "rejected_log_probs",
                                           "ref_chosen_log_probs",
                                           "ref_rejected_log_probs",
                                           "chosen_lengths",
                                           "rejected_lengths",
                                           NULL};
    static const char *const of_kto[] = {"log_probs", "ref_log_probs", "labels", "kl", NULL};
    const int kto = info->loss == REIN_PREFERENCE_KTO;
    refuse(in, info, kto ? of_pairs : of_kto);
    if (!kto && !info->uses_lengths) refuse(in, info, of_pairs + 4);
    if (!kto && !info->uses_reference)
        refuse(in, info, (const char *const[]){"ref_chosen_log_probs", "ref_rejected_log_probs", NULL});
}

static void put_metric(rein_text *out, const char *name, double value) {
    if (!isnan(value)) rein_json_put_field(out, name, value);
}

static void write_metrics(rein_text *out, const rein_preference_metrics *m) {
    rein_json_put_name(out, "metrics");
    rein_text_put(out, "{");
    put_metric(out, "rewards/chosen", m->rewards_chosen);
    put_metric(out, "rewards/rejected", m->rewards_rejected);
    put_metric(out, "rewards/margins", m->rewards_margins);
    put_metric(out, "rewards/accuracies", m->rewards_accuracies);
    put_metric(out, "logps/chosen", m->logps_chosen);
    put_metric(out, "logps/rejected", m->logps_rejected);
    rein_text_put(out, "}");
}

static void read_pairs(rein_arguments *in, rein_pairs *pairs, rein_axis *axis, const rein_preference_info *info) {
    pairs->chosen_log_probs = rein_arguments_numbers(in, "chosen_log_probs", axis, NULL);
    pairs->rejected_log_probs = rein_arguments_numbers(in, "rejected_log_probs", axis, NULL);
    if (info->uses_reference) pairs->ref_chosen_log_probs = rein_arguments_numbers(in, "ref_chosen_log_probs", axis, NULL);
    if (info->uses_reference) pairs->ref_rejected_log_probs = rein_arguments_numbers(in, "ref_rejected_log_probs", axis, NULL);
    if (info->uses_lengths) pairs->chosen_lengths = rein_arguments_lengths(in, "chosen_lengths", axis);
    if (info->uses_lengths && (info->loss != REIN_PREFERENCE_CPO || rein_arguments_has(in, "rejected_lengths")))
        pairs->rejected_lengths = rein_arguments_lengths(in, "rejected_lengths", axis);
    pairs->n = axis->n;
}

static rein_status run_pairs(rein_arguments *in, const rein_preference_info *info, const rein_preference_options *options, int grad,
                             rein_text *out) {
    rein_axis axis = {0};
    rein_pairs pairs = {0};
    rein_preference_metrics metrics;
    double loss;
    read_pairs(in, &pairs, &axis, info);
    double *chosen = grad ? rein_arguments_alloc(in, axis.n, sizeof *chosen) : NULL;
    double *rejected = grad ? rein_arguments_alloc(in, axis.n, sizeof *rejected) : NULL;
    rein_status status = rein_arguments_status(in);
    if (!status) status = rein_preference_loss(&loss, chosen, rejected, &metrics, &pairs, options, in->fields.err);
    if (status) return status;
    rein_json_put_field(out, "loss", loss);
    write_metrics(out, &metrics);
    if (grad) rein_json_put_array(out, "grad_chosen_log_probs", chosen, axis.n);
    if (grad) rein_json_put_array(out, "grad_rejected_log_probs", rejected, axis.n);
    return REIN_OK;
}

static rein_status run_kto(rein_arguments *in, const rein_preference_options *options, int grad, rein_text *out) {
    rein_axis axis = {0};
    rein_preference_metrics metrics;
    double loss;
    const double *log_probs = rein_arguments_numbers(in, "log_probs", &axis, NULL);
    const double *ref_log_probs = rein_arguments_numbers(in, "ref_log_probs", &axis, NULL);
    const uint8_t *labels = rein_arguments_bits(in, "labels", &axis);
    const double kl = rein_arguments_number(in, "kl");
    double *gradient = grad ? rein_arguments_alloc(in, axis.n, sizeof *gradient) : NULL;
    rein_status status = rein_arguments_status(in);
    if (!status)
        status = rein_kto_loss(&loss, gradient, &metrics, log_probs, ref_log_probs, labels, axis.n, kl, options, in->fields.err);
    if (status) return status;
    rein_json_put_field(out, "loss", loss);
    write_metrics(out, &metrics);
    if (grad) rein_json_put_array(out, "grad_log_probs", gradient, axis.n);
    return REIN_OK;
}

static rein_status run_preference_loss(rein_arguments *in, int grad, const rein_exec *exec, rein_text *out) {
    const rein_preference_info *info = read_loss(in);
    rein_preference_options options = rein_preference_published(info->loss);
    (void)exec;
    read_constants(in, &options);
    refuse_unused(in, info);
    if (rein_arguments_status(in)) return rein_arguments_status(in);
    return info->loss == REIN_PREFERENCE_KTO ? run_kto(in, &options, grad, out) : run_pairs(in, info, &options, grad, out);
}

const rein_operation rein_operation_preference_loss = {
    .info.name = "preference-loss",
    .info.summary = "losses over preferences: DPO and its relatives",
    .info.arguments =
        "loss: dpo, cdpo, robust, hinge, ipo_mean, ipo_sum, simpo, cpo, orpo or kto; chosen_log_probs, rejected_log_probs [pairs], "
        "sums "
        "over a completion; where used ref_chosen_log_probs, ref_rejected_log_probs, chosen_lengths, rejected_lengths [pairs]; kto "
        "has log_probs, ref_log_probs, labels [n] and kl instead; optional beta, and where the loss has them label_smoothing, "
        "simpo_gamma, cpo_alpha, desirable_weight, undesirable_weight",
    .info.results = "loss, metrics",
    .info.gradients = "grad_chosen_log_probs, grad_rejected_log_probs [pairs]; kto: grad_log_probs [n]",
    .info.formula = "dpo: mean −log σ(β((s_w − ref_w) − (s_l − ref_l)));  rein explain LOSS shows the others",
    .info.source = "that of the loss: rein explain dpo, rein explain kto, …",
    .info.note =
        "s is the sum of the log-probs of a completion, its end token included. beta is 0.1 where nothing else was published.",
    .info.example = "{\"loss\": \"dpo\", \"chosen_log_probs\": [-10, -12], \"rejected_log_probs\": [-11, -9], "
                    "\"ref_chosen_log_probs\": [-12, -12], \"ref_rejected_log_probs\": [-10, -10]}",
    .keys = PREFERENCE_KEYS,
    .run = run_preference_loss,
};

/* ---------------------------------------------------------------------------------------------------------------- reward-loss */

static const char *const REWARD_KEYS[] = {"chosen_rewards", "rejected_rewards", "margins", "center_rewards_coefficient", NULL};

static rein_status run_reward_loss(rein_arguments *in, int grad, const rein_exec *exec, rein_text *out) {
    rein_axis axis = {0};
    double loss, accuracy, centre = 0;
    (void)exec;
    const double *chosen = rein_arguments_numbers(in, "chosen_rewards", &axis, NULL);
    const double *rejected = rein_arguments_numbers(in, "rejected_rewards", &axis, NULL);
    const double *margins = rein_arguments_has(in, "margins") ? rein_arguments_numbers(in, "margins", &axis, NULL) : NULL;
    if (rein_arguments_has(in, "center_rewards_coefficient")) centre = rein_arguments_number(in, "center_rewards_coefficient");
    double *by_chosen = grad ? rein_arguments_alloc(in, axis.n, sizeof *by_chosen) : NULL;
    double *by_rejected = grad ? rein_arguments_alloc(in, axis.n, sizeof *by_rejected) : NULL;
    rein_status status = rein_arguments_status(in);
    if (!status)
        status =
            rein_reward_loss(&loss, by_chosen, by_rejected, &accuracy, chosen, rejected, margins, axis.n, centre, in->fields.err);
    if (status) return status;
    rein_json_put_field(out, "loss", loss);
    rein_json_put_field(out, "accuracy", accuracy);
    if (grad) rein_json_put_array(out, "grad_chosen_rewards", by_chosen, axis.n);
    if (grad) rein_json_put_array(out, "grad_rejected_rewards", by_rejected, axis.n);
    return REIN_OK;
}

const rein_operation rein_operation_reward_loss = {
    .info.name = "reward-loss",
    .info.summary = "Bradley–Terry loss of a reward model",
    .info.arguments = "chosen_rewards, rejected_rewards [pairs]; optional margins [pairs], center_rewards_coefficient",
    .info.results = "loss, accuracy",
    .info.gradients = "grad_chosen_rewards, grad_rejected_rewards [pairs]",
    .info.formula = "mean −log σ(r_w − r_l − m) + c·(r_w + r_l)²\ne = σ(−(r_w − r_l − m))\n"
                    "d/dr_w = −e + 2c(r_w + r_l), d/dr_l = e + 2c(r_w + r_l), each over the number of pairs",
    .info.source = "InstructGPT, arXiv 2203.02155; margin: Llama 2, arXiv 2307.09288; centring: arXiv 2312.09244",
    .info.note =
        "c is center_rewards_coefficient, 0 if it is absent; 0.01 is the advice of its paper. accuracy is the share of pairs with "
        "r_w > r_l.",
    .info.example = "{\"chosen_rewards\": [1.5, 0.2], \"rejected_rewards\": [0.5, 0.4], \"margins\": [0, 0.5], "
                    "\"center_rewards_coefficient\": 0.01}",
    .keys = REWARD_KEYS,
    .run = run_reward_loss,
};

/* ----------------------------------------------------------------------------------------------------------------- value-loss */

static const char *const VALUE_KEYS[] = {"values", "old_values", "returns", "mask", "value_clip", NULL};

static rein_status run_value_loss(rein_arguments *in, int grad, const rein_exec *exec, rein_text *out) {
    rein_axis axis = {0};
    double loss, clip = .5;
    size_t trained;
    const uint8_t *mask = rein_arguments_has(in, "mask") ? rein_arguments_bits(in, "mask", &axis) : NULL;
    const double *values = rein_arguments_numbers(in, "values", &axis, mask);
    const double *old_values = rein_arguments_numbers(in, "old_values", &axis, mask);
    const double *returns = rein_arguments_numbers(in, "returns", &axis, mask);
    if (rein_arguments_has(in, "value_clip")) clip = rein_arguments_number(in, "value_clip");
    double *gradient = grad ? rein_arguments_alloc(in, axis.n, sizeof *gradient) : NULL;
    rein_status status = rein_arguments_status(in);
    if (!status)
        status = rein_value_loss(&loss, &trained, gradient, values, old_values, returns, mask, axis.n, clip, exec, in->fields.err);
    if (status) return status;
    rein_json_put_field(out, "loss", loss);
    if (grad) rein_json_put_array(out, "grad_values", gradient, axis.n);
    if (!trained) in->note = "no token trains, so the loss and every gradient are 0";
    return REIN_OK;
}

const rein_operation rein_operation_value_loss = {
    .info.name = "value-loss",
    .info.summary = "loss of a critic, with clipped values",
    .info.arguments = "values, old_values, returns [tokens] (null where masked); optional mask [tokens], value_clip",
    .info.results = "loss",
    .info.gradients = "grad_values [tokens]",
    .info.formula = "½·mean max((V − G)², (clip(V, V_old ± ε) − G)²)\n"
                    "d/dV = (V − G)/N where |V − V_old| ≤ ε or (V − G)² ≥ (clip − G)², else 0",
    .info.source = "PPO2 of OpenAI Baselines; ε 0.5 as in verl and OpenRLHF",
    .info.note =
        "ε is value_clip, 0.5 if it is absent; N is the number of trained tokens. The return is G = A + V_old, before advantages "
        "are whitened.",
    .info.example = "{\"values\": [0.5, 1.2, 0.1], \"old_values\": [0.4, 0.3, 0.2], \"returns\": [1, 1, 0], \"mask\": [1, 1, 0]}",
    .keys = VALUE_KEYS,
    .run = run_value_loss,
};
