/* html_config.c - config.yaml as pairs of texts. Settings are shown as written, without interpretation. */
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/file.h"
#include "html_parts.h"

enum { MORE = sizeof ", …" - 1 };

/* The items of a list, separated by commas; only scalars are shown. NULL when there is no memory. */
static json_t *list_text(yaml_document_t *document, const yaml_node_t *list) {
    const yaml_node_item_t *first = list->data.sequence.items.start, *end = list->data.sequence.items.top;
    char text[REIN_SHOWN_TEXT];
    size_t n = 0;
    for (const yaml_node_item_t *item = first; item < end; item++) {
        const yaml_node_t *node = yaml_document_get_node(document, *item);
        if (!node || node->type != YAML_SCALAR_NODE) continue;
        const size_t length = node->data.scalar.length, comma = n ? 2 : 0;
        if (length + comma + MORE > sizeof text - n) {
            memcpy(text + n, ", …", MORE), n += MORE;
            break;
        }
        memcpy(text + n, ", ", comma);
        memcpy(text + n + comma, node->data.scalar.value, length);
        n += comma + length;
    }
    return rein_report_text(text, n, sizeof text);
}

static json_t *scalar_text(const yaml_node_t *node) {
    return rein_report_text((const char *)node->data.scalar.value, node->data.scalar.length, REIN_SHOWN_TEXT);
}

static rein_status put_pairs(rein_report_run *run, yaml_document_t *document, const yaml_node_t *root) {
    json_t *settings = json_array();
    int failed = json_object_set_new(run->json, "settings", settings);
    for (const yaml_node_pair_t *pair = root->data.mapping.pairs.start; pair < root->data.mapping.pairs.top && !failed; pair++) {
        const yaml_node_t *key = yaml_document_get_node(document, pair->key),
                          *value = yaml_document_get_node(document, pair->value);
        if (!key || !value || key->type != YAML_SCALAR_NODE || value->type == YAML_MAPPING_NODE) continue;
        if (json_array_size(settings) == REIN_SHOWN_SETTINGS) break;
        json_t *both = json_array();
        failed |= json_array_append_new(both, scalar_text(key));
        failed |= json_array_append_new(both, value->type == YAML_SCALAR_NODE ? scalar_text(value) : list_text(document, value));
        failed |= json_array_append_new(settings, both);
    }
    return failed ? rein_report_no_memory(run) : REIN_OK;
}

static rein_status put_document(rein_report_run *run, yaml_parser_t *parser) {
    yaml_document_t document;
    rein_status status = REIN_OK;
    if (!yaml_parser_load(parser, &document)) {
        if (parser->error == YAML_MEMORY_ERROR) return rein_report_no_memory(run);
        return rein_report_note(run, "config.yaml: line %zu: %s", parser->problem_mark.line + 1,
                                parser->problem ? parser->problem : "it is not YAML");
    }
    const yaml_node_t *root = yaml_document_get_root_node(&document);
    if (root && root->type == YAML_MAPPING_NODE) status = put_pairs(run, &document, root);
    else status = rein_report_note(run, "config.yaml is not a mapping of names to values");
    yaml_document_delete(&document);
    return status;
}

rein_status rein_report_config(rein_report_run *run) {
    char *path = rein_report_path(run, "config.yaml"), *text = NULL;
    size_t size = 0;
    yaml_parser_t parser;
    rein_error why = {0};
    if (!path) return rein_report_no_memory(run);
    rein_status status = REIN_OK;
    if (rein_file_exists(path) && rein_file_read(&text, &size, path) != 0)
        status = rein_report_noted(run, rein_file_error(&why, "config.yaml", "cannot be read"), &why);
    if (text && !yaml_parser_initialize(&parser)) status = rein_report_no_memory(run);
    else if (text) {
        yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
        status = put_document(run, &parser);
        yaml_parser_delete(&parser);
    }
    free(text);
    free(path);
    return status;
}
