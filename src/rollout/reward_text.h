/* reward_text.h - the tokens that a reward model scores: a prompt with its answer, in training and as a judge alike. Private; thread-safe. */
#ifndef REIN_ROLLOUT_REWARD_TEXT_H
#define REIN_ROLLOUT_REWARD_TEXT_H

#include "rollout/conversation.h"

/* Appends the tokens of a plain text and its answer, which are encoded together, with the tokenizer's own special tokens; then end_id (-1:
 * none), unless they end with it. literal 1: special tokens that the answer spells out are text. max_tokens: as in rein_encoding. */
rein_status rein_reward_text_encode(rein_ids *ids, const rein_tokenizer *tokenizer, const char *prompt, const char *answer,
                                    size_t length, int literal, int32_t end_id, size_t max_tokens, rein_error *err);

/* Appends the tokens of a conversation that ends with the answer, exactly as the chat format or template renders it. */
rein_status rein_reward_chat_encode(rein_ids *ids, const rein_tokenizer *tokenizer, const rein_chat *chat,
                                    const rein_conversation *conversation, size_t max_tokens, rein_error *err);

#endif
