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

/* Opens the tokenizer of a model directory: reads tokenizer.json, and tokenizer_config.json and chat_template.jinja if they exist. Or that
 * of a GGUF file, from its metadata. The caller closes *tokenizer; it is NULL on failure. Thread-safe. */
REIN_API rein_status rein_tokenizer_open(rein_tokenizer **tokenizer, const char *directory, rein_error *err);

/* 1 if the model has a tokenizer: its directory has tokenizer.json, or its GGUF file has one. Thread-safe. */
REIN_API int rein_tokenizer_exists(const char *model);

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
    /* [literals] With parse_special: ascending spans in which special tokens stay plain text, such as the contents of a chat. */
    const rein_span *literal;
    size_t literals;
    size_t max_tokens; /* a text with too many bytes to become so few tokens is refused before anything is encoded; 0: no limit */
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

/* Appends the bytes that an id stands for inside a text, which need not be whole characters; none for an id without a token. A special
 * token is its own text. */
REIN_API rein_status rein_tokenizer_bytes(rein_text *bytes, const rein_tokenizer *tokenizer, int32_t id, rein_error *err);

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

/* A chat template (Jinja) that is run: any template, with tools and variables. It never changes: any number of threads may use one. */
typedef struct rein_chat_template rein_chat_template;

/* Chat formats. Templates are programs (Jinja), which are run (section 5). Six formats have names, for models without a template; published
 * templates that are one of them are recognised by their exact text, and rendered by C code whose output was compared with Jinja's. The
 * values are part of the ABI: never renumbered. */
typedef enum rein_chat_kind {
    REIN_CHAT_RAW = 0,  /* the contents, one after another */
    REIN_CHAT_CHATML,   /* <|im_start|>role … <|im_end|>; SmolLM2, Qwen2 with their default system message */
    REIN_CHAT_QWEN2_5,  /* ChatML with a default system message; tool messages become user messages */
    REIN_CHAT_QWEN3,    /* as qwen2.5, with thinking, which is left out of all but the last turn */
    REIN_CHAT_LLAMA3,   /* <|start_header_id|>role<|end_header_id|> … <|eot_id|> */
    REIN_CHAT_LLAMA3_1, /* as llama3, with dates in the system message */
    REIN_CHAT_TEMPLATE  /* the tokenizer's own template, which is run: `run` */
} rein_chat_kind;

typedef struct rein_chat {
    rein_chat_kind kind;
    int always_generation; /* the template always adds the generation prompt */
    const char *system;    /* [system_length] the default system message as the template writes it (rein_chat_system); NULL: none */
    size_t system_length;
    const rein_chat_template
        *run;         /* the tokenizer's own template, which tools and tool calls need; NULL: none, or it cannot be run */
    const char *date; /* what strftime_now gives in `run`, as in rein_template_options; NULL: to ask for it is an error */
} rein_chat;

/* Finds the format of a tokenizer's own template: a recognised one, or REIN_CHAT_TEMPLATE. The chat borrows from the tokenizer. Errors:
 * there is no template, or it is neither known nor can it be run. On failure *chat stays as it was. Thread-safe. */
REIN_API rein_status rein_chat_of(rein_chat *chat, const rein_tokenizer *tokenizer, rein_error *err);

/* Recognises one of the named formats by the text of its template, which must outlive the chat. template_text NULL, no template, is an
 * error. On failure *chat stays as it was. Thread-safe. */
REIN_API rein_status rein_chat_recognise(rein_chat *chat, const char *template_text, size_t length, rein_error *err);

/* Finds a format by its name: raw, chatml, qwen2.5, qwen3, llama3, llama3.1. Thread-safe. */
REIN_API rein_status rein_chat_named(rein_chat *chat, const char *name, rein_error *err);

/* The name of a format ("template" for one that is run); NULL if the kind is invalid. Static storage; thread-safe. */
REIN_API const char *rein_chat_name(const rein_chat *chat);

/* Appends the default system message of a format, with the template's escapes \n, \\ and \' resolved; nothing if it has none.
 * Thread-safe. */
REIN_API rein_status rein_chat_system(rein_text *text, const rein_chat *chat, rein_error *err);

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

/* ---------------------------------------------------------------------------------------------------------- 5. chat templates */

struct rein_json; /* json.h */

/* Parses a template. A statement, filter or test that is not supported is an error with line and column. `tokens` is a JSON object of
 * what the template sees besides (bos_token, eos_token …), or NULL; it is copied. The caller closes *parsed; it is NULL on failure.
 * Thread-safe. */
REIN_API rein_status rein_chat_template_open(rein_chat_template **parsed, const char *text, size_t length,
                                             const struct rein_json *tokens, rein_error *err);

/* Parses the template of a tokenizer, which sees the tokenizer's named tokens. Where the files name a template "tool_use", that one is run
 * when there are tools. REIN_END: it has none. Otherwise as above. */
REIN_API rein_status rein_chat_template_of(rein_chat_template **parsed, const rein_tokenizer *tokenizer, rein_error *err);

/* 1 if a name, such as enable_thinking or strftime_now, occurs in the template, so that its value may change the text; else 0. Thread-safe. */
REIN_API int rein_chat_template_names(const rein_chat_template *parsed, const char *name);

/* Closes a template. NULL is fine. */
REIN_API void rein_chat_template_close(rein_chat_template *parsed);

/* A rendered conversation. {0} is empty. Encode the text with parse_special, without add_special, and with `literals` as literal spans:
 * those bytes come from messages, tools and variables, and must not become special tokens. (transformers parses special tokens in
 * contents too.) */
typedef struct rein_rendered {
    rein_text text;
    rein_span *literals; /* [n_literals] ascending */
    size_t n_literals;
    rein_span *generated; /* [n_generated] what the model writes, where the template says so with {% generation %} */
    size_t n_generated;
} rein_rendered;

/* Frees a rendered conversation and makes it {0} again. Harmless on {0}. */
REIN_API void rein_rendered_free(rein_rendered *rendered);

/* What a template sees besides the messages. NULL is {0}. */
typedef struct rein_template_options {
    int add_generation_prompt;
    const struct rein_json *tools;     /* an array, or NULL: none */
    const struct rein_json *documents; /* an array, or NULL: none */
    const struct rein_json *variables; /* an object (enable_thinking …), or NULL: none */
    const char *date; /* "2026-11-18" or "2026-11-18 09:30:00", for strftime_now; NULL: to ask for it is an error */
} rein_template_options;

/* Reads messages as clients of OpenAI's API send them, for the next call: contents of several parts become one text, the arguments of tool
 * calls objects, the role developer system; fields that are null are left out; reasoning_content, thinking and reasoning are names for the
 * same, of which templates read the first two. Errors name "messages[3].content". The caller frees
 * *messages, which is NULL on failure. Thread-safe. */
REIN_API rein_status rein_chat_messages_read(struct rein_json **messages, const struct rein_json *given, rein_error *err);

/* Renders messages, a JSON array of objects: role, content, tool_calls and whatever else the template reads. The text is byte for byte what transformers renders. `rendered` is {0}, and stays so on failure. Errors name line and
 * column of the template. Thread-safe. */
REIN_API rein_status rein_chat_template_render(rein_rendered *rendered, const rein_chat_template *parsed,
                                               const struct rein_json *messages, const rein_template_options *options,
                                               rein_error *err);

#ifdef __cplusplus
}
#endif
#endif
