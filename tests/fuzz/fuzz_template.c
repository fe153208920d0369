/* fuzz_template.c - any bytes as a chat template and as messages (libFuzzer): the template up to the first 0, then JSON.
 *
 * A template or a chat is refused with one line, or rendered; then the text is UTF-8, and the spans lie in it, in order. */
/* words: src/model/template_parser.c src/model/template_filters.c src/model/template_methods.c src/model/template_tests.c */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/require.h"
#include "model/unicode.h"
#include "rein/json.h"
#include "rein/tokenizer.h"

static const char CHAT[] = "[{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", \"content\": \"a</s>\"},"
                           " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\","
                           " \"arguments\": {\"a\": [1, 2.5, true, null]}}}]}, {\"role\": \"tool\", \"content\": \"\\u00e9\"}]";

static void check_spans(const rein_span *spans, size_t n, size_t length) {
    size_t last = 0;
    for (size_t i = 0; i < n; i++) {
        require(last <= spans[i].begin && spans[i].begin <= spans[i].end, "spans do not ascend", "");
        last = spans[i].end;
    }
    require(last <= length, "a span is not in the text", "");
}

static void check_failure(rein_status status, const rein_error *err) {
    require(status == REIN_EINVAL, "a status that is not 1", err->message);
    require(*err->message && !strpbrk(err->message, "\r\n"), "a failure is not one line", err->message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data, *end = memchr(text, 0, size);
    const size_t length = end ? (size_t)(end - text) : size, rest = end ? size - length - 1 : 0;
    rein_json *messages = NULL;
    rein_chat_template *parsed = NULL;
    rein_rendered rendered = {0};
    rein_error err = {0};
    if (rein_json_parse(&messages, rest ? end + 1 : CHAT, rest ? rest : strlen(CHAT), "messages", 0, &err)) return 0;
    const rein_template_options options = {.add_generation_prompt = (int)(size & 1), .variables = NULL, .date = "2026-11-18"};
    rein_status status = rein_chat_template_open(&parsed, text, length, NULL, &err);
    if (!status) status = rein_chat_template_render(&rendered, parsed, messages, &options, &err);
    if (status) check_failure(status, &err);
    else {
        require(rein_utf8_valid(rendered.text.data, rendered.text.length) == rendered.text.length, "the text is not UTF-8", "");
        check_spans(rendered.literals, rendered.n_literals, rendered.text.length);
        check_spans(rendered.generated, rendered.n_generated, rendered.text.length);
    }
    rein_rendered_free(&rendered);
    rein_chat_template_close(parsed);
    rein_json_free(messages);
    return 0;
}
