/* groups_json.c - JSON as Python's json.dumps(ensure_ascii=False) writes it: chat templates put tools into a prompt that way, so the blanks
 * and the digits are tokens that a model saw. Numbers are the shortest that read back as the same double. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_parts.h"
#include "train/groups.h"

static rein_status put(rein_text *text, const char *what, rein_error *err) {
    return rein_text_append(text, what, strlen(what), err);
}

static const char *escape_of(char room[8], unsigned char c) {
    switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    case '\b': return "\\b";
    case '\f': return "\\f";
    default: break;
    }
    if (c >= 32) return NULL;
    snprintf(room, 8, "\\u%04x", c);
    return room;
}

rein_status rein_json_put_string(rein_text *text, const char *string, size_t length, rein_error *err) {
    size_t done = 0;
    char room[8];
    rein_status status = put(text, "\"", err);
    for (size_t i = 0; i < length && !status; i++) {
        const char *escape = escape_of(room, (unsigned char)string[i]);
        if (!escape) continue;
        status = rein_text_append(text, string + done, i - done, err);
        if (!status) status = put(text, escape, err);
        done = i + 1;
    }
    if (!status) status = rein_text_append(text, string + done, length - done, err);
    return status ? status : put(text, "\"", err);
}

rein_status rein_json_put_key(rein_text *text, const char *key, rein_error *err) {
    rein_status status = text->data[text->length - 1] == '{' ? REIN_OK : put(text, ", ", err);
    if (!status) status = rein_json_put_string(text, key, strlen(key), err);
    return status ? status : put(text, ": ", err);
}

/* The fewest digits that read back, without the point (which a locale may spell otherwise), and the exponent of the first. */
static int shortest(char digits[20], int *exponent, double value) {
    char room[40];
    int n = 0;
    for (int precision = 0; precision <= 16; precision++) {
        snprintf(room, sizeof room, "%.*e", precision, value);
        if (strtod(room, NULL) == value) break;
    }
    const char *e = strchr(room, 'e');
    for (const char *c = room; c < e; c++)
        if (*c >= '0' && *c <= '9') digits[n++] = *c;
    digits[n] = 0;
    *exponent = (int)strtol(e + 1, NULL, 10);
    return n;
}

rein_status rein_json_put_real(rein_text *text, double value, rein_error *err) {
    char digits[20], room[48];
    int exponent = 0;
    const int n = shortest(digits, &exponent, fabs(value));
    const char *sign = signbit(value) ? "-" : "";
    if (exponent < -4 || exponent >= 16)
        snprintf(room, sizeof room, "%s%c%s%se%+03d", sign, digits[0], n > 1 ? "." : "", digits + 1, exponent);
    else if (exponent < 0) snprintf(room, sizeof room, "%s0.%.*s%s", sign, -exponent - 1, "000", digits);
    else if (n > exponent + 1) snprintf(room, sizeof room, "%s%.*s.%s", sign, exponent + 1, digits, digits + exponent + 1);
    else snprintf(room, sizeof room, "%s%s%.*s.0", sign, digits, exponent + 1 - n, "0000000000000000");
    return put(text, room, err);
}

static rein_status put_array(rein_text *text, const json_t *array, rein_error *err) {
    rein_status status = put(text, "[", err);
    for (size_t i = 0; i < json_array_size(array) && !status; i++) {
        if (i) status = put(text, ", ", err);
        if (!status) status = rein_json_put(text, json_array_get(array, i), err);
    }
    return status ? status : put(text, "]", err);
}

static rein_status put_object(rein_text *text, const json_t *object, rein_error *err) {
    const char *key;
    json_t *value;
    int first = 1;
    rein_status status = put(text, "{", err);
    json_object_foreach((json_t *)(uintptr_t)object, key, value) { /* the macro only reads */
        if (!status && !first) status = put(text, ", ", err);
        if (!status) status = rein_json_put_string(text, key, strlen(key), err);
        if (!status) status = put(text, ": ", err);
        if (!status) status = rein_json_put(text, value, err);
        first = 0;
    }
    return status ? status : put(text, "}", err);
}

/* jansson's parser limits the depth. */
rein_status rein_json_put(rein_text *text, const json_t *value, rein_error *err) {
    char room[32];
    switch (json_typeof(value)) {
    case JSON_OBJECT: return put_object(text, value, err);
    case JSON_ARRAY: return put_array(text, value, err);
    case JSON_STRING: return rein_json_put_string(text, json_string_value(value), json_string_length(value), err);
    case JSON_REAL: return rein_json_put_real(text, json_real_value(value), err);
    case JSON_INTEGER: snprintf(room, sizeof room, "%" JSON_INTEGER_FORMAT, json_integer_value(value)); return put(text, room, err);
    case JSON_TRUE: return put(text, "true", err);
    case JSON_FALSE: return put(text, "false", err);
    case JSON_NULL: break;
    }
    return put(text, "null", err);
}
