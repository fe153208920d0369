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

/* Compiles a pattern in the syntax of Hugging Face's files (Oniguruma's), or a literal text. A pattern that PCRE2 might read
 * differently is an error. The message does not name the file yet. */
rein_status rein_regex_make(rein_regex **regex, const char *pattern, size_t length, bool literal, rein_error *err);
void rein_regex_free(rein_regex *regex);

/* Whether it might match an empty text. */
bool rein_regex_may_be_empty(const rein_regex *regex);

/* Makes *match if it is NULL. The caller frees it; one thread at a time uses it. */
rein_status rein_regex_prepare(pcre2_match_data **match, const rein_regex *regex, rein_error *err);

/* Finds the first match at or after `from` in UTF-8 text: *found, [*begin, *end). An expression that takes too many steps is an
 * error. */
rein_status rein_regex_find(bool *found, size_t *begin, size_t *end, const rein_regex *regex, pcre2_match_data *match,
                            const char *text, size_t length, size_t from, rein_error *err);

#endif
