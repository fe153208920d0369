/* family_granite.c - Granite 3: Llama with four multipliers. */
#include "config.h"

static void read_granite(rein_model_config *to, rein_fields *in) {
    to->embedding_scale = rein_fields_number_or(in, "embedding_multiplier", 0, 1);
    to->score_scale = rein_fields_number_or(in, "attention_multiplier", 0, 1);
    to->residual_scale = rein_fields_number_or(in, "residual_multiplier", 0, 1);
    to->logit_divisor = rein_fields_number_or(in, "logits_scaling", 0, 1);
}

const rein_family rein_family_granite = {
    .model_type = "granite",
    .architecture = "GraniteForCausalLM",
    .max_positions = 2048,
    .bos = 1,
    .eos = 2,
    .bias_by_config = 1,
    .mlp_bias = 1,
    .read = read_granite,
};
