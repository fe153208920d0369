/* templated.h - a tokenizer with a chat template of a test's own. */
#ifndef TESTS_SUPPORT_TEMPLATED_H
#define TESTS_SUPPORT_TEMPLATED_H

#include <stdio.h>
#include <string.h>

#include "rein/json.h"
#include "rein/tokenizer.h"
#include "support/check.h"

/* That of models/sums, whose end token is <end>. `chat_template` is JSON: a text, or a list of named ones. */
static inline rein_tokenizer *tokenizer_with_json(const char *chat_template) {
    static char text[1 << 20];
    char config[3000];
    rein_tokenizer *tokenizer;
    FILE *file = fopen("models/sums/tokenizer.json", "rb");
    assert_non_null(file);
    const size_t length = fread(text, 1, sizeof text, file);
    fclose(file);
    const int n = snprintf(config, sizeof config, "{\"eos_token\": \"<end>\", \"chat_template\": %s}", chat_template);
    assert_true(n > 0 && (size_t)n < sizeof config);
    const rein_tokenizer_files files = {
        .name = "test", .tokenizer = text, .tokenizer_length = length, .config = config, .config_length = (size_t)n};
    OK(rein_tokenizer_read(&tokenizer, &files, &error_));
    return tokenizer;
}

static inline rein_tokenizer *tokenizer_with(const char *chat_template) {
    rein_text quoted = {0};
    rein_json_put_string(&quoted, chat_template);
    rein_tokenizer *tokenizer = tokenizer_with_json(quoted.data);
    rein_text_free(&quoted);
    return tokenizer;
}

#endif
