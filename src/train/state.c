/* state.c - state.json: which format and which step it is of. Checkpoints of earlier versions have less in it; what is missing is not checked,
 * and the next checkpoint has it. */
#include "state.h"
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint.h"
#include "manifest.h"

static rein_status no_memory(rein_error *err) { return rein_fail(err, REIN_ENOMEM, "no memory for state.json"); }

rein_status rein_state_complete(json_t *state, json_t *files, rein_error *err) {
    if (json_object_set_new(state, "format", json_integer(REIN_STATE_FORMAT)) || json_object_set(state, "files", files))
        return no_memory(err);
    return REIN_OK;
}

/* A fork of earlier versions has the state of the run that it came from. */
static int is_old_fork(const json_t *state, int64_t step, int64_t written) {
    const json_t *origin = json_object_get(state, "forked_from");
    return step == 0 && origin && json_integer_value(json_object_get(origin, "step")) == written;
}

rein_status rein_state_check(const json_t *state, const char *path, int64_t step, rein_error *err) {
    char shown[REIN_PATH_SHOWN], name[REIN_STEP_NAME];
    const json_t *rein = json_object_get(state, "rein");
    rein_fields in = {.object = state, .file = path, .path = "", .err = err};
    const int64_t format = rein_fields_has(&in, "format") ? rein_fields_integer(&in, "format", 1, INT64_MAX) : 1;
    const int64_t written = rein_fields_has(&in, "step") ? rein_fields_integer(&in, "step", 0, INT64_MAX) : step;
    if (in.status) return in.status;
    rein_path_show(shown, path);
    if (format > REIN_STATE_FORMAT)
        return rein_fail(err, REIN_EINVAL, "%s has format %lld, of rein %.40s: this is rein %s, which reads formats up to %d",
                         shown, (long long)format, json_is_string(rein) ? json_string_value(rein) : "?", rein_version(),
                         (int)REIN_STATE_FORMAT);
    if (written == step || is_old_fork(state, step, written)) return REIN_OK;
    return rein_fail(err, REIN_EINVAL, "%s is of step %lld: its directory was renamed, and must be named %s", shown,
                     (long long)written, rein_step_name(name, written));
}

static rein_status read_path(json_t **state, const char *path, int64_t step, rein_error *err) {
    rein_status status = rein_json_read(state, path, REIN_JSON_NEEDS_OBJECT, err);
    if (!status) status = rein_state_check(*state, path, step, err);
    if (status) json_decref(*state), *state = NULL;
    return status;
}

rein_status rein_state_read(json_t **state, const rein_run *run, int64_t step, rein_error *err) {
    *state = NULL;
    char *directory = rein_run_step_path(run, step), *path = directory ? rein_path_join(directory, REIN_STATE_NAME) : NULL;
    const rein_status status = path ? read_path(state, path, step, err) : no_memory(err);
    free(path);
    free(directory);
    return status;
}

/* Whether state.json is what was written. REIN_EINVAL: it is not. */
static rein_status check_intact(const rein_run *run, int64_t step, rein_error *err) {
    rein_manifest manifest = {0};
    char *directory = rein_run_step_path(run, step);
    rein_status status = directory ? rein_manifest_read(&manifest, directory, err) : no_memory(err);
    int found = 0;
    for (size_t i = 0; i < manifest.n && !status && !found; i++) {
        if (strcmp(manifest.files[i].name, REIN_STATE_NAME) != 0) continue;
        found = 1;
        status = rein_manifest_check(&manifest.files[i], directory, err);
    }
    if (!status && !found) status = rein_fail(err, REIN_EINVAL, "a checkpoint without %s", REIN_STATE_NAME);
    rein_manifest_free(&manifest);
    free(directory);
    return status;
}

rein_status rein_state_newest(json_t **state, const rein_run *run, rein_error *err) {
    *state = NULL;
    for (size_t i = run->n_steps; i-- > 0;) {
        rein_error problem;
        const rein_status status = check_intact(run, run->steps[i], &problem);
        if (!status) return rein_state_read(state, run, run->steps[i], err);
        if (status != REIN_EINVAL) return rein_fail_with(err, status, &problem);
    }
    return REIN_OK;
}
