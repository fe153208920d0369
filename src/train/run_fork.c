/* run_fork.c - a new run from a checkpoint of another. Files are copied, not linked: a link would let what happens to one run happen to
 * the other. What arrived is compared with what the other run's MANIFEST says. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint.h"
#include "manifest.h"
#include "model/unicode.h"

/* What is copied, and from where. */
typedef struct source {
    const char *run; /* as it was given */
    int64_t step;
    char *directory; /* of the checkpoint */
    rein_manifest manifest;
    json_t *state; /* an object, with the provenance */
} source;

static void release(source *from) {
    rein_manifest_free(&from->manifest);
    json_decref(from->state);
    free(from->directory);
}

/* The checkpoint becomes one of step 0. */
static rein_status add_provenance(source *from, rein_error *err) {
    char hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, from->manifest.hash);
    const size_t length = strlen(from->run);
    json_t *run = rein_utf8_valid(from->run, length) == length ? json_string(from->run) : json_null();
    if (!run) return rein_no_memory(err);
    json_t *origin = json_pack("{s:o, s:I, s:s}", "run", run, "step", (json_int_t)from->step, "manifest", hash);
    if (!origin || json_object_set_new(from->state, "forked_from", origin) != 0) return rein_no_memory(err);
    if (json_object_get(from->state, "step") && json_object_set_new(from->state, "step", json_integer(0)) != 0)
        return rein_no_memory(err);
    return REIN_OK;
}

static int has_state(const rein_manifest *manifest) {
    for (size_t i = 0; i < manifest->n; i++)
        if (!strcmp(manifest->files[i].name, REIN_STATE_NAME)) return 1;
    return 0;
}

/* The caller releases *from, after a failure too. */
static rein_status look_at_source(source *from, const char *run_directory, int64_t step, rein_error *err) {
    rein_run *run;
    *from = (source){.run = run_directory, .step = step};
    rein_status status = rein_run_open(&run, run_directory, REIN_RUN_READ, err);
    if (status) return status;
    from->directory = rein_run_step_path(run, step);
    status = from->directory ? rein_checkpoint_verify(run, step, err) : rein_no_memory(err);
    if (!status) status = rein_manifest_read(&from->manifest, from->directory, err);
    if (!status && has_state(&from->manifest)) status = rein_checkpoint_read_json(&from->state, run, step, REIN_STATE_NAME, err);
    else if (!status && !(from->state = json_object())) status = rein_no_memory(err);
    if (!status) status = add_provenance(from, err);
    rein_run_close(run);
    return status;
}

/* That of FOLDER/NAME; whether it is there already makes no difference. */
static rein_status make_folder(const rein_checkpoint *to, const char *name, rein_error *err) {
    const char *slash = strchr(name, '/');
    if (!slash) return REIN_OK;
    char *path = rein_checkpoint_path(to, name);
    if (!path) return rein_no_memory(err);
    *strrchr(path, '/') = 0;
    const rein_status status = rein_make_directories(path, err);
    free(path);
    return status;
}

static rein_status copy_file(const rein_checkpoint *to, const source *from, const rein_manifest_file *file, rein_error *err) {
    rein_file data = {0};
    char *path = rein_path_join(from->directory, file->name);
    rein_status status = path ? rein_file_map(&data, path, err) : rein_no_memory(err);
    if (!status) status = make_folder(to, file->name, err);
    if (!status) status = rein_checkpoint_put(to, file->name, data.data, data.size, err);
    if (!status) status = rein_manifest_check(file, rein_checkpoint_directory(to), err);
    rein_file_unmap(&data);
    free(path);
    return status;
}

static rein_status copy_checkpoint(rein_run *run, const source *from, rein_error *err) {
    rein_checkpoint *to;
    rein_status status = rein_checkpoint_begin(&to, run, 0, err);
    for (size_t i = 0; i < from->manifest.n && !status; i++)
        if (strcmp(from->manifest.files[i].name, REIN_STATE_NAME) != 0) status = copy_file(to, from, &from->manifest.files[i], err);
    if (!status) status = rein_checkpoint_put_json(to, REIN_STATE_NAME, from->state, err);
    if (!status) return rein_checkpoint_commit(to, err);
    rein_checkpoint_abandon(to);
    return status;
}

rein_status rein_run_fork(rein_run **run, const char *directory, const char *from_run, int64_t step, rein_error *err) {
    source from;
    char shown[REIN_PATH_SHOWN];
    *run = NULL;
    rein_status status = look_at_source(&from, from_run, step, err);
    if (!status) status = rein_run_open(run, directory, REIN_RUN_RESUME, err);
    if (!status && ((*run)->n_steps > 1 || ((*run)->n_steps == 1 && (*run)->steps[0] != 0)))
        status = rein_fail(err, REIN_EINVAL, "%s is a run already", rein_path_show(shown, directory));
    if (!status) status = copy_checkpoint(*run, &from, err);
    release(&from);
    if (status) {
        rein_run_close(*run);
        *run = NULL;
    }
    return status;
}
