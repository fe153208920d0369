/* sums.c - the sums of a step: the loss and the metrics made of them, and their exchange between processes that share a step. */
#include <math.h>
#include <string.h>

#include "step.h"

/* ---- reading the sums */

static double sum_of(const rein_step *s, enum rein_loss_sum which) {
    double sum = 0;
    for (size_t k = 0; k < s->n_blocks; k++) sum += rein_add_lanes(&s->sums[k], which);
    return sum;
}

static size_t count_in_bin(const rein_step *s, int bin) {
    size_t n = 0;
    for (int t = 0; t < s->exec.threads; t++)
        for (int k = 0; k < RATIO_COUNTERS; k++) n += s->histograms[t].count[bin][k];
    return n;
}

/* The smallest and the largest log-ratio of all threads. */
static void find_extremes(double *low, double *high, const rein_step *s) {
    *low = HUGE_VAL, *high = -HUGE_VAL;
    for (int t = 0; t < s->exec.threads; t++) {
        *low = fmin(*low, s->histograms[t].low);
        *high = fmax(*high, s->histograms[t].high);
    }
}

/* ---- loss and metrics */

#define SATURATION 4.8516519540979028e8 /* e^20 */
static double mean_of(double sum, double n) { return n > 0 ? fmin(sum / n, SATURATION) : 0; }
static double saturated(double log_ratio) { return fmin(fmax(log_ratio, -RATIO_RANGE), RATIO_RANGE); }

/* The 99th percentile of the ratio of n tokens: the middle of its bin, inside [low, high]. */
static double p99(const rein_step *s, size_t n, double low, double high) {
    const size_t above = n - (size_t)ceil(0.99 * (double)n); /* how many tokens may have a larger ratio */
    size_t seen = 0;
    int bin = RATIO_BINS;
    while (bin > 0 && seen <= above) seen += count_in_bin(s, --bin);
    const double log_ratio = (double)bin / RATIO_BINS_PER_UNIT - RATIO_RANGE;
    return exp(fmin(fmax(log_ratio, low), high));
}

static void ratio_metrics(rein_metrics *m, const rein_step *s) {
    const double n = (double)s->added, ratios = sum_of(s, SUM_RATIO), squares = sum_of(s, SUM_RATIO_SQUARE);
    const int finite = isfinite(ratios * ratios) && isfinite(squares) && squares > 0; /* otherwise one ratio dominates all others */
    double low, high;
    if (s->added == 0) return;
    find_extremes(&low, &high, s);
    m->ratio_mean = mean_of(ratios, n);
    m->ratio_min = exp(saturated(low));
    m->ratio_max = exp(saturated(high));
    m->ratio_p99 = p99(s, s->added, saturated(low), saturated(high));
    m->ess = finite ? ratios * ratios / (n * squares) : 1 / n;
}

rein_status rein_step_finish(rein_loss *loss, const rein_step *s, rein_error *err) {
    if (s->failed) return rein_fail(err, REIN_EINVAL, "the step failed: it has no loss");
    const double n = (double)s->added;
    rein_loss out = {.metrics = s->metrics, .nothing_to_train = s->trained_tokens == 0};
    rein_metrics *m = &out.metrics;
    m->surrogate_loss = sum_of(s, SUM_SURROGATE);
    m->kl_loss = sum_of(s, SUM_KL_LOSS);
    m->entropy_loss = sum_of(s, SUM_ENTROPY_LOSS);
    m->teacher_loss = sum_of(s, SUM_TEACHER_LOSS);
    out.loss = m->surrogate_loss + m->kl_loss + m->entropy_loss + m->teacher_loss;
    m->clip_low = mean_of(sum_of(s, SUM_CLIPPED_LOW), n);
    m->clip_high = mean_of(sum_of(s, SUM_CLIPPED_HIGH), n);
    ratio_metrics(m, s);
    m->kl_old_k1 = n > 0 ? (0 - sum_of(s, SUM_LOG_RATIO)) / n : 0; /* never -0 */
    m->kl_old_k3 = mean_of(sum_of(s, SUM_EXCESS), n);
    m->kl_ref_k1 = n > 0 ? sum_of(s, SUM_REF) / n : 0;
    m->kl_ref_k3 = mean_of(sum_of(s, SUM_REF_EXCESS), n);
    m->kl_exact = n > 0 ? sum_of(s, SUM_EXACT_KL) / n : 0;
    if (rein_teacher_in_loss(&s->options)) m->teacher_divergence = n > 0 ? sum_of(s, SUM_TEACHER) / n : 0;
    m->entropy = n > 0 ? sum_of(s, SUM_ENTROPY) / n : 0;
    m->tokens = (double)rein_batch_tokens(&s->batch);
    m->trained_tokens = n;
    m->sequences = (double)s->batch.n_sequences;
    m->trained_sequences = (double)s->trained_sequences;
    m->groups = (double)rein_group_count(&s->batch);
    *loss = out;
    return REIN_OK;
}

/* ---- the sums as an array: trained tokens, extremes of the log-ratios, their histogram, the sums of each block */

enum { ADDED, LOWEST, HIGHEST, COUNTS, BLOCKS = COUNTS + RATIO_BINS, PER_BLOCK = SUM_COUNT * SUM_LANES };

size_t rein_step_sums_length(const rein_step *s) { return BLOCKS + s->n_blocks * PER_BLOCK; }

rein_status rein_step_sums(double *sums, const rein_step *s, rein_error *err) {
    if (s->failed) return rein_fail(err, REIN_EINVAL, "the step failed: it has no sums");
    sums[ADDED] = (double)s->added;
    find_extremes(&sums[LOWEST], &sums[HIGHEST], s);
    for (int bin = 0; bin < RATIO_BINS; bin++) sums[COUNTS + bin] = (double)count_in_bin(s, bin);
    memcpy(sums + BLOCKS, s->sums, s->n_blocks * sizeof *s->sums);
    return REIN_OK;
}

static int is_count(double x, double most) { return x >= 0 && x <= most && x == floor(x); }

static rein_status check_sums(const double *sums, const rein_step *s, rein_error *err) {
    const double left = (double)(s->trained_tokens - s->added);
    if (!is_count(sums[ADDED], left))
        return rein_fail_at(err, REIN_EINVAL, "sums", ADDED, "is %g trained tokens: %g of the step are not added yet", sums[ADDED],
                            left);
    for (size_t i = LOWEST; i < rein_step_sums_length(s); i++) {
        const int valid = i < COUNTS   ? !isnan(sums[i])
                          : i < BLOCKS ? is_count(sums[i], UINT32_MAX - s->histograms[0].count[i - COUNTS][0])
                                       : isfinite(sums[i]);
        if (!valid)
            return rein_fail_at(err, REIN_EINVAL, "sums", (int64_t)i, "is %g: rein_step_sums does not write such a number",
                                sums[i]);
    }
    return REIN_OK;
}

rein_status rein_step_add_sums(rein_step *s, const double *sums, rein_error *err) {
    if (s->failed) return rein_fail(err, REIN_EINVAL, "the step failed before: begin a new one");
    const rein_status status = check_sums(sums, s, err);
    if (status != REIN_OK) return status;
    rein_ratio_histogram *seen = &s->histograms[0];
    s->added += (size_t)sums[ADDED];
    seen->low = fmin(seen->low, sums[LOWEST]);
    seen->high = fmax(seen->high, sums[HIGHEST]);
    for (int bin = 0; bin < RATIO_BINS; bin++) seen->count[bin][0] += (uint32_t)sums[COUNTS + bin];
    for (size_t k = 0; k < s->n_blocks; k++)
        for (int i = 0; i < PER_BLOCK; i++)
            s->sums[k].sum[i / SUM_LANES][i % SUM_LANES] += sums[BLOCKS + k * PER_BLOCK + (size_t)i];
    return REIN_OK;
}
