/* explain.c - `rein explain`: what a method computes, from the library's own tables, so that it cannot say anything else than it does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "help.h"
#include "nearest.h"
#include "objective.h"
#include "rein/rein.h"
#include "terminal.h"
#include "wrap.h"

enum { WIDTH = 80, MAX_OPTIONS = 64 };

typedef struct explained {
    rein_options options; /* resolved, with 1 where a value is required */
    rein_option_state states[MAX_OPTIONS];
    char values[MAX_OPTIONS][32];
} explained;

/* ---------------------------------------------------------------------------------------------------- asking the library's tables */

static rein_status explore(explained *e, const char *preset, rein_error *err) {
    const rein_option_info *info;
    rein_options resolved;
    memset(e, 0, sizeof *e);
    rein_status status = rein_preset(&e->options, preset, err);
    if (status) return status;
    for (size_t i = 0; i < MAX_OPTIONS && (info = rein_option_at(i)); i++) {
        e->states[i] = rein_options_state(&e->options, i);
        if (e->states[i] == REIN_OPTION_REQUIRED) rein_options_set(&e->options, info->name, "1", NULL);
    }
    e->options.given = 0;
    status = rein_options_resolve(&resolved, &e->options, err);
    if (status) return status;
    for (size_t i = 0; i < MAX_OPTIONS && (info = rein_option_at(i)); i++) {
        char number[32];
        rein_options_get(e->values[i], sizeof e->values[i], &resolved, info->name, NULL);
        snprintf(number, sizeof number, "%.15g", strtod(e->values[i], NULL)); /* 0.0003, not 0.00029999999999999997 */
        if (!info->choices && e->values[i][0] && strtod(number, NULL) == strtod(e->values[i], NULL)) strcpy(e->values[i], number);
        const int budget =
            resolved.shape == REIN_SHAPE_BUDGET || resolved.shape == REIN_SHAPE_TRUNCATE; /* it may come with the batch */
        if (budget && !strcmp(info->name, "token_budget") && !e->values[i][0]) e->states[i] = REIN_OPTION_REQUIRED;
    }
    e->options = resolved;
    return REIN_OK;
}

static const char *value_of(const explained *e, const char *name) {
    const rein_option_info *info;
    for (size_t i = 0; i < MAX_OPTIONS && (info = rein_option_at(i)); i++) {
        if (strcmp(info->name, name) != 0) continue;
        return e->states[i] == REIN_OPTION_REQUIRED ? "?" : e->states[i] == REIN_OPTION_SET ? e->values[i] : "-";
    }
    return "";
}

/* ------------------------------------------------------------------------------------------------------------------- as text */

static void labelled(rein_text *out, const char *label, const char *text) {
    if (!text || !*text) return;
    rein_text_format(out, "  %-9s", label);
    rein_wrap(out, 11, WIDTH, text);
}

/* ",  " divides the parts of a formula: a line each. */
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
    for (size_t i = 0; i < MAX_OPTIONS && (info = rein_option_at(i)); i++) {
        if (e->states[i] == REIN_OPTION_IDLE || (e->states[i] == REIN_OPTION_OFF && !info->stage)) continue;
        if (strcmp(stage, info->stage) != 0) rein_text_format(out, "\n%s\n", stage = info->stage);
        const int apart = strlen(info->name) >= 22; /* a name that leaves no room has a line of its own */
        if (apart) rein_text_format(out, "  %s\n", info->name);
        rein_text_format(out, "  %-22s%-20s", apart ? "" : info->name,
                         e->states[i] == REIN_OPTION_REQUIRED ? "required"
                         : e->states[i] == REIN_OPTION_OFF    ? "not set"
                                                              : e->values[i]);
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
    write_kl(out, &e->options);
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
    for (size_t i = 0; i < MAX_OPTIONS && (info = rein_option_at(i)); i++) {
        if (e->states[i] == REIN_OPTION_IDLE) continue;
        rein_json_put_name(out, info->name);
        if (e->states[i] != REIN_OPTION_SET) rein_text_put(out, "null");
        else if (info->choices) rein_json_put_string(out, e->values[i]);
        else rein_json_put_double(out, strtod(e->values[i], NULL));
    }
    rein_text_put(out, "}");
    rein_json_put_name(out, "required");
    rein_text_put(out, "[");
    for (size_t i = 0; i < MAX_OPTIONS && (info = rein_option_at(i)); i++) {
        if (e->states[i] == REIN_OPTION_REQUIRED) rein_text_format(out, "%s\"%s\"", required++ ? ", " : "", info->name);
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
    for (size_t i = 0; (bias = rein_kl_bias_of(&e->options, i)); i++) {
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
    const char *reward = value_of(e, "kl_reward_coef"), *penalty = value_of(e, "kl_penalty_coef"),
               *loss = value_of(e, "kl_loss_coef");
    if (e->options.kl_reward_coef != 0) snprintf(cell, CELL, "reward %s", reward);
    else if (e->options.kl_penalty_coef != 0) snprintf(cell, CELL, "advantage %s", penalty);
    else if (e->options.kl_loss_coef != 0) snprintf(cell, CELL, "loss %s %s", value_of(e, "kl_estimator"), loss);
    else snprintf(cell, CELL, "-");
}

/* The arXiv number, or, where there is none, what stands before the first comma. */
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
        if (options[c]) snprintf(row[c], CELL, "%s", value_of(&e, options[c]));
    }
    snprintf(row[0], CELL, "%s", preset);
    kl_cell(row[4], &e);
    source_cell(row[6], rein_preset_describe(preset)->source);
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
    }
    if (!status) return rein_print(&out);
    rein_text_free(&out);
    return rein_say(REIN_FAILED, "explain", "%s", err.message);
}
