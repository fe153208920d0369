/* inspect.c - `rein inspect`: describes a directory. Every line of the text is a field of the JSON, with the same name.
 *
 * A model is opened, so the output describes what would run. An adapter is opened if there is a model to check it against; otherwise only
 * its files are read. A run and its checkpoints are verified. */
#include "inspect.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "inspect_groups.h"
#include "inspect_model.h"
#include "terminal.h"
#include "values.h"

static const char WHERE[] = "inspect";

/* ---------------------------------------------------------------------------------------------------------------------- models */

/* Ids, in a text with their tokens. */
static void put_ids(cli_sheet *r, const char *name, const int32_t *ids, size_t n, const rein_tokenizer *tokenizer) {
    if (r->json) {
        cli_json_ids(&r->out, name, ids, n);
        return;
    }
    cli_sheet_name(r, name);
    if (!n) rein_text_put(&r->out, "none");
    for (size_t i = 0; i < n; i++) {
        rein_text_format(&r->out, "%s%ld", i ? ", " : "", (long)ids[i]);
        if (tokenizer) rein_text_put(&r->out, " "), cli_json_token(&r->out, tokenizer, ids[i]);
    }
    cli_sheet_end(r);
}

/* The vocabulary decides: it has the byte-level alphabet, or tokens for single bytes. */
static const char *tokenizer_kind(const rein_tokenizer *tokenizer) {
    if (rein_tokenizer_id(tokenizer, "Ċ", strlen("Ċ")) >= 0) return "byte-level BPE";
    return rein_tokenizer_id(tokenizer, "<0x0A>", 6) >= 0 ? "BPE with byte fallback" : "BPE";
}

static void put_tokenizer(cli_sheet *r, const rein_tokenizer *tokenizer) {
    rein_error err = {0};
    rein_chat chat;
    size_t length;
    if (!tokenizer) {
        cli_sheet_text(r, "tokenizer", NULL);
        return;
    }
    cli_sheet_text(r, "tokenizer", tokenizer_kind(tokenizer));
    cli_sheet_count(r, "tokenizer_size", (int64_t)rein_tokenizer_size(tokenizer));
    if (!rein_tokenizer_chat_template(&length, tokenizer)) cli_sheet_text(r, "chat_format", NULL);
    else if (!rein_chat_of(&chat, tokenizer, &err)) cli_sheet_text(r, "chat_format", rein_chat_name(&chat));
    else cli_sheet_text(r, "chat_format", NULL), cli_sheet_text(r, "chat_problem", err.message);
}

void cli_inspect_model(cli_sheet *r, const cli_opened *opened) {
    const rein_model_info *i = &opened->info;
    const int bytes = !strcmp(i->type, "F32") ? 4 : !strcmp(i->type, "mixed") ? 0 : 2;
    cli_sheet_text(r, "model", opened->directory);
    cli_sheet_text(r, "family", i->family);
    cli_sheet_thousands(r, "parameters", i->parameters);
    cli_sheet_text(r, "type", i->type);
    if (bytes) cli_sheet_bytes(r, "bytes", i->parameters * bytes);
    cli_sheet_count(r, "layers", i->layers);
    cli_sheet_count(r, "hidden", i->hidden);
    cli_sheet_count(r, "intermediate", i->intermediate);
    cli_sheet_count(r, "heads", i->heads);
    cli_sheet_count(r, "kv_heads", i->kv_heads);
    cli_sheet_count(r, "head_dim", i->head_dim);
    cli_sheet_count(r, "vocabulary", i->vocabulary);
    cli_sheet_count(r, "context", i->max_positions);
    if (i->score) cli_sheet_text(r, "head", "a score: a reward model");
    else cli_sheet_yes(r, "tied_head", i->tied);
    if (r->json) cli_sheet_count_or_none(r, "begin_id", i->begin_id);
    else put_ids(r, "begin_id", &i->begin_id, i->begin_id >= 0, opened->tokenizer);
    put_ids(r, "end_ids", i->end_ids, i->n_end_ids, opened->tokenizer);
    cli_sheet_count(r, "ignored_tensors", i->ignored);
    put_tokenizer(r, opened->tokenizer);
}

/* -------------------------------------------------------------------------------------------------------------------- adapters */

static void put_modules(cli_sheet *r, const rein_adapter_info *info) {
    cli_sheet_name(r, "modules");
    if (r->json) rein_text_put(&r->out, "[");
    for (size_t i = 0; i < info->n_modules; i++)
        rein_text_format(&r->out, r->json ? "%s\"%s\"" : "%s%s", !i ? "" : r->json ? ", " : " ", info->modules[i]);
    if (r->json) rein_text_put(&r->out, "]");
    cli_sheet_end(r);
}

static void put_adapter(cli_sheet *r, const char *path, const rein_adapter_info *info) {
    const double rank = (double)info->rank;
    cli_sheet_text(r, "adapter", path);
    cli_sheet_text(r, "kind", "LoRA");
    cli_sheet_count(r, "rank", info->rank);
    cli_sheet_number(r, "alpha", info->alpha);
    cli_sheet_yes(r, "rank_stabilized", info->rank_stabilized);
    cli_sheet_number(r, "scale", info->alpha / (info->rank_stabilized ? sqrt(rank) : rank));
    put_modules(r, info);
    cli_sheet_thousands(r, "parameters", info->parameters);
    cli_sheet_text(r, "base", *info->base ? info->base : NULL);
}

int cli_inspect_adapter(cli_sheet *r, const char *directory) {
    rein_adapter_info info;
    rein_text base = {0};
    rein_error err = {0};
    if (rein_adapter_describe_files(&info, &base, directory, &err)) return cli_say_error(WHERE, &err);
    put_adapter(r, directory, &info);
    rein_text_free(&base);
    return CLI_DONE;
}

static int inspect_fit(cli_sheet *r, const char *directory, const cli_opened *opened) {
    rein_adapter *adapter;
    rein_error err = {0};
    if (rein_adapter_open(&adapter, opened->model, directory, &err)) return cli_say_error(WHERE, &err);
    const rein_adapter_info info = rein_adapter_describe(adapter);
    put_adapter(r, directory, &info);
    cli_sheet_text(r, "fits", opened->directory);
    rein_adapter_close(adapter);
    return CLI_DONE;
}

/* ----------------------------------------------------------------------------------------------------------------- the command */

static int nothing_there(const char *path) {
    struct stat about;
    if (stat(path, &about)) return cli_say_errno(WHERE, "cannot open \"%s\"", path);
    return cli_say(CLI_WRONG, WHERE,
                   "\"%s\" is %s: a model (a directory with config.json, or a GGUF file), the directory of an adapter (with "
                   "adapter_config.json), of a run "
                   "or of a checkpoint is needed",
                   path, S_ISDIR(about.st_mode) ? "not one of these" : "not a directory");
}

/* --tokens and --samples are for the memory of a model. */
static int refuse_sizes(const cli_args *args) {
    static const char *const names[] = {"tokens", "samples"};
    for (size_t i = 0; i < 2; i++)
        if (cli_option_value(args, names[i])) return cli_say_option(WHERE, names[i], "is for the directory of a model");
    return CLI_DONE;
}

int cli_run_inspect(const cli_args *args) {
    const char *path = args->n_words ? args->words[0] : NULL, *model = cli_option_value(args, "model");
    cli_sheet r = {.json = cli_option_value(args, "json") != NULL};
    cli_opened opened = {.takes_rewards = 1};
    int status;
    if (!path)
        return cli_say(CLI_WRONG, WHERE,
                       "a path is needed: the directory of a model, of an adapter, of a run or of a checkpoint, or a file of "
                       "trajectories");
    const int other = cli_is_groups(path) || (!model && (cli_is_run(path) || cli_is_checkpoint(path)));
    if (other && (status = refuse_sizes(args))) return status;
    if (cli_is_groups(path)) return cli_inspect_groups(args, path);
    if (cli_option_value(args, "chat-format")) return cli_say_option(WHERE, "chat-format", "is for a file of trajectories");
    if (!model && cli_is_run(path)) return cli_inspect_run(path, r.json);
    if (!model && cli_is_checkpoint(path)) return cli_inspect_checkpoint(args, path, r.json);
    const int is_model = rein_model_exists(path), is_adapter = cli_directory_has(path, "adapter_config.json");
    if (!is_model && !is_adapter) return nothing_there(path);
    if ((model || !is_model) && (status = refuse_sizes(args))) return status;
    if (model && !is_adapter)
        return cli_say(CLI_WRONG, WHERE, "\"%s\" has no adapter_config.json: --model is for an adapter, to check that it fits",
                       path);
    if (is_adapter && !is_model && !model) status = cli_inspect_adapter(&r, path);
    else {
        opened.name = model ? model : path;
        status = cli_opened_open(&opened, args);
        if (!status && model) status = inspect_fit(&r, path, &opened);
        else if (!status) {
            cli_inspect_model(&r, &opened);
            status = cli_inspect_parts(&r, &opened);
            if (!status) status = cli_inspect_gguf(&r, &opened);
            if (!status) status = cli_inspect_memory(&r, &opened, args);
        }
    }
    cli_opened_close(&opened);
    return cli_sheet_finish(&r, status);
}
