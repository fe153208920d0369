/* render.c - chat templates on a pipe, for test_published_templates.py. A line is a JSON object: template, tokens, messages, tools, documents,
 * variables, add_generation_prompt, date. One comes out for each: {"text", "generated"}, or {"error"}. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rein/json.h"
#include "rein/tokenizer.h"

static const rein_json *given(const rein_json *line, const char *key) {
    const rein_json *value = rein_json_get(line, key);
    return rein_json_kind_of(value) == REIN_JSON_NULL ? NULL : value;
}

static rein_status render(rein_rendered *rendered, const rein_json *line, rein_error *err) {
    const rein_json *text = rein_json_get(line, "template");
    const rein_template_options options = {.add_generation_prompt = rein_json_true(rein_json_get(line, "add_generation_prompt")),
                                           .tools = given(line, "tools"),
                                           .documents = given(line, "documents"),
                                           .variables = given(line, "variables"),
                                           .date = rein_json_string(rein_json_get(line, "date"))};
    rein_chat_template *parsed;
    rein_status status =
        rein_chat_template_open(&parsed, rein_json_string(text), rein_json_length(text), given(line, "tokens"), err);
    if (!status) status = rein_chat_template_render(rendered, parsed, rein_json_get(line, "messages"), &options, err);
    rein_chat_template_close(parsed);
    return status;
}

static void answer(const rein_rendered *rendered, const rein_error *err, int failed) {
    rein_text out = {0};
    rein_text_put(&out, failed ? "{\"error\": " : "{\"text\": ");
    if (failed) rein_json_put_bytes(&out, err->message, strlen(err->message));
    else {
        rein_json_put_bytes(&out, rendered->text.data ? rendered->text.data : "", rendered->text.length);
        rein_text_put(&out, ", \"generated\": [");
        for (size_t i = 0; i < rendered->n_generated; i++)
            rein_text_format(&out, "%s[%zu, %zu]", i ? ", " : "", rendered->generated[i].begin, rendered->generated[i].end);
        rein_text_put(&out, "]");
    }
    rein_text_put(&out, "}\n");
    fwrite(out.data, 1, out.length, stdout);
    rein_text_free(&out);
}

int main(void) {
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    while ((length = getline(&line, &capacity, stdin)) > 0) {
        rein_json *json = NULL;
        rein_rendered rendered = {0};
        rein_error err = {0};
        rein_status status =
            rein_json_parse(&json, line, (size_t)length, "line", REIN_JSON_NEEDS_OBJECT | REIN_JSON_ALLOWS_NUL, &err);
        if (!status) status = render(&rendered, json, &err);
        answer(&rendered, &err, status != REIN_OK);
        rein_rendered_free(&rendered);
        rein_json_free(json);
    }
    free(line);
    return 0;
}
