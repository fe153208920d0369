/* groups_tools.c - tools and their calls as text. The templates of qwen2.5 and qwen3 put tools behind the system message and calls behind an
 * assistant's content, which rein_chat_render can do when they are part of the contents. Other formats have no place for them here.
 *
 * Arguments of a call are JSON inside of a text. Servers (vLLM) parse them before the template writes them, so the blanks that a model saw
 * in the context are those of json.dumps; an empty text is {}. */
#include <string.h>

#include "model/tokenizer_parts.h"
#include "train/groups.h"

static const char before_tools[] =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with "
    "function signatures within <tools></tools> XML tags:\n<tools>";
static const char after_tools[] =
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
    "<args-json-object>}\n</tool_call>";

int rein_chat_has_tools(const rein_chat *chat) { return chat->kind == REIN_CHAT_QWEN2_5 || chat->kind == REIN_CHAT_QWEN3; }

static rein_status put(rein_text *text, const char *what, rein_error *err) {
    return rein_text_append(text, what, strlen(what), err);
}

/* ART also takes the function alone. */
static rein_status put_tool(rein_text *text, const json_t *tool, rein_error *err) {
    const int whole = json_object_get(tool, "type") != NULL;
    rein_status status = put(text, whole ? "\n" : "\n{\"type\": \"function\", \"function\": ", err);
    if (!status) rein_json_put_value(text, tool), status = rein_text_status(text, err);
    return status || whole ? status : put(text, "}", err);
}

rein_status rein_tools_put(rein_text *text, const json_t *tools, rein_error *err) {
    rein_status status = put(text, before_tools, err);
    for (size_t i = 0; i < json_array_size(tools) && !status; i++) status = put_tool(text, json_array_get(tools, i), err);
    return status ? status : put(text, after_tools, err);
}

/* ---- calls */
static rein_status put_arguments(rein_text *text, rein_fields *in) {
    const json_t *value = json_object_get(in->object, "arguments");
    const char *given = json_string_value(value);
    rein_error why = {0};
    json_t *parsed;
    if (!value || json_is_null(value) || (given && !*given)) return put(text, "{}", in->err);
    if (!given) return rein_json_put_value(text, value), rein_text_status(text, in->err);
    if (rein_json_parse(&parsed, given, json_string_length(value), NULL, REIN_JSON_NEEDS_OBJECT, &why) == REIN_ENOMEM)
        return rein_no_memory(in->err);
    if (!parsed) return rein_fields_wrong(in, "arguments", value, "a JSON object in a text is needed");
    rein_json_put_value(text, parsed);
    json_decref(parsed);
    return rein_text_status(text, in->err);
}

static rein_status put_call(rein_text *text, int follows, const rein_group_reader *reader, const json_t *call, const char *path) {
    const json_t *function = json_object_get(call, "function");
    char inside[REIN_GROUP_PATH];
    rein_group_path(inside, "%s%s", path, function ? "function." : "");
    rein_fields in = rein_group_fields(reader, function ? function : call, inside);
    const char *name = rein_fields_string(&in, "name");
    rein_status status = in.status;
    if (!status) status = put(text, follows ? "\n<tool_call>\n{\"name\": \"" : "<tool_call>\n{\"name\": \"", reader->err);
    if (!status) status = put(text, name, reader->err);
    if (!status) status = put(text, "\", \"arguments\": ", reader->err);
    if (!status) status = put_arguments(text, &in);
    return status ? status : put(text, "}\n</tool_call>", reader->err);
}

rein_status rein_tool_calls_put(rein_text *text, int follows, const rein_group_reader *reader, const json_t *calls,
                                const char *path) {
    rein_status status = REIN_OK;
    for (size_t i = 0; i < json_array_size(calls) && !status; i++) {
        char at[REIN_GROUP_PATH];
        rein_group_path(at, "%stool_calls[%zu].", path, i);
        status = put_call(text, follows || i, reader, json_array_get(calls, i), at);
    }
    return status;
}
