/* chat_turn.c - how a turn ends in a template that is run. */
#include "model/chat.h"

#include <string.h>

/* The first special token of a text; -1: there is none. */
static rein_status first_special(int32_t *id, const rein_tokenizer *tokenizer, const char *text, size_t length, rein_error *err) {
    const rein_encoding how = {.parse_special = 1};
    rein_ids ids = {0};
    const rein_status status = rein_tokenizer_encode(&ids, tokenizer, text, length, &how, err);
    for (size_t i = 0; i < ids.count && *id < 0; i++)
        if (rein_tokenizer_is_special(tokenizer, ids.data[i])) *id = ids.data[i];
    rein_ids_free(&ids);
    return status;
}

/* The content is the last text that comes from the messages. A template that refuses this conversation has no known end of a turn. */
rein_status rein_template_turn_end(int32_t *id, const rein_tokenizer *tokenizer, const rein_chat *chat, rein_error *err) {
    json_t *turns = json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "user", "content", "a", "role", "assistant", "content", "rein");
    const rein_template_options options = {.date = chat->date ? chat->date : "2000-01-01"};
    rein_rendered rendered = {0};
    rein_error why = {0};
    *id = -1;
    if (!turns) return rein_fail(err, REIN_ENOMEM, "out of memory");
    rein_status status = rein_chat_template_render(&rendered, chat->run, turns, &options, &why);
    if (!status && rendered.n_literals) {
        const size_t from = rendered.literals[rendered.n_literals - 1].end;
        status = first_special(id, tokenizer, rendered.text.data + from, rendered.text.length - from, &why);
    }
    if (*id < 0) *id = rein_tokenizer_named(tokenizer).end;
    rein_rendered_free(&rendered);
    json_decref(turns);
    return status == REIN_ENOMEM ? rein_fail(err, status, "out of memory") : REIN_OK;
}

size_t rein_spans_after(rein_span *literals, const rein_span *spans, size_t n, size_t from) {
    size_t found = 0;
    for (size_t i = 0; i < n; i++)
        if (spans[i].end > from)
            literals[found++] = (rein_span){spans[i].begin > from ? spans[i].begin - from : 0, spans[i].end - from};
    return found;
}
