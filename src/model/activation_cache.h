/* activation_cache.h - the activations that sampling computed, kept for the forward pass of training. Private.
 *
 * A row is everything that one token leaves in the model: the input of each layer, what each layer keeps for backward, and the
 * output of the last layer. It depends only on the policy, the token and the tokens before it, bit for bit. A key names one
 * completion of a request; its rows are those of the request's prompt, which all its completions share, and its own. One thread
 * at a time. */
#ifndef REIN_MODEL_ACTIVATION_CACHE_H
#define REIN_MODEL_ACTIVATION_CACHE_H

#include "decoder.h"

/* Begins a request. Returns the key of its first completion; completion s has this key + s. 0: nothing is cached, because the
 * cache is NULL or there is no memory. Requests of another policy, or of this one before its parameters changed, are dropped. */
uint64_t rein_activation_cache_begin(rein_activation_cache *cache, const rein_policy *policy, size_t n_prompt, size_t samples);

/* Whether the request of the key is in the cache: it was not dropped, and takes rows. cache may be NULL. */
int rein_activation_cache_has(const rein_activation_cache *cache, uint64_t key);

/* Reserves the row of the next token of a sequence, at `position` of prompt and completion; the prompt comes first, with any key
 * of the request. When the cache is full the oldest request is dropped with all its rows, so that of a batch that is too large
 * some requests are complete. A request for which there is no row is dropped too. */
void rein_activation_cache_add(rein_activation_cache *cache, uint64_t key, size_t position, int32_t id);

/* The row that was reserved, or NULL if its request was dropped. It stays valid until the next row is added. */
float *rein_activation_cache_row(const rein_activation_cache *cache, uint64_t key, size_t position);

/* Fills reserved rows [batch->rows], skipping those that are NULL: the part of one layer, and the output of the last layer, x
 * [rows][hidden]. A cache for passes with recompute keeps only the inputs of the layers. */
void rein_activation_cache_put(const rein_activation_cache *cache, float *const *rows, size_t layer, const rein_kept *kept,
                               const rein_batch_rows *batch);
void rein_activation_cache_put_last(const rein_activation_cache *cache, float *const *rows, const float *x,
                                    const rein_batch_rows *batch);

/* Drops the request of a key, if it is there. cache may be NULL. */
void rein_activation_cache_drop(rein_activation_cache *cache, uint64_t key);

/* Drops all requests. cache may be NULL. */
void rein_activation_cache_clear(rein_activation_cache *cache);

/* Whether it serves only passes with recompute. */
int rein_activation_cache_inputs_only(const rein_activation_cache *cache);

/* Whether it holds rows of the policy as it is, with everything that a pass with or without recompute needs. cache may be NULL. */
int rein_activation_cache_serves(const rein_activation_cache *cache, const rein_policy *policy, int recompute);

/* Looks up rows [count] of the key's sequence from `position` on. Returns 1 if they are there and belong to the tokens ids
 * [count], else 0. rows may be NULL: then the tokens are only compared. */
int rein_activation_cache_find(float **rows, const rein_activation_cache *cache, uint64_t key, size_t position, const int32_t *ids,
                               size_t count);

/* The counterparts of put, for rows that were found. With inputs_only just kept->x is filled. */
void rein_activation_cache_get(const rein_kept *kept, int inputs_only, const rein_activation_cache *cache, float *const *rows,
                               size_t layer, const rein_batch_rows *batch);
void rein_activation_cache_get_last(float *x, const rein_activation_cache *cache, float *const *rows, const rein_batch_rows *batch);

#endif
