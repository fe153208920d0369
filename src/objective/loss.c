/* loss.c - the loss of a prepared step, micro-batch by micro-batch, and its metrics.
 *
 * A block of sequences is the unit of work. Each block has its own sums, which are filled in sequence order by any thread and in any
 * number of micro-batches; the sums of the blocks are added in block order. So neither the number of threads nor the split into
 * micro-batches changes a bit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../base/pool.h"
#include "../base/scratch.h"
#include "options.h"
#include "step.h"

#define SATURATION 4.8516519540979028e8 /* e^20 */

static size_t block_of(const rein_step *s, size_t sequence) {
    size_t low = 0, high = s->n_blocks - 1;
    while (low < high) {
        const size_t middle = low + (high - low + 1) / 2;
        if (s->blocks[middle].first <= sequence) low = middle;
        else high = middle - 1;
    }
    return low;
}

static double add_lanes(const rein_loss_sums *s, enum rein_loss_sum which) {
    double sum = 0;
    for (int l = 0; l < SUM_LANES; l++) sum += s->sum[which][l];
    return sum;
}

static double sum_of(const rein_step *s, enum rein_loss_sum which) {
    double sum = 0;
    for (size_t k = 0; k < s->n_blocks; k++) sum += add_lanes(&s->sums[k], which);
    return sum;
}

static size_t count_in_bin(const rein_step *s, int bin) {
    size_t n = 0;
    for (int t = 0; t < s->exec.threads; t++)
        for (int k = 0; k < RATIO_COUNTERS; k++) n += s->histograms[t].count[bin][k];
    return n;
}

/* The 99th percentile of the ratio of n tokens: the middle of its bin, inside [low, high]. */
static double p99(const rein_step *s, size_t n, double low, double high) {
    const size_t above = n - (size_t)ceil(0.99 * (double)n); /* how many tokens may have a larger ratio */
    size_t seen = 0;
    int bin = RATIO_BINS;
    while (bin > 0 && seen <= above) seen += count_in_bin(s, --bin);
    const double log_ratio = (double)bin / RATIO_BINS_PER_UNIT - RATIO_RANGE;
    return exp(fmin(fmax(log_ratio, low), high));
}

static double mean_of(double sum, double n) { return n > 0 ? fmin(sum / n, SATURATION) : 0; }

rein_status rein_step_finish(rein_loss *loss, const rein_step *s, rein_error *err) {
    if (s->failed) return rein_fail(err, REIN_EINVAL, "the step failed: it has no loss");
    size_t added = 0;
    double low = HUGE_VAL, high = -HUGE_VAL;
    for (size_t i = 0; i < s->next; i++) added += s->trained[i];
    for (int t = 0; t < s->exec.threads; t++) {
        low = fmin(low, s->histograms[t].low);
        high = fmax(high, s->histograms[t].high);
    }
    low = fmin(fmax(low, -RATIO_RANGE), RATIO_RANGE);
    high = fmin(fmax(high, -RATIO_RANGE), RATIO_RANGE);
    const double n = (double)added, ratios = sum_of(s, SUM_RATIO), squares = sum_of(s, SUM_RATIO_SQUARE);
    rein_loss out = {.metrics = s->metrics, .nothing_to_train = s->trained_tokens == 0};
    rein_metrics *m = &out.metrics;
    m->surrogate_loss = sum_of(s, SUM_SURROGATE);
    m->kl_loss = sum_of(s, SUM_KL_LOSS);
    m->entropy_loss = sum_of(s, SUM_ENTROPY_LOSS);
    out.loss = m->surrogate_loss + m->kl_loss + m->entropy_loss;
    m->clip_low = mean_of(sum_of(s, SUM_CLIPPED_LOW), n);
    m->clip_high = mean_of(sum_of(s, SUM_CLIPPED_HIGH), n);
    m->ratio_mean = mean_of(ratios, n);
    m->ratio_min = added ? exp(low) : 0;
    m->ratio_max = added ? exp(high) : 0;
    m->ratio_p99 = added ? p99(s, added, low, high) : 0;
    const int finite = isfinite(ratios * ratios) && isfinite(squares) && squares > 0; /* otherwise one ratio dominates all others */
    m->ess = n > 0 ? (finite ? ratios * ratios / (n * squares) : 1 / n) : 0;
    m->kl_old_k1 = n > 0 ? (0 - sum_of(s, SUM_LOG_RATIO)) / n : 0; /* never -0 */
    m->kl_old_k3 = mean_of(sum_of(s, SUM_EXCESS), n);
    m->kl_ref_k1 = n > 0 ? sum_of(s, SUM_REF) / n : 0;
    m->kl_ref_k3 = mean_of(sum_of(s, SUM_REF_EXCESS), n);
    m->entropy = n > 0 ? sum_of(s, SUM_ENTROPY) / n : 0;
    m->tokens = (double)rein_batch_tokens(&s->batch);
    m->trained_tokens = n;
    m->sequences = (double)s->batch.n_sequences;
    m->trained_sequences = (double)s->trained_sequences;
    m->groups = (double)rein_group_count(&s->batch);
    *loss = out;
    return REIN_OK;
}

static void clear(const rein_batch *b, void *array, size_t first, size_t last) {
    const size_t size = rein_element_size(b), from = b->sequence_offsets[first];
    if (array) memset((char *)array + from * size, 0, (b->sequence_offsets[last] - from) * size);
}

/* The error when the sums are not finite: a bad input by name, or an overflow with the token whose exponent is largest. */
static rein_status explain_failure(const rein_step *s, const void *log_probs, const void *entropies, size_t first, size_t last,
                                   rein_error *err) {
    const rein_batch *b = &s->batch;
    const rein_status status = rein_batch_find_bad(b, log_probs, entropies, first, last, err);
    if (status != REIN_OK) return status;
    size_t worst = b->sequence_offsets[first];
    double reach = -1;
    const char *what = "log_probs - old_log_probs";
    for (size_t t = b->sequence_offsets[first]; t < b->sequence_offsets[last]; t++) {
        if (!rein_trains(b, t)) continue;
        const double lp = rein_at(b, log_probs, t), d = b->old_log_probs ? lp - rein_at(b, b->old_log_probs, t) : 0;
        const double x = b->ref_log_probs && s->options.kl_loss_coef != 0 ? fabs(rein_at(b, b->ref_log_probs, t) - lp) : 0;
        if (fmax(d, x) > reach) {
            reach = fmax(d, x);
            worst = t;
            what = x > d ? "ref_log_probs - log_probs (kl_clamp bounds it)" : "log_probs - old_log_probs";
        }
    }
    if (reach < 40)
        return rein_fail(err, REIN_ERANGE,
                         "the loss or its gradient is not finite: a reward, a log-prob or a coefficient is too large");
    return rein_fail_at(err, REIN_ERANGE, "log_probs", (int64_t)worst,
                        ": the loss or its gradient is not finite: a coefficient is too large, or %s, %.6g in size here: its "
                        "exponential overflows",
                        what, reach);
}

/* Sequences [first, last); the first of them lies in block `from`. */
typedef struct micro_batch {
    rein_step *step;
    const rein_loss_inputs *inputs;
    size_t from, first, last;
} micro_batch;

static void add_block(void *context, size_t piece, int thread) {
    const micro_batch *m = context;
    const size_t k = m->from + piece;
    const rein_loss_block block = m->step->blocks[k];
    const size_t first = block.first > m->first ? block.first : m->first, last = block.last < m->last ? block.last : m->last;
    m->step->token_loss(&m->step->sums[k], &m->step->histograms[thread], m->inputs, first, last);
}

rein_status rein_step_loss_apart(rein_step *s, size_t first, size_t last, const void *log_probs, const void *stop_log_probs,
                                 const void *entropies, void *grad_log_probs, void *grad_entropies, void *advantages,
                                 rein_error *err) {
    const rein_batch *b = &s->batch;
    if (s->failed) return rein_fail(err, REIN_EINVAL, "the step failed before: begin a new one");
    if (first != s->next || last < first || last > b->n_sequences)
        return rein_fail(err, REIN_EINVAL, "sequences %zu to %zu: the next micro-batch starts at %zu and ends at %zu or before",
                         first, last, s->next, b->n_sequences);
    if (!log_probs) log_probs = b->log_probs;
    if (!entropies) entropies = b->entropies;
    if (!log_probs) return rein_fail_at(err, REIN_EINVAL, "log_probs", -1, "is missing");
    if (s->options.entropy_coef != 0 && !entropies)
        return rein_fail_at(err, REIN_EINVAL, "entropies", -1, "is missing: entropy_coef needs it");
    if (grad_entropies && !entropies) return rein_fail_at(err, REIN_EINVAL, "entropies", -1, "is missing: their gradient needs it");
    if (first == last) return REIN_OK;
    const rein_options *o = &s->options;
    const int per_token_penalty = o->kl_penalty_coef != 0 && !rein_sequence_unit(o);
    const rein_loss_inputs inputs = {.options = o,
                                     .sequences = s->sequences,
                                     .offsets = b->sequence_offsets,
                                     .mask = b->mask,
                                     .log_probs = log_probs,
                                     .stop_log_probs = stop_log_probs ? stop_log_probs : log_probs,
                                     .old_log_probs = b->old_log_probs,
                                     .ref_log_probs = b->ref_log_probs,
                                     .sample_log_probs = b->sample_log_probs,
                                     .kl_source = per_token_penalty ? rein_kl_source_of(s) : NULL,
                                     .entropies = entropies,
                                     .token_advantages = s->token_advantages,
                                     .grad_log_probs = grad_log_probs,
                                     .grad_entropies = grad_entropies,
                                     .advantages = advantages,
                                     .entropy_coef = s->entropy_coef,
                                     .entropy_threshold = s->entropy_threshold};
    const size_t from = block_of(s, first), to = block_of(s, last - 1) + 1;
    rein_parallel(s->exec.threads, to - from, add_block, &(micro_batch){s, &inputs, from, first, last});
    int finite = 1;
    for (size_t k = from; k < to; k++)
        for (int i = SUM_SURROGATE; i < SUM_COUNT; i++)
            if (i <= SUM_LOG_RATIO || i == SUM_REF || i == SUM_ENTROPY || i == SUM_CHECK)
                finite &= isfinite(add_lanes(&s->sums[k], (enum rein_loss_sum)i)) != 0;
    if (!finite) {
        clear(b, grad_log_probs, first, last);
        clear(b, grad_entropies, first, last);
        clear(b, advantages, first, last);
        s->failed = 1;
        return explain_failure(s, log_probs, entropies, first, last, err);
    }
    s->next = last;
    return REIN_OK;
}

rein_status rein_step_loss(rein_step *s, size_t first, size_t last, const void *log_probs, const void *entropies,
                           void *grad_log_probs, void *grad_entropies, void *advantages, rein_error *err) {
    return rein_step_loss_apart(s, first, last, log_probs, NULL, entropies, grad_log_probs, grad_entropies, advantages, err);
}

/* Computes twice: once to check that the loss is finite, once to write the outputs. */
static rein_status whole_step(rein_loss *loss, void *gl, void *ge, void *adv, void *buffer, size_t size, const rein_batch *b,
                              const rein_options *o, const rein_exec *e, rein_error *err) {
    rein_loss out;
    for (int write = 0; write < 2; write++) {
        rein_step *s;
        rein_status status = rein_step_begin(&s, buffer, size, b, o, e, err);
        if (status == REIN_OK)
            status =
                rein_step_loss(s, 0, b->n_sequences, NULL, NULL, write ? gl : NULL, write ? ge : NULL, write ? adv : NULL, err);
        if (status == REIN_OK) status = rein_step_finish(&out, s, err);
        if (status != REIN_OK) return status;
        if (!gl && !ge && !adv) break;
    }
    *loss = out;
    return REIN_OK;
}

rein_status rein_policy_loss(rein_loss *loss, void *grad_log_probs, void *grad_entropies, void *advantages, const rein_batch *batch,
                             const rein_options *options, const rein_exec *exec, rein_error *err) {
    if (!batch->log_probs) return rein_fail_at(err, REIN_EINVAL, "log_probs", -1, "is missing");
    const size_t size = rein_step_size(batch, options, exec);
    void *buffer = size ? rein_scratch_take(size) : NULL;
    if (size && !buffer) return rein_fail(err, REIN_ENOMEM, "no memory for a workspace of %zu bytes", size);
    const rein_status status =
        whole_step(loss, grad_log_probs, grad_entropies, advantages, buffer, size, batch, options, exec, err);
    rein_scratch_give(buffer);
    return status;
}

/* The options up to the advantages: everything after them is off and needs no input. */
static rein_options rewards_only(const rein_options *options) {
    rein_options o = options ? *options : (rein_options){0};
    o.surrogate = REIN_SURROGATE_REINFORCE;
    o.ratio = REIN_RATIO_PUBLISHED;
    o.mismatch = REIN_MISMATCH_NONE;
    o.aggregation = REIN_TOKEN_SUM;
    o.off_policy_mask_delta = o.top_entropy = o.entropy_coef = o.kimi_k2_tau = o.kl_penalty_coef = o.kl_loss_coef = 0;
    memset(o.given, 0, sizeof o.given);
    return o;
}

rein_status rein_shape_rewards(double *shaped, const rein_batch *batch, const rein_options *options, rein_error *err) {
    rein_options o = rewards_only(options);
    rein_status status = rein_options_resolve(&o, &o, err);
    if (status == REIN_OK) status = rein_batch_check_shape(batch, err);
    if (status == REIN_OK) status = rein_batch_check_rewards(batch, &o, err);
    if (status != REIN_OK) return status;
    int64_t *length = malloc(batch->n_sequences * sizeof *length);
    if (!length) return rein_fail(err, REIN_ENOMEM, "no memory for %zu lengths", batch->n_sequences);
    for (size_t i = 0; i < batch->n_sequences; i++) {
        length[i] = batch->response_lengths ? batch->response_lengths[i] : 0;
        for (size_t t = batch->sequence_offsets[i]; !batch->response_lengths && t < batch->sequence_offsets[i + 1]; t++)
            length[i] += rein_trains(batch, t);
    }
    rein_rewards_of(shaped, batch);
    rein_shape_into(shaped, length, batch, &o);
    free(length);
    return REIN_OK;
}

rein_status rein_advantages(double *advantages, const rein_batch *batch, const rein_options *options, rein_error *err) {
    const rein_options o = rewards_only(options);
    const size_t size = rein_step_size(batch, &o, NULL);
    void *buffer = size ? malloc(size) : NULL;
    rein_step *s;
    if (size && !buffer) return rein_fail(err, REIN_ENOMEM, "no memory for a workspace of %zu bytes", size);
    const rein_status status = rein_step_begin(&s, buffer, size, batch, &o, NULL, err);
    for (size_t i = 0; status == REIN_OK && i < batch->n_sequences; i++)
        for (size_t t = batch->sequence_offsets[i]; t < batch->sequence_offsets[i + 1]; t++) {
            const double own = s->token_advantages ? rein_at(batch, s->token_advantages, t) : s->sequences[i].advantage;
            advantages[t] = rein_trains(batch, t) ? own : 0;
        }
    free(buffer);
    return status;
}
