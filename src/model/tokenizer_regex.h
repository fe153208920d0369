/* tokenizer_regex.h - the regular expressions of tokenizer files, run by PCRE2. Private. */
#ifndef REIN_MODEL_TOKENIZER_REGEX_H
#define REIN_MODEL_TOKENIZER_REGEX_H

#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>
#include <stdbool.h>

#include "rein/tokenizer.h"

typedef struct rein_regex {
    pcre2_code *code;
    pcre2_match_context *limits;
    pcre2_general_context *memory;
} rein_regex;

/* Compiles a pattern in the dialect of Hugging Face's files (Oniguruma's), or a text to be found as it is. A pattern that PCRE2 might
 * understand otherwise is refused. The message has no place in it yet. */
rein_status rein_regex_make(rein_regex **regex, const char *pattern, size_t length, bool literal, rein_error *err);
void rein_regex_free(rein_regex *regex);

/* Whether it might match without taking a character. */
bool rein_regex_may_be_empty(const rein_regex *regex);

/* *match, made when NULL and freed by the caller, is one thread's. */
rein_status rein_regex_prepare(pcre2_match_data **match, const rein_regex *regex, rein_error *err);

/* The first match at or after `from` in UTF-8 text: *found, [*begin, *end). An expression that needs too many steps is an error. */
rein_status rein_regex_find(bool *found, size_t *begin, size_t *end, const rein_regex *regex, pcre2_match_data *match,
                            const char *text, size_t length, size_t from, rein_error *err);

#endif
