/* reward_models.h - the reward models that settings name, model:DIR among the judges: where they are, and what they are made of. Private. */
#ifndef REIN_TRAIN_REWARD_MODELS_H
#define REIN_TRAIN_REWARD_MODELS_H

#include "base/json.h"
#include "settings.h"

/* Makes their paths absolute; a run, RUN or RUN@STEP, becomes the directory of its checkpoint, which is verified. So a run keeps the reward model
 * that it was started with. Paths that are so already do not change. */
rein_status rein_settings_place_reward_models(rein_settings *settings, rein_error *err);

/* Adds their files, with keys "reward_model/0/config.json", and those of the models below adapters. */
rein_status rein_fingerprint_reward_models(json_t *files, const rein_settings *settings, rein_error *err);

/* The bytes that their weights take when they are open. One that cannot be read counts 0: opening it says why. */
size_t rein_reward_models_bytes(const rein_settings *settings, const rein_exec *exec);

#endif
