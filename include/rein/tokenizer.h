/* tokenizer.h - text to token ids and back, as the tokenizer.json of a model says, and messages to the text a model was trained on.
 *
 * Boundary: files of a model in, ids and text out. What a tokenizer makes is what Hugging Face's `tokenizers` makes of the same file, id
 * for id; what a chat becomes is what its template makes of it, byte for byte. What cannot be done alike is refused, not guessed at.
 * A rein_error * may be NULL, and a pointer to nothing (length 0); no other unless its line says so. A status is REIN_EIO for a file that
 * cannot be read, REIN_ENOMEM, or REIN_EINVAL. */
#ifndef REIN_TOKENIZER_H
#define REIN_TOKENIZER_H

#include "rein/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------------------ 1. text and ids */

/* A growing array that the caller owns and frees: {0} is empty; calls append, and on failure leave it as it was. The memory comes from
 * malloc. One thread at a time uses one. Texts grow in the same way (text.h). */
typedef struct rein_ids {
    int32_t *data;
    size_t count, capacity;
} rein_ids;

/* Bytes [begin, end) of a text. */
typedef struct rein_span {
    size_t begin, end;
} rein_span;

/* Makes it {0} again; harmless on {0}. */
REIN_API void rein_ids_free(rein_ids *ids);

/* --------------------------------------------------------------------------------------------------------------- 2. tokenizer */

/* Read once, never changed: any number of threads may use one at the same time. */
typedef struct rein_tokenizer rein_tokenizer;

/* Reads tokenizer.json, and tokenizer_config.json and chat_template.jinja where they are, from `directory`. The caller closes
 * *tokenizer, which is NULL on failure. Thread-safe. */
REIN_API rein_status rein_tokenizer_open(rein_tokenizer **tokenizer, const char *directory, rein_error *err);

/* The same from texts in memory, which need not outlive the call; `config` and `chat_template` may be NULL. `name` stands in messages
 * where the directory would. Thread-safe. */
typedef struct rein_tokenizer_files {
    const char *name;
    const char *tokenizer, *config, *chat_template;
    size_t tokenizer_length, config_length, chat_template_length;
} rein_tokenizer_files;
REIN_API rein_status rein_tokenizer_read(rein_tokenizer **tokenizer, const rein_tokenizer_files *files, rein_error *err);

/* NULL is fine. Nobody may be using it. */
REIN_API void rein_tokenizer_close(rein_tokenizer *tokenizer);

/* How a text is encoded. NULL is {0}: nothing is added, and special tokens that the text spells out stay plain text. */
typedef struct rein_encoding {
    int add_special;          /* what the post-processor puts around a text: the begin token, for many models */
    int parse_special;        /* special tokens spelled out in the text become their ids */
    const rein_span *literal; /* [literals] with parse_special: where they do not, in ascending order; a chat's contents, for one */
    size_t literals;
} rein_encoding;

/* Appends the ids of `text`. Text that is not UTF-8 is refused with the position of the first byte that is wrong. Thread-safe. */
REIN_API rein_status rein_tokenizer_encode(rein_ids *ids, const rein_tokenizer *tokenizer, const char *text, size_t length,
                                           const rein_encoding *how, rein_error *err);

/* Appends the text of ids[n], always UTF-8: bytes that make no character become U+FFFD. An id without a token (a model's vocabulary is
 * often padded) has no text. skip_special leaves special tokens out. Thread-safe. */
REIN_API rein_status rein_tokenizer_decode(rein_text *text, const rein_tokenizer *tokenizer, const int32_t *ids, size_t n,
                                           int skip_special, rein_error *err);

/* One more than the highest id. Thread-safe, as are the questions below. */
REIN_API size_t rein_tokenizer_size(const rein_tokenizer *tokenizer);

/* The id whose token is spelled like this in the file, or -1. */
REIN_API int32_t rein_tokenizer_id(const rein_tokenizer *tokenizer, const char *token, size_t length);

/* The token as the file spells it (byte-level files: in their alphabet, "Ġthe"), or NULL for an id without one. Lives as long as the
 * tokenizer. */
REIN_API const char *rein_tokenizer_token(size_t *length, const rein_tokenizer *tokenizer, int32_t id);

/* 1 if the id is a special token. */
REIN_API int rein_tokenizer_is_special(const rein_tokenizer *tokenizer, int32_t id);

/* The tokens tokenizer_config.json names, -1 where it names none or one that is not in the vocabulary. */
typedef struct rein_named_tokens {
    int32_t begin, end, pad, unknown;
} rein_named_tokens;
REIN_API rein_named_tokens rein_tokenizer_named(const rein_tokenizer *tokenizer);

/* The chat template as the files have it, or NULL: rein_chat_recognise knows it. Lives as long as the tokenizer. */
REIN_API const char *rein_tokenizer_chat_template(size_t *length, const rein_tokenizer *tokenizer);

/* -------------------------------------------------------------------------------------------------------- 3. streaming decode */

/* Decoding one id at a time: only whole characters come out, what is not whole yet waits. What push and finish append is, put together,
 * what rein_tokenizer_decode makes of all ids. The tokenizer must outlive the stream; one thread at a time uses a stream. */
typedef struct rein_stream rein_stream;

/* The caller closes *stream, which is NULL on failure. */
REIN_API rein_status rein_stream_open(rein_stream **stream, const rein_tokenizer *tokenizer, int skip_special, rein_error *err);

/* Appends what the id makes whole. */
REIN_API rein_status rein_stream_push(rein_text *text, rein_stream *stream, int32_t id, rein_error *err);

/* Appends what still waits; then the stream may start again. */
REIN_API rein_status rein_stream_finish(rein_text *text, rein_stream *stream, rein_error *err);

/* NULL is fine. */
REIN_API void rein_stream_close(rein_stream *stream);

/* ------------------------------------------------------------------------------------------------------------ 4. chat formats */

/* Templates are programs (Jinja): the published ones are recognised by what they say, word for word, and rendered by C code that was
 * compared with Jinja. The values are part of the ABI: never renumbered. */
typedef enum rein_chat_kind {
    REIN_CHAT_RAW = 0, /* contents, one after the other */
    REIN_CHAT_CHATML,  /* <|im_start|>role … <|im_end|>; SmolLM2, Qwen2 with their default system message */
    REIN_CHAT_QWEN2_5, /* ChatML, a default system message, tool messages as a user's */
    REIN_CHAT_QWEN3,   /* … and thinking, left out of all but the last turn */
    REIN_CHAT_LLAMA3,  /* <|start_header_id|>role<|end_header_id|> … <|eot_id|> */
    REIN_CHAT_LLAMA3_1 /* … and a system message with dates */
} rein_chat_kind;

typedef struct rein_chat {
    rein_chat_kind kind;
    char system[500];      /* what is said when there is no system message; "" is nothing */
    int always_generation; /* the template ends with the generation prompt, asked for or not */
} rein_chat;

/* The format a template is (rein_tokenizer_chat_template; NULL: there is none, which is an error). Thread-safe. */
REIN_API rein_status rein_chat_recognise(rein_chat *chat, const char *template_text, size_t length, rein_error *err);

/* The format of a name: raw, chatml, qwen2.5, qwen3, llama3, llama3.1. Thread-safe. */
REIN_API rein_status rein_chat_named(rein_chat *chat, const char *name, rein_error *err);

/* Its name; NULL for a kind that is none. Static storage; thread-safe. */
REIN_API const char *rein_chat_name(const rein_chat *chat);

typedef struct rein_message {
    const char *role; /* system, user, assistant, tool */
    const char *content;
    size_t length; /* of content, UTF-8 */
} rein_message;

typedef struct rein_chat_options {
    int add_generation_prompt; /* ends with the begin of an assistant's turn */
    int no_thinking;           /* qwen3, enable_thinking = false: the generation prompt has thinking behind it */
    const char *begin;         /* the begin token of the llama3 formats; NULL: <|begin_of_text|> */
    const char *date;          /* llama3.1's "Today Date"; NULL: 26 Jul 2024, the template's own */
} rein_chat_options;

/* Where a message stands in the text. For an assistant's, [content.begin, stop) is what the model writes, the end of the turn included. */
typedef struct rein_chat_span {
    rein_span content;
    size_t stop;
    int assistant;
} rein_chat_span;

/* Appends the text of messages[n], and fills spans[n] unless NULL; NULL options are {0}. The text has its begin token: encode it with
 * parse_special, without add_special, and with the contents as literal spans. For training, encode the stretches between the borders of
 * the assistant's spans one by one, as generation does: then the ids of a stretch are the model's or they are not. Thread-safe. */
REIN_API rein_status rein_chat_render(rein_text *text, rein_chat_span *spans, const rein_chat *chat, const rein_message *messages,
                                      size_t n, const rein_chat_options *options, rein_error *err);

#ifdef __cplusplus
}
#endif
#endif
