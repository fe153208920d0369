/* json_fields.c - typed getters over an object. The first mistake is kept, with the path of its field. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "json.h"

enum { FIELD_SHOWN = 128, NEED_SHOWN = 360 };

static rein_status fail(rein_fields *in, rein_status code, const char *key, int64_t index, const char *reason) {
    char field[FIELD_SHOWN], file[REIN_PATH_SHOWN];
    snprintf(field, sizeof field, "%s%s", in->path ? in->path : "", key);
    in->status = rein_fail_at(in->err, code, field, index, "%s", reason);
    if (in->file) rein_fail_in(in->err, code, "%s", rein_path_show(file, in->file));
    return in->status;
}

rein_status rein_fields_fail(rein_fields *in, rein_status code, const char *key, int64_t index, const char *format, ...) {
    char reason[sizeof in->err->message];
    va_list arguments;
    if (in->status) return in->status;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return fail(in, code, key, index, reason);
}

rein_status rein_fields_wrong(rein_fields *in, const char *key, const rein_json *value, const char *need, ...) {
    char reason[REIN_TEXT_SHOWN + NEED_SHOWN], shown[REIN_TEXT_SHOWN], wanted[NEED_SHOWN];
    va_list arguments;
    if (in->status) return in->status;
    va_start(arguments, need);
    vsnprintf(wanted, sizeof wanted, need, arguments);
    va_end(arguments);
    snprintf(reason, sizeof reason, "is %s: %s", value ? rein_json_show(shown, value) : "missing", wanted);
    return fail(in, REIN_EINVAL, key, -1, reason);
}

/* The field, also if it is null. */
static const json_t *any(const rein_fields *in, const char *key) { return in->status ? NULL : json_object_get(in->object, key); }

static const json_t *field(const rein_fields *in, const char *key) {
    const json_t *value = any(in, key);
    return json_is_null(value) ? NULL : value;
}

int rein_fields_has(const rein_fields *in, const char *key) { return field(in, key) != NULL; }

int64_t rein_fields_integer(rein_fields *in, const char *key, int64_t low, int64_t high) {
    const json_t *value = field(in, key);
    const int64_t x = json_integer_value(value); /* 0 for any other value */
    if (json_is_integer(value) && x >= low && x <= high) return x;
    rein_fields_wrong(in, key, any(in, key), "a whole number from %lld to %lld is needed", (long long)low, (long long)high);
    return 0;
}

int64_t rein_fields_integer_or(rein_fields *in, const char *key, int64_t low, int64_t high, int64_t fallback) {
    return rein_fields_has(in, key) ? rein_fields_integer(in, key, low, high) : fallback;
}

double rein_fields_number(rein_fields *in, const char *key, double above) {
    const json_t *value = field(in, key);
    const double x = json_number_value(value);
    if (json_is_number(value) && x > above && isfinite(x)) return x;
    if (isinf(above)) rein_fields_wrong(in, key, any(in, key), "a number is needed");
    else rein_fields_wrong(in, key, any(in, key), "a number above %g is needed", above);
    return 0;
}

double rein_fields_number_or(rein_fields *in, const char *key, double above, double fallback) {
    return rein_fields_has(in, key) ? rein_fields_number(in, key, above) : fallback;
}

int rein_fields_bool_or(rein_fields *in, const char *key, int fallback) {
    const json_t *value = field(in, key);
    if (!value) return fallback;
    if (json_is_boolean(value)) return json_is_true(value);
    rein_fields_wrong(in, key, value, "true or false is needed");
    return fallback;
}

const char *rein_fields_string(rein_fields *in, const char *key) {
    const json_t *value = field(in, key);
    if (!json_is_string(value)) rein_fields_wrong(in, key, any(in, key), "a text is needed");
    else if (strlen(json_string_value(value)) < json_string_length(value))
        rein_fields_fail(in, REIN_EINVAL, key, -1, "has \\u0000 in it: texts have no such character");
    return in->status ? NULL : json_string_value(value);
}

const char *rein_fields_string_or(rein_fields *in, const char *key, const char *fallback) {
    return rein_fields_has(in, key) ? rein_fields_string(in, key) : fallback;
}

int rein_fields_choice_or(rein_fields *in, const char *key, const char *const *choices, int fallback) {
    char need[200] = "one of";
    const json_t *value = field(in, key);
    if (!value) return fallback;
    for (int i = 0; choices[i]; i++) {
        if (json_is_string(value) && !strcmp(json_string_value(value), choices[i])) return i;
        const size_t n = strlen(need);
        snprintf(need + n, sizeof need - n, "%s %s", i ? "," : "", choices[i]);
    }
    rein_fields_wrong(in, key, value, "it is %s", need);
    return fallback;
}

const rein_json *rein_fields_array(rein_fields *in, const char *key) {
    const json_t *value = field(in, key);
    if (value && !json_is_array(value)) rein_fields_wrong(in, key, value, "an array is needed");
    return json_is_array(value) ? value : NULL;
}

const rein_json *rein_fields_object(rein_fields *in, const char *key) {
    const json_t *value = field(in, key);
    if (value && !json_is_object(value)) rein_fields_wrong(in, key, value, "an object is needed");
    return json_is_object(value) ? value : NULL;
}

static rein_status unknown(rein_fields *in, const char *key, const char *const *keys) {
    char shown[REIN_TEXT_SHOWN], list[400] = "";
    const char *nearest = rein_nearest(key, keys);
    rein_json_quote(shown, key);
    shown[strlen(shown) - 1] = 0;
    for (size_t i = 0, n = 0; keys[i] && n < sizeof list; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", keys[i]);
    if (nearest) return rein_fields_fail(in, REIN_EINVAL, shown + 1, -1, "is unknown here: did you mean \"%s\"?", nearest);
    return rein_fields_fail(in, REIN_EINVAL, shown + 1, -1, "is unknown here: it is one of %s", list);
}

rein_status rein_fields_only(rein_fields *in, const char *const *keys) {
    const char *key;
    const rein_json *value;
    for (void *at = NULL; !in->status && (at = rein_json_next(&key, &value, in->object, at));) {
        size_t i = 0;
        while (keys[i] && strcmp(key, keys[i]) != 0) i++;
        if (!keys[i]) unknown(in, key, keys);
    }
    return in->status;
}
