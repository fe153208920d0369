/* family_qwen3_moe.c - Qwen3 with mixtures of experts in place of some or all MLPs (arXiv 2505.09388). */
#include <stdio.h>

#include "config.h"

/* transformers 5 writes num_local_experts. */
static void read_sizes(rein_model_config *to, rein_fields *in) {
    const char *key = rein_fields_has(in, "num_local_experts") ? "num_local_experts" : "num_experts";
    to->n_experts = rein_fields_integer_or(in, key, 0, REIN_MAX_EXPERTS, 128);
    to->experts_per_token = rein_fields_integer_or(in, "num_experts_per_tok", 1, REIN_MAX_EXPERTS, 8);
    to->expert_size = rein_fields_integer_or(in, "moe_intermediate_size", 1, 1 << 24, 768);
    to->normalise_experts = rein_fields_bool_or(in, "norm_topk_prob", 0);
}

static void read_qwen3_moe(rein_model_config *to, rein_fields *in) {
    const json_t *dense = rein_fields_array(in, "mlp_only_layers");
    const int64_t step = rein_fields_integer_or(in, "decoder_sparse_step", 1, REIN_MAX_LAYERS, 1);
    size_t i;
    json_t *layer;
    read_sizes(to, in);
    for (int64_t l = 0; l < to->n_layers && !in->status && to->n_experts; l++)
        if ((l + 1) % step == 0) to->layers[l] |= REIN_LAYER_EXPERTS;
    json_array_foreach((json_t *)(uintptr_t)dense, i, layer) {
        const int64_t l = json_integer_value(layer);
        char key[40];
        snprintf(key, sizeof key, "mlp_only_layers[%zu]", i);
        if (!json_is_integer(layer) || l < 0) rein_fields_wrong(in, key, layer, "the number of a layer is needed");
        else if (l < to->n_layers) to->layers[l] &= (uint8_t)~REIN_LAYER_EXPERTS;
    }
    rein_config_check_experts(to, in);
}

const rein_family rein_family_qwen3_moe = {
    .model_type = "qwen3_moe",
    .architecture = "Qwen3MoeForCausalLM",
    .kv_heads = 4,
    .max_positions = 32768,
    .bos = -1,
    .eos = -1,
    .bias_by_config = 1,
    .qk_norm = REIN_QK_HEADS,
    .experts = 1,
    .windows = REIN_WINDOW_ALL_BY_FLAG,
    .window = 4096,
    .read = read_qwen3_moe,
};
