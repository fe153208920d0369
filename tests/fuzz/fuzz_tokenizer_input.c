/* fuzz_tokenizer_input.c - any bytes as text, and as ids (libFuzzer). The first byte chooses one of the tokenizers of tests/model/fixtures,
 * the second how.
 *
 * Text encodes if and only if it is UTF-8; no special token comes of text that may not name one; a tokenizer of plain bytes gives the text
 * back; a stream says what decode says. */
/* longest: 256 bytes, seven times as many inputs a second as with 4096 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/require.h"
#include "model/unicode.h"
#include "rein/tokenizer.h"

enum { N_PLAIN = 3 }; /* the first ones lose nothing */
static const char *const names[] = {"gpt2",   "llama3",    "smollm",          "prefix_space", "qwen",
                                    "llama2", "metaspace", "metaspace_whole", "added",        "splits"};
enum { N = sizeof names / sizeof *names };

static const rein_tokenizer *tokenizer_at(size_t i) {
    static rein_tokenizer *opened[N];
    rein_error err;
    char path[200];
    snprintf(path, sizeof path, "tests/model/fixtures/tokenizer/%s", names[i]);
    if (!opened[i]) require(rein_tokenizer_open(&opened[i], path, &err) == REIN_OK, err.message, names[i]);
    return opened[i];
}

static void decode_both(rein_text *text, const rein_tokenizer *tokenizer, const int32_t *ids, size_t n, int skip,
                        const char *name) {
    rein_stream *stream;
    rein_text streamed = {0};
    require(rein_tokenizer_decode(text, tokenizer, ids, n, skip, NULL) == REIN_OK, "decoding failed", name);
    require(rein_utf8_valid(text->data, text->length) == text->length, "the text is not UTF-8", name);
    require(rein_stream_open(&stream, tokenizer, skip, NULL) == REIN_OK, "no stream", name);
    for (size_t i = 0; i < n; i++) {
        require(rein_stream_push(&streamed, stream, ids[i], NULL) == REIN_OK, "the stream failed", name);
        require(rein_utf8_valid(streamed.data, streamed.length) == streamed.length, "the stream is not UTF-8", name);
    }
    require(rein_stream_finish(&streamed, stream, NULL) == REIN_OK, "the stream failed at its end", name);
    require(streamed.length == text->length && (!text->length || !memcmp(streamed.data, text->data, text->length)),
            "the stream differs", name);
    rein_stream_close(stream);
    rein_text_free(&streamed);
}

static void check_text(size_t which, int special, const char *text, size_t length) {
    const rein_tokenizer *tokenizer = tokenizer_at(which);
    const rein_encoding how = {.add_special = 0, .parse_special = special};
    rein_ids ids = {0};
    rein_text back = {0};
    const int valid = rein_utf8_valid(text, length) == length;
    const rein_status status = rein_tokenizer_encode(&ids, tokenizer, text, length, &how, NULL);
    require(status == (valid ? REIN_OK : REIN_EINVAL), "UTF-8 is not what decides", names[which]);
    for (size_t i = 0; !special && i < ids.count; i++) {
        size_t n;
        const char *token = rein_tokenizer_token(&n, tokenizer, ids.data[i]);
        require(token != NULL, "an id without a token", names[which]);
        require(!rein_tokenizer_is_special(tokenizer, ids.data[i]) || !memcmp(token, "<unk>", 5), "a special token came of text",
                names[which]);
    }
    decode_both(&back, tokenizer, ids.data, ids.count, 0, names[which]);
    if (valid && which < N_PLAIN)
        require(back.length == length && (!length || !memcmp(back.data, text, length)), "the text does not come back",
                names[which]);
    rein_ids_free(&ids);
    rein_text_free(&back);
}

static void check_ids(size_t which, int skip, const uint8_t *data, size_t size) {
    const rein_tokenizer *tokenizer = tokenizer_at(which);
    rein_text text = {0};
    int32_t ids[256];
    size_t n = 0;
    for (; n < 256 && 2 * n + 1 < size; n++)
        ids[n] = (data[2 * n] | data[2 * n + 1] << 8) % ((int32_t)rein_tokenizer_size(tokenizer) + 3);
    decode_both(&text, tokenizer, ids, n, skip, names[which]);
    rein_text_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    if (data[1] & 2) check_ids(data[0] % N, data[1] & 1, data + 2, size - 2);
    else check_text(data[0] % N, data[1] & 1, (const char *)data + 2, size - 2);
    return 0;
}
