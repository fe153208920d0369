/* groups_choice.c - the tokens that a policy wrote, from a Choice of the OpenAI API.
 *
 * "token_id:N" (vLLM's return_tokens_as_token_ids) is the token itself. Otherwise the log-probs name tokens by their text: the tokens of the
 * content must be those, one by one. Where the policy cut the same text differently from the tokenizer, the texts are looked up in the
 * vocabulary. Without log-probs it is the content and, if the model ended its turn, what ends it. */
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_parts.h"
#include "train/groups.h"

static const char replacement[] = "\xEF\xBF\xBD";

typedef struct recorded {
    const json_t *list; /* of log-probs; NULL: there are none */
    const char *key;    /* of the list in the Choice */
} recorded;

void rein_written_free(rein_written *s) {
    rein_ids_free(&s->ids);
    rein_text_free(&s->text);
    free(s->log_probs);
    *s = (rein_written){0};
}

/* A refusal has its own list; an empty list counts as missing. */
static recorded recorded_of(const json_t *choice) {
    const json_t *log_probs = json_object_get(choice, "logprobs");
    const json_t *content = json_object_get(log_probs, "content"), *refusal = json_object_get(log_probs, "refusal");
    if (json_array_size(content)) return (recorded){content, "logprobs.content"};
    return (recorded){json_array_size(refusal) ? refusal : NULL, "logprobs.refusal"};
}

static const char *token_at(const recorded *r, size_t i) {
    return json_string_value(json_object_get(json_array_get(r->list, i), "token"));
}

/* N of "token_id:N", or -1. */
static int32_t id_named(const char *token) {
    static const char mark[] = "token_id:";
    char *end;
    if (!token || strncmp(token, mark, strlen(mark)) != 0) return -1;
    const char *digits = token + strlen(mark);
    const long long id = *digits >= '0' && *digits <= '9' ? strtoll(digits, &end, 10) : -1;
    return id >= 0 && id <= INT32_MAX && !*end ? (int32_t)id : -1;
}

static int names_ids(const recorded *r) {
    size_t i = 0;
    while (i < json_array_size(r->list) && id_named(token_at(r, i)) >= 0) i++;
    return r->list && i == json_array_size(r->list);
}

int rein_choice_has_ids(const json_t *choice) {
    const recorded r = recorded_of(choice);
    return names_ids(&r);
}

/* Of the entries, with their types checked. */
static rein_status read_log_probs(rein_written *s, const rein_group_reader *reader, const recorded *r, const char *path) {
    const size_t n = json_array_size(r->list);
    rein_status status = REIN_OK;
    s->log_probs = malloc(n * sizeof *s->log_probs);
    if (!s->log_probs) return rein_no_memory(reader->err);
    for (size_t i = 0; i < n && !status; i++) {
        const json_t *entry = json_array_get(r->list, i);
        char at[REIN_GROUP_PATH];
        rein_group_path(at, "%s%s[%zu].", path, r->key, i);
        rein_fields in = rein_group_fields(reader, entry, at);
        rein_fields_string(&in, "token");
        s->log_probs[i] = rein_group_log_prob(&in, "logprob", -1, json_object_get(entry, "logprob"));
        status = in.status;
    }
    return status;
}

/* ------------------------------------------------------------------------------------------------------------------ named by id */

/* Up to what may be half a character. */
static size_t certain_length(const char *plain) {
    const char *broken = strstr(plain, replacement);
    return broken ? (size_t)(broken - plain) : strlen(plain);
}

static int holds(const rein_text *text, const char *plain, size_t length) {
    for (size_t i = 0; i + length <= text->length; i++)
        if (memcmp(text->data + i, plain, length) == 0) return 1;
    return length == 0;
}

/* The text of the ids must contain the content: what a server cut off (thinking, calls of tools, a stop text) may stand around it. */
static rein_status take_ids(rein_written *s, const rein_group_reader *reader, const recorded *r, const char *path,
                            const char *plain) {
    char shown[2][REIN_TEXT_SHOWN];
    rein_text decoded = {0};
    rein_status status = REIN_OK;
    for (size_t i = 0; i < json_array_size(r->list) && !status; i++)
        status = rein_ids_append(&s->ids, id_named(token_at(r, i)), reader->err);
    if (!status) status = rein_tokenizer_decode(&s->text, reader->tokenizer, s->ids.data, s->ids.count, 0, reader->err);
    if (!status) status = rein_tokenizer_decode(&decoded, reader->tokenizer, s->ids.data, s->ids.count, 1, reader->err);
    if (!status && !holds(&decoded, plain, certain_length(plain))) {
        rein_fields in = rein_group_fields(reader, NULL, path);
        status = rein_fields_fail(&in, REIN_EINVAL, r->key, -1,
                                  ": the token ids say %s, the content is %s: they are of another tokenizer",
                                  rein_json_quote(shown[0], decoded.data ? decoded.data : ""), rein_json_quote(shown[1], plain));
    }
    rein_text_free(&decoded);
    return status;
}

/* ---------------------------------------------------------------------------------------------------------------- named by text */

/* 1 if a token may be shown as this text: as the file spells it, or decoded. Half a character cannot be compared. */
static rein_status may_be(int *may, const rein_group_reader *reader, int32_t id, const char *text, int is_end) {
    size_t length = 0;
    const char *spelled = rein_tokenizer_token(&length, reader->tokenizer, id);
    rein_text decoded = {0};
    const rein_status status = rein_tokenizer_decode(&decoded, reader->tokenizer, &id, 1, 0, reader->err);
    const char *plain = decoded.data ? decoded.data : "";
    *may = is_end && !*text;
    *may |= spelled && strlen(text) == length && memcmp(text, spelled, length) == 0;
    *may |= strcmp(text, plain) == 0 || strstr(plain, replacement) != NULL;
    *may |= *text == ' ' && strcmp(text + 1, plain) == 0; /* a decoder takes the first blank away */
    rein_text_free(&decoded);
    return status;
}

static rein_status encode(rein_written *s, const rein_group_reader *reader, const rein_rendered *written) {
    const rein_encoding how = {.parse_special = 1, .literal = written->literals, .literals = written->n_literals};
    return rein_tokenizer_encode(&s->ids, reader->tokenizer, written->text.data, written->text.length, &how, reader->err);
}

/* Compares the recorded tokens with those of the text, followed by the end of the turn if their number says so. *wrong is the position of the
 * first that differs, or the number of tokens. */
static rein_status match(rein_written *s, size_t *wrong, size_t *own, const rein_group_reader *reader, const recorded *r,
                         const rein_rendered *written) {
    const size_t n = json_array_size(r->list), ends = reader->end_ids.count;
    rein_status status = encode(s, reader, written);
    *own = s->ids.count;
    *wrong = 0;
    for (size_t i = 0; i < ends && n == *own + ends && !status; i++)
        status = rein_ids_append(&s->ids, reader->end_ids.data[i], reader->err);
    for (int may = s->ids.count == n; may && *wrong < n && !status; *wrong += may != 0)
        status = may_be(&may, reader, s->ids.data[*wrong], token_at(r, *wrong), *wrong >= *own);
    return status;
}

/* The bytes of a token as the vocabulary spells them. */
static rein_status spell(rein_text *spelled, const rein_group_reader *reader, const json_t *entry) {
    const json_t *token = json_object_get(entry, "token"), *bytes = json_object_get(entry, "bytes");
    const size_t n = json_is_array(bytes) ? json_array_size(bytes) : json_string_length(token);
    rein_status status = REIN_OK;
    char room[4];
    for (size_t i = 0; i < n && !status; i++) {
        const json_int_t given = json_integer_value(json_array_get(bytes, i));
        const char c = json_is_array(bytes) ? (char)(given & 0xFF) : json_string_value(token)[i];
        if (reader->tokenizer->bpe.byte_level)
            status = rein_text_append(spelled, room, rein_utf8_write(room, rein_byte_character((unsigned char)c)), reader->err);
        else status = rein_text_append(spelled, c == ' ' ? "▁" : &c, c == ' ' ? strlen("▁") : 1, reader->err);
    }
    return status;
}

/* The token that is spelled like an entry, or means its bytes; -1: none. An empty text at the end is the end of the turn. */
static rein_status find_id(int32_t *id, rein_text *spelled, const rein_group_reader *reader, const recorded *r, size_t i,
                           int by_bytes) {
    const char *token = token_at(r, i);
    const int end = !*token && i + 1 == json_array_size(r->list) && reader->end_ids.count == 1;
    rein_text_cut(spelled, 0);
    const rein_status status = by_bytes ? spell(spelled, reader, json_array_get(r->list, i))
                                        : rein_text_append(spelled, token, strlen(token), reader->err);
    *id = end               ? reader->end_ids.data[0]
          : spelled->length ? rein_tokenizer_id(reader->tokenizer, spelled->data, spelled->length)
                            : -1;
    return status;
}

/* 1 if the text of the ids is this one, with or without the end of the turn. */
static int is_text(const rein_text *decoded, const rein_text *text, const rein_text *end) {
    const size_t n = text->length;
    if (decoded->length < n || (n && memcmp(decoded->data, text->data, n) != 0)) return 0;
    return decoded->length == n || (decoded->length == n + end->length && memcmp(decoded->data + n, end->data, end->length) == 0);
}

/* *found if there is a token for each entry, and together they make the text. */
static rein_status look_up(rein_written *s, int *found, const rein_group_reader *reader, const recorded *r, const rein_text *text,
                           int by_bytes) {
    rein_text spelled = {0};
    rein_status status = REIN_OK;
    int32_t id = 0;
    rein_text_cut(&s->text, 0);
    s->ids.count = 0;
    for (size_t i = 0; i < json_array_size(r->list) && id >= 0 && !status; i++) {
        status = find_id(&id, &spelled, reader, r, i, by_bytes);
        if (!status && id >= 0) status = rein_ids_append(&s->ids, id, reader->err);
    }
    if (!status) status = rein_tokenizer_decode(&s->text, reader->tokenizer, s->ids.data, s->ids.count, 0, reader->err);
    *found = !status && id >= 0 && is_text(&s->text, text, &reader->end);
    rein_text_free(&spelled);
    return status;
}

static rein_status say_disagreement(const rein_group_reader *reader, const recorded *r, const char *path, size_t own, size_t wrong,
                                    int32_t id) {
    rein_fields in = rein_group_fields(reader, NULL, path);
    const size_t n = json_array_size(r->list), ends = reader->end_ids.count;
    char shown[2][REIN_TEXT_SHOWN], spelled[REIN_TEXT_SHOWN] = "", key[60];
    size_t length = 0;
    const char *token = rein_tokenizer_token(&length, reader->tokenizer, id);
    if (n != own && n != own + ends)
        return rein_fields_fail(&in, REIN_EINVAL, r->key, -1,
                                "has %zu entries, the content has %zu tokens (%zu with the end of the turn): they must agree", n,
                                own, own + ends);
    if (token) snprintf(spelled, sizeof spelled, "%.*s", (int)(length < 60 ? length : 60), token);
    snprintf(key, sizeof key, "%s[%zu].token", r->key, wrong);
    return rein_fields_fail(&in, REIN_EINVAL, key, -1, "is %s: of the %zu tokens of the content, this one is %s",
                            rein_json_quote(shown[0], token_at(r, wrong)), own, rein_json_quote(shown[1], spelled));
}

static rein_status take_texts(rein_written *s, const rein_group_reader *reader, const recorded *r, const char *path,
                              const rein_rendered *written) {
    const rein_text *text = &written->text;
    const size_t n = json_array_size(r->list);
    size_t wrong = 0, own = 0;
    int found = 0;
    rein_status status = match(s, &wrong, &own, reader, r, written);
    const int32_t other = wrong < s->ids.count ? s->ids.data[wrong] : -1;
    if (!status && wrong == n) {
        status = rein_text_append(&s->text, text->data, text->length, reader->err);
        return status || n == own ? status : rein_text_append(&s->text, reader->end.data, reader->end.length, reader->err);
    }
    for (int by_bytes = 0; by_bytes < 2 && !found && !status; by_bytes++) status = look_up(s, &found, reader, r, text, by_bytes);
    return status || found ? status : say_disagreement(reader, r, path, own, wrong, other);
}

/* ------------------------------------------------------------------------------------------------------------------- all of it */

static rein_status check_lists(rein_fields *in, const rein_group_reader *reader) {
    char path[REIN_GROUP_PATH];
    rein_group_path(path, "%slogprobs.", in->path);
    rein_fields lists = rein_group_fields(reader, rein_fields_object(in, "logprobs"), path);
    lists.status = in->status;
    rein_fields_array(&lists, "content");
    rein_fields_array(&lists, "refusal");
    return in->status = lists.status;
}

/* 1 if the model ended its turn itself: a stop text (stop_reason) did not. */
static int ended(const json_t *choice, const char *finish) {
    return (!strcmp(finish, "stop") || !strcmp(finish, "tool_calls") || !strcmp(finish, "function_call")) &&
           !json_is_string(json_object_get(choice, "stop_reason"));
}

static rein_status take_content(rein_written *s, const rein_group_reader *reader, const rein_rendered *written, int with_end) {
    rein_status status = encode(s, reader, written);
    if (!status) status = rein_text_append(&s->text, written->text.data, written->text.length, reader->err);
    if (!status && with_end) status = rein_text_append(&s->text, reader->end.data, reader->end.length, reader->err);
    for (size_t i = 0; with_end && i < reader->end_ids.count && !status; i++)
        status = rein_ids_append(&s->ids, reader->end_ids.data[i], reader->err);
    return status;
}

rein_status rein_choice_read(rein_written *s, const rein_group_reader *reader, const json_t *choice, const char *path,
                             const rein_rendered *written, const char *plain) {
    rein_fields in = rein_group_fields(reader, choice, path);
    const recorded r = recorded_of(choice);
    const char *finish = rein_fields_string_or(&in, "finish_reason", "");
    if (check_lists(&in, reader)) return in.status;
    s->truncated = strcmp(finish, "length") == 0;
    if (!r.list) return take_content(s, reader, written, ended(choice, finish));
    const rein_status status = read_log_probs(s, reader, &r, path);
    if (status) return status;
    return names_ids(&r) ? take_ids(s, reader, &r, path, plain) : take_texts(s, reader, &r, path, written);
}
