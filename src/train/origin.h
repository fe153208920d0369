/* origin.h - whether a run was made here by this user, and which commands it would run. Private.
 *
 * The tasks and rewards of a run may be commands, so config.yaml of a stranger's run is a program of theirs. RUN/.origin has the inode and the
 * time of birth of the directory. A copy or an unpacked archive has others, a run that is moved within its file system keeps them. */
#ifndef REIN_TRAIN_ORIGIN_H
#define REIN_TRAIN_ORIGIN_H

#include "run.h"
#include "settings.h"

/* REIN_EINVAL if the run was not made here by this user and its settings have commands that are not in `given` (NULL: none is), unless
 * `given` allows them. The error shows the commands. */
rein_status rein_origin_check(const char *directory, const rein_settings *settings, const rein_settings *given, rein_error *err);

/* Writes RUN/.origin: from here on its commands are this user's. */
rein_status rein_origin_write(const rein_run *run, rein_error *err);

#endif
