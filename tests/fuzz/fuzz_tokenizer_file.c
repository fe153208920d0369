/* fuzz_tokenizer_file.c - any bytes as tokenizer.json and, after the first byte 0xFF, tokenizer_config.json, and after the second a text
 * (libFuzzer).
 *
 * A file is refused with one line that names it, or it opens; then texts encode or are refused, and what decodes is UTF-8. */
/* words: src/model/tokenizer*.c src/model/bpe*.c src/model/pretokenize*.c */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/require.h"
#include "model/unicode.h"
#include "rein/tokenizer.h"

static void check_message(rein_status status, const rein_error *err) {
    require(status == REIN_OK || status == REIN_EINVAL, "a status that is neither 0 nor 1", err->message);
    if (!status) return;
    require(*err->message != 0, "there is no message", "");
    require(!strpbrk(err->message, "\r\n"), "the message is more than one line", err->message);
}

static void use_as(const rein_tokenizer *tokenizer, const char *text, size_t length, int special) {
    const rein_encoding how = {.add_special = special, .parse_special = special};
    rein_ids ids = {0};
    rein_text decoded = {0};
    rein_error err = {0};
    const rein_status status = rein_tokenizer_encode(&ids, tokenizer, text, length, &how, &err);
    check_message(status, &err);
    for (size_t i = 0; i < ids.count; i++)
        require(ids.data[i] >= 0 && (size_t)ids.data[i] < rein_tokenizer_size(tokenizer), "an invalid id", "");
    require(rein_tokenizer_decode(&decoded, tokenizer, ids.data, ids.count, 0, &err) == REIN_OK, "decoding failed", err.message);
    require(rein_utf8_valid(decoded.data, decoded.length) == decoded.length, "the text is not UTF-8", "");
    rein_ids_free(&ids);
    rein_text_free(&decoded);
}

static void use(const rein_tokenizer *tokenizer, const char *text, size_t length) {
    use_as(tokenizer, text, length, 0);
    use_as(tokenizer, text, length, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const texts[] = {"", "a", "ab abc  the\n12 don't", "<s> \xE2\x96\x81x\xCC\x81\xF0\x9F\x98\x80</s>"};
    const char *text = (const char *)data, *border = size ? memchr(text, 0xFF, size) : NULL;
    const size_t length = border ? (size_t)(border - text) : size, rest = border ? size - length - 1 : 0;
    const char *second = rest ? memchr(border + 1, 0xFF, rest) : NULL;
    const rein_tokenizer_files files = {.name = "fuzz",
                                        .tokenizer = size ? text : "",
                                        .tokenizer_length = length,
                                        .config = border ? border + 1 : NULL,
                                        .config_length = second ? (size_t)(second - border) - 1 : rest};
    rein_tokenizer *tokenizer;
    rein_error err = {0};
    const rein_status status = rein_tokenizer_read(&tokenizer, &files, &err);
    check_message(status, &err);
    require(!status == !!tokenizer, "a tokenizer and a failure", err.message);
    if (status) require(strncmp(err.message, "fuzz/tokenizer", 14) == 0, "the message names no file", err.message);
    for (size_t i = 0; tokenizer && i < sizeof texts / sizeof *texts; i++) use(tokenizer, texts[i], strlen(texts[i]));
    if (tokenizer && second) use(tokenizer, second + 1, size - (size_t)(second + 1 - text));
    rein_tokenizer_close(tokenizer);
    return 0;
}
