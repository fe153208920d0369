/* unicode.h - UTF-8, the few properties of characters that tokenizers ask for, and NFC. Private. */
#ifndef REIN_MODEL_UNICODE_H
#define REIN_MODEL_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rein/tokenizer.h"

/* One character at s (n > 0 bytes): its length, or 0 if the bytes are no character. *wrong is then how many bytes could have begun one (at
 * least 1), *cut whether they are all there is, so that more bytes could complete it. */
size_t rein_utf8_read(uint32_t *character, size_t *wrong, bool *cut, const char *s, size_t n);

/* The same where the text is known to be UTF-8. */
size_t rein_utf8_next(uint32_t *character, const char *s);

/* 1 to 4 bytes; their number. */
size_t rein_utf8_write(char out[4], uint32_t character);

/* The position of the first byte that is not UTF-8, or n. */
size_t rein_utf8_valid(const char *s, size_t n);

bool rein_is_white_space(uint32_t character); /* the property White_Space */
bool rein_is_numeric(uint32_t character);     /* categories Nd, Nl, No */
bool rein_is_word(uint32_t character);        /* \w of Unicode: alphabetic, marks, decimal digits, connectors, joiners */

/* Appends the NFC of `text`, which is UTF-8. *same is set, and nothing appended, when a look suffices to see that it is NFC already. */
rein_status rein_nfc(rein_text *out, bool *same, const char *text, size_t length, rein_error *err);

#endif
