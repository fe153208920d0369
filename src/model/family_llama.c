/* family_llama.c - Llama 2 and 3, SmolLM2, TinyLlama and many others (arXiv 2307.09288, 2407.21783). */
#include "family.h"

const rein_family rein_family_llama = {
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    .max_positions = 2048,
    .bos = 1,
    .eos = 2,
    .bias_by_config = 1,
    .mlp_bias = 1,
};
