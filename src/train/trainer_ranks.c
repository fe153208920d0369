/* trainer_ranks.c - what the ranks of a trainer exchange besides gradients: log-probs of tokens, moments, and fingerprints of the weights. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/hash.h"
#include "trainer.h"

void rein_trainer_set_ranks(rein_trainer *t, rein_ranks *ranks) { t->ranks = ranks; }

rein_status rein_trainer_compare(rein_trainer *t, rein_error *err) {
    if (!rein_ranks_several(t->ranks)) return REIN_OK;
    return rein_ranks_compare(t->ranks, rein_hash(t->values, t->floats * sizeof *t->values), "the weights", err);
}

/* Of this rank's part, which no other has. */
static uint64_t moments_of(const rein_trainer *t, rein_error *err) {
    const size_t n = rein_ranks_size(t->ranks), rank = rein_ranks_rank(t->ranks);
    size_t *begins = malloc((n + 1) * sizeof *begins);
    if (!begins) return rein_no_memory(err), 0;
    rein_adamw_parts(begins, t->floats, n);
    const size_t from = begins[rank], size = (begins[rank + 1] - from) * sizeof(float);
    const uint64_t both[] = {rein_hash(t->first + from, size), rein_hash(t->second + from, size)};
    free(begins);
    return rein_hash(both, sizeof both);
}

rein_status rein_trainer_check_moments(const rein_trainer *t, rein_error *err) {
    rein_error room = {0};
    if (!rein_ranks_several(t->ranks) || !t->moments) return REIN_OK;
    const uint64_t now = moments_of(t, &room);
    if (room.code) return rein_fail_with(err, room.code, &room);
    return now == t->moments
               ? REIN_OK
               : rein_fail(err, REIN_ESYSTEM,
                           "the moments of the optimizer have changed since its last step: this machine's memory is at "
                           "fault");
}

void rein_trainer_note_moments(rein_trainer *t) { t->moments = rein_ranks_several(t->ranks) ? moments_of(t, NULL) : 0; }

rein_status rein_trainer_collect(rein_trainer *t, rein_error *err) {
    const size_t n = rein_ranks_size(t->ranks);
    if (n == 1) return REIN_OK;
    size_t *begins = malloc((n + 1) * sizeof *begins);
    rein_status status = rein_ranks_agree(t->ranks, begins ? rein_trainer_check_moments(t, err) : rein_no_memory(err), err);
    if (status) {
        free(begins);
        return status;
    }
    rein_adamw_parts(begins, t->floats, n);
    for (size_t r = 0; r <= n; r++) begins[r] *= sizeof(float);
    status = rein_ranks_collect(t->first, begins, t->ranks, err);
    if (!status) status = rein_ranks_collect(t->second, begins, t->ranks, err);
    free(begins);
    return status;
}

/* A pass that trains goes by shards; the rank that has a shard has also sampled its prompts, and has their activations. */
void rein_trainer_assign(size_t *ranks, const rein_trainer *t, const rein_packing *packing, int trains) {
    const size_t n = rein_ranks_size(t->ranks);
    for (size_t u = 0; u < packing->n_micro_batches; u++) {
        const size_t group = packing->micro_batches[u].group;
        ranks[u] =
            trains ? rein_trainer_rank_of(t, rein_trainer_shard_of(t, group)) : rein_ranks_owner(group, packing->n_groups, n);
    }
}

static size_t first_token(const rein_packing *packing, size_t u) {
    return packing->sequence_offsets[packing->micro_batches[u].first];
}

static size_t tokens_of(const rein_packing *packing, size_t u) {
    return packing->sequence_offsets[packing->micro_batches[u].last] - first_token(packing, u);
}

/* The numbers of the micro-batches of a rank, one after the other. */
static void pack(float *packed, const float *numbers, const size_t *ranks, size_t rank, const rein_packing *packing) {
    for (size_t u = 0; u < packing->n_micro_batches; u++) {
        if (ranks[u] != rank) continue;
        memcpy(packed, numbers + first_token(packing, u), tokens_of(packing, u) * sizeof *packed);
        packed += tokens_of(packing, u);
    }
}

static void unpack(float *numbers, const float *packed, const size_t *ranks, size_t n_ranks, const rein_packing *packing) {
    for (size_t rank = 0; rank < n_ranks; rank++)
        for (size_t u = 0; u < packing->n_micro_batches; u++) {
            if (ranks[u] != rank) continue;
            memcpy(numbers + first_token(packing, u), packed, tokens_of(packing, u) * sizeof *packed);
            packed += tokens_of(packing, u);
        }
}

rein_status rein_trainer_share_tokens(float *numbers, const size_t *ranks, rein_trainer *t, const rein_packing *packing,
                                      rein_error *err) {
    const size_t n = rein_ranks_size(t->ranks);
    if (n == 1) return REIN_OK;
    size_t *sizes = calloc(n, sizeof *sizes);
    float *own = malloc((packing->n_tokens + 1) * sizeof *own), *all = malloc((packing->n_tokens + 1) * sizeof *all);
    rein_status status =
        sizes && own && all ? REIN_OK : rein_fail(err, REIN_ENOMEM, "no memory for the log-probs of %zu tokens", packing->n_tokens);
    status = rein_ranks_agree(t->ranks, status, err);
    if (!status) {
        for (size_t u = 0; u < packing->n_micro_batches; u++) sizes[ranks[u]] += tokens_of(packing, u) * sizeof *own;
        pack(own, numbers, ranks, rein_ranks_rank(t->ranks), packing);
        status = rein_ranks_gather_parts(all, own, sizes, t->ranks, err);
    }
    if (!status) unpack(numbers, all, ranks, n, packing);
    free(sizes);
    free(own);
    free(all);
    return status;
}
