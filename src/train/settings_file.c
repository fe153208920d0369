/* settings_file.c - settings as YAML: one mapping, read with libyaml, written so that reading gives the same. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/file.h"
#include "model/tokenizer_parts.h"
#include "model/unicode.h"
#include "settings.h"

enum {
    N_NAMES = REIN_SETTING_COUNT + 1 + REIN_OPTION_COUNT,
    MOST_BYTES = 16 << 20 /* of a file; settings have a few hundred */
};

/* Every name that can be set, in the order of a file: the preset comes before the options that change it. */
static const char *name_at(size_t i) {
    if (i < REIN_SETTING_COUNT) return rein_setting_at(i)->name;
    return i == REIN_SETTING_COUNT ? "preset" : rein_option_at(i - REIN_SETTING_COUNT - 1)->name;
}

/* --------------------------------------------------------------------------------------------------------------------- reading */

typedef struct reading {
    rein_settings *settings;
    char seen[N_NAMES]; /* in the order of name_at */
    const char *path;
    yaml_parser_t parser;
    char key[64];
    rein_text value; /* a list is joined by commas, or by newlines */
    int depth, has_key, in_list;
    rein_error *err;
} reading;

static rein_status no_memory(const reading *r) { return rein_fail(r->err, REIN_ENOMEM, "no memory to read %.300s", r->path); }

static rein_status at_line(const reading *r, size_t line, rein_status status) {
    char shown[REIN_PATH_SHOWN];
    return rein_fail_in(r->err, status, "%s: line %zu", rein_path_show(shown, r->path), line + 1);
}

static rein_status wrong(const reading *r, const yaml_event_t *event, const char *what) {
    return at_line(r, event->start_mark.line, rein_fail(r->err, REIN_EINVAL, "%s", what));
}

static rein_status set(reading *r, const yaml_event_t *event) {
    r->has_key = 0;
    const rein_status status = rein_settings_set(r->settings, r->key, r->value.data ? r->value.data : "", r->err);
    return status ? at_line(r, event->start_mark.line, status) : REIN_OK;
}

/* A key may not occur twice. */
static int seen_before(reading *r) {
    for (size_t i = 0; i < N_NAMES; i++)
        if (!strcmp(name_at(i), r->key)) return r->seen[i]++ > 0;
    return 0;
}

static rein_status on_key(reading *r, const yaml_event_t *event, const char *text) {
    const char *name = rein_setting_name(text);
    if (strlen(name) >= sizeof r->key) return wrong(r, event, "no setting has a name that long");
    strcpy(r->key, name);
    if (seen_before(r)) return at_line(r, event->start_mark.line, rein_fail_at(r->err, REIN_EINVAL, r->key, -1, "is set twice"));
    r->has_key = 1;
    rein_text_free(&r->value);
    return REIN_OK;
}

static rein_status on_scalar(reading *r, const yaml_event_t *event) {
    const char *text = (const char *)event->data.scalar.value;
    const size_t length = event->data.scalar.length;
    rein_status status = REIN_OK;
    if (strlen(text) != length) return wrong(r, event, "a NUL byte");
    if (r->depth != 1) return wrong(r, event, "a mapping of names to values is needed");
    if (!r->has_key) return on_key(r, event, text);
    if (r->in_list && strchr(text, '\n'))
        return wrong(r, event,
                     "a value of a list has a newline in it: one value per line is needed; in stop, \\n stands for a newline");
    if (r->in_list && r->value.length) status = rein_text_append(&r->value, rein_setting_is_list(r->key) ? "\n" : ",", 1, r->err);
    if (!status) status = rein_text_append(&r->value, text, length, r->err);
    return status || r->in_list ? status : set(r, event);
}

static rein_status on_event(reading *r, const yaml_event_t *event) {
    switch (event->type) {
    case YAML_SCALAR_EVENT: return on_scalar(r, event);
    case YAML_MAPPING_START_EVENT: return r->depth++ ? wrong(r, event, "a mapping inside the mapping: settings are flat") : REIN_OK;
    case YAML_MAPPING_END_EVENT: return r->depth--, REIN_OK;
    case YAML_SEQUENCE_START_EVENT:
        if (!r->has_key || r->in_list) return wrong(r, event, "a list where a name or a value is needed");
        return r->in_list = 1, REIN_OK;
    case YAML_SEQUENCE_END_EVENT: return r->in_list = 0, set(r, event);
    case YAML_ALIAS_EVENT: return wrong(r, event, "anchors and aliases are not supported");
    default: return REIN_OK;
    }
}

static rein_status read_events(reading *r) {
    rein_status status = REIN_OK;
    for (int done = 0; !done && !status;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&r->parser, &event)) {
            if (r->parser.error == YAML_MEMORY_ERROR) return no_memory(r);
            const char *problem = r->parser.problem ? r->parser.problem : "it is not YAML";
            return at_line(r, r->parser.problem_mark.line, rein_fail(r->err, REIN_EINVAL, "%s", problem));
        }
        done = event.type == YAML_STREAM_END_EVENT;
        status = on_event(r, &event);
        yaml_event_delete(&event);
    }
    return status;
}

static rein_status parse(reading *r, const char *text, size_t size) {
    if (!yaml_parser_initialize(&r->parser)) return no_memory(r);
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)text, size);
    const rein_status status = read_events(r);
    yaml_parser_delete(&r->parser);
    rein_text_free(&r->value);
    return status;
}

static rein_status cannot_be_read(const char *path, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    if (errno != EFBIG) return rein_file_error(err, path, "cannot be opened");
    return rein_fail(err, REIN_EINVAL, "%s is larger than %d MB: settings are a few lines", rein_path_show(shown, path),
                     MOST_BYTES >> 20);
}

rein_status rein_settings_read(rein_settings *settings, const char *path, rein_error *err) {
    reading r = {.path = path, .err = err};
    char *text = NULL;
    size_t size = 0;
    rein_status status = rein_settings_copy(&r.settings, settings, err);
    if (status) return status;
    if (rein_file_read_most(&text, &size, path, MOST_BYTES) != 0) status = cannot_be_read(path, err);
    if (!status) status = parse(&r, text, size);
    free(text);
    if (!status) status = rein_settings_assign(settings, r.settings, err);
    rein_settings_free(r.settings);
    return status;
}

/* --------------------------------------------------------------------------------------------------------------------- writing */

/* Characters that YAML reads as they are between quotes: no controls, no line separators, no byte order mark. */
static int is_plain(uint32_t c) {
    return c >= 0x20 && !(c >= 0x7f && c < 0xa0) && c != 0x2028 && c != 0x2029 && c != 0xfeff && c != 0xfffe && c != 0xffff;
}

static rein_status put_character(rein_text *line, const char *at, size_t length, uint32_t c, rein_error *err) {
    char code[12];
    rein_status status = REIN_OK;
    if (!is_plain(c)) {
        snprintf(code, sizeof code, "\\u%04x", (unsigned)c);
        return rein_text_append(line, code, strlen(code), err);
    }
    if (c == '"' || c == '\\') status = rein_text_append(line, "\\", 1, err);
    return status ? status : rein_text_append(line, at, length, err);
}

/* name: "value", quoted as in JSON, which YAML reads. */
static rein_status put_line(rein_text *line, const char *name, const char *value, rein_error *err) {
    uint32_t c;
    rein_status status = rein_text_append(line, name, strlen(name), err);
    if (!status) status = rein_text_append(line, ": \"", 3, err);
    for (size_t length; *value && !status; value += length) {
        length = rein_utf8_next(&c, value);
        status = put_character(line, value, length, c, err);
    }
    return status ? status : rein_text_append(line, "\"\n", 2, err);
}

/* Whether number i of the names belongs into the file. */
static int is_written(const rein_settings *s, const char *value, const char *standard, size_t i) {
    if (i == REIN_SETTING_COUNT) return *value != 0; /* the preset */
    const int given = rein_settings_given(s, name_at(i));
    return i < REIN_SETTING_COUNT ? given || strcmp(value, standard) != 0 : given && *value;
}

static rein_status write_one(rein_writer *writer, const rein_settings *s, const rein_settings *defaults, size_t i,
                             rein_error *err) {
    rein_text value = {0}, standard = {0}, line = {0};
    rein_status status = rein_settings_get(&value, s, name_at(i), err);
    if (!status) status = rein_settings_get(&standard, defaults, name_at(i), err);
    if (!status && is_written(s, value.data, standard.data, i)) {
        status = put_line(&line, name_at(i), value.data, err);
        if (!status) status = rein_writer_put(writer, line.data, line.length, err);
    }
    rein_text_free(&value);
    rein_text_free(&standard);
    rein_text_free(&line);
    return status;
}

rein_status rein_settings_write(const rein_settings *s, const char *path, rein_error *err) {
    rein_settings defaults;
    rein_writer writer = {0};
    rein_settings_init(&defaults);
    rein_status status = rein_writer_open(&writer, path, err);
    for (size_t i = 0; i < N_NAMES && !status; i++) status = write_one(&writer, s, &defaults, i, err);
    if (!status) status = rein_writer_commit(&writer, err);
    rein_writer_abandon(&writer);
    return status;
}
