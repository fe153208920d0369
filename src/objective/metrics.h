/* metrics.h - the fields of rein_metrics, one row each. Private. */
#ifndef REIN_OBJECTIVE_METRICS_H
#define REIN_OBJECTIVE_METRICS_H

#include "rein/objective.h"

/* How a metric of several passes combines. MEAN: over all passes. COUNT: the sum over the passes of the first epoch, since later ones see the
 * same groups again. */
typedef enum rein_combination { REIN_MEAN, REIN_COUNT, REIN_LEAST, REIN_GREATEST } rein_combination;

typedef struct rein_metric_field {
    const char *name;
    size_t offset; /* in rein_metrics, of a double */
    rein_combination how;
} rein_metric_field;

enum { REIN_METRIC_FIELDS = sizeof(rein_metrics) / sizeof(double) };
extern const rein_metric_field rein_metric_fields[REIN_METRIC_FIELDS];

#endif
