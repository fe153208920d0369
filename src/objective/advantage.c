/* advantage.c - the advantage estimators. r is the reward of a response, K the number of responses of a group. Baselines are constants:
 * nothing here is differentiated. Equal rewards give exactly 0, even if rounding makes them differ: a rounding error is never divided by
 * a tiny std. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "reward.h"

/* The unbiased std of numbers whose squares are beyond the range of double. */
static double std_of_extremes(const double *x, size_t n) {
    double largest = 0, mean = 0, squares = 0;
    for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs(x[i]));
    for (size_t i = 0; i < n; i++) mean += x[i] / largest / (double)n;
    for (size_t i = 0; i < n; i++) squares += (x[i] / largest - mean) * (x[i] / largest - mean);
    return fmin(largest * sqrt(squares / (double)(n - 1)), DBL_MAX);
}

double rein_mean(const double *x, size_t n, double *std, int *equal) {
    double low = x[0], high = x[0], sum = 0, squares = 0;
    if (n == 1) return *std = 0, *equal = 1, x[0];
    for (size_t i = 0; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        sum += x[i] - x[0]; /* shifted: exact when all are equal */
    }
    *equal = high - low <= 1e-12 * fmax(fabs(low), fabs(high));
    const double mean = x[0] + sum / (double)n;
    for (size_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
    *std = n > 1 && !*equal ? sqrt(squares / (double)(n - 1)) : 0;
    if (n > 1 && !*equal && !(*std > 0 && isfinite(*std))) *std = std_of_extremes(x, n);
    return *equal ? x[0] : mean;
}

/* One group: A = r − mean, 0 when all are equal. Returns whether they are. */
static int centre(double *a, const double *r, size_t n, double *mean, double *std) {
    int equal;
    *mean = rein_mean(r, n, std, &equal);
    for (size_t i = 0; i < n; i++) a[i] = equal ? 0 : r[i] - *mean;
    return equal;
}

/* A = (r − mean)/(std + eps)                                                         GRPO, DeepSeekMath, arXiv 2402.03300 */
static void group_std(double *a, const double *r, size_t n, double eps) {
    double mean, std;
    if (centre(a, r, n, &mean, &std)) return;
    for (size_t i = 0; i < n; i++) a[i] /= std + eps;
}

/* A = K/(K−1)·(r − mean) = r − mean of the others                                                RLOO, arXiv 2402.14740 */
static void leave_one_out(double *a, const double *r, size_t n) {
    double mean, std;
    if (centre(a, r, n, &mean, &std)) return;
    for (size_t i = 0; i < n; i++) a[i] *= (double)n / (double)(n - 1);
}

/* A = r − ΣL·r/ΣL                                            OPO: the baseline of least variance, arXiv 2505.23585 */
static void optimal_baseline(double *a, const double *r, const int64_t *length, size_t n) {
    double mean, std, weighted = 0, total = 0;
    if (centre(a, r, n, &mean, &std)) return;
    for (size_t i = 0; i < n; i++) {
        weighted += (double)length[i] * (r[i] - r[0]);
        total += (double)length[i];
    }
    if (total == 0) return; /* no response has a length: keep the plain mean */
    for (size_t i = 0; i < n; i++) a[i] = r[i] - (r[0] + weighted / total);
}

/* A = (r − mean)/mean, 0 when the mean is 0                                     maximum-likelihood RL, arXiv 2602.02710 */
static void max_rl(double *a, const double *r, size_t n) {
    double mean, std;
    if (centre(a, r, n, &mean, &std)) return;
    for (size_t i = 0; i < n; i++) a[i] = mean == 0 ? 0 : a[i] / mean;
}

/* What response i adds to the best of k: the mean of max(r_i, max T) − max T over the (k−1)-subsets T of the others. For k = K it is
 * best − second best for the best response and 0 for the rest (arXiv 2503.19595). The largest of T is the j-th best of the K−1 others
 * with probability C(K−1−j, k−2)/C(K−1, k−1), which is updated from one j to the next. */
static double marginal_best(const double *r, size_t n, size_t k, size_t i) {
    double sum = 0, last = INFINITY,
           chance = (double)(k - 1) / (double)(n - 1); /* that the largest of T is the best of the others */
    size_t last_index = n;
    for (size_t left = n - 1; left >= k - 1; left--) { /* `left` others remain */
        size_t next = n;                               /* the best of these, the first among equals */
        for (size_t m = 0; m < n; m++) {
            const int passed = r[m] > last || (r[m] == last && m <= last_index);
            if (m != i && !passed && (next == n || r[m] > r[next])) next = m;
        }
        if (r[i] > r[next]) sum += chance * (r[i] - r[next]);
        last = r[next];
        last_index = next;
        if (left == 1) break;
        chance *= (double)(left - (k - 1)) / (double)(left - 1); /* C(left−2, k−2)/C(left−1, k−2) */
    }
    return sum;
}

static rein_status pass_at_k(double *a, const double *r, size_t n, double pass_k, size_t group, rein_error *err) {
    const size_t k = isnan(pass_k) ? n : (size_t)pass_k;
    if (n > 1 && k > n)
        return rein_fail_at(err, REIN_EINVAL, "pass_k", -1, "is %zu: group %zu has only %zu sequences", k, group, n);
    for (size_t i = 0; i < n; i++) a[i] = n > 1 ? marginal_best(r, n, k, i) : 0;
    return REIN_OK;
}

/* Every component is a z-score in its group, then Σ weight·z, then whitened over the batch           GDPO, arXiv 2601.05242 */
static void gdpo(double *a, double *scratch, const rein_batch *b, double eps) {
    memset(a, 0, b->n_sequences * sizeof *a);
    for (size_t k = 0; k < b->n_components; k++) {
        const double weight = b->reward_weights ? b->reward_weights[k] : 1;
        for (size_t g = 0; g < rein_group_count(b); g++) {
            const size_t first = rein_group_start(b, g), n = rein_group_start(b, g + 1) - first;
            double *component = scratch, *z = scratch + b->n_sequences;
            for (size_t i = 0; i < n; i++) component[i] = b->reward_components[(first + i) * b->n_components + k];
            group_std(z, component, n, eps);
            for (size_t i = 0; i < n; i++) a[first + i] += weight * z[i];
        }
    }
    memcpy(scratch, a, b->n_sequences * sizeof *a);
    group_std(a, scratch, b->n_sequences, eps);
}

void rein_whiten(double *x, const size_t *tokens, size_t n, double eps) {
    double origin = 0, low = 0, high = 0, sum = 0, squares = 0, total = 0;
    for (size_t i = 0; i < n; i++) {
        const double count = tokens ? (double)tokens[i] : 1;
        if (count == 0) continue;
        if (total == 0) origin = low = high = x[i];
        low = fmin(low, x[i]);
        high = fmax(high, x[i]);
        sum += count * (x[i] - origin); /* shifted: exact when all are equal */
        total += count;
    }
    const double mean = origin + sum / total;
    for (size_t i = 0; i < n; i++)
        if (!tokens || tokens[i]) squares += (tokens ? (double)tokens[i] : 1) * (x[i] - mean) * (x[i] - mean);
    const int equal = high - low <= 1e-12 * fmax(fabs(low), fabs(high)), too_large = !isfinite(squares);
    for (size_t i = 0; i < n; i++)
        if (!tokens || tokens[i]) /* the check of the advantages reports a NaN */
            x[i] = too_large ? (double)NAN : equal ? 0 : (x[i] - mean) / sqrt(squares / (total - 1) + eps);
}

static void whiten_over_tokens(double *a, const double *r, const size_t *trained, size_t n, double eps) {
    for (size_t i = 0; i < n; i++) a[i] = trained[i] ? r[i] : 0;
    rein_whiten(a, trained, n, eps);
}

rein_status rein_estimate(double *a, const double *r, const int64_t *length, const size_t *trained, double *scratch,
                          const rein_batch *b, const rein_options *o, rein_error *err) {
    const size_t n_all = b->n_sequences;
    double batch_std = 0, mean, std;
    int equal;
    if (o->advantage == REIN_ADVANTAGE_GDPO) return gdpo(a, scratch, b, o->advantage_eps), REIN_OK;
    if (o->advantage == REIN_ADVANTAGE_REINFORCE_PP) return whiten_over_tokens(a, r, trained, n_all, o->advantage_eps), REIN_OK;
    if (o->advantage == REIN_ADVANTAGE_BATCH_STD) (void)rein_mean(r, n_all, &batch_std, &equal);
    for (size_t g = 0; g < rein_group_count(b); g++) {
        const size_t first = rein_group_start(b, g), n = rein_group_start(b, g + 1) - first;
        double *ag = a + first;
        const double *rg = r + first;
        rein_status status = REIN_OK;
        switch (o->advantage) {
        case REIN_ADVANTAGE_GROUP_MEAN: (void)centre(ag, rg, n, &mean, &std); break;
        case REIN_ADVANTAGE_GROUP_STD: group_std(ag, rg, n, o->advantage_eps); break;
        case REIN_ADVANTAGE_BATCH_STD: /* (r − group mean)/(std of all rewards + eps) */
            (void)centre(ag, rg, n, &mean, &std);
            for (size_t i = 0; i < n; i++)
                if (ag[i] != 0) ag[i] /= batch_std + o->advantage_eps;
            break;
        case REIN_ADVANTAGE_LEAVE_ONE_OUT: leave_one_out(ag, rg, n); break;
        case REIN_ADVANTAGE_OPO: optimal_baseline(ag, rg, length + first, n); break;
        case REIN_ADVANTAGE_REMAX: /* r − reward of the greedy answer; arXiv 2310.10505 */
            for (size_t i = 0; i < n; i++) ag[i] = rg[i] - b->baseline_rewards[first + i];
            break;
        case REIN_ADVANTAGE_PASS_AT_K: status = pass_at_k(ag, rg, n, o->pass_k, g, err); break;
        case REIN_ADVANTAGE_MAX_RL: max_rl(ag, rg, n); break;
        case REIN_ADVANTAGE_NONE:
        case REIN_ADVANTAGE_GAE:
        case REIN_ADVANTAGE_GIVEN: memcpy(ag, rg, n * sizeof *ag); break;
        case REIN_ADVANTAGE_GDPO:
        case REIN_ADVANTAGE_REINFORCE_PP: break; /* over the whole batch: done above */
        }
        if (status != REIN_OK) return status;
    }
    return REIN_OK;
}

/* Walks the trained tokens of a sequence from the last to the first and skips masked ones, whose result is 0. The last trained token has the
 * reward, and each token pays β·(source − ref) of KL. With values the result is δ_t = r_t + γV_{t+1} − V_t, A_t = δ_t + γλA_{t+1} (GAE,
 * arXiv 1506.02438), without them the return to go. It is written to `returns` in double or, if that is NULL, to `out`. */
static void backwards(void *out, double *returns, double reward, const void *kl_source, const rein_batch *b, const rein_options *o,
                      size_t start, size_t end) {
    const int gae = o->advantage == REIN_ADVANTAGE_GAE;
    double carried = 0, next_value = 0, r = reward;
    for (size_t t = end; t-- > start;) {
        if (!rein_trains(b, t)) {
            rein_put(b, out, t, 0);
            continue;
        }
        if (o->kl_reward_coef != 0) r -= o->kl_reward_coef * (rein_at(b, kl_source, t) - rein_at(b, b->ref_log_probs, t));
        if (gae) {
            const double value = rein_at(b, b->values, t);
            carried = r + o->gae_gamma * next_value - value + o->gae_gamma * o->gae_lambda * carried;
            next_value = value;
        } else {
            carried += r;
        }
        if (returns) returns[t] = carried;
        else rein_put(b, out, t, carried);
        r = 0; /* only the last token has the reward */
    }
}

void rein_estimate_tokens(void *a, double *scratch, const double *reward, const void *kl_source, const rein_batch *b,
                          const rein_options *o) {
    const int whitens = o->advantage == REIN_ADVANTAGE_REINFORCE_PP;
    const size_t n = rein_batch_tokens(b);
    size_t trained = 0;
    for (size_t i = 0; i < b->n_sequences; i++)
        backwards(a, whitens ? scratch : NULL, reward[i], kl_source, b, o, b->sequence_offsets[i], b->sequence_offsets[i + 1]);
    if (!whitens) return;
    for (size_t t = 0; t < n; t++) /* whitened as doubles: small differences between the returns would be lost in f32 */
        if (rein_trains(b, t)) scratch[trained++] = scratch[t];
    rein_whiten(scratch, NULL, trained, o->advantage_eps);
    for (size_t t = n; t-- > 0;)
        if (rein_trains(b, t)) rein_put(b, a, t, scratch[--trained]);
}
