/* exec.c - where work runs. */
#include "base.h"

#include "pool.h"

rein_status rein_exec_resolve(rein_exec *resolved, const rein_exec *exec, size_t work, rein_error *err) {
    rein_exec e = exec ? *exec : (rein_exec){0, REIN_ISA_BEST};
    if (e.threads < 0) return rein_fail_at(err, REIN_EINVAL, "threads", -1, "is %d: 0 (all cores) or more", e.threads);
    if (work < REIN_SERIAL) e.threads = 1;
    if (e.threads == 0) e.threads = rein_cores();
    if (e.threads > REIN_MAX_THREADS) e.threads = REIN_MAX_THREADS;
    if (!rein_isa_available(e.isa))
        return rein_fail_at(err, REIN_EINVAL, "isa", -1, "is %d: not available on this machine", (int)e.isa);
    if (e.isa == REIN_ISA_BEST) e.isa = rein_isa_best();
    *resolved = e;
    return REIN_OK;
}
