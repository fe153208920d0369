/* session_traffic.c - how long the ranks waited for each other in a step, and what they exchanged. */
#include <math.h>
#include <stdlib.h>

#include "session.h"

void rein_session_begin_step(rein_session *s) {
    s->traffic = rein_ranks_traffic_of(s->ranks);
    s->step_began = 1;
}

rein_status rein_session_put_traffic(rein_step_numbers *n, rein_session *s, rein_error *err) {
    const rein_ranks_traffic now = rein_ranks_traffic_of(s->ranks), *then = &s->traffic;
    const double own[] = {now.waiting - then->waiting, now.exchanging - then->exchanging, now.bytes - then->bytes};
    const size_t ranks = rein_ranks_size(s->ranks);
    s->step_began = 0;
    if (!rein_ranks_several(s->ranks)) return REIN_OK;
    double *all = malloc(ranks * sizeof own);
    rein_status status = all ? REIN_OK : rein_fail(err, REIN_ENOMEM, "no memory for the times of %zu ranks", ranks);
    status = rein_ranks_agree(s->ranks, status, err);
    if (!status) status = rein_ranks_gather(all, own, sizeof own, s->ranks, err);
    if (!status) n->seconds_wait = n->seconds_wait_max = n->seconds_exchange = n->exchange_bytes = 0;
    for (size_t r = 0; r < ranks && !status; r++) {
        n->seconds_wait += all[3 * r] / (double)ranks;
        n->seconds_wait_max = fmax(n->seconds_wait_max, all[3 * r]);
        n->seconds_exchange += all[3 * r + 1] / (double)ranks;
        n->exchange_bytes += all[3 * r + 2] / (double)ranks;
    }
    n->exchange_calls = now.calls - then->calls;
    free(all);
    return status;
}
