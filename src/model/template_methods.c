/* template_methods.c - methods of strings, dicts and loops. Those that would change a list or dict are refused, as in Jinja's sandbox. */
#include <string.h>

#include "model/template.h"

static const rein_string *text_of(rein_call *call, size_t i, const char *what) {
    if (call->arguments[i].kind == REIN_VALUE_STRING) return call->arguments[i].as.string;
    rein_fail_value(call->machine, "%s needs a text as %s, not a %s", call->row->name, what, rein_kind_name(call->arguments[i]));
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------------------------ strips */

static rein_value strip(rein_call *call, bool left, bool right) {
    const rein_string *what = NULL;
    if (call->given[0] && call->arguments[0].kind != REIN_VALUE_NONE && !(what = text_of(call, 0, "characters")))
        return rein_undefined(NULL);
    return rein_strip(call->machine, call->self.as.string, what, left, right);
}

static rein_value method_strip(rein_call *call) { return strip(call, true, true); }
static rein_value method_lstrip(rein_call *call) { return strip(call, true, false); }
static rein_value method_rstrip(rein_call *call) { return strip(call, false, true); }

static bool has_affix(const rein_string *s, const rein_string *affix, bool end) {
    return s->length >= affix->length && memcmp(s->data + (end ? s->length - affix->length : 0), affix->data, affix->length) == 0;
}

/* A tuple of texts is allowed too. */
static rein_value affix(rein_call *call, bool end) {
    const rein_value given = call->arguments[0];
    if (given.kind == REIN_VALUE_TUPLE) {
        for (size_t i = 0; i < given.as.list->n; i++)
            if (given.as.list->items[i].kind == REIN_VALUE_STRING &&
                has_affix(call->self.as.string, given.as.list->items[i].as.string, end))
                return rein_boolean(true);
        return rein_boolean(false);
    }
    const rein_string *text = text_of(call, 0, "argument");
    return text ? rein_boolean(has_affix(call->self.as.string, text, end)) : rein_undefined(NULL);
}

static rein_value method_startswith(rein_call *call) { return affix(call, false); }
static rein_value method_endswith(rein_call *call) { return affix(call, true); }

static rein_value method_removeprefix(rein_call *call) {
    const rein_string *s = call->self.as.string, *text = text_of(call, 0, "prefix");
    return text ? rein_substring(call->machine, s, has_affix(s, text, false) ? text->length : 0, s->length) : rein_undefined(NULL);
}

static rein_value method_removesuffix(rein_call *call) {
    const rein_string *s = call->self.as.string, *text = text_of(call, 0, "suffix");
    return text ? rein_substring(call->machine, s, 0, s->length - (has_affix(s, text, true) ? text->length : 0))
                : rein_undefined(NULL);
}

/* ------------------------------------------------------------------------------------------------------------------------ splits */

static bool count_given(rein_call *call, size_t i, int64_t *count) {
    *count = -1;
    if (!call->given[i]) return true;
    if (call->arguments[i].kind != REIN_VALUE_INTEGER) return rein_fail_value(call->machine, "a whole number is needed"), false;
    *count = call->arguments[i].as.integer;
    return true;
}

static rein_value split_spaces(rein_machine *m, const rein_string *s, int64_t most) {
    const rein_value list = rein_list_new(m, REIN_VALUE_LIST, 0);
    uint32_t c;
    for (size_t at = 0, n; at < s->length && !m->status;) {
        n = rein_utf8_next(&c, s->data + at);
        if (rein_is_space(c)) {
            at += n;
            continue;
        }
        size_t end = at;
        if (most-- == 0) {
            const rein_value rest = rein_substring(m, s, at, s->length);
            if (!m->status) rein_list_add(m, list.as.list, rein_strip(m, rest.as.string, NULL, false, true));
            break;
        }
        while (end < s->length && (n = rein_utf8_next(&c, s->data + end), !rein_is_space(c))) end += n;
        rein_list_add(m, list.as.list, rein_substring(m, s, at, end));
        at = end;
    }
    return list;
}

static rein_value method_split(rein_call *call) {
    rein_machine *m = call->machine;
    const rein_string *s = call->self.as.string, *by;
    int64_t most;
    if (!count_given(call, 1, &most)) return rein_undefined(NULL);
    if (!call->given[0] || call->arguments[0].kind == REIN_VALUE_NONE) return split_spaces(m, s, most);
    if (!(by = text_of(call, 0, "separator"))) return rein_undefined(NULL);
    if (!by->length) return rein_fail_value(m, "the separator is empty");
    const rein_value list = rein_list_new(m, REIN_VALUE_LIST, 0);
    size_t at = 0;
    for (int64_t hit; most-- != 0 && !m->status && (hit = rein_find(s, by, at, s->length, false)) >= 0;
         at = (size_t)hit + by->length)
        rein_list_add(m, list.as.list, rein_substring(m, s, at, (size_t)hit));
    if (!m->status) rein_list_add(m, list.as.list, rein_substring(m, s, at, s->length));
    return list;
}

static rein_value method_rsplit(rein_call *call) {
    rein_machine *m = call->machine;
    const rein_string *s = call->self.as.string, *by;
    int64_t most;
    if (!count_given(call, 1, &most)) return rein_undefined(NULL);
    if (most < 0) return method_split(call);
    if (!call->given[0] || !(by = text_of(call, 0, "separator")) || !by->length)
        return rein_fail_value(m, "rsplit needs a separator that is not empty");
    const rein_value parts = rein_list_new(m, REIN_VALUE_LIST, 0), list = rein_list_new(m, REIN_VALUE_LIST, 0);
    size_t end = s->length;
    for (int64_t hit; most-- != 0 && !m->status && (hit = rein_find(s, by, 0, end, true)) >= 0; end = (size_t)hit)
        rein_list_add(m, parts.as.list, rein_substring(m, s, (size_t)hit + by->length, end));
    if (!m->status) rein_list_add(m, list.as.list, rein_substring(m, s, 0, end));
    for (size_t i = m->status ? 0 : parts.as.list->n; i-- > 0 && !m->status;)
        rein_list_add(m, list.as.list, parts.as.list->items[i]);
    return list;
}

static rein_value partition(rein_call *call, bool last) {
    rein_machine *m = call->machine;
    const rein_string *s = call->self.as.string, *by = text_of(call, 0, "separator");
    if (!by) return rein_undefined(NULL);
    if (!by->length) return rein_fail_value(m, "the separator is empty");
    const int64_t hit = rein_find(s, by, 0, s->length, last);
    const rein_value list = rein_list_new(m, REIN_VALUE_TUPLE, 3);
    const size_t begin = hit >= 0 ? (size_t)hit : last ? 0 : s->length, end = hit >= 0 ? begin + by->length : begin;
    if (m->status) return list;
    rein_list_add(m, list.as.list, rein_substring(m, s, 0, begin));
    rein_list_add(m, list.as.list, rein_substring(m, s, begin, end));
    rein_list_add(m, list.as.list, rein_substring(m, s, end, s->length));
    return list;
}

static rein_value method_partition(rein_call *call) { return partition(call, false); }
static rein_value method_rpartition(rein_call *call) { return partition(call, true); }

static rein_value method_splitlines(rein_call *call) {
    rein_machine *m = call->machine;
    const rein_string *s = call->self.as.string;
    const rein_value list = rein_list_new(m, REIN_VALUE_LIST, 0);
    for (size_t at = 0, n; at < s->length && !m->status;) {
        size_t end = at, next;
        uint32_t c = 0;
        for (n = 0; end < s->length; end += n) {
            n = rein_utf8_next(&c, s->data + end);
            if (c == '\n' || c == '\v' || c == '\f' || c == '\r' || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
                c == 0x2029)
                break;
        }
        next = end < s->length ? end + n + (c == '\r' && end + 1 < s->length && s->data[end + 1] == '\n') : end;
        rein_list_add(m, list.as.list,
                      rein_substring(m, s, at, call->given[0] && rein_value_true(call->arguments[0]) ? next : end));
        at = next;
    }
    return list;
}

/* ------------------------------------------------------------------------------------------------------------------------ others */

static rein_value cased(rein_call *call, rein_case to) {
    rein_builder b = {0};
    rein_put_case(call->machine, &b, call->self.as.string, 0, call->self.as.string->length, to);
    return rein_builder_value(call->machine, &b);
}

static rein_value method_upper(rein_call *call) { return cased(call, REIN_CASE_UPPER); }
static rein_value method_lower(rein_call *call) { return cased(call, REIN_CASE_LOWER); }
static rein_value method_capitalize(rein_call *call) { return rein_capitalize(call->machine, call->self.as.string); }

/* Words are runs of letters. */
static rein_value method_title(rein_call *call) {
    rein_builder b = {0};
    const rein_string *s = call->self.as.string;
    bool inside = false;
    for (size_t at = 0, n; at < s->length && !call->machine->status; at += n) {
        uint32_t c;
        n = rein_utf8_next(&c, s->data + at);
        rein_put_case(call->machine, &b, s, at, at + n, inside ? REIN_CASE_LOWER : REIN_CASE_TITLE);
        inside = rein_is_word(c) && !rein_is_numeric(c) && c != '_';
    }
    return rein_builder_value(call->machine, &b);
}

static rein_value method_replace(rein_call *call) {
    const rein_string *from = text_of(call, 0, "first argument"), *to = from ? text_of(call, 1, "second argument") : NULL;
    int64_t most;
    if (!to || !count_given(call, 2, &most)) return rein_undefined(NULL);
    return rein_replace(call->machine, call->self.as.string, from, to, most);
}

static rein_value found(rein_call *call, bool last) {
    const rein_string *s = call->self.as.string, *part = text_of(call, 0, "argument");
    if (!part) return rein_undefined(NULL);
    const int64_t hit = rein_find(s, part, 0, s->length, last);
    const rein_string before = {.data = s->data, .length = hit > 0 ? (size_t)hit : 0};
    return rein_integer(hit < 0 ? -1 : (int64_t)rein_characters(&before));
}

static rein_value method_find(rein_call *call) { return found(call, false); }
static rein_value method_rfind(rein_call *call) { return found(call, true); }

static rein_value method_index(rein_call *call) {
    const rein_value at = found(call, false);
    return !call->machine->status && at.as.integer < 0 ? rein_fail_value(call->machine, "the text is not there") : at;
}

static rein_value method_count(rein_call *call) {
    const rein_string *s = call->self.as.string, *part = text_of(call, 0, "argument");
    int64_t n = 0;
    if (!part) return rein_undefined(NULL);
    if (!part->length) return rein_integer((int64_t)rein_characters(s) + 1);
    for (int64_t at = 0; (at = rein_find(s, part, (size_t)at, s->length, false)) >= 0; at += (int64_t)part->length) n++;
    return rein_integer(n);
}

static rein_value all_are(rein_call *call, bool (*is)(uint32_t)) {
    const rein_string *s = call->self.as.string;
    uint32_t c;
    for (size_t at = 0; at < s->length;) {
        at += rein_utf8_next(&c, s->data + at);
        if (!is(c)) return rein_boolean(false);
    }
    return rein_boolean(s->length > 0);
}

static bool is_digit(uint32_t c) { return c >= '0' && c <= '9'; }
static bool is_letter(uint32_t c) { return rein_is_word(c) && !rein_is_numeric(c) && c != '_'; }
static bool is_letter_or_digit(uint32_t c) { return rein_is_word(c) && c != '_'; }
static rein_value method_isdigit(rein_call *call) { return all_are(call, is_digit); }
static rein_value method_isspace(rein_call *call) { return all_are(call, rein_is_space); }
static rein_value method_isalpha(rein_call *call) { return all_are(call, is_letter); }
static rein_value method_isalnum(rein_call *call) { return all_are(call, is_letter_or_digit); }

static rein_value method_join(rein_call *call) {
    rein_machine *m = call->machine;
    const rein_list *items = rein_value_items(m, call->arguments[0]);
    rein_builder b = {0};
    for (size_t i = 0; items && i < items->n && !m->status; i++) {
        if (items->items[i].kind != REIN_VALUE_STRING)
            rein_fail_value(m, "join needs texts, not a %s", rein_kind_name(items->items[i]));
        if (i) rein_put_string(m, &b, call->self.as.string);
        if (!m->status) rein_put_string(m, &b, items->items[i].as.string);
    }
    return rein_builder_value(m, &b);
}

static const rein_callable string_methods[] = {
    {"strip", method_strip, "chars", 0},
    {"lstrip", method_lstrip, "chars", 0},
    {"rstrip", method_rstrip, "chars", 0},
    {"startswith", method_startswith, "prefix", 1},
    {"endswith", method_endswith, "suffix", 1},
    {"removeprefix", method_removeprefix, "prefix", 1},
    {"removesuffix", method_removesuffix, "suffix", 1},
    {"split", method_split, "sep maxsplit", 0},
    {"rsplit", method_rsplit, "sep maxsplit", 0},
    {"partition", method_partition, "sep", 1},
    {"rpartition", method_rpartition, "sep", 1},
    {"splitlines", method_splitlines, "keepends", 0},
    {"upper", method_upper, NULL, 0},
    {"lower", method_lower, NULL, 0},
    {"capitalize", method_capitalize, NULL, 0},
    {"title", method_title, NULL, 0},
    {"replace", method_replace, "old new count", 2},
    {"find", method_find, "sub", 1},
    {"rfind", method_rfind, "sub", 1},
    {"index", method_index, "sub", 1},
    {"count", method_count, "sub", 1},
    {"join", method_join, "iterable", 1},
    {"isdigit", method_isdigit, NULL, 0},
    {"isspace", method_isspace, NULL, 0},
    {"isalpha", method_isalpha, NULL, 0},
    {"isalnum", method_isalnum, NULL, 0},
    {"format", NULL, "*", 0},
    {"format_map", NULL, "*", 0},
    {"casefold", NULL, "*", 0},
    {"center", NULL, "*", 0},
    {"encode", NULL, "*", 0},
    {"expandtabs", NULL, "*", 0},
    {"isascii", NULL, "*", 0},
    {"isdecimal", NULL, "*", 0},
    {"isidentifier", NULL, "*", 0},
    {"islower", NULL, "*", 0},
    {"isnumeric", NULL, "*", 0},
    {"isprintable", NULL, "*", 0},
    {"istitle", NULL, "*", 0},
    {"isupper", NULL, "*", 0},
    {"ljust", NULL, "*", 0},
    {"maketrans", NULL, "*", 0},
    {"rindex", NULL, "*", 0},
    {"rjust", NULL, "*", 0},
    {"swapcase", NULL, "*", 0},
    {"translate", NULL, "*", 0},
    {"zfill", NULL, "*", 0},
};

/* ------------------------------------------------------------------------------------------------------------------------- dicts */

static rein_value method_get(rein_call *call) {
    const rein_value key = call->arguments[0];
    if (key.kind == REIN_VALUE_LIST || key.kind == REIN_VALUE_DICT)
        return rein_fail_value(call->machine, "a %s cannot be a key", rein_kind_name(key));
    const rein_dict_entry *entry = rein_dict_find(call->machine, call->self.as.dict, key);
    return entry ? entry->value : call->given[1] ? call->arguments[1] : rein_none();
}

static rein_value view(rein_call *call, bool keys, bool values, const char *shown) {
    rein_machine *m = call->machine;
    const rein_dict *dict = call->self.as.dict;
    const rein_value list = rein_list_new(m, REIN_VALUE_VIEW, dict->n);
    if (!m->status) list.as.list->shown = shown;
    for (size_t i = 0; i < dict->n && !m->status; i++) {
        rein_value item = keys ? dict->entries[i].key : dict->entries[i].value;
        if (keys && values) {
            item = rein_list_new(m, REIN_VALUE_TUPLE, 2);
            if (m->status) break;
            rein_list_add(m, item.as.list, dict->entries[i].key);
            rein_list_add(m, item.as.list, dict->entries[i].value);
        }
        rein_list_add(m, list.as.list, item);
    }
    return list;
}

static rein_value method_items(rein_call *call) { return view(call, true, true, "dict_items"); }
static rein_value method_keys(rein_call *call) { return view(call, true, false, "dict_keys"); }
static rein_value method_values(rein_call *call) { return view(call, false, true, "dict_values"); }
static rein_value method_copy(rein_call *call) { return call->self; }

static const rein_callable dict_methods[] = {
    {"get", method_get, "key default", 1},
    {"items", method_items, NULL, 0},
    {"keys", method_keys, NULL, 0},
    {"values", method_values, NULL, 0},
    {"copy", method_copy, NULL, 0},
    {"update", NULL, "*", 0},
    {"pop", NULL, "*", 0},
    {"popitem", NULL, "*", 0},
    {"setdefault", NULL, "*", 0},
    {"clear", NULL, "*", 0},
    {"fromkeys", NULL, "*", 0},
};

/* ------------------------------------------------------------------------------------------------------------------------- lists */

static rein_value list_index(rein_call *call) {
    for (size_t i = 0; i < call->self.as.list->n; i++)
        if (rein_value_equal(call->machine, call->self.as.list->items[i], call->arguments[0])) return rein_integer((int64_t)i);
    return rein_fail_value(call->machine, "the value is not in the list");
}

static rein_value list_count(rein_call *call) {
    int64_t n = 0;
    for (size_t i = 0; i < call->self.as.list->n; i++)
        n += rein_value_equal(call->machine, call->self.as.list->items[i], call->arguments[0]);
    return rein_integer(n);
}

static const rein_callable list_methods[] = {
    {"index", list_index, "value", 1},
    {"count", list_count, "value", 1},
    {"copy", method_copy, NULL, 0},
    {"append", NULL, "*", 0},
    {"extend", NULL, "*", 0},
    {"insert", NULL, "*", 0},
    {"pop", NULL, "*", 0},
    {"remove", NULL, "*", 0},
    {"reverse", NULL, "*", 0},
    {"sort", NULL, "*", 0},
    {"clear", NULL, "*", 0},
};

/* ------------------------------------------------------------------------------------------------------------------------- loops */

static rein_value loop_cycle(rein_call *call) {
    if (!call->n) return rein_fail_value(call->machine, "cycle needs values");
    return call->arguments[call->self.as.loop->at % call->n];
}

static rein_value loop_changed(rein_call *call) {
    rein_template_loop *loop = call->self.as.loop;
    const rein_value seen = rein_list_new(call->machine, REIN_VALUE_TUPLE, call->n);
    for (size_t i = 0; i < call->n && !call->machine->status; i++) rein_list_add(call->machine, seen.as.list, call->arguments[i]);
    const bool changed = loop->changed.kind == REIN_VALUE_UNDEFINED || !rein_value_equal(call->machine, loop->changed, seen);
    loop->changed = seen;
    return rein_boolean(changed);
}

static const rein_callable loop_methods[] = {{"cycle", loop_cycle, "*", 0}, {"changed", loop_changed, "*", 0}};

const rein_callable *rein_string_method(const char *name, size_t length) {
    return rein_row_find(string_methods, sizeof string_methods / sizeof *string_methods, name, length);
}

const rein_callable *rein_dict_method(const char *name, size_t length) {
    return rein_row_find(dict_methods, sizeof dict_methods / sizeof *dict_methods, name, length);
}

const rein_callable *rein_list_method(const char *name, size_t length, rein_value_kind kind) {
    return rein_row_find(list_methods, kind == REIN_VALUE_TUPLE ? 2 : sizeof list_methods / sizeof *list_methods, name, length);
}

const rein_callable *rein_loop_method(const char *name, size_t length) {
    return rein_row_find(loop_methods, sizeof loop_methods / sizeof *loop_methods, name, length);
}
