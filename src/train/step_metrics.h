/* step_metrics.h - the metrics of several passes as those of one step. Private. */
#ifndef REIN_TRAIN_STEP_METRICS_H
#define REIN_TRAIN_STEP_METRICS_H

#include "rein/objective.h"

/* Adds the metrics of a pass to *sum, which is {0} before the first one. first_epoch: it is a pass of the first epoch. */
void rein_metrics_add(rein_metrics *sum, const rein_metrics *pass, int first, int first_epoch);

/* Makes the sum of `passes` passes the metrics of the step. */
void rein_metrics_finish(rein_metrics *sum, size_t passes);

#endif
