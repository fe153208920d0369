/* family_gemma3.c - Gemma 3: Gemma 2 with norms of q and k instead of caps, and a rotary embedding of its own for layers with a window
 * (arXiv 2503.19786). Checkpoints with a vision tower contain the same text model. */
#include <math.h>

#include "config.h"

static void read_gemma3(rein_model_config *to, rein_fields *in) {
    to->score_scale = 1 / sqrt(rein_fields_number_or(in, "query_pre_attn_scalar", 0, 256));
    to->logit_cap = rein_config_cap(in, "final_logit_softcapping", 0);
    rein_config_refuse(in, "attn_logit_softcapping");
    rein_config_refuse(in, "use_bidirectional_attention");
}

#define GEMMA3                                                                                                                \
    .vocab_size = 262208, .heads = 8, .kv_heads = 4, .head_dim = 256, .max_positions = 131072, .bos = 2, .eos = 1, .tied = 1, \
    .theta = 1e6, .norms = REIN_NORMS_BEFORE_AND_AFTER, .norm_offset = 1, .qk_norm = REIN_QK_HEADS, .bias_by_config = 1,      \
    .activation = REIN_GELU_TANH, .activation_key = "hidden_activation", .scaled_embedding = 1, .window_theta = 1e4,          \
    .rope_by_type = 1, .windows = REIN_WINDOW_BY_TYPE, .window = 4096, .window_pattern = 6, .read = read_gemma3

const rein_family rein_family_gemma3 = {
    .model_type = "gemma3_text", .architecture = "Gemma3ForCausalLM", .classifier = "Gemma3TextForSequenceClassification", GEMMA3};
const rein_family rein_family_gemma3_vision = {.model_type = "gemma3",
                                               .architecture = "Gemma3ForConditionalGeneration",
                                               .classifier = "Gemma3ForSequenceClassification",
                                               .nested = "text_config",
                                               .text = &rein_family_gemma3,
                                               GEMMA3};
