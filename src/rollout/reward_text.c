/* reward_text.c - the tokens that a reward model scores. Prompt and answer are one text, as TRL's RewardTrainer has them: the border between
 * them is not a border between tokens. */
#include "reward_text.h"

#include <stdlib.h>
#include <string.h>

rein_status rein_reward_text_encode(rein_ids *ids, const rein_tokenizer *tokenizer, const char *prompt, const char *answer,
                                    size_t length, int literal, int32_t end_id, size_t max_tokens, rein_error *err) {
    const size_t before = strlen(prompt), first = ids->count;
    const rein_span span = {before, before + length};
    const rein_encoding how = {
        .add_special = 1, .parse_special = 1, .literal = &span, .literals = literal != 0 && length, .max_tokens = max_tokens};
    rein_text text = {0};
    rein_status status = rein_text_append(&text, prompt, before, err);
    if (!status) status = rein_text_append(&text, answer, length, err);
    if (!status) status = rein_tokenizer_encode(ids, tokenizer, text.data, text.length, &how, err);
    const int ends = ids->count > first && ids->data[ids->count - 1] == end_id;
    if (!status && end_id >= 0 && !ends) status = rein_ids_append(ids, end_id, err);
    rein_text_free(&text);
    return status;
}

rein_status rein_reward_chat_encode(rein_ids *ids, const rein_tokenizer *tokenizer, const rein_chat *chat,
                                    const rein_conversation *conversation, size_t max_tokens, rein_error *err) {
    rein_rendered rendered = {0};
    rein_status status = rein_conversation_render(&rendered, tokenizer, chat, conversation, 0, 0, err);
    if (!status) status = rein_rendered_encode(ids, tokenizer, chat, &rendered, 0, max_tokens, err);
    rein_rendered_free(&rendered);
    return status;
}
