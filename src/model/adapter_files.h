/* adapter_files.h - the parts of reading and writing an adapter as PEFT does. Private; thread-safe. */
#ifndef REIN_MODEL_ADAPTER_FILES_H
#define REIN_MODEL_ADAPTER_FILES_H

#include "base/json.h"
#include "weights.h"

/* What adapter_config.json says, as far as numbers depend on it. */
typedef struct rein_adapter_config {
    int64_t rank;
    double alpha;
    int rank_stabilized;
    unsigned modules;                           /* bit m: module m */
    char base[sizeof((rein_adapter *)0)->base]; /* "" when it names none */
} rein_adapter_config;

/* Whatever would change the numbers and is not supported is refused by its name. */
rein_status rein_adapter_config_parse(rein_adapter_config *config, const rein_model_config *model, const char *file,
                                      const json_t *json, rein_error *err);

/* The object that PEFT would write, with the fields that it has had since 0.10; NULL when there is no memory. */
json_t *rein_adapter_config_json(const rein_adapter *adapter);

/* target_modules and exclude_modules: lists, "all-linear", or regular expressions. */
unsigned rein_adapter_modules_read(const rein_model_config *model, rein_fields *in);

/* A whole adapter from what its two files hold. *adapter is NULL on failure, else the caller's to close. */
rein_status rein_adapter_from_files(rein_adapter **adapter, const rein_model *model, const char *config_file, const json_t *config,
                                    const rein_tensors *tensors, rein_error *err);

/* If `name` begins with a module of the model, "model.layers.3.mlp.up_proj" or "lm_head": 1, its slot, and what follows. */
int rein_module_slot(size_t *slot, const char **rest, const rein_model_config *model, const char *name);

#endif
