/* fuzz_chat.c - any bytes as a chat template, and as messages (libFuzzer). The first byte chooses the format, the second the options; each
 * message is a byte for the role and a content that ends with 0xFF.
 *
 * A chat is refused with one line or rendered; then every content has a span of the text, in order, and an assistant's is marked. */
/* words: src/model/chat.c */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/require.h"
#include "model/unicode.h"
#include "rein/tokenizer.h"

enum { MOST = 12 };

static size_t split(rein_message *messages, const char *text, size_t size) {
    static const char *const roles[] = {"system", "user", "assistant", "tool", "nobody"};
    size_t n = 0;
    for (size_t at = 0; n < MOST && at < size; n++) {
        const char *end = memchr(text + at, 0xFF, size - at);
        const size_t stop = end ? (size_t)(end - text) : size;
        const size_t begin = at < stop ? at + 1 : stop;
        messages[n] = (rein_message){roles[(unsigned char)text[at] % 5], text + begin, stop - begin};
        at = stop + 1;
    }
    return n;
}

static void check_rendered(const rein_text *text, const rein_chat_span *spans, const rein_message *messages, size_t n,
                           const char *format) {
    size_t last = 0;
    require(rein_utf8_valid(text->data, text->length) == text->length, "the text is not UTF-8", format);
    for (size_t i = 0; i < n; i++) {
        require(last <= spans[i].content.begin && spans[i].content.begin <= spans[i].content.end, "spans do not ascend", format);
        require(spans[i].content.end <= spans[i].stop && spans[i].stop <= text->length, "a span is not in the text", format);
        require(spans[i].assistant == !strcmp(messages[i].role, "assistant"), "a span is another's", format);
        last = spans[i].stop;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const formats[] = {"raw", "chatml", "qwen2.5", "qwen3", "llama3", "llama3.1"};
    rein_message messages[MOST];
    rein_chat_span spans[MOST];
    rein_text text = {0};
    rein_chat chat;
    rein_error err = {0};
    if (size < 2) return 0;
    const char *format = formats[data[0] % 6];
    require(rein_chat_named(&chat, format, &err) == REIN_OK, "a known name is not known", format);
    if (data[1] & 4 && !rein_chat_recognise(&chat, (const char *)data + 2, size - 2, &err)) format = rein_chat_name(&chat);
    const rein_chat_options options = {.add_generation_prompt = data[1] & 1, .no_thinking = data[1] >> 1 & 1};
    const size_t n = split(messages, (const char *)data + 2, size - 2);
    const rein_status status = rein_chat_render(&text, spans, &chat, messages, n, &options, &err);
    require(status == REIN_OK || status == REIN_EINVAL, "a status that is neither 0 nor 1", err.message);
    if (status) require(*err.message && !strpbrk(err.message, "\r\n") && !text.length, "a failure is not one line", err.message);
    else check_rendered(&text, spans, messages, n, format);
    rein_text_free(&text);
    return 0;
}
