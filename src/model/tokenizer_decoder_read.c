/* tokenizer_decoder_read.c - reads the decoder of a file. */
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_parts.h"

static rein_status read_replace(rein_decoder *step, const json_t *object, const rein_place *place, rein_error *err) {
    const char *from, *to;
    bool is_regex;
    rein_status status = rein_json_pattern(&from, &step->from_length, &is_regex, object, place, err);
    if (!status && is_regex) return rein_place_fail(place, err, "a decoder that replaces a Regex is not supported: a String is");
    if (!status && step->fused) return rein_place_fail(place, err, "Replace after Fuse is not supported: put it before Fuse");
    if (!status) status = rein_json_text(&to, &step->to_length, object, "content", place, err);
    if (!status) status = rein_text_copy(&step->from, from, step->from_length, err);
    return status ? status : rein_text_copy(&step->to, to, step->to_length, err);
}

static rein_status read_strip(rein_decoder *step, const json_t *object, const rein_place *place, rein_error *err) {
    const json_t *start = json_object_get(object, "start"), *stop = json_object_get(object, "stop");
    const char *content;
    uint32_t c;
    rein_status status = rein_json_text(&content, &step->from_length, object, "content", place, err);
    if (status) return status;
    if (!step->from_length || rein_utf8_next(&c, content) != step->from_length)
        return rein_place_fail(place, err, "\"content\" is not one character");
    if (!json_is_integer(start) || json_integer_value(start) < 0 || json_integer_value(start) > INT32_MAX)
        return rein_place_fail(place, err, "\"start\" is not an integer of 0 or more");
    if (!json_is_integer(stop) || json_integer_value(stop) != 0)
        return rein_place_fail(place, err, "\"stop\" is not 0: only 0 is supported");
    step->strip = (size_t)json_integer_value(start);
    return rein_text_copy(&step->from, content, step->from_length, err);
}

/* As a pre-tokenizer Metaspace may prepend a blank; then the first token loses its blanks here. */
static rein_status read_metaspace(rein_decoder *step, const json_t *object, const rein_place *place, rein_error *err) {
    const char *mark, *scheme = json_string_value(json_object_get(object, "prepend_scheme"));
    uint32_t c;
    bool prefix;
    rein_status status = rein_json_text(&mark, &step->from_length, object, "replacement", place, err);
    if (!status) status = rein_json_flag(&prefix, object, "add_prefix_space", true, place, err);
    if (status) return status;
    if (!step->from_length || rein_utf8_next(&c, mark) != step->from_length)
        return rein_place_fail(place, err, "\"replacement\" is not one character");
    if (step->fused) return rein_place_fail(place, err, "Metaspace after Fuse is not supported: put it before Fuse");
    step->strip = scheme ? strcmp(scheme, "never") != 0 : prefix;
    step->to_length = 1;
    status = rein_text_copy(&step->from, mark, step->from_length, err);
    return status ? status : rein_text_copy(&step->to, " ", 1, err);
}

static rein_status read_step(void *context, const char *type, const json_t *object, const rein_place *place, rein_error *err) {
    rein_decoders *all = context;
    const rein_decoder *last = all->count ? &all->steps[all->count - 1] : NULL;
    if (last && last->kind == REIN_DECODE_BYTE_LEVEL)
        return rein_place_fail(place, err, "%.60s comes after ByteLevel, which must be the last step", type);
    if (all->count == REIN_TOKENIZER_STEPS)
        return rein_place_fail(place, err, "there are more than %d decoders", REIN_TOKENIZER_STEPS);
    rein_decoder *step = &all->steps[all->count++];
    step->fused = last && (last->fused || last->kind == REIN_DECODE_FUSE);
    if (strcmp(type, "Replace") == 0) return step->kind = REIN_DECODE_REPLACE, read_replace(step, object, place, err);
    if (strcmp(type, "Strip") == 0) return step->kind = REIN_DECODE_STRIP, read_strip(step, object, place, err);
    if (strcmp(type, "Metaspace") == 0) return step->kind = REIN_DECODE_METASPACE, read_metaspace(step, object, place, err);
    if (strcmp(type, "Fuse") == 0) return step->kind = REIN_DECODE_FUSE, REIN_OK;
    if (strcmp(type, "ByteLevel") == 0 && !step->fused) return step->kind = REIN_DECODE_BYTE_LEVEL, REIN_OK;
    if (strcmp(type, "ByteFallback") == 0 && !step->fused) {
        for (size_t i = 0; i + 1 < all->count; i++)
            if (all->steps[i].kind == REIN_DECODE_FALLBACK)
                return rein_place_fail(place, err, "ByteFallback is given twice: once is supported");
        return step->kind = REIN_DECODE_FALLBACK, REIN_OK;
    }
    if (step->fused) return rein_place_fail(place, err, "decoder %.60s after Fuse is not supported: Strip is", type);
    return rein_place_fail(
        place, err, "decoder %.60s is not supported: ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Strip and Sequence are",
        type);
}

rein_status rein_decoders_read(rein_decoders *decoders, const json_t *object, const rein_place *place, rein_error *err) {
    const rein_place at = rein_place_at(place, "decoder");
    if (!object || json_is_null(object)) return decoders->steps[decoders->count++].kind = REIN_DECODE_SPACES, REIN_OK;
    return rein_json_sequence(object, "decoders", read_step, decoders, &at, err);
}

void rein_decoders_free(rein_decoders *decoders) {
    for (size_t i = 0; i < decoders->count; i++) {
        free(decoders->steps[i].from);
        free(decoders->steps[i].to);
    }
    decoders->count = 0;
}
