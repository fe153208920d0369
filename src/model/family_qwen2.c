/* family_qwen2.c - Qwen2 and Qwen2.5: biases of q, k and v (arXiv 2407.10671). */
#include "family.h"

const rein_family rein_family_qwen2 = {
    .model_type = "qwen2",
    .architecture = "Qwen2ForCausalLM",
    .kv_heads = 32,
    .max_positions = 32768,
    .bos = -1,
    .eos = -1,
    .qkv_bias = 1,
    .windows = REIN_WINDOW_BY_FLAG,
    .window = 4096,
};
