/* sft.c - `rein sft`, `rein dpo`, `rein reward` and `rein distill`: training on examples or on pairs, as many steps of a run as the data and the epochs have.
 *
 * Step s takes batch s mod n of epoch s / n, and the order of an epoch depends only on seed and epoch: a resumed run sees the same batches.
 * What decides them (the data, the size of a batch, the loss over pairs) is kept with the run in RUN/COMMAND.json. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "progress.h"
#include "ranks.h"
#include "sft_plan.h"
#include "terminal.h"
#include "training.h"
#include "values.h"

typedef struct supervised {
    cli_training t;
    const rein_settings *settings; /* of the session */
    cli_sft_plan plan;
    rein_groups data, held_out;       /* held_out: of a reward model; empty: none */
    rein_reward_evaluation evaluated; /* n 0: nothing was */
    size_t *order;                    /* [data.n] of the epoch */
    int64_t epoch;                    /* that `order` is of; -1: none yet */
    rein_group *batch;                /* [batch_size] borrowed from data */
    const rein_chat *chat;            /* of the data, or NULL; end_id: its end token, or -1 */
    int32_t end_id;
    double first_loss;
    rein_memory_use memory; /* total 0: there is no estimate */
    int json;
} supervised;

/* ---------------------------------------------------------------------------------------------------------------------- checks */

/* Accuracies are those of pairs: completions that are labelled have none. */
static int has_pairs(const supervised *s) { return s->plan.reward || (s->plan.loss && !cli_sft_plan_has_labels(&s->plan)); }

/* The metric of that. */
static const char *accuracy_of(const supervised *s) { return s->plan.reward ? "accuracy" : "rewards/accuracies"; }

/* What is trained on, in words. */
static const char *data_word(const supervised *s) {
    if (cli_sft_plan_has_labels(&s->plan)) return "completions";
    return has_pairs(s) ? "pairs" : "examples";
}

/* What to use instead of a setting that has no effect here; NULL: it has one. */
static const char *instead_of(const supervised *s, const char *name) {
    if (!strcmp(name, "epochs")) return "--num-train-epochs N goes through the data N times";
    if (!strcmp(name, "temperature") && s->plan.reward) return "a score has no temperature";
    if (!strcmp(name, "minibatches")) return "--batch-size N is how many examples a step has";
    return !strcmp(name, "mask_truncated_completions") ? "no example is cut off" : NULL;
}

/* One of its own, in place of an objective. */
static int has_loss(const supervised *s) { return s->plan.loss || s->plan.reward; }

/* The sampled divergence says something about tokens that the model itself has sampled. */
static rein_status check_teacher(const supervised *s, rein_error *err) {
    if (!*rein_settings_text(s->settings, "teacher"))
        return rein_fail_at(err, REIN_EINVAL, "teacher", -1, "is missing: a new run needs the directory of a teacher");
    if (!strcmp(rein_settings_text(s->settings, "divergence"), "sampled") && s->plan.own_share < 1)
        return rein_fail_at(err, REIN_EINVAL, "divergence", -1,
                            "sampled needs --lambda 1: on given completions it is no divergence; forward, reverse and jsd are");
    return REIN_OK;
}

/* What the divergence from a teacher leaves open. */
static int is_of_teacher(const char *name) {
    const rein_option_info *info;
    for (size_t i = 0; (info = rein_option_at(i)); i++)
        if (!strcmp(info->name, name)) return !strcmp(info->stage, "teacher");
    return 0;
}

static int may_be_given(const supervised *s, const char *name) {
    if (s->plan.distill && is_of_teacher(name)) return 1;
    return !has_loss(s) && (!strcmp(name, "aggregation") || !strcmp(name, "max_response_length"));
}

/* The loss is the negative log-likelihood, and a step is a batch. */
static rein_status check_settings(const supervised *s, rein_error *err) {
    const rein_settings *settings = s->settings;
    const char *only =
        s->plan.reward ? "the objective is the loss of a reward model"
        : s->plan.loss ? "the objective is the loss over pairs: --loss chooses it"
        : s->plan.distill
            ? "the objective is the divergence from the teacher: --divergence, --jsd-beta and the aggregation choose it"
            : "supervised training has one objective, the log-likelihood, of which only the aggregation can be chosen";
    const char *preset = cli_preset(settings);
    for (size_t i = 0; rein_setting_at(i); i++) {
        const char *name = rein_setting_at(i)->name;
        if (rein_settings_given(settings, name) && instead_of(s, name))
            return rein_fail_at(err, REIN_EINVAL, name, -1, "has no effect here: %s", instead_of(s, name));
    }
    if (preset) return rein_fail_at(err, REIN_EINVAL, "preset", -1, "%s has no effect here: %s", preset, only);
    for (size_t i = 0; rein_option_at(i); i++) {
        const char *name = rein_option_at(i)->name;
        if (rein_settings_given(settings, name) && !may_be_given(s, name))
            return rein_fail_at(err, REIN_EINVAL, name, -1, "has no effect here: %s", only);
    }
    return s->plan.distill ? check_teacher(s, err) : REIN_OK;
}

/* A new run keeps three checkpoints besides the first one, unless the user says otherwise: with one a step there would be many. */
static int set_defaults(const cli_training *t) {
    rein_error err = {0};
    rein_settings *given = t->given;
    const int keeps = cli_args_has_setting(t->args, "keep_last") || rein_settings_number(given, "keep_last") > 0 ||
                      *rein_settings_text(given, "keep_best");
    if (keeps || rein_run_exists(t->run) || !rein_settings_set(given, "keep_last", "3", &err)) return CLI_DONE;
    return cli_say_setting_error(t->args, &err);
}

/* The whole divergence, forward: what a new run has unless it is told otherwise. */
static int set_divergence(const supervised *s) {
    static const char *const defaults[][2] = {{"teacher_coef", "1"}, {"divergence", "forward"}};
    rein_error err = {0};
    if (!s->plan.distill || rein_run_exists(s->t.run)) return CLI_DONE;
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
        if (!rein_settings_given(s->t.given, defaults[i][0]) && rein_settings_set(s->t.given, defaults[i][0], defaults[i][1], &err))
            return cli_say_setting_error(s->t.args, &err);
    return CLI_DONE;
}

/* A reference that the loss does not have is not ignored. */
static int check_reference(supervised *s) {
    static const char *const names[] = {"kl_penalty_reference_step", "kl_penalty_step_lag", "kl_ref_adapter_path"};
    rein_error err = {0};
    const rein_preference_info *loss = s->plan.loss;
    rein_settings_use_preference(s->t.given, loss);
    rein_settings_use_score(s->t.given, s->plan.reward);
    for (size_t i = 0; loss && !loss->uses_reference && i < sizeof names / sizeof *names; i++)
        if (rein_settings_given(s->t.given, names[i])) {
            rein_fail_at(&err, REIN_EINVAL, names[i], -1, "has no effect: loss %s has no reference", loss->name);
            return cli_say_setting_error(s->t.args, &err);
        }
    return CLI_DONE;
}

static int prepare(supervised *s) {
    rein_error err = {0};
    cli_memory_foresee(&s->t, REIN_MEMORY_TRAINING);
    int status = check_reference(s);
    if (status) return status;
    status = cli_training_prepare(&s->t);
    if (status) return status;
    s->settings = rein_session_settings(s->t.session);
    return check_settings(s, &err) ? cli_say_setting_error(s->t.args, &err) : CLI_DONE;
}

/* An error about a place in the groups of one example is one about the example, or a token of it. */
static rein_status fail_example(rein_error *err, rein_status status, size_t i) {
    const char *last = strrchr(err->field, '.');
    char name[80], token[40] = "";
    if (strncmp(err->field, "groups", strlen("groups")) != 0) return status;
    if (!strcmp(last ? last : "", ".ids")) snprintf(token, sizeof token, ": token %" PRId64, err->index);
    snprintf(name, sizeof name, "example %zu%s", i + 1, token);
    return rein_fail_as(err, status, "data", (int64_t)i, name);
}

/* One example at a time, which needs little memory. */
static rein_status check_data(const supervised *s, rein_error *err) {
    for (size_t i = 0; i < s->data.n; i++) {
        rein_loss loss;
        const rein_groups example = {s->data.groups + i, 1, 0};
        const rein_status status = rein_session_check(&loss, s->t.session, &example, s->plan.data, err);
        if (status) return fail_example(err, status, i);
    }
    return REIN_OK;
}

typedef rein_status reader(rein_groups *groups, const char *path, const rein_tokenizer *tokenizer, const rein_chat *chat,
                           int32_t end_id, int64_t positions, rein_error *err);

/* With the positions of the model, which examples of supervised training are checked for later. */
static rein_status read_examples(rein_groups *groups, const char *path, const rein_tokenizer *tokenizer, const rein_chat *chat,
                                 int32_t end_id, int64_t positions, rein_error *err) {
    (void)positions;
    return rein_sft_read(groups, path, tokenizer, chat, end_id, err);
}

static reader *reader_of(const cli_sft_plan *plan) {
    if (plan->reward) return rein_reward_pairs_read;
    if (!plan->loss) return read_examples;
    return cli_sft_plan_has_labels(plan) ? rein_labelled_read : rein_pairs_read;
}

/* A reward model is saved with how its texts become tokens, and may be evaluated on pairs that do not train. */
static int read_held_out(supervised *s, const rein_chat *chat, int32_t end_id, int64_t positions) {
    rein_error err = {0};
    const rein_reward_form form = {
        .known = 1, .end_id = end_id, .chat_format = chat && chat->kind != REIN_CHAT_TEMPLATE ? rein_chat_name(chat) : NULL};
    if (rein_session_set_reward_form(s->t.session, &form, &err)) return cli_say_error(s->plan.command, &err);
    if (*s->plan.held_out && rein_reward_pairs_read(&s->held_out, s->plan.held_out, s->t.tokenizer, chat, end_id, positions, &err))
        return cli_say_error_of(s->plan.command, "held-out", &err);
    return CLI_DONE;
}

static int read_data(supervised *s) {
    rein_error err = {0};
    const rein_model_info info = rein_model_describe(rein_session_policy(s->t.session).model);
    const int32_t named = s->t.tokenizer ? rein_tokenizer_named(s->t.tokenizer).end : -1;
    const int32_t end = info.n_end_ids ? info.end_ids[0] : -1;
    if (*s->plan.chat_format && rein_chat_named(&s->t.chat, s->plan.chat_format, &err))
        return cli_say_option_error(s->plan.command, "chat-format", &err);
    const rein_status found =
        *s->plan.chat_format ? REIN_OK : rein_settings_chat(&s->t.chat, rein_session_settings(s->t.session), s->t.tokenizer, &err);
    if (found && found != REIN_END) return cli_say_error(s->plan.command, &err);
    const rein_chat *chat = found ? NULL : &s->t.chat;
    const int32_t end_id = named >= 0 ? named : end;
    if (reader_of(&s->plan)(&s->data, s->plan.data, s->t.tokenizer, chat, end_id, info.max_positions, &err))
        return cli_say_error_of(s->plan.command, "data", &err);
    for (size_t i = 0; s->plan.distill && i < s->data.n; i++) s->data.groups[i].trajectories[0].reward = s->plan.nll_coef;
    s->chat = chat, s->end_id = end_id;
    if (check_data(s, &err)) return cli_say_setting_error(s->t.args, &err);
    int status = s->plan.reward ? read_held_out(s, chat, end_id, info.max_positions) : CLI_DONE;
    if (!status) status = cli_sft_plan_finish(&s->plan, s->data.n);
    if (!status && rein_session_add_file(s->t.session, "data", s->plan.data, &err)) status = cli_say_error(s->plan.command, &err);
    if (!status) status = cli_sft_plan_keep(&s->plan, s->t.session);
    if (status || !s->t.total_open || !rein_session_set_total_steps(s->t.session, s->plan.total, &err)) return status;
    return cli_say_setting_error(s->t.args, &err);
}

/* ----------------------------------------------------------------------------------------------------------------------- a step */

static int allocate(supervised *s) {
    s->order = calloc(s->data.n, sizeof *s->order);
    s->batch = calloc((size_t)s->plan.batch_size, sizeof *s->batch);
    s->epoch = -1;
    return s->order && s->batch ? CLI_DONE : cli_say_no_memory(s->plan.command);
}

static rein_groups batch_of(supervised *s, int64_t step) {
    const int64_t epoch = step / s->plan.steps_per_epoch, first = step % s->plan.steps_per_epoch * s->plan.batch_size;
    rein_groups batch = {.groups = s->batch};
    if (epoch != s->epoch) rein_shuffle(s->order, s->data.n, (uint64_t)rein_settings_number(s->settings, "seed"), (uint64_t)epoch);
    s->epoch = epoch;
    for (size_t i = (size_t)first; i < s->data.n && batch.n < (size_t)s->plan.batch_size; i++)
        s->batch[batch.n++] = s->data.groups[s->order[i]];
    return batch;
}

/* The held-out pairs at the end of an epoch, and of the run; *n numbers for the history. */
static rein_status evaluate(rein_named_number more[4], size_t *n, supervised *s, int64_t step, rein_error *err) {
    *n = 0;
    if (!s->held_out.n || (step % s->plan.steps_per_epoch && step != s->plan.total)) return REIN_OK;
    const rein_status status = rein_session_evaluate_rewards(&s->evaluated, s->t.session, &s->held_out, &s->plan.training, err);
    if (status) return status;
    const rein_reward_evaluation *e = &s->evaluated;
    more[(*n)++] = (rein_named_number){"eval/loss", e->loss};
    more[(*n)++] = (rein_named_number){"eval/accuracy", e->accuracy};
    more[(*n)++] = (rein_named_number){"eval/margin", e->margin};
    more[(*n)++] = (rein_named_number){"eval/calibration_error", e->calibration_error};
    return REIN_OK;
}

/* The model's own completions, where the step takes them. */
static rein_status sample(rein_groups *sampled, double *seconds, const supervised *s, const rein_groups *given, rein_error *err) {
    const rein_own_samples how = {s->plan.own_share, (size_t)s->plan.max_new_tokens, s->t.tokenizer, s->chat, s->end_id};
    return rein_session_own_samples(sampled, seconds, s->t.session, given, &how, err);
}

static rein_status make_step(rein_session_report *report, supervised *s, int64_t step, rein_error *err) {
    rein_groups given = batch_of(s, step), sampled = {0};
    double seconds = NAN;
    rein_status status = s->plan.own_share > 0 ? sample(&sampled, &seconds, s, &given, err) : REIN_OK;
    if (status) return status;
    rein_groups *batch = sampled.n ? &sampled : &given;
    const rein_train_options options = {.seconds_sample = seconds,
                                        .own_samples = sampled.n > 0,
                                        .preference = s->plan.loss ? &s->plan.preference : NULL,
                                        .reward_model = s->plan.reward ? &s->plan.training : NULL};
    rein_named_number more[4];
    size_t n;
    status = rein_session_train(report, s->t.session, batch, &options, err);
    if (!status) status = evaluate(more, &n, s, step + 1, err);
    if (!status) status = rein_session_commit(report, s->t.session, batch, more, n, err);
    rein_groups_free(&sampled);
    return status;
}

static int train(supervised *s, rein_session_report *report) {
    cli_progress progress;
    rein_error err = {0};
    cli_progress_begin(&progress, rein_session_step(s->t.session), s->plan.total);
    int interrupted = 0, status = CLI_DONE;
    for (int64_t step; (step = rein_session_step(s->t.session)) < s->plan.total;) {
        if ((status = cli_ranks_interrupted(&interrupted, s->plan.command)) || interrupted) break;
        char text[140], accuracy[40] = "";
        if (make_step(report, s, step, &err)) {
            cli_progress_clear(&progress);
            return cli_training_failed(&s->t, &err);
        }
        const double loss = cli_report_value(report, "loss");
        if (isnan(s->first_loss)) s->first_loss = loss;
        if (has_pairs(s)) snprintf(accuracy, sizeof accuracy, "accuracy %.2f  ", cli_report_value(report, accuracy_of(s)));
        if (s->plan.distill)
            snprintf(accuracy, sizeof accuracy, "divergence %.4f  ", cli_report_value(report, "teacher/divergence"));
        snprintf(text, sizeof text, "loss %.4f  %slr %.3g  %.0f tok/s", loss, accuracy, cli_report_value(report, "learning_rate"),
                 cli_report_value(report, "tokens_per_second"));
        cli_progress_step(&progress, report->step, text);
    }
    cli_progress_clear(&progress);
    if (status) return status;
    if (rein_session_save(s->t.session, &err)) return cli_training_failed(&s->t, &err);
    cli_training_note(&s->t, s->t.session);
    return CLI_DONE;
}

/* ---------------------------------------------------------------------------------------------------------------------- output */

static void table(rein_text *out, const supervised *s, const rein_session_report *r) {
    rein_text_format(out, "%-12s %" PRId64 " of %" PRId64 "\n", "steps", r->step, s->plan.total);
    rein_text_format(out, "%-12s %.4f, from %.4f\n", "loss", cli_report_value(r, "loss"), s->first_loss);
    if (s->plan.distill) rein_text_format(out, "%-12s %.4f\n", "divergence", cli_report_value(r, "teacher/divergence"));
    if (has_pairs(s)) rein_text_format(out, "%-12s %.2f\n", "accuracy", cli_report_value(r, accuracy_of(s)));
    if (s->evaluated.n)
        rein_text_format(out, "%-12s %zu pair%s: accuracy %.3f, margin %.3f, loss %.4f, calibration error %.3f\n", "held out",
                         s->evaluated.n, s->evaluated.n == 1 ? "" : "s", s->evaluated.accuracy, s->evaluated.margin,
                         s->evaluated.loss, s->evaluated.calibration_error);
    rein_text_format(out, "%-12s %.0f\n", "tokens", cli_report_value(r, "num_tokens"));
    rein_text_format(out, "%-12s ", "checkpoint");
    cli_training_checkpoint(out, &s->t, r->step);
    rein_text_put(out, "\n");
}

static int finish(const supervised *s, const rein_session_report *r) {
    rein_text out = {0};
    if (s->json) cli_report_json(&out, r, &s->t);
    else if (r->n) table(&out, s, r);
    const int status = cli_print(&out);
    if (status || r->step >= s->plan.total) return status;
    return cli_say(CLI_FAILED, s->plan.command,
                   "stopped after step %" PRId64 " of %" PRId64 ", which is saved; resume with rein %s %s", r->step, s->plan.total,
                   s->plan.command, s->t.run);
}

static size_t count_desirable(const rein_groups *data) {
    size_t n = 0;
    for (size_t g = 0; g < data->n; g++) n += data->groups[g].trajectories[0].reward > 0;
    return n;
}

static int dry_run(const supervised *s) {
    const rein_groups_summary sum = rein_groups_summarise(&s->data);
    rein_text out = {0};
    if (s->json) {
        rein_text_format(&out,
                         "{\"dry_run\": true, \"new_run\": %s, \"examples\": %zu, \"tokens\": %zu, \"trained_tokens\": %zu, "
                         "\"steps\": %" PRId64 ", \"memory_bytes\": %zu}\n",
                         rein_session_is_new(s->t.session) ? "true" : "false", sum.groups, sum.tokens, sum.trained_tokens,
                         s->plan.total, s->memory.total);
        return cli_print(&out);
    }
    cli_training_describe(&out, &s->t, s->t.session);
    if (s->plan.loss) rein_text_format(&out, "%-12s %s, beta %g\n", "loss", s->plan.loss->name, s->plan.preference.beta);
    if (s->plan.reward) rein_text_format(&out, "%-12s %zu\n", "pairs", sum.groups);
    else rein_text_format(&out, "%-12s %zu, the longest trains %zu tokens\n", data_word(s), sum.groups, sum.length_max);
    if (s->held_out.n) rein_text_format(&out, "%-12s %zu pairs\n", "held out", s->held_out.n);
    if (cli_sft_plan_has_labels(&s->plan)) rein_text_format(&out, "%-12s %zu\n", "desirable", count_desirable(&s->data));
    if (s->plan.reward) rein_text_format(&out, "%-12s %zu\n", "tokens", sum.tokens);
    else rein_text_format(&out, "%-12s %zu, of which %zu train\n", "tokens", sum.tokens, sum.trained_tokens);
    rein_text_format(&out, "%-12s %" PRId64 ", %" PRId64 " an epoch\n", "steps", s->plan.total, s->plan.steps_per_epoch);
    if (s->memory.total) cli_memory_row(&out, &s->memory);
    rein_text_put(&out, "Nothing was written.\n");
    return cli_print(&out);
}

/* ------------------------------------------------------------------------------------------------------------------ the command */

static int run(supervised *s) {
    int status = cli_training_begin(&s->t);
    if (!status) status = allocate(s);
    if (status) return status;
    const int64_t step = rein_session_step(s->t.session);
    rein_session_report report = {.step = step, .nothing_to_train = 1};
    if (step >= s->plan.total)
        cli_say(0, s->plan.command,
                "nothing to do: %s has made its %" PRId64 " steps; a larger --num-train-epochs or --max-steps continues it",
                s->t.run, step);
    else if (step) cli_say(0, s->plan.command, "resuming after step %" PRId64 " of %" PRId64, step, s->plan.total);
    status = train(s, &report);
    return status ? status : finish(s, &report);
}

static int run_command(const cli_args *args, const char *command) {
    supervised s = {.plan.command = command,
                    .plan.reward = !strcmp(command, "reward"),
                    .plan.distill = !strcmp(command, "distill"),
                    .first_loss = NAN,
                    .json = cli_option_value(args, "json") != NULL};
    s.t.knows_total = 1;
    int status = cli_training_read(&s.t, args);
    if (!status) status = cli_sft_plan_read(&s.plan, args, rein_run_exists(s.t.run) ? s.t.run : NULL);
    if (!status) status = set_defaults(&s.t);
    if (!status) status = set_divergence(&s);
    if (!status) status = prepare(&s);
    if (!status) status = read_data(&s);
    if (!status && cli_memory_estimate(&s.memory, s.settings, REIN_MEMORY_TRAINING, 0, &s.data)) cli_memory_note(&s.t, &s.memory);
    if (!status) status = cli_option_value(args, "dry-run") ? dry_run(&s) : run(&s);
    free(s.order);
    free(s.batch);
    rein_groups_free(&s.data);
    rein_groups_free(&s.held_out);
    cli_training_close(&s.t);
    return status;
}

int cli_run_sft(const cli_args *args) { return run_command(args, "sft"); }
int cli_run_dpo(const cli_args *args) { return run_command(args, "dpo"); }
int cli_run_reward(const cli_args *args) { return run_command(args, "reward"); }
int cli_run_distill(const cli_args *args) { return run_command(args, "distill"); }
