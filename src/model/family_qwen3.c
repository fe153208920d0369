/* family_qwen3.c - Qwen3, dense: norms of each head's q and k (arXiv 2505.09388). */
#include "family.h"

const rein_family rein_family_qwen3 = {
    .model_type = "qwen3",
    .architecture = "Qwen3ForCausalLM",
    .kv_heads = 32,
    .head_dim = 128,
    .max_positions = 32768,
    .bos = -1,
    .eos = -1,
    .bias_by_config = 1,
    .qk_norm = REIN_QK_HEADS,
    .windows = REIN_WINDOW_BY_FLAG,
    .window = 4096,
};
