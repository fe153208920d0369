/* html_episode.c - an episode turn by turn: what the model wrote, its tool calls, what came back, and the reward of each turn.
 *
 * A conversation is under "messages" (environments, docs/agents.md) or "messages_and_choices" (ART's form, where an entry may be a choice that
 * holds a message). The tokens and advantages of a turn are not repeated here: the k-th part of the response that trains is the k-th turn of
 * the model, in the first history of the trajectory. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "html_parts.h"

enum { SHOWN_CALLS = 8, SHOWN_BYTES = 16000 /* of the texts of an episode */ };

static const json_t *conversation_of(const json_t *trajectory) {
    const json_t *messages = json_object_get(trajectory, "messages");
    return json_is_array(messages) ? messages : json_object_get(trajectory, "messages_and_choices");
}

static const json_t *message_at(const json_t *conversation, size_t i) {
    const json_t *entry = json_array_get(conversation, i), *inside = json_object_get(entry, "message");
    return json_is_object(inside) ? inside : entry;
}

static const char *role_of(const json_t *message) {
    const char *role = json_string_value(json_object_get(message, "role"));
    return role ? role : "?";
}

static int is_model(const json_t *message) { return !strcmp(role_of(message), "assistant"); }

/* The number of messages that the model was asked with. */
static size_t asked_with(const json_t *trajectory, const json_t *conversation) {
    const json_t *prompt = json_object_get(json_object_get(trajectory, "metadata"), "messages");
    const size_t n = json_array_size(conversation), given = json_array_size(prompt);
    size_t first = 0;
    if (given && given <= n) return given;
    while (first < n && !is_model(message_at(conversation, first))) first++;
    return first;
}

/* A conversation with one answer and nothing after it is a completion. */
static int is_episode(const json_t *trajectory, const json_t *conversation, size_t first) {
    const size_t n = json_array_size(conversation);
    return n > first && (n > first + 1 || json_is_array(json_object_get(trajectory, "turn_rewards")));
}

/* A text, cut where there is no more room. */
static json_t *text_within(const json_t *string, size_t *room) {
    const size_t length = json_string_length(string), most = *room < REIN_SHOWN_TEXT ? *room : REIN_SHOWN_TEXT;
    json_t *text = rein_report_text(length ? json_string_value(string) : "", length, most);
    *room -= length < most ? length : most;
    return text;
}

/* A content is a text, or a list of parts, of which the first with a text is shown. */
static const json_t *content_of(const json_t *message) {
    const json_t *content = json_object_get(message, "content");
    for (size_t i = 0; i < json_array_size(content); i++)
        if (json_is_string(json_object_get(json_array_get(content, i), "text")))
            return json_object_get(json_array_get(content, i), "text");
    return content;
}

static int put_calls(json_t *to, const json_t *message, size_t *room) {
    const json_t *calls = json_object_get(message, "tool_calls");
    const size_t n = json_array_size(calls);
    json_t *list = n ? json_array() : NULL;
    int failed = n ? json_object_set_new(to, "calls", list) : 0;
    for (size_t i = 0; i < n && i < SHOWN_CALLS && !failed; i++) {
        const json_t *function = json_object_get(json_array_get(calls, i), "function"),
                     *arguments = json_object_get(function, "arguments");
        json_t *call = json_object();
        failed |= json_object_set_new(call, "name", text_within(json_object_get(function, "name"), room));
        failed |= json_object_set_new(call, "arguments", text_within(json_is_string(arguments) ? arguments : NULL, room));
        failed |= json_array_append_new(list, call);
    }
    return failed;
}

static json_t *turn_of(const json_t *message, const json_t *reward, size_t *room) {
    json_t *turn = json_object();
    const json_t *content = content_of(message), *name = json_object_get(message, "name");
    const char *role = role_of(message);
    int failed = json_object_set_new(turn, "role", rein_report_text(role, strlen(role), 40));
    if (json_is_string(content)) failed |= json_object_set_new(turn, "text", text_within(content, room));
    if (json_is_string(name) && !strcmp(role, "tool")) failed |= json_object_set_new(turn, "tool", text_within(name, room));
    if (json_is_number(reward) && isfinite(json_number_value(reward)))
        failed |= json_object_set_new(turn, "reward", json_real(json_number_value(reward)));
    failed |= put_calls(turn, message, room);
    if (failed) json_decref(turn);
    return failed ? NULL : turn;
}

int rein_report_turns(json_t *to, const json_t *trajectory) {
    const json_t *conversation = conversation_of(trajectory), *rewards = json_object_get(trajectory, "turn_rewards");
    const size_t n = json_array_size(conversation), first = asked_with(trajectory, conversation);
    size_t room = SHOWN_BYTES, written = 0, i = first;
    if (!is_episode(trajectory, conversation, first)) return 0;
    json_t *turns = json_array();
    int failed = json_object_set_new(to, "turns", turns);
    for (; i < n && i < first + REIN_SHOWN_TURNS && room && !failed; i++) {
        const json_t *message = message_at(conversation, i);
        const json_t *reward = is_model(message) ? json_array_get(rewards, written++) : NULL;
        failed |= json_array_append_new(turns, turn_of(message, reward, &room));
    }
    if (i < n) failed |= json_object_set_new(to, "more_turns", json_integer((json_int_t)(n - i)));
    return failed;
}

json_t *rein_report_asked(const json_t *trajectory) {
    json_t *recorded = json_object_get(json_object_get(trajectory, "metadata"), "messages");
    if (json_is_array(recorded)) return json_incref(recorded);
    const json_t *conversation = conversation_of(trajectory);
    const size_t n = asked_with(trajectory, conversation);
    json_t *messages = json_array();
    int failed = !messages;
    for (size_t i = 0; i < n; i++) failed |= json_array_append(messages, (json_t *)(uintptr_t)message_at(conversation, i));
    if (failed) json_decref(messages);
    return failed ? NULL : messages;
}
