/* ranks.h - several processes that share the work of one run: which of them this one is, and how they exchange what they computed.
 *
 * Every rank runs the same program on the same files. Ranks call the functions below in the same order with matching arguments, as in MPI;
 * each call first compares what the ranks are about to do, so that ranks which do different things get an error instead of waiting for ever.
 * How the bytes travel is a table of functions, rein_transport: MPI, or that of a test. Results do not depend on the number of ranks, bit
 * for bit (docs/cluster.md).
 *
 * Wherever `const rein_ranks *` or `rein_ranks *` may be NULL, NULL is a single rank: nothing is exchanged. One thread at a time. */
#ifndef REIN_RANKS_H
#define REIN_RANKS_H

#include "rein/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A way to exchange bytes. Every function is called by all ranks, with matching arguments; it returns when this rank may use its result. */
typedef struct rein_transport {
    void *context;
    size_t rank, size; /* this one, from 0; and how many there are */
    /* bytes [n] of rank `from` become those of all ranks. */
    rein_status (*broadcast)(void *context, void *bytes, size_t n, size_t from, rein_error *err);
    /* Every rank r gives sizes[r] bytes; all get those of all, one rank after the other, in `to`. */
    rein_status (*gather)(void *context, void *to, const void *from, const size_t *sizes, rein_error *err);
    /* This rank gives from_sizes[r] bytes to rank r and gets to_sizes[r] from it; both arrays are in the order of the ranks. */
    rein_status (*exchange)(void *context, void *to, const size_t *to_sizes, const void *from, const size_t *from_sizes,
                            rein_error *err);
    void (*end_all)(void *context, int status); /* ends all ranks at once; does not return */
    void (*close)(void *context);               /* NULL: nothing to close */
    /* The exchange in two halves: between them bytes may travel, and the arrays stay as they are; only the sizes may change. At most two have
     * begun and not ended; they end in the order in which they began, and no other function is called before that. NULL, both: the
     * exchange above does it. */
    rein_status (*begin_exchange)(void *context, void *to, const size_t *to_sizes, const void *from, const size_t *from_sizes,
                                  rein_error *err);
    rein_status (*end_exchange)(void *context, rein_error *err);
} rein_transport;

/* Opens MPI for this process: once, before anything else uses it, and closed by rein_ranks_close. In a library that was built without MPI
 * (`make mpi` builds one with it) this is REIN_EINVAL. */
REIN_API rein_status rein_transport_mpi(rein_transport *transport, rein_error *err);

typedef struct rein_ranks rein_ranks;

/* Opens the ranks over a transport, which is copied; its context belongs to the ranks. The caller closes *ranks after everything that uses
 * them; it is NULL on failure. */
REIN_API rein_status rein_ranks_open(rein_ranks **ranks, const rein_transport *transport, rein_error *err);
REIN_API void rein_ranks_close(rein_ranks *ranks);

/* This rank, from 0, and their number. */
REIN_API size_t rein_ranks_rank(const rein_ranks *ranks);
REIN_API size_t rein_ranks_size(const rein_ranks *ranks);

/* Every rank says how its own part of the work ended: REIN_OK, or a status whose error is in err. If one failed all of them fail, with the
 * error of the first that did; "rank 3: " stands before it unless all ranks or rank 0 failed. */
REIN_API rein_status rein_ranks_agree(rein_ranks *ranks, rein_status status, rein_error *err);

/* bytes [n] of rank 0 become those of all: for what only rank 0 decides. */
REIN_API rein_status rein_ranks_tell(rein_ranks *ranks, void *bytes, size_t n, rein_error *err);

/* *any becomes 1 if `mine` is not 0 on a rank. */
REIN_API rein_status rein_ranks_any(int *any, rein_ranks *ranks, int mine, rein_error *err);

/* Compares a fingerprint that must be the same on all ranks. If it is not, REIN_ESYSTEM names the rank that differs from most of the
 * others: "WHAT of rank 3 differ from those of the other ranks". With two ranks it cannot be told which one is wrong: both are named. */
REIN_API rein_status rein_ranks_compare(rein_ranks *ranks, uint64_t fingerprint, const char *what, rein_error *err);

/* The last call of a program: `status` is 0 for success, otherwise `message` says why this rank stops (NULL: without a reason). Ranks that
 * are still at work fail with that message in their next call. Returns REIN_OK if all ranks have ended, or have failed together before. */
REIN_API rein_status rein_ranks_end(rein_ranks *ranks, int status, const char *message, rein_error *err);

/* Ends all ranks at once. Does not return, except for ranks NULL. */
REIN_API void rein_ranks_abort(rein_ranks *ranks, int status);

#ifdef __cplusplus
}
#endif
#endif
