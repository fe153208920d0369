/* batches.h - shared by the property tests of the objectives: a seeded generator, random ragged batches, options from text.
 *
 * A batch has groups of any size, empty sequences, sequences without a trained token, and garbage (NaN, ±inf, −9999) at every token that
 * does not train, so a number that leaks through a mask shows. Numbers are representable as float, so that f32 and f64 see the same ones. */
#ifndef REIN_TESTS_OBJECTIVE_BATCHES_H
#define REIN_TESTS_OBJECTIVE_BATCHES_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "objective/options.h"
#include "support/check.h"
#include "support/random.h"

/* ---- randomness: splitmix64 (Steele, Lea, Flood 2014) */
typedef struct rng {
    uint64_t state;
} rng;

static inline uint64_t rng_next(rng *r) { return next_random(&r->state); }

/* The generator of one case: its draws depend only on the two numbers. */
static inline rng rng_of(uint64_t property, uint64_t number) {
    rng r = {property * 0xd1342543de82ef95u + number};
    (void)rng_next(&r);
    return r;
}

static inline double rng_between(rng *r, double low, double high) {
    return low + (high - low) * (double)(rng_next(r) >> 11) * 0x1p-53;
}
static inline size_t rng_below(rng *r, size_t n) { return (size_t)(rng_next(r) % n); }
static inline int rng_chance(rng *r, double p) { return rng_between(r, 0, 1) < p; }
static inline double rng_normal(rng *r) { /* Box and Muller */
    const double u = rng_between(r, 0x1p-53, 1), angle = rng_between(r, 0, 6.283185307179586);
    return sqrt(-2 * log(u)) * cos(angle);
}

/* A value for a token that does not train. */
static inline double rng_rubbish(rng *r) {
    static const double rubbish[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, -9999, 100};
    return rubbish[rng_below(r, sizeof rubbish / sizeof *rubbish)];
}

/* The number of cases of a property loop; 50 under the sanitizers. */
static inline size_t property_cases(size_t all) { return quick() && all > 50 ? 50 : all; }

/* ---- options */

/* "preset=grpo surrogate=clip epsilon=0.3" as options; the preset, if any, comes first. Ends the program on a typing mistake. */
static inline rein_options options_of(const char *settings) {
    rein_options o;
    rein_error err;
    if (rein_options_init(&o, "none", &err) != REIN_OK) abort();
    while (*settings) {
        char name[64], value[64];
        if (sscanf(settings, "%63[^=]=%63s", name, value) != 2) fprintf(stderr, "settings: %s\n", settings), abort();
        const int preset = strcmp(name, "preset") == 0;
        if ((preset ? rein_options_init(&o, value, &err) : rein_options_set(&o, name, value, &err)) != REIN_OK)
            fprintf(stderr, "settings: %s: %s\n", settings, err.message), abort();
        settings += strcspn(settings, " ");
        settings += strspn(settings, " ");
    }
    return o;
}

/* ---- batches */
enum token_array { LOG_PROBS, OLD_LOG_PROBS, REF_LOG_PROBS, SAMPLE_LOG_PROBS, ENTROPIES, VALUES, TOKEN_ARRAYS };
enum { COMPONENTS = 2 };

/* The most a batch may have; drift: standard deviation of lp − old. */
typedef struct shape {
    size_t groups, group_size, length;
    double masked, drift;
} shape;

typedef struct ragged {
    size_t n_groups, n_sequences, n_tokens, max_sequences, max_tokens;
    size_t *group_offsets, *sequence_offsets;
    uint8_t *mask, *correct;
    int64_t *lengths, *budgets;
    double *rewards, *components, *baselines, weights[COMPONENTS];
    double *array[TOKEN_ARRAYS];
    float *array_f32[TOKEN_ARRAYS];
} ragged;

static inline void *some(size_t n, size_t size) {
    void *p = calloc(n ? n : 1, size);
    if (!p) abort();
    return p;
}

static inline ragged *ragged_new(shape most) {
    ragged *r = some(1, sizeof *r);
    const size_t sequences = r->max_sequences = most.groups * most.group_size, tokens = r->max_tokens = sequences * most.length;
    r->group_offsets = some(most.groups + 1, sizeof *r->group_offsets);
    r->sequence_offsets = some(sequences + 1, sizeof *r->sequence_offsets);
    r->mask = some(tokens, 1);
    r->correct = some(sequences, 1);
    r->lengths = some(sequences, sizeof *r->lengths);
    r->budgets = some(sequences, sizeof *r->budgets);
    r->rewards = some(sequences, sizeof *r->rewards);
    r->components = some(sequences * COMPONENTS, sizeof *r->components);
    r->baselines = some(sequences, sizeof *r->baselines);
    for (int a = 0; a < TOKEN_ARRAYS; a++) {
        r->array[a] = some(tokens, sizeof(double));
        r->array_f32[a] = some(tokens, sizeof(float));
    }
    return r;
}

static inline void ragged_free(ragged *r) {
    free(r->group_offsets), free(r->sequence_offsets), free(r->mask), free(r->correct), free(r->lengths), free(r->budgets);
    free(r->rewards), free(r->components), free(r->baselines);
    for (int a = 0; a < TOKEN_ARRAYS; a++) free(r->array[a]), free(r->array_f32[a]);
    free(r);
}

/* Not inlined: gcc 12 -O3 may drop the rounding where both widths are stored in one unrolled loop. */
__attribute__((noinline, unused)) static void ragged_put(ragged *r, enum token_array a, size_t t, double x) {
    r->array_f32[a][t] = (float)x;
    r->array[a][t] = (double)(float)x;
}

static inline void ragged_token(ragged *r, rng *g, size_t t, double drift) {
    const double lp = -rng_between(g, 0.02, 3), old = lp - drift * rng_normal(g);
    const double all[TOKEN_ARRAYS] = {[LOG_PROBS] = lp,
                                      [OLD_LOG_PROBS] = old,
                                      [REF_LOG_PROBS] = lp + 0.4 * rng_normal(g),
                                      [SAMPLE_LOG_PROBS] = old + 0.5 * drift * rng_normal(g),
                                      [ENTROPIES] = rng_between(g, 0, 2),
                                      [VALUES] = rng_normal(g)};
    for (int a = 0; a < TOKEN_ARRAYS; a++) ragged_put(r, (enum token_array)a, t, r->mask[t] ? all[a] : rng_rubbish(g));
}

/* Old log-probs are below 0, because the token was sampled. */
static inline void ragged_sequence(ragged *r, rng *g, size_t i, shape most) {
    const size_t start = r->sequence_offsets[i], length = rng_chance(g, 0.1) ? 0 : 1 + rng_below(g, most.length);
    const double masked = rng_chance(g, 0.1) ? 1 : rng_chance(g, 0.4) ? 0 : most.masked;
    r->sequence_offsets[i + 1] = start + length;
    for (size_t t = start; t < start + length; t++) {
        r->mask[t] = !rng_chance(g, masked);
        ragged_token(r, g, t, most.drift);
        if (r->mask[t] && r->array[OLD_LOG_PROBS][t] >= 0) ragged_put(r, OLD_LOG_PROBS, t, -0.01);
    }
    r->rewards[i] = rng_chance(g, 0.3) ? (double)rng_below(g, 2) : rng_normal(g);
    r->baselines[i] = rng_normal(g);
    for (int k = 0; k < COMPONENTS; k++) r->components[i * COMPONENTS + (size_t)k] = rng_normal(g);
    r->lengths[i] = (int64_t)(length + rng_below(g, 5));
    r->budgets[i] = (int64_t)rng_below(g, most.length + 3);
    r->correct[i] = (uint8_t)rng_below(g, 2);
}

/* Draws a batch; sometimes with a group whose rewards are all equal. */
static inline void ragged_fill(ragged *r, rng *g, shape most) {
    r->n_groups = 1 + rng_below(g, most.groups);
    r->n_sequences = 0;
    r->weights[0] = rng_between(g, 0.2, 2), r->weights[1] = rng_between(g, 0.2, 2);
    for (size_t k = 0; k < r->n_groups; k++) {
        const size_t first = r->n_sequences, size = 1 + rng_below(g, most.group_size);
        const int same = rng_chance(g, 0.1);
        for (size_t i = first; i < first + size; i++) {
            ragged_sequence(r, g, i, most);
            if (same) r->rewards[i] = r->rewards[first];
        }
        r->group_offsets[k + 1] = r->n_sequences = first + size;
    }
    r->n_tokens = r->sequence_offsets[r->n_sequences];
}

/* The batch for a composition: arrays that would have no effect are left out. */
static inline rein_batch ragged_batch(const ragged *r, const rein_options *o, rein_dtype dtype) {
    const int components = o->advantage == REIN_ADVANTAGE_GDPO;
    const int entropies = o->entropy_coef > 0 || o->top_entropy > 0; /* false for NaN */
#define TOKENS(a) (dtype == REIN_F32 ? (const void *)r->array_f32[a] : (const void *)r->array[a])
    return (rein_batch){.n_groups = r->n_groups,
                        .n_sequences = r->n_sequences,
                        .n_components = components ? COMPONENTS : 0,
                        .group_offsets = r->group_offsets,
                        .sequence_offsets = r->sequence_offsets,
                        .dtype = dtype,
                        .mask = r->mask,
                        .log_probs = TOKENS(LOG_PROBS),
                        .old_log_probs = TOKENS(OLD_LOG_PROBS),
                        .ref_log_probs = TOKENS(REF_LOG_PROBS),
                        .sample_log_probs = TOKENS(SAMPLE_LOG_PROBS),
                        .entropies = entropies ? TOKENS(ENTROPIES) : NULL,
                        .exact_kl = rein_uses_exact_kl(o) ? TOKENS(ENTROPIES) : NULL, /* any numbers serve */
                        .teacher_log_probs = rein_teacher_in_advantage(o) ? TOKENS(REF_LOG_PROBS) : NULL,
                        .teacher_divergence = rein_teacher_in_loss(o) ? TOKENS(ENTROPIES) : NULL,
                        .values = o->advantage == REIN_ADVANTAGE_GAE ? TOKENS(VALUES) : NULL,
                        .rewards = components ? NULL : r->rewards,
                        .reward_components = components ? r->components : NULL,
                        .reward_weights = components ? r->weights : NULL,
                        .baseline_rewards = o->advantage == REIN_ADVANTAGE_REMAX ? r->baselines : NULL,
                        .response_lengths = r->lengths,
                        .token_budgets = o->shape == REIN_SHAPE_BUDGET || o->shape == REIN_SHAPE_TRUNCATE ? r->budgets : NULL,
                        .correct = o->shape == REIN_SHAPE_K15_LENGTH ? r->correct : NULL};
#undef TOKENS
}

#endif
