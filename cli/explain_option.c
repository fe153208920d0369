/* explain_option.c - `rein explain OPTION` and `rein explain symbols`: one setting, with its value in every preset; and the symbols that
 * the formulas use. */
#include "explain_option.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "settings.h"
#include "wrap.h"

enum { WIDTH = 80, INDENT = 12 };

/* --------------------------------------------------------------------------------------------------------------------- symbols */

static const struct {
    const char *symbol, *meaning;
} SYMBOLS[] = {{"r, r'", "the reward of a response; after shaping (length penalties, KL in the reward)"},
               {"A", "the advantage: how much better a response is than expected; of a response (A_i) or of a token (A_t)"},
               {"K, N", "responses to one prompt; responses in the step"},
               {"L, B", "the length of a response in tokens; its token budget"},
               {"lp, old, ref", "log-probability of a token under the policy that trains, the one that sampled, the reference"},
               {"d", "lp - old"},
               {"ρ", "the ratio of the policies, exp(d)"},
               {"s", "the ratio of a whole response, exp(mean d)"},
               {"ε, ε_h", "epsilon, epsilon_high: how far below and above 1 a ratio may go before it is clipped"},
               {"β", "the weight of the KL: kl_reward_coef, kl_penalty_coef or kl_loss_coef"},
               {"k1, k2, k3", "estimators of the KL per token; with x = ref - lp: -x, x²/2, exp(x) - 1 - x"},
               {"τ", "tau: the strength of the regularisation to the old policy (k1.5, k2), or a temperature (sapo)"},
               {"λ", "budget_penalty_coef: the reward lost per token over the budget; in ppo gae_lambda"},
               {"γ, δ", "gae_gamma, the discount; the temporal difference r + γ·value' - value"},
               {"σ", "the logistic function 1/(1 + exp(-x))"},
               {"stop", "the value counts, its gradient does not"},
               {"|o|", "the number of trained tokens of a response"},
               {"mean, std", "over the responses to one prompt"}};

void cli_explain_symbols(rein_text *out, int json) {
    rein_text_put(out, json ? "{" : "The symbols of the formulas\n");
    for (size_t i = 0; i < sizeof SYMBOLS / sizeof *SYMBOLS; i++) {
        if (json) {
            rein_json_put_name(out, SYMBOLS[i].symbol);
            rein_json_put_string(out, SYMBOLS[i].meaning);
            continue;
        }
        rein_text_put(out, "  ");
        rein_text_put(out, SYMBOLS[i].symbol);
        rein_text_repeat(out, " ", 14 - cli_columns(SYMBOLS[i].symbol));
        cli_wrap(out, 16, WIDTH, SYMBOLS[i].meaning);
    }
    if (json) rein_text_put(out, "}");
    else if (!out->failed) out->length--; /* the caller ends the last line */
}

/* --------------------------------------------------------------------------------------------------------------------- options */

const cli_setting *cli_explained_option(const char *word) {
    char option[64];
    const size_t length = strlen(word);
    if (length >= sizeof option) return NULL;
    for (size_t i = 0; i <= length; i++) option[i] = word[i] == '_' ? '-' : word[i];
    return cli_setting_named(option, length);
}

/* Appends the value that a preset gives to an option of the objective; returns 0 if it does not use the option. */
static int put_value(rein_text *out, const char *preset, const char *name) {
    rein_options *options;
    const rein_option_info *info = NULL;
    const char *word = "";
    double number = NAN;
    size_t i = 0;
    if (rein_options_new(&options, preset, NULL)) return 0;
    while ((info = rein_option_at(i)) && strcmp(info->name, name) != 0) i++;
    const rein_option_state state = info ? rein_options_state(options, i) : REIN_OPTION_IDLE;
    if (state == REIN_OPTION_SET && info->choices && !rein_options_get(&word, options, name, NULL)) rein_text_put(out, word);
    if (state == REIN_OPTION_SET && !info->choices && !rein_options_get_number(&number, options, name, NULL) && !isnan(number))
        rein_text_format(out, "%g", number);
    if (state == REIN_OPTION_REQUIRED) rein_text_put(out, "required");
    rein_options_free(options);
    return state == REIN_OPTION_SET || state == REIN_OPTION_REQUIRED;
}

static void put_presets(rein_text *out, const cli_setting *s, int json) {
    rein_text list = {0};
    const char *preset;
    size_t n = 0;
    for (size_t i = 0; (preset = rein_preset_name(i)); i++) {
        rein_text value = {0};
        if (!put_value(&value, preset, s->name) || !value.data) continue;
        if (json) {
            rein_json_put_name(&list, preset);
            rein_json_put_string(&list, value.data);
        } else rein_text_format(&list, "%s%s %s", n++ ? ", " : "", preset, value.data);
        rein_text_free(&value);
    }
    if (json) rein_json_put_name(out, "presets"), rein_text_format(out, "{%s}", list.data ? list.data : "");
    else if (list.length) rein_text_put(out, "  presets   "), cli_wrap(out, INDENT, WIDTH, list.data);
    rein_text_free(&list);
}

static void put_commands(rein_text *out, const cli_setting *s) {
    const cli_command *command;
    size_t n = 0;
    for (size_t i = 0; (command = cli_command_at(i)); i++)
        if (cli_shows_setting(command, s)) rein_text_format(out, "%srein %s", n++ ? ", " : "", command->name);
}

/* ------------------------------------------------------------------------------------------------------------------ KL gradients */

void cli_explain_kl(rein_text *out, const rein_kl_bias *bias) {
    rein_text_format(out, "  %s\n    on-policy   ", bias->form);
    cli_wrap(out, 16, WIDTH, bias->on_policy);
    rein_text_put(out, "    off-policy  ");
    cli_wrap(out, 16, WIDTH, bias->off_policy);
    rein_text_put(out, "    ");
    cli_wrap(out, 4, WIDTH, bias->meaning);
}

/* The row of the composition whose only KL is this one; NULL: the option is not one of a KL. */
static const rein_kl_bias *bias_of(const char *coefficient, const char *estimator) {
    rein_options *options;
    const rein_kl_bias *bias = NULL;
    if (rein_options_new(&options, NULL, NULL)) return NULL;
    rein_status status = rein_options_set_number(options, "kl_loss_coef", 0, NULL); /* not given is not 0 */
    if (!status) status = rein_options_set_number(options, coefficient, 1, NULL);
    if (!status && estimator) status = rein_options_set(options, "kl_estimator", estimator, NULL);
    if (!status) bias = rein_kl_bias_of(options, 0);
    rein_options_free(options);
    return bias;
}

/* What gradient each estimator has in the loss, or the KL of a coefficient outside of it. */
static void put_kl(rein_text *out, const cli_setting *s) {
    static const char *const coefficients[] = {"kl_reward_coef", "kl_reward_exact", "kl_penalty_coef"};
    const char *word = !strcmp(s->name, "kl_estimator") ? s->choice : NULL;
    char estimator[32];
    const rein_kl_bias *bias = NULL;
    for (size_t i = 0; i < sizeof coefficients / sizeof *coefficients && !bias; i++)
        if (!strcmp(s->name, coefficients[i])) bias = bias_of(s->name, NULL);
    if (bias || word) rein_text_put(out, "\nThe expectation of its gradient, compared with that of KL(policy‖reference)\n");
    if (bias) cli_explain_kl(out, bias);
    for (; word && *word; word += strcspn(word, "|"), word += *word == '|') {
        snprintf(estimator, sizeof estimator, "%.*s", (int)strcspn(word, "|"), word);
        if ((bias = bias_of("kl_loss_coef", estimator))) cli_explain_kl(out, bias);
    }
}

void cli_explain_option(rein_text *out, const cli_setting *s, int json) {
    rein_text help = {0}, commands = {0};
    cli_setting_help(&help, s);
    put_commands(&commands, s);
    if (json) {
        rein_text_put(out, "{");
        rein_json_put_name(out, "option"), rein_json_put_string(out, s->name);
        rein_json_put_name(out, "help"), rein_json_put_string(out, help.data ? help.data : "");
        rein_json_put_name(out, "stage"), rein_json_put_string(out, s->title);
        if (s->objective) put_presets(out, s, 1);
        rein_text_put(out, "}");
    } else {
        rein_text first = {0};
        rein_text_format(&first, "%s: %s", s->name, help.data ? help.data : "");
        cli_wrap(out, 2, WIDTH, first.data ? first.data : "");
        rein_text_free(&first);
        rein_text_format(out, "  written   --%s%s%s\n", s->option, s->value ? " " : "", s->value ? s->value : "");
        rein_text_format(out, "  belongs   to: %s\n  taken by  ", s->title);
        cli_wrap(out, INDENT, WIDTH, commands.data ? commands.data : "");
        if (s->objective) put_presets(out, s, 0);
        if (s->objective) put_kl(out, s);
        if (!out->failed) out->length--; /* the caller ends the last line */
    }
    out->failed |= help.failed || commands.failed;
    rein_text_free(&help);
    rein_text_free(&commands);
}
