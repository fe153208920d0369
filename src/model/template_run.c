/* template_run.c - statements. A loop, a macro and a with block have their own scope, an if has not: what is set there is set around it. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "model/template.h"

/* ------------------------------------------------------------------------------------------------------------------------ names */

rein_value rein_lookup(rein_machine *m, const rein_string *name) {
    for (const rein_scope *scope = m->scope; scope; scope = scope->outer) {
        const rein_dict_entry *entry = rein_dict_name(&scope->names, name->data, name->length);
        if (entry) return entry->value;
    }
    const rein_callable *row = rein_function_find(name->data, name->length);
    return row ? (rein_value){.kind = REIN_VALUE_FUNCTION, .as.function = row} : rein_undefined(name);
}

static void set_name(rein_machine *m, const rein_string *name, rein_value value) {
    rein_dict_set(m, &m->scope->names, (rein_value){.kind = REIN_VALUE_STRING, .as.string = name}, value);
}

static void assign_attribute(rein_machine *m, const rein_node *target, rein_value value) {
    const rein_value space = rein_lookup(m, target->name);
    if (space.kind != REIN_VALUE_NAMESPACE)
        rein_fail_value(m, "%.80s is not a namespace: its attributes cannot be set", target->name->data);
    else if (*target->value.as.string->data == '_') rein_fail_value(m, "a namespace has no attributes that begin with _");
    else rein_dict_set(m, space.as.dict, target->value, value);
}

void rein_assign(rein_machine *m, const rein_node *target, rein_value value) {
    if (m->status) return;
    m->at = target->at;
    if (target->kind == REIN_NODE_NAME) {
        set_name(m, target->name, value);
        return;
    }
    if (target->kind == REIN_NODE_NAMESPACE_TARGET) {
        assign_attribute(m, target, value);
        return;
    }
    const rein_list *items = rein_value_items(m, value);
    size_t i = 0, n = 0;
    for (const rein_node *t = target->a; t; t = t->next) n++;
    if (!items) return;
    if (items->n != n) {
        rein_fail_value(m, "%zu values cannot be given to %zu names", items->n, n);
        return;
    }
    for (const rein_node *t = target->a; t && !m->status; t = t->next) rein_assign(m, t, items->items[i++]);
}

/* A scope inside of `outer`; NULL after a failure. */
static rein_scope *open_scope(rein_machine *m, rein_scope *outer) {
    rein_scope *scope = rein_machine_take(m, sizeof *scope);
    if (scope) scope->outer = outer;
    return scope;
}

/* ------------------------------------------------------------------------------------------------------------------------ loops */

/* The items that pass the filter of the loop. */
static rein_list *filtered(rein_machine *m, const rein_node *node, rein_list *items) {
    const rein_value kept = rein_list_new(m, REIN_VALUE_LIST, 0);
    rein_scope *outer = m->scope;
    for (size_t i = 0; i < items->n && !m->status; i++) {
        rein_scope *scope = open_scope(m, outer);
        if (!scope) break;
        m->scope = scope;
        rein_assign(m, node->a, items->items[i]);
        const bool is = !m->status && rein_value_true(rein_template_evaluate(m, node->c));
        m->scope = outer;
        if (is) rein_list_add(m, kept.as.list, items->items[i]);
    }
    return m->status ? NULL : kept.as.list;
}

static int64_t loop_depth(rein_machine *m) {
    static const rein_string name = {.data = "loop", .length = 4};
    const rein_value loop = rein_lookup(m, &name);
    (void)loop; /* only recursive loops are deeper */
    return 1;
}

static void run_for(rein_machine *m, const rein_node *node) {
    static const rein_string name = {.data = "loop", .length = 4};
    rein_list *items = rein_value_items(m, rein_template_evaluate(m, node->b));
    if (items && node->c) items = filtered(m, node, items);
    rein_template_loop *loop = items ? rein_machine_take(m, sizeof *loop) : NULL;
    if (!loop) return;
    *loop = (rein_template_loop){.items = items, .depth = loop_depth(m)};
    rein_scope *outer = m->scope;
    for (; loop->at < items->n && rein_machine_step(m, 1) && m->flow != REIN_FLOW_BREAK; loop->at++) {
        if (!(m->scope = open_scope(m, outer))) break;
        set_name(m, &name, (rein_value){.kind = REIN_VALUE_LOOP, .as.loop = loop});
        rein_assign(m, node->a, items->items[loop->at]);
        m->flow = REIN_FLOW_ON;
        rein_run(m, node->body);
        if (m->flow == REIN_FLOW_CONTINUE) m->flow = REIN_FLOW_ON;
    }
    m->scope = outer;
    m->flow = REIN_FLOW_ON;
    if (!items->n && !m->status && node->otherwise) {
        if (!(m->scope = open_scope(m, outer))) {
            (m->scope = outer);
            return;
        }
        rein_run(m, node->otherwise);
        m->scope = outer;
    }
}

/* ---------------------------------------------------------------------------------------------------------------------- captures */

/* The text that a body writes, in a scope of its own. */
static rein_value capture(rein_machine *m, const rein_node *body, rein_scope *scope) {
    rein_builder text = {0}, *out = m->out;
    rein_scope *outer = m->scope;
    m->out = &text, m->scope = scope;
    rein_run(m, body);
    m->out = out, m->scope = outer;
    return rein_builder_value(m, &text);
}

static rein_value capture_block(rein_machine *m, const rein_node *node) {
    rein_scope *scope = open_scope(m, m->scope);
    return scope ? capture(m, node->body, scope) : rein_undefined(NULL);
}

/* The innermost filter has no operand: it gets the text. */
static rein_value apply_filters(rein_machine *m, const rein_node *filter, rein_value text) {
    if (!filter || m->status) return text;
    const rein_value self = apply_filters(m, filter->a, text);
    m->at = filter->at;
    return m->status ? self : rein_call_row(m, filter->row, self, filter->b);
}

static void run_generation(rein_machine *m, const rein_node *node) {
    const size_t begin = m->out->length;
    const rein_value text = capture_block(m, node);
    if (m->status) return;
    rein_put_string(m, m->out, text.as.string);
    if (m->status || m->out != m->main_out) return;
    if (m->n_generated == m->generated_capacity) {
        const size_t capacity = 2 * m->generated_capacity + 8;
        rein_span *spans = realloc(m->generated, capacity * sizeof *spans);
        if (!spans) {
            m->status = rein_no_memory(m->err);
            return;
        }
        m->generated = spans, m->generated_capacity = capacity;
    }
    m->generated[m->n_generated++] = (rein_span){begin, m->out->length};
}

/* ------------------------------------------------------------------------------------------------------------------------ macros */

static rein_value macro_value(rein_machine *m, const rein_node *node) {
    rein_macro *macro = rein_machine_take(m, sizeof *macro);
    if (!macro) return rein_undefined(NULL);
    *macro = (rein_macro){.node = node, .scope = m->scope};
    return (rein_value){.kind = REIN_VALUE_MACRO, .as.macro = macro};
}

static rein_value macro_argument(rein_machine *m, const rein_node *parameter, const rein_call *call, size_t i) {
    const rein_dict_entry *keyword = rein_dict_name(&call->keywords, parameter->name->data, parameter->name->length);
    if (i < call->n && keyword) return rein_fail_value(m, "the argument %.80s is given twice", parameter->name->data);
    if (i < call->n) return call->arguments[i];
    if (keyword) return keyword->value;
    return parameter->a ? rein_template_evaluate(m, parameter->a) : rein_undefined(parameter->name);
}

static void bind_macro(rein_machine *m, const rein_macro *macro, const rein_call *call) {
    size_t i = 0;
    for (const rein_node *p = macro->node->a; p && !m->status; p = p->next) {
        const rein_value value = macro_argument(m, p, call, i++);
        if (!m->status) set_name(m, p->name, value);
    }
    if (!m->status && call->n > i) rein_fail_value(m, "%.80s takes %zu arguments", macro->node->name->data, i);
    for (size_t k = 0; k < call->keywords.n && !m->status; k++) {
        const rein_string *name = call->keywords.entries[k].key.as.string;
        bool known = strcmp(name->data, "caller") == 0;
        for (const rein_node *p = macro->node->a; p; p = p->next) known |= strcmp(p->name->data, name->data) == 0;
        if (!known) rein_fail_value(m, "%.80s has no argument %.80s", macro->node->name->data, name->data);
    }
}

rein_value rein_macro_run(rein_machine *m, const rein_macro *macro, const rein_call *call, const rein_macro *caller) {
    static const rein_string name = {.data = "caller", .length = 6};
    rein_scope *outer = m->scope, *scope = open_scope(m, macro->scope);
    if (!scope) return rein_undefined(NULL);
    if (m->depth >= REIN_TEMPLATE_DEPTH * 2) return rein_fail_value(m, "calls are nested too deeply");
    m->scope = scope, m->depth++;
    bind_macro(m, macro, call);
    if (caller) set_name(m, &name, (rein_value){.kind = REIN_VALUE_MACRO, .as.macro = caller});
    const rein_value text = m->status ? rein_undefined(NULL) : capture(m, macro->node->body, scope);
    m->scope = outer, m->depth--;
    return text;
}

static void run_call_block(rein_machine *m, const rein_node *node) {
    const rein_value caller = macro_value(m, node->b), callee = rein_template_evaluate(m, node->a->a);
    m->at = node->at;
    const rein_value text = m->status ? callee : rein_call_value(m, callee, node->a->b, caller.as.macro);
    if (!m->status) rein_put_value(m, m->out, text);
}

/* --------------------------------------------------------------------------------------------------------------------- statements */

static void run_with(rein_machine *m, const rein_node *node) {
    rein_scope *outer = m->scope, *scope = open_scope(m, outer);
    for (const rein_node *pair = node->a; scope && pair && !m->status; pair = pair->next) {
        const rein_value value = rein_template_evaluate(m, pair->b); /* of the scope outside */
        m->scope = scope;
        rein_assign(m, pair->a, value);
        m->scope = outer;
    }
    if (m->status || !scope) return;
    m->scope = scope;
    rein_run(m, node->body);
    m->scope = outer;
}

static void run_if(rein_machine *m, const rein_node *node) {
    const bool is = rein_value_true(rein_template_evaluate(m, node->a));
    if (!m->status) rein_run(m, is ? node->body : node->otherwise);
}

static void run_one(rein_machine *m, const rein_node *node) {
    switch (node->kind) {
    case REIN_NODE_TEXT: rein_put_string(m, m->out, node->value.as.string); return;
    case REIN_NODE_PRINT: rein_put_value(m, m->out, rein_template_evaluate(m, node->a)); return;
    case REIN_NODE_FOR: run_for(m, node); return;
    case REIN_NODE_IF: run_if(m, node); return;
    case REIN_NODE_SET: rein_assign(m, node->a, rein_template_evaluate(m, node->b)); return;
    case REIN_NODE_SET_BLOCK: rein_assign(m, node->a, apply_filters(m, node->b, capture_block(m, node))); return;
    case REIN_NODE_MACRO: set_name(m, node->name, macro_value(m, node)); return;
    case REIN_NODE_CALL_BLOCK: run_call_block(m, node); return;
    case REIN_NODE_FILTER_BLOCK: rein_put_value(m, m->out, apply_filters(m, node->b, capture_block(m, node))); return;
    case REIN_NODE_WITH: run_with(m, node); return;
    case REIN_NODE_GENERATION: run_generation(m, node); return;
    case REIN_NODE_BREAK: m->flow = REIN_FLOW_BREAK; return;
    case REIN_NODE_CONTINUE: m->flow = REIN_FLOW_CONTINUE; return;
    default: rein_fail_value(m, "this is not a statement");
    }
}

void rein_run(rein_machine *m, const rein_node *list) {
    if (m->depth >= REIN_TEMPLATE_DEPTH * 3) {
        rein_fail_value(m, "calls are nested too deeply");
        return;
    }
    m->depth++;
    for (; list && m->flow == REIN_FLOW_ON && rein_machine_step(m, 1); list = list->next) {
        m->at = list->at;
        run_one(m, list);
    }
    m->depth--;
}
