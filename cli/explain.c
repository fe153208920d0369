/* explain.c - `rein explain`: what a method computes, from the tables of the library and of the operations. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "explain_option.h"
#include "help.h"
#include "nearest.h"
#include "rein/rein.h"
#include "terminal.h"
#include "wrap.h"

enum { WIDTH = 80, VALUE = 40 };

/* A preset, and the same resolved, with 1 in place of every required value. */
typedef struct explained {
    rein_options *preset, *resolved;
} explained;

/* ------------------------------------------------------------------------------------------------ reading the library's tables */

static void explained_free(explained *e) {
    rein_options_free(e->preset);
    rein_options_free(e->resolved);
    *e = (explained){0};
}

/* On success the caller frees *e. */
static rein_status resolve(explained *e, const char *preset, rein_error *err) {
    const rein_option_info *info;
    *e = (explained){0};
    rein_status status = rein_options_new(&e->preset, preset, err);
    if (!status) status = rein_options_copy(&e->resolved, e->preset, err);
    for (size_t i = 0; !status && (info = rein_option_at(i)); i++)
        if (rein_options_state(e->preset, i) == REIN_OPTION_REQUIRED)
            status = rein_options_set_number(e->resolved, info->name, 1, err);
    if (!status) status = rein_options_resolve(e->resolved, e->resolved, err);
    if (status) explained_free(e);
    return status;
}

static double number_of(const explained *e, const char *name) {
    double x = NAN;
    rein_options_get_number(&x, e->resolved, name, NULL);
    return x;
}

static const char *word_of(const explained *e, const char *name) {
    const char *word = "";
    rein_options_get(&word, e->resolved, name, NULL);
    return word;
}

/* A shape that uses a token budget requires one, which the batch may give instead. */
static rein_option_state state_of(const explained *e, size_t i) {
    const char *shape = word_of(e, "shape");
    const int needs_budget = !strcmp(shape, "budget") || !strcmp(shape, "truncate");
    if (needs_budget && !strcmp(rein_option_at(i)->name, "token_budget") && isnan(number_of(e, "token_budget")))
        return REIN_OPTION_REQUIRED;
    return rein_options_state(e->preset, i);
}

/* The value as text: 0.0003, not 0.00029999999999999997. */
static const char *show_value(char text[VALUE], const explained *e, const rein_option_info *info) {
    const double x = number_of(e, info->name);
    if (info->choices) return word_of(e, info->name);
    snprintf(text, VALUE, "%.15g", x);
    if (strtod(text, NULL) != x) snprintf(text, VALUE, "%.17g", x);
    return isnan(x) ? "" : text;
}

/* The value in a cell of the table: "?" if it is required, "-" if there is none. */
static const char *cell_value(char text[VALUE], const explained *e, const char *name) {
    const rein_option_info *info;
    for (size_t i = 0; (info = rein_option_at(i)); i++) {
        if (strcmp(info->name, name) != 0) continue;
        const rein_option_state state = state_of(e, i);
        return state == REIN_OPTION_REQUIRED ? "?" : state == REIN_OPTION_SET ? show_value(text, e, info) : "-";
    }
    return "";
}

/* --------------------------------------------------------------------------------------------------- descriptions, as text and JSON */

/* One line of a description. label NULL: only JSON has it. */
typedef struct row {
    const char *label, *key, *text;
} row;

static void json_text(rein_text *out, const char *name, const char *text) {
    rein_json_put_name(out, name);
    rein_json_put_string(out, text ? text : "");
}

static void json_rows(rein_text *out, const row *rows, size_t n) {
    for (size_t i = 0; i < n; i++) json_text(out, rows[i].key, rows[i].text);
}

/* ",  " separates the parts of a formula: each is on its own line. */
static void text_rows(rein_text *out, const row *rows, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const char *end, *label = rows[i].label, *text = rows[i].text;
        for (; label && text && *text; text = end ? end + 3 : "", label = "") {
            rein_text part = {0};
            end = strstr(text, ",  ");
            rein_text_put_bytes(&part, text, end ? (size_t)(end - text) : strlen(text));
            rein_text_format(out, "  %-9s", label);
            cli_wrap(out, 11, WIDTH, part.data ? part.data : "");
            rein_text_free(&part);
        }
    }
}

static void write_options(rein_text *out, const explained *e) {
    const rein_option_info *info;
    const char *stage = "";
    for (size_t i = 0; (info = rein_option_at(i)); i++) {
        const rein_option_state state = state_of(e, i);
        char value[VALUE];
        if (state == REIN_OPTION_IDLE) continue;
        if (strcmp(stage, info->stage) != 0) rein_text_format(out, "\n%s\n", stage = info->stage);
        const int apart = strlen(info->name) >= 22; /* a long name has its own line */
        if (apart) rein_text_format(out, "  %s\n", info->name);
        rein_text_format(out, "  %-22s%-20s", apart ? "" : info->name,
                         state == REIN_OPTION_REQUIRED ? "required"
                         : state == REIN_OPTION_OFF    ? "not set"
                                                       : show_value(value, e, info));
        cli_wrap(out, 44, WIDTH, info->help);
    }
}

static int is_preference(const explained *e) { return strcmp(word_of(e, "preference_loss"), "none") != 0; }

static void write_kl(rein_text *out, const explained *e) {
    const rein_options *options = e->resolved;
    const rein_kl_bias *bias;
    rein_text_put(out, "\nKL: the expectation of its gradient, compared with that of KL(policy‖reference)\n");
    if (!rein_kl_bias_of(options, 0))
        rein_text_put(out, is_preference(e) ? "  No KL term: the reference, if there is one, is part of the loss over pairs.\n"
                                            : "  No KL term: every KL coefficient is 0.\n");
    for (size_t i = 0; (bias = rein_kl_bias_of(options, i)); i++) cli_explain_kl(out, bias);
}

static void json_options(rein_text *out, const explained *e) {
    const rein_option_info *info;
    size_t required = 0;
    rein_json_put_name(out, "options");
    rein_text_put(out, "{");
    for (size_t i = 0; (info = rein_option_at(i)); i++) {
        const rein_option_state state = state_of(e, i);
        if (state == REIN_OPTION_IDLE) continue;
        rein_json_put_name(out, info->name);
        if (state != REIN_OPTION_SET) rein_text_put(out, "null");
        else if (info->choices) rein_json_put_string(out, word_of(e, info->name));
        else rein_json_put_double(out, number_of(e, info->name));
    }
    rein_text_put(out, "}");
    rein_json_put_name(out, "required");
    rein_text_put(out, "[");
    for (size_t i = 0; (info = rein_option_at(i)); i++) {
        if (state_of(e, i) == REIN_OPTION_REQUIRED) rein_text_format(out, "%s\"%s\"", required++ ? ", " : "", info->name);
    }
    rein_text_put(out, "]");
}

static void json_kl(rein_text *out, const rein_options *options) {
    const rein_kl_bias *bias;
    rein_json_put_name(out, "kl_bias");
    rein_text_put(out, "[");
    for (size_t i = 0; (bias = rein_kl_bias_of(options, i)); i++) {
        const row rows[] = {{NULL, "form", bias->form},
                            {NULL, "on_policy", bias->on_policy},
                            {NULL, "off_policy", bias->off_policy},
                            {NULL, "meaning", bias->meaning}};
        rein_text_put(out, i ? ", {" : "{");
        json_rows(out, rows, sizeof rows / sizeof *rows);
        rein_text_put(out, "}");
    }
    rein_text_put(out, "]");
}

static rein_status write_preset(rein_text *out, const rein_preset_info *info, int json, rein_error *err) {
    const row rows[] = {{NULL, "preset", info->name},          {NULL, "title", info->title},
                        {"formula", "formula", info->formula}, {"for", "purpose", info->purpose},
                        {"source", "source", info->source},    {"note", "note", info->note}};
    explained e;
    const rein_status status = resolve(&e, info->name, err);
    if (status) return status;
    if (json) {
        rein_text_put(out, "{");
        json_rows(out, rows, sizeof rows / sizeof *rows);
        json_options(out, &e);
        json_kl(out, e.resolved);
        rein_text_put(out, "}");
    } else {
        rein_text_format(out, "%s: %s\n", info->name, info->title);
        text_rows(out, rows, sizeof rows / sizeof *rows);
        write_options(out, &e);
        write_kl(out, &e);
        rein_text_format(out,
                         is_preference(&e) ? "\nUse it: rein run RUN --preset %s --model DIR --task TASK."
                                           : "\nUse it: {\"preset\": \"%s\", ...} with rein objective policy-loss.",
                         info->name);
    }
    explained_free(&e);
    return REIN_OK;
}

static void write_operation(rein_text *out, const rein_operation_info *o, int json) {
    const row rows[] = {{NULL, "operation", o->name},       {NULL, "title", o->summary},
                        {"formula", "formula", o->formula}, {"source", "source", o->source},
                        {"note", "note", o->note},          {"takes", "takes", o->arguments},
                        {"gives", "gives", o->results},     {"--grad", "gradients", o->gradients ? o->gradients : "none"}};
    if (json) {
        rein_text_put(out, "{");
        json_rows(out, rows, sizeof rows / sizeof *rows);
        rein_text_put(out, "}");
        return;
    }
    rein_text_format(out, "%s: %s\n", o->name, o->summary);
    text_rows(out, rows, sizeof rows / sizeof *rows);
    rein_text_put(out, "\nTry it:\n  echo '");
    cli_wrap(out, 8, WIDTH - 4, o->example);
    if (!out->failed) out->length--; /* the newline: the quote closes on the same line */
    rein_text_format(out, "' |\n    rein objective %s", o->name);
}

/* A constant of a loss over preferences with its published value: NaN where there is none. */
typedef struct constant {
    const char *name, *help;
    double published;
} constant;

enum { PREFERENCE_CONSTANTS = 6 };

static void preference_constants(constant constants[PREFERENCE_CONSTANTS], rein_preference loss) {
    const rein_preference_options o = rein_preference_published(loss);
    const constant all[PREFERENCE_CONSTANTS] = {
        {"beta", "scale of the rewards; above 0", o.beta},
        {"label_smoothing", "ε: the share of wrong labels", o.label_smoothing},
        {"simpo_gamma", "γ: the margin of the reward", o.simpo_gamma},
        {"cpo_alpha", "α: weight of the log-likelihood of the chosen completion", o.cpo_alpha},
        {"desirable_weight", "λ_D: weight of desirable completions", o.desirable_weight},
        {"undesirable_weight", "λ_U: weight of undesirable completions", o.undesirable_weight}};
    memcpy(constants, all, sizeof all);
}

static int needs_smoothing(const rein_preference_info *info, const constant *c) {
    return !strcmp(c->name, "label_smoothing") && (info->loss == REIN_PREFERENCE_CDPO || info->loss == REIN_PREFERENCE_ROBUST);
}

static void preference_options(rein_text *out, const rein_preference_info *info, int json) {
    constant constants[PREFERENCE_CONSTANTS];
    size_t n = 0;
    preference_constants(constants, info->loss);
    for (size_t i = 0; i < PREFERENCE_CONSTANTS; i++) {
        const constant *c = &constants[i];
        const int required = needs_smoothing(info, c);
        if (isnan(c->published) && !required) continue;
        if (json && required) rein_text_format(out, "%s\"%s\": null", n++ ? ", " : "", c->name);
        else if (json) rein_text_format(out, "%s\"%s\": %.15g", n++ ? ", " : "", c->name, c->published);
        else if (required) rein_text_format(out, "  %-20s%-10s", c->name, "required");
        else rein_text_format(out, "  %-20s%-10.15g", c->name, c->published);
        if (!json) cli_wrap(out, 32, WIDTH, c->help);
    }
}

static void write_preference(rein_text *out, const rein_preference_info *info, int json) {
    const char *uses = info->loss == REIN_PREFERENCE_KTO            ? "log-probs of the policy and of the reference, labels, kl"
                       : info->uses_reference && info->uses_lengths ? "log-probs of the policy and of the reference, lengths"
                       : info->uses_reference                       ? "log-probs of the policy and of the reference"
                                                                    : "log-probs of the policy, lengths; no reference";
    const row rows[] = {{NULL, "loss", info->name},         {NULL, "title", info->title}, {"formula", "formula", info->formula},
                        {"source", "source", info->source}, {"note", "note", info->note}, {"takes", "takes", uses}};
    if (json) rein_text_put(out, "{");
    else rein_text_format(out, "%s: %s\n", info->name, info->title);
    if (json) json_rows(out, rows, sizeof rows / sizeof *rows);
    else text_rows(out, rows, sizeof rows / sizeof *rows);
    if (json) rein_json_put_name(out, "options");
    rein_text_put(out, json ? "{" : "\n");
    preference_options(out, info, json);
    rein_text_put(out, json ? "}}" : "\n");
    if (json) return;
    cli_wrap(
        out, 0, WIDTH,
        "s is the sum of the log-probs of a completion, n its number of tokens, w the chosen completion, l the rejected one, σ the "
        "logistic function; the loss is the mean over pairs (kto: over completions).");
    rein_text_format(out, "\nUse it: {\"loss\": \"%s\", ...} with rein objective preference-loss.", info->name);
}

/* ------------------------------------------------------------------------------------------------------------- all the presets */

enum { COLUMNS = 7, CELL = 160 };

static void kl_cell(char cell[CELL], const explained *e) {
    char text[VALUE];
    if (number_of(e, "kl_reward_coef") != 0) snprintf(cell, CELL, "reward %s", cell_value(text, e, "kl_reward_coef"));
    else if (number_of(e, "kl_penalty_coef") != 0) snprintf(cell, CELL, "advantage %s", cell_value(text, e, "kl_penalty_coef"));
    else if (number_of(e, "kl_loss_coef") != 0)
        snprintf(cell, CELL, "loss %s %s", word_of(e, "kl_estimator"), cell_value(text, e, "kl_loss_coef"));
    else snprintf(cell, CELL, "-");
}

/* The arXiv number, or, where there is none, the text before the first comma. */
static void source_cell(char cell[CELL], const char *source) {
    const char *number = strstr(source, "arXiv ");
    if (number) snprintf(cell, CELL, "arXiv %.*s", (int)strcspn(number + 6, ",; "), number + 6);
    else snprintf(cell, CELL, "%.*s", (int)strcspn(source, ",;"), source);
}

static rein_status row_of(char row[COLUMNS][CELL], const char *preset, rein_error *err) {
    static const char *const options[COLUMNS] = {NULL, "surrogate", "advantage", "ratio", NULL, "aggregation", NULL};
    explained e;
    const rein_status status = resolve(&e, preset, err);
    if (status) return status;
    for (size_t c = 0; c < COLUMNS; c++) {
        char text[VALUE];
        if (options[c]) snprintf(row[c], CELL, "%s", cell_value(text, &e, options[c]));
    }
    snprintf(row[0], CELL, "%s", preset);
    kl_cell(row[4], &e);
    source_cell(row[6], rein_preset_describe(preset)->source);
    explained_free(&e);
    return REIN_OK;
}

static void write_rows(rein_text *out, char (*rows)[COLUMNS][CELL], size_t n) {
    size_t widths[COLUMNS] = {0};
    for (size_t r = 0; r < n; r++)
        for (size_t c = 0; c < COLUMNS; c++) widths[c] = cli_columns(rows[r][c]) > widths[c] ? cli_columns(rows[r][c]) : widths[c];
    for (size_t r = 0; r < n; r++) {
        if (r) rein_text_put(out, "\n");
        for (size_t c = 0; c < COLUMNS; c++) {
            rein_text_put(out, rows[r][c]);
            rein_text_repeat(out, " ", c + 1 < COLUMNS ? widths[c] + 2 - cli_columns(rows[r][c]) : 0);
        }
    }
}

static rein_status write_table(rein_text *out, rein_error *err) {
    static const char titles[COLUMNS][CELL] = {"preset", "surrogate", "advantage", "ratio", "KL", "aggregation", "source"};
    size_t n = 1; /* rows, the first with the titles */
    while (rein_preset_name(n - 1)) n++;
    char(*rows)[COLUMNS][CELL] = calloc(n, sizeof *rows);
    if (!rows) return rein_fail(err, REIN_ENOMEM, "no memory for %zu rows", n);
    rein_status status = REIN_OK;
    memcpy(rows[0], titles, sizeof titles);
    for (size_t i = 1; i < n && !status; i++) status = row_of(rows[i], rein_preset_name(i - 1), err);
    if (!status) write_rows(out, rows, n);
    free(rows);
    return status;
}

static rein_status write_all(rein_text *out, int json, rein_error *err) {
    rein_status status = json ? REIN_OK : write_table(out, err);
    if (!json) return status;
    for (size_t i = 0; !status && rein_preset_name(i); i++) {
        rein_text_put(out, i ? ",\n " : "[");
        status = write_preset(out, rein_preset_describe(rein_preset_name(i)), 1, err);
    }
    rein_text_put(out, "]");
    return status;
}

/* ---------------------------------------------------------------------------------------------------------------- the command */

const char *cli_explained_at(size_t i) {
    size_t presets = 0;
    while (rein_preset_name(presets)) presets++;
    if (i < presets) return rein_preset_name(i);
    size_t operations = 0;
    while (cli_operation_word(operations)) operations++;
    if (i < presets + operations) return cli_operation_word(i - presets);
    if (i == presets + operations) return "symbols";
    i -= presets + operations + 1;
    size_t losses = 0;
    while (rein_preference_at(losses)) losses++;
    if (i < losses) return rein_preference_at(i)->name;
    const cli_setting *s = cli_setting_at(i - losses);
    return s ? s->option : NULL;
}

int cli_run_explain(const cli_args *args) {
    rein_text out = {0};
    rein_error err = {0};
    rein_status status = REIN_OK;
    const int json = cli_option_value(args, "json") != NULL, all = cli_option_value(args, "all") != NULL;
    const char *name = args->n_words ? args->words[0] : NULL;
    if (all && name) return cli_say(CLI_WRONG, "explain", "--all explains every preset: leave out \"%s\"", name);
    if (!all && !name)
        return cli_say(CLI_WRONG, "explain",
                       "a preset, an operation or an option is needed, such as grpo: rein explain --all lists the presets");
    const rein_preset_info *preset = name ? rein_preset_describe(name) : NULL;
    const rein_operation_info *operation = name ? rein_operation_describe(name) : NULL;
    const rein_preference_info *preference = name ? rein_preference_describe(name) : NULL;
    const cli_setting *option = name ? cli_explained_option(name) : NULL;
    if (all) status = write_all(&out, json, &err);
    else if (operation) write_operation(&out, operation, json);
    else if (preference) write_preference(&out, preference, json);
    else if (preset) status = write_preset(&out, preset, json, &err);
    else if (option) cli_explain_option(&out, option, json);
    else if (!strcmp(name, "symbols")) cli_explain_symbols(&out, json);
    else
        return cli_say_unknown("explain", "name", name, cli_explained_at,
                               "rein explain --all lists the presets, rein run --help the options");
    rein_text_put(&out, "\n");
    return cli_print_result(&out, status ? cli_say(CLI_FAILED, "explain", "%s", err.message) : CLI_DONE);
}
