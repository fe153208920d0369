/* text.h - the text of a response as it grows, and the texts that stop it. Private. */
#ifndef REIN_ROLLOUT_TEXT_H
#define REIN_ROLLOUT_TEXT_H

#include "rein/tokenizer.h"

/* {0} is without a tokenizer: there is no text. */
typedef struct rein_growing {
    rein_stream *stream;
    rein_text text;  /* all of it */
    size_t certain;  /* bytes that no stop can take back any more */
    size_t reported; /* bytes of those that were given out */
} rein_growing;

rein_status rein_growing_open(rein_growing *growing, const rein_tokenizer *tokenizer, rein_error *err);
void rein_growing_close(rein_growing *growing);

/* Adds a token. *stopped: one of the stops [n] is in the text; then the text ends before the first of them. */
rein_status rein_growing_push(int *stopped, rein_growing *growing, int32_t id, const char *const *stops, size_t n, rein_error *err);

/* The end: what waited for a next token comes out as well; that may still make a stop whole. */
rein_status rein_growing_finish(int *stopped, rein_growing *growing, const char *const *stops, size_t n, rein_error *err);

#endif
