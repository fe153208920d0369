/* template_statements.c - the statements of a template, and parsing as a whole. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "model/template.h"

rein_status rein_template_fail(rein_error *err, rein_status code, const char *text, size_t at, const char *format, ...) {
    char message[REIN_MESSAGE_SIZE];
    size_t line = 1, column = 1;
    va_list arguments;
    for (size_t i = 0; i < at && text[i]; i++) {
        if (text[i] == '\n') line++, column = 1;
        else if (((unsigned char)text[i] & 0xC0) != 0x80) column++;
    }
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return rein_fail(err, code, "the chat template, line %zu, column %zu: %s", line, column, message);
}

static void end_block(rein_parser *p) {
    if (p->status) return;
    if (rein_parser_current(p)->kind != REIN_TOKEN_BLOCK_END) rein_parser_fail(p, "%%} is needed here");
    else p->at++;
}

/* The body of a block up to {% end %}, which is skipped. */
static rein_node *parse_block(rein_parser *p, const char *end) {
    const char *const ends[] = {end, NULL};
    end_block(p);
    rein_node *body = rein_parse_body(p, ends);
    rein_parser_expect(p, end);
    return body;
}

static rein_node *parse_for(rein_parser *p) {
    static const char *const ends[] = {"endfor", "else", NULL};
    rein_node *node = rein_parser_node(p, REIN_NODE_FOR);
    rein_parser_expect(p, "for");
    node->a = rein_parse_target(p, false);
    rein_parser_expect(p, "in");
    node->b = rein_parse_without_condition(p);
    if (rein_parser_is(p, ",")) rein_parser_fail(p, "a tuple without parentheses is not supported here");
    if (rein_parser_skip(p, "if")) node->c = rein_parse_expression(p);
    if (rein_parser_is(p, "recursive")) rein_parser_fail(p, "recursive loops are not supported");
    end_block(p);
    p->loops++;
    node->body = rein_parse_body(p, ends);
    p->loops--;
    if (rein_parser_skip(p, "else")) node->otherwise = parse_block(p, "endfor");
    else rein_parser_expect(p, "endfor");
    return node;
}

static rein_node *parse_if(rein_parser *p) {
    static const char *const ends[] = {"endif", "elif", "else", NULL};
    rein_node *first = rein_parser_node(p, REIN_NODE_IF), *node = first;
    rein_parser_expect(p, "if");
    for (;;) {
        node->a = rein_parse_tuple(p, false, false, false);
        end_block(p);
        node->body = rein_parse_body(p, ends);
        if (!rein_parser_is(p, "elif")) break;
        rein_node *next = rein_parser_node(p, REIN_NODE_IF);
        rein_parser_expect(p, "elif");
        node = node->otherwise = next;
    }
    if (rein_parser_skip(p, "else")) node->otherwise = parse_block(p, "endif");
    else rein_parser_expect(p, "endif");
    return first;
}

static rein_node *parse_set(rein_parser *p) {
    rein_node *node = rein_parser_node(p, REIN_NODE_SET);
    rein_parser_expect(p, "set");
    node->a = rein_parse_target(p, true);
    if (rein_parser_skip(p, "=")) {
        node->b = rein_parse_tuple(p, false, false, false);
        return node;
    }
    node->kind = REIN_NODE_SET_BLOCK;
    if (rein_parser_skip(p, "|")) node->b = rein_parse_filters(p, NULL);
    node->body = parse_block(p, "endset");
    return node;
}

static void parse_signature(rein_parser *p, rein_node *macro) {
    rein_node **end = &macro->a;
    bool defaults = false;
    rein_parser_expect(p, "(");
    while (!p->status && !rein_parser_is(p, ")")) {
        if (macro->a) rein_parser_expect(p, ",");
        rein_node *parameter = rein_parser_node(p, REIN_NODE_KEYWORD);
        parameter->name = rein_parser_name(p);
        if (rein_parser_skip(p, "=")) parameter->a = rein_parse_expression(p), defaults = true;
        else if (defaults) rein_parser_fail(p, "a parameter without a default follows one with a default");
        if (!p->status) *end = parameter, end = &parameter->next;
    }
    rein_parser_expect(p, ")");
}

static rein_node *macro_body(rein_parser *p, rein_node *macro, const char *end) {
    const int loops = p->loops;
    p->loops = 0;
    macro->body = parse_block(p, end);
    p->loops = loops;
    return macro;
}

static rein_node *parse_macro(rein_parser *p) {
    rein_node *node = rein_parser_node(p, REIN_NODE_MACRO);
    rein_parser_expect(p, "macro");
    node->name = rein_parser_name(p);
    parse_signature(p, node);
    return macro_body(p, node, "endmacro");
}

static rein_node *parse_call_block(rein_parser *p) {
    rein_node *node = rein_parser_node(p, REIN_NODE_CALL_BLOCK), *macro = rein_parser_node(p, REIN_NODE_MACRO);
    rein_parser_expect(p, "call");
    macro->name = rein_parser_string(p, "caller", 6);
    if (rein_parser_is(p, "(")) parse_signature(p, macro);
    node->a = rein_parse_expression(p);
    if (!p->status && node->a->kind != REIN_NODE_CALL) rein_parser_fail(p, "a call is needed");
    node->b = macro_body(p, macro, "endcall");
    return node;
}

static rein_node *parse_with(rein_parser *p) {
    rein_node *node = rein_parser_node(p, REIN_NODE_WITH), **end = &node->a;
    rein_parser_expect(p, "with");
    while (!p->status && rein_parser_current(p)->kind != REIN_TOKEN_BLOCK_END) {
        if (node->a) rein_parser_expect(p, ",");
        rein_node *pair = rein_parser_node(p, REIN_NODE_PAIR);
        pair->a = rein_parser_node(p, REIN_NODE_NAME);
        pair->a->name = rein_parser_name(p);
        rein_parser_expect(p, "=");
        pair->b = rein_parse_expression(p);
        if (!p->status) *end = pair, end = &pair->next;
    }
    node->body = parse_block(p, "endwith");
    return node;
}

static rein_node *parse_filter_block(rein_parser *p) {
    rein_node *node = rein_parser_node(p, REIN_NODE_FILTER_BLOCK);
    rein_parser_expect(p, "filter");
    node->b = rein_parse_filters(p, NULL);
    node->body = parse_block(p, "endfilter");
    return node;
}

static rein_node *parse_generation(rein_parser *p) {
    rein_node *node = rein_parser_node(p, REIN_NODE_GENERATION);
    rein_parser_expect(p, "generation");
    if (!p->status) p->parsed->has_generation = true;
    return macro_body(p, node, "endgeneration");
}

static rein_node *parse_print(rein_parser *p) {
    rein_node *node = rein_parser_node(p, REIN_NODE_PRINT);
    rein_parser_expect(p, "print");
    node->a = rein_parse_expression(p);
    if (rein_parser_is(p, ",")) rein_parser_fail(p, "print takes one expression here");
    return node;
}

static rein_node *parse_jump(rein_parser *p, const char *word) {
    rein_node *node = rein_parser_node(p, *word == 'b' ? REIN_NODE_BREAK : REIN_NODE_CONTINUE);
    if (!p->loops) rein_parser_fail(p, "%s is outside of a loop", word);
    rein_parser_expect(p, word);
    return node;
}

static rein_node *parse_statement(rein_parser *p) {
    if (rein_parser_is(p, "for")) return parse_for(p);
    if (rein_parser_is(p, "if")) return parse_if(p);
    if (rein_parser_is(p, "set")) return parse_set(p);
    if (rein_parser_is(p, "macro")) return parse_macro(p);
    if (rein_parser_is(p, "call")) return parse_call_block(p);
    if (rein_parser_is(p, "with")) return parse_with(p);
    if (rein_parser_is(p, "filter")) return parse_filter_block(p);
    if (rein_parser_is(p, "generation")) return parse_generation(p);
    if (rein_parser_is(p, "print")) return parse_print(p);
    if (rein_parser_is(p, "break")) return parse_jump(p, "break");
    if (rein_parser_is(p, "continue")) return parse_jump(p, "continue");
    const rein_template_token *t = rein_parser_current(p);
    if (t->kind == REIN_TOKEN_NAME)
        rein_parser_fail(p, "the statement %.*s is not supported", (int)(t->length < 40 ? t->length : 40), t->text);
    else rein_parser_fail(p, "the name of a statement is needed");
    return &p->failed;
}

static rein_node *parse_data(rein_parser *p) {
    rein_node *node = rein_parser_node(p, REIN_NODE_TEXT);
    const rein_template_token *t = rein_parser_current(p);
    node->value = (rein_value){.kind = REIN_VALUE_STRING, .as.string = rein_parser_string(p, t->text, t->length)};
    p->at++;
    return node;
}

static rein_node *parse_output(rein_parser *p) {
    rein_node *node = rein_parser_node(p, REIN_NODE_PRINT);
    p->at++;
    node->a = rein_parse_tuple(p, false, false, false);
    if (!p->status && rein_parser_current(p)->kind != REIN_TOKEN_PRINT_END) rein_parser_fail(p, "}} is needed here");
    if (!p->status) p->at++;
    return node;
}

/* The block that begins here: NULL if it is one of `ends`, which is the current token then. */
static rein_node *parse_tag(rein_parser *p, const char *const *ends) {
    p->at++;
    for (size_t i = 0; ends && ends[i]; i++)
        if (rein_parser_is(p, ends[i])) return NULL;
    rein_node *node = parse_statement(p);
    end_block(p);
    return node;
}

rein_node *rein_parse_body(rein_parser *p, const char *const *ends) {
    rein_node *first = NULL, **end = &first;
    if (!rein_parser_enter(p)) return NULL;
    while (!p->status && rein_parser_current(p)->kind != REIN_TOKEN_END) {
        const rein_token_kind kind = rein_parser_current(p)->kind;
        rein_node *node = kind == REIN_TOKEN_DATA          ? parse_data(p)
                          : kind == REIN_TOKEN_PRINT_BEGIN ? parse_output(p)
                                                           : parse_tag(p, ends);
        if (!node) break;
        if (!p->status) *end = node, end = &node->next;
    }
    if (!p->status && ends && rein_parser_current(p)->kind == REIN_TOKEN_END) rein_parser_fail(p, "{%% %s %%} is missing", ends[0]);
    p->depth--;
    return first;
}

/* Every end of a line becomes \n, and one at the end of the text goes, as Jinja does. */
static rein_status normalize(rein_template *parsed, const char *text, size_t length, rein_error *err) {
    char *to = rein_blocks_take(&parsed->memory, length + 1);
    if (!to) return rein_no_memory(err);
    parsed->text = to;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\r') *to++ = '\n', i += i + 1 < length && text[i + 1] == '\n';
        else *to++ = text[i];
    }
    if (to > parsed->text && to[-1] == '\n') to--;
    *to = 0;
    parsed->length = (size_t)(to - parsed->text);
    return REIN_OK;
}

rein_status rein_template_parse(rein_template *parsed, const char *text, size_t length, rein_error *err) {
    *parsed = (rein_template){0};
    if (length > REIN_TEMPLATE_SIZE)
        return rein_fail(err, REIN_EINVAL, "the chat template has %zu bytes: at most %d are supported", length, REIN_TEMPLATE_SIZE);
    const size_t wrong = rein_utf8_valid(text, length);
    if (wrong < length) return rein_fail(err, REIN_EINVAL, "the chat template: byte %zu is not UTF-8", wrong);
    if (memchr(text, 0, length)) return rein_fail(err, REIN_EINVAL, "the chat template has a NUL byte");
    rein_template_token_list tokens = {0};
    rein_status status = normalize(parsed, text, length, err);
    if (!status) status = rein_template_tokens(&tokens, parsed, err);
    if (!status) {
        rein_parser p = {.parsed = parsed, .tokens = tokens.data, .n = tokens.n, .err = err};
        parsed->body = rein_parse_body(&p, NULL);
        status = p.status;
    }
    free(tokens.data);
    return status;
}

void rein_template_free(rein_template *parsed) {
    rein_blocks_free(&parsed->memory);
    *parsed = (rein_template){0};
}
