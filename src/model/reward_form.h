/* reward_form.h - what is written beside the weights of a reward model. Private. */
#ifndef REIN_MODEL_REWARD_FORM_H
#define REIN_MODEL_REWARD_FORM_H

#include "base/json.h"
#include "weight_type.h"
#include "weights.h"

/* Reads DIRECTORY/reward_model.json; without that file the form is not known. */
rein_status rein_reward_form_read(rein_reward_form *form, const char *directory, rein_error *err);

/* Writes it, if the form is known. quantize: of the model, or NULL. */
rein_status rein_reward_form_write(const rein_reward_form *form, const rein_weight_type *quantize, const char *directory,
                                   rein_error *err);

/* The token that pads sequences of a reward model, which must not be one that can end them: transformers scores the last token that is not
 * padding. That of config.json or the tokenizer if it is no end token, else another special token, which `name` gets for
 * tokenizer_config.json (else it stays {0}), else the last of the vocabulary. */
rein_status rein_reward_pad(int64_t *pad, rein_text *name, const rein_model *model, rein_error *err);

/* Makes the token the padding of the tokenizer in a directory. */
rein_status rein_reward_pad_tokenizer(const char *directory, const rein_text *name, rein_error *err);

#endif
