/* unicode.h - UTF-8, the properties of characters that tokenizers need, NFC and NFKC. Private. */
#ifndef REIN_MODEL_UNICODE_H
#define REIN_MODEL_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rein/tokenizer.h"

/* Reads the character at s (n > 0 bytes). Returns its length, or 0 if the bytes are not a character. Then *wrong is the number of
 * bytes that could begin one (at least 1), and *cut tells whether the text ends there, so that more bytes could complete it. */
size_t rein_utf8_read(uint32_t *character, size_t *wrong, bool *cut, const char *s, size_t n);

/* Reads the next character of valid UTF-8. Returns its length. */
size_t rein_utf8_next(uint32_t *character, const char *s);

/* Writes a character as 1 to 4 bytes. Returns their number. */
size_t rein_utf8_write(char out[4], uint32_t character);

/* The position of the first byte that is not UTF-8, or n if there is none. */
size_t rein_utf8_valid(const char *s, size_t n);

bool rein_is_white_space(uint32_t character); /* the property White_Space */
bool rein_is_numeric(uint32_t character);     /* categories Nd, Nl, No */
bool rein_is_word(uint32_t character);        /* \w of Unicode: alphabetic, marks, decimal digits, connectors, joiners */

/* Appends the NFC of `text`, which is UTF-8, or its NFKC if `compatible`. If a quick check shows that it is that already, *same is set and
 * nothing is appended. */
rein_status rein_normal_form(rein_text *out, bool *same, bool compatible, const char *text, size_t length, rein_error *err);

#endif
