/* family_mistral.c - Mistral 7B and its kin: Llama with a sliding window in every layer (arXiv 2310.06825). */
#include "family.h"

const rein_family rein_family_mistral = {
    .model_type = "mistral",
    .architecture = "MistralForCausalLM",
    .kv_heads = 8,
    .max_positions = 131072,
    .bos = 1,
    .eos = 2,
    .windows = REIN_WINDOW_ALL,
    .window = 4096,
};
