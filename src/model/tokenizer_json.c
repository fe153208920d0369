/* tokenizer_json.c - reads JSON with messages that name the file, the place in it, and what would be right. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "model/tokenizer_parts.h"

rein_place rein_place_at(const rein_place *parent, const char *format, ...) {
    rein_place place = {parent->file, ""};
    va_list args;
    size_t used = strlen(parent->path);
    memcpy(place.path, parent->path, used);
    if (used && format[0] != '[' && used + 1 < sizeof place.path) place.path[used++] = '.';
    va_start(args, format);
    vsnprintf(place.path + used, sizeof place.path - used, format, args);
    va_end(args);
    return place;
}

/* Makes a message valid UTF-8: quoted text may be cut in the middle of a character, and a path may have any bytes. */
static void replace_invalid(char *message) {
    const size_t length = strlen(message);
    for (size_t at; (at = rein_utf8_valid(message, length)) < length;) message[at] = '?';
}

rein_status rein_place_fail(const rein_place *place, rein_error *err, const char *format, ...) {
    char reason[sizeof err->message], shown[REIN_PATH_SHOWN];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    if (*place->path) rein_fail_at(err, REIN_EINVAL, place->path, -1, ": %s", reason);
    else rein_fail(err, REIN_EINVAL, "%s", reason);
    rein_fail_in(err, REIN_EINVAL, "%s", rein_path_show(shown, place->file));
    if (err) replace_invalid(err->message);
    return REIN_EINVAL;
}

rein_status rein_json_type(const char **type, const json_t *object, const rein_place *place, rein_error *err) {
    *type = json_string_value(json_object_get(object, "type"));
    if (*type) return REIN_OK;
    return rein_place_fail(place, err, "is not an object with a \"type\"");
}

rein_status rein_json_flag(bool *value, const json_t *object, const char *key, bool absent, const rein_place *place,
                           rein_error *err) {
    const json_t *flag = json_object_get(object, key);
    *value = flag && !json_is_null(flag) ? json_is_true(flag) : absent;
    if (!flag || json_is_null(flag) || json_is_boolean(flag)) return REIN_OK;
    const rein_place at = rein_place_at(place, "%s", key);
    return rein_place_fail(&at, err, "is neither true nor false");
}

rein_status rein_json_text(const char **text, size_t *length, const json_t *object, const char *key, const rein_place *place,
                           rein_error *err) {
    const json_t *string = json_object_get(object, key);
    const rein_place at = rein_place_at(place, "%s", key);
    if (!json_is_string(string)) return rein_place_fail(&at, err, "is not a string");
    *text = json_string_value(string), *length = json_string_length(string);
    if (*length <= REIN_TOKENIZER_TOKEN) return REIN_OK;
    return rein_place_fail(&at, err, "has %zu bytes: at most %d are supported", *length, REIN_TOKENIZER_TOKEN);
}

rein_status rein_json_pattern(const char **text, size_t *length, bool *is_regex, const json_t *object, const rein_place *place,
                              rein_error *err) {
    const rein_place at = rein_place_at(place, "pattern");
    const json_t *pattern = json_object_get(object, "pattern");
    *is_regex = json_object_get(pattern, "Regex") != NULL;
    if (!json_is_object(pattern) || json_object_size(pattern) != 1)
        return rein_place_fail(&at, err, "is not {\"String\": …} or {\"Regex\": …}");
    const rein_status status = rein_json_text(text, length, pattern, *is_regex ? "Regex" : "String", &at, err);
    if (status || *length) return status;
    return rein_place_fail(&at, err, "is empty");
}

static rein_status visit(const json_t *object, const char *key, rein_json_visit *one, void *context, int depth,
                         const rein_place *place, rein_error *err) {
    const char *type;
    rein_status status = rein_json_type(&type, object, place, err);
    if (status) return status;
    if (strcmp(type, "Sequence") != 0) return one(context, type, object, place, err);
    const json_t *items = json_object_get(object, key);
    const rein_place at = rein_place_at(place, "%s", key);
    if (!json_is_array(items)) return rein_place_fail(&at, err, "is not an array");
    if (depth == REIN_TOKENIZER_DEPTH) return rein_place_fail(&at, err, "Sequences are nested %d deep: fewer are supported", depth);
    for (size_t i = 0; !status && i < json_array_size(items); i++) {
        const rein_place item = rein_place_at(&at, "[%zu]", i);
        status = visit(json_array_get(items, i), key, one, context, depth + 1, &item, err);
    }
    return status;
}

rein_status rein_json_sequence(const json_t *object, const char *key, rein_json_visit *one, void *context, const rein_place *place,
                               rein_error *err) {
    if (!object || json_is_null(object)) return REIN_OK;
    return visit(object, key, one, context, 0, place, err);
}
