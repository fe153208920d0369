/* clip.h - the common case of the pass: the clip surrogate on the token ratio, one advantage for all tokens of a sequence, nothing adjusted
 * per token, k3 or no KL. Private; for sources compiled per type and instruction set, after lanes.h. */
#ifndef REIN_OBJECTIVE_CLIP_H
#define REIN_OBJECTIVE_CLIP_H

#include "../kernel/lanes.h"

/* So many lanes add up, half of them each half of a stretch: a cache line of them, whatever the vectors of the instruction set hold. */
enum { CLIP_UNIT = 64 / sizeof(real) };

/* What a sequence's tokens have in common. */
typedef struct rein_clip {
    real weight;      /* of the ratio in the gradient: −weight·A */
    real pull_weight; /* of e^−y − 1 in it: −weight·β */
    real bound, sign; /* the ratio is live where sign·ratio <= bound; sign is 1 or −1 */
    real log_bound;   /* and where it is near, where sign·log-ratio <= log_bound */
    double kl_coef;
} rein_clip;

/* A stretch of n tokens. */
typedef struct rein_clip_tokens {
    const real *lp, *old, *ref; /* ref NULL: y = 0 */
    const uint8_t *mask;        /* NULL: all train */
    size_t n;
    int vast; /* they come from memory, more of them after these: ask for them early */
} rein_clip_tokens;

/* What the thread knows already: log-ratios up to `edge` and from `low` on are no news. */
typedef struct rein_clip_known {
    real edge, low;
} rein_clip_known;

/* Sums over trained tokens, lane by lane. A ratio that is near is 1 + d + its excess, and need not be added up, nor its square; of what is
 * far, which is little, all are, apart from the others. */
typedef struct rein_clip_sums {
    _Alignas(64) real change[CLIP_UNIT]; /* ratio − 1 where it is live */
    real log_ratio[CLIP_UNIT], excess[CLIP_UNIT], change_square[CLIP_UNIT], ref[CLIP_UNIT], ref_excess[CLIP_UNIT];
    real low[CLIP_UNIT]; /* the smallest log-ratio, or what was known */
    real far_log_ratio[CLIP_UNIT], far_excess[CLIP_UNIT], far_ratio[CLIP_UNIT], far_ratio_square[CLIP_UNIT];
    size_t far, live; /* how many train and are far; how many train and are live */
} rein_clip_sums;

/* gradient [n] is set, sums are set. Log-ratios above the edge go to `above`, which has room for n and a vector; returns how many. */
typedef size_t rein_clip_fn(rein_clip_sums *sums, real *gradient, real *above, rein_clip_known known,
                            const rein_clip_tokens *tokens, const rein_clip *clip);
rein_clip_fn KERNEL(rein_clip_walk);

#endif
