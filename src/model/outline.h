/* outline.h - a model as config.json describes it, without its weights: what it would need in memory. Private.
 *
 * The arrays of a pass are measured by the functions that take them (decoder.h), so that a part added there is counted here. */
#ifndef REIN_MODEL_OUTLINE_H
#define REIN_MODEL_OUTLINE_H

#include "decoder.h"

typedef struct rein_outline {
    rein_model model;     /* config and heads; there are no layers and no weights */
    rein_adapter adapter; /* rank, modules and the ranks of its LoRAs; rank 0: there is none */
    int full;             /* all weights train */
    rein_exec exec;
    size_t numbers;         /* weights of the model */
    size_t vectors, packed; /* bytes of norms and biases in f32, and of packed matrices in the type that they are stored in */
    size_t packed_f32;      /* the same if they are f32 */
    size_t adapter_floats, adapter_packed;
} rein_outline;

/* Reads config.json, and the types of the tensors if their files are there; without them the type is that of config.json. quantize is that of
 * rein_model_options. lora may be NULL;
 * names of modules that the model does not have are ignored. exec is resolved. The outline points into itself: it is not copied. The caller closes it,
 * also after a failure. */
rein_status rein_outline_open(rein_outline *outline, const char *directory, const char *quantize, const rein_lora_options *lora,
                              int full, const rein_exec *exec, rein_error *err);
void rein_outline_close(rein_outline *outline);

/* Bytes of a part of a block of keys: REIN_KEY_BLOCK positions. */
size_t rein_outline_key_part(const rein_outline *outline, rein_key_part part);

/* Of so many blocks in a row, those whose keys in layers with a window are stored. */
size_t rein_outline_window_blocks(const rein_outline *outline, size_t blocks);

/* Bytes of the cosines and sines of so many positions. */
size_t rein_outline_angles(const rein_outline *outline, size_t positions);

/* Bytes that one token leaves in the activation cache. */
size_t rein_outline_cache_row(const rein_outline *outline, int recompute);

/* Bytes of the arrays of one layer over so many rows, of which no query sees more than `keys` keys; for the backward pass too if it is
 * kept. */
size_t rein_outline_layer(const rein_outline *outline, size_t rows, size_t queries, size_t keys, int for_backward);

/* A pass of a training step: segments of one tree. */
typedef struct rein_outline_pass {
    size_t shared, own, n; /* rows of the beginning that n segments share, and of each of these */
    int recompute;
} rein_outline_pass;

/* Bytes of the activations of a forward and a backward pass. */
size_t rein_outline_activations(const rein_outline *outline, const rein_outline_pass *pass);

#endif
