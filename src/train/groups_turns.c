/* groups_turns.c - messages of the OpenAI API as a chat format takes them: a role and one text each.
 *
 * What a format has no place for is refused by name, not dropped: otherwise the model would train on a context that it never saw. */
#include "train/groups_turns.h"

#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_parts.h"

static rein_status put(rein_text *text, const char *what, rein_error *err) {
    return rein_text_append(text, what, strlen(what), err);
}

static rein_status no_place(rein_fields *in, const rein_group_reader *reader, const char *what) {
    return rein_fields_fail(in, REIN_EINVAL, what, -1, ": the chat format %s has no place for it here",
                            rein_chat_name(&reader->chat));
}

/* --------------------------------------------------------------------------------------------------------------------- contents */

/* Parts of text, with a newline between them as vLLM puts it. */
static rein_status put_parts(rein_text *text, rein_fields *in, const rein_group_reader *reader, const json_t *parts) {
    for (size_t i = 0; i < json_array_size(parts) && !in->status; i++) {
        char path[REIN_GROUP_PATH];
        rein_group_path(path, "%scontent[%zu].", in->path, i);
        rein_fields part = rein_group_fields(reader, json_array_get(parts, i), path);
        const char *type = rein_fields_string(&part, "type");
        if (type && strcmp(type, "text") != 0)
            rein_fields_wrong(&part, "type", json_object_get(part.object, "type"), "only text can be read here");
        const char *part_text = rein_fields_string(&part, "text");
        if (!part.status && i) part.status = put(text, "\n", reader->err);
        if (!part.status) part.status = put(text, part_text, reader->err);
        in->status = part.status;
    }
    return in->status;
}

/* null is "", as ART has it; a refusal is what the model wrote instead. Behind thinking the template has its own newlines. */
static rein_status put_content(rein_text *text, rein_turn *turn, rein_fields *in, const rein_group_reader *reader) {
    const json_t *content = json_object_get(in->object, "content"), *refusal = json_object_get(in->object, "refusal");
    if (in->status) return in->status;
    if (json_is_array(content)) return put_parts(text, in, reader, content);
    if (!content || json_is_null(content)) content = refusal;
    if (content && !json_is_string(content) && !json_is_null(content))
        return rein_fields_wrong(in, "content", content, "a text, or an array of parts with text, is needed");
    turn->plain = json_is_string(content) ? json_string_value(content) : "";
    return in->status = put(text, turn->plain + (text->length ? strspn(turn->plain, "\n") : 0), reader->err);
}

static const char *reasoning_of(const json_t *message) {
    const char *old = json_string_value(json_object_get(message, "reasoning_content"));
    return old ? old : json_string_value(json_object_get(message, "reasoning"));
}

/* Thinking that a server took out of the content goes back to where qwen3's template has it. */
static rein_status put_reasoning(rein_turn *turn, rein_fields *in, const rein_group_reader *reader) {
    const char *thought = reasoning_of(in->object);
    if (in->status || !thought || !*thought) return in->status;
    if (reader->chat.kind != REIN_CHAT_QWEN3)
        return !turn->choice || rein_choice_has_ids(turn->choice) ? REIN_OK : no_place(in, reader, "reasoning_content");
    thought += strspn(thought, "\n");
    size_t length = strlen(thought);
    while (length && thought[length - 1] == '\n') length--;
    rein_status status = put(&turn->text, "<think>\n", reader->err);
    if (!status) status = rein_text_append(&turn->text, thought, length, reader->err);
    if (!status) status = put(&turn->text, "\n</think>\n\n", reader->err);
    return in->status = status;
}

static rein_status put_calls(rein_text *text, int follows, rein_fields *in, const rein_group_reader *reader) {
    json_t *calls = rein_group_list(in, "tool_calls");
    if (rein_fields_has(in, "function_call")) no_place(in, reader, "function_call");
    if (json_array_size(calls) && !rein_chat_has_tools(&reader->chat)) no_place(in, reader, "tool_calls");
    if (!in->status) in->status = rein_tool_calls_put(text, follows, reader, calls, in->path);
    json_decref(calls);
    return in->status;
}

/* ------------------------------------------------------------------------------------------------------------------------ turns */

static rein_status read_role(rein_turn *turn, rein_fields *in, const rein_group_reader *reader) {
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    const char *role = turn->choice == in->object || !turn->choice ? rein_fields_string(in, "role")
                                                                   : rein_fields_string_or(in, "role", "assistant");
    for (size_t i = 0; role && i < sizeof roles / sizeof *roles; i++)
        if (strcmp(role, roles[i]) == 0) turn->role = roles[i];
    if (!in->status && !turn->role)
        rein_fields_wrong(in, "role", json_object_get(in->object, "role"), "system, user, assistant or tool is needed");
    if (!in->status && turn->choice && strcmp(turn->role, "assistant") != 0)
        rein_fields_wrong(in, "role", json_object_get(in->object, "role"), "only what an assistant wrote can train");
    if (!in->status && !strcmp(turn->role, "tool") && reader->chat.kind >= REIN_CHAT_LLAMA3)
        rein_fields_wrong(in, "role", json_object_get(in->object, "role"), "the chat format %s has no place for it here",
                          rein_chat_name(&reader->chat));
    return in->status;
}

/* The template reads the message itself. */
static rein_status read_for_template(rein_turn *turn, rein_fields *in) {
    const json_t *content = json_object_get(in->object, "content");
    const char *role = rein_fields_string_or(in, "role", turn->choice ? "assistant" : NULL);
    if (!in->status && !role) rein_fields_wrong(in, "role", NULL, "system, user, assistant or tool is needed");
    if (!in->status && turn->choice && strcmp(role, "assistant") != 0)
        rein_fields_wrong(in, "role", json_object_get(in->object, "role"), "only what an assistant wrote can train");
    turn->role = role;
    turn->plain = json_is_string(content) ? json_string_value(content) : "";
    return in->status;
}

/* A Choice has a message; a row of ART's Parquet file marks messages as trainable. */
rein_status rein_turn_read(rein_turn *turn, const rein_group_reader *reader, const json_t *object, const char *path) {
    const json_t *inner = json_object_get(object, "message");
    char inside[REIN_GROUP_PATH];
    rein_group_path(inside, "%s%s", path, json_is_object(inner) ? "message." : "");
    rein_fields in = rein_group_fields(reader, json_is_object(inner) ? inner : object, inside);
    if (json_is_object(inner) || json_is_true(json_object_get(object, "trainable"))) turn->choice = object;
    turn->plain = "";
    if (reader->parsed) return read_for_template(turn, &in);
    read_role(turn, &in, reader);
    if (in.status) return in.status;
    const int wrote = strcmp(turn->role, "assistant") == 0;
    if (wrote) put_reasoning(turn, &in, reader);
    const size_t thought = turn->text.length;
    put_content(&turn->text, turn, &in, reader);
    if (wrote) put_calls(&turn->text, turn->text.length > thought, &in, reader);
    if (thought) put_content(&turn->bare, turn, &in, reader);
    if (thought) put_calls(&turn->bare, turn->bare.length > 0, &in, reader);
    if (!in.status) in.status = put(&turn->text, "", reader->err); /* so that data is there */
    return in.status;
}

rein_status rein_turns_put_tools(rein_turn *system, const rein_group_reader *reader, const json_t *tools, rein_fields *in) {
    const int has_default = !system->role && reader->chat.kind == REIN_CHAT_QWEN2_5 && reader->chat.system;
    const int alone = !system->role && !has_default;
    if (!rein_chat_has_tools(&reader->chat)) return no_place(in, reader, "tools");
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (!json_is_object(json_array_get(tools, i)))
            return rein_group_wrong_at(in, "tools", (int64_t)i, json_array_get(tools, i),
                                       "an object is needed, which says what the tool is");
    system->role = "system";
    in->status = has_default ? rein_chat_system(&system->text, &reader->chat, reader->err) : put(&system->text, "", reader->err);
    if (!in->status && !alone) in->status = put(&system->text, "\n\n", reader->err);
    if (!in->status) in->status = rein_tools_put(&system->text, tools, reader->err);
    return in->status;
}
