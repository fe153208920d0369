/* ranks.c - what ranks say to each other.
 *
 * Before bytes travel every rank announces what it is about to do, in 16 bytes that all get. Ranks that do different things, or one that has
 * failed, are found there, and all ranks return the same error. So a mistake on one machine ends the job with a sentence; no rank is left
 * waiting for another. */
#include "ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/hash.h"

struct rein_ranks {
    rein_transport transport;
    int over; /* all ranks have failed together, or ended: nothing is announced any more */
    rein_ranks_traffic traffic;
};

typedef enum doing { AGREEING = 1, TELLING, GATHERING, SHARING, COLLECTING, ENDING } doing;

typedef struct announcement {
    uint32_t doing;
    int32_t status; /* of this rank */
    uint64_t check; /* of the arguments that must match */
} announcement;

/* ------------------------------------------------------------------------------------------------------------------------- open */

rein_status rein_ranks_open(rein_ranks **ranks, const rein_transport *transport, rein_error *err) {
    *ranks = NULL;
    if (!transport->size || transport->rank >= transport->size)
        return rein_fail_at(err, REIN_EINVAL, "transport.rank", -1, "is %zu: there are %zu ranks", transport->rank,
                            transport->size);
    rein_ranks *made = malloc(sizeof *made);
    if (!made) return rein_no_memory(err);
    *made = (rein_ranks){.transport = *transport};
    *ranks = made;
    return REIN_OK;
}

void rein_ranks_close(rein_ranks *ranks) {
    if (ranks && ranks->transport.close) ranks->transport.close(ranks->transport.context);
    free(ranks);
}

size_t rein_ranks_rank(const rein_ranks *ranks) { return ranks ? ranks->transport.rank : 0; }
size_t rein_ranks_size(const rein_ranks *ranks) { return ranks ? ranks->transport.size : 1; }
rein_ranks_traffic rein_ranks_traffic_of(const rein_ranks *ranks) { return ranks ? ranks->traffic : (rein_ranks_traffic){0}; }
int rein_ranks_several(const rein_ranks *ranks) { return rein_ranks_size(ranks) > 1; }

void rein_ranks_abort(rein_ranks *ranks, int status) {
    if (ranks) ranks->transport.end_all(ranks->transport.context, status);
}

size_t rein_ranks_part(size_t n, size_t rank, size_t size) { return n / size * rank + n % size * rank / size; }

size_t rein_ranks_owner(size_t i, size_t n, size_t size) {
    size_t rank = 0;
    while (rank + 1 < size && rein_ranks_part(n, rank + 1, size) <= i) rank++;
    return rank;
}

/* ------------------------------------------------------------------------------------------------------- the transport, and its time */

static rein_status broadcast(void *bytes, size_t n, size_t from, rein_ranks *ranks, rein_error *err) {
    const rein_transport *t = &ranks->transport;
    const double began = rein_now();
    const rein_status status = t->broadcast(t->context, bytes, n, from, err);
    ranks->traffic.exchanging += rein_now() - began;
    ranks->traffic.calls++;
    if (t->rank == from) ranks->traffic.bytes += (double)n * (double)(t->size - 1);
    return status;
}

static rein_status gather(void *to, const void *from, const size_t *sizes, rein_ranks *ranks, rein_error *err) {
    const rein_transport *t = &ranks->transport;
    const double began = rein_now();
    const rein_status status = t->gather(t->context, to, from, sizes, err);
    ranks->traffic.exchanging += rein_now() - began;
    ranks->traffic.calls++;
    ranks->traffic.bytes += (double)sizes[t->rank] * (double)(t->size - 1);
    return status;
}

static void count_exchange(rein_ranks *ranks, const size_t *from_sizes, double began) {
    ranks->traffic.exchanging += rein_now() - began;
    ranks->traffic.calls++;
    for (size_t r = 0; r < ranks->transport.size; r++)
        ranks->traffic.bytes += r == ranks->transport.rank ? 0 : (double)from_sizes[r];
}

static rein_status exchange(void *to, const size_t *to_sizes, const void *from, const size_t *from_sizes, rein_ranks *ranks,
                            rein_error *err) {
    const rein_transport *t = &ranks->transport;
    const double began = rein_now();
    const rein_status status = t->exchange(t->context, to, to_sizes, from, from_sizes, err);
    count_exchange(ranks, from_sizes, began);
    return status;
}

/* ---------------------------------------------------------------------------------------------------------------- announcements */

static rein_status gather_equal(void *to, const void *from, size_t size, rein_ranks *ranks, rein_error *err) {
    const rein_transport *t = &ranks->transport;
    size_t *sizes = malloc(t->size * sizeof *sizes);
    if (!sizes) return rein_no_memory(err);
    for (size_t r = 0; r < t->size; r++) sizes[r] = size;
    const rein_status status = gather(to, from, sizes, ranks, err);
    free(sizes);
    return status;
}

/* The error of rank `from` becomes that of all. */
static rein_status fail_as(rein_ranks *ranks, size_t from, const announcement *all, rein_error *err) {
    const rein_transport *t = &ranks->transport;
    rein_error why = {0};
    size_t failed = 0;
    if (t->rank == from && err) why = *err;
    const rein_status status = broadcast(&why, sizeof why, from, ranks, err);
    if (status) return status;
    if (!why.code) rein_fail(&why, (rein_status)all[from].status, "the work failed");
    for (size_t r = 0; r < t->size; r++) failed += all[r].status != 0;
    rein_fail_with(err, why.code, &why);
    return from && failed < t->size ? rein_fail_in(err, why.code, "rank %zu", from) : why.code;
}

static rein_status fail_apart(size_t rank, rein_error *err) {
    return rein_fail(err, REIN_ESYSTEM,
                     "rank %zu does not do what rank 0 does: all ranks must run the same command with the same rein", rank);
}

static rein_status examine(rein_ranks *ranks, const announcement *all, rein_error *err) {
    for (size_t r = 0; r < ranks->transport.size; r++)
        if (all[r].status) {
            ranks->over = 1;
            return fail_as(ranks, r, all, err);
        }
    for (size_t r = 1; r < ranks->transport.size; r++)
        if (all[r].doing != all[0].doing || all[r].check != all[0].check) {
            ranks->over = 1;
            return fail_apart(r, err);
        }
    return REIN_OK;
}

/* REIN_OK if all ranks do the same and none has failed. */
static rein_status announce(rein_ranks *ranks, doing what, uint64_t check, rein_status mine, rein_error *err) {
    const announcement own = {what, (int32_t)mine, check};
    if (ranks->over) return mine ? mine : rein_fail(err, REIN_EINVAL, "the ranks have ended: nothing can be exchanged");
    announcement *all = malloc(ranks->transport.size * sizeof *all);
    if (!all) return rein_no_memory(err);
    const double exchanging = ranks->traffic.exchanging;
    rein_status status = gather_equal(all, &own, sizeof own, ranks, err);
    ranks->traffic.waiting += ranks->traffic.exchanging - exchanging; /* for the slowest; 16 bytes take next to nothing */
    ranks->traffic.exchanging = exchanging;
    ranks->traffic.calls--;
    if (!status) status = examine(ranks, all, err);
    free(all);
    return status;
}

rein_status rein_ranks_agree(rein_ranks *ranks, rein_status status, rein_error *err) {
    rein_error room = {0};
    if (!rein_ranks_several(ranks)) return status;
    return announce(ranks, AGREEING, 0, status, err ? err : &room);
}

rein_status rein_ranks_end(rein_ranks *ranks, int status, const char *message, rein_error *err) {
    rein_error why = {0};
    if (!rein_ranks_several(ranks) || ranks->over) return REIN_OK;
    if (message) rein_fail(&why, REIN_ESYSTEM, "%s", message);
    const rein_status ended = announce(ranks, ENDING, 0, status && message ? REIN_ESYSTEM : REIN_OK, &why);
    ranks->over = 1;
    if (ended && err) *err = why;
    return ended;
}

/* -------------------------------------------------------------------------------------------------------------- what is exchanged */

rein_status rein_ranks_tell(rein_ranks *ranks, void *bytes, size_t n, rein_error *err) {
    if (!rein_ranks_several(ranks)) return REIN_OK;
    const rein_status status = announce(ranks, TELLING, n, REIN_OK, err);
    return status ? status : broadcast(bytes, n, 0, ranks, err);
}

rein_status rein_ranks_gather(void *to, const void *from, size_t size, rein_ranks *ranks, rein_error *err) {
    if (!rein_ranks_several(ranks)) {
        memcpy(to, from, size);
        return REIN_OK;
    }
    const rein_status status = announce(ranks, GATHERING, size, REIN_OK, err);
    return status ? status : gather_equal(to, from, size, ranks, err);
}

rein_status rein_ranks_any(int *any, rein_ranks *ranks, int mine, rein_error *err) {
    const unsigned char own = mine != 0;
    *any = own;
    if (!rein_ranks_several(ranks)) return REIN_OK;
    unsigned char *all = malloc(rein_ranks_size(ranks));
    if (!all) return rein_no_memory(err);
    const rein_status status = rein_ranks_gather(all, &own, 1, ranks, err);
    for (size_t r = 0; r < rein_ranks_size(ranks) && !status; r++) *any |= all[r];
    free(all);
    return status;
}

/* The bytes of the parts from `done` on, at most a piece of each; returns 0 when all are done. */
static int next_piece(size_t *sizes, const size_t *whole, size_t done, size_t n) {
    int any = 0;
    for (size_t r = 0; r < n; r++) {
        const size_t left = whole[r] > done ? whole[r] - done : 0;
        sizes[r] = left < REIN_RANKS_PIECE ? left : REIN_RANKS_PIECE;
        any |= left > 0;
    }
    return any;
}

/* Puts the pieces of all ranks in their places: part r of the array begins at begins[r]. */
static void place(char *array, const size_t *begins, const char *pieces, const size_t *sizes, size_t done, size_t n) {
    for (size_t r = 0; r < n; pieces += sizes[r++])
        if (sizes[r]) memcpy(array + begins[r] + done, pieces, sizes[r]);
}

/* Whose pieces rank 0, or every rank, gets. */
static rein_status move_pieces(char *pieces, const char *own, const size_t *sizes, size_t *room, int only_first, rein_ranks *ranks,
                               rein_error *err) {
    const rein_transport *t = &ranks->transport;
    if (!only_first) return gather(pieces, own, sizes, ranks, err);
    size_t *to = room, *from = room + t->size;
    for (size_t r = 0; r < t->size; r++) {
        to[r] = t->rank ? 0 : sizes[r];
        from[r] = r ? 0 : sizes[t->rank];
    }
    return exchange(pieces, to, own, from, ranks, err);
}

static rein_status share(void *array, const size_t *begins, const void *own, int only_first, rein_ranks *ranks, rein_error *err) {
    const size_t n = ranks->transport.size, rank = ranks->transport.rank;
    size_t *numbers = calloc(4 * n, sizeof *numbers), *whole = numbers, *sizes = numbers + n, *room = numbers + 2 * n;
    char *pieces = malloc(n * REIN_RANKS_PIECE);
    rein_status status = numbers && pieces ? REIN_OK : rein_no_memory(err);
    status = announce(ranks, only_first ? COLLECTING : SHARING, rein_hash(begins, (n + 1) * sizeof *begins), status, err);
    for (size_t r = 0; r < n && !status; r++) whole[r] = begins[r + 1] - begins[r];
    for (size_t done = 0; !status && next_piece(sizes, whole, done, n); done += REIN_RANKS_PIECE) {
        status = move_pieces(pieces, (const char *)own + (sizes[rank] ? done : 0), sizes, room, only_first, ranks, err);
        if (!status && (!only_first || !rank)) place(array, begins, pieces, sizes, done, n);
    }
    free(pieces);
    free(numbers);
    return status;
}

rein_status rein_ranks_share(void *array, const size_t *begins, rein_ranks *ranks, rein_error *err) {
    if (!rein_ranks_several(ranks)) return REIN_OK;
    return share(array, begins, (char *)array + begins[ranks->transport.rank], 0, ranks, err);
}

rein_status rein_ranks_collect(void *array, const size_t *begins, rein_ranks *ranks, rein_error *err) {
    if (!rein_ranks_several(ranks)) return REIN_OK;
    return share(array, begins, (char *)array + begins[ranks->transport.rank], 1, ranks, err);
}

rein_status rein_ranks_gather_parts(void *to, const void *from, const size_t *sizes, rein_ranks *ranks, rein_error *err) {
    const size_t n = rein_ranks_size(ranks);
    size_t *begins = calloc(n + 1, sizeof *begins);
    rein_status status = begins ? REIN_OK : rein_no_memory(err);
    for (size_t r = 0; r < n && !status; r++) begins[r + 1] = begins[r] + sizes[r];
    if (!status && !rein_ranks_several(ranks)) memcpy(to, from, sizes[0]);
    else if (!status) status = share(to, begins, from, 0, ranks, err);
    free(begins);
    return status;
}

rein_status rein_ranks_exchange_begin(void *to, const size_t *to_sizes, const void *from, const size_t *from_sizes,
                                      rein_ranks *ranks, rein_error *err) {
    const rein_transport *t = &ranks->transport;
    if (!t->begin_exchange) return exchange(to, to_sizes, from, from_sizes, ranks, err);
    const double began = rein_now();
    const rein_status status = t->begin_exchange(t->context, to, to_sizes, from, from_sizes, err);
    count_exchange(ranks, from_sizes, began);
    return status;
}

rein_status rein_ranks_exchange_end(rein_ranks *ranks, rein_error *err) {
    const rein_transport *t = &ranks->transport;
    if (!t->end_exchange) return REIN_OK;
    const double began = rein_now();
    const rein_status status = t->end_exchange(t->context, err);
    ranks->traffic.exchanging += rein_now() - began;
    return status;
}

/* ---------------------------------------------------------------------------------------------------------------------- comparing */

/* The fingerprint that most ranks have; of several such, that of the lowest rank. */
static uint64_t most_common(const uint64_t *all, size_t n) {
    size_t best = 0, best_count = 0;
    for (size_t r = 0; r < n; r++) {
        size_t count = 0;
        for (size_t k = 0; k < n; k++) count += all[k] == all[r];
        if (count > best_count) best = r, best_count = count;
    }
    return all[best];
}

static rein_status name_different(const uint64_t *all, size_t n, const char *what, rein_error *err) {
    const uint64_t usual = most_common(all, n);
    size_t first = n, different = 0, usual_count = 0;
    for (size_t r = 0; r < n; r++) {
        usual_count += all[r] == usual;
        if (all[r] == usual) continue;
        if (first == n) first = r;
        different++;
    }
    if (!different) return REIN_OK;
    if (usual_count <= different)
        return rein_fail(err, REIN_ESYSTEM, "%s of rank %zu and rank 0 differ, and too few ranks agree to tell which is right",
                         what, first ? first : 1);
    if (different > 1)
        return rein_fail(err, REIN_ESYSTEM, "%s of rank %zu (and of %zu more) differ from those of the other ranks", what, first,
                         different - 1);
    return rein_fail(err, REIN_ESYSTEM, "%s of rank %zu differ from those of the other ranks", what, first);
}

rein_status rein_ranks_compare(rein_ranks *ranks, uint64_t fingerprint, const char *what, rein_error *err) {
    const size_t n = rein_ranks_size(ranks);
    if (n == 1) return REIN_OK;
    uint64_t *all = malloc(n * sizeof *all);
    if (!all) return rein_no_memory(err);
    rein_status status = rein_ranks_gather(all, &fingerprint, sizeof fingerprint, ranks, err);
    if (!status) {
        status = name_different(all, n, what, err);
        ranks->over |= status != REIN_OK; /* all ranks see the same numbers */
    }
    free(all);
    return status;
}
