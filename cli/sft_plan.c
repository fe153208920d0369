/* sft_plan.c - the plan of supervised training. The order of the examples depends on their number and the size of a batch: neither
 * changes within a run. */
#include "sft_plan.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy.h"
#include "rein/json.h"
#include "terminal.h"
#include "values.h"

/* The constants of a loss over pairs, under their options and in the file. */
static const struct {
    const char *option, *key;
    size_t offset;
} CONSTANTS[] = {{"beta", "beta", offsetof(rein_preference_options, beta)},
                 {"label-smoothing", "label_smoothing", offsetof(rein_preference_options, label_smoothing)},
                 {"simpo-gamma", "simpo_gamma", offsetof(rein_preference_options, simpo_gamma)},
                 {"cpo-alpha", "cpo_alpha", offsetof(rein_preference_options, cpo_alpha)},
                 {"desirable-weight", "desirable_weight", offsetof(rein_preference_options, desirable_weight)},
                 {"undesirable-weight", "undesirable_weight", offsetof(rein_preference_options, undesirable_weight)}};
enum { N_CONSTANTS = sizeof CONSTANTS / sizeof *CONSTANTS };

static double *constant(cli_sft_plan *plan, size_t i) {
    return (double *)(void *)((char *)&plan->preference + CONSTANTS[i].offset);
}

static int is_dpo(const cli_sft_plan *plan) { return !strcmp(plan->command, "dpo"); }
static const char *file_of(const cli_sft_plan *plan) {
    return is_dpo(plan) ? "dpo.json" : plan->reward ? "reward.json" : plan->distill ? "distill.json" : "sft.json";
}

static int take_loss(cli_sft_plan *plan, const char *name) {
    const rein_preference_info *loss = rein_preference_describe(name);
    if (!loss)
        return cli_say_option(plan->command, "loss",
                              "is \"%s\": it is one of dpo, cdpo, robust, hinge, ipo_mean, ipo_sum, simpo, cpo, orpo, kto", name);
    plan->loss = loss;
    plan->preference = rein_preference_published(loss->loss);
    return CLI_DONE;
}

static int read_saved_loss(cli_sft_plan *plan, rein_fields *in) {
    const char *loss = rein_fields_string(in, "loss");
    int status = in->status ? CLI_DONE : take_loss(plan, loss);
    for (size_t i = 0; !status && !in->status && i < N_CONSTANTS; i++)
        if (rein_fields_has(in, CONSTANTS[i].key)) *constant(plan, i) = rein_fields_number(in, CONSTANTS[i].key, -INFINITY);
    return status;
}

static int is_finite(double x) { return isfinite(x) != 0; }

/* A run keeps its loss. */
static int read_loss(cli_sft_plan *plan, const cli_args *args, int saved) {
    const char *given = cli_option_value(args, "loss");
    rein_error err = {0};
    if (saved && given && strcmp(given, plan->loss->name) != 0)
        return cli_say_option(plan->command, "loss", "is %s, but the run was started with %s: another loss needs a new run", given,
                              plan->loss->name);
    int status = saved ? CLI_DONE : take_loss(plan, given ? given : "dpo");
    for (size_t i = 0; !status && i < N_CONSTANTS; i++) {
        double x = *constant(plan, i);
        status = cli_value_number(&x, args, CONSTANTS[i].option, is_finite, "that is finite");
        if (!status && saved && cli_option_value(args, CONSTANTS[i].option) && x != *constant(plan, i))
            return cli_say_option(plan->command, CONSTANTS[i].option,
                                  "is %g, but the run was started with another value: changing it needs a new run", x);
        *constant(plan, i) = x;
    }
    if (status || !rein_preference_check(&plan->preference, &err)) return status;
    return cli_say_error_of(plan->command, err.field, &err);
}

/* ----------------------------------------------------------------------------------------------------------------- a reward model */

static int is_coefficient(double x) { return x >= 0 && isfinite(x); }

static void read_saved_reward(cli_sft_plan *plan, rein_fields *in) {
    const char *held_out = rein_fields_string_or(in, "held_out", "");
    plan->training.center_rewards_coefficient = rein_fields_number(in, "center_rewards_coefficient", -1);
    if (!in->status) snprintf(plan->held_out, sizeof plan->held_out, "%s", held_out);
}

/* A run keeps its loss. The held-out pairs may be others: nothing is trained on them. */
static int read_reward(cli_sft_plan *plan, const cli_args *args, int saved) {
    static const char option[] = "center-rewards-coefficient";
    const double before = plan->training.center_rewards_coefficient;
    const int status =
        cli_value_number(&plan->training.center_rewards_coefficient, args, option, is_coefficient, "0 or more, and finite");
    if (status || !saved || plan->training.center_rewards_coefficient == before) return status;
    return cli_say_option(plan->command, option, "is %g, but the run was started with %g: changing it needs a new run",
                          plan->training.center_rewards_coefficient, before);
}

/* ------------------------------------------------------------------------------------------------------------------ distillation */

enum { MAX_NEW_TOKENS = 128 };

static int is_share(double x) { return x >= 0 && x <= 1; }

static void read_saved_distill(cli_sft_plan *plan, rein_fields *in) {
    plan->own_share = rein_fields_number(in, "lambda", -1);
    plan->nll_coef = rein_fields_number(in, "nll_coef", -1);
    plan->max_new_tokens = rein_fields_integer(in, "max_new_tokens", 1, INT64_MAX);
}

/* A run keeps what decides its batches and its loss. */
static int read_distill(cli_sft_plan *plan, const cli_args *args, int saved) {
    static const char *const options[] = {"lambda", "nll-coef", "max-new-tokens"};
    uint64_t tokens = (uint64_t)plan->max_new_tokens;
    double share = plan->own_share, nll = plan->nll_coef;
    int status = cli_value_number(&share, args, options[0], is_share, "between 0 and 1");
    if (!status) status = cli_value_number(&nll, args, options[1], is_coefficient, "0 or more, and finite");
    if (!status) status = cli_value_whole(&tokens, args, options[2], 1, 1000000000);
    if (status) return status;
    const int changed[] = {share != plan->own_share, nll != plan->nll_coef, tokens != (uint64_t)plan->max_new_tokens};
    for (int i = 0; i < 3; i++)
        if (saved && changed[i])
            return cli_say_option(plan->command, options[i],
                                  "is %s, but the run was started with another: changing it needs a new run",
                                  cli_option_value(args, options[i]));
    if (cli_option_value(args, options[2]) && !(share > 0))
        return cli_say_option(plan->command, options[2], "has no effect without --lambda: nothing is sampled");
    if (nll > 0 && !(share < 1))
        return cli_say_option(plan->command, options[1], "has no effect with --lambda 1: no given completion trains");
    plan->own_share = share, plan->nll_coef = nll, plan->max_new_tokens = (int64_t)tokens;
    return CLI_DONE;
}

static int read_saved(cli_sft_plan *plan, const char *run) {
    rein_text path = {0};
    rein_error err = {0};
    rein_json *root = NULL;
    rein_text_format(&path, "%s/%s", run, file_of(plan));
    if (path.failed) return cli_say_no_memory(plan->command);
    rein_fields in = {.file = path.data, .path = "", .err = &err};
    in.status = rein_json_read(&root, path.data, REIN_JSON_NEEDS_OBJECT, &err);
    in.object = root;
    const char *data = rein_fields_string(&in, "data"), *chat = rein_fields_string(&in, "chat_format");
    *plan = (cli_sft_plan){.command = plan->command,
                           .reward = plan->reward,
                           .distill = plan->distill,
                           .batch_size = rein_fields_integer(&in, "batch_size", 1, INT64_MAX),
                           .epochs = rein_fields_integer(&in, "num_train_epochs", 1, INT64_MAX),
                           .max_steps = rein_fields_integer(&in, "max_steps", 0, INT64_MAX),
                           .examples = rein_fields_integer(&in, "examples", 0, INT64_MAX)};
    const int status = is_dpo(plan) && !in.status ? read_saved_loss(plan, &in) : CLI_DONE;
    if (plan->reward && !in.status) read_saved_reward(plan, &in);
    if (plan->distill && !in.status) read_saved_distill(plan, &in);
    if (!in.status) {
        snprintf(plan->data, sizeof plan->data, "%s", data);
        snprintf(plan->chat_format, sizeof plan->chat_format, "%s", chat);
    }
    rein_json_free(root);
    rein_text_free(&path);
    return status || !in.status ? status : cli_say_error(plan->command, &err);
}

/* A run can be resumed from any directory. */
static int read_path(char to[4096], const cli_sft_plan *plan, const cli_args *args, const char *option) {
    const char *given = cli_option_value(args, option);
    char *path = given ? cli_absolute_path(given) : NULL;
    const int fits = !path || strlen(path) < sizeof plan->data;
    if (given && !path) return cli_say_no_memory(plan->command);
    if (path && fits) strcpy(to, path);
    free(path);
    return fits ? CLI_DONE : cli_say_option(plan->command, option, "is too long for a path");
}

static int read_paths(cli_sft_plan *plan, const cli_args *args) {
    int status = read_path(plan->data, plan, args, "data");
    if (!status && plan->reward) status = read_path(plan->held_out, plan, args, "held-out");
    if (status || *plan->data) return status;
    return cli_say(CLI_WRONG, plan->command, "data is needed: --data FILE, JSON lines");
}

int cli_sft_plan_read(cli_sft_plan *plan, const cli_args *args, const char *run) {
    *plan = (cli_sft_plan){.command = plan->command,
                           .reward = plan->reward,
                           .distill = plan->distill,
                           .max_new_tokens = MAX_NEW_TOKENS,
                           .batch_size = 8,
                           .epochs = 1};
    const int saved = run && cli_directory_has(run, file_of(plan));
    int status = saved ? read_saved(plan, run) : CLI_DONE;
    if (!status && is_dpo(plan)) status = read_loss(plan, args, saved);
    if (!status && plan->reward) status = read_reward(plan, args, saved);
    if (!status && plan->distill) status = read_distill(plan, args, saved);
    uint64_t batch = (uint64_t)plan->batch_size, epochs = (uint64_t)plan->epochs, steps = (uint64_t)plan->max_steps;
    if (!status) status = cli_value_whole(&batch, args, "batch-size", 1, 1000000);
    if (!status) status = cli_value_whole(&epochs, args, "num-train-epochs", 1, 1000000);
    if (cli_option_value(args, "num-train-epochs"))
        steps = 0; /* the max_steps that the run was started with does not end it earlier */
    if (!status) status = cli_value_whole(&steps, args, "max-steps", 1, 1000000000);
    if (status) return status;
    if (saved && batch != (uint64_t)plan->batch_size)
        return cli_say_option(plan->command, "batch-size",
                              "is %" PRIu64 ", but the run was started with %" PRId64 ": another size needs a new run", batch,
                              plan->batch_size);
    const char *chat = cli_option_value(args, "chat-format");
    if (chat) snprintf(plan->chat_format, sizeof plan->chat_format, "%s", chat);
    plan->batch_size = (int64_t)batch;
    plan->epochs = (int64_t)epochs;
    plan->max_steps = (int64_t)steps;
    return read_paths(plan, args);
}

int cli_sft_plan_has_labels(const cli_sft_plan *plan) { return plan->loss && plan->loss->loss == REIN_PREFERENCE_KTO; }

/* The KL of kto needs two completions. */
static void note_lonely(const cli_sft_plan *plan) {
    const int64_t last = (plan->examples - 1) % plan->batch_size + 1;
    if (plan->batch_size == 1)
        cli_say(0, plan->command, "a step has one completion (--batch-size 1): its KL cannot be estimated and is 0");
    else if (last == 1 && plan->total >= plan->steps_per_epoch)
        cli_say(0, plan->command, "the last step of an epoch has one completion: its KL cannot be estimated and is 0");
}

int cli_sft_plan_finish(cli_sft_plan *plan, size_t examples) {
    const int64_t n = (int64_t)examples;
    if (plan->examples && plan->examples != n)
        return cli_say(CLI_WRONG, plan->command,
                       "%s has %zu examples, but the run was started with %" PRId64 ": other data needs a new run", plan->data,
                       examples, plan->examples);
    plan->examples = n;
    plan->steps_per_epoch = (n + plan->batch_size - 1) / plan->batch_size;
    plan->total = plan->max_steps ? plan->max_steps : plan->epochs * plan->steps_per_epoch;
    if (cli_sft_plan_has_labels(plan)) note_lonely(plan);
    return CLI_DONE;
}

static void put_number(rein_text *text, const char *name, int64_t value) {
    rein_text_format(text, ",\n  \"%s\": %" PRId64, name, value);
}

static void put_loss(rein_text *text, const cli_sft_plan *plan) {
    cli_sft_plan copy = *plan;
    rein_text_put(text, ",\n  \"loss\": ");
    rein_json_put_string(text, plan->loss->name);
    for (size_t i = 0; i < N_CONSTANTS; i++)
        if (!isnan(*constant(&copy, i))) rein_text_format(text, ",\n  \"%s\": %.17g", CONSTANTS[i].key, *constant(&copy, i));
}

static void put_reward(rein_text *text, const cli_sft_plan *plan) {
    rein_text_put(text, ",\n  \"held_out\": ");
    rein_json_put_string(text, plan->held_out);
    rein_text_format(text, ",\n  \"center_rewards_coefficient\": %.17g", plan->training.center_rewards_coefficient);
}

static void put_plan(rein_text *text, const cli_sft_plan *plan) {
    rein_text_put(text, "{\n  \"data\": ");
    rein_json_put_string(text, plan->data);
    rein_text_put(text, ",\n  \"chat_format\": ");
    rein_json_put_string(text, plan->chat_format);
    put_number(text, "batch_size", plan->batch_size);
    put_number(text, "num_train_epochs", plan->epochs);
    put_number(text, "max_steps", plan->max_steps);
    put_number(text, "examples", plan->examples);
    if (plan->loss) put_loss(text, plan);
    if (plan->reward) put_reward(text, plan);
    if (plan->distill) {
        rein_text_format(text, ",\n  \"lambda\": %.17g,\n  \"nll_coef\": %.17g", plan->own_share, plan->nll_coef);
        put_number(text, "max_new_tokens", plan->max_new_tokens);
    }
    rein_text_put(text, "\n}");
}

int cli_sft_plan_keep(const cli_sft_plan *plan, rein_session *session) {
    rein_text text = {0};
    rein_error err = {0};
    int status = CLI_DONE;
    put_plan(&text, plan);
    if (text.failed) status = cli_say_no_memory(plan->command);
    else if (rein_session_keep_text(session, file_of(plan), text.data, &err)) status = cli_say_error(plan->command, &err);
    rein_text_free(&text);
    return status;
}
