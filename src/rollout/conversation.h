/* conversation.h - chats that the tokenizer's own template renders. Private. */
#ifndef REIN_ROLLOUT_CONVERSATION_H
#define REIN_ROLLOUT_CONVERSATION_H

#include "base/json.h"
#include "rein/rollout.h"

/* rein_messages_encode, by chat->run. */
rein_status rein_messages_by_template(rein_ids *ids, const rein_tokenizer *tokenizer, const rein_chat *chat,
                                      const rein_message *messages, size_t n, int no_thinking, size_t max_tokens, rein_error *err);

/* rein_example_encode of an example whose messages have more than a role and a content, or which has tools. */
rein_status rein_example_by_template(rein_ids *ids, const rein_tokenizer *tokenizer, const rein_example *example,
                                     const rein_prompting *how, rein_error *err);

#endif
