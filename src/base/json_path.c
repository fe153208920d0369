/* json_path.c - the JSON path of a position in a text, so that a syntax error can name the field it is in. */
#include <stdio.h>
#include <string.h>

#include "json.h"

enum { DEPTH = 8 }; /* of a path in a message: what is deeper is left out */

typedef struct level {
    int object;       /* else an array */
    size_t index;     /* of the entry, in an array */
    size_t key, size; /* of the key in the text, in an object */
} level;

typedef struct walk {
    level levels[DEPTH];
    size_t depth;
} walk;

/* One past the string that opens at text[i], or `end`. */
static size_t string_end(const char *text, size_t i, size_t end) {
    for (i++; i < end && text[i] != '"'; i++) i += text[i] == '\\';
    return i < end ? i + 1 : end;
}

/* Takes the token at text[i]; returns where the next one begins. */
static size_t step(walk *w, const char *text, size_t i, size_t end) {
    level *top = w->depth && w->depth <= DEPTH ? &w->levels[w->depth - 1] : NULL;
    if (text[i] == '"') {
        const size_t after = string_end(text, i, end);
        size_t colon = after;
        while (colon < end && strchr(" \t\r\n", text[colon])) colon++;
        if (top && top->object && colon < end && text[colon] == ':') top->key = i + 1, top->size = after - i - 2;
        return after;
    }
    if (text[i] == '[' || text[i] == '{') {
        if (w->depth < DEPTH) w->levels[w->depth] = (level){.object = text[i] == '{'};
        w->depth++;
    } else if (text[i] == ']' || text[i] == '}') {
        w->depth -= w->depth > 0;
    } else if (text[i] == ',' && top) {
        top->index++;
        top->size = 0;
    }
    return i + 1;
}

static size_t put_level(char *to, size_t size, size_t n, const level *l, const char *text) {
    char key[40], quoted[REIN_TEXT_SHOWN];
    size_t length = l->size < sizeof key ? l->size : sizeof key - 1;
    while (length && length < l->size && ((unsigned char)text[l->key + length] & 0xC0) == 0x80) length--; /* whole characters */
    if (!l->object) return (size_t)snprintf(to + n, size - n, "[%zu]", l->index);
    if (!length) return 0;
    memcpy(key, text + l->key, length);
    key[length] = 0;
    rein_json_quote(quoted, key);
    quoted[strlen(quoted) - 1] = 0;
    return (size_t)snprintf(to + n, size - n, "%s%s", n ? "." : "", quoted + 1);
}

void rein_json_path_at(char *to, size_t size, int64_t *index, const char *text, size_t end) {
    walk w = {.depth = 0};
    size_t n = 0;
    for (size_t i = 0; i < end;) i = step(&w, text, i, end);
    const size_t shown = w.depth < DEPTH ? w.depth : DEPTH;
    const int in_array = shown > 1 && !w.levels[shown - 1].object;
    *index = in_array ? (int64_t)w.levels[shown - 1].index : -1;
    to[0] = 0;
    for (size_t d = 0; d < shown - (size_t)in_array && n < size; d++) n += put_level(to, size, n, &w.levels[d], text);
}
