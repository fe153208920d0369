/* truncate.c - which tokens top_k, top_p and min_p keep: candidates in order, the most probable first. */
#include "truncate.h"

#include <math.h>
#include <stdlib.h>

#include "kernel/kernels.h"

int rein_is_banned(const rein_logits_row *row, size_t id) {
    for (size_t i = 0; i < row->n_banned; i++)
        if ((size_t)row->banned[i] == id) return 1;
    return 0;
}

static int by_probability(const void *a, const void *b) {
    const rein_logit *p = a, *q = b;
    if (p->x != q->x) return p->x > q->x ? -1 : 1;
    return p->id < q->id ? -1 : p->id > q->id;
}

/* Lists all tokens whose logit is within `depth` of the greatest, in order. Returns their number. */
static size_t collect(rein_logit *candidates, const rein_logits_row *row, double greatest_x, double depth) {
    size_t n = 0;
    for (size_t v = 0; v < row->vocabulary; v++)
        if ((double)row->x[v] >= greatest_x - depth && !rein_is_banned(row, v))
            candidates[n++] = (rein_logit){row->x[v], (int32_t)v};
    qsort(candidates, n, sizeof *candidates, by_probability);
    return n;
}

static double mass_of(const rein_logit *candidates, size_t n, double greatest_x, rein_isa isa) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += rein_exp_of((double)candidates[i].x - greatest_x, isa);
    return sum;
}

/* Lists enough of the most probable tokens for truncation: the first k, or top_p of the mass. */
static size_t collect_enough(rein_logit *candidates, const rein_logits_row *row, const rein_softmax_total *total,
                             const rein_truncation *s) {
    const rein_isa isa = row->isa;
    const double depths[] = {6, 12, 24, INFINITY};
    size_t n = 0;
    for (size_t d = 0; d < sizeof depths / sizeof *depths; d++) {
        n = collect(candidates, row, total->maximum, depths[d]);
        if (s->top_k > 0 ? n >= (size_t)s->top_k
                         : s->top_p < 1 && mass_of(candidates, n, total->maximum, isa) >= s->top_p * total->sum)
            break;
        if (s->top_k == 0 && !(s->top_p < 1) && rein_exp_of(-depths[d], isa) < s->min_p) break;
    }
    return s->top_k > 0 && n > (size_t)s->top_k ? (size_t)s->top_k : n;
}

/* What the tokens that may be chosen weigh. */
static double allowed_mass(const rein_logits_row *row, const rein_softmax_total *total) {
    double mass = total->sum;
    for (size_t i = 0; i < row->n_banned; i++) {
        int again = 0;
        for (size_t j = 0; j < i; j++) again |= row->banned[j] == row->banned[i];
        if (!again) mass -= rein_exp_of((double)row->x[row->banned[i]] - total->maximum, row->isa);
    }
    return mass;
}

/* The number of the n candidates that top_p and min_p leave: at least one. */
static size_t truncate_candidates(const rein_logit *candidates, size_t n, const rein_logits_row *row,
                                  const rein_softmax_total *total, const rein_truncation *s) {
    const rein_isa isa = row->isa;
    if (s->top_p < 1) {
        const double whole = s->top_k > 0 ? mass_of(candidates, n, total->maximum, isa) : allowed_mass(row, total);
        double sum = 0;
        size_t kept = 0;
        while (kept < n && (kept == 0 || sum < s->top_p * whole))
            sum += rein_exp_of((double)candidates[kept++].x - total->maximum, isa);
        n = kept;
    }
    if (s->min_p > 0)
        while (n > 1 && rein_exp_of((double)candidates[n - 1].x - (double)candidates[0].x, isa) < s->min_p) n--;
    while (n > 1 && !(rein_exp_of((double)candidates[n - 1].x - total->maximum, isa) > 0)) n--; /* never chosen, as above */
    return n;
}

size_t rein_truncate(rein_logit *kept, double *mass, const rein_logits_row *row, const rein_softmax_total *total,
                     const rein_truncation *s) {
    const size_t n = truncate_candidates(kept, collect_enough(kept, row, total, s), row, total, s);
    *mass = mass_of(kept, n, total->maximum, row->isa);
    return n;
}

float rein_truncated_log_prob(float x, double mass, const rein_softmax_total *total, rein_isa isa) {
    return (float)((double)x - total->maximum - rein_log_of(mass, isa));
}
