/* reward_model.h - the judge model:DIR: a reward model that scores completions. Private. One thread at a time. */
#ifndef REIN_ROLLOUT_REWARD_MODEL_H
#define REIN_ROLLOUT_REWARD_MODEL_H

#include "base/json.h"
#include "reward.h"

/* The functions of its row in the table of judges (reward_judges.c). */
rein_status rein_judge_model_open(rein_judge *judge, const char *directory, rein_error *err);
void rein_judge_model_close(rein_judge *judge);
rein_status rein_judge_model_check(const rein_judge *judge, const rein_example *example, rein_error *err);
rein_status rein_judge_model_give(double *rewards, const rein_judge *judge, const rein_response *responses, size_t n,
                                  rein_error *err);

/* The part of a path that names the model: RUN for RUN/checkpoints/0007, else the last folder. Returns its length. */
size_t rein_judge_model_name(const char **name, const char *directory);

#endif
