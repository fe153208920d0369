/* template_call.c - calls: arguments are bound to the parameters of a row, and the functions that transformers gives to templates. */
#include <stdio.h>
#include <string.h>

#include "model/template.h"

const rein_callable *rein_row_find(const rein_callable *rows, size_t n, const char *name, size_t length) {
    for (size_t i = 0; name && i < n; i++)
        if (strlen(rows[i].name) == length && memcmp(rows[i].name, name, length) == 0) return &rows[i];
    return NULL;
}

/* ---------------------------------------------------------------------------------------------------------------------- binding */

/* The position of a parameter in "a b c"; -1: there is none. */
static int parameter_index(const char *parameters, const rein_string *name) {
    int i = 0;
    for (const char *at = parameters; at && *at; i++) {
        const size_t n = strcspn(at, " ");
        if (n == name->length && memcmp(at, name->data, n) == 0) return i;
        at += n + (at[n] == ' ');
    }
    return -1;
}

static size_t parameter_count(const char *parameters) {
    size_t n = parameters && *parameters ? 1 : 0;
    for (; parameters && *parameters; parameters++) n += *parameters == ' ';
    return n;
}

static bool takes_any(const rein_callable *row) { return row && row->parameters && *row->parameters == '*'; }

static void bind_keyword(rein_call *call, const rein_node *argument, rein_value value) {
    rein_machine *m = call->machine;
    if (!call->row || takes_any(call->row)) {
        rein_dict_set(m, &call->keywords, (rein_value){.kind = REIN_VALUE_STRING, .as.string = argument->name}, value);
        return;
    }
    const int i = parameter_index(call->row->parameters, argument->name);
    if (i < 0) rein_fail_value(m, "%s has no argument %.80s", call->row->name, argument->name->data);
    else if (call->given[i]) rein_fail_value(m, "the argument %.80s is given twice", argument->name->data);
    else call->arguments[i] = value, call->given[i] = true;
}

static void bind(rein_call *call, const rein_node *arguments) {
    rein_machine *m = call->machine;
    const size_t most = call->row && !takes_any(call->row) ? parameter_count(call->row->parameters) : REIN_TEMPLATE_ARGUMENTS;
    for (const rein_node *a = arguments; a && !m->status; a = a->next) {
        const rein_value value = rein_template_evaluate(m, a->kind == REIN_NODE_KEYWORD ? a->a : a);
        m->at = a->at;
        if (m->status) return;
        if (a->kind == REIN_NODE_KEYWORD) bind_keyword(call, a, value);
        else if (call->n == most) rein_fail_value(m, "at most %zu arguments are supported here", most);
        else call->given[call->n] = true, call->arguments[call->n++] = value;
    }
}

static rein_value run_row(rein_call *call) {
    const rein_callable *row = call->row;
    rein_machine *m = call->machine;
    for (size_t i = 0; i < row->least && !m->status; i++)
        if (!call->given[i]) return rein_fail_value(m, "%s needs %zu arguments", row->name, row->least);
    if (m->status) return rein_undefined(NULL);
    return row->run ? row->run(call) : rein_fail_value(m, "%s is not supported", row->name);
}

rein_value rein_call_row(rein_machine *m, const rein_callable *row, rein_value self, const rein_node *arguments) {
    const size_t at = m->at;
    rein_call call = {.machine = m, .self = self, .row = row};
    bind(&call, arguments);
    m->at = at;
    return run_row(&call);
}

rein_value rein_call_native(rein_machine *m, const rein_callable *row, rein_value self, const rein_value *arguments, size_t n) {
    rein_call call = {.machine = m, .self = self, .row = row};
    const size_t most = takes_any(row) ? REIN_TEMPLATE_ARGUMENTS : parameter_count(row->parameters);
    if (n > most) return rein_fail_value(m, "%s takes at most %zu arguments", row->name, most);
    for (; call.n < n; call.n++) call.arguments[call.n] = arguments[call.n], call.given[call.n] = true;
    return run_row(&call);
}

rein_value rein_call_value(rein_machine *m, rein_value callee, const rein_node *arguments, const rein_macro *caller) {
    if (callee.kind == REIN_VALUE_FUNCTION) return rein_call_row(m, callee.as.function, callee, arguments);
    if (callee.kind == REIN_VALUE_METHOD) return rein_call_row(m, callee.as.method->row, callee.as.method->self, arguments);
    if (callee.kind == REIN_VALUE_MACRO) {
        const size_t at = m->at;
        rein_call call = {.machine = m};
        bind(&call, arguments);
        m->at = at;
        return m->status ? rein_undefined(NULL) : rein_macro_run(m, callee.as.macro, &call, caller);
    }
    if (callee.kind == REIN_VALUE_UNDEFINED && callee.as.string)
        return rein_fail_value(m, "%.80s is undefined: it cannot be called", callee.as.string->data);
    return rein_fail_value(m, "a %s cannot be called", rein_kind_name(callee));
}

/* -------------------------------------------------------------------------------------------------------------------- functions */

static rein_value call_raise(rein_call *call) {
    const rein_value text = rein_value_text(call->machine, call->arguments[0]);
    if (call->machine->status) return text;
    return rein_fail_value(call->machine, "the template refuses this conversation: %.300s", text.as.string->data);
}

static rein_value call_range(rein_call *call) {
    rein_machine *m = call->machine;
    int64_t begin = 0, end, step = 1;
    char shown[100];
    for (size_t i = 0; i < call->n; i++)
        if (call->arguments[i].kind != REIN_VALUE_INTEGER) return rein_fail_value(m, "range needs whole numbers");
    end = call->arguments[call->n > 1].as.integer;
    if (call->n > 1) begin = call->arguments[0].as.integer;
    if (call->n > 2) step = call->arguments[2].as.integer;
    if (!step) return rein_fail_value(m, "the step of a range is 0");
    const rein_value list = rein_list_new(m, REIN_VALUE_RANGE, 0);
    for (int64_t x = begin; (step > 0 ? x < end : x > end) && !m->status; x += step) {
        if (list.as.list->n == REIN_TEMPLATE_RANGE)
            return rein_fail_value(m, "a range has more than %d items", REIN_TEMPLATE_RANGE);
        rein_list_add(m, list.as.list, rein_integer(x));
        if (x > INT64_MAX / 2 || x < INT64_MIN / 2) return rein_fail_value(m, "a range has numbers that are too large");
    }
    if (call->n > 2) snprintf(shown, sizeof shown, "range(%lld, %lld, %lld)", (long long)begin, (long long)end, (long long)step);
    else snprintf(shown, sizeof shown, "range(%lld, %lld)", (long long)begin, (long long)end);
    const rein_value text = rein_literal(m, shown);
    if (!m->status) list.as.list->shown = text.as.string->data;
    return list;
}

/* dict() and namespace(): the fields of a dict, then the keywords. */
static rein_value fields_of(rein_call *call) {
    rein_machine *m = call->machine;
    const rein_value dict = rein_dict_new(m, 0);
    if (call->n > 1 || (call->n && call->arguments[0].kind != REIN_VALUE_DICT)) return rein_fail_value(m, "a dict is needed");
    for (size_t i = 0; call->n && i < call->arguments[0].as.dict->n && !m->status; i++)
        rein_dict_add(m, dict.as.dict, call->arguments[0].as.dict->entries[i].key, call->arguments[0].as.dict->entries[i].value);
    for (size_t i = 0; i < call->keywords.n && !m->status; i++)
        rein_dict_set(m, dict.as.dict, call->keywords.entries[i].key, call->keywords.entries[i].value);
    return dict;
}

static rein_value call_namespace(rein_call *call) {
    rein_value space = fields_of(call);
    for (size_t i = 0; !call->machine->status && i < space.as.dict->n; i++) {
        const rein_value key = space.as.dict->entries[i].key;
        if (key.kind == REIN_VALUE_STRING && *key.as.string->data == '_')
            return rein_fail_value(call->machine, "a namespace has no attributes that begin with _");
    }
    if (!call->machine->status) space.kind = REIN_VALUE_NAMESPACE;
    return space;
}

static rein_value call_strftime(rein_call *call) {
    if (call->arguments[0].kind != REIN_VALUE_STRING) return rein_fail_value(call->machine, "strftime_now needs a text");
    return rein_strftime(call->machine, call->arguments[0].as.string);
}

static const rein_callable functions[] = {
    {"range", call_range, "start stop step", 1},
    {"dict", fields_of, "*", 0},
    {"namespace", call_namespace, "*", 0},
    {"raise_exception", call_raise, "message", 1},
    {"strftime_now", call_strftime, "format", 1},
    {"joiner", NULL, "*", 0},
    {"cycler", NULL, "*", 0},
    {"lipsum", NULL, "*", 0},
};

const rein_callable *rein_function_find(const char *name, size_t length) {
    return rein_row_find(functions, sizeof functions / sizeof *functions, name, length);
}
