/* family_gemma2.c - Gemma 2: norms before and after, capped scores and logits, a window in every other layer (arXiv 2408.00118). */
#include <math.h>

#include "config.h"

static void read_gemma2(rein_model_config *to, rein_fields *in) {
    to->score_scale = 1 / sqrt(rein_fields_number_or(in, "query_pre_attn_scalar", 0, 256));
    to->score_cap = rein_config_cap(in, "attn_logit_softcapping", 50);
    to->logit_cap = rein_config_cap(in, "final_logit_softcapping", 30);
    rein_config_refuse(in, "use_bidirectional_attention");
}

const rein_family rein_family_gemma2 = {
    .model_type = "gemma2",
    .architecture = "Gemma2ForCausalLM",
    .kv_heads = 4,
    .head_dim = 256,
    .max_positions = 8192,
    .bos = 2,
    .eos = 1,
    .tied = 1,
    .norms = REIN_NORMS_BEFORE_AND_AFTER,
    .norm_offset = 1,
    .bias_by_config = 1,
    .activation = REIN_GELU_TANH,
    .activation_key = "hidden_activation",
    .scaled_embedding = 1,
    .windows = REIN_WINDOW_BY_TYPE,
    .window = 4096,
    .window_pattern = 2,
    .read = read_gemma2,
};
