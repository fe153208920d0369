/* fingerprint.h - which files a run is made with: size and hash of each, as state.json of a checkpoint has them. Private.
 *
 *     "files": {"model/config.json": {"size": 535, "hash": "303419cc68883c0b"}, "task": {"size": 120, "hash": "…"}}
 *
 * A key is the setting that names the file; if that names a directory, the name of the file follows. Paths are not part of it: a model can
 * move. Of programs the command is hashed, and no file that it names. */
#ifndef REIN_TRAIN_FINGERPRINT_H
#define REIN_TRAIN_FINGERPRINT_H

#include <jansson.h>

#include "settings.h"

/* Adds one file. One that does not exist is left out: whoever opens it reports it. */
rein_status rein_fingerprint_add(json_t *files, const char *key, const char *path, rein_error *err);

/* All files that the settings name. The caller releases *files; NULL on failure. */
rein_status rein_fingerprint_settings(json_t **files, const rein_settings *settings, rein_error *err);

/* REIN_EINVAL if a file is not what it was; the error names it. `settings` (for the message) are those of `now`. Files of a setting that
 * either side does not have are not compared, nor are those of a setting in `skipped` (NULL-terminated; NULL: none). */
rein_status rein_fingerprint_compare(const json_t *before, const json_t *now, const rein_settings *settings,
                                     const char *const *skipped, rein_error *err);

/* The same error, and that --accept-changed continues: for callers that have this option. Returns the status. */
rein_status rein_fingerprint_advise(rein_status status, rein_error *err);

#endif
