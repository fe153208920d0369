/* tokenizer_decoder.c - decodes ids to text, one at a time.
 *
 * A token passes through the steps of the file's decoder; a step may hold back text until it knows more. Decoding many ids at once
 * uses the same code, so it cannot differ from the stream. The last step lets only complete characters out. */
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_parts.h"

typedef struct step_state {
    rein_text made;  /* output of the step for one token */
    size_t tokens;   /* number of tokens so far: an earlier step may join several into one */
    size_t stripped; /* Strip after Fuse: number of characters removed */
    bool past;       /* and whether another character has come */
} step_state;

struct rein_stream {
    const rein_tokenizer *tokenizer;
    bool skip_special;
    rein_text run; /* the bytes of consecutive "<0x..>" tokens */
    char tail[4];  /* the beginning of an incomplete character */
    size_t tail_length;
    step_state states[REIN_TOKENIZER_STEPS];
};

static const char replacement[] = "\xEF\xBF\xBD";

/* ---- the last step: complete characters; invalid bytes become U+FFFD, one for each longest beginning of a character */
static rein_status emit_bytes(rein_text *out, rein_stream *s, const char *bytes, size_t length, bool last, rein_error *err) {
    rein_status status = REIN_OK;
    for (size_t at = 0; !status && at < length;) {
        uint32_t c;
        size_t wrong;
        bool cut;
        const size_t n = rein_utf8_read(&c, &wrong, &cut, bytes + at, length - at);
        if (n) status = rein_text_append(out, bytes + at, n, err);
        else if (cut && !last) {
            memcpy(s->tail, bytes + at, length - at);
            s->tail_length = length - at;
            return REIN_OK;
        } else status = rein_text_append(out, replacement, 3, err);
        at += n ? n : wrong;
    }
    s->tail_length = 0;
    return status;
}

static rein_status emit(rein_text *out, rein_stream *s, const char *bytes, size_t length, rein_error *err) {
    char joined[8];
    while (s->tail_length && length) { /* adds a byte at a time to the tail until it is a character, or cannot become one */
        const size_t n = s->tail_length;
        memcpy(joined, s->tail, n);
        joined[n] = *bytes;
        s->tail_length = 0;
        const rein_status status = emit_bytes(out, s, joined, n + 1, false, err);
        if (status) return status;
        bytes++, length--;
    }
    return length ? emit_bytes(out, s, bytes, length, false, err) : REIN_OK;
}

/* ---- steps */
static rein_status feed(rein_text *out, rein_stream *s, size_t at, const char *text, size_t length, rein_error *err);

/* The byte that "<0xE2>" stands for, or -1. */
static int fallback_byte(const char *text, size_t length) {
    int byte = 0;
    if (length != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    for (size_t i = 3; i < 5; i++) {
        const char c = text[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                                 : -1;
        if (digit < 0) return -1;
        byte = byte * 16 + digit;
    }
    return byte;
}

/* A run of bytes is text if all of it is UTF-8; otherwise each of its bytes is U+FFFD. So it must be complete before it is
 * decoded. */
static rein_status end_run(rein_text *out, rein_stream *s, size_t at, rein_error *err) {
    const size_t length = s->run.length;
    rein_status status = REIN_OK;
    s->run.length = 0;
    if (!length) return REIN_OK;
    if (rein_utf8_valid(s->run.data, length) == length) return feed(out, s, at + 1, s->run.data, length, err);
    for (size_t i = 0; !status && i < length; i++) status = feed(out, s, at + 1, replacement, 3, err);
    return status;
}

static rein_status run_fallback(rein_text *out, rein_stream *s, size_t at, const char *text, size_t length, rein_error *err) {
    const int byte = fallback_byte(text, length);
    const char c = (char)byte;
    if (byte >= 0) return rein_text_append(&s->run, &c, 1, err);
    const rein_status status = end_run(out, s, at, err);
    return status ? status : feed(out, s, at + 1, text, length, err);
}

static rein_status run_strip(rein_text *out, rein_stream *s, size_t at, const char *text, size_t length, rein_error *err) {
    const rein_decoder *step = &s->tokenizer->decoders.steps[at];
    step_state *state = &s->states[at];
    if (!step->fused) state->stripped = 0, state->past = false;
    while (!state->past && state->stripped < step->strip && length >= step->from_length &&
           memcmp(text, step->from, step->from_length) == 0) {
        text += step->from_length, length -= step->from_length;
        state->stripped++;
    }
    if (length) state->past = true;
    return length || !step->fused ? feed(out, s, at + 1, text, length, err) : REIN_OK;
}

static rein_status run_replace(rein_text *out, rein_stream *s, size_t at, const char *text, size_t length, rein_error *err) {
    const rein_decoder *step = &s->tokenizer->decoders.steps[at];
    rein_text *made = &s->states[at].made;
    const bool drops = step->kind == REIN_DECODE_METASPACE && step->strip && s->states[at].tokens++ == 0;
    made->length = 0;
    const rein_status status =
        rein_text_replace(made, text, length, step->from, step->from_length, step->to, drops ? 0 : step->to_length, err);
    return status ? status : feed(out, s, at + 1, made->data, made->length, err);
}

/* A token with a character that stands for no byte (an added token) is its own text. */
static rein_status run_byte_level(rein_text *out, rein_stream *s, size_t at, const char *text, size_t length, rein_error *err) {
    rein_text *made = &s->states[at].made;
    made->length = 0;
    rein_status status = rein_text_reserve(made, length, err);
    for (size_t i = 0; !status && i < length;) {
        uint32_t c = 0;
        i += rein_utf8_next(&c, text + i);
        const int byte = rein_character_byte(c);
        if (byte < 0) return feed(out, s, at + 1, text, length, err);
        made->data[made->length++] = (char)byte;
    }
    return status ? status : feed(out, s, at + 1, made->data, made->length, err);
}

static rein_status run_spaces(rein_text *out, rein_stream *s, size_t at, const char *text, size_t length, rein_error *err) {
    const rein_status status = s->states[at].tokens++ ? feed(out, s, at + 1, " ", 1, err) : REIN_OK;
    return status ? status : feed(out, s, at + 1, text, length, err);
}

static rein_status feed(rein_text *out, rein_stream *s, size_t at, const char *text, size_t length, rein_error *err) {
    if (at == s->tokenizer->decoders.count) return emit(out, s, text, length, err);
    switch (s->tokenizer->decoders.steps[at].kind) {
    case REIN_DECODE_SPACES: return run_spaces(out, s, at, text, length, err);
    case REIN_DECODE_METASPACE:
    case REIN_DECODE_REPLACE: return run_replace(out, s, at, text, length, err);
    case REIN_DECODE_FALLBACK: return run_fallback(out, s, at, text, length, err);
    case REIN_DECODE_STRIP: return run_strip(out, s, at, text, length, err);
    case REIN_DECODE_BYTE_LEVEL: return run_byte_level(out, s, at, text, length, err);
    case REIN_DECODE_FUSE: break;
    }
    return feed(out, s, at + 1, text, length, err);
}

/* ---- the stream */
rein_status rein_stream_open(rein_stream **stream, const rein_tokenizer *tokenizer, int skip_special, rein_error *err) {
    *stream = calloc(1, sizeof **stream);
    if (!*stream) return rein_tokenizer_no_memory(err);
    (*stream)->tokenizer = tokenizer;
    (*stream)->skip_special = skip_special != 0;
    return REIN_OK;
}

static rein_status push(rein_text *out, rein_stream *s, int32_t id, rein_error *err) {
    const rein_added_set *matched = &s->tokenizer->normalized_set;
    size_t length;
    if (id < 0) return rein_fail_at(err, REIN_EINVAL, "id", -1, "is %d: ids are 0 or more", (int)id);
    const char *text = rein_vocabulary_text(&length, &s->tokenizer->vocabulary, id);
    if (!text || (s->skip_special && s->tokenizer->vocabulary.special[id])) return REIN_OK;
    if (matched->by_id && matched->by_id[id] >= 0)
        text = matched->entries[matched->by_id[id]].pattern, length = matched->entries[matched->by_id[id]].length;
    return feed(out, s, 0, text, length, err);
}

static void start_again(rein_stream *s) {
    s->run.length = s->tail_length = 0;
    for (size_t i = 0; i < REIN_TOKENIZER_STEPS; i++) s->states[i] = (step_state){.made = s->states[i].made};
}

static rein_status finish(rein_text *out, rein_stream *s, rein_error *err) {
    const rein_decoders *decoders = &s->tokenizer->decoders;
    rein_status status = REIN_OK;
    for (size_t i = 0; !status && i < decoders->count; i++)
        if (decoders->steps[i].kind == REIN_DECODE_FALLBACK) status = end_run(out, s, i, err);
    if (!status && s->tail_length) status = emit_bytes(out, s, s->tail, s->tail_length, true, err);
    start_again(s);
    return status;
}

rein_status rein_stream_push(rein_text *text, rein_stream *stream, int32_t id, rein_error *err) {
    const size_t before = text->length;
    const rein_status status = push(text, stream, id, err);
    if (status) rein_text_cut(text, before);
    return status;
}

rein_status rein_stream_finish(rein_text *text, rein_stream *stream, rein_error *err) {
    const size_t before = text->length;
    const rein_status status = finish(text, stream, err);
    if (status) rein_text_cut(text, before);
    return status;
}

void rein_stream_close(rein_stream *stream) {
    if (!stream) return;
    rein_text_free(&stream->run);
    for (size_t i = 0; i < REIN_TOKENIZER_STEPS; i++) rein_text_free(&stream->states[i].made);
    free(stream);
}

rein_status rein_tokenizer_decode(rein_text *text, const rein_tokenizer *tokenizer, const int32_t *ids, size_t n, int skip_special,
                                  rein_error *err) {
    const size_t before = text->length;
    rein_stream *stream;
    rein_status status = rein_stream_open(&stream, tokenizer, skip_special, err);
    for (size_t i = 0; !status && i < n; i++)
        status = ids[i] < 0 ? rein_fail_at(err, REIN_EINVAL, "ids", (int64_t)i, "is %d: ids are 0 or more", (int)ids[i])
                            : push(text, stream, ids[i], err);
    if (!status) status = finish(text, stream, err);
    if (!status) status = rein_text_append(text, "", 0, err);
    if (status) rein_text_cut(text, before);
    rein_stream_close(stream);
    return status;
}
