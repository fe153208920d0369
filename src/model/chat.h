/* chat.h - messages to the text a model was trained on, and which part of it the model has written.
 *
 * Templates are programs (Jinja); here the published ones are recognised by what they say, word for word, and rendered by C code that
 * was compared with Jinja. One that differs is refused, not guessed at. */
#ifndef REIN_MODEL_CHAT_H
#define REIN_MODEL_CHAT_H

#include "model/tokenizer.h"

/* The values are the rows of the table in chat.c. */
typedef enum rein_chat_kind {
    REIN_CHAT_RAW,     /* contents, one after the other */
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

/* The format a template is, from tokenizer_config.json (rein_tokenizer_chat_template). Thread-safe. */
rein_status rein_chat_recognise(rein_chat *chat, const char *template_text, size_t length, rein_error *err);

/* The format of a name: raw, chatml, qwen2.5, qwen3, llama3, llama3.1. Thread-safe. */
rein_status rein_chat_named(rein_chat *chat, const char *name, rein_error *err);

const char *rein_chat_name(const rein_chat *chat);

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

/* Appends the text of n messages, and fills spans[n] unless NULL. The text has its begin token: encode it with parse_special, without
 * add_special, and with the contents as literal spans. For training, encode the stretches between the borders of the assistant's spans
 * one by one, as generation does: then the ids of a stretch are the model's or they are not. Thread-safe. */
rein_status rein_chat_render(rein_text *text, rein_chat_span *spans, const rein_chat *chat, const rein_message *messages, size_t n,
                             const rein_chat_options *options, rein_error *err);

#endif
