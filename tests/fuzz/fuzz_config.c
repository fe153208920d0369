/* fuzz_config.c - any bytes as config.json and, after a byte 0, generation_config.json (libFuzzer).
 *
 * Accepted: the numbers keep what config.h promises, and the tensors of the model have names and shapes. Refused: REIN_EINVAL, one
 * line says why, and nothing is written. Anything else is a bug. */
/* words: src/model/config*.c */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "fuzz/require.h"
#include "model/config.h"

static void check_sizes(const rein_model_config *c) {
    require(c->vocab_size > 0 && c->hidden_size > 0 && c->intermediate_size > 0 && c->n_layers > 0, "a size is not positive", "");
    require(c->n_kv_heads > 0 && c->n_heads % c->n_kv_heads == 0, "the heads do not divide", "");
    require(c->head_dim > 0 && c->head_dim % 2 == 0, "the width of a head is odd", "");
    require(c->rms_norm_eps > 0 && c->rope.theta > 0 && c->rope.factor > 0 && c->max_positions > 0, "a number is not positive", "");
    require(c->rope.type != REIN_ROPE_LLAMA3 || c->rope.high_freq_factor > c->rope.low_freq_factor,
            "the frequencies are not in order", "");
    require(!c->n_experts || (c->experts_per_token > 0 && c->experts_per_token <= c->n_experts && c->expert_size > 0),
            "the experts do not fit", "");
    require(c->bos >= -1 && c->bos < c->vocab_size, "bos is no token", "");
    require(c->n_eos >= 0 && c->n_eos <= REIN_MAX_EOS, "the number of eos is wrong", "");
    for (int i = 0; i < c->n_eos; i++) require(c->eos[i] >= 0 && c->eos[i] < c->vocab_size, "eos is no token", "");
}

static void check_weight(const rein_model_config *c, size_t i) {
    rein_weight w;
    size_t bytes;
    rein_model_weight(&w, c, i);
    require(rein_tensor_bytes(&bytes, REIN_TENSOR_F32, w.shape, w.n_dims) && bytes > 0, "a shape overflows", "");
    require(rein_model_weight_use(c, w.name) == REIN_WEIGHT_USED, "a name is not recognised", "");
}

/* The first and the last: there may be thousands of layers. */
static void check_weights(const rein_model_config *c) {
    const size_t n = rein_model_weights(c), few = n < 40 ? n : 40;
    for (size_t i = 0; i < few; i++) {
        check_weight(c, i);
        check_weight(c, n - 1 - i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *nul = memchr(data, 0, size);
    const size_t first = nul ? (size_t)(nul - data) : size;
    json_t *json = NULL, *generation = NULL;
    rein_model_config c, untouched;
    rein_error err = {0};
    memset(&c, 0x55, sizeof c);
    memcpy(&untouched, &c, sizeof c);
    rein_status status = rein_json_parse(&json, (const char *)data, first, "config.json", REIN_JSON_NEEDS_OBJECT, &err);
    if (!status && nul)
        status = rein_json_parse(&generation, (const char *)nul + 1, size - first - 1, "generation_config.json",
                                 REIN_JSON_NEEDS_OBJECT, &err);
    if (!status) status = rein_model_config_parse(&c, "config.json", json, "generation_config.json", generation, &err);
    if (status == REIN_OK) {
        check_sizes(&c);
        check_weights(&c);
    } else {
        require(status == REIN_EINVAL, "the status is not EINVAL", "");
        require(*err.message && !strpbrk(err.message, "\r\n"), "the message is not one line", "");
        require(!memcmp(&c, &untouched, sizeof c), "something was written on failure", "");
    }
    json_decref(json);
    json_decref(generation);
    return 0;
}
