/* template_value.c - memory, and making values. A failure is kept in the machine: after it values are undefined and nothing changes. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/template.h"

/* ----------------------------------------------------------------------------------------------------------------------- memory */

struct rein_block {
    rein_block *next;
    size_t size;
    max_align_t data[];
};

void *rein_blocks_take(rein_blocks *blocks, size_t bytes) {
    enum { LEAST = 16 << 10 };
    if (bytes > SIZE_MAX / 4) return NULL;
    bytes = (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (!blocks->first || blocks->first->size - blocks->used < bytes) {
        const size_t size = bytes > LEAST / 4 ? bytes : LEAST;
        if (blocks->limit && size > blocks->limit - blocks->taken) return NULL;
        rein_block *block = calloc(1, sizeof *block + size);
        if (!block) return NULL;
        block->size = size;
        blocks->taken += size;
        if (bytes > LEAST / 4 && blocks->first) { /* a large piece has its own block; the first one stays in use */
            block->next = blocks->first->next;
            blocks->first->next = block;
            return block->data;
        }
        block->next = blocks->first;
        blocks->first = block, blocks->used = 0;
    }
    void *piece = (char *)blocks->first->data + blocks->used;
    blocks->used += bytes;
    return piece;
}

void rein_blocks_free(rein_blocks *blocks) {
    for (rein_block *block = blocks->first, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    *blocks = (rein_blocks){0};
}

void *rein_machine_take(rein_machine *m, size_t bytes) {
    void *piece = m->status ? NULL : rein_blocks_take(&m->memory, bytes);
    if (!piece && !m->status) {
        if (m->memory.limit && m->memory.taken + bytes > m->memory.limit)
            rein_fail_value(m, "the rendering needs more than %zu MB of memory", m->memory.limit >> 20);
        else m->status = rein_no_memory(m->err);
    }
    return piece;
}

rein_value rein_fail_value(rein_machine *m, const char *format, ...) {
    char message[REIN_MESSAGE_SIZE];
    va_list arguments;
    if (m->status) return rein_undefined(NULL);
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    m->status = rein_template_fail(m->err, REIN_EINVAL, m->running->text, m->at, "%s", message);
    return rein_undefined(NULL);
}

bool rein_machine_step(rein_machine *m, size_t steps) {
    if (m->status) return false;
    if (steps > (size_t)REIN_TEMPLATE_STEPS - m->steps) return rein_fail_value(m, "the template takes too many steps"), false;
    m->steps += steps;
    return true;
}

/* ---------------------------------------------------------------------------------------------------------------------- scalars */

rein_value rein_none(void) { return (rein_value){.kind = REIN_VALUE_NONE}; }
rein_value rein_boolean(bool is) { return (rein_value){.kind = REIN_VALUE_BOOLEAN, .as.boolean = is}; }
rein_value rein_integer(int64_t integer) { return (rein_value){.kind = REIN_VALUE_INTEGER, .as.integer = integer}; }
rein_value rein_float(double number) { return (rein_value){.kind = REIN_VALUE_FLOAT, .as.number = number}; }
rein_value rein_undefined(const rein_string *name) { return (rein_value){.kind = REIN_VALUE_UNDEFINED, .as.string = name}; }

/* ---------------------------------------------------------------------------------------------------------------------- strings */

static rein_value string_value(rein_machine *m, const char *data, const char *marks, size_t length) {
    rein_string *s = rein_machine_take(m, sizeof *s);
    if (!s) return rein_undefined(NULL);
    *s = (rein_string){.data = data, .marks = marks, .length = length};
    return (rein_value){.kind = REIN_VALUE_STRING, .as.string = s};
}

rein_value rein_string_of(rein_machine *m, const char *text, size_t length, const char *marks) {
    const bool any = marks && memchr(marks, 1, length);
    char *data = rein_machine_step(m, length / 64) ? rein_machine_take(m, length + 1) : NULL;
    char *kept = any && data ? rein_machine_take(m, length) : NULL;
    if (!data || (any && !kept)) return rein_undefined(NULL);
    if (length) memcpy(data, text, length);
    if (any) memcpy(kept, marks, length);
    return string_value(m, data, kept, length);
}

rein_value rein_literal(rein_machine *m, const char *text) { return rein_string_of(m, text, strlen(text), NULL); }

rein_value rein_substring(rein_machine *m, const rein_string *s, size_t begin, size_t end) {
    if (begin == 0 && end == s->length) return (rein_value){.kind = REIN_VALUE_STRING, .as.string = s};
    if (end < begin) end = begin;
    return rein_string_of(m, s->data + begin, end - begin, s->marks ? s->marks + begin : NULL);
}

bool rein_is_text(rein_value v, const char *text) {
    return v.kind == REIN_VALUE_STRING && v.as.string->length == strlen(text) && memcmp(v.as.string->data, text, strlen(text)) == 0;
}

/* ------------------------------------------------------------------------------------------------------------- lists and dicts */

rein_value rein_list_new(rein_machine *m, rein_value_kind kind, size_t capacity) {
    rein_list *list = rein_machine_take(m, sizeof *list);
    if (!list) return rein_undefined(NULL);
    if (capacity > SIZE_MAX / 64) return rein_fail_value(m, "a list is too long");
    list->items = capacity ? rein_machine_take(m, capacity * sizeof *list->items) : NULL;
    list->capacity = list->items ? capacity : 0;
    return m->status ? rein_undefined(NULL) : (rein_value){.kind = kind, .as.list = list};
}

void rein_list_add(rein_machine *m, rein_list *list, rein_value item) {
    if (!rein_machine_step(m, 1)) return;
    if (list->n == list->capacity) {
        const size_t capacity = 2 * list->capacity + 4;
        rein_value *items = rein_machine_take(m, capacity * sizeof *items);
        if (!items) return;
        if (list->n) memcpy(items, list->items, list->n * sizeof *items);
        list->items = items, list->capacity = capacity;
    }
    list->items[list->n++] = item;
}

rein_value rein_dict_new(rein_machine *m, size_t capacity) {
    rein_dict *dict = rein_machine_take(m, sizeof *dict);
    if (!dict) return rein_undefined(NULL);
    dict->entries = capacity ? rein_machine_take(m, capacity * sizeof *dict->entries) : NULL;
    dict->capacity = dict->entries ? capacity : 0;
    return m->status ? rein_undefined(NULL) : (rein_value){.kind = REIN_VALUE_DICT, .as.dict = dict};
}

void rein_dict_add(rein_machine *m, rein_dict *dict, rein_value key, rein_value value) {
    if (!rein_machine_step(m, 1)) return;
    if (dict->n == dict->capacity) {
        const size_t capacity = 2 * dict->capacity + 4;
        rein_dict_entry *entries = rein_machine_take(m, capacity * sizeof *entries);
        if (!entries) return;
        if (dict->n) memcpy(entries, dict->entries, dict->n * sizeof *entries);
        dict->entries = entries, dict->capacity = capacity;
    }
    dict->entries[dict->n++] = (rein_dict_entry){key, value};
}

const rein_dict_entry *rein_dict_find(rein_machine *m, const rein_dict *dict, rein_value key) {
    if (key.kind == REIN_VALUE_STRING) {
        if (!rein_machine_step(m, dict->n / 16)) return NULL;
        return rein_dict_name(dict, key.as.string->data, key.as.string->length);
    }
    for (size_t i = 0; i < dict->n && rein_machine_step(m, 1); i++)
        if (rein_value_equal(m, dict->entries[i].key, key)) return &dict->entries[i];
    return NULL;
}

const rein_dict_entry *rein_dict_name(const rein_dict *dict, const char *name, size_t length) {
    for (size_t i = 0; i < dict->n; i++) {
        const rein_value key = dict->entries[i].key;
        if (key.kind == REIN_VALUE_STRING && key.as.string->length == length && memcmp(key.as.string->data, name, length) == 0)
            return &dict->entries[i];
    }
    return NULL;
}

void rein_dict_set(rein_machine *m, rein_dict *dict, rein_value key, rein_value value) {
    const rein_dict_entry *found = rein_dict_find(m, dict, key);
    if (found) dict->entries[found - dict->entries].value = value;
    else rein_dict_add(m, dict, key, value);
}

/* ------------------------------------------------------------------------------------------------------------------------- JSON */

static rein_value marked_string(rein_machine *m, const char *text, size_t length, bool marked) {
    rein_value v = rein_string_of(m, text, length, NULL);
    char *marks = marked && length ? rein_machine_take(m, length) : NULL;
    if (m->status || !marks) return v;
    memset(marks, 1, length);
    return string_value(m, v.as.string->data, marks, length);
}

static rein_value value_of_array(rein_machine *m, const json_t *json, bool marked) {
    const rein_value list = rein_list_new(m, REIN_VALUE_LIST, json_array_size(json));
    for (size_t i = 0; i < json_array_size(json) && !m->status; i++)
        rein_list_add(m, list.as.list, rein_value_of_json(m, json_array_get(json, i), marked));
    return list;
}

static rein_value value_of_object(rein_machine *m, const json_t *json, bool marked) {
    const rein_value dict = rein_dict_new(m, json_object_size(json));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)json, key, value) {
        if (m->status) break;
        rein_dict_add(m, dict.as.dict, marked_string(m, key, strlen(key), marked), rein_value_of_json(m, value, marked));
    }
    return dict;
}

rein_value rein_value_of_json(rein_machine *m, const json_t *json, bool marked) {
    switch (json ? json_typeof(json) : JSON_NULL) {
    case JSON_OBJECT: return value_of_object(m, json, marked);
    case JSON_ARRAY: return value_of_array(m, json, marked);
    case JSON_STRING: return marked_string(m, json_string_value(json), json_string_length(json), marked);
    case JSON_INTEGER: return rein_integer(json_integer_value(json));
    case JSON_REAL: return rein_float(json_real_value(json));
    case JSON_TRUE: return rein_boolean(true);
    case JSON_FALSE: return rein_boolean(false);
    case JSON_NULL: break;
    }
    return rein_none();
}

/* ------------------------------------------------------------------------------------------------------------------------ kinds */

bool rein_is_sequence(rein_value v) {
    return v.kind == REIN_VALUE_LIST || v.kind == REIN_VALUE_TUPLE || v.kind == REIN_VALUE_RANGE || v.kind == REIN_VALUE_VIEW;
}

const char *rein_kind_name(rein_value v) {
    static const char *const names[] = {"undefined", "None",  "bool",  "int",       "float",     "str",
                                        "list",      "tuple", "range", "dict view", "generator", "dict",
                                        "namespace", "loop",  "macro", "function",  "method"};
    return names[v.kind];
}
