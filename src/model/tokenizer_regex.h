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
    pcre2_general_context *memory;
    char *pattern; /* [length], as the file has it */
    size_t length;
} rein_regex;

/* What finding matches in one text needs, for any number of expressions. One thread at a time. */
typedef struct rein_matcher {
    size_t length; /* bytes of the whole text; the time that all expressions together may take depends on it */
    double began;  /* CPU seconds of the thread when a match was not found at once; 0: all were */
    pcre2_match_data *data;
    pcre2_match_context *limits;
} rein_matcher;

void rein_matcher_free(rein_matcher *matcher);

/* Compiles a pattern in the syntax of Hugging Face's files (Oniguruma's), or a literal text. A pattern that PCRE2 might read
 * differently is an error. The message does not name the file yet. */
rein_status rein_regex_make(rein_regex **regex, const char *pattern, size_t length, bool literal, rein_error *err);
void rein_regex_free(rein_regex *regex);

/* Whether it might match an empty text. */
bool rein_regex_may_be_empty(const rein_regex *regex);

/* Finds the first match at or after `from` in UTF-8 text: *found, [*begin, *end). It is an error if the
 * time for the text is used up. */
rein_status rein_regex_find(bool *found, size_t *begin, size_t *end, const rein_regex *regex, rein_matcher *matcher,
                            const char *text, size_t length, size_t from, rein_error *err);

#endif
