/* inspect_adapter.c - what a LoRA adapter is: opened as a model's, or what its files say of themselves. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "input.h"
#include "inspect.h"
#include "rein/json.h"
#include "terminal.h"
#include "values.h"

static const char WHERE[] = "inspect";

typedef struct adapter_view {
    int64_t rank, parameters;
    double alpha;
    int rank_stabilized;
    const char *const *modules; /* [n_modules] */
    size_t n_modules;
    const char *base;
} adapter_view;

static void put_modules(rein_sheet *r, const adapter_view *view) {
    rein_sheet_name(r, "modules");
    if (r->json) rein_text_put(&r->out, "[");
    for (size_t i = 0; i < view->n_modules; i++) {
        if (i) rein_text_put(&r->out, r->json ? ", " : " ");
        if (r->json) rein_json_put_string(&r->out, view->modules[i]);
        else rein_text_put(&r->out, view->modules[i]);
    }
    if (r->json) rein_text_put(&r->out, "]");
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
    put_modules(r, view);
    rein_sheet_thousands(r, "parameters", view->parameters);
    rein_sheet_text(r, "base", *view->base ? view->base : NULL);
}

/* The header of a safetensors file: eight bytes of its length, then JSON. */
static int read_header(rein_text *header, const char *path) {
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
        rein_text_put_bytes(header, piece, n);
        left -= n;
        whole = n > 0;
    }
    fclose(file);
    if (!whole) return rein_say(REIN_WRONG, WHERE, "%s is no whole safetensors file", path);
    return header->failed ? rein_say_no_memory(WHERE) : REIN_DONE;
}

static int parse_file(rein_json **json, const rein_text *text, const char *path) {
    const unsigned flags = REIN_JSON_NEEDS_OBJECT | REIN_JSON_WIDE_INTEGERS;
    rein_error err = {0};
    if (!rein_json_parse(json, text->data ? text->data : "", text->length, path, flags, &err)) return REIN_DONE;
    return rein_say_error(WHERE, &err);
}

/* The numbers of a shape, multiplied. */
static double elements_of(const rein_json *shape) {
    double elements = 1;
    for (size_t i = 0; i < rein_json_size(shape); i++) elements *= rein_json_number(rein_json_at(shape, i));
    return elements;
}

static int count_parameters(int64_t *parameters, const char *directory) {
    rein_text path = {0}, header = {0};
    rein_json *json = NULL;
    const rein_json *tensor;
    const char *name;
    double sum = 0;
    rein_text_format(&path, "%s/adapter_model.safetensors", directory);
    int status = path.failed ? rein_say_no_memory(WHERE) : read_header(&header, path.data);
    if (!status) status = parse_file(&json, &header, path.data);
    for (void *at = NULL; (at = rein_json_next(&name, &tensor, json, at));)
        if (strcmp(name, "__metadata__") != 0) sum += elements_of(rein_json_get(tensor, "shape"));
    *parameters = sum < 1e18 ? (int64_t)sum : 0;
    rein_json_free(json);
    rein_text_free(&header);
    rein_text_free(&path);
    return status;
}

static int check_config(const rein_json *json, const char *path) {
    const char *type = rein_json_string(rein_json_get(json, "peft_type"));
    const double rank = rein_json_number(rein_json_get(json, "r"));
    if (!type || strcmp(type, "LORA") != 0)
        return rein_say(REIN_WRONG, WHERE, "%s: peft_type is \"%s\": LORA is what is known here", path, type ? type : "");
    if (!(rank >= 1 && rank <= 1e9)) return rein_say(REIN_WRONG, WHERE, "%s: r is no rank: a whole number from 1 is needed", path);
    return REIN_DONE;
}

/* An array of names, or a text in its place; the caller frees the list. */
static int read_modules(adapter_view *view, const rein_json *modules) {
    const int listed = rein_json_kind_of(modules) == REIN_JSON_ARRAY;
    const size_t n = listed ? rein_json_size(modules) : 1;
    const char **names = calloc(n ? n : 1, sizeof *names);
    if (!names) return rein_say_no_memory(WHERE);
    for (size_t i = 0; i < n; i++) {
        const char *name = rein_json_string(listed ? rein_json_at(modules, i) : modules);
        names[i] = name ? name : "";
    }
    view->modules = names, view->n_modules = n;
    return REIN_DONE;
}

int rein_inspect_adapter_alone(rein_sheet *r, const char *directory) {
    rein_text path = {0}, text = {0};
    rein_json *json = NULL;
    adapter_view view = {0};
    rein_text_format(&path, "%s/adapter_config.json", directory);
    int status = path.failed ? rein_say_no_memory(WHERE) : rein_read_input(&text, path.data, "", WHERE);
    if (!status) status = parse_file(&json, &text, path.data);
    if (!status) status = check_config(json, path.data);
    if (!status) status = count_parameters(&view.parameters, directory);
    if (!status) {
        const char *base = rein_json_string(rein_json_get(json, "base_model_name_or_path"));
        view.rank = (int64_t)rein_json_number(rein_json_get(json, "r"));
        view.alpha = rein_json_number(rein_json_get(json, "lora_alpha"));
        view.rank_stabilized = rein_json_true(rein_json_get(json, "use_rslora"));
        view.base = base ? base : "";
        status = read_modules(&view, rein_json_get(json, "target_modules"));
        if (!status) put_adapter(r, directory, &view);
        free((void *)(uintptr_t)view.modules);
    }
    rein_json_free(json);
    rein_text_free(&text);
    rein_text_free(&path);
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
                         .modules = info.modules,
                         .n_modules = info.n_modules,
                         .base = info.base};
    put_adapter(r, directory, &view);
    rein_sheet_text(r, "fits", opened->directory);
    rein_adapter_close(adapter);
    return REIN_DONE;
}
