/* template_print.c - values as text: str() and repr() of Python, and json.dumps. Bytes of the data keep their marks. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/text.h"
#include "model/template.h"
#include "rein/json.h"

/* --------------------------------------------------------------------------------------------------------------------- builders */

static bool grow(rein_machine *m, rein_builder *b, size_t more) {
    if (more < b->capacity - b->length) return true;
    const size_t limit = m->memory.limit ? m->memory.limit : SIZE_MAX / 8;
    if (more > limit || b->length + more > limit)
        return rein_fail_value(m, "the text needs more than %zu MB of memory", limit >> 20), false;
    const size_t capacity = rein_grown(b->capacity, b->length + more + 1, 2);
    char *data = capacity ? realloc(b->data, capacity) : NULL;
    if (data) b->data = data;
    char *marks = data ? realloc(b->marks, capacity) : NULL;
    if (marks) b->marks = marks;
    if (!marks) m->status = rein_no_memory(m->err);
    else b->capacity = capacity;
    return marks != NULL;
}

void rein_put(rein_machine *m, rein_builder *b, const char *text, const char *marks, size_t length) {
    if (!rein_machine_step(m, length / 64) || !grow(m, b, length) || !length) return;
    memcpy(b->data + b->length, text, length);
    if (marks) memcpy(b->marks + b->length, marks, length);
    else memset(b->marks + b->length, 0, length);
    b->length += length;
}

void rein_put_text(rein_machine *m, rein_builder *b, const char *text) { rein_put(m, b, text, NULL, strlen(text)); }

void rein_put_string(rein_machine *m, rein_builder *b, const rein_string *s) { rein_put(m, b, s->data, s->marks, s->length); }

rein_value rein_builder_value(rein_machine *m, rein_builder *b) {
    const rein_value v = rein_string_of(m, b->data ? b->data : "", b->length, b->marks);
    free(b->data);
    free(b->marks);
    *b = (rein_builder){0};
    return v;
}

rein_value rein_value_text(rein_machine *m, rein_value v) {
    rein_builder b = {0};
    if (v.kind == REIN_VALUE_STRING) return v;
    rein_put_value(m, &b, v);
    return rein_builder_value(m, &b);
}

/* ---------------------------------------------------------------------------------------------------------------------- numbers */

static void put_float(rein_machine *m, rein_builder *b, double x, bool json) {
    rein_text text = {0};
    if (isnan(x)) {
        rein_put_text(m, b, json ? "NaN" : "nan");
        return;
    }
    if (isinf(x)) {
        rein_put_text(m, b, json ? (x > 0 ? "Infinity" : "-Infinity") : x > 0 ? "inf" : "-inf");
        return;
    }
    rein_json_put_shortest(&text, x);
    if (!m->status && rein_text_status(&text, m->err)) m->status = REIN_ENOMEM;
    else rein_put(m, b, text.data, NULL, text.length);
    rein_text_free(&text);
}

static void put_integer(rein_machine *m, rein_builder *b, int64_t x) {
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRId64, x);
    rein_put_text(m, b, digits);
}

/* ------------------------------------------------------------------------------------------------------------------------- repr */

static bool is_printable(uint32_t c) {
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    if (c == ' ') return true;
    return category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS;
}

static void put_quoted(rein_machine *m, rein_builder *b, const rein_string *s) {
    const bool doubled = memchr(s->data, '\'', s->length) && !memchr(s->data, '"', s->length);
    const char quote = doubled ? '"' : '\'';
    rein_put(m, b, &quote, NULL, 1);
    for (size_t at = 0, n; at < s->length && !m->status; at += n) {
        char escape[12] = {0}, marks[12];
        uint32_t c;
        n = rein_utf8_next(&c, s->data + at);
        memset(marks, s->marks ? s->marks[at] : 0, sizeof marks);
        if (c == '\\' || c == (uint32_t)quote) snprintf(escape, sizeof escape, "\\%c", (int)c);
        else if (c == '\n' || c == '\r' || c == '\t')
            snprintf(escape, sizeof escape, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        else if (!is_printable(c)) snprintf(escape, sizeof escape, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
        if (*escape) rein_put(m, b, escape, marks, strlen(escape));
        else rein_put(m, b, s->data + at, marks, n);
    }
    rein_put(m, b, &quote, NULL, 1);
}

static void put_items(rein_machine *m, rein_builder *b, const rein_list *list, const char *open, const char *close) {
    rein_put_text(m, b, open);
    for (size_t i = 0; i < list->n && !m->status; i++) {
        if (i) rein_put_text(m, b, ", ");
        rein_put_repr(m, b, list->items[i]);
    }
    rein_put_text(m, b, close);
}

static void put_dict(rein_machine *m, rein_builder *b, const rein_dict *dict) {
    rein_put_text(m, b, "{");
    for (size_t i = 0; i < dict->n && !m->status; i++) {
        if (i) rein_put_text(m, b, ", ");
        rein_put_repr(m, b, dict->entries[i].key);
        rein_put_text(m, b, ": ");
        rein_put_repr(m, b, dict->entries[i].value);
    }
    rein_put_text(m, b, "}");
}

/* One level deeper; false after a failure. */
static bool enter(rein_machine *m) {
    if (m->depth >= REIN_TEMPLATE_DEPTH + 300) rein_fail_value(m, "a value is nested too deeply");
    else m->depth++;
    return rein_machine_step(m, 1);
}

static void put_nested(rein_machine *m, rein_builder *b, rein_value v) {
    if (!enter(m)) return;
    if (v.kind == REIN_VALUE_LIST) put_items(m, b, v.as.list, "[", "]");
    else if (v.kind == REIN_VALUE_TUPLE) put_items(m, b, v.as.list, "(", v.as.list->n == 1 ? ",)" : ")");
    else if (v.kind == REIN_VALUE_RANGE) rein_put_text(m, b, v.as.list->shown);
    else if (v.kind == REIN_VALUE_VIEW) rein_put_text(m, b, v.as.list->shown), put_items(m, b, v.as.list, "([", "])");
    else put_dict(m, b, v.as.dict);
    m->depth--;
}

void rein_put_repr(rein_machine *m, rein_builder *b, rein_value v) {
    if (v.kind == REIN_VALUE_STRING && v.as.string->safe) rein_fail_value(m, "a text marked as safe can only be printed");
    else if (v.kind == REIN_VALUE_STRING) put_quoted(m, b, v.as.string);
    else if (v.kind == REIN_VALUE_UNDEFINED) rein_put_text(m, b, "Undefined");
    else rein_put_value(m, b, v);
}

void rein_put_value(rein_machine *m, rein_builder *b, rein_value v) {
    switch (v.kind) {
    case REIN_VALUE_UNDEFINED: return;
    case REIN_VALUE_NONE: rein_put_text(m, b, "None"); return;
    case REIN_VALUE_BOOLEAN: rein_put_text(m, b, v.as.boolean ? "True" : "False"); return;
    case REIN_VALUE_INTEGER: put_integer(m, b, v.as.integer); return;
    case REIN_VALUE_FLOAT: put_float(m, b, v.as.number, false); return;
    case REIN_VALUE_STRING: rein_put_string(m, b, v.as.string); return;
    case REIN_VALUE_LIST:
    case REIN_VALUE_TUPLE:
    case REIN_VALUE_RANGE:
    case REIN_VALUE_VIEW:
    case REIN_VALUE_DICT: put_nested(m, b, v); return;
    default: rein_fail_value(m, "a %s has no text here", rein_kind_name(v));
    }
}

/* ------------------------------------------------------------------------------------------------------------------------- JSON */

static void put_json_string(rein_machine *m, rein_builder *b, const rein_string *s, bool ascii) {
    rein_put(m, b, "\"", NULL, 1);
    for (size_t at = 0, n; at < s->length && !m->status; at += n) {
        static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
        char escape[16] = {0}, marks[16];
        uint32_t c;
        n = rein_utf8_next(&c, s->data + at);
        const char *known = c && c < 0x80 ? strchr(from, (int)c) : NULL;
        memset(marks, s->marks ? s->marks[at] : 0, sizeof marks);
        if (known) snprintf(escape, sizeof escape, "\\%c", to[known - from]);
        else if (c < 0x20 || (ascii && (c == 0x7F ? 0 : c > 0x7E && c < 0x10000))) snprintf(escape, sizeof escape, "\\u%04x", c);
        else if (ascii && c >= 0x10000)
            snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + ((c - 0x10000) & 0x3FF));
        if (*escape) rein_put(m, b, escape, marks, strlen(escape));
        else rein_put(m, b, s->data + at, marks, n);
    }
    rein_put(m, b, "\"", NULL, 1);
}

static void put_key(rein_machine *m, rein_builder *b, rein_value key, bool ascii) {
    rein_builder inner = {0};
    if (key.kind == REIN_VALUE_STRING) {
        put_json_string(m, b, key.as.string, ascii);
        return;
    }
    if (key.kind == REIN_VALUE_NONE) rein_put_text(m, &inner, "null");
    else if (key.kind == REIN_VALUE_BOOLEAN) rein_put_text(m, &inner, key.as.boolean ? "true" : "false");
    else if (key.kind == REIN_VALUE_INTEGER || key.kind == REIN_VALUE_FLOAT) rein_put_value(m, &inner, key);
    else rein_fail_value(m, "a %s cannot be a key in JSON", rein_kind_name(key));
    const rein_value text = rein_builder_value(m, &inner);
    if (!m->status) put_json_string(m, b, text.as.string, ascii);
}

static void put_break(rein_machine *m, rein_builder *b, const rein_json_style *style, size_t level) {
    if (!style->indent) return;
    rein_put_text(m, b, "\n");
    for (size_t i = 0; i < level; i++) rein_put_text(m, b, style->indent);
}

static void put_separator(rein_machine *m, rein_builder *b, const rein_json_style *style) {
    if (style->item) rein_put_string(m, b, style->item);
    else rein_put_text(m, b, style->indent ? "," : ", ");
}

static void put_json(rein_machine *m, rein_builder *b, rein_value v, const rein_json_style *style, size_t level);

static void put_array(rein_machine *m, rein_builder *b, const rein_list *list, const rein_json_style *style, size_t level) {
    rein_put_text(m, b, "[");
    for (size_t i = 0; i < list->n && !m->status; i++) {
        if (i) put_separator(m, b, style);
        put_break(m, b, style, level + 1);
        put_json(m, b, list->items[i], style, level + 1);
    }
    if (list->n) put_break(m, b, style, level);
    rein_put_text(m, b, "]");
}

/* The entries by their keys, which must be texts. */
static const rein_dict_entry *sorted_entries(rein_machine *m, const rein_dict *dict) {
    rein_dict_entry *entries = rein_machine_take(m, dict->n * sizeof *entries);
    if (!entries || !rein_machine_step(m, dict->n * dict->n / 8)) return NULL;
    for (size_t i = 0; i < dict->n; i++) {
        size_t k = i;
        for (; k && rein_value_order(m, dict->entries[i].key, entries[k - 1].key) < 0; k--) entries[k] = entries[k - 1];
        entries[k] = dict->entries[i];
    }
    return entries;
}

static void put_object(rein_machine *m, rein_builder *b, const rein_dict *dict, const rein_json_style *style, size_t level) {
    const rein_dict_entry *entries = style->sorted && dict->n ? sorted_entries(m, dict) : dict->entries;
    rein_put_text(m, b, "{");
    for (size_t i = 0; i < dict->n && !m->status; i++) {
        if (i) put_separator(m, b, style);
        put_break(m, b, style, level + 1);
        put_key(m, b, entries[i].key, style->ascii);
        if (style->key) rein_put_string(m, b, style->key);
        else rein_put_text(m, b, ": ");
        put_json(m, b, entries[i].value, style, level + 1);
    }
    if (dict->n) put_break(m, b, style, level);
    rein_put_text(m, b, "}");
}

static void put_json(rein_machine *m, rein_builder *b, rein_value v, const rein_json_style *style, size_t level) {
    if (!enter(m)) return;
    if (v.kind == REIN_VALUE_DICT) put_object(m, b, v.as.dict, style, level);
    else if (v.kind == REIN_VALUE_LIST || v.kind == REIN_VALUE_TUPLE) put_array(m, b, v.as.list, style, level);
    else if (v.kind == REIN_VALUE_STRING) put_json_string(m, b, v.as.string, style->ascii);
    else if (v.kind == REIN_VALUE_NONE) rein_put_text(m, b, "null");
    else if (v.kind == REIN_VALUE_BOOLEAN) rein_put_text(m, b, v.as.boolean ? "true" : "false");
    else if (v.kind == REIN_VALUE_INTEGER) put_integer(m, b, v.as.integer);
    else if (v.kind == REIN_VALUE_FLOAT) put_float(m, b, v.as.number, true);
    else rein_fail_value(m, "a value of type %s cannot be written as JSON", rein_kind_name(v));
    m->depth--;
}

void rein_put_json(rein_machine *m, rein_builder *b, rein_value v, const rein_json_style *style) { put_json(m, b, v, style, 0); }
