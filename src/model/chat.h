/* chat.h - what chats of the formats and of templates share. Private. */
#ifndef REIN_MODEL_CHAT_H
#define REIN_MODEL_CHAT_H

#include <stdbool.h>

#include "base/json.h"
#include "rein/tokenizer.h"

/* The token that ends an assistant's turn in a template: the first special token behind a content, or else the tokenizer's end token; -1:
 * there is neither. */
rein_status rein_template_turn_end(int32_t *id, const rein_tokenizer *tokenizer, const rein_chat *chat, rein_error *err);

/* The spans that end after `from`, as places after it: literals [n]. Returns how many there are. */
size_t rein_spans_after(rein_span *literals, const rein_span *spans, size_t n, size_t from);

/* 1 if a date is "YYYY-MM-DD" or "YYYY-MM-DD HH:MM:SS", as strftime_now takes it. */
bool rein_date_valid(const char *date);

#endif
