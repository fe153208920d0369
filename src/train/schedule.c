/* schedule.c - the learning rate of a step. The formulas and the order of their operations are those of transformers/optimization.py. */
#include <math.h>

#include "rein/train.h"

static const double PI = 3.14159265358979323846;

static rein_status check_total(const rein_schedule *s, rein_error *err) {
    const int constant = s->shape == REIN_SCHEDULE_CONSTANT;
    if (constant && s->final_share != 0 && s->final_share != 1)
        return rein_fail_at(err, REIN_EINVAL, "final_share", -1,
                            "is %g: a constant schedule ends with all of the rate (1, or 0 for not given)", s->final_share);
    if (constant && s->total_steps == 0) return REIN_OK;
    if (s->total_steps < 1)
        return rein_fail_at(err, REIN_EINVAL, "total_steps", -1, "is %lld: it must be 1 or more", (long long)s->total_steps);
    if (s->warmup_steps > s->total_steps)
        return rein_fail_at(err, REIN_EINVAL, "warmup_steps", -1, "is %lld: it must be at most total_steps, %lld",
                            (long long)s->warmup_steps, (long long)s->total_steps);
    return REIN_OK;
}

static rein_status check(const rein_schedule *s, int64_t step, rein_error *err) {
    if (!s) return rein_fail_at(err, REIN_EINVAL, "schedule", -1, "is NULL: one is needed");
    switch (s->shape) {
    case REIN_SCHEDULE_CONSTANT:
    case REIN_SCHEDULE_LINEAR:
    case REIN_SCHEDULE_COSINE: break;
    default:
        return rein_fail_at(err, REIN_EINVAL, "shape", -1,
                            "is %d: it must be REIN_SCHEDULE_CONSTANT, REIN_SCHEDULE_LINEAR or REIN_SCHEDULE_COSINE",
                            (int)s->shape);
    }
    if (!(s->learning_rate >= 0 && isfinite(s->learning_rate)))
        return rein_fail_at(err, REIN_EINVAL, "learning_rate", -1, "is %g: it must be 0 or more", s->learning_rate);
    if (s->warmup_steps < 0)
        return rein_fail_at(err, REIN_EINVAL, "warmup_steps", -1, "is %lld: it must be 0 or more", (long long)s->warmup_steps);
    if (!(s->final_share >= 0 && s->final_share <= 1))
        return rein_fail_at(err, REIN_EINVAL, "final_share", -1, "is %g: it must be between 0 and 1", s->final_share);
    if (step < 0) return rein_fail_at(err, REIN_EINVAL, "step", -1, "is %lld: steps count from 0", (long long)step);
    return check_total(s, err);
}

/* From 1 at the end of the warm-up to 0 at total_steps. */
static double remaining(const rein_schedule *s, int64_t step) {
    if (s->shape == REIN_SCHEDULE_CONSTANT) return 1;
    if (step >= s->total_steps) return 0;
    const double whole = (double)(s->total_steps - s->warmup_steps);
    if (s->shape == REIN_SCHEDULE_LINEAR) return (double)(s->total_steps - step) / whole;
    return 0.5 * (1 + cos(PI * ((double)(step - s->warmup_steps) / whole)));
}

rein_status rein_learning_rate(double *rate, const rein_schedule *schedule, int64_t step, rein_error *err) {
    const rein_schedule *s = schedule;
    const rein_status status = check(s, step, err);
    if (status != REIN_OK) return status;
    if (step < s->warmup_steps) *rate = s->learning_rate * ((double)step / (double)s->warmup_steps);
    else *rate = s->learning_rate * (s->final_share + (1 - s->final_share) * remaining(s, step));
    return REIN_OK;
}
