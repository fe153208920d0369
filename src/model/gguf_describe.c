/* gguf_describe.c - what a GGUF file holds, as JSON: its metadata, and how many tensors have which type. */
#include "gguf.h"

#include "rein/model.h"
#include "unicode.h"

/* A text of the file need not be UTF-8. */
static void put_text(rein_text *out, const char *bytes, size_t n) {
    if (rein_utf8_valid(bytes, n) == n) rein_json_put_bytes(out, bytes, n);
    else rein_text_format(out, "\"%zu bytes that are not UTF-8\"", n);
}

/* Long arrays and texts are only counted. */
enum { LONGEST_ARRAY = 16, LONGEST_TEXT = 200 };

static void put_number(rein_text *out, const rein_gguf_value *value, size_t i) {
    const double x = rein_gguf_number(value, i);
    if (value->element == REIN_GGUF_BOOL) rein_text_put(out, x != 0 ? "true" : "false");
    else if (value->element == REIN_GGUF_F32) rein_json_put_float(out, (float)x);
    else rein_json_put_double(out, x);
}

static void put_array(rein_text *out, const rein_gguf_value *value) {
    const unsigned char *at = value->bytes;
    if (value->count > LONGEST_ARRAY || value->element == REIN_GGUF_ARRAY) {
        rein_text_format(out, "\"%zu of %s\"", value->count, rein_gguf_kind_name(value->element));
        return;
    }
    rein_text_put(out, "[");
    for (size_t i = 0; i < value->count; i++) {
        rein_text_put(out, i ? ", " : "");
        if (value->element != REIN_GGUF_STRING) {
            put_number(out, value, i);
            continue;
        }
        const rein_gguf_text text = rein_gguf_next_text(&at);
        put_text(out, text.bytes, text.length);
    }
    rein_text_put(out, "]");
}

static void put_value(rein_text *out, const rein_gguf_value *value) {
    if (value->kind == REIN_GGUF_ARRAY) put_array(out, value);
    else if (value->kind != REIN_GGUF_STRING) put_number(out, value, 0);
    else if (value->count > LONGEST_TEXT) rein_text_format(out, "\"a text of %zu bytes\"", value->count);
    else put_text(out, (const char *)value->bytes, value->count);
}

static void put_metadata(rein_text *out, const rein_gguf *gguf) {
    rein_json_put_name(out, "metadata");
    rein_text_put(out, "{");
    for (size_t i = 0; i < gguf->files[0].n_pairs; i++) {
        const rein_gguf_pair *pair = &gguf->files[0].pairs[i];
        rein_text_put(out, i ? ", " : "");
        rein_json_put_bytes(out, pair->key.bytes, pair->key.length);
        rein_text_put(out, ": ");
        put_value(out, &pair->value);
    }
    rein_text_put(out, "}");
}

/* One entry for each type that a tensor has. */
static void put_types(rein_text *out, const rein_gguf *gguf) {
    int n = 0;
    rein_json_put_name(out, "types");
    rein_text_put(out, "[");
    for (uint32_t type = 0; type < REIN_GGUF_TYPES; type++) {
        size_t tensors = 0, bytes = 0;
        for (size_t i = 0; i < gguf->n_tensors; i++)
            if (gguf->tensors[i].type == type) tensors++, bytes += gguf->tensors[i].bytes;
        if (!tensors) continue;
        rein_text_format(out, "%s{\"type\": \"%s\", \"tensors\": %zu, \"bytes\": %zu}", n++ ? ", " : "",
                         rein_gguf_type_at(type).name, tensors, bytes);
    }
    rein_text_put(out, "]");
}

rein_status rein_gguf_description(rein_text *json, const char *path, rein_error *err) {
    rein_gguf *gguf;
    const rein_status status = rein_gguf_open(&gguf, path, err);
    if (status) return status;
    rein_text_put(json, "{");
    rein_json_put_field(json, "files", (double)gguf->n_files);
    put_types(json, gguf);
    put_metadata(json, gguf);
    rein_text_put(json, "}");
    rein_gguf_close(gguf);
    return rein_text_status(json, err);
}
