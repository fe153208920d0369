/* model_files.h - a model written back, with the limit that its tests change. Private. */
#ifndef REIN_MODEL_MODEL_FILES_H
#define REIN_MODEL_MODEL_FILES_H

#include "weights.h"

/* rein_model_save, in files of at most `largest` bytes of tensors, or one tensor. */
rein_status rein_model_save_shards(const rein_model *model, const rein_adapter *adapter, const char *directory, size_t largest,
                                   rein_error *err);

#endif
