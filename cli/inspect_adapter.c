/* inspect_adapter.c - what a LoRA adapter is: opened as a model's, or what its files say of themselves. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "input.h"
#include "inspect.h"
#include "json_in.h"
#include "json_text.h"
#include "terminal.h"
#include "values.h"

static const char WHERE[] = "inspect";

typedef struct adapter_view {
    int64_t rank, parameters;
    double alpha;
    int rank_stabilized;
    json_t *modules; /* an array of names, or the text that the file has instead */
    const char *base;
} adapter_view;

static void put_modules(rein_sheet *r, const json_t *modules) {
    const size_t n = json_array_size(modules);
    rein_sheet_name(r, "modules");
    if (r->json) rein_out_text(&r->out, "[");
    for (size_t i = 0; i < (n ? n : 1); i++) {
        const char *name = json_string_value(n ? json_array_get(modules, i) : modules);
        if (i) rein_out_text(&r->out, r->json ? ", " : " ");
        if (r->json) rein_json_string(&r->out, name ? name : "");
        else rein_out_text(&r->out, name ? name : "");
    }
    if (r->json) rein_out_text(&r->out, "]");
    rein_sheet_end(r);
}

static void put_adapter(rein_sheet *r, const char *path, const adapter_view *view) {
    const double rank = (double)view->rank;
    rein_sheet_text(r, "adapter", path);
    rein_sheet_text(r, "kind", "LoRA");
    rein_sheet_count(r, "rank", view->rank);
    rein_sheet_number(r, "alpha", view->alpha);
    rein_sheet_yes(r, "rank_stabilized", view->rank_stabilized);
    rein_sheet_number(r, "scale", view->alpha / (view->rank_stabilized ? sqrt(rank) : rank));
    put_modules(r, view->modules);
    rein_sheet_thousands(r, "parameters", view->parameters);
    rein_sheet_text(r, "base", *view->base ? view->base : NULL);
}

/* The header of a safetensors file: eight bytes of its length, then JSON. */
static int read_header(rein_out *header, const char *path) {
    unsigned char bytes[8];
    char piece[4096];
    uint64_t left = 0;
    FILE *file = fopen(path, "rb");
    if (!file) return rein_say(REIN_WRONG, WHERE, "cannot open \"%s\": %s", path, strerror(errno));
    int whole = fread(bytes, 1, sizeof bytes, file) == sizeof bytes;
    for (int i = 7; i >= 0; i--) left = left << 8 | bytes[i];
    whole = whole && left <= 100000000; /* as the format's own library has it */
    while (whole && left) {
        const size_t n = fread(piece, 1, left < sizeof piece ? (size_t)left : sizeof piece, file);
        rein_out_bytes(header, piece, n);
        left -= n;
        whole = n > 0;
    }
    fclose(file);
    if (!whole) return rein_say(REIN_WRONG, WHERE, "%s is no whole safetensors file", path);
    return header->failed ? rein_say(REIN_FAILED, WHERE, "out of memory") : REIN_DONE;
}

static int parse_file(json_t **json, const rein_out *text, const char *path) {
    rein_error err = {0};
    if (rein_text_parse(json, text->data ? text->data : "", text->length, 0, &err))
        return rein_say(err.code == REIN_ENOMEM ? REIN_FAILED : REIN_WRONG, WHERE, "%s: %s", path, err.message);
    return json_is_object(*json) ? REIN_DONE : rein_say(REIN_WRONG, WHERE, "%s: an object is needed", path);
}

static int count_parameters(int64_t *parameters, const char *directory) {
    rein_out path = {0}, header = {0};
    json_t *json = NULL, *tensor, *size;
    const char *name;
    size_t i;
    double sum = 0;
    rein_out_format(&path, "%s/adapter_model.safetensors", directory);
    int status = path.failed ? rein_say(REIN_FAILED, WHERE, "out of memory") : read_header(&header, path.data);
    if (!status) status = parse_file(&json, &header, path.data);
    json_object_foreach(json, name, tensor) {
        double elements = 1;
        if (!strcmp(name, "__metadata__")) continue;
        json_array_foreach(json_object_get(tensor, "shape"), i, size) elements *= json_number_value(size);
        sum += elements;
    }
    *parameters = sum < 1e18 ? (int64_t)sum : 0;
    json_decref(json);
    rein_out_free(&header);
    rein_out_free(&path);
    return status;
}

static int check_config(const json_t *json, const char *path) {
    const char *type = json_string_value(json_object_get(json, "peft_type"));
    const double rank = json_number_value(json_object_get(json, "r"));
    if (!type || strcmp(type, "LORA") != 0)
        return rein_say(REIN_WRONG, WHERE, "%s: peft_type is \"%s\": LORA is what is known here", path, type ? type : "");
    if (!(rank >= 1 && rank <= 1e9)) return rein_say(REIN_WRONG, WHERE, "%s: r is no rank: a whole number from 1 is needed", path);
    return REIN_DONE;
}

int rein_inspect_adapter_alone(rein_sheet *r, const char *directory) {
    rein_out path = {0}, text = {0};
    json_t *json = NULL;
    adapter_view view = {0};
    rein_out_format(&path, "%s/adapter_config.json", directory);
    int status = path.failed ? rein_say(REIN_FAILED, WHERE, "out of memory") : rein_read_input(&text, path.data, "", WHERE);
    if (!status) status = parse_file(&json, &text, path.data);
    if (!status) status = check_config(json, path.data);
    if (!status) status = count_parameters(&view.parameters, directory);
    if (!status) {
        const char *base = json_string_value(json_object_get(json, "base_model_name_or_path"));
        view.rank = (int64_t)json_number_value(json_object_get(json, "r"));
        view.alpha = json_number_value(json_object_get(json, "lora_alpha"));
        view.rank_stabilized = json_is_true(json_object_get(json, "use_rslora"));
        view.modules = json_object_get(json, "target_modules");
        view.base = base ? base : "";
        put_adapter(r, directory, &view);
    }
    json_decref(json);
    rein_out_free(&text);
    rein_out_free(&path);
    return status;
}

int rein_inspect_adapter(rein_sheet *r, const char *directory, const rein_opened *opened) {
    rein_adapter *adapter;
    rein_error err = {0};
    if (rein_adapter_open(&adapter, opened->model, directory, &err)) return rein_say_error(WHERE, &err);
    const rein_adapter_info info = rein_adapter_describe(adapter);
    adapter_view view = {.rank = info.rank,
                         .parameters = info.parameters,
                         .alpha = info.alpha,
                         .rank_stabilized = info.rank_stabilized,
                         .modules = json_array(),
                         .base = info.base};
    for (size_t i = 0; i < info.n_modules; i++) json_array_append_new(view.modules, json_string(info.modules[i]));
    put_adapter(r, directory, &view);
    rein_sheet_text(r, "fits", opened->directory);
    json_decref(view.modules);
    rein_adapter_close(adapter);
    return REIN_DONE;
}
