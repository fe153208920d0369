/* tokenizer_bytes.c - the bytes of one token inside a text. Unlike decoding, which returns complete characters, this keeps the half of a
 * character that a byte-level token may be; and what a decoder strips at the beginning of a text is kept, because the token may be anywhere. */
#include "model/tokenizer_parts.h"

/* Byte-level tokens spell each byte as a character. A token with another character is its own text. */
static rein_status put_byte_level(rein_text *bytes, const char *token, size_t length, rein_error *err) {
    const size_t before = bytes->length;
    rein_status status = REIN_OK;
    for (size_t i = 0; !status && i < length;) {
        uint32_t c = 0;
        i += rein_utf8_next(&c, token + i);
        const int byte = rein_character_byte(c);
        if (byte < 0) {
            bytes->length = before;
            return rein_text_append(bytes, token, length, err);
        }
        const char one = (char)byte;
        status = rein_text_append(bytes, &one, 1, err);
    }
    return status;
}

/* The byte that "<0xE2>" stands for; -1: the id is another token. */
static int fallback_byte(const rein_bpe *bpe, int32_t id) {
    for (int byte = 0; bpe->byte_fallback && byte < 256; byte++)
        if (bpe->fallback[byte] == id) return byte;
    return -1;
}

/* The decoder's replacements, such as a blank for U+2581. */
static rein_status put_replaced(rein_text *bytes, const rein_decoders *decoders, const char *token, size_t length,
                                rein_error *err) {
    rein_text now = {0}, next = {0};
    rein_status status = rein_text_append(&now, token, length, err);
    for (size_t i = 0; !status && i < decoders->count; i++) {
        const rein_decoder *step = &decoders->steps[i];
        if (step->kind != REIN_DECODE_REPLACE && step->kind != REIN_DECODE_METASPACE) continue;
        next.length = 0;
        status = rein_text_replace(&next, now.data, now.length, step->from, step->from_length, step->to, step->to_length, err);
        const rein_text swap = now;
        now = next, next = swap;
    }
    if (!status) status = rein_text_append(bytes, now.data, now.length, err);
    rein_text_free(&now);
    rein_text_free(&next);
    return status;
}

rein_status rein_tokenizer_bytes(rein_text *bytes, const rein_tokenizer *tokenizer, int32_t id, rein_error *err) {
    size_t length;
    const char *token = rein_tokenizer_token(&length, tokenizer, id);
    if (!token || !length) return REIN_OK;
    if (rein_tokenizer_is_special(tokenizer, id)) return rein_text_append(bytes, token, length, err);
    if (tokenizer->bpe.byte_level) return put_byte_level(bytes, token, length, err);
    const int byte = fallback_byte(&tokenizer->bpe, id);
    const char one = (char)byte;
    return byte >= 0 ? rein_text_append(bytes, &one, 1, err) : put_replaced(bytes, &tokenizer->decoders, token, length, err);
}
