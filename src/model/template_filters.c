/* template_filters.c - filters: those of Jinja that chat templates use, and tojson as transformers defines it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/template.h"

static const rein_string *self_text(rein_call *call) {
    const rein_value text = rein_value_text(call->machine, call->self);
    return call->machine->status ? NULL : text.as.string;
}

static const rein_string *argument_text(rein_call *call, size_t i) {
    const rein_value text = rein_value_text(call->machine, call->arguments[i]);
    return call->machine->status ? NULL : text.as.string;
}

/* ------------------------------------------------------------------------------------------------------------------------- texts */

static rein_value filter_trim(rein_call *call) {
    const rein_string *s = self_text(call), *what = NULL;
    if (s && call->given[0] && call->arguments[0].kind != REIN_VALUE_NONE) what = argument_text(call, 0);
    return s && !call->machine->status ? rein_strip(call->machine, s, what, true, true) : rein_undefined(NULL);
}

static rein_value cased(rein_call *call, rein_case to) {
    rein_builder b = {0};
    const rein_string *s = self_text(call);
    if (s) rein_put_case(call->machine, &b, s, 0, s->length, to);
    return rein_builder_value(call->machine, &b);
}

static rein_value filter_upper(rein_call *call) { return cased(call, REIN_CASE_UPPER); }
static rein_value filter_lower(rein_call *call) { return cased(call, REIN_CASE_LOWER); }

static rein_value filter_capitalize(rein_call *call) {
    const rein_string *s = self_text(call);
    return s ? rein_capitalize(call->machine, s) : rein_undefined(NULL);
}

/* A word begins at the begin and behind blanks, -, (, {, [ and <. */
static rein_value filter_title(rein_call *call) {
    rein_builder b = {0};
    const rein_string *s = self_text(call);
    bool begins = true;
    for (size_t at = 0, n; s && at < s->length && !call->machine->status; at += n) {
        uint32_t c;
        n = rein_utf8_next(&c, s->data + at);
        rein_put_case(call->machine, &b, s, at, at + n, begins ? REIN_CASE_UPPER : REIN_CASE_LOWER);
        begins = rein_is_space(c) || (c && c < 0x80 && strchr("-({[<", (int)c));
    }
    return rein_builder_value(call->machine, &b);
}

static rein_value filter_replace(rein_call *call) {
    const rein_string *s = self_text(call), *from = s ? argument_text(call, 0) : NULL, *to = from ? argument_text(call, 1) : NULL;
    const bool counted = call->given[2] && call->arguments[2].kind == REIN_VALUE_INTEGER;
    return to ? rein_replace(call->machine, s, from, to, counted ? call->arguments[2].as.integer : -1) : rein_undefined(NULL);
}

static rein_value filter_string(rein_call *call) { return rein_value_text(call->machine, call->self); }

static rein_value filter_safe(rein_call *call) {
    const rein_string *s = self_text(call);
    rein_string *safe = s ? rein_machine_take(call->machine, sizeof *safe) : NULL;
    if (!safe) return rein_undefined(NULL);
    *safe = *s;
    safe->safe = true;
    return (rein_value){.kind = REIN_VALUE_STRING, .as.string = safe};
}

static rein_value filter_tojson(rein_call *call) {
    rein_machine *m = call->machine;
    rein_builder b = {0};
    rein_json_style style = {.ascii = call->given[0] && rein_value_true(call->arguments[0]),
                             .sorted = call->given[3] && rein_value_true(call->arguments[3])};
    char blanks[65];
    const rein_value indent = call->given[1] ? call->arguments[1] : rein_none();
    if (indent.kind == REIN_VALUE_STRING) style.indent = indent.as.string->data;
    else if (indent.kind == REIN_VALUE_INTEGER) {
        const int64_t n = indent.as.integer < 0 ? 0 : indent.as.integer > 64 ? 64 : indent.as.integer;
        memset(blanks, ' ', sizeof blanks);
        blanks[n] = 0;
        style.indent = blanks;
    } else if (indent.kind != REIN_VALUE_NONE)
        return rein_fail_value(m, "indent is a %s: a number or a text", rein_kind_name(indent));
    if (call->given[2] && call->arguments[2].kind != REIN_VALUE_NONE) {
        const rein_list *pair = rein_is_sequence(call->arguments[2]) ? call->arguments[2].as.list : NULL;
        if (!pair || pair->n != 2 || pair->items[0].kind != REIN_VALUE_STRING || pair->items[1].kind != REIN_VALUE_STRING)
            return rein_fail_value(m, "separators are two texts");
        style.item = pair->items[0].as.string, style.key = pair->items[1].as.string;
    }
    rein_put_json(m, &b, call->self, &style);
    return rein_builder_value(m, &b);
}

/* Every line but the first, and but empty ones, gets blanks before it. */
static rein_value filter_indent(rein_call *call) {
    rein_machine *m = call->machine;
    const rein_string *s = self_text(call);
    const bool first = call->given[1] && rein_value_true(call->arguments[1]),
               blank = call->given[2] && rein_value_true(call->arguments[2]);
    const rein_value width = call->given[0] ? call->arguments[0] : rein_integer(4);
    const rein_value by = width.kind == REIN_VALUE_STRING ? width : rein_binary(m, REIN_OP_MULTIPLY, rein_literal(m, " "), width);
    rein_builder b = {0};
    for (size_t at = 0, end; s && at <= s->length && !m->status; at = end + 1) {
        const char *newline = memchr(s->data + at, '\n', s->length - at);
        end = newline ? (size_t)(newline - s->data) : s->length;
        if (at ? blank || end > at : first) rein_put_string(m, &b, by.as.string);
        rein_put(m, &b, s->data + at, s->marks ? s->marks + at : NULL, end - at + (newline != NULL));
    }
    return rein_builder_value(m, &b);
}

/* ----------------------------------------------------------------------------------------------------------------------- numbers */

static rein_value filter_int(rein_call *call) {
    const rein_value v = call->self;
    char *end;
    if (v.kind == REIN_VALUE_INTEGER) return v;
    if (v.kind == REIN_VALUE_BOOLEAN) return rein_integer(v.as.boolean);
    if (v.kind == REIN_VALUE_FLOAT && fabs(v.as.number) < 9e18) return rein_integer((int64_t)v.as.number);
    if (v.kind == REIN_VALUE_STRING) {
        const rein_value text = rein_strip(call->machine, v.as.string, NULL, true, true);
        const char *digits = call->machine->status ? "" : text.as.string->data;
        const double x = strtod(digits, &end);
        if (*digits && !*end && strspn(digits, "+-0123456789.eE") == strlen(digits) && fabs(x) < 9e18)
            return strpbrk(digits, ".eE") ? rein_integer((int64_t)x) : rein_integer(strtoll(digits, NULL, 10));
    }
    return call->given[0] ? call->arguments[0] : rein_integer(0);
}

static rein_value filter_float(rein_call *call) {
    const rein_value v = call->self;
    char *end;
    if (v.kind == REIN_VALUE_FLOAT) return v;
    if (v.kind == REIN_VALUE_INTEGER) return rein_float((double)v.as.integer);
    if (v.kind == REIN_VALUE_BOOLEAN) return rein_float(v.as.boolean);
    if (v.kind == REIN_VALUE_STRING) {
        const rein_value text = rein_strip(call->machine, v.as.string, NULL, true, true);
        const char *digits = call->machine->status ? "" : text.as.string->data;
        const double x = strtod(digits, &end);
        if (*digits && !*end && strspn(digits, "+-0123456789.eE") == strlen(digits)) return rein_float(x);
    }
    return call->given[0] ? call->arguments[0] : rein_float(0);
}

static rein_value filter_abs(rein_call *call) {
    const rein_value v = call->self;
    if (v.kind == REIN_VALUE_FLOAT) return rein_float(fabs(v.as.number));
    if (v.kind != REIN_VALUE_INTEGER || v.as.integer == INT64_MIN) return rein_fail_value(call->machine, "abs needs a number");
    return rein_integer(v.as.integer < 0 ? -v.as.integer : v.as.integer);
}

/* ------------------------------------------------------------------------------------------------------------------------ choices */

static rein_value filter_default(rein_call *call) {
    const bool falsy = call->given[1] && rein_value_true(call->arguments[1]);
    if (call->self.kind != REIN_VALUE_UNDEFINED && !(falsy && !rein_value_true(call->self))) return call->self;
    return call->given[0] ? call->arguments[0] : rein_literal(call->machine, "");
}

static rein_value filter_length(rein_call *call) {
    size_t n;
    if (!rein_value_length(&n, call->self)) return rein_fail_value(call->machine, "a %s has no length", rein_kind_name(call->self));
    return rein_integer((int64_t)n);
}

static rein_value filter_first(rein_call *call) {
    if (call->self.kind == REIN_VALUE_ITERATOR) {
        rein_list *list = call->self.as.list;
        return list->at < list->n ? list->items[list->at++] : rein_undefined(NULL);
    }
    const rein_list *items = rein_value_items(call->machine, call->self);
    return items && items->n ? items->items[0] : rein_undefined(NULL);
}

static rein_value filter_last(rein_call *call) {
    if (call->self.kind == REIN_VALUE_ITERATOR) return rein_fail_value(call->machine, "a generator has no last item");
    const rein_list *items = rein_value_items(call->machine, call->self);
    return items && items->n ? items->items[items->n - 1] : rein_undefined(NULL);
}

static rein_value copied(rein_machine *m, rein_value_kind kind, const rein_list *items, bool reversed) {
    const rein_value list = rein_list_new(m, kind, items ? items->n : 0);
    for (size_t i = 0; items && i < items->n && !m->status; i++)
        rein_list_add(m, list.as.list, items->items[reversed ? items->n - 1 - i : i]);
    return list;
}

static rein_value filter_list(rein_call *call) {
    return copied(call->machine, REIN_VALUE_LIST, rein_value_items(call->machine, call->self), false);
}

static rein_value filter_reverse(rein_call *call) {
    if (call->self.kind == REIN_VALUE_STRING)
        return rein_value_slice(call->machine, call->self, rein_none(), rein_none(), rein_integer(-1));
    return copied(call->machine, REIN_VALUE_ITERATOR, rein_value_items(call->machine, call->self), true);
}

static rein_value filter_items(rein_call *call) {
    if (call->self.kind == REIN_VALUE_UNDEFINED) return rein_list_new(call->machine, REIN_VALUE_ITERATOR, 0);
    if (call->self.kind != REIN_VALUE_DICT) return rein_fail_value(call->machine, "items needs a dict");
    rein_value view = rein_call_native(call->machine, rein_dict_method("items", 5), call->self, NULL, 0);
    if (!call->machine->status) view.kind = REIN_VALUE_ITERATOR;
    return view;
}

/* ---------------------------------------------------------------------------------------------------------- attributes and orders */

/* "a.b.0": each part is an attribute or a position; another value is an item. */
static rein_value attribute_of(rein_machine *m, rein_value v, rein_value path) {
    if (path.kind != REIN_VALUE_STRING) return rein_value_item(m, v, path);
    const rein_string *s = path.as.string;
    for (size_t at = 0; at <= s->length && !m->status;) {
        const char *dot = memchr(s->data + at, '.', s->length - at);
        const size_t end = dot ? (size_t)(dot - s->data) : s->length;
        const rein_value name = rein_substring(m, s, at, end);
        if (m->status) break;
        const bool number = end > at && strspn(name.as.string->data, "0123456789") == end - at;
        v = rein_value_item(m, v, number ? rein_integer(strtoll(name.as.string->data, NULL, 10)) : name);
        at = end + 1;
    }
    return v;
}

static rein_value filter_join(rein_call *call) {
    rein_machine *m = call->machine;
    const rein_list *items = rein_value_items(m, call->self);
    rein_builder b = {0};
    for (size_t i = 0; items && i < items->n && !m->status; i++) {
        if (i && call->given[0]) rein_put_value(m, &b, call->arguments[0]);
        rein_put_value(m, &b, call->given[1] ? attribute_of(m, items->items[i], call->arguments[1]) : items->items[i]);
    }
    return rein_builder_value(m, &b);
}

/* Ignores case unless asked not to. */
static rein_value sort_key(rein_machine *m, rein_value v, bool cased) {
    rein_builder b = {0};
    if (cased || v.kind != REIN_VALUE_STRING) return v;
    rein_put_case(m, &b, v.as.string, 0, v.as.string->length, REIN_CASE_LOWER);
    return rein_builder_value(m, &b);
}

/* Stable, by insertion: lists in templates are short, and steps are counted. */
static void sort_by(rein_machine *m, rein_list *items, rein_value *keys, bool reversed) {
    for (size_t i = 1; i < items->n && !m->status; i++) {
        const rein_value item = items->items[i], key = keys[i];
        size_t k = i;
        for (; k && !m->status; k--) {
            const int order = rein_value_order(m, key, keys[k - 1]);
            if (reversed ? order <= 0 : order >= 0) break;
            items->items[k] = items->items[k - 1], keys[k] = keys[k - 1];
        }
        items->items[k] = item, keys[k] = key;
    }
}

static rein_value filter_sort(rein_call *call) {
    rein_machine *m = call->machine;
    const rein_value list = copied(m, REIN_VALUE_LIST, rein_value_items(m, call->self), false);
    const size_t n = m->status ? 0 : list.as.list->n;
    rein_value *keys = rein_machine_take(m, (n + 1) * sizeof *keys);
    const bool cased = call->given[1] && rein_value_true(call->arguments[1]);
    const bool by = call->given[2] && call->arguments[2].kind != REIN_VALUE_NONE;
    for (size_t i = 0; i < n && !m->status; i++)
        keys[i] = sort_key(m, by ? attribute_of(m, list.as.list->items[i], call->arguments[2]) : list.as.list->items[i], cased);
    if (!m->status) sort_by(m, list.as.list, keys, call->given[0] && rein_value_true(call->arguments[0]));
    return list;
}

static rein_value filter_dictsort(rein_call *call) {
    rein_machine *m = call->machine;
    if (call->self.kind != REIN_VALUE_DICT) return rein_fail_value(m, "dictsort needs a dict");
    const rein_value items = rein_call_native(m, rein_dict_method("items", 5), call->self, NULL, 0);
    const rein_value list = m->status ? items : copied(m, REIN_VALUE_LIST, items.as.list, false);
    const bool cased = call->given[0] && rein_value_true(call->arguments[0]);
    const size_t position = call->given[1] && rein_is_text(call->arguments[1], "value");
    rein_value *keys = rein_machine_take(m, (call->self.as.dict->n + 1) * sizeof *keys);
    for (size_t i = 0; !m->status && i < list.as.list->n; i++)
        keys[i] = sort_key(m, list.as.list->items[i].as.list->items[position], cased);
    if (!m->status) sort_by(m, list.as.list, keys, call->given[2] && rein_value_true(call->arguments[2]));
    return list;
}

static rein_value filter_unique(rein_call *call) {
    rein_machine *m = call->machine;
    const rein_list *items = rein_value_items(m, call->self);
    const rein_value list = rein_list_new(m, REIN_VALUE_ITERATOR, 0), seen = rein_list_new(m, REIN_VALUE_LIST, 0);
    const bool cased = call->given[0] && rein_value_true(call->arguments[0]);
    for (size_t i = 0; items && i < items->n && !m->status; i++) {
        const rein_value v = call->given[1] ? attribute_of(m, items->items[i], call->arguments[1]) : items->items[i];
        const rein_value key = sort_key(m, v, cased);
        if (m->status || rein_value_contains(m, seen, key)) continue;
        rein_list_add(m, seen.as.list, key);
        rein_list_add(m, list.as.list, items->items[i]);
    }
    return list;
}

/* --------------------------------------------------------------------------------------------------------------------- selections */

/* select and reject have a test first; selectattr and rejectattr an attribute and then a test. What is false, as none is, has no items. */
static rein_value selected(rein_call *call, bool attribute, bool wanted) {
    rein_machine *m = call->machine;
    if (!rein_value_true(call->self)) return rein_list_new(m, REIN_VALUE_ITERATOR, 0);
    const rein_list *items = rein_value_items(m, call->self);
    const rein_value list = rein_list_new(m, REIN_VALUE_ITERATOR, 0);
    const size_t at = attribute ? 1 : 0;
    const rein_callable *test = NULL;
    if (call->n < at) return rein_fail_value(m, "%s needs an attribute", call->row->name);
    if (call->n > at) {
        if (call->arguments[at].kind == REIN_VALUE_STRING)
            test = rein_test_find(call->arguments[at].as.string->data, call->arguments[at].as.string->length);
        if (!test) return rein_fail_value(m, "%s: the test is not supported", call->row->name);
    }
    for (size_t i = 0; items && i < items->n && !m->status; i++) {
        const rein_value v = attribute ? attribute_of(m, items->items[i], call->arguments[0]) : items->items[i];
        if (m->status) break;
        const rein_value is = test ? rein_call_native(m, test, v, call->arguments + at + 1, call->n - at - 1) : v;
        if (!m->status && rein_value_true(is) == wanted) rein_list_add(m, list.as.list, items->items[i]);
    }
    return list;
}

static rein_value filter_select(rein_call *call) { return selected(call, false, true); }
static rein_value filter_reject(rein_call *call) { return selected(call, false, false); }
static rein_value filter_selectattr(rein_call *call) { return selected(call, true, true); }
static rein_value filter_rejectattr(rein_call *call) { return selected(call, true, false); }

static rein_value filter_map(rein_call *call) {
    rein_machine *m = call->machine;
    const rein_dict_entry *attribute = rein_dict_name(&call->keywords, "attribute", 9),
                          *fallback = rein_dict_name(&call->keywords, "default", 7);
    const rein_callable *filter = NULL;
    if (!rein_value_true(call->self)) return rein_list_new(m, REIN_VALUE_ITERATOR, 0);
    if (!attribute && call->n && call->arguments[0].kind == REIN_VALUE_STRING)
        filter = rein_filter_find(call->arguments[0].as.string->data, call->arguments[0].as.string->length);
    if (!attribute && !filter) return rein_fail_value(m, "map needs the name of a filter, or attribute=NAME");
    const rein_list *items = rein_value_items(m, call->self);
    const rein_value list = rein_list_new(m, REIN_VALUE_ITERATOR, 0);
    for (size_t i = 0; items && i < items->n && !m->status; i++) {
        rein_value v = attribute ? attribute_of(m, items->items[i], attribute->value)
                                 : rein_call_native(m, filter, items->items[i], call->arguments + 1, call->n - 1);
        if (attribute && fallback && v.kind == REIN_VALUE_UNDEFINED) v = fallback->value;
        if (!m->status) rein_list_add(m, list.as.list, v);
    }
    return list;
}

static rein_value filter_attr(rein_call *call) {
    const rein_string *name = argument_text(call, 0);
    if (!name) return rein_undefined(NULL);
    return call->self.kind == REIN_VALUE_DICT ? rein_undefined(name) : rein_value_attribute(call->machine, call->self, name);
}

static const rein_callable filters[] = {
    {"trim", filter_trim, "chars", 0},
    {"upper", filter_upper, NULL, 0},
    {"lower", filter_lower, NULL, 0},
    {"capitalize", filter_capitalize, NULL, 0},
    {"title", filter_title, NULL, 0},
    {"replace", filter_replace, "old new count", 2},
    {"string", filter_string, NULL, 0},
    {"safe", filter_safe, NULL, 0},
    {"tojson", filter_tojson, "ensure_ascii indent separators sort_keys", 0},
    {"indent", filter_indent, "width first blank", 0},
    {"int", filter_int, "default base", 0},
    {"float", filter_float, "default", 0},
    {"abs", filter_abs, NULL, 0},
    {"default", filter_default, "default_value boolean", 0},
    {"d", filter_default, "default_value boolean", 0},
    {"length", filter_length, NULL, 0},
    {"count", filter_length, NULL, 0},
    {"first", filter_first, NULL, 0},
    {"last", filter_last, NULL, 0},
    {"list", filter_list, NULL, 0},
    {"reverse", filter_reverse, NULL, 0},
    {"items", filter_items, NULL, 0},
    {"join", filter_join, "d attribute", 0},
    {"sort", filter_sort, "reverse case_sensitive attribute", 0},
    {"dictsort", filter_dictsort, "case_sensitive by reverse", 0},
    {"unique", filter_unique, "case_sensitive attribute", 0},
    {"select", filter_select, "*", 0},
    {"reject", filter_reject, "*", 0},
    {"selectattr", filter_selectattr, "*", 0},
    {"rejectattr", filter_rejectattr, "*", 0},
    {"map", filter_map, "*", 0},
    {"attr", filter_attr, "name", 1},
};

const rein_callable *rein_filter_find(const char *name, size_t length) {
    return rein_row_find(filters, sizeof filters / sizeof *filters, name, length);
}
