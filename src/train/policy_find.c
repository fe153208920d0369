/* policy_find.c - where the files of a policy are: a model's directory, a run, or a step of a run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/file.h"
#include "run.h"
#include "settings.h"
#include "state.h"

void rein_policy_files_free(rein_policy_files *files) {
    free(files->model);
    free(files->adapter);
    free(files->run);
    free(files->quantize);
    *files = (rein_policy_files){.step = -1};
}

/* "RUN@7" is a step of a run, unless a directory has that name. */
static size_t split_step(int64_t *step, const char *text) {
    const char *at = strrchr(text, '@');
    *step = -1;
    if (!at || !at[1] || strlen(at + 1) > 18 || strspn(at + 1, "0123456789") != strlen(at + 1) || rein_file_is_directory(text))
        return strlen(text);
    *step = strtoll(at + 1, NULL, 10);
    return (size_t)(at - text);
}

/* A model or adapter that changed since the run can still be used; the note says so, because its results are not those of the run. */
static rein_status note_changes(char note[REIN_NOTE_SIZE], const rein_run *run, int64_t step, const rein_settings *settings,
                                rein_error *err) {
    rein_error why = {0};
    rein_settings *given = NULL;
    rein_status status = rein_settings_new(&given, &why);
    if (!status) status = rein_run_compare(run, step, settings, given, REIN_RUN_POLICY, 0, &why);
    rein_settings_free(given);
    if (status != REIN_EINVAL) return status ? rein_fail_with(err, status, &why) : REIN_OK;
    if (!*note) snprintf(note, REIN_NOTE_SIZE, "%s", why.message); /* the result is not that of the policy which the run has */
    return REIN_OK;
}

/* The directory of the checkpoint, for the caller to free. *step -1 becomes that of the newest good one. */
static rein_status find_checkpoint(char **path, int64_t *step, char note[REIN_NOTE_SIZE], const char *directory,
                                   const rein_settings *settings, rein_error *err) {
    rein_run *run;
    char shown[REIN_PATH_SHOWN], steps[200];
    *path = NULL;
    rein_status status = rein_run_open(&run, directory, REIN_RUN_READ, err);
    if (status) return status;
    rein_path_show(shown, directory);
    if (*step >= 0 && !rein_run_has_step(run, *step))
        status = rein_fail(err, REIN_EINVAL, "%s has no step %lld: it has %s", shown, (long long)*step,
                           rein_run_show_steps(steps, sizeof steps, run));
    else status = *step < 0 ? rein_run_last_good(step, note, run, err) : rein_checkpoint_verify(run, *step, err);
    if (!status && *step < 0) status = rein_fail(err, REIN_EINVAL, "%s has no checkpoint yet", shown);
    if (!status) status = note_changes(note, run, *step, settings, err);
    if (!status && !(*path = rein_run_step_path(run, *step))) status = rein_no_memory(err);
    rein_run_close(run);
    return status;
}

static rein_status model_is_gone(const char *run, const rein_settings *settings, rein_error *err) {
    char shown[REIN_PATH_SHOWN], model[REIN_PATH_SHOWN];
    rein_path_show(shown, run);
    return rein_fail(err, REIN_EINVAL, "%s, the model of %s, is not there: rein %s %s --model NEWPLACE relocates it",
                     rein_path_show(model, settings->model), shown, *settings->task ? "run" : "serve", shown);
}

/* A checkpoint has an adapter of the run's model, or is itself a model. */
static rein_status take_checkpoint(rein_policy_files *files, char *checkpoint, const rein_settings *settings, rein_error *err) {
    const int adapts = rein_directory_has(checkpoint, "adapter_config.json");
    if (adapts && !rein_file_is_directory(settings->model) && !rein_model_is_gguf(settings->model)) {
        const rein_status status = model_is_gone(files->run, settings, err);
        return free(checkpoint), status;
    }
    files->temperature = rein_settings_temperature(settings, files->step);
    files->model = adapts ? strdup(settings->model) : checkpoint;
    files->adapter = adapts ? checkpoint : NULL;
    if (*settings->quantize) files->quantize = strdup(settings->quantize);
    return files->model && (files->quantize || !*settings->quantize) ? REIN_OK : rein_no_memory(err);
}

static rein_status find_in_run(rein_policy_files *files, rein_error *err) {
    rein_settings *settings = NULL;
    char *checkpoint = NULL, *config = rein_path_join(files->run, "config.yaml");
    rein_status status = config ? rein_settings_new(&settings, err) : rein_no_memory(err);
    if (!status) status = rein_settings_read(settings, config, err);
    if (!status) status = find_checkpoint(&checkpoint, &files->step, files->note, files->run, settings, err);
    if (!status) status = take_checkpoint(files, checkpoint, settings, err);
    rein_settings_free(settings);
    free(config);
    return status;
}

rein_status rein_policy_find(rein_policy_files *files, const char *text, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    int64_t step;
    *files = (rein_policy_files){.step = -1, .temperature = 1};
    const size_t length = split_step(&step, text);
    char *directory = strndup(text, length);
    if (!directory) return rein_no_memory(err);
    rein_status status = REIN_OK;
    if (rein_run_exists(directory)) {
        files->run = directory, files->step = step;
        status = find_in_run(files, err);
    } else if (step < 0 && (rein_file_is_directory(directory) || rein_model_is_gguf(directory))) {
        files->model = directory;
    } else {
        status = rein_fail(err, REIN_EINVAL,
                           "\"%s\" is neither a model (a directory with config.json and safetensors, or a GGUF file; nothing is "
                           "downloaded) nor a run (RUN or RUN@STEP)",
                           rein_path_show(shown, text));
        free(directory);
    }
    if (!status) return REIN_OK;
    rein_policy_files_free(files);
    return rein_fail_as(err, status, "model", -1, NULL);
}
