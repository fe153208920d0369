/* inspect.c - `rein inspect`: describes a directory. Every line of the text is a field of the JSON, with the same name.
 *
 * A model is opened, so the output describes what would run. An adapter is opened if there is a model to check it against; otherwise only
 * its files are read. A run and its checkpoints are verified. */
#include "inspect.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "inspect_groups.h"
#include "terminal.h"
#include "values.h"

static const char WHERE[] = "inspect";

/* ---------------------------------------------------------------------------------------------------------------------- models */

/* Ids, in a text with their tokens. */
static void put_ids(rein_sheet *r, const char *name, const int32_t *ids, size_t n, const rein_tokenizer *tokenizer) {
    if (r->json) {
        rein_json_ids(&r->out, name, ids, n);
        return;
    }
    rein_sheet_name(r, name);
    if (!n) rein_text_put(&r->out, "none");
    for (size_t i = 0; i < n; i++) {
        rein_text_format(&r->out, "%s%ld", i ? ", " : "", (long)ids[i]);
        if (tokenizer) rein_text_put(&r->out, " "), rein_json_token(&r->out, tokenizer, ids[i]);
    }
    rein_sheet_end(r);
}

/* The vocabulary decides: it has the byte-level alphabet, or tokens for single bytes. */
static const char *tokenizer_kind(const rein_tokenizer *tokenizer) {
    if (rein_tokenizer_id(tokenizer, "Ċ", strlen("Ċ")) >= 0) return "byte-level BPE";
    return rein_tokenizer_id(tokenizer, "<0x0A>", 6) >= 0 ? "BPE with byte fallback" : "BPE";
}

static void put_tokenizer(rein_sheet *r, const rein_tokenizer *tokenizer) {
    rein_error err = {0};
    rein_chat chat;
    size_t length;
    if (!tokenizer) {
        rein_sheet_text(r, "tokenizer", NULL);
        return;
    }
    const char *template_text = rein_tokenizer_chat_template(&length, tokenizer);
    rein_sheet_text(r, "tokenizer", tokenizer_kind(tokenizer));
    rein_sheet_count(r, "tokenizer_size", (int64_t)rein_tokenizer_size(tokenizer));
    if (!template_text) rein_sheet_text(r, "chat_format", NULL);
    else if (!rein_chat_recognise(&chat, template_text, length, &err)) rein_sheet_text(r, "chat_format", rein_chat_name(&chat));
    else rein_sheet_text(r, "chat_format", NULL), rein_sheet_text(r, "chat_problem", err.message);
}

void rein_inspect_model(rein_sheet *r, const rein_opened *opened) {
    const rein_model_info *i = &opened->info;
    const int bytes = !strcmp(i->type, "F32") ? 4 : !strcmp(i->type, "mixed") ? 0 : 2;
    rein_sheet_text(r, "model", opened->directory);
    rein_sheet_text(r, "family", i->family);
    rein_sheet_thousands(r, "parameters", i->parameters);
    rein_sheet_text(r, "type", i->type);
    if (bytes) rein_sheet_bytes(r, "bytes", i->parameters * bytes);
    rein_sheet_count(r, "layers", i->layers);
    rein_sheet_count(r, "hidden", i->hidden);
    rein_sheet_count(r, "intermediate", i->intermediate);
    rein_sheet_count(r, "heads", i->heads);
    rein_sheet_count(r, "kv_heads", i->kv_heads);
    rein_sheet_count(r, "head_dim", i->head_dim);
    rein_sheet_count(r, "vocabulary", i->vocabulary);
    rein_sheet_count(r, "context", i->max_positions);
    rein_sheet_yes(r, "tied_head", i->tied);
    if (r->json) rein_sheet_count_or_none(r, "begin_id", i->begin_id);
    else put_ids(r, "begin_id", &i->begin_id, i->begin_id >= 0, opened->tokenizer);
    put_ids(r, "end_ids", i->end_ids, i->n_end_ids, opened->tokenizer);
    rein_sheet_count(r, "ignored_tensors", i->ignored);
    put_tokenizer(r, opened->tokenizer);
}

/* ----------------------------------------------------------------------------------------------------------------- the command */

static int nothing_there(const char *path) {
    struct stat about;
    if (stat(path, &about)) return rein_say(REIN_WRONG, WHERE, "cannot open \"%s\": %s", path, strerror(errno));
    return rein_say(REIN_WRONG, WHERE,
                    "\"%s\" is %s: the directory of a model (with config.json), of an adapter (with adapter_config.json), of a run "
                    "or of a checkpoint is needed",
                    path, S_ISDIR(about.st_mode) ? "none of these" : "no directory");
}

int rein_run_inspect(const rein_args *args) {
    const char *path = args->n_words ? args->words[0] : NULL, *model = rein_option_value(args, "model");
    rein_sheet r = {.json = rein_option_value(args, "json") != NULL};
    rein_opened opened = {0};
    int status;
    if (!path)
        return rein_say(REIN_WRONG, WHERE,
                        "a path is needed: the directory of a model, of an adapter, of a run or of a checkpoint, or a file of "
                        "trajectories");
    if (rein_is_groups(path)) return rein_inspect_groups(args, path);
    if (rein_option_value(args, "chat-format")) return rein_say_option(WHERE, "chat-format", "is for a file of trajectories");
    if (!model && rein_is_run(path)) return rein_inspect_run(path, r.json);
    if (!model && rein_is_checkpoint(path)) return rein_inspect_checkpoint(args, path, r.json);
    const int is_model = rein_directory_has(path, "config.json"), is_adapter = rein_directory_has(path, "adapter_config.json");
    if (!is_model && !is_adapter) return nothing_there(path);
    if (model && !is_adapter)
        return rein_say(REIN_WRONG, WHERE, "\"%s\" has no adapter_config.json: --model is for an adapter, to check that it fits",
                        path);
    if (is_adapter && !is_model && !model) status = rein_inspect_adapter_alone(&r, path);
    else {
        opened.directory = model ? model : path;
        status = rein_opened_open(&opened, args);
        if (!status && model) status = rein_inspect_adapter(&r, path, &opened);
        else if (!status) rein_inspect_model(&r, &opened);
    }
    rein_opened_close(&opened);
    return rein_sheet_finish(&r, status);
}
