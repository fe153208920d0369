/* token_loss.h - the loop over tokens that computes the loss, its gradient and the metrics: its inputs and its sums. Private. */
#ifndef REIN_OBJECTIVE_TOKEN_LOSS_H
#define REIN_OBJECTIVE_TOKEN_LOSS_H

#include "kernel/isa_list.h"
#include "options.h"

/* What the step fixed about a sequence before the loop. loss = Σ over its trained tokens of weight·(…). */
typedef struct rein_loss_sequence {
    double advantage;  /* of the whole sequence; 0 when token_advantages holds one a token */
    double weight;     /* of each of its trained tokens: the aggregation */
    double kl_centre;  /* mean of source − ref over the scope of the KL penalty */
    size_t trained;    /* how many of its tokens train */
    size_t first, end; /* these tokens all lie in [first, end), counted from the start of the sequence */
} rein_loss_sequence;

/* Sums over trained tokens, in token order inside a sequence and in sequence order across sequences. */
enum rein_loss_sum {
    SUM_SURROGATE, /* the four parts of the loss, weighted */
    SUM_KL_LOSS,
    SUM_ENTROPY_LOSS,
    SUM_TEACHER_LOSS,
    SUM_LOG_RATIO, /* the rest is for the metrics: the token's log-ratio d and its excess e^d − 1 − d */
    SUM_EXCESS,
    SUM_RATIO, /* the ratio R that enters the surrogate, at its level */
    SUM_RATIO_SQUARE,
    SUM_REF, /* lp − ref, and the excess of ref − lp */
    SUM_REF_EXCESS,
    SUM_ENTROPY,
    SUM_EXACT_KL,
    SUM_TEACHER,
    SUM_CLIPPED_LOW,
    SUM_CLIPPED_HIGH,
    SUM_CHECK, /* 0, or NaN when a gradient, an adjusted advantage or a sampler's log-prob is not finite */
    SUM_COUNT
};

/* The lanes stay apart until the end: a horizontal sum per sequence would cost more than a short sequence does. */
enum { SUM_LANES = 8 };
typedef struct rein_loss_sums {
    double sum[SUM_COUNT][SUM_LANES];
} rein_loss_sums;

/* The log-ratios that a thread has seen: a histogram of log R in bins of 1/64 from −20 to 20 (half a bin is 0.8 % of R), the smallest
 * and the largest. Vector lanes have counters of their own, because neighbouring tokens often fall into the same bin and an increment
 * would wait for the one before. The lowest bin also takes tokens that do not train and is never read. */
enum { RATIO_BINS_PER_UNIT = 64, RATIO_RANGE = 20, RATIO_BINS = 2 * RATIO_RANGE * RATIO_BINS_PER_UNIT + 1, RATIO_COUNTERS = 8 };
typedef struct rein_ratio_histogram {
    _Alignas(64) uint32_t count[RATIO_BINS][RATIO_COUNTERS];
    double low, high;
} rein_ratio_histogram;

/* The token arrays that the loop reads. */
enum rein_loss_input {
    IN_LOG_PROB, /* differentiated */
    IN_STOP,     /* what stop(·) reads: the same array, except in gradient checks */
    IN_OLD,      /* without it, old = stop(lp) */
    IN_REF,
    IN_SAMPLE,
    IN_KL_SOURCE, /* of the KL penalty per token */
    IN_ENTROPY,
    IN_EXACT_KL,
    IN_TEACHER,   /* its divergence over the whole vocabulary */
    IN_ADVANTAGE, /* one a token, added to the sequence's */
    IN_COUNT
};

/* Arrays are those of the whole step and of the loop's real type. */
typedef struct rein_loss_inputs {
    const rein_options *options; /* resolved */
    const rein_loss_sequence *sequences;
    const size_t *offsets;
    const uint8_t *mask;                                /* NULL: every token trains */
    const void *in[IN_COUNT];                           /* NULL where there is none */
    void *grad_log_probs, *grad_entropies, *advantages; /* outputs, or NULL */
    double entropy_coef;                                /* 0 while the entropy is above its target */
    double entropy_threshold;                           /* of top_entropy; −inf: every token */
} rein_loss_inputs;

/* Adds sequences [first, last) to the sums and the histogram and writes their outputs. */
typedef void rein_token_loss_fn(rein_loss_sums *sums, rein_ratio_histogram *histogram, const rein_loss_inputs *inputs, size_t first,
                                size_t last);
#define REIN_TOKEN_LOSS(isa, NAME, machines) rein_token_loss_fn rein_token_loss_##isa##_f32, rein_token_loss_##isa##_f64;
REIN_ISA_LIST(REIN_TOKEN_LOSS)
#undef REIN_TOKEN_LOSS

#endif
