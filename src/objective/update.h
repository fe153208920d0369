/* update.h - the task of the RLHF weight update's kernels. Private. */
#ifndef REIN_OBJECTIVE_UPDATE_H
#define REIN_OBJECTIVE_UPDATE_H

#include <stddef.h>

typedef struct rein_update_task {
    void *updated, *before; /* [p]; before: a copy of the previous content of updated, or NULL */
    const void *weights;    /* [p] */
    const void *grads;      /* [n][p] */
    const double *c;        /* [n]: lr/n·(R − β·(lp − ref)) */
    size_t n, p;
} rein_update_task;

/* Updates weights [first, last), at most REIN_UPDATE_STRIP, if all results are finite. Returns whether they are. */
enum { REIN_UPDATE_STRIP = 4096 };
typedef int rein_update_fn(const rein_update_task *task, size_t first, size_t last);
rein_update_fn rein_update_pass_ref_f32, rein_update_pass_ref_f64, rein_update_pass_avx2_f32, rein_update_pass_avx2_f64;

#endif
