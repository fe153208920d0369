/* family_smollm3.c - SmolLM3: Llama in which every fourth layer has no rotary embedding. */
#include <stdio.h>

#include "config.h"

/* no_rope_layers has a 1 for each layer with a rotary embedding, whatever its name says. */
static void read_smollm3(rein_model_config *to, rein_fields *in) {
    const json_t *list = rein_fields_array(in, "no_rope_layers");
    const int64_t interval = rein_fields_integer_or(in, "no_rope_layer_interval", 1, REIN_MAX_LAYERS, 4);
    for (int64_t l = 0; l < to->n_layers && !in->status; l++) {
        const json_t *entry = json_array_get(list, (size_t)l);
        char key[40];
        snprintf(key, sizeof key, "no_rope_layers[%lld]", (long long)l);
        if (list && (!json_is_integer(entry) || (json_integer_value(entry) != 0 && json_integer_value(entry) != 1)))
            rein_fields_wrong(in, key, entry, "0 or 1 is needed for each of the %lld layers", (long long)to->n_layers);
        else if (list ? !json_integer_value(entry) : (l + 1) % interval == 0) to->layers[l] |= REIN_LAYER_NO_ROPE;
    }
}

const rein_family rein_family_smollm3 = {
    .model_type = "smollm3",
    .architecture = "SmolLM3ForCausalLM",
    .kv_heads = 4,
    .max_positions = 32768,
    .bos = 128000,
    .eos = 128001,
    .theta = 2e6,
    .tied = 1,
    .bias_by_config = 1,
    .mlp_bias = 1,
    .windows = REIN_WINDOW_NO_ROPE,
    .read = read_smollm3,
};
