/* session_fork.c - whether a run can begin from a checkpoint of another one, and with which settings. */
#include <stdlib.h>

#include "base/base.h"
#include "base/file.h"
#include "origin.h"
#include "session.h"

static rein_status no_memory(rein_error *err) { return rein_fail(err, REIN_ENOMEM, "no memory for a path"); }

static rein_status check_step(const rein_fork *from, rein_error *err) {
    char shown[300], name[REIN_PATH_SHOWN];
    rein_run *run;
    rein_status status = rein_run_open(&run, from->run, REIN_RUN_READ, err);
    if (status) return status;
    if (rein_run_has_step(run, from->step)) status = rein_checkpoint_verify(run, from->step, err);
    else
        status = rein_fail(err, REIN_EINVAL, "%s has no checkpoint of step %lld; it has %s", rein_path_show(name, from->run),
                           (long long)from->step,
                           rein_run_checkpoints(NULL, run) ? rein_run_show_steps(shown, sizeof shown, run) : "none");
    rein_run_close(run);
    return status;
}

/* A fork that was interrupted has a checkpoint and no settings: it is made again. */
static rein_status check_place(const char *directory, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    if (!rein_run_exists(directory)) return REIN_OK;
    return rein_fail(err, REIN_EINVAL, "%s is a run already: a fork needs a directory that is new or empty",
                     rein_path_show(shown, directory));
}

rein_status rein_fork_settings(rein_settings *settings, const char *directory, const rein_fork *from, const rein_settings *given,
                               rein_error *err) {
    rein_status status = check_step(from, err);
    if (!status) status = check_place(directory, err);
    char *path = status ? NULL : rein_path_join(from->run, "config.yaml");
    if (!status) status = path ? rein_settings_read(settings, path, err) : no_memory(err);
    free(path);
    if (!status) status = rein_origin_check(from->run, settings, given, err);
    if (!status) status = rein_settings_fork(settings, given, err);
    return status ? status : rein_settings_check(settings, err);
}
