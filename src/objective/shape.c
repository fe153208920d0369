/* shape.c - reward shaping by length. */
#include "reward.h"

#include <math.h>
#include <string.h>

void rein_rewards_of(double *reward, const rein_batch *b) {
    if (b->rewards) memcpy(reward, b->rewards, b->n_sequences * sizeof *reward);
    for (size_t i = 0; !b->rewards && i < b->n_sequences; i++) {
        reward[i] = 0;
        for (size_t k = 0; b->reward_components && k < b->n_components; k++)
            reward[i] += (b->reward_weights ? b->reward_weights[k] : 1) * b->reward_components[i * b->n_components + k];
    }
}

double rein_budget_of(const rein_batch *b, const rein_options *o, size_t i) {
    return b->token_budgets ? (double)b->token_budgets[i] : o->token_budget;
}

/* 0 up to Lmax − Lc, then ((Lmax − Lc) − L)/Lc, never below −1                           DAPO, arXiv 2503.14476, eq. 13 */
static double shape_overlong(double r, double length, double max, double cushion) {
    const double start = max - cushion;
    return length > start ? r + fmax(-1, (start - length) / cushion) : r;
}

/* λ = ½ − (L − min)/(max − min) in the group; + λ if correct, min(0, λ) if wrong, 0 if max = min    Kimi k1.5, arXiv 2501.12599, 2.3.3 */
static double length_reward(double length, double min, double max, int correct) {
    if (max == min) return 0;
    const double lambda = 0.5 - (length - min) / (max - min);
    return correct ? lambda : fmin(0, lambda);
}

static void shape_k15(double *reward, const int64_t *length, const rein_batch *b, const rein_options *o) {
    for (size_t g = 0; g < rein_group_count(b); g++) {
        const size_t first = rein_group_start(b, g), last = rein_group_start(b, g + 1);
        int64_t min = length[first], max = length[first];
        for (size_t i = first; i < last; i++) {
            if (length[i] < min) min = length[i];
            if (length[i] > max) max = length[i];
        }
        for (size_t i = first; i < last; i++) {
            const int correct = b->correct ? b->correct[i] : reward[i] > 0;
            reward[i] += o->length_weight * length_reward((double)length[i], (double)min, (double)max, correct);
        }
    }
}

void rein_shape_into(double *reward, const int64_t *length, const rein_batch *b, const rein_options *o) {
    if (o->shape == REIN_SHAPE_NONE && isnan(o->reward_clip)) return;
    if (o->shape == REIN_SHAPE_K15_LENGTH) shape_k15(reward, length, b, o);
    for (size_t i = 0; i < b->n_sequences; i++) {
        const double L = (double)length[i];
        switch (o->shape) {
        case REIN_SHAPE_BUDGET:
            reward[i] = rein_budget_linear(reward[i], L, rein_budget_of(b, o, i), o->budget_penalty_coef);
            break;
        case REIN_SHAPE_TRUNCATE: reward[i] = rein_budget_truncate(reward[i], L, rein_budget_of(b, o, i), o->budget_penalty); break;
        case REIN_SHAPE_OVERLONG: reward[i] = shape_overlong(reward[i], L, o->overlong_max, o->overlong_cushion); break;
        case REIN_SHAPE_K15_LENGTH:
        case REIN_SHAPE_NONE: break;
        }
        if (!isnan(o->reward_clip)) reward[i] = fmin(fmax(reward[i], -o->reward_clip), o->reward_clip);
    }
}
