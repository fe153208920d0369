/* tensorboard.h - writes event files for TensorBoard, without its libraries. Private.
 *
 * Scalars are written as `simple_value`, without plugin data: the form that torch's SummaryWriter.add_scalar writes, and that every
 * version of TensorBoard and every other reader of event files understands. Values are floats: larger numbers become
 * infinite, and whole numbers above 2^24 are rounded.
 *
 * TensorBoard reads the files of a directory in the order of their names and stops reading a file at the first incomplete record. So every
 * open starts a new file, whose name sorts after all existing ones; an incomplete record left by a crash hides nothing after it. */
#ifndef REIN_REPORT_TENSORBOARD_H
#define REIN_REPORT_TENSORBOARD_H

#include "rein/trajectory.h"

typedef struct rein_tensorboard rein_tensorboard;

/* Creates the directory. The file, events.out.tfevents.TIME.HOST.PROCESS, is created when the first step is added; TIME is the time of that
 * step, or later so that the names stay in order. purge_step: the first step that will be added, 0 or more. TensorBoard then hides this and
 * later steps of earlier files: a run that resumes from the checkpoint of step k gives k + 1. The caller closes *tb; it is NULL on failure.
 * One thread at a time, and one writer to a directory. */
rein_status rein_tensorboard_open(rein_tensorboard **tb, const char *directory, int64_t purge_step, rein_error *err);

/* Adds the values of one step in one write; without values nothing is written. wall_time is in seconds since 1970: the library has no
 * clock. Names are UTF-8 and not empty, values any double. After a failure nothing of the step is in the file, and the next step
 * starts a new one. */
rein_status rein_tensorboard_add(rein_tensorboard *tb, int64_t step, double wall_time, const rein_named_number *metrics, size_t n,
                                 rein_error *err);

/* Harmless on NULL. */
void rein_tensorboard_close(rein_tensorboard *tb);

/* CRC-32C (Castagnoli, RFC 3720), unmasked. Thread-safe. */
uint32_t rein_crc32c(const void *data, size_t size);

#endif
