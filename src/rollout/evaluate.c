/* evaluate.c - how good groups of trajectories are, and how far these figures can be trusted. */
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

static size_t right_of(const rein_group *group) {
    size_t right = 0;
    for (size_t t = 0; t < group->n; t++) right += (size_t)rein_trajectory_is_right(&group->trajectories[t]);
    return right;
}

double rein_groups_pass_at_k(const rein_groups *groups, size_t k) {
    double sum = 0;
    for (size_t g = 0; g < groups->n; g++) sum += rein_pass_at_k(groups->groups[g].n, right_of(&groups->groups[g]), k);
    return groups->n ? sum / (double)groups->n : 0;
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
static void accuracy(rein_evaluation *e, const rein_groups *groups) {
    const size_t n = groups->n;
    double right = 0, *shares = e->samples > 1 && n > 1 ? malloc(n * sizeof *shares) : NULL;
    int differ = 0;
    for (size_t g = 0; g < n; g++) {
        const double share = (double)right_of(&groups->groups[g]) / (double)groups->groups[g].n;
        right += share;
        if (shares) shares[g] = share, differ |= share < shares[0] || share > shares[0];
    }
    e->accuracy = right / (double)n;
    rein_interval(&e->accuracy_low, &e->accuracy_high, right, (double)n);
    if (differ) {
        mean_of(&e->accuracy_low, &e->accuracy_high, shares, n);
        if (e->accuracy_low < 0) e->accuracy_low = 0;
        if (e->accuracy_high > 1) e->accuracy_high = 1;
    }
    free(shares);
}

/* What is added up over trajectories. */
typedef struct totals {
    size_t with_budget, over;
} totals;

static void add_group(rein_evaluation *e, totals *sum, const rein_group *group, int64_t budget) {
    if (!e->prompts++ || group->n < e->samples) e->samples = group->n;
    e->n += group->n;
    for (size_t k = 0; k < group->n; k++) {
        const rein_trajectory *t = &group->trajectories[k];
        const int64_t limit = t->budget >= 0 ? t->budget : budget, length = (int64_t)rein_trajectory_length(t);
        e->reward += t->reward;
        e->mean_length += (double)length;
        e->truncated += t->truncated;
        sum->with_budget += limit >= 0;
        sum->over += limit >= 0 && length > limit;
    }
}

rein_evaluation rein_evaluate(const rein_groups *groups, int64_t budget) {
    rein_evaluation e = {.share_over_budget = NAN};
    totals sum = {0};
    for (size_t g = 0; g < groups->n; g++) add_group(&e, &sum, &groups->groups[g], budget);
    if (!e.n) return e;
    /* Divided once: the mean of equal numbers is theirs. */
    e.reward /= (double)e.n, e.mean_length /= (double)e.n, e.truncated /= (double)e.n;
    if (sum.with_budget) e.share_over_budget = (double)sum.over / (double)sum.with_budget;
    e.pass_at_k = rein_groups_pass_at_k(groups, e.samples);
    accuracy(&e, groups);
    return e;
}

double rein_evaluate_difference(double *low, double *high, const rein_groups *first, const rein_groups *second) {
    const size_t n = first->n;
    double *differences = malloc((n ? n : 1) * sizeof *differences), result = NAN;
    *low = *high = NAN;
    for (size_t g = 0; g < n && differences; g++) {
        const rein_group *a = &first->groups[g], *b = &second->groups[g];
        differences[g] = ((double)right_of(b) - (double)right_of(a)) / (double)a->n;
    }
    if (differences && n) result = mean_of(low, high, differences, n);
    free(differences);
    return result;
}
