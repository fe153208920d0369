/* run_plan.c - `rein run --dry-run`: what a run will ask and train, before it is written. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "memory.h"
#include "run.h"
#include "terminal.h"

enum { SHOWN = 3 }; /* prompts */

static const char *where(const cli_training *t) { return t->args->command->name; }

/* 1 if the advantage compares a response with others of its group. */
static int compares_within_groups(const rein_settings *s) {
    static const char *const names[] = {"group-mean", "group-std", "leave-one-out", "opo", "pass-at-k", "max-rl"};
    const char *advantage = rein_settings_text(s, "advantage");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], advantage)) return 1;
    return 0;
}

static void notes(const cli_training *t, const rein_settings *s, const rein_loop_plan *plan) {
    const double wanted = rein_settings_number(s, "eval_prompts");
    if (plan->ignores_template)
        cli_say(0, where(t),
                "note: the model has a chat template, and the prompts are plain text: --chat makes each a user's message");
    if (rein_settings_number(s, "samples") < 2 && compares_within_groups(s))
        cli_say(0, where(t), "note: --samples is 1, and advantage %s compares the responses to one prompt: nothing will be learned",
                rein_settings_text(s, "advantage"));
    if ((double)plan->held_out < wanted)
        cli_say(0, where(t), "note: %zu examples are held out, fewer than --eval-prompts, %.0f: evaluations use all of them",
                plan->held_out, wanted);
}

void cli_run_notes(const cli_training *t, rein_loop *loop) {
    rein_loop_plan plan;
    if (!rein_loop_describe(&plan, loop, NULL)) notes(t, rein_session_settings(rein_loop_session(loop)), &plan);
}

/* ---------------------------------------------------------------------------------------------------------------------- output */

static void put_time(rein_text *out, double seconds) {
    if (seconds < 90) rein_text_format(out, "%.2g s", seconds);
    else if (seconds < 5400) rein_text_format(out, "%.0f min", seconds / 60);
    else rein_text_format(out, "%.1f h", seconds / 3600);
}

static void put_size(rein_text *out, size_t examples) {
    if (examples == SIZE_MAX) rein_text_put(out, "as many prompts as it takes");
    else rein_text_format(out, "%zu prompt%s to train on", examples, examples == 1 ? "" : "s");
}

/* How many of the steps an existing run has not made. */
static double steps_left(const cli_training *t, const rein_session *session) {
    const double steps = rein_settings_number(rein_session_settings(session), "steps");
    const int64_t *made;
    rein_run *run;
    if (rein_session_is_new(session) || rein_run_open(&run, t->run, REIN_RUN_READ, NULL)) return steps;
    const size_t n = rein_run_checkpoints(&made, run);
    const double left = n ? steps - (double)made[n - 1] : steps;
    rein_run_close(run);
    return left > 0 ? left : 0;
}

static void put_table(rein_text *out, const cli_training *t, const rein_loop *loop, const rein_loop_plan *plan, double seconds) {
    const rein_session *session = rein_loop_session(loop);
    const rein_settings *s = rein_session_settings(session);
    const double prompts = rein_settings_number(s, "prompts"), samples = rein_settings_number(s, "samples");
    const double steps = steps_left(t, session);
    cli_training_describe(out, t, session);
    rein_text_format(out, "%-12s %s\n", "objective", cli_preset(s) ? cli_preset(s) : "by its stages");
    rein_text_format(out, "%-12s %g\n", "rate", rein_settings_number(s, "learning_rate"));
    rein_text_format(out, "%-12s %s, ", "task", rein_settings_text(s, "task"));
    put_size(out, plan->examples);
    rein_text_format(out, ", %zu to evaluate on\n", plan->held_out);
    rein_text_format(out, "%-12s %.0f prompt%s × %.0f response%s of at most %.0f tokens\n", "a step", prompts,
                     prompts == 1 ? "" : "s", samples, samples == 1 ? "" : "s", rein_settings_number(s, "max_tokens"));
    rein_text_format(out, "%-12s about ", "time");
    put_time(out, seconds);
    rein_text_format(out, " a step, ");
    put_time(out, seconds * steps);
    rein_text_format(out, " for %.0f step%s%s, without rewards and evaluations\n", steps, steps == 1 ? "" : "s",
                     rein_session_is_new(session) ? "" : " more");
    rein_memory_use use;
    if (cli_memory_estimate(&use, s, REIN_MEMORY_RUN, plan->prompt_tokens, NULL)) cli_memory_row(out, &use);
}

/* The prompts as JSON strings: newlines and special tokens can be seen. */
static int put_prompts(rein_text *out, const cli_training *t, rein_loop *loop, int json) {
    for (size_t i = 0; i < SHOWN; i++) {
        rein_text prompt = {0};
        rein_error err = {0};
        const rein_status status = rein_loop_prompt(&prompt, loop, i, &err);
        if (!status && json) rein_text_put(out, i ? ", " : "");
        if (!status && !json) rein_text_format(out, "prompt %zu     ", i + 1);
        if (!status) rein_json_put_string(out, prompt.data ? prompt.data : "");
        if (!status && !json) rein_text_put(out, "\n");
        rein_text_free(&prompt);
        if (status == REIN_END) break;
        if (status) return cli_say_error(where(t), &err);
    }
    return CLI_DONE;
}

static int show(const cli_training *t, rein_loop *loop, int json) {
    const rein_session *session = rein_loop_session(loop);
    rein_text out = {0};
    rein_error err = {0};
    rein_loop_plan plan;
    double seconds = 0;
    if (rein_loop_describe(&plan, loop, &err) || rein_loop_estimate(&seconds, loop, &err)) return cli_say_error(where(t), &err);
    notes(t, rein_session_settings(session), &plan);
    if (json) {
        rein_text_format(&out, "{\"dry_run\": true, \"new_run\": %s", rein_session_is_new(session) ? "true" : "false");
        if (plan.examples != SIZE_MAX) rein_json_put_field(&out, "examples", (double)plan.examples);
        rein_json_put_field(&out, "held_out", (double)plan.held_out);
        rein_json_put_field(&out, "seconds_per_step", seconds);
        rein_memory_use use;
        if (cli_memory_estimate(&use, rein_session_settings(session), REIN_MEMORY_RUN, plan.prompt_tokens, NULL))
            rein_json_put_field(&out, "memory_bytes", (double)use.total);
        rein_text_put(&out, ", \"prompts\": [");
    } else put_table(&out, t, loop, &plan, seconds);
    const int status = put_prompts(&out, t, loop, json);
    rein_text_put(&out, json ? "]}\n" : "Nothing was written.\n");
    return cli_print_result(&out, status);
}

int cli_run_plan(cli_training *t, int json) {
    rein_error err = {0};
    rein_loop *loop = NULL;
    const rein_loop_options options = {.fork = t->fork.run ? &t->fork : NULL};
    cli_memory_foresee(t, REIN_MEMORY_RUN);
    if (rein_loop_prepare(&loop, t->run, t->given, &options, &err)) return cli_say_setting_error(t->args, &err);
    const int status = show(t, loop, json);
    rein_loop_close(loop);
    return status;
}
