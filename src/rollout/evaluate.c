/* evaluate.c - figures of a rollout, and how far they can be trusted. */
#include <math.h>
#include <stdlib.h>

#include "rein/rollout.h"

static const double Z = 1.959963984540054; /* of the 95 % interval */

/* Wilson (1927): the interval of all p that the observed share is not surprising under. It stays within [0, 1]. */
void rein_interval(double *low, double *high, double right, double n) {
    if (!(n > 0)) {
        *low = 0, *high = 1;
        return;
    }
    const double p = right / n, middle = (p + Z * Z / (2 * n)) / (1 + Z * Z / n);
    const double half = Z * sqrt(p * (1 - p) / n + Z * Z / (4 * n * n)) / (1 + Z * Z / n);
    *low = middle - half > 0 && right > 0 ? middle - half : 0;
    *high = middle + half < 1 && right < n ? middle + half : 1;
}

/* Chen et al. 2021, "Evaluating Large Language Models Trained on Code": as a product, which neither overflows nor cancels. */
double rein_pass_at_k(size_t n, size_t right, size_t k) {
    double none = 1;
    if (n - right < k) return 1;
    for (size_t i = n - right + 1; i <= n; i++) none *= 1 - (double)k / (double)i;
    return 1 - none;
}

static int is_right(const rein_rollout *r, size_t response) {
    return (r->judges ? r->components[response * r->judges] : r->rewards[response]) >= 1;
}

static size_t right_of(const rein_rollout *r, size_t prompt) {
    size_t right = 0;
    for (size_t k = 0; k < r->samples; k++) right += (size_t)is_right(r, prompt * r->samples + k);
    return right;
}

double rein_rollout_pass_at_k(const rein_rollout *r, size_t k) {
    double sum = 0;
    for (size_t i = 0; i < r->n; i++) sum += rein_pass_at_k(r->samples, right_of(r, i), k);
    return r->n ? sum / (double)r->n : 0;
}

/* Mean and 95 % interval of n independent numbers, by the normal distribution. */
static double mean_of(double *low, double *high, const double *x, size_t n) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    const double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
    const double error = n > 1 ? sqrt(squares / (double)(n - 1) / (double)n) : INFINITY;
    *low = mean - Z * error, *high = mean + Z * error;
    return mean;
}

/* Responses to one prompt are alike: with several the interval is over prompts, each with its share. Where all shares are equal that would
 * be no interval at all, and Wilson's over prompts takes its place. */
static void accuracy(rein_evaluation *e, const rein_rollout *r) {
    double right = 0, *shares = r->samples > 1 && r->n > 1 ? malloc(r->n * sizeof *shares) : NULL;
    int differ = 0;
    for (size_t i = 0; i < r->n; i++) {
        const double share = (double)right_of(r, i) / (double)r->samples;
        right += share;
        if (shares) shares[i] = share, differ |= share < shares[0] || share > shares[0];
    }
    e->accuracy = right / (double)r->n;
    rein_interval(&e->accuracy_low, &e->accuracy_high, right, (double)r->n);
    if (differ) {
        mean_of(&e->accuracy_low, &e->accuracy_high, shares, r->n);
        if (e->accuracy_low < 0) e->accuracy_low = 0;
        if (e->accuracy_high > 1) e->accuracy_high = 1;
    }
    free(shares);
}

rein_evaluation rein_evaluate(const rein_rollout *r, int64_t budget) {
    rein_evaluation e = {.n = r->n * r->samples, .prompts = r->n, .samples = r->samples, .share_over_budget = NAN};
    size_t with_budget = 0, over = 0;
    if (!e.n) return e;
    for (size_t i = 0; i < e.n; i++) {
        const rein_completion *w = &r->written[i];
        const int64_t own = r->examples[i / r->samples].budget, limit = own >= 0 ? own : budget;
        e.reward += r->rewards[i];
        e.mean_length += (double)w->n;
        e.truncated += w->finish == REIN_FINISH_MAX_TOKENS || w->finish == REIN_FINISH_CONTEXT;
        with_budget += limit >= 0;
        over += limit >= 0 && (int64_t)w->n > limit;
    }
    e.reward /= (double)e.n, e.mean_length /= (double)e.n,
        e.truncated /= (double)e.n; /* once: the mean of equal numbers is theirs */
    if (with_budget) e.share_over_budget = (double)over / (double)with_budget;
    e.pass_at_k = rein_rollout_pass_at_k(r, r->samples);
    accuracy(&e, r);
    return e;
}

double rein_evaluate_difference(double *low, double *high, const rein_rollout *first, const rein_rollout *second) {
    double *differences = malloc(first->n * sizeof *differences), result = NAN;
    *low = *high = NAN;
    for (size_t i = 0; i < first->n && differences; i++)
        differences[i] = ((double)right_of(second, i) - (double)right_of(first, i)) / (double)first->samples;
    if (differences && first->n) result = mean_of(low, high, differences, first->n);
    free(differences);
    return result;
}
