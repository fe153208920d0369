/* html_config.c - config.yaml as pairs of texts. Settings are shown as written, without interpretation.
 *
 * The events of the parser are taken one by one, and size and depth are limited: to load a document takes libyaml a time that grows with the
 * square of its depth. */
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/file.h"
#include "html_parts.h"

enum {
    MORE = sizeof ", …" - 1,
    MOST_BYTES = 1 << 20,
    MOST_DEPTH = 16 /* of lists and mappings; settings need 2 */
};

typedef struct reading {
    rein_report_run *run;
    yaml_parser_t parser;
    json_t *settings, *key;     /* the key of the next value; NULL: that is not shown */
    char list[REIN_SHOWN_TEXT]; /* the scalars of a list so far */
    size_t n;
    int depth, has_key, in_list, cut;
    int done, failed; /* failed: no memory */
} reading;

static json_t *scalar_text(const yaml_event_t *event) {
    return rein_report_text((const char *)event->data.scalar.value, event->data.scalar.length, REIN_SHOWN_TEXT);
}

/* Takes the reference to the value, which is NULL when there was no memory for it. */
static void put_pair(reading *r, json_t *value) {
    json_t *both = json_array();
    r->failed |= json_array_append(both, r->key) | json_array_append_new(both, value);
    r->failed |= json_array_append_new(r->settings, both);
}

/* A value has ended; its text, or NULL if it is not shown. */
static void end_value(reading *r, json_t *value, int shown) {
    if (shown && r->key && json_array_size(r->settings) < REIN_SHOWN_SETTINGS) put_pair(r, value);
    else json_decref(value);
    json_decref(r->key);
    r->key = NULL;
    r->has_key = r->in_list = 0;
}

/* The items of a list are separated by commas; only scalars are shown. */
static void put_item(reading *r, const yaml_event_t *event) {
    const size_t length = event->data.scalar.length, comma = r->n ? 2 : 0;
    if (r->cut) return;
    if (length + comma + MORE > sizeof r->list - r->n) {
        memcpy(r->list + r->n, ", …", MORE), r->n += MORE;
        r->cut = 1;
        return;
    }
    memcpy(r->list + r->n, ", ", comma);
    memcpy(r->list + r->n + comma, event->data.scalar.value, length);
    r->n += comma + length;
}

static void on_scalar(reading *r, const yaml_event_t *event) {
    if (r->depth == 2 && r->in_list) put_item(r, event);
    if (r->depth != 1) return;
    if (r->has_key) end_value(r, scalar_text(event), 1);
    else {
        r->has_key = 1;
        r->key = scalar_text(event);
        r->failed |= !r->key;
    }
}

static void on_start(reading *r, const yaml_event_t *event) {
    if (++r->depth != 2) return;
    r->in_list = r->has_key && event->type == YAML_SEQUENCE_START_EVENT;
    r->n = 0;
    r->cut = 0;
}

static void on_end(reading *r) {
    if (--r->depth != 1) return;
    if (!r->has_key) r->has_key = 1; /* a key that is not a scalar: its value is not shown */
    else end_value(r, r->in_list ? rein_report_text(r->list, r->n, sizeof r->list) : NULL, r->in_list);
}

/* 1 unless the document is not a mapping. */
static int on_event(reading *r, const yaml_event_t *event) {
    switch (event->type) {
    case YAML_SCALAR_EVENT: on_scalar(r, event); return r->depth > 0;
    case YAML_ALIAS_EVENT:
        if (r->depth == 1 && r->has_key) end_value(r, NULL, 0);
        else if (r->depth == 1) r->has_key = 1;
        return 1;
    case YAML_SEQUENCE_START_EVENT: on_start(r, event); return r->depth > 1;
    case YAML_MAPPING_START_EVENT: on_start(r, event); return 1;
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: on_end(r); return 1;
    case YAML_STREAM_END_EVENT: return 0; /* before any document */
    case YAML_DOCUMENT_END_EVENT: return r->done = 1;
    default: return 1;
    }
}

static rein_status parse_error(reading *r) {
    if (r->parser.error == YAML_MEMORY_ERROR) return rein_report_no_memory(r->run);
    return rein_report_note(r->run, "config.yaml: line %zu: %s", r->parser.problem_mark.line + 1,
                            r->parser.problem ? r->parser.problem : "it is not YAML");
}

static rein_status read_events(reading *r) {
    while (!r->done) {
        yaml_event_t event;
        if (!yaml_parser_parse(&r->parser, &event)) return parse_error(r);
        const int is_mapping = on_event(r, &event);
        yaml_event_delete(&event);
        if (r->failed) return rein_report_no_memory(r->run);
        if (!is_mapping) return rein_report_note(r->run, "config.yaml is not a mapping of names to values");
        if (r->depth > MOST_DEPTH) return rein_report_note(r->run, "config.yaml is nested too deep: settings are flat");
    }
    return json_object_set(r->run->json, "settings", r->settings) ? rein_report_no_memory(r->run) : REIN_OK;
}

static rein_status read_text(rein_report_run *run, const char *text, size_t size) {
    reading *r = calloc(1, sizeof *r);
    rein_status status = REIN_OK;
    if (!r) return rein_report_no_memory(run);
    r->run = run;
    r->settings = json_array();
    if (!r->settings || !yaml_parser_initialize(&r->parser)) status = rein_report_no_memory(run);
    else {
        yaml_parser_set_input_string(&r->parser, (const unsigned char *)text, size);
        status = read_events(r);
        yaml_parser_delete(&r->parser);
    }
    json_decref(r->settings);
    json_decref(r->key);
    free(r);
    return status;
}

rein_status rein_report_config(rein_report_run *run) {
    char *path = rein_report_path(run, "config.yaml"), *text = NULL;
    size_t size = 0;
    rein_error why = {0};
    if (!path) return rein_report_no_memory(run);
    rein_status status = REIN_OK;
    if (rein_file_exists(path) && rein_file_read_most(&text, &size, path, MOST_BYTES) != 0)
        status = rein_report_noted(run, rein_file_error(&why, "config.yaml", "cannot be read"), &why);
    if (text) status = read_text(run, text, size);
    free(text);
    free(path);
    return status;
}
