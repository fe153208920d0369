/* generator.h - the struct of a generator, for generator.c (requests and samples) and generator_step.c (a step). Private. */
#ifndef REIN_ROLLOUT_GENERATOR_H
#define REIN_ROLLOUT_GENERATOR_H

#include "model/activation_cache.h"
#include "model/decoder.h"
#include "model/key_store.h"
#include "rein/rollout.h"
#include "text.h"

/* A request, until all its samples are finished. */
typedef struct rein_generator_request {
    struct rein_generator_request *next;
    size_t number, left; /* number: as reported; left: samples that are not finished */
    rein_request r;      /* its pointers lead to the copies below */
    int32_t *prompt, *end_ids;
    char **stops;
    rein_keys *keys; /* keys and values of the prompt */
    size_t n_keys;
    uint64_t activation_key; /* of its first sample in the activation cache; 0: nothing is cached */
} rein_generator_request;

typedef struct rein_generator_sample {
    rein_generator_request *of;
    size_t index, n; /* index among the samples of its request; number of tokens so far */
    int32_t last;    /* the last token */
    rein_growing text;
    rein_keys *keys; /* those of the prompt, then its own */
    size_t n_keys, capacity;
    size_t query, top; /* in this step: the query whose logits it is chosen from, and its index in tops */
    int finished;
} rein_generator_sample;

struct rein_generator {
    rein_policy policy;
    const rein_tokenizer *tokenizer;
    size_t max_active, n_requests;
    rein_exec exec;
    rein_arena arena;             /* memory of a step */
    rein_key_store *store;        /* blocks of keys and values */
    rein_activation_cache *cache; /* or NULL */
    rein_angles angles;
    size_t n_angles;
    rein_generator_request *waiting, **waiting_end;
    rein_generator_sample *samples; /* being sampled, in the order in which they began */
    size_t n_samples, samples_capacity;
    rein_sampled *events;
    rein_choice *tops;
    size_t events_capacity, tops_capacity;
    int failed;
};

/* Removes finished samples. */
void rein_generator_remove_finished(rein_generator *generator);

/* Begins the samples of waiting requests, as many as there is room for. */
rein_status rein_generator_admit(rein_generator *generator, rein_error *err);

/* Reserves a place for the key of a sample's last token. Returns 0 if there is no memory. */
int rein_generator_reserve_key(rein_generator *generator, rein_generator_sample *sample);

#endif
