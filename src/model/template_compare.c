/* template_compare.c - truth, equality, order, items and attributes of values, as Python and Jinja have them. */
#include <string.h>

#include "model/template.h"

bool rein_value_true(rein_value v) {
    size_t n;
    switch (v.kind) {
    case REIN_VALUE_UNDEFINED:
    case REIN_VALUE_NONE: return false;
    case REIN_VALUE_BOOLEAN: return v.as.boolean;
    case REIN_VALUE_INTEGER: return v.as.integer != 0;
    case REIN_VALUE_FLOAT: return v.as.number != 0;
    default: return rein_value_length(&n, v) ? n > 0 : true;
    }
}

bool rein_value_length(size_t *n, rein_value v) {
    *n = 0;
    if (v.kind == REIN_VALUE_STRING) *n = rein_characters(v.as.string);
    else if (v.kind == REIN_VALUE_DICT) *n = v.as.dict->n;
    else if (rein_is_sequence(v)) *n = v.as.list->n;
    else if (v.kind == REIN_VALUE_LOOP) *n = v.as.loop->items->n;
    else return v.kind == REIN_VALUE_UNDEFINED;
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ equality and order */

static bool is_number(rein_value v) {
    return v.kind == REIN_VALUE_BOOLEAN || v.kind == REIN_VALUE_INTEGER || v.kind == REIN_VALUE_FLOAT;
}

static double number_of(rein_value v) {
    return v.kind == REIN_VALUE_FLOAT ? v.as.number : v.kind == REIN_VALUE_INTEGER ? (double)v.as.integer : v.as.boolean;
}

static int64_t whole_of(rein_value v) { return v.kind == REIN_VALUE_INTEGER ? v.as.integer : v.as.boolean; }

static int order_numbers(rein_value a, rein_value b) {
    if (a.kind == REIN_VALUE_FLOAT || b.kind == REIN_VALUE_FLOAT) {
        const double x = number_of(a), y = number_of(b);
        return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2; /* 2: not a number */
    }
    const int64_t x = whole_of(a), y = whole_of(b);
    return x < y ? -1 : x > y;
}

static bool equal_lists(rein_machine *m, const rein_list *a, const rein_list *b) {
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++)
        if (!rein_value_equal(m, a->items[i], b->items[i])) return false;
    return true;
}

static bool equal_dicts(rein_machine *m, const rein_dict *a, const rein_dict *b) {
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n && !m->status; i++) {
        const rein_dict_entry *other = rein_dict_find(m, b, a->entries[i].key);
        if (!other || !rein_value_equal(m, a->entries[i].value, other->value)) return false;
    }
    return true;
}

static bool equal_nested(rein_machine *m, rein_value a, rein_value b) {
    if (a.kind == REIN_VALUE_DICT) return equal_dicts(m, a.as.dict, b.as.dict);
    if (a.kind == REIN_VALUE_LIST || a.kind == REIN_VALUE_TUPLE || a.kind == REIN_VALUE_RANGE)
        return equal_lists(m, a.as.list, b.as.list);
    return a.as.list == b.as.list;
}

bool rein_value_equal(rein_machine *m, rein_value a, rein_value b) {
    if (!rein_machine_step(m, 1)) return false;
    if (is_number(a) && is_number(b)) return order_numbers(a, b) == 0;
    if (a.kind != b.kind) return false;
    if (a.kind == REIN_VALUE_UNDEFINED || a.kind == REIN_VALUE_NONE) return true;
    if (a.kind == REIN_VALUE_STRING)
        return a.as.string->length == b.as.string->length && memcmp(a.as.string->data, b.as.string->data, a.as.string->length) == 0;
    if (m->depth >= REIN_TEMPLATE_DEPTH + 300) return rein_fail_value(m, "a value is nested too deeply"), false;
    m->depth++;
    const bool equal = equal_nested(m, a, b);
    m->depth--;
    return equal;
}

static int order_strings(const rein_string *a, const rein_string *b) {
    const size_t n = a->length < b->length ? a->length : b->length;
    const int order = memcmp(a->data, b->data, n); /* of UTF-8: that of the characters */
    if (order) return order < 0 ? -1 : 1;
    return a->length < b->length ? -1 : a->length > b->length;
}

int rein_value_order(rein_machine *m, rein_value a, rein_value b) {
    if (!rein_machine_step(m, 1)) return 0;
    if (is_number(a) && is_number(b)) return order_numbers(a, b);
    if (a.kind == REIN_VALUE_STRING && b.kind == REIN_VALUE_STRING) return order_strings(a.as.string, b.as.string);
    if (a.kind == b.kind && (a.kind == REIN_VALUE_LIST || a.kind == REIN_VALUE_TUPLE)) {
        const rein_list *x = a.as.list, *y = b.as.list;
        for (size_t i = 0; i < x->n && i < y->n && !m->status; i++)
            if (!rein_value_equal(m, x->items[i], y->items[i])) return rein_value_order(m, x->items[i], y->items[i]);
        return x->n < y->n ? -1 : x->n > y->n;
    }
    rein_fail_value(m, "%s and %s have no order", rein_kind_name(a), rein_kind_name(b));
    return 0;
}

bool rein_value_contains(rein_machine *m, rein_value whole, rein_value part) {
    if (whole.kind == REIN_VALUE_STRING) {
        if (part.kind != REIN_VALUE_STRING)
            return rein_fail_value(m, "in a text only a text can be looked for, not a %s", rein_kind_name(part)), false;
        return rein_find(whole.as.string, part.as.string, 0, whole.as.string->length, false) >= 0;
    }
    if (whole.kind == REIN_VALUE_DICT) {
        if (part.kind == REIN_VALUE_LIST || part.kind == REIN_VALUE_DICT)
            return rein_fail_value(m, "a %s cannot be a key", rein_kind_name(part)), false;
        return rein_dict_find(m, whole.as.dict, part) != NULL;
    }
    const rein_list *items = rein_value_items(m, whole);
    for (size_t i = 0; items && i < items->n && !m->status; i++)
        if (rein_value_equal(m, items->items[i], part)) return true;
    return false;
}

/* ------------------------------------------------------------------------------------------------------------------------ items */

static rein_list *characters_of(rein_machine *m, const rein_string *s) {
    const rein_value list = rein_list_new(m, REIN_VALUE_LIST, 0);
    uint32_t c;
    for (size_t at = 0, n; at < s->length && !m->status; at += n) {
        n = rein_utf8_next(&c, s->data + at);
        rein_list_add(m, list.as.list, rein_substring(m, s, at, at + n));
    }
    return m->status ? NULL : list.as.list;
}

static rein_list *keys_of(rein_machine *m, const rein_dict *dict) {
    const rein_value list = rein_list_new(m, REIN_VALUE_LIST, dict->n);
    for (size_t i = 0; i < dict->n && !m->status; i++) rein_list_add(m, list.as.list, dict->entries[i].key);
    return m->status ? NULL : list.as.list;
}

static rein_list *rest_of(rein_machine *m, rein_list *iterator) {
    rein_list *rest = rein_machine_take(m, sizeof *rest);
    if (!rest) return NULL;
    *rest = (rein_list){.n = iterator->n - iterator->at};
    if (rest->n) rest->items = iterator->items + iterator->at;
    iterator->at = iterator->n;
    return rest;
}

rein_list *rein_value_items(rein_machine *m, rein_value v) {
    if (m->status) return NULL;
    if (rein_is_sequence(v)) return v.as.list;
    if (v.kind == REIN_VALUE_ITERATOR) return rest_of(m, v.as.list);
    if (v.kind == REIN_VALUE_STRING) return characters_of(m, v.as.string);
    if (v.kind == REIN_VALUE_DICT) return keys_of(m, v.as.dict);
    if (v.kind == REIN_VALUE_UNDEFINED) return rein_list_new(m, REIN_VALUE_LIST, 0).as.list;
    rein_fail_value(m, "a %s has no items", rein_kind_name(v));
    return NULL;
}

static rein_value method_of(rein_machine *m, rein_value self, const rein_callable *row) {
    rein_method *method = rein_machine_take(m, sizeof *method);
    if (!method) return rein_undefined(NULL);
    *method = (rein_method){.self = self, .row = row};
    return (rein_value){.kind = REIN_VALUE_METHOD, .as.method = method};
}

static rein_value loop_attribute(rein_machine *m, rein_value of, const rein_string *name) {
    const rein_template_loop *loop = of.as.loop;
    const int64_t n = (int64_t)loop->items->n, at = (int64_t)loop->at;
    const struct {
        const char *name;
        rein_value value;
    } numbers[] = {{"index", rein_integer(at + 1)},
                   {"index0", rein_integer(at)},
                   {"revindex", rein_integer(n - at)},
                   {"revindex0", rein_integer(n - at - 1)},
                   {"first", rein_boolean(at == 0)},
                   {"last", rein_boolean(at == n - 1)},
                   {"length", rein_integer(n)},
                   {"depth", rein_integer(loop->depth)},
                   {"depth0", rein_integer(loop->depth - 1)}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(numbers[i].name, name->data) == 0) return numbers[i].value;
    if (!strcmp(name->data, "previtem")) return at ? loop->items->items[at - 1] : rein_undefined(name);
    if (!strcmp(name->data, "nextitem")) return at + 1 < n ? loop->items->items[at + 1] : rein_undefined(name);
    const rein_callable *row = rein_loop_method(name->data, name->length);
    return row ? method_of(m, of, row) : rein_undefined(name);
}

/* The attribute of an object itself, not its item; UNDEFINED: there is none. */
static rein_value own_attribute(rein_machine *m, rein_value of, const rein_string *name) {
    const rein_callable *row = NULL;
    if (name->length && *name->data == '_' && of.kind != REIN_VALUE_NAMESPACE && of.kind != REIN_VALUE_DICT)
        return rein_fail_value(m, "the attribute %.60s is not accessible", name->data);
    if (of.kind == REIN_VALUE_LOOP) return loop_attribute(m, of, name);
    if (of.kind == REIN_VALUE_STRING) row = rein_string_method(name->data, name->length);
    else if (of.kind == REIN_VALUE_DICT) row = rein_dict_method(name->data, name->length);
    else if (of.kind == REIN_VALUE_LIST || of.kind == REIN_VALUE_TUPLE) row = rein_list_method(name->data, name->length, of.kind);
    if (of.kind == REIN_VALUE_NAMESPACE) {
        const rein_dict_entry *entry = rein_dict_name(of.as.dict, name->data, name->length);
        return entry ? entry->value : rein_undefined(name);
    }
    if (of.kind == REIN_VALUE_MACRO && !strcmp(name->data, "name"))
        return (rein_value){.kind = REIN_VALUE_STRING, .as.string = of.as.macro->node->name};
    return row ? method_of(m, of, row) : rein_undefined(name);
}

static rein_value no_attribute(rein_machine *m, rein_value of, const char *what) {
    if (of.as.string) return rein_fail_value(m, "%.80s is undefined: it has no %.80s", of.as.string->data, what);
    return rein_fail_value(m, "the value is undefined: it has no %.80s", what);
}

rein_value rein_value_attribute(rein_machine *m, rein_value of, const rein_string *name) {
    if (of.kind == REIN_VALUE_UNDEFINED) return no_attribute(m, of, name->data);
    const rein_value own = own_attribute(m, of, name);
    if (own.kind != REIN_VALUE_UNDEFINED || of.kind != REIN_VALUE_DICT) return own;
    const rein_dict_entry *entry = rein_dict_name(of.as.dict, name->data, name->length);
    return entry ? entry->value : rein_undefined(name);
}

static rein_value item_at(rein_machine *m, rein_value of, int64_t index) {
    size_t n = 0;
    rein_value_length(&n, of);
    if (index < 0) index += (int64_t)n;
    if (index < 0 || index >= (int64_t)n) return rein_undefined(NULL);
    if (of.kind != REIN_VALUE_STRING) return of.as.list->items[index];
    const size_t begin = rein_character_offset(of.as.string, (size_t)index);
    uint32_t c;
    return rein_substring(m, of.as.string, begin, begin + rein_utf8_next(&c, of.as.string->data + begin));
}

rein_value rein_value_item(rein_machine *m, rein_value of, rein_value key) {
    if (of.kind == REIN_VALUE_UNDEFINED) return no_attribute(m, of, key.kind == REIN_VALUE_STRING ? key.as.string->data : "item");
    if (of.kind == REIN_VALUE_DICT) {
        const rein_dict_entry *entry = rein_dict_find(m, of.as.dict, key);
        if (entry) return entry->value;
    }
    const bool whole = key.kind == REIN_VALUE_INTEGER || key.kind == REIN_VALUE_BOOLEAN;
    if (whole && of.kind != REIN_VALUE_VIEW && (of.kind == REIN_VALUE_STRING || rein_is_sequence(of)))
        return item_at(m, of, whole_of(key));
    if (key.kind == REIN_VALUE_STRING) return own_attribute(m, of, key.as.string);
    return rein_undefined(NULL);
}

/* ----------------------------------------------------------------------------------------------------------------------- slices */

static bool slice_bound(rein_machine *m, int64_t *bound, rein_value given, int64_t n, int64_t low, int64_t high, int64_t none) {
    if (given.kind == REIN_VALUE_NONE) return *bound = none, true;
    if (given.kind != REIN_VALUE_INTEGER && given.kind != REIN_VALUE_BOOLEAN)
        return rein_fail_value(m, "a slice needs whole numbers, not a %s", rein_kind_name(given)), false;
    int64_t at = whole_of(given);
    if (at < 0) at += n;
    *bound = at < low ? low : at > high ? high : at;
    return true;
}

static rein_value slice_string(rein_machine *m, const rein_string *s, int64_t begin, int64_t end, int64_t step) {
    rein_builder b = {0};
    uint32_t c;
    if (step == 1)
        return rein_substring(m, s, rein_character_offset(s, (size_t)begin),
                              rein_character_offset(s, (size_t)(end > begin ? end : begin)));
    for (int64_t i = begin; (step > 0 ? i < end : i > end) && rein_machine_step(m, s->length / 16 + 1); i += step) {
        const size_t at = rein_character_offset(s, (size_t)i);
        rein_put(m, &b, s->data + at, s->marks ? s->marks + at : NULL, rein_utf8_next(&c, s->data + at));
    }
    return rein_builder_value(m, &b);
}

rein_value rein_value_slice(rein_machine *m, rein_value of, rein_value begin, rein_value end, rein_value step) {
    size_t length;
    int64_t by = 1, first = 0, stop = 0;
    if (of.kind == REIN_VALUE_UNDEFINED) return no_attribute(m, of, "slice");
    if (of.kind != REIN_VALUE_STRING && (!rein_is_sequence(of) || of.kind == REIN_VALUE_VIEW)) return rein_undefined(NULL);
    rein_value_length(&length, of);
    const int64_t n = (int64_t)length;
    if (!slice_bound(m, &by, step, 0, INT32_MIN, INT32_MAX, 1)) return rein_undefined(NULL);
    if (!by) return rein_fail_value(m, "the step of a slice is 0");
    const int64_t low = by > 0 ? 0 : -1, high = by > 0 ? n : n - 1;
    if (!slice_bound(m, &first, begin, n, low, high, by > 0 ? 0 : n - 1)) return rein_undefined(NULL);
    if (!slice_bound(m, &stop, end, n, low, high, by > 0 ? n : -1)) return rein_undefined(NULL);
    if (of.kind == REIN_VALUE_STRING) return slice_string(m, of.as.string, first, stop, by);
    const rein_value list = rein_list_new(m, of.kind == REIN_VALUE_TUPLE ? REIN_VALUE_TUPLE : REIN_VALUE_LIST, 0);
    for (int64_t i = first; (by > 0 ? i < stop : i > stop) && !m->status; i += by)
        rein_list_add(m, list.as.list, of.as.list->items[i]);
    return list;
}
