/* run_check.c - whether a checkpoint of a run may be used with files and commands as they are now, for callers that only read the run. */
#include <stdlib.h>
#include <string.h>

#include "fingerprint.h"
#include "origin.h"
#include "state.h"

/* The settings that name files, and what they are for; 0: only for training. */
static const struct {
    const char *name;
    unsigned part;
} NAMED[] = {{"model", REIN_RUN_POLICY},
             {"adapter", REIN_RUN_POLICY},
             {"task", REIN_RUN_TASK},
             {"eval_task", REIN_RUN_TASK},
             {"reward", REIN_RUN_TASK},
             {"reward_model", REIN_RUN_TASK},
             {"ptx_data", 0},
             {"kl_ref_adapter_path", 0},
             {"teacher", 0}};
enum { MOST_SKIPPED = sizeof NAMED / sizeof *NAMED };

/* What is not used, or not as the run has it. */
static void choose_skipped(const char **skipped, const rein_settings *given, unsigned parts) {
    for (size_t i = 0; i < MOST_SKIPPED; i++)
        if (!(NAMED[i].part & parts) || rein_settings_given(given, NAMED[i].name) ||
            (!strcmp(NAMED[i].name, "reward_model") && rein_settings_given(given, "reward")))
            *skipped++ = NAMED[i].name;
}

rein_status rein_run_compare(const rein_run *run, int64_t step, const rein_settings *settings, const rein_settings *given,
                             unsigned parts, int accepts, rein_error *err) {
    const char *skipped[MOST_SKIPPED + 1] = {NULL};
    json_t *state = NULL, *files = NULL;
    choose_skipped(skipped, given, parts);
    rein_status status = rein_state_read(&state, run, step, err);
    const json_t *before = json_object_get(state, "files");
    if (!status && before && !(given->allowed & REIN_ALLOW_CHANGED)) {
        status = rein_fingerprint_settings(&files, settings, err);
        if (status) accepts = 0; /* a file cannot be read */
        else status = rein_fingerprint_compare(before, files, settings, skipped, err);
        if (accepts) status = rein_fingerprint_advise(status, err);
    }
    json_decref(files);
    json_decref(state);
    return status;
}

rein_status rein_run_check(const rein_run *run, int64_t step, const rein_settings *settings, const rein_settings *given,
                           unsigned parts, rein_error *err) {
    const rein_status status = parts & REIN_RUN_TASK ? rein_origin_check(run->directory, settings, given, err) : REIN_OK;
    return status ? status : rein_run_compare(run, step, settings, given, parts, 1, err);
}
