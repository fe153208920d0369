/* key_store.h - the memory of the key-value cache, in blocks. A block has two parts, of the layers that see all keys and of those with a
 * window: behind the window the second part is given back. The store of a closed generator stays with the model for the next generator,
 * because fresh pages are expensive, especially on virtual machines. Private. */
#ifndef REIN_MODEL_KEY_STORE_H
#define REIN_MODEL_KEY_STORE_H

#include "weights.h"

/* Parts of one size. */
typedef struct rein_key_parts {
    size_t floats; /* of a part: keys and values of its layers for up to REIN_KEY_BLOCK positions; 0: there are no such layers */
    float **free;
    size_t n_free, capacity, blocks; /* blocks: their total number */
} rein_key_parts;

typedef struct rein_key_store {
    rein_arena arena; /* holds the blocks; never reset */
    rein_key_parts parts[REIN_KEY_PARTS];
} rein_key_store;

/* Floats of one part of a block, for a model with these layers. */
size_t rein_key_part_floats(const rein_model_config *config, const rein_heads *heads, rein_key_part part);

/* The most blocks that so many consecutive keys touch. */
static inline size_t rein_key_blocks_touched(size_t keys) { return keys ? (keys + 2 * REIN_KEY_BLOCK - 2) / REIN_KEY_BLOCK : 0; }

/* Opens the store that is kept with the model, if there is one and `kept` is 1, or an empty one; NULL if there is no memory. Thread-safe. */
rein_key_store *rein_key_store_open(const rein_model *model, int kept);

/* Takes a part of a block, which may hold finite numbers of an earlier use: 0 if there is no memory. Without such layers *block is NULL. */
int rein_key_store_take(float **block, rein_key_store *store, rein_key_part part);

/* Gives a part back; NULL is fine. Cannot fail. `spoiled`: it may hold a NaN, and is cleared. */
void rein_key_store_give(rein_key_store *store, rein_key_part part, float *block, int spoiled);

/* Bytes of a part. */
static inline size_t rein_key_store_bytes(const rein_key_store *store, rein_key_part part) {
    return store->parts[part].floats * sizeof(float);
}

/* Closes a store to which all blocks have been given back. With `keep` it stays with the model, in place of another one, unless it
 * is too large; else it is freed. Thread-safe; NULL is fine. */
void rein_key_store_close(rein_key_store *store, const rein_model *model, int keep);

#endif
