/* pass.h - the one pass over tokens that computes loss, gradient and metrics, and what it is given. Private. */
#ifndef REIN_OBJECTIVE_PASS_H
#define REIN_OBJECTIVE_PASS_H

#include <math.h>

#include "options.h"
#include "top.h"

/* What the step fixed about a sequence before the pass. loss = Σ over its trained tokens of weight·(…). */
typedef struct rein_row {
    double advantage;  /* the whole sequence's, or 0 when token_advantages says it token by token */
    double weight;     /* of each of its trained tokens: the aggregation */
    double kl_centre;  /* mean of src − ref over its KL scope */
    size_t trained;    /* how many of its tokens train */
    size_t first, end; /* they all lie in [first, end) of its tokens */
} rein_row;

/* Sums over trained tokens, in token order inside a sequence and in sequence order across them. */
enum rein_sum {
    SUM_SURROGATE, /* the three parts of the loss, weighted */
    SUM_KL_LOSS,
    SUM_ENTROPY_LOSS,
    SUM_LOG_RATIO, /* the rest is metrics: token log-ratio d and its excess e^d − 1 − d */
    SUM_EXCESS,
    SUM_RATIO, /* the ratio R that enters the surrogate, at its level */
    SUM_RATIO_SQUARE,
    SUM_NEAR, /* how many tokens are near (clip.h): their d, excess and (R − 1)² are here, and not in the four above */
    SUM_NEAR_LOG_RATIO,
    SUM_NEAR_EXCESS,
    SUM_NEAR_SQUARE,
    SUM_REF, /* lp − ref, and the excess of ref − lp */
    SUM_REF_EXCESS,
    SUM_ENTROPY,
    SUM_CLIP_LOW,
    SUM_CLIP_HIGH,
    SUM_CHECK, /* 0, or NaN when a gradient or a sampler's log-prob is not finite */
    SUM_COUNT
};

/* Lane by lane, because a horizontal sum per sequence would cost more than a short sequence does. */
enum { TALLY_LANES = 8 };
typedef struct rein_tally {
    double sum[SUM_COUNT][TALLY_LANES];
} rein_tally;

/* The pass over sequences; arrays are those of the whole step and of the pass's real type. */
typedef struct rein_pass {
    const rein_options *options; /* resolved */
    const rein_row *rows;
    const size_t *offsets;
    const uint8_t *mask;          /* NULL: every token trains */
    const void *log_probs;        /* live: differentiated */
    const void *stop_log_probs;   /* what stop(·) sees of them: the same array, except in gradient checks */
    const void *old_log_probs;    /* NULL: old = stop(lp) */
    const void *ref_log_probs;    /* NULL: no reference */
    const void *sample_log_probs; /* NULL: no sampler */
    const void *kl_source;        /* of the KL penalty per token; NULL: none */
    const void *entropies;
    const void *token_advantages;                       /* added to the row's; NULL: none */
    void *grad_log_probs, *grad_entropies, *advantages; /* outputs, or NULL */
    double entropy_coef;                                /* 0 while the entropy is above its target */
    double entropy_threshold;                           /* of top_entropy; −inf: every token */
    double log_bounds[2]; /* of the clip (clip.h), where the advantage is not negative and where it is */
    int vast;             /* an array of the step is larger than caches are */
} rein_pass;

typedef void rein_pass_fn(rein_tally *tally, rein_top *top, const rein_pass *pass, size_t first, size_t last);

/* The log_bounds of a pass; for the surrogate clip. */
typedef void rein_log_bounds_fn(double log_bounds[2], const rein_options *options);

/* Which of a sequence's tokens train: how many, and from where to where. */
typedef struct rein_trained {
    size_t count, first, end;
} rein_trained;

/* Of n marks. The same for every type; it is compiled with the pass for its instruction set. */
typedef rein_trained rein_count_fn(const uint8_t *marks, size_t n);

rein_count_fn rein_count_ref_f32, rein_count_ref_f64, rein_count_avx2_f32, rein_count_avx2_f64, rein_count_avx512_f32,
    rein_count_avx512_f64;
rein_log_bounds_fn rein_log_bounds_ref_f32, rein_log_bounds_ref_f64, rein_log_bounds_avx2_f32, rein_log_bounds_avx2_f64,
    rein_log_bounds_avx512_f32, rein_log_bounds_avx512_f64;
rein_pass_fn rein_pass_ref_f32, rein_pass_ref_f64, rein_pass_avx2_f32, rein_pass_avx2_f64, rein_pass_avx512_f32,
    rein_pass_avx512_f64;

#endif
