/* settings.c - the table of settings (names, ranges, defaults: one row each), and the handle that holds their values. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_parts.h"
#include "model/unicode.h"
#include "objective/option_table.h"
#include "settings.h"

typedef enum kind { TEXT, LIST, WHOLE, NUMBER, SWITCH, SCHEDULE } kind; /* a list has one value per line */

typedef struct row {
    rein_setting_info info;
    kind kind;
    size_t offset;
    double low, high; /* of numbers */
} row;

#define AT(field) offsetof(rein_settings, field)
#define HUGE 1e15

static const row ROWS[] = {
    {{"model", "DIR", "policy", "directory of the model, as Hugging Face writes it"}, TEXT, AT(model), 0, 0},
    {{"adapter", "DIR", "policy", "directory of an adapter (PEFT) to begin with"}, TEXT, AT(adapter), 0, 0},
    {{"full", "yes|no", "policy", "train all weights instead of an adapter"}, SWITCH, AT(full), 0, 0},
    {{"lora_rank", "N", "policy", "rank of the adapter"}, WHOLE, AT(lora_rank), 1, 65536},
    {{"lora_alpha", "X", "policy", "its scale is alpha/rank"}, NUMBER, AT(lora_alpha), 1e-6, 1e6},
    {{"use_rslora", "yes|no", "policy", "its scale is alpha/√rank"}, SWITCH, AT(use_rslora), 0, 0},
    {{"lora_modules", "TEXT", "policy", "modules with an adapter, \"q_proj,v_proj\"; all linear ones if not given"},
     TEXT,
     AT(lora_modules),
     0,
     0},
    {{"temperature", "X", "policy", "of the policy, softmax(z/T), in sampling and in training"},
     NUMBER,
     AT(temperature),
     1e-3,
     1e3},
    {{"seed", "N", "policy", "seed of all random numbers"}, WHOLE, AT(seed), 0, HUGE},
    {{"learning_rate", "X", "optimizer", "of AdamW"}, NUMBER, AT(learning_rate), 0, 1},
    {{"adam_beta1", "X", "optimizer", "decay of the first moment"}, NUMBER, AT(adam_beta1), 0, 0.999999},
    {{"adam_beta2", "X", "optimizer", "decay of the second moment"}, NUMBER, AT(adam_beta2), 0, 0.999999999},
    {{"adam_epsilon", "X", "optimizer", "added to the root of the second moment"}, NUMBER, AT(adam_epsilon), 1e-30, 1},
    {{"weight_decay", "X", "optimizer", "of matrices, decoupled"}, NUMBER, AT(weight_decay), 0, 1},
    {{"max_grad_norm", "X", "optimizer", "gradients are clipped to this norm; 0: no clipping"}, NUMBER, AT(max_grad_norm), 0, 1e9},
    {{"lr_scheduler_type", "constant|linear|cosine", "optimizer", "shape of the learning rate after the warm-up"},
     SCHEDULE,
     AT(lr_scheduler_type),
     0,
     0},
    {{"warmup_steps", "N", "optimizer", "steps in which the learning rate rises"}, WHOLE, AT(warmup_steps), 0, 1e9},
    {{"total_steps", "N", "optimizer", "steps after which linear and cosine reach their end"}, WHOLE, AT(total_steps), 0, 1e9},
    {{"lr_final_share", "X", "optimizer", "of the learning rate, at the end"}, NUMBER, AT(lr_final_share), 0, 1},
    {{"epochs", "N", "optimizer", "passes over the groups of a step, with the same old log-probs"}, WHOLE, AT(epochs), 1, 1000},
    {{"minibatches", "N", "optimizer", "optimizer steps in each pass, on as many parts of the groups"},
     WHOLE,
     AT(minibatches),
     1,
     1e6},
    {{"mask_truncated_completions", "yes|no", "optimizer", "responses that were cut off at the length limit do not train"},
     SWITCH,
     AT(mask_truncated_completions),
     0,
     0},
    {{"kl_penalty_reference_step", "N", "reference", "the reference is the checkpoint of this step"},
     WHOLE,
     AT(kl_penalty_reference_step),
     0,
     1e9},
    {{"kl_penalty_step_lag", "N", "reference", "the reference is the checkpoint this many steps back"},
     WHOLE,
     AT(kl_penalty_step_lag),
     1,
     1e9},
    {{"kl_ref_adapter_path", "DIR", "reference", "the reference is the model with this adapter"},
     TEXT,
     AT(kl_ref_adapter_path),
     0,
     0},
    {{"shards", "N", "engine", "parts in which gradients are summed; changes the last bits of results"},
     WHOLE,
     AT(shards),
     0,
     4096},
    {{"share_limit", "N", "engine", "responses that share the computation of their prompt; changes the last bits of results"},
     WHOLE,
     AT(share_limit),
     0,
     65536},
    {{"no_sharing", "yes|no", "engine", "compute the prompt again for each response"}, SWITCH, AT(no_sharing), 0, 0},
    {{"recompute", "yes|no", "engine", "compute activations again in the backward pass, for less memory"},
     SWITCH,
     AT(recompute),
     0,
     0},
    {{"threads", "N", "engine", "0: all cores"}, WHOLE, AT(threads), 0, 256},
    {{"save_steps", "N", "run", "a checkpoint every N steps, and at the end"}, WHOLE, AT(save_steps), 1, 1e9},
    {{"keep_last", "N", "run", "checkpoints to keep; 0: all"}, WHOLE, AT(keep_last), 0, 1e9},
    {{"keep_best", "METRIC", "run", "keep the checkpoint where it was greatest (\"-loss\": least)"}, TEXT, AT(keep_best), 0, 0},
    {{"steps", "N", "rollout", "steps of the run"}, WHOLE, AT(steps), 1, 1e9},
    {{"prompts", "N", "rollout", "prompts of a step"}, WHOLE, AT(prompts), 1, 1e6},
    {{"samples", "N", "rollout", "responses to each prompt: a group"}, WHOLE, AT(samples), 1, 65536},
    {{"max_tokens", "N", "rollout", "length at which a response is cut"}, WHOLE, AT(max_tokens), 1, 1e9},
    {{"activation_cache", "MB", "rollout", "memory for activations that sampling computes and training reuses; 0: none"},
     WHOLE,
     AT(activation_cache),
     0,
     1e9},
    {{"temperature_final", "X", "rollout", "the temperature falls (or rises) to this over the steps"},
     NUMBER,
     AT(temperature_final),
     1e-3,
     1e3},
    {{"top_k", "N", "rollout", "sample among the N most probable tokens; needs a mismatch correction"}, WHOLE, AT(top_k), 0, 1e9},
    {{"top_p", "X", "rollout", "sample among the most probable tokens whose sum reaches it; needs a mismatch correction"},
     NUMBER,
     AT(top_p),
     1e-9,
     1},
    {{"min_p", "X", "rollout", "sample among tokens with this share of the greatest probability; needs a mismatch correction"},
     NUMBER,
     AT(min_p),
     0,
     0.999999},
    {{"stop", "TEXT", "rollout", "a text that ends a response, \\n a newline; may be repeated"}, LIST, AT(stop), 0, 0},
    {{"dynamic_sampling", "N", "rollout", "sample again, up to N times, for groups in which all rewards are the same (DAPO)"},
     WHOLE,
     AT(dynamic_sampling),
     0,
     1000},
    {{"budget_target", "X", "rollout", "mean length that dual ascent on the budget penalty aims at"},
     NUMBER,
     AT(budget_target),
     1e-9,
     1e9},
    {{"budget_rate", "X", "rollout", "its step size"}, NUMBER, AT(budget_rate), 0, 1e6},
    {{"ptx_data", "FILE", "rollout", "supervised examples (as for rein sft) mixed into every step"}, TEXT, AT(ptx_data), 0, 0},
    {{"ptx_coef", "X", "rollout", "weight of their loss"}, NUMBER, AT(ptx_coef), 0, 1e6},
    {{"ptx_batch", "N", "rollout", "examples of a step"}, WHOLE, AT(ptx_batch), 1, 1e6},
    {{"stop_at", "TEXT", "rollout", "end the run when a metric gets there: \"eval/accuracy>=0.95\", \"kl>0.2\""},
     TEXT,
     AT(stop_at),
     0,
     0},
    {{"task", "TASK", "task", "a built-in task (rein task), a file of JSON lines, or a program"}, TEXT, AT(task), 0, 0},
    {{"eval_task", "TASK", "task", "the task of evaluations; the held-out part of the task if not given"},
     TEXT,
     AT(eval_task),
     0,
     0},
    {{"held_out", "X", "task", "share of a file that is held out for evaluations"}, NUMBER, AT(held_out), 0, 0.9},
    {{"reward", "JUDGE", "task", "task, exact, number, regex:PATTERN, length:N or a program; may be repeated"},
     LIST,
     AT(reward),
     0,
     0},
    {{"reward_weights", "LIST", "task", "weights of several rewards: 1,0.5"}, TEXT, AT(reward_weights), 0, 0},
    {{"reward_timeout", "X", "task", "seconds that a program may take for one reply"}, NUMBER, AT(reward_timeout), 1e-3, 1e6},
    {{"reward_restarts", "N", "task", "how many times in a row a program that failed is restarted"},
     WHOLE,
     AT(reward_restarts),
     0,
     1000},
    {{"chat", "yes|no", "task", "a prompt is a user's message, put into the chat template"}, SWITCH, AT(chat), 0, 0},
    {{"chat_format", "NAME", "task", "chat format instead of the model's own: raw, chatml, qwen2.5, qwen3, llama3, llama3.1"},
     TEXT,
     AT(chat_format),
     0,
     0},
    {{"system", "TEXT", "task", "system message before every prompt"}, TEXT, AT(system), 0, 0},
    {{"eval_steps", "N", "evaluation", "evaluate every N steps; 0: at the beginning and the end"}, WHOLE, AT(eval_steps), 0, 1e9},
    {{"eval_prompts", "N", "evaluation", "held-out prompts; 0: no evaluation"}, WHOLE, AT(eval_prompts), 0, 1e6},
    {{"eval_samples", "N", "evaluation", "sampled responses to each"}, WHOLE, AT(eval_samples), 1, 1e4},
};
enum { N_ROWS = sizeof ROWS / sizeof *ROWS };
_Static_assert((int)N_ROWS == (int)REIN_SETTING_COUNT, "rein_settings.given has a place for each setting");

static const char *const SCHEDULES[] = {
    [REIN_SCHEDULE_CONSTANT] = "constant", [REIN_SCHEDULE_LINEAR] = "linear", [REIN_SCHEDULE_COSINE] = "cosine"};
enum { N_SCHEDULES = sizeof SCHEDULES / sizeof *SCHEDULES };

const rein_setting_info *rein_setting_at(size_t i) { return i < N_ROWS ? &ROWS[i].info : NULL; }

const char *rein_setting_name(const char *name) { return strcmp(name, "recall") ? name : "activation_cache"; }

static const row *find(const char *name) {
    name = rein_setting_name(name);
    for (size_t i = 0; i < N_ROWS; i++)
        if (!strcmp(ROWS[i].info.name, name)) return &ROWS[i];
    return NULL;
}

int rein_setting_is_list(const char *name) {
    const row *r = find(name);
    return r && r->kind == LIST;
}

/* -------------------------------------------------------------------------------------------------------------------- lifetime */

/* What a text is when nothing is given; never freed, never written. */
static char nothing[] = "";

static char **text_of(rein_settings *s, const row *r) { return (char **)(void *)((char *)s + r->offset); }
static const void *field_of(const rein_settings *s, const row *r) { return (const char *)s + r->offset; }
static int has_text(const row *r) { return r->kind == TEXT || r->kind == LIST; }

static void drop_text(char **text) {
    if (*text != nothing) free(*text);
    *text = nothing;
}

void rein_settings_init(rein_settings *s) {
    *s = (rein_settings){.lora_rank = 8,
                         .lora_alpha = 16,
                         .temperature = 1,
                         .seed = 1,
                         .learning_rate = 1e-5,
                         .adam_beta1 = 0.9,
                         .adam_beta2 = 0.99,
                         .adam_epsilon = 1e-8,
                         .max_grad_norm = 1,
                         .epochs = 1,
                         .minibatches = 1,
                         .kl_penalty_reference_step = -1,
                         .save_steps = 1,
                         .held_out = 0.1,
                         .reward_timeout = 30,
                         .steps = 100,
                         .prompts = 32,
                         .samples = 8,
                         .max_tokens = 256,
                         .activation_cache = 4096,
                         .top_p = 1,
                         .budget_rate = 1e-4,
                         .ptx_coef = 0.1,
                         .ptx_batch = 8,
                         .eval_steps = 10,
                         .eval_prompts = 100,
                         .eval_samples = 1,
                         .preset = nothing};
    for (size_t i = 0; i < N_ROWS; i++)
        if (has_text(&ROWS[i])) *text_of(s, &ROWS[i]) = nothing;
    (void)rein_options_init(&s->objective, NULL, NULL); /* without a preset it cannot fail */
}

void rein_settings_clear(rein_settings *s) {
    for (size_t i = 0; i < N_ROWS; i++)
        if (has_text(&ROWS[i])) drop_text(text_of(s, &ROWS[i]));
    drop_text(&s->preset);
    rein_settings_init(s);
}

rein_status rein_settings_new(rein_settings **settings, rein_error *err) {
    *settings = malloc(sizeof **settings);
    if (!*settings) return rein_fail(err, REIN_ENOMEM, "no memory for settings");
    rein_settings_init(*settings);
    return REIN_OK;
}

/* Replaces a text by a copy of another. */
static rein_status replace_text(char **text, const char *by, rein_error *err) {
    char *copy = *by ? malloc(strlen(by) + 1) : nothing;
    if (!copy) return rein_fail(err, REIN_ENOMEM, "no memory for a setting of %zu bytes", strlen(by));
    if (*by) memcpy(copy, by, strlen(by) + 1);
    drop_text(text);
    *text = copy;
    return REIN_OK;
}

rein_status rein_settings_copy(rein_settings **copy, const rein_settings *settings, rein_error *err) {
    rein_settings *c = *copy = malloc(sizeof *c), from = *settings;
    if (!c) return rein_fail(err, REIN_ENOMEM, "no memory for settings");
    *c = from;
    for (size_t i = 0; i < N_ROWS; i++)
        if (has_text(&ROWS[i])) *text_of(c, &ROWS[i]) = nothing;
    c->preset = nothing;
    rein_status status = replace_text(&c->preset, from.preset, err);
    for (size_t i = 0; i < N_ROWS && !status; i++)
        if (has_text(&ROWS[i])) status = replace_text(text_of(c, &ROWS[i]), *text_of(&from, &ROWS[i]), err);
    if (!status) return REIN_OK;
    rein_settings_free(c);
    *copy = NULL;
    return status;
}

rein_status rein_settings_assign(rein_settings *s, const rein_settings *from, rein_error *err) {
    rein_settings *copy;
    const rein_status status = rein_settings_copy(&copy, from, err);
    if (status) return status;
    rein_settings_clear(s);
    *s = *copy; /* which takes its texts over */
    free(copy);
    return REIN_OK;
}

void rein_settings_free(rein_settings *s) {
    if (!s) return;
    rein_settings_clear(s);
    free(s);
}

/* ------------------------------------------------------------------------------------------------------------------ from text */

static rein_status set_text(char **to, const char *name, const char *value, rein_error *err) {
    const size_t valid = rein_utf8_valid(value, strlen(value)); /* YAML could not hold anything else */
    if (value[valid]) return rein_fail_at(err, REIN_EINVAL, name, -1, "has an invalid byte at %zu: UTF-8 is needed", valid);
    return replace_text(to, value, err);
}

/* Every line of a list is a value. */
static rein_status check_list(const row *r, const char *value, rein_error *err) {
    const char *need =
        r->offset == AT(stop) ? "a text is needed, in which \\n stands for a newline" : "one value per line is needed";
    size_t n = 0;
    for (const char *at = value; *value; at++, n++) {
        const size_t length = strcspn(at, "\n");
        if (!length) return rein_fail_at(err, REIN_EINVAL, r->info.name, (int64_t)n, "is empty: %s", need);
        at += length;
        if (!*at || !at[1]) break; /* YAML's blocks end with a newline */
    }
    return REIN_OK;
}

static rein_status set_switch(int *to, const row *r, const char *value, rein_error *err) {
    const char *const yes[] = {"yes", "true", "1", "on", ""}, *const no[] = {"no", "false", "0", "off"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        if (!strcmp(value, yes[i])) return *to = 1, REIN_OK;
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (!strcmp(value, no[i])) return *to = 0, REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, r->info.name, -1, "is \"%.60s\": yes or no is needed", value);
}

static rein_status set_schedule(rein_schedule_shape *to, const row *r, const char *value, rein_error *err) {
    for (size_t i = 0; i < N_SCHEDULES; i++)
        if (!strcmp(SCHEDULES[i], value)) return *to = (rein_schedule_shape)i, REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, r->info.name, -1, "is \"%.60s\": one of %s", value, r->info.value);
}

static rein_status set_number(void *to, const row *r, const char *value, rein_error *err) {
    char *end;
    const double x = strtod(value, &end);
    const int whole = r->kind == WHOLE, number = *value && !*end;
    const char *quote = number ? "" : "\"";
    if (!number || !(x >= r->low && x <= r->high) || (whole && x != floor(x)))
        return rein_fail_at(err, REIN_EINVAL, r->info.name, -1, "is %s%.60s%s: a %s from %.15g to %.15g is needed", quote, value,
                            quote, whole ? "whole number" : "number", r->low, r->high);
    if (whole) *(int64_t *)to = (int64_t)x;
    else *(double *)to = x;
    return REIN_OK;
}

static rein_status set_row(rein_settings *s, const row *r, const char *value, rein_error *err) {
    void *to = (char *)s + r->offset;
    switch (r->kind) {
    case LIST:
        if (check_list(r, value, err)) return REIN_EINVAL;
        return set_text(to, r->info.name, value, err);
    case TEXT: return set_text(to, r->info.name, value, err);
    case SWITCH: return set_switch(to, r, value, err);
    case SCHEDULE: return set_schedule(to, r, value, err);
    case WHOLE:
    case NUMBER: break;
    }
    return set_number(to, r, value, err);
}

static int is_option(const char *name) {
    const rein_option_alias *alias;
    for (size_t i = 0; (alias = rein_option_alias_at(i)); i++)
        if (!strcmp(alias->name, name)) return 1;
    return rein_option_find(name) != NULL;
}

/* The error suggests the nearest name among settings and options. */
static rein_status unknown(const char *name, rein_error *err) {
    const char *names[N_ROWS + REIN_OPTION_COUNT + 2] = {NULL};
    char shown[61];
    for (size_t i = 0; i < N_ROWS; i++) names[i] = ROWS[i].info.name;
    for (size_t i = 0; i < REIN_OPTION_COUNT; i++) names[N_ROWS + i] = rein_option_at(i)->name;
    names[N_ROWS + REIN_OPTION_COUNT] = "preset";
    snprintf(shown, sizeof shown, "%s", *name ? name : "\"\"");
    const char *nearest = rein_nearest(name, names);
    if (nearest) return rein_fail_at(err, REIN_EINVAL, shown, -1, "is not a setting: did you mean %s?", nearest);
    return rein_fail_at(err, REIN_EINVAL, shown, -1, "is not a setting: rein run --help lists them");
}

static rein_status set_preset(rein_settings *s, const char *value, rein_error *err) {
    rein_options options;
    if (rein_options_given(&s->objective, NULL))
        return rein_fail_at(err, REIN_EINVAL, "preset", -1, "must come before the options that change it: it would overwrite them");
    rein_status status = rein_options_init(&options, value, err);
    if (!status) status = replace_text(&s->preset, value, err);
    if (!status) s->objective = options;
    return status;
}

rein_status rein_settings_set(rein_settings *s, const char *name, const char *value, rein_error *err) {
    const row *r = find(name);
    if (!strcmp(name, "preset")) return set_preset(s, value, err);
    if (!r) return is_option(name) ? rein_options_set(&s->objective, name, value, err) : unknown(name, err);
    const rein_status status = set_row(s, r, value, err);
    if (!status) s->given[r - ROWS] = 1;
    return status;
}

void rein_settings_set_isa(rein_settings *s, rein_isa isa) { s->isa = isa; }

/* --------------------------------------------------------------------------------------------------------------------- reading */

const char *rein_settings_text(const rein_settings *s, const char *name) {
    const row *r = find(name);
    const char *word = "";
    if (!strcmp(name, "preset")) return s->preset;
    if (!r) return rein_options_get(&word, &s->objective, name, NULL) ? "" : word;
    if (r->kind == SCHEDULE) return SCHEDULES[*(const rein_schedule_shape *)field_of(s, r)];
    return has_text(r) ? *(char *const *)field_of(s, r) : "";
}

/* A number below its range is "not given". */
double rein_settings_number(const rein_settings *s, const char *name) {
    const row *r = find(name);
    double x = NAN;
    if (!r) return rein_options_get_number(&x, &s->objective, name, NULL) ? NAN : x;
    if (r->kind == SWITCH) return *(const int *)field_of(s, r);
    if (r->kind == WHOLE) x = (double)*(const int64_t *)field_of(s, r);
    else if (r->kind == NUMBER) x = *(const double *)field_of(s, r);
    return x >= r->low ? x : NAN;
}

/* A number in the fewest digits that read back as the same; a whole number without an exponent. */
static void show_number(char *text, size_t size, double x) {
    snprintf(text, size, "%.17g", x);
    if (!strpbrk(text, ".e")) return;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, x);
        if (strtod(text, NULL) == x) return;
    }
}

rein_status rein_settings_get(rein_text *value, const rein_settings *s, const char *name, rein_error *err) {
    const row *r = find(name);
    char number[40] = "";
    const char *text = rein_settings_text(s, name);
    const double x = rein_settings_number(s, name);
    if (!r && strcmp(name, "preset") != 0 && !rein_option_find(name)) return unknown(name, err);
    if (r && r->kind == SWITCH) text = x > 0 ? "yes" : "no";
    else if (!isnan(x)) show_number(number, sizeof number, x), text = number;
    return rein_text_append(value, text, strlen(text), err);
}

int rein_settings_is_on(const rein_settings *s, const char *name) {
    const double x = rein_settings_number(s, name);
    return *rein_settings_text(s, name) || (!isnan(x) && x != 0);
}

int rein_settings_given(const rein_settings *s, const char *name) {
    const row *r = find(name);
    return r ? s->given[r - ROWS] : rein_options_given(&s->objective, name);
}

const rein_options *rein_settings_objective(const rein_settings *s) { return &s->objective; }

rein_exec rein_settings_exec(const rein_settings *s) { return (rein_exec){(int)s->threads, s->isa}; }
