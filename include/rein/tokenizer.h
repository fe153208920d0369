/* tokenizer.h - text to token ids and back, as the tokenizer.json of a model defines it, and chat messages to text.
 *
 * Boundary: files of a model in, ids and text out. The ids are those that Hugging Face's `tokenizers` gives for the same file; the
 * text of a chat is byte for byte what its template renders. What cannot be reproduced exactly is an error, never an
 * approximation. A rein_error * may be NULL, and so may a pointer to an array of length 0; other pointers only where the comment
 * says so. Failures are REIN_EIO for a file that cannot be read, REIN_ENOMEM, or REIN_EINVAL. */
#ifndef REIN_TOKENIZER_H
#define REIN_TOKENIZER_H

#include "rein/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------------------ 1. text and ids */

/* A growing array that the caller owns and frees. {0} is empty; calls append, and leave it unchanged on failure. The memory comes
 * from malloc. One thread at a time. Texts grow in the same way (text.h). */
typedef struct rein_ids {
    int32_t *data;
    size_t count, capacity;
} rein_ids;

/* Bytes [begin, end) of a text. */
typedef struct rein_span {
    size_t begin, end;
} rein_span;

/* Frees the memory and makes it {0} again; {0} is fine. */
REIN_API void rein_ids_free(rein_ids *ids);

/* Appends one id. */
REIN_API rein_status rein_ids_append(rein_ids *ids, int32_t id, rein_error *err);

/* --------------------------------------------------------------------------------------------------------------- 2. tokenizer */

/* A tokenizer. It never changes: any number of threads may use it. */
typedef struct rein_tokenizer rein_tokenizer;

/* Opens the tokenizer of a model directory: reads tokenizer.json, and tokenizer_config.json and chat_template.jinja if they exist.
 * The caller closes *tokenizer; it is NULL on failure. Thread-safe. */
REIN_API rein_status rein_tokenizer_open(rein_tokenizer **tokenizer, const char *directory, rein_error *err);

/* Opens a tokenizer from files in memory, which are needed only during the call; `config` and `chat_template` may be NULL. `name`
 * is used in messages in place of the directory. Thread-safe. */
typedef struct rein_tokenizer_files {
    const char *name;
    const char *tokenizer, *config, *chat_template;
    size_t tokenizer_length, config_length, chat_template_length;
} rein_tokenizer_files;
REIN_API rein_status rein_tokenizer_read(rein_tokenizer **tokenizer, const rein_tokenizer_files *files, rein_error *err);

/* Closes a tokenizer that no thread is using. NULL is fine. */
REIN_API void rein_tokenizer_close(rein_tokenizer *tokenizer);

/* How a text is encoded. NULL is {0}: no tokens are added, and special tokens written in the text are plain text. */
typedef struct rein_encoding {
    int add_special;   /* adds the tokens of the post-processor: for many models the begin token */
    int parse_special; /* special tokens written in the text become their ids */
    const rein_span
        *literal; /* [literals] with parse_special: ascending spans in which they stay plain text, such as the contents of a chat */
    size_t literals;
} rein_encoding;

/* Encodes a text: appends its ids. Text that is not UTF-8 is an error that names the first invalid byte. Thread-safe. */
REIN_API rein_status rein_tokenizer_encode(rein_ids *ids, const rein_tokenizer *tokenizer, const char *text, size_t length,
                                           const rein_encoding *how, rein_error *err);

/* Decodes ids [n]: appends their text, which is always UTF-8: invalid bytes become U+FFFD. An id without a token (the vocabulary
 * of a model is often padded) has no text. With skip_special special tokens are left out. Thread-safe. */
REIN_API rein_status rein_tokenizer_decode(rein_text *text, const rein_tokenizer *tokenizer, const int32_t *ids, size_t n,
                                           int skip_special, rein_error *err);

/* The highest id + 1. Thread-safe, as are the functions below. */
REIN_API size_t rein_tokenizer_size(const rein_tokenizer *tokenizer);

/* The id of a token as the file spells it, or -1. */
REIN_API int32_t rein_tokenizer_id(const rein_tokenizer *tokenizer, const char *token, size_t length);

/* The token of an id as the file spells it (byte-level files use their own alphabet: "Ġthe"), or NULL for an id without a token.
 * Lives as long as the tokenizer. */
REIN_API const char *rein_tokenizer_token(size_t *length, const rein_tokenizer *tokenizer, int32_t id);

/* Whether the id is a special token: 1 or 0. */
REIN_API int rein_tokenizer_is_special(const rein_tokenizer *tokenizer, int32_t id);

/* The tokens that tokenizer_config.json names; -1 for one that it does not name or that is not in the vocabulary. */
typedef struct rein_named_tokens {
    int32_t begin, end, pad, unknown;
} rein_named_tokens;
REIN_API rein_named_tokens rein_tokenizer_named(const rein_tokenizer *tokenizer);

/* The chat template of the files, for rein_chat_recognise, or NULL. Lives as long as the tokenizer. */
REIN_API const char *rein_tokenizer_chat_template(size_t *length, const rein_tokenizer *tokenizer);

/* -------------------------------------------------------------------------------------------------------- 3. streaming decode */

/* A decoder that takes one id at a time and returns only complete characters. What push and finish append adds up to what
 * rein_tokenizer_decode returns for all ids. The tokenizer must outlive the stream. One thread at a time. */
typedef struct rein_stream rein_stream;

/* Opens a stream. The caller closes *stream; it is NULL on failure. */
REIN_API rein_status rein_stream_open(rein_stream **stream, const rein_tokenizer *tokenizer, int skip_special, rein_error *err);

/* Decodes one id: appends the characters that it completes. */
REIN_API rein_status rein_stream_push(rein_text *text, rein_stream *stream, int32_t id, rein_error *err);

/* Ends the text: appends what is left, also if it is not a complete character. Then the stream may be used again. */
REIN_API rein_status rein_stream_finish(rein_text *text, rein_stream *stream, rein_error *err);

/* Closes a stream. NULL is fine. */
REIN_API void rein_stream_close(rein_stream *stream);

/* ------------------------------------------------------------------------------------------------------------ 4. chat formats */

/* Chat formats. Templates are programs (Jinja): the published ones are recognised by their exact text, and rendered by C code
 * whose output was compared with Jinja's. The values are part of the ABI: never renumbered. */
typedef enum rein_chat_kind {
    REIN_CHAT_RAW = 0, /* the contents, one after another */
    REIN_CHAT_CHATML,  /* <|im_start|>role … <|im_end|>; SmolLM2, Qwen2 with their default system message */
    REIN_CHAT_QWEN2_5, /* ChatML with a default system message; tool messages become user messages */
    REIN_CHAT_QWEN3,   /* as qwen2.5, with thinking, which is left out of all but the last turn */
    REIN_CHAT_LLAMA3,  /* <|start_header_id|>role<|end_header_id|> … <|eot_id|> */
    REIN_CHAT_LLAMA3_1 /* as llama3, with dates in the system message */
} rein_chat_kind;

typedef struct rein_chat {
    rein_chat_kind kind;
    char system[500];      /* the default system message; "": none */
    int always_generation; /* the template always adds the generation prompt */
} rein_chat;

/* Finds the format of a template (rein_tokenizer_chat_template). template_text NULL, no template, is an error. Thread-safe. */
REIN_API rein_status rein_chat_recognise(rein_chat *chat, const char *template_text, size_t length, rein_error *err);

/* Finds a format by its name: raw, chatml, qwen2.5, qwen3, llama3, llama3.1. Thread-safe. */
REIN_API rein_status rein_chat_named(rein_chat *chat, const char *name, rein_error *err);

/* The name of a format; NULL if the kind is invalid. Static storage; thread-safe. */
REIN_API const char *rein_chat_name(const rein_chat *chat);

typedef struct rein_message {
    const char *role; /* system, user, assistant, tool */
    const char *content;
    size_t length; /* of content, UTF-8 */
} rein_message;

typedef struct rein_chat_options {
    int add_generation_prompt; /* the text ends with the beginning of an assistant turn */
    int no_thinking;           /* qwen3 with enable_thinking = false: the generation prompt contains an empty thinking part */
    const char *begin;         /* the begin token of the llama3 formats; NULL: <|begin_of_text|> */
    const char *date;          /* "Today Date" of llama3.1; NULL: 26 Jul 2024, as in the template */
} rein_chat_options;

/* Where a message is in the text. For an assistant message, [content.begin, stop) is what the model writes, including the end of
 * the turn. */
typedef struct rein_chat_span {
    rein_span content;
    size_t stop;
    int assistant;
} rein_chat_span;

/* Renders a chat: appends the text of messages [n], and fills spans [n] unless NULL. options may be NULL: {0}. The text contains
 * its begin token: encode it with parse_special, without add_special, and with the contents as literal spans. For training, encode
 * the parts between the borders of the assistant spans separately, as generation does: then each part consists either of the
 * model's own ids or of none of them. Thread-safe. */
REIN_API rein_status rein_chat_render(rein_text *text, rein_chat_span *spans, const rein_chat *chat, const rein_message *messages,
                                      size_t n, const rein_chat_options *options, rein_error *err);

#ifdef __cplusplus
}
#endif
#endif
