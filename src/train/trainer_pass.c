/* trainer_pass.c - the gradient of a step: groups to log-probs, these to a loss and its gradient, and that back through the model, unit by
 * unit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tape.h"
#include "trainer.h"

/* A pass at work. Arrays are of the whole step: [n_tokens]. */
typedef struct pass_work {
    rein_trainer *t;
    const rein_pass_options *o;
    rein_options objective; /* resolved */
    rein_tape tape;
    rein_pass_result *pass;
    const rein_unit *measured;  /* or NULL */
    float *current, *entropies; /* of the policy at the beginning, where something needs them; then as they come */
    float *old, *reference, *dlog_probs, *dentropies;
    float *unit_log_probs, *unit_entropies, *unit_dlog_probs, *unit_dentropies; /* [tokens of the largest unit] */
    rein_batch batch;
    rein_step *step;
} pass_work;

static rein_policy own_policy(const rein_trainer *t) { return (rein_policy){t->model, t->adapter, t->options.temperature}; }

/* ---------------------------------------------------------------------------------------------------------------- what is needed */

static int uses_reference(const rein_options *o) { return o->kl_reward_coef > 0 || o->kl_penalty_coef > 0 || o->kl_loss_coef > 0; }
static int has_bonus(const rein_options *o) { return o->entropy_coef > 0 || o->entropy_coef < 0; }
static int uses_entropies(const rein_options *o) { return has_bonus(o) || o->top_entropy > 0; }

/* Whether the whole step's log-probs must be there before the first gradient. */
static int needs_current_first(const rein_options *o) {
    const int penalty = o->kl_penalty_coef > 0 && o->kl_penalty_source == REIN_KL_SOURCE_CURRENT_LEARNER;
    return penalty || o->kl_reward_coef > 0 || uses_entropies(o);
}

static size_t not_recorded(const rein_tape *tape) {
    size_t n = 0;
    for (size_t i = 0; i < tape->n_tokens; i++) n += tape->mask[i] && isnan(tape->recorded[i]);
    return n;
}

/* A recorded log-prob is a number; a sampler may have had none (NaN), or one of its own making (-inf, -9999): only on trained tokens does it
 * matter. */
static rein_status check_recorded(const rein_tape *tape, rein_error *err) {
    for (size_t s = 0; s < tape->n_sequences; s++)
        for (size_t i = tape->sequence_offsets[s]; i < tape->sequence_offsets[s + 1]; i++)
            if (tape->mask[i] && (isinf(tape->recorded[i]) || tape->recorded[i] > 0))
                return rein_fail(err, REIN_EINVAL,
                                 "trajectory %zu, token %zu: the recorded log-prob is %g: a number that is at most 0, or null", s,
                                 i - tape->sequence_offsets[s], (double)tape->recorded[i]);
    return REIN_OK;
}

/* ------------------------------------------------------------------------------------------------------------------ log-probs */

static void scatter(float *to, const float *from, const rein_unit *unit) {
    for (size_t i = 0; i < unit->tokens.offsets[unit->tokens.n]; i++)
        if (unit->tokens.wanted[i]) to[unit->place[i]] = from[i];
}

static void gather(float *to, const float *from, const rein_unit *unit) {
    for (size_t i = 0; i < unit->tokens.offsets[unit->tokens.n]; i++) to[i] = unit->tokens.wanted[i] ? from[unit->place[i]] : 0;
}

static int wants_something(const rein_unit *unit) {
    for (size_t i = 0; i < unit->tokens.offsets[unit->tokens.n]; i++)
        if (unit->tokens.wanted[i]) return 1;
    return 0;
}

static rein_status unit_forward(float *log_probs, float *entropies, pass_work *w, const rein_unit *unit, const rein_policy *policy,
                                const rein_forward_options *how, rein_error *err) {
    const rein_status status =
        rein_forward(w->unit_log_probs, entropies ? w->unit_entropies : NULL, w->t->activations, policy, &unit->tokens, how, err);
    if (status) return status;
    scatter(log_probs, w->unit_log_probs, unit);
    if (entropies) scatter(entropies, w->unit_entropies, unit);
    return REIN_OK;
}

static rein_status all_forward(float *log_probs, float *entropies, pass_work *w, const rein_policy *policy, rein_error *err) {
    rein_status status = REIN_OK;
    memset(log_probs, 0, w->tape.n_tokens * sizeof *log_probs);
    if (entropies) memset(entropies, 0, w->tape.n_tokens * sizeof *entropies);
    for (size_t u = 0; u < w->tape.n_units && !status; u++)
        if (wants_something(&w->tape.units[u]))
            status = unit_forward(log_probs, entropies, w, &w->tape.units[u], policy, NULL, err);
    return status;
}

static int is_measured(const rein_tape *tape, const rein_unit *unit) {
    for (size_t s = unit->first; s < unit->last; s++)
        for (size_t i = tape->sequence_offsets[s]; i < tape->sequence_offsets[s + 1] && tape->sampled_now[s]; i++)
            if (tape->mask[i] && !isnan(tape->recorded[i])) return 1;
    return 0;
}

/* The first unit that the policy sampled is computed in any case: what it recorded is held against something. */
static void find_measured(pass_work *w) {
    for (size_t u = 0; u < w->tape.n_units && !w->measured; u++)
        if (is_measured(&w->tape, &w->tape.units[u])) w->measured = &w->tape.units[u];
}

/* The policy as it is, held against what it recorded when it sampled. */
static void measure_gap(pass_work *w, const rein_unit *unit) {
    for (size_t s = unit->first; s < unit->last; s++) {
        if (!w->tape.sampled_now[s]) continue;
        for (size_t i = w->tape.sequence_offsets[s]; i < w->tape.sequence_offsets[s + 1]; i++) {
            if (!w->tape.mask[i] || isnan(w->tape.recorded[i])) continue;
            const double gap = fabs((double)w->current[i] - (double)w->tape.recorded[i]);
            if (!(gap <= w->pass->max_gap)) w->pass->max_gap = gap;
        }
    }
}

/* -------------------------------------------------------------------------------------------------------------------- the step */

static rein_status take_arrays(pass_work *w, rein_error *err) {
    rein_arena *arena = &w->t->arena;
    const size_t n = w->tape.n_tokens;
    size_t largest = 0;
    for (size_t u = 0; u < w->tape.n_units; u++) {
        const rein_tokens *tokens = &w->tape.units[u].tokens;
        if (tokens->offsets[tokens->n] > largest) largest = tokens->offsets[tokens->n];
    }
    float **arrays[] = {&w->current, &w->entropies, &w->old, &w->reference, &w->dlog_probs, &w->dentropies};
    float **of_unit[] = {&w->unit_log_probs, &w->unit_entropies, &w->unit_dlog_probs, &w->unit_dentropies};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        if ((*arrays[i] = rein_arena_floats(arena, n))) memset(*arrays[i], 0, n * sizeof(float));
    for (size_t i = 0; i < sizeof of_unit / sizeof *of_unit; i++) *of_unit[i] = rein_arena_floats(arena, largest);
    return arena->failed ? rein_fail(err, REIN_ENOMEM, "no memory for the log-probs of %zu tokens", n) : REIN_OK;
}

static rein_status make_tape(pass_work *w, const rein_groups *groups, rein_error *err) {
    const rein_tape_options o = {w->t->options.share_limit,
                                 w->t->options.no_sharing,
                                 w->o ? w->o->mask_truncated_completions : 0,
                                 w->o ? w->o->policy_step : -1,
                                 w->o ? w->objective.token_budget : NAN,
                                 w->o && (w->objective.shape == REIN_SHAPE_BUDGET || w->objective.shape == REIN_SHAPE_TRUNCATE)};
    rein_arena_reset(&w->t->arena);
    const rein_status status = rein_tape_make(&w->tape, groups, &o, &w->t->arena, err);
    return status ? status : take_arrays(w, err);
}

static rein_status reference_pass(pass_work *w, rein_error *err) {
    const double began = rein_now();
    if (!uses_reference(&w->objective)) return REIN_OK;
    if (w->o->reference_log_probs) {
        memcpy(w->reference, w->o->reference_log_probs, w->tape.n_tokens * sizeof *w->reference);
        return REIN_OK;
    }
    if (!w->o->reference)
        return rein_fail(err, REIN_EINVAL,
                         "the objective has a KL to a reference (kl_reward_coef, kl_penalty_coef or kl_loss_coef), and "
                         "there is no reference");
    const rein_status status = all_forward(w->reference, NULL, w, w->o->reference, err);
    for (size_t i = 0; i < w->tape.n_tokens; i++) w->pass->reference_tokens += w->tape.mask[i];
    w->pass->seconds_reference = rein_now() - began;
    return status;
}

/* Log-probs that whole-step quantities are made of, before the first gradient. */
static rein_status before_the_step(pass_work *w, rein_error *err) {
    const rein_policy own = own_policy(w->t);
    rein_status status = check_recorded(&w->tape, err);
    if (!status) status = reference_pass(w, err);
    if (status) return status;
    w->pass->recomputed = not_recorded(&w->tape);
    const double began = rein_now();
    const int known = w->o->recorded_are_current && !w->pass->recomputed && !uses_entropies(&w->objective);
    if (known) memcpy(w->current, w->tape.recorded, w->tape.n_tokens * sizeof *w->current);
    else if (needs_current_first(&w->objective))
        status = all_forward(w->current, uses_entropies(&w->objective) ? w->entropies : NULL, w, &own, err);
    w->pass->seconds_forward = rein_now() - began;
    return status;
}

/* The old log-probs of a unit: recorded ones, or those that were just computed; no step of the optimizer lies between. */
static void take_old(pass_work *w, const rein_unit *unit) {
    const int recorded = w->objective.mismatch == REIN_MISMATCH_NONE;
    for (size_t i = w->tape.sequence_offsets[unit->first]; i < w->tape.sequence_offsets[unit->last]; i++)
        if (w->tape.mask[i] && w->o->old_log_probs) w->old[i] = w->o->old_log_probs[i];
        else if (w->tape.mask[i]) w->old[i] = recorded && !isnan(w->tape.recorded[i]) ? w->tape.recorded[i] : w->current[i];
}

static int uses_recorded(const rein_options *o) {
    const int source = (o->kl_penalty_coef > 0 || o->kl_reward_coef > 0) && o->kl_penalty_source == REIN_KL_SOURCE_SAMPLE;
    return o->mismatch != REIN_MISMATCH_NONE || !isnan(o->off_policy_mask_delta) || source;
}

static rein_status begin_step(pass_work *w, rein_error *err) {
    const rein_tape *tape = &w->tape;
    if (uses_recorded(&w->objective) && w->pass->recomputed)
        return rein_fail(err, REIN_EINVAL,
                         "%zu trained tokens have no recorded log-prob: mismatch, off_policy_mask_delta and "
                         "kl_penalty_source sample need what the sampler saw",
                         w->pass->recomputed);
    w->batch = (rein_batch){.n_groups = tape->n_groups,
                            .n_sequences = tape->n_sequences,
                            .group_offsets = tape->group_offsets,
                            .sequence_offsets = tape->sequence_offsets,
                            .dtype = REIN_F32,
                            .mask = tape->mask,
                            .log_probs = w->current,
                            .old_log_probs = w->old,
                            .ref_log_probs = uses_reference(&w->objective) ? w->reference : NULL,
                            .sample_log_probs = uses_recorded(&w->objective) ? tape->recorded : NULL,
                            .entropies = w->entropies, /* measured, if nothing else */
                            .values = w->objective.advantage == REIN_ADVANTAGE_GAE ? tape->values : NULL,
                            .rewards = tape->rewards,
                            .response_lengths = tape->lengths,
                            .token_budgets = tape->budgets};
    const size_t size = rein_step_size(&w->batch, &w->objective, &w->t->options.exec);
    void *room = rein_arena_take(&w->t->arena, size ? size : 1);
    if (!room) return rein_fail(err, REIN_ENOMEM, "no memory for a step of %zu trajectories", tape->n_sequences);
    return rein_step_begin(&w->step, room, size ? size : 1, &w->batch, &w->objective, &w->t->options.exec, err);
}

/* Forward, loss and backward of one unit; its gradient goes to the shard of its group. */
static rein_status unit_backward(pass_work *w, const rein_unit *unit, rein_error *err) {
    rein_trainer *t = w->t;
    const rein_policy own = own_policy(t);
    const int bonus = has_bonus(&w->objective), wanted = wants_something(unit);
    const rein_forward_options how = {1, bonus, t->options.recompute, unit == w->measured ? NULL : t->options.activation_cache};
    rein_status status = REIN_OK;
    const double began = rein_now();
    if (wanted) status = unit_forward(w->current, w->entropies, w, unit, &own, &how, err);
    if (wanted && !status) w->pass->cached_tokens += rein_activations_cached_tokens(t->activations);
    if (!status) measure_gap(w, unit), take_old(w, unit);
    if (!status)
        status = rein_step_loss(w->step, unit->first, unit->last, w->current, w->entropies, w->dlog_probs,
                                bonus ? w->dentropies : NULL, w->o->advantages, err);
    const double middle = rein_now();
    w->pass->seconds_forward += middle - began;
    if (status || !wanted) return status;
    gather(w->unit_dlog_probs, w->dlog_probs, unit);
    if (bonus) gather(w->unit_dentropies, w->dentropies, unit);
    int any = 0;
    for (size_t i = 0; i < unit->tokens.offsets[unit->tokens.n] && !any; i++)
        any = w->unit_dlog_probs[i] != 0 || (bonus && w->unit_dentropies[i] != 0);
    if (any) {
        float *shard = t->shards + (t->groups + unit->group) % t->options.shards * t->floats;
        w->pass->nothing_to_train = 0;
        status = rein_backward(shard, t->activations, w->unit_dlog_probs, bonus ? w->unit_dentropies : NULL, err);
    }
    w->pass->seconds_backward += rein_now() - middle;
    return status;
}

static rein_status run_pass(pass_work *w, const rein_groups *groups, rein_error *err) {
    rein_status status = rein_options_resolve(&w->objective, &w->o->objective, err);
    if (!status) status = make_tape(w, groups, err);
    if (!status) status = before_the_step(w, err);
    if (!status) status = begin_step(w, err);
    if (!status) find_measured(w);
    for (size_t u = 0; u < w->tape.n_units && !status; u++) status = unit_backward(w, &w->tape.units[u], err);
    if (!status) status = rein_step_finish(&w->pass->loss, w->step, err);
    if (!status && w->o->recorded_are_current && w->pass->max_gap > 0)
        status = rein_fail(err, REIN_EINVAL,
                           "the recorded log-probs are not those of the policy as it is, as was said: they differ by up to %g",
                           w->pass->max_gap);
    return status;
}

rein_status rein_trainer_forward_backward(rein_pass_result *pass, rein_trainer *t, const rein_groups *groups,
                                          const rein_pass_options *options, rein_error *err) {
    rein_pass_result result = {.nothing_to_train = 1, .max_gap = NAN};
    pass_work w = {.t = t, .o = options, .pass = &result};
    const rein_status status = run_pass(&w, groups, err);
    if (status) {
        rein_trainer_clear(t);
        return status;
    }
    t->holds |= !result.nothing_to_train;
    t->groups = t->holds ? t->groups + groups->n : 0; /* without a gradient there is no trace: resuming knows of none */
    *pass = result;
    return REIN_OK;
}

rein_status rein_trainer_log_probs(float *log_probs, float *entropies, rein_trainer *t, const rein_policy *policy,
                                   const rein_groups *groups, rein_error *err) {
    pass_work w = {.t = t};
    const rein_policy own = own_policy(t);
    const rein_status status = make_tape(&w, groups, err);
    return status ? status : all_forward(log_probs, entropies, &w, policy ? policy : &own, err);
}
