/* batch.h - reading a rein_batch: its checks, and its ragged arrays as numbers. Private. */
#ifndef REIN_OBJECTIVE_BATCH_H
#define REIN_OBJECTIVE_BATCH_H

#include "options.h"

static inline double rein_at(const rein_batch *b, const void *array, size_t i) {
    return b->dtype == REIN_F32 ? (double)((const float *)array)[i] : ((const double *)array)[i];
}

static inline void rein_put(const rein_batch *b, void *array, size_t i, double x) {
    if (b->dtype == REIN_F32) ((float *)array)[i] = (float)x;
    else ((double *)array)[i] = x;
}

static inline int rein_trains(const rein_batch *b, size_t t) { return !b->mask || b->mask[t]; }
static inline size_t rein_batch_tokens(const rein_batch *b) { return b->sequence_offsets[b->n_sequences]; }
static inline size_t rein_group_count(const rein_batch *b) { return b->group_offsets ? b->n_groups : 1; }
static inline size_t rein_group_start(const rein_batch *b, size_t g) {
    return b->group_offsets ? b->group_offsets[g] : g ? b->n_sequences : 0;
}
static inline size_t rein_element_size(const rein_batch *b) { return b->dtype == REIN_F32 ? sizeof(float) : sizeof(double); }

/* Checks the shape alone: offsets start at 0, never fall, and cover everything. */
rein_status rein_batch_check_shape(const rein_batch *b, rein_error *err);

/* Checks everything that the advantages depend on: rewards, lengths, budgets. o is resolved. */
rein_status rein_batch_check_rewards(const rein_batch *b, const rein_options *o, rein_error *err);

/* Checks that the token arrays which the composition reads are present. */
rein_status rein_batch_check_arrays(const rein_batch *b, const rein_options *o, rein_error *err);

/* An error that names the first trained token of sequences [first, last) with a number that is not finite; REIN_OK if there is none. */
rein_status rein_batch_find_bad(const rein_batch *b, const void *log_probs, const void *entropies, size_t first, size_t last,
                                rein_error *err);

#endif
