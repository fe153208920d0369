/* template_parser.c - the expressions of a template. The grammar is Jinja's own, function by function. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/template.h"

/* ----------------------------------------------------------------------------------------------------------------------- tokens */

const rein_template_token *rein_parser_current(const rein_parser *p) { return &p->tokens[p->at]; }

static bool is_word(const rein_template_token *t, const char *word) {
    return (t->kind == REIN_TOKEN_NAME || t->kind == REIN_TOKEN_OPERATOR) && t->length == strlen(word) &&
           memcmp(t->text, word, t->length) == 0;
}

static bool next_is(const rein_parser *p, const char *word) { return p->at + 1 < p->n && is_word(&p->tokens[p->at + 1], word); }

bool rein_parser_is(const rein_parser *p, const char *word) { return !p->status && is_word(rein_parser_current(p), word); }

static void move(rein_parser *p) {
    if (p->at + 1 < p->n) p->at++;
}

bool rein_parser_skip(rein_parser *p, const char *word) {
    const bool is = rein_parser_is(p, word);
    if (is) move(p);
    return is;
}

void rein_parser_fail(rein_parser *p, const char *format, ...) {
    char message[200];
    va_list arguments;
    if (p->status) return;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    p->status = rein_template_fail(p->err, REIN_EINVAL, p->parsed->text, rein_parser_current(p)->at, "%s", message);
}

static void unexpected(rein_parser *p, const char *needed) {
    const rein_template_token *t = rein_parser_current(p);
    if (t->kind == REIN_TOKEN_NAME || t->kind == REIN_TOKEN_OPERATOR)
        rein_parser_fail(p, "%.*s is not expected here: %s is needed", (int)(t->length < 40 ? t->length : 40), t->text, needed);
    else rein_parser_fail(p, "%s is needed here", needed);
}

void rein_parser_expect(rein_parser *p, const char *word) {
    if (!rein_parser_skip(p, word)) unexpected(p, word);
}

bool rein_parser_enter(rein_parser *p) {
    if (p->depth >= REIN_TEMPLATE_DEPTH) rein_parser_fail(p, "the template is nested more than %d deep", REIN_TEMPLATE_DEPTH);
    p->depth++;
    return !p->status;
}

rein_node *rein_parser_node(rein_parser *p, rein_node_kind kind) {
    rein_node *node = p->status ? NULL : rein_blocks_take(&p->parsed->memory, sizeof *node);
    if (!node && !p->status) p->status = rein_no_memory(p->err);
    if (!node) return p->failed = (rein_node){0}, &p->failed;
    node->kind = kind;
    node->at = rein_parser_current(p)->at;
    return node;
}

const rein_string *rein_parser_string(rein_parser *p, const char *text, size_t length) {
    static const rein_string none = {.data = ""};
    rein_string *s = p->status ? NULL : rein_blocks_take(&p->parsed->memory, sizeof *s);
    char *data = s ? rein_blocks_take(&p->parsed->memory, length + 1) : NULL;
    if (!data && !p->status) p->status = rein_no_memory(p->err);
    if (!data) return &none;
    memcpy(data, text, length);
    *s = (rein_string){.data = data, .length = length};
    return s;
}

const rein_string *rein_parser_name(rein_parser *p) {
    const rein_template_token *t = rein_parser_current(p);
    if (t->kind != REIN_TOKEN_NAME) unexpected(p, "a name");
    const rein_string *name = rein_parser_string(p, t->text ? t->text : "", t->text ? t->length : 0);
    move(p);
    return name;
}

/* -------------------------------------------------------------------------------------------------------------------- operands */

/* Appends to a list of nodes. The node of a failure is not linked: it is only one. */
static void append(rein_parser *p, rein_node ***end, rein_node *node) {
    if (p->status) return;
    **end = node;
    *end = &node->next;
}

static rein_node *constant(rein_parser *p, rein_value value) {
    rein_node *node = rein_parser_node(p, REIN_NODE_CONSTANT);
    node->value = value;
    return node;
}

static rein_node *parse_name(rein_parser *p, bool spaces) {
    rein_node *node = rein_parser_node(p, REIN_NODE_NAME);
    const bool yes = rein_parser_is(p, "true") || rein_parser_is(p, "True"),
               no = rein_parser_is(p, "false") || rein_parser_is(p, "False"),
               none = rein_parser_is(p, "none") || rein_parser_is(p, "None");
    node->name = rein_parser_name(p);
    if (yes || no || none) node->kind = REIN_NODE_CONSTANT;
    node->value = none ? rein_none() : rein_boolean(yes);
    if (!spaces || node->kind != REIN_NODE_NAME || !rein_parser_skip(p, ".")) return node;
    node->kind = REIN_NODE_NAMESPACE_TARGET;
    node->value = (rein_value){.kind = REIN_VALUE_STRING, .as.string = rein_parser_name(p)};
    return node;
}

static rein_node *parse_string(rein_parser *p) {
    rein_text text = {0};
    rein_node *node = rein_parser_node(p, REIN_NODE_CONSTANT);
    for (const rein_template_token *t; t = rein_parser_current(p), t->kind == REIN_TOKEN_STRING && !p->status; move(p))
        p->status = rein_text_append(&text, t->text, t->length, p->err);
    node->value =
        (rein_value){.kind = REIN_VALUE_STRING, .as.string = rein_parser_string(p, text.data ? text.data : "", text.length)};
    rein_text_free(&text);
    return node;
}

static rein_node *parse_list(rein_parser *p) {
    rein_node *node = rein_parser_node(p, REIN_NODE_LIST), **end = &node->a;
    rein_parser_expect(p, "[");
    for (bool first = true; !p->status && !rein_parser_is(p, "]"); first = false) {
        if (!first) rein_parser_expect(p, ",");
        if (rein_parser_is(p, "]")) break;
        append(p, &end, rein_parse_expression(p));
    }
    rein_parser_expect(p, "]");
    return node;
}

static rein_node *parse_dict(rein_parser *p) {
    rein_node *node = rein_parser_node(p, REIN_NODE_DICT), **end = &node->a;
    rein_parser_expect(p, "{");
    for (bool first = true; !p->status && !rein_parser_is(p, "}"); first = false) {
        if (!first) rein_parser_expect(p, ",");
        if (rein_parser_is(p, "}")) break;
        rein_node *pair = rein_parser_node(p, REIN_NODE_PAIR);
        pair->a = rein_parse_expression(p);
        rein_parser_expect(p, ":");
        pair->b = rein_parse_expression(p);
        append(p, &end, pair);
    }
    rein_parser_expect(p, "}");
    return node;
}

static rein_node *parse_primary(rein_parser *p, bool spaces) {
    const rein_template_token *t = rein_parser_current(p);
    rein_node *node = &p->failed;
    if (!rein_parser_enter(p)) return node;
    if (t->kind == REIN_TOKEN_NAME) node = parse_name(p, spaces);
    else if (t->kind == REIN_TOKEN_STRING) node = parse_string(p);
    else if (t->kind == REIN_TOKEN_INTEGER) node = constant(p, rein_integer(t->integer)), move(p);
    else if (t->kind == REIN_TOKEN_FLOAT) node = constant(p, rein_float(t->number)), move(p);
    else if (rein_parser_is(p, "[")) node = parse_list(p);
    else if (rein_parser_is(p, "{")) node = parse_dict(p);
    else if (rein_parser_skip(p, "(")) {
        node = rein_parse_tuple(p, false, true, false);
        rein_parser_expect(p, ")");
    } else unexpected(p, "an expression");
    p->depth--;
    return node;
}

static bool ends_tuple(const rein_parser *p, bool simple) {
    const rein_token_kind kind = rein_parser_current(p)->kind;
    return kind == REIN_TOKEN_PRINT_END || kind == REIN_TOKEN_BLOCK_END || rein_parser_is(p, ")") ||
           (simple && rein_parser_is(p, "in"));
}

rein_node *rein_parse_tuple(rein_parser *p, bool simple, bool parenthesized, bool spaces) {
    rein_node *tuple = rein_parser_node(p, REIN_NODE_TUPLE), **end = &tuple->a;
    bool commas = false;
    for (;;) {
        if (tuple->a) rein_parser_expect(p, ",");
        if (p->status || ends_tuple(p, simple)) break;
        append(p, &end, simple ? parse_primary(p, spaces) : rein_parse_expression(p));
        if (!rein_parser_is(p, ",")) break;
        commas = true;
    }
    if (!commas && tuple->a) return tuple->a;
    if (!commas && !parenthesized) unexpected(p, "an expression");
    return tuple;
}

rein_node *rein_parse_target(rein_parser *p, bool spaces) {
    rein_node *target = rein_parse_tuple(p, true, false, spaces);
    const rein_node *item = target->kind == REIN_NODE_TUPLE ? target->a : target;
    for (; item && !p->status; item = target->kind == REIN_NODE_TUPLE ? item->next : NULL)
        if (item->kind != REIN_NODE_NAME && item->kind != REIN_NODE_NAMESPACE_TARGET && item->kind != REIN_NODE_TUPLE)
            rein_parser_fail(p, "a value can only be given to a name");
    return target;
}

/* ------------------------------------------------------------------------------------------------------------ behind an operand */

static rein_node *parse_arguments(rein_parser *p) {
    rein_node *first = NULL, **end = &first;
    bool keywords = false;
    rein_parser_expect(p, "(");
    while (!p->status && !rein_parser_is(p, ")")) {
        if (first) rein_parser_expect(p, ",");
        if (rein_parser_is(p, ")")) break;
        if (rein_parser_is(p, "*") || rein_parser_is(p, "**")) rein_parser_fail(p, "* and ** in calls are not supported");
        rein_node *argument;
        if (rein_parser_current(p)->kind == REIN_TOKEN_NAME && next_is(p, "=")) {
            argument = rein_parser_node(p, REIN_NODE_KEYWORD);
            argument->name = rein_parser_name(p);
            rein_parser_expect(p, "=");
            argument->a = rein_parse_expression(p);
            keywords = true;
        } else {
            if (keywords) rein_parser_fail(p, "an argument without a name follows one with a name");
            argument = rein_parse_expression(p);
        }
        append(p, &end, argument);
    }
    rein_parser_expect(p, ")");
    return first;
}

static rein_node *parse_slice(rein_parser *p) {
    rein_node *slice = rein_parser_node(p, REIN_NODE_SLICE);
    rein_node *first = rein_parser_is(p, ":") ? NULL : rein_parse_expression(p);
    if (!rein_parser_skip(p, ":")) return first;
    slice->a = first;
    if (!rein_parser_is(p, ":") && !rein_parser_is(p, "]")) slice->b = rein_parse_expression(p);
    if (rein_parser_skip(p, ":") && !rein_parser_is(p, "]")) slice->c = rein_parse_expression(p);
    return slice;
}

static rein_node *parse_subscript(rein_parser *p, rein_node *of) {
    rein_node *node = rein_parser_node(p, REIN_NODE_ITEM);
    node->a = of;
    if (rein_parser_skip(p, "[")) {
        node->b = parse_slice(p);
        rein_parser_expect(p, "]");
        return node;
    }
    rein_parser_expect(p, ".");
    if (rein_parser_current(p)->kind == REIN_TOKEN_INTEGER) {
        node->b = constant(p, rein_integer(rein_parser_current(p)->integer));
        move(p);
        return node;
    }
    node->kind = REIN_NODE_ATTRIBUTE;
    node->name = rein_parser_name(p);
    return node;
}

static rein_node *parse_call(rein_parser *p, rein_node *of) {
    rein_node *call = rein_parser_node(p, REIN_NODE_CALL);
    call->a = of;
    call->b = parse_arguments(p);
    return call;
}

static rein_node *parse_postfix(rein_parser *p, rein_node *node) {
    while (!p->status) {
        if (rein_parser_is(p, ".") || rein_parser_is(p, "[")) node = parse_subscript(p, node);
        else if (rein_parser_is(p, "(")) node = parse_call(p, node);
        else break;
    }
    return node;
}

rein_node *rein_parse_filters(rein_parser *p, rein_node *of) {
    do {
        rein_node *filter = rein_parser_node(p, REIN_NODE_FILTER);
        filter->a = of;
        filter->row = rein_filter_find(rein_parser_current(p)->text, rein_parser_current(p)->length);
        if (rein_parser_current(p)->kind == REIN_TOKEN_NAME && !filter->row)
            rein_parser_fail(p, "the filter %.*s is not supported", (int)rein_parser_current(p)->length,
                             rein_parser_current(p)->text);
        filter->name = rein_parser_name(p);
        if (rein_parser_is(p, "(")) filter->b = parse_arguments(p);
        of = filter;
    } while (rein_parser_skip(p, "|"));
    return of;
}

static bool begins_argument(const rein_parser *p) {
    const rein_template_token *t = rein_parser_current(p);
    if (t->kind == REIN_TOKEN_NAME) return !is_word(t, "else") && !is_word(t, "or") && !is_word(t, "and");
    return t->kind == REIN_TOKEN_STRING || t->kind == REIN_TOKEN_INTEGER || t->kind == REIN_TOKEN_FLOAT || is_word(t, "[") ||
           is_word(t, "{");
}

static rein_node *parse_test(rein_parser *p, rein_node *of) {
    rein_node *negated = rein_parser_node(p, REIN_NODE_NOT);
    rein_parser_expect(p, "is");
    const bool is_negated = rein_parser_skip(p, "not");
    rein_node *test = rein_parser_node(p, REIN_NODE_TEST);
    test->a = of;
    test->row = rein_test_find(rein_parser_current(p)->text, rein_parser_current(p)->length);
    if (rein_parser_current(p)->kind == REIN_TOKEN_NAME && !test->row)
        rein_parser_fail(p, "the test %.*s is not supported", (int)rein_parser_current(p)->length, rein_parser_current(p)->text);
    test->name = rein_parser_name(p);
    if (rein_parser_is(p, "(")) test->b = parse_arguments(p);
    else if (rein_parser_is(p, "is")) rein_parser_fail(p, "tests cannot be chained");
    else if (begins_argument(p)) test->b = parse_postfix(p, parse_primary(p, false));
    negated->a = test;
    return is_negated ? negated : test;
}

/* -------------------------------------------------------------------------------------------------------------------- operators */

static rein_node *parse_unary(rein_parser *p, bool filters) {
    rein_node *node = &p->failed;
    if (!rein_parser_enter(p)) return node;
    if (rein_parser_is(p, "-") || rein_parser_is(p, "+")) {
        node = rein_parser_node(p, REIN_NODE_UNARY);
        node->op = rein_parser_is(p, "-") ? REIN_OP_SUBTRACT : REIN_OP_ADD;
        move(p);
        node->a = parse_unary(p, false);
    } else node = parse_primary(p, false);
    node = parse_postfix(p, node);
    while (filters && !p->status) {
        if (rein_parser_skip(p, "|")) node = rein_parse_filters(p, node);
        else if (rein_parser_is(p, "is")) node = parse_test(p, node);
        else if (rein_parser_is(p, "(")) node = parse_call(p, node);
        else break;
    }
    p->depth--;
    return node;
}

typedef struct operator_row {
    const char *word;
    rein_op op;
} operator_row;

/* The operator at the current token, which is skipped; REIN_OP_NONE. */
static rein_op take_operator(rein_parser *p, const operator_row *rows) {
    for (; rows->word; rows++)
        if (rein_parser_skip(p, rows->word)) return rows->op;
    return REIN_OP_NONE;
}

static rein_node *binary(rein_parser *p, rein_op op, rein_node *a, rein_node *b) {
    rein_node *node = rein_parser_node(p, REIN_NODE_BINARY);
    if (!p->status) node->at = a->at;
    node->op = op, node->a = a, node->b = b;
    return node;
}

static rein_node *parse_power(rein_parser *p) {
    rein_node *left = parse_unary(p, true);
    while (rein_parser_skip(p, "**")) left = binary(p, REIN_OP_POWER, left, parse_unary(p, true));
    return left;
}

static rein_node *parse_product(rein_parser *p) {
    static const operator_row rows[] = {
        {"*", REIN_OP_MULTIPLY}, {"/", REIN_OP_DIVIDE}, {"//", REIN_OP_FLOOR_DIVIDE}, {"%", REIN_OP_MODULO}, {NULL, REIN_OP_NONE}};
    rein_node *left = parse_power(p);
    for (rein_op op; (op = take_operator(p, rows)) != REIN_OP_NONE;) left = binary(p, op, left, parse_power(p));
    return left;
}

static rein_node *parse_concat(rein_parser *p) {
    rein_node *first = parse_product(p);
    if (!rein_parser_is(p, "~")) return first;
    rein_node *node = rein_parser_node(p, REIN_NODE_CONCAT), **end = &node->a;
    append(p, &end, first);
    while (rein_parser_skip(p, "~")) append(p, &end, parse_product(p));
    return node;
}

static rein_node *parse_sum(rein_parser *p) {
    static const operator_row rows[] = {{"+", REIN_OP_ADD}, {"-", REIN_OP_SUBTRACT}, {NULL, REIN_OP_NONE}};
    rein_node *left = parse_concat(p);
    for (rein_op op; (op = take_operator(p, rows)) != REIN_OP_NONE;) left = binary(p, op, left, parse_concat(p));
    return left;
}

static rein_op take_comparison(rein_parser *p) {
    static const operator_row rows[] = {{"==", REIN_OP_EQUAL},   {"!=", REIN_OP_UNEQUAL}, {"<", REIN_OP_LESS},
                                        {"<=", REIN_OP_AT_MOST}, {">", REIN_OP_GREATER},  {">=", REIN_OP_AT_LEAST},
                                        {"in", REIN_OP_IN},      {NULL, REIN_OP_NONE}};
    if (!rein_parser_is(p, "not") || !next_is(p, "in")) return take_operator(p, rows);
    move(p), move(p);
    return REIN_OP_NOT_IN;
}

static rein_node *parse_compare(rein_parser *p) {
    rein_node *first = parse_sum(p), *node = NULL, **end = NULL;
    for (rein_op op; (op = take_comparison(p)) != REIN_OP_NONE;) {
        rein_node *comparison = rein_parser_node(p, REIN_NODE_COMPARISON);
        comparison->op = op;
        comparison->a = parse_sum(p);
        if (!node) node = rein_parser_node(p, REIN_NODE_COMPARE), node->a = first, end = &node->b;
        append(p, &end, comparison);
    }
    return node ? node : first;
}

static rein_node *parse_not(rein_parser *p) {
    if (!rein_parser_is(p, "not")) return parse_compare(p);
    if (!rein_parser_enter(p)) return &p->failed;
    rein_node *node = rein_parser_node(p, REIN_NODE_NOT);
    move(p);
    node->a = parse_not(p);
    p->depth--;
    return node;
}

static rein_node *logical(rein_parser *p, rein_node_kind kind, rein_node *a, rein_node *b) {
    rein_node *node = rein_parser_node(p, kind);
    node->a = a, node->b = b;
    return node;
}

static rein_node *parse_and(rein_parser *p) {
    rein_node *left = parse_not(p);
    while (rein_parser_skip(p, "and")) left = logical(p, REIN_NODE_AND, left, parse_not(p));
    return left;
}

rein_node *rein_parse_without_condition(rein_parser *p) {
    rein_node *left = parse_and(p);
    while (rein_parser_skip(p, "or")) left = logical(p, REIN_NODE_OR, left, parse_and(p));
    return left;
}

rein_node *rein_parse_expression(rein_parser *p) {
    if (!rein_parser_enter(p)) return &p->failed;
    rein_node *node = rein_parse_without_condition(p);
    while (rein_parser_skip(p, "if")) {
        rein_node *condition = rein_parser_node(p, REIN_NODE_CONDITION);
        condition->a = node;
        condition->b = rein_parse_without_condition(p);
        if (rein_parser_skip(p, "else")) condition->c = rein_parse_expression(p);
        node = condition;
    }
    p->depth--;
    return node;
}
