/* settings.h - questions that a run asks of its settings. Private. */
#ifndef REIN_TRAIN_SETTINGS_H
#define REIN_TRAIN_SETTINGS_H

#include "rein/train.h"

/* Steps of the learning rate's schedule: total_steps, or those of the loop. */
int64_t rein_settings_total_steps(const rein_settings *settings);

/* 1 if the objective has a KL to a reference. */
int rein_settings_use_reference(const rein_settings *settings);

#endif
