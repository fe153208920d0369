/* family_olmoe.c - OLMoE: a mixture of experts in every layer, and norms of q and k as a whole (arXiv 2409.02060). */
#include "config.h"

static void read_olmoe(rein_model_config *to, rein_fields *in) {
    to->n_experts = rein_fields_integer_or(in, "num_experts", 1, REIN_MAX_EXPERTS, 64);
    to->experts_per_token = rein_fields_integer_or(in, "num_experts_per_tok", 1, REIN_MAX_EXPERTS, 8);
    to->expert_size = to->intermediate_size;
    to->normalise_experts = rein_fields_bool_or(in, "norm_topk_prob", 0);
    for (int64_t l = 0; l < to->n_layers; l++) to->layers[l] |= REIN_LAYER_EXPERTS;
    rein_config_refuse(in, "clip_qkv");
    rein_config_check_experts(to, in);
}

const rein_family rein_family_olmoe = {
    .model_type = "olmoe",
    .architecture = "OlmoeForCausalLM",
    .max_positions = 4096,
    .bos = -1,
    .eos = 50279,
    .norm_epsilon = 1e-5,
    .qk_norm = REIN_QK_WHOLE,
    .bias_by_config = 1,
    .experts = 1,
    .read = read_olmoe,
};
