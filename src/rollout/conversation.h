/* conversation.h - chats that the tokenizer's own template renders. Private. */
#ifndef REIN_ROLLOUT_CONVERSATION_H
#define REIN_ROLLOUT_CONVERSATION_H

#include "base/json.h"
#include "rein/rollout.h"

/* A conversation as text, in its template or named format; generation 1: followed by the beginning of an assistant's turn. `rendered` is {0};
 * the caller frees it. Errors as rein_conversation_encode. */
rein_status rein_conversation_render(rein_rendered *rendered, const rein_tokenizer *tokenizer, const rein_chat *chat,
                                     const rein_conversation *conversation, int no_thinking, int generation, rein_error *err);

/* The same for messages [n] in a named format. */
rein_status rein_messages_render(rein_rendered *rendered, const rein_tokenizer *tokenizer, const rein_chat *chat,
                                 const rein_message *messages, size_t n, int no_thinking, int generation, rein_error *err);

/* Appends the ids of a rendered conversation from byte `from` on. */
rein_status rein_rendered_encode(rein_ids *ids, const rein_tokenizer *tokenizer, const rein_chat *chat,
                                 const rein_rendered *rendered, size_t from, size_t max_tokens, rein_error *err);

/* rein_messages_encode, by chat->run. */
rein_status rein_messages_by_template(rein_ids *ids, const rein_tokenizer *tokenizer, const rein_chat *chat,
                                      const rein_message *messages, size_t n, int no_thinking, size_t max_tokens, rein_error *err);

/* rein_example_encode of an example whose messages have more than a role and a content, or which has tools. */
rein_status rein_example_by_template(rein_ids *ids, const rein_tokenizer *tokenizer, const rein_example *example,
                                     const rein_prompting *how, rein_error *err);

#endif
