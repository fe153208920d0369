/* template_evaluate.c - expressions. Arithmetic is Python's, on integers of 64 bits: an overflow is an error. */
#include <math.h>
#include <string.h>

#include "model/template.h"

/* ------------------------------------------------------------------------------------------------------------------- arithmetic */

static bool is_whole(rein_value v) { return v.kind == REIN_VALUE_INTEGER || v.kind == REIN_VALUE_BOOLEAN; }

static int64_t whole_of(rein_value v) { return v.kind == REIN_VALUE_INTEGER ? v.as.integer : v.as.boolean; }

static double number_of(rein_value v) { return v.kind == REIN_VALUE_FLOAT ? v.as.number : (double)whole_of(v); }

static rein_value overflow(rein_machine *m) { return rein_fail_value(m, "a whole number has more than 64 bits"); }

static rein_value power(rein_machine *m, int64_t a, int64_t b) {
    int64_t result = 1;
    if (b < 0) return a ? rein_float(pow((double)a, (double)b)) : rein_fail_value(m, "division by zero");
    if (a == 0 || a == 1) return rein_integer(b ? a : 1);
    for (; b > 0 && b < 64; b--)
        if (__builtin_mul_overflow(result, a, &result)) return overflow(m);
    return b >= 64 ? overflow(m) : rein_integer(result);
}

static rein_value whole_binary(rein_machine *m, rein_op op, int64_t a, int64_t b) {
    int64_t result = 0;
    if ((op == REIN_OP_FLOOR_DIVIDE || op == REIN_OP_MODULO || op == REIN_OP_DIVIDE) && !b)
        return rein_fail_value(m, "division by zero");
    if (b == -1 && a == INT64_MIN && op != REIN_OP_ADD && op != REIN_OP_SUBTRACT) return overflow(m);
    switch (op) {
    case REIN_OP_ADD: return __builtin_add_overflow(a, b, &result) ? overflow(m) : rein_integer(result);
    case REIN_OP_SUBTRACT: return __builtin_sub_overflow(a, b, &result) ? overflow(m) : rein_integer(result);
    case REIN_OP_MULTIPLY: return __builtin_mul_overflow(a, b, &result) ? overflow(m) : rein_integer(result);
    case REIN_OP_DIVIDE: return rein_float((double)a / (double)b);
    case REIN_OP_FLOOR_DIVIDE: return rein_integer(a / b - (a % b && (a < 0) != (b < 0)));
    case REIN_OP_MODULO: return rein_integer(a % b + (a % b && (a < 0) != (b < 0) ? b : 0));
    default: return power(m, a, b);
    }
}

static rein_value float_binary(rein_machine *m, rein_op op, double a, double b) {
    if ((op == REIN_OP_FLOOR_DIVIDE || op == REIN_OP_MODULO || op == REIN_OP_DIVIDE) && b == 0)
        return rein_fail_value(m, "division by zero");
    double rest = op == REIN_OP_MODULO || op == REIN_OP_FLOOR_DIVIDE ? fmod(a, b) : 0;
    if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
    switch (op) {
    case REIN_OP_ADD: return rein_float(a + b);
    case REIN_OP_SUBTRACT: return rein_float(a - b);
    case REIN_OP_MULTIPLY: return rein_float(a * b);
    case REIN_OP_DIVIDE: return rein_float(a / b);
    case REIN_OP_FLOOR_DIVIDE: return rein_float(round((a - rest) / b));
    case REIN_OP_MODULO: return rein_float(rest == 0 ? copysign(0, b) : rest);
    default: return rein_float(pow(a, b));
    }
}

static rein_value join_strings(rein_machine *m, const rein_string *a, const rein_string *b) {
    rein_builder builder = {0};
    if (a->safe || b->safe) return rein_fail_value(m, "a text marked as safe can only be printed");
    rein_put_string(m, &builder, a);
    rein_put_string(m, &builder, b);
    return rein_builder_value(m, &builder);
}

static rein_value join_lists(rein_machine *m, rein_value a, rein_value b) {
    const rein_value list = rein_list_new(m, a.kind, a.as.list->n + b.as.list->n);
    for (size_t i = 0; i < a.as.list->n && !m->status; i++) rein_list_add(m, list.as.list, a.as.list->items[i]);
    for (size_t i = 0; i < b.as.list->n && !m->status; i++) rein_list_add(m, list.as.list, b.as.list->items[i]);
    return list;
}

static rein_value repeat(rein_machine *m, rein_value a, int64_t times) {
    rein_builder b = {0};
    if (a.kind == REIN_VALUE_STRING) {
        for (; times > 0 && a.as.string->length && rein_machine_step(m, 1); times--) rein_put_string(m, &b, a.as.string);
        return rein_builder_value(m, &b);
    }
    const rein_value list = rein_list_new(m, a.kind, 0);
    for (; times > 0 && a.as.list->n && !m->status; times--)
        for (size_t i = 0; i < a.as.list->n && !m->status; i++) rein_list_add(m, list.as.list, a.as.list->items[i]);
    return list;
}

static bool repeats(rein_value v) { return v.kind == REIN_VALUE_STRING || v.kind == REIN_VALUE_LIST || v.kind == REIN_VALUE_TUPLE; }

rein_value rein_binary(rein_machine *m, rein_op op, rein_value a, rein_value b) {
    const bool numbers = (is_whole(a) || a.kind == REIN_VALUE_FLOAT) && (is_whole(b) || b.kind == REIN_VALUE_FLOAT);
    if (m->status) return rein_undefined(NULL);
    if (is_whole(a) && is_whole(b)) return whole_binary(m, op, whole_of(a), whole_of(b));
    if (numbers) return float_binary(m, op, number_of(a), number_of(b));
    if (op == REIN_OP_ADD && a.kind == REIN_VALUE_STRING && b.kind == REIN_VALUE_STRING)
        return join_strings(m, a.as.string, b.as.string);
    if (op == REIN_OP_ADD && a.kind == b.kind && (a.kind == REIN_VALUE_LIST || a.kind == REIN_VALUE_TUPLE))
        return join_lists(m, a, b);
    if (op == REIN_OP_MULTIPLY && repeats(a) && is_whole(b)) return repeat(m, a, whole_of(b));
    if (op == REIN_OP_MULTIPLY && repeats(b) && is_whole(a)) return repeat(m, b, whole_of(a));
    const rein_value undefined = a.kind == REIN_VALUE_UNDEFINED ? a : b;
    if (undefined.kind == REIN_VALUE_UNDEFINED && undefined.as.string)
        return rein_fail_value(m, "%.80s is undefined", undefined.as.string->data);
    return rein_fail_value(m, "the operator does not take %s and %s", rein_kind_name(a), rein_kind_name(b));
}

bool rein_compare(rein_machine *m, rein_op op, rein_value a, rein_value b) {
    if (op == REIN_OP_EQUAL) return rein_value_equal(m, a, b);
    if (op == REIN_OP_UNEQUAL) return !rein_value_equal(m, a, b);
    if (op == REIN_OP_IN) return rein_value_contains(m, b, a);
    if (op == REIN_OP_NOT_IN) return !rein_value_contains(m, b, a);
    const int order = rein_value_order(m, a, b);
    if (op == REIN_OP_LESS) return order == -1;
    if (op == REIN_OP_AT_MOST) return order == -1 || order == 0;
    return op == REIN_OP_GREATER ? order == 1 : order == 0 || order == 1;
}

/* ----------------------------------------------------------------------------------------------------------------- compositions */

static rein_value evaluate_items(rein_machine *m, const rein_node *node) {
    const rein_value list = rein_list_new(m, node->kind == REIN_NODE_LIST ? REIN_VALUE_LIST : REIN_VALUE_TUPLE, 0);
    for (const rein_node *item = node->a; item && !m->status; item = item->next)
        rein_list_add(m, list.as.list, rein_template_evaluate(m, item));
    return list;
}

static rein_value evaluate_dict(rein_machine *m, const rein_node *node) {
    const rein_value dict = rein_dict_new(m, 0);
    for (const rein_node *pair = node->a; pair && !m->status; pair = pair->next) {
        const rein_value key = rein_template_evaluate(m, pair->a), value = rein_template_evaluate(m, pair->b);
        if (key.kind == REIN_VALUE_LIST || key.kind == REIN_VALUE_DICT)
            return rein_fail_value(m, "a %s cannot be a key", rein_kind_name(key));
        if (!m->status) rein_dict_set(m, dict.as.dict, key, value);
    }
    return dict;
}

static rein_value evaluate_concat(rein_machine *m, const rein_node *node) {
    rein_builder b = {0};
    for (const rein_node *part = node->a; part && !m->status; part = part->next) {
        const rein_value v = rein_template_evaluate(m, part);
        if (v.kind == REIN_VALUE_STRING && v.as.string->safe) rein_fail_value(m, "a text marked as safe can only be printed");
        rein_put_value(m, &b, v);
    }
    return rein_builder_value(m, &b);
}

static rein_value evaluate_compare(rein_machine *m, const rein_node *node) {
    rein_value left = rein_template_evaluate(m, node->a);
    for (const rein_node *comparison = node->b; comparison && !m->status; comparison = comparison->next) {
        const rein_value right = rein_template_evaluate(m, comparison->a);
        m->at = node->at;
        if (m->status || !rein_compare(m, comparison->op, left, right)) return rein_boolean(false);
        left = right;
    }
    return rein_boolean(true);
}

static rein_value evaluate_item(rein_machine *m, const rein_node *node) {
    const rein_value of = rein_template_evaluate(m, node->a);
    const rein_node *slice = node->b;
    if (slice->kind != REIN_NODE_SLICE) {
        const rein_value key = rein_template_evaluate(m, slice);
        m->at = node->at;
        return m->status ? key : rein_value_item(m, of, key);
    }
    const rein_value begin = slice->a ? rein_template_evaluate(m, slice->a) : rein_none(),
                     end = slice->b ? rein_template_evaluate(m, slice->b) : rein_none(),
                     step = slice->c ? rein_template_evaluate(m, slice->c) : rein_none();
    m->at = node->at;
    return m->status ? rein_undefined(NULL) : rein_value_slice(m, of, begin, end, step);
}

static rein_value evaluate_unary(rein_machine *m, const rein_node *node) {
    const rein_value v = rein_template_evaluate(m, node->a);
    if (m->status) return v;
    if (v.kind == REIN_VALUE_FLOAT) return rein_float(node->op == REIN_OP_ADD ? v.as.number : -v.as.number);
    if (is_whole(v)) return whole_binary(m, node->op, 0, whole_of(v));
    return rein_fail_value(m, "the sign does not take a %s", rein_kind_name(v));
}

static rein_value evaluate_filter(rein_machine *m, const rein_node *node) {
    const rein_value self = rein_template_evaluate(m, node->a);
    m->at = node->at;
    return m->status ? self : rein_call_row(m, node->row, self, node->b);
}

static rein_value evaluate_logic(rein_machine *m, const rein_node *node) {
    const rein_value left = rein_template_evaluate(m, node->kind == REIN_NODE_CONDITION ? node->b : node->a);
    const bool is = rein_value_true(left);
    if (m->status) return left;
    if (node->kind == REIN_NODE_NOT) return rein_boolean(!is);
    if (node->kind == REIN_NODE_AND) return is ? rein_template_evaluate(m, node->b) : left;
    if (node->kind == REIN_NODE_OR) return is ? left : rein_template_evaluate(m, node->b);
    if (is) return rein_template_evaluate(m, node->a);
    return node->c ? rein_template_evaluate(m, node->c) : rein_undefined(NULL);
}

static rein_value evaluate_binary(rein_machine *m, const rein_node *node) {
    const rein_value a = rein_template_evaluate(m, node->a), b = rein_template_evaluate(m, node->b);
    m->at = node->at;
    return rein_binary(m, node->op, a, b);
}

static rein_value evaluate_call(rein_machine *m, const rein_node *node) {
    const rein_value callee = rein_template_evaluate(m, node->a);
    m->at = node->at;
    return m->status ? callee : rein_call_value(m, callee, node->b, NULL);
}

static rein_value evaluate_attribute(rein_machine *m, const rein_node *node) {
    const rein_value of = rein_template_evaluate(m, node->a);
    m->at = node->at;
    return m->status ? of : rein_value_attribute(m, of, node->name);
}

static rein_value evaluate(rein_machine *m, const rein_node *node) {
    switch (node->kind) {
    case REIN_NODE_CONSTANT: return node->value;
    case REIN_NODE_NAME: return rein_lookup(m, node->name);
    case REIN_NODE_TUPLE:
    case REIN_NODE_LIST: return evaluate_items(m, node);
    case REIN_NODE_DICT: return evaluate_dict(m, node);
    case REIN_NODE_ATTRIBUTE: return evaluate_attribute(m, node);
    case REIN_NODE_ITEM: return evaluate_item(m, node);
    case REIN_NODE_CALL: return evaluate_call(m, node);
    case REIN_NODE_FILTER:
    case REIN_NODE_TEST: return evaluate_filter(m, node);
    case REIN_NODE_NOT:
    case REIN_NODE_AND:
    case REIN_NODE_OR:
    case REIN_NODE_CONDITION: return evaluate_logic(m, node);
    case REIN_NODE_COMPARE: return evaluate_compare(m, node);
    case REIN_NODE_CONCAT: return evaluate_concat(m, node);
    case REIN_NODE_BINARY: return evaluate_binary(m, node);
    case REIN_NODE_UNARY: return evaluate_unary(m, node);
    default: return rein_fail_value(m, "this is not an expression");
    }
}

rein_value rein_template_evaluate(rein_machine *m, const rein_node *node) {
    if (!rein_machine_step(m, 1)) return rein_undefined(NULL);
    m->at = node->at;
    if (m->depth >= REIN_TEMPLATE_DEPTH * 3) return rein_fail_value(m, "calls are nested too deeply");
    m->depth++;
    const rein_value v = evaluate(m, node);
    m->depth--;
    return v;
}
