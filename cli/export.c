/* export.c - `rein export`: a policy for other programs: a model directory, a GGUF file, or an adapter alone, as PEFT or llama.cpp have it. The
 * path goes to stdout; what loads it, with commands to try, to stderr. */
#include <stdio.h>
#include <string.h>

#include "policy.h"
#include "terminal.h"

static const char WHERE[] = "export";

typedef struct exporting {
    const cli_opened *opened;
    const char *to, *type;
    int gguf, alone; /* the file is GGUF; the adapter is written alone */
    rein_error err;
} exporting;

static int ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n > m && !strcmp(text + n - m, end);
}

/* ------------------------------------------------------------------------------------------------------------- what loads it */

/* The last part of the path without .gguf, in the letters of names. */
static const char *short_name(char to[64], const char *path) {
    const char *slash = strrchr(path, '/');
    size_t n = 0;
    for (const char *at = slash && slash[1] ? slash + 1 : path; *at && strcmp(at, ".gguf") != 0 && n < 60; at++)
        to[n++] = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9') ? *at : '-';
    return to[n] = 0, to;
}

static void show_gguf(const char *path) {
    char name[64];
    cli_say(CLI_DONE, WHERE, "llama.cpp loads it: llama-cli -m %s", path);
    cli_say(
        CLI_DONE, WHERE,
        "Ollama loads it: printf 'FROM %%s\\n' \"$(realpath %s)\" > Modelfile && ollama create %s -f Modelfile && ollama run %s",
        path, short_name(name, path), name);
    cli_say(CLI_DONE, WHERE, "rein loads it: rein chat %s", path);
}

static void show_gguf_adapter(const char *path) {
    cli_say(CLI_DONE, WHERE, "llama.cpp loads it beside its model: llama-cli -m MODEL.gguf --lora %s", path);
    cli_say(CLI_DONE, WHERE,
            "Ollama loads it: printf 'FROM %%s\\nADAPTER %%s\\n' MODEL.gguf \"$(realpath %s)\" > Modelfile && ollama create NAME "
            "-f Modelfile",
            path);
}

static void show_directory(const char *path) {
    cli_say(CLI_DONE, WHERE, "transformers loads it: AutoModelForCausalLM.from_pretrained(\"%s\")", path);
    cli_say(CLI_DONE, WHERE, "vLLM loads it: vllm serve %s", path);
    cli_say(CLI_DONE, WHERE, "rein loads it: rein chat %s", path);
}

static void show_reward_model(const exporting *e, const char *base) {
    if (!e->alone)
        cli_say(CLI_DONE, WHERE, "transformers loads it: AutoModelForSequenceClassification.from_pretrained(\"%s\")", e->to);
    else
        cli_say(
            CLI_DONE, WHERE,
            "peft loads it: PeftModel.from_pretrained(AutoModelForSequenceClassification.from_pretrained(\"%s\", num_labels=1), "
            "\"%s\")",
            base, e->to);
    cli_say(CLI_DONE, WHERE, "rein rewards with it: rein run RUN --reward model:%s", e->to);
}

static void show_adapter(const exporting *e) {
    char name[64];
    const char *base = rein_adapter_describe(e->opened->adapter).base;
    if (!*base) base = "MODEL";
    if (rein_adapter_describe(e->opened->adapter).score) {
        show_reward_model(e, base);
        return;
    }
    cli_say(CLI_DONE, WHERE, "peft loads it: PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(\"%s\"), \"%s\")", base,
            e->to);
    cli_say(CLI_DONE, WHERE, "vLLM loads it: vllm serve %s --enable-lora --lora-modules %s=%s", base, short_name(name, e->to),
            e->to);
    cli_say(CLI_DONE, WHERE, "rein loads it: rein chat %s --adapter %s", e->opened->directory, e->to);
}

static int has_score(const cli_opened *o) {
    return rein_model_describe(o->model).score || (o->adapter && rein_adapter_describe(o->adapter).score);
}

static void show_programs(const exporting *e) {
    if (e->gguf && e->alone) show_gguf_adapter(e->to);
    else if (e->gguf) show_gguf(e->to);
    else if (e->alone) show_adapter(e);
    else if (has_score(e->opened)) show_reward_model(e, "");
    else show_directory(e->to);
}

/* --------------------------------------------------------------------------------------------------------------------- writing */

/* Notes of the library, a line each. */
static void show_notes(rein_text *notes) {
    for (char *line = notes->data, *end; line && *line; line = end + 1) {
        end = strchr(line, '\n');
        *end = 0;
        cli_say(CLI_DONE, WHERE, "note: %s", line);
    }
    rein_text_free(notes);
}

static rein_status write_gguf(exporting *e) {
    rein_gguf_written written;
    rein_text notes = {0};
    const rein_status status =
        rein_model_save_gguf(&written, &notes, e->opened->model, e->opened->adapter, e->to, e->type, &e->err);
    show_notes(&notes);
    if (status) return status;
    cli_say(CLI_DONE, WHERE,
            "%lld tensors, %.1f MB; error against f32: %.3g of the weights (root of the mean square), at most %.3g",
            (long long)written.tensors, (double)written.bytes / 1e6, written.error, written.largest_error);
    if (written.not_blocks)
        cli_say(CLI_DONE, WHERE, "note: %lld matrices are F16: their rows are not a multiple of 32 numbers, so %s cannot have them",
                (long long)written.not_blocks, e->type);
    return status;
}

static rein_status write_one(exporting *e) {
    const cli_opened *o = e->opened;
    if (e->gguf && e->alone) return rein_adapter_save_gguf(o->adapter, e->to, &e->err);
    if (e->alone) return rein_adapter_save(o->adapter, e->to, &e->err);
    return e->gguf ? write_gguf(e) : rein_model_save(o->model, o->adapter, e->to, &e->err);
}

static int write_all(exporting *e) {
    if (e->alone && !e->opened->adapter)
        return cli_say_option(WHERE, "adapter-only", "and a policy without an adapter: %s has none", e->opened->name);
    if (write_one(e)) return cli_say_option_error(WHERE, "type", &e->err);
    show_programs(e);
    return CLI_DONE;
}

static int check_options(const exporting *e) {
    if (!e->to || !*e->to) return cli_say(CLI_WRONG, WHERE, "a directory or a file is needed: --to DIR or --to FILE.gguf");
    if (e->type && e->alone) return cli_say_option(WHERE, "type", "and --adapter-only are both given: an adapter is f32");
    if (e->type && !e->gguf)
        return cli_say_option(WHERE, "type",
                              "is for GGUF files, and %s is not named *.gguf: a directory keeps the types of the weights", e->to);
    return CLI_DONE;
}

int cli_run_export(const cli_args *args) {
    cli_opened opened = {.name = args->n_words ? args->words[0] : NULL, .files.step = -1, .takes_rewards = 1};
    exporting e = {.opened = &opened,
                   .to = cli_option_value(args, "to"),
                   .type = cli_option_value(args, "type"),
                   .alone = cli_option_value(args, "adapter-only") != NULL};
    rein_text out = {0};
    if (!opened.name) return cli_say(CLI_WRONG, WHERE, "a policy is needed: rein export %s", args->command->usage);
    e.gguf = e.to && ends_with(e.to, ".gguf");
    int status = check_options(&e);
    if (status) return status;
    status = cli_opened_open(&opened, args);
    if (!status) status = write_all(&e);
    cli_opened_close(&opened);
    rein_text_format(&out, "%s\n", e.to);
    return cli_print_result(&out, status);
}
