/* family_phi3.c - Phi-3 and Phi-4-mini: fused matrices, and rotary embeddings of a part of each head (arXiv 2404.14219, 2503.01743). */
#include "family.h"

const rein_family rein_family_phi3 = {
    .model_type = "phi3",
    .architecture = "Phi3ForCausalLM",
    .max_positions = 4096,
    .bos = 1,
    .eos = 32000,
    .norm_epsilon = 1e-5,
    .fused = 1,
    .partial_rope = 1,
    .longrope = 1,
    .windows = REIN_WINDOW_ALL,
};
