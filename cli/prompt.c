/* prompt.c - special tokens that a message of a chat spells out are plain text; in a plain prompt they are special tokens. */
#include "prompt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "input.h"
#include "settings.h"
#include "terminal.h"
#include "values.h"

/* --------------------------------------------------------------------------------------------------------------------- reading */

static int find_source(cli_prompt *p, const cli_args *args) {
    static const char *const sources[] = {"prompt", "prompt-file", "prompt-ids", "messages"};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        if (!cli_option_value(args, sources[i])) continue;
        if (p->source) return cli_say_option(p->where, p->source, "and --%s are both given: one prompt is needed", sources[i]);
        p->source = sources[i];
    }
    if (p->source) return CLI_DONE;
    return cli_say(CLI_WRONG, p->where,
                   "a prompt is needed: --prompt TEXT, --prompt-file FILE (- is standard input), --prompt-ids IDS or "
                   "--messages FILE");
}

/* Every option of chats makes the prompt a chat. */
static int find_chat(cli_prompt *p, const cli_args *args) {
    static const char *const switches[] = {"chat", "chat-format", "system", "no-thinking"};
    const char *given = NULL;
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        if (!given && cli_option_value(args, switches[i])) given = switches[i];
    }
    p->chat = given || !strcmp(p->source, "messages");
    p->system = cli_option_value(args, "system");
    p->format = cli_option_value(args, "chat-format");
    p->no_thinking = cli_option_value(args, "no-thinking") != NULL;
    if (given && !strcmp(p->source, "prompt-ids"))
        return cli_say_option(p->where, "prompt-ids", "and --%s are both given: a chat needs a text", given);
    if (p->system && !strcmp(p->source, "messages"))
        return cli_say_option(p->where, "system", "and --messages are both given: the first message can be the system message");
    return CLI_DONE;
}

/* 1 if only a chat template can show all of the message: it has more than a role and a content. */
static int has_more(const rein_json *message) {
    const char *key;
    const rein_json *field;
    for (void *at = NULL; (at = rein_json_next(&key, &field, message, at));)
        if (strcmp(key, "role") != 0 && strcmp(key, "content") != 0) return 1;
    return 0;
}

static int take_message(rein_message *to, const rein_json *message, size_t i, const cli_prompt *p, const char *path) {
    char at[40];
    rein_error err = {0};
    snprintf(at, sizeof at, "messages[%zu].", i);
    rein_fields in = {.object = message, .file = path, .path = at, .err = &err};
    const char *role = rein_fields_string(&in, "role"), *content = has_more(message) ? "" : rein_fields_string(&in, "content");
    if (in.status) return cli_say_error(p->where, &err);
    *to = (rein_message){role, content, strlen(content)};
    return CLI_DONE;
}

/* The file is a list of messages, or an object with the list, tools and variables, as a request of OpenAI's API has them. */
static int take_conversation(rein_conversation *to, const cli_prompt *p, const char *path) {
    static const char *const keys[] = {"messages", "tools", "chat_template_kwargs", NULL};
    rein_error err = {0};
    *to = (rein_conversation){.messages = p->json};
    if (rein_json_get(p->json, "messages")) {
        rein_fields in = {.object = p->json, .file = path, .path = "", .err = &err};
        *to = (rein_conversation){.messages = rein_fields_array(&in, "messages"),
                                  .tools = rein_fields_array(&in, "tools"),
                                  .variables = rein_fields_object(&in, "chat_template_kwargs")};
        if (rein_fields_only(&in, keys)) return cli_say_error(p->where, &err);
    }
    if (rein_json_kind_of(to->messages) == REIN_JSON_ARRAY && rein_json_size(to->messages)) return CLI_DONE;
    return cli_say(
        CLI_WRONG, p->where,
        "%s: an array of messages is needed: [{\"role\": \"user\", \"content\": \"...\"}]; or an object with the array as "
        "messages, and tools",
        path);
}

static int take_messages(cli_prompt *p, const char *path) {
    rein_conversation given;
    int status = take_conversation(&given, p, path), more = given.tools || given.variables;
    if (status) return status;
    p->n_messages = rein_json_size(given.messages);
    p->messages = calloc(p->n_messages, sizeof *p->messages);
    if (!p->messages) return cli_say_no_memory(p->where);
    for (size_t i = 0; i < p->n_messages && !status; i++) {
        more |= has_more(rein_json_at(given.messages, i));
        status = take_message(&p->messages[i], rein_json_at(given.messages, i), i, p, path);
    }
    if (more) p->conversation = given;
    return status;
}

static int read_messages(cli_prompt *p, const char *path) {
    rein_error err = {0};
    const int status = cli_read_input(&p->text, path, "a JSON array of messages", p->where);
    if (status) return status;
    if (rein_json_parse(&p->json, p->text.data, p->text.length, cli_input_name(path), 0, &err))
        return cli_say_error(p->where, &err);
    return take_messages(p, cli_input_name(path));
}

/* The text as a user's message, after the system message. */
static int make_messages(cli_prompt *p) {
    p->messages = calloc(2, sizeof *p->messages);
    if (!p->messages) return cli_say_no_memory(p->where);
    if (p->system) p->messages[p->n_messages++] = (rein_message){"system", p->system, strlen(p->system)};
    p->messages[p->n_messages++] = (rein_message){"user", p->text.data, p->text.length};
    return CLI_DONE;
}

int cli_prompt_read(cli_prompt *p, const cli_args *args) {
    *p = (cli_prompt){.where = args->command->name, .turn_end = -1};
    int status = find_source(p, args);
    if (!status) status = find_chat(p, args);
    if (status) return status;
    const char *value = cli_option_value(args, p->source);
    if (!strcmp(p->source, "prompt-ids")) return cli_value_ids(&p->ids, args, "prompt-ids");
    if (!strcmp(p->source, "messages")) return read_messages(p, value);
    if (!strcmp(p->source, "prompt-file")) status = cli_read_text(&p->text, value, "the prompt", p->where);
    else rein_text_put(&p->text, value);
    if (status) return status;
    if (p->text.failed) return cli_say_no_memory(p->where);
    return p->chat ? make_messages(p) : CLI_DONE;
}

void cli_prompt_free(cli_prompt *p) {
    rein_text_free(&p->text);
    rein_ids_free(&p->ids);
    rein_json_free(p->json);
    free(p->messages);
    *p = (cli_prompt){0};
}

/* -------------------------------------------------------------------------------------------------------------------- encoding */

static rein_status find_format(rein_chat *chat, const cli_prompt *p, const cli_opened *opened, rein_error *err) {
    size_t length;
    const char *text = rein_tokenizer_chat_template(&length, opened->tokenizer);
    if (p->format) return rein_chat_named(chat, p->format, err);
    if (text) return rein_chat_of(chat, opened->tokenizer, err);
    const int chats = !strcmp(p->where, "chat"); /* it has neither option */
    return rein_fail(
        err, REIN_EINVAL,
        "the model has no chat template: --chat-format NAME selects one (raw, chatml, qwen2.5, qwen3, llama3, llama3.1)%s",
        chats ? "; rein generate takes plain text" : "; without --chat the prompt is plain text");
}

/* The date that the policy's run has saved, or today. */
static void find_date(cli_prompt *p, const cli_opened *opened) {
    rein_settings *settings = NULL;
    if (*p->date) return;
    if (opened->files.run && !cli_run_settings(&settings, opened->files.run, p->where))
        snprintf(p->date, sizeof p->date, "%s", rein_settings_text(settings, "date"));
    rein_settings_free(settings);
    const time_t now = time(NULL);
    struct tm day;
    if (!*p->date) strftime(p->date, sizeof p->date, "%Y-%m-%d %H:%M:%S", localtime_r(&now, &day));
}

static rein_status encode_chat(cli_prompt *p, const cli_opened *opened, rein_error *err) {
    const size_t most = (size_t)opened->info.max_positions;
    rein_chat chat;
    rein_status status = find_format(&chat, p, opened, err);
    if (status) return status;
    if (p->no_thinking && chat.kind != REIN_CHAT_QWEN3 && chat.kind != REIN_CHAT_TEMPLATE)
        return rein_fail(err, REIN_EINVAL, "--no-thinking has no effect with the chat format %s: qwen3 is needed",
                         rein_chat_name(&chat));
    if (chat.run && rein_chat_template_names(chat.run, "strftime_now")) find_date(p, opened), chat.date = p->date;
    status = rein_turn_end(&p->turn_end, opened->tokenizer, &chat, err);
    if (status) return status;
    if (p->conversation.messages)
        return rein_conversation_encode(&p->ids, opened->tokenizer, &chat, &p->conversation, p->no_thinking, most, err);
    return rein_messages_encode(&p->ids, opened->tokenizer, &chat, p->messages, p->n_messages, p->no_thinking, most, err);
}

int cli_prompt_encode(cli_prompt *p, const cli_opened *opened) {
    rein_error err = {0};
    if (p->ids.count) return cli_opened_check_ids(opened, &p->ids, "--prompt-ids", p->where);
    if (!p->chat || !opened->tokenizer)
        return cli_opened_encode_whole(&p->ids, opened, &p->text, "prompt", "--prompt-ids", p->where);
    if (!encode_chat(p, opened, &err)) return CLI_DONE;
    if (!strcmp(err.field, "no_thinking")) return cli_say_option_error(p->where, "no-thinking", &err);
    return strcmp(err.field, "chat_format") ? cli_say_error(p->where, &err) : cli_say_option_error(p->where, "chat-format", &err);
}
