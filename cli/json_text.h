/* json_text.h - from text to JSON, with errors that say where: the field, the line and the column. */
#ifndef REIN_CLI_JSON_TEXT_H
#define REIN_CLI_JSON_TEXT_H

#include <jansson.h>

#include "rein/base.h"

/* Parses one JSON value, which is the whole input or, when `line` is not 0, that line of it; *root is NULL on failure, the caller's
 * reference otherwise. Rejected: duplicate keys, text after the value, NUL bytes, invalid UTF-8, numbers beyond the range of a double, NaN
 * and Infinity, nesting beyond jansson's limit, and \u0000 but in the texts of a line, which a model may have written. */
rein_status rein_text_parse(json_t **root, const char *text, size_t length, size_t line, rein_error *err);

/* `text` in quotes, control bytes escaped, cut (at a character) to fit; returns `to`. size >= 16. */
const char *rein_text_quote(char *to, size_t size, const char *text);

#endif
