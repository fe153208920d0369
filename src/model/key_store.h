/* key_store.h - the memory of the key-value cache, in blocks. The store of a closed generator stays with the model for the next
 * generator, because fresh pages are expensive, especially on virtual machines. Private. */
#ifndef REIN_MODEL_KEY_STORE_H
#define REIN_MODEL_KEY_STORE_H

#include "weights.h"

typedef struct rein_key_store {
    rein_arena arena; /* holds the blocks; never reset */
    size_t floats;    /* of a block: keys and values of all layers for up to REIN_KEY_BLOCK positions */
    float **free;
    size_t n_free, capacity, blocks; /* blocks: their total number */
} rein_key_store;

/* Opens the store that is kept with the model, if there is one and `kept` is 1, or an empty one; NULL if there is no memory. Thread-safe. */
rein_key_store *rein_key_store_open(const rein_model *model, int kept);

/* Takes a block, which may hold finite numbers of an earlier use. NULL if there is no memory. */
float *rein_key_store_take(rein_key_store *store);

/* Gives a block back. Cannot fail. `spoiled`: it may hold a NaN, and is cleared. */
void rein_key_store_give(rein_key_store *store, float *block, int spoiled);

/* Closes a store to which all blocks have been given back. With `keep` it stays with the model, in place of another one, unless it
 * is too large; else it is freed. Thread-safe; NULL is fine. */
void rein_key_store_close(rein_key_store *store, const rein_model *model, int keep);

#endif
