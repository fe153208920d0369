/* inspect_model.c - the parts of a model, and the memory it needs. In JSON both are objects of the library; in a text each is a line. */
#include "inspect_model.h"

#include <stdio.h>
#include <string.h>

#include "terminal.h"
#include "values.h"

static const char WHERE[] = "inspect";

/* ----------------------------------------------------------------------------------------------------------------------- parts */

static void put_rope(rein_text *out, const rein_json *rope) {
    const char *type = rein_json_string(rein_json_get(rope, "type"));
    const rein_json *factor = rein_json_get(rope, "factor"), *share = rein_json_get(rope, "share_of_head"),
                    *attention = rein_json_get(rope, "attention_factor");
    if (rein_json_kind_of(rope) != REIN_JSON_OBJECT) {
        rein_text_put(out, "no rope");
        return;
    }
    rein_text_format(out, "rope base %.9g", rein_json_number(rein_json_get(rope, "base")));
    if (type) rein_text_format(out, ", %s", type);
    if (factor) rein_text_format(out, " %.9g", rein_json_number(factor));
    if (share) rein_text_format(out, ", %.9g of each head", rein_json_number(share));
    if (attention) rein_text_format(out, ", attention factor %.9g", rein_json_number(attention));
}

static void put_layers(rein_text *out, const rein_json *group) {
    const char *layers = rein_json_string(rein_json_get(group, "layers"));
    const rein_json *window = rein_json_get(group, "window");
    rein_text_format(out, "%s %s: ", strpbrk(layers, "-,") ? "layers" : "layer", layers);
    if (rein_json_kind_of(window) == REIN_JSON_NUMBER) rein_text_format(out, "window %.0f, ", rein_json_number(window));
    else rein_text_put(out, "all keys, ");
    put_rope(out, rein_json_get(group, "rope"));
    const rein_json *experts = rein_json_get(group, "experts");
    if (experts)
        rein_text_format(out, ", %.0f of %.0f experts of width %.0f", rein_json_number(rein_json_get(experts, "per_token")),
                         rein_json_number(rein_json_get(experts, "n")), rein_json_number(rein_json_get(experts, "intermediate")));
}

/* Strings are joined; groups of layers get a line each. */
static void put_list(cli_sheet *r, const char *name, const rein_json *list) {
    cli_sheet_name(r, name);
    if (!rein_json_size(list)) rein_text_put(&r->out, "none");
    for (size_t i = 0; i < rein_json_size(list); i++) {
        const rein_json *entry = rein_json_at(list, i);
        if (rein_json_kind_of(entry) == REIN_JSON_STRING) {
            rein_text_format(&r->out, "%s%s", i ? " " : "", rein_json_string(entry));
            continue;
        }
        if (i) cli_sheet_end(r), cli_sheet_name(r, name);
        put_layers(&r->out, entry);
    }
    cli_sheet_end(r);
}

static void put_part(cli_sheet *r, const char *name, const rein_json *value) {
    switch (rein_json_kind_of(value)) {
    case REIN_JSON_BOOLEAN:
        if (!strcmp(name, "text_part") && rein_json_true(value))
            cli_sheet_text(r, name, "yes: only the text model inside a larger one is used; its other tensors are ignored");
        else cli_sheet_yes(r, name, rein_json_true(value));
        break;
    case REIN_JSON_NUMBER: cli_sheet_number(r, name, rein_json_number(value)); break;
    case REIN_JSON_ARRAY: put_list(r, name, value); break;
    default: cli_sheet_text(r, name, rein_json_string(value));
    }
}

int cli_inspect_parts(cli_sheet *r, const cli_opened *opened) {
    rein_text text = {0};
    rein_error err = {0};
    rein_json *parts = NULL;
    const char *name;
    const rein_json *value;
    rein_status status = rein_model_description(&text, opened->directory, &err);
    if (!status) status = rein_json_parse(&parts, text.data, text.length, NULL, REIN_JSON_NEEDS_OBJECT, &err);
    for (void *at = NULL; parts && (at = rein_json_next(&name, &value, parts, at));)
        if (r->json) cli_sheet_value(r, name, value);
        else put_part(r, name, value);
    rein_json_free(parts);
    rein_text_free(&text);
    return status ? cli_say_error(WHERE, &err) : CLI_DONE;
}

/* ------------------------------------------------------------------------------------------------------------------------ GGUF */

static void put_types(cli_sheet *r, const rein_json *types) {
    for (size_t i = 0; i < rein_json_size(types); i++) {
        const rein_json *entry = rein_json_at(types, i);
        cli_sheet_name(r, "tensors");
        rein_text_format(&r->out, "%-5s %.0f, %.1f MiB", rein_json_string(rein_json_get(entry, "type")),
                         rein_json_number(rein_json_get(entry, "tensors")),
                         rein_json_number(rein_json_get(entry, "bytes")) / 1048576);
        cli_sheet_end(r);
    }
}

static void put_metadata(cli_sheet *r, const rein_json *metadata) {
    const char *name;
    const rein_json *value;
    for (void *at = NULL; (at = rein_json_next(&name, &value, metadata, at));) {
        cli_sheet_name(r, "metadata");
        rein_text_format(&r->out, "%s ", name);
        rein_json_put_value(&r->out, value);
        cli_sheet_end(r);
    }
}

int cli_inspect_gguf(cli_sheet *r, const cli_opened *opened) {
    rein_text text = {0};
    rein_error err = {0};
    rein_json *parts = NULL;
    if (!rein_model_is_gguf(opened->directory)) return CLI_DONE;
    rein_status status = rein_gguf_description(&text, opened->directory, &err);
    if (!status) status = rein_json_parse(&parts, text.data, text.length, NULL, REIN_JSON_NEEDS_OBJECT, &err);
    if (!status && r->json) cli_sheet_value(r, "gguf", parts);
    else if (!status) put_types(r, rein_json_get(parts, "types")), put_metadata(r, rein_json_get(parts, "metadata"));
    rein_json_free(parts);
    rein_text_free(&text);
    return status ? cli_say_error(WHERE, &err) : CLI_DONE;
}

/* ---------------------------------------------------------------------------------------------------------------------- memory */

static const struct {
    const char *name, *rank, *full;
    rein_memory_parts parts;
} USES[] = {{"memory_sampling", "8", "no", REIN_MEMORY_SAMPLING},
            {"memory_lora", "8", "no", REIN_MEMORY_TRAINING},
            {"memory_full", "8", "yes", REIN_MEMORY_TRAINING}};

static rein_status set_whole(rein_settings *settings, const char *name, uint64_t value, rein_error *err) {
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    return rein_settings_set(settings, name, text, err);
}

static rein_status estimate(rein_memory_use *use, size_t i, const cli_opened *opened, uint64_t tokens, uint64_t samples,
                            rein_error *err) {
    rein_settings *settings = NULL;
    rein_status status = rein_settings_new(&settings, err);
    if (!status) status = rein_settings_set(settings, "model", opened->directory, err);
    if (!status) status = rein_settings_set(settings, "lora_rank", USES[i].rank, err);
    if (!status) status = rein_settings_set(settings, "full", USES[i].full, err);
    if (!status) status = set_whole(settings, "max_tokens", tokens, err);
    if (!status) status = set_whole(settings, "samples", samples, err);
    if (!status) status = set_whole(settings, "prompts", 1, err);
    if (!status) status = set_whole(settings, "threads", (uint64_t)opened->exec.threads, err);
    if (!status) status = rein_memory_estimate(use, settings, USES[i].parts, 0, err);
    rein_settings_free(settings);
    return status;
}

int cli_inspect_memory(cli_sheet *r, const cli_opened *opened, const cli_args *args) {
    const uint64_t context = (uint64_t)opened->info.max_positions;
    uint64_t tokens = context < 1024 ? context : 1024, samples = 8;
    rein_error err = {0};
    int status = cli_value_whole(&tokens, args, "tokens", 1, context);
    if (!status) status = cli_value_whole(&samples, args, "samples", 1, 65536);
    if (status) return status;
    cli_sheet_count(r, "memory_tokens", (int64_t)tokens);
    cli_sheet_count(r, "memory_samples", (int64_t)samples);
    for (size_t i = 0; i < sizeof USES / sizeof *USES; i++) {
        rein_memory_use use;
        if (estimate(&use, i, opened, tokens, samples, &err)) return cli_say_error(WHERE, &err);
        cli_sheet_bytes(r, USES[i].name, (int64_t)use.total);
    }
    return CLI_DONE;
}
