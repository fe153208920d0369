/* choose.c - from logits to a token, by inverting the distribution function chunk by chunk. The probabilities of the policy are
 * never stored as an array; of a truncated distribution, the remaining tokens are listed. */
#include "choose.h"

#include <math.h>
#include <stdlib.h>

#include "kernel/kernels.h"
#include "kernel/rows.h"

static double log_prob_of(const rein_logits_row *row, const rein_softmax_total *total, int32_t id) {
    return (double)row->x[id] - rein_head_log_sum(total, row->isa);
}

static int is_banned(const rein_logits_row *row, size_t id) {
    for (size_t i = 0; i < row->n_banned; i++)
        if ((size_t)row->banned[i] == id) return 1;
    return 0;
}

static int32_t greatest(const rein_logits_row *row) {
    size_t best = 0;
    while (best + 1 < row->vocabulary && is_banned(row, best)) best++;
    for (size_t v = best + 1; v < row->vocabulary; v++)
        if (row->x[v] > row->x[best] && !is_banned(row, v)) best = v;
    return (int32_t)best;
}

/* ---- the policy itself: first the chunk that contains the u-th part of the mass, then the token in it */
static int32_t in_chunk(const rein_logits_row *row, size_t chunk, double rest, double scale) {
    float powers[REIN_VOCABULARY_CHUNK];
    const size_t first = chunk * REIN_VOCABULARY_CHUNK;
    const size_t n = row->vocabulary - first < REIN_VOCABULARY_CHUNK ? row->vocabulary - first : REIN_VOCABULARY_CHUNK;
    size_t last = 0;
    rein_kernels_of(row->isa)->rows->exp_shifted(powers, NULL, row->x + first, n, row->masses[chunk].maximum);
    for (size_t i = 0; i < n; i++) {
        if (!(powers[i] > 0)) continue; /* a token without probability is never chosen, not even by rounding */
        last = i;
        rest -= (double)powers[i] * scale;
        if (rest < 0) break;
    }
    return (int32_t)(first + last);
}

static int32_t from_policy(const rein_logits_row *row, const rein_softmax_total *total, double u) {
    double rest = u * total->sum, scale = 0;
    size_t chosen = 0;
    for (size_t c = 0; c < row->chunks; c++) {
        const double factor = rein_exp_of((double)row->masses[c].maximum - total->maximum, row->isa);
        const double mass = (double)row->masses[c].sum * factor;
        if (!(mass > 0)) continue;
        chosen = c, scale = factor;
        if (rest < mass) break;
        rest -= mass;
    }
    return in_chunk(row, chosen, rest, scale);
}

/* ---- truncated distributions: candidates in order, the most probable first */
static int by_probability(const void *a, const void *b) {
    const rein_logit *p = a, *q = b;
    if (p->x != q->x) return p->x > q->x ? -1 : 1;
    return p->id < q->id ? -1 : p->id > q->id;
}

/* Lists all tokens whose logit is within `depth` of the greatest, in order. Returns their number. */
static size_t collect(rein_logit *candidates, const rein_logits_row *row, double greatest_x, double depth) {
    size_t n = 0;
    for (size_t v = 0; v < row->vocabulary; v++)
        if ((double)row->x[v] >= greatest_x - depth && !is_banned(row, v)) candidates[n++] = (rein_logit){row->x[v], (int32_t)v};
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
                             const rein_sampling *s) {
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
                                  const rein_softmax_total *total, const rein_sampling *s) {
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

/* -1: there is no candidate. */
static int32_t from_candidates(float *sampler_log_prob, const rein_logits_row *row, const rein_softmax_total *total,
                               const rein_sampling *s, double u, rein_logit *candidates) {
    const rein_isa isa = row->isa;
    const size_t n = truncate_candidates(candidates, collect_enough(candidates, row, total, s), row, total, s);
    const double mass = mass_of(candidates, n, total->maximum, isa);
    if (!n) return -1;
    double rest = u * mass;
    size_t i = 0;
    for (; i + 1 < n; i++) {
        rest -= rein_exp_of((double)candidates[i].x - total->maximum, isa);
        if (rest < 0) break;
    }
    *sampler_log_prob = (float)((double)candidates[i].x - total->maximum - rein_log_of(mass, isa));
    return candidates[i].id;
}

rein_chosen_token rein_choose(const rein_logits_row *row, const rein_sampling *s, double u, rein_logit *candidates) {
    const rein_softmax_total total = rein_head_total(row->masses, row->chunks, row->isa);
    rein_chosen_token chosen = {0, NAN, NAN};
    if (!(total.sum > 0)) return chosen; /* some logits are NaN */
    chosen.sampler_log_prob = 0;
    const int truncates = rein_truncates(s) || row->n_banned;
    if (s->greedy) chosen.id = greatest(row);
    else if (truncates) chosen.id = from_candidates(&chosen.sampler_log_prob, row, &total, s, u, candidates);
    else chosen.id = from_policy(row, &total, u);
    if (chosen.id < 0 || is_banned(row, (size_t)chosen.id)) return (rein_chosen_token){0, NAN, NAN}; /* every token is banned */
    chosen.log_prob = (float)log_prob_of(row, &total, chosen.id);
    if (!s->greedy && !truncates) chosen.sampler_log_prob = chosen.log_prob;
    return chosen;
}

float rein_choose_log_prob(const rein_logits_row *row, int32_t id) {
    const rein_softmax_total total = rein_head_total(row->masses, row->chunks, row->isa);
    return (float)log_prob_of(row, &total, id);
}

void rein_choose_top(rein_choice *top, size_t n, const rein_logits_row *row) {
    const rein_softmax_total total = rein_head_total(row->masses, row->chunks, row->isa);
    size_t have = 0;
    for (size_t v = 0; v < row->vocabulary && n > 0; v++) {
        if (have == n && !(row->x[v] > top[n - 1].log_prob)) continue; /* top holds logits until the end */
        size_t at = have < n ? have++ : n - 1;
        for (; at > 0 && row->x[v] > top[at - 1].log_prob; at--) top[at] = top[at - 1];
        top[at] = (rein_choice){(int32_t)v, row->x[v]};
    }
    for (size_t i = 0; i < have; i++) top[i].log_prob = (float)log_prob_of(row, &total, top[i].id);
}
