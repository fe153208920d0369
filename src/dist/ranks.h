/* ranks.h - what ranks exchange besides what rein/ranks.h has: arrays of all, and arrays that each sends to each. Private.
 *
 * A transport is only asked for pieces of at most REIN_RANKS_PIECE bytes a rank; longer arrays travel in several. */
#ifndef REIN_DIST_RANKS_H
#define REIN_DIST_RANKS_H

#include "rein/ranks.h"

enum { REIN_RANKS_PIECE = 1 << 20 };

/* What this rank has exchanged since the ranks were opened. */
typedef struct rein_ranks_traffic {
    double waiting;    /* seconds until all ranks had said what they are about to do: those of the fastest rank are the longest */
    double exchanging; /* seconds in which bytes travelled and this rank did nothing else */
    double bytes;      /* that this rank gave, once for each rank that got them */
    double calls;      /* of the transport, without announcements */
} rein_ranks_traffic;
rein_ranks_traffic rein_ranks_traffic_of(const rein_ranks *ranks);

/* 1 if there is more than one rank. */
int rein_ranks_several(const rein_ranks *ranks);

/* The part of rank r when n things are divided: [part, next part). */
size_t rein_ranks_part(size_t n, size_t rank, size_t size);

/* Which rank has thing i of n, divided like that. */
size_t rein_ranks_owner(size_t i, size_t n, size_t size);

/* Every rank gives `size` bytes, the same number on each; `to` [ranks · size] gets those of all in the order of the ranks. */
rein_status rein_ranks_gather(void *to, const void *from, size_t size, rein_ranks *ranks, rein_error *err);

/* Arrays of any length: rank r gives sizes[r] bytes, which all ranks know. */
rein_status rein_ranks_gather_parts(void *to, const void *from, const size_t *sizes, rein_ranks *ranks, rein_error *err);

/* An array that is divided in place: rank r has computed bytes [begins[r], begins[r + 1]); afterwards all have all of it. */
rein_status rein_ranks_share(void *array, const size_t *begins, rein_ranks *ranks, rein_error *err);

/* The same, but only rank 0 needs all of it. */
rein_status rein_ranks_collect(void *array, const size_t *begins, rein_ranks *ranks, rein_error *err);

/* Each gives to each, in two halves: between them the bytes travel, and this rank works on other memory. Nothing is announced, cut into pieces or
 * compared: all ranks know that this comes next, and its sizes, which are below REIN_RANKS_PIECE a rank. At most two have
 * begun and not ended; they end in order, and nothing else is exchanged before that. */
rein_status rein_ranks_exchange_begin(void *to, const size_t *to_sizes, const void *from, const size_t *from_sizes,
                                      rein_ranks *ranks, rein_error *err);
rein_status rein_ranks_exchange_end(rein_ranks *ranks, rein_error *err);

#endif
