/* choose.c - from logits to a token, by inverting the distribution function chunk by chunk. The probabilities of the policy are
 * never stored as an array; of a truncated distribution, the kept tokens are listed (nn/truncate.c). */
#include "choose.h"

#include <math.h>

#include "kernel/kernels.h"
#include "kernel/rows.h"

static double log_prob_of(const rein_logits_row *row, const rein_softmax_total *total, int32_t id) {
    return (double)row->x[id] - rein_head_log_sum(total, row->isa);
}

static int32_t greatest(const rein_logits_row *row) {
    size_t best = 0;
    while (best + 1 < row->vocabulary && rein_is_banned(row, best)) best++;
    for (size_t v = best + 1; v < row->vocabulary; v++)
        if (row->x[v] > row->x[best] && !rein_is_banned(row, v)) best = v;
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

/* ---- truncated distributions */
/* -1: there is no candidate. */
static int32_t from_candidates(float *sampler_log_prob, const rein_logits_row *row, const rein_softmax_total *total,
                               const rein_sampling *s, double u, rein_logit *candidates) {
    const rein_truncation truncation = {s->top_k, s->top_p, s->min_p};
    double mass;
    const size_t n = rein_truncate(candidates, &mass, row, total, &truncation);
    if (!n) return -1;
    double rest = u * mass;
    size_t i = 0;
    for (; i + 1 < n; i++) {
        rest -= rein_exp_of((double)candidates[i].x - total->maximum, row->isa);
        if (rest < 0) break;
    }
    *sampler_log_prob = rein_truncated_log_prob(candidates[i].x, mass, total, row->isa);
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
    if (chosen.id < 0 || rein_is_banned(row, (size_t)chosen.id))
        return (rein_chosen_token){0, NAN, NAN}; /* every token is banned */
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
