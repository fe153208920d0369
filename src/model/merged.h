/* merged.h - the rows of a model's weights, as stored or merged with an adapter, for those who write models. Private. */
#ifndef REIN_MODEL_MERGED_H
#define REIN_MODEL_MERGED_H

#include "kernel/kernels.h"
#include "weight_type.h"
#include "weights.h"

/* Where the numbers of a weight come from. Rows are Hugging Face's. */
typedef struct rein_source {
    rein_weight weight;
    rein_tensor stored;               /* data of [shape] in `storage`; borrowed from the model */
    rein_storage storage;             /* of the data; stored.dtype is what the file says */
    const rein_weight_type *quantize; /* the model computes with rows that are rounded to this type; NULL: with those stored */
    const rein_lora *lora;            /* NULL: none */
} rein_source;

/* Finds weight i of `config`, which is that of the model but may have a head of its own. adapter may be NULL. */
rein_status rein_source_find(rein_source *source, const rein_model *model, const rein_model_config *config,
                             const rein_adapter *adapter, size_t i, rein_error *err);

/* The stored bytes of row r; of a vector, r is 0. */
const char *rein_source_stored_row(const rein_source *source, size_t r);

/* Whether the bytes of the rows are to be written as they are stored, into a tensor of this type. */
int rein_source_is_stored(const rein_source *source, rein_storage storage);

/* Row r without the LoRA, as the model computes with it. */
void rein_source_row(float *to, const rein_source *source, size_t r, const rein_kernels *kernels);

/* Row r with the LoRA: W + s·B·A, summed in f64, where products of f32 are exact. `row` is scratch. */
void rein_source_merged_row(double *to, float *row, const rein_source *source, size_t r, const rein_kernels *kernels);

/* Checks that a row [n] fits a type: REIN_ERANGE names the first number that does not. */
rein_status rein_source_check_row(const double *row, const rein_source *source, size_t r, const rein_weight_type *type,
                                  rein_error *err);

#endif
