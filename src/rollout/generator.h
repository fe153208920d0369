/* generator.h - inside of a generator, for generator.c (who is there) and generator_step.c (what they do). Private. */
#ifndef REIN_ROLLOUT_GENERATOR_H
#define REIN_ROLLOUT_GENERATOR_H

#include "model/activation_cache.h"
#include "model/decoder.h"
#include "model/key_store.h"
#include "rein/rollout.h"
#include "text.h"

/* A request, until all its samples are finished. */
typedef struct rein_waiting {
    struct rein_waiting *next;
    size_t number, left; /* left: samples that are not finished */
    rein_request r;      /* with copies of what it points at */
    int32_t *prompt, *end_ids;
    char **stops;
    rein_keys *keys; /* of the prompt */
    size_t n_keys;
    uint64_t activation_key; /* of its first sample in the activation cache; 0: nothing is cached */
} rein_waiting;

typedef struct rein_sample {
    rein_waiting *of;
    size_t index, n; /* which sample; tokens so far */
    int32_t last;    /* the token that was sampled last */
    rein_growing text;
    rein_keys *keys; /* the prompt's, then its own */
    size_t n_keys, capacity;
    size_t query, top; /* of this step: the row it is chosen from, its place among the top choices */
    int finished;
} rein_sample;

struct rein_generator {
    rein_policy policy;
    const rein_tokenizer *tokenizer;
    size_t max_active, n_requests;
    rein_exec exec;
    rein_arena arena;             /* of a step */
    rein_key_store *store;        /* of blocks */
    rein_activation_cache *cache; /* or NULL */
    rein_angles angles;
    size_t n_angles;
    rein_waiting *waiting, **waiting_end;
    rein_sample *samples; /* at work, in the order in which they came */
    size_t n_samples, samples_capacity;
    rein_sampled *events;
    rein_choice *tops;
    size_t events_capacity, tops_capacity;
    int failed;
};

/* Those that finished leave. */
void rein_generator_leave(rein_generator *generator);

/* Requests that wait become samples, as many as there is room for. */
rein_status rein_generator_admit(rein_generator *generator, rein_error *err);

/* A place for the keys of a sample's last token; 0 when there is no memory. */
int rein_sample_key(rein_generator *generator, rein_sample *sample);

#endif
