/* tensorboard.h - event files that TensorBoard reads, written without it. Private.
 *
 * Scalars are written as `simple_value`, without plugin data: the form that torch's SummaryWriter.add_scalar writes, and that every
 * version of TensorBoard and every other reader of event files understands. A value is a float there: what is beyond its range becomes
 * infinite, and whole numbers above 2^24 are rounded.
 *
 * TensorBoard reads the files of a directory in the order of their names and leaves one at the first record that is not whole. So every
 * open writes a file of its own, whose name comes after all that are there; a tail torn by a crash hides nothing behind it. */
#ifndef REIN_REPORT_TENSORBOARD_H
#define REIN_REPORT_TENSORBOARD_H

#include "rein/base.h"

typedef struct rein_tensorboard rein_tensorboard;

/* Makes the directory. The file itself, events.out.tfevents.TIME.HOST.PROCESS, comes with the first step that is added, and its time is
 * that step's (or later, so that the names stay in order). purge_step: the first step that is to come, 0 or more. What earlier files say of
 * it and of later steps is no longer shown: a run that goes on from the checkpoint of step k gives k + 1. The caller closes *tb; it is NULL
 * on failure. One thread at a time, and one writer to a directory. */
rein_status rein_tensorboard_open(rein_tensorboard **tb, const char *directory, int64_t purge_step, rein_error *err);

/* Adds the values of one step in one write; without values nothing is written. wall_time is in seconds since 1970: the library has no
 * clock. names [n] are UTF-8 and not empty, values [n] any double. After a failure nothing of the step is in the file, and the next step
 * starts a new one. */
rein_status rein_tensorboard_add(rein_tensorboard *tb, int64_t step, double wall_time, const char *const *names,
                                 const double *values, size_t n, rein_error *err);

/* Harmless on NULL. */
void rein_tensorboard_close(rein_tensorboard *tb);

/* CRC-32C (Castagnoli, RFC 3720), unmasked. Thread-safe. */
uint32_t rein_crc32c(const void *data, size_t size);

#endif
