/* prompt.c - special tokens that a message of a chat spells out are plain text; in a plain prompt they are special tokens. */
#include "prompt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "input.h"
#include "rein/rollout.h"
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

static int take_message(rein_message *to, const rein_json *message, size_t i, const cli_prompt *p, const char *path) {
    static const char *const keys[] = {"role", "content", NULL};
    char at[40];
    rein_error err = {0};
    snprintf(at, sizeof at, "messages[%zu].", i);
    rein_fields in = {.object = message, .file = path, .path = at, .err = &err};
    const char *role = rein_fields_string(&in, "role"), *content = rein_fields_string(&in, "content");
    if (rein_fields_only(&in, keys)) return cli_say_error(p->where, &err);
    *to = (rein_message){role, content, strlen(content)};
    return CLI_DONE;
}

static int take_messages(cli_prompt *p, const char *path) {
    if (rein_json_kind_of(p->json) != REIN_JSON_ARRAY || !rein_json_size(p->json))
        return cli_say(CLI_WRONG, p->where, "%s: an array of messages is needed: [{\"role\": \"user\", \"content\": \"...\"}]",
                       path);
    p->n_messages = rein_json_size(p->json);
    p->messages = calloc(p->n_messages, sizeof *p->messages);
    if (!p->messages) return cli_say_no_memory(p->where);
    int status = CLI_DONE;
    for (size_t i = 0; i < p->n_messages && !status; i++)
        status = take_message(&p->messages[i], rein_json_at(p->json, i), i, p, path);
    return status;
}

static int read_messages(cli_prompt *p, const char *path) {
    rein_error err = {0};
    const int status = cli_read_input(&p->text, path, "a JSON array of messages", p->where);
    if (status) return status;
    if (!strcmp(path, "-")) path = "standard input";
    if (rein_json_parse(&p->json, p->text.data, p->text.length, path, REIN_JSON_WIDE_INTEGERS, &err))
        return cli_say_error(p->where, &err);
    return take_messages(p, path);
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
    if (!rein_chat_recognise(chat, text, length, err)) return REIN_OK;
    if (err->code != REIN_EINVAL) return err->code;
    return rein_fail(err, REIN_EINVAL,
                     text ? "the model's chat template is not one of the known ones: --chat-format NAME selects one (raw, chatml, "
                            "qwen2.5, qwen3, llama3, llama3.1); --prompt-ids needs no template"
                          : "the model has no chat template: --chat-format NAME selects one (raw, chatml, qwen2.5, qwen3, llama3, "
                            "llama3.1); without --chat the prompt is plain text");
}

static rein_status encode_chat(cli_prompt *p, const cli_opened *opened, rein_error *err) {
    rein_chat chat;
    rein_status status = find_format(&chat, p, opened, err);
    if (status) return status;
    if (p->no_thinking && chat.kind != REIN_CHAT_QWEN3)
        return rein_fail(err, REIN_EINVAL, "--no-thinking has no effect with the chat format %s: qwen3 is needed",
                         rein_chat_name(&chat));
    status = rein_turn_end(&p->turn_end, opened->tokenizer, &chat, err);
    if (status) return status;
    return rein_messages_encode(&p->ids, opened->tokenizer, &chat, p->messages, p->n_messages, p->no_thinking, err);
}

int cli_prompt_encode(cli_prompt *p, const cli_opened *opened) {
    rein_error err = {0};
    if (p->ids.count) return cli_opened_check_ids(opened, &p->ids, "--prompt-ids", p->where);
    if (!opened->tokenizer)
        return cli_say(CLI_WRONG, p->where, "%s has no tokenizer.json: the prompt must be given as --prompt-ids",
                       opened->directory);
    if (p->chat) encode_chat(p, opened, &err);
    else cli_opened_encode(&p->ids, opened, p->text.data, p->text.length, 0, &err);
    if (err.code) return cli_say_error(p->where, &err);
    if (p->ids.count) return CLI_DONE;
    return cli_say(CLI_WRONG, p->where, "the prompt is empty, and the tokenizer adds no begin token: give one token or more");
}
