/* settings.c - the table of settings: names, ranges, defaults; one row each. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/unicode.h"
#include "settings.h"

typedef enum kind { TEXT, LIST, WHOLE, NUMBER, SWITCH } kind; /* a list has its values on lines of their own */

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
    {{"seed", "N", "policy", "of everything random"}, WHOLE, AT(seed), 0, HUGE},
    {{"learning_rate", "X", "optimizer", "of AdamW"}, NUMBER, AT(learning_rate), 0, 1},
    {{"adam_beta1", "X", "optimizer", "decay of the first moment"}, NUMBER, AT(adam_beta1), 0, 0.999999},
    {{"adam_beta2", "X", "optimizer", "decay of the second moment"}, NUMBER, AT(adam_beta2), 0, 0.999999999},
    {{"adam_epsilon", "X", "optimizer", "added to the root of the second moment"}, NUMBER, AT(adam_epsilon), 1e-30, 1},
    {{"weight_decay", "X", "optimizer", "decoupled, of matrices"}, NUMBER, AT(weight_decay), 0, 1},
    {{"max_grad_norm", "X", "optimizer", "gradients are clipped to this norm; 0: not"}, NUMBER, AT(max_grad_norm), 0, 1e9},
    {{"lr_scheduler_type", "constant|linear|cosine", "optimizer", "shape of the learning rate after the warm-up"},
     TEXT,
     AT(lr_scheduler_type),
     0,
     0},
    {{"warmup_steps", "N", "optimizer", "steps in which the learning rate rises"}, WHOLE, AT(warmup_steps), 0, 1e9},
    {{"total_steps", "N", "optimizer", "steps after which linear and cosine are at their end"}, WHOLE, AT(total_steps), 0, 1e9},
    {{"lr_final_share", "X", "optimizer", "of the learning rate, at the end"}, NUMBER, AT(lr_final_share), 0, 1},
    {{"epochs", "N", "optimizer", "passes over the groups of a step, old log-probs held"}, WHOLE, AT(epochs), 1, 1000},
    {{"minibatches", "N", "optimizer", "optimizer steps in each pass, on as many parts of the groups"},
     WHOLE,
     AT(minibatches),
     1,
     1e6},
    {{"mask_truncated_completions", "yes|no", "optimizer", "responses that were cut off do not train"},
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
    {{"shards", "N", "engine", "parts that gradients are added up in; part of the result's bits"}, WHOLE, AT(shards), 0, 4096},
    {{"share_limit", "N", "engine", "responses that share their prompt's computation; part of the result's bits"},
     WHOLE,
     AT(share_limit),
     0,
     65536},
    {{"no_sharing", "yes|no", "engine", "compute the prompt for each response anew"}, SWITCH, AT(no_sharing), 0, 0},
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
    {{"dynamic_sampling", "N", "rollout", "sample anew, up to N times, for groups in which all rewards are the same (DAPO)"},
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
    {{"ptx_data", "FILE", "rollout", "supervised examples (rein sft's) mixed into every step"}, TEXT, AT(ptx_data), 0, 0},
    {{"ptx_coef", "X", "rollout", "weight of their loss"}, NUMBER, AT(ptx_coef), 0, 1e6},
    {{"ptx_batch", "N", "rollout", "examples of a step"}, WHOLE, AT(ptx_batch), 1, 1e6},
    {{"stop_at", "TEXT", "rollout", "end the run when a metric is there: \"eval/accuracy>=0.95\", \"kl>0.2\""},
     TEXT,
     AT(stop_at),
     0,
     0},
    {{"task", "TASK", "task", "what is asked: a built-in task (rein task), a file of JSON lines, or a program"},
     TEXT,
     AT(task),
     0,
     0},
    {{"eval_task", "TASK", "task", "what is asked in evaluations; the held-out part of the task if not given"},
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
    {{"reward_timeout", "X", "task", "seconds that a program may take for an answer"}, NUMBER, AT(reward_timeout), 1e-3, 1e6},
    {{"reward_restarts", "N", "task", "how many times in a row a program that failed is started anew"},
     WHOLE,
     AT(reward_restarts),
     0,
     1000},
    {{"chat", "yes|no", "task", "a prompt is a user's message, put into the chat template"}, SWITCH, AT(chat), 0, 0},
    {{"chat_format", "NAME", "task", "chat in this format, not the model's own: raw, chatml, qwen2.5, qwen3, llama3, llama3.1"},
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
_Static_assert((int)N_ROWS <= (int)REIN_MOST_SETTINGS, "rein_settings.given has a place for each");

const rein_setting_info *rein_setting_at(size_t i) { return i < N_ROWS ? &ROWS[i].info : NULL; }

rein_settings rein_settings_default(void) {
    rein_settings s = {.lora_rank = 8,
                       .lora_alpha = 16,
                       .temperature = 1,
                       .seed = 1,
                       .learning_rate = 1e-5,
                       .adam_beta1 = 0.9,
                       .adam_beta2 = 0.99,
                       .adam_epsilon = 1e-8,
                       .max_grad_norm = 1,
                       .lr_scheduler_type = "constant",
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
                       .eval_samples = 1};
    (void)rein_preset(&s.objective, "none", NULL); /* numbers are "not given", not 0 */
    return s;
}

const char *rein_setting_name(const char *name) { return strcmp(name, "recall") ? name : "activation_cache"; }

static const row *find(const char *name, size_t *index) {
    name = rein_setting_name(name);
    for (size_t i = 0; i < N_ROWS; i++)
        if (!strcmp(ROWS[i].info.name, name)) return *index = i, &ROWS[i];
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------------------ from text */

static rein_status set_text(char *to, size_t size, const row *r, const char *value, rein_error *err) {
    if (strlen(value) >= size)
        return rein_fail(err, REIN_EINVAL, "%s is %zu bytes long: at most %zu", r->info.name, strlen(value), size - 1);
    const size_t valid = rein_utf8_valid(value, strlen(value)); /* YAML could not hold anything else */
    if (value[valid]) return rein_fail(err, REIN_EINVAL, "%s is not UTF-8, at byte %zu", r->info.name, valid);
    memcpy(to, value, strlen(value) + 1);
    return REIN_OK;
}

/* Values on lines of their own: one that is a newline would be none. */
static rein_status check_list(const row *r, const char *value, rein_error *err) {
    size_t n = 0;
    for (const char *at = value; *value; at++, n++) {
        const size_t length = strcspn(at, "\n");
        if (!length)
            return rein_fail(err, REIN_EINVAL, "%s[%zu] is empty%s", r->info.name, n,
                             r->offset == AT(stop) ? ": a text is needed, in which \\n stands for a newline"
                                                   : ": one value a line");
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
    return rein_fail(err, REIN_EINVAL, "%s is \"%.60s\": yes or no", r->info.name, value);
}

static rein_status set_number(void *to, const row *r, const char *value, rein_error *err) {
    char *end;
    const double x = strtod(value, &end);
    const int whole = r->kind == WHOLE;
    if (!*value || *end || !isfinite(x) || (whole && x != floor(x)))
        return rein_fail(err, REIN_EINVAL, "%s is \"%.60s\": a %s", r->info.name, value, whole ? "whole number" : "number");
    if (!(x >= r->low && x <= r->high)) return rein_fail(err, REIN_EINVAL, "%s is %g: %g to %g", r->info.name, x, r->low, r->high);
    if (whole) *(int64_t *)to = (int64_t)x;
    else *(double *)to = x;
    return REIN_OK;
}

static size_t text_size(const row *r) {
    const rein_settings *s = NULL;
    if (r->offset == AT(lr_scheduler_type)) return sizeof s->lr_scheduler_type;
    return r->offset == AT(chat_format) ? sizeof s->chat_format : REIN_TEXT_SETTING;
}

static rein_status set_row(rein_settings *s, const row *r, const char *value, rein_error *err) {
    void *to = (char *)s + r->offset;
    switch (r->kind) {
    case LIST:
        if (check_list(r, value, err)) return REIN_EINVAL;
        return set_text(to, text_size(r), r, value, err);
    case TEXT: return set_text(to, text_size(r), r, value, err);
    case SWITCH: return set_switch(to, r, value, err);
    case WHOLE:
    case NUMBER: break;
    }
    return set_number(to, r, value, err);
}

/* The nearest name among settings and options. */
static rein_status unknown(const char *name, rein_error *err) {
    const char *names[N_ROWS + 128];
    size_t n = 0;
    for (size_t i = 0; i < N_ROWS; i++) names[n++] = ROWS[i].info.name;
    for (size_t i = 0; rein_option_at(i) && n + 2 < sizeof names / sizeof *names; i++) names[n++] = rein_option_at(i)->name;
    names[n++] = "preset";
    names[n] = NULL;
    const char *nearest = rein_nearest(name, names);
    if (nearest) return rein_fail(err, REIN_EINVAL, "unknown setting \"%.60s\": did you mean %s?", name, nearest);
    return rein_fail(err, REIN_EINVAL, "unknown setting \"%.60s\"", name);
}

static rein_status set_preset(rein_settings *s, const char *value, rein_error *err) {
    rein_options options;
    if (s->objective.given)
        return rein_fail(err, REIN_EINVAL, "preset comes before the options that change it: it would overwrite them");
    const rein_status status = rein_preset(&options, value, err);
    if (status) return status;
    s->objective = options;
    snprintf(s->preset, sizeof s->preset, "%s", value);
    return REIN_OK;
}

static int is_option(const char *name) {
    const char *const aliases[] = {"importance_sampling_level", "scale_rewards", "truncated_importance_sampling"};
    for (size_t i = 0; rein_option_at(i); i++)
        if (!strcmp(rein_option_at(i)->name, name)) return 1;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (!strcmp(aliases[i], name)) return 1;
    return 0;
}

rein_status rein_settings_set(rein_settings *s, const char *name, const char *value, rein_error *err) {
    size_t index;
    const row *r = find(name, &index);
    if (!strcmp(name, "preset")) return set_preset(s, value, err);
    if (!r) return is_option(name) ? rein_options_set(&s->objective, name, value, err) : unknown(name, err);
    const rein_status status = set_row(s, r, value, err);
    if (!status) s->given[index] = 1;
    return status;
}

/* --------------------------------------------------------------------------------------------------------------------- to text */

rein_status rein_settings_get(char *value, size_t size, const rein_settings *s, const char *name, rein_error *err) {
    size_t index;
    const row *r = find(name, &index);
    int n;
    if (!strcmp(name, "preset")) n = snprintf(value, size, "%s", s->preset);
    else if (!r) return is_option(name) ? rein_options_get(value, size, &s->objective, name, err) : unknown(name, err);
    else {
        const void *from = (const char *)s + r->offset;
        if (r->kind == TEXT || r->kind == LIST) n = snprintf(value, size, "%s", (const char *)from);
        else if (r->kind == SWITCH) n = snprintf(value, size, "%s", *(const int *)from ? "yes" : "no");
        else if (r->kind == WHOLE && r->low > (double)*(const int64_t *)from) n = snprintf(value, size, "%s", ""); /* not given */
        else if (r->kind == NUMBER && r->low > *(const double *)from) n = snprintf(value, size, "%s", "");
        else if (r->kind == WHOLE) n = snprintf(value, size, "%lld", (long long)*(const int64_t *)from);
        else n = snprintf(value, size, "%.17g", *(const double *)from);
    }
    if (n < 0 || (size_t)n >= size) return rein_fail(err, REIN_ENOMEM, "%s does not fit %zu bytes", name, size);
    return REIN_OK;
}

int rein_settings_given(const rein_settings *s, const char *name) {
    size_t index;
    if (find(name, &index)) return s->given[index];
    for (size_t i = 0; rein_option_at(i); i++)
        if (!strcmp(rein_option_at(i)->name, name)) return (int)(s->objective.given >> i & 1);
    return 0;
}

int rein_setting_is_list(const char *name) {
    size_t index;
    const row *r = find(name, &index);
    return r && r->kind == LIST;
}

/* --------------------------------------------------------------------------------------------------------------------- changes */

/* What made the policy, or is part of its bits. */
static int is_fixed(const rein_setting_info *s) {
    if (!strcmp(s->stage, "policy")) return strcmp(s->name, "temperature") != 0;
    return !strcmp(s->stage, "engine") && strcmp(s->name, "threads") != 0 && strcmp(s->name, "recompute") != 0;
}

/* Of these, what a fork takes over with the policy: the rest is the new run's own. */
static int goes_with_policy(const rein_setting_info *s) {
    return !strcmp(s->stage, "policy") && is_fixed(s) && strcmp(s->name, "seed") != 0;
}

static rein_status change_setting(rein_settings *s, const rein_settings *now, const rein_setting_info *info, int fork,
                                  rein_error *err) {
    char value[REIN_TEXT_SETTING], before[REIN_TEXT_SETTING];
    rein_status status = rein_settings_get(value, sizeof value, now, info->name, err);
    if (!status) status = rein_settings_get(before, sizeof before, s, info->name, err);
    if (status || !strcmp(value, before)) return status;
    if (fork ? goes_with_policy(info) : is_fixed(info))
        return rein_fail(err, REIN_EINVAL, "%s is \"%.100s\", and the run was begun with \"%.100s\": %s", info->name, value, before,
                         fork ? "a fork has the policy of that run" : "a new run is needed for that");
    return rein_settings_set(s, info->name, value, err);
}

static rein_status change(rein_settings *s, const rein_settings *now, int fork, rein_error *err) {
    char value[REIN_TEXT_SETTING];
    rein_status status = REIN_OK;
    for (size_t i = 0; i < N_ROWS && !status; i++)
        if (now->given[i]) status = change_setting(s, now, &ROWS[i].info, fork, err);
    if (*now->preset && !status) {
        s->objective = now->objective;
        memcpy(s->preset, now->preset, sizeof s->preset);
        return REIN_OK;
    }
    for (size_t i = 0; rein_option_at(i) && !status; i++) {
        if (!(now->objective.given >> i & 1)) continue;
        status = rein_options_get(value, sizeof value, &now->objective, rein_option_at(i)->name, err);
        if (!status) status = rein_options_set(&s->objective, rein_option_at(i)->name, value, err);
    }
    return status;
}

rein_status rein_settings_change(rein_settings *s, const rein_settings *now, rein_error *err) { return change(s, now, 0, err); }

/* A step of the run that is forked is none of the fork. */
rein_status rein_settings_fork(rein_settings *s, const rein_settings *now, rein_error *err) {
    if (s->kl_penalty_reference_step >= 0 && !rein_settings_given(now, "kl_penalty_reference_step"))
        return rein_fail(err, REIN_EINVAL,
                         "kl_penalty_reference_step is %lld in the run that is forked, whose checkpoint that is: give that of the "
                         "fork, which has 0",
                         (long long)s->kl_penalty_reference_step);
    return change(s, now, 1, err);
}

/* ---------------------------------------------------------------------------------------------------------------------- checks */

static rein_status check_policy(const rein_settings *s, rein_error *err) {
    const char *const of_adapters[] = {"lora_rank", "lora_alpha", "use_rslora", "lora_modules"};
    for (size_t i = 0; i < sizeof of_adapters / sizeof *of_adapters; i++) {
        if (s->full && rein_settings_given(s, of_adapters[i]))
            return rein_fail(err, REIN_EINVAL, "%s cannot act with full: there is no adapter", of_adapters[i]);
        if (*s->adapter && rein_settings_given(s, of_adapters[i]))
            return rein_fail(err, REIN_EINVAL, "%s cannot act with adapter: it has its own", of_adapters[i]);
    }
    if (s->full && *s->adapter) return rein_fail(err, REIN_EINVAL, "full and adapter contradict each other");
    return REIN_OK;
}

int64_t rein_settings_total_steps(const rein_settings *s) { return s->total_steps || !*s->task ? s->total_steps : s->steps; }

static rein_status check_schedule(const rein_settings *s, rein_error *err) {
    const char *type = s->lr_scheduler_type;
    const int constant = !strcmp(type, "constant");
    if (!constant && strcmp(type, "linear") != 0 && strcmp(type, "cosine") != 0)
        return rein_fail(err, REIN_EINVAL, "lr_scheduler_type is \"%s\": constant, linear or cosine", type);
    const int64_t total = rein_settings_total_steps(s);
    if (!constant && total < 1) return rein_fail(err, REIN_EINVAL, "lr_scheduler_type %s needs total_steps", type);
    if (!constant && s->warmup_steps >= total)
        return rein_fail(err, REIN_EINVAL, "warmup_steps is %lld: less than %s, %lld", (long long)s->warmup_steps,
                         s->total_steps ? "total_steps" : "steps", (long long)total);
    const char *const of_shapes[] = {"lr_final_share", "total_steps"};
    for (size_t i = 0; i < sizeof of_shapes / sizeof *of_shapes; i++)
        if (constant && rein_settings_given(s, of_shapes[i]))
            return rein_fail(err, REIN_EINVAL, "%s cannot act with a constant learning rate", of_shapes[i]);
    return REIN_OK;
}

static rein_status check_reference(const rein_settings *s, rein_error *err) {
    const int step = s->kl_penalty_reference_step >= 0, lag = s->kl_penalty_step_lag > 0, adapter = *s->kl_ref_adapter_path != 0;
    if (step + lag + adapter > 1)
        return rein_fail(err, REIN_EINVAL,
                         "two references at once: only one of kl_penalty_reference_step, kl_penalty_step_lag and "
                         "kl_ref_adapter_path");
    if (step + lag + adapter && !rein_options_use_reference(&s->objective))
        return rein_fail(err, REIN_EINVAL, "%s cannot act: kl_penalty_coef, kl_reward_coef and kl_loss_coef are 0",
                         step  ? "kl_penalty_reference_step"
                         : lag ? "kl_penalty_step_lag"
                               : "kl_ref_adapter_path");
    if (lag && s->save_steps > 1)
        return rein_fail(err, REIN_EINVAL,
                         "kl_penalty_step_lag needs a checkpoint of every step: save_steps is %lld, and must be 1",
                         (long long)s->save_steps);
    if (adapter && s->full)
        return rein_fail(err, REIN_EINVAL, "kl_ref_adapter_path cannot act with full: the reference is a model, not an adapter");
    return REIN_OK;
}

/* The name without the sign that says that less is better. */
static rein_status check_best(const rein_settings *s, rein_error *err) {
    return *s->keep_best ? rein_settings_check_metric(s, "keep_best", s->keep_best + (*s->keep_best == '-'), err) : REIN_OK;
}

rein_status rein_settings_check(const rein_settings *s, rein_error *err) {
    rein_options resolved;
    rein_status status = check_policy(s, err);
    if (!status) status = check_schedule(s, err);
    if (!status) status = check_reference(s, err);
    if (!status) status = check_best(s, err);
    if (!status) status = rein_options_resolve(&resolved, &s->objective, err);
    return status;
}
