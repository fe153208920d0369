/* checkpoint.h - one checkpoint of a run, written and read. It appears whole or not at all: files go to a hidden directory beside it, and
 * commit makes them durable, adds the MANIFEST, and renames. This layer does not interpret the files. Private; one thread at a time. */
#ifndef REIN_TRAIN_CHECKPOINT_H
#define REIN_TRAIN_CHECKPOINT_H

#include "run.h"

#define REIN_STATE_NAME "state.json"

/* A checkpoint that is being written. */
typedef struct rein_checkpoint rein_checkpoint;

/* For a run that is open for writing and outlives it, one at a time. *checkpoint is NULL on failure; else it is committed or abandoned. */
rein_status rein_checkpoint_begin(rein_checkpoint **checkpoint, rein_run *run, int64_t step, rein_error *err);

/* The directory to write files into; it belongs to the checkpoint. */
const char *rein_checkpoint_directory(const rein_checkpoint *checkpoint);

/* The path of a file in it, for the caller to free; NULL when there is no memory. */
char *rein_checkpoint_path(const rein_checkpoint *checkpoint, const char *name);

/* Writes a file. After a failure the checkpoint is to be abandoned. */
rein_status rein_checkpoint_put(const rein_checkpoint *checkpoint, const char *name, const void *data, size_t size,
                                rein_error *err);
rein_status rein_checkpoint_put_json(const rein_checkpoint *checkpoint, const char *name, const json_t *object, rein_error *err);

/* Ends the checkpoint, also if it fails; on success it is durable. A checkpoint is never replaced: if the run has one of this step that is
 * the same and good, nothing changes and all is well (a step made again after a resume); else it is an error. After a failure the run is as
 * it was; the exception is a directory that cannot be synchronised after the rename, when the checkpoint is there and may not survive a
 * power cut. */
rein_status rein_checkpoint_commit(rein_checkpoint *checkpoint, rein_error *err);

/* Ends the checkpoint without a trace; harmless on NULL. */
void rein_checkpoint_abandon(rein_checkpoint *checkpoint);

/* A JSON file of a checkpoint that was verified. *object is the caller's to release; NULL on failure. */
rein_status rein_checkpoint_read_json(json_t **object, const rein_run *run, int64_t step, const char *name, rein_error *err);

#endif
