/* adapter_files.h - the parts of reading and writing adapters as PEFT does. Private; thread-safe. */
#ifndef REIN_MODEL_ADAPTER_FILES_H
#define REIN_MODEL_ADAPTER_FILES_H

#include "base/json.h"
#include "weights.h"

/* Reads the parsed adapter_config.json. Settings that are not supported and would change the numbers are errors that name them. Which
 * modules it means depends on the model; with model NULL config->modules is 0. config->base is borrowed from json. */
rein_status rein_adapter_config_parse(rein_adapter_config *config, const rein_model_config *model, const char *file,
                                      const json_t *json, rein_error *err);

/* Makes the object that PEFT would write, with the fields it has had since 0.10; NULL if there is no memory. */
json_t *rein_adapter_config_json(const rein_adapter *adapter);

/* Reads target_modules and exclude_modules, which are lists, "all-linear" or regular expressions, into a bit mask of modules. */
unsigned rein_adapter_modules_read(const rein_model_config *model, rein_fields *in);

/* Makes an adapter from the contents of its two files. The caller closes *adapter; it is NULL on failure. */
rein_status rein_adapter_from_files(rein_adapter **adapter, const rein_model *model, const char *config_file, const json_t *config,
                                    const rein_tensors *tensors, rein_error *err);

/* Finds the module that a tensor name begins with, "model.layers.3.mlp.up_proj" or "lm_head". Returns 1 with its slot and the rest
 * of the name, or 0. */
int rein_module_slot(size_t *slot, const char **rest, const rein_model_config *model, const char *name);

#endif
