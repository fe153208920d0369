/* state.h - what state.json says about its checkpoint: the format, the step, and the files it was made with. Private. */
#ifndef REIN_TRAIN_STATE_H
#define REIN_TRAIN_STATE_H

#include "run.h"

/* The format of the files of a run. 1 has neither "format" nor "files". A number is added when an older rein could not read the files, or
 * would read them wrongly. */
enum { REIN_STATE_FORMAT = 2 };

/* Adds "format" and "files" (fingerprint.h). */
rein_status rein_state_complete(json_t *state, json_t *files, rein_error *err);

/* REIN_EINVAL if this rein cannot read the format, or if the checkpoint is not of `step`, the one that its directory is named after. */
rein_status rein_state_check(const json_t *state, const char *path, int64_t step, rein_error *err);

/* The state of a checkpoint, checked. The caller releases *state; NULL on failure. */
rein_status rein_state_read(json_t **state, const rein_run *run, int64_t step, rein_error *err);

/* The same of the newest checkpoint whose state.json is intact; its other files are not checked. *state is NULL if there is none. */
rein_status rein_state_newest(json_t **state, const rein_run *run, rein_error *err);

/* The files of a checkpoint and those of the settings, as rein_run_check compares them (run_check.c). accepts: the caller has the option
 * --accept-changed, and the message names it. */
rein_status rein_run_compare(const rein_run *run, int64_t step, const rein_settings *settings, const rein_settings *given,
                             unsigned parts, int accepts, rein_error *err);

#endif
