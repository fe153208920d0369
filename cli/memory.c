/* memory.c - estimates of memory for the commands that train. */
#include "memory.h"

#include <stdio.h>

#include "terminal.h"

enum { ASSUMED_PROMPT = 256 }; /* tokens, before the task is opened */

static void put_bytes(rein_text *out, double bytes) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    for (bytes /= 1024; bytes >= 1000 && unit < 3; unit++) bytes /= 1024;
    rein_text_format(out, "%.3g %s", bytes, units[unit]);
}

static void say(cli_training *t, const rein_memory_use *use, size_t available, const char *at_least) {
    rein_text needs = {0}, has = {0};
    put_bytes(&needs, (double)use->total);
    put_bytes(&has, (double)available);
    if (!needs.failed && !has.failed)
        cli_say(0, t->args->command->name,
                "note: the run needs %s%s of memory by estimate, and %s are available; a smaller model, shorter or fewer sequences "
                "or --recompute need less",
                at_least, needs.data, has.data);
    t->memory_noted = 1;
    rein_text_free(&needs);
    rein_text_free(&has);
}

/* ------------------------------------------------------------------------------------------------------------------- estimates */

static rein_status copy(rein_settings *to, const rein_settings *from, const char *name) {
    rein_text text = {0};
    rein_status status = rein_settings_get(&text, from, name, NULL);
    if (!status && text.length) status = rein_settings_set(to, name, text.data, NULL);
    rein_text_free(&text);
    return status;
}

static rein_status set_whole(rein_settings *to, const char *name, size_t value) {
    char text[32];
    snprintf(text, sizeof text, "%zu", value ? value : 1);
    return rein_settings_set(to, name, text, NULL);
}

/* Groups of `samples` trajectories with a prompt and a completion of these lengths. */
static rein_status estimate_data(rein_memory_use *use, const rein_settings *settings, size_t prompt, size_t completion,
                                 size_t samples) {
    rein_settings *own = NULL;
    rein_status status = rein_settings_copy(&own, settings, NULL);
    if (!status) status = set_whole(own, "max_tokens", completion);
    if (!status) status = set_whole(own, "samples", samples);
    if (!status) status = rein_memory_estimate(use, own, REIN_MEMORY_TRAINING, prompt, NULL);
    rein_settings_free(own);
    return status;
}

static size_t longest_history(size_t *samples, const rein_groups *groups) {
    size_t longest = 0;
    *samples = 1;
    for (size_t g = 0; g < groups->n; g++) {
        const rein_group *group = &groups->groups[g];
        if (group->n > *samples) *samples = group->n;
        for (size_t i = 0; i < group->n; i++)
            for (size_t h = 0; h < group->trajectories[i].n_histories; h++)
                if (group->trajectories[i].histories[h].n > longest) longest = group->trajectories[i].histories[h].n;
    }
    return longest;
}

int cli_memory_estimate(rein_memory_use *use, const rein_settings *settings, rein_memory_parts parts, size_t tokens,
                        const rein_groups *groups) {
    size_t samples;
    if (parts & REIN_MEMORY_SAMPLING) return !rein_memory_estimate(use, settings, parts, tokens, NULL);
    const rein_groups_summary sum = rein_groups_summarise(groups);
    const size_t longest = longest_history(&samples, groups), trained = sum.length_max < longest ? sum.length_max : longest;
    return !estimate_data(use, settings, longest - trained, trained, samples);
}

/* ----------------------------------------------------------------------------------------------------------------------- notes */

void cli_memory_note(cli_training *t, const rein_memory_use *use) {
    const size_t available = rein_memory_available() + use->weights;
    if (!t->memory_noted && use->total > available) say(t, use, available, "");
}

/* The settings of a run that exists are in its config.yaml; what is given now changes them. */
static rein_status read_settings(rein_settings **settings, const cli_training *t) {
    rein_text path = {0};
    const char *run = t->fork.run ? t->fork.run : t->run;
    rein_status status = rein_settings_new(settings, NULL);
    rein_text_format(&path, "%s/config.yaml", run);
    if (!status && !path.failed && rein_run_exists(run)) status = rein_settings_read(*settings, path.data, NULL);
    rein_text_free(&path);
    for (size_t i = 0; rein_setting_at(i) && !status; i++)
        if (rein_settings_given(t->given, rein_setting_at(i)->name)) status = copy(*settings, t->given, rein_setting_at(i)->name);
    return status;
}

void cli_memory_foresee(cli_training *t, rein_memory_parts parts) {
    rein_settings *settings = NULL;
    rein_memory_use use = {0};
    const int samples = parts & REIN_MEMORY_SAMPLING;
    rein_status status = read_settings(&settings, t);
    if (!status && samples) status = rein_memory_estimate(&use, settings, parts, ASSUMED_PROMPT, NULL);
    else if (!status) status = estimate_data(&use, settings, 0, 1, 1);
    const size_t available = rein_memory_available();
    if (!status && use.total > available) say(t, &use, available, samples ? "" : "at least ");
    rein_settings_free(settings);
}

void cli_memory_row(rein_text *out, const rein_memory_use *use) {
    rein_text_format(out, "%-12s about ", "memory");
    put_bytes(out, (double)use->total);
    rein_text_put(out, " by estimate, if all are as long as the longest\n");
}
