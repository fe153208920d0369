/* explain.c - `rein explain`: what a method computes, read from the library's own tables. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "help.h"
#include "nearest.h"
#include "objective.h"
#include "rein/rein.h"
#include "terminal.h"
#include "wrap.h"

enum { WIDTH = 80, VALUE = 40 };

/* A preset, and the same resolved, with 1 where a value is required. */
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
static rein_status explore(explained *e, const char *preset, rein_error *err) {
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

/* A token budget is required too where the shape uses one: it may come with the batch. */
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

/* ------------------------------------------------------------------------------------------------------------------- as text */

static void labelled(rein_text *out, const char *label, const char *text) {
    if (!text || !*text) return;
    rein_text_format(out, "  %-9s", label);
    rein_wrap(out, 11, WIDTH, text);
}

/* ",  " separates the parts of a formula: one line each. */
static void formula(rein_text *out, const char *text) {
    const char *label = "formula";
    while (*text) {
        const char *end = strstr(text, ",  ");
        size_t n = end ? (size_t)(end - text) : strlen(text);
        rein_text part = {0};
        rein_text_put_bytes(&part, text, n);
        if (part.data) labelled(out, label, part.data);
        rein_text_free(&part);
        label = "";
        text += n + (end ? 3 : 0);
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
        const int apart = strlen(info->name) >= 22; /* a name that leaves no room gets its own line */
        if (apart) rein_text_format(out, "  %s\n", info->name);
        rein_text_format(out, "  %-22s%-20s", apart ? "" : info->name,
                         state == REIN_OPTION_REQUIRED ? "required"
                         : state == REIN_OPTION_OFF    ? "not set"
                                                       : show_value(value, e, info));
        rein_wrap(out, 44, WIDTH, info->help);
    }
}

static void write_kl(rein_text *out, const rein_options *options) {
    const rein_kl_bias *bias;
    rein_text_put(out, "\nKL: what its gradient is in expectation, against that of KL(policy‖reference)\n");
    if (!rein_kl_bias_of(options, 0)) rein_text_put(out, "  No KL term: every KL coefficient is 0.\n");
    for (size_t i = 0; (bias = rein_kl_bias_of(options, i)); i++) {
        rein_text_format(out, "  %s\n    on-policy   ", bias->form);
        rein_wrap(out, 16, WIDTH, bias->on_policy);
        rein_text_put(out, "    off-policy  ");
        rein_wrap(out, 16, WIDTH, bias->off_policy);
        rein_text_put(out, "    ");
        rein_wrap(out, 4, WIDTH, bias->meaning);
    }
}

static void write_preset(rein_text *out, const rein_preset_info *info, const explained *e) {
    rein_text_format(out, "%s: %s\n", info->name, info->title);
    formula(out, info->formula);
    labelled(out, "for", info->purpose);
    labelled(out, "source", info->source);
    labelled(out, "note", info->note);
    write_options(out, e);
    write_kl(out, e->resolved);
    rein_text_format(out, "\nUse it: {\"preset\": \"%s\", ...} with rein objective policy-loss.\n", info->name);
}

/* ------------------------------------------------------------------------------------------------------------------- as JSON */

static void json_text(rein_text *out, const char *name, const char *text) {
    rein_json_put_name(out, name);
    rein_json_put_string(out, text ? text : "");
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

static void json_preset(rein_text *out, const rein_preset_info *info, const explained *e) {
    const rein_kl_bias *bias;
    rein_text_put(out, "{");
    json_text(out, "preset", info->name);
    json_text(out, "title", info->title);
    json_text(out, "formula", info->formula);
    json_text(out, "purpose", info->purpose);
    json_text(out, "source", info->source);
    json_text(out, "note", info->note);
    json_options(out, e);
    rein_json_put_name(out, "kl_bias");
    rein_text_put(out, "[");
    for (size_t i = 0; (bias = rein_kl_bias_of(e->resolved, i)); i++) {
        rein_text_put(out, i ? ", {" : "{");
        json_text(out, "form", bias->form);
        json_text(out, "on_policy", bias->on_policy);
        json_text(out, "off_policy", bias->off_policy);
        json_text(out, "meaning", bias->meaning);
        rein_text_put(out, "}");
    }
    rein_text_put(out, "]}");
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
    rein_status status = explore(&e, preset, err);
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

static rein_status write_table(rein_text *out, rein_error *err) {
    char rows[40][COLUMNS][CELL] = {{"preset", "surrogate", "advantage", "ratio", "KL", "aggregation", "source"}};
    size_t widths[COLUMNS] = {0}, n = 1;
    const char *preset;
    for (size_t i = 0; n < 40 && (preset = rein_preset_name(i)); i++, n++) {
        rein_status status = row_of(rows[n], preset, err);
        if (status) return status;
    }
    for (size_t r = 0; r < n; r++) {
        for (size_t c = 0; c < COLUMNS; c++)
            widths[c] = rein_columns(rows[r][c]) > widths[c] ? rein_columns(rows[r][c]) : widths[c];
    }
    for (size_t r = 0; r < n; r++) {
        for (size_t c = 0; c < COLUMNS; c++) {
            rein_text_put(out, rows[r][c]);
            rein_text_repeat(out, " ", c + 1 < COLUMNS ? widths[c] + 2 - rein_columns(rows[r][c]) : 0);
        }
        rein_text_put(out, "\n");
    }
    return REIN_OK;
}

static rein_status write_all(rein_text *out, int json, rein_error *err) {
    const char *preset;
    if (!json) return write_table(out, err);
    rein_text_put(out, "[");
    for (size_t i = 0; (preset = rein_preset_name(i)); i++) {
        explained e;
        rein_status status = explore(&e, preset, err);
        if (status) return status;
        if (i) rein_text_put(out, ",\n ");
        json_preset(out, rein_preset_describe(preset), &e);
        explained_free(&e);
    }
    rein_text_put(out, "]\n");
    return REIN_OK;
}

/* ------------------------------------------------------------------------------------------------------------- the operations */

static const struct about {
    const char *name, *formula, *source, *note;
} OPERATIONS[] = {
    {"budget-loss",
     "adjusted_i = r_i − λ·max(0, L_i − B)\nA_i = adjusted_i − mean over its prompt's responses\n"
     "loss = mean_i (A_i − τ·(lp_i − old_i))²\ndloss/dlp_i = −2τ·(A_i − τ·(lp_i − old_i))/N",
     "Kimi K2, arXiv 2507.20534, sec. 3.2.3",
     "λ is budget_penalty_coef, B token_budget, τ kl_coef; none of them is published. budget_rule truncate is the report's own "
     "rule: over "
     "the budget the reward is −budget_penalty."},
    {"gpo", "J = mean_i min(ρ_i A_i, clip(ρ_i, 1−ε, 1+ε) A_i) − β·mean_i ρ_i (q_i − log q_i − 1)",
     "after DeepSeek-V3.2, arXiv 2512.02556, eq. 7",
     "kl_direction says what the KL term estimates, over samples weighted by ρ:\n"
     "current_over_ref (default): q = π/π_ref. It estimates χ²(π‖ref) − KL(π‖ref): the same to second order near the reference, "
     "but not the KL, and explosive where the policy likes what the reference finds rare.\n"
     "ref_over_current: q = π_ref/π, as published. It is unbiased for KL(π‖ref)."},
    {"rlhf-update", "w' = w + lr·(1/N) Σ_i (R_i − β·(lp_i − ref_i))·G_i,  G_i = d lp_i/d w",
     "KL-regularised policy gradient (REINFORCE)",
     "The KL to the reference is k1 in the reward, not differentiated: its gradient is exact on-policy."},
    {"kl-advantage", "d_t = lp_t − ref_t\nA'_t = A_t + c·(mean of d over the scope − d_t), where mask is 1",
     "OpenPipe ART, pull request 562",
     "Tokens that drifted from the reference lose advantage and the others gain; the adjustment sums to zero over each scope. The "
     "gradient is that of KL(policy‖reference), but for the 1/n that a token has of its own centre."},
    {"policy-loss",
     "shape reward → advantage → adjust per token → ratio → surrogate → + KL, entropy → aggregate\n"
     "loss = Σ_t w_t·(ω_t·ℓ_t + β·k_t − c·H_t)",
     "the preset's: rein explain --all lists them",
     "Every stage is an option of its own; a preset is a row of choices. rein explain PRESET says which, with formula, source and "
     "defaults."},
    {"budget-control", "λ ← max(0, λ + η·(mean L − target))", "dual ascent on a constraint of the mean length",
     "Feed λ to budget_penalty_coef: it rises while responses are too long and falls once they are not."},
};

enum { N_OPERATIONS = sizeof OPERATIONS / sizeof *OPERATIONS };

static const struct about *about_of(const char *name) {
    for (size_t i = 0; i < N_OPERATIONS; i++) {
        if (!strcmp(name, OPERATIONS[i].name)) return &OPERATIONS[i];
    }
    return NULL;
}

static void write_operation(rein_text *out, const struct about *about, int json) {
    const rein_operation *operation = rein_operation_named(about->name);
    const char *gradients = operation->gradients ? operation->gradients : "none";
    if (json) {
        rein_text_put(out, "{");
        json_text(out, "operation", about->name);
        json_text(out, "title", operation->summary);
        json_text(out, "formula", about->formula);
        json_text(out, "source", about->source);
        json_text(out, "note", about->note);
        json_text(out, "takes", operation->arguments);
        json_text(out, "gives", operation->results);
        json_text(out, "gradients", gradients);
        rein_text_put(out, "}\n");
        return;
    }
    rein_text_format(out, "%s: %s\n", about->name, operation->summary);
    labelled(out, "formula", about->formula);
    labelled(out, "source", about->source);
    labelled(out, "note", about->note);
    labelled(out, "takes", operation->arguments);
    labelled(out, "gives", operation->results);
    labelled(out, "--grad", gradients);
    rein_text_put(out, "\nTry it:\n  echo '");
    rein_wrap(out, 8, WIDTH - 4, operation->example);
    if (!out->failed) out->length--; /* the newline: the quote closes on the same line */
    rein_text_format(out, "' |\n    rein objective %s\n", about->name);
}

/* ---------------------------------------------------------------------------------------------------------------- the command */

const char *rein_explained_at(size_t i) {
    size_t presets = 0;
    while (rein_preset_name(presets)) presets++;
    if (i < presets) return rein_preset_name(i);
    return i - presets < N_OPERATIONS ? OPERATIONS[i - presets].name : NULL;
}

static const char *explained_name(const void *list, size_t i) {
    (void)list;
    return rein_explained_at(i);
}

static int unknown_name(const char *name) {
    const char *nearest = rein_cli_nearest(name, explained_name, NULL);
    if (nearest) return rein_say(REIN_WRONG, "explain", "unknown preset \"%s\": did you mean \"%s\"?", name, nearest);
    return rein_say(REIN_WRONG, "explain", "unknown preset \"%s\": rein explain --all lists them", name);
}

int rein_run_explain(const rein_args *args) {
    rein_text out = {0};
    rein_error err = {0};
    explained e;
    rein_status status = REIN_OK;
    int json = rein_option_value(args, "json") != NULL, all = rein_option_value(args, "all") != NULL;
    const char *name = args->n_words ? args->words[0] : NULL;
    if (all && name) return rein_say(REIN_WRONG, "explain", "--all explains every preset: leave out \"%s\"", name);
    if (!all && !name) return rein_say(REIN_WRONG, "explain", "a preset is needed, such as grpo: rein explain --all lists them");
    const rein_preset_info *info = name ? rein_preset_describe(name) : NULL;
    const struct about *about = name ? about_of(name) : NULL;
    if (all) status = write_all(&out, json, &err);
    else if (about) write_operation(&out, about, json);
    else if (!info) return unknown_name(name);
    else if (!(status = explore(&e, name, &err))) {
        if (json) json_preset(&out, info, &e), rein_text_put(&out, "\n");
        else write_preset(&out, info, &e);
        explained_free(&e);
    }
    if (!status) return rein_print(&out);
    rein_text_free(&out);
    return rein_say(REIN_FAILED, "explain", "%s", err.message);
}
