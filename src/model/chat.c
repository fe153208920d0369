/* chat.c - recognises chat templates and renders messages.
 *
 * A template is recognised by its length and hash, after two differences that do not change its output are removed: "\n" written
 * as an escape or as itself, and blanks at the end. The default system message, which fine-tuned models change, is cut out first
 * and kept. */
#include "rein/tokenizer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "model/tokenizer_parts.h"

typedef struct known {
    rein_chat_kind kind;
    const char *before, *after; /* the text around the default system message; NULL: there is none */
    uint64_t hash;
    size_t length;
    int always_generation;
} known;

#define CHATML_BEFORE "{{ '<|im_start|>system\n"
#define CHATML_AFTER "<|im_end|>\n' }}"
#define QWEN_BEFORE "{{- '<|im_start|>system\n"
#define QWEN_AFTER "<|im_end|>\n' }}"

static const known templates[] = {
    {REIN_CHAT_CHATML, NULL, NULL, 0x88BF4138D5C826F0u, 196, 0},                  /* plain */
    {REIN_CHAT_CHATML, NULL, NULL, 0x773D13E188AFC917u, 291, 0},                  /* with add_generation_prompt defined */
    {REIN_CHAT_CHATML, CHATML_BEFORE, CHATML_AFTER, 0x0FBFB5C24E90177Fu, 300, 0}, /* SmolLM2, Qwen2 */
    {REIN_CHAT_QWEN2_5, QWEN_BEFORE, QWEN_AFTER, 0xFFED24008FFBDEC5u, 2338, 0},   /* Qwen2.5, its Coder and Math */
    {REIN_CHAT_QWEN3, NULL, NULL, 0xABB815B933A4981Au, 4071, 0},                  /* Qwen3 */
    {REIN_CHAT_LLAMA3, NULL, NULL, 0x0E60067A5537498Eu, 389, 0},                  /* Llama-3 */
    {REIN_CHAT_LLAMA3, NULL, NULL, 0x74891E390E614AE2u, 348, 1},                  /* Llama-3, first release */
    {REIN_CHAT_LLAMA3_1, NULL, NULL, 0x1A6DA26E3AEF1B34u, 3800, 0},               /* Llama-3.2 */
};

static const char *const names[] = {"raw", "chatml", "qwen2.5", "qwen3", "llama3", "llama3.1", "template"};
static const char qwen_system[] = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";

const char *rein_chat_name(const rein_chat *chat) {
    if (chat->kind == REIN_CHAT_TEMPLATE && !chat->run) return NULL;
    return (size_t)chat->kind < sizeof names / sizeof *names ? names[chat->kind] : NULL;
}

rein_status rein_chat_named(rein_chat *chat, const char *name, rein_error *err) {
    for (size_t i = 0; i < REIN_CHAT_TEMPLATE; i++) {
        if (strcmp(names[i], name) != 0) continue;
        *chat = (rein_chat){.kind = (rein_chat_kind)i};
        if (chat->kind == REIN_CHAT_QWEN2_5) chat->system = qwen_system, chat->system_length = strlen(qwen_system);
        return REIN_OK;
    }
    return rein_fail_at(err, REIN_EINVAL, "chat_format", -1,
                        "is \"%.60s\": raw, chatml, qwen2.5, qwen3, llama3 or llama3.1 is needed", name);
}

/* ---- recognising */
static rein_status canonical(rein_text *out, const char *text, size_t length, rein_error *err) {
    const rein_status status = rein_text_replace(out, text, length, "\\n", 2, "\n", 1, err);
    while (!status && out->length && strchr(" \n\r\t", out->data[out->length - 1])) out->data[--out->length] = 0;
    return status;
}

static uint64_t hash_of(const char *text, size_t length) {
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)text[i]) * 0x100000001B3u;
    return hash;
}

/* Where a message is in a text. */
typedef struct part {
    size_t begin, length;
} part;

/* Finds the default system message between the marks of a row. Returns 0 if it is not there. */
static int find_system(part *system, const known *row, const char *text) {
    const char *begin = row->before ? strstr(text, row->before) : NULL;
    *system = (part){0, 0};
    if (!row->before) return 1;
    while (begin && begin[strlen(row->before)] == '\'')
        begin = strstr(begin + 1, row->before); /* '…' + something is not a message */
    if (!begin) return 0;
    begin += strlen(row->before);
    const char *end = strstr(begin, row->after);
    if (!end || end == begin) return 0;
    *system = (part){(size_t)(begin - text), (size_t)(end - begin)};
    return 1;
}

static rein_status is_row(int *is, part *system, const known *row, const rein_text *text, rein_error *err) {
    rein_text rest = {0};
    *is = 0;
    if (!find_system(system, row, text->data)) return REIN_OK;
    const rein_status status =
        rein_text_replace(&rest, text->data, text->length, text->data + system->begin, system->length, "", 0, err);
    *is = !status && rest.length == row->length && hash_of(rest.data, rest.length) == row->hash;
    rein_text_free(&rest);
    return status;
}

/* The place in a template that is at `position` of its canonical text, in which each "\n" is one character. */
static const char *place_of(const char *template_text, size_t position) {
    for (; position; position--) template_text += template_text[0] == '\\' && template_text[1] == 'n' ? 2 : 1;
    return template_text;
}

/* Removes the backslash of \\ and \'. */
static void unescape(rein_text *text, size_t from) {
    size_t to = from;
    for (size_t at = from; at < text->length; at++) {
        if (text->data[at] == '\\' && at + 1 < text->length && (text->data[at + 1] == '\\' || text->data[at + 1] == '\'')) at++;
        text->data[to++] = text->data[at];
    }
    if (text->data) text->data[text->length = to] = 0;
}

rein_status rein_chat_system(rein_text *text, const rein_chat *chat, rein_error *err) {
    const size_t before = text->length;
    const rein_status status =
        chat->system ? rein_text_replace(text, chat->system, chat->system_length, "\\n", 2, "\n", 1, err) : REIN_OK;
    if (!status) unescape(text, before);
    return status;
}

rein_status rein_chat_recognise(rein_chat *chat, const char *template_text, size_t length, rein_error *err) {
    rein_text text = {0};
    const known *row = NULL;
    part system;
    int is = 0;
    if (!template_text)
        return rein_fail(
            err, REIN_EINVAL,
            "the tokenizer has no chat template: --chat-format (in Python chat_format) names one (raw, chatml, llama3 …); "
            "token ids need none");
    if (rein_utf8_valid(template_text, length) < length)
        return rein_fail(err, REIN_EINVAL, "the chat template: byte %zu is not UTF-8", rein_utf8_valid(template_text, length));
    rein_status status = canonical(&text, template_text, length, err);
    for (size_t i = 0; !status && !is && i < sizeof templates / sizeof *templates; i++)
        status = is_row(&is, &system, row = &templates[i], &text, err);
    rein_text_free(&text);
    if (status) return status;
    if (!is)
        return rein_fail(err, REIN_EINVAL,
                         "the chat template is not one of the known ones: if it renders as raw, chatml, qwen2.5, qwen3, llama3 or "
                         "llama3.1 does, give that name; token ids can always be given");
    *chat = (rein_chat){.kind = row->kind, .always_generation = row->always_generation};
    if (!row->before) return REIN_OK;
    chat->system = place_of(template_text, system.begin);
    chat->system_length = (size_t)(place_of(chat->system, system.length) - chat->system);
    return REIN_OK;
}

/* ---- rendering */
typedef struct rendering {
    rein_text *text;
    rein_chat_span *spans;
    const rein_chat *chat;
    const rein_message *messages;
    size_t n;
    const rein_chat_options *options;
    rein_error *err;
} rendering;

typedef struct slice {
    const char *text;
    size_t length;
} slice;

/* "messages[1].role REASON" */
static rein_status wrong_message(const rendering *r, size_t i, const char *part, const char *format, ...) REIN_PRINTF(4, 5);
static rein_status wrong_message(const rendering *r, size_t i, const char *part, const char *format, ...) {
    char field[60], reason[100];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    snprintf(field, sizeof field, "messages[%zu].%s", i, part);
    return rein_fail_at(r->err, REIN_EINVAL, field, -1, "%s", reason);
}

static rein_status put(rendering *r, const char *text) { return rein_text_append(r->text, text, strlen(text), r->err); }

static int is_role(const rendering *r, size_t i, const char *role) { return i < r->n && strcmp(r->messages[i].role, role) == 0; }

/* Adds the content of a message. Its span begins at `begin` (the thinking of an assistant belongs to it); the turn ends with
 * `end`. */
static rein_status put_content(rendering *r, size_t i, size_t begin, slice content, const char *end) {
    rein_status status = rein_text_append(r->text, content.text, content.length, r->err);
    const size_t stop = r->text->length;
    if (!status) status = put(r, end);
    if (r->spans) r->spans[i] = (rein_chat_span){{begin, stop}, stop + strcspn(end, "\n"), is_role(r, i, "assistant")};
    return status;
}

static slice content_of(const rendering *r, size_t i) { return (slice){r->messages[i].content, r->messages[i].length}; }

static rein_status put_turn(rendering *r, size_t i, slice content) {
    rein_status status = put(r, "<|im_start|>");
    if (!status) status = put(r, r->messages[i].role);
    if (!status) status = put(r, "\n");
    return status ? status : put_content(r, i, r->text->length, content, "<|im_end|>\n");
}

static rein_status put_default_system(rendering *r) {
    if (is_role(r, 0, "system") || !r->chat->system) return REIN_OK;
    rein_status status = put(r, "<|im_start|>system\n");
    if (!status) status = rein_chat_system(r->text, r->chat, r->err);
    return status ? status : put(r, "<|im_end|>\n");
}

/* Consecutive tool messages form one user turn. */
static rein_status put_tool(rendering *r, size_t i) {
    rein_status status = i && is_role(r, i - 1, "tool") ? REIN_OK : put(r, "<|im_start|>user");
    if (!status) status = put(r, "\n<tool_response>\n");
    if (!status) status = put_content(r, i, r->text->length, content_of(r, i), "\n</tool_response>");
    return status || is_role(r, i + 1, "tool") ? status : put(r, "<|im_end|>\n");
}

/* ---- thinking of qwen3 */
static slice trim(slice s, const char *what, int left, int right) {
    while (left && s.length && *s.text && strchr(what, *s.text)) s.text++, s.length--;
    while (right && s.length && s.text[s.length - 1] && strchr(what, s.text[s.length - 1])) s.length--;
    return s;
}

/* The first or last occurrence of `word`, or NULL. */
static const char *find(slice s, const char *word, int last) {
    const size_t n = strlen(word);
    const char *hit = NULL;
    for (size_t i = 0; i + n <= s.length && (last || !hit); i++)
        if (memcmp(s.text + i, word, n) == 0) hit = s.text + i;
    return hit;
}

static slice after(slice s, const char *hit, size_t n) { return hit ? (slice){hit + n, s.length - (size_t)(hit + n - s.text)} : s; }

static void split_thinking(slice *thought, slice *content) {
    const slice whole = *content;
    const char *first = find(whole, "</think>", 0), *last = find(whole, "</think>", 1);
    *thought = (slice){"", 0};
    if (!first) return;
    *content = trim(after(whole, last, strlen("</think>")), "\n", 1, 0);
    slice before = trim((slice){whole.text, (size_t)(first - whole.text)}, "\n", 0, 1);
    *thought = trim(after(before, find(before, "<think>", 1), strlen("<think>")), "\n", 1, 1);
}

/* The index of the last user message that is not a tool's answer: thinking after it is shown. */
static size_t last_query(const rendering *r) {
    static const char open[] = "<tool_response>", close[] = "</tool_response>";
    for (size_t i = r->n; i-- > 0;) {
        const slice s = content_of(r, i);
        const int starts = s.length >= strlen(open) && memcmp(s.text, open, strlen(open)) == 0;
        const int ends = s.length >= strlen(close) && memcmp(s.text + s.length - strlen(close), close, strlen(close)) == 0;
        if (is_role(r, i, "user") && !(starts && ends)) return i;
    }
    return r->n - 1;
}

static rein_status put_assistant(rendering *r, size_t i, size_t query) {
    slice thought, content = content_of(r, i);
    split_thinking(&thought, &content);
    if (i <= query || (i + 1 < r->n && !thought.length)) return put_turn(r, i, content);
    rein_status status = put(r, "<|im_start|>assistant\n");
    const size_t begin = r->text->length;
    if (!status) status = put(r, "<think>\n");
    if (!status) status = rein_text_append(r->text, thought.text, thought.length, r->err);
    if (!status) status = put(r, "\n</think>\n\n");
    return status ? status : put_content(r, i, begin, trim(content, "\n", 1, 0), "<|im_end|>\n");
}

/* ---- the formats */
static rein_status render_raw(rendering *r) {
    rein_status status = REIN_OK;
    for (size_t i = 0; !status && i < r->n; i++) status = put_content(r, i, r->text->length, content_of(r, i), "");
    return status;
}

static rein_status render_chatml(rendering *r) {
    const int qwen = r->chat->kind != REIN_CHAT_CHATML, generates = r->options->add_generation_prompt || r->chat->always_generation;
    const size_t query = r->chat->kind == REIN_CHAT_QWEN3 ? last_query(r) : 0;
    rein_status status = put_default_system(r);
    for (size_t i = 0; !status && i < r->n; i++) {
        if (qwen && is_role(r, i, "tool")) status = put_tool(r, i);
        else if (r->chat->kind == REIN_CHAT_QWEN3 && is_role(r, i, "assistant")) status = put_assistant(r, i, query);
        else status = put_turn(r, i, content_of(r, i));
    }
    if (!status && generates) status = put(r, "<|im_start|>assistant\n");
    if (!status && generates && r->options->no_thinking) status = put(r, "<think>\n\n</think>\n\n");
    return status;
}

/* Python's strip(): White_Space and four ASCII separators. */
static slice strip(slice s) {
    uint32_t c;
    while (s.length) {
        const size_t n = rein_utf8_next(&c, s.text);
        if (!rein_is_white_space(c) && (c < 0x1C || c > 0x1F)) break;
        s.text += n, s.length -= n;
    }
    while (s.length) {
        size_t begin = s.length - 1;
        while (begin && ((unsigned char)s.text[begin] & 0xC0) == 0x80) begin--;
        rein_utf8_next(&c, s.text + begin);
        if (!rein_is_white_space(c) && (c < 0x1C || c > 0x1F)) break;
        s.length = begin;
    }
    return s;
}

static rein_status put_header(rendering *r, const char *role) {
    rein_status status = put(r, "<|start_header_id|>");
    if (!status) status = put(r, role);
    return status ? status : put(r, "<|end_header_id|>\n\n");
}

static rein_status put_dates(rendering *r) {
    rein_status status = put_header(r, "system");
    if (!status) status = put(r, "Cutting Knowledge Date: December 2023\nToday Date: ");
    if (!status) status = put(r, r->options->date ? r->options->date : "26 Jul 2024");
    if (!status) status = put(r, "\n\n");
    if (status || is_role(r, 0, "system")) return status;
    return put(r, "<|eot_id|>");
}

static rein_status render_llama3(rendering *r) {
    const int dated = r->chat->kind == REIN_CHAT_LLAMA3_1;
    rein_status status = put(r, r->options->begin ? r->options->begin : "<|begin_of_text|>");
    if (!status && dated) status = put_dates(r);
    for (size_t i = 0; !status && i < r->n; i++) {
        const int headed = dated && i == 0 && is_role(r, 0, "system");
        if (is_role(r, i, "tool")) return wrong_message(r, i, "role", "is tool: llama3 templates have no tool messages here");
        if (!headed) status = put_header(r, r->messages[i].role);
        if (!status) status = put_content(r, i, r->text->length, strip(content_of(r, i)), "<|eot_id|>");
    }
    if (!status && (r->options->add_generation_prompt || r->chat->always_generation)) status = put_header(r, "assistant");
    return status;
}

static rein_status check(const rendering *r) {
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    if (!rein_chat_name(r->chat))
        return rein_fail_at(r->err, REIN_EINVAL, "chat.kind", -1, "is %d: not a chat format", (int)r->chat->kind);
    if (r->chat->kind == REIN_CHAT_TEMPLATE)
        return rein_fail_at(r->err, REIN_EINVAL, "chat.kind", -1, "is a template: rein_chat_template_render runs it");
    if (!r->n) return rein_fail_at(r->err, REIN_EINVAL, "messages", -1, "is empty: at least one message is needed");
    if (r->options->no_thinking && (r->chat->kind != REIN_CHAT_QWEN3 || !r->options->add_generation_prompt))
        return rein_fail_at(r->err, REIN_EINVAL, "no_thinking", -1, "has an effect only on the generation prompt of qwen3");
    for (size_t i = 0; i < r->n; i++) {
        const rein_message *m = &r->messages[i];
        int is = 0;
        for (size_t k = 0; m->role && k < sizeof roles / sizeof *roles; k++) is |= strcmp(m->role, roles[k]) == 0;
        if (!is) return wrong_message(r, i, "role", "is unknown: system, user, assistant or tool is needed");
        const size_t wrong = rein_utf8_valid(m->content, m->length);
        if (wrong < m->length) return wrong_message(r, i, "content", ": byte %zu is not UTF-8", wrong);
    }
    return REIN_OK;
}

rein_status rein_chat_render(rein_text *text, rein_chat_span *spans, const rein_chat *chat, const rein_message *messages, size_t n,
                             const rein_chat_options *options, rein_error *err) {
    static const rein_chat_options none;
    rendering r = {text, spans, chat, messages, n, options ? options : &none, err};
    const size_t before = text->length;
    rein_status status = check(&r);
    if (!status)
        status = chat->kind == REIN_CHAT_RAW      ? render_raw(&r)
                 : chat->kind >= REIN_CHAT_LLAMA3 ? render_llama3(&r)
                                                  : render_chatml(&r);
    if (status) rein_text_cut(text, before);
    return status;
}
