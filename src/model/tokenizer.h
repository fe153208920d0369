/* tokenizer.h - text to token ids and back, as the tokenizer.json of a model says.
 *
 * A tokenizer is read once and never changes: any number of threads may use one at the same time. What it makes is what Hugging Face's
 * `tokenizers` makes of the same file, id for id. What it cannot do alike is refused when the file is opened. */
#ifndef REIN_MODEL_TOKENIZER_H
#define REIN_MODEL_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "rein/base.h"

typedef struct rein_tokenizer rein_tokenizer;

/* Growing arrays that the caller owns: {0} is empty, calls append, and on failure leave them as they were. */
typedef struct rein_ids {
    int32_t *data;
    size_t count, capacity;
} rein_ids;

typedef struct rein_text {
    char *data; /* followed by a NUL that `length` does not count, once anything was appended */
    size_t length, capacity;
} rein_text;

void rein_ids_free(rein_ids *ids);
void rein_text_free(rein_text *text);

/* Bytes [begin, end). */
typedef struct rein_span {
    size_t begin, end;
} rein_span;

/* Reads tokenizer.json, and tokenizer_config.json and chat_template.jinja where they are, from `directory`. On success the caller owns
 * *tokenizer and closes it. Thread-safe. */
rein_status rein_tokenizer_open(rein_tokenizer **tokenizer, const char *directory, rein_error *err);

/* The same from JSON texts in memory; `config` and `chat_template` may be NULL. `name` stands in messages where the file would. */
typedef struct rein_tokenizer_files {
    const char *name;
    const char *tokenizer, *config, *chat_template;
    size_t tokenizer_length, config_length, chat_template_length;
} rein_tokenizer_files;
rein_status rein_tokenizer_read(rein_tokenizer **tokenizer, const rein_tokenizer_files *files, rein_error *err);

/* NULL is fine. */
void rein_tokenizer_close(rein_tokenizer *tokenizer);

/* How a text is encoded. NULL is {0}: nothing is added, and special tokens that the text spells out stay plain text. */
typedef struct rein_encoding {
    int add_special;          /* what the post-processor puts around a text: the begin token, for many models */
    int parse_special;        /* special tokens spelled out in the text become their ids */
    const rein_span *literal; /* with parse_special: where they do not, in ascending order; a chat's contents, for one */
    size_t literals;
} rein_encoding;

/* Appends the ids of `text`. Text that is not UTF-8 is refused with the position of the first byte that is wrong. Thread-safe. */
rein_status rein_tokenizer_encode(rein_ids *ids, const rein_tokenizer *tokenizer, const char *text, size_t length,
                                  const rein_encoding *how, rein_error *err);

/* Appends the text of n ids, always UTF-8: bytes that make no character become U+FFFD. An id without a token (a model's vocabulary is
 * often padded) has no text. skip_special leaves special tokens out. Thread-safe. */
rein_status rein_tokenizer_decode(rein_text *text, const rein_tokenizer *tokenizer, const int32_t *ids, size_t n, int skip_special,
                                  rein_error *err);

/* The same one id at a time: only whole characters come out, what is not whole yet waits. What push and finish append is, put together,
 * what decode makes of all ids. The tokenizer must outlive the stream; one thread at a time uses a stream. */
typedef struct rein_stream rein_stream;
rein_status rein_stream_open(rein_stream **stream, const rein_tokenizer *tokenizer, int skip_special, rein_error *err);
rein_status rein_stream_push(rein_text *text, rein_stream *stream, int32_t id, rein_error *err);
rein_status rein_stream_finish(rein_text *text, rein_stream *stream, rein_error *err); /* then it may start again */
void rein_stream_close(rein_stream *stream);

/* One more than the highest id. */
size_t rein_tokenizer_size(const rein_tokenizer *tokenizer);

/* The id whose token is spelled like this in the file, or -1. */
int32_t rein_tokenizer_id(const rein_tokenizer *tokenizer, const char *token, size_t length);

/* The token as the file spells it (byte-level files: in their alphabet, "Ġthe"), or NULL for an id without one. Lives as long as the
 * tokenizer. */
const char *rein_tokenizer_token(size_t *length, const rein_tokenizer *tokenizer, int32_t id);

/* 1 if the id is a special token. */
int rein_tokenizer_is_special(const rein_tokenizer *tokenizer, int32_t id);

/* The tokens tokenizer_config.json names, -1 where it names none or one that is not in the vocabulary. */
typedef struct rein_named_tokens {
    int32_t begin, end, pad, unknown;
} rein_named_tokens;
rein_named_tokens rein_tokenizer_named(const rein_tokenizer *tokenizer);

/* The chat template as the files have it, or NULL: chat.h recognises it. Lives as long as the tokenizer. */
const char *rein_tokenizer_chat_template(size_t *length, const rein_tokenizer *tokenizer);

#endif
