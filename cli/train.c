/* train.c - `rein train`: one step of a run on recorded trajectory groups. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "memory.h"
#include "terminal.h"
#include "training.h"
#include "values.h"

static const char WHERE[] = "train";

/* -------------------------------------------------------------------------------------------------------------- the groups */

/* Reads the groups and checks them; *loss has what is known before a log-prob is computed. */
static int read_groups(rein_groups *groups, rein_loss *loss, const cli_training *t, const char *path) {
    rein_error err = {0};
    rein_chat chat;
    const rein_status found = rein_settings_chat(&chat, rein_session_settings(t->session), t->tokenizer, &err);
    if (found && found != REIN_END) return cli_say_error(WHERE, &err);
    if (rein_groups_read(groups, path, t->tokenizer, found ? NULL : &chat, &err)) return cli_say_error_of(WHERE, "groups", &err);
    return rein_session_check(loss, t->session, groups, path, &err) ? cli_say_setting_error(t->args, &err) : CLI_DONE;
}

/* An objective that compares no rewards needs no warning about them. */
static int applies(rein_groups_warning warning, const rein_settings *s) {
    const char *advantage = rein_settings_text(s, "advantage");
    const int compares = strcmp(advantage, "none") != 0 && strcmp(advantage, "gae") != 0;
    return compares || (warning != REIN_GROUPS_SINGLE && warning != REIN_GROUPS_EQUAL_REWARDS);
}

static void warn(const cli_training *t, const rein_groups_summary *summary) {
    const rein_settings *settings = rein_session_settings(t->session);
    const unsigned warnings = rein_groups_warnings(summary);
    char text[300];
    for (unsigned bit = 1; bit && bit <= warnings; bit <<= 1) {
        const rein_groups_warning warning = (rein_groups_warning)bit;
        if (warnings & bit && applies(warning, settings))
            cli_say(0, WHERE, "warning: %s", rein_groups_warning_text(text, sizeof text, warning, summary));
    }
    if (!cli_preset(settings) && !rein_options_given(rein_settings_objective(settings), NULL))
        cli_say(0, WHERE, "note: no preset and no option of the objective is given: this is REINFORCE on the rewards as they are");
}

/* ---------------------------------------------------------------------------------------------------------------------- output */

static void row(rein_text *out, const char *name, const char *format, double value, const char *after) {
    char text[60];
    if (isnan(value)) return;
    snprintf(text, sizeof text, format, value);
    rein_text_format(out, "%-12s %s%s\n", name, text, after);
}

static void table(rein_text *out, const rein_session_report *r, const cli_training *t) {
    char longest[60] = "", deviation[60] = "";
    snprintf(longest, sizeof longest, " tokens, at most %g", cli_report_value(r, "completions/max_length"));
    snprintf(deviation, sizeof deviation, " ± %.4g within a group", cli_report_value(r, "reward_std"));
    rein_text_format(out, "%-12s %lld%s\n", "step", (long long)r->step, r->nothing_to_train ? ", nothing to train" : "");
    row(out, "reward", "%.6g", cli_report_value(r, "reward"), deviation);
    row(out, "length", "%.6g", cli_report_value(r, "completions/mean_length"), longest);
    row(out, "over budget", "%.3g", 100 * cli_report_value(r, "budget/share_over"), " % of the responses");
    row(out, "loss", "%.6g", cli_report_value(r, "loss"), "");
    row(out, "grad norm", "%.6g", cli_report_value(r, "grad_norm"), "");
    row(out, "rate", "%.6g", cli_report_value(r, "learning_rate"), "");
    row(out, "kl", "%.6g", cli_report_value(r, "kl"), " to the reference");
    row(out, "critic", "%.6g", cli_report_value(r, "critic/loss"), " loss");
    row(out, "explained", "%.3g", cli_report_value(r, "critic/explained_variance"), " of the variance of the returns");
    row(out, "clipped", "%.3g", 100 * cli_report_value(r, "clip_ratio/region_mean"), " % of the tokens");
    row(out, "gap", "%.3g", cli_report_value(r, "on_policy/max_gap"), " between sampler and trainer");
    if (!r->nothing_to_train) row(out, "speed", "%.0f", cli_report_value(r, "tokens_per_second"), " tokens/s");
    rein_text_format(out, "%-12s ", "checkpoint");
    cli_training_checkpoint(out, t, r->step);
    rein_text_put(out, "\n");
}

static int dry_run(const cli_training *t, const rein_groups_summary *s, const rein_loss *loss, const rein_memory_use *memory,
                   int json) {
    const rein_settings *settings = rein_session_settings(t->session);
    rein_text out = {0};
    const int nothing = loss->nothing_to_train || !s->trained_tokens;
    warn(t, s);
    if (json) {
        rein_text_format(&out,
                         "{\"dry_run\": true, \"new_run\": %s, \"groups\": %zu, \"trajectories\": %zu, \"tokens\": %zu, "
                         "\"trained_tokens\": %zu, \"nothing_to_train\": %s",
                         rein_session_is_new(t->session) ? "true" : "false", s->groups, s->trajectories, s->tokens,
                         s->trained_tokens, nothing ? "true" : "false");
        rein_json_put_field(&out, "memory_bytes", (double)memory->total);
        rein_json_put_field(&out, "reward", loss->metrics.reward);
        rein_json_put_field(&out, "frac_reward_zero_std", loss->metrics.frac_reward_zero_std);
        rein_text_put(&out, "}\n");
        return cli_print(&out);
    }
    cli_training_describe(&out, t, t->session);
    rein_text_format(&out, "%-12s %s\n", "objective", cli_preset(settings) ? cli_preset(settings) : "by its stages");
    rein_text_format(&out, "%-12s %zu with %zu trajectories\n", "groups", s->groups, s->trajectories);
    rein_text_format(&out, "%-12s %zu, of which %zu train%s\n", "tokens", s->tokens, s->trained_tokens,
                     nothing ? ": nothing to train" : "");
    rein_text_format(&out, "%-12s %.6g, after shaping; %.3g %% of the groups teach nothing\n", "reward", loss->metrics.reward,
                     100 * loss->metrics.frac_reward_zero_std);
    if (memory->total) cli_memory_row(&out, memory);
    rein_text_put(&out, "Nothing was written.\n");
    return cli_print(&out);
}

/* ------------------------------------------------------------------------------------------------------------------ the command */

static int train(cli_training *t, rein_groups *groups, const rein_groups_summary *summary, int json) {
    rein_session_report report;
    rein_error err = {0};
    rein_text out = {0};
    const int status = cli_training_begin(t);
    if (status) return status;
    warn(t, summary);
    if (rein_session_train(&report, t->session, groups, NULL, &err) ||
        rein_session_commit(&report, t->session, groups, NULL, 0, &err) || rein_session_save(t->session, &err))
        return cli_training_failed(t, &err);
    cli_training_note(t, t->session);
    if (report.nothing_to_train)
        cli_say(0, WHERE, "nothing to train: no token trains, or every gradient is 0; the policy is unchanged");
    if (json) cli_report_json(&out, &report, t);
    else table(&out, &report, t);
    return cli_print(&out);
}

/* It is a setting: the next step of the run reads its messages in the same way. */
static int keep_chat_format(const cli_training *t) {
    const char *format = cli_option_value(t->args, "chat-format");
    rein_error err = {0};
    return format && rein_settings_set(t->given, "chat_format", format, &err) ? cli_say_error(WHERE, &err) : CLI_DONE;
}

int cli_run_train(const cli_args *args) {
    const char *path = cli_option_value(args, "groups");
    const int json = cli_option_value(args, "json") != NULL;
    rein_groups groups = {0};
    rein_groups_summary summary;
    rein_loss loss = {0};
    rein_memory_use memory = {0};
    cli_training t = {0};
    int status = cli_training_read(&t, args);
    if (!status) status = keep_chat_format(&t);
    if (!status && rein_settings_given(t.given, "save_steps"))
        status = cli_say_option(WHERE, "save-steps", "has no effect here: one step is made, and it is saved");
    if (!status && !path) status = cli_say(CLI_WRONG, WHERE, "trajectory groups are needed: --groups FILE, JSON lines");
    if (!status) cli_memory_foresee(&t, REIN_MEMORY_TRAINING);
    if (!status) status = cli_training_prepare(&t);
    if (!status) status = read_groups(&groups, &loss, &t, path);
    if (!status) {
        summary = rein_groups_summarise(&groups);
        if (cli_memory_estimate(&memory, rein_session_settings(t.session), REIN_MEMORY_TRAINING, 0, &groups))
            cli_memory_note(&t, &memory);
        status =
            cli_option_value(args, "dry-run") ? dry_run(&t, &summary, &loss, &memory, json) : train(&t, &groups, &summary, json);
    }
    rein_groups_free(&groups);
    cli_training_close(&t);
    return status;
}
