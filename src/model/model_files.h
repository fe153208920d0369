/* model_files.h - saves a model in files of a chosen size, for tests. Private. */
#ifndef REIN_MODEL_MODEL_FILES_H
#define REIN_MODEL_MODEL_FILES_H

#include "weights.h"

/* rein_model_save with files of at most `max_bytes` bytes of tensors, or of a single tensor. */
rein_status rein_model_save_shards(const rein_model *model, const rein_adapter *adapter, const char *directory, size_t max_bytes,
                                   rein_error *err);

#endif
