/* asker.h - inside of an asker, for the loop. Private. */
#ifndef REIN_TRAIN_ASKER_H
#define REIN_TRAIN_ASKER_H

#include "rein/train.h"

struct rein_asker {
    rein_settings settings;
    rein_model_info info;
    rein_tokenizer *tokenizer;
    rein_task *task, *eval_task; /* eval_task may be `task` */
    rein_split eval_split;
    rein_reward *reward;
    rein_chat chat;
    rein_prompting prompting;
    char stops[REIN_TEXT_SETTING]; /* cut apart at the ends of its lines */
    const char *stop_list[64];
    size_t n_stops;
};

/* How examples are sampled; the caller adds which. */
rein_asking rein_asker_asking(rein_asker *asker, rein_policy policy, rein_exec exec);

#endif
