/* preferences.c - the loss over preferences of a step, from the log-probs of its tokens.
 *
 * The loss is a mean over pairs (kto: over completions), and s is a sum over the trained tokens of a completion. So the gradient of each of
 * these tokens is dL/ds, that of the pair alone divided by the number of pairs. */
#include "preferences.h"

#include <math.h>

#include "base/base.h"

static int is_kto(const rein_pass_options *o) { return o->preference->loss == REIN_PREFERENCE_KTO; }

int rein_preference_uses_reference(const rein_preference_options *o) {
    for (size_t i = 0; rein_preference_at(i); i++)
        if (rein_preference_at(i)->loss == o->loss) return rein_preference_at(i)->uses_reference;
    return 0;
}

rein_status rein_preferences_check(const rein_groups *groups, const rein_pass_options *o, rein_error *err) {
    if (o->mask_truncated_completions)
        return rein_fail_at(err, REIN_EINVAL, "mask_truncated_completions", -1, "has no effect on a loss over preferences");
    for (size_t g = 0; g < groups->n && !is_kto(o); g++)
        if (groups->groups[g].n != 2)
            return rein_fail_at(err, REIN_EINVAL, "groups", (int64_t)g,
                                "has %zu trajectories: a pair has two, the chosen one and the rejected one", groups->groups[g].n);
    return rein_preference_check(o->preference, err);
}

/* s of a sequence, and its number of trained tokens. */
static double sum_of(int64_t *length, const rein_packing *packing, size_t sequence, const float *log_probs) {
    double sum = 0;
    *length = 0;
    for (size_t i = packing->sequence_offsets[sequence]; i < packing->sequence_offsets[sequence + 1]; i++)
        if (packing->mask[i]) sum += (double)log_probs[i], ++*length;
    return sum;
}

static void spread(float *dlog_probs, const rein_packing *packing, size_t sequence, double by_sum) {
    for (size_t i = packing->sequence_offsets[sequence]; i < packing->sequence_offsets[sequence + 1]; i++)
        dlog_probs[i] = packing->mask[i] ? (float)by_sum : 0;
}

/* The sums of a number of pairs, and what a loss over them gives. Every array is [pairs]. */
typedef struct columns {
    double *chosen, *rejected, *ref_chosen, *ref_rejected;
    int64_t *n_chosen, *n_rejected;
} columns;

static void sum_pair(const columns *c, size_t at, const rein_packing *packing, size_t group, const float *log_probs,
                     const float *reference) {
    const size_t first = packing->group_offsets[group];
    c->chosen[at] = sum_of(&c->n_chosen[at], packing, first, log_probs);
    c->rejected[at] = sum_of(&c->n_rejected[at], packing, first + 1, log_probs);
    c->ref_chosen[at] = sum_of(&c->n_chosen[at], packing, first, reference);
    c->ref_rejected[at] = sum_of(&c->n_rejected[at], packing, first + 1, reference);
}

static rein_pairs pairs_of(const columns *c, size_t n) {
    return (rein_pairs){n, c->chosen, c->rejected, c->ref_chosen, c->ref_rejected, c->n_chosen, c->n_rejected};
}

static rein_status pair_gradient(float *dlog_probs, const rein_packing *packing, size_t group, const float *log_probs,
                                 const float *reference, const rein_pass_options *o, rein_error *err) {
    double s[4], loss, by_chosen, by_rejected;
    int64_t lengths[2];
    const columns one = {s, s + 1, s + 2, s + 3, lengths, lengths + 1};
    const double weight = 1 / (double)packing->n_groups;
    sum_pair(&one, 0, packing, group, log_probs, reference);
    const rein_pairs pairs = pairs_of(&one, 1);
    const rein_status status = rein_preference_loss(&loss, &by_chosen, &by_rejected, NULL, &pairs, o->preference, err);
    if (status) return status;
    spread(dlog_probs, packing, packing->group_offsets[group], weight * by_chosen);
    spread(dlog_probs, packing, packing->group_offsets[group] + 1, weight * by_rejected);
    return REIN_OK;
}

static rein_status kto_gradient(float *dlog_probs, const rein_packing *packing, size_t group, const float *log_probs,
                                const float *reference, const rein_pass_options *o, rein_error *err) {
    const double weight = 1 / (double)packing->n_sequences;
    rein_status status = REIN_OK;
    for (size_t k = packing->group_offsets[group]; k < packing->group_offsets[group + 1] && !status; k++) {
        double loss, by_sum;
        int64_t length;
        const uint8_t label = packing->rewards[k] > 0;
        const double s = sum_of(&length, packing, k, log_probs), ref = sum_of(&length, packing, k, reference);
        status = rein_kto_loss(&loss, &by_sum, NULL, &s, &ref, &label, 1, o->preference_kl, o->preference, err);
        if (!status) spread(dlog_probs, packing, k, weight * by_sum);
    }
    return status;
}

rein_status rein_preferences_gradient(float *dlog_probs, const rein_packing *packing, size_t group, const float *log_probs,
                                      const float *reference, const rein_pass_options *o, rein_error *err) {
    return (is_kto(o) ? kto_gradient : pair_gradient)(dlog_probs, packing, group, log_probs, reference, o, err);
}

static rein_status measure_kto(double *loss, rein_preference_metrics *metrics, const rein_packing *packing, const float *log_probs,
                               const float *reference, const rein_pass_options *o, rein_arena *arena, rein_error *err) {
    const size_t n = packing->n_sequences;
    double *s = rein_arena_take(arena, n * sizeof *s), *ref = rein_arena_take(arena, n * sizeof *ref);
    uint8_t *labels = rein_arena_take(arena, n);
    int64_t length;
    if (arena->failed) return rein_no_memory(err);
    for (size_t k = 0; k < n; k++) {
        s[k] = sum_of(&length, packing, k, log_probs), ref[k] = sum_of(&length, packing, k, reference);
        labels[k] = packing->rewards[k] > 0;
    }
    return rein_kto_loss(loss, NULL, metrics, s, ref, labels, n, o->preference_kl, o->preference, err);
}

rein_status rein_preferences_measure(double *loss, rein_preference_metrics *metrics, const rein_packing *packing,
                                     const float *log_probs, const float *reference, const rein_pass_options *o, rein_arena *arena,
                                     rein_error *err) {
    const size_t n = packing->n_groups, bytes = n * sizeof(double);
    if (is_kto(o)) return measure_kto(loss, metrics, packing, log_probs, reference, o, arena, err);
    const columns all = {rein_arena_take(arena, bytes),
                         rein_arena_take(arena, bytes),
                         rein_arena_take(arena, bytes),
                         rein_arena_take(arena, bytes),
                         rein_arena_take(arena, n * sizeof(int64_t)),
                         rein_arena_take(arena, n * sizeof(int64_t))};
    if (arena->failed) return rein_no_memory(err);
    for (size_t g = 0; g < n; g++) sum_pair(&all, g, packing, g, log_probs, reference);
    const rein_pairs pairs = pairs_of(&all, n);
    return rein_preference_loss(loss, NULL, NULL, metrics, &pairs, o->preference, err);
}
