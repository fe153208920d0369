/* sft.c - `rein sft`: supervised training, as many steps of a run as the data and the epochs ask for.
 *
 * Step s takes batch s mod n of epoch s / n, and the order of an epoch hangs on the seed alone: a run that is gone on with sees what it would
 * have seen. What decides that (the data, the size of a batch) is kept with the run in sft.json. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "progress.h"
#include "sft_plan.h"
#include "terminal.h"
#include "training.h"
#include "values.h"

static const char WHERE[] = "sft";

typedef struct supervised {
    rein_training t;
    rein_sft_plan plan;
    rein_groups data;
    size_t *order;     /* [data.n] of the epoch */
    int64_t epoch;     /* that `order` is of; -1: none yet */
    rein_group *batch; /* [batch_size] borrowed from data */
    double first_loss;
    int json;
} supervised;

/* ---------------------------------------------------------------------------------------------------------------------- checks */

/* What to use instead of a setting that has no effect here; NULL: it has one. */
static const char *idle_setting(const char *name) {
    if (!strcmp(name, "epochs")) return "--num-train-epochs N goes through the data N times";
    if (!strcmp(name, "minibatches")) return "--batch-size N is how many examples a step has";
    return !strcmp(name, "mask_truncated_completions") ? "no example is cut off" : NULL;
}

/* The loss is the negative log-likelihood, and a step is a batch. */
static rein_status check_given(const supervised *s, rein_error *err) {
    static const char only[] =
        "supervised training has one objective, the log-likelihood, of which only the aggregation can be chosen";
    const char *preset = rein_training_preset(&s->t);
    for (size_t i = 0; rein_setting_at(i); i++) {
        const char *name = rein_setting_at(i)->name;
        if (rein_settings_given(s->t.settings, name) && idle_setting(name))
            return rein_fail_at(err, REIN_EINVAL, name, -1, "has no effect here: %s", idle_setting(name));
    }
    if (preset) return rein_fail_at(err, REIN_EINVAL, "preset", -1, "%s has no effect here: %s", preset, only);
    for (size_t i = 0; rein_option_at(i); i++) {
        const char *name = rein_option_at(i)->name;
        if (rein_settings_given(s->t.settings, name) && strcmp(name, "aggregation") != 0)
            return rein_fail_at(err, REIN_EINVAL, name, -1, "has no effect here: %s", only);
    }
    return REIN_OK;
}

/* Of every step a checkpoint is kept otherwise: three, the first, and what the user says. */
static int set_defaults(supervised *s) {
    rein_error err = {0};
    char total[32];
    rein_settings *given = s->t.given;
    const int keeps = rein_args_has_setting(s->t.args, "keep_last") || rein_settings_number(given, "keep_last") > 0 ||
                      *rein_settings_text(given, "keep_best");
    rein_status status = REIN_OK;
    if (s->t.is_new && !keeps) status = rein_settings_set(given, "keep_last", "3", &err);
    snprintf(total, sizeof total, "%" PRId64, s->plan.total);
    if (!status && s->t.total_open) status = rein_settings_set(given, "total_steps", total, &err);
    if (!status && s->t.total_open) status = rein_settings_check(given, &err);
    return status ? rein_say_setting_error(s->t.args, &err) : REIN_DONE;
}

static int read_data(supervised *s) {
    rein_error err = {0};
    const int32_t named = s->t.tokenizer ? rein_tokenizer_named(s->t.tokenizer).end : -1;
    const int32_t end = s->t.info.n_end_ids ? s->t.info.end_ids[0] : named;
    const char *path = s->plan.data;
    if (*s->plan.chat_format && rein_chat_named(&s->t.chat, s->plan.chat_format, &err)) return rein_say_error(WHERE, &err);
    s->t.has_chat = *s->plan.chat_format != 0;
    if (rein_sft_read(&s->data, path, s->t.tokenizer, s->t.has_chat ? &s->t.chat : NULL, named >= 0 ? named : end, &err))
        return rein_say_error(WHERE, &err);
    rein_loss loss;
    const int status = rein_training_check(&loss, &s->t, &s->data, path);
    return status ? status : rein_sft_plan_finish(&s->plan, s->data.n);
}

/* ----------------------------------------------------------------------------------------------------------------------- a step */

static int allocate(supervised *s) {
    s->order = calloc(s->data.n, sizeof *s->order);
    s->batch = calloc((size_t)s->plan.batch_size, sizeof *s->batch);
    s->epoch = -1;
    return s->order && s->batch ? REIN_DONE : rein_say_no_memory(WHERE);
}

static rein_groups batch_of(supervised *s, int64_t step) {
    const int64_t epoch = step / s->plan.steps_per_epoch, first = step % s->plan.steps_per_epoch * s->plan.batch_size;
    rein_groups batch = {.groups = s->batch};
    if (epoch != s->epoch)
        rein_shuffle(s->order, s->data.n, (uint64_t)rein_settings_number(s->t.settings, "seed"), (uint64_t)epoch);
    s->epoch = epoch;
    for (size_t i = (size_t)first; i < s->data.n && batch.n < (size_t)s->plan.batch_size; i++)
        s->batch[batch.n++] = s->data.groups[s->order[i]];
    return batch;
}

static int train(supervised *s, rein_session_report *report) {
    rein_progress progress;
    rein_error err = {0};
    rein_progress_begin(&progress, rein_session_step(s->t.session), s->plan.total);
    for (int64_t step; (step = rein_session_step(s->t.session)) < s->plan.total && !rein_progress_interrupted();) {
        const rein_groups batch = batch_of(s, step);
        char text[100];
        if (rein_session_train(report, s->t.session, &batch, NULL, &err) ||
            rein_session_commit(report, s->t.session, &batch, NULL, 0, &err)) {
            rein_progress_clear(&progress);
            return rein_training_failed(&s->t, &err);
        }
        const double loss = rein_report_value(report, "loss");
        if (isnan(s->first_loss)) s->first_loss = loss;
        snprintf(text, sizeof text, "loss %.4f  lr %.3g  %.0f tok/s", loss, rein_report_value(report, "learning_rate"),
                 rein_report_value(report, "tokens_per_second"));
        rein_progress_step(&progress, report->step, text);
    }
    rein_progress_clear(&progress);
    if (rein_session_save(s->t.session, &err)) return rein_training_failed(&s->t, &err);
    rein_training_note(&s->t, s->t.session);
    return REIN_DONE;
}

/* ---------------------------------------------------------------------------------------------------------------------- output */

static void table(rein_text *out, const supervised *s, const rein_session_report *r) {
    rein_text_format(out, "%-12s %" PRId64 " of %" PRId64 "\n", "steps", r->step, s->plan.total);
    rein_text_format(out, "%-12s %.4f, from %.4f\n", "loss", rein_report_value(r, "loss"), s->first_loss);
    rein_text_format(out, "%-12s %.0f\n", "tokens", rein_report_value(r, "num_tokens"));
    rein_text_format(out, "%-12s ", "checkpoint");
    rein_training_checkpoint(out, &s->t, r->step);
    rein_text_put(out, "\n");
}

static int finish(const supervised *s, const rein_session_report *r) {
    rein_text out = {0};
    if (s->json) rein_report_json(&out, r, &s->t);
    else if (r->n) table(&out, s, r);
    const int status = rein_print(&out);
    if (status || r->step >= s->plan.total) return status;
    return rein_say(REIN_FAILED, WHERE, "stopped after step %" PRId64 " of %" PRId64 ", which is saved: rein sft %s goes on",
                    r->step, s->plan.total, s->t.run);
}

static int dry_run(const supervised *s) {
    const rein_groups_summary sum = rein_groups_summarise(&s->data);
    rein_text out = {0};
    if (s->json) {
        rein_text_format(&out,
                         "{\"dry_run\": true, \"new_run\": %s, \"examples\": %zu, \"tokens\": %zu, \"trained_tokens\": %zu, "
                         "\"steps\": %" PRId64 "}\n",
                         s->t.is_new ? "true" : "false", sum.groups, sum.tokens, sum.trained_tokens, s->plan.total);
        return rein_print(&out);
    }
    rein_text_format(&out, "%-12s %s, %s\n", "run", s->t.run, s->t.is_new ? "to be begun" : "to be gone on with");
    rein_text_format(&out, "%-12s %s\n", "model", rein_settings_text(s->t.settings, "model"));
    rein_text_format(&out, "%-12s %s\n", "trains", rein_settings_number(s->t.settings, "full") > 0 ? "all weights" : "an adapter");
    rein_text_format(&out, "%-12s %zu, the longest trains %zu tokens\n", "examples", sum.groups, sum.length_max);
    rein_text_format(&out, "%-12s %zu, of which %zu train\n", "tokens", sum.tokens, sum.trained_tokens);
    rein_text_format(&out, "%-12s %" PRId64 ", %" PRId64 " an epoch\n", "steps", s->plan.total, s->plan.steps_per_epoch);
    rein_text_put(&out, "Nothing was written.\n");
    return rein_print(&out);
}

/* ------------------------------------------------------------------------------------------------------------------ the command */

static int run(supervised *s) {
    int status = rein_training_open(&s->t);
    if (!status) status = rein_sft_plan_write(&s->plan, s->t.run);
    if (!status) status = allocate(s);
    if (status) return status;
    const int64_t step = rein_session_step(s->t.session);
    rein_session_report report = {.step = step, .nothing_to_train = 1};
    if (step >= s->plan.total)
        rein_say(0, WHERE, "nothing to do: %s has made its %" PRId64 " steps; more --num-train-epochs or --max-steps go on",
                 s->t.run, step);
    else if (step) rein_say(0, WHERE, "going on after step %" PRId64 " of %" PRId64, step, s->plan.total);
    status = train(s, &report);
    return status ? status : finish(s, &report);
}

int rein_run_sft(const rein_args *args) {
    supervised s = {.first_loss = NAN, .json = rein_option_value(args, "json") != NULL};
    rein_error err = {0};
    s.t.knows_total = 1;
    int status = rein_training_read(&s.t, args);
    if (!status && check_given(&s, &err)) status = rein_say_setting_error(args, &err);
    if (!status) status = rein_sft_plan_read(&s.plan, args, s.t.is_new ? NULL : s.t.run);
    if (!status) status = rein_training_look(&s.t);
    if (!status) status = read_data(&s);
    if (!status) status = set_defaults(&s);
    if (!status) status = rein_option_value(args, "dry-run") ? dry_run(&s) : run(&s);
    free(s.order);
    free(s.batch);
    rein_groups_free(&s.data);
    rein_training_close(&s.t);
    return status;
}
