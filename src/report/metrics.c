/* metrics.c - the table of metric names. */
#include "metrics.h"

#include <math.h>
#include <string.h>

enum { TRAINED = 64 }; /* at least one token trained: continues rein_step_parts */

#define AT(field) offsetof(rein_step_numbers, field)
#define LOSS(field) offsetof(rein_step_numbers, loss.metrics.field)

/* The value is the number at offset `first`, plus the number at offset `second` unless that is 0 (the loss, which is never second). */
static const struct {
    const char *name;
    size_t first;
    unsigned needs;
    size_t second;
} table[] = {
    {"reward", LOSS(reward), REIN_STEP_REWARDS, 0},
    {"reward_std", LOSS(reward_std), REIN_STEP_REWARDS, 0},
    {"frac_reward_zero_std", LOSS(frac_reward_zero_std), 0, 0},
    {"completions/mean_length", LOSS(length_mean), 0, 0},
    {"completions/max_length", LOSS(length_max), 0, 0},
    {"completions/clipped_ratio", AT(clipped_ratio), 0, 0},
    {"budget/share_over", LOSS(share_over_budget), REIN_STEP_BUDGETS, 0},
    {"budget/multiplier", AT(budget_multiplier), 0, 0},
    {"loss", AT(loss.loss), 0, 0},
    {"loss/surrogate", LOSS(surrogate_loss), 0, 0},
    {"loss/kl", LOSS(kl_loss), 0, 0},
    {"loss/teacher", LOSS(teacher_loss), REIN_STEP_TEACHER, 0},
    {"loss/entropy", LOSS(entropy_loss), 0, 0},
    {"grad_norm", AT(gradient_norm), 0, 0},
    {"learning_rate", AT(learning_rate), 0, 0},
    {"kl", LOSS(kl_ref_k3), TRAINED | REIN_STEP_REFERENCE, 0},
    {"kl_policy_ref", LOSS(kl_ref_k1), TRAINED | REIN_STEP_REFERENCE, 0},
    {"kl_exact", LOSS(kl_exact), TRAINED | REIN_STEP_EXACT_KL, 0},
    {"teacher/divergence", LOSS(teacher_divergence), TRAINED | REIN_STEP_TEACHER, 0},
    {"kl/reward_coef", AT(kl_reward_coef), 0, 0},
    {"kl/of_target", AT(kl_of_target), 0, 0},
    {"kl/old_k1", LOSS(kl_old_k1), TRAINED, 0},
    {"kl/old_k3", LOSS(kl_old_k3), TRAINED, 0},
    {"entropy", LOSS(entropy), TRAINED | REIN_STEP_ENTROPIES, 0},
    {"clip_ratio/low_mean", LOSS(clip_low), TRAINED, 0},
    {"clip_ratio/high_mean", LOSS(clip_high), TRAINED, 0},
    {"clip_ratio/region_mean", LOSS(clip_low), TRAINED, LOSS(clip_high)},
    {"ratio/mean", LOSS(ratio_mean), TRAINED, 0},
    {"ratio/min", LOSS(ratio_min), TRAINED, 0},
    {"ratio/max", LOSS(ratio_max), TRAINED, 0},
    {"ratio/p99", LOSS(ratio_p99), TRAINED, 0},
    {"ratio/ess", LOSS(ess), TRAINED, 0},
    {"on_policy/max_gap", AT(on_policy_gap), 0, 0},
    {"critic/loss", AT(critic_loss), 0, 0},
    {"critic/explained_variance", AT(critic_explained_variance), 0, 0},
    {"critic/clip_fraction", AT(critic_clip_fraction), 0, 0},
    {"critic/value_mean", AT(critic_value_mean), 0, 0},
    {"critic/return_mean", AT(critic_return_mean), 0, 0},
    {"critic/grad_norm", AT(critic_gradient_norm), 0, 0},
    {"critic/learning_rate", AT(critic_learning_rate), 0, 0},
    {"advantages/mean", AT(advantage_mean), 0, 0},
    {"advantages/std", AT(advantage_std), 0, 0},
    {"experts/load_max", AT(expert_load_max), 0, 0},
    {"experts/load_cv", AT(expert_load_cv), 0, 0},
    {"experts/entropy", AT(expert_entropy), 0, 0},
    {"experts/balance_loss", AT(expert_balance_loss), 0, 0},
    {"num_tokens", AT(num_tokens), 0, 0},
    {"tokens/trained", LOSS(trained_tokens), 0, 0},
    {"tokens_per_second", AT(tokens_per_second), 0, 0},
    {"step_time", AT(seconds_step), 0, 0},
    {"time/sample", AT(seconds_sample), 0, 0},
    {"time/reference", AT(seconds_reference), 0, 0},
    {"time/forward", AT(seconds_forward), 0, 0},
    {"time/backward", AT(seconds_backward), 0, 0},
    {"time/optimizer", AT(seconds_optimizer), 0, 0},
    {"time/wait", AT(seconds_wait), 0, 0},
    {"time/wait_max", AT(seconds_wait_max), 0, 0},
    {"time/exchange", AT(seconds_exchange), 0, 0},
    {"exchange/bytes", AT(exchange_bytes), 0, 0},
    {"exchange/calls", AT(exchange_calls), 0, 0},
    {"time/critic", AT(seconds_critic), 0, 0},
    {"peak_memory", AT(peak_memory), 0, 0},
};
_Static_assert(sizeof table / sizeof *table == REIN_METRIC_ROWS, "REIN_METRIC_ROWS is the number of rows");

int rein_metric_is_known(const char *name) {
    for (size_t i = 0; i < REIN_METRIC_ROWS; i++)
        if (!strcmp(table[i].name, name)) return 1;
    return 0;
}

void rein_step_numbers_clear(rein_step_numbers *numbers) {
    const double nothing = NAN;
    memset(numbers, 0, sizeof *numbers);
    for (size_t i = 0; i < REIN_METRIC_ROWS; i++) memcpy((char *)numbers + table[i].first, &nothing, sizeof nothing);
}

static double number_at(const rein_step_numbers *numbers, size_t offset) {
    double value;
    memcpy(&value, (const char *)numbers + offset, sizeof value);
    return value;
}

size_t rein_metric_rows(rein_named_number *rows, size_t capacity, const rein_step_numbers *numbers) {
    const unsigned has = numbers->parts | (numbers->loss.nothing_to_train ? 0 : TRAINED);
    size_t n = 0;
    for (size_t i = 0; i < REIN_METRIC_ROWS; i++) {
        double value = number_at(numbers, table[i].first);
        if (table[i].second) value += number_at(numbers, table[i].second);
        if (isnan(value) || (table[i].needs & ~has)) continue;
        if (n < capacity) rows[n] = (rein_named_number){table[i].name, value};
        n++;
    }
    return n;
}

/* ------------------------------------------------------------------------------------------------------------------------ JSON */

json_t *rein_metric_object(int64_t step, const rein_named_number *rows, size_t n) {
    json_t *object = json_object();
    int failed = json_object_set_new(object, "step", json_integer(step));
    for (size_t i = 0; i < n && !failed; i++)
        failed = json_object_set_new(object, rows[i].name, isfinite(rows[i].value) ? json_real(rows[i].value) : json_null());
    if (!failed) return object;
    json_decref(object);
    return NULL;
}
