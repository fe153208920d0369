/* family_olmo2.c - OLMo 2: norms after attention and MLP, and of q and k as a whole (arXiv 2501.00656). */
#include "family.h"

const rein_family rein_family_olmo2 = {
    .model_type = "olmo2",
    .architecture = "Olmo2ForCausalLM",
    .max_positions = 2048,
    .bos = -1,
    .eos = 50279,
    .norm_epsilon = 1e-5,
    .norms = REIN_NORMS_AFTER,
    .qk_norm = REIN_QK_WHOLE,
    .bias_by_config = 1,
};
