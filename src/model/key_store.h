/* key_store.h - blocks of keys that are taken and given back. What a generator leaves stays with the model, and the next one finds it: fresh
 * pages are expensive, on a virtual machine most of all. Private. */
#ifndef REIN_MODEL_KEY_STORE_H
#define REIN_MODEL_KEY_STORE_H

#include "weights.h"

typedef struct rein_key_store {
    rein_arena arena; /* the blocks; never reset */
    size_t floats;    /* of a block: every layer's keys of up to REIN_KEY_BLOCK positions */
    float **free;
    size_t n_free, capacity, blocks; /* blocks: that exist */
} rein_key_store;

/* The one that was left with the model, or an empty one; NULL when there is no memory. Thread-safe. */
rein_key_store *rein_key_store_open(const rein_model *model);

/* A block; it may hold finite numbers of an earlier use. NULL when there is no memory. */
float *rein_key_store_take(rein_key_store *store);

/* Cannot fail. */
void rein_key_store_give(rein_key_store *store, float *block);

/* All blocks have been given back. With `keep` the store is left with the model, in place of another that was left, unless it is too large;
 * else it is freed. A store in which there may be a NaN is not to be kept. Thread-safe; NULL is fine. */
void rein_key_store_close(rein_key_store *store, const rein_model *model, int keep);

#endif
