/* trainer_pass.c - the gradient of a step, micro-batch by micro-batch: forward to log-probs, the loss and its gradient, backward through the
 * model. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "model/beside.h"
#include "objective/options.h"
#include "packing.h"
#include "preferences.h"
#include "trainer.h"

/* A pass at work. Arrays are of the whole step: [n_tokens]. */
typedef struct pass_work {
    rein_trainer *t;
    const rein_pass_options *o;
    rein_policy own;        /* whose log-probs are computed: the trainer's, at the temperature of the pass, or one that was given */
    rein_options objective; /* resolved */
    int has_reference;      /* the objective has a KL to a reference */
    rein_packing packing;
    rein_pass_result *pass;
    const rein_micro_batch *measured; /* or NULL */
    /* Of the current policy: all at the beginning, if something needs them; else as they are computed. */
    float *current, *entropies;
    float *old, *reference, *kl, *dlog_probs, *dentropies, *dkl; /* kl: the exact one */
    float *teacher,
        *divergence; /* log-probs under the teacher, or its divergence over the whole vocabulary, whose gradient is dkl too */
    float *batch_log_probs, *batch_entropies, *batch_reference, *batch_kl; /* [tokens of the largest micro-batch] */
    float *batch_dlog_probs, *batch_dentropies, *batch_dkl;
    rein_batch batch;
    rein_step *step;
    void *room; /* of the step */
    size_t room_size;
    size_t *ranks; /* [n_micro_batches] which rank computes each */
    int repeats;   /* 1: the loss is computed again in the end, since this rank has not computed all of it in order */
} pass_work;

static rein_policy own_policy(const rein_trainer *t, double temperature) {
    return (rein_policy){t->model, t->adapter, temperature > 0 ? temperature : t->options.temperature};
}

/* ---------------------------------------------------------------------------------------------------------------- what is needed */

static int has_bonus(const rein_options *o) { return o->entropy_coef > 0 || o->entropy_coef < 0; }
static int uses_entropies(const rein_options *o) { return has_bonus(o) || o->top_entropy > 0; }

/* 1 if the log-probs of the whole step are needed before the first gradient. */
static int needs_current_first(const rein_options *o) {
    const int penalty = o->kl_penalty_coef > 0 && o->kl_penalty_source == REIN_KL_SOURCE_CURRENT_LEARNER;
    return penalty || o->kl_reward_coef > 0 || o->kl_reward_exact > 0 || rein_teacher_in_advantage(o) || uses_entropies(o);
}

static size_t not_recorded(const rein_packing *packing) {
    size_t n = 0;
    for (size_t i = 0; i < packing->n_tokens; i++) n += packing->mask[i] && isnan(packing->recorded[i]);
    return n;
}

/* ------------------------------------------------------------------------------------------------------------------ log-probs */

static void scatter(float *to, const float *from, const rein_micro_batch *micro_batch) {
    for (size_t i = 0; i < micro_batch->tokens.offsets[micro_batch->tokens.n]; i++)
        if (micro_batch->tokens.wanted[i]) to[micro_batch->index[i]] = from[i];
}

static void gather(float *to, const float *from, const rein_micro_batch *micro_batch) {
    for (size_t i = 0; i < micro_batch->tokens.offsets[micro_batch->tokens.n]; i++)
        to[i] = micro_batch->tokens.wanted[i] ? from[micro_batch->index[i]] : 0;
}

static int wants_something(const rein_micro_batch *micro_batch) {
    for (size_t i = 0; i < micro_batch->tokens.offsets[micro_batch->tokens.n]; i++)
        if (micro_batch->tokens.wanted[i]) return 1;
    return 0;
}

/* The model whose whole distributions a forward pass compares with those of the policy. */
enum beside { ALONE, REFERENCE, TEACHER };

/* Whose gradient the loss has: a composition has one of them at most. */
static enum beside beside_in_loss(const rein_options *o) {
    return rein_exact_kl_loss(o) ? REFERENCE : rein_teacher_in_loss(o) ? TEACHER : ALONE;
}

static rein_beside beside_of(const pass_work *w, enum beside which) {
    rein_beside beside = {.activations = w->t->reference_activations,
                          .policy = w->o->reference,
                          .kl = w->batch_kl,
                          .log_probs = w->batch_reference,
                          .kl_gradient = which == beside_in_loss(&w->objective),
                          .divergence = REIN_DIVERGENCE_REVERSE};
    if (which == TEACHER) beside.policy = w->o->teacher, beside.divergence = w->objective.divergence;
    if (which == TEACHER) beside.jsd_beta = w->objective.jsd_beta;
    return beside;
}

/* Beside the reference, the log-probs of that and the exact KL are those of the micro-batch then; beside the teacher, the divergence. */
static rein_status forward(float *log_probs, float *entropies, enum beside which, pass_work *w, const rein_micro_batch *micro_batch,
                           const rein_policy *policy, const rein_forward_options *how, rein_error *err) {
    const rein_beside beside = which ? beside_of(w, which) : (rein_beside){0};
    const rein_status status =
        rein_forward_beside(w->batch_log_probs, entropies ? w->batch_entropies : NULL, which ? &beside : NULL, w->t->activations,
                            policy, &micro_batch->tokens, how, err);
    if (status) return status;
    scatter(log_probs, w->batch_log_probs, micro_batch);
    if (entropies) scatter(entropies, w->batch_entropies, micro_batch);
    if (which == REFERENCE) scatter(w->reference, w->batch_reference, micro_batch);
    if (which) scatter(which == REFERENCE ? w->kl : w->divergence, w->batch_kl, micro_batch);
    return REIN_OK;
}

rein_status rein_trainer_ask_watch(const rein_trainer *t, size_t done, size_t all, rein_error *err) {
    if (!t->watch.call || !t->watch.call(t->watch.context, done, all)) return REIN_OK;
    return rein_fail(err, REIN_ECANCELLED, "the step was stopped");
}

/* What a forward pass beside the reference gives. */
static rein_status share_exact_kl(pass_work *w, rein_error *err) {
    const rein_status status = rein_trainer_share_tokens(w->reference, w->ranks, w->t, &w->packing, err);
    return status ? status : rein_trainer_share_tokens(w->kl, w->ranks, w->t, &w->packing, err);
}

static int is_mine(const pass_work *w, size_t u) { return w->ranks[u] == rein_ranks_rank(w->t->ranks); }

static rein_status all_forward(float *log_probs, float *entropies, enum beside which, pass_work *w, const rein_policy *policy,
                               rein_error *err) {
    const rein_forward_options how = {.truncation = policy == &w->own && w->o ? w->o->truncation : NULL};
    rein_status status = REIN_OK;
    memset(log_probs, 0, w->packing.n_tokens * sizeof *log_probs);
    if (entropies) memset(entropies, 0, w->packing.n_tokens * sizeof *entropies);
    rein_trainer_assign(w->ranks, w->t, &w->packing, 0);
    for (size_t u = 0; u < w->packing.n_micro_batches && !status; u++) {
        status = rein_trainer_ask_watch(w->t, 0, 0, err);
        if (!status && is_mine(w, u) && wants_something(&w->packing.micro_batches[u]))
            status = forward(log_probs, entropies, which, w, &w->packing.micro_batches[u], policy, &how, err);
    }
    status = rein_ranks_agree(w->t->ranks, status, err);
    if (!status) status = rein_trainer_share_tokens(log_probs, w->ranks, w->t, &w->packing, err);
    if (!status && entropies) status = rein_trainer_share_tokens(entropies, w->ranks, w->t, &w->packing, err);
    return status || which != REFERENCE ? status : share_exact_kl(w, err);
}

static int is_measured(const rein_packing *packing, const rein_micro_batch *micro_batch) {
    for (size_t s = micro_batch->first; s < micro_batch->last; s++)
        for (size_t i = packing->sequence_offsets[s]; i < packing->sequence_offsets[s + 1] && packing->sampled_now[s]; i++)
            if (packing->mask[i] && !isnan(packing->recorded[i])) return 1;
    return 0;
}

/* The first micro-batch that the policy sampled is computed without the activation cache: so the recorded log-probs are checked. */
static void find_measured(pass_work *w) {
    for (size_t u = 0; u < w->packing.n_micro_batches && !w->measured; u++)
        if (is_measured(&w->packing, &w->packing.micro_batches[u])) w->measured = &w->packing.micro_batches[u];
}

/* Compares the log-probs of the current policy with those it recorded when it sampled. */
static void measure_gap(pass_work *w, const rein_micro_batch *micro_batch) {
    for (size_t s = micro_batch->first; s < micro_batch->last; s++) {
        if (!w->packing.sampled_now[s]) continue;
        for (size_t i = w->packing.sequence_offsets[s]; i < w->packing.sequence_offsets[s + 1]; i++) {
            if (!w->packing.mask[i] || isnan(w->packing.recorded[i])) continue;
            const double gap = fabs((double)w->current[i] - (double)w->packing.recorded[i]);
            if (!(gap <= w->pass->max_gap)) w->pass->max_gap = gap;
        }
    }
}

/* -------------------------------------------------------------------------------------------------------------------- the step */

static rein_status take_arrays(pass_work *w, rein_error *err) {
    rein_arena *arena = &w->t->arena;
    const size_t n = w->packing.n_tokens;
    size_t largest = 0;
    for (size_t u = 0; u < w->packing.n_micro_batches; u++) {
        const rein_tokens *tokens = &w->packing.micro_batches[u].tokens;
        if (tokens->offsets[tokens->n] > largest) largest = tokens->offsets[tokens->n];
    }
    float **arrays[] = {&w->current,    &w->entropies,  &w->old, &w->reference, &w->kl,
                        &w->dlog_probs, &w->dentropies, &w->dkl, &w->teacher,   &w->divergence};
    float **of_micro_batch[] = {&w->batch_log_probs,  &w->batch_entropies,  &w->batch_reference, &w->batch_kl,
                                &w->batch_dlog_probs, &w->batch_dentropies, &w->batch_dkl};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        if ((*arrays[i] = rein_arena_floats(arena, n))) memset(*arrays[i], 0, n * sizeof(float));
    for (size_t i = 0; i < sizeof of_micro_batch / sizeof *of_micro_batch; i++)
        *of_micro_batch[i] = rein_arena_floats(arena, largest);
    w->ranks = rein_arena_take(arena, (w->packing.n_micro_batches + 1) * sizeof *w->ranks);
    return arena->failed ? rein_fail(err, REIN_ENOMEM, "no memory for the log-probs of %zu tokens", n) : REIN_OK;
}

static rein_status pack(pass_work *w, const rein_groups *groups, rein_error *err) {
    const int preference = w->o && w->o->preference; /* whose gradient needs all completions of a group */
    const rein_packing_options o = {preference ? SIZE_MAX : w->t->options.share_limit,
                                    w->t->options.no_sharing,
                                    {w->own.model, !w->o, w->o && w->o->mask_truncated_completions},
                                    w->o ? w->o->policy_step : -1,
                                    w->o ? w->objective.token_budget : NAN,
                                    w->o && (w->objective.shape == REIN_SHAPE_BUDGET || w->objective.shape == REIN_SHAPE_TRUNCATE)};
    rein_arena_reset(&w->t->arena);
    const rein_status status = rein_pack_groups(&w->packing, groups, &o, &w->t->arena, err);
    return status ? status : take_arrays(w, err);
}

static int uses_reference(const pass_work *w) {
    return w->o->preference ? rein_preference_uses_reference(w->o->preference) : w->has_reference;
}

static rein_status reference_pass(pass_work *w, rein_error *err) {
    const double began = rein_now();
    if (!uses_reference(w)) return REIN_OK;
    const int exact = rein_uses_exact_kl(&w->objective);
    if (exact && !w->o->reference)
        return rein_fail_at(err, REIN_EINVAL, "reference", -1,
                            "is missing: the exact KL (kl_estimator exact, kl_reward_exact) needs the policy itself, not only its "
                            "log-probs");
    if (exact && !rein_uses_ref_log_probs(&w->objective)) return REIN_OK; /* they come with the exact KL */
    if (w->o->reference_log_probs) {
        memcpy(w->reference, w->o->reference_log_probs, w->packing.n_tokens * sizeof *w->reference);
        return REIN_OK;
    }
    if (!w->o->reference)
        return rein_fail_at(err, REIN_EINVAL, "reference", -1,
                            w->o->preference ? "is missing: the loss over preferences has a reference"
                                             : "is missing: the objective has a KL to a reference (kl_reward_coef, "
                                               "kl_penalty_coef or kl_loss_coef)");
    const rein_status status = all_forward(w->reference, NULL, ALONE, w, w->o->reference, err);
    for (size_t i = 0; i < w->packing.n_tokens; i++) w->pass->reference_tokens += w->packing.mask[i];
    w->pass->seconds_reference = rein_now() - began;
    return status;
}

/* A divergence over the whole vocabulary is computed beside the policy; the sampled one needs log-probs before the first gradient. */
static rein_status teacher_pass(pass_work *w, rein_error *err) {
    const double began = rein_now();
    const int sampled = rein_teacher_in_advantage(&w->objective);
    if (!sampled && !rein_teacher_in_loss(&w->objective)) return REIN_OK;
    if (sampled && w->o->teacher_log_probs) {
        memcpy(w->teacher, w->o->teacher_log_probs, w->packing.n_tokens * sizeof *w->teacher);
        return REIN_OK;
    }
    if (!w->o->teacher) return rein_fail_at(err, REIN_EINVAL, "teacher", -1, "is missing: the objective has a teacher_coef");
    const rein_status status = sampled ? all_forward(w->teacher, NULL, ALONE, w, w->o->teacher, err) : REIN_OK;
    w->pass->seconds_reference += rein_now() - began;
    return status;
}

/* The log-probs that quantities of the whole step need, before the first gradient. */
static rein_status before_the_step(pass_work *w, rein_error *err) {
    rein_status status = reference_pass(w, err);
    if (!status) status = teacher_pass(w, err);
    if (status) return status;
    w->pass->recomputed = not_recorded(&w->packing);
    const double began = rein_now();
    const int known =
        w->o->recorded_are_current && !w->pass->recomputed && !uses_entropies(&w->objective) && !(w->objective.kl_reward_exact > 0);
    if (known) memcpy(w->current, w->packing.recorded, w->packing.n_tokens * sizeof *w->current);
    else if (needs_current_first(&w->objective))
        status = all_forward(w->current, uses_entropies(&w->objective) ? w->entropies : NULL,
                             w->objective.kl_reward_exact > 0 ? REFERENCE : ALONE, w, &w->own, err);
    w->pass->seconds_forward = rein_now() - began;
    return status;
}

/* The old log-probs of a micro-batch: the recorded ones, or those that were just computed, since the policy has not changed. */
static void take_old(pass_work *w, const rein_micro_batch *micro_batch) {
    const int recorded = w->objective.mismatch == REIN_MISMATCH_NONE;
    for (size_t i = w->packing.sequence_offsets[micro_batch->first]; i < w->packing.sequence_offsets[micro_batch->last]; i++)
        if (w->packing.mask[i] && w->o->old_log_probs) w->old[i] = w->o->old_log_probs[i];
        else if (w->packing.mask[i])
            w->old[i] = recorded && !isnan(w->packing.recorded[i]) ? w->packing.recorded[i] : w->current[i];
}

static int uses_recorded(const rein_options *o) {
    const int source = (o->kl_penalty_coef > 0 || o->kl_reward_coef > 0) && o->kl_penalty_source == REIN_KL_SOURCE_SAMPLE;
    return o->mismatch != REIN_MISMATCH_NONE || !isnan(o->off_policy_mask_delta) || source;
}

static rein_status begin_again(pass_work *w, rein_error *err) {
    return rein_step_begin(&w->step, w->room, w->room_size, &w->batch, &w->objective, &w->t->options.exec, err);
}

static rein_status begin_step(pass_work *w, rein_error *err) {
    const rein_packing *packing = &w->packing;
    if (uses_recorded(&w->objective) && w->pass->recomputed)
        return rein_fail(err, REIN_EINVAL,
                         "%zu trained tokens have no recorded log-prob: mismatch, off_policy_mask_delta and "
                         "kl_penalty_source sample need what the sampler saw",
                         w->pass->recomputed);
    w->batch = (rein_batch){.n_groups = packing->n_groups,
                            .n_sequences = packing->n_sequences,
                            .group_offsets = packing->group_offsets,
                            .sequence_offsets = packing->sequence_offsets,
                            .dtype = REIN_F32,
                            .mask = packing->mask,
                            .log_probs = w->current,
                            .old_log_probs = w->old,
                            .ref_log_probs = uses_reference(w) ? w->reference : NULL,
                            .sample_log_probs = uses_recorded(&w->objective) ? packing->recorded : NULL,
                            .exact_kl = rein_uses_exact_kl(&w->objective) ? w->kl : NULL,
                            .teacher_log_probs = rein_teacher_in_advantage(&w->objective) ? w->teacher : NULL,
                            .teacher_divergence = rein_teacher_in_loss(&w->objective) ? w->divergence : NULL,
                            .entropies = w->entropies, /* at least to be measured */
                            .values = w->objective.advantage != REIN_ADVANTAGE_GAE ? NULL
                                      : w->o->values                               ? w->o->values
                                                                                   : packing->values,
                            .advantages = w->o->given_advantages,
                            .rewards = w->o->shaped_rewards ? w->o->shaped_rewards : packing->rewards,
                            .response_lengths = packing->lengths,
                            .token_budgets = packing->budgets};
    const size_t size = rein_step_size(&w->batch, &w->objective, &w->t->options.exec);
    w->room_size = size ? size : 1;
    w->room = rein_arena_take(&w->t->arena, w->room_size);
    if (!w->room) return rein_fail(err, REIN_ENOMEM, "no memory for a step of %zu trajectories", packing->n_sequences);
    return begin_again(w, err);
}

/* Forward, loss and backward of one micro-batch; its gradient goes to the shard of its group. */
static rein_status forward_and_backward(pass_work *w, const rein_micro_batch *micro_batch, rein_error *err) {
    rein_trainer *t = w->t;
    const int bonus = has_bonus(&w->objective), wanted = wants_something(micro_batch);
    const enum beside beside = beside_in_loss(&w->objective);
    const rein_forward_options how = {1, bonus, t->options.recompute,
                                      micro_batch == w->measured ? NULL : t->options.activation_cache, w->o->truncation};
    rein_status status = REIN_OK;
    const double began = rein_now();
    if (wanted) status = forward(w->current, w->entropies, beside, w, micro_batch, &w->own, &how, err);
    if (wanted && !status) w->pass->cached_tokens += rein_activations_cached_tokens(t->activations);
    if (!status) measure_gap(w, micro_batch), take_old(w, micro_batch);
    if (!status)
        status = rein_step_loss(w->step, micro_batch->first, micro_batch->last, w->current, w->entropies,
                                w->o->preference ? NULL : w->dlog_probs, bonus ? w->dentropies : NULL,
                                w->repeats ? NULL : w->o->advantages, err);
    if (!status && w->o->preference)
        status = rein_preferences_gradient(w->dlog_probs, &w->packing, micro_batch->group, w->current, w->reference, w->o, err);
    if (!status && beside)
        status = (beside == REFERENCE ? rein_step_exact_kl_gradient
                                      : rein_step_teacher_gradient)(w->dkl, w->step, micro_batch->first, micro_batch->last, err);
    const double middle = rein_now();
    w->pass->seconds_forward += middle - began;
    if (status || !wanted) return status;
    gather(w->batch_dlog_probs, w->dlog_probs, micro_batch);
    if (bonus) gather(w->batch_dentropies, w->dentropies, micro_batch);
    if (beside) gather(w->batch_dkl, w->dkl, micro_batch);
    int any = 0;
    for (size_t i = 0; i < micro_batch->tokens.offsets[micro_batch->tokens.n] && !any; i++)
        any = w->batch_dlog_probs[i] != 0 || (bonus && w->batch_dentropies[i] != 0) || (beside && w->batch_dkl[i] != 0);
    if (any) {
        float *shard = rein_trainer_shard(t, rein_trainer_shard_of(t, micro_batch->group));
        w->pass->nothing_to_train = 0;
        status = rein_backward_beside(shard, t->activations, w->batch_dlog_probs, bonus ? w->batch_dentropies : NULL,
                                      beside ? w->batch_dkl : NULL, err);
    }
    w->pass->seconds_backward += rein_now() - middle;
    return status;
}

/* The micro-batches of one shard, or (SIZE_MAX) of all, that are this rank's. The step skips the others. */
static rein_status compute_shard(pass_work *w, size_t shard, size_t *done, rein_error *err) {
    rein_trainer *t = w->t;
    rein_status status = REIN_OK;
    for (size_t u = 0; u < w->packing.n_micro_batches && !status; u++) {
        const rein_micro_batch *micro_batch = &w->packing.micro_batches[u];
        if (is_mine(w, u) && (shard == SIZE_MAX || rein_trainer_shard_of(t, micro_batch->group) == shard)) {
            status = rein_trainer_ask_watch(t, (*done)++, w->packing.n_micro_batches, err);
            if (!status) status = forward_and_backward(w, micro_batch, err);
        } else status = rein_step_skip(w->step, micro_batch->last, err);
    }
    return status;
}

/* Shard after shard, each from the beginning of the step, where sums can be made early: that needs fewer buffers. */
static rein_status compute(pass_work *w, rein_error *err) {
    rein_trainer *t = w->t;
    size_t done = 0;
    rein_status status = REIN_OK;
    if (!t->last_pass) return compute_shard(w, SIZE_MAX, &done, err);
    for (size_t s = 0; s < t->options.shards && !status; s++) {
        if (s) status = begin_again(w, err);
        if (!status) status = compute_shard(w, s, &done, err);
        if (!status) rein_trainer_close_shards(t, s);
    }
    return status;
}

/* What all ranks have found, and the log-probs that they have computed. */
static rein_status share_pass(pass_work *w, rein_error *err) {
    rein_ranks *ranks = w->t->ranks;
    const size_t n = rein_ranks_size(ranks);
    const double own[] = {w->pass->nothing_to_train, w->pass->max_gap, (double)w->pass->cached_tokens};
    double *all = rein_arena_take(&w->t->arena, n * sizeof own);
    if (n == 1) return REIN_OK;
    rein_status status = all ? REIN_OK : rein_fail(err, REIN_ENOMEM, "no memory for the results of %zu ranks", n);
    if (!status) status = rein_ranks_gather(all, own, sizeof own, ranks, err);
    if (!status) status = rein_trainer_share_tokens(w->current, w->ranks, w->t, &w->packing, err);
    if (!status) status = rein_trainer_share_tokens(w->entropies, w->ranks, w->t, &w->packing, err);
    if (!status && rein_exact_kl_loss(&w->objective)) status = share_exact_kl(w, err);
    if (!status && rein_teacher_in_loss(&w->objective))
        status = rein_trainer_share_tokens(w->divergence, w->ranks, w->t, &w->packing, err);
    if (status) return status;
    w->pass->max_gap = NAN, w->pass->cached_tokens = 0;
    for (size_t r = 0; r < n; r++) {
        w->pass->nothing_to_train &= all[3 * r] > 0;
        if (!isnan(all[3 * r + 1]) && !(all[3 * r + 1] <= w->pass->max_gap)) w->pass->max_gap = all[3 * r + 1];
        w->pass->cached_tokens += (size_t)all[3 * r + 2];
    }
    return REIN_OK;
}

/* The loss and the metrics of the whole step, from the log-probs of all ranks: in the order of the sequences, as one rank adds them. */
static rein_status loss_of_all(pass_work *w, rein_error *err) {
    if (!w->repeats) return REIN_OK;
    for (size_t u = 0; u < w->packing.n_micro_batches; u++) take_old(w, &w->packing.micro_batches[u]);
    const rein_status status = begin_again(w, err);
    if (status) return status;
    return rein_step_loss(w->step, 0, w->packing.n_sequences, w->current, w->entropies, NULL, NULL, w->o->advantages, err);
}

static rein_status train(pass_work *w, rein_error *err) {
    rein_trainer *t = w->t;
    rein_trainer_deal(t, w->packing.n_groups);
    rein_trainer_assign(w->ranks, t, &w->packing, 1);
    w->repeats = rein_ranks_several(t->ranks) || t->last_pass;
    find_measured(w);
    rein_status status = rein_ranks_agree(t->ranks, compute(w, err), err);
    if (!status) status = share_pass(w, err);
    if (!status) status = loss_of_all(w, err);
    if (!status) status = rein_step_finish(&w->pass->loss, w->step, err);
    if (status || !w->o->preference) return status;
    return rein_preferences_measure(&w->pass->loss.loss, &w->pass->preference, &w->packing, w->current, w->reference, w->o,
                                    &t->arena, err);
}

/* Where advantages are given, the estimator, the shaping and the KL in the reward have had their effect. */
static rein_status resolve_objective(pass_work *w, rein_error *err) {
    const rein_status status = rein_options_resolve(&w->objective, w->o->preference ? NULL : w->o->objective, err);
    if (status) return status;
    w->has_reference = rein_options_use_reference(&w->objective);
    if (!w->o->given_advantages) return REIN_OK;
    w->objective.advantage = REIN_ADVANTAGE_GIVEN;
    memset(w->objective.given, 0, sizeof w->objective.given);
    return rein_options_resolve(&w->objective, &w->objective, err);
}

static rein_status run_pass(pass_work *w, const rein_groups *groups, rein_error *err) {
    rein_status status = w->o->temperature == 0 ? REIN_OK : rein_check_temperature(w->o->temperature, err);
    if (!status) status = resolve_objective(w, err);
    if (!status && w->o->preference) status = rein_preferences_check(groups, w->o, err);
    if (!status) status = pack(w, groups, err);
    if (!status) status = before_the_step(w, err);
    if (!status) status = begin_step(w, err);
    if (!status) status = train(w, err);
    if (!status && w->o->recorded_are_current && w->pass->max_gap > 0)
        status = rein_fail(
            err, REIN_EINVAL,
            "recorded_are_current is set, and the recorded log-probs are not those of the current policy: they differ by up to %g",
            w->pass->max_gap);
    return status;
}

rein_status rein_trainer_forward_backward(rein_pass_result *pass, rein_trainer *t, const rein_groups *groups,
                                          const rein_pass_options *options, rein_error *err) {
    rein_pass_result result = {.nothing_to_train = 1, .max_gap = NAN};
    pass_work w = {.t = t, .o = options, .own = own_policy(t, options->temperature), .pass = &result};
    const rein_status status = run_pass(&w, groups, err);
    if (status) {
        rein_trainer_clear(t);
        return status;
    }
    t->holds |= !result.nothing_to_train;
    t->groups = t->holds ? t->groups + groups->n : 0; /* a step without a gradient leaves no trace, as after resuming */
    if (!t->holds) t->dealt = 0;
    *pass = result;
    return REIN_OK;
}

/* As if the policy, its old version, the reference and the teacher agreed with the sampler. */
static void put_recorded_everywhere(pass_work *w) {
    for (size_t i = 0; i < w->packing.n_tokens; i++)
        if (w->packing.mask[i] && !isnan(w->packing.recorded[i]))
            w->current[i] = w->old[i] = w->reference[i] = w->teacher[i] = w->packing.recorded[i];
}

rein_status rein_trainer_check(rein_loss *loss, rein_trainer *t, const rein_groups *groups, const rein_pass_options *options,
                               rein_error *err) {
    rein_pass_result result = {0};
    pass_work w = {.t = t, .o = options, .own = own_policy(t, 0), .pass = &result};
    rein_status status = resolve_objective(&w, err);
    if (!status) status = pack(&w, groups, err);
    if (status) return status;
    put_recorded_everywhere(&w);
    result.recomputed = not_recorded(&w.packing);
    status = begin_step(&w, err);
    if (!status) status = rein_step_loss(w.step, 0, w.packing.n_sequences, w.current, w.entropies, NULL, NULL, NULL, err);
    return status ? status : rein_step_finish(loss, w.step, err);
}

rein_status rein_trainer_log_probs(float *log_probs, float *entropies, rein_trainer *t, const rein_policy *policy,
                                   const rein_groups *groups, rein_error *err) {
    pass_work w = {.t = t, .own = policy ? *policy : own_policy(t, 0)};
    const rein_status status = pack(&w, groups, err);
    return status ? status : all_forward(log_probs, entropies, ALONE, &w, &w.own, err);
}
