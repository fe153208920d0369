/* logprobs.c - log-probabilities in the two forms of OpenAI's API. A number is written with the digits that give the same float again. */
#include <string.h>

#include "parts.h"

/* The length of the UTF-8 character that begins here; 0: these bytes are not UTF-8. */
static size_t character(const unsigned char *at, size_t length) {
    const size_t n = at[0] < 0x80                    ? 1
                     : at[0] >= 0xC2 && at[0] < 0xE0 ? 2
                     : at[0] >= 0xE0 && at[0] < 0xF0 ? 3
                     : at[0] >= 0xF0 && at[0] < 0xF5 ? 4
                                                     : 0;
    if (!n || n > length) return 0;
    for (size_t i = 1; i < n; i++)
        if ((at[i] & 0xC0) != 0x80) return 0;
    if ((at[0] == 0xE0 && at[1] < 0xA0) || (at[0] == 0xED && at[1] > 0x9F) || (at[0] == 0xF0 && at[1] < 0x90) ||
        (at[0] == 0xF4 && at[1] > 0x8F))
        return 0;
    return n;
}

/* The bytes of a token as text, U+FFFD for each byte that is not part of a character. */
static void token_text(rein_text *text, rein_text *bytes, const job *j, int32_t id) {
    text->length = bytes->length = 0;
    if (rein_tokenizer_bytes(bytes, j->s->options.tokenizer, id, NULL)) text->failed = 1;
    if (j->tokens_as_ids) {
        rein_text_format(text, "token_id:%d", (int)id);
        return;
    }
    for (size_t at = 0; at < bytes->length;) {
        const size_t length = character((const unsigned char *)bytes->data + at, bytes->length - at);
        rein_text_put_bytes(text, length ? bytes->data + at : "\xEF\xBF\xBD", length ? length : 3);
        at += length ? length : 1;
    }
}

/* A decoder that counts: text_offset is the number of characters of the text before a token. A character of several tokens counts when
 * it is complete. 0: no memory. */
static bool open_decoder(const job *j, choice *c, int skip_special) {
    if (!c->decoder && rein_stream_open(&c->decoder, j->s->options.tokenizer, skip_special, NULL)) c->offsets.failed = 1;
    return c->decoder;
}

static void count_characters(choice *c, rein_text *decoded, rein_status status) {
    if (status) c->offsets.failed = 1;
    for (size_t i = 0; i < decoded->length; i++) c->offset += (decoded->data[i] & 0xC0) != 0x80;
    c->offsets.failed |= decoded->failed;
    decoded->length = 0;
}

static void count_token(choice *c, int32_t id, rein_text *decoded) {
    decoded->length = 0;
    count_characters(c, decoded, rein_stream_push(decoded, c->decoder, id, NULL));
}

static void close_decoder(choice *c, rein_text *decoded) {
    decoded->length = 0;
    if (c->decoder) count_characters(c, decoded, rein_stream_finish(decoded, c->decoder, NULL));
    rein_stream_close(c->decoder);
    c->decoder = NULL;
}

static void put_text(rein_text *out, const rein_text *text) {
    rein_json_put_bytes(out, text->data ? text->data : "", text->length);
}

static void put_entry(rein_text *out, const job *j, int32_t id, float log_prob, rein_text *text, rein_text *bytes) {
    token_text(text, bytes, j, id);
    rein_text_put(out, "{\"token\": ");
    put_text(out, text);
    rein_text_put(out, ", \"logprob\": ");
    rein_json_put_float(out, log_prob);
    rein_text_put(out, ", \"bytes\": [");
    for (size_t i = 0; i < bytes->length; i++)
        rein_text_format(out, "%s%u", i ? ", " : "", (unsigned)(unsigned char)bytes->data[i]);
    rein_text_put(out, "]");
}

static void take_chat(const job *j, choice *c, const rein_sampled *token, rein_text *text, rein_text *bytes) {
    rein_text *out = &c->entries;
    if (out->length) rein_text_put(out, ", ");
    put_entry(out, j, token->id, token->log_prob, text, bytes);
    if (j->truncates) rein_text_put(out, ", \"sampler_logprob\": "), rein_json_put_float(out, token->sampler_log_prob);
    rein_text_put(out, ", \"top_logprobs\": [");
    for (size_t i = 0; i < j->top && i < token->n_top; i++) {
        if (i) rein_text_put(out, ", ");
        put_entry(out, j, token->top[i].id, token->top[i].log_prob, text, bytes);
        rein_text_put(out, "}");
    }
    rein_text_put(out, "]}");
}

static void put_value(rein_text *out, const char *between, const float *log_prob) {
    rein_text_put(out, between);
    if (log_prob) rein_json_put_float(out, *log_prob);
    else rein_text_put(out, "null");
}

/* Entries of a completion. A log-probability NULL is null: the first token of a prompt has none, and the sampler chose none of a prompt. Of tokens with the same text the most
 * probable is in top_logprobs, because keys of an object are unique. */
static void take_completion(const job *j, choice *c, int32_t id, const float *log_prob, const float *sampler_log_prob,
                            const rein_choice *top, size_t n_top, rein_text *text, rein_text *bytes) {
    const char *between = c->entries.length ? ", " : "";
    token_text(text, bytes, j, id);
    rein_text_put(&c->entries, between);
    put_text(&c->entries, text);
    put_value(&c->values, between, log_prob);
    if (j->truncates) put_value(&c->samplers, between, sampler_log_prob);
    rein_text_format(&c->offsets, "%s%zu", between, c->offset);
    count_token(c, id, bytes);
    rein_text_put(&c->tops, between);
    if (!log_prob) {
        rein_text_put(&c->tops, "null");
        return;
    }
    rein_text names[20] = {{0}};
    rein_text_put(&c->tops, "{");
    size_t written = 0;
    for (size_t i = 0; i < j->top && i < n_top && i < 20; i++) {
        bool seen = false;
        token_text(&names[i], bytes, j, top[i].id);
        for (size_t k = 0; k < i; k++)
            seen |=
                names[k].length == names[i].length && (!names[i].length || !memcmp(names[k].data, names[i].data, names[i].length));
        if (seen) continue;
        if (written++) rein_text_put(&c->tops, ", ");
        put_text(&c->tops, &names[i]);
        rein_text_put(&c->tops, ": ");
        rein_json_put_float(&c->tops, top[i].log_prob);
    }
    rein_text_put(&c->tops, "}");
    for (size_t i = 0; i < 20; i++) rein_text_free(&names[i]);
}

void logprobs_take(const job *j, choice *c, const rein_sampled *token) {
    rein_text text = {0}, bytes = {0};
    if (j->kind == JOB_CHAT) take_chat(j, c, token, &text, &bytes);
    else if (open_decoder(j, c, 1))
        take_completion(j, c, token->id, &token->log_prob, &token->sampler_log_prob, token->top, token->n_top, &text, &bytes);
    c->entries.failed |= text.failed | bytes.failed;
    rein_text_free(&text);
    rein_text_free(&bytes);
}

/* vLLM's form: for each token an object of ids, the token itself and the most probable ones. */
static void take_prompt_entry(const job *j, choice *c, int32_t id, float log_prob, const rein_choice *top, rein_text *text,
                              rein_text *bytes) {
    rein_text *out = &c->prompt_entries;
    bool listed = false;
    for (size_t i = 0; i < j->n_prompt_top; i++) listed |= top[i].id == id;
    rein_text_put(out, "{");
    for (size_t i = 0; i < j->n_prompt_top + !listed; i++) {
        const bool own = i == j->n_prompt_top;
        const int32_t one = own ? id : top[i].id;
        token_text(text, bytes, j, one);
        rein_text_format(out, "%s\"%d\": {\"logprob\": ", i ? ", " : "", (int)one);
        rein_json_put_float(out, own ? log_prob : top[i].log_prob);
        if (own) rein_text_put(out, ", \"rank\": null");
        else rein_text_format(out, ", \"rank\": %zu", i + 1);
        rein_text_put(out, ", \"decoded_token\": ");
        put_text(out, text);
        rein_text_put(out, "}");
    }
    rein_text_put(out, "}");
}

void logprobs_take_prompt(const job *j, choice *c, const rein_ids *prompt, const rein_sampled *token) {
    rein_text text = {0}, bytes = {0};
    const float *log_probs = token->prompt_log_probs;
    const bool echoed = j->echo && j->logprobs && open_decoder(j, c, 0);
    for (size_t i = 0; i < prompt->count && log_probs; i++) {
        const rein_choice *top = token->prompt_top ? token->prompt_top + i * token->n_top : NULL;
        if (echoed)
            take_completion(j, c, prompt->data[i], i ? &log_probs[i] : NULL, NULL, top, top ? token->n_top : 0, &text, &bytes);
        if (!j->prompt_logprobs) continue;
        if (i) rein_text_put(&c->prompt_entries, ", "), take_prompt_entry(j, c, prompt->data[i], log_probs[i], top, &text, &bytes);
        else rein_text_put(&c->prompt_entries, "null");
    }
    if (echoed) close_decoder(c, &bytes); /* the answer's text is decoded apart from the prompt's */
    c->entries.failed |= text.failed | bytes.failed;
    rein_text_free(&text);
    rein_text_free(&bytes);
}

static const char *entries(const rein_text *text) { return text->length ? text->data : ""; }

void logprobs_put(rein_text *out, const job *j, const choice *c) {
    rein_json_put_name(out, "logprobs");
    if (!j->logprobs) rein_text_put(out, "null");
    else if (j->kind == JOB_CHAT)
        rein_text_put(out, "{\"content\": ["), rein_text_put(out, entries(&c->entries)),
            rein_text_put(out, "], \"refusal\": null}");
    else {
        rein_text_put(out, "{\"tokens\": ["), rein_text_put(out, entries(&c->entries));
        rein_text_put(out, "], \"token_logprobs\": ["), rein_text_put(out, entries(&c->values));
        if (j->truncates) rein_text_put(out, "], \"sampler_logprobs\": ["), rein_text_put(out, entries(&c->samplers));
        rein_text_put(out, "], \"top_logprobs\": ["), rein_text_put(out, entries(&c->tops));
        rein_text_put(out, "], \"text_offset\": ["), rein_text_put(out, entries(&c->offsets));
        rein_text_put(out, "]}");
    }
    out->failed |= c->entries.failed | c->values.failed | c->samplers.failed | c->tops.failed | c->offsets.failed;
}

static void empty(rein_text *text) {
    text->length = 0;
    if (text->data) text->data[0] = 0;
}

void logprobs_clear(choice *c) { empty(&c->entries), empty(&c->values), empty(&c->samplers), empty(&c->tops), empty(&c->offsets); }
