/* inspect.c - `rein inspect`: what is in a directory. Every line of the text is a field of the JSON, under the same name.
 *
 * A model is opened, so that what is shown is what would run. An adapter is opened when there is a model to check it against; alone,
 * its files are read for what they say of themselves. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "input.h"
#include "inspect_groups.h"
#include "json_in.h"
#include "json_text.h"
#include "policy.h"
#include "terminal.h"
#include "values.h"

enum { COLUMN = 18 };

static const char WHERE[] = "inspect";

/* ------------------------------------------------------------------------------------------------------------------ the report */

typedef struct report {
    rein_out out;
    int json;
} report;

/* Begins a field: its value is next. */
static void put_name(report *r, const char *name) {
    if (r->json) {
        if (!r->out.length) rein_out_text(&r->out, "{");
        rein_json_name(&r->out, name);
        return;
    }
    for (size_t i = 0; name[i]; i++) rein_out_bytes(&r->out, name[i] == '_' ? " " : name + i, 1);
    rein_out_repeat(&r->out, " ", COLUMN - strlen(name));
}

static void end_row(report *r) {
    if (!r->json) rein_out_text(&r->out, "\n");
}

/* NULL: there is none. */
static void put_text(report *r, const char *name, const char *text) {
    put_name(r, name);
    if (r->json && text) rein_json_string(&r->out, text);
    else rein_out_text(&r->out, text ? text : r->json ? "null" : "none");
    end_row(r);
}

static void put_count(report *r, const char *name, int64_t n) {
    put_name(r, name);
    rein_out_format(&r->out, "%lld", (long long)n);
    end_row(r);
}

/* With a number that people can compare, in the first of the units that is not larger. */
static void put_large(report *r, const char *name, int64_t n, double step, const char *const units[3]) {
    double size = step * step * step;
    int unit = 0;
    put_name(r, name);
    rein_out_format(&r->out, "%lld", (long long)n);
    for (; unit < 3 && (double)n < size; unit++) size /= step;
    if (!r->json && unit < 3) rein_out_format(&r->out, " (%.4g %s)", (double)n / size, units[unit]);
    end_row(r);
}

static const char *const NUMBERS[] = {"billion", "million", "thousand"};
static const char *const BYTES[] = {"GiB", "MiB", "KiB"};

static void put_number(report *r, const char *name, double value) {
    put_name(r, name);
    rein_out_format(&r->out, "%.15g", value);
    end_row(r);
}

static void put_yes(report *r, const char *name, int yes) {
    put_name(r, name);
    rein_out_text(&r->out, r->json ? yes ? "true" : "false" : yes ? "yes" : "no");
    end_row(r);
}

/* Ids, and in the text the tokens they are. */
static void put_ids(report *r, const char *name, const int32_t *ids, size_t n, const rein_tokenizer *tokenizer) {
    if (r->json) {
        rein_json_ids(&r->out, name, ids, n);
        return;
    }
    put_name(r, name);
    if (!n) rein_out_text(&r->out, "none");
    for (size_t i = 0; i < n; i++) {
        rein_out_format(&r->out, "%s%ld", i ? ", " : "", (long)ids[i]);
        if (tokenizer) rein_out_text(&r->out, " "), rein_json_token(&r->out, tokenizer, ids[i]);
    }
    end_row(r);
}

static int print_report(report *r) {
    if (r->json) rein_out_text(&r->out, "}\n");
    return rein_print(&r->out);
}

/* ---------------------------------------------------------------------------------------------------------------------- models */

/* By what is in the vocabulary: the byte-level alphabet, or tokens for single bytes. */
static const char *tokenizer_kind(const rein_tokenizer *tokenizer) {
    if (rein_tokenizer_id(tokenizer, "Ċ", strlen("Ċ")) >= 0) return "byte-level BPE";
    return rein_tokenizer_id(tokenizer, "<0x0A>", 6) >= 0 ? "BPE with byte fallback" : "BPE";
}

static void put_tokenizer(report *r, const rein_tokenizer *tokenizer) {
    rein_error err = {0};
    rein_chat chat;
    size_t length;
    if (!tokenizer) {
        put_text(r, "tokenizer", NULL);
        return;
    }
    const char *template_text = rein_tokenizer_chat_template(&length, tokenizer);
    put_text(r, "tokenizer", tokenizer_kind(tokenizer));
    put_count(r, "tokenizer_size", (int64_t)rein_tokenizer_size(tokenizer));
    if (!template_text) put_text(r, "chat_format", NULL);
    else if (!rein_chat_recognise(&chat, template_text, length, &err)) put_text(r, "chat_format", rein_chat_name(&chat));
    else put_text(r, "chat_format", NULL), put_text(r, "chat_problem", err.message);
}

static void put_model(report *r, const rein_opened *opened) {
    const rein_model_info *i = &opened->info;
    const int bytes = !strcmp(i->type, "F32") ? 4 : !strcmp(i->type, "mixed") ? 0 : 2;
    put_text(r, "model", opened->directory);
    put_text(r, "family", i->family);
    put_large(r, "parameters", i->parameters, 1000, NUMBERS);
    put_text(r, "type", i->type);
    if (bytes) put_large(r, "bytes", i->parameters * bytes, 1024, BYTES);
    put_count(r, "layers", i->layers);
    put_count(r, "hidden", i->hidden);
    put_count(r, "intermediate", i->intermediate);
    put_count(r, "heads", i->heads);
    put_count(r, "kv_heads", i->kv_heads);
    put_count(r, "head_dim", i->head_dim);
    put_count(r, "vocabulary", i->vocabulary);
    put_count(r, "context", i->max_positions);
    put_yes(r, "tied_head", i->tied);
    if (!r->json) put_ids(r, "begin_id", &i->begin_id, i->begin_id >= 0, opened->tokenizer);
    else if (i->begin_id >= 0) put_count(r, "begin_id", i->begin_id);
    else put_text(r, "begin_id", NULL);
    put_ids(r, "end_ids", i->end_ids, i->n_end_ids, opened->tokenizer);
    put_count(r, "ignored_tensors", i->ignored);
    put_tokenizer(r, opened->tokenizer);
}

/* -------------------------------------------------------------------------------------------------------------------- adapters */

typedef struct adapter_view {
    int64_t rank, parameters;
    double alpha;
    int rank_stabilized;
    json_t *modules; /* an array of names, or the text that the file has instead */
    const char *base;
} adapter_view;

static void put_modules(report *r, const json_t *modules) {
    const size_t n = json_array_size(modules);
    put_name(r, "modules");
    if (r->json) rein_out_text(&r->out, "[");
    for (size_t i = 0; i < (n ? n : 1); i++) {
        const char *name = json_string_value(n ? json_array_get(modules, i) : modules);
        if (i) rein_out_text(&r->out, r->json ? ", " : " ");
        if (r->json) rein_json_string(&r->out, name ? name : "");
        else rein_out_text(&r->out, name ? name : "");
    }
    if (r->json) rein_out_text(&r->out, "]");
    end_row(r);
}

static void put_adapter(report *r, const char *path, const adapter_view *view) {
    const double rank = (double)view->rank;
    put_text(r, "adapter", path);
    put_text(r, "kind", "LoRA");
    put_count(r, "rank", view->rank);
    put_number(r, "alpha", view->alpha);
    put_yes(r, "rank_stabilized", view->rank_stabilized);
    put_number(r, "scale", view->alpha / (view->rank_stabilized ? sqrt(rank) : rank));
    put_modules(r, view->modules);
    put_large(r, "parameters", view->parameters, 1000, NUMBERS);
    put_text(r, "base", *view->base ? view->base : NULL);
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

/* What the files say; nothing is checked against a model. */
static int inspect_adapter_alone(report *r, const char *directory) {
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

static int inspect_adapter(report *r, const char *directory, const rein_opened *opened) {
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
    put_text(r, "fits", opened->directory);
    json_decref(view.modules);
    rein_adapter_close(adapter);
    return REIN_DONE;
}

/* ----------------------------------------------------------------------------------------------------------------- the command */

static int nothing_there(const char *path) {
    struct stat about;
    if (stat(path, &about)) return rein_say(REIN_WRONG, WHERE, "cannot open \"%s\": %s", path, strerror(errno));
    return rein_say(REIN_WRONG, WHERE,
                    "\"%s\" is %s: the directory of a model (with config.json) or of an adapter (with "
                    "adapter_config.json) is looked for",
                    path, S_ISDIR(about.st_mode) ? "neither" : "no directory");
}

int rein_run_inspect(const rein_args *args) {
    const char *path = args->n_words ? args->words[0] : NULL, *model = rein_option_value(args, "model");
    report r = {.json = rein_option_value(args, "json") != NULL};
    rein_opened opened = {0};
    int status;
    if (!path)
        return rein_say(REIN_WRONG, WHERE,
                        "a path is needed: the directory of a model or of an adapter, or a file of trajectories");
    if (rein_is_groups(path)) return rein_inspect_groups(args, path);
    if (rein_option_value(args, "chat-format")) return rein_say(REIN_WRONG, WHERE, "--chat-format is for a file of trajectories");
    const int is_model = rein_directory_has(path, "config.json"), is_adapter = rein_directory_has(path, "adapter_config.json");
    if (!is_model && !is_adapter) return nothing_there(path);
    if (model && !is_adapter)
        return rein_say(REIN_WRONG, WHERE, "\"%s\" has no adapter_config.json: --model is for an adapter, to see whether it fits",
                        path);
    if (is_adapter && !is_model && !model) status = inspect_adapter_alone(&r, path);
    else {
        opened.directory = model ? model : path;
        status = rein_opened_open(&opened, args);
        if (!status && model) status = inspect_adapter(&r, path, &opened);
        else if (!status) put_model(&r, &opened);
    }
    rein_opened_close(&opened);
    if (!status) return print_report(&r);
    rein_out_free(&r.out);
    return status;
}
