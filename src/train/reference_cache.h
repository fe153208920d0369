/* reference_cache.h - log-probs under reference policies, kept from step to step: a trajectory that is trained again under the same reference
 * is not computed again. Private; one thread at a time.
 *
 * A trajectory is found by a hash (hash.h) of everything that its log-probs depend on: the policy, the temperature, and the ids and the mask
 * of each of its histories. The cache keeps a copy of these and compares them, so that equal hashes do no harm. The log-probs do not depend
 * on the rest of the batch, so the kept ones have the bits that would be computed. */
#ifndef REIN_TRAIN_REFERENCE_CACHE_H
#define REIN_TRAIN_REFERENCE_CACHE_H

#include "rein/train.h"

typedef struct rein_reference_cache rein_reference_cache;

/* A cache of `most` bytes at most; the oldest entries make room for new ones. NULL: no memory. */
rein_reference_cache *rein_reference_cache_new(size_t most);

/* NULL is fine. */
void rein_reference_cache_free(rein_reference_cache *cache);

/* rein_trainer_log_probs of `policy`, whose trajectories that are not known yet are computed, and then known. The identity tells policies
 * apart: one number, one policy, as long as the cache lives. On failure log_probs holds nothing of use. */
rein_status rein_reference_cache_log_probs(float *log_probs, rein_reference_cache *cache, rein_trainer *trainer,
                                           const rein_policy *policy, int64_t identity, const rein_groups *groups, rein_error *err);

/* Bytes held now; tokens that were computed, and tokens that were known, so far. */
typedef struct rein_reference_cache_counts {
    size_t bytes, computed, known;
} rein_reference_cache_counts;
rein_reference_cache_counts rein_reference_cache_count(const rein_reference_cache *cache);

#endif
