/* loss.c - the loss of a prepared step, micro-batch by micro-batch.
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

static size_t block_of(const rein_step *s, size_t sequence) {
    size_t low = 0, high = s->n_blocks - 1;
    while (low < high) {
        const size_t middle = low + (high - low + 1) / 2;
        if (s->blocks[middle].first <= sequence) low = middle;
        else high = middle - 1;
    }
    return low;
}

size_t rein_step_cut(const rein_step *s, size_t sequence) {
    if (sequence >= s->batch.n_sequences) return s->batch.n_sequences;
    const rein_loss_block block = s->blocks[block_of(s, sequence)];
    return block.first == sequence ? sequence : block.last;
}

static rein_status check_next(const rein_step *s, size_t first, size_t last, rein_error *err) {
    if (s->failed) return rein_fail(err, REIN_EINVAL, "the step failed before: begin a new one");
    if (first == s->next && last >= first && last <= s->batch.n_sequences) return REIN_OK;
    if (first != s->next)
        return rein_fail_at(err, REIN_EINVAL, "first", -1, "is %zu: the next micro-batch begins with sequence %zu", first, s->next);
    return rein_fail_at(err, REIN_EINVAL, "last", -1, "is %zu: it must be between first, which is %zu, and the %zu sequences", last,
                        first, s->batch.n_sequences);
}

rein_status rein_step_skip(rein_step *s, size_t last, rein_error *err) {
    const rein_status status = check_next(s, s->next, last, err);
    if (status == REIN_OK) s->next = last;
    return status;
}

static void clear(const rein_batch *b, void *array, size_t first, size_t last) {
    const size_t size = rein_element_size(b), from = b->sequence_offsets[first];
    if (array) memset((char *)array + from * size, 0, (b->sequence_offsets[last] - from) * size);
}

/* Why the sums are not finite: an input that is not, by name, or an overflow. Exponentials overflow first, so then the error names the token
 * whose exponent is largest. */
static rein_status explain_failure(const rein_step *s, const void *log_probs, const void *entropies, size_t first, size_t last,
                                   rein_error *err) {
    const rein_batch *b = &s->batch;
    const rein_status status = rein_batch_find_bad(b, log_probs, entropies, first, last, err);
    const int has_kl = b->ref_log_probs && s->options.kl_loss_coef != 0;
    size_t worst = 0;
    double largest = -1;
    int is_kl = 0;
    if (status != REIN_OK) return status;
    for (size_t t = b->sequence_offsets[first]; t < b->sequence_offsets[last]; t++) {
        if (!rein_trains(b, t)) continue;
        const double lp = rein_at(b, log_probs, t), d = b->old_log_probs ? lp - rein_at(b, b->old_log_probs, t) : 0;
        const double x = has_kl ? fabs(rein_at(b, b->ref_log_probs, t) - lp) : 0;
        if (fmax(d, x) > largest) largest = fmax(d, x), worst = t, is_kl = x > d;
    }
    if (largest < 40) /* e^40 is far from overflowing */
        return rein_fail(err, REIN_ERANGE,
                         "the loss or its gradient is not finite: a reward, a log-prob or a coefficient is too large");
    return rein_fail_at(err, REIN_ERANGE, "log_probs", (int64_t)worst,
                        ": the loss or its gradient is not finite: %s is %.6g here, and its exponential overflows%s; or a "
                        "coefficient is too large",
                        is_kl ? "|ref_log_probs - log_probs|" : "log_probs - old_log_probs", largest,
                        is_kl ? " (kl_clamp bounds it)" : "");
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

/* Adds sequences [first, last) to the sums of their blocks; returns whether these sums are finite. */
static int add(rein_step *s, const rein_loss_inputs *inputs, size_t first, size_t last) {
    static const enum rein_loss_sum checked[] = {SUM_SURROGATE,    SUM_KL_LOSS, SUM_ENTROPY_LOSS, SUM_LOG_RATIO, SUM_TEACHER,
                                                 SUM_TEACHER_LOSS, SUM_REF,     SUM_ENTROPY,      SUM_EXACT_KL,  SUM_CHECK};
    const size_t from = block_of(s, first), to = block_of(s, last - 1) + 1;
    int finite = 1;
    rein_parallel(s->exec.threads, to - from, add_block, &(micro_batch){s, inputs, from, first, last});
    for (size_t k = from; k < to; k++)
        for (size_t i = 0; i < sizeof checked / sizeof *checked; i++)
            finite &= isfinite(rein_add_lanes(&s->sums[k], checked[i])) != 0;
    return finite;
}

rein_status rein_step_loss_apart(rein_step *s, size_t first, size_t last, const void *log_probs, const void *stop_log_probs,
                                 const void *entropies, void *grad_log_probs, void *grad_entropies, void *advantages,
                                 rein_error *err) {
    const rein_batch *b = &s->batch;
    const rein_options *o = &s->options;
    const rein_status status = check_next(s, first, last, err);
    if (status != REIN_OK) return status;
    if (!log_probs) log_probs = b->log_probs;
    if (!entropies) entropies = b->entropies;
    if (!log_probs) return rein_fail_at(err, REIN_EINVAL, "log_probs", -1, "is missing");
    if ((o->entropy_coef != 0 || grad_entropies) && !entropies)
        return rein_fail_at(err, REIN_EINVAL, "entropies", -1, "is missing: %s needs it",
                            o->entropy_coef != 0 ? "entropy_coef" : "their gradient");
    if (first == last) return REIN_OK;
    const int per_token_penalty = o->kl_penalty_coef != 0 && !rein_sequence_unit(o);
    const rein_loss_inputs inputs = {.options = o,
                                     .sequences = s->sequences,
                                     .offsets = b->sequence_offsets,
                                     .mask = b->mask,
                                     .in = {[IN_LOG_PROB] = log_probs,
                                            [IN_STOP] = stop_log_probs ? stop_log_probs : log_probs,
                                            [IN_OLD] = b->old_log_probs,
                                            [IN_REF] = b->ref_log_probs,
                                            [IN_SAMPLE] = b->sample_log_probs,
                                            [IN_KL_SOURCE] = per_token_penalty ? rein_kl_source_of(s) : NULL,
                                            [IN_ENTROPY] = entropies,
                                            [IN_EXACT_KL] = b->exact_kl,
                                            [IN_TEACHER] = b->teacher_divergence,
                                            [IN_ADVANTAGE] = s->token_advantages},
                                     .grad_log_probs = grad_log_probs,
                                     .grad_entropies = grad_entropies,
                                     .advantages = advantages,
                                     .entropy_coef = s->entropy_coef,
                                     .entropy_threshold = s->entropy_threshold};
    if (!add(s, &inputs, first, last)) {
        clear(b, grad_log_probs, first, last);
        clear(b, grad_entropies, first, last);
        clear(b, advantages, first, last);
        s->failed = 1;
        return explain_failure(s, log_probs, entropies, first, last, err);
    }
    for (size_t i = first; i < last; i++) s->added += s->trained[i];
    s->next = last;
    return REIN_OK;
}

rein_status rein_step_loss(rein_step *s, size_t first, size_t last, const void *log_probs, const void *entropies,
                           void *grad_log_probs, void *grad_entropies, void *advantages, rein_error *err) {
    return rein_step_loss_apart(s, first, last, log_probs, NULL, entropies, grad_log_probs, grad_entropies, advantages, err);
}

/* d loss/d of a divergence that the loss has with a coefficient. */
static rein_status divergence_gradient(void *gradient, const rein_step *s, double coef, size_t first, size_t last,
                                       rein_error *err) {
    const rein_batch *b = &s->batch;
    if (first > last || last > b->n_sequences)
        return rein_fail_at(err, REIN_EINVAL, "last", -1, "is %zu: it must be between first, which is %zu, and the %zu sequences",
                            last, first, b->n_sequences);
    clear(b, gradient, first, last);
    for (size_t i = first; i < last && coef != 0; i++)
        for (size_t t = b->sequence_offsets[i]; t < b->sequence_offsets[i + 1]; t++)
            if (rein_trains(b, t)) rein_put(b, gradient, t, coef * s->sequences[i].weight);
    return REIN_OK;
}

rein_status rein_step_exact_kl_gradient(void *gradient, const rein_step *s, size_t first, size_t last, rein_error *err) {
    return divergence_gradient(gradient, s, rein_exact_kl_loss(&s->options) ? s->options.kl_loss_coef : 0, first, last, err);
}

rein_status rein_step_teacher_gradient(void *gradient, const rein_step *s, size_t first, size_t last, rein_error *err) {
    return divergence_gradient(gradient, s, rein_teacher_in_loss(&s->options) ? s->options.teacher_coef : 0, first, last, err);
}

typedef rein_status step_gradient(void *gradient, const rein_step *s, size_t first, size_t last, rein_error *err);
static rein_status whole_gradient(void *gradient, step_gradient *of_step, const rein_batch *batch, const rein_options *options,
                                  rein_error *err) {
    const size_t size = rein_step_size(batch, options, NULL);
    void *buffer = size ? rein_scratch_take(size) : NULL;
    rein_step *s;
    if (size && !buffer) return rein_fail(err, REIN_ENOMEM, "no memory for a workspace of %zu bytes", size);
    rein_status status = rein_step_begin(&s, buffer, size, batch, options, NULL, err);
    if (!status) status = of_step(gradient, s, 0, batch->n_sequences, err);
    rein_scratch_give(buffer);
    return status;
}

rein_status rein_policy_loss_exact_kl_gradient(void *gradient, const rein_batch *batch, const rein_options *options,
                                               rein_error *err) {
    return whole_gradient(gradient, rein_step_exact_kl_gradient, batch, options, err);
}

rein_status rein_policy_loss_teacher_gradient(void *gradient, const rein_batch *batch, const rein_options *options,
                                              rein_error *err) {
    return whole_gradient(gradient, rein_step_teacher_gradient, batch, options, err);
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
    o.off_policy_mask_delta = o.top_entropy = o.entropy_coef = o.kimi_k2_tau = o.kl_penalty_coef = o.kl_loss_coef =
        o.kl_reward_exact = o.teacher_coef = 0;
    memset(o.given, 0, sizeof o.given);
    return o;
}

rein_status rein_shape_rewards(double *shaped, const rein_batch *batch, const rein_options *options, rein_error *err) {
    rein_options o = rewards_only(options);
    o.preference_loss = REIN_PREFERENCE_LOSS_NONE;
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
