/* text.c - stops are found in the text, not in the tokens: they may begin and end in the middle of one. */
#include "text.h"

#include <string.h>

rein_status rein_growing_open(rein_growing *g, const rein_tokenizer *tokenizer, rein_error *err) {
    *g = (rein_growing){0};
    return tokenizer ? rein_stream_open(&g->stream, tokenizer, 1, err) : REIN_OK;
}

void rein_growing_close(rein_growing *g) {
    rein_stream_close(g->stream);
    rein_text_free(&g->text);
    *g = (rein_growing){0};
}

static size_t longest(const char *const *stops, size_t n) {
    size_t most = 0;
    for (size_t i = 0; i < n; i++)
        if (strlen(stops[i]) > most) most = strlen(stops[i]);
    return most;
}

/* Where the first stop at or after `from` begins, or the length of the text. */
static size_t find_stop(const rein_text *text, size_t from, const char *const *stops, size_t n) {
    for (size_t at = from; at < text->length; at++)
        for (size_t i = 0; i < n; i++) {
            const size_t length = strlen(stops[i]);
            if (length <= text->length - at && !memcmp(text->data + at, stops[i], length)) return at;
        }
    return text->length;
}

/* Where a stop text may start that is not complete yet. */
static size_t find_beginning(const rein_text *text, size_t from, const char *const *stops, size_t n) {
    for (size_t at = from; at < text->length; at++)
        for (size_t i = 0; i < n; i++)
            if (!strncmp(text->data + at, stops[i], text->length - at)) return at;
    return text->length;
}

static int look(rein_growing *g, const char *const *stops, size_t n, int last) {
    const size_t stop = find_stop(&g->text, g->certain, stops, n), most = longest(stops, n);
    if (stop < g->text.length) {
        g->text.data[stop] = 0;
        g->certain = g->text.length = stop;
        return 1;
    }
    const size_t tail = g->text.length - g->certain > most ? g->text.length - most : g->certain;
    g->certain = last ? g->text.length : find_beginning(&g->text, tail, stops, n);
    return 0;
}

rein_status rein_growing_push(int *stopped, rein_growing *g, int32_t id, const char *const *stops, size_t n, rein_error *err) {
    *stopped = 0;
    if (!g->stream) return REIN_OK;
    const rein_status status = rein_stream_push(&g->text, g->stream, id, err);
    if (!status) *stopped = look(g, stops, n, 0);
    return status;
}

rein_status rein_growing_finish(int *stopped, rein_growing *g, const char *const *stops, size_t n, rein_error *err) {
    *stopped = 0;
    if (!g->stream) return REIN_OK;
    const rein_status status = rein_stream_finish(&g->text, g->stream, err);
    if (!status) *stopped = look(g, stops, n, 1);
    return status;
}
