/* settings_file.c - settings as YAML: one mapping, read with libyaml, written so that it reads back the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/file.h"
#include "model/unicode.h"
#include "settings.h"

/* Every name that can be set, in the order in which a file has them: preset first, since it must come before what changes it. */
static const char *name_at(size_t i) {
    size_t settings = 0;
    while (rein_setting_at(settings)) settings++;
    if (i < settings) return rein_setting_at(i)->name;
    if (i == settings) return "preset";
    const rein_option_info *option = rein_option_at(i - settings - 1);
    return option ? option->name : NULL;
}

/* --------------------------------------------------------------------------------------------------------------------- reading */

enum { MOST_NAMES = 256 };

typedef struct reading {
    rein_settings *settings;
    char seen[MOST_NAMES]; /* by the index of name_at */
    const char *path;
    yaml_parser_t parser;
    char key[64], value[REIN_TEXT_SETTING]; /* a list is joined by commas, or by ends of lines */
    int depth, has_key, in_list;
    rein_error *err;
} reading;

static rein_status wrong(const reading *r, const yaml_event_t *event, const char *what) {
    char shown[REIN_PATH_SHOWN];
    return rein_fail(r->err, REIN_EINVAL, "%s: line %zu: %s", rein_path_show(shown, r->path), event->start_mark.line + 1, what);
}

static rein_status set(reading *r, const yaml_event_t *event) {
    rein_error why = {0};
    r->has_key = 0;
    if (!rein_settings_set(r->settings, r->key, r->value, &why)) return REIN_OK;
    return wrong(r, event, why.message);
}

/* YAML's keys are different from each other. */
static int seen_before(reading *r) {
    const char *name;
    for (size_t i = 0; i < MOST_NAMES && (name = name_at(i)); i++)
        if (!strcmp(name, r->key)) return r->seen[i]++ > 0;
    return 0;
}

static rein_status on_scalar(reading *r, const yaml_event_t *event) {
    const char *text = (const char *)event->data.scalar.value;
    if (strlen(text) != event->data.scalar.length) return wrong(r, event, "a NUL byte");
    if (r->depth != 1) return wrong(r, event, "a mapping of names to values is needed");
    if (!r->has_key) {
        if (strlen(rein_setting_name(text)) >= sizeof r->key) return wrong(r, event, "no setting has a name that long");
        strcpy(r->key, rein_setting_name(text));
        if (seen_before(r)) {
            char what[100];
            snprintf(what, sizeof what, "%s is set twice", r->key);
            return wrong(r, event, what);
        }
        r->has_key = 1;
        r->value[0] = 0;
        return REIN_OK;
    }
    if (r->in_list && strchr(text, '\n'))
        return wrong(r, event, "a newline within a value of a list, which has one value a line; in stop, \\n stands for one");
    const size_t have = strlen(r->value), joined = r->in_list && have > 0;
    if (have + joined + strlen(text) >= sizeof r->value) return wrong(r, event, "the value is too long");
    if (joined) strcat(r->value, rein_setting_is_list(r->key) ? "\n" : ",");
    strcat(r->value, text);
    return r->in_list ? REIN_OK : set(r, event);
}

static rein_status on_event(reading *r, const yaml_event_t *event) {
    switch (event->type) {
    case YAML_SCALAR_EVENT: return on_scalar(r, event);
    case YAML_MAPPING_START_EVENT:
        return r->depth++ ? wrong(r, event, "a mapping inside of the mapping: settings are flat") : REIN_OK;
    case YAML_MAPPING_END_EVENT: return r->depth--, REIN_OK;
    case YAML_SEQUENCE_START_EVENT:
        if (!r->has_key || r->in_list) return wrong(r, event, "a list stands where a name or a value is needed");
        return r->in_list = 1, REIN_OK;
    case YAML_SEQUENCE_END_EVENT: return r->in_list = 0, set(r, event);
    case YAML_ALIAS_EVENT: return wrong(r, event, "anchors and aliases are not understood");
    default: return REIN_OK;
    }
}

static rein_status read_events(reading *r) {
    rein_status status = REIN_OK;
    for (int done = 0; !done && !status;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&r->parser, &event)) {
            char shown[REIN_PATH_SHOWN];
            return rein_fail(r->err, REIN_EINVAL, "%s: line %zu: %s", rein_path_show(shown, r->path),
                             r->parser.problem_mark.line + 1, r->parser.problem ? r->parser.problem : "it is not YAML");
        }
        done = event.type == YAML_STREAM_END_EVENT;
        status = on_event(r, &event);
        yaml_event_delete(&event);
    }
    return status;
}

rein_status rein_settings_read(rein_settings *settings, const char *path, rein_error *err) {
    rein_file file;
    rein_settings read = *settings;
    reading r = {.settings = &read, .path = path, .err = err};
    rein_status status = rein_file_map(&file, path, err);
    if (status) return status;
    if (!yaml_parser_initialize(&r.parser)) {
        rein_file_unmap(&file);
        return rein_fail(err, REIN_ENOMEM, "no memory to read %.300s", path);
    }
    yaml_parser_set_input_string(&r.parser, file.data, file.size);
    status = read_events(&r);
    yaml_parser_delete(&r.parser);
    rein_file_unmap(&file);
    if (!status) *settings = read;
    return status;
}

/* --------------------------------------------------------------------------------------------------------------------- writing */

/* A number in the fewest digits that read back as the same. */
static void shorten(char *value, size_t size) {
    char *end;
    const double x = strtod(value, &end);
    if (!*value || *end || !strpbrk(value, ".e")) return;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(value, size, "%.*g", digits, x);
        if (strtod(value, NULL) == x) return;
    }
}

/* What YAML lets stand in quotes, and reads as it is: no controls, no ends of lines, no byte order mark. */
static int stands(uint32_t c) {
    return c >= 0x20 && !(c >= 0x7f && c < 0xa0) && c != 0x2028 && c != 0x2029 && c != 0xfeff && c != 0xfffe && c != 0xffff;
}

/* "name: value" with the value in quotes, as JSON has them: YAML reads these. */
static int put_line(char *to, size_t size, const char *name, const char *value) {
    size_t n = (size_t)snprintf(to, size, "%s: \"", name);
    uint32_t c;
    for (size_t length; *value && n + 12 < size; value += length) {
        length = rein_utf8_next(&c, value);
        if (c == '"' || c == '\\') to[n++] = '\\';
        if (stands(c)) memcpy(to + n, value, length), n += length;
        else n += (size_t)snprintf(to + n, size - n, "\\u%04x", (unsigned)c);
    }
    if (*value || n + 3 > size) return 0;
    memcpy(to + n, "\"\n", 3);
    return 1;
}

rein_status rein_settings_write(const rein_settings *s, const char *path, rein_error *err) {
    const rein_settings standard = rein_settings_default();
    char value[REIN_TEXT_SETTING], usual[REIN_TEXT_SETTING], line[REIN_TEXT_SETTING * 6 + 100];
    rein_writer writer = {0};
    rein_status status = rein_writer_open(&writer, path, err);
    const char *name;
    for (size_t i = 0; !status && (name = name_at(i)); i++) {
        if ((status = rein_settings_get(value, sizeof value, s, name, err))) break;
        if ((status = rein_settings_get(usual, sizeof usual, &standard, name, err))) break;
        const int is_setting = rein_setting_at(i) != NULL, preset = !strcmp(name, "preset");
        const int differs = is_setting && strcmp(value, usual) != 0;
        const int wanted = preset ? *value != 0 : differs || rein_settings_given(s, name);
        if (!wanted || (!*value && !is_setting)) continue;
        shorten(value, sizeof value);
        if (!put_line(line, sizeof line, name, value)) status = rein_fail(err, REIN_EINVAL, "%s is too long to be written", name);
        else status = rein_writer_put(&writer, line, strlen(line), err);
    }
    if (!status) status = rein_writer_commit(&writer, err);
    rein_writer_abandon(&writer);
    return status;
}
