/* gguf_write_config.c - the metadata of a model, from its configuration: gguf_config.c in the other direction, under the same names.
 *
 * GGUF and llama.cpp know less than config.json. What would be computed in another way is an error that names it. Where only long texts would
 * be, because llama.cpp has no window for the family, the context becomes as long as the window: then every token sees the same ones. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/json.h"
#include "gguf_write.h"

typedef struct writing {
    rein_gguf_pairs *to;
    rein_text *notes;
    const rein_gguf_family *family;
    const rein_model *model;
    const rein_model_config *c;
    rein_status status;
    rein_error *err;
} writing;

enum { KEY = 120 };
static const char *key_of(char to[KEY], const writing *w, const char *name) {
    snprintf(to, KEY, "%s.%s", w->family->architecture, name);
    return to;
}

static void refuse(writing *w, const char *what) {
    if (!w->status) w->status = rein_fail(w->err, REIN_EINVAL, "%s: GGUF has no word for %s", w->model->directory, what);
}

static void put_size(writing *w, const char *name, int64_t x) {
    char key[KEY];
    if (x < 0 || x > UINT32_MAX) refuse(w, "sizes above 4294967295");
    rein_gguf_put_u32(w->to, key_of(key, w, name), (uint32_t)x);
}

static void put_real(writing *w, const char *name, double x) {
    char key[KEY];
    rein_gguf_put_f32(w->to, key_of(key, w, name), x);
}

/* --------------------------------------------------------------------------------------------------------------------- context */

/* The file of the configuration, for what the model does not keep. */
static rein_status read_config(json_t **json, const rein_model *model, rein_error *err) {
    char *path = rein_path_join(model->directory, "config.json");
    *json = NULL;
    const rein_status status = path ? rein_json_read(json, path, REIN_JSON_NEEDS_OBJECT, err) : rein_no_memory(err);
    free(path);
    return status;
}

/* The context of longrope is the original one here; the file says the whole. */
static int64_t whole_context(writing *w) {
    json_t *json = NULL;
    if (w->c->rope.type != REIN_ROPE_LONGROPE) return w->c->max_positions;
    w->status = read_config(&json, w->model, w->err);
    const json_int_t whole = json_integer_value(json_object_get(json, "max_position_embeddings"));
    json_decref(json);
    return whole > 0 ? (int64_t)whole : w->c->max_positions;
}

static int has_windows(const rein_model_config *c) {
    for (size_t l = 0; l < (size_t)c->n_layers; l++)
        if (c->layers[l] & REIN_LAYER_WINDOW) return 1;
    return 0;
}

static void put_context(writing *w) {
    const rein_model_config *c = w->c;
    const int64_t whole = whole_context(w);
    const int cut = !w->family->windows && has_windows(c) && c->window < whole;
    put_size(w, "context_length", cut ? c->window : whole);
    if (cut && w->notes)
        rein_text_format(w->notes, "the context is %lld tokens, its window, instead of %lld: %s models have no window in GGUF\n",
                         (long long)c->window, (long long)whole, w->family->architecture);
}

static void put_windows(writing *w) {
    const rein_model_config *c = w->c;
    const int always = !strcmp(w->family->architecture, "gemma2"); /* it has a window if the file does not say which */
    char key[KEY];
    if (!w->family->windows || (!c->window && !always)) return;
    put_size(w, "attention.sliding_window", c->window ? c->window : c->max_positions);
    if (w->family->windows == 1) {
        if (w->notes)
            rein_text_format(w->notes,
                             "llama.cpp computes %s models without their window: its log-probabilities differ after %lld tokens\n",
                             w->family->architecture, (long long)c->window);
        return;
    }
    rein_gguf_put_array(w->to, key_of(key, w, "attention.sliding_window_pattern"), REIN_GGUF_BOOL, (uint64_t)c->n_layers);
    for (size_t l = 0; l < (size_t)c->n_layers; l++) {
        const char windowed = (c->layers[l] & REIN_LAYER_WINDOW) != 0;
        rein_gguf_add_bytes(w->to, &windowed, 1);
    }
}

/* ------------------------------------------------------------------------------------------------------------- rotary embedding */

static void put_text(writing *w, const char *name, const char *text) {
    char key[KEY];
    rein_gguf_put_text(w->to, key_of(key, w, name), text);
}

static void put_yarn(writing *w, const rein_rope *rope) {
    const double usual = rope->factor <= 1 ? 1 : 0.1 * log(rope->factor) + 1;
    if (rope->beta_fast != 32 || rope->beta_slow != 1 || !rope->whole_range || fabs(rope->attention_factor - usual) > 1e-9)
        refuse(w, "YaRN with beta_fast, beta_slow, truncate or attention_factor other than the usual ones");
    put_text(w, "rope.scaling.type", "yarn");
    put_real(w, "rope.scaling.factor", rope->factor);
    put_size(w, "rope.scaling.original_context_length", rope->original_max_positions);
}

static void put_scaling(writing *w) {
    const rein_rope *rope = &w->c->rope;
    switch (rope->type) {
    case REIN_ROPE_DEFAULT: break;
    case REIN_ROPE_LLAMA3: /* a tensor of factors */
        if ((rope->low_freq_factor != 1 || rope->high_freq_factor != 4 || rope->original_max_positions != 8192) && w->notes)
            rein_text_put(w->notes,
                          "the factors of the rotary embedding are not Llama 3's published ones: llama.cpp reads them, rein "
                          "does not\n");
        break;
    case REIN_ROPE_LINEAR:
        put_text(w, "rope.scaling.type", "linear");
        put_real(w, "rope.scaling.factor", rope->factor);
        break;
    case REIN_ROPE_YARN: put_yarn(w, rope); break;
    case REIN_ROPE_LONGROPE:
        put_size(w, "rope.scaling.original_context_length", rope->original_max_positions);
        put_real(w, "rope.scaling.attn_factor", rope->attention_factor);
        break;
    }
}

static void put_rope(writing *w) {
    const rein_model_config *c = w->c;
    put_size(w, "rope.dimension_count", (int64_t)((double)c->head_dim * c->rope.partial));
    put_real(w, "rope.freq_base", c->rope.theta);
    put_scaling(w);
    if (c->window_rope.theta <= 0) return;
    if (c->window_rope.type != REIN_ROPE_DEFAULT) refuse(w, "scaling of the rotary embedding of layers with a window");
    put_real(w, "rope.freq_base_swa", c->window_rope.theta);
}

static rein_status long_factors(float *to, size_t n, const rein_model *model, rein_error *err) {
    json_t *json;
    const rein_status status = read_config(&json, model, err);
    const json_t *scaling = json_object_get(json, "rope_scaling");
    const json_t *list =
        json_object_get(json_is_object(scaling) ? scaling : json_object_get(json, "rope_parameters"), "long_factor");
    const int good = json_array_size(list) == n;
    for (size_t i = 0; i < n && good; i++) to[i] = (float)json_number_value(json_array_get(list, i));
    json_decref(json);
    if (status || good) return status;
    return rein_fail(err, REIN_EINVAL, "%s: rope_scaling.long_factor of config.json is not a list of %zu numbers, which GGUF needs",
                     model->directory, n);
}

rein_status rein_gguf_factors_of(rein_gguf_factors factors[REIN_GGUF_FACTORS], size_t *n, const rein_model *model,
                                 rein_error *err) {
    const rein_model_config *c = &model->config;
    const rein_rope *rope = &c->rope;
    const size_t dims = (size_t)((double)c->head_dim * rope->partial), half = dims / 2;
    *n = 0;
    if (rope->type != REIN_ROPE_LLAMA3 && rope->type != REIN_ROPE_LONGROPE) return REIN_OK;
    if (half > REIN_MAX_ROPE_FACTORS)
        return rein_fail(err, REIN_EINVAL, "%s: the rotary embedding has %zu frequencies: at most %d can be written",
                         model->directory, half, REIN_MAX_ROPE_FACTORS);
    factors[0].n = factors[1].n = half;
    factors[0].name = rope->type == REIN_ROPE_LLAMA3 ? "rope_freqs.weight" : "rope_factors_short.weight";
    factors[1].name = "rope_factors_long.weight";
    *n = rope->type == REIN_ROPE_LLAMA3 ? 1 : 2;
    for (size_t i = 0; i < half; i++)
        factors[0].values[i] = rope->type == REIN_ROPE_LONGROPE
                                   ? rope->factors[i]
                                   : (float)rein_gguf_llama3_factor(rope->theta, i, dims, rope->factor, rope->low_freq_factor,
                                                                    rope->high_freq_factor, (double)rope->original_max_positions);
    return rope->type == REIN_ROPE_LONGROPE ? long_factors(factors[1].values, half, model, err) : REIN_OK;
}

/* ------------------------------------------------------------------------------------------------------------------- per family */

static void put_gemma(writing *w) {
    const rein_model_config *c = w->c;
    const double scale = rein_gguf_gemma_scale(w->family->architecture, (double)c->n_layers, (double)c->hidden_size,
                                               (double)c->n_heads, (double)c->head_dim);
    if (fabs(c->score_scale * sqrt(scale) - 1) > 1e-9) refuse(w, "this query_pre_attn_scalar: it follows from the sizes");
    if (!strcmp(w->family->architecture, "gemma2") && !(c->score_cap > 0 && c->logit_cap > 0))
        refuse(w, "a Gemma 2 without attn_logit_softcapping or final_logit_softcapping");
    if (c->score_cap > 0) put_real(w, "attn_logit_softcapping", c->score_cap);
    if (c->logit_cap > 0) put_real(w, "final_logit_softcapping", c->logit_cap);
}

static void put_granite(writing *w) {
    put_real(w, "embedding_scale", w->c->embedding_scale);
    put_real(w, "residual_scale", w->c->residual_scale);
    put_real(w, "attention.scale", w->c->score_scale);
    put_real(w, "logit_scale", w->c->logit_divisor);
}

static void put_experts(writing *w) {
    const rein_model_config *c = w->c;
    if (rein_first_layer(c, 0) < (size_t)c->n_layers && w->notes)
        rein_text_put(w->notes, "layers without experts in a mixture (mlp_only_layers) are read here, but not by llama.cpp\n");
    if (!c->normalise_experts) refuse(w, "norm_topk_prob false");
    put_size(w, "expert_count", c->n_experts);
    put_size(w, "expert_used_count", c->experts_per_token);
    put_size(w, "expert_feed_forward_length", c->expert_size);
}

/* llama.cpp leaves out the rotary embedding in every fourth layer. */
static void check_smollm3(writing *w) {
    for (int64_t l = 0; l < w->c->n_layers; l++)
        if (((w->c->layers[l] & REIN_LAYER_NO_ROPE) != 0) != ((l + 1) % 4 == 0))
            refuse(w, "no_rope_layers other than every fourth");
}

static void put_family(writing *w) {
    const char *name = w->family->architecture;
    const rein_model_config *c = w->c;
    if (!strcmp(name, "gemma2") || !strcmp(name, "gemma3")) put_gemma(w);
    if (!strcmp(name, "granite")) put_granite(w);
    if (!strcmp(name, "qwen3moe")) put_experts(w);
    if (!strcmp(name, "smollm3")) check_smollm3(w);
    if (!w->family->all_biases && (c->o_bias || c->mlp_bias)) refuse(w, "biases of o_proj and of the MLP in this family");
}

/* -------------------------------------------------------------------------------------------------------------------- the whole */

static void put_sizes(writing *w) {
    const rein_model_config *c = w->c;
    put_size(w, "block_count", c->n_layers);
    put_context(w);
    put_size(w, "embedding_length", c->hidden_size);
    put_size(w, "feed_forward_length", c->intermediate_size);
    put_size(w, "attention.head_count", c->n_heads);
    put_size(w, "attention.head_count_kv", c->n_kv_heads);
    put_size(w, "attention.key_length", c->head_dim);
    put_size(w, "attention.value_length", c->head_dim);
    put_real(w, "attention.layer_norm_rms_epsilon", c->rms_norm_eps);
    put_size(w, "vocab_size", c->vocab_size);
}

rein_status rein_gguf_put_config(rein_gguf_pairs *to, rein_text *notes, const rein_gguf_family *family, const rein_model *model,
                                 rein_error *err) {
    writing w = {to, notes, family, model, &model->config, REIN_OK, err};
    put_sizes(&w);
    put_windows(&w);
    put_rope(&w);
    put_family(&w);
    return w.status ? w.status : rein_text_status(&to->bytes, err);
}
