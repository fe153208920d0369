/* step.c - rein_step_begin: everything about an optimizer step that must be known before the loss of its first token. */
#include "step.h"

#include <math.h>
#include <string.h>

#include "../base/base.h"
#include "../base/pool.h"
#include "kernels.h"
#include "options.h"

enum { BLOCK_TOKENS = 8192, MANY_BLOCKS = 512, ALIGNMENT = 64 };

/* ---- the workspace: one function lays it out; with base = NULL it only measures the size */
static void *carve(char *base, size_t *used, size_t count, size_t size) {
    void *p = base ? base + *used : NULL;
    *used += (count * size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return p;
}

/* The fewest tokens of a block: BLOCK_TOKENS, or more when that would give more than MANY_BLOCKS blocks. */
static size_t block_tokens(const rein_batch *b) {
    const size_t share = rein_batch_tokens(b) / MANY_BLOCKS;
    return share > BLOCK_TOKENS ? share : BLOCK_TOKENS;
}

/* An upper bound on the number of blocks: all but the last have at least block_tokens. */
static size_t most_blocks(const rein_batch *b) {
    const size_t most = rein_batch_tokens(b) / block_tokens(b) + 1;
    return most < b->n_sequences ? most : b->n_sequences;
}

static size_t cut_blocks(rein_loss_block *blocks, const rein_batch *b) {
    const size_t tokens = block_tokens(b);
    size_t n = 0;
    for (size_t first = 0, last = 1; first < b->n_sequences; first = last++) {
        while (last < b->n_sequences && b->sequence_offsets[last] - b->sequence_offsets[first] < tokens) last++;
        blocks[n++] = (rein_loss_block){first, last};
    }
    return n;
}

static size_t layout(rein_step *s, char *base, const rein_batch *b, const rein_options *o, const rein_exec *e) {
    const size_t n = b->n_sequences, tokens = rein_batch_tokens(b), blocks = most_blocks(b);
    const int per_token = !isnan(o->top_entropy) || (o->advantage == REIN_ADVANTAGE_REINFORCE_PP && rein_advantage_per_token(o));
    const size_t scratch = per_token && tokens > 2 * n ? tokens : 2 * n;
    size_t used = 0;
    (void)carve(base, &used, 1, sizeof *s);
    s->sequences = carve(base, &used, n, sizeof *s->sequences);
    s->reward = carve(base, &used, n, sizeof *s->reward);
    s->estimate = carve(base, &used, n, sizeof *s->estimate);
    s->scratch = carve(base, &used, scratch, sizeof *s->scratch);
    s->drift = carve(base, &used, n, sizeof *s->drift);
    s->length = carve(base, &used, n, sizeof *s->length);
    s->trained = carve(base, &used, n, sizeof *s->trained);
    const int borrowed = o->advantage == REIN_ADVANTAGE_GIVEN && o->advantage_balance == 0;
    const int own = (rein_advantage_per_token(o) && !borrowed) || o->kl_reward_exact != 0 || rein_teacher_in_advantage(o);
    s->own_token_advantages = own ? carve(base, &used, tokens, rein_element_size(b)) : NULL;
    s->token_advantages = borrowed ? b->advantages : rein_advantage_per_token(o) ? s->own_token_advantages : NULL;
    s->blocks = carve(base, &used, blocks, sizeof *s->blocks);
    s->sums = carve(base, &used, blocks, sizeof *s->sums);
    s->histograms = carve(base, &used, (size_t)e->threads, sizeof *s->histograms);
    return used + ALIGNMENT; /* the caller's buffer may start anywhere */
}

size_t rein_step_size(const rein_batch *batch, const rein_options *options, const rein_exec *exec) {
    rein_options o;
    rein_exec e;
    rein_step unused;
    if (rein_options_resolve(&o, options, NULL) || rein_batch_check_shape(batch, NULL)) return 0;
    if (rein_exec_resolve(&e, exec, rein_batch_tokens(batch), NULL)) return 0;
    return layout(&unused, NULL, batch, &o, &e);
}

/* ---- counts and sums over the tokens of each sequence */
/* How many of n mask bytes are set, and where the first and the last of them are. */
static void find_trained(rein_loss_sequence *to, const uint8_t *mask, size_t n) {
    enum { CHUNK = 128 }; /* its count fits into a byte, so that the compiler counts 16 bytes at a time */
    size_t first = n, end = 0;
    to->trained = 0;
    for (size_t i = 0; i < n; i += CHUNK) {
        const size_t size = n - i < CHUNK ? n - i : CHUNK;
        uint8_t count = 0;
        for (size_t j = 0; j < size; j++) count = (uint8_t)(count + (mask[i + j] != 0));
        if (count == 0) continue;
        if (to->trained == 0) first = i;
        end = i + size;
        to->trained += count;
    }
    while (first < end && !mask[first]) first++;
    while (end > first && !mask[end - 1]) end--;
    to->first = to->trained ? first : n, to->end = to->trained ? end : n;
}

static void measure_block(void *context, size_t k, int thread) {
    rein_step *s = context;
    const rein_batch *b = &s->batch;
    size_t tokens = 0, sequences = 0;
    (void)thread;
    memset(&s->sums[k], 0, sizeof s->sums[k]);
    for (size_t i = s->blocks[k].first; i < s->blocks[k].last; i++) {
        const size_t start = b->sequence_offsets[i], length = b->sequence_offsets[i + 1] - start;
        s->sequences[i] = (rein_loss_sequence){.trained = length, .end = length};
        if (b->mask) find_trained(&s->sequences[i], b->mask + start, length);
        s->trained[i] = s->sequences[i].trained;
        s->length[i] = b->response_lengths ? b->response_lengths[i] : (int64_t)s->trained[i];
        tokens += s->trained[i];
        sequences += s->trained[i] > 0;
    }
    __atomic_fetch_add(&s->trained_tokens, tokens, __ATOMIC_RELAXED);
    __atomic_fetch_add(&s->trained_sequences, sequences, __ATOMIC_RELAXED);
}

/* drift_i = Σ_t m_t (source_t − ref_t): the k1 estimate of the sequence, detached. */
static void measure_drift(void *context, size_t k, int thread) {
    rein_step *s = context;
    const rein_batch *b = &s->batch;
    const void *source = rein_kl_source_of(s);
    (void)thread;
    for (size_t i = s->blocks[k].first; i < s->blocks[k].last; i++) {
        double sum = 0;
        for (size_t t = b->sequence_offsets[i]; t < b->sequence_offsets[i + 1]; t++)
            if (rein_trains(b, t)) sum += rein_at(b, source, t) - rein_at(b, b->ref_log_probs, t);
        s->drift[i] = sum;
    }
}

/* ---- the KL penalty in the advantage, centred over its scope: per token, or per sequence if that is the unit of the surrogate */
static void centre_kl(rein_step *s, size_t first, size_t last) {
    const int unit = rein_sequence_unit(&s->options);
    double sum = 0, count = 0;
    for (size_t i = first; i < last; i++) {
        sum += s->drift[i];
        count += unit ? s->trained[i] > 0 : (double)s->trained[i];
    }
    const double mean = count > 0 ? sum / count : 0;
    for (size_t i = first; i < last; i++) {
        if (unit && s->trained[i]) s->sequences[i].advantage += s->options.kl_penalty_coef * (mean - s->drift[i]);
        else s->sequences[i].kl_centre = mean;
    }
}

static void penalise(rein_step *s) {
    const rein_batch *b = &s->batch;
    if (s->options.kl_scope == REIN_KL_SCOPE_BATCH) centre_kl(s, 0, b->n_sequences);
    if (s->options.kl_scope == REIN_KL_SCOPE_GROUP)
        for (size_t g = 0; g < rein_group_count(b); g++) centre_kl(s, rein_group_start(b, g), rein_group_start(b, g + 1));
    if (s->options.kl_scope == REIN_KL_SCOPE_SEQUENCE)
        for (size_t i = 0; i < b->n_sequences; i++) centre_kl(s, i, i + 1);
}

/* ---- the exact KL in the reward: −β·Σ_{s>t} KL_s, the reward-to-go of token t. KL_t itself depends only on the tokens before t, so it
 * would add noise and no pull. Σ over the trained tokens of the sequence. */
static void penalise_exactly(rein_step *s) {
    const rein_batch *b = &s->batch;
    for (size_t i = 0; i < b->n_sequences; i++) {
        double later = 0;
        for (size_t t = b->sequence_offsets[i + 1]; t-- > b->sequence_offsets[i];) {
            rein_put(b, s->own_token_advantages, t, -s->options.kl_reward_exact * later);
            if (rein_trains(b, t)) later += rein_at(b, b->exact_kl, t);
        }
    }
    s->token_advantages = s->own_token_advantages;
}

/* ---- a teacher in the advantage: −c·Σ_{s≥t} γ^(s−t)·(lp_s − log q(y_s)), detached and not centred (on-policy distillation). The sum over the
 * later tokens is that of those that train; with γ = 0 it is the token's own term. */
static void follow_teacher(rein_step *s) {
    const rein_batch *b = &s->batch;
    const rein_options *o = &s->options;
    double all = 0;
    for (size_t i = 0; i < b->n_sequences; i++) {
        double later = 0;
        for (size_t t = b->sequence_offsets[i + 1]; t-- > b->sequence_offsets[i];) {
            const double own = s->token_advantages ? rein_at(b, s->token_advantages, t) : 0;
            rein_put(b, s->own_token_advantages, t, own);
            if (!rein_trains(b, t)) continue;
            const double gap = rein_at(b, b->log_probs, t) - rein_at(b, b->teacher_log_probs, t);
            later = gap + o->teacher_discount * later;
            rein_put(b, s->own_token_advantages, t, own - o->teacher_coef * later);
            all += gap;
        }
    }
    s->metrics.teacher_divergence = s->trained_tokens ? all / (double)s->trained_tokens : 0;
    s->token_advantages = s->own_token_advantages;
}

/* ---- advantages */
static int all_zero(const rein_step *s, size_t first, size_t last) {
    const rein_batch *b = &s->batch;
    for (size_t i = first; i < last; i++) {
        if (s->sequences[i].advantage != 0) return 0;
        for (size_t t = b->sequence_offsets[i]; s->token_advantages && t < b->sequence_offsets[i + 1]; t++)
            if (rein_trains(b, t) && rein_at(b, s->token_advantages, t) != 0) return 0;
    }
    return 1;
}

enum { SOME_GROUPS = 256 }; /* how many a thread takes at a time */

/* scratch[g] = the std of the rewards of group g. */
static void group_stds(void *context, size_t piece, int thread) {
    const rein_step *s = context;
    const size_t groups = rein_group_count(&s->batch), end = (piece + 1) * SOME_GROUPS;
    (void)thread;
    for (size_t g = piece * SOME_GROUPS; g < groups && g < end; g++) {
        const size_t first = rein_group_start(&s->batch, g);
        int equal;
        (void)rein_mean(s->reward + first, rein_group_start(&s->batch, g + 1) - first, &s->scratch[g], &equal);
    }
}

/* The shaped rewards and their metrics. */
static rein_status shape_rewards(rein_step *s, rein_error *err) {
    const rein_batch *b = &s->batch;
    const size_t n = b->n_sequences, groups = rein_group_count(b);
    const int limited = b->token_budgets || !isnan(s->options.token_budget);
    rein_metrics *m = &s->metrics;
    double over = 0, lengths = 0, longest = 0, rewards = 0, stds = 0;
    rein_rewards_of(s->reward, b);
    rein_shape_into(s->reward, s->length, b, &s->options);
    for (size_t i = 0; i < n; i++) {
        const double length = (double)s->length[i];
        rewards += s->reward[i];
        lengths += length;
        longest = length > longest ? length : longest;
        if (limited) over += length > rein_budget_of(b, &s->options, i);
    }
    m->reward = rewards / (double)n;
    for (size_t i = 0; i < n && !isfinite(rewards); i++) m->reward = (i > 0 ? m->reward : 0) + s->reward[i] / (double)n;
    m->length_mean = lengths / (double)n; /* the sum of integers is exact, so equal lengths have exactly that mean */
    m->length_max = longest;
    m->share_over_budget = over / (double)n;
    rein_parallel(s->exec.threads, (groups + SOME_GROUPS - 1) / SOME_GROUPS, group_stds, s);
    for (size_t g = 0; g < groups; g++) stds += s->scratch[g] / (double)groups;
    m->reward_std = stds;
    if (isfinite(m->reward) && isfinite(m->reward_std)) return REIN_OK;
    return rein_fail(err, REIN_ERANGE, "the mean of the rewards is not finite: the rewards, or their weights, are too large");
}

/* How token losses become one number, loss = Σ weight·ℓ: the weight of a trained token. Its sequence has `own` trained tokens; the
 * step has `tokens`, in `sequences` that have at least one. */
static double token_weight(const rein_options *o, double own, double tokens, double sequences) {
    if (own == 0) return 0;
    switch (o->aggregation) {
    case REIN_TOKEN_SUM: return 1;
    case REIN_SEQ_MEAN_TOKEN_MEAN: return 1 / (sequences * own);
    case REIN_SEQ_MEAN_TOKEN_SUM: return 1 / sequences;
    case REIN_DR_GRPO:
        return 1 / (sequences * o->max_response_length); /* a constant that does not depend on the samples: arXiv 2503.20783 */
    case REIN_TOKEN_MEAN: break;
    }
    return 1 / tokens;
}

static void weigh_block(void *context, size_t k, int thread) {
    rein_step *s = context;
    const double tokens = (double)s->trained_tokens, sequences = (double)s->trained_sequences;
    (void)thread;
    for (size_t i = s->blocks[k].first; i < s->blocks[k].last; i++) {
        s->sequences[i].advantage = rein_balance(s->estimate[i], &s->options);
        s->sequences[i].weight = token_weight(&s->options, (double)s->trained[i], tokens, sequences);
    }
}

static rein_status advantages(rein_step *s, rein_error *err) {
    const rein_batch *b = &s->batch;
    const rein_options *o = &s->options;
    const size_t groups = rein_group_count(b);
    if (s->token_advantages) {
        if (o->advantage != REIN_ADVANTAGE_GIVEN)
            rein_estimate_tokens(s->own_token_advantages, s->scratch, s->reward, rein_kl_source_of(s), b, o);
        const void *from = o->advantage == REIN_ADVANTAGE_GIVEN ? b->advantages : s->own_token_advantages;
        for (size_t t = 0; o->advantage_balance != 0 && t < rein_batch_tokens(b); t++)
            rein_put(b, s->own_token_advantages, t, rein_balance(rein_at(b, from, t), o));
        memset(s->estimate, 0, b->n_sequences * sizeof *s->estimate);
    } else {
        for (size_t i = 0; o->kl_reward_coef != 0 && i < b->n_sequences; i++) s->reward[i] -= o->kl_reward_coef * s->drift[i];
        const rein_status status = rein_estimate(s->estimate, s->reward, s->length, s->trained, s->scratch, b, o, err);
        if (status != REIN_OK) return status;
    }
    rein_parallel(s->exec.threads, s->n_blocks, weigh_block, s);
    for (size_t g = 0; g < groups; g++)
        s->metrics.frac_reward_zero_std += all_zero(s, rein_group_start(b, g), rein_group_start(b, g + 1)) / (double)groups;
    if (o->kl_penalty_coef != 0) penalise(s);
    if (o->kl_reward_exact != 0) penalise_exactly(s);
    if (rein_teacher_in_advantage(o)) follow_teacher(s);
    return REIN_OK;
}

/* ---- entropy: whether the target is reached, and the quantile of the top-entropy mask */
static double *select_kth(double *x, size_t n, size_t k) { /* Hoare's selection: x[k] is what sorting would put there */
    for (size_t low = 0, high = n - 1; low < high;) {
        const double pivot = x[low + (high - low) / 2];
        size_t i = low, j = high;
        for (;;) {
            while (x[i] < pivot) i++;
            while (x[j] > pivot) j--;
            if (i >= j) break;
            const double swap = x[i];
            x[i++] = x[j];
            x[j--] = swap;
        }
        const size_t split = x[j] > pivot ? j - 1 : j;
        if (k <= split) high = split;
        else low = split + 1;
    }
    return x + k;
}

/* The quantile 1 − f of the trained tokens' entropies, interpolated as torch.quantile does (arXiv 2506.01939). */
static double entropy_quantile(rein_step *s, double f) {
    const rein_batch *b = &s->batch;
    size_t n = 0;
    for (size_t t = 0; t < rein_batch_tokens(b); t++)
        if (rein_trains(b, t)) s->scratch[n++] = rein_at(b, b->entropies, t);
    if (n == 0) return -HUGE_VAL;
    const double place = (1 - f) * (double)(n - 1), below = floor(place);
    const double low = *select_kth(s->scratch, n, (size_t)below);
    if (place == below) return low;
    double high = HUGE_VAL;
    for (size_t i = (size_t)below + 1; i < n; i++) high = fmin(high, s->scratch[i]);
    return low + (place - below) * (high - low);
}

static void entropy(rein_step *s) {
    const rein_batch *b = &s->batch;
    const rein_options *o = &s->options;
    s->entropy_coef = o->entropy_coef;
    s->entropy_threshold = isnan(o->top_entropy) ? -HUGE_VAL : entropy_quantile(s, o->top_entropy);
    if (o->entropy_coef == 0 || isnan(o->entropy_target)) return;
    double sum = 0;
    for (size_t t = 0; t < rein_batch_tokens(b); t++)
        if (rein_trains(b, t)) sum += rein_at(b, b->entropies, t);
    if (sum > o->entropy_target * (double)s->trained_tokens) s->entropy_coef = 0;
}

/* The advantages and the entropy gradient must be finite in the type of the batch. */
static rein_status check_sequences(const rein_step *s, rein_error *err) {
    const int f32 = s->batch.dtype == REIN_F32;
    for (size_t i = 0; i < s->batch.n_sequences; i++) {
        const double advantage = s->sequences[i].advantage, entropy_gradient = s->sequences[i].weight * s->entropy_coef;
        if (!(f32 ? isfinite((float)advantage) : isfinite(advantage)))
            return rein_fail(err, REIN_ERANGE, "the advantage of sequence %zu is not finite: the rewards are too large", i);
        if (!(f32 ? isfinite((float)entropy_gradient) : isfinite(entropy_gradient)))
            return rein_fail(err, REIN_ERANGE, "the gradient of the entropies is not finite: entropy_coef is too large");
    }
    return REIN_OK;
}

/* ---- begin */

/* What the step must know about each sequence before the first gradient: how many of its tokens train and, for a detached KL, its log-prob
 * against the reference (`drift`). A loss that depends on the log-probs of whole sequences, as one over pairs, starts from such sums. */
static rein_status measure(rein_step *s, rein_error *err) {
    const rein_batch *b = &s->batch;
    const rein_options *o = &s->options;
    const int detached = rein_detached_kl(o), entropies = !isnan(o->top_entropy) || !isnan(o->entropy_target);
    rein_parallel(s->exec.threads, s->n_blocks, measure_block, s);
    const int log_probs = detached || rein_teacher_in_advantage(o);
    if (log_probs || entropies || o->advantage == REIN_ADVANTAGE_GAE || o->kl_reward_exact != 0) {
        const rein_status status = rein_batch_find_bad(b, log_probs ? b->log_probs : NULL, b->entropies, 0, b->n_sequences, err);
        if (status != REIN_OK) return status;
    }
    if (detached) rein_parallel(s->exec.threads, s->n_blocks, measure_drift, s);
    return REIN_OK;
}

/* Options, shape, threads and arrays, before anything is written. */
static rein_status check(rein_step *now, const rein_options *options, const rein_exec *exec, rein_error *err) {
    const rein_batch *b = &now->batch;
    rein_status status = rein_options_resolve(&now->options, options, err);
    if (status == REIN_OK) status = rein_options_check_tokens(&now->options, err);
    if (status == REIN_OK) status = rein_batch_check_shape(b, err);
    if (status == REIN_OK) status = rein_exec_resolve(&now->exec, exec, rein_batch_tokens(b), err);
    if (status == REIN_OK) status = rein_batch_check_rewards(b, &now->options, err);
    return status == REIN_OK ? rein_batch_check_arrays(b, &now->options, err) : status;
}

rein_status rein_step_begin(rein_step **step, void *buffer, size_t size, const rein_batch *batch, const rein_options *options,
                            const rein_exec *exec, rein_error *err) {
    rein_step now = {.batch = *batch};
    rein_status status = check(&now, options, exec, err);
    if (status != REIN_OK) return status;
    char *base = (char *)buffer + (ALIGNMENT - (uintptr_t)buffer % ALIGNMENT) % ALIGNMENT;
    const size_t needed = layout(&now, base, batch, &now.options, &now.exec);
    if (!buffer || size < needed)
        return rein_fail(err, REIN_ENOMEM, "the workspace has %zu bytes: %zu are needed", buffer ? size : 0, needed);
    const rein_kernels *kernels = rein_kernels_of(now.exec.isa);
    now.token_loss = (batch->dtype == REIN_F32 ? kernels->objective_f32 : kernels->objective_f64)->token_loss;
    now.n_blocks = cut_blocks(now.blocks, batch);
    memset(now.histograms, 0, (size_t)now.exec.threads * sizeof *now.histograms);
    for (int t = 0; t < now.exec.threads; t++) now.histograms[t].low = HUGE_VAL, now.histograms[t].high = -HUGE_VAL;

    rein_step *s = (rein_step *)(void *)base;
    *s = now;
    status = measure(s, err);
    if (status == REIN_OK) status = shape_rewards(s, err);
    if (status == REIN_OK) status = advantages(s, err);
    if (status == REIN_OK) entropy(s);
    if (status == REIN_OK) status = check_sequences(s, err);
    if (status == REIN_OK) *step = s;
    return status;
}
