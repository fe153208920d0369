/* mpi.c - ranks over MPI. An exchange that MPI cannot make ends all ranks: that is its default, and no rank is left waiting. Compiled with REIN_MPI (`make mpi`) it uses it; otherwise it says that there is none. */
#include "rein/ranks.h"

#ifdef REIN_MPI

#include <limits.h>
#include <mpi.h>
#include <stdlib.h>

#include "base/base.h"

static rein_status check(int code, rein_error *err) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS) return REIN_OK;
    MPI_Error_string(code, text, &length);
    return rein_fail(err, REIN_ESYSTEM, "MPI: %.400s", text);
}

static rein_status broadcast(void *context, void *bytes, size_t n, size_t from, rein_error *err) {
    (void)context;
    if (n > INT_MAX) return rein_fail_at(err, REIN_EINVAL, "n", -1, "is %zu: at most %d bytes", n, INT_MAX);
    return check(MPI_Bcast(bytes, (int)n, MPI_BYTE, (int)from, MPI_COMM_WORLD), err);
}

/* MPI's counts and displacements. */
typedef struct counts {
    int *sizes, *places;
} counts;

static rein_status convert(counts *c, const size_t *sizes, rein_error *err) {
    int n = 1;
    size_t at = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    c->sizes = malloc(2 * (size_t)n * sizeof *c->sizes);
    if (!c->sizes) return rein_no_memory(err);
    c->places = c->sizes + n;
    for (int r = 0; r < n; at += sizes[r++]) {
        if (sizes[r] > INT_MAX || at > INT_MAX)
            return rein_fail_at(err, REIN_EINVAL, "sizes", r, "is %zu: at most %d bytes in all", sizes[r], INT_MAX);
        c->sizes[r] = (int)sizes[r];
        c->places[r] = (int)at;
    }
    return REIN_OK;
}

/* A long part goes to each rank at once, and comes from each at the same time. In MPI_Allgatherv of Open MPI 4.1 a rank sends and receives such parts
 * in turns, which takes almost twice as long over TCP. */
static rein_status gather_long(void *to, const void *from, const counts *c, int own, int n, rein_error *err) {
    MPI_Request request;
    int *numbers = calloc(2 * (size_t)n, sizeof *numbers), *begins = numbers + n; /* all begin at 0 */
    if (!numbers) return rein_no_memory(err);
    for (int r = 0; r < n; r++) numbers[r] = own;
    int code = MPI_Ialltoallv(from, numbers, begins, MPI_BYTE, to, c->sizes, c->places, MPI_BYTE, MPI_COMM_WORLD, &request);
    if (code == MPI_SUCCESS) code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    free(numbers);
    return check(code, err);
}

enum { LONG = 1 << 16 }; /* bytes */

static rein_status gather(void *context, void *to, const void *from, const size_t *sizes, rein_error *err) {
    counts c = {0};
    int rank = 0, n = 1, longest = 0;
    (void)context;
    rein_status status = convert(&c, sizes, err);
    if (status) return status;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    for (int r = 0; r < n; r++) longest = c.sizes[r] > longest ? c.sizes[r] : longest;
    if (longest >= LONG) status = gather_long(to, from, &c, c.sizes[rank], n, err);
    else status = check(MPI_Allgatherv(from, c.sizes[rank], MPI_BYTE, to, c.sizes, c.places, MPI_BYTE, MPI_COMM_WORLD), err);
    free(c.sizes);
    return status;
}

static rein_status exchange(void *context, void *to, const size_t *to_sizes, const void *from, const size_t *from_sizes,
                            rein_error *err) {
    counts in = {0}, out = {0};
    (void)context;
    rein_status status = convert(&in, to_sizes, err);
    if (!status) status = convert(&out, from_sizes, err);
    if (!status)
        status =
            check(MPI_Alltoallv(from, out.sizes, out.places, MPI_BYTE, to, in.sizes, in.places, MPI_BYTE, MPI_COMM_WORLD), err);
    free(in.sizes);
    free(out.sizes);
    return status;
}

/* Exchanges that have begun: MPI reads their counts until they end. */
typedef struct unfinished {
    counts in, out;
    MPI_Request request;
} unfinished;

typedef struct connection {
    unfinished exchanges[2];
    size_t begun, ended; /* so far */
} connection;

static rein_status finish(unfinished *u, rein_error *err) {
    const rein_status status = check(MPI_Wait(&u->request, MPI_STATUS_IGNORE), err);
    free(u->in.sizes);
    free(u->out.sizes);
    return status;
}

static rein_status begin_exchange(void *context, void *to, const size_t *to_sizes, const void *from, const size_t *from_sizes,
                                  rein_error *err) {
    connection *c = context;
    unfinished *u = &c->exchanges[c->begun % 2];
    *u = (unfinished){.request = MPI_REQUEST_NULL};
    rein_status status = convert(&u->in, to_sizes, err);
    if (!status) status = convert(&u->out, from_sizes, err);
    if (!status)
        status = check(MPI_Ialltoallv(from, u->out.sizes, u->out.places, MPI_BYTE, to, u->in.sizes, u->in.places, MPI_BYTE,
                                      MPI_COMM_WORLD, &u->request),
                       err);
    if (status) finish(u, NULL);
    else c->begun++;
    return status;
}

static rein_status end_exchange(void *context, rein_error *err) {
    connection *c = context;
    return finish(&c->exchanges[c->ended++ % 2], err);
}

static void end_all(void *context, int status) {
    (void)context;
    MPI_Abort(MPI_COMM_WORLD, status);
}

static void finalize(void *context) {
    free(context);
    MPI_Finalize();
}

rein_status rein_transport_mpi(rein_transport *transport, rein_error *err) {
    int rank = 0, size = 1, threads = 0;
    rein_status status = check(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &threads), err);
    if (status) return status;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    connection *c = calloc(1, sizeof *c);
    if (!c) return rein_no_memory(err);
    *transport = (rein_transport){c,        (size_t)rank, (size_t)size, broadcast,      gather,
                                  exchange, end_all,      finalize,     begin_exchange, end_exchange};
    return REIN_OK;
}

#else

rein_status rein_transport_mpi(rein_transport *transport, rein_error *err) {
    *transport = (rein_transport){0};
    return rein_fail(err, REIN_EINVAL, "this rein was built without MPI: `make mpi` builds build-mpi/rein, which has it");
}

#endif
