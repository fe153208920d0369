/* tool_calls.c - tool calls, as Hermes and Qwen models write them: <tool_call>{"name": ..., "arguments": {...}}</tool_call>. */
#include <stdbool.h>
#include <string.h>

#include "base/json.h"
#include "rein/rollout.h"

static const char BEGIN[] = "<tool_call>", END[] = "</tool_call>";
enum { BEGIN_LENGTH = sizeof BEGIN - 1, END_LENGTH = sizeof END - 1 };

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static size_t without_blanks(const char *text, size_t length) {
    while (length && is_blank(text[length - 1])) length--;
    return length;
}

/* Where a part begins; `length` if it is not there. */
static size_t find(const char *text, size_t length, const char *part, size_t part_length) {
    for (size_t i = 0; i + part_length <= length; i++)
        if (!memcmp(text + i, part, part_length)) return i;
    return length;
}

size_t rein_tool_calls_begin(const char *text, size_t length) {
    const size_t call = find(text, length, BEGIN, BEGIN_LENGTH);
    size_t most = call;
    for (size_t n = length < BEGIN_LENGTH - 1 ? length : BEGIN_LENGTH - 1; call == length && n; n--) {
        if (memcmp(text + length - n, BEGIN, n) != 0) continue;
        most = length - n;
        break;
    }
    return without_blanks(text, most);
}

static bool put_call(rein_text *calls, const char *text, size_t length, const char *id, size_t number, int stream) {
    rein_json *call;
    rein_text arguments = {0};
    if (rein_json_parse(&call, text, length, NULL, REIN_JSON_NEEDS_OBJECT, NULL)) return false;
    const char *name = rein_json_string(rein_json_get(call, "name"));
    const rein_json *given = rein_json_get(call, "arguments");
    const rein_json_kind kind = rein_json_kind_of(given);
    const bool good = name && (kind == REIN_JSON_OBJECT || kind == REIN_JSON_STRING || kind == REIN_JSON_NONE);
    if (kind == REIN_JSON_STRING) rein_text_put_bytes(&arguments, rein_json_string(given), rein_json_length(given));
    else if (kind == REIN_JSON_OBJECT) rein_json_put_value(&arguments, given);
    else rein_text_put(&arguments, "{}");
    if (good) {
        rein_text_put(calls, number ? ", {" : "{");
        if (stream) rein_text_format(calls, "\"index\": %zu, ", number);
        rein_text_format(calls, "\"id\": \"%s-%zu\", \"type\": \"function\", \"function\": {\"name\": ", id, number);
        rein_json_put_string(calls, name);
        rein_text_put(calls, ", \"arguments\": ");
        rein_json_put_bytes(calls, arguments.data ? arguments.data : "", arguments.length);
        rein_text_put(calls, "}}");
    }
    calls->failed |= arguments.failed;
    rein_text_free(&arguments);
    rein_json_free(call);
    return good;
}

size_t rein_tool_calls_parse(rein_text *calls, size_t *content, const char *text, size_t length, const char *id, int stream) {
    size_t number = 0, at = find(text, length, BEGIN, BEGIN_LENGTH);
    *content = without_blanks(text, at);
    while (at < length) {
        if (length - at < BEGIN_LENGTH || memcmp(text + at, BEGIN, BEGIN_LENGTH) != 0) return 0;
        at += BEGIN_LENGTH;
        const size_t inside = find(text + at, length - at, END, END_LENGTH);
        if (inside == length - at || !put_call(calls, text + at, inside, id, number, stream)) return 0;
        number++;
        at += inside + END_LENGTH;
        while (at < length && is_blank(text[at])) at++;
    }
    return number;
}

size_t rein_rendered_answer_end(const rein_rendered *rendered, const rein_text *before, int calls) {
    size_t same = 0;
    while (same < before->length && same < rendered->text.length && before->data[same] == rendered->text.data[same]) same++;
    if (!rendered->n_literals || rendered->literals[rendered->n_literals - 1].end <= same) return 0;
    const size_t end = rendered->literals[rendered->n_literals - 1].end;
    const char *close = calls ? strstr(rendered->text.data + end, END) : NULL;
    if (calls) return close ? (size_t)(close - rendered->text.data) + END_LENGTH : 0;
    return end;
}
