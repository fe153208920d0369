/* settings.h - questions that a run asks of its settings. Private. */
#ifndef REIN_TRAIN_SETTINGS_H
#define REIN_TRAIN_SETTINGS_H

#include "rein/train.h"

/* The name of a setting today: config.yaml of older runs has earlier names, which are still accepted. */
const char *rein_setting_name(const char *name);

/* Steps of the learning rate's schedule: total_steps, or those of the loop. */
int64_t rein_settings_total_steps(const rein_settings *settings);

/* Whether some step of a run with these settings may have the metric; if not, that is the mistake of `setting`, which names it. Those of
 * rewards are known when the rewards are. */
rein_status rein_settings_check_metric(const rein_settings *settings, const char *setting, const char *metric, rein_error *err);

#endif
