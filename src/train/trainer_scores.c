/* trainer_scores.c - passes of a policy with a score head: the scores of tokens, and the gradient of the loss of a reward model or a critic.
 *
 * A pair is a group of two trajectories, the chosen one and the rejected one; its reward is the score at the last token of each. A pair lies in
 * one micro-batch, and its gradient depends on its own two rewards and the number of pairs alone: one forward pass and one backward pass
 * do a step. The loss is added up pair by pair, in their order.
 *
 * The gradient of a critic's value depends on this value alone and on the number of trained tokens: one forward pass and one backward pass too. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "base/clock.h"
#include "objective/value.h"
#include "packing.h"
#include "trainer.h"

/* A pass at work. */
typedef struct score_work {
    rein_trainer *t;
    rein_policy policy;
    rein_packing packing;
    float *scores;                       /* [n_tokens] */
    float *batch_scores, *batch_dscores; /* [tokens of the largest micro-batch] */
    size_t *ranks;                       /* [n_micro_batches] which rank computes each */
    double *gradients;                   /* [n_sequences] d loss/d reward, of a reward model */
    rein_reward_pass *reward;            /* one of these two is made; both NULL: scores alone */
    rein_value_pass *value;
    size_t trained; /* tokens, of a critic */
    int nothing;    /* 1: every gradient was exactly 0 */
    double seconds_forward, seconds_backward;
} score_work;

static size_t tokens_of(const rein_micro_batch *m) { return m->tokens.offsets[m->tokens.n]; }

static rein_status pack(score_work *w, const rein_groups *groups, size_t share_limit, rein_error *err) {
    rein_arena *arena = &w->t->arena;
    const rein_packing_options o = {
        share_limit, w->t->options.no_sharing, {w->policy.model, 1, w->value && w->value->mask_truncated}, -1, NAN, 0};
    size_t largest = 0;
    rein_arena_reset(arena);
    const rein_status status = rein_pack_groups(&w->packing, groups, &o, arena, err);
    if (status) return status;
    for (size_t u = 0; u < w->packing.n_micro_batches; u++)
        if (tokens_of(&w->packing.micro_batches[u]) > largest) largest = tokens_of(&w->packing.micro_batches[u]);
    w->scores = rein_arena_floats(arena, w->packing.n_tokens);
    w->batch_scores = rein_arena_floats(arena, largest);
    w->batch_dscores = rein_arena_floats(arena, largest);
    w->gradients = rein_arena_take(arena, w->packing.n_sequences * sizeof *w->gradients);
    w->ranks = rein_arena_take(arena, (w->packing.n_micro_batches + 1) * sizeof *w->ranks);
    if (arena->failed) return rein_fail(err, REIN_ENOMEM, "no memory for the scores of %zu tokens", w->packing.n_tokens);
    memset(w->scores, 0, w->packing.n_tokens * sizeof *w->scores);
    return REIN_OK;
}

static int is_mine(const score_work *w, size_t u) { return w->ranks[u] == rein_ranks_rank(w->t->ranks); }

static int wants_something(const rein_micro_batch *m) {
    for (size_t i = 0; i < tokens_of(m); i++)
        if (m->tokens.wanted[i]) return 1;
    return 0;
}

static rein_status forward(score_work *w, const rein_micro_batch *m, const rein_score_options *how, rein_error *err) {
    const rein_status status = rein_scores(w->batch_scores, w->t->activations, &w->policy, &m->tokens, how, err);
    for (size_t i = 0; i < tokens_of(m) && !status; i++)
        if (m->tokens.wanted[i]) w->scores[m->index[i]] = w->batch_scores[i];
    return status;
}

rein_status rein_trainer_scores(float *scores, rein_trainer *t, const rein_policy *policy, const rein_groups *groups, int before,
                                rein_error *err) {
    score_work w = {.t = t, .policy = policy ? *policy : (rein_policy){t->model, t->adapter, t->options.temperature}};
    const rein_score_options how = {.before = before};
    rein_status status = pack(&w, groups, t->options.share_limit, err);
    if (status) return status;
    rein_trainer_assign(w.ranks, t, &w.packing, 0);
    for (size_t u = 0; u < w.packing.n_micro_batches && !status; u++) {
        status = rein_trainer_ask_watch(t, 0, 0, err);
        if (!status && is_mine(&w, u) && wants_something(&w.packing.micro_batches[u]))
            status = forward(&w, &w.packing.micro_batches[u], &how, err);
    }
    status = rein_ranks_agree(t->ranks, status, err);
    if (!status) status = rein_trainer_share_tokens(w.scores, w.ranks, t, &w.packing, err);
    if (!status) memcpy(scores, w.scores, w.packing.n_tokens * sizeof *scores);
    return status;
}

/* -------------------------------------------------------------------------------------------------------------------- gradients */

static rein_status backward(score_work *w, const rein_micro_batch *m, rein_error *err) {
    int any = 0;
    for (size_t i = 0; i < tokens_of(m); i++) any |= w->batch_dscores[i] != 0;
    if (!any) return REIN_OK;
    w->nothing = 0;
    return rein_scores_backward(rein_trainer_shard(w->t, rein_trainer_shard_of(w->t, m->group)), w->t->activations,
                                w->batch_dscores, err);
}

/* The gradient of the scores of a micro-batch that went forward, in batch_dscores. */
static rein_status loss_gradient(score_work *w, const rein_micro_batch *m, rein_error *err);

static rein_status one_micro_batch(score_work *w, const rein_micro_batch *m, rein_error *err) {
    const rein_score_options how = {.before = w->value != NULL, .keep = 1, .recompute = w->t->options.recompute};
    const double began = rein_now();
    rein_status status = forward(w, m, &how, err);
    if (!status) status = loss_gradient(w, m, err);
    const double middle = rein_now();
    if (!status) status = backward(w, m, err);
    w->seconds_forward += middle - began;
    w->seconds_backward += rein_now() - middle;
    return status;
}

/* The micro-batches of one shard, or (SIZE_MAX) of all, that are this rank's. */
static rein_status compute_shard(score_work *w, size_t shard, size_t *done, rein_error *err) {
    rein_status status = REIN_OK;
    for (size_t u = 0; u < w->packing.n_micro_batches && !status; u++) {
        const rein_micro_batch *m = &w->packing.micro_batches[u];
        if (!is_mine(w, u) || (shard != SIZE_MAX && rein_trainer_shard_of(w->t, m->group) != shard)) continue;
        status = rein_trainer_ask_watch(w->t, (*done)++, w->packing.n_micro_batches, err);
        if (!status && wants_something(m)) status = one_micro_batch(w, m, err);
    }
    return status;
}

static rein_status compute(score_work *w, rein_error *err) {
    size_t done = 0;
    rein_status status = REIN_OK;
    if (!w->t->last_pass) return compute_shard(w, SIZE_MAX, &done, err);
    for (size_t s = 0; s < w->t->options.shards && !status; s++) {
        status = compute_shard(w, s, &done, err);
        if (!status) rein_trainer_close_shards(w->t, s);
    }
    return status;
}

/* Whether there was a gradient on any rank. */
static rein_status share_nothing(score_work *w, rein_error *err) {
    const size_t n = rein_ranks_size(w->t->ranks);
    const double own = w->nothing;
    double *all = rein_arena_take(&w->t->arena, n * sizeof *all);
    if (n == 1) return REIN_OK;
    if (!all) return rein_no_memory(err);
    const rein_status status = rein_ranks_gather(all, &own, sizeof own, w->t->ranks, err);
    for (size_t r = 0; r < n && !status; r++) w->nothing &= all[r] > 0;
    return status;
}

/* Scores of all, and the gradients of the shards. */
static rein_status gradients_of(score_work *w, rein_error *err) {
    rein_trainer *t = w->t;
    rein_trainer_deal(t, w->packing.n_groups);
    rein_trainer_assign(w->ranks, t, &w->packing, 1);
    rein_status status = rein_ranks_agree(t->ranks, compute(w, err), err);
    if (!status) status = share_nothing(w, err);
    return status ? status : rein_trainer_share_tokens(w->scores, w->ranks, t, &w->packing, err);
}

static rein_status end_pass(score_work *w, rein_status status, const rein_groups *groups) {
    rein_trainer *t = w->t;
    if (status) {
        rein_trainer_clear(t);
        return status;
    }
    t->holds |= !w->nothing;
    t->groups = t->holds ? t->groups + groups->n : 0;
    if (!t->holds) t->dealt = 0;
    return REIN_OK;
}

static score_work work_of(rein_trainer *t) {
    return (score_work){.t = t, .policy = {t->model, t->adapter, t->options.temperature}, .nothing = 1};
}

/* ---------------------------------------------------------------------------------------------------------------- reward models */

/* The reward of a sequence: the score at its last token. */
static double reward_of(const score_work *w, size_t sequence) {
    return (double)w->scores[w->packing.sequence_offsets[sequence + 1] - 1];
}

/* The loss of the pairs [first, last), each divided by the number of all, and its gradient. */
static rein_status loss_of(double *loss, score_work *w, size_t first, size_t last, rein_error *err) {
    const rein_reward_pass *pass = w->reward;
    const double n = (double)w->packing.n_groups;
    *loss = 0;
    for (size_t g = first; g < last; g++) {
        const double chosen = reward_of(w, 2 * g), rejected = reward_of(w, 2 * g + 1),
                     margin = pass->margins ? pass->margins[g] : 0;
        double one, *gradients = w->gradients + 2 * g;
        const rein_status status = rein_reward_loss(&one, &gradients[0], &gradients[1], NULL, &chosen, &rejected, &margin, 1,
                                                    pass->center_rewards_coefficient, err);
        if (status) return status;
        gradients[0] /= n, gradients[1] /= n;
        *loss += one;
    }
    *loss /= n;
    return REIN_OK;
}

static rein_status reward_gradient(score_work *w, const rein_micro_batch *m, rein_error *err) {
    const size_t border = w->packing.sequence_offsets[m->first + 1];
    double loss;
    const rein_status status = loss_of(&loss, w, m->group, m->group + 1, err);
    for (size_t i = 0; i < tokens_of(m) && !status; i++)
        w->batch_dscores[i] = m->tokens.wanted[i] ? (float)w->gradients[m->first + (m->index[i] >= border)] : 0;
    return status;
}

static rein_status run_pass(score_work *w, const rein_groups *groups, rein_error *err) {
    rein_reward_pass *pass = w->reward;
    rein_status status = pack(w, groups, w->t->options.share_limit > 2 ? w->t->options.share_limit : 2, err);
    if (!status) status = gradients_of(w, err);
    if (!status) status = loss_of(&pass->loss, w, 0, w->packing.n_groups, err);
    for (size_t s = 0; s < w->packing.n_sequences && !status; s++) pass->rewards[s] = reward_of(w, s);
    return status;
}

rein_status rein_trainer_reward_pass(rein_reward_pass *pass, rein_trainer *t, const rein_groups *groups, rein_error *err) {
    score_work w = work_of(t);
    w.reward = pass;
    const rein_status status = end_pass(&w, run_pass(&w, groups, err), groups);
    pass->nothing_to_train = w.nothing;
    pass->seconds_forward = w.seconds_forward, pass->seconds_backward = w.seconds_backward;
    return status;
}

/* ----------------------------------------------------------------------------------------------------------------------- critics */

static void value_gradient(score_work *w, const rein_micro_batch *m) {
    const rein_value_pass *pass = w->value;
    const double weight = 1 / (double)w->trained;
    for (size_t i = 0; i < tokens_of(m); i++) {
        const size_t at = m->index[i];
        double slope = 0;
        if (m->tokens.wanted[i])
            rein_value_square(&slope, (double)w->batch_scores[i], (double)pass->old_values[at], (double)pass->returns[at],
                              pass->value_clip);
        w->batch_dscores[i] = (float)(slope * weight);
    }
}

static rein_status loss_gradient(score_work *w, const rein_micro_batch *m, rein_error *err) {
    if (w->reward) return reward_gradient(w, m, err);
    value_gradient(w, m);
    return REIN_OK;
}

static void count_clipped(score_work *w) {
    rein_value_pass *pass = w->value;
    size_t clipped = 0;
    for (size_t i = 0; i < w->packing.n_tokens; i++) {
        double slope;
        if (!w->packing.mask[i]) continue;
        const double square = rein_value_square(&slope, (double)w->scores[i], (double)pass->old_values[i], (double)pass->returns[i],
                                                pass->value_clip);
        clipped += slope == 0 && square > 0;
    }
    pass->clip_fraction = w->trained ? (double)clipped / (double)w->trained : 0;
}

static rein_status run_value_pass(score_work *w, const rein_groups *groups, rein_error *err) {
    rein_value_pass *pass = w->value;
    rein_status status = pack(w, groups, w->t->options.share_limit, err);
    if (status) return status;
    for (size_t i = 0; i < w->packing.n_tokens; i++) w->trained += w->packing.mask[i];
    status = gradients_of(w, err);
    if (!status)
        status = rein_value_loss_f32(&pass->loss, NULL, NULL, w->scores, pass->old_values, pass->returns, w->packing.mask,
                                     w->packing.n_tokens, pass->value_clip, &w->t->options.exec, err);
    if (!status) count_clipped(w);
    return status;
}

rein_status rein_trainer_value_pass(rein_value_pass *pass, rein_trainer *t, const rein_groups *groups, rein_error *err) {
    score_work w = work_of(t);
    w.value = pass;
    const rein_status status = end_pass(&w, run_value_pass(&w, groups, err), groups);
    pass->nothing_to_train = w.nothing;
    pass->seconds_forward = w.seconds_forward, pass->seconds_backward = w.seconds_backward;
    return status;
}
