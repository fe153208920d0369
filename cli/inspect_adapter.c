/* inspect_adapter.c - describes a LoRA adapter: opened with a model, or from its files alone. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "inspect.h"
#include "rein/json.h"
#include "terminal.h"
#include "values.h"

static const char WHERE[] = "inspect";

/* The modules are those of the JSON value, an array of names or one name; NULL: those of info. */
static void put_modules(cli_sheet *r, const rein_adapter_info *info, const rein_json *json) {
    const int listed = rein_json_kind_of(json) == REIN_JSON_ARRAY;
    const size_t n = listed ? rein_json_size(json) : json ? 1 : info->n_modules;
    cli_sheet_name(r, "modules");
    if (r->json) rein_text_put(&r->out, "[");
    for (size_t i = 0; i < n; i++) {
        const char *module = json ? rein_json_string(listed ? rein_json_at(json, i) : json) : info->modules[i];
        if (i) rein_text_put(&r->out, r->json ? ", " : " ");
        if (r->json) rein_json_put_string(&r->out, module ? module : "");
        else rein_text_put(&r->out, module ? module : "");
    }
    if (r->json) rein_text_put(&r->out, "]");
    cli_sheet_end(r);
}

static void put_adapter(cli_sheet *r, const char *path, const rein_adapter_info *info, const rein_json *modules) {
    const double rank = (double)info->rank;
    cli_sheet_text(r, "adapter", path);
    cli_sheet_text(r, "kind", "LoRA");
    cli_sheet_count(r, "rank", info->rank);
    cli_sheet_number(r, "alpha", info->alpha);
    cli_sheet_yes(r, "rank_stabilized", info->rank_stabilized);
    cli_sheet_number(r, "scale", info->alpha / (info->rank_stabilized ? sqrt(rank) : rank));
    put_modules(r, info, modules);
    cli_sheet_thousands(r, "parameters", info->parameters);
    cli_sheet_text(r, "base", *info->base ? info->base : NULL);
}

/* The header of a safetensors file: its length in eight bytes, then JSON. */
static int read_header(rein_text *header, const char *path) {
    unsigned char bytes[8];
    char piece[4096];
    uint64_t left = 0;
    FILE *file = fopen(path, "rb");
    if (!file) return cli_say(CLI_WRONG, WHERE, "cannot open \"%s\": %s", path, strerror(errno));
    int whole = fread(bytes, 1, sizeof bytes, file) == sizeof bytes;
    for (int i = 7; i >= 0; i--) left = left << 8 | bytes[i];
    whole = whole && left <= 100000000; /* the limit of the format's own library */
    while (whole && left) {
        const size_t n = fread(piece, 1, left < sizeof piece ? (size_t)left : sizeof piece, file);
        rein_text_put_bytes(header, piece, n);
        left -= n;
        whole = n > 0;
    }
    fclose(file);
    if (!whole) return cli_say(CLI_WRONG, WHERE, "%s is not a complete safetensors file: the header is cut off or too long", path);
    return header->failed ? cli_say_no_memory(WHERE) : CLI_DONE;
}

/* The product of the numbers of a shape. */
static double elements_of(const rein_json *shape) {
    double elements = 1;
    for (size_t i = 0; i < rein_json_size(shape); i++) elements *= rein_json_number(rein_json_at(shape, i));
    return elements;
}

static int count_parameters(int64_t *parameters, const char *directory) {
    const unsigned flags = REIN_JSON_NEEDS_OBJECT | REIN_JSON_WIDE_INTEGERS;
    rein_text path = {0}, header = {0};
    rein_error err = {0};
    rein_json *json = NULL;
    const rein_json *tensor;
    const char *name;
    double sum = 0;
    rein_text_format(&path, "%s/adapter_model.safetensors", directory);
    int status = path.failed ? cli_say_no_memory(WHERE) : read_header(&header, path.data);
    if (!status && rein_json_parse(&json, header.data ? header.data : "", header.length, path.data, flags, &err))
        status = cli_say_error(WHERE, &err);
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
        return cli_say(CLI_WRONG, WHERE, "%s: peft_type is \"%s\": only LORA is supported", path, type ? type : "");
    if (!(rank >= 1 && rank <= 1e9))
        return cli_say(CLI_WRONG, WHERE, "%s: r is invalid: a whole number, 1 or more, is needed", path);
    return CLI_DONE;
}

int cli_inspect_adapter_alone(cli_sheet *r, const char *directory) {
    rein_text path = {0};
    rein_error err = {0};
    rein_json *json = NULL;
    rein_adapter_info info = {0};
    int status = CLI_DONE;
    rein_text_format(&path, "%s/adapter_config.json", directory);
    if (path.failed) status = cli_say_no_memory(WHERE);
    else if (rein_json_read(&json, path.data, REIN_JSON_NEEDS_OBJECT | REIN_JSON_WIDE_INTEGERS, &err))
        status = cli_say(err.code == REIN_ENOMEM ? CLI_FAILED : CLI_WRONG, WHERE, "%s", err.message);
    if (!status) status = check_config(json, path.data);
    if (!status) status = count_parameters(&info.parameters, directory);
    if (!status) {
        const char *base = rein_json_string(rein_json_get(json, "base_model_name_or_path"));
        const rein_json *modules = rein_json_get(json, "target_modules");
        info.rank = (int64_t)rein_json_number(rein_json_get(json, "r"));
        info.alpha = rein_json_number(rein_json_get(json, "lora_alpha"));
        info.rank_stabilized = rein_json_true(rein_json_get(json, "use_rslora"));
        snprintf(info.base, sizeof info.base, "%s", base ? base : "");
        put_adapter(r, directory, &info, modules);
    }
    rein_json_free(json);
    rein_text_free(&path);
    return status;
}

int cli_inspect_adapter(cli_sheet *r, const char *directory, const cli_opened *opened) {
    rein_adapter *adapter;
    rein_error err = {0};
    if (rein_adapter_open(&adapter, opened->model, directory, &err)) return cli_say_error(WHERE, &err);
    const rein_adapter_info info = rein_adapter_describe(adapter);
    put_adapter(r, directory, &info, NULL);
    cli_sheet_text(r, "fits", opened->directory);
    rein_adapter_close(adapter);
    return CLI_DONE;
}
