/* step_metrics.c - how each metric of several passes combines. */
#include "step_metrics.h"

#include <string.h>

#include "objective/metrics.h"

static double get(const rein_metrics *metrics, size_t i) {
    double x;
    memcpy(&x, (const char *)metrics + rein_metric_fields[i].offset, sizeof x);
    return x;
}

static void set(rein_metrics *metrics, size_t i, double x) { memcpy((char *)metrics + rein_metric_fields[i].offset, &x, sizeof x); }

void rein_metrics_add(rein_metrics *sum, const rein_metrics *pass, int first, int first_epoch) {
    for (size_t i = 0; i < REIN_METRIC_FIELDS; i++) {
        const double x = get(pass, i), before = get(sum, i);
        switch (rein_metric_fields[i].how) {
        case REIN_MEAN: set(sum, i, before + x); break;
        case REIN_COUNT: set(sum, i, first_epoch ? before + x : before); break;
        case REIN_LEAST: set(sum, i, first || x < before ? x : before); break;
        case REIN_GREATEST: set(sum, i, first || x > before ? x : before); break;
        }
    }
}

void rein_metrics_finish(rein_metrics *sum, size_t passes) {
    for (size_t i = 0; i < REIN_METRIC_FIELDS; i++)
        if (rein_metric_fields[i].how == REIN_MEAN) set(sum, i, get(sum, i) / (double)passes);
}
