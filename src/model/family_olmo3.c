/* family_olmo3.c - OLMo 3: OLMo 2 with windows in three of four layers; the scaling of the rotary embedding is for the others. */
#include "family.h"

const rein_family rein_family_olmo3 = {
    .model_type = "olmo3",
    .architecture = "Olmo3ForCausalLM",
    .max_positions = 2048,
    .bos = -1,
    .eos = 50279,
    .norm_epsilon = 1e-5,
    .theta = 5e5,
    .norms = REIN_NORMS_AFTER,
    .qk_norm = REIN_QK_WHOLE,
    .bias_by_config = 1,
    .rope_by_type = 1,
    .windows = REIN_WINDOW_BY_TYPE,
    .window = 4096,
    .window_pattern = 4,
};
